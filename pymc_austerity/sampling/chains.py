"""Chains as `pm.sample` makes them: their steps, first states and generators, and what becomes of draws."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from numpy.typing import NDArray as Array
from pymc.backends.ndarray import NDArray
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable
from xarray import DataTree

from pymc_austerity.sampling import pymc_names
from pymc_austerity.sampling.estimates import GROUP, Summed, as_dataset, summed
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.validation import nearest

# Seconds that draws are gathered for, where each is a call of Python, and their bytes; and seconds for which
# compiled code is left alone, as an interrupt waits for it: so many draws at first, and at most.
_GATHERED, _BYTES, _AHEAD = 0.2, 4e6, 0.05
_FIRST_AHEAD, _MOST_AHEAD = 16, 5000


class Chains(NamedTuple):
    """Step and settings that chains have in common, and where each of them begins."""

    step: Any  # It brings its model along
    starts: list[PointType]
    rngs: list[np.random.Generator]
    tune: int
    draws: int


class Block(NamedTuple):
    """Some draws of a chain, one below another."""

    values: dict[str, Array[Any]]  # (n, ...): of all value variables
    stats: list[dict[str, Array[Any]]]  # (n, ...): of each step method
    deviations: Summed | None = None  # Of proposals up to here; with the last draws alone

    @property
    def n(self) -> int:
        """Number of draws."""
        return len(next(iter(self.values.values())))

    def part(self, first: int, last: int) -> "Block":
        """Some of them."""
        own = slice(first, last)
        return Block(
            {name: values[own] for name, values in self.values.items()},
            [{name: values[own] for name, values in one.items()} for one in self.stats],
        )

    @property
    def last(self) -> list[dict[str, Any]]:
        """Statistics of the last draw."""
        return [{name: values[-1] for name, values in own.items()} for own in self.stats]


def chains_of(
    model: pm.Model,
    step: Any,
    *,
    draws: int,
    tune: int | None,
    chains: int,
    random_seed: Any,
    initvals: Any,
) -> Chains:
    """Steps, first states and generators, in the order in which `pm.sample` makes them."""
    rngs = pymc_names.get_random_generator(random_seed).spawn(chains)
    seeds = [rng.integers(2**30) for rng in rngs]
    given, chosen = pymc_names.assign_step_methods(model, step, methods=pymc_names.STEP_METHODS)
    makers = pymc_names.make_initial_point_fns_per_chain(
        model=model, overrides=initvals, jitter_rvs=set(), chains=chains
    )
    starts = [make(seed) for make, seed in zip(makers, seeds, strict=True)]
    steps = pymc_names.instantiate_steppers(
        model, steps=given, selected_steps=chosen, step_kwargs={}, initial_point=starts[0], compile_kwargs={}
    )
    whole = pymc_names.CompoundStep(steps) if isinstance(steps, list) else steps
    refuse_populations(whole)
    return Chains(whole, starts, rngs, pymc_names.get_default_tune_steps(whole, tune), draws)


def refuse_populations(step: Any) -> None:
    """Refuse steps that move all chains together: here each chain runs by itself."""
    for one in pymc_names.flatten_steps(step):
        if isinstance(one, pymc_names.PopulationArrayStepShared):
            raise ValueError(
                f"{type(one).__name__} moves all chains together, and here each runs by itself. "
                "Use pm.sample."
            )


def blocks_of(chains: Chains, chain: int) -> Iterator[Block]:
    """Run a chain, as `pm.sample` does, and yield its draws; after Ctrl-C also those that were made."""
    step, point, tune = chains.step, chains.starts[chain], chains.tune
    step.setup_chain(chains.rngs[chain], tune, chains.draws)
    step.tune = bool(tune)
    if hasattr(step, "reset_tuning"):
        step.reset_tuning()
    gathered, began, made, n = _Gathered(), time.monotonic(), 0, tune + chains.draws
    n_ahead = _FIRST_AHEAD
    try:
        while made < n:
            if made == 0 and hasattr(step, "iter_count"):
                step.iter_count = 0
            if made == tune:
                step.stop_tuning()
            if made > tune and isinstance(step, SubsampledStep) and step.runs_ahead:
                if gathered:
                    yield gathered.block()
                began = time.monotonic()
                ahead = step.draw_ahead(point, min(n - made, n_ahead))
                seconds = max(time.monotonic() - began, 1e-6)  # draws do not depend on it
                n_ahead = int(np.clip(n_ahead * _AHEAD / seconds, 1, _MOST_AHEAD))
                if ahead.n:
                    is_last = ahead.is_interrupted or made + ahead.n == n
                    yield Block(
                        {name: ahead.values[name] for name in point},
                        [ahead.statistics],
                        summed(step) if is_last else None,
                    )
                    point = {name: values[-1] for name, values in ahead.values.items()}
                if ahead.is_interrupted:
                    raise KeyboardInterrupt
                made += ahead.n
                continue
            point, stats = step.step(point)
            gathered.add(point, stats)
            made += 1
            if made < n and (time.monotonic() - began > _GATHERED or gathered.n_bytes > _BYTES):
                yield gathered.block()
                began = time.monotonic()
    except GeneratorExit:
        raise
    except BaseException:
        if gathered:
            yield gathered.block()._replace(deviations=summed(step))
        raise
    if gathered:
        yield gathered.block()._replace(deviations=summed(step))


class _Gathered:
    """Draws that were made one by one."""

    def __init__(self) -> None:
        self._draws: list[tuple[PointType, list[dict[str, Any]]]] = []
        self.n_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._draws)

    def add(self, point: PointType, stats: list[dict[str, Any]]) -> None:
        """Keep a draw. Steps may write over their points."""
        values = {name: np.array(value) for name, value in point.items()}
        self._draws.append((values, [dict(own) for own in stats]))
        self.n_bytes += sum(value.nbytes for value in values.values())

    def block(self) -> Block:
        """All of them, which are forgotten."""
        draws, self._draws, self.n_bytes = self._draws, [], 0
        points, stats = zip(*draws, strict=True)
        return Block(
            {name: np.stack([one[name] for one in points]) for name in points[0]},
            [
                {key: _stacked([one[k][key] for one in stats]) for key in own}
                for k, own in enumerate(stats[0])
            ],
        )


def _stacked(values: Sequence[Any]) -> Array[Any]:
    """One statistic of some draws. What is no number, such as a warning of NUTS, stays as it is."""
    if isinstance(values[0], bool | int | float | str | np.generic | np.ndarray):
        return np.stack([np.asarray(value) for value in values])
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


def kept_of(model: pm.Model, var_names: Sequence[str] | None) -> list[Variable]:
    """The variables of which draws are returned."""
    if isinstance(var_names, str):
        var_names = [var_names]
    if var_names is None:
        return list(model.unobserved_RVs)
    if not len(var_names):
        raise ValueError("var_names is empty: name a variable to keep, or leave it out for all.")
    kept = [var for var in model.unobserved_RVs if var.name in var_names]
    unknown = sorted(set(var_names) - {var.name for var in kept})
    if unknown:
        known = [str(var.name) for var in model.unobserved_RVs]
        raise ValueError(f"var_names: the model has no variable {unknown[0]!r}.{nearest(unknown[0], known)}")
    return kept


class Recorder:
    """What is kept of a draw: some variables, which may be functions of those that are sampled."""

    def __init__(self, model: pm.Model, chains: Chains, var_names: Sequence[str] | None) -> None:
        self._vars = None if var_names is None else model.replace_rvs_by_values(kept_of(model, var_names))
        self.model, self._chains = model, chains
        self._first = NDArray(model=model, vars=self._vars, test_point=chains.starts[0])
        self._inputs = [var.name for var in model.value_vars]

    def trace(self, n_draws: int, chain: int = 0) -> Any:
        """An empty trace of PyMC's; the function of a draw is compiled once for all."""
        like = self._first
        result = NDArray(
            model=self.model,
            vars=like.vars,
            fn=like.fn,
            var_shapes=like.var_shapes,
            var_dtypes=like.var_dtypes,
        )
        result.setup(n_draws, chain, self._chains.step.stats_dtypes)
        return result

    @property
    def bytes_of_draw(self) -> int:
        """Bytes that the values of a draw take."""
        trace = self._first
        sizes = [
            math.prod(trace.var_shapes[name]) * trace.var_dtypes[name].itemsize for name in trace.varnames
        ]
        return sum(sizes)

    def write(self, trace: Any, block: Block) -> None:
        """Write draws to a trace, after those that it has."""
        part = slice(trace.draw_idx, trace.draw_idx + block.n)
        computed = [name for name in trace.varnames if name not in self._inputs]
        for name in set(trace.varnames).difference(computed):
            trace.samples[name][part] = block.values[name]
        if computed:
            places = [(trace.varnames.index(name), name) for name in computed]
            every = zip(*(block.values[name] for name in self._inputs), strict=True)
            for k, point in enumerate(every):
                found = trace.fn(*map(np.asarray, point))
                for place, name in places:
                    trace.samples[name][part.start + k] = found[place]
        for own, given in zip(trace._stats or [], block.stats, strict=False):
            for name, values in given.items():
                own[name][part] = values
            if "warning" in given:
                pymc_names.log_warning_stats([{"warning": one} for one in given["warning"]])
        trace.draw_idx = part.stop


