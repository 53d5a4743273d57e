"""Verdicts on draws whose law is known."""

import numpy as np
import pytest
from scipy.signal import lfilter
from xarray import Dataset, DataTree

from pymc_austerity.exceptions import SubsamplingWarning
from pymc_austerity.report.compare import judged
from pymc_austerity.report.judgement import LEVEL, convergence, judge
from pymc_austerity.report.run import Run

TOLERANCE = 0.2


def tree(draws):
    """A posterior of draws (chain, draw, scalar)."""
    return DataTree.from_dict({"posterior": Dataset({"x": (("chain", "draw", "k"), draws)})})


def chains(seed, *, n=2000, k=5, rho=0.5, shift=0.0, scale=1.0):
    """Four AR(1) chains with standard normal marginals, shifted and scaled."""
    noise = np.random.default_rng(seed).normal(size=(4, n + 100, k))
    x = lfilter([np.sqrt(1 - rho**2)], [1.0, -rho], noise, axis=1)[:, 100:]
    return tree(shift + scale * x)


def verdict(own, reference, tolerance=TOLERANCE):
    return judge(own, reference, ["x"], tolerance)


def test_one_law_agrees():
    found = verdict(chains(11), chains(12))
    assert found.verdict == "agrees", found
    assert "is excluded" in found.reason
    assert len(found.table) == 5


@pytest.mark.slow("judges 100 pairs of runs")
def test_false_alarms_are_as_rare_as_promised():
    """100 pairs of runs of one law, with 15 comparisons each."""
    verdicts = [verdict(chains(2 * k), chains(2 * k + 1)).verdict for k in range(100)]
    assert verdicts.count("differs") <= 5  # with 1 expected, probability 0.0005
    assert verdicts.count("agrees") >= 90


def test_an_alarm_in_a_few_pairs():
    verdicts = [verdict(chains(2 * k, n=800), chains(2 * k + 1, n=800)).verdict for k in range(8)]
    assert "differs" not in verdicts
    assert LEVEL <= 0.01


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"shift": np.array([0, 0, 0.3, 0, 0])}, "the mean of x[2] by +0."),
        ({"scale": np.array([1, 1, 1, 0.8, 1])}, "the sd of x[3] by a factor of 0."),
    ],
    ids=["mean", "sd"],
)
def test_another_law_differs(options, words):
    found = verdict(chains(1, **options), chains(2))
    assert found.verdict == "differs"
    assert found.reason.startswith(words)


def test_another_shape_with_the_same_moments_differs():
    rng = np.random.default_rng(3)
    skewed = tree(rng.exponential(size=(4, 2000, 1)) - 1.0)
    found = verdict(skewed, tree(rng.normal(size=(4, 2000, 1))))
    assert found.verdict == "differs"
    assert "Kolmogorov-Smirnov" in found.reason


def test_many_differences_are_counted():
    found = verdict(chains(1, shift=1.0), chains(2))
    assert found.reason.count("the mean of") == 3
    assert found.reason.endswith("and 2 more.")


def test_few_draws_cannot_tell():
    found = verdict(chains(1, n=200, rho=0.3), chains(2))
    assert found.verdict == "cannot tell"
    assert "is not excluded" in found.reason
    assert verdict(chains(1, n=200, rho=0.3), chains(2), tolerance=1.0).verdict == "agrees"


def test_chains_that_have_not_converged_cannot_tell():
    apart = chains(1, shift=np.array([0, 0, 1.0, 0, 0]) * np.arange(4)[:, None, None])
    found = verdict(apart, chains(2))
    assert found.verdict == "cannot tell"
    assert "its chains have not converged (R-hat" in found.reason
    assert "for x[2]" in found.reason
    assert "As it is, it would differ: the sd of x[2] by a factor of 1." in found.reason


FOUR = np.array([1, 1, 1, 1, 0.0])  # the fifth stands still


@pytest.mark.parametrize(
    ("own", "reference", "words"),
    [
        ({}, {"seed": 2, "n": 300, "rho": 0.95}, "the reference's chains have only"),
        ({"scale": FOUR}, {"seed": 2}, "its chains never moved x[4]"),
        ({}, {"seed": 2, "scale": FOUR}, "the reference's chains never moved x[4]"),
        (
            {"seed": 11, "scale": FOUR, "shift": 1.0 - FOUR},
            {"seed": 12, "scale": FOUR},
            "both sides stand still, at different values of x[4]",
        ),
    ],
    ids=["a short reference", "stuck", "a stuck reference", "constants that are not equal"],
)
def test_what_cannot_tell(own, reference, words):
    found = verdict(chains(**{"seed": 1, **own}), chains(**reference))
    assert found.verdict == "cannot tell"
    assert words in found.reason


def test_single_draws():
    rng = np.random.default_rng(1)
    found = verdict(tree(rng.normal(size=(4, 1, 2))), tree(rng.normal(size=(4, 1, 2))))
    assert found.verdict == "cannot tell"
    assert "its chains are too short to know the effective draws of x[0], x[1]" in found.reason


def test_constants_on_both_sides_agree():
    found = verdict(chains(11, scale=FOUR), chains(12, scale=FOUR))
    assert found.verdict == "agrees", found


def test_where_nothing_moves_nothing_is_known():
    for value in (0.0, 0.1):  # of which numpy's standard deviations are 0 and 1e-17
        found = verdict(chains(1, scale=0.0, shift=value), chains(2, scale=0.0, shift=value))
        assert found.verdict == "cannot tell"
        assert "nothing that is compared has moved" in found.reason


def test_agreement_excludes_differences_of_the_tolerance():
    """A difference of the tolerance itself must not be said to agree by half of the runs."""
    found = [
        verdict(chains(2 * k, n=5000, k=1, shift=0.2), chains(2 * k + 1, n=5000, k=1)) for k in range(20)
    ]
    assert [f.verdict for f in found].count("agrees") == 0


def test_with_few_effective_draws_only_large_differences_count():
    limits = [verdict(chains(1, n=n), chains(2)).limit for n in (2000, 200)]
    assert limits[1] == pytest.approx(1.5 * limits[0])


def test_draws_that_are_not_finite():
    draws = chains(11)["posterior"]["x"].values.copy()
    draws[0, 0, 1] = np.nan
    with pytest.warns(SubsamplingWarning, match="not finite"):
        found = verdict(tree(draws), chains(12))
    assert found.verdict == "cannot tell"
    assert "its chains have draws of x[1] that are not finite" in found.reason


def test_without_a_reference():
    run, failed = Run("own", "a step", idata=chains(1)), Run("exact", "another", error="planted")
    found = judged(run, failed, ["x"], TOLERANCE)
    assert found.verdict == "cannot tell"
    assert found.table is None
    assert len(found.convergence) == 5


def test_convergence_of_single_and_stuck_chains():
    x = np.random.default_rng(1).normal(size=(1, 1000, 2))
    x[..., 1] += np.linspace(0, 5, 1000)
    table = convergence(tree(x), ["x"])
    assert table.loc["x[0]", "rhat"] < 1.02
    assert table.loc["x[1]", "rhat"] > 1.5
    half = np.random.default_rng(1).normal(size=(2, 1000, 1))
    half[1] = 0.3
    assert convergence(tree(half), ["x"]).loc["x[0]", "rhat"] == np.inf
