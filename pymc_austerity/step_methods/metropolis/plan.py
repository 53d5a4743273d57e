"""A plan: all that is decided of a subsampled Metropolis step before anything is compiled.

The options say what was asked for. `survey` finds the local terms and, if they are wanted, the
posterior mode and the expansion there. A plan adds the decision rule, the proposal and bounds, and compiles.
Only a `Recipe` of it travels to other processes.

Every kind of plan is made by one function of options, a point and a recipe: `plan_metropolis` here, and
`plan_tuna`, `plan_elements`, `plan_jumps`, `plan_field` elsewhere. What a recipe knows is
not searched for. Where the data are others than those of the recipe, they raise `OtherDataError`.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity import work
from pymc_austerity.acceptance.base import AcceptanceRule, log_uniform, with_batch_size
from pymc_austerity.bounds.remainder import RemainderCertificate
from pymc_austerity.exceptions import UnboundedError
from pymc_austerity.kernels.subsample import NO_ROWS
from pymc_austerity.mode.log_ratios import bounded_state, certify_log_ratios
from pymc_austerity.mode.mode_fit import FittedTerms, ModeFit, expanded_again, fit_mode, start_near
from pymc_austerity.model.equal_rows import said_of_joined, with_equal_rows_joined
from pymc_austerity.model.factorisation import Factorisation, point_of, row_operations, vector_of
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.log_density import Fingerprint, LogDensityGraph, fingerprint
from pymc_austerity.model.starting_point import density_of_block
from pymc_austerity.model.structure.log_likelihood import Elsewhere
from pymc_austerity.model.structure.row_programs import global_rows
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage
from pymc_austerity.proposals.base import Block, BoundProposal, bind, is_fitted
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.step_methods.messages import refuse_short, try_proposal
from pymc_austerity.step_methods.metropolis.engine.base import Engine
from pymc_austerity.step_methods.metropolis.engine.sequential import RuleEngine, range_bound_for
from pymc_austerity.step_methods.metropolis.options import (
    MetropolisOptions,
    ProposalOption,
    matrices_of,
    proposal_for,
)
from pymc_austerity.target import Index, Vector

logger = logging.getLogger(__name__)


class OtherDataError(Exception):
    """A recipe was made for other data."""


@dataclass(frozen=True)
class Survey:
    """What is known of a block before a decision rule is chosen. It has size N."""

    structure: TermStructure  # Of the local terms
    proposal: ProposalOption  # The one that was asked for, or one that suits the block
    found: FittedTerms | None  # Mode and expansion, if the proposal or a control variate need them

    @property
    def factorisation(self) -> Factorisation:
        """The local terms."""
        return self.structure.factorisation

    @property
    def mode_fit(self) -> ModeFit | None:
        """The mode and what is known there, if it was searched for."""
        return None if self.found is None else self.found.mode_fit


@dataclass(frozen=True)
class Recipe:
    """What of a plan travels to other processes: what took passes over the data to find out.

    It also answers what differs between steps that move a block and those that move a field.
    """

    # Whether effects of groups are moved as a field.
    is_field: ClassVar[bool] = False

    data: Fingerprint  # Of the data that the plan was made for
    n_local: int  # N, the number of local terms
    n_dim: int  # D, the length of q
    rule: AcceptanceRule
    proposal: ProposalOption
    proposal_state: object  # State of the proposal before it has learnt anything
    mode_fit: ModeFit | None = None
    # Bound on the range of the log ratios, if the rule needs one and none was given
    log_ratios: RemainderCertificate | None = None
    # Of `TunaMH` and of fields: whether all rows are read, and where bounds come from, in words
    reads_all: bool = False
    certificate: str = ""
    sweep: int = 1  # Transitions of a draw, if `steps_per_draw` was not given: 1, or one for each element

    @property
    def exact_rows(self) -> Index:
        """Rows that are read at every transition."""
        return NO_ROWS if self.mode_fit is None else self.mode_fit.exact

    @property
    def independent_moves(self) -> float:
        """Share of moves that are independent draws of the fitted distribution, and decided by the data."""
        given, share = self.proposal, 0.0
        if isinstance(given, Laplace) and given.kind == "independence":
            share = 1.0 - given.mix
        # Barker's rule accepts every other move of no change.
        return share if self.rule.functions.draw is log_uniform else 0.5 * share

    @property
    def rows_a_draw(self) -> float:
        """Rows that are read for a transition, roughly."""
        return float(self.n_local)

    @property
    def n_watched(self) -> int:
        """So many of the first coordinates tell how well a chain mixes."""
        return self.n_dim

    def tell(self, plan: Plan) -> None:
        """Warn of what a new plan means for the user."""

    def fitted_draw(
        self, fact: Factorisation, engine: Engine, point: PointType, rng: np.random.Generator
    ) -> Vector:
        """A draw of the distribution that the proposal is fitted to."""
        assert self.mode_fit is not None
        names = ", ".join(fact.var_names)
        return self.mode_fit.start(vector_of(fact, point), rng, density_of_block(fact, point), names)

    def start(
        self,
        fact: Factorisation,
        engine: Engine,
        point: PointType,
        default: Callable[[], PointType],
        rng: np.random.Generator,
        names: str,
    ) -> PointType:
        """Where a chain begins that was told to begin at `point`; `default` is where nobody has said so."""
        if self.mode_fit is None or not is_fitted(self.proposal):
            return point
        density = density_of_block(fact, point)
        q = start_near(
            self.mode_fit, vector_of(fact, point), lambda: vector_of(fact, default()), names, rng, density
        )
        return point_of(fact, q, point)


@dataclass(frozen=True)
class Plan:
    """What a step is made from."""

    options: MetropolisOptions  # What was asked for
    factorisation: Factorisation  # The terms of the block, in the order of its vector q
    recipe: Recipe  # What travels to other processes

    def compile(self, point: PointType) -> Engine:
        """Compile the transitions, which takes seconds if they are not in the cache on disk."""
        raise NotImplementedError


@dataclass(frozen=True)
class BlockPlan[R: Recipe](Plan):
    """A step that moves a block, or elements of it, ready to be compiled. It has size N."""

    recipe: R
    bound: BoundProposal  # The proposal, ready for the block
    # ``(bound, q, point) -> Engine``: compiles the transitions of a proposal
    engine: Callable[[BoundProposal, Vector, PointType], Engine]

    def compile(self, point: PointType) -> Engine:
        """Compile the transitions, which takes seconds if they are not in the cache on disk."""
        return self.engine(self.bound, vector_of(self.factorisation, point), point)


def log_ratios_for(
    options: MetropolisOptions, structure: TermStructure, point: PointType, mode_fit: ModeFit | None
) -> RemainderCertificate | None:
    """A certificate of the range of log ratios, if the rule needs one and the user has given none."""
    if not getattr(options.acceptance, "needs_range", False) or options.range_bound is not None:
        return None
    if mode_fit is not None and mode_fit.expansion is not None:
        if mode_fit.certificate is None:
            raise _unbounded("Taylor remainders", mode_fit.no_certificate)
        return mode_fit.certificate
    stage("range of the log ratios")
    try:
        return certify_log_ratios(options.model, structure, point)
    except UnboundedError as error:
        raise _unbounded("log ratios", str(error)) from None


def _unbounded(what: str, reason: str) -> UnboundedError:
    return UnboundedError(
        f"No bound on the range of the {what} is known for this model: {reason.rstrip('.')}. Give "
        "range_bound, a function (q, q_new) -> float that bounds max_i l_i - min_i l_i (of the remainders, "
        'if there is a control_variate), or range_bound="exact", which evaluates all terms at each '
        "transition; or use AusterityMH, which needs no bound."
    )


def factorised(
    options: MetropolisOptions, point: PointType, recipe: Recipe | None = None, *, check: bool = True
) -> Factorisation:
    """The local terms of the block; without a recipe, `check` compares them with PyMC's own log density."""
    fact = build(
        options.model,
        list(options.vars),
        threshold=options.threshold,
        initial_point=point,
        check=check and recipe is None,
        temperature=options.temperature,
    )
    require_same_data(recipe, fact.graph)
    return fact


