"""Keywords that all subsampled steps take, and what they mean together."""

from __future__ import annotations

from typing import Any, Literal, TypedDict, get_args

import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.traversal import ancestors

from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.mode.fit import find_centre
from pymc_austerity.mode.mode_fit import Found
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals.base import is_fitted
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.proposals.random_walk import AdaptiveRandomWalk
from pymc_austerity.proposals.surrogate import Surrogate

Subsample = Literal["gather", "block"]

# Default batch size with a control variate.
BATCH_OF_REMAINDERS = 50


class ChainOptions(TypedDict, total=False):
    """Keywords that all steps take; see `MetropolisHastings`."""

    proposal: Any
    steps_per_draw: int
    threshold: int
    tune: bool
    model: pm.Model | None
    blocked: bool
    rng: Any
    initial_point: PointType | None
    compile_kwargs: dict[str, Any] | None


class CommonOptions(ChainOptions, total=False):
    """The same for steps with a decision rule."""

    control_variate: Taylor | None
    subsample: Subsample | None


class StepOptions(CommonOptions, total=False):
    """The same for steps that do not name the temperature themselves."""

    temperature: float


class ThinnedOptions(ChainOptions, total=False):
    """The same for `TunaMH`, which has no decision rule."""

    temperature: float


def control_variate_of(given: Any) -> Taylor | None:
    """Check `control_variate`."""
    if given is not None and not isinstance(given, Taylor):
        raise TypeError(f"control_variate must be None or Taylor(), got {given!r}.")
    return given


def subsample_of(given: Any) -> Subsample | None:
    """Check `subsample`."""
    if given is not None and given not in get_args(Subsample):
        raise ValueError(f'subsample must be "gather", "block" or None, got {given!r}.')
    chosen: Subsample | None = given
    return chosen


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


def centre_for(
    model: pm.Model,
    structure: TermStructure,
    point: PointType,
    taylor: Taylor | None,
    proposal: Any,
    bounds_together: bool,
) -> Found | None:
    """Where terms are expanded and proposals are fitted, if anything is."""
    if taylor is None and not is_fitted(proposal):
        return None
    whole_block = isinstance(proposal, Laplace)
    return find_centre(model, structure, point, taylor, whole_block=whole_block, certify=bounds_together)


def share_of_independent_moves(proposal: Any) -> float:
    """Share of moves that do not depend on where the chain is."""
    is_independent = isinstance(proposal, Laplace) and proposal.kind == "independence"
    return 1.0 - proposal.mix if is_independent else 0.0
