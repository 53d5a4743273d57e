"""Every step keeps PyMC's contract and samples known posteriors, and planted faults do not pass."""

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import Competence

from pymc_austerity import AusterityMH, MetropolisHastings, MHSubLhd, MinibatchBarker, RandomWalk
from pymc_austerity.acceptance import Barker, ExactBarker, TTest
from pymc_austerity.control_variates import Taylor
from pymc_austerity.proposals import Surrogate
from pymc_austerity.testing import check_posterior, check_step
from pymc_austerity.testing.models import normal_mean, two_blocks
from pymc_austerity.testing.steps import (
    check_chains,
    check_interface,
    check_points,
    check_state,
)

pytestmark = [
    pytest.mark.filterwarnings("ignore:range_bound=:pymc_austerity.SubsamplingWarning"),
    # Whether a chain has settled after so few draws is not the question here.
    pytest.mark.filterwarnings("ignore:Tuning ended"),
]


def maker(kind, **kwargs):
    def make_step(vars=None, **options):
        return kind(vars, steps_per_draw=10, **kwargs, **options)

    return make_step


# A step for each, and how many posterior standard deviations it may be off.
STEPS = {
    "AusterityMH": (maker(AusterityMH), 0.2),
    "MHSubLhd": (maker(MHSubLhd, range_bound="exact"), 0.05),
    "MinibatchBarker": (maker(MinibatchBarker), 0.1),
    "MetropolisHastings": (maker(MetropolisHastings), 0.0),
}
# Besides those by which the steps above decide: their defaults.
RULES = {
    "ExactBarker": (maker(MetropolisHastings, acceptance=ExactBarker()), 0.0),
    "Barker, pilot": (maker(MetropolisHastings, acceptance=Barker(pilot=True, skew_correction=True)), 0.1),
}


@pytest.mark.parametrize("name", STEPS)
def test_steps(name):
    make_step, tolerance = STEPS[name]
    check_step(make_step, tolerance=tolerance)


@pytest.mark.slow("each rule passes check_rule, and four others check_step in a step of their own")
@pytest.mark.parametrize("name", RULES)
def test_metropolis_hastings_with_other_rules(name):
    make_step, tolerance = RULES[name]
    check_step(make_step, tolerance=tolerance, draws=1500, partner=pm.Slice)


# Control variates ---------------------------------------------------------------------------------

# Of first order: what a polynomial of second order leaves of a normal likelihood is zero.
FIRST = Taylor(order=1)
WITH_TAYLOR = {
    "AusterityMH": (maker(AusterityMH, control_variate=FIRST), 0.2),
    "AusterityMH, second order": (maker(AusterityMH, control_variate=Taylor()), 0.0),
    # The law of its inner moves is that of a polynomial of second order.
    "AusterityMH, Surrogate": (maker(AusterityMH, control_variate=Taylor(), proposal=Surrogate(1)), 0.0),
    "MHSubLhd": (maker(MHSubLhd, control_variate=FIRST), 0.05),
    "MinibatchBarker": (maker(MinibatchBarker, control_variate=FIRST), 0.1),
    "MetropolisHastings": (maker(MetropolisHastings, control_variate=FIRST), 0.0),
}


# Sharper rules than the t-test read all rows, since these remainders are large.
@pytest.mark.slow("the same steps as above, on remainders")
@pytest.mark.filterwarnings("ignore:The posterior is not as its expansion:pymc_austerity.SubsamplingWarning")
@pytest.mark.parametrize("name", WITH_TAYLOR)
def test_steps_with_a_control_variate(name):
    """All variables in one block: local terms must not depend on others'."""
    make_step, tolerance = WITH_TAYLOR[name]
    both = two_blocks()
    with both.model:
        step = make_step(rng=np.random.default_rng(0))
    for check in (check_interface, check_points, check_state, check_chains):
        check(step, both.draw(np.random.default_rng(0)))
    check_posterior(both, step, tolerance=tolerance)


def test_a_part_of_the_predictor_is_refused():
    make_step, _ = WITH_TAYLOR["AusterityMH"]
    with pytest.raises(ValueError, match=r"term 'y'.* but a would be moved by another step"):
        check_step(make_step)


