"""What a transition kernel needs to know of a model: plain functions, and nothing of PyMC."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Vector = npt.NDArray[np.float64]
Index = npt.NDArray[np.int64]


class Target(NamedTuple):
    """Differences of a log density that is global(q) + sum over i < N of l_i(q).

    A kernel only ever compares two states, so only differences are asked for.

    Attributes
    ----------
    global_log_ratio : callable
        ``(q_new, q, args) -> float``, global(q_new) - global(q).
    log_ratios : callable
        ``(q_new, q, index, args) -> ndarray (m,)``, l_i(q_new) - l_i(q) for the m positions i in `index`,
        in any order.

    Notes
    -----
    `args` is a tuple handed through unread: the values of variables outside the block, and data. States
    are float vectors of shape (D,). Tests write a `Target` by hand; `model.compile` makes one from a
    `Factorisation`.
    """

    global_log_ratio: Callable[[Vector, Vector, tuple[Any, ...]], float]
    log_ratios: Callable[[Vector, Vector, Index, tuple[Any, ...]], Vector]
