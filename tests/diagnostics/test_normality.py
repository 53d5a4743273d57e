"""Verdicts on populations of log ratios with a known answer."""

import math

import numpy as np
import pytest
from scipy import stats

from pymc_austerity import SubsamplingWarning
from pymc_austerity.design import acceptance_error
from pymc_austerity.diagnostics import from_log_ratios, normality
from pymc_austerity.diagnostics.normality import are_missed

N = 20_000


def population(name, seed=1, n=N, pairs=5):
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(pairs, n))
    rare = np.arange(n) < 20
    return {
        "normal": z,
        "lognormal": np.exp(2 * z),
        "squares": z**2,
        "rare": np.where(rare, 5.0, 0.05 * z),
        "rare, both signs": z + 40.0 * rare * np.where(np.arange(n) % 2, 1.0, -1.0),
        "equal": np.full_like(z, 0.1),
    }[name]


def judged(name, *, batch_size=500, epsilon=0.01, scale=1.0, **options):
    tree = from_log_ratios(
        scale * population(name, **options), batch_size=batch_size, random_seed=1, epsilon=epsilon
    )
    return normality(tree)


@pytest.mark.parametrize(
    ("name", "options", "verdict", "because"),
    [
        ("normal", {}, "normal enough", "is predicted to err"),
        ("normal", {"batch_size": 50}, "normal enough", "is predicted to err"),
        ("lognormal", {}, "not normal", "top 100 of 20,000 rows carry"),
        ("lognormal", {"epsilon": 0.3}, "not normal", "top 100 of 20,000 rows carry"),
        ("rare", {}, "not normal", "top 100 of 20,000 rows carry"),
        ("rare, both signs", {}, "not normal", "top 100 of 20,000 rows carry"),
        ("squares", {}, "doubtful", "skewed"),
        ("squares", {"batch_size": 50}, "not normal", "skewed"),
        ("squares", {"epsilon": 0.1}, "normal enough", "is predicted to err"),
        ("equal", {}, "normal enough", "all log ratios of a move are equal"),
    ],
)
def test_verdicts(name, options, verdict, because):
    found = judged(name, **options)
    assert found.verdict == verdict
    opening = {
        "normal enough": "Batch means are normal enough for the t-test to err as seldom as it says, because ",
        "doubtful": "It is doubtful whether batch means are normal enough for the t-test, because ",
        "not normal": "Batch means are not normal enough for the t-test, because ",
    }
    assert found.reason.startswith(opening[verdict])
    assert "safe" not in found.reason
    assert because in found.reason
    assert repr(found).replace("\n", " ") == found.reason
    assert max(len(line) for line in repr(found).splitlines()) <= 100


@pytest.mark.parametrize(
    "n", [1000, 3000, 10_000, pytest.param(100_000, marks=pytest.mark.full_size("twenty times 100,000 rows"))]
)
@pytest.mark.slow("twenty populations of up to 10,000 rows")
def test_no_false_alarm_on_twenty_normal_populations(n):
    for seed in range(20):
        for batch_size in (50, 500):
            found = judged("normal", seed=seed, n=n, batch_size=batch_size, pairs=2)
            assert found.verdict == "normal enough"
            assert "not normal" not in found.reason
            assert "heavy" not in found.reason


def test_a_large_epsilon_is_told_although_batch_means_are_normal():
    log_ratios = 0.02 * np.random.default_rng(1).normal(size=(3, 20_000))
    tree = from_log_ratios(log_ratios, global_log_ratios=[0.0, -1.0, -2.0], random_seed=1, epsilon=0.2)
    found = normality(tree)
    group = tree["log_ratios"]
    expected = acceptance_error(group.mu, group.sd, 20_000, batch_size=500, epsilon=0.2)
    np.testing.assert_allclose(found.table["acceptance_error"], expected)
    assert found.verdict == "normal enough"
    assert " But with normal batch means too, epsilon = 0.2 " in found.reason
    mean = np.abs(expected).mean().item()
    assert f"changes the acceptance probability by {mean:.2g}" in found.reason
    assert "By a heuristic of the design theory (six times that) posterior sds are then " in found.reason
    assert f"too large by some {600 * mean:.0f} %; compare measures it" in found.reason
    tree["log_ratios"].attrs |= {"rule": "Barker", "step": "MinibatchBarker(mu)"}
    assert normality(tree).table["acceptance_error"].isna().all()


def test_the_predicted_shift():
    found = judged("squares", epsilon=0.05)
    skewness = stats.skew(population("squares"), axis=1)
    g = stats.norm.ppf(0.95)
    expected = np.abs(skewness) * (2 * g**2 + 1) * stats.norm.pdf(g) / (6 * math.sqrt(500))
    np.testing.assert_allclose(found.table["error_shift"], expected)
    np.testing.assert_allclose(found.table["error"], expected)  # all decisions are near
    tree = from_log_ratios(population("squares"), random_seed=1)
    other = normality(tree, batch_size=2000, epsilon=0.05)
    np.testing.assert_allclose(other.table["error_shift"], expected / 2)


