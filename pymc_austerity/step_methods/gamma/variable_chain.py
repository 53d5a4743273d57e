"""One variable of a step: statistics of its likelihood at one transition, their noise, and the transition."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from pymc.initial_point import PointType
from scipy.special import logsumexp

from pymc_austerity.kernels.cox_ingersoll_ross import cir_noise, cir_transitions
from pymc_austerity.model.compile.cache_key import key_of
from pymc_austerity.model.compile.native import NativeKernel, addresses_of, from_source, generator_at
from pymc_austerity.model.conjugacy.families import GammaFamily, GammaPrior, Totals
from pymc_austerity.model.conjugacy.recognise import Conjugacy, Groups, Place
from pymc_austerity.step_methods.base import checked_batch_size, checked_steps_per_draw
from pymc_austerity.target import Array
from pymc_austerity.validation import is_real, is_whole

# A minibatch is split into so many groups; the variance of an estimate is told from their differences.
_GROUPS = 4
# Of more numbers than this, fewer groups: the statistic is pooled over them.
_MANY = 5000
_FEW_GROUPS = 2

_SOURCE = """
def transitions(rng, log_theta, shape, step_size, result):
    result[:] = kernel(generator_at(rng), log_theta, shape, step_size)
"""

ControlVariate = Literal["anchor"]


class Counter(Protocol):
    """Counts that another step carries along, such as `MinibatchCategoricalGibbs`."""

    vars: list[Any]

    def counts(self, point: Any) -> npt.NDArray[np.int64]:
        """Number of rows in each category at a point, (K,)."""


class GammaOptions(NamedTuple):
    """How statistics of the likelihood are read; the fields are parameters of `SCIR`."""

    batch_size: int | float | None
    control_variate: ControlVariate | None
    refresh: int
    minibatch_rate: bool
    shift: float | None
    counts: Counter | None
    steps_per_draw: int
    threshold: int | None

    @property
    def subsampled(self) -> bool:
        """Whether minibatches are read."""
        return self.batch_size is not None

    @property
    def anchored(self) -> bool:
        """Whether only changes since an anchor are estimated."""
        return self.control_variate is not None


def checked_options(asked: GammaOptions, n_vars: int) -> GammaOptions:
    """Raise `ValueError` naming an option, its value, and what to do. Sizes of batches need the data."""
    batch_size, control_variate, refresh, minibatch_rate, shift, counts, steps_per_draw, threshold = asked
    steps_per_draw = checked_steps_per_draw(steps_per_draw)
    if not is_whole(refresh) or refresh < 1:
        raise ValueError(f"refresh must be a positive integer, got {refresh!r}.")
    if control_variate not in (None, "anchor"):
        raise ValueError(f'control_variate must be None or "anchor", got {control_variate!r}.')
    if control_variate is not None and batch_size is None:
        raise ValueError(
            'control_variate="anchor" makes minibatches less noisy, but batch_size=None reads all data: '
            "give a batch_size, or leave control_variate out."
        )
    if minibatch_rate not in (True, False):
        raise ValueError(f"minibatch_rate must be True or False, got {minibatch_rate!r}.")
    if shift is not None and (not is_real(shift) or not 0.0 <= shift < np.inf):
        raise ValueError(f"shift must be None or a number that is not negative, got {shift!r}.")
    if threshold is not None and (not is_whole(threshold) or threshold < 3):
        raise ValueError(f"threshold must be None or an integer of at least 3, got {threshold!r}.")
    batch_size = checked_batch_size(batch_size)
    if counts is not None:
        if not (hasattr(counts, "vars") and callable(getattr(counts, "counts", None))):
            raise TypeError(f"counts must be a step such as MinibatchCategoricalGibbs([z]), got {counts!r}.")
        if batch_size is not None:
            raise ValueError(f"counts= makes statistics exact: leave out batch_size={batch_size!r}.")
        if n_vars != 1:
            raise ValueError(f"counts= is for one variable, got {n_vars}: make a step for each of them.")
    return asked._replace(
        batch_size=batch_size,
        refresh=int(refresh),
        minibatch_rate=bool(minibatch_rate),
        steps_per_draw=steps_per_draw,
    )


class Anchor(NamedTuple):
    """Point at which statistics were last taken in full, and these."""

    age: int  # Transitions since then
    others: dict[str, np.ndarray]  # Values of other variables
    references: tuple[Array, ...]
    totals: Totals


class Estimate(NamedTuple):
    """Statistics of the likelihood at one transition."""

    totals: Totals  # Estimates of s and t over all data
    groups: list[Groups]  # Of the minibatch of each local term; empty if nothing was estimated
    n_used: int  # Rows that were read
    noisy_rate: bool = False  # Whether t is estimated too
    anchor: Anchor | None = None  # That from which changes were estimated


def estimated(
    conjugacy: Conjugacy,
    options: GammaOptions,
    log_theta: Array,
    point: Mapping[str, Any],
    rng: np.random.Generator,
    anchor: Anchor | None,
) -> Estimate:
    """Statistics where the processes are, from all rows or a minibatch; `anchor` is that of the last call."""
    gradient = conjugacy.gradient
    if options.counts is not None:
        s = options.counts.counts(point).astype(np.float64).reshape(log_theta.shape)
        return Estimate(Totals(s, np.zeros((len(s), 1))), [], 0)
    if not options.subsampled and conjugacy.totals is not None:
        return Estimate(conjugacy.totals, [], 0)
    here = conjugacy.place(log_theta, point)
    if not options.subsampled:
        return Estimate(conjugacy.full(here), [], conjugacy.n_read)
    n_read = 0
    if anchor is not None and anchor.age + 1 < options.refresh:
        anchor = anchor._replace(age=anchor.age + 1)
    elif options.anchored:
        others = {name: np.array(point[name]) for name in gradient.other_names}
        n_read, anchor = conjugacy.n_read, Anchor(0, others, here.references, conjugacy.full(here))
    noisy_rate = options.minibatch_rate and conjugacy.form == "rate"
    found = minibatch_estimate(conjugacy, here, rng, noisy_rate=noisy_rate, anchor=anchor)
    if not np.all(np.isfinite(found.totals.s)):
        raise ValueError(
            f"The derivative of the likelihood by {conjugacy.prior.name!r} is not finite (terms "
            f"{', '.join(gradient.names)}). Take a smaller step_size, or another step method."
        )
    return found._replace(n_used=found.n_used + n_read, anchor=anchor)


def minibatch_estimate(
    conjugacy: Conjugacy,
    here: Place,
    rng: np.random.Generator,
    *,
    noisy_rate: bool,
    anchor: Anchor | None = None,
    n_groups: int = _GROUPS,
) -> Estimate:
    """Statistics from a minibatch without replacement of each local term, and the other terms in full.

    With an anchor they are its totals, and changes since then. A rate is that of all data, unless
    `noisy_rate`.
    """
    gradient, family = conjugacy.gradient, conjugacy.prior.family
    n_groups = _FEW_GROUPS if family.n_rows * family.n_parts > _MANY else n_groups
    assert conjugacy.batch_sizes is not None
    totals, parts = conjugacy.short(here), []
    then = None
    if anchor is not None:
        then = Place(anchor.references, gradient.args(anchor.others))
        totals = anchor.totals.plus(totals).plus(conjugacy.short(then), -1.0)
    for term, (n, size) in enumerate(zip(conjugacy.batch_sizes, gradient.sizes, strict=True)):
        index = rng.choice(size, n, replace=False).astype(np.int64, copy=False)
        k = min(n, n_groups)
        sizes = np.diff(np.arange(k + 1) * n // k).astype(np.int64)
        groups = conjugacy.groups(term, here, index, sizes)
        if then is not None:
            before = conjugacy.groups(term, then, index, sizes)
            groups = groups._replace(totals=groups.totals.plus(before.totals, -1.0))
        totals = totals.plus(groups.totals.summed(), size / n)
        parts.append(groups)
    n_used = sum(conjugacy.batch_sizes)
    if not noisy_rate and conjugacy.form == "rate":
        totals, n_used = Totals(totals.s, conjugacy.full(here).t), max(n_used, conjugacy.n_read)
    return Estimate(totals, parts, n_used, noisy_rate)


def conditional(
    conjugacy: Conjugacy, prior: tuple[Array, Array], totals: Totals, log_theta: Array
) -> tuple[Array, Array]:
    """Shapes and rates of the processes during a transition, from those of the prior and statistics.

    A drift that is frozen has M w_j, or M theta, on both sides, which keeps shapes positive.
    """
    shape, rate = prior[0] + totals.s, prior[1] + totals.t
    if conjugacy.form != "frozen":
        return shape, rate
    theta, shift = np.exp(log_theta), conjugacy.shift
    if conjugacy.prior.family.carries_total:
        return shape + shift * theta / theta.sum(axis=1, keepdims=True), rate
    return shape + shift * theta, rate + shift


def variance_inflation(noise: float, step_size: float) -> float:
    """The sample statistic, from a mean of `noise_ratio`; its root is what is told when a step is built."""
    return 1.0 + cir_noise(step_size) * noise


def noise_ratio(estimate: Estimate, shape: Array, rate: Array, family: GammaFamily) -> float:
    """Var(a_hat) over the exact variance of gamma variables with rate one, both pooled over components.

    On a simplex both are those along it: noise in the total does not move w. It is zero if nothing was
    estimated, and NaN from a single row.
    """
    if not estimate.groups:
        return 0.0
    variance, shares = np.zeros_like(shape), shape / shape.sum(axis=1, keepdims=True)
    for totals, sizes, n_rows in estimate.groups:
        noise = totals.s - totals.t * (shape / rate) if estimate.noisy_rate else totals.s
        if family.carries_total:
            noise = noise - shares * noise.sum(axis=-1, keepdims=True)
        n = int(sizes.sum())
        if n == n_rows:
            continue
        if n == 1:
            return math.nan
        # A group of m of the n rows has the variance m (1 - m / n) S^2, given the batch.
        share = sizes[:, None, None] / n
        squares = ((noise - share * noise.sum(axis=0)) ** 2).sum(axis=0)
        variance += n_rows * (n_rows - n) / n * squares / float((sizes * (1.0 - sizes / n)).sum())
    exact = shape * (1.0 - shares) if family.carries_total else shape
    return float(variance.sum() / exact.sum())


class Processes(NamedTuple):
    """Where the processes of a variable are in a chain."""

    log_theta: Array  # (n_rows, n_parts); of a simplex this includes the total, which is not in a point
    written: Array  # The value that was put into the point: another step may have replaced it
    # Where statistics were last taken in full. It has the values of other variables at the time, which may
    # have size N, such as allocations: as many numbers as a point.
    anchor: Anchor | None


@dataclass(eq=False)
class VariableChain:
    """Moves of one variable: those of the processes that it is made of."""

    conjugacy: Conjugacy  # Its likelihood

    @property
    def prior(self) -> GammaPrior:
        """The prior of the variable."""
        return self.conjugacy.prior

    def transition(
        self,
        at: Processes | None,
        point: PointType,
        step_size: float,
        rng: np.random.Generator,
        options: GammaOptions,
    ) -> tuple[Processes, int, float]:
        """Move the variable in `point`; returns its processes, the rows that were read, and `noise_ratio`.

        A chain begins where `at` is None.
        """
        conjugacy = self.conjugacy
        family = conjugacy.prior.family
        log_theta, begins = self._log_theta(at, point)
        alpha, prior_rate = conjugacy.prior.parameters(point)
        estimate = estimated(conjugacy, options, log_theta, point, rng, at.anchor if at else None)
        shape, rate = self._conditional((alpha, prior_rate), estimate, log_theta)
        self._require_shape(options, shape)
        if family.carries_total and (begins or self._renews_total(estimate)):
            total_shape = shape
            if at is None and conjugacy.batch_sizes is not None and conjugacy.form != "frozen":
                # At the start of a chain, without the noise of a minibatch.
                total_shape = alpha + conjugacy.full(conjugacy.place(log_theta, point)).s
            log_theta = with_new_total(rng, log_theta, total_shape)
        steps = np.full_like(shape, step_size)
        if estimate.noisy_rate:
            # Time must not be measured by the noisy rate: that would multiply the mean by E[1 / b_hat].
            assert conjugacy.totals is not None
            steps *= rate / (prior_rate + conjugacy.totals.t)
        moved = exact_transitions(rng, log_theta + np.log(rate), shape, steps)
        moved_to = self._written(moved - np.log(rate), estimate.anchor, point)
        return moved_to, estimate.n_used, noise_ratio(estimate, shape, rate, family)

    def _log_theta(self, at: Processes | None, point: PointType) -> tuple[Array, bool]:
        """Where processes are, and whether `point` says so: in a new chain, or after another step."""
        value = point[self.prior.value_name]
        if at is not None and np.array_equal(at.written, value):
            return at.log_theta, False
        log_theta = self.prior.family.log_gammas(value)
        if not np.all(np.isfinite(log_theta)):
            raise ValueError(
                f"{self.prior.name!r} is zero or infinite in the point of the chain. Start from a point "
                "inside its support."
            )
        return log_theta, True

    def _conditional(
        self, prior: tuple[Array, Array], estimate: Estimate, log_theta: Array
    ) -> tuple[Array, Array]:
        """Shapes and rates given the data and all other variables, as they are estimated."""
        shape, rate = conditional(self.conjugacy, prior, estimate.totals, log_theta)
        if not np.all((rate > 0.0) & np.isfinite(rate)):
            terms = ", ".join(self.conjugacy.gradient.names)
            raise ValueError(
                f"The rate of {self.prior.name!r} given the data would be {float(np.min(rate))}; it must be "
                f"positive. Look at the terms {terms}; with minibatch_rate=True, take a larger batch_size."
            )
        return shape, rate

    def _require_shape(self, options: GammaOptions, shape: Array) -> None:
        """Refuse shapes that are not positive: no gamma variable has them."""
        conjugacy = self.conjugacy
        least = float(shape.min())
        if least > 0.0 and np.isfinite(shape.sum()):
            return
        if not np.isfinite(shape.sum()):
            why = "Is the log density finite there? Take a smaller step_size, or start nearer to the mode."
        elif conjugacy.form == "frozen":
            why = "Use another step method, such as pm.NUTS, or give a larger shift="
            why += " or a larger batch_size." if options.subsampled else "."
        elif options.anchored:
            why = "The anchor is too old for this minibatch: use a smaller refresh=, or a larger batch_size."
        else:
            why = "The likelihood falls with every power of the variable: use another step method."
        names = ", ".join(repr(name) for name in dict.fromkeys(conjugacy.gradient.names))
        raise ValueError(
            f"The estimate of the shape a of {conjugacy.prior.name!r} from the terms {names} is {least:.4g} "
            f"in one component; it must be positive. {why}"
        )

    def _renews_total(self, estimate: Estimate) -> bool:
        """Whether the total of a simplex, which is carried along, is drawn anew in this transition.

        It is where its shape, the sum of the a, is known and changes with other variables. Steps that move
        these know nothing of a total that is carried along, whose distribution depends on them too. Given the
        sum of the a it is a gamma variable, independent of w.
        """
        changes = bool(self.prior.parents)
        if self.conjugacy.form == "frozen":  # centred: the sum is that of alpha, and M
            return changes
        return not estimate.groups and (changes or self.conjugacy.totals is None)

    def _written(self, log_theta: Array, anchor: Anchor | None, point: PointType) -> Processes:
        """Put processes into the point."""
        value = point[self.prior.value_name] = self.prior.family.value(log_theta)
        return Processes(log_theta, value.copy(), anchor)


def with_new_total(rng: np.random.Generator, log_theta: Array, shape: Array) -> Array:
    """The processes of a simplex with a total of each row that is drawn anew, given their shapes."""
    sums = shape.sum(axis=1, keepdims=True)
    # Gamma variables are where processes are after an infinite time.
    log_totals = exact_transitions(rng, np.zeros_like(sums), sums, np.full_like(sums, np.inf))
    return log_theta - logsumexp(log_theta, axis=1, keepdims=True) + log_totals


@cache
def _compiled() -> Any:
    """`cir_transitions`, compiled such that no Python code runs inside; see `model.compile.native`."""
    environment: dict[str, Any] = {
        "__name__": cir_transitions.__module__,
        "kernel": cir_transitions,
        "generator_at": generator_at,
    }
    key = key_of([_SOURCE], [cir_transitions, NativeKernel])
    return from_source(_SOURCE, "transitions", environment, key)


def exact_transitions(rng: np.random.Generator, log_theta: Array, shape: Array, step_size: Array) -> Array:
    """Transition (3.3) of Baker et al. (2018) of a table of processes with rate one."""
    x, a, h = log_theta.ravel(), shape.ravel(), step_size.ravel()
    moved = np.empty(x.shape[0])
    if np.all(h == h[0]):
        _compiled()(addresses_of(rng), x, a, h[0], moved)
    else:  # with estimated rates
        for i in range(len(x)):
            _compiled()(addresses_of(rng), x[i : i + 1], a[i : i + 1], h[i], moved[i : i + 1])
    return moved.reshape(log_theta.shape)
