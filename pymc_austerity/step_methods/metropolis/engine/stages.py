"""Stages of tests of several populations, such as the rows of each group."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pymc_austerity.acceptance.base import AcceptanceRule, all_seen
from pymc_austerity.target import Index

# Where there are fewer rows than this many first batches, a test would save nothing.
_BATCHES = 2


def fewest_rows(rule: AcceptanceRule, chosen: int | None = None) -> int:
    """Rows below which all are read and nothing is tested."""
    if rule.functions.decide is all_seen:
        return int(np.iinfo(np.int64).max)
    given: int | None = getattr(rule, "batch_size", None)
    batch: int = getattr(rule, "default_batch_size", 1) if given is None else given
    return max(2, _BATCHES * batch if chosen is None else max(chosen, batch))


def joined(schedules: Sequence[Any], rule: AcceptanceRule) -> tuple[Any, Index]:
    """The stages of several populations as one schedule, and where those of each begin."""
    if not schedules:
        return rule.bind(int(getattr(rule, "batch_size", None) or 2)), np.empty(0, dtype=np.int64)
    lengths = [len(schedule.ends) for schedule in schedules]
    first = schedules[0]
    whole = {
        name: np.concatenate([getattr(schedule, name) for schedule in schedules])
        for name, value in first._asdict().items()
        if isinstance(value, np.ndarray) and value.shape == first.ends.shape
    }
    return first._replace(**whole), np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
