"""Which causes and remarks belong to which findings; and their words."""

import numpy as np
import pandas as pd
import pytest

from pymc_austerity.diagnostics.normality import reason_for

MOVES = 4


def findings(verdict="normal enough", *, missed=(), far=(), infinite=(), epsilon=0.05, **columns):
    """Four moves; `missed`, `far` and `infinite` are those of which it is true."""
    table = {
        "skewness": 0.1,
        "near": 1.0,
        "error": 0.001,
        "acceptance_error": np.nan,
        "top_1": 0.01,
        "top_10": 0.05,
        "top_100": 0.1,
        "tail_index": 9.0,
        "shapiro_pvalue": 0.5,
        "missed": 100 * np.isin(range(MOVES), missed),
        "far": np.isin(range(MOVES), far),
        "infinite": np.isin(range(MOVES), infinite),
    }
    return verdict, pd.DataFrame({**table, **columns}, index=range(MOVES)), epsilon, 10_000, 500


# Words of each cause and of each remark.
RARE, FREQUENT = "and the top 100 of 10,000 rows carry at most", "in the worst"
EQUAL, SKEWED, MISSED = "all log ratios of a move are equal", "are skewed", "and a batch of 500 holds"
FAR, INFINITE = "a few rows lie far from the others", "some terms are not finite"
CAUSES = [RARE, FREQUENT, EQUAL, SKEWED, MISSED, FAR, INFINITE]
NEAR, SHAPIRO = "near enough to the threshold for an error", "visibly not normal in 1 of 4 moves"
HEAVY, EPSILON = "heavy tails (index 2.5)", "normal batch means too"
REMARKS = [NEAR, SHAPIRO, HEAVY, EPSILON]


def said(found, words):
    """Which words the reason has, in their order there."""
    reason = reason_for(*found)
    return sorted((each for each in words if each in reason), key=reason.index)


@pytest.mark.parametrize(
    ("found", "causes"),
    [
        (findings(), [RARE]),
        (findings(top_1=np.nan), [EQUAL]),
        (findings("doubtful"), [SKEWED, FREQUENT]),
        (findings("not normal"), [SKEWED, FREQUENT]),
        (findings("not normal", missed=[1]), [MISSED]),
        (findings("not normal", missed=[1], error=0.2), [MISSED, FREQUENT]),
        (findings("not normal", far=[1]), [FAR]),
        (findings("not normal", far=[1], missed=[2]), [MISSED]),
        (findings("normal enough", far=[1], missed=[2]), [RARE]),
        (findings("not normal", infinite=[3]), [INFINITE]),
        (findings("not normal", infinite=[3], missed=[2]), [INFINITE, MISSED]),
        (findings("not normal", infinite=[3], error=0.2), [INFINITE, FREQUENT]),
    ],
)
def test_causes(found, causes):
    assert said(found, CAUSES) == causes


@pytest.mark.parametrize(
    ("columns", "remarks"),
    [
        ({}, []),
        ({"near": 0.05}, [NEAR]),
        ({"near": 0.05, "top_1": np.nan}, []),
        ({"shapiro_pvalue": [1e-9, 0.5, 0.5, 0.5]}, [SHAPIRO]),
        ({"shapiro_pvalue": 0.0005}, []),  # the level is that of all moves together
        ({"tail_index": 2.5}, [HEAVY]),
        ({"acceptance_error": [np.nan, 0.01, -0.02, np.nan]}, [EPSILON]),
    ],
)
def test_remarks(columns, remarks):
    assert said(findings(**columns), REMARKS) == remarks


def test_an_error_of_epsilon_alone_is_the_mean_of_those_that_are_known():
    found = findings(acceptance_error=[np.nan, 0.01, -0.02, np.nan])
    assert (
        " But with normal batch means too, epsilon = 0.05 changes the acceptance probability by 0.015, "
        in reason_for(*found)
    )
    assert " With normal batch means too, " in reason_for(*findings("doubtful", acceptance_error=0.5))


def test_the_reason_is_one_sentence_and_the_remarks():
    assert reason_for(*findings("not normal", missed=[1, 2], error=0.2, near=0.05)) == (
        "Batch means are not normal enough for the t-test, because the top 100 of 10,000 rows carry 10 % of "
        "the variance in 2 of 4 moves, and a batch of 500 holds 5 of them on average; and a test of 500 "
        "terms is predicted to err 0.2 more often than it says in the mean of 4 moves, and 0.2 in the worst "
        "(epsilon is 0.05). At most "
        "5 % of the decisions are near enough to the threshold for an error."
    )
