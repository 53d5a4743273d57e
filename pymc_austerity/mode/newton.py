"""Newton's method, within a trust region where that is needed, and with a diagnosis."""

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
from scipy import optimize

from pymc_austerity import work
from pymc_austerity.target import Matrix, Vector

# ``(q) -> (value, gradient, Hessian)``
Density = Callable[[Vector], tuple[float, Vector, Matrix]]

# Where a search ends; the curvature there is that at the mode up to some 1e-9.
NEAR = 1e-6
# Gradient, in units of posterior standard deviations, that is zero but for rounding.
_EXACT = 1e-8
# By so much at least a Newton step shrinks the next. Where a density rises for ever, ever more slowly,
# gradient and curvature vanish together, and steps stay as long as they are: so many short ones tell.
_SHRINKS, _MOST_SLOW = 0.2, 10
# Below this length a Newton step is taken without a look at the value.
_CLOSE = 1e-2
# By how much of the gain that the slope promises the density has to rise; else a step is so much shorter.
_PROMISE, _SHORTER = 0.1, 0.25
# Parts of a Newton step that are tried before those within a trust region. Of that the first radius, the
# smallest, and the largest, all for one dimension; and how much it grows after a step.
_PARTS, _FIRST, _SMALLEST, _LARGEST, _GROWTH = 5, 3.0, 1e-8, 1e8, 3.0
# Smallest eigenvalue of the precision, scaled to a unit diagonal, that is told from zero, and gradient that
# is; the smallest diagonal of the precision, relative to the largest, that units are taken from.
_FLAT, _LEVEL, _FLOOR = 1e-10, 1e-6, 1e-8
_MAX_ITERATIONS = 300
# Products of larger numbers overflow within a search, and quotients by smaller ones than its inverse.
_HUGE = 1e100
_LEVELLED = "the log density has no curvature (flat, or made of straight pieces)"

# Operations for a step in D dimensions, divided by D^3: of Newton's method, and more within a trust region.
OF_STEP, _OF_REGION = 0.25, 0.75


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

    Along `direction` (D,) the log density is flat, or rises for ever; it is zero if none is known. The search
    came to `q`, which is no lower than its start. `passes` are evaluations of the density.
    """

    def __init__(self, q: Vector, direction: Vector, reason: str, passes: int) -> None:
        super().__init__(reason)
        self.q, self.direction, self.reason, self.passes = q, direction, reason, passes


@np.errstate(over="ignore", invalid="ignore")  # far out, where no step is taken to
def maximise(
    density: Density, start: Vector, near: float = NEAR, max_iterations: int = _MAX_ITERATIONS
) -> Maximum:
    """Climb from `start` to a local maximum, as `near` as a Newton step of that many standard deviations.

    Raises NoMaximumError, with the direction in which there is none.
    """
    passes = 0

    def evaluated(q: Vector) -> tuple[float, Vector, Matrix]:
        nonlocal passes
        work.spend(OF_STEP * len(q) ** 3, "The search for the mode")
        passes += 1
        return density(q)

    def refusal(direction: Vector, reason: str) -> NoMaximumError:
        return NoMaximumError(q, direction, reason, passes)

    q, found, root = start, evaluated(start), math.sqrt(len(start))
    if not are_finite(*found):
        raise refusal(np.zeros_like(q), "the log density or a derivative is not finite at the start")
    last, n_slow, radius, step = math.inf, 0, _FIRST * root, np.zeros_like(q)
    for _ in range(max_iterations):
        value, gradient, hessian = found
        flat, newton_step, norm = flat_direction(-hessian), None, math.inf
        if flat is None:
            here = maximum_at(q, value, gradient, hessian, passes)
            newton_step, norm = here.newton_step, here.gradient_norm
            is_faster = norm < _SHRINKS * last
            if norm < _EXACT or (norm < near and is_faster):
                return here
            n_slow = n_slow + 1 if norm < _CLOSE and not is_faster else 0
            if n_slow == _MOST_SLOW:
                raise refusal(newton_step, "the log density rises for ever, ever more slowly")
        for step, within in _ever_shorter(newton_step, gradient, -hessian, radius, _SMALLEST * root):
            found = evaluated(q + step)
            # Close to a maximum what is gained is lost in the rounding of the value. Far out it may overflow.
            is_higher = value + _PROMISE * float(gradient @ step) < found[0] < math.inf
            if (norm < _CLOSE or is_higher) and all(np.all(np.abs(part) < _HUGE) for part in found):
                radius = radius if within is None else min(_GROWTH * within, _LARGEST * root)
                break
        else:
            raise refusal(step if flat is None else flat, f"the search came to where {_LEVELLED}")
        q, last = q + step, norm if step is newton_step else math.inf
    if (flat := flat_direction(-found[2])) is not None:
        raise refusal(flat, f"the search came to where {_LEVELLED}")
    raise refusal(step, f"no maximum was found in {passes} passes over the rows")


def _ever_shorter(
    newton_step: Vector | None, gradient: Vector, precision: Matrix, radius: float, smallest: float
) -> Iterator[tuple[Vector, float | None]]:
    """Steps to try: parts of a Newton step, where there is one; then to the highest place within a radius.

    The radius, which comes with the step, is in units in which the precision has a unit diagonal. There is no
    step where the density is level.
    """
    if newton_step is not None:
        yield newton_step, None
        for k in range(1, _PARTS):
            yield _SHORTER**k * newton_step, None
    work.spend(_OF_REGION * len(gradient) ** 3, "The search for the mode")
    size, largest = np.abs(np.diag(precision)), np.abs(precision).max()
    unit = np.sqrt(np.maximum(size, _FLOOR * largest)) if largest > 1.0 / _HUGE else np.ones_like(size)
    values, vectors = np.linalg.eigh(precision / np.outer(unit, unit))
    slope = vectors.T @ (gradient / unit)
    if newton_step is not None:
        radius = min(radius, _SHORTER**_PARTS * float(np.linalg.norm(unit * newton_step)))
    elif np.linalg.norm(slope) < _LEVEL and values[0] > -_FLAT:
        return
    while radius > smallest:
        yield vectors @ _highest_within(radius, slope, values) / unit, radius
        radius *= _SHORTER


def _highest_within(radius: float, slope: Vector, values: Vector) -> Vector:
    """Where slope . z - sum(values z^2) / 2 is the largest with |z| <= radius; values are in order."""
    lowest = max(_FLAT - values[0], 0.0)

    def excess(shift: float) -> float:
        return float(np.linalg.norm(slope / (values + shift))) - radius

    shift = lowest
    if excess(lowest) > 0.0:
        shift = optimize.brentq(excess, lowest, lowest + 2.0 * float(np.linalg.norm(slope)) / radius)
    z = slope / (values + shift)
    if values[0] < 0.0:  # at a saddle the slope tells no direction
        z[0] += math.copysign(math.sqrt(max(radius**2 - float(z @ z), 0.0)), z[0])
    return z


def flat_direction(precision: Matrix) -> Vector | None:
    """A direction in which `precision` is not positive, or None. Units do not matter."""
    scale = np.sqrt(np.abs(np.diag(precision)))
    if not np.all(scale > 1.0 / _HUGE):
        direction: Vector = (scale <= 1.0 / _HUGE).astype(np.float64)
        return direction
    values, vectors = np.linalg.eigh(precision / np.outer(scale, scale))
    return vectors[:, 0] / scale if values[0] < _FLAT else None


def are_finite(*parts: float | np.ndarray) -> bool:
    """Are all these numbers finite?"""
    return all(bool(np.all(np.isfinite(part))) for part in parts)
