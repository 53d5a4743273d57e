"""The prior of the effects of a plate: of a known family, with one scale, and one location or many."""

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, graph_inputs
from pytensor.tensor.random.basic import LogNormalRV

from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.rewrite import rebuild
from pymc_austerity.model.plates.effects_family import FAMILIES, Family
from pymc_austerity.model.plates.gathers import NoPlate
from pymc_austerity.model.self_check import jittered
from pymc_austerity.model.structure.affine import Kind, kinds
from pymc_austerity.model.structure.predictors import block_and_others

_TOLERANCE = 1e-8
# Points at which the sign of a scale is looked at: draws for each distance from zero.
_DISTANCES, _DRAWS, _SEED = (1.0, 10.0, 100.0), 20, 2022


class EffectsPrior(NamedTuple):
    """u_g = location_g + scale x_g, with x_g of a standard distribution; graphs are of value variables."""

    location: Variable  # A number, or one for each group
    scale: Variable  # A number
    family: Family  # The standard distribution
    shape: Variable  # Its degrees of freedom; 0 if it has none
    # Of the standard deviation of the normal prior that a plate's coordinates are made for, and the scale
    ratio: float


def effects_prior(model: pm.Model, fact: Factorisation, name: str) -> EffectsPrior:
    """Prior of the effects whose value variable is `name`.

    Raises
    ------
    NoPlate
        If it is of another form.
    """
    value = fact.graph.values[name]
    rv = model.values_to_rvs[next(var for var in model.value_vars if var.name == name)]
    op: Any = getattr(rv.owner, "op", None)
    family, transform = FAMILIES.get(type(op)), model.rvs_to_transforms.get(rv)
    if transform is not None and transform.ndim_supp != 0:
        raise NoPlate(f"{rv.name!r} has a transform of all elements together: effects are not independent")
    if family is None:
        kind = type(op).__name__.removesuffix("RV")
        known = ", ".join(one.name for one in FAMILIES.values())
        hint = (
            ": write pm.math.exp(eta + u[index]), with u of pm.Normal, in the place of "
            f"pm.math.exp(eta) * {rv.name}[index]"
        )
        raise NoPlate(
            f"the prior of {rv.name!r} is {kind}, and a plate's is one of {known}"
            f"{hint if isinstance(op, LogNormalRV) else ''}"
        )
    if transform is not None:
        raise NoPlate(f"{rv.name!r} has a transform, and the effects of a plate are sampled as they are")
    *shapes, location, scale = typed(model, fact, op.dist_params(rv.owner))
    shape = _one_number(fact, rv.name, "shapes", shapes[0]) if shapes else family.fixed_shape()
    used = set(ancestors([location, scale, shape]))
    if value in used:
        raise NoPlate(f"the prior of {rv.name!r} refers to itself")
    if location.type.ndim > 1:
        location = pt.broadcast_to(location, fact.graph.terms[rv.name].type.shape).flatten()
    require_affine(fact, rv.name, location)
    scale = _one_number(fact, rv.name, "scales", scale)
    at_start = float(evaluate(fact, shape, list(fact.graph.point.values())))
    prior = EffectsPrior(location, scale, family, shape, family.ratio(at_start))
    _check(fact, rv.name, value, prior)
    return prior


def typed(model: pm.Model, fact: Factorisation, graphs: Any) -> list[Variable]:
    """Graphs of random variables, in the value variables of a factorisation."""
    graphs = model.replace_rvs_by_values(list(graphs))
    own = fact.graph.values
    memo: dict[Variable, Variable] = {
        var: _in_shape(own[var.name], var, fact) for var in model.value_vars if var.name in own
    }
    for shared in graph_inputs(graphs):
        if isinstance(shared, SharedVariable):
            memo[shared] = pt.constant(shared.get_value(borrow=True))
    return rebuild(graphs, memo)


