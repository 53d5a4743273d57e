"""Find out by numbers which form a likelihood has in one variable (see `conjugacy`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm

from pymc_austerity.model.conjugacy.forms import (
    Array,
    Form,
    Structure,
    centred,
    statistics,
    weights_of,
    width_of,
)
from pymc_austerity.model.conjugacy.gradients import LikelihoodGradient
from pymc_austerity.model.conjugacy.priors import GammaPrior

# Random points at which a form is verified, for each of several values of the other variables, which are
# moved by up to these distances.
_N_POINTS = 3
_DISTANCES = (0.1, 1.0, 3.0)
_TOLERANCE = 1e-7


def analyse(
    model: pm.Model,
    prior: GammaPrior,
    gradient: LikelihoodGradient,
    point: Mapping[str, Any],
    rng: np.random.Generator,
) -> Structure:
    """Find the form of the likelihood in one variable.

    Raises
    ------
    ValueError
        Naming the term whose derivative is not a number at `point`.
    """
    others = [gradient.args(point), *_elsewhere(model, gradient, point, rng)]
    forms: list[Form] = ["counts", "affine"] if prior.kind == "dirichlet" else ["affine"]
    start = prior.natural(prior.log_gammas(point[prior.value_name]))
    with np.errstate(all="ignore"):
        wrong: list[str] = []
        for form in forms if prior.is_simplex else ["rate"]:
            references = _references(prior, form, gradient, others[0], start, point)  # type: ignore[arg-type]
            wrong, flat = _differing_terms(prior, form, gradient, others, references, rng)  # type: ignore[arg-type]
            # Terms without any derivative at all points prove nothing: they are of no form.
            wrong = wrong or flat
            if not wrong:
                return _structure(prior, form, gradient, others[0], references)  # type: ignore[arg-type]
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
    return Structure("frozen", (), tuple(dict.fromkeys(wrong)), None, shift)


def _structure(
    prior: GammaPrior,
    form: Form,
    gradient: LikelihoodGradient,
    args: tuple[Any, ...],
    references: tuple[Array, ...],
) -> Structure:
    """A likelihood of a known form, with its statistics if these depend on no other variable.

    That they do not change from one point to another would prove nothing.
    """
    totals = None
    if not gradient.parents:
        totals = statistics(
            prior, form, [gradient.terms(r, args).sum(axis=0) for r in references], references
        )
    return Structure(form, references, (), totals, 0.0)


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


def _differing_terms(
    prior: GammaPrior,
    form: Form,
    gradient: LikelihoodGradient,
    others: Sequence[tuple[Any, ...]],
    references: tuple[Array, ...],
    rng: np.random.Generator,
) -> tuple[list[str], list[str]]:
    """Terms whose derivatives differ from the form's at random points, and those without any."""
    wrong: list[str] = []
    seen = np.zeros(len(gradient.names), dtype=bool)
    for k, args in enumerate(others):
        at = [gradient.terms(r, args) for r in references]
        if k > 0 and not np.all(np.isfinite(at)):
            continue  # out of the support, perhaps
        seen |= np.any(at, axis=(0, 2))
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
    return wrong, [name for name, known in zip(gradient.names, seen, strict=True) if not known]


def wrong_terms_at(
    prior: GammaPrior,
    gradient: LikelihoodGradient,
    structure: Structure,
    references: tuple[Array, ...],
    args: tuple[Any, ...],
    rng: np.random.Generator,
) -> list[str]:
    """Names of terms that are not of the form that was found, at other values of the other variables."""
    with np.errstate(all="ignore"):
        return _differing_terms(prior, structure.form, gradient, [args], references, rng)[0]


def _scale(prior: GammaPrior, references: Sequence[Array]) -> Array:
    return weights_of(prior, references[0])


def _random_natural(prior: GammaPrior, reference: Array, rng: np.random.Generator) -> Array:
    if prior.kind == "dirichlet":
        return np.log(rng.dirichlet(np.ones(prior.n_parts), prior.n_rows)).ravel()
    return reference + rng.uniform(-1.0, 1.0, reference.shape)


def _elsewhere(
    model: pm.Model, gradient: LikelihoodGradient, point: Mapping[str, Any], rng: np.random.Generator
) -> list[tuple[Any, ...]]:
    """Arguments of the derivatives for other values of the other variables.

    Discrete variables are drawn from their prior: where a chain begins they are often all alike.
    """
    if not gradient.parents:
        return []
    values = {name: np.asarray(point[name]) for name in gradient.parents}
    drawn = {n: _drawn(model, n, value, rng) for n, value in values.items() if value.dtype.kind != "f"}
    found = []
    for k, distance in enumerate(_DISTANCES):
        moved = dict(point)
        for name, value in values.items():
            if name in drawn:
                moved[name] = drawn[name][k]
            else:
                moved[name] = value + rng.uniform(-distance, distance, value.shape)
        found.append(gradient.args(moved))
    return found


def _drawn(model: pm.Model, name: str, value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws from the prior of a discrete variable; small changes where there is none."""
    variable = next(v for v in model.value_vars if v.name == name)
    shape = (len(_DISTANCES), *value.shape)
    try:
        drawn = np.asarray(pm.draw(model.values_to_rvs[variable], draws=shape[0], random_seed=rng))
    # A flat prior has no draws; and draws of parents may be no parameters of the distribution.
    except (NotImplementedError, ValueError):
        drawn = value + rng.integers(0, 2, shape)
    return np.broadcast_to(drawn, shape).astype(value.dtype)
