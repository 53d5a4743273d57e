"""States of the model: at the center of a plate, and drawn from the distribution that is fitted to it."""

from typing import NamedTuple

import numpy as np

from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.mode.plates.center import Center, PlateSurvey, moments
from pymc_austerity.mode.plates.effects_excess import density_of
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.mode.plates.group_means import mean_shifts
from pymc_austerity.mode.plates.outer import write_outer_effects
from pymc_austerity.mode.plates.slope_levels import by_effects, scaled_eps
from pymc_austerity.mode.plates.theta_density import SharedTerms
from pymc_austerity.model.plates.inner_effects import Scaled
from pymc_austerity.target import Vector


class Drawn(NamedTuple):
    """A state in the coordinates of the chain."""

    q: Vector  # Theta, then the effects, as the model has them
    # The log density in the coordinates of the chain, less that of the model; plus |eps|^2 / 2 and |delta|^2
    # / 2. With this the log density of draws varies little: by remainders, and by theta.
    log_volume: float


def drawn_state(arrays: Plate, shared: SharedTerms, fit: SharedFit, rng: np.random.Generator | None) -> Drawn:
    """A draw of the fitted distribution, each variable given those that it depends on.

    Without `rng` the state at the fitted mean, with eps and delta of zero.
    """
    n_outer, n_eps = len(arrays.outer.columns), len(arrays.sums.slopes)
    if rng is None:
        return _at(arrays, shared, fit.theta, np.zeros(n_outer), np.zeros(n_eps))
    theta = fit.drawn(shared, rng)
    return _at(arrays, shared, theta, rng.standard_normal(n_outer), rng.standard_normal(n_eps))


def _at(arrays: Plate, shared: SharedTerms, theta: Vector, delta: Vector, eps: Vector) -> Drawn:
    rule, sums, outer = arrays.rule, arrays.sums, arrays.outer
    theta, features = theta.copy(), shared.features(theta)
    log_volume = 0.5 * float(eps @ eps + delta @ delta)
    if len(delta):
        log_volume += write_outer_effects(sums, outer, theta, features, delta)
    d, means, scales = moments(shared, sums, theta)
    levels = means + scaled_eps(sums, scales, eps)
    effects = levels + sums.effects - mean_shifts(sums, d)
    sizes = scales if sums.n_effects == 1 else np.abs(np.linalg.det(scales))
    scaled, diagonal = Scaled(rule.scaled, rule.scaled_by), np.diag(shared.factor_and_precision(theta)[0])
    with np.errstate(divide="ignore"):  # a scale that is zero
        log_volume += float(np.log(sizes).sum() - np.log(features[scaled.features]).sum())
        if not rule.is_centered:
            log_volume -= len(sizes) * float(np.log(np.abs(diagonal)).sum())
    ratio = None if rule.is_centered else arrays.effects.ratio
    kind = ratio, sums.n_effects, rule.n_vectors
    return Drawn(_in_model(shared, scaled, kind, Center(theta, effects)), log_volume)


def state_at(survey: PlateSurvey, center: Center) -> Vector:
    """A state at a center."""
    plate = survey.plate
    ratio = None if plate.is_centered else density_of(plate.priors[0]).ratio
    return _in_model(survey.shared, plate.scaled, (ratio, plate.n_effects, plate.n_vectors), center)


def _in_model(
    shared: SharedTerms, scaled: Scaled, kind: tuple[float | None, int, int], center: Center
) -> Vector:
    """Theta and effects as the model has them.

    `kind` is the ratio, which is None where it has the effects centred, q, and in how many vectors they are.
    """
    (theta, effects), (ratio, n_effects, n_vectors) = center, kind
    if ratio is not None and n_effects > 1:
        factor, _ = shared.factor_and_precision(theta)
        effects = np.linalg.solve(factor, effects.reshape(-1, n_effects).T).T.ravel()
    elif ratio is not None:
        effects = effects * ratio / shared.tau_and_precision(theta)[0]
    effects = by_effects(effects, n_vectors)
    return np.concatenate([scaled.in_model(theta, shared.features(theta)), effects])
