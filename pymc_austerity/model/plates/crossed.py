"""`CrossedModel`: a likelihood with effects of two large factors in each row, neither nested in the other.

It is two plates, which are moved in turn. In the turn of one the effects of the other, less their location,
and the variables that their scale is a function of are kept: they are no part of theta then.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.model.factorisation import CHUNK, FEWEST_GROUPS, Factorisation
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on, rebuild
from pymc_austerity.model.plates import limits
from pymc_austerity.model.plates.effects_prior import effects_prior, evaluate
from pymc_austerity.model.plates.gathers import (
    Gather,
    NoPlate,
    ScaledGather,
    largest_gather,
    lookups,
    scaled,
)
from pymc_austerity.model.plates.plate_model import PlateModel, plate_model
from pymc_austerity.model.plates.slopes import clients, is_slope
from pymc_austerity.model.self_check import jittered
from pymc_austerity.model.structure.predictors import block_and_others

_TOLERANCE, _SEED = 1e-7, 2031


@dataclass(frozen=True, eq=False)
class CrossedModel:
    """Two plates in the rows of one likelihood."""

    factorisation: Factorisation  # Its block is all that is moved: theta, then the effects of both
    # Of either turn: of the larger factor first. Their rows are without the effects of the other.
    plates: tuple[PlateModel, PlateModel]

    @property
    def name(self) -> str:
        """Name of the likelihood."""
        return self.plates[0].name

    @property
    def is_normal(self) -> bool:
        """Whether the precision of normal residuals is a function of theta."""
        return self.plates[0].is_normal

    @property
    def effects(self) -> tuple[str, ...]:
        """Names of the effects' value variables."""
        return tuple(one.effects[0] for one in self.plates)

    @property
    def n_groups(self) -> int:
        """Number of groups of both factors together."""
        return sum(one.n_groups for one in self.plates)


# What effects of groups may be.
Plates = PlateModel | CrossedModel


class _Side(NamedTuple):
    """The effects of one of the two factors, and the likelihood in them."""

    name: str  # Of the value variable
    gather: Gather
    found: ScaledGather  # The likelihood in effects that are not standardised
    location: Variable  # A number
    of_scale: frozenset[str]  # Value variables that the scale is a function of


def crossed_model(model: pm.Model, fact: Factorisation, fewest: int = FEWEST_GROUPS) -> CrossedModel | None:
    """The two plates of a model; None if there are no two large factors that are crossed.

    Raises
    ------
    NoPlate
        If there are, in a form that is not known.
    """
    first = largest_gather(fact, fewest)
    if first is None:
        return None
    names = _large_factors(fact, first)
    if len(names) < 2:
        return None
    if fact.rows_on_disk:
        raise NoPlate(f"rows of the term {first.term.name!r} are on disk, and {_crossed(names)}")
    if len(names) > 2:
        raise NoPlate(f"there are three large factors, {', '.join(map(repr, names))}, and two may be crossed")
    gathers = [Gather(n, first.term, int(fact.graph.values[n].type.shape[0])) for n in names]
    many = [one.name for one in gathers if one.n_groups > first.term.size]
    if many:
        raise NoPlate(f"{many[0]!r} has more levels than there are rows, and {_crossed(names)}")
    _require_same_use(fact, gathers)
    sides = [_side(model, fact, one, names) for one in gathers]
    common = sides[0].of_scale & sides[1].of_scale
    if common:
        raise NoPlate(
            f"the scales of the crossed effects {names[0]!r} and {names[1]!r} are functions of the same "
            f"variable, {fact.graph.variables[min(common)]!r}: give each a scale of its own"
        )
    first_plate, second_plate = (
        _plate(model, fact, own, other, fewest) for own, other in (sides, reversed(sides))
    )
    if _is_nested(first_plate, second_plate):
        return None
    others = tuple(name for name in fact.var_names if name not in names)
    return CrossedModel(replace(fact, var_names=(*others, *names)), (first_plate, second_plate))


def _crossed(names: list[str]) -> str:
    return f"{' and '.join(map(repr, names[:2]))} are crossed factors"


