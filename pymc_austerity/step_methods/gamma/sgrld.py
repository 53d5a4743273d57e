"""`SGRLD`: Riemannian Langevin dynamics on gamma variables, the baseline for `SCIR`."""

from __future__ import annotations

import numpy as np

from pymc_austerity.model.conjugacy.families import GammaFamily
from pymc_austerity.model.conjugacy.statistics import Conjugacy
from pymc_austerity.step_methods.gamma.base import GammaProcessStep
from pymc_austerity.step_methods.gamma.dynamics import Dynamics
from pymc_austerity.step_methods.gamma.estimates import Estimator
from pymc_austerity.step_methods.gamma.transition import each_row, euler_transitions
from pymc_austerity.target import Array

# A reflected normal variable is never zero, but it may be rounded to it.
_SMALLEST = 1e-300


class EulerDynamics(Dynamics):
    """Euler's method, reflected at zero."""

    def move(
        self,
        rng: np.random.Generator,
        family: GammaFamily,
        log_theta: Array,
        shape: Array,
        alpha: Array,
        step_size: Array,
    ) -> Array:
        """Theta' = |theta + h (a - theta) + sqrt(2 h theta) xi|."""
        theta = np.exp(log_theta)
        drift = family.projected_shape(theta, shape, alpha) - theta
        return np.log(np.maximum(each_row(euler_transitions, rng, theta, drift, step_size), _SMALLEST))

    def require_shape(self, conjugacy: Conjugacy, estimator: Estimator, shape: Array) -> None:
        """Any shape will do: processes are reflected."""

    def total_shape(self, alpha: Array, shape: Array) -> Array:
        """The sum of alpha, to which the drift takes the total."""
        return alpha.sum(axis=1)


class SGRLD(GammaProcessStep):
    """Stochastic-gradient Riemannian Langevin dynamics (Patterson & Teh 2013), to compare `SCIR` with.

    The same processes as in `SCIR` by Euler's method, reflected at zero::

        theta' = |theta + h (a_hat - b theta) + sqrt(2 h theta) xi|,    xi ~ N(0, 1),

    h in relaxation times (b = 1; for other rates b theta moves so).

    Parameters
    ----------
    vars, step_size, batch_size, control_variate, refresh, minibatch_rate, shift, counts
        As in `SCIR`.
    steps_per_draw, threshold
        As in `SCIR`.
    model, blocked, rng, initial_point, compile_kwargs, progressbar
        As in `SCIR`.

    Raises
    ------
    ValueError, FactorisationError
        As in `SCIR`; estimates of a need not be positive.

    Notes
    -----
    *Guarantee*: none at fixed h. On a simplex the drift is that of Patterson & Teh,
    alpha_j - theta_j + (N / n) sum of (z_ij - w_j): the total tends to the sum of alpha.

    *When it fails*: near zero. Components of a sparse simplex stay far above where the posterior has them;
    see figures 1 and 2 of Baker et al. (2018). `variance_inflation` knows nothing of this.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import SGRLD
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
    dynamics = EulerDynamics()
