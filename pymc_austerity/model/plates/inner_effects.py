"""Shared variables that are effects themselves: a second factor, with a scale that is sampled."""

from collections.abc import Container, Sequence
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import NormalRV

from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.plates.effects_prior import typed
from pymc_austerity.target import Index, Vector

# Effects of so many outer groups are moved group by group, as those of a plate.
FEWEST_OUTER = 30


def first_inner(n_effects: int) -> int:
    """The place of scales of inner effects among the features, after the factor, log lambda and a shape."""
    return n_effects * (n_effects + 1) // 2 + 2


class InnerEffects(NamedTuple):
    """v ~ N(location, scale^2), among the shared variables."""

    coordinates: np.ndarray  # Of v in theta
    location: Variable
    scale: Variable
    is_centered: bool = True  # Whether the model has v; else it has v / scale, and the location is zero


class Scaled(NamedTuple):
    """Coordinates of theta that the model has divided by a feature, and by which one."""

    # coordinates, features (K,)
    coordinates: Index
    features: Index

    def in_chain(self, theta: Vector, features: Vector) -> Vector:
        """The vector theta as the chain has it, from that of the model; scales are the same in both."""
        result = theta.copy()
        result[self.coordinates] *= features[self.features]
        return result

    def in_model(self, theta: Vector, features: Vector) -> Vector:
        """The vector theta as the model has it: the inverse of `in_chain`."""
        result = theta.copy()
        result[self.coordinates] /= features[self.features]
        return result


def scaled_coordinates(inner: Sequence[InnerEffects], n_effects: int) -> Scaled:
    """Coordinates of effects that the model has not centred, and the features that scale them."""
    places = [one.coordinates if not one.is_centered else one.coordinates[:0] for one in inner]
    which = np.repeat(np.arange(len(inner)), [len(one) for one in places])
    none = np.zeros(0, np.int64)
    return Scaled(np.concatenate([none, *places]), (first_inner(n_effects) + which).astype(np.int64))


def inner_effects(
    model: pm.Model, fact: Factorisation, effects: tuple[str, ...], coefficients: Container[Variable]
) -> tuple[InnerEffects, ...]:
    """Effects among the variables of the block other than the effects of the plate.

    Scales must not depend on other such variables, nor on coefficients: proposals move these together.
    """
    names = [name for name in fact.var_names if name not in effects]
    block = {fact.graph.values[name] for name in names}
    rvs = {var.name: rv for rv, var in model.rvs_to_values.items()}
    found: dict[Variable, InnerEffects] = {}
    first = 0
    for name in names:
        value, rv = fact.graph.values[name], rvs[name]
        size = int(np.prod(value.type.shape))
        op = getattr(rv.owner, "op", None)
        if isinstance(op, NormalRV) and size > 1 and model.rvs_to_transforms.get(rv) is None:
            location, scale = typed(model, fact, op.dist_params(rv.owner))
            if location.type.ndim:
                location = pt.broadcast_to(location, fact.graph.terms[rv.name].type.shape).flatten()
            is_one = all(k == 1 for k in scale.type.shape)
            of_scale = block.intersection(ancestors([scale]))
            if is_one and of_scale and not any(var in coefficients for var in of_scale):
                found[value] = InnerEffects(
                    np.arange(first, first + size), location, scale.flatten()[0] if scale.type.ndim else scale
                )
        first += size
    return tuple(one for one in found.values() if set(found).isdisjoint(ancestors([one.scale])))
