"""`SCIR`: Cox-Ingersoll-Ross processes with stochastic gradients, simulated exactly."""

from __future__ import annotations

import numpy as np

from pymc_austerity.model.conjugacy.families import GammaFamily
from pymc_austerity.model.conjugacy.statistics import Conjugacy
from pymc_austerity.step_methods.gamma.base import GammaProcessStep
from pymc_austerity.step_methods.gamma.dynamics import Dynamics
from pymc_austerity.step_methods.gamma.estimates import Estimate, Estimator
from pymc_austerity.step_methods.gamma.transition import each_row, exact_transitions
from pymc_austerity.target import Array


class ExactDynamics(Dynamics):
    """Transitions of Cox-Ingersoll-Ross processes without error of discretisation."""

    def move(
        self,
        rng: np.random.Generator,
        family: GammaFamily,
        log_theta: Array,
        shape: Array,
        alpha: Array,
        step_size: Array,
    ) -> Array:
        """Transition (3.3) of Baker et al. (2018)."""
        return each_row(exact_transitions, rng, log_theta, shape, step_size)

    def renews_total(self, conjugacy: Conjugacy, estimate: Estimate) -> bool:
        """Where its shape, the sum of the a, is known and changes with other variables.

        Steps that move these know nothing of a total that is carried along, whose distribution depends on
        them too. Given the sum of the a it is a gamma variable, independent of w.
        """
        changes = bool(conjugacy.prior.parents)
        if not conjugacy.form.is_conjugate:  # centred: the sum is that of alpha, and M
            return changes
        return not estimate.groups and (changes or not conjugacy.structure.constant)

    def require_shape(self, conjugacy: Conjugacy, estimator: Estimator, shape: Array) -> None:
        """Refuse shapes that are not positive: no gamma variable has them.

        Raises
        ------
        ValueError
            Naming the variable and its terms.
        """
        least = float(shape.min())
        if least > 0.0 and np.isfinite(shape.sum()):
            return
        if not np.isfinite(shape.sum()):
            why = "Is the log density finite there? Take a smaller step_size, or start nearer to the mode."
        elif not conjugacy.form.is_conjugate:
            why = "Use another step method, such as pm.NUTS, or give a larger shift="
            why += " or a larger batch_size." if estimator.is_subsampled else "."
        elif estimator.is_anchored:
            why = "The anchor is too old for this minibatch: use a smaller refresh=, or a larger batch_size."
        else:
            why = "The likelihood falls with every power of the variable: use another step method."
        names = ", ".join(repr(name) for name in dict.fromkeys(conjugacy.gradient.names))
        raise ValueError(
            f"The estimate of the shape a of {conjugacy.prior.name!r} from the terms {names} is {least:.4g} "
            f"in one component; it must be positive. {why}"
        )


