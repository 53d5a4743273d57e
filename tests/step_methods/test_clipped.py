"""The sample statistic of Barker's test after a pilot: which steps have it, and what it counts."""

from copy import deepcopy

import cloudpickle
import numpy as np
import pymc as pm
import pytest

from pymc_austerity import MetropolisHastings, MinibatchBarker, RandomWalk
from pymc_austerity.acceptance import Barker
from pymc_austerity.model.compile import backend

from .conftest import near_mode

pytestmark = pytest.mark.usefixtures("interpreted")
WALK = RandomWalk(0.02)


@pytest.fixture(scope="module")
def pilot(line):
    with backend.interpreted():
        return MinibatchBarker(
            model=line, proposal=WALK, temperature=20.0, pilot=True, steps_per_draw=40, rng=1
        )


def draw(step, line):
    step = deepcopy(step)
    step.setup_chain(np.random.default_rng(2), 0, 1)
    return step.step(near_mode(line))[1][0]


@pytest.mark.slow("builds and compiles several steps")
def test_only_steps_with_a_pilot_have_it(pilot, line):
    assert "clipped" not in MinibatchBarker.stats_dtypes_shapes
    for step in (
        MinibatchBarker(model=line, proposal=WALK, rng=1),
        MetropolisHastings(model=line, proposal=WALK, rng=1),
    ):
        assert "clipped" not in step.stats_dtypes_shapes
        assert "clipped" not in draw(step, line)
    by_rule = MetropolisHastings(model=line, proposal=WALK, acceptance=Barker(pilot=True), rng=1)
    for step in (pilot, by_rule, deepcopy(pilot), cloudpickle.loads(cloudpickle.dumps(pilot))):
        assert step.stats_dtypes_shapes["clipped"] == (np.float64, [])
        assert step.stats_dtypes[0]["clipped"] is np.float64


def test_what_it_counts(pilot, line):
    stats = draw(pilot, line)
    assert stats.keys() == pilot.stats_dtypes_shapes.keys()
    assert 0.0 <= stats["clipped"] < 0.5
    # Pilots of 100 rows, and at least as many others; or all of 2000.
    assert 200 <= stats["n_used"] < 2000
    assert stats["n_stages"] == 2.0


def test_sampling(pilot, line):
    with line:
        idata = pm.sample(
            5, tune=2, chains=1, cores=1, step=deepcopy(pilot), random_seed=3, progressbar=False, quiet=True,
            compute_convergence_checks=False, initvals={"a": 1.0, "b": 2.0, "sigma": 1.0},
        )  # fmt: skip
    clipped = idata.sample_stats["clipped"].values
    assert clipped.shape == (1, 5)
    assert np.all(clipped * 40 == np.round(clipped * 40))


def test_the_configuration_names_the_options(pilot):
    rule = pilot.configuration["rule"]
    assert (rule["pilot"], rule["skew_correction"]) == (True, False)


def test_the_correction_needs_a_pilot(line):
    with pytest.raises(ValueError, match="skew_correction=True needs pilot=True"):
        MinibatchBarker(model=line, skew_correction=True)
