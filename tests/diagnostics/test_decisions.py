"""Error estimates of decisions, against the normal law and by simulation."""

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.diagnostics import decision_summary, decisions
from tests.diagnostics.results import result


def made(mean, psi, error, exhausted=0.0):
    mean = np.asarray(mean, dtype=float)[None]
    return result(
        log_ratio_mean=mean,
        psi=np.broadcast_to(psi, mean.shape),
        log_ratio_se=np.broadcast_to(error, mean.shape),
        exhausted=np.broadcast_to(exhausted, mean.shape),
    )


def test_estimates():
    found = decisions(made([0.0, 1.0, -1.0, 5.0], 0.0, 0.5))
    np.testing.assert_allclose(found.z.values[0, :, 0], [0.0, 2.0, -2.0, 10.0])
    expected = stats.norm.sf([0.0, 2.0, 2.0, 10.0])
    np.testing.assert_allclose(found.error_estimate.values[0, :, 0], expected)
    assert found.near_tie.values[0, :, 0].tolist() == [True, True, True, False]
    assert found.error_estimate.dims == ("chain", "draw", "sampler")


def test_nothing_is_left_to_err_about_when_all_was_read():
    found = decisions(made([0.3, -0.3, 0.0], 0.0, 0.0, 1.0))
    assert found.error_estimate.values.ravel().tolist() == [0.0, 0.0, 0.0]
    assert found.z.values.ravel().tolist() == [np.inf, -np.inf, -np.inf]  # a tie rejects
    assert not found.near_tie.any()


@pytest.mark.parametrize(
    "undecided",
    [
        pytest.param((np.nan, 0.0, np.nan), id="the data were not looked at"),
        # The kernel notes an infinite threshold, and 0 for mean and error.
        pytest.param((0.0, -np.inf, 0.0), id="a surrogate that stays"),
        pytest.param((0.1, np.nan, 1.0), id="TunaMH, which notes no threshold"),
    ],
)
def test_moves_without_a_decision_are_unknown(undecided):
    found = decisions(made(*np.transpose([undecided, (1.0, 0.0, 1.0)])))
    assert np.isnan(found.z.values[0, :, 0]).tolist() == [True, False]
    assert np.isnan(found.error_estimate.values[0, :, 0]).tolist() == [True, False]
    assert found.near_tie.values[0, :, 0].tolist() == [False, True]
    row = decision_summary(made(*np.transpose([undecided, (1.0, 0.0, 1.0)]))).loc["step"]
    assert row[["decisions", "near_ties"]].tolist() == [1, 1.0]
    assert row["mean_error"] == pytest.approx(stats.norm.sf(1.0))
    none = decision_summary(made(*np.transpose([undecided]))).loc["step"]
    assert none["decisions"] == 0
    assert none[["mean_error", "max_error", "near_ties"]].isna().all()


def test_two_steps():
    both = np.ones((2, 7, 2)) * [1.0, 2.0]
    found = decisions(
        result(log_ratio_mean=both, psi=both * 0, log_ratio_se=both * 0 + 1, exhausted=both * 0, n_used=both)
    )
    np.testing.assert_allclose(found.z.values[0, 0], [1.0, 2.0])
    assert found.sampler.values.tolist() == ["step 0", "step 1"]


def test_estimates_are_right_for_one_look_at_normal_batches():
    """Of a mean that is known up to a normal error, the sign is wrong as often as estimated."""
    rng = np.random.default_rng(4)
    n = 20_000
    truth = rng.normal(0.0, 1.0, n)
    seen = truth + rng.normal(0.0, 1.0, n)
    # Given what was seen, the truth is N(seen / 2, 1 / 2).
    found = decisions(made(seen / 2, 0.0, np.sqrt(0.5)))
    wrong = np.sign(seen) != np.sign(truth)
    estimate = found.error_estimate.values.ravel()
    error = np.sqrt(np.sum(estimate * (1 - estimate))) / n
    assert abs(wrong.mean() - estimate.mean()) < 4 * error
    assert abs(wrong.mean() - estimate.mean() / 2) > 4 * error  # half as often would be noticed


@pytest.mark.parametrize(("spread", "low", "high"), [(1.0, 3.0, 6.0), (2.4, 3.0, 6.0), (10.0, 0.0, 0.5)])
def test_estimates_do_not_know_of_the_looks_before(spread, low, high):
    """True errors over estimated ones, as the docstring tells them; no estimate is above epsilon."""
    epsilon, n, shares = 0.05, 20_000, np.arange(1, 20) / 20
    rng = np.random.default_rng(5)
    drift = (rng.normal(-(spread**2) / 2, spread, n) + rng.exponential(size=n)) / spread
    tau = shares / (1 - shares)
    steps = np.diff(tau, prepend=0.0)
    z = np.cumsum(drift[:, None] * steps + rng.normal(size=(n, 19)) * np.sqrt(steps), axis=1) / np.sqrt(tau)
    clear = np.abs(z) > stats.norm.isf(epsilon)
    read_all = ~clear.any(axis=1)
    seen = np.where(read_all, drift, z[np.arange(n), np.argmax(clear, axis=1)])
    estimate = decisions(made(seen, 0.0, np.where(read_all, 0.0, 1.0))).error_estimate.values.ravel()
    assert 0.0 < estimate.max() < epsilon
    wrong = np.mean(np.sign(seen) != np.sign(drift))
    assert low < wrong / estimate.mean() < high
