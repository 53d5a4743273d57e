"""Compiled derivatives of one local term, row by row or summed."""

import math
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_austerity.bounds.row_function import RowFunction, evenly_spaced
from pymc_austerity.model.factorisation import CHUNK, block_of
from pymc_austerity.model.graph.elements import OF_ELEMENT, elements
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE, Compiled, parts_of, rebuild, stable
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.model.structure.derivatives import (
    Derivatives,
    not_smooth,
    slopes,
    symmetric,
    with_derivatives,
)
from pymc_austerity.model.structure.predictor_values import Design
from pymc_austerity.model.structure.predictors import TermForm
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Index, Vector

# Operations for a number of a design; for a product of two of a row, of which those with a zero are left out;
# and for a derivative of a row by its predictors.
_OF_NUMBER, _OF_PRODUCT, _OF_SLOPE = 3.0, 0.12, 50.0
# Rows that tell how many numbers of a design are zero.
_SOME_ROWS = 100


def operations_of_rows(rows: np.ndarray) -> float:
    """Operations for one row in a pass that sums gradients and Hessians, as some rows (m, p, D + 1) tell."""
    p, n_dim = rows.shape[1], rows.shape[2] - 1
    filled = np.count_nonzero(rows[..., :-1]) / len(rows)
    return _OF_NUMBER * p * n_dim + _OF_PRODUCT * filled * n_dim / 2.0 + _OF_SLOPE * (1 + p) * (2 + p) / 2.0


class ByPredictor(Compiled):
    """A term with one linear predictor: its design, and f_i with two derivatives.

    Parameters
    ----------
    form : TermForm
    point : list of ndarray
        Values of all variables but those of the block, which are not used.

    Attributes
    ----------
    design : Design
    size : int
        Number of rows.
    n_predictors : int
        Linear predictors that designs are made of.
    """

    n_predictors = 1

    def __init__(self, form: TermForm, point: list[np.ndarray]) -> None:
        self._form, self._point = form, point
        self.size = form.term.size
        assert form.predictor is not None
        self.design = Design(form.factorisation, form.term, form.predictor)
        self._input = form.predictor.type("eta")

    def operations(self, n_rows: int) -> float:
        """Operations of a pass over `n_rows` rows."""
        return n_rows * operations_of_rows(self.design(evenly_spaced(self.size, _SOME_ROWS))[:, None])

    def of_rows(self, eta: Vector, positions: Index) -> list[Vector]:
        """l_i, f_i' and f_i'' at eta_i."""
        shape = self._input.type.shape
        wide = (
            eta.reshape([-1 if k is None else 1 for k in shape]) if None in shape else eta[:1].reshape(shape)
        )
        outputs = self._function(*self._point, wide, positions, *self._form.factorisation.leaf_values)
        return [np.broadcast_to(np.ravel(out), len(positions)) for out in outputs]

    @cached_property
    def _function(self) -> Any:
        form = self._form
        (of_eta,) = rebuild([form.rows], {form.predictor: self._input})
        try:
            outputs = [of_eta, *slopes(of_eta, self._input, form.term.index)]
        except NO_GRADIENT as error:
            raise not_smooth(f"The term {form.term.name!r}", error) from None
        inputs = [self._input, form.term.index]
        return form.factorisation.compile(outputs, inputs, mode=INTERPRETED_STABLE)


class ByRowFunction:
    """A term with a few linear predictors, whose rows are differentiated by these.

    Parameters
    ----------
    function : RowFunction

    Attributes
    ----------
    function : RowFunction
    size : int
        Number of rows.
    n_predictors : int
        Linear predictors that designs are made of.
    """

    def __init__(self, function: RowFunction) -> None:
        self.function = function
        self.size, self.n_predictors = function.n_rows, function.n_predictors

    def operations(self, n_rows: int) -> float:
        """Operations of a pass over `n_rows` rows."""
        return n_rows * operations_of_rows(self.function.rows(evenly_spaced(self.size, _SOME_ROWS)))


class ByCoordinates(Compiled):
    """Any other term: its sum over rows, differentiated along all coordinates.

    Parameters
    ----------
    form : TermForm
    point : list of ndarray
        Values of all variables but those of the block, which are not used.

    Attributes
    ----------
    size : int
        Number of rows.
    n_predictors : int
        Linear predictors that designs are made of.
    """

    n_predictors = 0

    def __init__(self, form: TermForm, point: list[np.ndarray]) -> None:
        self._form, self._point = form, point
        self.size = form.term.size
        fact = form.factorisation
        self._block = block_of(fact)
        self._n_dim = sum(int(np.prod(var.type.shape)) for var in self._block)

    def operations(self, n_rows: int) -> float:
        """Operations of a pass over `n_rows` rows."""
        found = elements([self._form.term.rows], self._block)
        each = n_rows * found.of_row + math.ceil(n_rows / CHUNK) * found.fixed
        return OF_ELEMENT * self._n_dim * each

    def of_rows(self, phi: Vector, positions: Index) -> Derivatives:
        """The sum over some rows."""
        leaves = self._form.factorisation.leaf_values
        return symmetric(*self._function(*self._point, phi, positions, *leaves))

    @cached_property
    def _function(self) -> Any:
        fact, term = self._form.factorisation, self._form.term
        phi = pt.vector("phi", shape=(self._n_dim,))
        (rows,) = rebuild([term.rows], parts_of(phi, self._block))
        try:
            outputs = with_derivatives(stable(rows).sum(), phi)
        except NO_GRADIENT as error:
            raise not_smooth(f"The term {term.name!r}", error) from None
        return fact.compile(outputs, [phi, term.index], mode=INTERPRETED_STABLE)


TermDerivatives = ByPredictor | ByRowFunction | ByCoordinates


def is_differentiated_by_rows(structure: TermStructure, number: int) -> bool:
    """Whether a term has a row function that nothing outside of the block changes."""
    if not structure.has_row_function(number):
        return False
    function = structure.row_function(number)
    return not function.others and function.offset_fixed


def term_derivatives(structure: TermStructure, number: int, point: list[np.ndarray]) -> TermDerivatives:
    """Derivatives by the row function of a term, its one linear predictor, or along all coordinates."""
    form = structure.forms[number]
    if is_differentiated_by_rows(structure, number):
        return ByRowFunction(structure.row_function(number))
    return ByPredictor(form, point) if form.has_one else ByCoordinates(form, point)
