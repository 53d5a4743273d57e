"""Options of steps for gamma processes."""

from typing import Any, Literal, NamedTuple

import numpy as np

from pymc_austerity.step_methods.batch_size import checked_batch_size
from pymc_austerity.validation import is_real, is_whole

ControlVariate = Literal["anchor"]


class GammaOptions(NamedTuple):
    """How statistics of the likelihood are read; the fields are parameters of `SCIR`."""

    batch_size: int | float | None
    control_variate: ControlVariate | None
    refresh: int
    minibatch_rate: bool
    shift: float | None
    steps_per_draw: int
    threshold: int | None

    @property
    def subsampled(self) -> bool:
        """Whether minibatches are read."""
        return self.batch_size is not None

    @property
    def anchored(self) -> bool:
        """Whether only changes since an anchor are estimated."""
        return self.control_variate is not None


def checked_options(
    *,
    batch_size: Any,
    control_variate: Any,
    refresh: Any,
    minibatch_rate: Any,
    shift: Any,
    steps_per_draw: Any,
    threshold: Any,
) -> GammaOptions:
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
    return GammaOptions(
        batch_size=checked_batch_size(batch_size),
        control_variate=control_variate,
        refresh=int(refresh),
        minibatch_rate=bool(minibatch_rate),
        shift=shift,
        steps_per_draw=int(steps_per_draw),
        threshold=threshold,
    )
