"""What a step for gamma processes tells when it is built: what gives its draws another distribution."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from pymc_austerity.exceptions import warn
from pymc_austerity.model.conjugacy.recognise import Conjugacy, Place, differing_terms
from pymc_austerity.step_methods.gamma.variable_chain import (
    Counter,
    Estimate,
    GammaOptions,
    conditional,
    minibatch_estimate,
    noise_ratio,
    variance_inflation,
)
from pymc_austerity.target import Array

_SEED = 2018
# Minibatches from which the coefficient of variation of a rate is told.
_N_BATCHES = 50
# Minibatches from which the inflation is told. Rates may take a pass over the data for each, so there are
# few, in more groups than those of a draw: the factor is then known to some per cent.
_FEW_BATCHES, _MANY_GROUPS = 5, 64
# By how much standard deviations may grow without a word.
_MUCH_WIDER = 1.1


def warn_of_errors(
    conjugacy: Conjugacy, point: Mapping[str, Any], step_size: float, options: GammaOptions
) -> None:
    """Warn of what gives draws another distribution than the posterior, or takes time in proportion to N.

    `ValueError` is raised if a rate cannot be estimated from minibatches.
    """
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
    gradient, prior = conjugacy.gradient, conjugacy.prior
    if conjugacy.form == "frozen" or not gradient.other_names:
        return
    (references, args), rng = conjugacy.place(log_theta, point), np.random.default_rng(_SEED)
    wrong, _ = differing_terms(prior, conjugacy.form, gradient, [args], references, rng)
    if wrong:
        names = ", ".join(map(repr, dict.fromkeys(wrong)))
        raise ValueError(
            f"The likelihood of {prior.name!r} looked conjugate when the step was built, but where the "
            f"chain is now it is not: see {names}. Build the step with an initial_point= at which all "
            "parts of the likelihood matter, or use another step method, such as pm.NUTS."
        )


def require_counts(conjugacy: Conjugacy, counter: Counter, point: Mapping[str, Any]) -> None:
    """Compare the counts of another step with the likelihood, at random allocations.

    `ValueError` is raised if they are not the statistics of the variable.
    """
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
