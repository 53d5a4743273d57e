"""`sample`: one call for any model."""

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pymc as pm
from xarray import DataTree

from pymc_austerity.model.bambi import as_fitted, is_of_bambi, kept_by_bambi
from pymc_austerity.model.factorise import model_of
from pymc_austerity.sampling import pymc_names
from pymc_austerity.sampling.sampler import Sampler, Step
from pymc_austerity.validation import nearest

# Keywords of `pm.sample` that have no meaning here, with the reason.
_REFUSED = {
    "return_inferencedata": "sample returns a DataTree",
    "nuts_sampler_kwargs": "give options of NUTS as nuts={...}",
}


def _or_model_first[**P](sample: Callable[P, DataTree]) -> Callable[P, DataTree]:
    """Let ``sample(model, ...)`` be ``sample(..., model=model)``."""

    @functools.wraps(sample)
    def with_model(*args: P.args, **kwargs: P.kwargs) -> DataTree:
        if not args or not (is_of_bambi(args[0]) or isinstance(args[0], pm.Model)):
            return sample(*args, **kwargs)
        if kwargs.get("model") is not None:
            raise TypeError("sample was given two models, as its first argument and as model=.")
        rest: Any = args[1:]
        given: Any = {**kwargs, "model": args[0]}
        return sample(*rest, **given)

    return with_model


