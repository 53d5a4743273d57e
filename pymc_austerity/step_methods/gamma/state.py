"""Sampling state, sample statistics and progress bar of steps for gamma processes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from rich.progress import TextColumn
from rich.table import Column

DTYPES_SHAPES: dict[str, tuple[type, list[int]]] = {
    "step_size": (np.float64, []),
    "n_used": (np.float64, []),
    "fraction_used": (np.float64, []),
    "variance_inflation": (np.float64, []),
}


@dataclass_state
class GammaProcessState(StepMethodState):
    """All that the step carries from draw to draw."""

    n_transitions: int  # m, since the chain began
    # The processes of each variable; of a simplex this includes the total, which is not in a point
    log_theta: Any
    written: Any  # Values that were last put into a point: another step may have replaced them
    # With ``control_variate="anchor"``, of each variable. They hold the values of other variables at the
    # time, which may have size N, such as allocations: as many numbers as a point.
    anchors: Any


def progress_columns(n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[float]]]:
    """A column of the progress bar, and what it begins with."""
    column = TextColumn("{task.fields[fraction_used]:0.3f}", table_column=Column("Share of data", ratio=1))
    return [column], {"fraction_used": [0.0] * n_chains}


def progress_updates() -> tuple[Callable[[dict[str, Any]], dict[str, Any]], ...]:
    """A function from the statistics of a draw to the field of the column."""
    return (lambda stats: {"fraction_used": stats["fraction_used"]},)
