"""Features of a block: short functions phi(q) in which local terms have linear predictors.

Where the coefficients of a regression are themselves functions of the sampled variables, as simplex weights
are, or mu + tau * z of a hierarchy that is written non-centred, no linear predictor in q exists. But there is
one in phi:

    l_i(q) = f_i(x_i . phi(q) + o_i),    phi(q) of length p, short, and the same for all rows.

All that is known of terms with a linear predictor then holds with phi in place of q. The features are
the values of the graph where short computations on the block enter computations on rows.

*Move short factors of a product down to the short values that they multiply.* ``scale * (X @ weights)`` is
not linear in (scale, weights), but ``X @ (scale * weights)`` is in the one short vector scale * weights. The
same for ``tau * z[group]``, ``scale * (a + x * b)`` and the like.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytensor.scalar as ps
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import Elemwise
from pytensor.tensor.math import Dot, Sum
from pytensor.tensor.type import TensorType

from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.graph.checks import behind, is_elemwise
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on, merged, one_vector, rebuild
from pymc_austerity.model.lift.sparse import RowsTimes
from pymc_austerity.model.structure.operations import SELECTING, VIEWS, core_of
from pymc_austerity.model.structure.predictors import TermForm, block_and_others, find_predictor

# Linear in the first input; a factor of all of it is one of the result.
_THROUGH = (*VIEWS, *SELECTING, Sum)


def distributed(rows: list[Variable], block: Iterable[Variable], short: Iterable[Variable]) -> list[Variable]:
    """Graphs of rows with short factors of products moved down, as far as that is possible.

    Parameters
    ----------
    rows : list of TensorVariable
    block : iterable of TensorVariable
        Value variables of the step.
    short : iterable of TensorVariable
        Values of the graphs that depend on the block, and on nothing else that changes from row to row.
    """
    return _Distributor(rows, block, short).result(rows)


class _Distributor:
    """Rebuilds graphs, and knows of every value whether it is short, wide (has rows), or data."""

    def __init__(self, rows: list[Variable], block: Iterable[Variable], short: Iterable[Variable]) -> None:
        self._short = set(short)
        found = depends_on(rows, block)
        self._wide = {var for var, moves in found.items() if moves and var not in self._short}

    def result(self, rows: list[Variable]) -> list[Variable]:
        """Rows rebuilt from the inputs on, with factors moved down."""
        memo: dict[Variable, Variable] = {}
        for node in toposort(rows):
            if not any(out in self._wide for out in node.outputs):
                continue
            inputs = [memo.get(var, var) for var in node.inputs]
            product = self._product(inputs) if is_elemwise(node.outputs[0], ps.Mul) else None
            if product is not None:
                memo[node.outputs[0]] = product
            elif inputs != node.inputs:
                new = node.clone_with_new_inputs(inputs, strict=False).outputs
                self._wide.update(new)
                memo.update(zip(node.outputs, new, strict=True))
        return [memo.get(row, row) for row in rows]

    def _product(self, factors: list[Variable]) -> Variable | None:
        """The product with all short factors in one place; None if it is so already."""
        short = [var for var in factors if var in self._short]
        wide = [var for var in factors if var in self._wide]
        data = [var for var in factors if var not in self._short and var not in self._wide]
        if not short or len(short) + len(wide) < 2:
            return None
        if not wide:
            return self._marked(pt.mul(self._marked(pt.mul(*short), self._short), *data), self._wide)
        moved = self._moved(
            self._marked(pt.mul(*short), self._short) if len(short) > 1 else short[0], wide[0]
        )
        others = [*wide[1:], *data]
        return self._marked(pt.mul(moved, *others), self._wide) if others else moved

    def _moved(self, factor: Variable, var: Variable) -> Variable:
        """The product, with the factor as far down as it goes."""
        is_scalar = math.prod(factor.type.shape) == 1
        if is_scalar:
            factor = self._marked(factor.flatten()[0] if factor.type.ndim else factor, self._short)
        if var in self._short:
            return self._marked(factor * var, self._short)
        if var not in self._wide or var.owner is None:
            return self._marked(factor * var, self._wide)
        node, inputs = var.owner, list(var.owner.inputs)
        moving = [k for k, one in enumerate(inputs) if one in self._short or one in self._wide]
        if moving and is_elemwise(var, ps.Add, ps.Sub, ps.Neg, ps.Identity):
            places = list(range(len(inputs)))
        elif moving and is_elemwise(var, ps.Mul):
            places = [next((k for k in moving if inputs[k] in self._wide), moving[0])]
        elif is_elemwise(var, ps.TrueDiv) and moving == [0]:
            places = [0]
        elif is_scalar and (
            (isinstance(core_of(node.op), _THROUGH) and moving == [0])
            or (isinstance(core_of(node.op), Dot) and len(moving) == 1)
            or (isinstance(node.op, RowsTimes) and moving == [3])
        ):
            places = moving
        else:  # as views of what moves, which broadcasting has put in between: nothing in them moves
            return self._marked(factor * var, self._wide)
        for k in places:
            inputs[k] = self._moved(factor, inputs[k])
        return self._marked(node.clone_with_new_inputs(inputs, strict=False).outputs[0], self._wide)

    def _marked(self, var: Variable, kind: set[Variable]) -> Variable:
        kind.add(var)
        return var


class Features(NamedTuple):
    """Features of a block, and the local terms as functions of them."""

    sources: tuple[Variable, ...]  # The parts of phi as graphs of value variables
    # The local terms, without the global ones; its block are inputs that stand for `sources`
    factorisation: Factorisation
    forms: tuple[TermForm, ...]  # The local terms as functions of the features

    @property
    def vector(self) -> Variable:
        """phi(q) of shape (p,), as a graph of value variables."""
        return one_vector(self.sources)

    def at(self, fact: Factorisation, points: Sequence[list[np.ndarray]]) -> list[list[np.ndarray]]:
        """Values of all variables of the inner factorisation, from those of `fact`, whose block this is."""
        function = fact.compile(list(self.sources), [], mode=INTERPRETED)
        result = []
        for point in points:
            own = dict(zip(fact.graph.values, point, strict=True))
            with np.errstate(all="ignore"):
                found = function(*point, *fact.leaf_values)
            own.update(zip(self.factorisation.var_names, found, strict=True))
            result.append([np.asarray(own[name]) for name in self.factorisation.graph.values])
        return result

    def in_words(self, text: str, fact: Factorisation) -> str:
        """A text that names features, with what they are functions of in their place."""
        block, _ = block_and_others(fact)
        for name, source in zip(self.factorisation.var_names, self.sources, strict=True):
            behind = set(ancestors([source]))
            names = " and ".join(repr(own) for own, var in block.items() if var in behind)
            text = text.replace(repr(name), names if source in block.values() else f"a function of {names}")
        return text

    @property
    def placeholders(self) -> list[Variable]:
        """The inputs that stand for `sources`."""
        fact = self.factorisation
        return [fact.graph.values[name] for name in fact.var_names]


def feature_candidates(fact: Factorisation, most: int) -> list[Features]:
    """Vectors that may be the features of a block, the simplest first.

    Parameters
    ----------
    fact : Factorisation
    most : int
        Number of features above which none are used: a Hessian in them is kept and decomposed.
    """
    block, others = block_and_others(fact)
    if any(var.type.dtype != "float64" for var in block.values()):
        return []
    rows = merged([term.rows for term in fact.locals])
    fixed = [*others.values(), *(term.index for term in fact.locals)]
    short = _short(rows, list(block.values()), fixed, most)
    gathered = merged(distributed(rows, block.values(), short))
    result, seen = [], [list(block.values())]
    for graphs in (rows, gathered):
        frontier = _frontier(graphs, list(block.values()), _short(graphs, list(block.values()), fixed, most))
        # log(sigma) and sigma are one feature if both are written as functions of a value variable.
        of_one = [_variable_behind(var, set(block.values())) for var in frontier]
        for sources in (list(dict.fromkeys(of_one)), frontier):
            if sources not in seen:
                seen.append(sources)
                found = _with(fact, graphs, sources, most)
                result += [] if found is None else [found]
    return result


def _short(rows: list[Variable], block: list[Variable], fixed: list[Variable], most: int) -> list[Variable]:
    """Values that depend on the block, not on `fixed`, and hold `most` numbers or fewer."""
    of_block, of_fixed = depends_on(rows, block), depends_on(rows, fixed, by_shape=True)
    return [
        var
        for var, moves in of_block.items()
        if moves and not of_fixed.get(var, False) and None not in var.type.shape
        and math.prod(var.type.shape) <= most
    ]  # fmt: skip


def _frontier(rows: list[Variable], block: list[Variable], short: list[Variable]) -> list[Variable]:
    """Short values that enter computations on rows, each without changes of its shape."""
    inside, moving = set(short), depends_on(rows, block)
    found: dict[Variable, None] = {}
    for node in toposort(rows):
        if any(moving.get(out, False) and out not in inside for out in node.outputs):
            for var in node.inputs:
                if var in inside:
                    found[behind(var, *VIEWS)] = None
    return list(found)


def _variable_behind(var: Variable, block: set[Variable]) -> Variable:
    """The one value variable of which `var` is a function, element by element; `var` if there is none."""
    found = [one for one in ancestors([var]) if one in block]
    if len(found) != 1:
        return var
    moving, size = depends_on([var], found), math.prod(found[0].type.shape)
    for node in toposort([var]):
        if any(moving.get(out, False) for out in node.outputs):
            own = {math.prod(out.type.shape) for out in node.outputs}
            if own != {size} or not (size == 1 or isinstance(node.op, (Elemwise, *VIEWS))):
                return var
    return found[0]


def _with(fact: Factorisation, rows: list[Variable], sources: list[Variable], most: int) -> Features | None:
    """The local terms as functions of these features; None if they depend on more of the block."""
    block, others = block_and_others(fact)
    sizes = [math.prod(var.type.shape) for var in sources]
    if sum(sizes) > most or any(var.type.dtype != "float64" for var in sources):
        return None
    inputs = {
        f"feature{k}": TensorType("float64", var.type.shape)(f"feature{k}") for k, var in enumerate(sources)
    }
    replaced = rebuild(rows, dict(zip(sources, inputs.values(), strict=True)))
    used = set(ancestors(replaced))
    if any(var in used for var in block.values()):
        return None
    locals_ = tuple(
        LocalTerm(term.name, term.size, term.index, graph)
        for term, graph in zip(fact.locals, replaced, strict=True)
    )
    graph = replace(
        fact.graph,
        values={**others, **inputs},
        point={
            **{name: fact.graph.point[name] for name in others},
            **{name: np.zeros(var.type.shape) for name, var in inputs.items()},
        },
    )
    inner = replace(fact, graph=graph, var_names=tuple(inputs), locals=locals_, globals=())
    forms = tuple(find_predictor(inner, term) for term in inner.locals)
    return Features(tuple(sources), inner, forms)
