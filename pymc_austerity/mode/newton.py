"""Newton's method with a trust region, in units in which the function is round, and with a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from pymc_austerity.target import QuadraticProxy, Vector

Matrix = np.ndarray
Density = Callable[[Vector], tuple[float, Vector, Matrix]]

# Gradient at which a search has converged, in units of the standard deviations at its start.
_GRADIENT = 1e-6
# Gradient, in units of posterior standard deviations, that is zero but for rounding.
_EXACT = 1e-8
# By so much at least a Newton step shrinks the next.
_SHRINKS = 0.2
# Searches, each in the units of the curvature where the one before ended.
_ROUNDS = 3
# Smallest eigenvalue of the precision, scaled to a unit diagonal, that is told from zero.
_FLAT = 1e-10
_MAX_ITERATIONS = 300


class Maximum(NamedTuple):
    """A maximum of a log density.

    Attributes
    ----------
    q : ndarray of shape (D,)
    value : float
    precision : ndarray of shape (D, D)
        Minus the Hessian; positive definite.
    gradient_norm : float
        Of the gradient at q in units of posterior standard deviations.
    passes : int
        Evaluations of the density.
    """

    q: Vector
    value: float
    precision: Matrix
    gradient_norm: float
    passes: int

    @property
    def log_mass(self) -> float:
        """Laplace's approximation of the integral, but for a constant."""
        return self.value - 0.5 * float(np.linalg.slogdet(self.precision)[1])


class NoMaximumError(Exception):
    """There is no maximum, or none that is a single point.

    Attributes
    ----------
    direction : ndarray of shape (D,)
        Along it the log density is flat, or rises for ever; zero if none is known.
    reason : str
    passes : int
        Evaluations of the density.
    """

    def __init__(self, direction: Vector, reason: str, passes: int) -> None:
        super().__init__(reason)
        self.direction = direction
        self.reason = reason
        self.passes = passes


def maximise(density: Density, start: Vector) -> Maximum:
    """Climb from `start`.

    Parameters
    ----------
    density : callable
        ``(q) -> (value, gradient, Hessian)``.
    start : ndarray of shape (D,)

    Returns
    -------
    Maximum

    Raises
    ------
    NoMaximumError
        With the direction in which there is none.
    """
    counted = Counted(density)
    q = start
    for _ in range(_ROUNDS):
        q, success = climb(counted, q)
        maximum, step = _at(counted, q)
        if maximum.gradient_norm < _EXACT:
            return maximum
        # Near a maximum a Newton step leaves a much smaller one. Where the density rises for ever, ever more
        # slowly, gradient and curvature vanish together, and steps stay as long as they are.
        further, next_step = _at(counted, q + step)
        if np.sqrt(next_step @ maximum.precision @ next_step) <= _SHRINKS * maximum.gradient_norm:
            return further
    reason = "the log density rises for ever, ever more slowly"
    if not success:
        reason = f"no maximum was found in {counted.passes} passes over the rows"
    raise NoMaximumError(step, reason, counted.passes)


def climb(
    counted: Counted, start: Vector, max_iterations: int = _MAX_ITERATIONS, tolerance: float = _GRADIENT
) -> tuple[Vector, bool]:
    """Trust-region Newton in units in which the curvature at `start` is one. Did it converge?

    It has converged where the gradient, in these units, is below `tolerance`.

    Raises
    ------
    NoMaximumError
        If the density or a derivative is not finite at `start`.
    """
    _, _, hessian = counted.finite(start)
    to_q = _whitening(-hessian)

    def at(z: Vector) -> tuple[float, Vector, Matrix]:
        value, gradient, hessian = counted(start + to_q @ z)
        if all(np.all(np.isfinite(part)) for part in (value, gradient, hessian)):
            return -value, -(to_q.T @ gradient), -(to_q.T @ hessian @ to_q)
        return math.inf, np.zeros_like(z), np.eye(len(z))  # a step that is not taken

    size = math.sqrt(len(start))
    found = minimize(
        lambda z: at(z)[0],
        np.zeros_like(start),
        jac=lambda z: at(z)[1],
        hess=lambda z: at(z)[2],
        method="trust-exact",
        options={
            "gtol": tolerance,
            "maxiter": max_iterations,
            "initial_trust_radius": 3.0 * size,
            "max_trust_radius": 1e8 * size,
        },
    )
    return start + to_q @ found.x, bool(found.success)


def _at(counted: Counted, q: Vector) -> tuple[Maximum, Vector]:
    """What is found at q, if it is a maximum, and the Newton step from there."""
    value, gradient, hessian = counted.finite(q)
    precision = -hessian
    flat = flat_direction(precision)
    if flat is not None:
        raise NoMaximumError(
            flat, "the log density has no curvature (flat, or made of straight pieces)", counted.passes
        )
    step = np.linalg.solve(precision, gradient)
    norm = math.sqrt(max(float(gradient @ step), 0.0))
    return Maximum(q, value, precision, norm, counted.passes), step


def flat_direction(precision: Matrix) -> Vector | None:
    """A direction in which `precision` is not positive, or None. Units do not matter."""
    scale = np.sqrt(np.abs(np.diag(precision)))
    if not np.all(scale > 0.0):
        direction: Vector = (scale == 0.0).astype(np.float64)
        return direction
    values, vectors = np.linalg.eigh(precision / np.outer(scale, scale))
    return vectors[:, 0] / scale if values[0] < _FLAT else None


def _whitening(precision: Matrix) -> Matrix:
    """F with q = F z where z has unit precision, as far as the density is concave."""
    if flat_direction(precision) is None:
        return QuadraticProxy(np.zeros(len(precision)), precision).factors()[1]
    size = np.abs(np.diag(precision))
    largest = size.max()
    return np.diag(1.0 / np.sqrt(np.maximum(size, 1e-8 * largest))) if largest > 0.0 else np.eye(len(size))


class Counted:
    """A density that remembers its last point: SciPy asks for value, slope and curvature in turn."""

    def __init__(self, density: Density) -> None:
        self._density = density
        self._last: tuple[Vector, Any] | None = None
        self.passes = 0

    def __call__(self, q: Vector) -> tuple[float, Vector, Matrix]:
        """Value, gradient and Hessian at q."""
        if self._last is None or not np.array_equal(self._last[0], q):
            self._last = (q.copy(), self._density(q))
            self.passes += 1
        result: tuple[float, Vector, Matrix] = self._last[1]
        return result

    def finite(self, q: Vector) -> tuple[float, Vector, Matrix]:
        """Value, gradient and Hessian at q, where they have to be finite."""
        result = self(q)
        if not all(np.all(np.isfinite(part)) for part in result):
            reason = "the log density or a derivative is not finite at the start"
            raise NoMaximumError(np.zeros_like(q), reason, self.passes)
        return result
