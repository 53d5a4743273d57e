"""Random slopes: several vectors of effects of the same groups, ``a[group] + b[group] * x``."""

from typing import NamedTuple

import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort

from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.plates.effects_prior import (
    EffectsPrior,
    effects_prior,
    is_positive,
    is_standard,
)
from pymc_austerity.model.plates.gathers import Gather, NoPlate, ScaledGather, lookups, multiplies, scaled
from pymc_austerity.model.structure.predictors import block_and_others

# Effects of one group, at most: an intercept and slopes.
MOST_EFFECTS = 4


class GroupEffects(NamedTuple):
    """All effects of the groups, none of them standardised."""

    found: ScaledGather  # The likelihood in these effects
    priors: tuple[EffectsPrior, ...]
    # The Cholesky factor of the covariance of the effects of a group, row by row up to the diagonal
    factor: list[Variable]
    is_centered: bool  # Whether the model has the effects themselves, else all of them standardised


def names_of_effects(fact: Factorisation, gather: Gather) -> tuple[str, ...]:
    """The intercepts of the groups, then their slopes: vectors that rows look up with the same index.

    Raises
    ------
    NoPlate
        If there are slopes and no intercepts, or too many of either.
    """
    block, _ = block_and_others(fact)
    rows = gather.term.rows
    shape = fact.graph.values[gather.name].type.shape
    long = {var: name for name, var in block.items() if var.type.shape == shape}
    indices: dict[str, set[Variable]] = {name: set() for name in long.values()}
    looked_up: dict[str, Variable] = {}
    for node in lookups(rows):
        if node.inputs[0] in long:
            indices[long[node.inputs[0]]].add(node.inputs[1])
            looked_up[long[node.inputs[0]]] = node.outputs[0]
    own = indices[gather.name]
    names = [name for name in indices if indices[name] == own and len(own) == 1]
    used_by = clients(rows)
    moving = depends_on([rows], block.values())
    slopes = [name for name in names if is_slope(looked_up[name], used_by, moving)]
    intercepts = [name for name in names if name not in slopes]
    if not slopes:
        return (gather.name,)
    if not intercepts:
        raise NoPlate(
            f"the effects {slopes[0]!r} enter the term {gather.term.name!r} with a coefficient for each row "
            "(random slopes), and there are no intercepts of the same groups: add a[index] to the predictor, "
            "with effects a of the same shape"
        )
    if 1 + len(slopes) > MOST_EFFECTS:
        raise NoPlate(
            f"there are {len(slopes)} random slopes of the same groups ({', '.join(map(repr, slopes))}), and "
            f"a plate has {MOST_EFFECTS - 1} at most beside the intercepts"
        )
    first = gather.name if gather.name in intercepts else intercepts[0]
    return (first, *slopes)


def group_effects(
    model: pm.Model, fact: Factorisation, gather: Gather, names: tuple[str, ...]
) -> GroupEffects:
    """Priors of the effects, and the likelihood in effects that are not standardised.

    Raises
    ------
    NoPlate
        If one of the priors is of another form, or they depend on each other.
    """
    values = {name: fact.graph.values[name] for name in names}
    priors, scales = [], []
    found = ScaledGather(fact, gather.term, None)
    for name in names:
        one = gather._replace(name=name, term=found.term)
        prior = effects_prior(model, found.factorisation, name)
        found = scaled(found.factorisation, one)
        if found.scale is not None:
            if not is_standard(fact, prior):
                raise NoPlate(
                    f"{name!r} is multiplied by a scale, and its prior is not of location 0 and scale 1"
                )
            prior = prior._replace(location=pt.zeros(()), scale=found.scale)
        _require_own(fact, name, prior, values)
        priors.append(prior)
        scales.append(found.scale)
    if len({scale is None for scale in scales}) > 1:
        centered = names[scales.index(None)]
        raise NoPlate(
            f"{centered!r} are effects themselves, and others of the same groups are standardised: write all "
            "in the same way"
        )
    if len(names) > 1:
        for name, prior in zip(names, priors, strict=True):
            if prior.family.name != "Normal":
                raise NoPlate(
                    f"the prior of {name!r} is {prior.family.name}, and where there are random slopes all "
                    "effects of a plate are Normal"
                )
    return GroupEffects(found, tuple(priors), _diagonal(priors), scales[0] is None)


def _require_own(fact: Factorisation, name: str, prior: EffectsPrior, values: dict[str, Variable]) -> None:
    used = set(ancestors([prior.location, prior.scale, prior.shape]))
    others = [other for other, value in values.items() if value in used]
    if others:
        raise NoPlate(f"the prior of {name!r} depends on the effects {others[0]!r} of the same groups")
    if not is_positive(fact, prior.scale):
        raise NoPlate(
            f"the scale of the effects {name!r} is not positive whatever the values of other variables"
        )


def clients(rows: Variable) -> dict[Variable, list[Apply]]:
    """The operations that use each variable of a graph."""
    found: dict[Variable, list[Apply]] = {}
    for node in toposort([rows]):
        for var in node.inputs:
            found.setdefault(var, []).append(node)
    return found


def is_slope(one: Variable, used_by: dict[Variable, list[Apply]], moving: dict[Variable, bool]) -> bool:
    """Is what was looked up multiplied by data of the row, and perhaps by scales?"""
    while len(used_by.get(one, ())) == 1:
        (node,) = used_by[one]
        if not multiplies(node, one):
            return False
        others = [var for var in node.inputs if var is not one]
        if any(None in var.type.shape and not moving.get(var, False) for var in others):
            return True
        if any(None in var.type.shape for var in others):
            return False
        one = node.outputs[0]
    return False


def _diagonal(priors: list[EffectsPrior]) -> list[Variable]:
    """The Cholesky factor of effects that are independent."""
    return [
        priors[j].ratio * priors[j].scale if j == k else pt.zeros(())
        for j in range(len(priors))
        for k in range(j + 1)
    ]
