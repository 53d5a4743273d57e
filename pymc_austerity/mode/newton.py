"""Newton's method with a trust region, in units in which the function is round, and with a diagnosis."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import scipy

from pymc_austerity import work
from pymc_austerity.target import Matrix, QuadraticProxy, Vector

# ``(q) -> (value, gradient, Hessian)``
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
# Products of larger numbers overflow within a search.
_HUGE = 1e100
# Where a search ends; the curvature there is that at the mode up to some 1e-9.
NEAR = 1e-6
# Below this length a step is taken without a look at the value.
_CLOSE = 1e-2
# Newton steps before a trust region is used, the shortest part of a step, and by how much of the gain that
# the slope promises the density has to rise.
_MOST_STEPS, _SHORTEST, _PROMISE = 20, 1e-3, 0.1

# Operations for a step in D dimensions, divided by D^3: of Newton's method, and within a trust region.
OF_STEP, _OF_REGION = 0.25, 1.0


class Maximum(NamedTuple):
    """A maximum of a log density."""

    q: Vector  # (D,)
    value: float
    precision: Matrix  # (D, D): minus the Hessian; positive definite
    gradient_norm: float  # Of the gradient at q in units of posterior standard deviations
    newton_step: Vector  # (D,): from q to where the gradient vanishes, by the curvature
    passes: int  # Evaluations of the density

    @property
    def mode(self) -> Vector:
        """The point where the gradient vanishes, but for the square of `gradient_norm`."""
        return self.q + self.newton_step

    @property
    def log_mass(self) -> float:
        """Laplace's approximation of the integral, but for a constant."""
        return self.value - 0.5 * float(np.linalg.slogdet(self.precision)[1])


def maximum_at(q: Vector, value: float, gradient: Vector, hessian: Matrix, passes: int) -> Maximum:
    """The maximum near q by value and derivatives there; the Hessian is negative definite."""
    step = np.linalg.solve(-hessian, gradient)
    norm = math.sqrt(max(float(gradient @ step), 0.0))
    return Maximum(q, value, -hessian, norm, step, passes)


class NoMaximumError(Exception):
    """There is no maximum, or none that is a single point.

    Along `direction` (D,) the log density is flat, or rises for ever; it is zero if none is known. `passes`
    are evaluations of the density.
    """

    def __init__(self, direction: Vector, reason: str, passes: int) -> None:
        super().__init__(reason)
        self.direction, self.reason, self.passes = direction, reason, passes


def maximise(density: Density, start: Vector, near: float = NEAR) -> Maximum:
    """Climb from `start` to a local maximum, as `near` as a Newton step of that many standard deviations.

    Raises NoMaximumError, with the direction in which there is none.
    """
    counted = CountedDensity(density)
    q, maximum = newton_steps(counted, start, near)
    if maximum is not None:
        return maximum
    for _ in range(_ROUNDS):
        q, success = climb(counted, q)
        maximum = _at(counted, q)
        if maximum.gradient_norm < _EXACT:
            return maximum
        # Near a maximum a Newton step leaves a much smaller one. Where the density rises for ever, ever more
        # slowly, gradient and curvature vanish together, and steps stay as long as they are.
        step = maximum.newton_step
        further = _at(counted, q + step)
        size = np.sqrt(further.newton_step @ maximum.precision @ further.newton_step)
        if size <= _SHRINKS * maximum.gradient_norm:
            return further
    reason = "the log density rises for ever, ever more slowly"
    if not success:
        reason = f"no maximum was found in {counted.passes} passes over the rows"
    raise NoMaximumError(step, reason, counted.passes)


