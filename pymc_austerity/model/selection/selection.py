"""`Selection`: a model of variable selection, as jumps between its sub-models need it.

The likelihood contains the coefficients beta as gamma * beta alone, with indicators gamma. So a coefficient
with gamma_j = 0 is distributed as its prior, and the *full model*, that of gamma = 1, has the log likelihood
of all sub-models: each is the full one with some coefficients zero.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
import pytensor.scalar as ps
import pytensor.tensor as pt
from pymc.distributions.continuous import FlatRV, HalfFlatRV
from pymc.initial_point import PointType
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.random.basic import BernoulliRV, LaplaceRV, NormalRV, StudentTRV
from pytensor.tensor.shape import SpecifyShape

from pymc_austerity.exceptions import SelfCheckError, UnsuitableError
from pymc_austerity.model.factorisation import Factorisation, block_of
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.random_variables import in_values, with_constants
from pymc_austerity.model.graph.rewrite import one_vector, rebuild
from pymc_austerity.model.self_check import jittered
from pymc_austerity.proposals.jumps import LAPLACE, NORMAL, STUDENT_T, log_slab

_FAMILIES: dict[type, int] = {NormalRV: NORMAL, LaplaceRV: LAPLACE, StudentTRV: STUDENT_T}
_KNOWN = "pm.Normal, pm.Laplace or pm.StudentT"
_TOLERANCE = 1e-8


@dataclass(frozen=True)
class Selection:
    """A model of variable selection."""

    # By (gamma, beta, others). Its `slab` is the prior of the coefficients: locations, scales and degrees of
    # freedom, of shape (3 p,), as a graph of value variables.
    factorisation: Factorisation
    # The full model, by (beta, others), with the normal distribution that stands for the slab in proposals
    full: Factorisation
    family: int  # Of the slab; see `proposals.jumps`
    n_coefficients: int  # p

    def full_point(self, point: PointType) -> PointType:
        """A point with all coefficients in the model."""
        gamma, *_ = self.factorisation.var_names
        return {**point, gamma: np.ones_like(point[gamma])}

    def of_states(self, graph: Variable | None) -> Variable:
        """A function of variables of the full model, by default its block, at coefficients gamma beta."""
        gamma, beta, *_ = (self.factorisation.graph.values[name] for name in self.factorisation.var_names)
        (found,) = rebuild(
            [one_vector(block_of(self.full)) if graph is None else graph], {beta: gamma * beta}
        )
        return found


def find_selection(
    model: pm.Model,
    vars: Sequence[Variable],
    point: PointType,
    *,
    threshold: int,
    temperature: float,
    check: bool,
) -> Selection:
    """Find indicators and coefficients among value variables, and what of the model contains them.

    `point` has values of all variables; the keywords are those of `factorise.build`. `ValueError` is raised
    if the variables are not indicators, coefficients and others of the likelihood; it names those in the way.
    `FactorisationError` is raised if rows of a term cannot be computed one by one.
    """
    gamma = _indicators(model, vars, point)
    p = np.size(point[gamma])
    if p >= threshold:
        raise ValueError(
            f"threshold={threshold} makes the prior of {p} coefficients a term to be subsampled. Give a "
            f"threshold above {p}, and not above the number of rows."
        )
    fact = build(
        model,
        list(vars),
        threshold=threshold,
        initial_point={**point, gamma: np.ones_like(point[gamma])},
        check=check,
        temperature=temperature,
    )
    beta = _coefficients(fact, gamma)
    others = [name for name in fact.var_names if name not in (gamma, beta)]
    family, slab = _slab_of(model, fact, beta, gamma)
    _require_gated(fact, gamma, beta)
    _require_local(fact, others)
    fact = replace(fact, var_names=(gamma, beta, *others), slab=slab)
    return Selection(fact, _full_model(fact, family, slab), family, p)


def _indicators(model: pm.Model, vars: Sequence[Variable], point: PointType) -> str:
    """Name of the vector of indicators."""
    found = [v for v in vars if np.dtype(v.type.dtype).kind in "iub"]
    names = ", ".join(repr(v.name) for v in vars)
    if not found:
        raise ValueError(
            f"ReversibleJump needs the indicators among its variables, a vector of pm.Bernoulli; {names} are "
            "continuous. Write gamma = pm.Bernoulli('gamma', 0.2, shape=p), and gamma * beta in the "
            "likelihood."
        )
    if len(found) > 1:
        raise ValueError(
            "ReversibleJump takes one vector of indicators, got "
            f"{', '.join(repr(v.name) for v in found)}. Give the others to another step, or write the "
            "indicators as one vector."
        )
    rv = model.values_to_rvs[found[0]]
    op = None if rv.owner is None else rv.owner.op
    if not isinstance(op, BernoulliRV):
        kind = type(op).__name__.removesuffix("RV")
        raise ValueError(f"The indicators {rv.name!r} must be a pm.Bernoulli, got {kind}.")
    shape = np.shape(point[found[0].name])
    if len(shape) != 1 or not shape[0]:
        raise ValueError(
            f"The indicators {rv.name!r} must be a vector, one for each coefficient, got shape {shape}. "
            "Write shape=p, also for p = 1."
        )
    return str(found[0].name)


def _coefficients(fact: Factorisation, gamma: str) -> str:
    """Name of the coefficients: of what the indicators are multiplied with."""
    gate, found = fact.graph.values[gamma], []
    names = [name for name in fact.var_names if name != gamma]
    for name in names:
        value = fact.graph.values[name]
        if value.type.ndim == 1 and _uses(fact.graph.terms.values(), value, gate)[0]:
            found.append(name)
    lengths = {name: fact.graph.values[name].type.shape for name in (gamma, *names)}
    shapes = ", ".join(f"{name!r} has shape {tuple(shape)}" for name, shape in lengths.items())
    if not found:
        raise ValueError(
            f"None of the variables of ReversibleJump is multiplied by the indicators {gamma!r}, element by "
            f"element: {shapes}. Write gamma * beta, with one indicator for each coefficient, and give both "
            "to the step."
        )
    if len(found) > 1:
        raise ValueError(
            f"The indicators {gamma!r} multiply {' and '.join(map(repr, found))}; ReversibleJump takes one "
            "vector of coefficients. Write them as one vector."
        )
    if lengths[found[0]] != lengths[gamma]:
        raise ValueError(
            f"There must be one indicator for each coefficient, but {gamma!r} has {lengths[gamma][0]} and "
            f"{found[0]!r} has {lengths[found[0]][0]}. Give both the same shape."
        )
    return found[0]


def _require_gated(fact: Factorisation, gamma: str, beta: str) -> None:
    """Refuse coefficients outside gamma * beta, and indicators outside of it in the likelihood."""
    values, product = fact.graph.values, f"{gamma} * {beta}"
    in_rows = {term.name for term in fact.locals}
    asked = [(term, beta, gamma) for term in fact.graph.terms if term != beta]
    asked += [(term, gamma, beta) for term in fact.graph.terms if term in in_rows]
    for term, name, gate in asked:
        _, outside = _uses([fact.graph.terms[term]], values[name], values[gate])
        if outside:
            raise UnsuitableError(
                f"The term {term!r} contains {name!r} outside of {product} (in {outside[0].op}), so that a "
                f"coefficient that is not in the model would not be distributed as its slab. Write {product} "
                f"wherever {name!r} is used, or take pm.Metropolis and pm.BinaryGibbsMetropolis."
            )


def _require_local(fact: Factorisation, others: Sequence[str]) -> None:
    """Refuse variables that no row contains: nothing says what to propose for them."""
    used = set(ancestors([term.rows for term in fact.locals]))
    missing = [name for name in others if fact.graph.values[name] not in used]
    if fact.locals and missing:
        raise UnsuitableError(
            f"The likelihood does not contain {', '.join(map(repr, missing))}, which ReversibleJump would "
            "propose from its expansion. Give it to another step, such as restricted_slice: ReversibleJump "
            "follows what others move."
        )


def _full_model(fact: Factorisation, family: int, slab: Variable) -> Factorisation:
    """The model of gamma = 1, by the continuous variables, with a normal slab."""
    gamma, beta, *others = fact.var_names
    value = fact.graph.values[gamma]
    ones = {value: pt.constant(np.ones(value.type.shape), dtype=value.type.dtype)}
    locals_ = [replace(t, rows=rebuild([t.rows], dict(ones))[0]) for t in fact.locals]
    kept = [(name, graph) for name, graph in fact.globals if name not in (gamma, beta)]
    globals_ = [(name, rebuild([graph], dict(ones))[0]) for name, graph in kept]
    globals_.append((beta, _normal_slab(family, slab, fact.graph.values[beta])))
    return replace(fact, var_names=(beta, *others), locals=tuple(locals_), globals=tuple(globals_), slab=None)


def _normal_slab(family: int, slab: Variable, beta: Variable) -> Variable:
    """Log density of the normal distribution in place of the slab; see `proposals.jumps.slab_precision`."""
    p = int(beta.type.shape[0])
    location, scale, degrees = (slab[k * p : (k + 1) * p] for k in range(3))
    weight = 0.5 if family == LAPLACE else 1.0
    if family == STUDENT_T:
        weight = (degrees + 1.0) / (degrees + 3.0)
    return -0.5 * weight * ((beta - location) / scale) ** 2


def _slab_of(model: pm.Model, fact: Factorisation, beta: str, gamma: str) -> tuple[int, Variable]:
    """Family and parameters of the prior of the coefficients `beta`, whose indicators are `gamma`.

    `UnsuitableError` is raised if it is improper, of another family, or depends on the coefficients or on
    their indicators.
    """
    value = fact.graph.values[beta]
    rv = model[fact.graph.variables[beta]]
    op: Any = getattr(rv.owner, "op", None)
    kind = type(op).__name__.removesuffix("RV")
    if isinstance(op, FlatRV | HalfFlatRV):
        raise UnsuitableError(
            f"The slab of {rv.name!r} is improper (pm.{kind}): a coefficient that is not in the model would "
            f"have no distribution, and sub-models no probabilities. Give {rv.name!r} a prior of {_KNOWN}."
        )
    if type(op) not in _FAMILIES:
        raise UnsuitableError(
            f"The slab of {rv.name!r} is {kind}, and must be {_KNOWN}, which coefficients that are not in "
            "the model are drawn from."
        )
    if model.rvs_to_transforms.get(rv) is not None:
        raise UnsuitableError(
            f"The coefficients {rv.name!r} have a transform, so that they are not distributed as their prior "
            f"in the coordinates of the chain. Write {rv.name!r} without transform=."
        )
    own = in_values(model, fact.graph, op.dist_params(rv.owner))
    *shapes, location, scale = with_constants(fact.graph, own)
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
    family = _FAMILIES[type(op)]
    _check_slab(fact, beta, rv.name, family, parameters)
    return family, parameters


@np.errstate(all="ignore")
def _check_slab(fact: Factorisation, beta: str, name: str, family: int, slab: Variable) -> None:
    """Compare the slab with the model's own term at a point."""
    values = jittered(fact.graph)
    function = function_of([*fact.graph.values.values(), *fact.graph.data], fact.graph.terms[name].sum())
    expected = float(function(*values, *fact.graph.data_values()))
    parameters = function_of(list(fact.graph.values.values()), slab)(*values)
    x = values[list(fact.graph.values).index(beta)]
    found = sum(log_slab(family, parameters, j, float(x[j])) for j in range(len(x)))
    if not np.allclose(found, expected, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True):
        raise SelfCheckError(
            f"Self-check failed for the term {name!r}: its log density is {expected!r}, that of the slab "
            f"{found!r}. This is a defect of pymc_austerity: please report the model."
        )


