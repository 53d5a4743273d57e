"""Newton's method with a trust region, in units in which the function is round, and with a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from pymc_austerity.target import Vector

Matrix = np.ndarray
Density = Callable[[Vector], tuple[float, Vector, Matrix]]

# Gradient at which a search has converged, in units of the standard deviations at its start.
_GRADIENT = 1e-6
# A Newton step left at the end, in the same units: at a maximum it is as small as the gradient. Where the
# density rises for ever, ever more slowly, the gradient vanishes, but not the step.
_STEP = 0.01
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
    counted = _Counted(density)
    _, _, hessian = counted.finite(start)
    to_q = _whitening(-hessian)

    def at(z: Vector) -> tuple[float, Vector, Matrix]:
        return counted(start + to_q @ z)

    def value(z: Vector) -> float:
        result = at(z)
        return -result[0] if all(np.all(np.isfinite(part)) for part in result) else math.inf

    size = math.sqrt(len(start))
    found = minimize(
        value,
        np.zeros_like(start),
        jac=lambda z: -(to_q.T @ at(z)[1]),
        hess=lambda z: -(to_q.T @ at(z)[2] @ to_q),
        method="trust-exact",
        options={
            "gtol": _GRADIENT,
            "maxiter": _MAX_ITERATIONS,
            "initial_trust_radius": 3.0 * size,
            "max_trust_radius": 1e8 * size,
        },
    )
    return _diagnosed(counted, start + to_q @ found.x, to_q, bool(found.success))


def _diagnosed(counted: _Counted, q: Vector, to_q: Matrix, converged: bool) -> Maximum:
    value, gradient, hessian = counted.finite(q)
    precision = -hessian
    flat = flat_direction(precision)
    if flat is not None:
        raise NoMaximumError(flat, "the log density is flat", counted.passes)
    step = np.linalg.solve(precision, gradient)
    if np.linalg.norm(np.linalg.solve(to_q, step)) > _STEP:
        if converged:
            raise NoMaximumError(step, "the log density rises for ever, ever more slowly", counted.passes)
        reason = f"no maximum was found in {counted.passes} passes over the rows"
        raise NoMaximumError(step, reason, counted.passes)
    return Maximum(q, value, precision, math.sqrt(max(float(gradient @ step), 0.0)), counted.passes)


def flat_direction(precision: Matrix) -> Vector | None:
    """A direction in which `precision` is not positive, or None. Units do not matter."""
    scale = np.sqrt(np.abs(np.diag(precision)))
    if not np.all(scale > 0.0):
        direction: Vector = (scale == 0.0).astype(np.float64)
        return direction
    values, vectors = np.linalg.eigh(precision / np.outer(scale, scale))
    return vectors[:, 0] / scale if values[0] < _FLAT else None


def whitening(precision: Matrix) -> Matrix:
    """A triangular F with F F' = precision^-1: q = mode + F z, with z of unit precision."""
    lower = np.linalg.cholesky(precision)
    inverse: Matrix = solve_triangular(lower, np.eye(len(lower)), lower=True).T
    return inverse


def _whitening(precision: Matrix) -> Matrix:
    """The same where the density need not be concave."""
    if flat_direction(precision) is None:
        return whitening(precision)
    size = np.abs(np.diag(precision))
    largest = size.max()
    return np.diag(1.0 / np.sqrt(np.maximum(size, 1e-8 * largest))) if largest > 0.0 else np.eye(len(size))


class _Counted:
    """A density that remembers its last point: SciPy asks for value, slope and curvature in turn."""

    def __init__(self, density: Density) -> None:
        self._density = density
        self._last: tuple[Vector, Any] | None = None
        self.passes = 0

    def __call__(self, q: Vector) -> tuple[float, Vector, Matrix]:
        if self._last is None or not np.array_equal(self._last[0], q):
            self._last = (q.copy(), self._density(q))
            self.passes += 1
        result: tuple[float, Vector, Matrix] = self._last[1]
        return result

    def finite(self, q: Vector) -> tuple[float, Vector, Matrix]:
        """The same, where it has to be finite."""
        result = self(q)
        if not all(np.all(np.isfinite(part)) for part in result):
            reason = "the log density or a derivative is not finite at the start"
            raise NoMaximumError(np.zeros_like(q), reason, self.passes)
        return result
