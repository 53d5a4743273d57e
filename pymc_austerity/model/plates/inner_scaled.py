"""Effects of other factors that a model has not centred, ``scale * v[idx]``, as effects with that scale."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors

from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.plates.effects_prior import effects_prior, is_positive, is_standard
from pymc_austerity.model.plates.gathers import Gather, NoPlate, ScaledGather, is_looked_up, scaled
from pymc_austerity.model.plates.inner_effects import InnerEffects


def with_inner_centered(
    model: pm.Model, fact: Factorisation, gather: Gather, n_effects: int
) -> tuple[Factorisation, Gather, tuple[InnerEffects, ...]]:
    """The same likelihood and prior in v = scale z, for each short vector z of standard normals.

    Parameters
    ----------
    model : pymc.Model
    fact : Factorisation
        Its block is theta, then the effects of the plate.
    gather : Gather
        The effects of the plate.
    n_effects : int
        Vectors of these.
    """
    found: list[InnerEffects] = []
    first = 0
    for name in fact.var_names[:-n_effects]:
        size = int(np.prod(fact.graph.values[name].type.shape))
        own = _scaled(model, fact, gather._replace(name=name, n_groups=size))
        if own is not None and own.scale is not None:
            fact, gather = _with_prior(model, own, name), gather._replace(term=own.term)
            coordinates = np.arange(first, first + size)
            found.append(InnerEffects(coordinates, pt.zeros(()), own.scale, is_centered=False))
        first += size
    return fact, gather, tuple(found)


def _scaled(model: pm.Model, fact: Factorisation, one: Gather) -> ScaledGather | None:
    """The likelihood in v; None if z is no vector of standard normals that only a scale multiplies."""
    value = fact.graph.values[one.name]
    if value.type.ndim != 1 or one.n_groups < 2 or not is_looked_up(one.term.rows, value):
        return None
    try:
        prior, found = effects_prior(model, fact, one.name), scaled(fact, one)
    except NoPlate:  # it is a coefficient like others
        return None
    if found.scale is None or prior.family.name != "Normal" or not is_standard(fact, prior):
        return None
    own = _name(model, one.name)
    elsewhere = [graph for name, graph in fact.globals if name != own]
    if value in set(ancestors([found.scale, *elsewhere])) or not is_positive(fact, found.scale):
        return None
    return found


def _with_prior(model: pm.Model, own: ScaledGather, name: str) -> Factorisation:
    """The factorisation with the prior of v in the place of that of z."""
    fact, value = own.factorisation, own.factorisation.graph.values[name]
    log_prior: Variable = pm.logp(pm.Normal.dist(0.0, own.scale), value).sum()
    terms = tuple((term, log_prior if term == _name(model, name) else graph) for term, graph in fact.globals)
    return replace(fact, globals=terms)


def _name(model: pm.Model, name: str) -> str:
    """Name of the random variable of a value variable."""
    return next(str(model.values_to_rvs[var].name) for var in model.value_vars if var.name == name)


def require_own_scales(
    fact: Factorisation, inner: tuple[InnerEffects, ...], coefficients: set[Variable]
) -> None:
    """Scales must not be coefficients, nor depend on effects: proposals move these together.

    Raises
    ------
    NoPlate
        If they do.
    """
    names = [fact.coordinate(int(one.coordinates[0]))[0] for one in inner]
    values = {fact.graph.values[name] for name in fact.var_names}
    effects = {value for value in values if value.name in names}
    for name, one in zip(names, inner, strict=True):
        of_scale = values.intersection(ancestors([one.scale]))
        if of_scale & (coefficients | effects):
            raise NoPlate(f"the scale of the effects {name!r} enters the likelihood in another way, too")