class SCIR(GammaProcessStep):
    """Stochastic Cox-Ingersoll-Ross process for Dirichlet, gamma and beta variables (Baker et al. 2018).

    Every gamma variable theta with shape a and rate b given the data moves by the exact transition of the
    process that has its distribution as stationary distribution,

        theta' = (1 - e^-h) / b Gamma(a + K),    K ~ Poisson(b theta e^-h / (1 - e^-h)),

    in which a is estimated from a minibatch. Beta and Dirichlet variables are ratios of such variables.

    Parameters
    ----------
    vars : variables or their names, optional
        With priors `pm.Gamma`, `pm.Exponential`, `pm.ChiSquared`, `pm.InverseGamma`, `pm.Beta` or
        `pm.Dirichlet`. They are moved one after the other. Default: all free variables.
    step_size : float or DecreasingStepSize, default 0.1
        h, in relaxation times of the process. Draws are correlated by e^-h from one to the next; minibatch
        noise adds the share tanh(h / 2) of its variance. With exact statistics (``batch_size=None``, a
        conjugate likelihood) every h is exact: take a long one, such as 3.
    batch_size : int or float, optional
        None: exact statistics, of observed data computed once. int: rows; float in (0, 1): share of the
        rows. Several long terms share the rows in proportion to their lengths. Terms shorter than
        `threshold` are always taken in full.
    control_variate : "anchor", optional
        Estimate only how statistics have changed since they were last taken in full. Of use where rows depend
        on other variables, such as allocations.
    refresh : int, default 100
        Transitions after which the anchor is taken anew, a pass over the data.
    minibatch_rate : bool, default False
        Whether rates are estimated from minibatches too: biased, see *When it fails*. Otherwise a rate is
        that of all the data, and computed in every transition if it depends on other variables.
    shift : float, optional
        M, where the likelihood is not conjugate: M w_j (Dirichlet, beta) or M theta (gamma) is added to a_hat
        to keep it positive, and M to the rate of gamma variables. The larger, the slower is the chain for a
        given h, and the less biased. Default: the number of rows for Dirichlet and beta variables, else 0.
    counts : MinibatchCategoricalGibbs, optional
        The step for allocations z ~ Categorical(w), which carries their counts along: statistics of w are
        then known without a look at z. Any object with `vars` and `counts(point)`; compared with the
        likelihood once, when the step is built. For one variable and ``batch_size=None``.
    steps_per_draw : int, default 1
    threshold : int, optional
        Vectors of so many rows are subsampled. Default: 1000, or the length of the longest if that is less.
    model, blocked, rng, initial_point
        As in PyMC's steps.
    compile_kwargs : dict, optional
        Not used; a warning says so.
    progressbar : bool, default True
        Whether a set-up that takes more than a second is shown while it lasts.

    Attributes
    ----------
    forms : dict of str to str
        Of each variable: "counts", "affine" or "rate" if the likelihood is conjugate, otherwise "frozen".

    Raises
    ------
    ValueError
        Naming the variable or the term: a prior of another kind, alpha with zeros, a batch_size above the
        number of rows; while sampling, an estimate of a that is not positive.
    FactorisationError
        Naming the term, if batch_size is given and its rows cannot be computed one by one.

    Notes
    -----
    *Guarantee*: transition (3.3) and Algorithm 1 of Baker, Fearnhead, Fox & Nemeth (2018), without error of
    discretisation. With ``batch_size=None`` and a conjugate likelihood every transition leaves the
    conditional distribution of the variable invariant, for every h. With a minibatch the mean of theta is
    that of the posterior, and its stationary variance [a + tanh(h / 2) Var(a_hat)] / b^2. The sample
    statistic `variance_inflation` is the predicted ratio of this to a / b^2, of variances: its square root is
    the ratio of standard deviations. It is estimated from the minibatch of each draw, so average it over
    draws; it is pooled over the components of a variable (of a simplex, for the variances of w), and averaged
    over variables. From a single row it is not known, and NaN.

    *When it fails*: a likelihood that is not linear in log theta (and theta, for gamma variables) has its
    drift frozen during a transition, with a bias of order h and a warning: for weights of a mixture whose
    allocations are summed out, and for parameters inside other functions, pm.NUTS is better where it can be
    used. A chain takes some multiple of 1 / h transitions from where it starts to its distribution. Estimated
    rates (`minibatch_rate`) shift the mean by the factor 1 + c^2 h / 2 and widen the distribution by sqrt(1 +
    tanh(h / 2) a c^2), with c the coefficient of variation of the estimated rate. Where w is zero in
    floating-point numbers, other steps that evaluate its prior get an infinite density: use `restricted_nuts`
    instead of `pm.NUTS` beside this step.

    Sample statistics: `step_size`, `n_used` (rows read in a transition, 0 if statistics are known),
    `fraction_used`, `variance_inflation`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import SCIR
    >>> counts = np.random.default_rng(1).multinomial(1, [0.2, 0.3, 0.5], size=2000)
    >>> with pm.Model():
    ...     w = pm.Dirichlet("w", np.ones(3))
    ...     choice = pm.Multinomial("choice", n=1, p=w, observed=counts)
    ...     step = SCIR([w], step_size=3.0)
    ...     idata = pm.sample(200, tune=0, chains=1, step=step, random_seed=1, progressbar=False)
    >>> found = idata.posterior["w"].mean(("chain", "draw"))
    >>> np.allclose(found, (1 + counts.sum(axis=0)) / 2003, atol=0.01)
    True
    """

    name = "scir"
    dynamics = ExactDynamics()