def test_the_predicted_shift_is_what_happens():
    """One look at batches from a skewed law: how often the test is wrong at the threshold, on either side."""
    m, epsilon, n_batches = 200, 0.05, 40_000
    values = population("squares", n=100_000, pairs=1)
    group = from_log_ratios(values, batch_size=m, n_batches=n_batches, epsilon=epsilon, random_seed=3)
    shift = normality(group).table["error_shift"].item()
    t, bound = group["log_ratios"]["batch_t"].values.ravel(), stats.t.ppf(1 - epsilon, m - 1)
    above, below = np.mean(t > bound), np.mean(t < -bound)
    error = math.sqrt(epsilon / n_batches)
    # Terms of the next order in 1 / m are of the size of shift^2.
    assert abs(above - (epsilon - shift)) < 4 * error + shift**2 + 2 / m * epsilon
    assert abs(below - (epsilon + shift)) < 4 * error + shift**2 + 2 / m * epsilon
    assert abs(above - epsilon) > 4 * error + shift**2 + 2 / m * epsilon  # without a shift: noticed


def test_few_decisions_near_the_threshold_matter_little():
    """With a control variate: the same law, but a thousandth of the size."""
    found = judged("squares", batch_size=50, scale=1e-7)
    assert found.verdict == "normal enough"
    assert found.table["near"].max() < 0.01
    np.testing.assert_allclose(found.table["error"], found.table["near"] * found.table["error_shift"])
    assert "of the decisions are near enough" in found.reason
    assert judged("squares", batch_size=50, scale=1.0).table["near"].min() > 0.999


def test_the_share_of_decisions_that_are_near():
    """Against simulation of u, at the least favourable mean."""
    scale, m = 1e-5, 500
    found = judged("normal", scale=scale, batch_size=m)
    noise = N * scale / math.sqrt(m) * math.sqrt(1 - m / N)
    reach = 2 * stats.norm.ppf(0.99) * noise
    log_u = np.log(np.random.default_rng(1).random(400_000))
    shares = [np.mean(np.abs(log_u - c) < reach) for c in -reach * np.array([0.0, 0.5, 1.0, 1.5, 2.0])]
    assert np.argmax(shares) == 2
    near = found.table["near"].mean()
    assert abs(shares[2] - near) < 4 * math.sqrt(near / 400_000) + 0.01 * near  # sd of the populations


def test_rows_that_batches_see_are_no_alarm():
    """Of 1000 normal numbers the top 100 carry 44 % of the variance."""
    z = np.random.default_rng(1).normal(size=(1, 1000))
    tree = from_log_ratios(z)
    assert tree["log_ratios"]["top_share"].sel(k=100).item() > 0.4
    share = tree["log_ratios"]["top_share"].values
    assert not are_missed(share, 1000, 500).any()
    assert not are_missed(share, 1000, 20).any()
    high = np.array([[0.25, 0.6, 0.9]])
    assert are_missed(high, 1000, 20).tolist() == [[True, True, True]]
    assert are_missed(high, 1000, 400).tolist() == [[True, True, False]]  # 40 of the 100 are in a batch
    assert are_missed(high, 1000, 500).tolist() == [[True, False, False]]


@pytest.mark.parametrize(("scale", "verdict"), [(1.0, "not normal"), (1e-5, "normal enough")])
def test_a_move_with_a_few_rows_far_away_is_enough(scale, verdict):
    """Too few of them to be missed by the share of the variance; with little noise they do not matter."""
    log_ratios = np.random.default_rng(3).normal(size=(10, 100_000))
    log_ratios[4, :20] -= 27.0
    found = normality(from_log_ratios(scale * log_ratios, batch_size=500, random_seed=1, epsilon=0.01))
    assert found.verdict == verdict
    assert found.table["top_100"][4] < 0.2
    if verdict == "not normal":
        assert "in 1 of 10 moves a few rows lie far from the others" in found.reason


def test_some_unsafe_moves_are_enough():
    values = np.concatenate([population("normal", pairs=9), population("rare", pairs=1)])
    assert normality(from_log_ratios(values)).verdict == "not normal"
    assert (normality(from_log_ratios(values)).table["verdict"] == "not normal").sum() == 1
    few = np.concatenate([population("normal", pairs=19), population("rare", pairs=1)])
    few[-1] *= 1e-9  # one in twenty, and of little weight
    assert normality(from_log_ratios(few)).verdict == "normal enough"


def test_terms_that_are_not_finite_are_unsafe():
    values = population("normal")
    values[2, 7] = -np.inf
    with pytest.warns(SubsamplingWarning, match="not finite"):
        tree = from_log_ratios(values)
    assert tree["log_ratios"]["n_infinite"].values.tolist() == [0, 0, 1, 0, 0]
    np.testing.assert_allclose(tree["log_ratios"]["mean"][2], np.delete(values[2], 7).mean())
    found = normality(tree)
    assert found.verdict == "not normal"
    assert "in 1 of 5 moves some terms are not finite" in found.reason


@pytest.mark.parametrize("alpha", [1.0, 2.0, 5.0])
def test_tail_index(alpha):
    values = np.random.default_rng(2).pareto(alpha, (4, 200_000)) * np.array([1, -1, 1, -1])[:, None]
    index = normality(from_log_ratios(values)).table["tail_index"]
    assert np.abs(index / alpha - 1).max() < 4 / np.sqrt(100)


def test_quantiles():
    found = judged("normal")
    assert found.qq.observed.dims == ("pair", "quantile")
    assert np.all(np.diff(found.qq.observed) >= 0)
    np.testing.assert_allclose(found.qq.theoretical[0, 249:251], stats.t.ppf([0.499, 0.501], 499))
    assert np.abs(found.qq.observed - found.qq.theoretical).sel(quantile=slice(100, 400)).max() < 0.3


def test_a_group_without_epsilon():
    assert normality(from_log_ratios(population("squares"), epsilon=0.0)).reason.count("epsilon is 0.01") == 1
