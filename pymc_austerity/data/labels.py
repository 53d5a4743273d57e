"""Categories as codes: which label has which number."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Label = str | int | bool


class Labels:
    """Labels of one column, and the codes 0, 1, ... of its rows.

    Parameters
    ----------
    column : str
        What is told of it in messages.
    known : sequence of labels
    closed : bool
        Whether any other label is an error. If not, codes follow the order of first appearance.
    """

    def __init__(self, column: str, known: Sequence[Label], closed: bool) -> None:
        self._column, self._closed = column, closed
        self.known = list(known)
        self._codes = {label: code for code, label in enumerate(known)}

    def add(self, labels: Sequence[Label]) -> None:
        """Add labels that an earlier run has found.

        Parameters
        ----------
        labels : sequence
        """
        for label in labels:
            self._codes[label] = len(self.known)
            self.known.append(label)

    def codes(self, values: NDArray[Any], first_row: int) -> NDArray[np.int64]:
        """Codes of some rows.

        Parameters
        ----------
        values : array, shape (rows,)
        first_row : int
            The number of the first in the whole source.

        Raises
        ------
        ValueError
            If a value is missing, no label, or not among those that were given.
        """
        places, distinct = pd.factorize(values if values.dtype.kind in "biu" else values.astype(object))
        if (places < 0).any():
            row = first_row + int(np.argmax(places < 0))
            raise ValueError(
                f"Row {row:,} of {self._column} is missing. Leave such rows out, or give them a label."
            )
        codes: NDArray[np.int64] = np.empty(len(distinct), np.int64)
        for place, value in enumerate(distinct):
            label = value.item() if isinstance(value, np.generic) else value
            codes[place] = self._code(label, first_row, places, place)
        of_rows: NDArray[np.int64] = codes[places]
        return of_rows

    def _code(self, label: Any, first_row: int, places: NDArray[np.intp], place: int) -> int:
        if isinstance(label, str | int) and label in self._codes:
            return self._codes[label]
        row = first_row + int(np.argmax(places == place))
        if not isinstance(label, str | int):
            raise ValueError(
                f"{label!r} in row {row:,} of {self._column} is neither text nor a whole number: "
                "it is no category."
            )
        if self._closed:
            raise ValueError(
                f"{label!r} in row {row:,} of {self._column} is none of the categories that were given."
            )
        self.add([label])
        return self._codes[label]
