"""What is known of the likelihood of one variable: its form, found by numbers, and sufficient statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pymc as pm
from pytensor.graph.traversal import ancestors

from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.conjugacy.families import GammaPrior, LikelihoodForm, Totals
from pymc_austerity.model.conjugacy.gradients import LikelihoodGradient
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.target import Array

_SEED = 2018
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


class Place(NamedTuple):
    """A point at which derivatives of the likelihood are taken."""

    references: tuple[Array, ...]  # Natural values of the variable
    args: tuple[Any, ...]  # Other variables and data, as `LikelihoodGradient` takes them


class Groups(NamedTuple):
    """Statistics of parts of a minibatch."""

    totals: Totals  # Of each group, unscaled; its first axis has one entry for each group
    sizes: npt.NDArray[np.int64]  # Rows of each group
    n_rows: int  # N, rows of the local term


@dataclass(eq=False)
class Conjugacy:
    """The likelihood of one variable: its form, and sufficient statistics, or derivatives.

    It has size N, but for its pickles, which leave the derivatives out.
    """

    prior: GammaPrior
    gradient: LikelihoodGradient
    batch_sizes: list[int] | None  # Rows of each local term in a minibatch; None: all are read
    form: LikelihoodForm
    references: tuple[Array, ...]  # Natural values at which G is taken; none if frozen
    nonlinear: tuple[str, ...] = ()  # Names of terms that are of no conjugate form
    totals: Totals | None = None  # Over all data, if they depend on no other variable
    shift: float = 0.0  # M of a frozen drift
    _short: Totals | None = field(default=None, init=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "gradient": None, "_short": None}

    def place(self, log_theta: Array, point: Mapping[str, Any]) -> Place:
        """Where derivatives are taken when the processes are at `log_theta`.

        Rates: near the present theta, which may be far from where the step was built, little is lost.
        """
        references = self.references
        if self.form == "frozen" or (self.form == "rate" and self.totals is None):
            natural = self.prior.family.natural(log_theta)
            references = (natural,) if self.form == "frozen" else self.prior.family.reference_pair(natural)
        return Place(references, self.gradient.args(point))

    def full(self, place: Place) -> Totals:
        """Statistics of all the data."""
        if self.totals is not None:
            return self.totals
        derivatives = [self.gradient.terms(r, place.args).sum(axis=0) for r in place.references]
        return self._statistics(derivatives, place)

    def short(self, place: Place) -> Totals:
        """Statistics of the terms that are not subsampled."""
        if self._short is not None:
            return self._short
        derivatives = [self.gradient.short(r, place.args).sum(axis=0) for r in place.references]
        found = self._statistics(derivatives, place)
        if self.totals is not None:
            self._short = found
        return found

    def groups(self, term: int, place: Place, index: Any, sizes: Any) -> Groups:
        """Statistics of consecutive groups, of these sizes, of the rows `index` of a local term."""
        ends = np.cumsum(sizes)
        sums = [
            np.array(
                [
                    self.gradient.rows(term, r, index[end - size : end], place.args)
                    for size, end in zip(sizes, ends, strict=True)
                ]
            )
            for r in place.references
        ]
        return Groups(self._statistics(sums, place), sizes, self.gradient.sizes[term])

    def _statistics(self, derivatives: Sequence[Array], place: Place) -> Totals:
        return self.prior.family.statistics(self.form, derivatives, place.references)


def analyse(
    model: pm.Model,
    prior: GammaPrior,
    gradient: LikelihoodGradient,
    batch_sizes: list[int] | None,
    point: Mapping[str, Any],
) -> Conjugacy:
    """Find the form of the likelihood in one variable, whose prior is compared with PyMC's.

    `ValueError` names the term whose derivative is not a number at `point`.
    """
    require_prior(model, prior, point)
    family, rng = prior.family, np.random.default_rng(_SEED)
    here = gradient.args(point)
    others = [here, *_elsewhere(model, gradient, point, rng)]
    start = family.natural(family.log_gammas(point[prior.value_name]))

    def total(natural: Array) -> Array:
        return gradient.terms(natural, here).sum(axis=0)

    wrong: list[str] = []
    with np.errstate(all="ignore"):
        for form in family.forms:
            references = family.references(form, start, total, prior.parameters(point))
            wrong, flat = differing_terms(prior, form, gradient, others, references, rng)
            # Terms without any derivative at all points prove nothing: they are of no form.
            wrong = wrong or flat
            if wrong:
                continue
            found = Conjugacy(prior, gradient, batch_sizes, form, references)
            # That statistics do not change from one point to another would prove nothing.
            if not gradient.other_names:
                found.totals = found.full(Place(references, here))
            return found
        derivatives = gradient.terms(start, here)
    for name, derivative in zip(gradient.names, derivatives, strict=True):
        if not np.all(np.isfinite(derivative)):
            raise ValueError(
                f"The derivative of the term {name!r} by {prior.name!r} is not finite at the initial point. "
                "Give the step an initial_point= at which the log density is smooth."
            )
    n_terms = gradient.n_local + len(gradient.names) - len(gradient.sizes)
    shift = family.default_shift(derivatives, n_terms)
    nonlinear = tuple(dict.fromkeys(wrong))
    return Conjugacy(prior, gradient, batch_sizes, "frozen", (), nonlinear, shift=shift)


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
    prior: GammaPrior,
    form: LikelihoodForm,
    gradient: LikelihoodGradient,
    others: Sequence[tuple[Any, ...]],
    references: tuple[Array, ...],
    rng: np.random.Generator,
) -> tuple[list[str], list[str]]:
    """Terms whose derivatives differ from the form's at random points, and those without any."""
    family, wrong = prior.family, list[str]()
    seen = np.zeros(len(gradient.names), dtype=bool)
    for k, args in enumerate(others):
        at = [gradient.terms(r, args) for r in references]
        if k > 0 and not np.all(np.isfinite(at)):
            continue  # out of the support, perhaps
        seen |= np.any(at, axis=(0, 2))
        found = family.statistics(form, at, references)
        scale = np.abs(found.s) + np.abs(found.t) * family.weights(references[0])
        scale = scale.max(axis=(-1, -2), initial=0.0)[..., None, None] + 1e-300
        for _ in range(_N_POINTS):
            natural = family.random_natural(references[0], rng)
            residuals = family.residuals(form, found, gradient.terms(natural, args), natural)
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
