"""Steps for other variables than real ones, those that need bounds, and what `recommend` returns."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import SCIR, MetropolisHastings, MinibatchCategoricalGibbs, TunaMH, recommend
from pymc_austerity.step_methods.gamma.variable_chain import VariableChain
from pymc_austerity.testing import check_posterior, check_step
from pymc_austerity.testing.models import allocations, log_rates, rates, shares, two_blocks
from pymc_austerity.testing.steps import check_points

# Whether a chain has settled after so few draws is not the question here.
pytestmark = pytest.mark.filterwarnings("ignore:Tuning ended")

# What SCIR keeps of a simplex: the total of its gamma variables, and whether others have moved it.
CARRIED = ("n_transitions", "log_theta", "written", "anchors")


def tuna(vars=None, kind=TunaMH, **options):
    return kind(vars, steps_per_draw=10, **options)


def scir(vars=None, kind=SCIR, **options):
    """With statistics of all rows every step size is exact."""
    return kind(vars, step_size=3.0, **options)


def gibbs(vars=None, kind=MinibatchCategoricalGibbs, **options):
    """Two of the five rows at a time."""
    return kind(vars, batch_size=2, steps_per_draw=5, **options)


def test_tuna():
    check_step(tuna, solved=log_rates(), draws=4000)


@pytest.mark.parametrize(
    "solved",
    [pytest.param(shares, id="dirichlet", marks=pytest.mark.slow("as of a gamma variable")), rates],
    ids=lambda solved: "gamma",
)
def test_scir(solved):
    check_step(scir, solved=solved(), carried=CARRIED)


@pytest.mark.slow("a second step is tested with it")
def test_gibbs():
    check_step(gibbs, solved=allocations(), vars=["z"], partner=scir, draws=2000)


# What is recommended ------------------------------------------------------------------------------


# The search for a bound divides by the rate, which may be zero.
@pytest.mark.filterwarnings("ignore:invalid value encountered in multiply:RuntimeWarning")
@pytest.mark.parametrize(
    ("kind", "solved"),
    [(TunaMH, log_rates()), (MetropolisHastings, rates(default_transform=None))],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_recommended(kind, solved):
    def make_step(vars=None, rng=None):
        step = recommend(vars=vars)
        assert type(step) is kind
        return step

    check_step(make_step, solved=solved)


def test_nuts_is_recommended():
    """PyMC's own step, which may be assigned automatically: what it returns is checked, and its draws."""
    solved = two_blocks()
    with solved.model as model:
        step = recommend(vars=[model["b"]])
        assert isinstance(step, pm.NUTS)
        steps = [step, pm.Slice([model["a"]])]
    check_points(step, solved.draw(np.random.default_rng(0)))
    check_posterior(solved, steps)


# Planted faults -------------------------------------------------------------------------------------


class HalfOfTheRows(TunaMH):
    """Draws half as many rows as their bounds ask for: remainders count half."""

    def _compile(self, plan, point):
        super()._compile(plan, point)
        engine = self.engine
        state = engine.rows.state
        engine.rows = engine.rows._replace(state=state._replace(totals=0.5 * state.totals))
        engine.restart()


class OfThePrior(VariableChain):
    """The shape of the prior in the place of that of the posterior."""

    def _conditional(self, alpha, *args):
        _, rate = super()._conditional(alpha, *args)
        return alpha, rate


class WithoutCounts(SCIR):
    """Prior and posterior are the same."""

    def _build(self, point):
        super()._build(point)
        self._chains = [OfThePrior(**vars(each)) for each in self._chains]


class OfTheNeighbour(MinibatchCategoricalGibbs):
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
