"""What diagnostics refuse, and how they say it."""

import numpy as np
import pytest

from pymc_austerity.diagnostics import (
    agreement,
    amari_distance,
    data_usage_summary,
    decisions,
    effective_cost,
    from_log_ratios,
    inclusion,
    n_clusters,
    normality,
    stamp,
)
from pymc_austerity.diagnostics.normality import log_ratios_of
from tests.diagnostics.results import result, stamped

ONES = np.ones((1, 4))
X, GAMMA, MATRIX = {"x": ONES}, {"gamma": ONES[..., None].astype(int)}, np.eye(2)
BARE, NUTS = result(X), result(X, tree_depth=ONES)
USED = result(X, n_used=ONES, fraction_used=ONES)
MEANS = result(X, n_used=1.5 * ONES, fraction_used=ONES)
RATES = result(X, n_used=ONES, fraction_used=ONES, exhausted=0 * ONES, acceptance_rate=0.5 * ONES)
TWO_STEPS = result(n_used=np.ones((1, 4, 2)), fraction_used=np.ones((1, 4, 2)))
DECIDED = result(psi=ONES, log_ratio_mean=ONES, log_ratio_se=ONES, exhausted=ONES)
HALVES = result({"x": 0.5 * ONES[..., None]})
MOVE = from_log_ratios(np.random.default_rng(1).normal(size=(1, 600)), batch_size=50)


def refused(function, match, *arguments, **keywords):
    return pytest.param(function, arguments, keywords, match, id=f"{function.__name__}: {match}")


@pytest.mark.parametrize(
    ("function", "arguments", "keywords", "match"),
    [
        refused(
            agreement, "'y' is not in the posterior of idata_b", result(X | {"y": ONES}), BARE, var_names="y"
        ),
        refused(agreement, "no scalar in common", BARE, result({"z": ONES})),
        refused(agreement, "two shapes", BARE, result({"x": ONES[..., None]}), var_names="x"),
        refused(agreement, "idata_b has no group posterior", BARE, BARE["posterior"]),
        refused(
            amari_distance, r"W must have the shape \(..., 3, 3\) of W0, got \(2, 2\)", MATRIX, np.eye(3)
        ),
        refused(amari_distance, "at least two rows", np.eye(1), np.eye(1)),
        refused(amari_distance, r"got shape \(4,\)", np.ones(4), np.ones(4)),
        refused(amari_distance, "linearly dependent", MATRIX, np.ones((2, 2))),
        refused(data_usage_summary, "no group sample_stats", BARE),
        refused(data_usage_summary, "no n_used: no subsampled step took part", NUTS),
        refused(
            data_usage_summary,
            "The stamp of idata has 1 steps that record n_used, and sample_stats 2",
            stamped(TWO_STEPS, {"stats": ["n_used"]}),
        ),
        *(
            refused(
                decisions, f"near_tie must be a positive number.*got {near_tie!r}", DECIDED, near_tie=near_tie
            )
            for near_tie in (0.0, -1.0, np.inf, np.nan, "2", True)
        ),
        refused(decisions, "no psi: no subsampled step took part", USED),
        refused(effective_cost, "no group sample_stats", BARE),
        refused(effective_cost, "no n_used: no subsampled step took part", NUTS),
        refused(effective_cost, "'z' is not in the posterior", USED, var_names=["z"]),
        refused(
            effective_cost, r"no dimension chain: keep both, as by isel\(chain=\[0\]\)", USED.isel(chain=0)
        ),
        refused(effective_cost, "the DataTree that pm.sample returns, one alone, got str", "idata.nc"),
        refused(effective_cost, "several transitions.*steps_per_draw=", MEANS),
        refused(effective_cost, "several transitions.*or stamp the result", RATES),
        *(
            refused(effective_cost, "steps_per_draw must be a positive integer", USED, steps_per_draw=given)
            for given in (0, -1, 1.5, [1, 2], [0])
        ),
        refused(
            effective_cost,
            r"steps_per_draw=7 contradicts the stamp of idata, which has \[4\]",
            stamped(USED, {"stats": ["n_used"], "steps_per_draw": 4}),
            steps_per_draw=7,
        ),
        refused(from_log_ratios, "one or more vectors", []),
        refused(from_log_ratios, r"got shapes \(5,\), \(6,\)", [np.zeros(5), np.zeros(6)]),
        refused(from_log_ratios, "from 2 to less than the 500 terms, got 500", [np.zeros(500)]),
        refused(from_log_ratios, "from 2 to less than the 500 terms, got 1", [np.zeros(500)], batch_size=1),
        refused(from_log_ratios, "n_batches must be an integer of at least 3", [np.zeros(501)], n_batches=2),
        refused(from_log_ratios, "epsilon must be in", [np.zeros(501)], epsilon=0.7),
        refused(inclusion, "there are 2: gamma, delta", result(GAMMA | {"delta": GAMMA["gamma"]})),
        refused(inclusion, "there is none", HALVES),
        refused(inclusion, r"x\[0\] holds other numbers than 0 and 1", HALVES, "x"),
        refused(inclusion, "no group posterior", None),
        refused(inclusion, "n_models must be an integer of at least 1, got 0", result(GAMMA), n_models=0),
        refused(log_ratios_of, "no group log_ratios.*idata.update", BARE),
        refused(n_clusters, "'x' holds numbers of type float64; categories are whole", BARE, "x"),
        refused(n_clusters, "'nu' is not in the posterior.*'x'", BARE, "nu"),
        refused(normality, r"epsilon must be in \(0, 0.5\], got 0.0", MOVE, epsilon=0.0),
        refused(normality, r"epsilon must be in \(0, 0.5\], got 0.6", MOVE, epsilon=0.6),
        refused(normality, "batch_size must be an integer from 2 to less .* got 1", MOVE, batch_size=1),
        refused(normality, "batch_size must be an integer from 2 to less .* got 600", MOVE, batch_size=600),
        refused(stamp, "stamp needs the steps", USED),
    ],
)
def test_bad_input(function, arguments, keywords, match):
    with pytest.raises(ValueError, match=match):
        function(*arguments, **keywords)
