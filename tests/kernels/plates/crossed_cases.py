"""Small models of two crossed factors, as the kernels see either turn; with the model's own log density."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

from pymc_austerity.kernels.plates.coordinates import effects_of, standardised_from_eps
from pymc_austerity.kernels.plates.crossed import given_others
from pymc_austerity.kernels.plates.moves import PlateState, at_theta, no_state
from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.mode.plates.crossed_center import CrossedSurvey, around, find_crossed_center
from pymc_austerity.mode.plates.fit import SharedFit, fit_shared
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import point_of
from pymc_austerity.model.plates.crossed import CrossedModel, crossed_model
from pymc_austerity.model.plates.plate_model import PlateModel
from pymc_austerity.step_methods.metropolis.crossed_plan import turn_arrays
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR
from pymc_austerity.target import Target
from tests.kernels.plates.cases import groups_of

N, G, H = 900, 130, 110
SPELLINGS = ("centered", "non-centered", "located")
RNG = np.random.default_rng(71)
X = np.c_[np.ones(N), RNG.normal(0.2, 1.0, N), RNG.normal(size=N)]
GROUPS, LEVELS = RNG.integers(G - 1, size=N), RNG.integers(H - 1, size=N)  # the last have no rows
X[:, 2] += 0.5 * RNG.normal(size=H)[LEVELS]  # varies between levels, too
ETA = X @ [-0.4, 0.6, -0.3] + RNG.normal(0.0, 0.6, G)[GROUPS] + RNG.normal(0.0, 0.8, H)[LEVELS]


def model_of(likelihood: str, spelling: str) -> pm.Model:
    """A model with three coefficients and two factors."""
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.0, 2.0, shape=3)
        tau, tau_v = pm.HalfNormal("tau", 1.0), pm.HalfNormal("tau_v", 1.0)
        if spelling == "non-centered":
            u, v = tau * pm.Normal("u", shape=G), tau_v * pm.Normal("v", shape=H)
        elif spelling == "located":
            u, v = pm.Normal("u", 0.5 + 0.3 * beta[0], tau, shape=G), pm.Normal("v", beta[0], tau_v, shape=H)
        else:
            u, v = pm.Normal("u", 0.0, tau, shape=G), pm.Normal("v", 0.0, tau_v, shape=H)
        first = 1 if spelling == "located" else 0
        eta = X[:, first:] @ beta[first:] + u[GROUPS] + v[LEVELS]
        if likelihood == "bernoulli":
            pm.Bernoulli("y", logit_p=eta, observed=(1 / (1 + np.exp(-ETA)) > RNG_Y).astype(int))
        elif likelihood == "poisson":
            pm.Poisson("y", pm.math.exp(eta), observed=np.random.default_rng(8).poisson(np.exp(ETA)))
        else:
            y = ETA + 0.7 * np.random.default_rng(9).standard_normal(N)
            pm.Normal("y", eta, pm.HalfNormal("sigma"), observed=y)
    return model


RNG_Y = np.random.default_rng(72).random(N)


class Turn(NamedTuple):
    """One turn with all that its kernel takes."""

    number: int
    model: pm.Model
    plate: PlateModel
    survey: CrossedSurvey
    fit: SharedFit
    arrays: Plate
    target: Target
    logp: Any

    def given(self, displacements: np.ndarray) -> None:
        """Displace the other factor."""
        self.arrays.crossing.displacements[:] = displacements
        given_others(self.arrays)

    def displaced(self, rng: np.random.Generator, width: float = 1.0) -> np.ndarray:
        """Draw displacements, and write them."""
        scale = 0.3 * width
        found = scale * rng.standard_normal(len(self.arrays.crossing.displacements))
        self.given(found)
        return found

    def point(self, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Values of variables of the other turn."""
        start = self.model.initial_point()
        return {name: value + 0.1 * rng.standard_normal(np.shape(value)) for name, value in start.items()}

    def draw(self, rng: np.random.Generator, width: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
        """theta near its fit, and eps."""
        theta = self.fit.theta + width * self.fit.factor @ rng.standard_normal(len(self.fit.theta))
        return theta, width * rng.standard_normal(len(self.arrays.sums.slopes))

    def state(self, theta: np.ndarray, eps: np.ndarray, point: dict[str, np.ndarray]) -> PlateState:
        """The state of a chain there."""
        args = CompiledTarget(self.plate.shared).args(point)
        empty, none = no_state(len(theta), self.arrays), np.zeros(0)
        return at_theta(empty, theta, none, eps, self.arrays, args, self.target)

    def log_density(self, theta: np.ndarray, eps: np.ndarray, point: dict[str, np.ndarray]) -> float:
        """The model's own, where the effects of the other factor are displaced."""
        state, survey, other = self.state(theta, eps, point), self.survey, 1 - self.number
        tau, log_precision = self.target.features(theta, CompiledTarget(self.plate.shared).args(point))[:2]
        effects, z, centered = np.empty(len(eps)), np.empty(len(eps)), self.plate.is_centered
        standardised_from_eps(self.arrays.sums, tau, log_precision, state.locations, eps, z)
        effects_of(self.arrays.sums, state.d, tau, z, effects)
        effects = effects if centered else z
        point = point_of(self.plate.factorisation, np.concatenate([theta, effects]), point)
        kept = survey.held[self.number] + self.arrays.crossing.displacements
        name = survey.crossed.plates[other].effects[0]
        if centered:
            point = survey.with_effects(other, kept, {**point, name: kept})
        else:
            point = {**point, name: kept / np.exp(point["tau_v_log__" if name == "v" else "tau_log__"])}
        jacobian = np.log(state.scales if centered else state.scales / tau).sum()
        return float(self.logp(point)) + float(jacobian)


def z_of(turn: Turn) -> np.ndarray:
    """z_i of all P columns."""
    rows, sums = turn.arrays.rows, turn.arrays.sums
    x = np.zeros((len(rows.x), len(sums.center)))
    x[:, sums.dense] = rows.x
    groups, weights = groups_of(turn), np.where(rows.curvatures < 0.0, -rows.curvatures, 1.0)
    totals = np.bincount(groups, weights, len(sums.slopes))
    means = np.stack([np.bincount(groups, weights * c, len(totals)) for c in x.T], axis=1)
    return x - (means / np.where(totals > 0.0, totals, 1.0)[:, None])[groups]


def movements(turn: Turn, state: PlateState) -> tuple[np.ndarray, np.ndarray]:
    """y_i = e_g + d_h, and t_i."""
    displaced = turn.arrays.crossing.displacements[turn.survey.levels[turn.number]]
    y = state.levels[groups_of(turn)] + displaced
    return y, y + z_of(turn) @ state.d[: len(turn.arrays.sums.center)]


def remainders(turn: Turn, t: np.ndarray) -> np.ndarray:
    """r_i, but for a constant."""
    rows, y = turn.arrays.rows, turn.arrays.rows.data[0]

    def value(eta: np.ndarray) -> np.ndarray:
        if isinstance(turn.model["y"].owner.op, pm.Poisson.rv_type):
            return y * eta - np.exp(eta)
        return y * eta - np.logaddexp(0.0, eta)

    return value(rows.predictors + t) - t * (rows.slopes + 0.5 * rows.curvatures * t)


def crossed_of(model: pm.Model, threshold: int = 100) -> CrossedModel | None:
    """The two plates of a model."""
    with interpreted():
        options = checked_options(None, EXACT, control_variate=TAYLOR, model=model, threshold=threshold)
        return crossed_model(model, factorised(options, model.initial_point()))


@cache
def turns_of(likelihood: str, spelling: str) -> tuple[Turn, Turn]:
    """Both turns of `model_of`; nothing is compiled."""
    model = model_of(likelihood, spelling)
    crossed = crossed_of(model)
    assert crossed is not None
    with interpreted():
        survey = CrossedSurvey(crossed, model.initial_point())
        centers, scales = find_crossed_center(survey)
        logp = model.compile_logp(mode="FAST_COMPILE")
        first, second = (_turn(t, model, survey, centers[t], scales[1 - t], logp) for t in range(2))
    return first, second


def _turn(number: int, model: pm.Model, survey: CrossedSurvey, center: Any, scales: Any, logp: Any) -> Turn:
    plate = survey.crossed.plates[number]
    beside = survey.beside(number, around(scales, 1))
    fit, at, sums = fit_shared(survey.surveys[number], center, beside=beside)
    options = checked_options(None, EXACT, model=model)
    arrays = turn_arrays(survey, number, fit, (at, sums), scales, options, reads_all=False)
    target = CompiledTarget(plate.shared).interpreted()
    return Turn(number, model, plate, survey, fit, arrays, target, logp)
