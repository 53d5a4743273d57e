"""Error and data usage of one sequential test."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from pymc_austerity.design.checks import check_boundary, check_epsilon, check_share, numbers
from pymc_austerity.design.sequential_walk import operating_characteristics
from pymc_austerity.target import Array


def error(
    mu_std: npt.ArrayLike, pi_1: npt.ArrayLike, epsilon: npt.ArrayLike, *, boundary: npt.ArrayLike = 0.5
) -> float | Array:
    r"""Probability that a sequential test decides wrongly.

    Parameters
    ----------
    mu_std : float or array_like
        Standardised distance of the mean from the threshold, (mean - psi) sqrt(N - 1) / sigma, with sigma the
        standard deviation of all N terms (divisor N). May be infinite.
    pi_1 : float or array_like in [5e-5, 1]
        Share of the data in a batch, batch_size / N.
    epsilon : float or array_like in [0, 0.5]
        Tolerance of a single look at the data. At 0 the test is exact.
    boundary : float or array_like in [0.5, 1], default 0.5
        Shape of the stopping boundary, as of `TTest`: 0.5 is Pocock's, 1 is O'Brien and Fleming's.

    Returns
    -------
    float or ndarray
        In [0, 0.5]; a float if all parameters are numbers, otherwise of their broadcast shape.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Equation 21 of Korattikara et al. (2014) with its errata: at stage j the test stops if the z-statistic is
    beyond G_j = Phi^-1(1 - epsilon) pi_j^(1/2 - boundary); the last stage reads all terms and is exact. For
    mu_std >= 0 this is the probability of deciding mean < psi, for mu_std < 0 that of deciding mean > psi. At
    mu_std = 0 it is half the probability of stopping early, the limit from both sides and the largest value.
    By quadrature, to 1e-9; the work grows with the square of the number of stages.

    *Guarantee*: exact for means of batches that are normal with known variance.

    *When it fails*: where a batch is too small for the central limit theorem, as with skewed or heavy-tailed
    terms, real errors may be far larger. See `pymc_austerity.diagnostics.normality`.

    References
    ----------
    .. [1] Korattikara, A., Chen, Y. & Welling, M. (2014). Austerity in MCMC land: cutting the
       Metropolis-Hastings budget. ICML.
    .. [2] Wang, S. K. & Tsiatis, A. A. (1987). Approximately optimal one-parameter boundaries for group
       sequential trials. Biometrics 43.

    Examples
    --------
    Ten thousand terms in batches of 500. At the threshold a tolerance of .01 for each look becomes an error
    of .08 for the test:

    >>> from pymc_austerity.design import error
    >>> round(error(0.0, 500 / 10_000, 0.01), 4)
    0.0838
    >>> error([0.0, 1.0, 4.0], 500 / 10_000, 0.01).round(4)
    array([0.0838, 0.0141, 0.0007])
    """
    return _broadcast(mu_std, pi_1, epsilon, boundary)[0]


def data_usage(
    mu_std: npt.ArrayLike, pi_1: npt.ArrayLike, epsilon: npt.ArrayLike, *, boundary: npt.ArrayLike = 0.5
) -> float | Array:
    """Expected share of the data that a sequential test reads.

    Parameters
    ----------
    mu_std, pi_1, epsilon, boundary
        As of `error`.

    Returns
    -------
    float or ndarray
        In [pi_1, 1]; a float if all parameters are numbers, otherwise of their broadcast shape.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Equation 22 of Korattikara et al. (2014), as `error`. Guarantee and failures are those of `error`.

    Examples
    --------
    >>> from pymc_austerity.design import data_usage
    >>> data_usage([0.0, 1.0, 4.0], 500 / 10_000, 0.01).round(4)
    array([0.9073, 0.7228, 0.2595])
    """
    return _broadcast(mu_std, pi_1, epsilon, boundary)[1]


def _broadcast(mu_std: Any, pi_1: Any, epsilon: Any, boundary: Any) -> tuple[float | Array, float | Array]:
    """Error and data usage in the shape of all arguments, with one pass for each distinct test."""
    given = (
        np.abs(numbers("mu_std", mu_std)),
        check_share(pi_1),
        check_epsilon(epsilon),
        check_boundary(boundary),
    )
    shape = np.broadcast_shapes(*(part.shape for part in given))
    mu_std, *tests = (np.broadcast_to(part, shape).ravel() for part in given)
    wrong, used = np.empty(len(mu_std)), np.empty(len(mu_std))
    distinct, which = np.unique(np.stack(tests, axis=1), axis=0, return_inverse=True)
    for k, test in enumerate(distinct):
        rows = which.ravel() == k
        wrong[rows], used[rows] = operating_characteristics(mu_std[rows], *map(float, test))
    if shape == ():
        return float(wrong[0]), float(used[0])
    return wrong.reshape(shape), used.reshape(shape)
