"""The adaptive stopping rule of Bardenet, Doucet & Holmes (2014), on concentration bounds."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from pymc_austerity.acceptance.base import (
    Decide,
    MetropolisRule,
    RuleFunctions,
    Sample,
    Schedule,
    above,
    growing_ends,
    log_uniform,
)
from pymc_austerity.compilation import jitable
from pymc_austerity.validation import first_batch, require_real, require_whole

Bound = Literal["hoeffding-serfling", "empirical-bernstein", "empirical-bernstein-serfling"]

# Constant of the empirical Bernstein-Serfling bound (Bardenet & Maillard 2015, theorem 4.3).
_KAPPA = 7.0 / 3.0 + 3.0 / math.sqrt(2.0)


@dataclass(frozen=True)
class Concentration(MetropolisRule):
    r"""Stop once mean(l_i) is further from psi than a concentration bound allows it to be wrong.

    Parameters
    ----------
    delta : float in (0, 1), default 0.01
        Largest probability of a wrong decision, for each decision.
    p : float > 1, default 2.0
        Look t spends the part (p - 1) / (p t^p) of `delta`.
    growth : float > 1, default 2.0
        Factor by which the subsample grows from look to look.
    batch_size : int >= 1, optional
        Terms read before the first look. Default: 1.
    bound : str, default "empirical-bernstein-serfling"
        Which bound on \|mean of a sample - mean of all\|: "hoeffding-serfling", "empirical-bernstein" or
        "empirical-bernstein-serfling", as in `hoeffding_serfling`, `empirical_bernstein` and
        `empirical_bernstein_serfling` of this module.

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Figure 3 of Bardenet et al. (2014) with its errata: the look is counted before its share of delta is
    spent, the sample size is updated to what was read, and reading stops at t = N with the exact answer.

    *Guarantee*: provided that `width` bounds the range of all N log ratios, each decision equals that of the
    exact test with the same u and the same proposal, but for a probability of at most `delta` (the shares of
    the looks add up to less than delta; equation 11). Lemma 3.1 and proposition 3.2 follow: acceptance
    probabilities differ by at most delta, and for a uniformly ergodic chain (equation 15) the stationary
    distribution by at most A m delta / (1 - rho) in total variation. The first two bounds hold on both sides
    of the mean. The third is one-sided, with probability 1 - 5 delta_t: given psi, a decision can be wrong on
    one side only.

    *When it fails*: with a width that is too small it guarantees nothing, so the range seen in a batch is
    never used for it. At equilibrium \|psi - mean\| is of the order of the standard error at n = N, and it
    reads half to all of the data.

    Examples
    --------
    >>> from pymc_austerity.acceptance import Concentration
    >>> rule = Concentration(delta=0.01, batch_size=100)
    >>> rule.bind(n_local=1000).ends
    array([ 100,  200,  400,  800, 1000])

    `MHSubLhd` uses it: ``MHSubLhd(delta=0.01)``.
    """

    delta: float = 0.01
    p: float = 2.0
    growth: float = 2.0
    batch_size: int | None = None
    bound: Bound = "empirical-bernstein-serfling"

    default_batch_size: ClassVar[int] = 1
    needs_range = True
    # Blocks of neighbours are a random sample only over the choice of the storage order.
    uniform = True

    def __post_init__(self) -> None:
        why = (
            "It is the largest probability of a wrong decision; smaller values read more data. For the exact "
            "test use Exact()."
        )
        require_real("delta", self.delta, "(0, 1)", why)
        require_real("p", self.p, "(1, inf)", "Otherwise the looks spend more than delta.")
        require_real("growth", self.growth, "(1, inf)")
        if self.batch_size is not None:
            require_whole(1, batch_size=self.batch_size)
        if self.bound not in get_args(Bound):
            raise ValueError(f"bound must be one of {', '.join(get_args(Bound))}, got {self.bound!r}.")

    def bind(self, n_local: int) -> Schedule:
        """Sample sizes, and log(1 / delta_t) for each look."""
        first = first_batch(self.batch_size, self.default_batch_size, n_local)
        sizes = growing_ends(first, self.growth, n_local)
        looks = np.arange(1, len(sizes) + 2)
        log_shares = math.log((self.p - 1.0) / self.p * self.delta) - self.p * np.log(looks)
        return Schedule(np.array([*sizes, n_local], dtype=np.int64), -log_shares)

    def error_bound(self, n_local: int) -> float:
        """Lemma 3.1: delta, whatever the data."""
        return self.delta

    @property
    def functions(self) -> RuleFunctions:
        """Stop when psi is outside the confidence interval, or nothing is left to draw."""
        return RuleFunctions(log_uniform, _DECIDE[self.bound], above)


# The radii c_t of confidence intervals: P(|mean of t terms - mean of all n| > c_t) <= delta_t. They depend on
# t and n, on the standard deviation of the terms read (divisor t), on a bound `width` of the range of all n
# terms, and on log(1 / delta_t). All have the same parameters, used or not.


@jitable
def hoeffding_serfling(t: int, n: int, sd: float, width: float, log_share: float) -> float:
    """Equation 7, where C is half the width: valid on both sides."""
    return 0.5 * width * math.sqrt(2.0 * (1.0 - (t - 1.0) / n) * (math.log(2.0) + log_share) / t)


@jitable
def empirical_bernstein(t: int, n: int, sd: float, width: float, log_share: float) -> float:
    """Equation 9 (Audibert et al. 2009): valid on both sides."""
    x = math.log(3.0) + log_share
    return sd * math.sqrt(2.0 * x / t) + 3.0 * width * x / t


@jitable
def empirical_bernstein_serfling(t: int, n: int, sd: float, width: float, log_share: float) -> float:
    """Theorem 4.3 of Bardenet & Maillard (2015), on one side.

    rho_t, the share of the variance that is left without replacement, changes its form at n / 2.
    """
    rho = 1.0 - (t - 1.0) / n if 2 * t <= n else (1.0 - t / n) * (1.0 + 1.0 / t)
    x = math.log(5.0) + log_share
    return sd * math.sqrt(2.0 * rho * x / t) + _KAPPA * width * x / t


@jitable
def outside_hoeffding(schedule: Schedule, stage: int, sample: Sample, psi: float, width: float) -> bool:
    """Is psi outside the interval of `hoeffding_serfling`?"""
    t, n = sample.n, sample.n_local
    return t == n or abs(sample.mean - psi) > hoeffding_serfling(t, n, 0.0, width, schedule.bounds[stage])


@jitable
def outside_bernstein(schedule: Schedule, stage: int, sample: Sample, psi: float, width: float) -> bool:
    """Is psi outside the interval of `empirical_bernstein`?"""
    t, n, sd = sample.n, sample.n_local, math.sqrt(sample.m2 / sample.n)
    return t == n or abs(sample.mean - psi) > empirical_bernstein(t, n, sd, width, schedule.bounds[stage])


@jitable
def outside_bernstein_serfling(
    schedule: Schedule, stage: int, sample: Sample, psi: float, width: float
) -> bool:
    """Is psi outside the interval of `empirical_bernstein_serfling`?"""
    t, n, sd = sample.n, sample.n_local, math.sqrt(sample.m2 / sample.n)
    radius = empirical_bernstein_serfling(t, n, sd, width, schedule.bounds[stage])
    return t == n or abs(sample.mean - psi) > radius


_DECIDE: dict[Any, Decide] = {
    "hoeffding-serfling": outside_hoeffding,
    "empirical-bernstein": outside_bernstein,
    "empirical-bernstein-serfling": outside_bernstein_serfling,
}