def _in_shape(own: Variable, of_model: Variable, fact: Factorisation) -> Variable:
    """A variable as the model has it, where the factorisation has a vector of its elements."""
    if own.type.ndim == of_model.type.ndim:
        return own
    return own.reshape(fact.graph.terms[fact.graph.variables[own.name]].type.shape)


def require_affine(fact: Factorisation, name: str, location: Variable) -> None:
    """The location is read once, as base + matrix . theta.

    Raises
    ------
    NoPlate
        If it is not so.
    """
    block, others = block_and_others(fact)
    moved = [other for other, var in others.items() if var in set(ancestors([location]))]
    if moved:
        raise NoPlate(
            f"the location of the effects {name!r} depends on {', '.join(map(repr, moved))}, which other "
            "steps move"
        )
    if kinds([location], block.values(), others.values()).get(location) is Kind.NONLINEAR:
        raise NoPlate(
            f"the location of the effects {name!r} is not a linear function of the variables as they are "
            "sampled (a positive one is sampled as its logarithm). Effects of outer groups in it are to be "
            'centred, v = pm.Normal("v", mu, tau), and not tau * z'
        )


def _one_number(fact: Factorisation, name: str, what: str, graph: Variable) -> Variable:
    """The scale of all effects, or their shape, if it is the same."""
    if any(k != 1 for k in graph.type.shape):
        for values in (list(fact.graph.point.values()), jittered(fact.graph)):
            if np.ptp(evaluate(fact, graph, values)) != 0.0:
                raise NoPlate(f"the effects {name!r} have {what} that differ")
    return graph.flatten()[0] if graph.type.ndim else graph


def evaluate(fact: Factorisation, graph: Variable, values: list[np.ndarray]) -> np.ndarray:
    """A graph of value variables, at values of all of them."""
    inputs = list(fact.graph.values.values())
    function = function_of(inputs, graph)
    return np.asarray(function(*values))


def _check(fact: Factorisation, name: str, value: Variable, prior: EffectsPrior) -> None:
    """Compare the prior with the model's own term at a point."""
    values = jittered(fact.graph)
    order = list(fact.graph.values.values())
    term = fact.graph.terms[name]
    function = function_of(
        [*order, *fact.graph.data],
        [term, prior.location, prior.scale, prior.shape],
    )
    found, location, scale, shape = function(*values, *fact.graph.data_values())
    own = values[order.index(value)]
    with np.errstate(all="ignore"):  # a scale may start at zero, which is told of where a chain starts
        density = prior.family.distribution(float(shape)).logpdf((own - location) / scale)
        expected = density - np.log(abs(scale))
    if not np.allclose(np.sum(found), np.sum(expected), rtol=_TOLERANCE, atol=_TOLERANCE):
        raise NoPlate(
            f"the prior of {name!r} is not the {prior.family.name} distribution that it seems to be"
        )


def is_positive(fact: Factorisation, graph: Variable) -> bool:
    """Is a number positive near the initial point, and nowhere negative, as far as one can see?

    A scale that may change its sign has two modes, and a density only for one of them.
    """
    inputs = list(fact.graph.values.values())
    function = function_of(inputs, graph)
    near = (list(fact.graph.point.values()), jittered(fact.graph))
    rng = np.random.default_rng(_SEED)
    far = [
        [
            distance * rng.standard_normal(value.shape) if value.dtype.kind == "f" else value
            for value in near[0]
        ]
        for distance in _DISTANCES
        for _ in range(_DRAWS)
    ]
    with np.errstate(all="ignore"):
        return all(np.all(function(*values) > 0.0) for values in near) and not any(
            np.any(function(*values) < 0.0) for values in far
        )


def is_standard(fact: Factorisation, prior: EffectsPrior) -> bool:
    """Is it of location 0 and scale 1, whatever the other variables are?"""
    return all(
        np.all(evaluate(fact, prior.location, values) == 0.0)
        and np.all(evaluate(fact, prior.scale, values) == 1.0)
        for values in (list(fact.graph.point.values()), jittered(fact.graph))
    )
