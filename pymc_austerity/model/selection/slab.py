"""The slab: the prior of coefficients, of a known family, with its parameters as a graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import LaplaceRV, NormalRV, StudentTRV

from pymc_austerity.exceptions import SelfCheckError, UnsuitableError
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.plates.effects_prior import evaluate, typed
from pymc_austerity.model.self_check import jittered
from pymc_austerity.proposals.jumps import LAPLACE, NORMAL, STUDENT_T, log_slab

FAMILIES: dict[type, int] = {NormalRV: NORMAL, LaplaceRV: LAPLACE, StudentTRV: STUDENT_T}
_KNOWN = "pm.Normal, pm.Laplace or pm.StudentT"
_TOLERANCE = 1e-8


class Slab(NamedTuple):
    """The prior of p coefficients.

    Attributes
    ----------
    family : int
        See `proposals.jumps`.
    parameters : TensorVariable
        Locations, scales and degrees of freedom, of shape (3 p,), as a graph of value variables.
    """

    family: int
    parameters: Variable


def slab_of(model: pm.Model, fact: Factorisation, beta: str, gamma: str) -> Slab:
    """Prior of the coefficients `beta`, whose indicators are `gamma`; both are value variables.

    Raises
    ------
    UnsuitableError
        If it is improper, of another family, or depends on the coefficients or on their indicators.
    """
    value = fact.graph.values[beta]
    rv = model.values_to_rvs[next(var for var in model.value_vars if var.name == beta)]
    op: Any = getattr(rv.owner, "op", None)
    kind = type(op).__name__.removesuffix("RV")
    if isinstance(op, FlatRV | HalfFlatRV):
        raise UnsuitableError(
            f"The slab of {rv.name!r} is improper (pm.{kind}): a coefficient that is not in the model would "
            f"have no distribution, and sub-models no probabilities. Give {rv.name!r} a prior of {_KNOWN}."
        )
    if type(op) not in FAMILIES:
        raise UnsuitableError(
            f"The slab of {rv.name!r} is {kind}, and must be {_KNOWN}, which coefficients that are not in "
            "the model are drawn from."
        )
    if model.rvs_to_transforms.get(rv) is not None:
        raise UnsuitableError(
            f"The coefficients {rv.name!r} have a transform, so that they are not distributed as their prior "
            f"in the coordinates of the chain. Write {rv.name!r} without transform=."
        )
    *shapes, location, scale = typed(model, fact, op.dist_params(rv.owner))
    degrees = shapes[0] if shapes else pt.constant(0.0)
    p = int(value.type.shape[0])
    parts = [pt.broadcast_to(part.astype("float64"), (p,)) for part in (location, scale, degrees)]
    parameters = pt.specify_shape(pt.concatenate(parts), (3 * p,))
    for name in (beta, gamma):
        if fact.graph.values[name] in set(ancestors([parameters])):
            raise UnsuitableError(
                f"The slab of {rv.name!r} depends on {name!r}: coefficients that are not in the model would "
                "not be independent of the others. Write a prior whose location and scale do not."
            )
    slab = Slab(FAMILIES[type(op)], parameters)
    _check(fact, beta, rv.name, slab)
    return slab


@np.errstate(all="ignore")
def _check(fact: Factorisation, beta: str, name: str, slab: Slab) -> None:
    """Compare the slab with the model's own term at a point."""
    values = jittered(fact.graph)
    function = pytensor.function(
        [*fact.graph.values.values(), *fact.graph.data],
        fact.graph.terms[name].sum(),
        mode=INTERPRETED,
        on_unused_input="ignore",
    )
    expected = float(function(*values, *fact.graph.data_values()))
    parameters = evaluate(fact, slab.parameters, values)
    x = values[list(fact.graph.values).index(beta)]
    found = sum(log_slab(slab.family, parameters, j, float(x[j])) for j in range(len(x)))
    if not np.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
        raise SelfCheckError(
            f"Self-check failed for the term {name!r}: its log density is {expected!r}, that of the slab "
            f"{found!r}. This is a defect of pymc_austerity: please report the model."
        )
