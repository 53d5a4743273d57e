"""What the kernels of decision rules are handed: the rule with its stages, and rows to draw from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.acceptance.base import AcceptanceRule, above, all_seen
from pymc_austerity.bounds.remainder import RemainderCertificate
from pymc_austerity.kernels.elements import READS_ALL
from pymc_austerity.kernels.metropolis import (
    Current,
    Outcome,
    Rule,
    full_transitions,
    transitions,
    unknown_sum,
)
from pymc_austerity.kernels.subsample import in_blocks, rows_of
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.proposals.base import BoundProposal
from pymc_austerity.step_methods.metropolis.engine.base import NO_RANGE, Engine, RangeBound
from pymc_austerity.step_methods.metropolis.engine.range_bound import certified, range_bound_of
from pymc_austerity.step_methods.metropolis.options import RangeOption, Subsample
from pymc_austerity.target import Index

# Where there are fewer rows than this many first batches, a test would save nothing.
_BATCHES = 2


def range_bound_for(
    rule: AcceptanceRule, given: RangeOption, certificate: RemainderCertificate | None, q: np.ndarray
) -> RangeBound:
    """The bound on the range of log ratios, if a rule needs one: from the user, or from a certificate."""
    if not getattr(rule, "needs_range", False):
        return NO_RANGE
    if given is not None:
        return range_bound_of(given, q)
    assert certificate is not None
    return certified(certificate)


class RuleEngine(Engine):
    """Transitions of a decision rule.

    A rule that is decided only when all terms are seen has the first of the `kernels`, others the second.
    Terms at `exact_rows` are evaluated at every step. `subsample` is to draw single rows, or blocks of
    neighbours of shuffled rows; None chooses. It is compiled with `q` and `point`.
    """

    def __init__(
        self,
        proposal: BoundProposal,
        q: np.ndarray,
        point: PointType,
        factorisation: Factorisation,
        rule: AcceptanceRule,
        range_bound: RangeBound,
        exact_rows: Index,
        subsample: Subsample | None,
        kernels: tuple[Callable[..., Outcome], Callable[..., Outcome]] = (full_transitions, transitions),
    ) -> None:
        self.n_local = factorisation.n_local
        self.reads_all = rule.functions.decide is all_seen and rule.functions.accept is above
        self.needs_range = bool(getattr(rule, "needs_range", False))
        # Sums of remainders are not kept from one transition to the next: nobody decides on all of them.
        self.full = self.reads_all and factorisation.polynomial is None
        self._range_bound = range_bound
        self.n_others = self.n_local - len(exact_rows)
        self._schedule = rule.bind(self.n_others)
        self._schedule = self._in_blocks(subsample, rule, factorisation)
        self.target = CompiledTarget(factorisation, shuffle=self._schedule.block > 1)
        self.exact_rows = np.sort(self.target.stored_at(exact_rows)).astype(np.int64)
        if self.full:
            self.kernel, self._functions = kernels[0], rule.functions
            self.functions = ["log_terms", "global_log_ratio"]
        else:
            self.kernel = kernels[1]
            self._rule = Rule(self._schedule, 0, *rule.functions, range_bound.function)
            self.functions = ["global_log_ratio", "log_ratios", *range_bound.functions]
            self.compilable = range_bound.compilable
            self.suspects = "proposal" if range_bound.compilable else "proposal or range_bound"
        self._compile_moves(proposal, q, point)

    def _in_blocks(
        self, subsample: Subsample | None, rule: AcceptanceRule, factorisation: Factorisation
    ) -> Any:
        """Stages in blocks, if they are wanted, or allowed and worth it."""
        in_way, n_terms = None, len(factorisation.locals)
        if self.reads_all:
            in_way = "the decision rule reads all rows, in order"
        elif getattr(rule, "uniform", False):
            in_way = "the guarantee of the decision rule holds for single rows drawn at random"
        elif n_terms > 1:
            in_way = f"a block is a random sample of one vector of terms, and this model has {n_terms}"
        elif factorisation.graph.on_disk:
            in_way = "the rows are on disk, and blocks are read from a copy in random order"
        if subsample == "block" and in_way is not None:
            raise ValueError(f'subsample="block" is not possible here: {in_way}. Use subsample="gather".')
        if subsample == "gather" or in_way is not None:
            return self._schedule
        schedule = in_blocks(self._schedule, always=subsample == "block")
        if subsample == "block" and schedule.block == 1:
            raise ValueError(
                'subsample="block" is not possible here: no number from 2 to 32 divides the sizes of all '
                f"stages ({schedule.ends[0]}, ...). Use another batch_size, or leave subsample out."
            )
        return schedule

    def restart(self) -> None:
        """Forget the last state, and what an interrupted decision left in disorder."""
        self._current: Current | None = None
        if not self.full:
            rows = rows_of(self._schedule, self.exact_rows)
            self._decision = {"rows": rows, "rule": self._rule}
            self.given = None if self.needs_range else self._decision

    def at(self, q: np.ndarray, point: PointType) -> dict[str, Any]:
        """What the kernel is handed in a state, but for the proposal."""
        if self.full:
            if self._current is None or self.target.other_names:  # others may have moved since
                self._current = unknown_sum(self.n_local, q)
            return {"current": self._current, "rule": self._functions}
        return {**self._decision, "rule": self._rule._replace(bound=self._range_bound.at(point))}


# Tests of several populations, as of the rows of elements or groups ------------------------------


def fewest_rows(rule: AcceptanceRule, chosen: int | None = None) -> int:
    """Rows below which all are read and nothing is tested."""
    if rule.functions.decide is all_seen:
        return int(np.iinfo(np.int64).max)
    given: int | None = getattr(rule, "batch_size", None)
    batch: int = getattr(rule, "default_batch_size", 1) if given is None else given
    return max(2, _BATCHES * batch if chosen is None else max(chosen, batch))


def tests_of(
    sizes: Index, fewest: int, bound: Callable[[int], Any], rule: AcceptanceRule
) -> tuple[Any, Index, Index]:
    """Stages of tests of several populations as one schedule, where those of each begin, and tested sizes.

    Populations smaller than `fewest` are not tested. `bound` says the stages of one of a size.
    """
    tested = sizes >= fewest
    different = np.unique(sizes[tested])
    first_stage = np.full(len(sizes), READS_ALL)
    schedules = [bound(int(size)) for size in different]
    if not schedules:
        return rule.bind(int(getattr(rule, "batch_size", None) or 2)), first_stage, different
    first = schedules[0]
    whole = {
        name: np.concatenate([getattr(schedule, name) for schedule in schedules])
        for name, value in first._asdict().items()
        if isinstance(value, np.ndarray) and value.shape == first.ends.shape
    }
    firsts = np.concatenate([[0], np.cumsum([len(schedule.ends) for schedule in schedules])[:-1]])
    first_stage[tested] = firsts[np.searchsorted(different, sizes[tested])]
    return first._replace(**whole), first_stage, different
