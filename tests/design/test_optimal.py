"""Optimal designs: known ones, a brute-force search, and what a user may get wrong."""

import copy
import math
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import xarray as xr

from pymc_austerity import AusterityMH
from pymc_austerity.acceptance import TTest
from pymc_austerity.design import (
    Design,
    acceptance_error,
    data_usage,
    error,
    expected_data_usage,
    optimal_design,
)
from pymc_austerity.design.optimal import BATCH_SIZES, EPSILONS
from pymc_austerity.exceptions import SubsamplingWarning

N = 10_000
GRID = {"batch_sizes": (200, 1000), "epsilons": (0.005, 0.05, 0.2)}


def gaussian_moves(n=40, n_local=N, seed=1):
    """As of a random walk at equilibrium in a normal posterior."""
    sd_sum = np.linspace(0.5, 3, n)
    log_ratio = np.random.default_rng(seed).normal(-(sd_sum**2) / 2, sd_sum)
    return SimpleNamespace(mu=log_ratio / n_local, sigma_l=sd_sum / math.sqrt(n_local))


def tree(moves, n_local=N):
    pairs = {"mu": ("pair", moves.mu), "sd": ("pair", moves.sigma_l)}
    return xr.DataTree.from_dict({"log_ratios": xr.Dataset(pairs, attrs={"n_local": n_local})})


# The worst case -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tolerance", "batch", "epsilon"), [(0.05, 500, 0.005), (0.1, 400, 0.01)])
def test_known_worst_case_designs(tolerance, batch, epsilon):
    design = optimal_design(None, tolerance, N=N)
    assert dict(design) == {"epsilon": epsilon, "batch_size": batch, "boundary": 0.5}
    assert design.kind == "worst case"
    assert design.error == pytest.approx(error(0.0, batch / N, epsilon), abs=1e-12)
    assert design.data_usage == pytest.approx(data_usage(0.0, batch / N, epsilon), abs=1e-12)
    assert design.error <= tolerance
    assert len(BATCH_SIZES) == 13
    assert len(EPSILONS) == 14


# Averages -------------------------------------------------------------------------------------------


def test_average_design_is_the_best_of_the_grid():
    moves = gaussian_moves()
    rows = []
    for size in GRID["batch_sizes"]:
        for epsilon in GRID["epsilons"]:
            for boundary in (0.5, 0.8):
                test = {"batch_size": size, "epsilon": epsilon, "boundary": boundary}
                delta = acceptance_error(moves.mu, moves.sigma_l, N, **test)
                used = expected_data_usage(moves.mu, moves.sigma_l, N, **test)
                rows.append((np.abs(delta).mean(), used.mean(), test))
    for tolerance in (0.01, 0.05, 0.15):
        found = optimal_design(moves, tolerance, N=N, boundaries=(0.5, 0.8), **GRID)
        wrong, used, test = min((r for r in rows if r[0] <= tolerance), key=lambda r: r[1])
        assert dict(found) == test
        assert (found.error, found.data_usage) == pytest.approx((wrong, used), abs=1e-12)
        assert (found.kind, found.N) == ("average", N)


def test_average_designs_read_less_than_the_worst_case_expects():
    average, worst = (optimal_design(pairs, 0.05, N=N, **GRID) for pairs in (gaussian_moves(), None))
    assert average.epsilon > worst.epsilon
    assert average.data_usage < worst.data_usage


def test_pairs_from_a_data_tree():
    moves = gaussian_moves()
    expected = optimal_design(moves, 0.05, N=N, **GRID)
    for given in ({}, {"N": N}):
        found = optimal_design(tree(moves), 0.05, **given, **GRID)
        assert dict(found) == dict(expected)
        assert found.error == expected.error


def test_moves_without_variance_and_impossible_moves_count():
    moves = SimpleNamespace(mu=[0.0, -math.inf], sigma_l=[0.0, 0.01])
    found = optimal_design(moves, 0.01, N=N, batch_sizes=(500,), epsilons=(0.3,))
    assert found.error == 0.0
    assert found.data_usage == pytest.approx((1 + 0.05) / 2)


# Grids ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n_local", "sizes"), [(N, BATCH_SIZES), (700, BATCH_SIZES[:7]), (30, (30,))])
def test_default_batch_sizes(n_local, sizes, monkeypatch):
    assert tried(n_local, monkeypatch) == list(sizes)


def test_default_batch_sizes_of_large_data(monkeypatch):
    million = tried(10**6, monkeypatch)
    assert million[0] == 2000
    assert million[-1] == 500_000
    for n_local in (10**7, 10**9, 10**12):
        sizes = tried(n_local, monkeypatch)
        assert sizes == sorted(sizes)
        assert n_local / 500 <= sizes[0] <= n_local / 200
        assert n_local / 5 <= sizes[-1] <= n_local / 2


def tried(n_local, monkeypatch):
    """Batch sizes of the tests whose law is asked for."""
    sizes = []

    def law(drift, pi_1, epsilon, boundary):
        sizes.append(round(pi_1 * n_local))
        return np.zeros(1), np.ones(1)

    monkeypatch.setattr("pymc_austerity.design.optimal.operating_characteristics", law)
    optimal_design(N=n_local, epsilons=(0.1,))
    return sizes


def test_batch_sizes_above_n_are_left_out():
    found = optimal_design(None, 0.4, N=300, batch_sizes=(100, 500), epsilons=(0.2,))
    assert found.batch_size == 100


