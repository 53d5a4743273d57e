"""Replace local terms by their Taylor remainders: the same log density, factorised another way.

log p(q) = global(q) + sum_i l_i(q) = [global(q) + Q(q)] + sum_i r_i(q)

with T_i the Taylor polynomial of l_i at a center, r_i = l_i - T_i, and Q the sum of the T_i, which is known
once the gradients and Hessians at the center are summed. Near the center the r_i are tiny, and a few of them
tell their mean. Constants are left out of T_i: only differences matter.

What a polynomial needs of a row, its derivatives at the center, is computed once and stored. If the rows are
on disk nothing is stored: it is computed from the row wherever that is read.

Where terms have linear predictors in features phi(q) of the block (`features`), T_i is the polynomial of l_i
as a function of phi, with center, gradient and Hessian in phi; Q(phi(q)) is one more global term.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations_with_replacement

import numpy as np
from pytensor.gradient import pushforward
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import toposort
from pytensor.tensor.type import TensorType

from pymc_austerity.bounds.jets.remainders import RemainderRows
from pymc_austerity.model.factorisation import POLYNOMIAL, Factorisation, LocalTerm, some_rows
from pymc_austerity.model.graph.leaves import Leaf
from pymc_austerity.model.graph.rewrite import (
    INTERPRETED_STABLE,
    depends_on,
    one_vector,
    parts_of,
    rebuild,
    stable,
)
from pymc_austerity.model.structure.features import Features
from pymc_austerity.model.structure.predictors import TermForm, is_one_per_row, one_per_row
from pymc_austerity.model.structure.row_functions import PredictorRows
from pymc_austerity.model.structure.row_programs import feature_rows, global_rows, remainder_rows
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Expansion

# What there is once for all rows is stored up to this size.
_FEW = 1000


def expand(structure: TermStructure, expansion: Expansion, slopes: Sequence[np.ndarray]) -> Factorisation:
    """The factorisation whose local terms are Taylor remainders.

    It has the same block and the same sum (but for a constant). `structure` is that of the factorisation to
    expand. `expansion` has the center, and sums of the gradients and Hessians of the local terms there; in
    features of the block, if there are any. `slopes` (k, n) are for each term its derivatives by its
    predictors at the center, if it has few and they are stored; see `LikelihoodAt`.
    """
    result, fact = _Expander(structure, expansion, slopes).result(structure.forms), structure.factorisation
    if (found := structure.features) is not None:
        result = _in_block(fact, result, found)
        result = replace(result, feature_rows=feature_rows(fact, found.sources))
    return replace(result, global_rows=global_rows(result, structure.of_globals))


def _in_block(fact: Factorisation, inner: Factorisation, found: Features) -> Factorisation:
    """Terms that were expanded as functions of phi, with phi(q) put in its place."""
    phi = dict(zip(found.placeholders, found.sources, strict=True))
    ((_, polynomial),) = inner.globals  # functions of phi have no global terms of their own
    *rows, polynomial = rebuild([*(term.rows for term in inner.locals), polynomial], phi)
    return replace(
        fact,
        locals=tuple(replace(term, rows=graph) for term, graph in zip(inner.locals, rows, strict=True)),
        globals=(*fact.globals, (POLYNOMIAL, polynomial)),
        leaves=inner.leaves,
        leaf_values=inner.leaf_values,
        features=found.vector,
        polynomial=inner.polynomial,
    )


class _Expander:
    """Collects the leaves of the polynomials."""

    def __init__(self, structure: TermStructure, expansion: Expansion, slopes: Sequence[np.ndarray]) -> None:
        fact = structure.inner
        self._reads_disk = bool(fact.rows_on_disk)
        self._structure, self._fact, self._expansion, self._slopes = structure, fact, expansion, slopes
        self._leaves: dict[Variable, np.ndarray] = {}
        self._values = [fact.graph.values[n] for n in fact.var_names]
        self._center = self._leaf("center", expansion.center)
        self._gradient = self._leaf("gradient", expansion.gradient)
        self._at_center = parts_of(self._center, self._values)
        self._from_center = one_vector(self._values) - self._center

    def result(self, forms: Sequence[TermForm]) -> Factorisation:
        """The factorisation with remainders for the local terms, which have these forms."""
        fact = self._fact
        locals_ = tuple(
            replace(term, rows=term.rows - self._polynomial(k, term, form), program=self._program(k, term))
            for k, (term, form) in enumerate(zip(fact.locals, forms, strict=True))
        )
        return replace(
            fact,
            locals=locals_,
            globals=(*fact.globals, (POLYNOMIAL, self._summed())),
            leaves=(*fact.leaves, *(Leaf(var, var) for var in self._leaves)),
            leaf_values=[*fact.leaf_values, *self._leaves.values()],
            polynomial=self._expansion,
        )

    def _leaf(self, name: str, value: np.ndarray) -> Variable:
        leaf = TensorType("float64", value.shape)(name)
        # Not ascontiguousarray, which makes a vector of a single number.
        self._leaves[leaf] = np.asarray(value, dtype=np.float64, order="C")
        return leaf

    def _summed(self) -> Variable:
        """Q: gradient . d + d' hessian d / 2, with d = q - center."""
        d = self._from_center
        total = (self._gradient * d).sum()
        if self._expansion.order == 2:
            hessian = self._leaf("hessian", self._expansion.hessian)
            # Not a Dot, which takes numba long to compile.
            total = total + 0.5 * (d * (hessian * d).sum(axis=1)).sum()
        return total

    def _polynomial(self, k: int, term: LocalTerm, form: TermForm) -> Variable:
        """T_i for the rows of one term, without its constant."""
        if form.predictor is form.rows:  # linear in q: its own polynomial
            return term.rows
        if self._reads_disk or not self._slopes[k].shape[1]:
            return self._along_the_way(k, term)
        # Slopes are by the predictors that the sums over rows are differentiated by.
        if form.predictor is not None and not self._structure.is_function_of_block(k):
            return self._of_predictors(k, term, [one_per_row(form.predictor, term.index)])
        rows = self._structure.row_function(k).rows
        assert isinstance(rows, PredictorRows)
        return self._of_predictors(
            k, term, rows.as_graphs(lambda *one: self._leaf(f"{one[0]}_of_term{k}", one[1]))
        )

    def _program(self, k: int, term: LocalTerm) -> RemainderRows | None:
        """How compiled code computes the remainder of a row, if its derivatives are stored."""
        is_stored = not self._reads_disk and self._slopes[k].shape[1]
        if not is_stored or not self._structure.is_function_of_block(k):
            return None
        function, center = self._structure.row_function(k), self._expansion.center
        return remainder_rows(self._fact, term, function, self._wanted(k, function.n_predictors), center)

    def _wanted(self, k: int, p: int) -> np.ndarray:
        """Derivatives of the rows of a term by its p predictors, up to the order of the expansion."""
        return self._slopes[k] if self._expansion.order == 2 else self._slopes[k][:p]

    def _of_predictors(self, k: int, term: LocalTerm, predictors: list[Variable]) -> Variable:
        """The sum of f_j s_j + f_jk s_j s_k / 2, with s_j the changes of the predictors from the center."""
        changes = [own - rebuild([own], dict(self._at_center))[0] for own in predictors]
        p = len(changes)
        leaves = [self._leaf(f"slope{j}_of_term{k}", row) for j, row in enumerate(self._wanted(k, p))]
        slopes = [leaf[term.index] for leaf in leaves]
        result = sum(slope * change for slope, change in zip(slopes[:p], changes, strict=True))
        if self._expansion.order == 2:
            for slope, (i, j) in zip(slopes[p:], combinations_with_replacement(range(p), 2), strict=True):
                result = result + (
                    0.5 * slope * changes[i] ** 2 if i == j else slope * changes[i] * changes[j]
                )
        return result

    def _along_the_way(self, k: int, term: LocalTerm) -> Variable:
        """Derivatives of a row along d, by forward differentiation."""
        (rows,) = rebuild([stable(term.rows)], dict(self._at_center))
        # The direction is held apart from d, whose subtraction would be differentiated too.
        direction = self._from_center.type("direction")
        first = pushforward([rows], [self._center], [direction], disconnected_outputs="ignore")[0]
        result = first
        if self._expansion.order == 2:
            second = pushforward([first], [self._center], [direction], disconnected_outputs="ignore")[0]
            result = first + 0.5 * second
        result = stable(result)
        if not self._reads_disk:
            result = self._with_stored_rows(k, term, result, direction)
        return rebuild([result], {direction: self._from_center})[0]

    def _with_stored_rows(self, k: int, term: LocalTerm, result: Variable, direction: Variable) -> Variable:
        """Store what depends on nothing but the center and the row: some of it is slow to compute."""
        moving = depends_on([result], [direction], by_shape=True)
        of_center = depends_on([result], [self._center])
        inputs = [
            var
            for node in toposort([result])
            if any(moving.get(out, False) for out in node.outputs)
            for var in node.inputs
        ]
        fixed = [var for var in inputs if of_center.get(var, False) and not moving.get(var, False)]
        wanted = [var for var in dict.fromkeys(fixed) if var is not self._center and _is_narrow(var)]
        replaced = {}
        for j, (var, value) in enumerate(zip(wanted, self._evaluated(term, wanted), strict=True)):
            leaf = self._leaf(f"at_center{j}_of_term{k}", value)
            shape = [-1 if n is None else 1 for n in var.type.shape]
            replaced[var] = leaf[term.index].reshape(shape) if None in var.type.shape else leaf
        return rebuild([result], replaced)[0]

    def _evaluated(self, term: LocalTerm, wanted: list[Variable]) -> list[np.ndarray]:
        """Values at the center; all rows, where there is one for each."""
        if not wanted:
            return []
        fact = self._fact
        function = fact.compile(wanted, [self._center, term.index], mode=INTERPRETED_STABLE)
        values = fact.point_values(fact.graph.point)
        chunks: list[list[np.ndarray]] = []
        with np.errstate(all="ignore"):
            for some in some_rows(term.size):
                chunks.append(function(*values, self._expansion.center, some, *fact.leaf_values))
        return [
            np.concatenate([np.ravel(part) for part in parts]) if None in var.type.shape else parts[0]
            for var, parts in zip(wanted, zip(*chunks, strict=True), strict=True)
        ]


def _is_narrow(var: Variable) -> bool:
    """Is it one number for each row, or a few for all?"""
    shape = var.type.shape
    if var.type.dtype != "float64":
        return False
    if None in shape:
        return is_one_per_row(var)
    return int(np.prod(shape)) <= _FEW
