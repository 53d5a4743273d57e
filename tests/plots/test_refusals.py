"""What plots refuse, and how they say it."""

import math
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import xarray as xr

from pymc_austerity.acceptance import TTest
from pymc_austerity.diagnostics import from_log_ratios
from pymc_austerity.plots import (
    plot_acceptance_error,
    plot_agreement,
    plot_batch_mean_qq,
    plot_batch_sizes,
    plot_bound_schematic,
    plot_data_usage,
    plot_design_curves,
    plot_risk,
    plot_test_designs,
)
from tests.diagnostics.results import result

MOVES = SimpleNamespace(mu=np.linspace(-2.0, 1.0, 12) / 2000, sigma_l=np.full(12, 0.02))
ALONE = SimpleNamespace(mu=MOVES.mu[:1], sigma_l=MOVES.sigma_l[:1])
DRAWS = np.random.default_rng(1).normal(size=(2, 50))
USED = np.full((1, 5), 500.0)
RUN = result({"a": DRAWS[:1, :5], "b": np.zeros((1, 5, 3))}, n_used=USED, fraction_used=USED / 1e4)
A, MANY = result({"a": DRAWS}), result({"a": np.zeros((2, 5, 41))})
RATIOS = from_log_ratios(
    np.random.default_rng(5).normal(size=(2, 400)), batch_size=50, n_batches=20, random_seed=1
)
UNKNOWN = result(fraction_used=np.full((1, 5), np.nan))
EMPTY = result(fraction_used=np.zeros((2, 0)))
TRUTH = {"a": (0.0, 1.0)}


def refused(plot, match, *arguments, **keywords):
    return pytest.param(plot, arguments, keywords, match, id=f"{plot.__name__}: {match}")


def errors(match, pairs=MOVES, batch_size=500, epsilon=0.05, **keywords):
    return refused(plot_acceptance_error, match, pairs, batch_size=batch_size, epsilon=epsilon, **keywords)


def risk(match, runs=None, truth=TRUTH, **keywords):
    return refused(plot_risk, match, {"run": RUN} if runs is None else runs, truth, **keywords)


@pytest.mark.parametrize(
    ("plot", "arguments", "keywords", "match"),
    [
        errors("pairs must be a DataTree.*got NoneType", None, N=2000),
        errors("pairs has no group log_ratios", xr.DataTree()),
        errors("N, the number of local terms"),
        errors("epsilon must be in", epsilon=0.7, N=2000),
        errors("batch_size", batch_size=2001, N=2000),
        errors("ax must be 2 matplotlib axes, got 1", N=2000, ax=plt.Figure().subplots()),
        refused(plot_agreement, "names must be two different strings", A, A, names=("x", "x")),
        refused(plot_agreement, "'c' is not in the posterior", A, A, var_names="c"),
        refused(plot_agreement, "in common", A, result({"y": DRAWS})),
        refused(plot_agreement, "visuals must be named density", A, A, visuals={"kde": False}),
        refused(plot_agreement, "no group posterior", A, A["posterior"]),
        refused(plot_agreement, "41 panels, one for each scalar.*var_names=", MANY, MANY),
        refused(plot_batch_mean_qq, "no group log_ratios", xr.DataTree()),
        *(
            refused(plot_batch_mean_qq, rf"band must be in \(0, 1\), got '?{band}", RATIOS, band=band)
            for band in (0.0, 1.0, True, "wide")
        ),
        refused(plot_batch_mean_qq, "visuals must be named band", RATIOS, visuals={"bands": False}),
        refused(plot_batch_sizes, "bins must be an integer of at least 1, got 0", RUN, bins=0),
        refused(plot_batch_sizes, "visuals must be named histogram", RUN, visuals={"bars": {}}),
        refused(plot_batch_sizes, "n_used", result(lp=np.zeros((1, 5)))),
        refused(plot_bound_schematic, "psi must be a finite number, got nan", psi=math.nan),
        *(
            refused(plot_bound_schematic, "log_ratios must be at least two finite numbers", values)
            for values in ([1.0], [1.0, np.inf], np.zeros((2, 2)))
        ),
        *(
            refused(plot_data_usage, f"n_blocks must be an integer of at least 1, got {n}", RUN, n_blocks=n)
            for n in (0, -1, 2.5, True, None)
        ),
        refused(plot_data_usage, "visuals must be named blocks, .* got 'lines'", RUN, visuals={"lines": 0}),
        refused(plot_data_usage, "sample_stats", A),
        refused(plot_data_usage, "fraction_used is NaN in all draws", UNKNOWN),
        refused(plot_data_usage, "at least one draw", EMPTY),
        refused(plot_design_curves, "epsilons must be at least one number, got none", 0.05, []),
        refused(plot_design_curves, "epsilon must be in", 0.05, 0.7),
        refused(plot_design_curves, "pi_1 must be in", 1.5, 0.1),
        refused(plot_design_curves, "boundary must be in", 0.05, boundaries=2.0),
        refused(plot_design_curves, "at most 4, got 5", 0.05, boundaries=np.linspace(0.5, 1, 5)),
        *(
            refused(plot_design_curves, "mu_std must be at least two finite numbers", 0.05, mu_std=values)
            for values in ([1.0], [1.0, np.nan])
        ),
        refused(plot_test_designs, "at least two moves to hold one out, got 1", ALONE, [0.1], N=2000),
        refused(plot_test_designs, "tolerances must be at least one number", MOVES, [], N=2000),
        refused(plot_test_designs, "tolerance must be in \\(0, 0.5\\), got 0.7", MOVES, [0.7], N=2000),
        refused(plot_test_designs, "N, the number of local terms", MOVES, [0.1]),
        risk("runs must map names", {}),
        risk("runs must map names", [1]),
        risk("runs must map names .*got DataTree", RUN),
        risk("n_points must be an integer of at least 2, got 1", n_points=1),
        risk("truth must be a DataTree", truth={}),
        risk("'c' is not in the posterior of the run 'run'", truth={"c": (0.0, 1.0)}),
        risk("truth of 'a' must be finite means and positive", truth={"a": (0.0, 0.0)}),
        risk(r"'b' has the shape \(3,\) in the run 'run', and \(\)", truth={"b": (0.0, 1.0)}),
        risk("'z' is not in truth", var_names=["z"]),
        risk("The run 'x' does not say what it read", {"x": A}),
    ],
)
def test_bad_input(plot, arguments, keywords, match):
    with pytest.raises(ValueError, match=match):
        plot(*arguments, **keywords)


def test_a_rule_that_has_no_bound():
    with pytest.raises(TypeError, match="rule must be a Concentration, got TTest"):
        plot_bound_schematic(rule=TTest())
