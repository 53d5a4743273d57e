"""Numbers that all rows of a plate share beside its predictor: dispersions, shares of zeros, thresholds."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from pytensor.graph.basic import Variable

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.evaluate import evaluate
from pymc_austerity.bounds.expressions.node import Expression, constant, predictor
from pymc_austerity.model.factorisation import Factorisation, LocalTerm
from pymc_austerity.model.plates.gathers import NoPlate
from pymc_austerity.model.structure.affine_expressions import AffineParts, leaves
from pymc_austerity.model.structure.direct_rows import DirectRows, direct_parts
from pymc_austerity.model.structure.scalar_graph import ScalarGraph
from pymc_austerity.target import Vector


class Dispersions(NamedTuple):
    """phi = offsets + matrix theta."""

    offsets: Vector  # (n,)
    matrix: npt.NDArray[np.float64]  # (n, q)

    @property
    def places(self) -> npt.NDArray[np.int64]:
        """Coordinates of theta that they depend on."""
        return np.flatnonzero(self.matrix.any(axis=0))


class Shared(NamedTuple):
    """Predictors without rows, through as few numbers as can be."""

    numbers: list[AffineParts]  # phi, each as an affine function of scalars of a graph, without data
    expressions: list[Expression]  # The predictors by phi, the first of which is predictor 1


def shared_numbers(predictors: list[AffineParts]) -> Shared:
    """Take data out of predictors: a predictor is a number phi, or made of some by data.

    The sign of log odds, for one, may differ between rows of zero and others.
    """
    numbers: list[AffineParts] = []
    expressions = []
    for one in predictors:
        if not any(leaves(part, "data") for part in (one.offset, *one.coefficients.values())):
            numbers.append(one)
            expressions.append(predictor(len(numbers)))
            continue
        terms = [one.offset]
        for k, coefficient in one.coefficients.items():
            alone = AffineParts(constant(0.0), {k: constant(1.0)})
            if alone not in numbers:
                numbers.append(alone)
            terms.append(forms.multiply(coefficient, predictor(1 + numbers.index(alone))))
        expressions.append(forms.add(*terms))
    return Shared(numbers, expressions)


def dispersions(
    fact: Factorisation, term: LocalTerm, graph: ScalarGraph, numbers: list[AffineParts], n_shared: int
) -> Dispersions:
    """Read them off the graph.

    Parameters
    ----------
    fact : Factorisation
        Its block is theta, then the effects.
    term : LocalTerm
    graph : ScalarGraph
        The rows of the term, taken apart.
    numbers : list of AffineParts
        phi, as affine functions of the scalars of the graph.
    n_shared : int
        Length of theta.
    """
    n_dim = sum(int(np.prod(fact.graph.values[name].type.shape)) for name in fact.var_names)
    found = np.zeros((len(numbers), n_dim + 1))
    first = np.zeros(1, np.int64)
    for row, one in zip(found, numbers, strict=True):
        row[-1] = evaluate(one.offset, [], {})
        for k, coefficient in one.coefficients.items():
            parts = direct_parts(fact, selected(graph, k))
            if parts is None:
                raise NoPlate(
                    f"a dispersion of the likelihood {term.name!r} is not written as a sum of coefficients"
                )
            DirectRows(fact, term, parts).add_to(row[None], evaluate(coefficient, [], {}), first)
    if found[:, n_shared:-1].any():
        raise NoPlate(f"a dispersion of the likelihood {term.name!r} depends on the effects")
    return Dispersions(found[:, -1].copy(), np.ascontiguousarray(found[:, :n_shared]))


def selected(graph: ScalarGraph, k: int) -> Variable:
    """Scalar number k of the graph, by rows."""
    scalar = graph.scalars[k]
    if all(place is None for place in scalar.element):
        return scalar.variable
    return scalar.variable[tuple(slice(None) if place is None else place for place in scalar.element)]
