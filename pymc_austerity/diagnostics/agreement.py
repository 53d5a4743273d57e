"""How far two samples of a posterior are apart."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import scipy

from pymc_austerity.diagnostics.result import ess, mcse, scalars
from pymc_austerity.exceptions import warn
from pymc_austerity.target import Array

_COLUMNS = [
    "shift",
    "shift_error",
    "sd_ratio",
    "sd_ratio_error",
    "ks",
    "ks_pvalue",
    "wasserstein",
    "ess_a",
    "ess_b",
]
# Distance of thinned draws, in draws for each effective one.
_APART = 1.5


class NotComparableError(ValueError):
    """Two samples are not of the same variables."""


def agreement(idata_a: Any, idata_b: Any, *, var_names: str | Sequence[str] | None = None) -> pd.DataFrame:
    """Compare two samples of one posterior, scalar by scalar.

    Parameters
    ----------
    idata_a, idata_b : DataTree
        Results of `pymc.sample`. The second is the reference: differences are in its standard deviations.
    var_names : str or list of str, optional
        Default: all variables that both have.

    Returns
    -------
    DataFrame
        One row for each scalar:

        * ``shift``: difference of the means, in standard deviations of the reference, and ``shift_error``,
          its Monte Carlo standard error from both samples.
        * ``sd_ratio``: ratio of the standard deviations, and ``sd_ratio_error``.
        * ``ks``: largest difference of the distribution functions of all draws, and ``ks_pvalue``, the
          p-value of this test for the draws thinned until they are nearly independent.
        * ``wasserstein``: mean distance of the quantiles, in standard deviations of the reference. It is
          positive for two samples of one distribution: some 1 / sqrt(ESS).
        * ``ess_a``, ``ess_b``: effective sample sizes (bulk).

        A constant that both samples have agrees perfectly. What cannot be computed is NaN: with draws that
        are not finite, or a constant in one sample only.

    Raises
    ------
    ValueError
        If a sample has no posterior, the two have no variable in common, or a variable of another shape.

    Warns
    -----
    SubsamplingWarning
        If a scalar has draws that are not finite; its row is NaN.

    Notes
    -----
    *Guarantee*: for long chains that mix, ``shift / shift_error`` is standard normal if the two distributions
    are equal. With many scalars some are beyond 2: for K of them compare with the normal quantile at
    1 - 0.05 / (2 K).

    *When it fails*: the errors are estimated from the chains. Chains that have not found all modes, or are
    shorter than some hundred effective draws, are more apart than they say. ``sd_ratio_error`` needs a fourth
    moment: of two samples of a Cauchy distribution the sds differ by more than three errors in a quarter of
    the cases. Equal marginal distributions do not make equal joint ones.

    References
    ----------
    .. [1] Vehtari, A., Gelman, A., Simpson, D., Carpenter, B. & Buerkner, P.-C. (2021). Rank-normalization,
       folding, and localization: an improved R-hat for assessing convergence of MCMC. Bayesian Analysis 16.

    Examples
    --------
    >>> import numpy as np
    >>> from arviz import from_dict
    >>> from pymc_austerity.diagnostics import agreement
    >>> rng = np.random.default_rng(1)
    >>> exact = from_dict({"posterior": {"mu": rng.normal(0.0, 1.0, (4, 1000))}})
    >>> wide = from_dict({"posterior": {"mu": rng.normal(0.3, 1.2, (4, 1000))}})
    >>> agreement(wide, exact)[["shift", "shift_error", "sd_ratio", "sd_ratio_error", "ks"]].round(2)
        shift  shift_error  sd_ratio  sd_ratio_error    ks
    mu    0.3         0.02      1.19            0.02  0.13
    """
    a = scalars(idata_a, var_names, what="idata_a")
    b = scalars(idata_b, var_names, what="idata_b")
    common = [name for name in b if name in a]
    if var_names is not None and set(a) != set(b):
        odd = sorted(set(a) ^ set(b))
        raise NotComparableError(
            f"{', '.join(odd[:3])} is in one of the samples only: a variable has two shapes."
        )
    if not common:
        raise NotComparableError(
            f"The two samples have no scalar in common: {', '.join(list(a)[:5])} and "
            f"{', '.join(list(b)[:5])}."
        )
    infinite = [n for n in common if not (np.all(np.isfinite(a[n])) and np.all(np.isfinite(b[n])))]
    if infinite:
        warn(f"Draws of {', '.join(infinite[:5])} are not finite; their rows of the table are NaN.")
    rows = [[math.nan] * len(_COLUMNS) if n in infinite else _compare(a[n], b[n]) for n in common]
    return pd.DataFrame(rows, index=common, columns=_COLUMNS)


def _compare(a: Array, b: Array) -> list[float]:
    """The row of one scalar."""
    is_constant = [np.ptp(x) == 0.0 for x in (a, b)]
    if all(is_constant) and a.flat[0] == b.flat[0]:
        return [0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 0.0, math.nan, math.nan]
    ks = float(scipy.stats.ks_2samp(a.ravel(), b.ravel(), method="asymp").statistic)
    if any(is_constant):  # no unit, or no Monte Carlo error
        return [*[math.nan] * 4, ks, *[math.nan] * 4]
    sd_a, sd_b = float(a.std(ddof=1)), float(b.std(ddof=1))
    ratio = sd_a / sd_b
    return [
        (float(a.mean()) - float(b.mean())) / sd_b,
        math.hypot(mcse(a), mcse(b)) / sd_b,
        ratio,
        ratio * math.hypot(mcse(a, "sd") / sd_a, mcse(b, "sd") / sd_b),
        ks,
        float(scipy.stats.ks_2samp(_thinned(a), _thinned(b), method="asymp").pvalue),
        float(scipy.stats.wasserstein_distance(a.ravel(), b.ravel())) / sd_b,
        ess(a),
        ess(b),
    ]


def _thinned(draws: Array) -> Array:
    """Draws that are nearly independent: a regular part of each chain, two for three effective draws.

    The limit distribution of the distance is one of independent draws. Putting the effective sample size of a
    mean into it makes p-values far too large, for distribution functions of dependent draws vary less than
    their mean. Effective draws are those of the location or of the scale, whichever mixes more slowly: in
    chains whose draws alternate about the mean, or whose scale changes slowly, the location alone hides it.
    """
    sizes = [ess(draws), ess(np.abs(draws - np.median(draws))), float(draws.size)]
    size = float(np.nanmin(sizes))
    every = math.ceil(_APART * draws.size / size) if size > 1.0 else draws.size
    return draws[:, ::every].ravel()
