"""Austerity Metropolis-Hastings: decisions by a sequential test."""

from collections.abc import Sequence
from typing import Literal, Unpack

from pytensor.graph.basic import Variable

from pymc_austerity.acceptance.base import Exact
from pymc_austerity.acceptance.ttest import TTest, check_stages
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.options import StepOptions, default_batch
from pymc_austerity.validation import is_real


class AusterityMH(SubsampledStep):
    """Metropolis-Hastings that decides each move by a sequential t-test on a subsample of the data.

    Parameters
    ----------
    vars : variables or their names, optional
        Continuous variables to update together. Default: all of the model.
    epsilon : float in [0, 0.5], default 0.01
        Stop reading data once the estimated probability of a wrong decision is below this. Smaller
        values read more; 0 reads everything and is exact.
    batch_size : int >= 2, optional
        Terms in the first batch. Default: 500, with a control variate 50, or all of them if there are fewer.
    growth : "constant" or float > 1, default "constant"
        Add `batch_size` terms at each stage of the test, or multiply the subsample by this factor.
    boundary : float in [0.5, 1], default 0.5
        Shape of the stopping boundary: 0.5 is Pocock's, 1 is O'Brien and Fleming's.
    **options
        Those of every subsampled step: see `MetropolisHastings`.

    Raises
    ------
    ValueError
        If a parameter is out of range, a variable is discrete, or the model has nothing to subsample.
    FactorisationError
        If rows of a term cannot be computed one by one.

    Notes
    -----
    Algorithm 1 of Korattikara, Chen & Welling (2014), on the partition of the model into global and
    local terms of Chen, Mansinghka & Ghahramani (2015).

    *Guarantee*: with ``epsilon=0`` exact. Otherwise none: the chain's stationary distribution differs from
    the posterior by an amount that shrinks with `epsilon`, and is not known. It tends to be wider: on the
    20,190 doctor visits of the README posterior standard deviations come out 12 % too large at epsilon = 0.01
    and 43 % at 0.05. The distance in total variation is at most Delta / (1 - eta), with Delta the largest
    error of the acceptance probability and eta the contraction of the exact chain (theorem 1).

    *When it fails*: a few rows that carry most of the log ratio are missed without a sign (rare
    categories, outliers, heavy tails); likelihoods whose support depends on the parameters. It saves little
    near the mode of a small data set: deciding between two equally good points needs most of the rows. With
    ``control_variate=Taylor()`` it needs some 50, and errs far less; see there. Effects of 30 groups or more
    are then moved as a field: each group is tested on its own rows, and
    reads all of them if it has fewer than two batches. Where `TunaMH` has bounds for the likelihood it reads
    far less, and is exact.

    References
    ----------
    .. [1] Korattikara, A., Chen, Y. & Welling, M. (2014). Austerity in MCMC land: cutting the
       Metropolis-Hastings budget. ICML.
    .. [2] Chen, Y., Mansinghka, V. & Ghahramani, Z. (2015). Sublinear-time approximate MCMC transitions for
       probabilistic programs.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import AusterityMH, find_mode
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step = AusterityMH(epsilon=0.05)
    ...     start = find_mode()
    ...     sampled = {"chains": 1, "step": step, "initvals": start, "random_seed": 1, "progressbar": False}
    ...     idata = pm.sample(100, tune=500, **sampled)
    >>> 0 < idata.sample_stats["fraction_used"].mean().item() < 1
    True
    """

    name = "austerity_mh"

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        epsilon: float = 0.01,
        batch_size: int | None = None,
        growth: Literal["constant"] | float = "constant",
        boundary: float = 0.5,
        **options: Unpack[StepOptions],
    ) -> None:
        if not is_real(epsilon) or not 0.0 <= epsilon <= 0.5:
            raise ValueError(
                f"epsilon must be in [0, 0.5], got {epsilon!r}. Smaller values read more data per decision."
            )
        check_stages(batch_size, growth, boundary)  # though with epsilon = 0 nothing is left for them to do
        rule = TTest(epsilon, batch_size, growth, boundary) if epsilon > 0.0 else Exact()
        super().__init__(vars, rule, default_batch=default_batch(options), **options)
