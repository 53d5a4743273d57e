"""Third-order terms of a plate against sums over rows; a sum that is left out is noticed."""

from functools import cache

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.kernels.plates import moves
from pymc_austerity.kernels.plates.cubic import cubic_change
from pymc_austerity.kernels.plates.decisions import Counts
from pymc_austerity.step_methods.metropolis.plate_plan import _reading_all
from tests.kernels.plates.cases import (
    DRAWN,
    case_of,
    case_of_model,
    columns_within,
    groups_of,
    levels_of_rows,
    log_cubic,
    log_remainders,
    row_values,
    rows_of,
)
from tests.kernels.plates.test_moves import log_target

CASES = [("bernoulli", "centered"), ("poisson", "non-centered")]


@cache
def nested_case():
    """Levels of outer groups come before five columns that vary within groups and one that does not."""
    data, rng = rows_of(400), np.random.default_rng(35)
    x = np.c_[np.cos(data.groups), data.x[:, 1:], rng.normal([0.5, 0.0, -0.5], size=(400, 3))]
    with pm.Model() as model:
        v = pm.Normal("v", 0.0, pm.HalfNormal("tau_v"), shape=32)
        u = pm.Normal("u", v[np.arange(30)], pm.HalfNormal("tau"), shape=30)
        eta = 0.4 * (x @ pm.Normal("beta", shape=6)) + u[data.groups]
        pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(np.exp(0.3 * data.x[:, 1])))
    return case_of_model(model)


def by_rows(case, state):
    """Sum of f_i''' t_i^3 / 6, with derivatives by differences."""
    rows, sums = case.arrays.rows, case.arrays.sums
    t = levels_of_rows(case, state.levels) + columns_within(case) @ state.d
    step, phi = 1e-2, sums.phi
    far, near = (
        row_values(case, rows.predictors + k * step, phi) - row_values(case, rows.predictors - k * step, phi)
        for k in (2, 1)
    )
    thirds = (0.5 * far - near) / step**3
    expanded = sums.curvatures[groups_of(case)] > 0.0
    return float((thirds * expanded * t**3).sum() / 6.0)


@pytest.mark.parametrize(("likelihood", "spelling"), CASES)
@pytest.mark.covering(1)
def test_sums_are_those_of_rows(likelihood, spelling):
    case = case_of(likelihood, spelling, 400)
    assert len(case.arrays.cubic.columns) > 1
    require_sums(case)


def test_sums_of_many_columns_beside_outer_groups():
    case = nested_case()
    assert len(case.arrays.cubic.columns) == 5
    assert set(case.arrays.cubic.columns).isdisjoint(case.arrays.outer.columns)
    assert list(case.arrays.cubic.columns) != list(case.arrays.sums.varying)
    require_sums(case)


def require_sums(case):
    """The sums over groups are those over rows."""
    assert case.arrays.bounds.power == 3
    values, rng = [], np.random.default_rng(31)
    for width in (0.5, 1.0, 2.0):
        state = case.state(*case.draw(rng, width))
        values.append((log_cubic(case, state), by_rows(case, state)))
    own, other = np.array(values).T
    np.testing.assert_allclose(own, other, rtol=2e-4, atol=1e-4 * np.abs(other).max())
    assert np.abs(other).max() > 0.1


@pytest.mark.parametrize("left_out", ["levels", "mixed", "products", "shared"])
def test_each_sum_matters(left_out):
    """Planted fault: one of the sums is left out."""
    case, rng = case_of("bernoulli", "centered", 400), np.random.default_rng(32)
    theta, eps = case.draw(rng, 2.0)
    state = case.state(theta, eps)
    whole, cubic = log_cubic(case, state), case.arrays.cubic
    planted = case.arrays._replace(
        cubic=cubic._replace(**{left_out: np.zeros_like(getattr(cubic, left_out))})
    )
    wrong = case._replace(arrays=planted)
    assert abs(log_cubic(wrong, wrong.state(theta, eps)) - whole) > 1e-3


def test_change_is_the_difference():
    case, rng = case_of("bernoulli", "centered", 400), np.random.default_rng(33)
    old, new = case.state(*case.draw(rng, 2.0)), case.state(*case.draw(rng, 2.0))
    found = cubic_change(case.arrays.cubic, old.cubic, old.levels, new.cubic, new.levels)
    assert found == pytest.approx(log_cubic(case, new) - log_cubic(case, old), abs=1e-12)


@pytest.mark.parametrize(
    ("likelihood", "spelling"),
    [("bernoulli", "crossed"), ("poisson", "lkj"), ("negative binomial", "centered"), ("normal", "centered")],
)
@pytest.mark.covering(1)
def test_plates_without(likelihood, spelling):
    """Levels of other factors, slopes and dispersions have second-order polynomials."""
    case = case_of(likelihood, spelling, 400)
    assert case.arrays.bounds.power == 2
    assert not len(case.arrays.rows.thirds)
    assert log_cubic(case, case.state(*case.draw(np.random.default_rng(34)))) == 0.0


@pytest.mark.parametrize("planted", [False, True])
def test_ratios_of_the_plate_move(planted, monkeypatch):
    """A new level changes the target by what is known, which groups are handed, and by remainders."""
    # Planted fault: no terms of the third order.
    case, rng = case_of("bernoulli", "centered", 400), np.random.default_rng(36)
    theta, eps = case.draw(rng, 1.5)
    seen = {}

    def symmetric(rng, old, width):
        new = old + rng.standard_normal()
        return new, 0.5 * (old * old - new * new)

    def groups(rng, plate, numbers, pair, log_ratios, accepted):
        seen["ratio"] = log_ratios.sum()
        accepted[:] = True
        return Counts(1.0, 0, 0, 0, 0.0)

    if planted:
        monkeypatch.setattr(moves, "add_cubic", lambda *_: None)
    monkeypatch.setattr(moves, "propose_normal", symmetric)
    state, old = case.state(theta, eps), case.state(theta, eps)
    moves.move_plate(rng, case.arrays, state, DRAWN._replace(groups=groups))
    expected = log_target(case, theta, state.eps) - log_target(case, theta, eps)
    expected -= log_remainders(case, state) - log_remainders(case, old)
    third = by_rows(case, state) - by_rows(case, old)
    assert abs(third) > 0.1
    assert (abs(seen["ratio"] - expected - third) < 1e-3 * abs(third)) == (not planted)


def test_reading_all_rows_needs_no_third_order():
    """Remainders are then beyond the second order: their sums and the rest must be of one kind."""
    case = case_of("poisson", "non-centered", 400)
    arrays = _reading_all(case.survey, case.arrays)
    assert arrays.bounds.power == 2
    assert not len(arrays.rows.thirds)
    whole = case._replace(arrays=arrays)
    theta, eps = case.draw(np.random.default_rng(37), 2.0)
    assert abs(log_cubic(case, case.state(theta, eps))) > 0.01
    assert log_cubic(whole, whole.state(theta, eps)) == 0.0
