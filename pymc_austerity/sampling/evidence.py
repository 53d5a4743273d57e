"""`log_evidence`: the probability of the data, by bridge sampling between fitted and exact draws."""

import math
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.distributions.multivariate import ICARRV
from xarray import DataTree

from pymc_austerity.exceptions import warn
from pymc_austerity.model.bambi import as_drawn
from pymc_austerity.model.factorise import model_of
from pymc_austerity.model.loo import require_same_data
from pymc_austerity.model.predictive import draws_of
from pymc_austerity.model.starting_point import density_of_block, vectors
from pymc_austerity.sampling import pymc_names
from pymc_austerity.sampling.approximate import fitted_step
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.target import Matrix, Vector
from pymc_austerity.validation import require_whole

_IMPROPER = (FlatRV, HalfFlatRV, ICARRV)
# Draws of either kind, at least.
_FEWEST = 20
# Iterations at most, and when they end; an error above which a result says little.
_MOST, _NEAR, _LARGE = 1000, 1e-10, 0.5


class LogEvidence(NamedTuple):
    """The logarithm of p(y), the probability (density) of the data under a model, priors integrated out."""

    value: float
    error: float  # Standard error of `value`
    draws: int  # Exact draws, and as many fitted ones, for each of which all rows were read


def log_evidence(
    idata: DataTree,
    model: Any = None,
    *,
    draws: int = 400,
    step: SubsampledStep | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
) -> LogEvidence:
    """The log of the marginal likelihood p(y), by bridge sampling.

    With draws q_i of the posterior and draws q_j of the distribution g that a step is fitted to,

        p(y) = sum_j h(q_j) p(y, q_j) / sum_i h(q_i) g(q_i) * n_exact / n_fitted,

    with the h that makes the error least (Meng & Wong 1996, equation 4.1), found by iteration. The
    difference of two models is the logarithm of their Bayes factor.

    Parameters
    ----------
    idata : DataTree
        Draws of the posterior, as `sample` returns them, with all free variables.
    model : pymc.Model or bambi.Model, optional
        Default: the model of the context.
    draws : int, default 400
        Draws of either kind. For each of them all rows are read: the exponential of a sum over a part of the
        rows would be biased.
    step : step method, optional
        One that moves all variables, of which the set-up is used. Default: that of `recommend`.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool, default True
        Whether the set-up is shown while it lasts.

    Returns
    -------
    LogEvidence
        ``value``, ``error`` (its standard error; Fruehwirth-Schnatter 2004, with effective numbers of draws)
        and ``draws``.

    Raises
    ------
    UnsuitableError
        If no distribution is fitted: `recommend` has chosen `pm.NUTS`, or crossed effects, which are drawn
        in turns, are so many that they cannot be fitted together.
    ValueError
        If a prior is improper, so that the evidence has no meaning; if a variable is not in `idata`, or the
        data there are not those of the model.

    Warns
    -----
    SubsamplingWarning
        If the error is above 0.5: fitted and exact draws hardly overlap.

    Notes
    -----
    All constants of priors and rows are counted, and those of potentials as they were written. A prior that
    a transform such as ``ordered`` restricts is counted as it was written, too: of K exchangeable cut points
    the evidence is 1 / K! of that of ordered ones.

    *Guarantee*: consistent in the number of draws, if those of `idata` are of the posterior.

    *When it fails*: another mode that neither kind of draws has seen is not counted. The error is too small
    where draws of `idata` mix slowly. In hierarchies of many groups with few rows each, the fitted
    distribution and the posterior overlap little, and the error is large.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_austerity as pma
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> idata = pma.sample(model, 500, tune=100, chains=2, random_seed=1, quiet=True)
    >>> found = pma.log_evidence(idata, model, random_seed=1, progressbar=False)
    >>> found.error < 0.05
    True
    """
    require_whole(_FEWEST, draws=draws)
    idata, model = as_drawn(model, idata), model_of(model)
    improper = [str(rv.name) for rv in model.free_RVs if isinstance(rv.owner.op, _IMPROPER)]
    if improper:
        raise ValueError(
            f"The prior of {', '.join(improper)} is improper: it has no constant, and the evidence no "
            "meaning. Give it a proper prior."
        )
    exact = _exact(idata, model, draws)
    step, fitted = fitted_step(model, step, progressbar=progressbar, has_density=True)
    point, fact = model.initial_point(), step.factorisation
    rng, log_p, to_vector = (
        pymc_names.get_random_generator(random_seed),
        density_of_block(fact, point),
        vectors(model, fact),
    )

    def log_ratio(q: Vector) -> float:
        return log_p(q) - fitted.log_density(q) if np.isfinite(q).all() else -math.inf

    at_exact = np.array([[log_ratio(to_vector(one)) for one in chain] for chain in exact])
    if not np.isfinite(at_exact).all():
        chain, k = np.argwhere(~np.isfinite(at_exact))[0]
        raise ValueError(
            f"Draws of idata have no finite log density, as number {k} of those looked at in chain {chain}: "
            "they are none of this model with these data."
        )
    at_fitted = np.array([log_ratio(fitted.draw(rng)) for _ in range(at_exact.size)])
    value, error = bridge(at_exact, at_fitted)
    if not error < _LARGE:
        warn(
            f"The standard error of the log evidence is {error:.2g}: draws of the fitted distribution and of "
            "the posterior hardly overlap. More draws help little; groups with more rows would."
        )
    return LogEvidence(value, error, at_exact.size)


def _exact(idata: DataTree, model: pm.Model, n: int) -> list[list[dict[str, np.ndarray]]]:
    """Values of the free variables at n draws or some more, at equal distances, by chains."""
    require_same_data(idata, model)
    values, numbers = draws_of(idata, model.free_RVs, "densities")
    n_chains, n_draws = (len(own) for own in numbers.values())
    if n_chains * n_draws < _FEWEST:
        raise ValueError(f"idata has {n_chains * n_draws} draws, and fewer than {_FEWEST} tell no error.")
    places = np.unique(np.linspace(0, n_draws - 1, min(n_draws, -(-n // n_chains))).astype(int))
    return [
        [{str(rv.name): own[chain, k] for rv, own in values.items()} for k in places]
        for chain in range(n_chains)
    ]


def bridge(at_exact: Matrix, at_fitted: Vector) -> tuple[float, float]:
    """The log of the ratio of constants, and its standard error.

    Parameters
    ----------
    at_exact : ndarray (chains, n)
        Log of the unnormalised density over that of the fitted distribution, at draws of the former.
    at_fitted : ndarray (m,)
        The same at draws of the fitted distribution.
    """
    import arviz_stats  # takes half a second

    middle = float(np.median(at_exact))
    p, g = np.exp(at_exact - middle), np.exp(at_fitted - middle)
    n, m = float(at_exact.size), float(at_fitted.size)
    ess = min(n, float(arviz_stats.ess(at_exact)))
    of_exact, of_fitted = ess / (ess + m), m / (ess + m)
    r = 1.0
    for _ in range(_MOST):
        before = r
        r = float(np.mean(g / (of_exact * g + of_fitted * r)) / np.mean(1.0 / (of_exact * p + of_fitted * r)))
        if abs(r - before) <= _NEAR * r:
            break
    one, other = g / (of_exact * g + of_fitted * r), 1.0 / (of_exact * p + of_fitted * r)
    error = np.var(one) / np.mean(one) ** 2 / m
    error += np.var(other) / np.mean(other) ** 2 / min(n, float(arviz_stats.ess(other)))
    return middle + math.log(r), math.sqrt(error)
