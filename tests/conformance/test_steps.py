"""Every step keeps PyMC's contract and samples known posteriors, and planted faults do not pass."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from pymc.step_methods.compound import Competence
from scipy.special import digamma, polygamma, softmax

import pymc_austerity as pma
from pymc_austerity import AusterityMH, MetropolisHastings, MHSubLhd, MinibatchBarker, RandomWalk
from pymc_austerity.acceptance import Barker, ExactBarker, TTest
from pymc_austerity.control_variates import Taylor
from pymc_austerity.proposals import Surrogate
from pymc_austerity.step_methods.gamma.variable_chain import VariableChain
from pymc_austerity.testing import check_posterior, check_step
from pymc_austerity.testing.models import Solved, allocations, normal_mean, rates, shares, two_blocks
from pymc_austerity.testing.steps import check_chains, check_interface, check_points, check_state
from tests.statistical.fields import all_states, field, log_density, table_of
from tests.statistical.selection import normal_rows, normal_solved
from tests.step_methods.test_elementwise import groups as of_groups
from tests.step_methods.test_particle_gibbs import linear_gaussian

pytestmark = [
    pytest.mark.filterwarnings("ignore:range_bound=:pymc_austerity.SubsamplingWarning"),
    # Whether a chain has settled after so few draws is not the question here.
    pytest.mark.filterwarnings("ignore:Tuning ended"),
    pytest.mark.filterwarnings("ignore:SGLD accepts every move:pymc_austerity.SubsamplingWarning"),
    # Sharper rules than the t-test read all rows where remainders are large.
    pytest.mark.filterwarnings(
        "ignore:The posterior is not as its expansion:pymc_austerity.SubsamplingWarning"
    ),
]


def ten(kind, **options):
    return partial(kind, steps_per_draw=10, **options)


# What SCIR keeps of a simplex: the total of its gamma variables, and whether others have moved it.
CARRIED = ("n_transitions", "processes")


# With statistics of all rows every step size is exact.
EXACT = {"step_size": 3.0}
SCIR = partial(pma.SCIR, **EXACT)
# Two of the five rows at a time.
TWO_ROWS = {"batch_size": 2, "steps_per_draw": 5}
ALLOCATED = {"vars": ["z"], "partner": SCIR, "draws": 2000}


def langevin(vars=None, *, is_fitted=False, **options):
    """Steps of a hundredth of a posterior variance widen it by little, if gradients are not noisy."""
    if is_fitted and not vars:  # a part of the predictor has no expansion
        fitted = {"control_variate": pma.Taylor(), "preconditioner": pma.Laplace(), "batch_size": 100}
        return pma.SGLD(vars, step_size=0.2, steps_per_draw=50, **fitted, **options)
    return pma.SGLD(vars, step_size=6e-6, batch_size=None, steps_per_draw=50, **options)


def binary_field():
    """All states of six sites."""
    states = all_states(6)
    weights = softmax(log_density(states, table_of(6, 0.5, 3)))
    mean = weights @ states
    start = states[np.argmax(weights)]
    return Solved(field(6, 0.5, 3), {"X": mean}, {"X": np.sqrt(mean * (1 - mean))}, {"X": start})


def log_rates():
    """`rates` as a linear model of eta = log lam, whose posterior is skewed where events are few.

    Exposures differ, so that no rows are equal, and have a mean of one: the posterior is that of `rates`.
    """
    solved = rates()
    shape, rate = (solved.mean["lam"] / solved.sd["lam"]) ** 2, solved.mean["lam"] / solved.sd["lam"] ** 2
    y = solved.model.rvs_to_values[solved.model["y"]].data
    group, exposure = np.arange(len(y)) % len(rate), np.random.default_rng(1).uniform(0.9, 1.1, len(y))
    exposure /= (np.bincount(group, exposure) / np.bincount(group))[group]
    with pm.Model() as model:
        eta = pm.Flat("eta", shape=len(rate))
        pm.Potential("prior", 2.0 * eta - pm.math.exp(eta))
        pm.Poisson("y", exposure * pm.math.exp(eta[group]), observed=y)
    return Solved(model, {"eta": digamma(shape) - np.log(rate)}, {"eta": np.sqrt(polygamma(1, shape))})


# Of first order: what a polynomial of second order leaves of a normal likelihood is zero.
FIRST = Taylor(order=1)
SHORT = {"draws": 1500, "partner": pm.Slice}
# A step, a posterior that is known (if not two regressions), and what else `check_step` is given: of steps
# that are not exact, how many posterior standard deviations they may be off.
CASES = {
    "AusterityMH": (ten(AusterityMH), None, {"tolerance": 0.2}),
    "MHSubLhd": (ten(MHSubLhd, range_bound="exact"), None, {"tolerance": 0.05}),
    "MinibatchBarker": (ten(MinibatchBarker), None, {"tolerance": 0.1}),
    "MetropolisHastings": (ten(MetropolisHastings), None, {}),
    # Besides those by which the steps above decide: their defaults.
    "ExactBarker": (ten(MetropolisHastings, acceptance=ExactBarker()), None, SHORT),
    "Barker, pilot": (
        ten(MetropolisHastings, acceptance=Barker(pilot=True, skew_correction=True)),
        None,
        {"tolerance": 0.1, **SHORT},
    ),
    # All variables in one block: local terms of remainders must not depend on others'.
    "AusterityMH, Taylor": (ten(AusterityMH, control_variate=FIRST), two_blocks, {"tolerance": 0.2}),
    "AusterityMH, second order": (ten(AusterityMH, control_variate=Taylor()), two_blocks, {}),
    # The law of its inner moves is that of a polynomial of second order.
    "AusterityMH, Surrogate": (
        ten(AusterityMH, control_variate=Taylor(), proposal=Surrogate(1)),
        two_blocks,
        {},
    ),
    "MHSubLhd, Taylor": (ten(MHSubLhd, control_variate=FIRST), two_blocks, {"tolerance": 0.05}),
    "MinibatchBarker, Taylor": (ten(MinibatchBarker, control_variate=FIRST), two_blocks, {"tolerance": 0.1}),
    "MetropolisHastings, Taylor": (ten(MetropolisHastings, control_variate=FIRST), two_blocks, {}),
    "TunaMH": (ten(pma.TunaMH), log_rates, {"draws": 4000}),
    "TunaMH, adaptive walk": (
        partial(pma.TunaMH, proposal=pma.proposals.AdaptiveRandomWalk(), steps_per_draw=20),
        log_rates,
        {"draws": 4000},
    ),
    "SCIR, gamma": (SCIR, rates, {"carried": CARRIED}),
    "SCIR, dirichlet": (SCIR, shares, {"carried": CARRIED}),
    "allocations": (partial(pma.MinibatchCategoricalGibbs, **TWO_ROWS), allocations, ALLOCATED),
    "field": (partial(pma.AusterityGibbs, epsilon=0, steps_per_draw=5), binary_field, {}),
    "jumps": (
        partial(pma.ReversibleJump, steps_per_draw=3),
        lambda: normal_solved(normal_rows()),
        {"draws": 3000, "tune": 100},
    ),
    "jumps, a proposal that learns": (
        partial(pma.ReversibleJump, steps_per_draw=5, proposal=pma.proposals.AdaptiveRandomWalk()),
        lambda: normal_solved(normal_rows()),
        {"draws": 4000},
    ),
    "elements": (partial(pma.MetropolisHastings, elementwise=True, steps_per_draw=70), of_groups, {}),
    "elements, t-test": (
        partial(pma.AusterityMH, elementwise=True, batch_size=50, steps_per_draw=70),
        of_groups,
        {"tolerance": 0.2},
    ),
    "states": (partial(pma.ParticleGibbs, steps_per_draw=2), lambda: linear_gaussian(n=12), {"draws": 2000}),
    "SGLD": (langevin, None, {"tolerance": 0.05}),
    "SGLD, fitted": (partial(langevin, is_fitted=True), None, {"tolerance": 0.05}),
}


@pytest.mark.parametrize("name", CASES)
def test_steps(name):
    make_step, solved, options = CASES[name]
    check_step(make_step, solved=solved and solved(), **options)


def test_a_part_of_the_predictor_is_refused():
    make_step, *_ = CASES["AusterityMH, Taylor"]
    with pytest.raises(ValueError, match=r"term 'y'.* but a would be moved by another step"):
        check_step(make_step)


# What is recommended ------------------------------------------------------------------------------


# The search for a bound divides by the rate, which may be zero.
@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply:RuntimeWarning")
@pytest.mark.parametrize(
    ("kind", "solved"),
    [(pma.TunaMH, log_rates()), (pma.MetropolisHastings, rates(default_transform=None))],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_recommended(kind, solved):
    def make_step(vars=None, rng=None):
        step = pma.recommend(vars=vars)
        assert type(step) is kind
        return step

    check_step(make_step, solved=solved)


def test_nuts_is_recommended():
    """PyMC's own step, which may be assigned automatically: what it returns is checked, and its draws."""
    solved = two_blocks()
    with solved.model as model:
        step = pma.recommend(vars=[model["b"]])
        assert isinstance(step, pm.NUTS)
        steps = [step, pm.Slice([model["a"]])]
    check_points(step, solved.draw(np.random.default_rng(0)))
    check_posterior(solved, steps)


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
        check_step(ten(Mutating))


