"""Which causes and remarks belong to which findings; and their words."""

import numpy as np
import pandas as pd
import pytest

from pymc_austerity.diagnostics.normality import (
    Findings,
    all_equal,
    causes_of,
    epsilon_alone,
    far_rows,
    few_near,
    frequent_errors,
    heavy_tails,
    not_finite,
    not_normal,
    rare_errors,
    reason_for,
    remarks_of,
    rows_missed,
    skewed,
)

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
    }
    table = pd.DataFrame({**table, **columns}, index=range(MOVES))
    flags = [np.isin(np.arange(MOVES), moves) for moves in (missed, far, infinite)]
    flags[0] = np.stack([flags[0]] * 3, axis=1)
    return Findings(verdict, table, *flags, epsilon, 10_000, 500)


@pytest.mark.parametrize(
    ("found", "causes"),
    [
        (findings(), [rare_errors]),
        (findings(top_1=np.nan), [all_equal]),
        (findings("doubtful"), [skewed, frequent_errors]),
        (findings("not normal"), [skewed, frequent_errors]),
        (findings("not normal", missed=[1]), [rows_missed]),
        (findings("not normal", missed=[1], error=0.2), [rows_missed, frequent_errors]),
        (findings("not normal", far=[1]), [far_rows]),
        (findings("not normal", far=[1], missed=[2]), [rows_missed]),
        (findings("normal enough", far=[1], missed=[2]), [rare_errors]),
        (findings("not normal", infinite=[3]), [not_finite]),
        (findings("not normal", infinite=[3], missed=[2]), [not_finite, rows_missed]),
        (findings("not normal", infinite=[3], error=0.2), [not_finite, frequent_errors]),
    ],
)
def test_causes(found, causes):
    assert causes_of(found) == causes


@pytest.mark.parametrize(
    ("columns", "remarks"),
    [
        ({}, []),
        ({"near": 0.05}, [few_near]),
        ({"near": 0.05, "top_1": np.nan}, []),
        ({"shapiro_pvalue": [1e-9, 0.5, 0.5, 0.5]}, [not_normal]),
        ({"shapiro_pvalue": 0.0005}, []),  # the level is that of all moves together
        ({"tail_index": 2.5}, [heavy_tails]),
        ({"acceptance_error": [np.nan, 0.01, -0.02, np.nan]}, [epsilon_alone]),
    ],
)
def test_remarks(columns, remarks):
    assert remarks_of(findings(**columns)) == remarks


def test_an_error_of_epsilon_alone_is_the_mean_of_those_that_are_known():
    found = findings(acceptance_error=[np.nan, 0.01, -0.02, np.nan])
    assert found.acceptance_error == pytest.approx(0.015)
    assert " But with normal batch means too, epsilon = 0.05 " in reason_for(found)
    assert " With normal batch means too, " in reason_for(findings("doubtful", acceptance_error=0.5))


def test_the_reason_is_one_sentence_and_the_remarks():
    assert reason_for(findings("not normal", missed=[1, 2], error=0.2, near=0.05)) == (
        "Batch means are not normal enough for the t-test, because the top 100 of 10,000 rows carry 10 % of "
        "the variance in 2 of 4 moves, and a batch of 500 holds 5 of them on average; and a test of 500 "
        "terms is predicted to err 0.2 more often than it says in the mean of 4 moves, and 0.2 in the worst "
        "(epsilon is 0.05). At most "
        "5 % of the decisions are near enough to the threshold for an error."
    )
