"""Effects that rows look up: a cheap look at the graph, before a field is searched for."""

import math

from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.scalar.basic import Mul
from pytensor.sparse.type import SparseTensorType
from pytensor.tensor.math import Dot
from pytensor.tensor.subtensor import AdvancedSubtensor

from pymc_austerity.model.factorisation import Factorisation, block_of
from pymc_austerity.model.graph.checks import is_elemwise
from pymc_austerity.model.graph.rewrite import depends_on
from pymc_austerity.model.structure.operations import core_of


def looked_up(factorisation: Factorisation, fewest: int, *, times: bool = False) -> list[Variable]:
    """Values of `fewest` elements or more that rows of the likelihood look up, or multiply by data.

    These are variables, and what is looked up or multiplied though it is put together of several. With
    `times` those values that are a product of unknown numbers.
    """
    graph, block = factorisation.graph, block_of(factorisation)
    terms = [graph.terms[name] for name in graph.likelihood]
    moving = depends_on(terms, block)
    inputs = [
        var
        for node in toposort(terms)
        if isinstance(core_of(node.op), AdvancedSubtensor | Dot)
        or any(isinstance(var.type, SparseTensorType) for var in node.inputs)
        for var in node.inputs
    ]
    return [
        var
        for var in dict.fromkeys([*block, *inputs])
        if moving.get(var, False)
        and math.prod(var.type.shape) >= fewest
        and (not times or _is_product(var, moving))
    ]


def longest_looked_up(factorisation: Factorisation, fewest: int) -> Variable | None:
    """The longest vector of the block from which rows look elements up, if several rows look up each."""
    above = set(ancestors(looked_up(factorisation, fewest)))
    lengths = set(factorisation.graph.likelihood.values())
    found = [
        var
        for var in block_of(factorisation)
        if var in above and var.type.ndim == 1 and var.type.shape[0] >= fewest
    ]
    several = [var for var in found if var.type.shape[0] not in lengths]
    return max(several, key=lambda var: int(var.type.shape[0]), default=None)


def _is_product(var: Variable, moving: dict[Variable, bool]) -> bool:
    """Is a value made of a product of several that variables move?"""
    return any(
        is_elemwise(node.outputs[0], Mul) and sum(moving.get(one, False) for one in node.inputs) > 1
        for node in toposort([var])
    )
