"""`find_mode`: a starting point near the posterior mode, found on a subsample first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.gradient import grad
from pytensor.graph.basic import Variable
from scipy.optimize import minimize

from pymc_austerity.exceptions import UnsuitableError, warn
from pymc_austerity.model.factorisation import CHUNK, Factorisation, point_of
from pymc_austerity.model.factorise import factorise, model_of, value_variables
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.validation import is_whole

Array = np.ndarray

# Rows of the first search. Later searches start where the one before ended and use ten times as many.
_FIRST_ROWS = 2000
_GROWTH = 10
_SEED = 2014


def find_mode(
    model: pm.Model | None = None,
    vars: Variable | Sequence[Variable] | None = None,
    *,
    initial_point: PointType | None = None,
    max_iterations: int = 200,
) -> dict[str, Array]:
    """Find a point near the posterior mode, to start chains from.

    Parameters
    ----------
    model : pymc.Model, optional
        Default: the model of the context.
    vars : random or value variables, optional
        Continuous variables to move; the others stay at their initial values. Default: all continuous
        variables.
    initial_point : dict, optional
        Where to start, as ``model.initial_point()`` gives it.
    max_iterations : int, default 200
        Limit on the iterations of each search.

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
        If the last search, on the full data, ended before it converged.

    Notes
    -----
    L-BFGS on the log density of the unconstrained variables (Jacobians included), first with the local
    terms of 2,000 rows scaled up, then with ten times as many, and at last with all.

    *Guarantee*: none of a global optimum; the density at the result is at least that at the start.

    *When it fails*: the joint mode of a hierarchical model may lie where a scale goes to zero, far from
    the bulk of the posterior; there, fix the scales (leave them out of `vars`).

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
    point = dict(default_point(model) if initial_point is None else initial_point)
    fact = factorise(model, value_vars, initial_point=point)
    # Interpreted, the search is over before compilation would be. PyTensor's compiled functions are stable
    # numerically in places where these are not.
    objective = _Objective(fact, point, INTERPRETED)
    q = objective.start
    if not _is_finite(*objective.on(None)(q)):
        objective = _Objective(fact, point, None)
    rng = np.random.default_rng(_SEED)
    rows = _FIRST_ROWS
    while rows * _GROWTH <= fact.n_local:
        q = _search(objective.on(rng.choice(fact.n_local, rows, replace=False)), q, max_iterations)[0]
        rows *= _GROWTH
    q, problem = _search(objective.on(None), q, max_iterations)
    if problem:
        warn(
            f"find_mode did not converge on the full data ({problem}, max_iterations={max_iterations}); the "
            "point is no worse than the start, but may be far from the mode."
        )
    return _constrained(model, point_of(fact, q, point))


def _search(
    density: Callable[[Array], tuple[float, Array]], q: Array, max_iterations: int
) -> tuple[Array, str]:
    """Maximise by L-BFGS from q, never below the start. Returns a point, and what went wrong."""
    start, gradient = density(q)
    if not _is_finite(start, gradient):
        raise UnsuitableError(
            f"The log density or its gradient is not finite at the start (log density {start}); give "
            "find_mode an initial_point where it is."
        )

    def negative(x: Array) -> tuple[float, Array]:
        value, slope = density(x)
        if not _is_finite(value, slope):
            return np.inf, np.zeros_like(x)
        return -value, -slope

    found = minimize(
        negative, q, jac=True, method="L-BFGS-B", options={"maxiter": max_iterations, "maxcor": 20}
    )
    if -found.fun < start:
        return q, "no better point was found"
    return found.x, "" if found.success else str(found.message)


def _is_finite(value: float, slope: Array) -> bool:
    return bool(np.isfinite(value) and np.all(np.isfinite(slope)))


class _Objective:
    """Log density and gradient as functions of one vector, on all rows or on some."""

    def __init__(self, fact: Factorisation, point: PointType, mode: Any) -> None:
        self._fact = fact
        self._point = point
        self.start = np.concatenate([np.ravel(point[n]) for n in fact.var_names]).astype(np.float64)
        wrt = [fact.graph.values[n] for n in fact.var_names]
        self._global = fact.compile(_with_gradient(fact.global_graph, wrt), [], mode=mode)
        self._local = [
            fact.compile(_with_gradient(term.rows.sum(), wrt), [term.index], mode=mode)
            for term in fact.locals
        ]

    def on(self, positions: Array | None) -> Callable[[Array], tuple[float, Array]]:
        """The log density with the local terms at `positions` scaled up to all of them."""
        fact = self._fact
        weight = 1.0 if positions is None else fact.n_local / len(positions)
        chunks, start = [], 0
        for k, term in enumerate(fact.locals):
            if positions is None:
                own = np.arange(term.size)
            else:
                inside = (positions >= start) & (positions < start + term.size)
                own = np.sort(positions[inside]) - start
            chunks += [(k, own[a : a + CHUNK]) for a in range(0, len(own), CHUNK)]
            start += term.size

        @np.errstate(all="ignore")
        def density(q: Array) -> tuple[float, Array]:
            values = fact.point_values(point_of(fact, q, self._point))
            total, slope = _flat(self._global(*values, *fact.leaf_values))
            for k, index in chunks:
                part, part_slope = _flat(self._local[k](*values, index, *fact.leaf_values))
                total, slope = total + weight * part, slope + weight * part_slope
            return total, slope

        return density


def _with_gradient(density: Variable, wrt: list[Variable]) -> list[Variable]:
    slopes = grad(density, wrt, disconnected_inputs="ignore")
    return [density, *slopes]


def _flat(outputs: list[Array]) -> tuple[float, Array]:
    return float(outputs[0]), np.concatenate([np.ravel(g) for g in outputs[1:]])


def _constrained(model: pm.Model, point: PointType) -> dict[str, Array]:
    """Back from value variables to random variables."""
    rvs = model.free_RVs
    values = model.replace_rvs_by_values([rv + 0 for rv in rvs])
    function = model.compile_fn(values, inputs=model.value_vars, on_unused_input="ignore", mode=INTERPRETED)
    return dict(zip((rv.name for rv in rvs), function(point), strict=True))
