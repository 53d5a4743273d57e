"""What a normal variable lacks of a logistic one (Seita, Pan, Chen & Canny, 2017, section 4)."""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import nnls
from scipy.special import expit, ndtr

from pymc_austerity.compilation import jitable
from pymc_austerity.validation import is_real

# V of the paper: a logistic variable is beyond it with probability 4e-9.
_REACH = 20.0
# Spacing of the grid, as a share of sigma; and the smallest one, which keeps the table to 400 000 entries.
_SPACING, _SMALLEST_SPACING = 0.25, 1e-4
# Least squares takes long for small sigma: below _SOLVED the distribution follows from that of _BASE, which
# is well above it, so that the normal variable between the two is smooth on the grid.
_SOLVED, _BASE = 0.5, 0.8


class Correction(NamedTuple):
    """Distribution of X_corr.

    Attributes
    ----------
    values : ndarray of float, shape (K,)
        Its values, increasing: the points of a regular grid that have mass.
    cumulative : ndarray of float, shape (K,)
        Their masses, cumulated; the last is exactly 1.
    """

    values: npt.NDArray[np.float64]
    cumulative: npt.NDArray[np.float64]


def correction(sigma: float = 1.0) -> Correction:
    """Distribution of X_corr for which X_norm + X_corr is logistic, with X_norm ~ N(0, sigma^2).

    Parameters
    ----------
    sigma : float in (0, 1], default 1
        Standard deviation of X_norm (the paper's N(0, s) has variance s^2).

    Returns
    -------
    Correction
        A discrete distribution, symmetric about 0. Distributions are kept: the same `sigma` gives the same
        object.

    Raises
    ------
    ValueError
        If `sigma` is out of its range.

    Notes
    -----
    Minimises |M u - v| of equation 15 over u >= 0, where M_ij = Phi((x_i - y_j) / sigma), v_i is the logistic
    function at x_i and u_j the mass at y_j (M has no cell width, so u is not a density; it is normalised).
    The paper instead adds lambda |u|^2, solves without the constraint and sets negative masses to 0, which at
    sigma = 1 costs 5e-4 to 2e-3 in the distribution function and 2 to 13 % of the variance (lambda from 10 to
    0.01). For sigma < 0.5 X_corr is that for 0.8 plus N(0, 0.8^2 - sigma^2), on the grid.

    *Guarantee*: no exact X_corr exists for any sigma > 0, but the distribution function of X_norm + X_corr is
    within 1e-6 of the logistic one for sigma >= 4e-5 (measured: 8e-8 at 1, at most 3e-9 up to 0.9), and the
    variance of X_corr within 1e-5 of pi^2 / 3 - sigma^2.

    *When it fails*: below sigma = 4e-5 the steps of the grid show; the error grows to 1.3e-5. X_corr has few
    values (about 50 at sigma = 1; 0 has probability 0.4), so the sum is smooth only through X_norm. With a
    variable of another shape or variance in place of X_norm, the error is up to the distance of the two.
    """
    if not is_real(sigma) or not 0.0 < sigma <= 1.0:
        raise ValueError(
            f"sigma must be in (0, 1], got {sigma!r}: above 1 the error of any correction grows fast, "
            "to 2e-5 at 1.2."
        )
    return _law(float(sigma))


@cache
def _law(sigma: float) -> Correction:
    n = math.ceil(_REACH / max(_SPACING * sigma, _SMALLEST_SPACING))
    step = _REACH / n
    masses = _least_squares(sigma, n, step) if sigma >= _SOLVED else _smoothed(sigma, n, step)
    values: npt.NDArray[np.float64] = step * np.arange(-n, n + 1, dtype=np.float64)
    # Without the points of no mass, most of them after least squares.
    values, masses = values[masses > 0.0], masses[masses > 0.0]
    cumulative = np.cumsum(masses)
    cumulative /= cumulative[-1]
    return Correction(values, cumulative)


def _least_squares(sigma: float, n: int, step: float) -> npt.NDArray[np.float64]:
    """Equation 15 over u >= 0, without the ridge; by symmetry for x > 0 alone."""
    y = step * np.arange(n + 1)
    x = step * np.arange(1, 2 * n + 1)[:, None]
    # Half of a mass is at y and half at -y; 1/2 is taken off both sides. Rows beyond V ask for a sum of 1.
    M = 0.5 * (ndtr((x - y) / sigma) + ndtr((x + y) / sigma) - 1.0)
    # Needs up to 15 n steps, as the columns are nearly dependent; the default is 3 n.
    half, _ = nnls(M, expit(x[:, 0]) - 0.5, maxiter=100 * n)
    return np.concatenate((0.5 * half[:0:-1], half[:1], 0.5 * half[1:]))


def _smoothed(sigma: float, n: int, step: float) -> npt.NDArray[np.float64]:
    """X_corr for `_BASE` plus a normal variable, as the density on the grid.

    As the sum is seen only through X_norm, with steps of sigma / 4, the grid costs nothing.
    """
    base = _law(_BASE)
    y = step * np.arange(-n, n + 1)
    density = np.zeros(2 * n + 1)
    for value, mass in zip(base.values, np.diff(base.cumulative, prepend=0.0), strict=True):
        density += mass * np.exp(-0.5 * (y - value) ** 2 / (_BASE**2 - sigma**2))
    return density


@jitable
def draw_correction(correction: Correction, rng: np.random.Generator) -> float:
    """Draw X_corr, by inversion."""
    # To the right: a uniform number equal to a cumulated mass belongs to the next value.
    return float(correction.values[np.searchsorted(correction.cumulative, rng.random(), side="right")])
