"""Transitions of single elements: the rows of each, and the stages of tests of several populations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.acceptance.base import AcceptanceRule, all_seen, with_batch_size
from pymc_austerity.kernels.elements import READS_ALL, Elements, element_transitions
from pymc_austerity.kernels.metropolis import Rule
from pymc_austerity.kernels.subsample import SMALLEST_POPULATION, longest_block
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.element_terms import ElementRows, ElementTerms
from pymc_austerity.model.structure.incidence_table import shuffle
from pymc_austerity.proposals.base import BoundProposal
from pymc_austerity.step_methods.metropolis.engine.base import Engine, RangeBound
from pymc_austerity.target import Index

_SEED = 2014
# Sizes of populations whose stages are kept; these follow latent variables, and change.
_MOST_KEPT = 10_000
# Where there are fewer rows than this many first batches, a test would save nothing.
_BATCHES = 2


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


class ElementEngine(Engine):
    """Transitions of single elements: those with fewer rows than `fewest` read all of them.

    With `in_blocks` the rows of an element are put in a random order once, of which neighbours are read; None
    chooses. A sweep goes through the elements `in_order`, or at random. It is compiled with `q` and
    `point`.
    """

    kernel = staticmethod(element_transitions)
    functions = ("log_ratios",)
    tells_given = False
    suspects = "range_bound"

    def __init__(
        self,
        proposal: BoundProposal,
        q: np.ndarray,
        point: PointType,
        terms: ElementTerms,
        rule: AcceptanceRule,
        fewest: int,
        in_blocks: bool | None,
        in_order: bool,
        range_bound: RangeBound,
    ) -> None:
        self._terms, self._rule, self._fewest, self._in_blocks = terms, rule, fewest, in_blocks
        self.n_local = self.n_others = terms.n_tested
        self._range_bound, self.compilable = range_bound, range_bound.compilable
        self._order = np.arange(0 if in_order else terms.n_elements)
        self._stages: dict[int, Any] = {}
        self._made: tuple[ElementRows, Elements, Any] | None = None
        self.target = CompiledTarget(terms.factorisation)
        self._compile(proposal, q, point)

    @property
    def n_tested(self) -> int:
        """Elements whose rows are subsampled, at the last run."""
        assert self._made is not None
        return int(np.count_nonzero(self._made[1].first_stage != READS_ALL))

    def restart(self) -> None:
        """Forget what an interrupted transition left in disorder."""
        self._order = np.arange(len(self._order))
        if self._made is not None:
            rows, elements, schedule = self._made
            population = np.arange(len(elements.population))
            self._made = rows, elements._replace(population=population, order=self._order), schedule

    def _stages_of(self, size: int) -> Any:
        """The stages of the test of an element with so many rows."""
        if len(self._stages) > _MOST_KEPT:
            self._stages.clear()
        if size not in self._stages:
            rule = with_batch_size(self._rule, size)
            self._stages[size] = rule.bind(size)
        return self._stages[size]

    def _elements(self, point: PointType) -> tuple[Elements, Any]:
        """The rows of each element, and the stages of all tests one after the other."""
        rows = self._terms.rows(point)
        if self._made is not None and self._made[0] is rows:
            return self._made[1:]
        sizes = np.diff(rows.tested.starts)
        schedule, first_stage, different = tests_of(sizes, self._fewest, self._stages_of, self._rule)
        # One order of few rows is the same error at each decision.
        large = len(different) > 0 and different[0] >= SMALLEST_POPULATION
        if self._in_blocks or (self._in_blocks is None and large):
            inner = [self._stages_of(int(size)).ends[:-1] for size in different]
            schedule = schedule._replace(block=longest_block(np.concatenate([*inner, []]).astype(int)))
        listed = rows.tested.rows
        if schedule.block > 1:
            listed = listed.copy()
            shuffle(rows.tested.starts, listed, _SEED)
        elements = Elements(
            self._terms.first,
            self._terms.width,
            rows.own.starts,
            rows.own.rows,
            rows.tested.starts,
            listed,
            first_stage,
            np.arange(int(different.max(initial=0))),
            self._order,
        )
        self._made = rows, elements, schedule
        return elements, schedule

    def at(self, q: np.ndarray, point: PointType) -> dict[str, Any]:
        """What the kernel is handed in a state, but for the proposal."""
        elements, schedule = self._elements(point)
        rule = Rule(schedule, self._range_bound.at(point), *self._rule.functions, self._range_bound.function)
        return {"elements": elements, "rule": rule}
