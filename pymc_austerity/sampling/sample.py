"""`sample`: one call for any model."""

import inspect
import logging
from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pymc as pm
from pymc.model import modelcontext
from pymc.step_methods.compound import BlockedStep
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from xarray import DataTree

from pymc_austerity.recommendation.recommend import recommend
from pymc_austerity.sampling import pymc_names
from pymc_austerity.sampling.on_disk import require_new, written
from pymc_austerity.sampling.run import Run, run_steps
from pymc_austerity.step_methods.base import RebuiltStep
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.validation import nearest, require_whole

logger = logging.getLogger("pymc.austerity")

# Rows of the longest term below which no step of this package is worth a search.
_FEW_ROWS = 1000
# Keywords of `pm.sample` that have no meaning here, with the reason.
_REFUSED = {
    "return_inferencedata": "sample returns a DataTree",
    "nuts_sampler_kwargs": "give options of NUTS as nuts={...}",
}

type Step = BlockedStep | Sequence[BlockedStep] | Literal["recommend", "nuts"]


def sample(
    draws: int = 1000,
    *,
    tune: int | None = None,
    chains: int | None = None,
    cores: int | None = None,
    step: Step | None = None,
    model: pm.Model | None = None,
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

    `pm.sample` with two differences. Without `step`, `recommend` is asked first; where it finds that few rows
    decide, a step of this package is used, and else PyMC's own choice, mostly NUTS by nutpie. And draws of a
    step of this package alone are made in compiled loops, many in one call.

    Parameters
    ----------
    draws : int, default 1000
        Draws of each chain, after tuning.
    tune : int, optional
        Draws of each chain that are for tuning, and discarded. Default: 1000, or what the step asks for.
    chains : int, optional
        Number of chains. Default: `cores`, and 2 at least.
    cores : int, optional
        Chains that run at once, each in a process. Default: the CPUs of the machine, 4 at most. Chains that
        take less than a second or two run one after another in this process: that is faster.
    step : step method, sequence of step methods, "recommend" or "nuts", optional
        Default: "recommend". With "nuts", or where `recommend` finds no better, PyMC's own choice of steps.
    model : pymc.Model, optional
        Default: the model of the context.
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
    *Guarantee*: draws are those of ``pm.sample(step=step)`` with the same arguments and seed, bit for bit,
    whatever `cores` is; without `step`, of ``pm.sample(step=recommend())``, or of ``pm.sample()`` where no
    step of this package is used.

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
    require_whole(0, draws=draws)
    for name, given in {"tune": tune, "chains": chains, "cores": cores}.items():
        if given is not None:
            require_whole(0 if name == "tune" else 1, **{name: given})
    model = modelcontext(model)
    path = Path(trace) if isinstance(trace, str | PathLike) else None
    if path is not None:
        require_new(path)
        if idata_kwargs:
            raise ValueError(
                f"idata_kwargs={idata_kwargs!r} has no meaning with draws on disk. Leave it out."
            )
    given = _resolved(step, model, quiet=quiet, progressbar=bool(progressbar))
    run = Run(
        draws, tune, chains, cores, random_seed, initvals, var_names, progressbar, quiet,
        discard_tuned_samples, compute_convergence_checks, idata_kwargs,
    )  # fmt: skip
    is_alone = isinstance(given, RebuiltStep) and set(given.vars) == set(model.value_vars)
    is_plain = set(others) <= {"mp_ctx", "blas_cores"} and draws > 0
    if is_plain and given is not None and (path is not None or (is_alone and trace is None)):
        return run_steps(model, given, run, path, **others)
    own = None if path is not None else trace
    if path is not None and not quiet:
        logger.warning("sample: PyMC draws in memory here; %s is written when all chains are over.", path)
    result: DataTree = pm.sample(step=given, model=model, trace=own, **run._asdict(), **others)
    return result if path is None else written(result, path)


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


def _resolved(step: Any, model: pm.Model, *, quiet: bool, progressbar: bool) -> Any:
    """The step that is used; None for PyMC's own choice."""
    if isinstance(step, str) and step not in ("recommend", "nuts"):
        raise ValueError(f'step must be a step method, several, "recommend" or "nuts", got {step!r}.')
    if step == "nuts":
        return None
    if step is not None and step != "recommend":
        return step
    if not model.continuous_value_vars:
        return None
    n_rows = _longest(model)
    if n_rows is not None and n_rows < _FEW_ROWS:
        if not quiet:
            logger.info(
                "sample: PyMC's own steps, because no variable has %s observations.",
                f"{_FEW_ROWS:,}",
            )
        return None
    found = recommend(model, verbose=not quiet, progressbar=progressbar and not quiet)
    return found if isinstance(found, SubsampledStep) else None


def _longest(model: pm.Model) -> int | None:
    """Observations of the variable that has most; None if that takes a search, as in a potential."""
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    if model.potentials or not all(isinstance(value, Constant | SharedVariable) for value in values):
        return None
    arrays = [v.data if isinstance(v, Constant) else v.get_value(borrow=True) for v in values]
    return max((int(np.size(one)) for one in arrays), default=0)
