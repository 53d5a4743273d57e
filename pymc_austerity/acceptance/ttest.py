"""The sequential t-test of Korattikara, Chen & Welling (2014)."""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from pymc_austerity.acceptance.base import (
    BarkerRule,
    MetropolisRule,
    RuleFunctions,
    Sample,
    Schedule,
    above,
    growing_ends,
    log_uniform,
    logistic,
    standard_error,
)
from pymc_austerity.compilation import jitable
from pymc_austerity.validation import first_batch, is_real, require_real, require_whole

_SMALLEST_TAIL = 1e-200


@dataclass(frozen=True)
class TTest(MetropolisRule):
    """Sequential t-test of mean(l_i) > psi on a subsample that grows without replacement.

    Parameters
    ----------
    epsilon : float in (0, 0.5], default 0.01
        Stop once the estimated probability of a wrong decision falls below this. At 0.5 every
        decision is made on the first batch; for 0 use `Exact`.
    batch_size : int >= 2, optional
        Terms in the first batch. Default: 500, or all of them if there are fewer.
    growth : "constant" or float > 1, default "constant"
        Add `batch_size` terms at each further stage, or multiply the subsample by this factor.
    boundary : float in [0.5, 1], default 0.5
        Shape of the stopping boundary, alpha of Wang and Tsiatis: 0.5 tests every stage at the same level
        (Pocock), 1 is almost certain not to stop early (O'Brien-Fleming).

    Raises
    ------
    ValueError
        If a parameter is out of its range.

    Notes
    -----
    Algorithm 1 of Korattikara et al. (2014) with its errata. After n of the N terms, with
    pi_j = n / N, the test stops if ``|mean - psi|`` exceeds the standard error (equation 4) times the
    quantile of Student's t with n - 1 degrees of freedom at 1 - eps_j, where eps_j = 1 - Phi(G_j) and
    G_j = Phi^-1(1 - epsilon) pi_j^(0.5 - boundary). At n = N it stops with the exact answer. A batch in
    which all terms are equal decides nothing (Chen et al., algorithm 2).

    *Guarantee*: none at finite n. `epsilon` bounds the error of one test if batch means are normal; the error
    of a whole sequence of tests is larger (0.28 instead of 0.05 in the worst case of N = 10000,
    batches of 500 and epsilon = 0.05), and is largest where it matters least, at mean = psi.

    *When it fails*: where a few rows carry most of the variance of the l_i, the subsample misses them and
    the test stops early and wrong, without a sign.

    Examples
    --------
    >>> from pymc_austerity.acceptance import TTest
    >>> rule = TTest(epsilon=0.05, batch_size=500)
    >>> rule.bind(n_local=2200).ends
    array([ 500, 1000, 1500, 2000, 2200])
    >>> rule.bind(n_local=2200).bounds.round(3)
    array([1.648, 1.646, 1.646, 1.646, 1.646])

    `AusterityMH` uses it: ``AusterityMH(epsilon=0.05)``.
    """

    epsilon: float = 0.01
    batch_size: int | None = None
    growth: Literal["constant"] | float = "constant"
    boundary: float = 0.5

    default_batch_size: ClassVar[int] = 500

    def __post_init__(self) -> None:
        why = "Smaller values read more data per decision; for the exact test use Exact()."
        require_real("epsilon", self.epsilon, "(0, 0.5]", why)
        check_stages(self.batch_size, self.growth, self.boundary)

    def bind(self, n_local: int) -> Schedule:
        """Batch ends and critical values of t for a population of `n_local` terms."""
        ends = self._ends(n_local)
        normal = -ndtri(self.epsilon) * (ends / n_local) ** (0.5 - self.boundary)
        # In the lower tail, where small probabilities keep their digits. Below the smallest that scipy can
        # invert, no difference is significant.
        tail = ndtr(-normal)
        invertible = tail > _SMALLEST_TAIL
        bounds = -stdtrit(np.maximum(ends - 1, 1), np.where(invertible, tail, 0.5))
        return Schedule(ends, np.where(invertible, bounds, np.inf))

    def _ends(self, n_local: int) -> np.ndarray:
        batch = first_batch(self.batch_size, self.default_batch_size, n_local)
        if self.growth == "constant":
            inner = list(range(batch, n_local, batch))
        else:
            inner = growing_ends(batch, self.growth, n_local)
        return np.array([*inner, n_local], dtype=np.int64)

    def error_bound(self, n_local: int) -> float:
        """Sum of eps_j over the stages before the last, for normal batch means; at most 1/2."""
        shares = self._ends(n_local)[:-1] / n_local
        return min(0.5, float(np.sum(ndtr(ndtri(self.epsilon) * shares ** (0.5 - self.boundary)))))

    @property
    def functions(self) -> RuleFunctions:
        """Stop at a significant difference, or when nothing is left to draw."""
        return RuleFunctions(log_uniform, significant, above)


@dataclass(frozen=True)
class BarkerTTest(BarkerRule, TTest):
    """The sequential t-test of Barker's decision: accept if the log ratio exceeds a logistic variable.

    With two categories, of which the other one is proposed, it is the Gibbs update of Korattikara et al.
    (2014, appendix F), whose equations 43 and 44 have the sign of log u wrong.

    Notes
    -----
    *Guarantee*, *when it fails*: as of `TTest`.
    """

    @property
    def functions(self) -> RuleFunctions:
        """Functions of `TTest`, with a logistic threshold in place of the logarithm of a uniform one."""
        return RuleFunctions(logistic, significant, above)


def check_stages(batch_size: Any, growth: Any, boundary: Any) -> None:
    """Raise `ValueError` naming a parameter of the stages of a test that is out of its range."""
    if batch_size is not None:
        require_whole(2, "One term has no variance to test with.", batch_size=batch_size)
    if growth != "constant" and not (is_real(growth) and 1.0 < growth < math.inf):
        raise ValueError(f'growth must be "constant" or a number above 1, got {growth!r}.')
    require_real("boundary", boundary, "[0.5, 1]", "0.5 is Pocock's, 1 is O'Brien and Fleming's.")


@jitable
def significant(schedule: Schedule, stage: int, sample: Sample, psi: float, width: float) -> bool:
    """Does the mean differ from psi by more than the critical value of this stage?"""
    if sample.n == sample.n_local:
        return True
    error = standard_error(sample.n, sample.n_local, sample.m2)
    return error > 0.0 and abs(sample.mean - psi) > schedule.bounds[stage] * error
