"""What the errors of a test do to the probability of acceptance of a move."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import roots_legendre

from pymc_austerity.design.checks import check_batch, check_boundary, check_epsilon, check_real, numbers
from pymc_austerity.design.curves import LawCurves
from pymc_austerity.target import Array

# -log u beyond which no u lies (4e-18), and nodes for each part of the integral.
_RARE, _NODES = 40.0, 96


class DecisionErrors(NamedTuple):
    """Errors and data usage of a test for some moves, on average over u.

    Attributes
    ----------
    signed, absolute : ndarray of shape (n,)
        Error of the acceptance probability; and probability of a wrong decision, the average of the error of
        the test over u, in which errors of different sign do not cancel.
    data_usage : ndarray of shape (n,)
    """

    signed: Array
    absolute: Array
    data_usage: Array


def acceptance_error(
    mu: npt.ArrayLike,
    sigma_l: npt.ArrayLike,
    N: int,
    *,
    batch_size: int,
    epsilon: float,
    boundary: float = 0.5,
) -> float | Array:
    r"""Error of the acceptance probability of a move, Delta = P_(a, epsilon) - P_a.

    Parameters
    ----------
    mu : float or array_like
        Log acceptance ratio of the move divided by N: local terms, global terms and the Hastings factor
        together, so that P_a = min(1, exp(N mu)). May be infinite.
    sigma_l : float or array_like >= 0
        Standard deviation of the N differences l_i, with divisor N. Broadcasts with `mu`.
    N : int
        Number of local terms.
    batch_size : int in [2, N]
        Terms in a batch.
    epsilon : float in [0, 0.5]
        Tolerance of a single look.
    boundary : float in [0.5, 1], default 0.5
        Shape of the stopping boundary.

    Returns
    -------
    float or ndarray
        In [-P_a, 1 - P_a]; negative if the test accepts too rarely.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Equation 6 of Korattikara et al. (2014), by quadrature over log u with
    mu_std(u) = (N mu - log u) sqrt(N - 1) / (N sigma_l). For u < P_a a wrong decision rejects, for u > P_a it
    accepts, so that errors cancel in part; where P_a = 1 nothing cancels. Where sigma_l = 0 all terms are
    equal. Our rule then decides nothing before it has read all of them, and makes no error.

    *Guarantee*: exact for means of batches that are normal with known variance.

    *When it fails*: as `error`. And the errors of single moves say little about the stationary distribution,
    in which they add up over all moves: see `stationary_error_bound`.

    References
    ----------
    .. [1] Korattikara, A., Chen, Y. & Welling, M. (2014). Austerity in MCMC land: cutting the
       Metropolis-Hastings budget. ICML.

    Examples
    --------
    Three moves with N mu = 0, -1 and -3 (acceptance probabilities 1, .37 and .05), the sum of whose terms has
    a standard deviation of 3:

    >>> import numpy as np
    >>> from pymc_austerity.design import acceptance_error
    >>> N, moves = 10_000, np.array([0.0, -1.0, -3.0])
    >>> acceptance_error(moves / N, 3 / np.sqrt(N), N, batch_size=500, epsilon=0.05).round(3)
    array([-0.183,  0.061,  0.093])
    """
    mu, sigma_l, shape = _moves(mu, sigma_l)
    return _shaped(decision_errors(mu, sigma_l, N, batch_size, epsilon, boundary).signed, shape)


def expected_data_usage(
    mu: npt.ArrayLike,
    sigma_l: npt.ArrayLike,
    N: int,
    *,
    batch_size: int,
    epsilon: float,
    boundary: float = 0.5,
) -> float | Array:
    """Expected share of the data that the decision about a move reads, on average over u.

    Parameters
    ----------
    mu, sigma_l, N, batch_size, epsilon, boundary
        As of `acceptance_error`.

    Returns
    -------
    float or ndarray
        In [batch_size / N, 1].

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    The objective of equation 7 of Korattikara et al. (2014), for one move. It is 1 where sigma_l = 0.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_austerity.design import expected_data_usage
    >>> N, moves = 10_000, np.array([0.0, -1.0, -3.0])
    >>> expected_data_usage(moves / N, 3 / np.sqrt(N), N, batch_size=500, epsilon=0.05).round(3)
    array([0.612, 0.63 , 0.547])
    """
    mu, sigma_l, shape = _moves(mu, sigma_l)
    return _shaped(decision_errors(mu, sigma_l, N, batch_size, epsilon, boundary).data_usage, shape)


def decision_errors(
    mu: Array, sigma_l: Array, N: int, batch_size: int, epsilon: float, boundary: float
) -> DecisionErrors:
    """`DecisionErrors` of moves (mu, sigma_l), arrays of one length."""
    batch, n_local = check_batch(batch_size, N)
    for name, value in (("epsilon", epsilon), ("boundary", boundary)):
        check_real(name, value, -np.inf, np.inf, "a number")
    check_epsilon(epsilon)
    check_boundary(boundary)
    curves = LawCurves(batch / n_local, float(epsilon), float(boundary))
    signed, absolute = np.zeros(len(mu)), np.zeros(len(mu))
    used = np.where(sigma_l > 0.0, 1.0 if curves.reads_all else curves.pi_1, 1.0)
    rows = np.flatnonzero((sigma_l > 0.0) & np.isfinite(mu))
    if rows.size and not curves.reads_all:
        log_ratio = n_local * mu[rows]
        sd_sum = n_local * sigma_l[rows] / np.sqrt(n_local - 1.0)
        right = _part(log_ratio, sd_sum, curves, 1.0)  # u < P_a: to accept is right
        left = _part(log_ratio, sd_sum, curves, -1.0)
        signed[rows] = left[0] - right[0]
        absolute[rows] = left[0] + right[0]
        used[rows] = np.clip(curves.pi_1 + left[1] + right[1], curves.pi_1, 1.0)
    return DecisionErrors(signed, absolute, used)


def _part(log_ratio: Array, sd_sum: Array, curves: LawCurves, side: float) -> tuple[Array, Array]:
    """Integrals over u of the error, and of what is read beyond the first batch, on one side of P_a.

    With s = |mu_std| the integral is over s; v = -log u = side * s * sd_sum - log_ratio, and du = e^-v dv.
    """
    # v runs from 0 to `_RARE`; where P_a lies between, up to it on one side and from it on the other.
    ends = np.clip(-log_ratio, 0.0, _RARE)
    first, last = (ends, np.full_like(ends, _RARE)) if side > 0 else (np.zeros_like(ends), ends)
    # Rounding must not make a distance from P_a negative.
    near, far = (np.maximum(side * (v + log_ratio) / sd_sum, 0.0) for v in (first, last))
    low, high = np.minimum(near, far), np.maximum(near, far)
    x, weights = roots_legendre(_NODES)
    begin, end = (np.arcsinh(np.minimum(s, curves.end) / curves.unit) for s in (low, high))
    half = 0.5 * (end - begin)[:, None]
    position = begin[:, None] + half * (1.0 + x)
    s = curves.unit * np.sinh(position)
    v = side * s * sd_sum[:, None] - log_ratio[:, None]
    # Past the ends only by rounding.
    density = np.exp(-np.maximum(v, 0.0)) * sd_sum[:, None] * curves.unit * np.cosh(position) * half * weights
    test = curves(s)
    return np.sum(density * test.error, axis=1), np.sum(density * (test.data_usage - curves.pi_1), axis=1)


def _moves(mu: Any, sigma_l: Any) -> tuple[Array, Array, tuple[int, ...]]:
    mu, sigma_l = numbers("mu", mu), numbers("sigma_l", sigma_l)
    wrong = sigma_l[~((sigma_l >= 0.0) & (sigma_l < np.inf))]
    if wrong.size:
        raise ValueError(f"sigma_l must be finite and not negative, got {float(wrong[0])!r}.")
    shape = np.broadcast_shapes(mu.shape, sigma_l.shape)
    return np.broadcast_to(mu, shape).ravel(), np.broadcast_to(sigma_l, shape).ravel(), shape


def _shaped(found: Array, shape: tuple[int, ...]) -> float | Array:
    return float(found[0]) if shape == () else found.reshape(shape)
