"""A plan: all that is decided of a subsampled Metropolis step before anything is compiled.

The options say what was asked for. `survey` finds the local terms and, if they are wanted, the
posterior mode and the expansion there. `plan_metropolis` adds the decision rule and its bounds, and the
plan compiles. Only a `Recipe` of it travels to other processes, where `replan_metropolis` makes the same plan
again.
"""

from __future__ import annotations

import gc
from dataclasses import dataclass
from typing import Protocol

from pymc.initial_point import PointType

from pymc_austerity.acceptance.base import AcceptanceRule, log_uniform, with_batch_size
from pymc_austerity.bounds.log_ratio_range import RangeCertificates
from pymc_austerity.bounds.remainder import RemainderCertificate
from pymc_austerity.kernels.subsample import NO_ROWS
from pymc_austerity.mode.fit import expanded_again
from pymc_austerity.mode.mode_fit import FittedTerms, ModeFit
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.shared_data import Fingerprint, fingerprint
from pymc_austerity.model.structure.log_likelihood import Elsewhere
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage
from pymc_austerity.proposals.base import Block, BoundProposal, bind
from pymc_austerity.step_methods.messages import refuse_short, try_proposal
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.step_methods.metropolis.engine.range_bound import (
    certificates_of,
    range_bound_for,
)
from pymc_austerity.step_methods.metropolis.engine.sequential import Engine
from pymc_austerity.step_methods.metropolis.options import (
    MetropolisOptions,
    ProposalOption,
    mode_fit_for,
    proposal_for,
    share_of_independent_moves,
)
from pymc_austerity.step_methods.metropolis.orthonormal import matrices_of
from pymc_austerity.target import Index, QuadraticProxy


@dataclass(frozen=True)
class Survey:
    """What is known of a block before a decision rule is chosen. It has size N.

    Attributes
    ----------
    structure : TermStructure
        Of the local terms.
    data : Fingerprint
    proposal : Proposal
        The one that was asked for, or one that suits the block.
    found : FittedTerms or None
        Mode and expansion, if the proposal or a control variate need them.
    """

    structure: TermStructure
    data: Fingerprint
    proposal: ProposalOption
    found: FittedTerms | None

    @property
    def factorisation(self) -> Factorisation:
        """The local terms."""
        return self.structure.factorisation


@dataclass(frozen=True)
class Recipe:
    """What of a plan travels to other processes: what took passes over the data to find out.

    Attributes
    ----------
    n_local : int
        N, the number of local terms.
    n_dim : int
        D, the length of q.
    rule : AcceptanceRule
    proposal : Proposal
    proposal_state : NamedTuple of ndarrays
        State of the proposal before it has learnt anything.
    mode_fit : ModeFit or None
    certificates : RangeCertificates, RemainderCertificate or None
        Bounds on the range of the log ratios, if the rule needs one and none was given.
    sweep : int
        Transitions of a draw, if `steps_per_draw` was not given: 1, or one for each element.
    matrices : tuple of (int, int)
        Rows and columns of the matrices with orthonormal columns, if the block is made of these.
    """

    n_local: int
    n_dim: int
    rule: AcceptanceRule
    proposal: ProposalOption
    proposal_state: object
    mode_fit: ModeFit | None
    certificates: RangeCertificates | RemainderCertificate | None = None
    sweep: int = 1
    matrices: tuple[tuple[int, int], ...] = ()

    def bind(self) -> BoundProposal:
        """The proposal, ready for the dimensions of the block."""
        proxy = None if self.mode_fit is None else self.mode_fit.proxy
        return bound_to(self.proposal, Block(self.n_dim, self.n_local, self.matrices), self.rule, proxy)

    @property
    def exact_rows(self) -> Index:
        """Rows that are read at every transition."""
        return NO_ROWS if self.mode_fit is None else self.mode_fit.exact

    @property
    def independent_moves(self) -> float:
        """Share of moves that are independent draws of the fitted distribution, and decided by the data."""
        share = share_of_independent_moves(self.proposal)
        # Barker's rule accepts every other move of no change.
        return share if self.rule.functions.draw is log_uniform else 0.5 * share


class Terms(Protocol):
    """What a step keeps of a survey."""

    @property
    def factorisation(self) -> Factorisation:
        """The terms of the block, in the order of its vector q."""

    @property
    def data(self) -> Fingerprint:
        """The data that they were found in."""


class StepPlan(Protocol):
    """What a step is made from."""

    @property
    def options(self) -> MetropolisOptions:
        """What was asked for."""

    @property
    def survey(self) -> Terms:
        """What is known of the block."""

    @property
    def recipe(self) -> Recipe:
        """What travels to other processes."""

    def compile(self, point: PointType) -> CompiledKernel:
        """Compile the transitions."""


@dataclass(frozen=True)
class MetropolisPlan:
    """A step that is decided by a rule, ready to be compiled. It has size N.

    Attributes
    ----------
    options : MetropolisOptions
    survey : Survey
    bound : BoundProposal
    recipe : Recipe
    """

    options: MetropolisOptions
    survey: Survey
    bound: BoundProposal
    recipe: Recipe

    @property
    def terms(self) -> Factorisation:
        """The terms that decide: those of the model, or Taylor remainders."""
        found = self.survey.found
        return self.survey.factorisation if found is None else found.expanded

    def compile(self, point: PointType) -> CompiledKernel:
        """Compile the transitions, which takes seconds if they are not in the cache on disk."""
        q, recipe = vector_of(self.survey.factorisation, point), self.recipe
        range_bound = range_bound_for(
            recipe.rule, self.options.range_bound, recipe.certificates, self.survey.structure, q
        )
        return Engine(
            self.terms,
            recipe.rule,
            self.bound,
            range_bound,
            recipe.exact_rows,
            self.options.subsample,
            q,
            point,
        )