# Planted faults -------------------------------------------------------------------------------------


class Mutating(AusterityMH):
    """Writes the new values into the arrays of the point."""

    def step(self, point):
        new, stats = super().step(point)
        for name in new:
            point[name][...] = new[name]
        return new, stats


class Dropping(AusterityMH):
    """Returns its own variables only."""

    def step(self, point):
        new, stats = super().step(point)
        return {var.name: new[var.name] for var in self.vars}, stats


class Unstated(AusterityMH):
    """No state that pm.sample could take from a chain."""

    _state_class = dict


class Assigned(AusterityMH):
    @staticmethod
    def competence(var, has_grad):
        return Competence.COMPATIBLE


class Counting(AusterityMH):
    """A statistic of another type than announced."""

    def step(self, point):
        new, (stats,) = super().step(point)
        return new, [{**stats, "n_used": int(stats["n_used"])}]


class AlwaysTuning(AusterityMH):
    """Forgets that tuning has ended."""

    def step(self, point):
        self.tune = True
        return super().step(point)


class Continuing(AusterityMH):
    """Takes what one chain has learnt into the next."""

    def _begin_chain(self, n_tune):
        kept = getattr(self, "proposal_state", None)
        super()._begin_chain(n_tune)
        if kept is not None:
            self.proposal_state = kept


class OneStream(AusterityMH):
    """Goes on with the generator that it was built with."""

    def setup_chain(self, rng, tune, draws):
        super().setup_chain(np.random.default_rng(1), tune, draws)


class Global(AusterityMH):
    """Uses numpy's global random numbers as well."""

    def step(self, point):
        np.random.random()  # noqa: NPY002
        return super().step(point)


class Forgetful(AusterityMH):
    """Counts its steps, and makes use of it, outside the sampling state."""

    count = 0

    def step(self, point):
        self.count += 1
        new, stats = super().step(point)
        return {**new, "b": new["b"] + 1e-6 * self.count}, stats


class Shifted(MetropolisHastings):
    """All samples a little too high."""

    def step(self, point):
        new, stats = super().step({n: v - (0.005 if n == "mu" else 0.0) for n, v in point.items()})
        return {n: v + (0.005 if n == "mu" else 0.0) for n, v in new.items()}, stats


WRONG = {
    Unstated: (check_interface, "_state_class is <class 'dict'>"),
    Assigned: (check_interface, "INCOMPATIBLE"),
    Counting: (check_interface, "n_used is of type int64"),
    Mutating: (check_points, "changed b in the point"),
    Dropping: (check_points, r"has \['b'\] instead of"),
    Global: (check_state, "global random numbers"),
    Forgetful: (check_state, "sampling_state was set back"),
    AlwaysTuning: (check_chains, "still learnt after stop_tuning"),
    Continuing: (check_chains, "seed of the first"),
    OneStream: (check_chains, "does not use the generator"),
}


@pytest.fixture(scope="module")
def both():
    return two_blocks()


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_step_fails(kind, both):
    check, message = WRONG[kind]
    step = kind([both.model["b"]], model=both.model, rng=1)
    point = both.draw(np.random.default_rng(1))
    with pytest.raises(AssertionError, match=message):
        check(step, point)


def test_a_wrong_step_fails_as_a_whole():
    with pytest.raises(AssertionError, match="changed b in the point"):
        check_step(maker(Mutating))


def test_a_shift_of_a_quarter_of_a_standard_deviation_is_seen():
    solved = normal_mean()
    step = Shifted(model=solved.model, proposal=RandomWalk(0.04), steps_per_draw=10)
    with pytest.raises(AssertionError, match="posterior mean of mu"):
        check_posterior(solved, step, tune=0)


def test_a_step_that_accepts_everything_is_seen():
    """A rule that decides from two terms makes the posterior too wide."""
    solved = normal_mean()
    rule = TTest(0.5, 20)
    step = MetropolisHastings(
        model=solved.model, acceptance=rule, proposal=RandomWalk(0.04), steps_per_draw=10
    )
    with pytest.raises(AssertionError, match="posterior standard deviation of mu"):
        check_posterior(solved, step, tolerance=0.2, tune=0)
