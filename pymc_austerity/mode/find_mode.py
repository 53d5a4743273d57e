"""`find_mode`: a starting point near the posterior mode, found on a subsample first.

The search is by Newton's method in few dimensions, else by L-BFGS. Modes that say little of the posterior
get a warning: those at which a scale vanishes, and those whose components may change places.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
import scipy
from pymc.initial_point import PointType
from pymc.logprob.transforms import LogTransform
from pytensor.gradient import grad
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import NoNormalApproximationError, UnsuitableError, warn
from pymc_austerity.mode.newton import Density, NoMaximumError, are_finite, maximise
from pymc_austerity.mode.search import BlockPosterior, samples_of_rows
from pymc_austerity.model.factorisation import CHUNK, Factorisation, block_of, point_of, vector_of
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.model.starting_point import vectors
from pymc_austerity.model.structure.local_terms import rows_within
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage, watched
from pymc_austerity.target import Index, Vector
from pymc_austerity.validation import is_whole

logger = logging.getLogger(__name__)

# Dimensions up to which a Hessian is worth its passes over the data.
_HESSIAN_UP_TO = 50
# How near to the mode a start is, in posterior standard deviations.
_CLOSE = 1e-4
_SEED = 2014
# Shares of a scale at which the density is looked at: where it rises at each, it is taken to rise for ever.
_SHARES = (0.1, 0.01)
# A scale that has come down to this share of its first value is on its way to zero.
_TINY = 1e-4
# Log densities are equal, and points are different, up to these. Between two modes it is lower by more than
# the last: two points of one hill are not two modes.
_EQUAL, _DIFFERENT, _VALLEY = 1e-9, 1e-3, 0.1
# Components among which permutations are looked for.
_MOST_COMPONENTS = 20


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
    with watched("find_mode", progressbar):
        stage("reading the model")
        point = dict(default_point(model) if initial_point is None else initial_point)
        return _found(model, value_vars, point, max_iterations)


def _found(
    model: pm.Model, value_vars: list[Variable], point: PointType, max_iterations: int
) -> dict[str, np.ndarray]:
    """The search, with warnings of what is untypical of the posterior."""
    fact = factorise(model, value_vars, initial_point=point)
    climbers = _climbers(fact, point)
    posterior, climbed = next(climbers)
    q = start = posterior.start
    for positions in samples_of_rows(fact.n_local, len(q), np.random.default_rng(_SEED), fact.n_rows):
        end, problem = climbed(posterior.density(positions), q, max_iterations)
        q = q if problem and positions is not None else end  # few rows may have no mode
    if problem:  # as at the kinks of a density, where curvatures say nothing
        for other, by_gradient in climbers:
            q, problem = by_gradient(other.density(), q, max_iterations)
    of_all_rows = posterior.density()

    def log_density(state: Vector) -> float:
        return float(of_all_rows(state)[0])

    names = _vanishing_scales(model, fact, log_density, start, q, stalled=bool(problem))
    if names:
        warn(
            f"find_mode found no mode: the log density rises for ever as {' and '.join(names)} "
            f"{'goes' if len(names) == 1 else 'go'} to zero, as the joint density of a hierarchy does, far "
            "from the bulk of the posterior. Fix the scale (leave it out of vars), or write the hierarchy "
            "non-centred."
        )
    elif problem:
        warn(
            f"find_mode did not converge on the full data ({problem}, max_iterations={max_iterations}); the "
            "point is no worse than the start, but may be far from the mode."
        )
    found = constrained(model, point_of(fact, q, point))
    _warn_of_permutations(model, fact, log_density, q, found)
    return found


def _climbers(fact: Factorisation, point: PointType) -> Iterator[tuple[Any, Callable[..., Any]]]:
    """Newton's method where a Hessian is cheap and finite at the start, then the gradient alone.

    Each is a posterior, and a function ``(density, q, max_iterations) -> (end, problem)``, which returns a
    point that is no lower, and what went wrong.
    """
    n_dim = sum(np.size(point[name]) for name in fact.var_names)
    structure = TermStructure(fact)
    if n_dim <= _HESSIAN_UP_TO and fact.locals and structure.has_functions_in_block:
        try:
            posterior = BlockPosterior(structure, point, whole_block=True)
            if are_finite(*posterior.density()(posterior.start)):
                yield posterior, _by_newton
        except NoNormalApproximationError as error:
            logger.debug("No Hessian: %s", error)
    # Interpreted, the search is over before compilation would be. PyTensor's compiled functions are stable
    # numerically in places where these are not.
    for mode in (INTERPRETED, None):
        by_gradient = _GradientPosterior(fact, point, mode)
        value, gradient = by_gradient.density()(by_gradient.start)
        if are_finite(value, gradient):
            yield by_gradient, _by_gradient
            return
    raise UnsuitableError(
        f"The log density or its gradient is not finite at the start (log density {value}); give "
        "find_mode an initial_point where it is."
    )


def _by_newton(density: Density, start: Vector, max_iterations: int) -> tuple[Vector, str]:
    """Climb by the gradient and the Hessian."""
    try:
        return maximise(density, start, _CLOSE, max_iterations).q, ""
    except NoMaximumError as error:
        return error.q, error.reason


def _by_gradient(
    density: Callable[[Vector], tuple[float, Vector]], start: Vector, max_iterations: int
) -> tuple[Vector, str]:
    """Climb by L-BFGS from `start`, never to a lower point. Returns a point, and what went wrong."""
    lowest, _ = density(start)

    def negative(q: Vector) -> tuple[float, Vector]:
        value, gradient = density(q)
        if not are_finite(value, gradient):
            return np.inf, np.zeros_like(q)
        return -value, -gradient

    options = {"maxiter": max_iterations, "maxcor": 20}
    found = scipy.optimize.minimize(negative, start, jac=True, method="L-BFGS-B", options=options)
    if -found.fun < lowest:
        return start, "no better point was found"
    return found.x, "" if found.success else str(found.message)


class _GradientPosterior:
    """Log posterior and gradient by the vector q of a block, on all rows or on some that stand for all.

    Variables outside the block stay at their values in `point`.
    """

    def __init__(self, fact: Factorisation, point: PointType, mode: Any) -> None:
        self._fact = fact
        self._point = point
        self.start = vector_of(fact, point)
        block = block_of(fact)

        def compiled(graph: Variable, index: list[Variable]) -> Any:
            return fact.compile([graph, *grad(graph, block, disconnected_inputs="ignore")], index, mode=mode)

        self._global = compiled(fact.global_graph, [])
        self._local = [compiled(term.rows.sum(), [term.index]) for term in fact.locals]

    def density(self, positions: Index | None = None) -> Callable[[Vector], tuple[float, Vector]]:
        """The log posterior with the local terms at `positions`, in increasing order, scaled up to all."""
        fact = self._fact
        weight = 1.0 if positions is None else fact.n_local / len(positions)
        chunks, start = [], 0
        for k, term in enumerate(fact.locals):
            own = range(term.size) if positions is None else rows_within(positions, start, term.size)
            chunks += [(k, own[a : a + CHUNK]) for a in range(0, len(own), CHUNK)]
            start += term.size

        @np.errstate(all="ignore")
        def at(q: Vector) -> tuple[float, Vector]:
            values = fact.point_values(point_of(fact, q, self._point))

            def flat(function: Any, *index: np.ndarray) -> Vector:
                return np.concatenate([np.ravel(x) for x in function(*values, *index, *fact.leaf_values)])

            total = flat(self._global)  # the log density, then its gradient
            for k, index in chunks:
                total = total + weight * flat(self._local[k], np.asarray(index))
            return float(total[0]), total[1:]

        return at


def constrained(model: pm.Model, point: PointType) -> dict[str, np.ndarray]:
    """Values of the free random variables by name, on their own scale, from those of value variables."""
    rvs = model.free_RVs
    values = model.replace_rvs_by_values([rv + 0 for rv in rvs])
    function = model.compile_fn(values, inputs=model.value_vars, on_unused_input="ignore", mode=INTERPRETED)
    return dict(zip((rv.name for rv in rvs), function(point), strict=True))


def _vanishing_scales(
    model: pm.Model,
    fact: Factorisation,
    log_density: Callable[[Vector], float],
    start: Vector,
    q: Vector,
    *,
    stalled: bool,
) -> list[str]:
    """Names of positive variables that were on their way to zero, with a log density that keeps rising.

    The search for the mode led from the vector `start` of a block to q. If it `stalled`, without a maximum,
    the density need not rise in the scale alone: effects go to zero together with their scale.
    """
    here = log_density(q)
    found: list[str] = []
    for place in np.flatnonzero(q - start < math.log(_TINY)):
        variable = model[fact.graph.variables[fact.coordinate(int(place))[0]]]
        if variable.name in found or not isinstance(model.rvs_to_transforms[variable], LogTransform):
            continue
        smaller = [q + np.where(np.arange(len(q)) == place, math.log(share), 0.0) for share in _SHARES]
        if stalled or np.all(np.diff([here, *map(log_density, smaller)]) > 0.0):
            found.append(str(variable.name))
    return found


def _warn_of_permutations(
    model: pm.Model,
    fact: Factorisation,
    log_density: Callable[[Vector], float],
    q: Vector,
    values: Mapping[str, np.ndarray],
) -> None:
    """Warn if exchanging components of variables leads from the mode q to another one as high.

    `values` are those of the random variables at q, by name.
    """
    height, to_vector = log_density(q), vectors(model, fact)
    for names in _with_components(fact, values):
        exchanged = dict(values)
        for name in names:
            # The first two components in each other's place.
            exchanged[name] = values[name][..., [1, 0, *range(2, values[name].shape[-1])]]
        other = to_vector(exchanged)
        apart = np.abs(other - q).max()
        tolerance = _EQUAL * (1.0 + abs(height))
        if apart <= _DIFFERENT or not abs(log_density(other) - height) <= tolerance:
            continue
        if log_density((q + other) / 2.0) < height - _VALLEY - tolerance:
            warn(
                f"The posterior has several modes of equal height: exchanging components of "
                f"{' and '.join(names)} leaves the log density as it is. find_mode returns one of them, and "
                "chains that start elsewhere may stay at others. Order the components "
                "(transform=pm.distributions.transforms.ordered)."
            )
            return


def _with_components(fact: Factorisation, values: Mapping[str, np.ndarray]) -> Iterator[tuple[str, ...]]:
    """Variables whose components may have to change places together: all of one length, then each alone."""
    of_length: dict[int, list[str]] = {}
    for variable in (fact.graph.variables[name] for name in fact.var_names):
        if values[variable].ndim and 2 <= values[variable].shape[-1] <= _MOST_COMPONENTS:
            of_length.setdefault(values[variable].shape[-1], []).append(variable)
    for names in of_length.values():
        yield tuple(names)
        if len(names) > 1:
            yield from ((name,) for name in names)
