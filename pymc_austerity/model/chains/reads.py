"""Which elements of a latent variable each row of a term reads.

The log density of a model is a sum of tables, each with one number for each row, cell by cell where possible
(`graph.terms.tables`). Their rows are lifted, as those of local terms are. What is left of the variable h in
the graph of a row are selections ``h[position]``, in one step or several. The same selections of
a table of numbers 0, 1, 2, ... say which elements are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.graph.replace import vectorize_graph
from pytensor.graph.rewriting.utils import rewrite_graph
from pytensor.graph.traversal import ancestors, toposort
from pytensor.tensor.elemwise import DimShuffle
from pytensor.tensor.reshape import JoinDims, SplitDims
from pytensor.tensor.shape import Reshape, SpecifyShape
from pytensor.tensor.subtensor import AdvancedSubtensor, Subtensor

from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model.factorisation import LocalTerm
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.rewrite import INTERPRETED, depends_on, rebuild
from pymc_austerity.target import Index

# Values of elements at which it is tried out whether a row depends on them.
_SCALES = (0.3, 1.0, 3.0, 30.0)
_SEED = 24
# Operations of which each element of the result is one of the input.
_MOVES_ELEMENTS = (AdvancedSubtensor, Subtensor, DimShuffle, SpecifyShape, Reshape, JoinDims, SplitDims)


@dataclass(frozen=True, eq=False)
class SelectedElements:
    """One selection of elements of h in the graph of the rows of a term.

    Attributes
    ----------
    var : TensorVariable
        ``h[position]``.
    row_axis : int or None
        The axis of `var` along which the rows are; None in a term of a single row.
    elements : ndarray of int, shape (n_rows, k)
        For each row, the numbers of the k elements that are selected for it, in the order of the other axes.
    """

    var: Variable
    row_axis: int | None
    elements: Index


@dataclass(frozen=True, eq=False)
class ReadingTerm:
    """A vector of terms of the log density that contain h, and what each of its rows reads.

    Attributes
    ----------
    term : LocalTerm
        Its `index` is unused if there is one row alone, which is not lifted.
    is_single : bool
        Whether that is so: `rows` is then one number.
    selections : list of SelectedElements
        None of them, if the term does not depend on h.
    """

    term: LocalTerm
    is_single: bool
    selections: list[SelectedElements]

    @property
    def elements(self) -> Index:
        """The elements that each row reads, those of all selections side by side."""
        return np.concatenate([each.elements for each in self.selections], axis=1)


def reading_term(
    term: LocalTerm, h: Variable, *, name: str, is_single: bool, leaves: dict[Variable, np.ndarray]
) -> ReadingTerm:
    """Find the selections of h in the rows of a term.

    Parameters
    ----------
    term : LocalTerm
    h : TensorVariable
        Of a known shape.
    name : str
        Of h, for errors.
    is_single : bool
        Whether there is one row alone, which is not a function of an index.
    leaves : dict of TensorVariable to ndarray
        Data that positions may depend on.

    Raises
    ------
    FactorisationError
        If h is used otherwise than element by element, or which elements are read depends on parameters.
    """
    (simple,) = rewrite_graph([term.rows], include=("canonicalize", "specialize"), clone=True)
    if not depends_on([simple], [h]).get(simple, False):  # as of pm.Flat
        return ReadingTerm(term, is_single, [])
    moved, found = {h}, []
    for node in toposort([term.rows]):
        if isinstance(node.op, _MOVES_ELEMENTS) and node.inputs[0] in moved:
            moved.add(node.outputs[0])
            continue
        found += [given for given in node.inputs if given in moved]
    found += [term.rows] if term.rows in moved else []
    if h in found:
        raise FactorisationError(
            f"The states {name!r} are not a chain: the term {term.name!r} takes all of them in one row. "
            "ParticleGibbs needs terms whose rows contain one state, or a state and the next."
        )
    selections = [_selection(term, var, h, name, leaves) for var in dict.fromkeys(found)]
    if not is_single and any(each.row_axis is None for each in selections):
        raise FactorisationError(
            f"The states {name!r} are not a chain: all rows of the term {term.name!r} read the same state. "
            "ParticleGibbs needs terms whose rows contain one state, or a state and the next."
        )
    return ReadingTerm(term, is_single, selections)


def _selection(
    term: LocalTerm, var: Variable, h: Variable, name: str, leaves: dict[Variable, np.ndarray]
) -> SelectedElements:
    numbers = pt.constant(np.arange(np.prod(h.type.shape)).reshape(h.type.shape))
    (positions,) = rebuild([var], {h: numbers})
    inputs = [term.index, *leaves]
    unknown = [v for v in ancestors([positions]) if v.owner is None and not hasattr(v, "data")]
    if not set(unknown) <= set(inputs):
        others = ", ".join(sorted(str(v.name) for v in unknown if v not in inputs))
        raise FactorisationError(
            f"The states {name!r} are not a chain: which of them a row of the term {term.name!r} reads "
            f"depends on {others}."
        )
    function = function_of(inputs, positions)

    def at(n_rows: int) -> np.ndarray:
        return np.asarray(function(np.arange(n_rows) % term.size, *leaves.values()))

    short, long = at(2).shape, at(3).shape
    axes = [axis for axis, (a, b) in enumerate(zip(short, long, strict=True)) if a != b]
    if not axes:
        elements = np.broadcast_to(at(1).ravel(), (term.size, int(np.prod(short))))
        return SelectedElements(var, None, elements)
    elements = np.moveaxis(at(term.size), axes[0], 0).reshape(term.size, -1)
    return SelectedElements(var, axes[0], elements)


def replaced(reading: ReadingTerm, values: Sequence[Variable]) -> Variable:
    """The rows of a term with values of their own in place of the elements that they read.

    Parameters
    ----------
    reading : ReadingTerm
    values : sequence of TensorVariable
        One vector for each column of `reading.elements`, with one number for each row; of a single row, with
        any number of them: the result has as many.
    """
    left = iter(values)
    replace = {}
    for selection in reading.selections:
        own = list(itertools.islice(left, selection.elements.shape[1]))
        replace[selection.var] = _shaped_as(selection, own)
    if not reading.is_single:
        return rebuild([reading.term.rows], replace)[0]
    rows = vectorize_graph(reading.term.rows, replace)
    return rows.sum(axis=list(range(1, rows.type.ndim))) if rows.type.ndim > 1 else rows


def _shaped_as(selection: SelectedElements, columns: list[Variable]) -> Variable:
    """Columns of numbers in the shape of a selection."""
    axis = selection.row_axis
    shape = [k for a, k in enumerate(selection.var.type.shape) if a != axis]
    if not shape:
        return columns[0]
    table = pt.stack(columns, axis=1).reshape((columns[0].shape[0], *shape), ndim=1 + len(shape))
    return pt.moveaxis(table, 0, axis or 0)


def elements_that_matter(
    reading: ReadingTerm, inputs: Sequence[Variable], values: Sequence[np.ndarray]
) -> npt.NDArray[np.bool_]:
    """Which of the elements that rows read change them; a factor of zero hides some.

    Parameters
    ----------
    reading : ReadingTerm
        Not of a single row.
    inputs, values : sequence
        What else the rows depend on, and the values of these.

    Returns
    -------
    ndarray of bool, shape of `reading.elements`
    """
    columns = [pt.vector(f"column{k}") for k in range(reading.elements.shape[1])]
    rows = replaced(reading, columns)
    function = function_of([*columns, reading.term.index, *inputs], rows, mode=INTERPRETED)
    rng = np.random.default_rng(_SEED)
    n_rows = reading.term.size
    matters = np.zeros(reading.elements.shape, dtype=bool)
    with np.errstate(all="ignore"):
        for scale in _SCALES:
            at = rng.normal(scale=scale, size=(len(columns), n_rows))
            old = function(*at, np.arange(n_rows), *values)
            for k in range(len(columns)):
                moved = at.copy()
                moved[k] = rng.normal(scale=scale, size=n_rows)
                new = function(*moved, np.arange(n_rows), *values)
                matters[:, k] |= ~((new == old) | (np.isnan(new) & np.isnan(old)))
    return matters
