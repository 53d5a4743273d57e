"""Find out by numbers which form a likelihood has in one variable (see `forms`)."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymc as pm
from pytensor.graph.traversal import ancestors

from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.conjugacy.forms import FROZEN, ConjugateForm, GammaFamily
from pymc_austerity.model.conjugacy.gradients import LikelihoodGradient
from pymc_austerity.model.conjugacy.priors import GammaPrior
from pymc_austerity.model.conjugacy.statistics import Structure
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.target import Array

# Random points at which a form is verified, for each of several values of the other variables, which are
# moved by up to these distances.
_N_POINTS = 3
_DISTANCES = (0.1, 1.0, 3.0)
_TOLERANCE = 1e-7

# Priors are compared at this many pairs of points, the first with the other variables where they are, and
# the second with them moved by up to the distance.
_PRIOR_SEED = 2019
_PRIOR_DISTANCES = (0.0, 0.3)
_PRIOR_TOLERANCE = 1e-6


def analyse(
    model: pm.Model,
    prior: GammaPrior,
    gradient: LikelihoodGradient,
    point: Mapping[str, Any],
    rng: np.random.Generator,
) -> Structure:
    """Find the form of the likelihood in one variable, whose prior is compared with PyMC's.

    `ValueError` names the term whose derivative is not a number at `point`.
    """
    require_prior(model, prior, point)
    family = prior.family
    here = gradient.args(point)
    others = [here, *_elsewhere(model, gradient, point, rng)]
    start = family.natural(family.log_gammas(point[prior.value_name]))

    def total(natural: Array) -> Array:
        return gradient.terms(natural, here).sum(axis=0)

    wrong: list[str] = []
    with np.errstate(all="ignore"):
        for form in family.forms:
            references = form.first_references(family, start, total, prior.parameters(point))
            wrong, flat = differing_terms(family, form, gradient, others, references, rng)
            # Terms without any derivative at all points prove nothing: they are of no form.
            wrong = wrong or flat
            if wrong:
                continue
            totals = None
            # That statistics do not change from one point to another would prove nothing.
            if not gradient.other_names:
                totals = form.statistics(family, [total(r) for r in references], references)
            return Structure(form, references, (), totals, 0.0)
        derivatives = gradient.terms(start, here)
    for name, derivative in zip(gradient.names, derivatives, strict=True):
        if not np.all(np.isfinite(derivative)):
            raise ValueError(
                f"The derivative of the term {name!r} by {prior.name!r} is not finite at the initial point. "
                "Give the step an initial_point= at which the log density is smooth."
            )
    n_terms = gradient.n_local + len(gradient.names) - len(gradient.sizes)
    shift = family.default_shift(derivatives, n_terms)
    return Structure(FROZEN, (), tuple(dict.fromkeys(wrong)), None, shift)


@np.errstate(all="ignore")
def require_prior(model: pm.Model, prior: GammaPrior, point: Mapping[str, Any]) -> None:
    """Compare the prior that a family states with PyMC's: changes of the log density between random points.

    `SelfCheckError` names the variable and its family, if they differ in a row.
    """
    family, rng = prior.family, np.random.default_rng(_PRIOR_SEED)
    graph = model.logp(vars=[prior.rv], sum=False)[0]
    used = set(ancestors([graph]))
    inputs = [v for v in model.value_vars if v in used]
    function = pm.compile(inputs, graph, mode=INTERPRETED)
    for distance in _PRIOR_DISTANCES:
        at = dict(point)
        for name in prior.parents:
            value = np.asarray(point[name])
            if value.dtype.kind == "f":
                at[name] = value + rng.uniform(-distance, distance, value.shape)
        try:
            alpha, rate = prior.parameters(at)
        except ValueError:
            continue  # moved out of the support
        ours, theirs = [], []
        for _ in range(2):
            log_theta = np.log(alpha) - np.log(rate) + rng.uniform(-1.0, 1.0, alpha.shape)
            at[prior.value_name] = family.value(log_theta)
            ours.append(family.log_density(log_theta, alpha, rate))
            theirs.append(np.reshape(function(*(at[v.name] for v in inputs)), np.shape(ours[-1])))
        change, expected = ours[1] - ours[0], theirs[1] - theirs[0]
        scale = 1.0 + np.abs([*ours, *theirs]).max(axis=0)
        wrong = np.flatnonzero(~(np.abs(change - expected) <= _PRIOR_TOLERANCE * scale))
        if len(wrong):
            raise SelfCheckError(
                f"Self-check failed for the prior of {prior.name!r}: between two points its log density "
                f"changes by {float(expected[wrong[0]]):.6g}, and that of the gamma variables of the family "
                f"{type(family).__name__!r} by {float(change[wrong[0]]):.6g}. This is a defect of the "
                f"family, or it does not take such parameters. Give {prior.name!r} to another step method, "
                "such as pm.NUTS."
            )


@np.errstate(all="ignore")
def differing_terms(
    family: GammaFamily,
    form: ConjugateForm,
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
        found = form.statistics(family, at, references)
        scale = np.abs(found.s) + np.abs(found.t) * family.weights(references[0])
        scale = scale.max(axis=(-1, -2), initial=0.0)[..., None, None] + 1e-300
        for _ in range(_N_POINTS):
            natural = family.random_natural(references[0], rng)
            tables = family.table(gradient.terms(natural, args))
            residuals = form.residuals(family, found, tables, family.weights(natural))
            right = np.abs(residuals) <= _TOLERANCE * scale
            wrong += [n for n, ok in zip(gradient.names, right.all(axis=(1, 2)), strict=True) if not ok]
        if wrong:
            break
    return wrong, [name for name, known in zip(gradient.names, seen, strict=True) if not known]


def _elsewhere(
    model: pm.Model, gradient: LikelihoodGradient, point: Mapping[str, Any], rng: np.random.Generator
) -> list[tuple[Any, ...]]:
    """Arguments of the derivatives for other values of the other variables.

    Discrete variables are drawn from their prior: where a chain begins they are often all alike.
    """
    if not gradient.other_names:
        return []
    values = {name: np.asarray(point[name]) for name in gradient.other_names}
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
        drawn = np.asarray(
            pm.draw(model.values_to_rvs[variable], draws=shape[0], random_seed=rng, mode=INTERPRETED)
        )
    # A flat prior has no draws; and draws of parents may be no parameters of the distribution.
    except (NotImplementedError, ValueError):
        drawn = value + rng.integers(0, 2, shape)
    return np.broadcast_to(drawn, shape).astype(value.dtype)
