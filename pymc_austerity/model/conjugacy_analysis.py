"""Find out by numbers which form a likelihood has in one variable (see `conjugacy`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pymc_austerity.model.conjugacy import Array, Form, Structure, centred, statistics, weights_of, width_of
from pymc_austerity.model.conjugacy_gradients import LikelihoodGradient
from pymc_austerity.model.conjugacy_priors import GammaPrior

# Random points at which a form is verified, for each of two values of the other variables.
_N_POINTS = 3
_TOLERANCE = 1e-7


def analyse(
    prior: GammaPrior, gradient: LikelihoodGradient, point: Mapping[str, Any], rng: np.random.Generator
) -> Structure:
    """Find the form of the likelihood in one variable.

    Raises
    ------
    ValueError
        Naming the term whose derivative is not a number at `point`.
    """
    others = [gradient.args(point), gradient.args(_nearby(point, rng))]
    forms: list[Form] = ["counts", "affine"] if prior.kind == "dirichlet" else ["affine"]
    start = prior.natural(prior.log_gammas(point[prior.value_name]))
    with np.errstate(all="ignore"):
        wrong: list[str] = []
        for form in forms if prior.is_simplex else ["rate"]:
            references = _references(prior, form, gradient, others[0], start, point)  # type: ignore[arg-type]
            wrong = _wrong_terms(prior, form, gradient, others, references, rng)  # type: ignore[arg-type]
            if not wrong:
                return _structure(prior, form, gradient, others, references)  # type: ignore[arg-type]
        here = gradient.terms(start, others[0])
    for name, derivative in zip(gradient.names, here, strict=True):
        if not np.all(np.isfinite(derivative)):
            raise ValueError(
                f"The derivative of the term {name!r} by {prior.name!r} is not finite at the initial point. "
                "Give the step an initial_point= at which the log density is smooth."
            )
    shift = 0.0
    if prior.is_simplex:
        shift = float(gradient.n_local + len(gradient.names) - len(gradient.sizes))
        if prior.kind == "dirichlet":
            per_row = here.sum(axis=0).reshape(prior.n_rows, prior.n_parts).sum(axis=1)
            shift = max(shift, float(per_row.max()))
    return Structure("frozen", (), tuple(dict.fromkeys(wrong)), False, False, None, shift)


def _structure(
    prior: GammaPrior,
    form: Form,
    gradient: LikelihoodGradient,
    others: Sequence[tuple[Any, ...]],
    references: tuple[Array, ...],
) -> Structure:
    """Which of the statistics depend on other variables?"""
    found = [
        statistics(prior, form, [gradient.terms(r, args).sum(axis=0) for r in references], references)
        for args in others
    ]
    size = np.abs(found[0].s) + np.abs(found[0].t) * _scale(prior, references)
    same = gradient.continuous_parents_only
    rate_is_constant = same and bool(np.allclose(found[0].t, found[1].t, rtol=1e-9, atol=0.0))
    shape_is_constant = same and bool(np.all(np.abs(found[0].s - found[1].s) <= 1e-9 * size))
    if not gradient.parents:
        rate_is_constant = shape_is_constant = True
    if not np.any(found[0].t) and not np.any(found[1].t):  # no rate: it never needs the data
        rate_is_constant = True
    return Structure(
        form, references, (), rate_is_constant and shape_is_constant, rate_is_constant, found[0], 0.0
    )


def _references(
    prior: GammaPrior,
    form: Form,
    gradient: LikelihoodGradient,
    args: tuple[Any, ...],
    start: Array,
    point: Mapping[str, Any],
) -> tuple[Array, ...]:
    """Natural values at which derivatives are taken."""
    if prior.kind == "beta":
        return np.full(prior.n_rows, -np.log(3.0)), np.full(prior.n_rows, np.log(3.0))
    if prior.is_simplex:
        flat = np.full(prior.n_rows * prior.n_parts, -np.log(prior.n_parts))
        if form == "counts":
            return (flat,)
        tilted = np.tile(1.0 + np.arange(prior.n_parts) / prior.n_parts, (prior.n_rows, 1))
        return flat, np.log(tilted / tilted.sum(axis=1, keepdims=True)).ravel()
    # Near the conditional mean, where s and t theta are of one size and little is lost in s - t theta.
    alpha, rate = prior.parameters(point)
    first = np.where(np.isfinite(start), start, 0.0)
    for _ in range(2):
        pair = first, first + np.log(2.0)
        s, t = statistics(prior, form, [gradient.terms(r, args).sum(axis=0) for r in pair], pair)
        mean = ((alpha + s) / (rate + t)).ravel()
        first = np.where(np.isfinite(mean) & (mean > 0.0), np.log(np.abs(mean)), first)
    return first, first + np.log(2.0)


def _wrong_terms(
    prior: GammaPrior,
    form: Form,
    gradient: LikelihoodGradient,
    others: Sequence[tuple[Any, ...]],
    references: tuple[Array, ...],
    rng: np.random.Generator,
) -> list[str]:
    """Names of terms whose derivatives at random points are not those that the form predicts."""
    wrong = []
    for args in others:
        at = [gradient.terms(r, args) for r in references]
        found = statistics(prior, form, at, references)
        scale = np.abs(found.s) + np.abs(found.t) * _scale(prior, references)
        scale = scale.max(axis=(-1, -2), initial=0.0)[..., None, None] + 1e-300
        for _ in range(_N_POINTS):
            natural = _random_natural(prior, references[0], rng)
            weights = weights_of(prior, natural)
            tables = gradient.terms(natural, args)
            tables = tables.reshape(len(tables), prior.n_rows, width_of(prior))
            if form == "affine":
                tables = centred(prior, tables, weights)
                expected = found.s - found.s.sum(axis=-1, keepdims=True) * weights
            else:
                expected = found.s - found.t * weights if form == "rate" else found.s
            right = np.abs(tables - expected) <= _TOLERANCE * scale
            wrong += [n for n, ok in zip(gradient.names, right.all(axis=(1, 2)), strict=True) if not ok]
        if wrong:
            break
    return wrong


def _scale(prior: GammaPrior, references: Sequence[Array]) -> Array:
    return weights_of(prior, references[0])


def _random_natural(prior: GammaPrior, reference: Array, rng: np.random.Generator) -> Array:
    if prior.kind == "dirichlet":
        return np.log(rng.dirichlet(np.ones(prior.n_parts), prior.n_rows)).ravel()
    return reference + rng.uniform(-1.0, 1.0, reference.shape)


def _nearby(point: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Other values of the continuous variables."""
    return {
        name: np.asarray(value) + rng.uniform(-0.1, 0.1, np.shape(value))
        if np.asarray(value).dtype.kind == "f"
        else value
        for name, value in point.items()
    }
