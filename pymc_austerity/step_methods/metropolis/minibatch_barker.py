"""Minibatch Barker steps."""

from collections.abc import Sequence
from typing import Unpack

from pytensor.graph.basic import Variable

from pymc_austerity.acceptance.barker import Barker
from pymc_austerity.exceptions import warn
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.options import CommonOptions, default_batch
from pymc_austerity.step_methods.metropolis.plan import Plan


class MinibatchBarker(SubsampledStep):
    """Barker's test with the noise of a minibatch as part of its randomness.

    Parameters
    ----------
    vars : variables or their names, optional
        Continuous variables to update together. Default: all of the model.
    batch_size : int >= 2, optional
        Terms in the first batch, and added until the variance of the estimated log ratio is below 1.
        Default: 100, with a control variate 50, or all of them if there are fewer.
    temperature : float > 0, default 1.0
        Divides the log likelihood (observed variables and potentials), but not the prior.
    max_error : float > 0, optional
        Read on until the bound of corollary 1 on the distance of the batch mean from a normal variable is
        below this. It never is for fewer than (8.4 / max_error)^2 terms, 7056 for 0.1, so it is off by
        default.
    pilot : bool, default False
        The first batch only says how many rows decide, and as many others do. Twice the rows, and no error by
        the rule that stops the reading.
    skew_correction : bool, default False
        With `pilot` only: without the error that skewed log ratios make, to first order.
    **options
        Those of every subsampled step: see `MetropolisHastings`.

    Raises
    ------
    ValueError
        If a parameter is out of range, or the model has nothing to subsample.
    FactorisationError
        If rows of a term cannot be computed one by one.

    Notes
    -----
    Algorithm 1 of Seita, Pan, Chen & Canny (2017), with its errata; see `acceptance.Barker`.

    *Guarantee*: none at finite n; exact up to 1e-6 if batch means are normal with the variance that the batch
    shows. How many terms are read depends on their variance only: about N^2 s_l^2 (1 - n / N), however close
    the decision is. If s^2 is not below 1 at the end of any batch before the last, all are read and the test
    is exact. With `pilot` the sample statistic `clipped` is the share of decisions whose variance was above
    1, and taken as 1.

    *When it fails*: for skewed l_i, and where a few rows carry their variance. At temperature 1 and with a
    proposal of the size of the posterior the variance of the log ratio of all terms is of the order of 1, and
    below 1 only after a good part of the data are read: it is made for high temperatures and small steps.
    Batches that understate their variance stop the reading: in the mixture of Seita et al. posterior standard
    deviations are about 2 % too small with batches of 100; with `pilot`, which reads 339 rows instead of 202,
    or with 200 or 1000 no consistent difference is seen (with 1000 they are 1.015 times the exact ones at one
    seed, z = 3.2, and .997 times at another; ``examples/barker_mixture.py --full``).

    References
    ----------
    .. [1] Seita, D., Pan, X., Chen, H. & Canny, J. (2017). An efficient minibatch acceptance test for
       Metropolis-Hastings. UAI.
    .. [2] Barker, A. A. (1965). Monte Carlo calculations of the radial distribution functions for a
       proton-electron plasma. Australian Journal of Physics 18.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import MinibatchBarker, RandomWalk
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step = MinibatchBarker(temperature=100, proposal=RandomWalk(0.05))
    ...     idata = pm.sample(100, tune=100, chains=1, step=step, random_seed=1, progressbar=False)
    >>> 0 < idata.sample_stats["fraction_used"].mean().item() < 1
    True
    """

    name = "minibatch_barker"

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        batch_size: int | None = None,
        temperature: float = 1.0,
        max_error: float | None = None,
        pilot: bool = False,
        skew_correction: bool = False,
        **options: Unpack[CommonOptions],
    ) -> None:
        rule = Barker(batch_size, max_error, pilot, skew_correction)
        super().__init__(vars, rule, default_batch=default_batch(options), temperature=temperature, **options)

    def _tell(self, plan: Plan) -> None:
        """Warn of a maximal error that takes more terms than the first batch has."""
        rule = plan.recipe.rule
        assert isinstance(rule, Barker)
        n_others = plan.recipe.n_local - len(plan.recipe.exact_rows)
        implied = rule.implied_batch_size
        if implied > rule.bind(n_others).ends[0]:
            warn(
                f"max_error={rule.max_error} can only be met with {implied:,} terms or more, whatever "
                f"the model: every decision reads {min(implied, n_others):,} of {n_others:,} terms or more."
            )