def _uses(terms: Iterable[Variable], vector: Variable, gate: Variable) -> tuple[list[Apply], list[Apply]]:
    """The operations that take a vector, or products of it and other numbers.

    Those of the first list are products of `vector` and `gate`, element by element. Those of the second are
    reached by `vector` on another way than through such products.
    """
    nodes = list(toposort(list(terms)))
    gates, *_ = _followed(nodes, gate, {})
    _, gated, others = _followed(nodes, vector, gates)
    return gated, others


# The axes along which variables are products of a vector and other numbers, each counted from the last one.
type Axes = dict[Variable, set[int]]


def _followed(nodes: Iterable[Apply], vector: Variable, gates: Axes) -> tuple[Axes, list[Apply], list[Apply]]:
    """Products of a vector and other numbers, and what takes them: products with a gate, and all else."""
    found, gated, others = defaultdict(set, {vector: {0}}), [], []
    for node in nodes:
        (out, *_), is_product = node.outputs, is_elemwise(node.outputs[0], ps.Mul)
        for given in dict.fromkeys(one for one in node.inputs if one in found):
            for axis in found[given]:
                moved = axis if is_product else _moved(node, axis)
                if moved is None:
                    others.append(node)
                elif is_product and any(axis in gates.get(x, ()) for x in node.inputs if x is not given):
                    gated.append(node)
                else:
                    found[out].add(moved)
    return found, gated, others


def _moved(node: Apply, axis: int) -> int | None:
    """Where the elements of the first input lie in the result, if it has the same elements."""
    if isinstance(node.op, SpecifyShape) or is_elemwise(node.outputs[0], ps.Cast):
        return axis
    if isinstance(node.op, DimShuffle):
        place = node.inputs[0].type.ndim - 1 - axis
        order = node.op.new_order
        return len(order) - 1 - order.index(place) if place in order else None
    return None
