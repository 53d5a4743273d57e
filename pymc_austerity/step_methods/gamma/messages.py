"""What a step for gamma processes tells when it is built: what gives its draws another law."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_austerity.exceptions import warn
from pymc_austerity.kernels.cox_ingersoll_ross import cir_noise
from pymc_austerity.model.conjugacy.forms import Array, Conjugacy
from pymc_austerity.model.conjugacy.recognise import wrong_terms_at
from pymc_austerity.step_methods.gamma.estimates import estimated, noise_ratio

_SEED = 2018
# Minibatches from which the coefficient of variation of a rate is told.
_N_BATCHES = 50
# Minibatches from which the inflation is told, and by how much standard deviations may grow without a word.
_FEW_BATCHES, _MUCH_WIDER = 5, 1.1


def tell(
    conjugacy: Conjugacy,
    counts: list[int] | None,
    point: Mapping[str, Any],
    step_size: float,
    *,
    minibatch_rate: bool,
    anchored: bool,
) -> None:
    """Warn of what makes draws have another law than the posterior, or takes time in proportion to N.

    Parameters
    ----------
    conjugacy : Conjugacy
    counts : list of int or None
        Rows drawn of each local term.
    point : dict of str to ndarray
    step_size : float
    minibatch_rate : bool
        Whether rates are estimated.
    anchored : bool
        Whether only changes since an anchor are estimated: how large these are is not known yet.
    """
    prior, structure = conjugacy.prior, conjugacy.structure
    if structure.form == "frozen":
        terms = ", ".join(repr(name) for name in structure.nonlinear)
        warn(
            f"The likelihood is not linear in the logarithm of {prior.name!r}: see the term {terms}. The "
            "drift is frozen during each transition, which biases the draws in proportion to step_size. "
            "Compare two step sizes; if a transition is refused, give a shift= (M) large enough for a_hat "
            "to be positive."
        )
    if counts is None:
        return
    if not (minibatch_rate or anchored):
        _tell_of_inflation(conjugacy, counts, point, step_size)
    if structure.form != "rate":
        return
    if minibatch_rate and not structure.constant:
        raise ValueError(
            f"minibatch_rate=True needs a rate of {prior.name!r} that does not depend on other variables, "
            f"but it depends on {', '.join(map(repr, conjugacy.gradient.parents))}: time is measured by the "
            "rate of all data, which changes with them. Use minibatch_rate=False."
        )
    if minibatch_rate:
        _tell_of_estimated_rate(conjugacy, counts, point, step_size)
    elif not structure.constant:
        warn(
            f"The rate of {prior.name!r} depends on other variables and is computed from all "
            f"{conjugacy.gradient.n_local} rows in every transition. batch_size=None costs the same and "
            "is exact."
        )


def warn_of_unused(
    conjugacies: Sequence[Conjugacy], *, shift: float | None, minibatch_rate: bool, subsampled: bool
) -> None:
    """Warn of options that no variable of the step has a use for."""
    forms = {c.prior.name: c.structure.form for c in conjugacies}
    names = ", ".join(map(repr, forms))
    if shift is not None and "frozen" not in forms.values():
        warn(
            f"shift={shift!r} was not used: the likelihood of {names} is conjugate, and a shift is for "
            "drifts that are frozen."
        )
    if minibatch_rate and not (subsampled and "rate" in forms.values()):
        why = (
            f"the likelihood adds no sum over rows to the rate of {names}"
            if subsampled
            else "without a batch_size everything is exact"
        )
        warn(f"minibatch_rate=True was not used: {why}.")


def require_forms(
    conjugacies: Sequence[Conjugacy], log_theta: Sequence[Array | None], point: Mapping[str, Any]
) -> None:
    """Verify the forms of the likelihood once more, where a chain has come to.

    Raises
    ------
    ValueError
        Naming the variable and the terms.
    """
    for conjugacy, logs in zip(conjugacies, log_theta, strict=True):
        gradient, prior = conjugacy.gradient, conjugacy.prior
        if conjugacy.structure.form == "frozen" or not gradient.parents:
            continue
        assert logs is not None
        natural = prior.natural(logs)
        references = conjugacy.references(lambda here=natural: here)  # type: ignore[misc]
        args, rng = gradient.args(point), np.random.default_rng(_SEED)
        wrong = wrong_terms_at(prior, gradient, conjugacy.structure, references, args, rng)
        if wrong:
            names = ", ".join(map(repr, dict.fromkeys(wrong)))
            raise ValueError(
                f"The likelihood of {prior.name!r} looked conjugate when the step was built, but where the "
                f"chain is now it is not: see {names}. Build the step with an initial_point= at which all "
                "parts of the likelihood matter, or use another step method, such as pm.NUTS."
            )


def _tell_of_inflation(
    conjugacy: Conjugacy, counts: list[int], point: Mapping[str, Any], step_size: float
) -> None:
    """Warn of a minibatch that makes the law much wider."""
    prior = conjugacy.prior
    alpha, rate = prior.parameters(point)
    log_theta = prior.log_gammas(point[prior.value_name])
    if not np.all(np.isfinite(log_theta)):
        return  # the first transition will tell
    references = conjugacy.references(lambda: prior.natural(log_theta))
    args, rng = conjugacy.gradient.args(point), np.random.default_rng(_SEED)
    ratios = []
    for _ in range(_FEW_BATCHES):
        found = estimated(
            conjugacy, references, args, counts, rng, noisy_rate=False, anchor=None, anchor_args=()
        )
        shape = np.maximum(alpha + found.totals.s, alpha)
        ratios.append(noise_ratio(found, shape, rate + found.totals.t, is_simplex=prior.is_simplex))
    wider = float(np.sqrt(1.0 + cir_noise(step_size) * np.mean(ratios)))
    if not wider <= _MUCH_WIDER:
        constant = conjugacy.structure.constant
        exact = " batch_size=None is exact, and reads no rows." if constant else ""
        size = (
            f"about {wider:.3g} times too large" if np.isfinite(wider) else "too large by an unknown factor"
        )
        warn(
            f"Minibatches of {sum(counts):,} of {conjugacy.gradient.n_local:,} rows with step_size="
            f"{step_size:.3g} make the standard deviation of {prior.name!r} {size} (sample statistic "
            "variance_inflation: its mean is the square of that)."
            f"{exact or ' Take larger batches or a smaller step_size.'}"
        )


def _tell_of_estimated_rate(
    conjugacy: Conjugacy, counts: list[int], point: Mapping[str, Any], step_size: float
) -> None:
    """Warn of the two errors of a rate b that is estimated."""
    prior, references = conjugacy.prior, conjugacy.structure.references
    alpha, rate = prior.parameters(point)
    args = conjugacy.gradient.args(point)
    full = conjugacy.full(references, args)
    rng, relative = np.random.default_rng(_SEED), []
    for _ in range(_N_BATCHES):
        found = estimated(
            conjugacy, references, args, counts, rng, noisy_rate=True, anchor=None, anchor_args=()
        )
        # Var(b_hat) / b^2, by the same formula as Var(a_hat) / a with a = 1 and no noise in a_hat.
        groups = [g._replace(totals=g.totals._replace(s=np.zeros_like(g.totals.s))) for g in found.groups]
        ratio = noise_ratio(
            found._replace(groups=groups), np.ones_like(alpha), rate + full.t, is_simplex=False
        )
        relative.append(ratio)
    c2, a = float(np.mean(relative)), float(np.max(alpha + full.s))
    wider = np.sqrt(1.0 + cir_noise(step_size) * a * c2)
    warn(
        f"The rate of {prior.name!r} is estimated from minibatches, with a coefficient of variation "
        f"c = {np.sqrt(c2):.2g}. Its mean is then too large by c^2 h / 2 = {c2 * step_size / 2:.2g} of "
        f"itself, and its standard deviation by at most sqrt(1 + tanh(h / 2) a c^2) = {wider:.3g}. With "
        "minibatch_rate=False the rate is exact."
    )
