"""Taylor polynomials of the local terms as control variates."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.validation import is_whole

# Rows that are evaluated at every step, if nobody says how many.
_EXACT_ROWS = 100
# A Hessian of more dimensions is slow to sum and to evaluate at each step.
LARGEST_SECOND_ORDER = 500


class ManyDimensionsError(UnsuitableError):
    """A polynomial of second order has too many coefficients."""


@dataclass(frozen=True, eq=False)
class Taylor:
    """Decide on Taylor remainders r_i = l_i - T_i instead of the local terms l_i.

    Parameters
    ----------
    order : 1 or 2, default 2
        Degree of the polynomials T_i. Up to 500 dimensions for 2.
    center : "mode" or dict, default "mode"
        Where the terms are expanded: at the posterior mode, which is searched for, or at a point given as
        values of the value variables (the unconstrained scale, as in ``model.initial_point()``). Proposals
        are then fitted one Newton step from there.
    exact_rows : int >= 0, optional
        So many rows, those whose remainders are the largest, are evaluated at every step, and the
        subsample is drawn from the others. Default: 100, or a tenth of the rows if that is less.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    The sum of the T_i is one quadratic function Q(q), known from one pass over the data. A move is accepted
    if

        mean over the sampled rows of [r_i(q') - r_i(q)] > psi',
        psi' = (log u - [P(q') - P(q)] - [Q(q') - Q(q)] - log_hastings - S_T) / N'

    with P the global terms (priors; always in full), S_T the sum over the exact rows and N' the number of
    the others. Remainders shrink with the third power of the distance from the center, so that at
    equilibrium their sum varies by some N^(-1/2), and a batch decides. For the derivation see
    :doc:`/explanation/control_variates`; the idea is that of the proxies of Bardenet, Doucet & Holmes (2017).

    *Guarantee*: that of the step's decision rule. The polynomials are subtracted and added again
    exactly; a poor center makes steps read more, not err.

    *When it fails*: the local terms must not depend on variables that other steps move. For posteriors with
    several modes, or far from normal, remainders are as large as the terms, and steps read much of the
    data; a warning says so. The t-test's own failures remain: rows that carry much of the remainder are seen
    only if they are among the exact rows (without any, the coefficient of a covariate that is 1 in ten of
    100,000 rows came out 0.17 standard deviations off), and skewed remainders bias it a little: the log
    overdispersion of a negative binomial regression on 5,000 rows came out 0.014 (0.003) standard deviations
    too small with batches of 50, and 0.001 (0.003) off with ``batch_size=500`` (printed by
    ``examples/remainder_sizes.py --full``). Where all sampled rows have the same remainder (few distinct rows
    of a design) the test reads them all.

    References
    ----------
    .. [1] Bardenet, R., Doucet, A. & Holmes, C. (2017). On Markov chain Monte Carlo methods for tall data.
       JMLR 18.
    .. [2] Baker, J., Fearnhead, P., Fox, E. & Nemeth, C. (2019). Control variates for stochastic gradient
       MCMC. Statistics and Computing 29.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH, Taylor
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step = AusterityMH(control_variate=Taylor())
    ...     idata = pm.sample(100, tune=100, chains=1, step=step, random_seed=1, progressbar=False)
    >>> idata.sample_stats["n_used"].mean().item() < 400  # of 2000 rows
    True
    """

    order: Literal[1, 2] = 2
    center: Literal["mode"] | Mapping[str, Any] = "mode"
    exact_rows: int | None = None

    def __post_init__(self) -> None:
        if not is_whole(self.order) or self.order not in (1, 2):
            raise ValueError(f"order must be 1 or 2, got {self.order!r}.")
        if not isinstance(self.center, Mapping) and not (
            isinstance(self.center, str) and self.center == "mode"
        ):
            raise ValueError(
                'center must be "mode" or a dict with a value for each value variable of the step, got '
                f"{self.center!r}."
            )
        if self.exact_rows is not None and not (is_whole(self.exact_rows) and self.exact_rows >= 0):
            raise ValueError(f"exact_rows must be an integer >= 0, got {self.exact_rows!r}.")

    def check_size(self, n_dim: int, n_local: int) -> int:
        """Number of exact rows for D = `n_dim` and N = `n_local`.

        Raises
        ------
        UnsuitableError
            If there are too many dimensions.
        ValueError
            If there are too few rows.
        """
        if self.order == 2 and n_dim > LARGEST_SECOND_ORDER:
            raise ManyDimensionsError(
                f"Taylor(order=2) takes up to {LARGEST_SECOND_ORDER} dimensions, and the block has {n_dim}. "
                "Use pm.NUTS, or a smaller block."
            )
        if self.exact_rows is None:
            return min(_EXACT_ROWS, n_local // 10)
        if self.exact_rows > n_local - 2:
            raise ValueError(
                f"exact_rows={self.exact_rows} leaves too few of the {n_local} local terms to sample from."
            )
        return int(self.exact_rows)
