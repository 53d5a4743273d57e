"""How long the adaptive stopping rule of Bardenet et al. (2014) reads."""

import math

import numpy as np
import numpy.typing as npt
import scipy

from pymc_austerity.design.checks import as_given, numbers
from pymc_austerity.target import Array
from pymc_austerity.validation import require_real, require_whole

# Constant of the empirical Bernstein-Serfling bound (Bardenet & Maillard 2015, theorem 4.3).
_KAPPA = 7.0 / 3.0 + 3.0 / math.sqrt(2.0)


def stopping_time_bound(
    distance: npt.ArrayLike,
    max_abs: npt.ArrayLike,
    delta: float,
    *,
    p: float = 2.0,
    growth: float = 1.0,
    batch_size: int = 1,
    N: int | None = None,
) -> float | Array:
    r"""Number of terms that Hoeffding's stopping rule does not exceed, with probability 1 - delta.

    Parameters
    ----------
    distance : float or array_like >= 0
        \|mean - psi\|, of the mean of all N differences from the threshold.
    max_abs : float or array_like > 0
        Bound C on all \|l_i\|, or half the width of any interval that holds them. Broadcasts with `distance`.
    delta : float in (0, 1)
        Probability budget of a decision, as of `Concentration`.
    p : float > 1, default 2.0
        Look t spends the part (p - 1) / (p t^p) of `delta`.
    growth : float >= 1, default 1.0
        Factor by which the subsample grows from look to look; 1 is a look after each term, as in the
        proposition. The default of `Concentration` is 2.
    batch_size : int >= 1, default 1
        Terms before the first look.
    N : int, optional
        Number of terms: nothing is read beyond them.

    Returns
    -------
    float or ndarray
        Whole numbers; infinite where `distance` is 0 and N is not given.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Proposition 3.3 of Bardenet et al. (2014): with D = distance / (2 C) (equation 20),

        T <= ceil(4 / D^2 (p log(4 p / D^2) + log(2 p / (delta (p - 1))))).

    With looks that grow geometrically, the first look at or after this bound is at most `growth` times as
    late. At a look of the same size fewer looks have been counted than in the proposition, so more of delta
    is left for it, and the bound holds a fortiori.

    *Guarantee*: holds for `Concentration(bound="hoeffding-serfling")`, whose `width` is 2 C. It is loose,
    by a factor of two and more.

    *When it fails*: it is no bound for the two rules that use the empirical variance. They stop sooner where
    the variance is small against the range, and may stop later where it is not.

    References
    ----------
    .. [1] Bardenet, R., Doucet, A. & Holmes, C. (2014). Towards scaling up Markov chain Monte Carlo: an
       adaptive subsampling approach. ICML.

    Examples
    --------
    >>> from pymc_austerity.design import stopping_time_bound
    >>> stopping_time_bound(0.5, 1.0, 0.01)
    1005.0
    >>> stopping_time_bound([0.5, 0.05, 0.005], 1.0, 0.01, growth=2.0, N=100_000)
    array([  2010., 100000., 100000.])
    """
    away, most = numbers("distance", distance), numbers("max_abs", max_abs)
    _check_looks(delta, p, batch_size)
    if N is not None:
        require_whole(1, _NUMBER, N=N)
    require_real("growth", growth, "[1, inf)")
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        inverse = 4.0 / (away / (2.0 * most)) ** 2
        # Below 0 where the distance is so large that one term is enough.
        bound = np.ceil(inverse * (p * np.log(p * inverse) + math.log(2.0 * p / (delta * (p - 1.0)))))
        bound = np.where(np.isinf(inverse), np.inf, np.where(inverse > 0.0, np.maximum(bound, 1.0), 1.0))
        late = np.maximum(np.ceil(growth * bound), batch_size)
    return as_given(np.minimum(late, math.inf if N is None else N))


