"""The picture is that of the rule."""

import math

import numpy as np
import pytest

from pymc_austerity.acceptance import Concentration
from pymc_austerity.acceptance.base import Sample
from pymc_austerity.plots import plot_bound_schematic
from pymc_austerity.plots.designs import decide
from tests.plots.artists import inside, levels, line, places

BOUNDS = ["hoeffding-serfling", "empirical-bernstein", "empirical-bernstein-serfling"]


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("psi", [-0.3, 0.05, 0.1, 1.0])
def test_it_stops_where_psi_leaves_the_drawn_interval(bound, psi):
    values = np.random.default_rng(3).normal(0.1, 0.5, size=3000)
    run = decide(values, psi, Concentration(bound=bound))
    at = run.means[np.array(run.ends) - 1]
    outside = np.abs(at - psi) > np.array(run.radii)
    assert not outside[:-1].any()
    assert outside[-1] or run.ends[-1] == 3000
    assert run.accepted == (at[-1] > psi)
    np.testing.assert_allclose(run.means[-1], values.mean())


def test_what_is_drawn():
    values = np.random.default_rng(3).normal(0.1, 0.5, size=5000)
    axes = plot_bound_schematic(values, 0.02, seed=4)
    run = decide(np.random.default_rng(4).permutation(values), 0.02, Concentration())
    drawn = line(axes, "mean of the first $t$ terms")
    np.testing.assert_allclose(drawn, np.c_[np.arange(1, run.ends[-1] + 1), run.means[: run.ends[-1]]])
    assert 0.02 in levels(axes)
    assert values.mean() in levels(axes)
    assert places(axes) == [run.ends[-1]]
    bars = axes.containers[0].lines[2][0].get_segments()
    np.testing.assert_allclose([np.ptp(b[:, 1]) / 2 for b in bars], run.radii, rtol=1e-9)
    assert f"{run.ends[-1]:,} of 5,000" in axes.get_title()
    assert inside(axes.figure)


def test_the_seed_draws_the_order():
    first, again, other = (
        line(plot_bound_schematic(seed=s), "mean of the first $t$ terms")[:50] for s in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_moments_of_the_sample_are_those_that_the_rule_gets():
    seen = []

    class Watching(Concentration):
        @property
        def functions(self):
            own = super().functions
            return own._replace(decide=lambda *a: seen.append(a) or own.decide(*a))

    values = np.random.default_rng(1).exponential(size=200)
    decide(values, 0.9, Watching())
    for schedule, stage, sample, psi, width in seen:
        assert isinstance(sample, Sample)
        read = values[: schedule.ends[stage]]
        assert (sample.n, sample.n_local, psi) == (len(read), 200, 0.9)
        np.testing.assert_allclose(
            [sample.mean, sample.m2], [read.mean(), len(read) * read.var()], atol=1e-12
        )
        assert width == np.ptp(values)


@pytest.mark.parametrize("values", [np.zeros(50), np.arange(2.0), np.full(1000, 3.0)])
def test_equal_and_few_terms(values):
    axes = plot_bound_schematic(values, 0.0)
    assert math.isfinite(axes.get_ylim()[0])