def joined(
    options: MetropolisOptions, fact: Factorisation, point: PointType, recipe: Recipe | None
) -> Factorisation:
    """The local terms of a block with equal rows joined, if the step does so; as a recipe has them."""
    if not options.joins_equal_rows or (recipe is not None and recipe.n_local == fact.n_local):
        return fact
    work.sized(fact.n_rows, len(vector_of(fact, point)), row_operations(fact))
    result = with_equal_rows_joined(fact)
    if recipe is None:
        tell_joined(fact, result)
    return result


def tell_joined(plain: Factorisation, result: Factorisation) -> None:
    """Say how many times fewer rows there are."""
    for told in said_of_joined(plain, result):
        logger.info(told)


def require_same_data(recipe: Recipe | None, graph: LogDensityGraph) -> None:
    """Raise `OtherDataError` if a recipe was made for other data than those of a graph."""
    if recipe is not None and fingerprint(graph) != recipe.data:
        raise OtherDataError


def survey(
    options: MetropolisOptions,
    point: PointType,
    recipe: Recipe | None = None,
    *,
    certify: bool = True,
    factorisation: Factorisation | None = None,
    elsewhere: Elsewhere | None = None,
) -> Survey:
    """Find the local terms, unless they are known, and the mode if it is needed.

    With a recipe nothing is checked or searched for. `certify` asks for a bound on all Taylor remainders
    together, and for the rows with the largest ones. `elsewhere` sums over all rows in other processes, which
    do not join equal ones.
    """
    fact = factorised(options, point, recipe) if factorisation is None else factorisation
    fact = joined(options, fact, point, recipe) if elsewhere is None else fact
    if recipe is not None:
        structure = TermStructure(fact)
        mode_fit = recipe.mode_fit
        again = None if mode_fit is None else expanded_again(structure, point, mode_fit)
        return Survey(structure, recipe.proposal, again)
    if not fact.n_local:
        refuse_short(fact, options.threshold, options.model)
    gc.collect()  # graphs that were compared are cycles, and hold vectors of all rows
    structure = TermStructure(fact)
    proposal = proposal_for(options.proposal, options.control_variate, structure)
    taylor = options.control_variate
    if taylor is None and not is_fitted(proposal):
        return Survey(structure, proposal, None)
    whole = isinstance(proposal, Laplace)
    found = fit_mode(
        options.model, structure, point, taylor, whole_block=whole, certify=certify, elsewhere=elsewhere
    )
    return Survey(structure, proposal, found)