def newton_steps(counted: CountedDensity, start: Vector, near: float) -> tuple[Vector, Maximum | None]:
    """Newton's method, with shorter steps where the density falls, as long as it is concave.

    Returns the point that was reached; and the maximum, if steps have become small ever faster there. Where
    they have not, a trust region has to go on.
    """
    q, last = start, math.inf
    for _ in range(_MOST_STEPS):
        value, gradient, hessian = counted.finite(q)
        if flat_direction(-hessian) is not None:
            return q, None
        here = maximum_at(q, value, gradient, hessian, counted.passes)
        norm = here.gradient_norm
        if norm < _EXACT or (norm < near and norm < _SHRINKS * last):
            return q, here
        length = _length_uphill(counted, here)
        if length == 0.0:
            return q, None
        q, last = q + length * here.newton_step, norm if length == 1.0 else math.inf
    return q, None


def _length_uphill(counted: CountedDensity, here: Maximum) -> float:
    """The share of a Newton step that raises the density by a part of what its slope promises, or zero."""
    q, value, norm, step, length = here.q, here.value, here.gradient_norm, here.newton_step, 1.0
    while length > _SHORTEST:
        # Close to a maximum what is gained is lost in the rounding of the value. Far out it may overflow.
        if norm < _CLOSE or value + _PROMISE * length * norm**2 < counted(q + length * step)[0] < math.inf:
            return length
        length *= 0.25
    return 0.0


def climb(
    counted: CountedDensity,
    start: Vector,
    max_iterations: int = _MAX_ITERATIONS,
    tolerance: float = _GRADIENT,
) -> tuple[Vector, bool]:
    """Trust-region Newton in units in which the curvature at `start` is one. Did it converge?

    It has converged where the gradient, in these units, is below `tolerance`. Raises NoMaximumError if the
    density or a derivative is not finite at `start`.
    """
    _, _, hessian = counted.finite(start)
    counted.factor = _OF_REGION
    to_q = _whitening(-hessian)

    def at(z: Vector) -> tuple[float, Vector, Matrix]:
        value, gradient, hessian = counted(start + to_q @ z)
        curvature = -(to_q.T @ hessian @ to_q)
        curvature[np.abs(curvature) < 1.0 / _HUGE] = 0.0  # SciPy would divide by it
        found = -value, -(to_q.T @ gradient), curvature
        if all(np.all(np.abs(part) < _HUGE) for part in found):
            return found
        return math.inf, np.zeros_like(z), np.eye(len(z))  # a step that is not taken

    size = math.sqrt(len(start))
    # Norms of matrices overflow where a density falls steeply; such steps are not taken.
    with np.errstate(over="ignore", invalid="ignore"):
        found = scipy.optimize.minimize(
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


def _at(counted: CountedDensity, q: Vector) -> Maximum:
    """The maximum at q, with its curvature; an error if q is none."""
    value, gradient, hessian = counted.finite(q)
    flat = flat_direction(-hessian)
    if flat is not None:
        raise NoMaximumError(
            flat,
            "the search came to where the log density has no curvature (flat, or made of straight pieces)",
            counted.passes,
        )
    return maximum_at(q, value, gradient, hessian, counted.passes)


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


class CountedDensity:
    """A density that remembers its last point: SciPy asks for value, slope and curvature in turn."""

    def __init__(self, density: Density) -> None:
        self._density, self.factor = density, OF_STEP
        self._last: tuple[Vector, Any] | None = None
        self.passes = 0

    def __call__(self, q: Vector) -> tuple[float, Vector, Matrix]:
        """Value, gradient and Hessian at q."""
        if self._last is None or not np.array_equal(self._last[0], q):
            work.spend(self.factor * len(q) ** 3, "The search for the mode")
            self._last = (q.copy(), self._density(q))
            self.passes += 1
        result: tuple[float, Vector, Matrix] = self._last[1]
        return result

    def finite(self, q: Vector) -> tuple[float, Vector, Matrix]:
        """Value, gradient and Hessian at q, where they have to be finite."""
        result = self(q)
        if not are_finite(*result):
            reason = "the log density or a derivative is not finite at the start"
            raise NoMaximumError(np.zeros_like(q), reason, self.passes)
        return result


def are_finite(*parts: float | np.ndarray) -> bool:
    """Are all these numbers finite?"""
    return all(bool(np.all(np.isfinite(part))) for part in parts)
