"""States of the model: at the center of a plate, and drawn from the distribution that is fitted to it."""

from __future__ import annotations

import numpy as np

from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.mode.plates.center import Center, PlateSurvey, moments
from pymc_austerity.mode.plates.effects_excess import density_of
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.mode.plates.group_means import mean_shifts
from pymc_austerity.mode.plates.outer import outer_drawn
from pymc_austerity.mode.plates.slope_levels import by_effects, scaled_eps
from pymc_austerity.mode.plates.theta_density import SharedTerms
from pymc_austerity.model.plates.inner_effects import Scaled
from pymc_austerity.target import Vector


def drawn_state(arrays: Plate, shared: SharedTerms, fit: SharedFit, rng: np.random.Generator) -> Vector:
    """A draw of the fitted distribution: theta, then the effects as the model has them."""
    theta, outer = fit.drawn(shared, rng), arrays.outer
    if len(outer.columns):  # given the scales that were drawn, not jointly with them
        outer_drawn(
            arrays.sums, outer, theta, shared.features(theta), rng.standard_normal(len(outer.columns))
        )
    d, means, scales = moments(shared, arrays.sums, theta)
    levels = means + scaled_eps(arrays.sums, scales, rng.standard_normal(len(means)))
    effects = levels + arrays.sums.effects - mean_shifts(arrays.sums, d)
    rule = arrays.rule
    ratio = None if rule.is_centered else arrays.effects.ratio
    kind = ratio, arrays.sums.n_effects, rule.n_vectors
    return _in_model(shared, Scaled(rule.scaled, rule.scaled_by), kind, Center(theta, effects))


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
