"""Observations as they were given: are there any, and would PyMC change them in silence?"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pymc as pm
from pytensor.graph.basic import Variable
from pytensor.scalar.basic import Cast
from pytensor.tensor.elemwise import Elemwise

from pymc_austerity.model.factorisation import CHUNK
from pymc_austerity.model.graph.functions import function_of
from pymc_austerity.model.graph.rows_on_disk import on_disk

# What PyMC adds to the name of a variable whose missing observations it imputes.
IMPUTED = "_unobserved"
_NAMED_ROWS = 5
# Whole numbers are taken to be no larger by PyMC.
_LARGEST = 2**31 - 1
# What to do about larger ones.
WIDER = "It keeps whole numbers in 32 bits: give counts above 2,147,483,647 as floats."

Position = tuple[int, ...]


def refuse_data(model: pm.Model) -> None:
    """Raise `ValueError` naming observations that are empty, or that PyMC would change in silence."""
    for rv in model.observed_RVs:
        given = as_given(model.rvs_to_values[rv])
        if not given.size:
            raise ValueError(
                f"{rv.name!r} has no observations (shape {given.shape}): there is nothing to sample from. "
                "Give data, or leave the variable out."
            )
        if np.dtype(rv.type.dtype).kind in "iu":
            _refuse_cut_counts(str(rv.name), given)


def _refuse_cut_counts(name: str, given: np.ndarray) -> None:
    """Fractions of shared data are cut off, and whole numbers wrapped. Those of an array are gone already."""
    parts = [given] if not given.ndim else (given[a : a + CHUNK] for a in range(0, len(given), CHUNK))
    if not any(cut.any() or wide.any() for cut, wide in map(_cut_and_wide, parts)):
        return
    cut, wide = _cut_and_wide(given)
    if cut.any():
        one = given[positions(cut)[0]]
        raise ValueError(
            f"The observation of {name!r} in {listed(cut)} is {one}, and {name!r} is discrete: "
            f"PyMC would take {int(one)} for it. Correct the data, or use a continuous distribution."
        )
    if wide.any():
        one = given[positions(wide)[0]]
        raise ValueError(
            f"The observation of {name!r} in {listed(wide)} is {one:,}: PyMC would take "
            f"{one.astype(np.int32)} for it. {WIDER}"
        )


def _cut_and_wide(given: np.ndarray) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Which numbers are no whole ones, and which whole ones are too large."""
    if given.dtype.kind in "iub" and given.dtype.itemsize < 4:
        return np.zeros(1, dtype=bool), np.zeros(1, dtype=bool)
    cut = np.isfinite(given) & (given != np.trunc(given))
    wide = (given > _LARGEST) | (given < -_LARGEST - 1)
    return cut, wide if given.dtype.kind in "iu" else np.zeros_like(wide)


def as_given(value: Variable) -> np.ndarray:
    """Observations as they were given, before they were made whole numbers."""
    while (
        (node := value.owner) is not None
        and isinstance(node.op, Elemwise)
        and isinstance(node.op.scalar_op, Cast)
    ):
        value = node.inputs[0]
    if value in (rows := on_disk([value])):
        return np.asarray(rows[value].rows)
    return np.asarray(function_of([], value)())


def positions(bad: npt.NDArray[np.bool_]) -> list[Position]:
    """Places of some numbers."""
    return [tuple(int(k) for k in each) for each in np.argwhere(bad)]


def listed(rows: npt.NDArray[np.bool_]) -> str:
    """The first few of some rows, and how many there are."""
    found = positions(rows)
    if len(found) == 1 and rows.ndim == 2:
        return "row {}, column {}".format(*found[0])
    named = ", ".join(str(p[0] if len(p) == 1 else p) for p in found[:_NAMED_ROWS])
    if len(found) == 1:
        return f"row {named}"
    return f"rows {named}{', ...' if len(found) > _NAMED_ROWS else ''} ({len(found):,} of {rows.size:,})"
