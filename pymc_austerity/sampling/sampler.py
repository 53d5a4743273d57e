"""`sampler`: what `sample` runs, as an object that holds the configuration of an algorithm alone."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pymc as pm
from pymc.step_methods.compound import BlockedStep
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Constant
from xarray import DataTree

from pymc_austerity.mode.whitening import Whitening
from pymc_austerity.recommendation.choice import FASTER, record_of
from pymc_austerity.recommendation.evidence import options_of
from pymc_austerity.recommendation.nuts import NUTS, search_whitening
from pymc_austerity.recommendation.recommend import announcement, recommend
from pymc_austerity.sampling.chains import kept_of
from pymc_austerity.sampling.on_disk import require_new, written
from pymc_austerity.sampling.run import Run, run_steps
from pymc_austerity.sampling.whitened import sample_whitened
from pymc_austerity.step_methods.base import RebuiltStep, require_steps_of
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.validation import require_whole

logger = logging.getLogger("pymc.austerity")

# Rows of the longest term below which no step of this package is worth a search.
FEW_ROWS = 1000

# Options of NUTS that say how the model is compiled.
_OF_MODEL = {"backend", "gradient_backend"}

# Options of NUTS of which slips are told before a search.
_OF_NUTS = ("target_accept", "max_treedepth", "step_scale", "adapt_step_size", "backend", "gradient_backend")

type Step = BlockedStep | Sequence[BlockedStep] | Literal["recommend", "nuts"]


@dataclass(frozen=True)
class Sampler:
    """How a model is sampled, whichever it is.

    It has the shape that PyMC discusses for ``pm.sample(sampler=...)``: the constructor takes what configures
    the algorithm, and the model and the run come with `sample_from_init`.
    """

    step: Any = "recommend"
    nuts: Mapping[str, Any] = field(default_factory=dict)
    trace: Any = None
    quiet: bool = False
    others: Mapping[str, Any] = field(default_factory=dict)  # Of `pymc.sample`

    def __post_init__(self) -> None:
        if isinstance(self.step, str) and self.step not in ("recommend", "nuts"):
            raise ValueError(
                f'step must be a step method, several, "recommend" or "nuts", got {self.step!r}.'
            )
        for name in self.nuts:  # others are left to whoever runs NUTS
            meant = get_close_matches(name, _OF_NUTS, n=1, cutoff=0.9)
            if meant and name != meant[0]:
                raise ValueError(f"NUTS has no option {name!r}. Did you mean {meant[0]!r}?")

    def sample_from_init(
        self,
        *,
        model: pm.Model,
        draws: int = 1000,
        tune: int | None = None,
        chains: int | None = None,
        cores: int | None = None,
        initvals: Any = None,
        random_seed: Any = None,
        progressbar: Any = True,
        discard_tuned_samples: bool = True,
        keep_warning_stat: bool = False,
        var_names: Sequence[str] | None = None,
        idata_kwargs: Mapping[str, Any] | None = None,
        compute_convergence_checks: bool = True,
        compile_kwargs: Mapping[str, Any] | None = None,
    ) -> DataTree:
        """Draw from the posterior of a model; parameters and result are those of `pymc.sample`."""
        require_whole(1, draws=draws)
        kept_of(model, var_names)  # a name that is not known is told before a search
        for name, given in {"tune": tune, "chains": chains, "cores": cores}.items():
            if given is not None:
                require_whole(0 if name == "tune" else 1, **{name: given})
        path = Path(self.trace) if isinstance(self.trace, str | PathLike) else None
        if path is not None:
            require_new(path)
            if idata_kwargs:
                raise ValueError(
                    f"idata_kwargs={idata_kwargs!r} has no meaning with draws on disk. Leave it out."
                )
        others = dict(self.others)
        others |= {"keep_warning_stat": True} if keep_warning_stat else {}
        others |= {"compile_kwargs": compile_kwargs} if compile_kwargs else {}
        is_plain = set(others) <= {"mp_ctx", "blas_cores"}
        has_own_start = initvals is not None or bool(idata_kwargs) or not _OF_MODEL.isdisjoint(self.nuts)
        is_open = is_plain and not has_own_start and (path is not None or self.trace is None)
        step = self._step(model, progressbar=bool(progressbar), is_open=is_open)
        run = Run(
            draws, tune, chains, cores, random_seed, initvals, var_names, progressbar, self.quiet,
            discard_tuned_samples, compute_convergence_checks, idata_kwargs,
        )  # fmt: skip
        if isinstance(step, Whitening):
            found = sample_whitened(model, step, run, self.nuts)
            if found is not None:
                return found if path is None else written(found, path)
            if not self.quiet:
                logger.info(
                    "sample: NUTS in the model's own coordinates: a pilot run found the posterior not round "
                    "in those of the fitted distribution."
                )
            step = None
        is_alone = isinstance(step, RebuiltStep) and set(step.vars) == set(model.value_vars)
        if is_alone and self.nuts and not self.quiet:
            logger.info(
                "sample: %s has no use for options of NUTS: %s.", type(step).__name__, dict(self.nuts)
            )
        if is_plain and step is not None and (path is not None or (is_alone and self.trace is None)):
            return run_steps(model, step, run, path, **others)
        if self.nuts and not is_alone:
            others["nuts"] = dict(self.nuts)
        own = None if path is not None else self.trace
        if path is not None and not self.quiet:
            logger.warning("sample: PyMC draws in memory here; %s is written when all chains are over.", path)
        result: DataTree = pm.sample(step=step, model=model, trace=own, **run._asdict(), **others)
        return result if path is None else written(result, path)

    def _step(self, model: pm.Model, *, progressbar: bool, is_open: bool) -> Any:
        """The step; or coordinates for NUTS, if that `is_open` to them; or None for PyMC's choice."""
        if not isinstance(self.step, str):
            steps = self.step if isinstance(self.step, Sequence) else [self.step]
            require_steps_of(model, [step for step in steps if hasattr(step, "vars")])
            return self.step
        if not model.continuous_value_vars:
            return None
        n_rows = longest(model)
        if n_rows is not None and n_rows < FEW_ROWS:
            if not self.quiet:
                logger.info(
                    "sample: PyMC's own steps, because no variable has %s observations.",
                    f"{FEW_ROWS:,}",
                )
            return None
        shown = progressbar and not self.quiet
        if self.step == "nuts":
            if len(model.value_vars) > len(model.continuous_value_vars) or not is_open:
                return None
            return search_whitening(options_of(model, model.continuous_value_vars), progressbar=shown)
        found = recommend(model, verbose=False, progressbar=shown)
        if not self.quiet:
            line = announcement(record_of(found)).removesuffix(f" {FASTER}.")
            logger.info("%s", line.replace(FASTER, "It is faster by nutpie"))
        if isinstance(found, SubsampledStep):
            return found
        is_alone = isinstance(found, NUTS) and set(found.vars) == set(model.value_vars)
        return found.whitening if is_alone and is_open else None


