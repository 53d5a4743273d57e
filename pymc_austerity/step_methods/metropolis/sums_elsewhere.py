"""Sums over all rows, computed on the workers of a cluster: blocks of rows are added up where they are."""

import pickle
import uuid
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
        n = min(n_blocks, _CALLS_A_WORKER * max(self._inspection.require(begins=True), 1))
        ends = [n_blocks * k // n for k in range(n + 1)]
        ranges = [(self._key, phi, first, last) for first, last in pairwise(ends)]
        return [block for found in self._calls(sums_of_blocks, ranges) for block in found]

    def close(self) -> None:
        """Workers need not keep the model any longer."""
        if self._client.status == "running":
            self._client.run(forget, self._key, on_error="ignore")


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
