"""What a worker does: one chain, from the state and the seed that `pm.sample` would give it."""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pymc.initial_point import PointType
from pymc.sampling.mcmc import _iter_sample

from pymc_austerity.extras import imported

# Seconds between two messages of a chain.
_OFTEN = 0.5

Stats = list[dict[str, Any]]


class ChainsToRun(NamedTuple):
    """Model, step and settings that chains have in common, and where each chain begins.

    Attributes
    ----------
    step : BlockedStep or CompoundStep
        Brings its model along.
    starts : list of dict
    rngs : list of numpy.random.Generator
    tune, draws : int
    """

    step: Any
    starts: list[PointType]
    rngs: list[np.random.Generator]
    tune: int
    draws: int


class Drawn(NamedTuple):
    """Draws of a chain, those of tuning first.

    Attributes
    ----------
    points : dict of str to ndarray, shape (n, ...)
        Values of all value variables.
    stats : list of dict of str to ndarray, shape (n, ...)
        Of each step method.
    told : list of (category, str)
        Warnings, with their categories.
    """

    points: dict[str, NDArray[Any]]
    stats: list[dict[str, NDArray[Any]]]
    told: list[tuple[type[Warning], str]]

    @property
    def n(self) -> int:
        """Number of draws."""
        return len(next(iter(self.points.values())))


class _StoppedError(Exception):
    """The chain was stopped from outside."""


class Recorder:
    """Keeps the draws of a chain while it runs: it stands in the place of a trace.

    Parameters
    ----------
    topic : str
        Under which messages about progress are sent.
    chain : int
    tune : int
    """

    def __init__(self, topic: str, chain: int, tune: int) -> None:
        self._topic, self._chain, self._tune = topic, chain, tune
        self._points: list[PointType] = []
        self._stats: list[Stats] = []
        self._told_at = 0.0
        self.told: list[Any] = []
        self.is_stopped = False

    def record(self, point: PointType, stats: Stats, *, in_warmup: bool) -> None:
        """Keep a draw. Steps may write over their points."""
        if self.is_stopped:
            raise _StoppedError
        self._points.append({name: np.array(value) for name, value in point.items()})
        self._stats.append([dict(own) for own in stats])
        now = time.monotonic()
        if now - self._told_at > _OFTEN:
            self._told_at = now
            _tell(self._topic, self._chain, len(self._points), self._stats[-1])

    def close(self) -> None:
        """Do nothing: draws are kept in memory, no file is open."""

    def drawn(self) -> Drawn | None:
        """Draws that were recorded so far; None if there are none."""
        n = min(len(self._points), len(self._stats))
        if not n:
            return None
        points, stats = self._points[:n], self._stats[:n]
        return Drawn(
            {name: np.stack([one[name] for one in points]) for name in points[0]},
            [
                {key: _stacked([one[k][key] for one in stats]) for key in own}
                for k, own in enumerate(stats[0])
            ],
            [(one.category, str(one.message)) for one in self.told],
        )


def _stacked(values: Sequence[Any]) -> NDArray[Any]:
    """One statistic of all draws. What is no number, such as a warning of NUTS, stays as it is."""
    if isinstance(values[0], bool | int | float | str | np.generic | np.ndarray):
        return np.stack([np.asarray(value) for value in values])
    result = np.empty(len(values), dtype=object)
    result[:] = values
    return result


# Chains that this process runs, by topic and number.
_RUNNING: dict[tuple[str, int], Recorder] = {}


def run_chain(content: bytes, chain: int, topic: str) -> Drawn:
    """Run a chain from its first state: a chain that is run again makes the same draws.

    Parameters
    ----------
    content : bytes
        Pickled `ChainsToRun`.
    chain : int
    topic : str
        Of this call of `sample_distributed`.
    """
    all_chains: ChainsToRun = pickle.loads(content)
    recorder = _RUNNING[topic, chain] = Recorder(topic, chain, all_chains.tune)
    try:
        with warnings.catch_warnings(record=True) as recorder.told:
            warnings.simplefilter("always")
            for _ in _iter_sample(
                draws=all_chains.tune + all_chains.draws,
                step=all_chains.step,
                start=all_chains.starts[chain],
                trace=recorder,
                chain=chain,
                tune=all_chains.tune,
                rng=all_chains.rngs[chain],
            ):
                pass
    finally:
        del _RUNNING[topic, chain]
    result = recorder.drawn()
    assert result is not None
    return result


def stop_chains(topic: str) -> dict[int, Drawn]:
    """Stop the chains of this process, and hand over what they have drawn."""
    found = {}
    for (own, chain), recorder in list(_RUNNING.items()):
        if own == topic:
            recorder.is_stopped = True
            drawn = recorder.drawn()
            if drawn is not None:
                found[chain] = drawn
    return found


def _tell(topic: str, chain: int, n: int, stats: Stats) -> None:
    worker = imported("distributed", "Chains on a cluster", "cluster").get_worker()
    worker.log_event(topic, {"chain": chain, "n": n, "stats": pickle.dumps(stats)})
