"""Keywords that all subsampled steps take, and what they mean together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, Literal, TypedDict, get_args

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.acceptance.base import AcceptanceRule, Exact
from pymc_austerity.bounds.row_constants import Curvature
from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.distributions.uniform_stiefel import is_uniform_stiefel
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.model.factorisation import FEWEST_GROUPS
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.model.stored_data import refuse_evaluated, refuse_on_disk
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals.langevin import Langevin
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.proposals.random_walk import AdaptiveRandomWalk, RandomWalk
from pymc_austerity.proposals.stiefel_walk import StiefelWalk
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.step_methods.base import checked_steps_per_draw
from pymc_austerity.step_methods.messages import refuse_discrete
from pymc_austerity.validation import is_real, require_switches
from pymc_austerity.work import DEFAULT_BUDGET, checked_budget

Subsample = Literal["gather", "block"]
# A built-in proposal, or what `proposals.base.bind` makes one of.
ProposalOption = object
# What a user may give as `range_bound`.
RangeOption = Callable[..., float] | str | None

# Default batch size with a control variate.
BATCH_OF_REMAINDERS = 50
# Proposals that would leave the matrices with orthonormal columns.
_OTHERS = AdaptiveRandomWalk | RandomWalk | Laplace | Surrogate | Langevin


class ContractOptions(TypedDict, total=False):
    """Keywords of PyMC's own steps, and whether the set-up is shown."""

    blocked: bool
    rng: Any
    initial_point: PointType | None
    compile_kwargs: dict[str, Any] | None
    progressbar: bool


class ChainOptions(TypedDict, total=False):
    """Keywords that all steps take; see `MetropolisHastings`."""

    proposal: Any
    steps_per_draw: int | None
    threshold: int
    tune: bool
    set_up_budget: float
    model: pm.Model | None


class RuleOptions(ChainOptions, total=False):
    """Keywords of steps with a decision rule, without the temperature."""

    control_variate: Taylor | None
    subsample: Subsample | None
    elementwise: bool


class CommonOptions(RuleOptions, ContractOptions, total=False):
    """Keywords of steps that name the temperature themselves."""


class StepOptions(CommonOptions, total=False):
    """Keywords of steps with a decision rule."""

    temperature: float


class GibbsOptions(ContractOptions, total=False):
    """Keywords of steps that update discrete variables, one site at a time."""

    subsample: Subsample | None
    steps_per_draw: int
    temperature: float
    model: pm.Model | None


class TunaKeywords(ChainOptions, ContractOptions, total=False):
    """Keywords of `TunaMH`, which has no decision rule."""

    temperature: float


class JumpOptions(TunaKeywords, total=False):
    """Keywords of steps that move between sub-models."""

    range_bound: RangeOption
    subsample: Subsample | None


class TunaFields(TypedDict, total=False):
    """Keywords that only `TunaMH` has, checked; see there."""

    chi: float
    switch_above: float
    curvature: Mapping[str, Curvature]
    debug: bool


class AskedOptions(RuleOptions, TunaFields, total=False):
    """Fields of `MetropolisOptions` that steps hand on."""

    temperature: float
    compress: bool
    range_bound: RangeOption
    default_batch: int | None


@dataclass(frozen=True)
class MetropolisOptions:
    """What a step was asked for; see `MetropolisHastings` for most of it."""

    model: pm.Model
    vars: tuple[Variable, ...]
    acceptance: AcceptanceRule
    default_batch: int | None = None  # Batch size if the rule has none, instead of the rule's own default
    proposal: ProposalOption = None
    control_variate: Taylor | None = None
    subsample: Subsample | None = None
    range_bound: RangeOption = None
    steps_per_draw: int | None = None
    threshold: int = 1000
    temperature: float = 1.0
    tune: bool = True
    elementwise: bool = False
    set_up_budget: float = DEFAULT_BUDGET
    # chi, switch_above, curvature, debug: as of `TunaMH`. Other steps have `switch_above` 0: a field is
    # decided on all rows, or by `acceptance`.
    chi: float = 0.0
    switch_above: float = 0.0
    curvature: Mapping[str, Curvature] = field(default_factory=dict)
    debug: bool = False
    fewest_groups: int = FEWEST_GROUPS  # Effects of so many groups or more are moved as a field
    compress: bool = True

    @property
    def joins_equal_rows(self) -> bool:
        """Whether equal rows are joined: all decisions are exact, and rows are not counted or numbered."""
        counts = isinstance(self.proposal, Langevin) or self.curvature or self.elementwise
        taylor = self.control_variate
        exact_rows = None if taylor is None else taylor.exact_rows
        return self.compress and isinstance(self.acceptance, Exact) and not counts and not exact_rows


