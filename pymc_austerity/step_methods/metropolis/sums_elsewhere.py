"""Sums over all rows, computed by other processes: blocks of rows are added up where they are."""

import pickle
import uuid
from concurrent.futures import Executor
from functools import partial
from itertools import pairwise
from typing import Any

import cloudpickle
from pymc.initial_point import PointType

from pymc_austerity.cluster.workers import Calls, Inspection
from pymc_austerity.model.stored_data import files_of
from pymc_austerity.model.structure.derivatives import Derivatives
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.log_likelihood import LogLikelihood
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.target import Vector

# Seconds for which there may be no worker, and calls for each of them: the slowest keeps few of them waiting.
_WAIT, _CALLS_A_WORKER = 60.0, 2
# Calls of an executor, which does not say how many workers it has, and bytes that each of them may send.
_CALLS, _MOST_BYTES = 256, 30_000_000


class SumsElsewhere:
    """Sums over blocks of rows of a model, on workers; called as `Elsewhere`.

    Workers get the model once, as a pickled step does: with its data, or with the path of rows on disk.
    """

    def __init__(self, client: Any, options: MetropolisOptions, point: PointType) -> None:
        self._client = client
        paths = [file["path"] for file in files_of(options.model).values()]
        self._inspection = Inspection(client, paths, _WAIT)
        self._inspection.wait_for_one()
        self._inspection.require()
        self._key = uuid.uuid4().hex
        content = cloudpickle.dumps((options, point))
        self._calls = Calls(client, content, self._inspection, "Sums over rows of the set-up")

    def __call__(self, phi: Vector, n_blocks: int) -> list[Derivatives]:
        """The sums over each block."""
        n_calls = _CALLS_A_WORKER * max(self._inspection.require(begins=True), 1)
        ranges = [(self._key, phi, *ends) for ends in _ranges(n_blocks, n_calls)]
        return [block for found in self._calls(sums_of_blocks, ranges) for block in found]

    def close(self) -> None:
        """Workers need not keep the model any longer."""
        if self._client.status == "running":
            self._client.run(forget, self._key, on_error="ignore")


class SumsOfExecutor:
    """Sums over blocks of rows by a `concurrent.futures.Executor` of processes: each call sends the model."""

    def __init__(self, executor: Executor, options: MetropolisOptions, point: PointType) -> None:
        content = cloudpickle.dumps((options, point))
        if len(content) > _MOST_BYTES:
            raise ValueError(
                f"An executor would get the model with each call, {len(content) / 1e6:.0f} MB with its data. "
                "Leave the rows on disk (stored_data), or give a distributed.Client, which gets them once."
            )
        self._map = partial(executor.map, partial(sums_of_blocks, content, uuid.uuid4().hex))

    def __call__(self, phi: Vector, n_blocks: int) -> list[Derivatives]:
        """The sums over each block."""
        starts, stops = zip(*_ranges(n_blocks, _CALLS), strict=True)
        return [block for found in self._map([phi] * len(starts), starts, stops) for block in found]

    def close(self) -> None:
        """Nothing is left to do: nobody knows the processes."""


def sums_by(client: Any, options: MetropolisOptions, point: PointType) -> SumsElsewhere | SumsOfExecutor:
    """Sums by a client of Dask or by an executor."""
    kind = SumsOfExecutor if isinstance(client, Executor) else SumsElsewhere
    return kind(client, options, point)


def _ranges(n_blocks: int, n_calls: int) -> list[tuple[int, int]]:
    """The blocks of each call, first and last, of so many calls at most."""
    n = min(n_blocks, n_calls)
    return list(pairwise(n_blocks * k // n for k in range(n + 1)))


# The last model of this process; passes over its rows follow one another.
_BUILT: dict[str, LogLikelihood] = {}


def sums_of_blocks(content: bytes, key: str, phi: Vector, first: int, last: int) -> list[Derivatives]:
    """Sums over the blocks from `first` to before `last`, of options and point of a step, pickled."""
    if key not in _BUILT:
        _BUILT.clear()
        options, point = pickle.loads(content)
        structure = TermStructure(factorised(options, point, check=False))
        _BUILT[key] = Differentiable(structure, point).likelihood()
    return _BUILT[key].of_blocks(phi, range(first, last))


def forget(key: str) -> None:
    """Drop the terms that a worker has built for a set-up."""
    _BUILT.pop(key, None)