# Errors ---------------------------------------------------------------------------------------------


def test_no_test_within_the_tolerance():
    with pytest.raises(ValueError, match=r"at most tolerance = 0.001.*Design\(epsilon=0.01, batch_size=1000"):
        optimal_design(None, 0.001, N=N, batch_sizes=(500, 1000), epsilons=(0.01, 0.1))


@pytest.mark.parametrize(
    ("pairs", "given", "said"),
    [
        (None, {}, "N, the number of local terms, must be given where there are no pairs"),
        (None, {"N": 1e4}, "N must be an integer of at least 2, got 10000.0"),
        (None, {"N": N, "tolerance": 0.5}, "tolerance must be in .0, 0.5., got 0.5"),
        (None, {"N": N, "tolerance": None}, "tolerance must be in .0, 0.5., got None"),
        (
            None,
            {"N": N, "batch_sizes": (20_000,)},
            r"batch_sizes must have one of at most N = 10000, got \[20000\]",
        ),
        (None, {"N": N, "batch_sizes": (1,)}, "batch_sizes must be an integer of at least 2, got 1"),
        (None, {"N": 10**7, "batch_sizes": (50,)}, r"batch_sizes must be at least N / 20,000 = 500, got 50"),
        (None, {"N": N, "epsilons": (0.6,)}, r"epsilon must be in \[0, 0.5\].*got 0.6"),
        (None, {"N": N, "epsilons": ()}, "epsilons must not be empty"),
        (None, {"N": N, "boundaries": ()}, "boundaries must not be empty"),
        (None, {"N": N, "boundaries": (0.2,)}, r"boundary must be in \[0.5, 1\].*got 0.2"),
        (gaussian_moves(), {}, "N, the number of local terms, must be given beside mu and sigma_l"),
        (tree(gaussian_moves()), {"N": 99}, "N = 99, but the pairs are of a model with 10000 local terms"),
        (xr.DataTree(), {}, "pairs has no group log_ratios"),
        ("trial", {"N": N}, "pairs must be a DataTree with the group log_ratios.*got str"),
        (SimpleNamespace(mu=[0.0], sigma_l=[1.0, 2.0]), {"N": N}, "one length, got lengths 1 and 2"),
        (SimpleNamespace(mu=[], sigma_l=[]), {"N": N}, "one length, got lengths 0 and 0"),
        (SimpleNamespace(mu=[0.0], sigma_l=[-1.0]), {"N": N}, "sigma_l must be finite and not negative"),
        (SimpleNamespace(mu=[math.nan], sigma_l=[1.0]), {"N": N}, "mu must be a number, got nan"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_a_user_may_get_wrong(pairs, given, said):
    with pytest.raises(ValueError, match=said):
        optimal_design(pairs, **given)


# The result -----------------------------------------------------------------------------------------


@pytest.fixture
def design():
    return Design(0.05, 500, 0.75, 0.031, 0.42, "average", N)


def test_a_design_is_a_mapping_of_three(design):
    assert dict(**design) == {"epsilon": 0.05, "batch_size": 500, "boundary": 0.75}
    assert len(design) == 3
    assert "error" not in design
    with pytest.raises(KeyError):
        design["error"]
    assert design == {"epsilon": 0.05, "batch_size": 500, "boundary": 0.75}
    assert TTest(**design) == TTest(0.05, 500, boundary=0.75)


def test_a_design_does_not_change(design):
    with pytest.raises(AttributeError):
        design.epsilon = 0.1
    with pytest.raises(TypeError):
        design["epsilon"] = 0.1
    for other in (copy.deepcopy(design), pickle.loads(pickle.dumps(design))):
        assert other == design
        assert repr(other) == repr(design)


def test_its_text_says_what_to_expect(design):
    assert repr(design) == (
        "Design(epsilon=0.05, batch_size=500, boundary=0.75: average error 0.031, data usage 0.42, N=10000)"
    )


def test_a_step_takes_it(design):
    import pymc as pm

    with pm.Model() as model:
        mean = pm.Normal("mean")
        pm.Normal("y", mean, 1, observed=np.random.default_rng(1).normal(size=1000))
    step = AusterityMH(**design, model=model)
    assert step.recipe.rule == TTest(0.05, 500, boundary=0.75)


# Designs for pairs of a real model are tried in tests/examples/test_test_design.py.


def test_a_design_for_remainders_says_so():
    trial = tree(gaussian_moves())
    trial["log_ratios"].attrs["control_variate"] = "Taylor"
    with pytest.warns(SubsamplingWarning, match=r"AusterityMH\(\*\*design, control_variate=Taylor\(\)\)"):
        optimal_design(trial, 0.05, **GRID)


def test_moves_with_terms_that_are_not_finite_are_refused():
    """Their mu and sd leave these terms out: a move that is impossible would pass for a likely one."""
    group = tree(gaussian_moves())["log_ratios"].to_dataset().assign(n_infinite=("pair", np.eye(40)[7]))
    trial = xr.DataTree.from_dict({"log_ratios": group})
    with pytest.raises(ValueError, match=r"of the moves 7 are not finite.*pairs\.isel"):
        optimal_design(trial, 0.05, **GRID)
    rest = trial.isel(pair=trial.log_ratios.n_infinite == 0)
    assert optimal_design(rest, 0.05, **GRID).error <= 0.05