def checked_options(
    vars: Variable | str | Sequence[Variable | str] | None,
    acceptance: AcceptanceRule,
    *,
    model: pm.Model | None = None,
    discrete: bool = False,
    **given: Any,
) -> MetropolisOptions:
    """Check the keywords of a step. Those that are left out here do not change what it does."""
    model = model_of(model)
    value_vars = value_variables(model, vars)
    options = MetropolisOptions(model, tuple(value_vars), acceptance, **given)
    temperature, subsample = options.temperature, options.subsample
    if not is_real(temperature) or not 0.0 < temperature < np.inf:
        raise ValueError(f"temperature must be a positive number, got {temperature!r}.")
    if subsample is not None and subsample not in get_args(Subsample):
        raise ValueError(f'subsample must be "gather", "block" or None, got {subsample!r}.')
    steps = None if options.steps_per_draw is None else checked_steps_per_draw(options.steps_per_draw)
    require_switches(tune=options.tune, elementwise=options.elementwise, compress=options.compress)
    if options.elementwise:
        refuse_on_disk(model, "a step that moves single elements")
    refuse_evaluated(model)
    if not discrete:
        refuse_discrete(value_vars)
    refuse_orthonormal(model, value_vars, options.proposal, options.control_variate is not None)
    return replace(
        options,
        control_variate=control_variate_of(options.control_variate),
        steps_per_draw=steps,
        temperature=float(temperature),
        tune=bool(options.tune),
        elementwise=bool(options.elementwise),
        set_up_budget=checked_budget(options.set_up_budget),
    )


def checked_rule(acceptance: AcceptanceRule) -> AcceptanceRule:
    """Check the option `acceptance`."""
    if isinstance(acceptance, type) or not all(
        hasattr(acceptance, a) for a in ("bind", "functions", "target_accept")
    ):
        raise TypeError(
            f"acceptance must be a decision rule, such as Exact() or TTest(epsilon=0.05), got {acceptance!r}."
        )
    return acceptance


def default_batch(options: RuleOptions) -> int | None:
    """Batch size of a sequential test that has none: few remainders decide. None leaves it to the rule."""
    return None if options.get("control_variate") is None else BATCH_OF_REMAINDERS


def control_variate_of(given: Any) -> Taylor | None:
    """Check the option `control_variate`."""
    if given is not None and not isinstance(given, Taylor):
        raise TypeError(f"control_variate must be None or Taylor(), got {given!r}.")
    return given


def proposal_for(given: Any, taylor: Taylor | None, structure: TermStructure) -> Any:
    """The proposal that was given, or one that suits the block.

    Without a control variate, a random walk. With one the mode is known: normal proposals that are fitted
    there, and `Surrogate` where the posterior may be far from normal: where variables of the block are not in
    the likelihood (hierarchical scales), or enter it through features (`model.features`).
    """
    if given is not None:
        if isinstance(given, Surrogate) and (taylor is None or taylor.order == 1):
            raise ValueError(
                "Surrogate moves on the second-order Taylor polynomial of the log likelihood: give "
                "control_variate=Taylor(order=2), or another proposal."
            )
        return given
    if taylor is None:
        return AdaptiveRandomWalk()
    fact = structure.factorisation
    used = set(ancestors([term.rows for term in fact.locals]))
    all_used = all(fact.graph.values[name] in used for name in fact.var_names)
    if taylor.order == 1 or (all_used and structure.features is None):
        return Laplace()
    return Surrogate()


# Variables with orthonormal columns: which proposal moves them, and what else is refused ----------


def matrices_of(model: pm.Model, value_vars: Sequence[Variable]) -> tuple[tuple[int, int], ...]:
    """Rows and columns of each matrix of the `UniformStiefel` variables of a block, in their order."""
    found: list[tuple[int, int]] = []
    for value in value_vars:
        rv = model.values_to_rvs[value]
        if is_uniform_stiefel(rv):
            n, k = rv.type.shape[-2:]
            found += [(int(n), int(k))] * int(prod(rv.shape[:-2].eval()))
    return tuple(found)


def refuse_orthonormal(
    model: pm.Model, value_vars: Sequence[Variable], proposal: object, has_control_variate: bool
) -> None:
    """Raise `UnsuitableError` if the proposal is not for the variables, or a mode would be searched for."""
    names = {str(model.values_to_rvs[value].name): model.values_to_rvs[value] for value in value_vars}
    orthonormal = [name for name, rv in names.items() if is_uniform_stiefel(rv)]
    others = [name for name in names if name not in orthonormal]
    own = ", ".join(orthonormal)
    step = f"AusterityMH([{own}], proposal=StiefelWalk())"
    if isinstance(proposal, StiefelWalk) and others:
        ours = f": {step}" if orthonormal else ""
        raise UnsuitableError(
            f"StiefelWalk moves UniformStiefel variables and no others, but {', '.join(others)} "
            f"{'is' if len(others) == 1 else 'are'} not. Give each kind a step of its own{ours}."
        )
    if orthonormal and (proposal is None or isinstance(proposal, _OTHERS)):
        given = "the proposal of this step" if proposal is None else type(proposal).__name__
        raise UnsuitableError(
            f"{own} has orthonormal columns (UniformStiefel), which {given} would not keep. Use {step}"
            f"{', and another step for ' + ', '.join(others) if others else ''}."
        )
    if orthonormal and has_control_variate:
        raise UnsuitableError(
            f"A Taylor polynomial needs a mode and gradients, which {own} (UniformStiefel) does not have. "
            f"Use {step}, without control_variate."
        )