def expected_share(
    sd_sum: npt.ArrayLike,
    N: int,
    delta: float = 0.01,
    *,
    relative_range: float = 0.0,
    p: float = 2.0,
    growth: float = 2.0,
    batch_size: int = 1,
) -> float | Array:
    r"""Share of the data that a concentration rule is expected to read at equilibrium: will it gain anything?

    Parameters
    ----------
    sd_sum : float or array_like > 0
        Standard deviation S of the sum of N terms, sqrt(N) times that of a term. A random walk with steps of
        covariance 2.38^2 / D times that of the posterior has S = 2.38, whatever N.
    N : int
        Number of terms.
    delta : float in (0, 1), default 0.01
        Probability budget of a decision, as of `Concentration`.
    relative_range : float >= 0, default 0.0
        Bound on the range of the terms that the rule will use, in standard deviations of a term. At 0 only
        what is due to the variance counts.
    p, growth, batch_size
        As of `Concentration`, with the same defaults.

    Returns
    -------
    float or ndarray
        In (0, 1].

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Section 3.2.2 of Bardenet et al. (2014), in numbers. At equilibrium, for a normal posterior and moves
    with log ratios of variance S^2, the log acceptance ratio is N(-S^2 / 2, S^2), for S^2 = Tr(H Gamma)
    with H the precision of the posterior and Gamma the covariance of the steps; it is compared with log u.
    The rule stops after t terms if their distance is beyond N times the empirical Bernstein-Serfling bound,
    which is S sqrt(2 x (1 - t / N) N / t) + kappa R S sqrt(N) x / t, with x = log(5 / delta_t), R the
    relative range and kappa = 4.45. For steps of the size of the posterior S does not depend on N, and
    neither does the share, but for logarithms: no gain of orders of magnitude.

    *Guarantee*: none, it is a heuristic: the mean and the variance of the subsample are taken to be right.

    *When it fails*: on the way to the mode, where decisions are clear, less is read; with heavy-tailed
    terms, whose range is many standard deviations, far more than with `relative_range=0`.

    References
    ----------
    .. [1] Bardenet, R., Doucet, A. & Holmes, C. (2014). Towards scaling up Markov chain Monte Carlo: an
       adaptive subsampling approach. ICML.

    Examples
    --------
    Steps of the size of the posterior read nearly everything; remainders of Taylor polynomials with S = 0.05
    do not, unless their range is large:

    >>> from pymc_austerity.design import expected_share
    >>> expected_share([2.38, 0.5, 0.05], 100_000).round(3)
    array([0.999, 0.934, 0.337])
    >>> round(expected_share(0.05, 100_000, relative_range=20.0), 3)
    0.609
    """
    spread = numbers("sd_sum", sd_sum)
    _check_looks(delta, p, batch_size)
    require_whole(1, _NUMBER, N=N)
    require_real("growth", growth, "(1, inf)")
    require_real("relative_range", relative_range, "[0, inf)")
    # Distance of the log ratio from log u: a normal variable plus an exponential one.
    distance = scipy.stats.exponnorm(1.0 / spread, loc=-0.5 * spread**2, scale=spread)
    t, look = min(batch_size, N), 1
    share = np.full(spread.shape, t / N)
    while t < N:
        x = math.log(5.0 * p / ((p - 1.0) * delta)) + p * math.log(look)
        radius = math.sqrt(2.0 * x * (N / t - 1.0))
        reach = spread * (radius + _KAPPA * relative_range * math.sqrt(N) * x / t)
        following = min(max(t + 1, math.ceil(growth * t)), N)
        share += (following - t) / N * (distance.cdf(reach) - distance.cdf(-reach))
        t, look = following, look + 1
    return as_given(share)


_NUMBER = "It is the number of terms."


def _check_looks(delta: float, p: float, batch_size: int) -> None:
    require_real("delta", delta, "(0, 1)", "It is the largest probability of a wrong decision.")
    require_real("p", p, "(1, inf)", "Otherwise the looks spend more than delta.")
    require_whole(1, "Terms are read before the first look.", batch_size=batch_size)