def _large_factors(fact: Factorisation, first: Gather) -> list[str]:
    """Long vectors that the rows look up, the longest first; shorter ones are shared coefficients."""
    fewest = limits.MOST_SHARED // 2
    own = {fact.graph.values[name]: name for name in fact.var_names}
    found: dict[str, set[Variable]] = {}
    for node in lookups(first.term.rows):
        name = own.get(node.inputs[0])
        if name is not None and int(node.inputs[0].type.shape[0]) >= fewest:
            found.setdefault(name, set()).add(node.inputs[1])
    for name, index in found.items():
        if fact.graph.values[name].type.ndim > 1:
            raise NoPlate(
                f"rows look up whole rows of {name!r}, a matrix, beside a second large factor that is not "
                "nested: crossed factors have one effect for each level"
            )
        same = [other for other, own_index in found.items() if other < name and own_index & index]
        if same and len({frozenset(one) for one in found.values()}) > 1:
            raise NoPlate(
                f"{same[0]!r} and {name!r} are effects of the same groups, as random slopes are, beside a "
                "second large factor that is not nested: crossed factors have one effect for each level"
            )
    return sorted(found, key=lambda name: -int(fact.graph.values[name].type.shape[0]))


def _side(model: pm.Model, fact: Factorisation, gather: Gather, names: list[str]) -> _Side:
    prior = effects_prior(model, fact, gather.name)
    for other in names:
        if fact.graph.values[other] in set(ancestors([prior.location, prior.scale])):
            raise NoPlate(
                f"the prior of {gather.name!r} depends on {other!r}, and rows look up both: of crossed "
                "factors neither may be in the location of the other"
            )
    if prior.family.name != "Normal":
        raise NoPlate(
            f"the prior of {gather.name!r} is {prior.family.name}, and {_crossed(names)}: these are to be "
            "Normal"
        )
    if any(k != 1 for k in prior.location.type.shape) and not _is_constant(fact, prior.location):
        raise NoPlate(
            f"the location of {gather.name!r} differs by group, and {_crossed(names)}: add what differs to "
            "the predictor, as in (Z @ gamma)[index]"
        )
    found = scaled(fact, gather)
    scale = prior.scale if found.scale is None else found.scale
    location = prior.location if found.scale is None else pt.zeros(())
    if location.type.ndim and any(k != 1 for k in location.type.shape):
        location = location.flatten()[0]
    values = {fact.graph.values[name]: name for name in fact.var_names}
    used = frozenset(values[v] for v in set(values).intersection(ancestors([scale])))
    return _Side(gather.name, gather, found, location, used)


def _is_constant(fact: Factorisation, location: Variable) -> bool:
    """Is it one number for all groups?"""
    return all(
        np.ptp(evaluate(fact, location, values)) == 0.0
        for values in (list(fact.graph.point.values()), jittered(fact.graph))
    )


def _require_same_use(fact: Factorisation, gathers: list[Gather]) -> None:
    """Rows are to be functions of the sum of the two effects, as they are scaled.

    What one is larger by, row by row, is as if the other were.
    """
    rows, values = gathers[0].term.rows, fact.graph.values
    looked_up = [[node for node in lookups(rows) if node.inputs[0] is values[one.name]] for one in gathers]
    natural, parts = [], []
    for one, nodes in zip(gathers, looked_up, strict=True):
        found = scaled(fact, one)
        parts.append(nodes[0].outputs[0])
        natural.append(pt.ones(()) if found.scale is None else found.scale)
    shifts = [pt.vector(f"shift_{k}") for k in range(2)]
    memo = {part: part + shift / scale for part, shift, scale in zip(parts, shifts, natural, strict=True)}
    (moved,) = rebuild([rows], memo)
    term = gathers[0].term
    function = fact.compile(moved, [term.index, *shifts], mode=INTERPRETED)
    rng, point = np.random.default_rng(_SEED), jittered(fact.graph)
    for start in range(0, term.size, CHUNK):
        index = np.arange(start, min(start + CHUNK, term.size))
        both = rng.standard_normal((2, len(index)))
        found = function(*point, index, *both, *fact.leaf_values)
        other = function(*point, index, both.sum(axis=0), np.zeros(len(index)), *fact.leaf_values)
        if _alike(found, other):
            continue
        both[1] *= -1.0
        other = function(*point, index, both.sum(axis=0), np.zeros(len(index)), *fact.leaf_values)
        raise _not_a_sum(fact, gathers, parts, of_difference=_alike(found, other))