def sampler(
    step: Step = "recommend",
    *,
    nuts: Mapping[str, Any] | None = None,
    trace: str | PathLike[str] | None = None,
    quiet: bool = False,
) -> Sampler:
    """Configure how models are sampled, without a model.

    The result has the shape that is discussed for PyMC's ``pm.sample(sampler=...)``
    (https://github.com/pymc-devs/pymc/pull/8353): its method `sample_from_init` takes a model and the
    parameters of a run.

    Parameters
    ----------
    step : step method, sequence of step methods, "recommend" or "nuts", default "recommend"
        As in `sample`. Step methods belong to a model, the others do not.
    nuts : dict, optional
        Options of NUTS, where that is used, such as ``{"target_accept": 0.9}``.
    trace : path, optional
        A folder to which draws are written, as in `sample`.
    quiet : bool, default False
        Whether nothing is said or shown.

    Returns
    -------
    Sampler
        ``sampler().sample_from_init(model=model, draws=1000)`` is ``sample(1000, model=model)``.

    Raises
    ------
    ValueError
        If `step` is another word.

    Notes
    -----
    *Guarantee*: as `sample`.

    *When it fails*: as `sample`. PyMC has not settled the interface: `sample_from_init` follows what is
    proposed.

    Examples
    --------
    >>> import pymc_austerity as pma
    >>> sampler = pma.sampler("nuts", nuts={"target_accept": 0.9})
    >>> sampler.step
    'nuts'
    """
    return Sampler(step, dict(nuts or {}), trace, quiet)


def longest(model: pm.Model) -> int | None:
    """Observations of the variable that has most; None if that takes a search, as in a potential."""
    values = [model.rvs_to_values[rv] for rv in model.observed_RVs]
    if model.potentials or not all(isinstance(value, Constant | SharedVariable) for value in values):
        return None
    arrays = [v.data if isinstance(v, Constant) else v.get_value(borrow=True) for v in values]
    return max((int(np.size(one)) for one in arrays), default=0)