def factorised(options: MetropolisOptions, point: PointType, *, check: bool = True) -> Factorisation:
    """The local terms of the block; `check` compares them with PyMC's own log density."""
    return build(
        options.model,
        list(options.vars),
        threshold=options.threshold,
        initial_point=point,
        check=check,
        temperature=options.temperature,
    )


def survey(
    options: MetropolisOptions,
    point: PointType,
    *,
    certify: bool = True,
    factorisation: Factorisation | None = None,
    elsewhere: Elsewhere | None = None,
) -> Survey:
    """Find the local terms, and the mode if it is needed.

    Parameters
    ----------
    options : MetropolisOptions
    point : dict
        Values of all variables.
    certify : bool, default True
        Look for a bound on all Taylor remainders together, and for the rows with the largest ones.
    factorisation : Factorisation, optional
        The local terms, if they are known already.
    elsewhere : callable, optional
        Computes sums over all rows in other processes.

    Raises
    ------
    FactorisationError
        If rows of a term cannot be computed one by one.
    UnsuitableError
        If no term is long enough, or there is no mode.
    """
    fact = factorised(options, point) if factorisation is None else factorisation
    if not fact.n_local:
        refuse_short(fact, options.threshold, options.model)
    gc.collect()  # graphs that were compared are cycles, and hold vectors of all rows
    structure = TermStructure(fact)
    proposal = proposal_for(options.proposal, options.control_variate, structure)
    found = mode_fit_for(
        options.model, structure, point, options.control_variate, proposal, certify, elsewhere
    )
    return Survey(structure, fingerprint(fact.graph), proposal, found)


def survey_again(
    options: MetropolisOptions, recipe: Recipe, data: Fingerprint, point: PointType
) -> Survey | None:
    """The same survey in another process, without a check or a search; None if the data are others."""
    fact = factorised(options, point, check=False)
    if fingerprint(fact.graph) != data:
        return None
    structure = TermStructure(fact)
    found = None if recipe.mode_fit is None else expanded_again(structure, point, recipe.mode_fit)
    return Survey(structure, data, recipe.proposal, found)


def plan_metropolis(
    options: MetropolisOptions, point: PointType, surveyed: Survey | None = None
) -> MetropolisPlan:
    """Decide how the block will be updated: a survey, unless there is one, then rule, proposal and bounds."""
    surveyed = survey(options, point) if surveyed is None else surveyed
    rule = rule_for(options, surveyed)
    bound = bound_proposal(options, surveyed, rule, point)
    mode_fit = mode_fit_of(surveyed)
    certificates = None
    if getattr(rule, "needs_range", False) and options.range_bound is None:
        stage("range of the log ratios")
        certificates = certificates_of(surveyed.structure, point, mode_fit)
    n_local, n_dim = surveyed.factorisation.n_local, len(vector_of(surveyed.factorisation, point))
    matrices = matrices_of(options.model, options.vars)
    recipe = Recipe(
        n_local, n_dim, rule, surveyed.proposal, bound.state, mode_fit, certificates, matrices=matrices
    )
    return MetropolisPlan(options, surveyed, bound, recipe)


def replan_metropolis(
    options: MetropolisOptions, recipe: Recipe, data: Fingerprint, point: PointType
) -> MetropolisPlan | None:
    """The same plan in another process; None if the data are others there."""
    surveyed = survey_again(options, recipe, data, point)
    if surveyed is None:
        return None
    bound = bound_proposal(options, surveyed, recipe.rule, point)
    return MetropolisPlan(options, surveyed, bound, recipe)


def mode_fit_of(surveyed: Survey) -> ModeFit | None:
    """The mode and what is known there, if it was searched for."""
    return None if surveyed.found is None else surveyed.found.mode_fit


def rule_for(options: MetropolisOptions, surveyed: Survey) -> AcceptanceRule:
    """The decision rule with its batch size, for the rows that are not read at every transition."""
    mode_fit = mode_fit_of(surveyed)
    n_exact = 0 if mode_fit is None else len(mode_fit.exact)
    n_others = surveyed.factorisation.n_local - n_exact
    return with_batch_size(options.acceptance, n_others, options.default_batch)


def bound_proposal(
    options: MetropolisOptions, surveyed: Survey, rule: AcceptanceRule, point: PointType
) -> BoundProposal:
    """The proposal, ready for the dimensions of the block; a user's function is tried once."""
    q = vector_of(surveyed.factorisation, point)
    mode_fit = mode_fit_of(surveyed)
    proxy = None if mode_fit is None else mode_fit.proxy
    block = Block(len(q), surveyed.factorisation.n_local, matrices_of(options.model, options.vars))
    bound = bound_to(surveyed.proposal, block, rule, proxy)
    try_proposal(bound, q)
    return bound


def bound_to(
    proposal: ProposalOption, block: Block, rule: AcceptanceRule, proxy: QuadraticProxy | None
) -> BoundProposal:
    """A proposal for a block, with the acceptance rate that suits the rule."""
    return bind(proposal, block.n_dim, rule.target_accept(block.n_free), proxy, block)
