"""`SCIR`: Cox-Ingersoll-Ross processes with stochastic gradients, simulated exactly.

A draw moves one variable after the other (`variable_chain`): point -> log theta -> gamma shape and rate, from
the prior and an estimate of statistics of the likelihood -> a transition of theta -> point.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import warn
from pymc_austerity.model.conjugacy.families import GammaPrior
from pymc_austerity.model.conjugacy.recognise import (
    Conjugacy,
    LikelihoodGradient,
    Place,
    analyse,
    differing_terms,
)
from pymc_austerity.model.graph.log_density import LogDensityGraph, fingerprint
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.base import ROWS, RebuiltStep, batch_rows, floats
from pymc_austerity.step_methods.gamma.variable_chain import (
    ControlVariate,
    Counter,
    Estimate,
    GammaOptions,
    Processes,
    VariableChain,
    checked_options,
    conditional,
    minibatch_estimate,
    noise_ratio,
    variance_inflation,
)
from pymc_austerity.step_methods.messages import plain
from pymc_austerity.step_methods.step_size import DecreasingStepSize, step_size_of
from pymc_austerity.target import Array

# What a step size is measured in.
_UNIT = "It is in relaxation times of the process; 0.1 is a usual value."
# Transitions after which forms are verified once more.
_SETTLED = 50
# Values of a given initial point up to this size are kept for when data are replaced.
_FEW = 1000
_SEED = 2018
# Minibatches from which the coefficient of variation of a rate is told.
_N_BATCHES = 50
# Minibatches from which the inflation is told. Rates may take a pass over the data for each, so there are
# few, in more groups than those of a draw: the factor is then known to some per cent.
_FEW_BATCHES, _MANY_GROUPS = 5, 64
# By how much standard deviations may grow without a word.
_MUCH_WIDER = 1.1


@dataclass_state
class GammaProcessState(StepMethodState):
    """All that the step carries from draw to draw."""

    n_transitions: int  # m, since the chain began
    processes: Any  # Where those of each variable are; None before the first transition


def _of_each_variable(name: str) -> property:
    """A field of `Processes`, of each variable; None before the first transition."""
    return property(lambda step: [at and getattr(at, name) for at in step.processes])


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
    _columns = ROWS
    _shown = (*RebuiltStep._shown, "forms")
    _rebuilt = ()  # chains leave out of pickles what has size N
    _state_class = GammaProcessState
    _chains: list[VariableChain]
    processes: list[Processes | None]
    log_theta, written, anchors = map(_of_each_variable, ("log_theta", "written", "anchor"))
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
        self.n_transitions, self.processes, self._chains = 0, [], []
        given = initial_point or {}
        self._given_point = {n: np.array(v) for n, v in given.items() if np.size(v) <= _FEW}
        self._check_counts(self._build_first(initial_point, progressbar))

    # Building -------------------------------------------------------------------------------

    def _build(self, point: PointType) -> None:
        """Find out what the likelihood of each variable is, and warn of what follows. Chains begin anew."""
        # What has size N is not held twice, and is gone if this fails: a copy is as from a pickle.
        self._chains = [replace(chain, conjugacy=copy(chain.conjugacy)) for chain in self._chains]
        conjugacies = []
        for value in self._vars:
            conjugacies.append(analyse(self._model, *self._likelihood(value, point, check=True), point))
            if self._options.shift is not None:
                conjugacies[-1].shift = self._options.shift
        self._chains = [VariableChain(conjugacy) for conjugacy in conjugacies]
        self.processes = [None] * len(conjugacies)
        warn_of_unused(conjugacies, self._options)
        for conjugacy in conjugacies:
            warn_of_errors(conjugacy, point, self._schedule(0), self._options)
        self._n_local = sum(conjugacy.gradient.n_local for conjugacy in conjugacies)
        self._counts_checked = False

    def _rebuild(self, point: PointType) -> bool:
        """Compile likelihoods whose form is known."""
        chains = []
        for chain, value in zip(self._chains, self._vars, strict=True):
            prior, gradient, batch_sizes = self._likelihood(value, point, check=False)
            known = replace(chain.conjugacy, prior=prior, gradient=gradient, batch_sizes=batch_sizes)
            chains.append(replace(chain, conjugacy=known))
        if [fingerprint(chain.conjugacy.gradient.graph) for chain in chains] != self._data_seen:
            return False
        self._chains = chains
        return True

    def _likelihood(
        self, value: Variable, point: PointType, *, check: bool
    ) -> tuple[GammaPrior, LikelihoodGradient, list[int] | None]:
        """Prior, derivatives of the likelihood, and rows of each local term in a minibatch; None: all."""
        options, prior = self._options, GammaPrior(self._model, value, point)
        stage(f"likelihood of {prior.name}")
        prior.parameters(point)  # refuses what is not positive before anything is compiled
        gradient = LikelihoodGradient(
            self._model, prior, point,
            threshold=options.threshold, subsampled=options.subsampled, check=check,
        )  # fmt: skip
        total = gradient.n_local
        n = batch_rows(options.batch_size, total, prior.name, gradient.longest)
        if n is None:
            return prior, gradient, None
        # In proportion to the sizes of terms, at least one of each.
        return prior, gradient, [min(size, max(1, round(n * size / total))) for size in gradient.sizes]

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
        self.n_transitions, self.processes = 0, [None] * len(self._chains)

    def reset_tuning(self) -> None:
        """Nothing is tuned."""

    def _step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make `steps_per_draw` transitions of every variable in turn."""
        self.require_built(point)
        self._check_counts(point)
        options = self._options
        began = self.n_transitions
        new, n_used, ratios, h = dict(point), 0, 0.0, 0.0
        for _ in range(options.steps_per_draw):
            h = self._schedule(self.n_transitions)
            for k, chain in enumerate(self._chains):
                at = self.processes[k]
                self.processes[k], n_read, ratio = chain.transition(at, new, h, self.rng, options)
                n_used += n_read
                ratios += ratio
            self.n_transitions += 1
        if began < _SETTLED <= self.n_transitions:
            for chain, at in zip(self._chains, self.processes, strict=True):
                assert at is not None
                require_form(chain.conjugacy, at.log_theta, new)  # where the chain has come to
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


