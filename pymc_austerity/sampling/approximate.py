"""`approximate`: draws of the distribution that a step is fitted to, compared with exact ones."""

import logging
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pymc as pm
from xarray import DataArray, Dataset, DataTree

from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.model.bambi import as_fitted, is_of_bambi, kept_by_bambi
from pymc_austerity.model.factorisation import point_of
from pymc_austerity.model.factorise import model_of
from pymc_austerity.recommendation.recommend import recommend
from pymc_austerity.sampling import pymc_names
from pymc_austerity.sampling.chains import Block, Chains, Recorder, Results
from pymc_austerity.sampling.sample import sample
from pymc_austerity.step_methods.base import require_steps_of
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.fitted import Fitted, fitted_to
from pymc_austerity.validation import require_switches, require_whole

logger = logging.getLogger("pymc.austerity")

# Chains of exact draws, and the longest variable that these are compared on, with all of its elements.
_CHAINS, _LONGEST = 2, 50


def approximate(
    model: Any = None,
    *,
    draws: int = 1000,
    checked: int = 400,
    step: SubsampledStep | None = None,
    var_names: Sequence[str] | None = None,
    random_seed: Any = None,
    progressbar: bool = True,
    quiet: bool = False,
) -> DataTree:
    """Approximate the posterior by the distribution that a step is fitted to, and measure how good it is.

    In the time of a set-up: no chain is needed for the draws, and a short one for the comparison. Of a
    regression the distribution is the normal one at the mode. Of a hierarchy the shared variables have the
    marginal density that is left when effects are integrated out, in normal scores, and effects are normal
    given these: a variational approximation that is averaged over the effects, close to INLA (Rue, Martino &
    Chopin 2009).

    Parameters
    ----------
    model : pymc.Model or bambi.Model, optional
        Default: the model of the context.
    draws : int, default 1000
        Independent draws of the approximation.
    checked : int, default 400
        Exact draws that it is compared with, in two chains; 0 for no comparison.
    step : step method, optional
        One that moves all variables, of which the set-up is used. Default: that of `recommend`.
    var_names : sequence of str, optional
        Variables that are kept. Default: all free variables and deterministics.
    random_seed : int or numpy.random.Generator, optional
    progressbar : bool, default True
        Whether the set-up is shown while it lasts.
    quiet : bool, default False
        Whether nothing is said or shown.

    Returns
    -------
    DataTree
        A group ``posterior`` with one chain of draws, and a group ``comparison``: for each variable of up to
        50 elements `NAME_shift`, how far its approximate mean is above the exact one in exact standard
        deviations, `NAME_shift_error`, the standard error of that; `NAME_ratio`, the approximate standard
        deviation over the exact one, and `NAME_ratio_error`.

    Raises
    ------
    UnsuitableError
        If the step is fitted to no distribution of all variables: `recommend` has chosen `pm.NUTS`, or
        variables are left to other steps.
    ValueError
        If no chain could start, or an argument is out of range.

    Notes
    -----
    *Guarantee*: none for the draws, which are approximate. The comparison is with draws of an exact step.

    *When it fails*: where the posterior has several modes, one is approximated. Errors of skewed effects with
    few rows, and of scales near zero, are largest; the comparison shows those of variables that are short.
    `sample` draws from the posterior itself, in little more time.

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
    >>> found = pma.approximate(model, random_seed=1, quiet=True)
    >>> found.posterior.sizes["draw"]
    1000
    >>> abs(found.comparison["slope_shift"].item()) < 0.2
    True
    """
    require_whole(1, draws=draws)
    require_whole(0, checked=checked)
    require_switches(quiet=quiet)
    of_bambi = model if is_of_bambi(model) else None
    if of_bambi is not None:
        var_names = kept_by_bambi(of_bambi) if var_names is None else var_names
    model = model_of(model)
    step, fitted = fitted_step(model, step, progressbar=progressbar and not quiet)
    rng = pymc_names.get_random_generator(random_seed)
    point, fact = model.initial_point(), step.factorisation
    like = SimpleNamespace(stats_dtypes=[])  # nothing is told of draws
    chains = Chains(like, [point], [rng], 0, draws)
    recorder = Recorder(model, chains, var_names)
    results = Results(recorder, chains)
    for _ in range(draws):
        new = point_of(fact, fitted.draw(rng), point)
        results.add(0, Block({name: np.asarray(value)[None] for name, value in new.items()}, []))
    found = results.returned(
        discard_tuned_samples=True, compute_convergence_checks=False, idata_kwargs=None, quiet=True
    )
    if checked:
        exact = sample(
            -(-checked // _CHAINS), tune=checked // _CHAINS, chains=_CHAINS, cores=1, step=step, model=model,
            random_seed=int(rng.integers(2**30)), var_names=var_names, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
        comparison = compared(found["posterior"].to_dataset(), exact["posterior"].to_dataset())
        found["comparison"] = DataTree(comparison)
        if not quiet:
            logger.info("approximate: %s", _said(comparison, checked))
    return found if of_bambi is None else as_fitted(of_bambi, found)


def fitted_step(
    model: pm.Model, step: SubsampledStep | None, *, progressbar: bool, has_density: bool = False
) -> tuple[SubsampledStep, Fitted]:
    """A step that moves all variables of a model, and the distribution that it is fitted to.

    With `has_density` it is one whose density can be computed.

    Raises
    ------
    UnsuitableError
        If there is none.
    """
    found: Any = recommend(model, verbose=False, progressbar=progressbar) if step is None else step
    if not isinstance(found, SubsampledStep):
        why = getattr(found, "recommendation", None)
        because = "" if why is None else f": {why.reason}"
        raise UnsuitableError(
            f"No distribution is fitted to the posterior of this model, for which recommend() chooses "
            f"{type(found).__name__}{because}. Use sample()."
        )
    require_steps_of(model, [found])
    found.require_built(model.initial_point())
    left = [str(rv.name) for rv in model.free_RVs if model.rvs_to_values[rv] not in found.vars]
    if left:
        raise UnsuitableError(
            f"{', '.join(left)} is moved by another step, and no distribution is fitted to it. Use sample()."
        )
    return found, fitted_to(found, model.initial_point(), has_density=has_density)


def compared(found: Dataset, exact: Dataset) -> Dataset:
    """Shifts of means and ratios of standard deviations, with standard errors, by name of a variable."""
    import arviz_stats  # takes half a second

    result: dict[str, DataArray] = {}
    over = ["chain", "draw"]
    for name, draws in exact.data_vars.items():
        if draws.dtype.kind != "f" or np.prod(draws.shape[2:]) > _LONGEST:
            continue
        own, n = found[name], found.sizes["draw"]
        sd = draws.std(over).where(draws.max(over) > draws.min(over))  # elements may be constants
        with np.errstate(all="ignore"):
            errors = [arviz_stats.mcse(exact[[name]], method=method)[name] for method in ("mean", "sd")]
        result[f"{name}_shift"] = (own.mean(over) - draws.mean(over)) / sd
        result[f"{name}_shift_error"] = np.hypot(errors[0], own.std(over) / np.sqrt(n)) / sd
        result[f"{name}_ratio"] = own.std(over) / sd
        result[f"{name}_ratio_error"] = np.hypot(errors[1], own.std(over) / np.sqrt(2.0 * n)) / sd
    return Dataset(result)


def _said(comparison: Dataset, n: int) -> str:
    """The comparison in a line."""
    parts = []
    for what, middle, form in (("shift", 0.0, ".2f"), ("ratio", 1.0, ".0%")):
        names = [str(name) for name in comparison.data_vars if str(name).endswith(f"_{what}")]
        off = {name.removesuffix(f"_{what}"): np.abs(comparison[name].to_numpy() - middle) for name in names}
        off = {name: one for name, one in off.items() if np.isfinite(one).any()}
        if not off:
            return "no variable is short enough to be compared with exact draws."
        noise = np.concatenate([comparison[f"{name}_{what}_error"].to_numpy().ravel() for name in off])
        every = np.concatenate([one.ravel() for one in off.values()])
        worst = max(off, key=lambda name: float(np.nanmax(off[name])))
        size, of_noise = (float(np.sqrt(np.nanmean(one**2))) for one in (every, noise))
        parts.append(
            f"{size:{form}} (noise alone: {of_noise:{form}}), most in {worst!r}: {np.nanmax(every):{form}}"
        )
    return (
        f"beside {n} exact draws, means are off by {parts[0]} standard deviations; standard deviations are "
        f"off by {parts[1]}."
    )
