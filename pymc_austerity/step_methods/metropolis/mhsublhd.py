"""Metropolis-Hastings with subsampled likelihoods."""

from collections.abc import Sequence
from typing import Any, Unpack

from pytensor.graph.basic import Variable

from pymc_austerity.acceptance.concentration import Bound, Concentration
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.options import StepOptions


class MHSubLhd(SubsampledStep):
    """Metropolis-Hastings whose every decision is right with probability 1 - delta.

    Parameters
    ----------
    vars : variables or their names, optional
        Continuous variables to update together. Default: all of the model.
    delta : float in (0, 1), default 0.01
        Largest probability of a decision that differs from that of the exact test.
    p : float > 1, default 2.0
        Look t at the data spends the part (p - 1) / (p t^p) of `delta`.
    growth : float > 1, default 2.0
        Factor by which the subsample grows from look to look.
    batch_size : int >= 1, optional
        Terms read before the first look. Default: 1.
    bound : str, default "empirical-bernstein-serfling"
        Concentration bound: "hoeffding-serfling", "empirical-bernstein" or "empirical-bernstein-serfling".
    range_bound : "exact" or callable, optional
        How the range max_i l_i - min_i l_i of all N log ratios l_i = log p(x_i | q_new) - log p(x_i | q) is
        bounded.

        * Default: by a certificate, derived from the model if every local term is a function of few linear
          predictors, made of operations whose derivatives are known. Variables of other steps may enter
          them. It is sharp near the mode, which is searched for once.
        * A function ``(q, q_new) -> float``. It is the *range*, twice the ``C = max |l_i|`` of the paper. It
          is compiled by numba where that is possible. It does not see variables of other steps, and has to
          hold whatever their values.
        * "exact": computed at each step from all N terms, which costs O(N).
    **options
        Those of every subsampled step: see `MetropolisHastings`.

    Raises
    ------
    ValueError
        If a parameter is out of range, the model has nothing to subsample, or no certificate is known for a
        term. While sampling, if the range turns out to be larger than `range_bound` says.
    FactorisationError
        If rows of a term cannot be computed one by one.

    Notes
    -----
    Figure 3 of Bardenet, Doucet & Holmes (2014), with its errata; see `acceptance.Concentration`.

    *Guarantee*: with a valid range, acceptance probabilities differ from the exact ones by at most `delta`
    (lemma 3.1), and the stationary distribution from the posterior by at most A m delta / (1 - rho) in total
    variation (proposition 3.2; A, m and rho describe how fast the exact chain forgets its start). There is no
    assumption about the distribution of the data.

    *When it fails*: it does not err, but it pays. At equilibrium it reads half to all of the rows, and
    evaluates each at two states, where the exact test needs one; a certificate that is far from the
    actual range costs the same. It gains where most decisions are clear: far from the mode, as long as
    slopes have a bound there (those of counts with a log link soon have none). A certificate bounds the
    l_i of real numbers: where a probability is lost in rounding (probit and cloglog written as 1 - p, for
    predictors above 7 or so), PyMC's density of a row is minus infinity, and a move there may be accepted
    without a look at that row.

    References
    ----------
    .. [1] Bardenet, R., Doucet, A. & Holmes, C. (2014). Towards scaling up Markov chain Monte Carlo: an
       adaptive subsampling approach. ICML.
    .. [2] Bardenet, R. & Maillard, O.-A. (2015). Concentration inequalities for sampling without
       replacement. Bernoulli 21(3).

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import MHSubLhd, find_mode
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model:
    ...     step, start = MHSubLhd(delta=0.01), find_mode()
    ...     sampled = {"chains": 1, "step": step, "initvals": start, "random_seed": 1, "progressbar": False}
    ...     idata = pm.sample(100, tune=500, **sampled)
    >>> idata.sample_stats["fraction_used"].mean().item() > 0.9  # at the mode nearly everything is read
    True
    """

    name = "mhsublhd"

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        delta: float = 0.01,
        p: float = 2.0,
        growth: float = 2.0,
        batch_size: int | None = None,
        bound: Bound = "empirical-bernstein-serfling",
        range_bound: Any = None,
        **options: Unpack[StepOptions],
    ) -> None:
        rule = Concentration(delta, p, growth, batch_size, bound)
        super().__init__(vars, rule, range_bound=range_bound, **options)
