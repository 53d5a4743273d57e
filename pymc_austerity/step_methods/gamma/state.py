"""Options, sampling state and sample statistics of steps for gamma processes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from rich.progress import TextColumn
from rich.table import Column

from pymc_austerity.validation import is_real, is_whole

ControlVariate = Literal["anchor"]

DTYPES_SHAPES: dict[str, tuple[type, list[int]]] = {
    "step_size": (np.float64, []),
    "n_used": (np.float64, []),
    "fraction_used": (np.float64, []),
    "variance_inflation": (np.float64, []),
}


@dataclass_state
class GammaProcessState(StepMethodState):
    """All that the step carries from draw to draw.

    Attributes
    ----------
    n_transitions : int
        m, since the chain began.
    log_theta : list of ndarray
        The processes of each variable; of a simplex this includes the total, which is not in a point.
    written : list of ndarray
        Values that were last put into a point: another step may have replaced them.
    anchors : list
        With ``control_variate="anchor"``, of each variable. They hold the values of other variables at the
        time, which may have size N, such as allocations: as many numbers as a point.
    """

    n_transitions: int
    log_theta: Any
    written: Any
    anchors: Any


def check_options(
    batch_size: Any,
    control_variate: Any,
    refresh: Any,
    minibatch_rate: Any,
    shift: Any,
    steps_per_draw: Any,
    threshold: Any,
) -> None:
    """Raise `ValueError` naming an option, its value, and what to do. Sizes of batches need the data."""
    if not is_whole(steps_per_draw) or steps_per_draw < 1:
        raise ValueError(f"steps_per_draw must be a positive integer, got {steps_per_draw!r}.")
    if not is_whole(refresh) or refresh < 1:
        raise ValueError(f"refresh must be a positive integer, got {refresh!r}.")
    if control_variate not in (None, "anchor"):
        raise ValueError(f'control_variate must be None or "anchor", got {control_variate!r}.')
    if control_variate is not None and batch_size is None:
        raise ValueError(
            'control_variate="anchor" makes minibatches less noisy, but batch_size=None reads all data: '
            "give a batch_size, or leave control_variate out."
        )
    if minibatch_rate not in (True, False):
        raise ValueError(f"minibatch_rate must be True or False, got {minibatch_rate!r}.")
    if shift is not None and (not is_real(shift) or not 0.0 <= shift < np.inf):
        raise ValueError(f"shift must be None or a number that is not negative, got {shift!r}.")
    if threshold is not None and (not is_whole(threshold) or threshold < 3):
        raise ValueError(f"threshold must be None or an integer of at least 3, got {threshold!r}.")


def progress_columns(n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[float]]]:
    """A column of the progress bar, and what it begins with."""
    column = TextColumn("{task.fields[fraction_used]:0.3f}", table_column=Column("Share of data", ratio=1))
    return [column], {"fraction_used": [0.0] * n_chains}


def progress_updates() -> tuple[Callable[[dict[str, Any]], dict[str, Any]], ...]:
    """A function from the statistics of a draw to the field of the column."""
    return (lambda stats: {"fraction_used": stats["fraction_used"]},)
