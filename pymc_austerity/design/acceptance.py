"""What the errors of a test do to the acceptance probability of a move, and to a chain."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import roots_legendre

from pymc_austerity.design.checks import RANGES, TERMS, as_given, numbers
from pymc_austerity.design.sequential import LawCurves
from pymc_austerity.target import Array
from pymc_austerity.validation import require_real, require_whole

# -log u beyond which no u lies (4e-18), and nodes for each part of the integral.
_RARE, _NODES = 40.0, 96


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
    return as_given(decision_errors(mu, sigma_l, N, batch_size, epsilon, boundary).signed)


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
    return as_given(decision_errors(mu, sigma_l, N, batch_size, epsilon, boundary).data_usage)


def stationary_error_bound(delta_max: npt.ArrayLike, eta: npt.ArrayLike) -> float | Array:
    r"""Bound on the distance of a chain with approximate decisions from the posterior.

    Parameters
    ----------
    delta_max : float or array_like in [0, 1]
        Largest error \|Delta\| of the acceptance probability, over all states and moves.
    eta : float or array_like in [0, 1)
        Contraction of the exact chain: a transition brings any distribution nearer to the posterior, in total
        variation, by at least this factor.

    Returns
    -------
    float or ndarray
        Bound on the total variation distance, min(1, delta_max / (1 - eta)).

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Theorem 1 of Korattikara et al. (2014). No distance is above 1, so a bound of 1 says nothing.

    *Guarantee*: for a uniformly ergodic chain, and numbers that are bounds indeed.

    *When it fails*: neither number is known in practice. `acceptance_error` of some moves is no bound for
    all, and unbounded parameter spaces seldom have any eta < 1. The bound shows how the two act together:
    errors that are harmless in a chain that mixes fast add up in one that mixes slowly.

    References
    ----------
    .. [1] Korattikara, A., Chen, Y. & Welling, M. (2014). Austerity in MCMC land: cutting the
       Metropolis-Hastings budget. ICML.

    Examples
    --------
    >>> from pymc_austerity.design import stationary_error_bound
    >>> stationary_error_bound(0.01, 0.9).__round__(6)
    0.1
    """
    error, contraction = numbers("delta_max", delta_max), numbers("eta", eta)
    return as_given(np.minimum(1.0, error / (1.0 - contraction)))


class DecisionErrors(NamedTuple):
    """What a test does with n moves, on average over u."""

    signed: Array  # error of the acceptance probability
    # Probability of a wrong decision, in which errors of different sign do not cancel.
    absolute: Array
    data_usage: Array


def decision_errors(
    mu: npt.ArrayLike, sigma_l: npt.ArrayLike, N: int, batch_size: int, epsilon: float, boundary: float
) -> DecisionErrors:
    """`DecisionErrors` of moves, as of `acceptance_error`."""
    mu, sigma_l = np.broadcast_arrays(numbers("mu", mu), numbers("sigma_l", sigma_l))
    require_whole(2, TERMS, N=N)
    require_whole(2, "One term has no variance to test with.", batch_size=batch_size)
    if batch_size > N:
        raise ValueError(f"batch_size must be at most N = {N}, got {batch_size}.")
    for name, value in (("epsilon", epsilon), ("boundary", boundary)):
        require_real(name, value, *RANGES[name])
    curves = LawCurves(batch_size / N, float(epsilon), float(boundary))
    signed, absolute = np.zeros(mu.shape), np.zeros(mu.shape)
    used = np.where(sigma_l > 0.0, 1.0 if curves.reads_all else curves.pi_1, 1.0)
    rows = (sigma_l > 0.0) & np.isfinite(mu)
    if rows.any() and not curves.reads_all:
        log_ratio = N * mu[rows]
        sd_sum = N * sigma_l[rows] / np.sqrt(N - 1.0)
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
    wrong, used = curves(s)
    return np.sum(density * wrong, axis=1), np.sum(density * (used - curves.pi_1), axis=1)
