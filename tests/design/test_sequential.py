"""Error and data usage of one test: known values, two other methods, limits, and the real rule."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import ndtr, ndtri

from pymc_austerity.acceptance import TTest
from pymc_austerity.acceptance.ttest import significant
from pymc_austerity.design import data_usage, error
from pymc_austerity.design.sequential import MOST_STAGES, LawCurves, operating_characteristics, stage_shares
from tests.kernels.engines import compiled_test, significant_without_fpc
from tests.statistical.errors import LIMIT
from tests.statistical.theory import sequential_test_law


def paper_law(mu_std, n_local, batch, epsilon, boundary=0.5, size=801, count=None):
    """Equations 10 to 12, 21 and 22 as they stand, by Simpson's rule, the last stage exact (errata).

    Nothing is shared with the package: the density of z_j itself is carried from stage to stage, with its
    drift. `count` stages, if given; more or fewer than ceil(N / m) would be a mistake.
    """
    ends = np.append(np.arange(batch, n_local, batch), n_local)
    share = ends[:count] / n_local
    bound = ndtri(1 - epsilon) * share ** (0.5 - boundary)
    unit = np.linspace(-1, 1, size)
    simpson = np.where(np.arange(size) % 2, 4.0, 2.0) / 3 * (unit[1] - unit[0])
    simpson[[0, -1]] /= 2
    wrong = used = 0.0
    z, mass, before = np.zeros(1), np.ones(1), 0.0
    for pi, g in zip(share[:-1], bound[:-1], strict=True):
        mean = mu_std * (pi - before) / (1 - before) / np.sqrt(pi * (1 - pi))
        mean = mean + z * np.sqrt(before / pi * (1 - pi) / (1 - before))
        sd = np.sqrt((pi - before) / (pi * (1 - before)))
        low, high = mass @ ndtr((-g - mean) / sd), mass @ ndtr((mean - g) / sd)
        wrong, used = wrong + low, used + pi * (low + high)
        z = g * unit
        density = np.exp(-0.5 * ((z[:, None] - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
        mass, before = g * simpson * (density @ mass), pi
    return wrong, used + share[-1] * mass.sum()


# mu_std, N, batch, epsilon, boundary, error, data usage.
KNOWN = [
    (0.0, 10_000, 500, 0.01, 0.5, 0.083790, 0.907288),
    (1.0, 10_000, 500, 0.01, 0.5, 0.014055, 0.722775),
    (4.0, 10_000, 500, 0.01, 0.5, 0.000712, 0.259480),
    (0.0, 10_000, 500, 0.2, 0.5, 0.492774, 0.192982),
    (1.0, 10_000, 500, 0.2, 0.5, 0.274122, 0.168521),
    (0.0, 10_000, 500, 0.05, 0.75, 0.171794, 0.878573),
    (0.0, 10_000, 500, 0.05, 1.0, 0.128241, 0.938150),
    (0.0, 12_214, 500, 0.05, 0.5, 0.309455, 0.625245),
    (0.0, 10_000, 500, 0.05, 0.5, 0.281992, 0.652486),
    (1.0, 10_000, 500, 0.05, 0.5, 0.075752, 0.487490),
    (4.0, 10_000, 500, 0.05, 0.5, 0.006462, 0.169974),
]
TESTS = st.fixed_dictionaries(
    {
        "pi_1": st.floats(0.01, 1.0),
        "epsilon": st.floats(1e-8, 0.5),
        "boundary": st.floats(0.5, 1.0),
    }
)


def both(mu_std, **test):
    return error(mu_std, **test), data_usage(mu_std, **test)


@pytest.mark.parametrize(("mu_std", "n_local", "batch", "epsilon", "boundary", "wrong", "used"), KNOWN)
def test_known_values(mu_std, n_local, batch, epsilon, boundary, wrong, used):
    found = both(mu_std, pi_1=batch / n_local, epsilon=epsilon, boundary=boundary)
    # They were given to six digits.
    assert found == pytest.approx((wrong, used), abs=1e-6)


@pytest.mark.parametrize("case", [*KNOWN, (2.5, 1000, 9, 0.003, 0.6, None, None)])
def test_two_other_methods_agree(case):
    mu_std, n_local, batch, epsilon, boundary = case[:5]
    found = both(mu_std, pi_1=batch / n_local, epsilon=epsilon, boundary=boundary)
    assert found == pytest.approx(paper_law(mu_std, n_local, batch, epsilon, boundary), abs=1e-7)
    ends = np.append(np.arange(batch, n_local, batch), n_local)
    law = sequential_test_law(mu_std, ends, ndtri(1 - epsilon) * (ends / n_local) ** (0.5 - boundary), 150)
    wrong = law.below[0] if mu_std else (law.below[0] + law.above[0]) / 2
    assert found == pytest.approx((wrong, law.data_use[0]), abs=1e-9)


# Stages ---------------------------------------------------------------------------------------------


def test_stages_are_counted_as_in_integers():
    """Every count survives the division of a batch by N."""
    for n_local in (3, 7, 20, 49, 100, 997, 1000, 4851, 12_214):
        for batch in range(1, n_local + 1):
            shares = stage_shares(batch / n_local)
            assert len(shares) == -(-n_local // batch), (n_local, batch)
            assert shares[-1] == 1.0
            assert np.all(np.diff(shares) > 0)


def test_stages_end_where_those_of_the_rule_do():
    ends = TTest(0.05, 500).bind(12_214).ends
    np.testing.assert_allclose(stage_shares(500 / 12_214), ends / 12_214, rtol=1e-15)


def test_too_many_stages_are_refused():
    assert len(stage_shares(1 / MOST_STAGES)) == MOST_STAGES
    with pytest.raises(ValueError, match=r"pi_1 must be at least 5e-05, got 1e-05.*100,000 stages"):
        error(0.0, 1e-5, 0.05)


def test_many_stages():
    """Against the other method, whose matrices are dense."""
    ends = np.arange(1, 401)
    law = sequential_test_law([0.3, 2.0], ends, np.full(400, ndtri(0.98)), nodes=300)
    assert error([0.3, 2.0], 1 / 400, 0.02) == pytest.approx(law.below, abs=1e-9)
    assert data_usage([0.3, 2.0], 1 / 400, 0.02) == pytest.approx(law.data_use, abs=1e-9)


# Limits ---------------------------------------------------------------------------------------------


def test_epsilon_one_half_stops_at_the_first_stage():
    mu_std = np.array([0.0, 0.3, 5.0])
    expected = ndtr(-mu_std * math.sqrt(0.05 / 0.95))
    assert error(mu_std, 0.05, 0.5) == pytest.approx(expected, abs=1e-15)
    assert np.all(data_usage(mu_std, 0.05, 0.5) == 0.05)


def test_epsilon_zero_is_exact():
    assert both(0.0, pi_1=0.05, epsilon=0.0) == (0.0, 1.0)


def test_one_batch_of_everything_is_exact():
    assert both(0.0, pi_1=1.0, epsilon=0.3) == (0.0, 1.0)


def test_far_from_the_threshold_the_first_batch_decides():
    assert both(math.inf, pi_1=0.05, epsilon=0.01) == (0.0, 0.05)
    assert both(-1e9, pi_1=0.05, epsilon=0.01) == (0.0, 0.05)


@pytest.mark.parametrize("boundary", [0.5, 1.0])
def test_tiny_epsilon(boundary):
    """Critical values of up to 270: the normal density there is 0."""
    wrong, used = both([0.0, 60.0, 1200.0], pi_1=0.01, epsilon=1e-200, boundary=boundary)
    assert np.all((wrong >= 0) & (wrong < 1e-150))
    assert used[0] == pytest.approx(1.0)
    assert np.all(np.diff(used) < 0)
    # Without noise z = mu_std sqrt(tau): the test ends once that is beyond the bound.
    share = stage_shares(0.01)
    z = 1200 * np.sqrt(share / np.maximum(1 - share, 1e-300))
    expected = share[np.argmax(z > -ndtri(1e-200) * share ** (0.5 - boundary))]
    assert used[2] == pytest.approx(expected, abs=0.011)


def test_negative_distances_mirror_positive_ones():
    mu_std = np.array([0.1, 1.0, 3.0])
    assert np.all(error(-mu_std, 0.05, 0.05) == error(mu_std, 0.05, 0.05))
    assert np.all(data_usage(-mu_std, 0.05, 0.05) == data_usage(mu_std, 0.05, 0.05))


# Shapes and bad input -------------------------------------------------------------------------------


def test_parameters_broadcast():
    mu_std, pi_1, epsilon = (
        np.linspace(0, 3, 5),
        np.array([[0.05], [0.2]]),
        np.array([0.01, 0.2])[:, None, None],
    )
    wrong = error(mu_std, pi_1, epsilon, boundary=0.7)
    used = data_usage(mu_std, pi_1, epsilon, boundary=0.7)
    assert wrong.shape == used.shape == (2, 2, 5)
    for i, e in enumerate((0.01, 0.2)):
        for j, p in enumerate((0.05, 0.2)):
            assert wrong[i, j, 3] == pytest.approx(error(mu_std[3], p, e, boundary=0.7), abs=1e-14)
            assert used[i, j, 3] == pytest.approx(data_usage(mu_std[3], p, e, boundary=0.7), abs=1e-14)


def test_numbers_give_floats():
    assert type(error(0, 0.05, 0.05)) is float
    assert type(data_usage(np.float64(1), 0.05, 0.05)) is float
    assert error([], 0.05, 0.05).shape == (0,)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("epsilon", 0.7, r"epsilon must be in \[0, 0.5\].*got 0.7"),
        ("epsilon", [0.1, -0.1], r"epsilon must be in \[0, 0.5\].*got -0.1"),
        ("epsilon", math.nan, "epsilon must be in .*got nan"),
        ("pi_1", 0.0, r"pi_1 must be in \(0, 1\].*got 0.0"),
        ("pi_1", 1.5, r"pi_1 must be in \(0, 1\].*got 1.5"),
        ("boundary", 0.4, r"boundary must be in \[0.5, 1\].*got 0.4"),
        ("mu_std", math.nan, "mu_std must be a number, got nan"),
        ("mu_std", "far", "mu_std must be a number or an array of numbers, got 'far'"),
    ],
)
def test_a_wrong_parameter_is_named(name, value, said):
    for function in (error, data_usage):
        with pytest.raises(ValueError, match=said):
            function(**{"mu_std": 0.0, "pi_1": 0.05, "epsilon": 0.05, name: value})


# Properties -----------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(test=TESTS, top=st.floats(0.1, 100.0))
def test_both_fall_with_distance_and_stay_in_range(test, top):
    wrong, used = both(np.linspace(0, top, 40), **test)
    assert np.all(np.diff(wrong) <= 1e-12)
    assert np.all(np.diff(used) <= 1e-12)
    assert np.all((wrong >= 0) & (wrong <= 0.5))
    assert np.all((used >= test["pi_1"]) & (used <= 1))


@settings(max_examples=30, deadline=None)
@given(pi_1=st.floats(0.01, 0.9), epsilon=st.floats(1e-6, 0.45), mu_std=st.floats(0, 5))
def test_stricter_tests_err_less_and_read_more(pi_1, epsilon, mu_std):
    loose = both(mu_std, pi_1=pi_1, epsilon=epsilon)
    for strict in ({"epsilon": epsilon / 2}, {"boundary": 0.75}, {"boundary": 1.0}):
        wrong, used = both(mu_std, **{"pi_1": pi_1, "epsilon": epsilon, **strict})
        assert wrong <= loose[0] + 1e-12
        assert used >= loose[1] - 1e-12


@settings(max_examples=30, deadline=None)
@given(test=TESTS)
def test_the_error_is_at_most_the_sum_of_those_of_the_looks(test):
    share = stage_shares(test["pi_1"])[:-1]
    looks = ndtr(ndtri(test["epsilon"]) * share ** (0.5 - test["boundary"])).sum()
    assert error(0.0, **test) <= looks + 1e-12


@settings(max_examples=25, deadline=None)
@given(test=TESTS, seed=st.integers(0, 99))
def test_curves_are_the_law_interpolated(test, seed):
    rng = np.random.default_rng(seed)
    mu_std = np.append(0.0, rng.exponential(size=100) * 10 ** rng.uniform(-3, 2.5, 100))
    found, expected = LawCurves(**test)(mu_std), operating_characteristics(mu_std, **test)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


# The rule itself ------------------------------------------------------------------------------------

N, N_POPULATIONS, N_DECISIONS = 2000, 20, 2000


def simulated(mu_std, rule, decide=significant, seed=8):
    """Wrong decisions (halves of early stops at mu_std = 0) and shares read, on normal populations."""
    rng, schedule, population = np.random.default_rng(seed), rule.bind(N), np.arange(N)
    wrong, used = [], []
    for _ in range(N_POPULATIONS):
        x = rng.normal(size=N)
        terms = (x - x.mean()) / x.std() + mu_std / np.sqrt(N - 1)
        n, _, mean = compiled_test(decide)(N_DECISIONS, rng, 0.0, terms, population, schedule)
        wrong.append(np.where(n < N, 0.5, 0.0) if mu_std == 0 else mean <= 0.0)
        used.append(n / N)
    return np.concatenate(wrong), np.concatenate(used)


def distances(values, expected):
    """Of the averages from those expected, in standard errors; decisions are independent."""
    return [(np.mean(v) - e) / (np.std(v) / np.sqrt(len(v))) for v, e in zip(values, expected, strict=True)]


@pytest.mark.parametrize("mu_std", [0.0, 0.5, 2.0])
@pytest.mark.parametrize(
    ("epsilon", "batch", "boundary"), [(0.05, 150, 0.5), (0.1, 300, 0.8), (0.05, 150, 1.0)]
)
@pytest.mark.covering(2)
def test_the_rule_does_what_is_predicted(mu_std, epsilon, batch, boundary):
    values = simulated(mu_std, TTest(epsilon, batch, boundary=boundary))
    expected = both(mu_std, pi_1=batch / N, epsilon=epsilon, boundary=boundary)
    z = distances(values, expected)
    assert np.all(np.abs(z) < LIMIT), z
    assert np.abs(np.mean(values, axis=1) - expected).max() < 0.01


def test_a_rule_without_finite_population_correction_is_noticed():
    """Planted fault: no correction for a finite population."""
    z = distances(
        simulated(0.5, TTest(0.05, 150), significant_without_fpc), both(0.5, pi_1=0.075, epsilon=0.05)
    )
    assert np.all(np.abs(z) > LIMIT)


def test_a_theory_with_too_few_stages_is_noticed():
    """The last batch is short; left out, pi_J would be J m / N < 1."""
    values = simulated(0.5, TTest(0.05, 700))
    assert np.all(np.abs(distances(values, both(0.5, pi_1=0.35, epsilon=0.05))) < LIMIT)
    assert np.all(np.abs(distances(values, paper_law(0.5, N, 700, 0.05, count=2))) > LIMIT)
