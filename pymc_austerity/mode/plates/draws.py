"""States of the model: at the center of a plate, and drawn from the distribution that is fitted to it."""

from __future__ import annotations

import numpy as np

from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.mode.plates.center import Center, PlateSurvey, moments
from pymc_austerity.mode.plates.effects_excess import density_of
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.mode.plates.group_means import mean_shifts
from pymc_austerity.mode.plates.theta_density import SharedTerms
from pymc_austerity.model.plates.inner_effects import Scaled
from pymc_austerity.target import Vector


def drawn_state(arrays: Plate, shared: SharedTerms, fit: SharedFit, rng: np.random.Generator) -> Vector:
    """A draw of the fitted distribution: theta, then the effects as the model has them."""
    theta = fit.drawn(shared, rng)
    d, means, scales = moments(shared, arrays.sums, theta)
    levels = means + scales * rng.standard_normal(len(means))
    effects = levels + arrays.sums.effects - mean_shifts(arrays.sums, d)
    rule = arrays.rule
    ratio = None if rule.is_centered else arrays.effects.ratio
    return _in_model(shared, Scaled(rule.scaled, rule.scaled_by), ratio, Center(theta, effects))


def state_at(survey: PlateSurvey, center: Center) -> Vector:
    """A state at a center."""
    plate = survey.plate
    ratio = None if plate.is_centered else density_of(plate.prior).ratio
    return _in_model(survey.shared, plate.scaled, ratio, center)


def _in_model(shared: SharedTerms, scaled: Scaled, ratio: float | None, center: Center) -> Vector:
    """Theta and effects as the model has them; `ratio` is None where it has the effects centred."""
    theta, effects = center
    if ratio is not None:
        effects = effects * ratio / shared.tau_and_precision(theta)[0]
    return np.concatenate([scaled.in_model(theta, shared.features(theta)), effects])
