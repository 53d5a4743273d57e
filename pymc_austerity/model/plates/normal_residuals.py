"""Normal residuals with one free scale, for which sums over rows are sufficient."""

from __future__ import annotations

from typing import cast

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import NormalRV

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression, constant, ordered
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.plates.dispersions import selected
from pymc_austerity.model.plates.effects_prior import typed
from pymc_austerity.model.self_check import jittered
from pymc_austerity.model.structure.affine_expressions import leaves
from pymc_austerity.model.structure.scalar_graph import ScalarGraph

# How near the curvature of the rows is to the precision.
_TOLERANCE = 1e-8
_ZERO = constant(0.0)


def normal_precision(model: pm.Model, fact: Factorisation, name: str) -> Variable | None:
    """Logarithm of the one precision of normal residuals, a function of theta; None for other likelihoods."""
    rv = model[name]
    op = getattr(rv.owner, "op", None)
    if not isinstance(op, NormalRV):
        return None
    _, scale = typed(model, fact, op.dist_params(rv.owner))
    if int(np.prod([k or 0 for k in scale.type.shape])) != 1 and scale.type.ndim:
        return None
    return -2.0 * pt.log(scale.flatten()[0] if scale.type.ndim else scale)


def is_about_predictor(
    fact: Factorisation,
    graph: ScalarGraph,
    rows: Expression,
    scales: list[Expression],
    log_precision: Variable,
) -> bool:
    """Is the mean of all rows their predictor, or its negative, and a number?

    Sums over rows are sufficient then. They are not where the mean is a curve, or a multiple of the
    predictor: the precision is not the curvature of the rows.

    Parameters
    ----------
    fact : Factorisation
    graph : ScalarGraph
        The rows, taken apart.
    rows : Expression
        The likelihood; predictor 0 is that of the rows, predictor 1 the other.
    scales : list of Expression
        Predictor 1, if there is one, made of scalars of the graph.
    log_precision : TensorVariable
    """
    powers = _by_powers(rows)
    if len(scales) != 1 or powers is None or leaves(powers[2], "data") or leaves(scales[0], "data"):
        return False
    (scale,) = scales
    places = leaves(scale, "predictor")
    function = function_of(
        [*fact.graph.values.values(), *fact.graph.data],
        [log_precision, *(selected(graph, k) for k in places)],
    )
    for values in (list(fact.graph.point.values()), jittered(fact.graph)):
        found, *scalars = (np.ravel(one)[0] for one in function(*values, *fact.graph.data_values()))
        at = evaluate(scale, dict(zip(places, scalars, strict=True)), {})
        curvature = -2.0 * float(evaluate(powers[2], {1: at}, {}))
        if not np.isclose(curvature, np.exp(found), rtol=_TOLERANCE, atol=0.0):
            return False
    return True


_Powers = tuple[Expression, Expression, Expression]


def _by_powers(root: Expression) -> _Powers | None:
    """Coefficients of 1, t and t^2, t being predictor 0; None if that is not all there is."""
    found: dict[Expression, _Powers | None] = {}
    for one in ordered(root):
        if 0 not in leaves(one, "predictor"):
            found[one] = (one, _ZERO, _ZERO)
        elif one.op == "predictor":
            found[one] = (_ZERO, constant(1.0), _ZERO)
        else:
            own = [found[arg] for arg in one.args]
            known = [each for each in own if each is not None]
            found[one] = _combined(one, known) if len(known) == len(own) else None
    return found[root]


def _combined(one: Expression, parts: list[_Powers]) -> _Powers | None:
    if one.op == "sum":
        first, factors = cast(tuple[float, tuple[float, ...]], one.value)
        scaled = [
            [forms.multiply(constant(factor), each) for each in part]
            for factor, part in zip(factors, parts, strict=True)
        ]
        a, b, c = (forms.add(*each) for each in zip(*scaled, strict=True))
        return forms.add(constant(first), a), b, c
    if one.op == "square":
        return _product(parts[0], parts[0])
    return _product(*parts) if one.op == "product" else None


def _product(a: _Powers, b: _Powers) -> _Powers | None:
    degree = sum(max(k for k in range(3) if k == 0 or part[k] is not _ZERO) for part in (a, b))
    if degree > 2:
        return None
    return (
        forms.multiply(a[0], b[0]),
        forms.add(forms.multiply(a[0], b[1]), forms.multiply(a[1], b[0])),
        forms.add(forms.multiply(a[0], b[2]), forms.multiply(a[1], b[1]), forms.multiply(a[2], b[0])),
    )