class Results:
    """What chains have drawn, in memory, and what `pm.sample` returns of it."""

    def __init__(self, recorder: Recorder, chains: Chains) -> None:
        self._recorder, self._tune, self._began = recorder, chains.tune, time.time()
        n = chains.tune + chains.draws
        self._traces = [recorder.trace(n, chain) for chain in range(len(chains.starts))]
        self._step, self._deviations = chains.step, dict[int, Summed]()

    def add(self, chain: int, block: Block) -> None:
        """Keep draws of a chain, those that follow upon the ones that it has."""
        self._recorder.write(self._traces[chain], block)
        if block.deviations is not None:
            self._deviations[chain] = block.deviations

    def returned(
        self,
        *,
        discard_tuned_samples: bool,
        compute_convergence_checks: bool,
        idata_kwargs: Mapping[str, Any] | None,
        quiet: bool = False,
    ) -> DataTree:
        """The draws of all chains that have any, as `pm.sample` returns them."""
        traces = [trace for trace in self._traces if trace.draw_idx] or self._traces
        for trace in traces:
            trace.close()
        result: DataTree = pymc_names.sample_return(
            run=None,
            traces=traces,
            tune=self._tune,
            t_sampling=time.time() - self._began,
            discard_tuned_samples=discard_tuned_samples,
            compute_convergence_checks=compute_convergence_checks,
            return_inferencedata=True,
            keep_warning_stat=False,
            idata_kwargs=dict(idata_kwargs or {}),
            model=self._recorder.model,
            quiet=quiet,
        )
        deviations = as_dataset([trace.chain for trace in traces], self._step, self._deviations)
        if deviations is not None:
            result[GROUP] = DataTree(deviations)
        return result
