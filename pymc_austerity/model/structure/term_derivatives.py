"""Compiled derivatives of one local term, row by row or summed.

A term is differentiated by its row function, by its one linear predictor, or along all coordinates. Each way
says what it reads of some rows, and adds these rows to sums.
"""

import math
from abc import ABC, abstractmethod
from functools import cached_property
from typing import Any

import numpy as np
import pytensor.tensor as pt

from pymc_austerity.bounds.jets.derivatives import Sums, add_rows, add_slopes, predictors
from pymc_austerity.bounds.jets.tape import Tape, tape_of
from pymc_austerity.bounds.row_function import RowFunction, evenly_spaced
from pymc_austerity.model.factorisation import CHUNK, block_of
from pymc_austerity.model.graph.elements import OF_ELEMENT, elements
from pymc_austerity.model.graph.rewrite import INTERPRETED_STABLE, Compiled, parts_of, rebuild, stable
from pymc_austerity.model.refusal import NO_GRADIENT
from pymc_austerity.model.structure.derivatives import not_smooth, slopes, symmetric, with_derivatives
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


class TermDerivatives(Compiled, ABC):
    """A term whose rows can be added up with their derivatives.

    Attributes
    ----------
    size : int
        Number of rows.
    n_predictors : int
        Linear predictors p that designs are made of; 0 if it is differentiated along coordinates.
    """

    size: int
    n_predictors: int

    @property
    def n_slopes(self) -> int:
        """Derivatives of a row by its predictors, first and second ones."""
        return self.n_predictors * (self.n_predictors + 3) // 2

    def operations(self, n_rows: int) -> float:
        """Operations of a pass over `n_rows` rows."""
        return n_rows * operations_of_rows(self.read(evenly_spaced(self.size, _SOME_ROWS))[0])

    @abstractmethod
    def read(self, positions: Index) -> tuple[np.ndarray, ...]:
        """What is needed of some rows, whatever the features: first the designs (m, p, D + 1)."""

    @abstractmethod
    def add_to(self, sums: Sums, phi: Vector, positions: Index, read: tuple[np.ndarray, ...]) -> np.ndarray:
        """Add some rows at phi to sums, given what was read; their slopes (n_slopes, m)."""


class ByPredictor(TermDerivatives):
    """A term with one linear predictor: its design, and f_i with two derivatives.

    Parameters
    ----------
    form : TermForm
    point : list of ndarray
        Values of all variables but those of the block, which are not used.
    """

    n_predictors = 1

    def __init__(self, form: TermForm, point: list[np.ndarray]) -> None:
        self._form, self._point = form, point
        self.size = form.term.size
        assert form.predictor is not None
        self._design = Design(form.factorisation, form.term, form.predictor)
        self._input = form.predictor.type("eta")

    def read(self, positions: Index) -> tuple[np.ndarray, ...]:
        """Columns of the predictor at some rows, in a tuple."""
        return (self._design(positions)[:, None],)

    def add_to(self, sums: Sums, phi: Vector, positions: Index, read: tuple[np.ndarray, ...]) -> np.ndarray:
        """Add rows by the derivatives of f_i."""
        (rows,) = read
        (eta,) = predictors(rows, phi)
        value, *own = self._of_rows(eta, positions)
        by_predictor = np.stack(own)
        sums.value[0] += value.sum()
        add_slopes(rows, by_predictor, sums)
        return by_predictor

    def _of_rows(self, eta: Vector, positions: Index) -> list[Vector]:
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


class ByRowFunction(TermDerivatives):
    """A term with a few linear predictors, whose rows are differentiated by these.

    Parameters
    ----------
    function : RowFunction
    """

    def __init__(self, function: RowFunction) -> None:
        self._function = function
        self.size, self.n_predictors = function.n_rows, function.n_predictors

    @cached_property
    def _program(self) -> Tape:
        return tape_of(self._function.expression, self.n_predictors, 2)

    def read(self, positions: Index) -> tuple[np.ndarray, ...]:
        """Designs, columns of data, and guards, if there are any."""
        function = self._function
        guards = () if function.guards is None else (function.guards(positions),)
        return function.rows(positions), function.data(positions), *guards

    def add_to(self, sums: Sums, phi: Vector, positions: Index, read: tuple[np.ndarray, ...]) -> np.ndarray:
        """Add rows by the program of the row function."""
        rows, data, *guards = read
        slopes = add_rows(self._program, rows, data, phi, sums)
        if not all(np.all(one[..., :-1] @ phi + one[..., -1] > 0.0) for one in guards):
            sums.value[0] = -np.inf
        return slopes


class ByCoordinates(TermDerivatives):
    """Any other term: its sum over rows, differentiated along all coordinates.

    Parameters
    ----------
    form : TermForm
    point : list of ndarray
        Values of all variables but those of the block, which are not used.
    stabilised : bool, default True
        Whether PyTensor's rewrites for numerical stability come before derivatives, which may then be none at
        the end of a domain.
    """

    n_predictors = 0

    def __init__(self, form: TermForm, point: list[np.ndarray], *, stabilised: bool = True) -> None:
        self._form, self._point, self._stabilised = form, point, stabilised
        self.size = form.term.size
        fact = form.factorisation
        self._block = block_of(fact)
        self._n_dim = sum(int(np.prod(var.type.shape)) for var in self._block)

    def operations(self, n_rows: int) -> float:
        """Operations of a pass over `n_rows` rows, along each coordinate."""
        found = elements([self._form.term.rows], self._block)
        each = n_rows * found.of_row + math.ceil(n_rows / CHUNK) * found.fixed
        return OF_ELEMENT * self._n_dim * each

    def read(self, positions: Index) -> tuple[np.ndarray, ...]:
        """Nothing: derivatives of a sum are computed from the data of the graph."""
        return ()

    def add_to(self, sums: Sums, phi: Vector, positions: Index, read: tuple[np.ndarray, ...]) -> np.ndarray:
        """Add rows by derivatives of their sum."""
        leaves = self._form.factorisation.leaf_values
        value, gradient, hessian = symmetric(*self._function(*self._point, phi, positions, *leaves))
        sums.value[0] += value
        sums.gradient[:] += gradient
        sums.hessian[:] += np.tril(hessian)
        return np.empty((0, len(positions)))

    @cached_property
    def _function(self) -> Any:
        fact, term = self._form.factorisation, self._form.term
        phi = pt.vector("phi", shape=(self._n_dim,))
        (rows,) = rebuild([term.rows], parts_of(phi, self._block))
        try:
            outputs = with_derivatives((stable(rows) if self._stabilised else rows).sum(), phi)
        except NO_GRADIENT as error:
            raise not_smooth(f"The term {term.name!r}", error) from None
        return fact.compile(outputs, [phi, term.index], mode=INTERPRETED_STABLE)


def term_derivatives(structure: TermStructure, number: int, point: list[np.ndarray]) -> TermDerivatives:
    """Derivatives by the row function of a term, its one linear predictor, or along all coordinates."""
    form = structure.forms[number]
    if structure.is_function_of_block(number):
        return ByRowFunction(structure.row_function(number))
    if structure.everywhere:
        return ByCoordinates(form, point, stabilised=False)
    return ByPredictor(form, point) if form.has_one else ByCoordinates(form, point)
