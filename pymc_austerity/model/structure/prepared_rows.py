"""Graphs of rows made ready for being taken apart into scalar expressions."""

from collections.abc import Callable, Sequence

import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.scalar.basic import Add, Exp, IsInf, Log, Sub, Switch
from pytensor.tensor.elemwise import DimShuffle, Elemwise
from pytensor.tensor.math import Dot, Max, Sum
from pytensor.tensor.special import Softmax
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.model.factorisation import Factorisation, LocalTerm, some_rows
from pymc_austerity.model.graph.checks import behind, is_elemwise
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on, merged, rebuild


def prepared_rows(fact: Factorisation, term: LocalTerm) -> Variable:
    """The rows of a term, with equal row numbers written once, selections first, exponentials not shifted."""
    (rows,) = merged([term.rows])
    (rows,) = rebuild([rows], _equal_indices(fact, term, rows))
    for rule in (_indexed_first, _without_shift, _without_sum_of_shares):
        rows = rewritten(rows, rule)
    (rows,) = merged([rows])
    return rows


def rewritten(rows: Variable, rule: Callable[[Apply, list[Variable]], Variable | None]) -> Variable:
    """A graph rewritten from its inputs on.

    A rule gets a node and what its inputs have become. It gives what stands for the result, or None if the
    operation stays.
    """
    memo: dict[Variable, Variable] = {}
    for node in toposort([rows]):
        inputs = [memo.get(var, var) for var in node.inputs]
        found = rule(node, inputs)
        if found is not None:
            memo[node.outputs[0]] = found
        elif inputs != node.inputs:
            new = node.clone_with_new_inputs(inputs, strict=False).outputs
            memo.update(zip(node.outputs, new, strict=True))
    return memo.get(rows, rows)


def _equal_indices(fact: Factorisation, term: LocalTerm, rows: Variable) -> dict[Variable, Variable]:
    """Row numbers that are computed from data, and are equal to others in all rows, as these.

    A density that is a selection from a table computes its rows from row numbers that it looked up; a check
    beside it, from those that it was given. Both mean the same predictors.
    """
    moving = depends_on([rows], fact.graph.values.values())
    by_row = depends_on([rows], [term.index])
    found: dict[Variable, None] = {}
    for node in toposort([rows]):
        if isinstance(node.op, AdvancedSubtensor):
            found.update(
                (var, None)
                for var in node.inputs[1:]
                if var.type.shape == (None,) and var.type.dtype == "int64" and var.owner is not None
                and by_row.get(var, False) and not moving.get(var, False)
            )  # fmt: skip
    if not found:
        return {}
    names = _numbers_of_equals(fact, term, [term.index, *found])
    first: dict[int, Variable] = {}
    return {
        var: first[name]
        for var, name in zip([term.index, *found], names, strict=True)
        if first.setdefault(name, var) is not var
    }


def _numbers_of_equals(fact: Factorisation, term: LocalTerm, variables: Sequence[Variable]) -> list[int]:
    """Number of the first variable that is equal to each one in all rows."""
    function = fact.compile(list(variables), [term.index], mode=INTERPRETED)
    point = fact.point_values(fact.graph.point)
    result = [0] * len(variables)
    for positions in some_rows(term.size):
        values = function(*point, positions, *fact.leaf_values)
        # Equal so far, and equal here.
        keys = [(so_far, value.tobytes()) for so_far, value in zip(result, values, strict=True)]
        result = [keys.index(key) for key in keys]
    return result


def indexed_first(rows: Variable) -> Variable:
    """f(z)[group] as f(z[group]), whose values are one for each row, and not one for each group."""
    return rewritten(rows, _indexed_first)


def _indexed_first(node: Apply, inputs: list[Variable]) -> Variable | None:
    is_lookup = isinstance(node.op, AdvancedSubtensor) and node.op.idx_list == (0,)
    return _selection(inputs[0], inputs[1], node) if is_lookup else None


def _selection(x: Variable, index: Variable, node: Apply) -> Variable:
    """``x[index]``, taken of what `x` is computed from element by element."""
    inner = x.owner
    if index.type.ndim == 1 and x.type.shape[0] != 1 and inner is not None and isinstance(inner.op, Elemwise):
        parts = [var if var.type.shape[0] == 1 else _selection(var, index, node) for var in inner.inputs]
        return inner.op(*parts)
    factors = _product_with_vector(x) if index.type.ndim == 1 else None
    if factors is not None:
        matrix, column = factors
        return (_selection(matrix, index, node) * column.T).sum(axis=1)
    return node.clone_with_new_inputs([x, index], strict=False).outputs[0]


def _product_with_vector(x: Variable) -> tuple[Variable, Variable] | None:
    """The matrix and the column, if `x` is their product, as a vector."""
    squeezed = x.owner
    if squeezed is None or not isinstance(squeezed.op, DimShuffle) or squeezed.op.new_order != (0,):
        return None
    product = squeezed.inputs[0].owner
    if product is None or not isinstance(getattr(product.op, "core_op", product.op), Dot):
        return None
    matrix, column = product.inputs
    is_product = matrix.type.ndim == column.type.ndim == 2 and column.type.shape[1] == 1
    return (matrix, column) if is_product else None


def _without_shift(node: Apply, inputs: list[Variable]) -> Variable | None:
    """log(sum(exp(x - max))) + max as log(sum(exp(x))): expressions need no guard against overflow."""
    if not is_elemwise(node.outputs[0], Add) or len(inputs) != 2:
        return None
    for logarithm, shift in (inputs, inputs[::-1]):
        views: list[DimShuffle] = []
        inner = _through_views(_input_of(logarithm, Log), views)
        if inner is None or inner.owner is None or not isinstance(inner.owner.op, Sum):
            continue
        difference = _input_of(inner.owner.inputs[0], Exp)
        if difference is None or not is_elemwise(difference, Sub) or not _is_largest(shift):
            continue
        x, subtracted = difference.owner.inputs
        if behind(subtracted, DimShuffle) is behind(shift, DimShuffle):
            result = inner.owner.op(pt.exp(x))
            for view in reversed(views):
                result = view(result)
            return pt.log(result)
    return None


def _without_sum_of_shares(node: Apply, inputs: list[Variable]) -> Variable | None:
    """The sum of a softmax over its own axis is one: densities check it."""
    if not isinstance(node.op, Sum) or node.op.axis is None:
        return None
    (x,) = inputs
    if x.owner is None or not isinstance(x.owner.op, Softmax):
        return None
    if sorted(node.op.axis) != sorted(k % x.type.ndim for k in x.owner.op.axis):
        return None
    return pt.ones([x.shape[k] for k in range(x.type.ndim) if k not in node.op.axis])


def _input_of(var: Variable, kind: type) -> Variable | None:
    return var.owner.inputs[0] if is_elemwise(var, kind) else None


def _through_views(var: Variable | None, views: list[DimShuffle]) -> Variable | None:
    while var is not None and var.owner is not None and isinstance(var.owner.op, DimShuffle):
        views.append(var.owner.op)
        var = var.owner.inputs[0]
    return var


def _is_largest(shift: Variable) -> bool:
    """The largest of some numbers, or that unless it is infinite."""
    var = behind(shift, DimShuffle)
    if is_elemwise(var, Switch) and is_elemwise(var.owner.inputs[0], IsInf):
        var = behind(var.owner.inputs[2], DimShuffle)
    return var.owner is not None and isinstance(var.owner.op, Max)