@_or_model_first
def sample(
    draws: int = 1000,
    *,
    tune: int | None = None,
    chains: int | None = None,
    cores: int | None = None,
    step: Step | None = None,
    model: Any = None,
    random_seed: Any = None,
    initvals: Any = None,
    var_names: Sequence[str] | None = None,
    trace: Any = None,
    progressbar: Any = True,
    quiet: bool = False,
    discard_tuned_samples: bool = True,
    compute_convergence_checks: bool = True,
    idata_kwargs: Mapping[str, Any] | None = None,
    **others: Any,
) -> DataTree:
    """Sample the posterior of a model by the step that suits it, and say in one line which that is.

    `pm.sample` with three differences. Without `step`, `recommend` is asked first; where it finds that few
    rows decide, a step of this package is used. Draws of such a step alone are made in compiled loops, many
    in one call. And where NUTS is used and the search has found a normal distribution that fits, NUTS runs in
    coordinates in which that is round: correlated posteriors, as of hierarchies, take fewer draws then.

    Parameters
    ----------
    draws : int, default 1000
        Draws of each chain, after tuning. The model may come first: ``sample(model, 500)``.
    tune : int, optional
        Draws of each chain that are for tuning, and discarded. Default: 1000, or what the step asks for; 200
        for NUTS in coordinates in which the posterior is nearly round.
    chains : int, optional
        Number of chains. Default: `cores`, and 2 at least.
    cores : int, optional
        Chains that run at once, each in a process. Default: the CPUs of the machine, 4 at most. Chains that
        take less than a second or two run one after another in this process: that is faster.
    step : step method, sequence of step methods, "recommend" or "nuts", optional
        Default: "recommend". With "nuts", or where `recommend` finds no better, NUTS; by nutpie if that is
        installed. If the mode is known it runs in coordinates in which the posterior is nearly round.
    model : pymc.Model or bambi.Model, optional
        Default: the model of the context. Of a model of Bambi the result is in the form of its method `fit`:
        parameters of the likelihood, with a value for each row, are left out.
    random_seed : int or numpy.random.Generator, optional
        Seed of all chains.
    initvals : dict or sequence of dict, optional
        Where chains start. A step of this package starts at draws of the fitted posterior without it.
    var_names : sequence of str, optional
        Variables that are kept. Default: all free variables and deterministics.
    trace : path, optional
        A folder that does not exist, such as ``"draws.zarr"``. Draws are written to it while chains run, and
        read back lazily; a run that is killed leaves what it drew (``xarray.open_datatree(folder,
        engine="zarr")``, whose posterior has the attribute `draws_made`). It needs the extra `store`, and
        a step. Convergence is checked of variables with up to 1,000 elements. Or a trace of PyMC's own.
    progressbar : bool or str, default True
        As in `pymc.sample`.
    quiet : bool, default False
        Whether nothing is said or shown.
    discard_tuned_samples, compute_convergence_checks : bool, default True
        As in `pymc.sample`.
    idata_kwargs : dict, optional
        Keywords of `pymc.to_inference_data`.
    **others
        All other keywords of `pymc.sample`, such as ``nuts={"target_accept": 0.9}``, `callback` or `mp_ctx`.
        With one of them, but for `mp_ctx` and `blas_cores`, chains are run by `pymc.sample`.

    Returns
    -------
    DataTree
        As `pymc.sample` returns it. After Ctrl-C it has the draws that were made.

    Raises
    ------
    TypeError
        If a keyword is unknown; the message names the nearest.
    ValueError
        If an argument is out of range; or as `recommend` says, if no chain could start.
    SamplingError
        If the model has no free variables.
    ChainError
        If the process of a chain ends before the chain does.

    Notes
    -----
    NUTS runs in coordinates w, q = m + S w, of the unconstrained values q. Of a hierarchy m and S are frozen
    where the density of the scales and other shared variables is largest, effects integrated out: an element
    of w moves one of these, and all effects with it, or some effects given these. Otherwise m is the mode,
    and S S' the inverse of minus the Hessian. They are used where there are 1,000 rows or more, the posterior
    is four times longer than wide (after a diagonal scaling, which NUTS adapts anyway), and a pilot run looks
    like N(0, I). Chains start at draws of N(0, I), all around one mode: another one far away is not seen.

    *Guarantee*: the posterior is the stationary distribution if it is that of the step; NUTS in other
    coordinates has the same one. Draws of a step of this package are those of ``pm.sample(step=step)`` with
    the same arguments and seed, bit for bit, whatever `cores` is.

    *When it fails*: as the chosen step, or NUTS, does. Whether a step of this package is chosen depends on
    the work that its rows take, not on how long your machine takes for it.

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
    >>> with model:
    ...     idata = pma.sample(500, tune=100, chains=2, random_seed=1, quiet=True)
    >>> idata.sample_stats["n_used"].mean().item() < 20  # of 2000 rows
    True
    """
    _require_known(others)
    of_bambi = model if is_of_bambi(model) else None
    if of_bambi is not None:
        if trace is not None:
            raise ValueError(
                f"trace={trace!r}: results of a Bambi model are put into its own form at the end, in memory. "
                "Leave it out, or sample(model=model.backend.model, trace=...), whose intercept is that of "
                "centred predictors."
            )
        var_names = kept_by_bambi(of_bambi) if var_names is None else var_names
    config = {name: others.pop(name) for name in ("keep_warning_stat", "compile_kwargs") if name in others}
    nuts = dict(others.pop("nuts", {}))
    if "target_accept" in others:
        if "target_accept" in nuts:
            raise ValueError(f"target_accept is given twice, also in nuts={nuts!r}.")
        nuts["target_accept"] = others.pop("target_accept")
    if isinstance(step, type):
        raise TypeError(f"step is a class: write {step.__name__}(model=model).")
    chosen = Sampler("recommend" if step is None else step, nuts, trace, quiet, others)
    tree = chosen.sample_from_init(
        model=model_of(model),
        draws=draws,
        tune=tune,
        chains=chains,
        cores=cores,
        initvals=initvals,
        random_seed=random_seed,
        progressbar=progressbar,
        discard_tuned_samples=discard_tuned_samples,
        var_names=var_names,
        idata_kwargs=idata_kwargs,
        compute_convergence_checks=compute_convergence_checks,
        **config,
    )
    return tree if of_bambi is None else as_fitted(of_bambi, tree)


def _require_known(others: Mapping[str, Any]) -> None:
    """Refuse keywords that `pm.sample` does not have, or that have no meaning here."""
    own = set(inspect.signature(sample).parameters) - {"others"}
    of_steps = {method.name for method in pymc_names.STEP_METHODS} | {"target_accept"}
    known = {*own, *inspect.signature(pm.sample).parameters, *of_steps} - {"kwargs", *_REFUSED}
    for name in others:
        if name in _REFUSED:
            raise TypeError(f"sample has no keyword {name!r}: {_REFUSED[name]}.")
        if name not in known:
            raise TypeError(f"sample has no keyword {name!r}.{nearest(name, known)}")
