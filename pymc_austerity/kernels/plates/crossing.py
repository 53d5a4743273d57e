"""What a plate keeps of a second, crossed factor: the record that the kernel is handed."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.target import Index, Matrix, Vector


class Crossing(NamedTuple):
    """Effects of another factor, of H levels, which are kept while the plate is moved.

    They are measured without their location. d_h are their displacements from the center.
    """

    displacements: Vector  # (H,): d_h, to be written before a turn
    starts: Index  # (G + 1,): where the list of occupied cells of each group begins
    levels: npt.NDArray[np.int32]  # (C,): of each cell
    weights: Vector  # (C,): W_gh = sum of w_i of its rows
    cross: Matrix  # (H, P): sums of w_i z_i over the rows of each level
    # level_slopes, level_weights (H,): sums of f_i' and of w_i
    level_slopes: Vector
    level_weights: Vector
    # slopes, gradient (G,), (P,): a_g and c at the center of the other effects
    slopes: Vector
    gradient: Vector
    # middles, farthest (G,): half of the sum, and of the difference, of the largest and the smallest d_h in
    # each group: they are written anew in each turn
    middles: Vector
    farthest: Vector
    d: Vector  # (P,): beta - beta* at the fitted mean of theta
    # scale, log_precision: tau and the logarithm of the precision of residuals there
    scale: float
    log_precision: float
    # (n, P + 2): by which the mean of the proposal follows the gradient of `coordinates.quadratic` by d, log
    # tau^2 and log precision
    pull: Matrix
    base: Vector  # (P + 2,): that gradient, and
    mean: Vector  # (n,): the mean of the proposal, at the center of the other effects


def no_crossing() -> Crossing:
    """An empty record, where there is no crossed factor."""
    none, integers, matrix = np.zeros(0), np.zeros(0, np.int64), np.zeros((0, 0))
    return Crossing(
        none, integers, np.zeros(0, np.int32), none, matrix, none, none, none, none, none, none, none,
        1.0, 0.0, matrix, none, none,
    )  # fmt: skip
