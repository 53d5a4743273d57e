"""Draws on disk: written to Zarr while chains run, and read back lazily."""

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from xarray import DataTree, open_datatree

from pymc_austerity.data.files import named_if_full
from pymc_austerity.diagnostics.result import RENAMED
from pymc_austerity.extras import imported
from pymc_austerity.sampling import pymc_names
from pymc_austerity.sampling.chains import Block, Chains, Recorder
from pymc_austerity.sampling.estimates import GROUP, Summed, as_dataset

# Draws of a chain are written when they have so many bytes, or so many seconds after the last.
_BUFFER, _SECONDS = 12e6, 5.0
# Bytes of a chunk of Zarr.
_CHUNK = 4e6
# Elements of variables up to which their convergence is looked at: those of others are on disk.
_CHECKED = 1000
_MADE = "draws_made"
# What needs an extra of the package, and which.
_NEED = "Draws on disk", "store"


def require_new(path: Path) -> None:
    """Refuse a folder of draws that exists, or that could not be made."""
    imported("zarr", *_NEED)
    if path.exists():
        raise FileExistsError(f"trace={str(path)!r} exists. Delete it, or give another name.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"trace={str(path)!r}: there is no folder {str(path.parent)!r}.")


def written(tree: DataTree, path: Path) -> DataTree:
    """Write what was drawn in memory, and read it back lazily."""
    tree.to_zarr(path, consolidated=False)
    result: DataTree = open_datatree(path, engine="zarr", consolidated=False)
    return result


class _Phase(NamedTuple):
    """Draws that go to groups of their own: those of tuning, or those after it."""

    prefix: str  # Of the names of groups
    first: int
    last: int


class StoredResults:
    """What chains have drawn, in a folder of Zarr that grows while they run.

    Groups are those of what `pymc.sample` returns. Where a chain has not drawn yet, numbers are NaN, or zero
    if they are whole; the attribute `draws_made` of the group `posterior` says how many draws each chain has.
    """

    def __init__(self, path: Path, recorder: Recorder, chains: Chains, *, keeps_tuning: bool) -> None:
        self._path, self._recorder, self._chains, self._began = path, recorder, chains, time.time()
        tune, n = chains.tune, chains.tune + chains.draws
        self._phases = [_Phase("", tune, n)]
        if tune and keeps_tuning:
            self._phases.append(_Phase("warmup_", 0, tune))
        n_chains = len(chains.starts)
        self._waiting: list[list[Block]] = [[] for _ in range(n_chains)]
        self._written, self._at = [0] * n_chains, [time.monotonic()] * n_chains
        self._root: Any = None
        self._deviations: dict[int, Summed] = {}
        self._names: dict[str, list[str]] = {}  # Of variables, by groups
        self._arrays: dict[tuple[str, str], Any] = {}

    def add(self, chain: int, block: Block) -> None:
        """Keep draws of a chain, those that follow upon the ones that it has."""
        self._waiting[chain].append(block)
        if block.deviations is not None:
            self._deviations[chain] = block.deviations
        n = sum(one.n for one in self._waiting[chain])
        now = time.monotonic()
        is_last = self._written[chain] + n == self._chains.tune + self._chains.draws
        if n * self._recorder.bytes_of_draw > _BUFFER or now - self._at[chain] > _SECONDS or is_last:
            self._write(chain)
            self._at[chain] = now

    def write_all(self) -> None:
        """Write all that chains have drawn."""
        for chain in range(len(self._waiting)):
            self._write(chain)

    def _write(self, chain: int) -> None:
        """Write what a chain has drawn since."""
        blocks, self._waiting[chain] = self._waiting[chain], []
        for block in blocks:
            begun = self._written[chain]
            for phase in self._phases:
                first, last = max(phase.first, begun), min(phase.last, begun + block.n)
                if first < last:
                    self._write_part(
                        chain, phase, first - phase.first, block.part(first - begun, last - begun)
                    )
            self._written[chain] += block.n
        if self._root is not None:
            made = [max(0, n - self._chains.tune) for n in self._written]
            self._root["posterior"].attrs[_MADE] = made

    def _write_part(self, chain: int, phase: _Phase, first: int, block: Block) -> None:
        trace = self._recorder.trace(block.n)
        self._recorder.write(trace, block)
        every = pymc_names.MultiTrace([trace])
        wanted = len(self._chains.starts) * self._recorder.bytes_of_draw * self._chains.draws
        with named_if_full(self._path, wanted):
            if self._root is None:
                self._create(pm.to_inference_data(every, model=self._recorder.model))
            values = {name: trace.samples[name] for name in self._names["posterior"]}
            stats = {
                RENAMED.get(name, name): every.get_sampler_stats(name, combine=False, squeeze=False)[0]
                for name in every.stat_names
            }
            stats = {name: stats[name] for name in self._names["sample_stats"]}
            for group, found in (("posterior", values), ("sample_stats", stats)):
                for name, own in found.items():
                    self._array(phase.prefix + group, name)[chain, first : first + block.n] = own

    def _array(self, group: str, name: str) -> Any:
        """An array of Zarr, which is opened once."""
        if (group, name) not in self._arrays:
            self._arrays[group, name] = self._root[group][name]
        return self._arrays[group, name]

    def _create(self, tree: DataTree) -> None:
        """Make the groups, as the first draws have them."""
        self._root = imported("zarr", *_NEED).create_group(str(self._path))
        groups = ("posterior", "sample_stats")
        self._names = {group: [name for name, _ in _storable(tree[group])] for group in groups}
        for phase in self._phases:
            for name in ("posterior", "sample_stats"):
                self._create_group(phase, name, tree[name])
        for name, group in tree.children.items():
            if name not in self._root:
                group.to_dataset().to_zarr(self._path, group=name, mode="a", consolidated=False)

    def _create_group(self, phase: _Phase, name: str, like: Any) -> None:
        n_chains, n_draws = len(self._chains.starts), phase.last - phase.first
        group = self._root.create_group(phase.prefix + name)
        group.attrs.update({key: value for key, value in like.attrs.items() if isinstance(value, str | int)})
        used = {dim for _, one in _storable(like) for dim in one.dims}
        coords = {dim: like.coords[dim].values for dim in like.coords if dim in used}
        coords |= {"chain": np.arange(n_chains), "draw": np.arange(n_draws)}
        for dim, values in coords.items():
            group.create_array(dim, data=values, dimension_names=[dim])
        for variable, one in _storable(like):
            n_together = int(_CHUNK // max(1, one.dtype.itemsize * math.prod(one.shape[2:])))
            group.create_array(
                variable,
                shape=(n_chains, n_draws, *one.shape[2:]),
                dtype=one.dtype,
                chunks=(1, min(max(1, n_together), n_draws), *one.shape[2:]),
                fill_value=np.nan if one.dtype.kind == "f" else 0,
                dimension_names=list(one.dims),
            )

    def returned(
        self,
        *,
        discard_tuned_samples: bool,
        compute_convergence_checks: bool,
        idata_kwargs: Mapping[str, Any] | None,
        quiet: bool = False,
    ) -> DataTree:
        """What was written, read lazily; after Ctrl-C the draws that chains have in common.

        Parameters are those of `Results.returned`; tuning and conversion are settled already.
        """
        self.write_all()
        keeps_tuning, made = len(self._phases) > 1, [max(0, n - self._chains.tune) for n in self._written]
        if self._root is None or not (max(made) or keeps_tuning):
            raise ValueError("Not enough samples to build a trace.")
        self._root["posterior"].attrs["sampling_time"] = time.time() - self._began
        deviations = as_dataset(range(len(made)), self._chains.step, self._deviations)
        if deviations is not None:
            deviations.to_zarr(self._path, group=GROUP, mode="a", consolidated=False)
        tree: DataTree = open_datatree(self._path, engine="zarr", consolidated=False)
        chains, n = _in_common(made)
        if len(chains) < len(made) or n < self._chains.draws:
            n_tuning = min(self._chains.tune, *(self._written[k] for k in chains))
            for name, group in tree.children.items():
                if "draw" in group.dims:
                    last = n_tuning if name.startswith("warmup_") else n
                    group.dataset = group.to_dataset().isel(chain=chains, draw=slice(0, last))
        if compute_convergence_checks:
            small = [name for name, one in tree["posterior"].data_vars.items() if one[0, 0].size <= _CHECKED]
            some = DataTree.from_dict(
                {
                    "posterior": tree["posterior"].to_dataset()[small].load(),
                    "sample_stats": tree["sample_stats"].to_dataset().load(),
                }
            )
            warnings = pymc_names.run_convergence_checks(some, self._recorder.model) if small else []
            if not quiet:
                pymc_names.log_warnings(warnings)
        return tree


def _storable(group: Any) -> list[tuple[Any, Any]]:
    """Variables of a group, without warnings of NUTS, which are objects of Python."""
    return [(name, one) for name, one in group.data_vars.items() if name != "warning"]


def _in_common(made: Sequence[int]) -> tuple[list[int], int]:
    """Chains and their draws, so that there are most draws in all."""
    best = max(sorted(set(made)), key=lambda n: n * sum(one >= n for one in made))
    return [k for k, one in enumerate(made) if one >= best], best