def _alike(found: np.ndarray, other: np.ndarray) -> bool:
    return np.allclose(found, other, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)


def _not_a_sum(
    fact: Factorisation, gathers: list[Gather], looked_up: list[Variable], *, of_difference: bool
) -> NoPlate:
    """Why rows are not functions of the sum of two effects, each looked up once."""
    term, names = gathers[0].term, [fact.graph.variables[one.name] for one in gathers]
    rows = f"rows of the term {term.name!r}"
    if of_difference:
        return NoPlate(
            f"{rows} contain the difference of {names[0]!r} and {names[1]!r}, and crossed factors are moved "
            "group by group where they are added: write + in the place of -, which turns round the sign of "
            "one factor and of its mean"
        )
    block, _ = block_and_others(fact)
    moving = depends_on([term.rows], block.values())
    slopes = [n for n, one in zip(names, looked_up, strict=True) if is_slope(one, clients(term.rows), moving)]
    if slopes:
        return NoPlate(
            f"{slopes[0]!r} is multiplied by data in {rows}, and random slopes of one factor are not moved "
            "group by group beside another, crossed factor"
        )
    return NoPlate(
        f"{rows} are not functions of the sum of {names[0]!r} and {names[1]!r}, as crossed factors are to be"
    )


def _plate(model: pm.Model, fact: Factorisation, own: _Side, other: _Side, fewest: int) -> PlateModel:
    """The plate of one, without the effects of the other."""
    kept = {other.name, *other.of_scale}
    names = tuple(name for name in fact.var_names if name not in kept)
    term = other.found.term
    value = other.found.factorisation.graph.values[other.name]
    nodes = [node for node in lookups(term.rows) if node.inputs[0] is value]
    location = other.location if other.location.type.ndim else other.location.dimshuffle("x")
    (rows,) = rebuild([term.rows], {node.outputs[0]: location for node in nodes})
    if value in set(ancestors([rows])):
        raise NoPlate(f"{other.name!r} enters the term {term.name!r} in more than one way")
    rvs = {str(v.name): str(model.values_to_rvs[v].name) for v in model.value_vars}
    gone = rvs[other.name]
    own_term = [one for one in fact.locals if one.name not in (gone, term.name)]
    rest = replace(
        fact,
        var_names=names,
        locals=(replace(term, rows=rows), *own_term),
        globals=tuple((name, graph) for name, graph in fact.globals if name != gone),
    )
    for name, graph in rest.globals:
        if fact.graph.values[other.name] in set(ancestors([graph])):
            raise NoPlate(f"the effects {other.name!r} enter the term {name!r}, too")
    found = plate_model(model, rest, fewest, apart=False)
    if found is None or found.effects != (own.name,):
        raise NoPlate(f"{own.name!r} and {other.name!r} are crossed factors, of which one is no plate")
    if len(found.dispersions.offsets):
        raise NoPlate(
            f"the likelihood {found.name!r} has a free dispersion or the like, and {own.name!r} and "
            f"{other.name!r} are crossed factors: give it a fixed value"
        )
    return found


def _is_nested(first: PlateModel, second: PlateModel) -> bool:
    """Do all rows of a level of the one have the same level of the other?"""
    chunks = [np.arange(a, min(a + CHUNK, first.rows.n_rows)) for a in range(0, first.rows.n_rows, CHUNK)]
    groups, levels = (np.concatenate([one.rows.groups(c) for c in chunks]) for one in (first, second))
    pairs = len(np.unique(groups * second.n_groups + levels))
    return pairs in (len(np.unique(groups)), len(np.unique(levels)))
