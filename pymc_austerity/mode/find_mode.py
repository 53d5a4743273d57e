"""`find_mode`: a starting point near the posterior mode, found on a subsample first."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import NoNormalApproximationError, UnsuitableError, warn
from pymc_austerity.mode.block_posterior import BlockPosterior
from pymc_austerity.mode.gradient_ascent import GradientPosterior, ascend, is_finite
from pymc_austerity.mode.newton import CountedDensity, NoMaximumError, climb
from pymc_austerity.mode.search import samples_of_rows
from pymc_austerity.mode.untypical_modes import vanishing_scales, warn_of_permutations, warn_of_vanishing
from pymc_austerity.model.factorisation import Factorisation, point_of
from pymc_austerity.model.factorise import factorise, model_of, value_variables
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import checked_progressbar, stage, watched
from pymc_austerity.target import Index, Vector
from pymc_austerity.validation import is_whole

logger = logging.getLogger(__name__)

# Dimensions up to which a Hessian is worth its passes over the data.
_HESSIAN_UP_TO = 50
# Gradient that is small enough for a start, in units of the standard deviations at the first point.
_CLOSE = 1e-4
_SEED = 2014


def find_mode(
    model: pm.Model | None = None,
    vars: Variable | str | Sequence[Variable | str] | None = None,
    *,
    initial_point: PointType | None = None,
    max_iterations: int = 200,
    progressbar: bool = True,
) -> dict[str, np.ndarray]:
    """Find a point near the posterior mode, to start chains from.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    vars : variables or their names, optional
        Continuous variables to move; the others stay at their initial values. Default: all continuous
        variables.
    initial_point : dict, optional
        Where to start, as ``model.initial_point()`` gives it.
    max_iterations : int, default 200
        Limit on the iterations of each search.
    progressbar : bool, default True
        Whether a search that takes more than a second is shown while it lasts.

    Returns
    -------
    dict of str to ndarray
        Values of the free random variables, by name and on their own (constrained) scale: what
        ``pm.sample(initvals=...)`` takes.

    Raises
    ------
    ValueError
        If a variable is discrete, or the log density is not finite at the start.
    FactorisationError
        As `factorise`.

    Warns
    -----
    SubsamplingWarning
        If the last search, on the full data, ended before it converged; if the log density rises for ever as
        a scale goes to zero; or if there are several modes of equal height, which differ by a permutation of
        components.

    Notes
    -----
    The log density is that of the unconstrained variables (Jacobians included). It is climbed first with the
    local terms of some thousand rows scaled up, then with ten times as many, and at last with all: by
    Newton's method in up to 50 dimensions if all local terms have linear predictors, else by L-BFGS.

    *Guarantee*: none of a global optimum; the density at the result is at least that at the start.

    *When it fails*: the joint density of a hierarchical model may rise for ever as a scale goes to zero, far
    from the bulk of the posterior; there, fix the scales (leave them out of `vars`).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import find_mode
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> start = find_mode(model)
    >>> round(float(start["level"]), 1), round(float(start["slope"]), 1)
    (1.0, 0.3)

    Chains start there: ``pm.sample(step=AusterityMH(), initvals=start)``.
    """
    if not is_whole(max_iterations) or max_iterations < 1:
        raise ValueError(f"max_iterations must be a positive integer, got {max_iterations!r}.")
    model = model_of(model)
    if vars is None:
        value_vars = list(model.continuous_value_vars)
    else:
        value_vars = value_variables(model, vars)
        discrete = [v.name for v in value_vars if np.dtype(v.type.dtype).kind != "f"]
        if discrete:
            raise ValueError(f"find_mode moves continuous variables only; discrete: {', '.join(discrete)}.")
    with watched("find_mode", checked_progressbar(progressbar)):
        stage("reading the model")
        point = dict(default_point(model) if initial_point is None else initial_point)
        return _found(model, value_vars, point, max_iterations)


def _found(
    model: pm.Model, value_vars: list[Variable], point: PointType, max_iterations: int
) -> dict[str, np.ndarray]:
    """The search, with warnings of what is untypical of the posterior."""
    fact = factorise(model, value_vars, initial_point=point)
    climbers = _climbers(fact, point, max_iterations)
    climber = next(climbers)
    q = start = np.concatenate([np.ravel(point[name]) for name in fact.var_names]).astype(np.float64)
    for positions in samples_of_rows(fact.n_local, len(q), np.random.default_rng(_SEED), fact.n_rows):
        end, problem = climber(q, positions)
        q = q if problem and positions is not None else end  # few rows may have no mode
    if problem:  # as at the kinks of a density, where curvatures say nothing
        for by_gradient in climbers:
            q, problem = by_gradient(q, None)
    names = vanishing_scales(model, fact, climber.value, start, q, stalled=bool(problem))
    if names:
        warn_of_vanishing(names)
        problem = ""
    if problem:
        warn(
            f"find_mode did not converge on the full data ({problem}, max_iterations={max_iterations}); the "
            "point is no worse than the start, but may be far from the mode."
        )
    found = constrained(model, point_of(fact, q, point))
    warn_of_permutations(model, fact, climber.value, q, found)
    return found


class _Newton:
    """Climbs by the gradient and the Hessian."""

    def __init__(self, posterior: BlockPosterior, max_iterations: int) -> None:
        self._posterior, self._max_iterations = posterior, max_iterations

    def value(self, q: Vector) -> float:
        """The log density on all rows."""
        return self._posterior.density()(q)[0]

    def __call__(self, q: Vector, positions: Index | None) -> tuple[Vector, str]:
        """A point that is no lower, on some rows or on all, and what went wrong."""
        try:
            counted = CountedDensity(self._posterior.density(positions))
            end, success = climb(counted, q, self._max_iterations, _CLOSE)
        except NoMaximumError as error:
            return q, error.reason
        return end, "" if success else "the limit on iterations was reached, or the density rises for ever"


class _Gradient:
    """Climbs by the gradient alone."""

    def __init__(self, posterior: GradientPosterior, max_iterations: int) -> None:
        self._posterior, self._max_iterations = posterior, max_iterations

    def value(self, q: Vector) -> float:
        """The log density on all rows."""
        return self._posterior.density()(q)[0]

    def __call__(self, q: Vector, positions: Index | None) -> tuple[Vector, str]:
        """A point that is no lower, on some rows or on all, and what went wrong."""
        return ascend(self._posterior.density(positions), q, self._max_iterations)


def _climbers(fact: Factorisation, point: PointType, max_iterations: int) -> Iterator[_Newton | _Gradient]:
    """Newton's method where a Hessian is cheap and finite at the start, then the gradient alone."""
    n_dim = sum(np.size(point[name]) for name in fact.var_names)
    structure = TermStructure(fact)
    if n_dim <= _HESSIAN_UP_TO and fact.locals and structure.has_functions_in_block:
        try:
            posterior = BlockPosterior(structure, point, whole_block=True)
            if is_finite(*posterior.density()(posterior.start)):
                yield _Newton(posterior, max_iterations)
        except NoNormalApproximationError as error:
            logger.debug("No Hessian: %s", error)
    # Interpreted, the search is over before compilation would be. PyTensor's compiled functions are stable
    # numerically in places where these are not.
    for mode in (INTERPRETED, None):
        by_gradient = GradientPosterior(fact, point, mode)
        value, gradient = by_gradient.density()(by_gradient.start)
        if is_finite(value, gradient):
            yield _Gradient(by_gradient, max_iterations)
            return
    raise UnsuitableError(
        f"The log density or its gradient is not finite at the start (log density {value}); give "
        "find_mode an initial_point where it is."
    )


def constrained(model: pm.Model, point: PointType) -> dict[str, np.ndarray]:
    """Values of the free random variables by name, on their own scale, from those of value variables."""
    rvs = model.free_RVs
    values = model.replace_rvs_by_values([rv + 0 for rv in rvs])
    function = model.compile_fn(values, inputs=model.value_vars, on_unused_input="ignore", mode=INTERPRETED)
    return dict(zip((rv.name for rv in rvs), function(point), strict=True))
