"""Outer effects of nested groups: what the kernel is handed of schools that classes belong to."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.target import Index, Vector


class Outer(NamedTuple):
    """Effects v_h ~ N(n_h, T^2) of H outer groups, which are among the shared variables.

    Each group of the plate belongs to one outer group, or to none, and nu_g = v_h(g) + what has no v.
    """

    parents: Index  # (G,): h(g), or -1
    columns: Index  # (H,): which of the P columns is that of v_h
    scale_at: int  # Which feature of theta is T
    base: Vector  # (H,): n_h = base_h + locations_h . theta[moved].
    moved: Index  # (M,)
    locations: npt.NDArray[np.float64]  # (H, M)
    is_centered: bool  # Whether the model has v_h, else z_h = (v_h - n_h) / T


def no_outer() -> Outer:
    """An empty record, where groups are not nested."""
    none = np.zeros(0, np.int64)
    return Outer(none, none, 0, np.zeros(0), none, np.zeros((0, 0)), True)
