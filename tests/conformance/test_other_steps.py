"""Steps for other variables than real ones, those that need bounds, and what `recommend` returns."""

from functools import partial

import numpy as np
import pymc as pm
import pytest
from scipy.special import digamma, polygamma, softmax

import pymc_austerity as pma
from pymc_austerity.step_methods.gamma.variable_chain import VariableChain
from pymc_austerity.testing import check_posterior, check_step
from pymc_austerity.testing.models import Solved, allocations, rates, shares, two_blocks
from pymc_austerity.testing.steps import check_points
from tests.statistical.fields import all_states, field, log_density, table_of
from tests.statistical.selection import normal_rows, normal_solved
from tests.step_methods.test_elementwise import groups as of_groups
from tests.step_methods.test_particle_gibbs import linear_gaussian

pytestmark = [
    # Whether a chain has settled after so few draws is not the question here.
    pytest.mark.filterwarnings("ignore:Tuning ended"),
    pytest.mark.filterwarnings("ignore:SGLD accepts every move:pymc_austerity.SubsamplingWarning"),
]

# What SCIR keeps of a simplex: the total of its gamma variables, and whether others have moved it.
CARRIED = ("n_transitions", "processes")


def tuna(vars=None, kind=pma.TunaMH, **options):
    return kind(vars, steps_per_draw=10, **options)


def scir(vars=None, kind=pma.SCIR, **options):
    """With statistics of all rows every step size is exact."""
    return kind(vars, step_size=3.0, **options)


def gibbs(vars=None, kind=pma.MinibatchCategoricalGibbs, **options):
    """Two of the five rows at a time."""
    return kind(vars, batch_size=2, steps_per_draw=5, **options)


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
    """`rates` as a linear model of eta = log lam, whose posterior is skewed where events are few."""
    solved = rates()
    shape, rate = (solved.mean["lam"] / solved.sd["lam"]) ** 2, solved.mean["lam"] / solved.sd["lam"] ** 2
    y = solved.model.rvs_to_values[solved.model["y"]].data
    with pm.Model() as model:
        eta = pm.Flat("eta", shape=len(rate))
        pm.Potential("prior", 2.0 * eta - pm.math.exp(eta))
        pm.Poisson("y", pm.math.exp(eta[np.arange(len(y)) % len(rate)]), observed=y)
    return Solved(model, {"eta": digamma(shape) - np.log(rate)}, {"eta": np.sqrt(polygamma(1, shape))})


# A step, a posterior that is known, and what else `check_step` is given.
CASES = {
    "TunaMH": (tuna, log_rates, {"draws": 4000}),
    "SCIR, gamma": (scir, rates, {"carried": CARRIED}),
    "SCIR, dirichlet": (scir, shares, {"carried": CARRIED}),
    "allocations": (gibbs, allocations, {"vars": ["z"], "partner": scir, "draws": 2000}),
    "field": (partial(pma.AusterityGibbs, epsilon=0, steps_per_draw=5), binary_field, {}),
    "jumps": (
        partial(pma.ReversibleJump, steps_per_draw=3),
        lambda: normal_solved(normal_rows()),
        {"draws": 3000, "tune": 100},
    ),
    "jumps, a proposal that learns": (
        partial(pma.ReversibleJump, steps_per_draw=5, proposal=pma.AdaptiveRandomWalk()),
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
    "SGLD": (langevin, lambda: None, {"tolerance": 0.05}),
    "SGLD, fitted": (partial(langevin, is_fitted=True), lambda: None, {"tolerance": 0.05}),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_steps(name):
    make_step, solved, options = CASES[name]
    check_step(make_step, solved=solved(), **options)


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


def bug(make_step, kind):
    """`make_step` of another kind."""
    return lambda vars=None, **options: make_step(vars, kind, **options)


def test_tuna_with_half_of_the_rows_fails():
    with pytest.raises(AssertionError, match=r"posterior mean of eta\[0\]"):
        check_step(bug(tuna, HalfOfTheRows), solved=log_rates(), draws=4000)


def test_scir_without_counts_fails():
    with pytest.raises(AssertionError, match=r"posterior mean of w\[0\]"):
        check_step(bug(scir, WithoutCounts), solved=shares(), carried=CARRIED)


def test_gibbs_with_weights_of_the_neighbour_fails():
    with pytest.raises(AssertionError, match=r"posterior mean of w\[0\]"):
        check_step(bug(gibbs, OfTheNeighbour), solved=allocations(), vars=["z"], partner=scir, draws=2000)
