"""Error of the stationary distribution, from the error of a transition."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from pymc_austerity.design.checks import numbers
from pymc_austerity.target import Array


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
    if np.any((error < 0.0) | (error > 1.0)):
        raise ValueError(f"delta_max must be in [0, 1], got {delta_max!r}.")
    if np.any((contraction < 0.0) | (contraction >= 1.0)):
        raise ValueError(
            f"eta must be in [0, 1), got {eta!r}: a chain that does not contract may drift anywhere."
        )
    bound = np.minimum(1.0, error / (1.0 - contraction))
    return float(bound) if bound.ndim == 0 else bound
