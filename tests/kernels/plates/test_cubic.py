"""Third-order terms of a plate against sums over rows; a sum that is left out is noticed."""

import numpy as np
import pytest

from pymc_austerity.kernels.plates.cubic import cubic_change
from tests.kernels.plates.cases import (
    case_of,
    columns_within,
    groups_of,
    levels_of_rows,
    log_cubic,
    row_values,
)

CASES = [("bernoulli", "centered"), ("poisson", "non-centered"), ("poisson", "nested")]


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
    case, rng = case_of(likelihood, spelling, 400), np.random.default_rng(31)
    assert case.arrays.bounds.power == 3
    assert len(case.arrays.cubic.columns) > 1
    values = []
    for width in (0.5, 1.0, 2.0):
        state = case.state(*case.draw(rng, width))
        values.append((log_cubic(case, state), by_rows(case, state)))
    own, other = np.array(values).T
    np.testing.assert_allclose(own, other, rtol=2e-4, atol=1e-4 * np.abs(other).max())
    assert np.abs(other).max() > 0.1


@pytest.mark.parametrize("left_out", ["levels", "mixed", "products", "shared"])
def test_each_sum_matters(left_out):
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
