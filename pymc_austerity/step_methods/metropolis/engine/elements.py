"""The compiled transitions of single elements of a block."""

from __future__ import annotations

from typing import Any

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.acceptance.base import AcceptanceRule, with_batch_size
from pymc_austerity.kernels.elements import READS_ALL, ElementOutcome, Elements, element_transitions
from pymc_austerity.kernels.metropolis import Rule
from pymc_austerity.kernels.subsample import SMALLEST_POPULATION, longest_block
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.element_terms import ElementRows, ElementTerms
from pymc_austerity.model.structure.incidence_table import shuffle
from pymc_austerity.proposals.elements import BoundElements
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel, RangeBound
from pymc_austerity.step_methods.metropolis.engine.stages import joined

_SEED = 2014
# Sizes of populations whose stages are kept; these follow latent variables, and change.
_MOST_KEPT = 10_000


class ElementEngine(CompiledKernel):
    """Transitions of `kernels.elements`.

    Parameters
    ----------
    terms : ElementTerms
    rule : AcceptanceRule
        With its batch size.
    fewest : int
        Elements with fewer rows read all of them.
    in_blocks : bool or None
        Whether the rows of an element are put in a random order once, of which neighbours are read; None
        chooses.
    in_order : bool
        Whether a sweep goes through the elements in order, or at random.
    proposal : BoundElements
    range_bound : RangeBound
    q, point : ndarray, dict
        A state, and the values of all variables, to compile with.

    Attributes
    ----------
    n_tested : int
        Elements of which rows are subsampled, at the last run.
    """

    tells_given = False

    def __init__(
        self,
        terms: ElementTerms,
        rule: AcceptanceRule,
        fewest: int,
        in_blocks: bool | None,
        in_order: bool,
        proposal: BoundElements,
        range_bound: RangeBound,
        q: np.ndarray,
        point: PointType,
    ) -> None:
        self._terms, self._rule, self._fewest, self._in_blocks = terms, rule, fewest, in_blocks
        self.n_local = self.n_others = terms.n_tested
        self._range_bound = range_bound
        self._order = np.arange(0 if in_order else terms.n_elements)
        self._stages: dict[int, Any] = {}
        self._made: tuple[ElementRows, Elements, Any] | None = None
        self.target = CompiledTarget(terms.factorisation)
        self._compile(
            element_transitions,
            {"rule": Rule(..., ..., *rule.functions, range_bound.function)},
            ["log_ratios"],
            proposal,
            q,
            point,
            suspects="range_bound",
            certain=range_bound.compilable,
        )

    @property
    def n_tested(self) -> int:
        """Elements whose rows are subsampled, at the last run."""
        assert self._made is not None
        return int(np.count_nonzero(self._made[1].first_stage != READS_ALL))

    def copy(self) -> ElementEngine:
        """An engine that shares what is compiled, with work space of its own."""
        clone = super().copy()
        clone._order, clone._made = self._order.copy(), None
        return clone

    def restart(self) -> None:
        """Forget what an interrupted transition left in disorder."""
        self._order[:] = np.arange(len(self._order))
        if self._made is not None:
            population = self._made[1].population
            population[:] = np.arange(len(population))

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
        different = np.unique(sizes[sizes >= self._fewest])
        schedule, firsts = joined([self._stages_of(int(size)) for size in different], self._rule)
        # One order of few rows is the same error at each decision.
        large = len(different) > 0 and different[0] >= SMALLEST_POPULATION
        if self._in_blocks or (self._in_blocks is None and large):
            inner = [self._stages_of(int(size)).ends[:-1] for size in different]
            schedule = schedule._replace(block=longest_block(np.concatenate([*inner, []]).astype(int)))
        first_stage = np.full(len(sizes), READS_ALL)
        tested = sizes >= self._fewest
        first_stage[tested] = firsts[np.searchsorted(different, sizes[tested])]
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

    def run(
        self,
        n: int,
        tune: bool,
        rng: np.random.Generator,
        q: np.ndarray,
        point: PointType,
        proposal_state: Any,
    ) -> Any:
        """Make n transitions from q, which is written over; `point` has the values of the other variables."""
        elements, schedule = self._elements(point)
        bound = self._range_bound.at(point)
        outcome: ElementOutcome = self._call(
            proposal_state,
            n,
            tune,
            rng,
            q,
            self.target.args(point),
            elements,
            schedule,
            bound,
            proposal_state,
        )
        return outcome
