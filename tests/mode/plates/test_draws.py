"""Starts: draws of the distribution that is fitted to a plate, each variable given what it depends on."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.mode.plates import draws
from pymc_austerity.mode.plates.draws import drawn_state
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.starting_point import FAR_BELOW, density_of_block, likely_draw
from pymc_austerity.step_methods.metropolis.engine.plates import PlateEngine
from tests.kernels.plates.cases import case_of, case_of_model

DRAWS = 150


@cache
def few_rows(centered):
    """Nested groups with few rows, whose scales are hardly known: some draws of them are near zero."""
    rng = np.random.default_rng(8)
    H, G = 31, 70
    parents = np.r_[np.arange(H), rng.integers(0, H, G - H)]
    groups = np.repeat(np.arange(G), np.r_[25, 12, rng.integers(1, 4, G - 2)])
    x = rng.normal(size=len(groups))
    u = rng.normal(rng.normal(0.2, 0.7, H)[parents], 0.6)
    y = rng.random(len(groups)) < 1 / (1 + np.exp(-(0.7 * x + u[groups])))
    with pm.Model() as model:
        a, b = pm.Normal("a", 0.0, 1.5), pm.Normal("b")
        tau, tau_v = pm.HalfNormal("tau"), pm.HalfNormal("tau_v")
        if centered:
            u = pm.Normal("u", pm.Normal("v", a, tau_v, shape=H)[parents], tau, shape=G)
        else:
            v = a + tau_v * pm.Normal("vz", shape=H)
            u = v[parents] + tau * pm.Normal("z", shape=G)
        pm.Bernoulli("y", logit_p=b * x + u[groups], observed=y.astype(int))
    return case_of_model(model)


CASES = {
    "nested": lambda: few_rows(True),
    "nested, non-centered": lambda: few_rows(False),
    "slopes": lambda: case_of("bernoulli", "lkj", 400),
    "second factor": lambda: case_of("bernoulli", "both non-centered", 400),
    "normal": lambda: case_of("normal", "centered", 400),
}


def heights(case):
    """Log densities of draws in the coordinates of the chain, and that of the center."""
    point, rng = case.model.initial_point(), np.random.default_rng(3)
    log_density = density_of_block(case.plate.factorisation, point)
    found = [drawn_state(case.arrays, case.survey.shared, case.fit, rng) for _ in range(DRAWS)]
    center = drawn_state(case.arrays, case.survey.shared, case.fit, None)
    found.append(center)
    with interpreted():
        *drawn, at_center = (log_density(one.q) + one.log_volume for one in found)
    return np.array(drawn), at_center, len(center.q)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.covering(1)
def test_no_draw_is_far_below_the_center(name):
    drawn, center, n = heights(CASES[name]())
    assert drawn.min() > center - FAR_BELOW - 0.5 * n
    assert np.median(drawn) > center - n  # the sizes of eps and delta are no part of it


def test_outer_effects_that_are_drawn_jointly_with_scales_are_noticed(monkeypatch):
    """The planted fault: what is drawn for the scales does not tell what is drawn for the effects."""
    monkeypatch.setattr(draws, "write_outer_effects", lambda sums, outer, theta, features, delta: 0.0)
    drawn, center, n = heights(few_rows(True))
    assert drawn.min() < center - FAR_BELOW - 0.5 * n


def test_a_start_that_is_far_below_is_drawn_again():
    drawn = iter([(np.zeros(1), -1000.0), (np.ones(1), -np.inf), (np.full(1, 2.0), -7.0)])
    assert likely_draw(lambda: next(drawn), -10.0, "u")[0] == 2.0


def test_if_none_is_likely_the_best_is_taken_with_a_warning():
    drawn = iter([(np.full(1, k), -100.0 - (k - 3.0) ** 2) for k in range(50)])
    with pytest.warns(UserWarning, match="all are far less likely than its center: the best by more than 90"):
        assert likely_draw(lambda: next(drawn), -10.0, "u")[0] == 3.0


def test_a_height_that_is_no_number_is_no_start(monkeypatch):
    case = few_rows(True)
    volumes = iter([0.0, np.nan, 0.0])

    def drawn(self, fit, point, rng):
        return draws.Drawn(np.zeros(3), next(volumes))

    monkeypatch.setattr(PlateEngine, "drawn", drawn)
    engine = object.__new__(PlateEngine)
    engine.plate = case.arrays
    start = engine.starts(case.fit, {}, lambda q: 0.0)
    start(np.random.default_rng(1))
    assert next(volumes, None) is None  # the second draw was another one
