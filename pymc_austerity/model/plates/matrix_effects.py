"""Correlated effects of groups, a row of a matrix each: ``u[group, 0] + u[group, 1] * x``.

Either u is `pm.MvNormal`, or `pm.Normal` with one scale for each column, or it is ``z @ chol.T`` with z
standard normal.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from pytensor.graph.basic import Constant, Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.math import Dot
from pytensor.tensor.random.basic import MvNormalRV, NormalRV
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor, indices_from_subtensor
from pytensor.tensor.type import TensorType

from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import rebuild
from pymc_austerity.model.plates.effects_family import FAMILIES
from pymc_austerity.model.plates.effects_prior import (
    EffectsPrior,
    evaluate,
    is_positive,
    require_affine,
    typed,
)
from pymc_austerity.model.plates.gathers import Gather, NoPlate, OtherSpelling, ScaledGather
from pymc_austerity.model.plates.inner_effects import InnerEffects
from pymc_austerity.model.plates.slopes import MOST_EFFECTS, GroupEffects
from pymc_austerity.model.self_check import jittered
from pymc_austerity.model.structure.affine import core_of
from pymc_austerity.model.structure.predictors import block_and_others
from pymc_austerity.model.structure.prepared_rows import prepared_rows


class MatrixEffects(NamedTuple):
    """Effects of groups that the model has as a matrix, as vectors."""

    name: str  # Of the value variable of the matrix
    factorisation: Factorisation  # With vectors in the place of the matrix
    gather: Gather  # The likelihood in these
    names: tuple[str, ...]  # Of the vectors
    # Of which elements are looked up, by groups and effects: the matrix, or a product with it
    table: Variable
    by_group: bool  # Whether a row of the matrix is one group


def matrix_effects(model: pm.Model, fact: Factorisation, fewest: int) -> MatrixEffects | None:
    """The matrix of effects of a model; None if rows look nothing up in one.

    Raises
    ------
    NoPlate
        If they do in another way than element by element.
    """
    block, _ = block_and_others(fact)
    rvs = {var.name: rv for rv, var in model.rvs_to_values.items()}
    for var, name in ((var, name) for name, var in block.items()):
        shape = var.type.shape
        if len(shape) != 2 or max(shape) < fewest or min(shape) < 2:
            continue
        for term in fact.locals:
            if term.name == rvs[name].name or var not in set(ancestors([term.rows])):
                continue
            rows = prepared_rows(fact, term)
            table = next((one for one in _tables(rows) if _is_table(one, var, rvs[name], rows)), None)
            if table is not None:
                return _as_vectors(fact, replace(term, rows=rows), var, table)
    return None


def matrix_group_effects(model: pm.Model, fact: Factorisation, found: MatrixEffects) -> GroupEffects:
    """Prior of effects in a matrix, in the form of that of vectors; `fact` is the model's own factorisation.

    Raises
    ------
    NoPlate
        If it is of another form.
    """
    rv = next(rv for rv, var in model.rvs_to_values.items() if var.name == found.name)
    value, q = fact.graph.values[found.name], len(found.names)
    is_centered = found.table is value
    if is_centered:
        mean, spread = typed(model, fact, rv.owner.op.dist_params(rv.owner))
        if isinstance(rv.owner.op, NormalRV):
            factor, locations = _diagonal(found.name, spread, q), _columns(mean, q)
        else:
            factor = _cholesky(fact, _of_all_groups(spread), q)
            locations = [mean[..., k] for k in range(q)]
        for name, location in zip(found.names, locations, strict=True):
            require_affine(fact, name, location)
    else:
        factor = _factor_of_product(model, fact, found, rv)
        locations = [pt.zeros(()) for _ in range(q)]
    entries = [factor[j][k] for j in range(q) for k in range(j + 1)]
    if value in set(ancestors([*entries, *locations])):
        raise NoPlate(f"the prior of {found.name!r} refers to itself")
    family = FAMILIES[NormalRV]
    priors = tuple(
        EffectsPrior(location, factor[k][k], family, family.fixed_shape(), 1.0)
        for k, location in enumerate(locations)
    )
    for name, prior in zip(found.names, priors, strict=True):
        if not is_positive(fact, prior.scale):
            raise NoPlate(f"the scale of the effects {name!r} is not positive whatever the values of others")
    likelihood = ScaledGather(found.factorisation, found.gather.term, None)
    return GroupEffects(likelihood, priors, entries, is_centered)


def rows_of_factor(
    fact: Factorisation, factor: list[Variable], n_effects: int, effects: tuple[str, ...]
) -> tuple[InnerEffects, ...]:
    """Elements left of the diagonal that are coordinates of theta, to be proposed in units of the diagonal.

    As a row of the factor goes to zero, the density of its elements has no bound, and so no mode, as that of
    effects of which the scale goes to zero.
    """
    values = jittered(fact.graph)
    by_name = dict(zip(fact.graph.values, values, strict=True))
    theta = np.concatenate([np.ravel(by_name[name]) for name in fact.var_names if name not in effects])
    found, place = [], 0
    for j in range(n_effects):
        own = [evaluate(fact, entry, values) for entry in factor[place : place + j]]
        places = [np.flatnonzero(np.isclose(theta, value, rtol=1e-12, atol=0.0)) for value in own]
        if j and all(len(one) == 1 for one in places):
            found.append(InnerEffects(np.concatenate(places), pt.zeros(()), factor[place + j]))
        place += j + 1
    return tuple(found)


def _tables(rows: Variable) -> list[Variable]:
    """Matrices of which rows look elements up."""
    kinds = (AdvancedSubtensor, Subtensor)
    nodes = [node for node in toposort([rows]) if isinstance(node.op, kinds)]
    return [node.inputs[0] for node in nodes if node.inputs[0].type.ndim == 2]


def _is_table(table: Variable, value: Variable, rv: Variable, rows: Variable) -> bool:
    """Is it the matrix with a normal prior of its rows, or a product of a matrix of normals and another?"""
    if table is value:
        is_normal = isinstance(rv.owner.op, NormalRV) and _has_column_of_groups(table, rows)
        return is_normal or isinstance(rv.owner.op, MvNormalRV)
    left = _factors(table)
    return left is not None and _untransposed(left[0]) is value and isinstance(rv.owner.op, NormalRV)


def _has_column_of_groups(table: Variable, rows: Variable) -> bool:
    """Do rows look up elements of one column by an index of their own?"""
    return any(
        node.inputs[0] is table and node.op.idx_list == (0, 1) and isinstance(node.inputs[2], Constant)
        for node in toposort([rows])
        if isinstance(node.op, AdvancedSubtensor)
    )


def _factors(table: Variable) -> list[Variable] | None:
    """The two factors of a product of matrices."""
    node = table.owner
    if node is None or not isinstance(core_of(node.op), Dot):
        return None
    return list(node.inputs)


def _untransposed(var: Variable) -> Variable:
    """A matrix, if this is its transpose; else itself."""
    original = _transposed(var)
    return var if original is None else original


def _transposed(var: Variable) -> Variable | None:
    """The matrix of which this is the transpose."""
    node = var.owner
    if node is None:
        return None
    op = core_of(node.op)
    if isinstance(op, DimShuffle) and op.new_order == (1, 0):
        return node.inputs[0]
    return None


def _as_vectors(fact: Factorisation, term: LocalTerm, value: Variable, table: Variable) -> MatrixEffects:
    n_groups, q = table.type.shape
    name, by_group = str(value.name), value.type.shape == table.type.shape
    if q > MOST_EFFECTS or n_groups < q:
        raise NoPlate(
            f"{name!r} has {q} effects for each of {n_groups} groups, and a plate {MOST_EFFECTS} at most"
        )
    names = tuple(f"{name}[:, {k}]" if by_group else f"{name}[{k}]" for k in range(q))
    vectors = [TensorType("float64", (n_groups,))(one) for one in names]
    memo = {}
    for node in toposort([term.rows]):
        if not node.inputs or node.inputs[0] is not table:
            continue
        index = node.inputs[1:]
        if isinstance(node.op, AdvancedSubtensor) and node.op.idx_list == (0, 1):
            if isinstance(index[1], Constant) and index[1].type.ndim == 0:
                memo[node.outputs[0]] = vectors[int(index[1].data)][index[0]]
        elif isinstance(node.op, Subtensor) and all(isinstance(one, Constant) for one in index):
            places = indices_from_subtensor([int(one.data) for one in index], node.op.idx_list)
            if len(places) == 2 and places[0] == slice(None) and isinstance(places[1], int):
                memo[node.outputs[0]] = vectors[places[1]]
    (rows,) = rebuild([term.rows], memo)
    used = set(ancestors([rows]))
    if value in used or not used.issuperset(vectors):
        raise OtherSpelling(
            f"rows of the term {term.name!r} do not contain {name!r} as one effect of their group, and "
            "others times data: write u[index, 0] + u[index, 1] * x, where u is the matrix of effects"
        )
    graph = fact.graph
    values = {one: var for one, var in graph.values.items() if one != name}
    point = {one: at for one, at in graph.point.items() if one != name}
    values.update(zip(names, vectors, strict=True))
    point.update({one: np.zeros(n_groups) for one in names})
    others = tuple(one for one in fact.var_names if one != name)
    new = replace(term, rows=rows)
    locals_ = tuple(new if one.name == term.name else one for one in fact.locals)
    split = replace(
        fact, graph=replace(graph, values=values, point=point), var_names=(*others, *names), locals=locals_
    )
    new = replace(term, rows=prepared_rows(split, new))
    return MatrixEffects(name, split, Gather(names[0], new, n_groups), names, table, by_group)


def _of_all_groups(covariance: Variable) -> Variable:
    """The one matrix (q, q) that all groups share."""
    if any(size != 1 for size in covariance.type.shape[:-2]):
        raise NoPlate("effects of groups have covariances that differ by group")
    node = covariance.owner
    if node is not None and isinstance(node.op, DimShuffle) and node.inputs[0].type.ndim == 2:
        return node.inputs[0]
    return covariance[(0,) * (covariance.type.ndim - 2)]


def _columns(graph: Variable, q: int) -> list[Variable]:
    """Columns of a parameter of a matrix (G, q), numbers where that is the same for all groups."""
    shape = graph.type.shape
    if len(shape) > 1 and shape[0] != 1:
        return [graph[:, min(k, shape[1] - 1)] for k in range(q)]
    vector = graph.flatten()
    return [vector[k if shape and shape[-1] != 1 else 0] for k in range(q)]


def _diagonal(name: str, scale: Variable, q: int) -> list[list[Variable]]:
    """The factor of the covariance of effects that are independent."""
    if scale.type.ndim > 1 and scale.type.shape[0] != 1:
        raise NoPlate(f"the effects {name!r} have scales that differ by group")
    return [[pt.zeros(())] * k + [one] for k, one in enumerate(_columns(scale, q))]


def _cholesky(fact: Factorisation, covariance: Variable, q: int) -> list[list[Variable]]:
    """Rows of the Cholesky factor, up to the diagonal, which is that of the model if it has one.

    Else it is computed in scalars, which have derivatives of any order.
    """
    factors = _factors(covariance)
    if factors is not None and _transposed(factors[1]) is factors[0]:
        root: Any = factors[0]
        several = list(fact.graph.point.values()), jittered(fact.graph)
        if not any(np.any(np.triu(evaluate(fact, root, values), 1)) for values in several):
            return [[root[j, k] for k in range(j + 1)] for j in range(q)]
    factor: list[list[Variable]] = []
    for j in range(q):
        row: list[Variable] = []
        for k in range(j + 1):
            left = covariance[j, k]
            other = row if j == k else factor[k]
            for i in range(k):
                left = left - row[i] * other[i]
            row.append(pt.sqrt(left) if j == k else left / factor[k][k])
        factor.append(row)
    return factor


def _factor_of_product(
    model: pm.Model, fact: Factorisation, found: MatrixEffects, rv: Variable
) -> list[list[Variable]]:
    """C of u_g = C z_g, which is to be lower triangular, for standard normal z."""
    location, scale = typed(model, fact, rv.owner.op.dist_params(rv.owner))
    factors = _factors(found.table)
    assert factors is not None
    matrix, q = factors[1].T, len(found.names)
    for values in (list(fact.graph.point.values()), jittered(fact.graph)):
        if np.any(evaluate(fact, location, values) != 0.0) or np.any(evaluate(fact, scale, values) != 1.0):
            raise NoPlate(
                f"{found.name!r} is multiplied by a matrix, and its prior is not of location 0 and scale 1"
            )
        if np.any(np.triu(evaluate(fact, matrix, values), 1)):
            raise NoPlate(
                f"{found.name!r} is multiplied by a matrix that is not triangular: write z @ chol.T with the "
                "Cholesky factor of pm.LKJCholeskyCov"
            )
    return [[matrix[j, k] for k in range(j + 1)] for j in range(q)]
