"""Rows on disk in the graph of a model: an operation that stands for them, and cannot be computed.

In the model that a user writes, `RowsOnDisk` is applied to the head of the data. Whatever PyMC computes of
it raises. `with_rows` puts the mapped array in its place, for the graphs of this package.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import pytensor
import pytensor.tensor as pt
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Apply, Constant, Variable
from pytensor.graph.op import Op
from pytensor.graph.replace import clone_replace
from pytensor.graph.rewriting.db import RewriteDatabaseQuery
from pytensor.graph.traversal import ancestors
from pytensor.link.numba.dispatch import numba_funcify
from pytensor.tensor.type import TensorType
from pytensor.tensor.variable import TensorVariable

from pymc_austerity.data.row_store import Rows
from pymc_austerity.exceptions import RowsOnDiskError


class HeadVariable(TensorVariable):
    """The variable that stands for rows on disk, with the head of the rows as its value."""

    @property
    def data(self) -> np.ndarray:
        """The head, which PyMC writes into a result as `constant_data`."""
        head, _ = self.owner.inputs
        value = head.data if isinstance(head, Constant) else head.get_value()
        return np.asarray(value)

    def eval(self, inputs_to_values: Any = None, *, mode: Any = None, **kwargs: Any) -> np.ndarray:
        """The head, where PyMC notes observations in a result; else an error.

        PyMC does so by an evaluation without any rewrite, as nobody else does.
        """
        asked = getattr(mode, "provided_optimizer", None)
        if isinstance(asked, RewriteDatabaseQuery) and mode.provided_linker == "py" and not asked.include:
            return self.data
        raise self.owner.op.refusal()


class RowsOnDisk(Op):
    """Stands for all rows of an array on disk, and is applied to the head. To compute it is an error.

    `name` is that of the data in the model.
    """

    def __init__(self, name: str, rows: Rows) -> None:
        self.name = name
        self._rows: Rows | None = rows
        self._opened_by: Any = None
        # The number of rows. As a constant, PyMC would write it into the graph of a model in many places.
        self.length = pytensor.shared(np.array(len(rows)), name=f"{name}_rows")
        self._mapped: SharedVariable | None = None

    def __getstate__(self) -> dict[str, Any]:
        # By path: the rows are not sent to workers. They are opened where they are used, so that a file that
        # has changed is an error of the step, not one of the pickle.
        opened_by = self._opened_by if self._rows is None else self._rows.__reduce__()
        return {**self.__dict__, "_rows": None, "_opened_by": opened_by, "_mapped": None}

    def __str__(self) -> str:
        return f"RowsOnDisk({self.name})"

    @property
    def rows(self) -> Rows:
        """The rows, which a pickle opens when they are first asked for."""
        if self._rows is None:
            make, arguments = self._opened_by
            self._rows = make(*arguments)
        return self._rows

    @property
    def mapped(self) -> SharedVariable:
        """All rows, as shared data that are not copied. `rows_of` finds out whose they are."""
        if self._mapped is None:
            array = np.asarray(self.rows)
            shape = (None, *array.shape[1:])
            self._mapped = pytensor.shared(array, name=self.name, borrow=True, shape=shape)
            self._mapped.tag.rows_on_disk = self
        return self._mapped

    def refusal(self) -> RowsOnDiskError:
        """Error that is raised where the operation would be computed."""
        return RowsOnDiskError(
            f"{self.name!r} is on disk ({len(self.rows):,} rows, {self.rows.path}), and only TunaMH, "
            "MetropolisHastings, AusterityMH, MHSubLhd and MinibatchBarker read single rows there. What was "
            "asked for needs all of them. Use one of these steps, pymc_austerity.sample_posterior_predictive "
            "for predictions, or build the model with arrays in memory: "
            f"np.asarray(store[{self.rows.name!r}])."
        )

    def make_node(self, head: Variable, length: Variable | None = None) -> Apply:
        """The rows have the dtype of the file, whatever PyMC has made of the head."""
        result = TensorType(self.rows.dtype.name, (None, *self.rows.shape[1:]))
        length = self.length if length is None else length
        return Apply(self, [head, length], [HeadVariable(result, None, name=self.name)])

    def perform(self, node: Apply, inputs: Sequence[Any], output_storage: Any) -> None:
        """Raise: there are more rows than the head has."""
        raise self.refusal()

    def infer_shape(self, node: Apply, shapes: Any) -> list[tuple[Variable, ...]]:
        """The shape of all rows, not of the head."""
        return [(node.inputs[1], *(pt.constant(k, dtype="int64") for k in node.outputs[0].type.shape[1:]))]

    def do_constant_folding(self, fgraph: Any, node: Apply) -> bool:
        """False: rows are not read while a model is built."""
        return False


@numba_funcify.register(RowsOnDisk)
def _refuse_to_compute(op: RowsOnDisk, **kwargs: Any) -> NoReturn:
    raise op.refusal()


def on_disk(outputs: Sequence[Variable]) -> dict[Variable, RowsOnDisk]:
    """Variables of some graphs that stand for rows on disk, with their operations."""
    return {
        var: var.owner.op
        for var in ancestors(outputs)
        if var.owner is not None and isinstance(var.owner.op, RowsOnDisk)
    }


def with_rows(outputs: Sequence[Variable]) -> list[Variable]:
    """The same graphs with all rows in their places, mapped."""
    outputs = list(outputs)
    found = on_disk(outputs)
    if not found:
        return outputs
    # A frozen model has a constant for the length.
    lengths = {var.owner.inputs[1]: op.length for var, op in found.items()}
    mapped = {var: op.mapped for var, op in found.items()}
    return clone_replace(outputs, {**lengths, **mapped}, copy_inputs_over=True)


def with_arrays(
    outputs: Sequence[Variable],
    arrays: Mapping[SharedVariable, np.ndarray],
    lengths: Mapping[Variable, int],
) -> list[Variable]:
    """The same graphs with other arrays in the places of mapped rows, and other lengths."""
    instead = {length: pytensor.shared(np.array(k)) for length, k in lengths.items()}
    for mapped, array in arrays.items():
        instead[mapped] = pytensor.shared(array, name=mapped.name, shape=mapped.type.shape)
        instead[mapped.tag.rows_on_disk.length] = pytensor.shared(np.array(len(array)))
    return clone_replace(list(outputs), instead, copy_inputs_over=True)


def rows_of(shared: Variable) -> Rows | None:
    """The rows on disk that are the value of a shared variable; None if it is data in memory."""
    op = getattr(shared.tag, "rows_on_disk", None)
    return op.rows if isinstance(op, RowsOnDisk) else None


def refuse_rows(outputs: Sequence[Variable]) -> None:
    """Raise `RowsOnDiskError` if graphs read mapped rows."""
    for var in ancestors(outputs):
        op = getattr(var.tag, "rows_on_disk", None)
        if isinstance(op, RowsOnDisk):
            raise op.refusal()