# What is told when a step is built: what gives its draws another distribution -------------------------------


def warn_of_errors(
    conjugacy: Conjugacy, point: Mapping[str, Any], step_size: float, options: GammaOptions
) -> None:
    """Warn of what gives draws another distribution than the posterior, or takes time in proportion to N."""
    prior = conjugacy.prior
    if conjugacy.form == "frozen":
        terms = ", ".join(repr(name) for name in conjugacy.nonlinear)
        warn(
            f"The likelihood is not linear in the logarithm of {prior.name!r}: see the term {terms}. The "
            "drift is frozen during each transition, which biases the draws in proportion to step_size. "
            "Compare two step sizes; if a transition is refused, give a shift= (M) large enough for a_hat "
            "to be positive."
        )
    if not options.subsampled:
        return
    if not (options.minibatch_rate or options.anchored):
        # How large changes since an anchor are is not known yet.
        _warn_of_inflation(conjugacy, point, step_size)
    if conjugacy.form != "rate":
        return
    if conjugacy.totals is not None:
        if options.minibatch_rate:
            _warn_of_estimated_rate(conjugacy, point, step_size)
        return
    if options.minibatch_rate:
        raise ValueError(
            f"minibatch_rate=True needs a rate of {prior.name!r} that does not depend on other variables, "
            f"but it depends on {', '.join(map(repr, conjugacy.gradient.other_names))}: time is measured by "
            "the rate of all data, which changes with them. Use minibatch_rate=False."
        )
    warn(
        f"The rate of {prior.name!r} depends on other variables and is computed from all "
        f"{conjugacy.gradient.n_local} rows in every transition. batch_size=None costs the same and "
        "is exact."
    )


def warn_of_unused(conjugacies: Sequence[Conjugacy], options: GammaOptions) -> None:
    """Warn of options that no variable of the step has a use for."""
    names = ", ".join(repr(c.prior.name) for c in conjugacies)
    if options.shift is not None and all(c.form != "frozen" for c in conjugacies):
        warn(
            f"shift={options.shift!r} was not used: the likelihood of {names} is conjugate, and a shift is "
            "for drifts that are frozen."
        )
    rates = any(c.form == "rate" for c in conjugacies)
    if options.minibatch_rate and not (options.subsampled and rates):
        why = (
            f"the likelihood adds no sum over rows to the rate of {names}"
            if options.subsampled
            else "without a batch_size everything is exact"
        )
        warn(f"minibatch_rate=True was not used: {why}.")


def require_form(conjugacy: Conjugacy, log_theta: Array, point: Mapping[str, Any]) -> None:
    """Verify the form of the likelihood once more, where a chain has come to."""
    if conjugacy.form == "frozen" or not conjugacy.gradient.other_names:
        return
    references, args = conjugacy.place(log_theta, point)
    wrong, _ = differing_terms(conjugacy, references, [args], np.random.default_rng(_SEED))
    if wrong:
        names = ", ".join(map(repr, dict.fromkeys(wrong)))
        raise ValueError(
            f"The likelihood of {conjugacy.prior.name!r} looked conjugate when the step was built, but where "
            f"the chain is now it is not: see {names}. Build the step with an initial_point= at which all "
            "parts of the likelihood matter, or use another step method, such as pm.NUTS."
        )