def plan_metropolis(
    options: MetropolisOptions,
    point: PointType,
    recipe: Recipe | None = None,
    surveyed: Survey | None = None,
) -> BlockPlan[Recipe]:
    """Decide how the block will be updated: a survey, unless there is one, then rule, proposal and bounds."""
    surveyed = survey(options, point, recipe) if surveyed is None else surveyed
    fact, mode_fit = surveyed.factorisation, surveyed.mode_fit
    if recipe is not None:
        bound = bound_proposal(options, surveyed, recipe.rule, point)
    else:
        # The batch size is for the rows that are not read at every transition.
        n_others = fact.n_local - (0 if mode_fit is None else len(mode_fit.exact))
        rule = with_batch_size(options.acceptance, n_others, options.default_batch)
        bound = bound_proposal(options, surveyed, rule, point)
        recipe = Recipe(
            data=fingerprint(fact.graph),
            n_local=fact.n_local,
            n_dim=len(vector_of(fact, point)),
            rule=rule,
            proposal=surveyed.proposal,
            proposal_state=bound.state,
            mode_fit=mode_fit,
            log_ratios=log_ratios_for(options, surveyed.structure, point, mode_fit),
        )
    if surveyed.found is None:
        terms = replace(fact, global_rows=global_rows(fact, surveyed.structure.of_globals))
    else:
        terms = surveyed.found.expanded
    if recipe.log_ratios is not None and recipe.log_ratios.order == 0:
        terms = replace(terms, features=bounded_state(surveyed.structure))
    return block_plan(options, surveyed, terms, bound, recipe)


def block_plan[R: Recipe](
    options: MetropolisOptions,
    surveyed: Survey,
    terms: Factorisation,
    bound: BoundProposal,
    recipe: R,
) -> BlockPlan[R]:
    """The plan of a decision rule on some terms: those of the model, or Taylor remainders."""

    def engine(bound: BoundProposal, q: Vector, point: PointType) -> RuleEngine:
        rule = recipe.rule
        range_bound = range_bound_for(rule, options.range_bound, recipe.log_ratios, q)
        return RuleEngine(bound, q, point, terms, rule, range_bound, recipe.exact_rows, options.subsample)

    return BlockPlan(options, surveyed.factorisation, recipe, bound, engine)


def bound_proposal(
    options: MetropolisOptions, surveyed: Survey, rule: AcceptanceRule, point: PointType
) -> BoundProposal:
    """The proposal for the block, with the acceptance rate that suits the rule; a user's is tried once."""
    q, fit = vector_of(surveyed.factorisation, point), surveyed.mode_fit
    block = Block(len(q), surveyed.factorisation.n_local, matrices_of(options.model, options.vars))
    proxy = None if fit is None else fit.proxy
    bound = bind(surveyed.proposal, block.n_dim, rule.target_accept(block.n_free), proxy, block)
    try_proposal(bound, q)
    return bound
