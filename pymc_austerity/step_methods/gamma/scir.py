"""`SCIR`: Cox-Ingersoll-Ross processes with stochastic gradients, simulated exactly.

A draw moves one variable after the other (`variable_chain`): point -> log theta -> gamma shape and rate, from
the prior and an estimate of statistics of the likelihood -> a transition of theta -> point.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_austerity.model.conjugacy.families import GammaPrior
from pymc_austerity.model.conjugacy.gradients import LikelihoodGradient
from pymc_austerity.model.conjugacy.recognise import analyse
from pymc_austerity.model.graph.log_density import LogDensityGraph, fingerprint
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.base import SHARE_OF_DATA, RebuiltStep, floats
from pymc_austerity.step_methods.batch_size import batch_rows
from pymc_austerity.step_methods.configuration import plain
from pymc_austerity.step_methods.gamma.messages import (
    require_counts,
    require_form,
    warn_of_errors,
    warn_of_unused,
)
from pymc_austerity.step_methods.gamma.variable_chain import (
    ControlVariate,
    Counter,
    GammaOptions,
    VariableChain,
    checked_options,
    variance_inflation,
)
from pymc_austerity.step_methods.siblings import has_moved
from pymc_austerity.step_methods.step_size import DecreasingStepSize, step_size_of

# What a step size is measured in.
_UNIT = "It is in relaxation times of the process; 0.1 is a usual value."
# Transitions after which forms are verified once more.
_SETTLED = 50
# Values of a given initial point up to this size are kept for when data are replaced.
_FEW = 1000


@dataclass_state
class GammaProcessState(StepMethodState):
    """All that the step carries from draw to draw."""

    n_transitions: int  # m, since the chain began
    # The processes of each variable; of a simplex this includes the total, which is not in a point
    log_theta: Any
    written: Any  # Values that were last put into a point: another step may have replaced them
    # With ``control_variate="anchor"``, of each variable. They hold the values of other variables at the
    # time, which may have size N, such as allocations: as many numbers as a point.
    anchors: Any


def _of_each_chain(name: str) -> property:
    """An attribute of all chains, as a list: a copy of a step shares chains until its state is set."""

    def found(step: Any) -> list[Any]:
        return [getattr(chain, name) for chain in step._chains]

    def put(step: Any, values: Sequence[Any]) -> None:
        pairs = zip(step._chains, values, strict=True)
        step._chains = [replace(chain, **{name: value}) for chain, value in pairs]

    return property(found, put)


class SCIR(RebuiltStep):
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
    _columns = SHARE_OF_DATA
    _rebuilt = ()  # chains leave out of pickles what has size N
    _state_class = GammaProcessState
    _chains: list[VariableChain]
    # Sampling state.
    log_theta = _of_each_chain("log_theta")
    written = _of_each_chain("written")
    anchors = _of_each_chain("anchor")
    stats_dtypes_shapes = floats("step_size", "n_used", "fraction_used", "variance_inflation")

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        step_size: float | DecreasingStepSize = 0.1,
        batch_size: int | float | None = None,
        control_variate: ControlVariate | None = None,
        refresh: int = 100,
        minibatch_rate: bool = False,
        shift: float | None = None,
        counts: Counter | None = None,
        steps_per_draw: int = 1,
        threshold: int | None = None,
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        progressbar: bool = True,
    ) -> None:
        self._made_for(vars, model, rng, compile_kwargs)
        asked = GammaOptions(
            batch_size, control_variate, refresh, minibatch_rate, shift, counts, steps_per_draw, threshold
        )
        self._options = checked_options(asked, len(self._vars))
        self._schedule = step_size_of(step_size, _UNIT)
        self.tune = False
        self.n_transitions, self._chains = 0, []
        given = initial_point or {}
        self._given_point = {n: np.array(v) for n, v in given.items() if np.size(v) <= _FEW}
        self._check_counts(self._build_first(initial_point, progressbar))

    # Building -------------------------------------------------------------------------------

    def _build(self, point: PointType) -> None:
        """Find out what the likelihood of each variable is, and warn of what follows. Chains begin anew."""
        # What has size N is not held twice, and is gone if this fails: a copy is as from a pickle.
        self._chains = [replace(chain, conjugacy=copy(chain.conjugacy)) for chain in self._chains]
        chains = []
        for value in self._vars:
            prior = GammaPrior(self._model, value, point)
            stage(f"likelihood of {prior.name}")
            gradient, batch_sizes = self._likelihood(prior, point, check=True)
            conjugacy = analyse(self._model, prior, gradient, batch_sizes, point)
            if self._options.shift is not None:
                conjugacy.shift = self._options.shift
            chains.append(VariableChain(conjugacy))
        self._chains = chains
        conjugacies = [chain.conjugacy for chain in chains]
        warn_of_unused(conjugacies, self._options)
        for conjugacy in conjugacies:
            warn_of_errors(conjugacy, point, self._schedule(0), self._options)
        self._n_local = sum(conjugacy.gradient.n_local for conjugacy in conjugacies)
        self._counts_checked = False

    def _rebuild(self, point: PointType) -> bool:
        """Compile likelihoods whose form is known."""
        chains = []
        for chain, value in zip(self._chains, self._vars, strict=True):
            prior = GammaPrior(self._model, value, point)
            gradient, batch_sizes = self._likelihood(prior, point, check=False)
            known = replace(chain.conjugacy, prior=prior, gradient=gradient, batch_sizes=batch_sizes)
            chains.append(replace(chain, conjugacy=known))
        if [fingerprint(chain.conjugacy.gradient.graph) for chain in chains] != self._data_seen:
            return False
        self._chains = chains
        return True

    def _likelihood(
        self, prior: GammaPrior, point: PointType, *, check: bool
    ) -> tuple[LikelihoodGradient, list[int] | None]:
        """Derivatives of the likelihood, and the rows of each local term in a minibatch; None: all."""
        options = self._options
        prior.parameters(point)  # refuses what is not positive before anything is compiled
        gradient = LikelihoodGradient(
            self._model, prior, point,
            threshold=options.threshold, subsampled=options.subsampled, check=check,
        )  # fmt: skip
        total = gradient.n_local
        n = batch_rows(options.batch_size, total, prior.name, gradient.longest)
        if n is None:
            return gradient, None
        # In proportion to the sizes of terms, at least one of each.
        return gradient, [min(size, max(1, round(n * size / total))) for size in gradient.sizes]

    def _graphs(self) -> list[LogDensityGraph]:
        return [chain.conjugacy.gradient.graph for chain in self._chains]

    def _point_for_other_data(self) -> PointType:
        point = super()._point_for_other_data()
        for name, value in self._given_point.items():
            if name in point and np.shape(value) == np.shape(point[name]):
                point[name] = value
        return point

    # PyMC's contract ------------------------------------------------------------------------

    @property
    def is_built(self) -> bool:
        """Whether likelihoods, which are compiled together, are here and not left out of a pickle."""
        return bool(self._chains) and self._chains[0].conjugacy.gradient is not None

    def _begin_chain(self, n_tune: int) -> None:
        self.tune = False
        self.n_transitions = 0
        self._chains = [replace(chain, log_theta=None, written=None, anchor=None) for chain in self._chains]

    def reset_tuning(self) -> None:
        """Nothing is tuned."""

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make `steps_per_draw` transitions of every variable in turn."""
        if not self.n_transitions:
            has_moved()
        self.require_built(point)
        self._check_counts(point)
        options = self._options
        began = self.n_transitions
        new, n_used, ratios, h = dict(point), 0, 0.0, 0.0
        for _ in range(options.steps_per_draw):
            h = self._schedule(self.n_transitions)
            for chain in self._chains:
                n_read, ratio = chain.transition(new, h, self.rng, options)
                n_used += n_read
                ratios += ratio
            self.n_transitions += 1
        if began < _SETTLED <= self.n_transitions:
            for chain in self._chains:
                assert chain.log_theta is not None
                require_form(chain.conjugacy, chain.log_theta, new)  # where the chain has come to
        per_transition = n_used / options.steps_per_draw
        noise = ratios / options.steps_per_draw / len(self._vars)
        stats = {
            "step_size": h,
            "n_used": per_transition,
            "fraction_used": per_transition / self._n_local if self._n_local else 0.0,
            "variance_inflation": variance_inflation(noise, h),
        }
        return new, [stats]

    def _check_counts(self, point: PointType) -> None:
        """Compare the counts of another step with the likelihood, once."""
        if self._options.counts is not None and not self._counts_checked:
            require_counts(self._chains[0].conjugacy, self._options.counts, point)
            self._counts_checked = True

    def _own(self, memo: dict[int, Any]) -> dict[str, Any]:
        counts = self._options.counts  # a copy, if that was copied before
        return {"_options": self._options._replace(counts=memo.get(id(counts), counts))}

    # Settings -------------------------------------------------------------------------------

    @property
    def forms(self) -> dict[str, str]:
        """What the likelihood is in each variable: "counts", "affine", "rate" (all conjugate) or "frozen"."""
        return {chain.prior.name: chain.conjugacy.form for chain in self._chains}

    def _settings(self) -> dict[str, Any]:
        options = self._options._asdict()
        if not self._options.anchored:
            options["refresh"] = None
        return {
            "step_size": plain(self._schedule if self._schedule.kappa else self._schedule.h),
            **{name: plain(value) for name, value in options.items()},
            "forms": self.forms,
            "n_local": self._n_local,
        }