def require_counts(conjugacy: Conjugacy, counter: Counter, point: Mapping[str, Any]) -> None:
    """Refuse counts of another step that differ from the likelihood, at random allocations."""
    z = counter.vars[0].name
    reason = f"its likelihood is of the form {conjugacy.form!r}"
    if conjugacy.form == "counts" and z in conjugacy.gradient.other_names:
        family = conjugacy.prior.family
        random = np.random.default_rng(_SEED).integers(0, family.n_parts, np.shape(point[z]))
        there = {**point, z: random.astype(np.asarray(point[z]).dtype)}
        logs = family.log_gammas(there[conjugacy.prior.value_name])
        full = conjugacy.full(conjugacy.place(logs, there)).s
        counts = counter.counts(there)
        if full.size == counts.size and np.allclose(full.ravel(), counts, rtol=1e-9, atol=1e-9):
            return
        reason = "they differ from the derivatives of its likelihood"
    names = ", ".join(repr(name) for name in dict.fromkeys(conjugacy.gradient.names))
    raise ValueError(
        f"The counts of {z!r} are not the sufficient statistics of {conjugacy.prior.name!r} (terms {names}): "
        f"{reason}. Leave counts= out."
    )


def _warn_of_inflation(conjugacy: Conjugacy, point: Mapping[str, Any], step_size: float) -> None:
    """Warn of a minibatch that makes the distribution much wider."""
    prior, family = conjugacy.prior, conjugacy.prior.family
    parameters = prior.parameters(point)
    log_theta = family.log_gammas(point[prior.value_name])
    if not np.all(np.isfinite(log_theta)):
        return  # the first transition will tell
    ratios, place = [], conjugacy.place(log_theta, point)
    for found in _estimates(conjugacy, place, _FEW_BATCHES, noisy_rate=False, n_groups=_MANY_GROUPS):
        shape, rate = conditional(conjugacy, parameters, found.totals, log_theta)
        if not np.all(shape > 0.0):
            return  # as above
        ratios.append(noise_ratio(found, shape, rate, family))
    wider = float(np.sqrt(variance_inflation(float(np.mean(ratios)), step_size)))
    if not wider <= _MUCH_WIDER:
        known = conjugacy.totals is not None
        exact = " batch_size=None is exact, and reads no rows." if known else ""
        size = (
            f"about {wider:.3g} times too large" if np.isfinite(wider) else "too large by an unknown factor"
        )
        warn(
            f"Minibatches of {sum(conjugacy.batch_sizes or ()):,} of {conjugacy.gradient.n_local:,} rows "
            f"with step_size={step_size:.3g} make the standard deviation of {prior.name!r} {size} (sample "
            "statistic variance_inflation: its mean is the square of that)."
            f"{exact or ' Take larger batches or a smaller step_size.'}"
        )


def _warn_of_estimated_rate(conjugacy: Conjugacy, point: Mapping[str, Any], step_size: float) -> None:
    """Warn of the two errors of a rate b that is estimated."""
    prior = conjugacy.prior
    alpha, rate = prior.parameters(point)
    place = Place(conjugacy.references, conjugacy.gradient.args(point))
    full = conjugacy.full(place)
    relative = []
    for found in _estimates(conjugacy, place, _N_BATCHES, noisy_rate=True):
        # Without noise in a_hat the ratio for a = 1 is Var(b_hat) / b^2.
        rate_alone = [
            each._replace(totals=each.totals._replace(s=np.zeros_like(each.totals.s)))
            for each in found.groups
        ]
        found = found._replace(groups=rate_alone)
        relative.append(noise_ratio(found, np.ones_like(alpha), rate + full.t, prior.family))
    c2, a = float(np.mean(relative)), float(np.max(alpha + full.s))
    wider = np.sqrt(variance_inflation(a * c2, step_size))
    warn(
        f"The rate of {prior.name!r} is estimated from minibatches, with a coefficient of variation "
        f"c = {np.sqrt(c2):.2g}. Its mean is then too large by c^2 h / 2 = {c2 * step_size / 2:.2g} of "
        f"itself, and its standard deviation by at most sqrt(1 + tanh(h / 2) a c^2) = {wider:.3g}. With "
        "minibatch_rate=False the rate is exact."
    )


def _estimates(conjugacy: Conjugacy, place: Place, n_batches: int, **options: Any) -> Iterator[Estimate]:
    """Estimates from some minibatches, the same for every step that is built."""
    rng = np.random.default_rng(_SEED)
    for _ in range(n_batches):
        yield minibatch_estimate(conjugacy, place, rng, **options)
