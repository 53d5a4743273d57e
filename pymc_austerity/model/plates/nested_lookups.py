"""Lookups by two indices, ``v[parent][group]``, as one, ``v[parent[group]]``: rows of nested groups."""

from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.graph.rewrite import depends_on, rebuild
from pymc_austerity.model.structure.predictors import block_and_others


def looked_up_once(fact: Factorisation, rows: Variable) -> Variable:
    """The same rows, in which indices are composed before anything is looked up by them."""
    block, _ = block_and_others(fact)
    while True:
        moving = depends_on([rows], block.values())
        twice = [node for node in toposort([rows]) if _looks_up(node) and _looks_up(node.inputs[0].owner)]
        memo: dict[Variable, Variable] = {}
        for node in twice:
            inner, index = node.inputs[0].owner, node.inputs[1]
            if not any(moving.get(var, False) for var in (index, inner.inputs[1])):
                memo[node.outputs[0]] = inner.inputs[0][inner.inputs[1][index]]
                break
        if not memo:
            return rows
        (rows,) = rebuild([rows], memo)


def _looks_up(node: Apply | None) -> bool:
    """Does an operation look elements of a vector up, by a vector of indices?"""
    return (
        node is not None
        and isinstance(node.op, AdvancedSubtensor)
        and node.op.idx_list == (0,)
        and node.inputs[0].type.ndim == node.inputs[1].type.ndim == 1
        and node.inputs[1].type.dtype != "bool"  # a mask says which are kept, and is no index
    )
