"""SGRLD, stochastic-gradient Riemannian Langevin dynamics: the baseline that SCIR is compared with.

Patterson & Teh (2013) move a gamma variable theta with shape a by the Euler scheme of the Cox-Ingersoll-Ross
process, reflected at zero:

    theta' = |theta + h (a - theta) + sqrt(2 h theta) xi|,    xi ~ N(0, 1).

h is that of the exact transition of SCIR, half of the epsilon of Patterson & Teh. They write the drift of a
Dirichlet's gamma variables as alpha_j - theta_j + (N / n) sum_i (z_ij - w_j), with w = theta / sum(theta):
the total is then drawn to the sum of alpha, not to the number of observations. `sgrld_transition` takes
either.

`SGRLD` is a step for `pm.sample`, with the parameters of `SCIR`. The other examples compare the transitions
alone: `sparse_simplex.py`, `lda_kos.py`, `dp_mixture_msweb.py`.

Guarantee
---------
None at fixed h: the bias is O(h), and the stationary distribution becomes the gamma distribution only as h
goes to 0.

When it fails
-------------
Near zero, where most components of a sparse Dirichlet distribution are. A step from zero ends at h a, and
values below that are rare, while most of a gamma distribution with a small shape lies far below. The sample
statistic `variance_inflation` knows nothing of this.
"""

import math

import numba
import numpy as np
from numba.extending import register_jitable

from pymc_austerity import SCIR
from pymc_austerity.step_methods.gamma.variable_chain import (
    VariableChain,
    estimated,
    noise_ratio,
    with_new_total,
)

# A reflected normal variable is never zero, but it may be rounded to it.
SMALLEST = 1e-300


@register_jitable
def sgrld_transition(rng, theta, drift, step_size):
    """One step, equation (12) of Patterson & Teh (2013) with epsilon = 2 h.

    Parameters
    ----------
    rng : numpy.random.Generator
    theta : float
        The state, not negative.
    drift : float
        a - theta, or an estimate of it.
    step_size : float
        h; positive.

    Returns
    -------
    float
        The next state.
    """
    noise = math.sqrt(2.0 * step_size * theta) * rng.standard_normal()
    return abs(theta + step_size * drift + noise)


@register_jitable
def sgrld_transitions(rng, theta, drift, step_size):
    """Independent steps of several variables: arrays of states and drifts, (n,), and one h for all."""
    result = np.empty(theta.shape[0])
    for j in range(theta.shape[0]):
        result[j] = sgrld_transition(rng, theta[j], drift[j], step_size)
    return result


transitions = numba.njit(sgrld_transitions)


class EulerChain(VariableChain):
    """One variable of `SGRLD` in one chain: estimates are those of SCIR, the transition is Euler's."""

    def transition(self, at, point, step_size, rng, options):
        """Move the variable in `point`; any shape a will do, because processes are reflected."""
        family = self.prior.family
        log_theta, begins = self._log_theta(at, point)
        alpha, prior_rate = self.prior.parameters(point)
        estimate = estimated(self.conjugacy, options, log_theta, point, rng, at.anchor if at else None)
        shape, rate = self._conditional((alpha, prior_rate), estimate, log_theta)
        if family.carries_total and begins:
            # The sum of alpha is where the drift takes the total.
            log_theta = with_new_total(rng, log_theta, alpha)
        theta = np.exp(log_theta + np.log(rate))
        drawn_to = shape
        if family.carries_total:  # the drift of Patterson & Teh: the data do not move the total
            weights = theta / theta.sum(axis=1, keepdims=True)
            drawn_to = shape - weights * (shape - alpha).sum(axis=1, keepdims=True)
        h = np.full_like(shape, step_size)
        if estimate.noisy_rate:  # time is measured by the rate of all data
            h *= rate / (prior_rate + self.conjugacy.totals.t)
        # The rate, and so h, is one number in each row.
        rows = range(family.n_rows)
        moved = [transitions(rng, theta[i], drawn_to[i] - theta[i], h[i, 0]) for i in rows]
        moved_to = self._written(np.log(np.maximum(moved, SMALLEST)) - np.log(rate), estimate.anchor, point)
        return moved_to, estimate.n_used, noise_ratio(estimate, shape, rate, family)


class SGRLD(SCIR):
    """Stochastic-gradient Riemannian Langevin dynamics (Patterson & Teh 2013), to compare `SCIR` with.

    The processes of `SCIR` by Euler's method, reflected at zero, with h in relaxation times (for rates b
    other than one, b theta moves so). The parameters, and what is warned of, are those of `SCIR`; estimates
    of the shape a need not be positive.

    Notes
    -----
    *Guarantee* and *When it fails*: see the head of this file.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from sgrld import SGRLD
    >>> counts = np.random.default_rng(1).multinomial(1, [0.2, 0.3, 0.5], size=2000)
    >>> with pm.Model():
    ...     w = pm.Dirichlet("w", np.ones(3))
    ...     choice = pm.Multinomial("choice", n=1, p=w, observed=counts)
    ...     step = SGRLD([w], step_size=0.1)
    ...     idata = pm.sample(500, tune=100, chains=1, step=step, random_seed=1, progressbar=False)
    >>> found = idata.posterior["w"].mean(("chain", "draw"))
    >>> np.allclose(found, (1 + counts.sum(axis=0)) / 2003, atol=0.02)
    True
    """

    name = "sgrld"

    def _build(self, point):
        super()._build(point)
        self._chains = [EulerChain(**vars(each)) for each in self._chains]
