"""The sequential t-test against hand formulas and scipy; of the whole sequence see `tests.design`."""

import math

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.acceptance.base import Sample, standard_error
from pymc_austerity.acceptance.ttest import significant
from tests.kernels.engines import compiled_test

# Schedules ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("n_local", "batch", "growth", "expected"),
    [
        (12_214, 500, "constant", [*range(500, 12_001, 500), 12_214]),
        (1000, 500, "constant", [500, 1000]),
        (501, 500, "constant", [500, 501]),
        (2, 2, "constant", [2]),
        (10_000, 500, 2.0, [500, 1000, 2000, 4000, 8000, 10_000]),
        (8000, 500, 2, [500, 1000, 2000, 4000, 8000]),
        (1000, 100, 1.5, [100, 150, 225, 338, 507, 761, 1000]),
        (6, 2, 1.001, [2, 3, 4, 5, 6]),
        (1000, 10, 1e9, [10, 1000]),
        (10, 10, 2.0, [10]),
    ],
)
def test_batches_end_at_n(n_local, batch, growth, expected):
    ends = TTest(0.05, batch, growth=growth).bind(n_local).ends
    assert ends.tolist() == expected
    assert ends.dtype == np.int64


@pytest.mark.parametrize("boundary", [0.5, 0.6, 0.75, 1.0])
@pytest.mark.parametrize("epsilon", [0.2, 0.05, 0.01, 1e-4])
def test_critical_values(epsilon, boundary):
    schedule = TTest(epsilon, 500, boundary=boundary).bind(12_214)
    share = schedule.ends / 12_214
    g = stats.norm.ppf(1 - epsilon) * share ** (0.5 - boundary)
    expected = stats.t.isf(stats.norm.sf(g), schedule.ends - 1)
    np.testing.assert_allclose(schedule.bounds, expected, rtol=1e-9)


def test_bounds_fall_from_stage_to_stage_for_any_boundary():
    for epsilon in (0.1, 0.01, 0.001):
        for boundary in (0.6, 0.75, 0.9, 1.0):
            for batch in (2, 3, 4, 6, 10, 20, 50, 100, 500):
                bounds = TTest(epsilon, batch, boundary=boundary).bind(100_000).bounds
                assert np.all(bounds[:-1] >= bounds[1:])
                assert bounds.min() > 0, (epsilon, boundary, batch)
                if boundary == 1.0:  # it does not stop at a tiny share
                    assert bounds[0] > 5


def test_epsilon_one_half_stops_at_the_first_stage():
    rule, rng = TTest(0.5, 100), np.random.default_rng(1)
    schedule = rule.bind(1000)
    np.testing.assert_array_equal(schedule.bounds, 0.0)
    values = rng.normal(size=1000)
    n, stages, _ = compiled_test(significant)(1000, rng, values.mean(), values, np.arange(1000), schedule)
    assert set(n) == {100}
    assert set(stages) == {1}


# Validation -----------------------------------------------------------------------------------------


# Their types and ranges: see `tests/step_methods/test_parameters.py`.
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("epsilon", 0.0, r"epsilon must be in \(0, 0.5\], got 0.0\..*Exact\(\)"),
        ("epsilon", 0.7, r"epsilon must be in \(0, 0.5\], got 0.7\."),
        ("batch_size", 1, "batch_size must be an integer of at least 2, got 1"),
        ("growth", 1.0, 'growth must be "constant" or a number above 1, got 1.0'),
        ("boundary", 0.4, r"boundary must be in \[0.5, 1\], got 0.4"),
    ],
)
def test_a_wrong_parameter_is_named(name, value, said):
    with pytest.raises(ValueError, match=said):
        TTest(**{name: value})


def test_rules_are_frozen_and_compare_by_value():
    rule = TTest(0.05, 500)
    with pytest.raises(AttributeError):
        rule.epsilon = 0.1
    assert rule == TTest(0.05, 500) != TTest(0.01, 500)
    assert Exact() == Exact()


# One stage ------------------------------------------------------------------------------------------


def decide(rule, schedule, stage, n, n_local, mean, m2, psi):
    """Is `rule` satisfied with what n of n_local terms have shown?"""
    sample = Sample(n, n_local, mean, m2, *[math.nan] * 6)  # the others do not belong to these rules
    return rule.functions.decide(schedule, stage, sample, psi, math.nan)


def test_exact_reads_everything_in_one_stage():
    schedule = Exact().bind(1234)
    assert schedule.ends.tolist() == [1234]
    assert decide(Exact(), schedule, 0, 1234, 1234, 0.0, 1.0, 0.0)
    assert not decide(Exact(), schedule, 0, 1233, 1234, 0.0, 1.0, 0.0)


def test_one_stage_is_a_one_sided_t_test_with_a_finite_population_correction():
    rule, n_local = TTest(0.05, 20), 100
    schedule, rng = rule.bind(n_local), np.random.default_rng(2)
    for _ in range(200):
        x, psi = rng.normal(size=20), 0.4 * rng.normal()
        m2 = np.sum((x - x.mean()) ** 2)
        t = (x.mean() - psi) / (x.std(ddof=1) / np.sqrt(20) * np.sqrt(1 - 19 / 99))
        expected = stats.t.sf(abs(t), 19) < 0.05
        assert decide(rule, schedule, 0, 20, n_local, x.mean(), m2, psi) == expected


def test_a_batch_without_variance_decides_nothing():
    rule = TTest(0.5, 50)
    assert not decide(rule, rule.bind(100), 0, 50, 100, 3.0, 0.0, 0.0)


def test_standard_error_of_all_terms_and_of_one():
    assert standard_error(100, 100, 1.0) == 0.0
    assert math.isnan(standard_error(1, 100, 0.0))
