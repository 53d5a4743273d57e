"""Small models with a plate, as the kernels see them, interpreted; with the model's own log density."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from scipy import stats

from pymc_austerity.kernels.plates.chain_memory import by_effects, by_groups
from pymc_austerity.kernels.plates.coordinates import (
    displacement,
    effects_of,
    eps_of,
    quadratic,
    standardised,
    standardised_from_eps,
)
from pymc_austerity.kernels.plates.cubic import add_cubic
from pymc_austerity.kernels.plates.decisions import (
    Decisions,
    groups_by_drawn_rows,
    outer_by_drawn_rows,
    shared_by_drawn_rows,
)
from pymc_austerity.kernels.plates.moves import PlateState, at_theta, no_state
from pymc_austerity.kernels.plates.nested import delta_of, standardised_outer
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.kernels.plates.slopes import (
    effects_with_slopes,
    eps_with_slopes,
    quadratic_with_slopes,
    scale_factor,
    standardised_from_eps_with_slopes,
    standardised_with_slopes,
)
from pymc_austerity.kernels.plates.thinning import Pair
from pymc_austerity.mode.plates.center import PlateSurvey, find_center
from pymc_austerity.mode.plates.fit import SharedFit, fit_shared
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import point_of
from pymc_austerity.model.plates.plate_model import PlateModel, plate_model
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.plate_plan import plate_arrays
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR
from pymc_austerity.target import Target

N_GROUPS = 30
# Moves are decided exactly, by drawn rows.
DRAWN = Decisions(0, shared_by_drawn_rows, groups_by_drawn_rows, outer_by_drawn_rows)


class Rows(NamedTuple):
    """Data of a case."""

    x: np.ndarray
    groups: np.ndarray
    noise: np.ndarray


def rows_of(n: int, n_groups: int = N_GROUPS, seed: int = 1) -> Rows:
    """Covariates, groups of unequal sizes (the last has no row), and noise."""
    rng = np.random.default_rng(seed)
    weights = rng.gamma(2.0, size=n_groups)
    weights[-1] = 0.0
    groups = rng.choice(n_groups, n, p=weights / weights.sum())
    x = rng.normal(size=n)
    return Rows(np.c_[np.ones(n), x, 0.5 * x + rng.normal(size=n)], groups, rng.random(n))


# Rows of cases in which bounds are to be tight: a dispersion is known well only from many.
SIZES = {"negative binomial": 6000, "zero inflation": 6000}
# Spellings whose effects are not normal.
SLOPES = ("slopes", "slopes non-centered", "two slopes", "lkj", "lkj non-centered", "lkj transposed")
OTHER_PRIORS = ("student", "student non-centered", "free student", "laplace", "logistic")


def _effects(spelling: str, n_groups: int) -> Any:
    tau = pm.HalfNormal("tau", 1.0)
    if spelling in ("non-centered", "both non-centered"):
        return tau * pm.Normal("z", shape=n_groups)
    if spelling == "student non-centered":
        return tau * pm.StudentT("z", 4.0, mu=0.0, sigma=1.0, shape=n_groups)
    mu = pm.Normal("mu", 0.0, 2.0)
    if spelling == "student":
        return pm.StudentT("u", 3.0, mu=mu, sigma=tau, shape=n_groups)
    if spelling == "free student":
        return pm.StudentT("u", 2.0 + pm.Gamma("nu", 2.0, 0.5), mu=mu, sigma=tau, shape=n_groups)
    kinds = {"laplace": pm.Laplace, "logistic": pm.Logistic}
    return kinds.get(spelling, pm.Normal)("u", mu, tau, shape=n_groups)


def _with_slopes(spelling: str, data: Rows, n_groups: int) -> Any:
    """Intercepts and slopes of x, and where there are two, of a square, which is constant in some groups."""
    if spelling.startswith("lkj"):
        return _correlated(spelling, data, n_groups)
    scales = [pm.HalfNormal(name, 1.0) for name in ("tau", "tau_b", "tau_c")[: 3 if "two" in spelling else 2]]
    x = data.x[:, 1]
    covariates = (1.0, x, np.where(data.groups % 3, x**2, 1.0))
    if "non-centered" in spelling:
        effects = [tau * pm.Normal(name, shape=n_groups) for name, tau in zip("abc", scales, strict=False)]
    else:
        locations = (pm.Normal("mu", 0.0, 2.0), 0.3 * pm.Normal("mu_b"), 0.0)
        effects = [
            pm.Normal(name, location, tau, shape=n_groups)
            for name, location, tau in zip("abc", locations, scales, strict=False)
        ]
    return sum(u[data.groups] * z for u, z in zip(effects, covariates, strict=False))


def _correlated(spelling: str, data: Rows, n_groups: int) -> Any:
    """Three effects of each group, two of which are slopes."""
    scales = pm.HalfNormal.dist(1.0, shape=3)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=scales)
    if spelling == "lkj":
        u = pm.MvNormal("u", pm.Normal("mu", 0.0, 2.0, shape=3), chol=chol, shape=(n_groups, 3))
    elif spelling == "lkj non-centered":
        u = pm.Normal("z", shape=(n_groups, 3)) @ chol.T
    else:
        u = (chol @ pm.Normal("z", shape=(3, n_groups))).T
    g, x = data.groups, data.x[:, 1]
    return u[g, 0] + u[g, 1] * x + u[g, 2] * np.cos(3.0 * x)


def _likelihood(name: str, eta: Any, data: Rows) -> None:
    u = np.random.default_rng(7).normal(0.0, 0.7, data.groups.max() + 1)
    predictor = data.x @ [-0.4, 0.6, -0.3] + u[data.groups]
    if name == "bernoulli":
        pm.Bernoulli("y", logit_p=eta, observed=(data.noise < 1 / (1 + np.exp(-predictor))).astype(int))
    elif name == "poisson":
        y = np.random.default_rng(8).poisson(np.exp(predictor))
        pm.Poisson("y", pm.math.exp(eta), observed=y)
    elif name == "negative binomial":
        rng = np.random.default_rng(8)
        y = rng.poisson(np.exp(predictor) * rng.gamma(3.0, 1 / 3.0, len(predictor)))
        pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=pm.Gamma("alpha", 2.0, 0.5), observed=y)
    elif name == "zero inflation":
        rng = np.random.default_rng(8)
        y = rng.poisson(np.exp(1.0 + predictor)) * (rng.random(len(predictor)) < 0.7)
        kind = pm.ZeroInflatedNegativeBinomial
        kind(
            "y",
            psi=pm.Beta("psi", 2.0, 2.0),
            mu=pm.math.exp(eta),
            alpha=pm.Gamma("alpha", 2.0, 0.5),
            observed=y,
        )
    else:
        y = predictor + 0.5 * np.random.default_rng(9).standard_normal(len(predictor))
        pm.Normal("y", eta, pm.HalfNormal("sigma"), observed=y)


def model_of(likelihood: str, spelling: str, n: int, n_groups: int = N_GROUPS) -> pm.Model:
    """A model with an intercept, slopes and effects; `crossed`, or `both`, with a second factor."""
    data = rows_of(n, n_groups)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 2.0, shape=3)
        if spelling in SLOPES:
            eta = data.x @ beta + _with_slopes(spelling, data, n_groups)
        else:
            eta = data.x @ beta + _effects(spelling, n_groups)[data.groups]
        if spelling == "crossed":
            eta += pm.Normal("v", 0.3, pm.HalfNormal("tau_v"), shape=5)[np.arange(n) % 5]
        if spelling == "both non-centered":
            eta += (pm.HalfNormal("tau_v") * pm.Normal("v", shape=5))[np.arange(n) % 5]
        _likelihood(likelihood, eta, data)
    return model


class Case(NamedTuple):
    """A plate with all that its kernels take.

    `log_density` is the model's own, of theta as the chain has it, and the effects as the model has them.
    """

    model: pm.Model
    plate: PlateModel
    survey: PlateSurvey
    fit: SharedFit
    arrays: Plate
    target: Target
    args: tuple[Any, ...]
    log_density: Any

    def state(self, theta: np.ndarray, eps: np.ndarray) -> PlateState:
        """The state of a chain there."""
        empty = no_state(len(theta), self.arrays)
        return at_theta(empty, theta, self.delta(theta), eps, self.arrays, self.args, self.target)

    def delta(self, theta: np.ndarray) -> np.ndarray:
        """delta of the outer effects in theta."""
        sums, outer, features = self.arrays.sums, self.arrays.outer, self.target.features(theta, self.args)
        z, delta = np.empty(len(outer.columns)), np.empty(len(outer.columns))
        if len(delta):
            d = self.given(theta)[0]
            standardised_outer(sums, outer, theta, d, features, z)
            delta_of(sums, outer, theta, d, features, z, delta)
        return delta

    def given(self, theta: np.ndarray) -> tuple[np.ndarray, Any, float]:
        """d, tau, and the logarithm of the precision of residuals; a Cholesky factor in the place of tau."""
        d = np.empty(len(self.arrays.sums.center))
        displacement(self.arrays.sums, theta, d)
        q = self.plate.n_effects
        if q > 1:
            features = self.target.features(theta, self.args)
            return d, scale_factor(features, q), float(features[q * (q + 1) // 2])
        tau, log_precision = self.target.features(theta, self.args)[:2]
        return d, float(tau), float(log_precision)

    def effects(self, theta: np.ndarray, eps: np.ndarray) -> np.ndarray:
        """The effects as the model has them."""
        sums, q, (d, scale, log_precision) = self.arrays.sums, self.plate.n_effects, self.given(theta)
        z, effects, nu = np.empty(len(eps)), np.empty(len(eps)), self.state(theta, eps).locations
        if q == 1:
            standardised_from_eps(sums, scale, log_precision, nu, eps, z)
        else:
            standardised_from_eps_with_slopes(sums, scale, log_precision, nu, eps, z)
        if not self.plate.is_centered:
            return by_effects(z, self.plate.n_vectors) * self.arrays.effects.ratio
        (effects_of if q == 1 else effects_with_slopes)(sums, d, scale, z, effects)
        return by_effects(effects, self.plate.n_vectors)

    def eps(self, theta: np.ndarray, effects: np.ndarray) -> np.ndarray:
        """eps, from these."""
        sums, q, (d, scale, log_precision) = self.arrays.sums, self.plate.n_effects, self.given(theta)
        eps, z = np.empty(len(effects)), by_groups(effects, self.plate.n_vectors)
        if self.plate.is_centered:
            effects = z.copy()
            (standardised if q == 1 else standardised_with_slopes)(sums, d, scale, effects, z)
        else:
            z /= self.arrays.effects.ratio
        (eps_of if q == 1 else eps_with_slopes)(sums, d, scale, log_precision, z, eps)
        return eps

    def quadratic(self, theta: np.ndarray) -> float:
        """See `coordinates`."""
        n, q = len(self.arrays.sums.slopes), self.plate.n_effects
        of = quadratic if q == 1 else quadratic_with_slopes
        return of(self.arrays.sums, *self.given(theta), np.empty(n), np.empty(n), np.empty(n * q))

    def draw(self, rng: np.random.Generator, width: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """theta near its fit, and eps."""
        zeta = self.fit.mean + width * self.fit.factor @ rng.standard_normal(len(self.fit.mean))
        theta = self.fit.map.to_theta(zeta, self.survey.shared.inner_scales(zeta) ** 2)
        return theta, width * rng.standard_normal(len(self.arrays.sums.slopes))


def survey_of_model(model: pm.Model, n_first: int = 100) -> tuple[PlateModel, PlateSurvey]:
    """The plate of a model, and its rows."""
    options = checked_options(None, EXACT, control_variate=TAYLOR, model=model, threshold=n_first)
    point = model.initial_point()
    plate = plate_model(model, factorised(options, point))
    assert plate is not None
    return plate, PlateSurvey(plate, point)


def case_of_model(model: pm.Model, *, reads_all: bool = False, n_first: int = 100) -> Case:
    """Fit the plate of a model; nothing is compiled."""
    with interpreted():
        plate, survey = survey_of_model(model, n_first)
        point = model.initial_point()
        fit, at, sums = fit_shared(survey, find_center(survey)[0])
        arrays = plate_arrays(survey, fit, at, sums, reads_all=reads_all, debug=False)
        compiled = CompiledTarget(survey.of_kernel)
        logp = model.compile_logp(mode="FAST_COMPILE")

    def log_density(theta: np.ndarray, effects: np.ndarray) -> float:
        features = survey.shared.features(theta)
        own = plate.scaled.in_model(theta, features)
        found = logp(point_of(plate.factorisation, np.concatenate([own, effects]), point))
        return float(found) - np.log(features[plate.scaled.features]).sum()

    return Case(model, plate, survey, fit, arrays, compiled.interpreted(), compiled.args(point), log_density)


@cache
def case_of(likelihood: str, spelling: str, n: int, n_groups: int = N_GROUPS) -> Case:
    """The case of `model_of`."""
    return case_of_model(model_of(likelihood, spelling, n, n_groups))


def pair_of(old: PlateState, new: PlateState) -> Pair:
    """Two states, as they are compared."""
    return Pair(old.levels, new.levels, old.d, new.d, old.displaced, new.displaced)


def groups_of(case: Case) -> np.ndarray:
    """Of the rows as they are sorted."""
    starts = case.arrays.rows.starts
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def levels_of_rows(case: Case, levels: np.ndarray) -> np.ndarray:
    """e_g of each row, or Z_i . e_g."""
    q, groups = case.plate.n_effects, groups_of(case)
    own = levels.reshape(-1, q)[groups]
    return own[:, 0] + (own[:, 1:] * case.arrays.rows.covariates).sum(axis=1)


def _left_by_regression(case: Case) -> np.ndarray:
    """z_i by least squares within each group, where there are slopes."""
    rows, sums = case.arrays.rows, case.arrays.sums
    z = np.zeros((len(rows.x), len(sums.center)))
    z[:, sums.dense] = rows.x
    for first, last in zip(rows.starts, rows.starts[1:], strict=False):
        weights = -rows.curvatures[first:last]
        root = np.sqrt(weights if weights.any() else np.ones(last - first))[:, None]
        own = root * np.c_[np.ones(last - first), rows.covariates[first:last]]
        z[first:last] -= own / root @ np.linalg.lstsq(own, root * z[first:last], rcond=1e-10)[0]
    return z


def columns_within(case: Case) -> np.ndarray:
    """z_i of all P columns, those of levels of other factors as zeros and ones less their means."""
    if case.plate.n_effects > 1:
        return _left_by_regression(case)
    rows, sums = case.arrays.rows, case.arrays.sums
    groups = np.repeat(np.arange(len(sums.slopes)), np.diff(rows.starts))
    x = np.zeros((len(groups), len(sums.center)))
    x[:, sums.dense] = rows.x
    for one in rows.levels:
        x[np.arange(len(x)), one] = 1.0
    weights = np.where(sums.curvatures[groups] > 0.0, -rows.curvatures, 1.0)
    totals = np.bincount(groups, weights, minlength=len(sums.slopes))
    means = np.stack([np.bincount(groups, weights * c, minlength=len(totals)) for c in x.T], axis=1)
    mixed = [np.bincount(groups, one, minlength=len(totals)) for one in rows.dispersions.mixed]
    for one, slopes in zip(mixed, sums.phi_slopes, strict=True):
        means -= np.outer(np.where(sums.curvatures > 0.0, one, 0.0), slopes)
    return x - (means / np.where(totals > 0.0, totals, 1.0)[:, None])[groups]


def log_remainders(case: Case, state: PlateState) -> float:
    """Sum of all that is beyond the second order, by the rows of the model and NumPy."""
    rows, sums = case.arrays.rows, case.arrays.sums
    t = levels_of_rows(case, state.levels) + columns_within(case) @ state.d
    psi = sums.phi_slopes @ state.d
    value = row_values(case, rows.predictors + t, sums.phi + psi)
    return float((value - polynomials(case, t, psi)).sum())


def log_cubic(case: Case, state: PlateState) -> float:
    """Sum of all third-order terms, as the kernels have it."""
    of_groups = np.zeros(len(state.cubic.firsts))
    add_cubic(case.arrays.cubic, state.cubic, state.levels, 1.0, of_groups)
    return float(of_groups.sum() + state.cubic.constant)


def mean_power(y: np.ndarray, y_new: np.ndarray, power: int) -> np.ndarray:
    """Mean of |y|^m along a segment, by its integral."""
    ends = [np.abs(each) ** power * each / (power + 1) for each in (y, y_new)]
    step = y_new - y
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(np.abs(step) > 1e-12, (ends[1] - ends[0]) / step, np.abs(y) ** power)


def polynomials(case: Case, t: np.ndarray, psi: np.ndarray) -> np.ndarray:
    """Those of the rows, of the second order."""
    rows, n = case.arrays.rows, len(psi)
    base = t * (rows.slopes + 0.5 * rows.curvatures * t)
    slopes, mixed, seconds = rows.dispersions
    pairs = [(j, k) for j in range(n) for k in range(j, n)]
    base += psi @ slopes + t * (psi @ mixed)
    return base + sum(psi[j] * psi[k] * one for (j, k), one in zip(pairs, seconds, strict=True))


def row_values(case: Case, eta: np.ndarray, phi: np.ndarray) -> np.ndarray:
    """Log density of the rows as they are sorted, without constants."""
    observed = case.model.rvs_to_values[case.model["y"]]
    y = np.asarray(observed.data, dtype=float)[order_of(case)]
    if len(phi) == 2:  # in the order of the variables
        alpha, psi = np.exp(phi[0]), 1.0 / (1.0 + np.exp(-phi[1]))
        log_p = stats.nbinom.logpmf(y, alpha, alpha / (alpha + np.exp(eta)))
        return np.where(y > 0, np.log(psi) + log_p, np.log(1.0 - psi + psi * np.exp(log_p)))
    if len(phi) == 1:
        return stats.nbinom.logpmf(y, np.exp(phi[0]), np.exp(phi[0]) / (np.exp(phi[0]) + np.exp(eta)))
    if type(case.model["y"].owner.op).__name__.startswith("Bernoulli"):
        return y * eta - np.logaddexp(0.0, eta)
    return y * eta - np.exp(eta)


def order_of(case: Case) -> np.ndarray:
    """Rows of the model in the order of their groups."""
    groups = case.plate.rows.groups(np.arange(case.plate.rows.n_rows))
    return np.argsort(groups, kind="stable")
