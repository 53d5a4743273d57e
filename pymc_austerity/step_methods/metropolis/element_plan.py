"""The plan of a step that moves one element of its variables at a time, and its compiled transitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.acceptance.base import AcceptanceRule, all_seen, with_batch_size
from pymc_austerity.exceptions import UnboundedError, warn
from pymc_austerity.kernels.elements import READS_ALL, Elements, element_transitions
from pymc_austerity.kernels.metropolis import Rule
from pymc_austerity.kernels.subsample import SMALLEST_POPULATION, longest_block
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.element_terms import ElementRows, ElementTerms
from pymc_austerity.model.graph.log_density import fingerprint
from pymc_austerity.model.structure.incidence_table import shuffle
from pymc_austerity.proposals.base import BoundProposal, no_adaptation
from pymc_austerity.proposals.elements import ElementWalk, learn_scale, walk
from pymc_austerity.proposals.random_walk import AdaptiveRandomWalk, RandomWalk
from pymc_austerity.step_methods.metropolis.engine.base import Engine, RangeBound
from pymc_austerity.step_methods.metropolis.engine.sequential import fewest_rows, range_bound_for, tests_of
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import BlockPlan, Recipe, require_same_data

_SEED = 2014
# Sizes of populations whose stages are kept; these follow latent variables, and change.
_MOST_KEPT = 10_000


def plan_elements(
    options: MetropolisOptions, point: PointType, recipe: Recipe | None = None
) -> BlockPlan[Recipe]:
    """Find the rows of each element, and decide how it will be moved."""
    if recipe is None:
        _refuse(options)
        require_elements(options.vars, point)
    fewest = fewest_rows(options.acceptance)
    terms = element_terms(options, point, fewest, recipe)
    return planned(options, terms, walk_for(options, terms), fewest, in_order=False)


def element_terms(
    options: MetropolisOptions, point: PointType, fewest: int, recipe: Recipe | None
) -> ElementTerms:
    """The terms of each element; with a recipe nothing is checked but whether the data are the same."""
    terms = ElementTerms(
        options.model, options.vars, point, check=recipe is None, temperature=options.temperature
    )
    require_same_data(recipe, terms.factorisation.graph)
    if recipe is not None:
        return terms
    largest = int(np.diff(terms.rows(point).tested.starts).max(initial=0))
    terms.forget()
    tests = options.acceptance.functions.decide is not all_seen and not terms.followed
    if tests and 0 < largest < fewest:
        names = ", ".join(terms.factorisation.var_names)
        warn(
            f"No element of {names} has more than {largest:,} rows, and a test begins at {fewest:,}: all "
            "rows are read, and every decision is exact. A smaller batch_size tests elements with fewer rows."
        )
    return terms


def planned(
    options: MetropolisOptions, terms: ElementTerms, bound: BoundProposal, fewest: int, *, in_order: bool
) -> BlockPlan[Recipe]:
    """The plan of a step for these terms; elements with fewer rows than `fewest` read all of them."""
    recipe = Recipe(
        data=fingerprint(terms.factorisation.graph),
        n_local=terms.n_tested,
        n_dim=int(terms.width.sum()),
        rule=options.acceptance,
        proposal=options.proposal,
        proposal_state=bound.state,
        sweep=terms.n_elements,
    )
    rule = recipe.rule
    uniform = getattr(rule, "uniform", False)
    in_blocks = None if options.subsample is None and not uniform else options.subsample == "block"

    def engine(bound: BoundProposal, q: np.ndarray, point: PointType) -> ElementEngine:
        range_bound = range_bound_for(rule, options.range_bound, None, q)
        return ElementEngine(bound, q, point, terms, rule, fewest, in_blocks, in_order, range_bound)

    return BlockPlan(options, terms.factorisation, recipe, bound, engine)


def walk_for(options: MetropolisOptions, terms: ElementTerms) -> BoundProposal:
    """A random walk for each element: of the given scale, or one that learns it."""
    rate = options.acceptance.target_accept(int(terms.width.max(initial=1)))
    given, n = options.proposal, terms.n_elements
    scale, adapts = np.ones(n), True
    if isinstance(given, RandomWalk) and given.scale is not None:
        scale, adapts = np.asarray(given.scale, dtype=np.float64), False
        if scale.ndim == 1 and scale.shape != (n,):
            raise ValueError(
                f"With elementwise=True the scale of RandomWalk is a number, or one for each of the {n:,} "
                f"elements; got shape {scale.shape}."
            )
        scale = np.broadcast_to(scale, (n,)).copy()
    elif isinstance(given, AdaptiveRandomWalk):
        rate = rate if given.target_accept is None else given.target_accept
    state = ElementWalk(scale, np.zeros(n, dtype=np.int64), np.array([rate]))
    return BoundProposal(state, walk, learn_scale if adapts else no_adaptation, target_functions=())


def require_elements(vars: Sequence[Variable], point: PointType) -> None:
    """Refuse variables that are single numbers, or empty."""
    for value in vars:
        if not np.ndim(point[value.name]):
            raise ValueError(
                f"{value.name!r} is one number and has no elements. Give it to another step, such as "
                "restricted_slice or restricted_nuts."
            )
        if not np.size(point[value.name]):
            raise ValueError(f"{value.name!r} is empty: there is nothing to move.")


def _refuse(options: MetropolisOptions) -> None:
    """Refuse options that have no meaning for single elements."""
    if options.threshold != MetropolisOptions.threshold:
        raise ValueError(
            "With elementwise=True every vector of terms is taken apart, and "
            f"threshold={options.threshold!r} has no meaning: leave it out. Elements with fewer rows than "
            "two batches read all of them."
        )
    if options.control_variate is not None:
        raise ValueError(
            "control_variate=Taylor() is for a block that is moved together; with elementwise=True leave it "
            "out. Effects of groups that have a mode are moved faster by TunaMH, as a field."
        )
    given = options.proposal
    fits = given is None or isinstance(given, AdaptiveRandomWalk)
    if not fits and not (isinstance(given, RandomWalk) and given.scale is not None):
        raise ValueError(
            "With elementwise=True each element has a random walk of its own: proposal may be "
            f"AdaptiveRandomWalk() or RandomWalk(scale), got {given!r}."
        )
    rule = options.acceptance
    if getattr(rule, "needs_range", False):
        if options.range_bound is None:
            raise UnboundedError(
                "With elementwise=True bounds on the range of log ratios are not derived from the model. "
                "Give range_bound, a function (q, q_new) -> float that bounds max_i l_i - min_i l_i over "
                'the rows of the element that moves, or range_bound="exact", which evaluates all of these.'
            )
        if options.subsample == "block":
            raise ValueError(
                'subsample="block" is not possible here: the guarantee of the decision rule holds for single '
                'rows drawn at random. Use subsample="gather".'
            )


class ElementEngine(Engine):
    """Transitions of single elements: those with fewer rows than `fewest` read all of them.

    With `in_blocks` the rows of an element are put in a random order once, of which neighbours are read; None
    chooses. A sweep goes through the elements `in_order`, or at random.
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
        self._compile_moves(proposal, q, point)

    @property
    def n_tested(self) -> int:
        """Elements whose rows are subsampled, at the last run."""
        assert self._made is not None
        return int(np.count_nonzero(self._made[1].first_stage != READS_ALL))

    def statistics(self, found: dict[str, float], outcome: Any, n: int) -> None:
        """Data usage is a share of the rows that contain the elements; `scale` is the mean over these."""
        found["fraction_used"] = outcome.n_used / (outcome.n_possible + (outcome.n_possible == 0))
        found["scale"] = float(np.mean(self._record.state.scale))

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

    def at(self, q: np.ndarray, point: PointType) -> dict[str, Any]:
        """What the kernel is handed in a state, but for the proposal."""
        rows = self._terms.rows(point)
        if self._made is None or self._made[0] is not rows:
            self._made = rows, *self._elements(rows)
        _, elements, schedule = self._made
        rule = Rule(schedule, self._range_bound.at(point), *self._rule.functions, self._range_bound.function)
        return {"elements": elements, "rule": rule}

    def _elements(self, rows: ElementRows) -> tuple[Elements, Any]:
        """The rows of each element, and the stages of all tests one after the other."""
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
        return elements, schedule
