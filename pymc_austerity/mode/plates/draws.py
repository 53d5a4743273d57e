"""Draws of the distribution that is fitted to a plate."""

from __future__ import annotations

import numpy as np

from pymc_austerity.kernels.plates.records import Plate
from pymc_austerity.mode.plates.center import moments
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
    if not arrays.rule.is_centered:
        effects = effects * arrays.effects.ratio / shared.tau_and_precision(theta)[0]
    scaled = Scaled(arrays.rule.scaled, arrays.rule.scaled_by)
    return np.concatenate([scaled.in_model(theta, shared.features(theta)), effects])