class HalfOfTheRows(pma.TunaMH):
    """Draws half as many rows as their bounds ask for: remainders count half."""

    def _compile(self, plan, point):
        super()._compile(plan, point)
        engine = self.engine
        state = engine.rows.state
        engine.rows = engine.rows._replace(state=state._replace(totals=0.5 * state.totals))
        engine.restart()


class OfThePrior(VariableChain):
    """The shape of the prior in the place of that of the posterior."""

    def _conditional(self, prior, *args):
        _, rate = super()._conditional(prior, *args)
        return prior[0], rate


class WithoutCounts(pma.SCIR):
    """Prior and posterior are the same."""

    def _build(self, point):
        super()._build(point)
        self._chains = [OfThePrior(**vars(each)) for each in self._chains]


class OfTheNeighbour(pma.MinibatchCategoricalGibbs):
    """Each category is drawn with the weight of the next one."""

    def step(self, point):
        w = np.append(point["w_simplex__"], -point["w_simplex__"].sum())
        new, stats = super().step({**point, "w_simplex__": np.roll(w, 1)[:-1]})
        return {**new, "w_simplex__": point["w_simplex__"]}, stats


# Steps of another posterior, and how the fault shows.
BIASED = {
    "half of the rows": (ten(HalfOfTheRows), log_rates, {"draws": 4000}, "eta"),
    "without counts": (partial(WithoutCounts, **EXACT), shares, {"carried": CARRIED}, "w"),
    "weights of the neighbour": (partial(OfTheNeighbour, **TWO_ROWS), allocations, ALLOCATED, "w"),
}


@pytest.mark.parametrize("name", BIASED)
def test_a_wrong_posterior_is_seen(name):
    make_step, solved, options, variable = BIASED[name]
    with pytest.raises(AssertionError, match=rf"posterior mean of {variable}\[0\]"):
        check_step(make_step, solved=solved(), **options)


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
