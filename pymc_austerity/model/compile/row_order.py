"""Store the rows of the data in random order, so that a block of neighbours is a random sample."""

from __future__ import annotations

import numpy as np
import pytensor.tensor as pt
from pytensor.graph.basic import Apply, Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.shape import Shape, Shape_i
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.rewrite import rebuild

# The order has to be the same in every process that works on one chain.
_SEED = 2014


def in_random_order(
    factorisation: Factorisation,
) -> tuple[list[LocalTerm], dict[Variable, np.ndarray], list[np.ndarray]]:
    """Renumber the rows of every local term at random.

    Data that a term reads at its own row number are stored in the new order. Whatever else depends on
    the row number (a neighbour in a series, a latent value) looks up the old one.

    Returns
    -------
    terms : list of LocalTerm
        The same rows, as functions of the new row number.
    stored : dict of TensorVariable to ndarray
        New leaves, and their values.
    orders : list of ndarray of int
        For each term, the old row number of each new one.
    """
    rng = np.random.default_rng(_SEED)
    values = {
        leaf.placeholder: value
        for leaf, value in zip(factorisation.leaves, factorisation.leaf_values, strict=True)
    }
    terms: list[LocalTerm] = []
    stored: dict[Variable, np.ndarray] = {}
    orders = []
    for k, term in enumerate(factorisation.locals):
        order = rng.permutation(term.size)
        orders.append(order)
        index = term.index.clone()
        old = pt.vector(f"order{k}", dtype="int64", shape=(term.size,))
        stored[old] = order
        moved: dict[Variable, Variable] = {}
        replace: dict[Variable, Variable] = {term.index: old[index]}
        for node in toposort([term.rows]):
            if _reads_own_row(node, term, values):
                leaf = node.inputs[0]
                if leaf not in moved:
                    moved[leaf] = leaf.type(name=f"{leaf.name}_of_term{k}")
                    stored[moved[leaf]] = np.take(values[leaf], order, axis=0)
                replace[node.outputs[0]] = moved[leaf][index]
            elif isinstance(node.op, Shape | Shape_i) and node.inputs[0] is term.index:
                replace[node.outputs[0]] = node.op(index)
        (rows,) = rebuild([term.rows], replace)
        terms.append(LocalTerm(term.name, term.size, index, rows))
    return terms, stored, orders


def _reads_own_row(node: Apply, term: LocalTerm, leaves: dict[Variable, np.ndarray]) -> bool:
    """Is this leaf[index], with one row of the leaf for each row of the term?"""
    return (
        isinstance(node.op, AdvancedSubtensor)
        and node.inputs[0] in leaves
        and len(node.inputs) == 2
        and node.inputs[1] is term.index
        and node.op.idx_list[0] == 0
        and node.inputs[0].type.shape[0] == term.size
    )
