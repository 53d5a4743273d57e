"""`MinibatchCategoricalGibbs`: PyMC's contract, draws against enumeration, counts, bad input."""

import itertools

import cloudpickle
import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.step_methods.compound import BlockedStep, CompoundStep, StepMethodState
from pymc.util import get_random_generator
from scipy import stats
from scipy.special import gammaln

from pymc_austerity import FactorisationError, restricted_nuts
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.conjugacy.allocations import Allocations
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.step_methods.categorical_gibbs import MinibatchCategoricalGibbs
from tests.models import as_model
from tests.sampling import sampled
from tests.statistical.errors import LIMIT, error_of_mean

from .conftest import fresh

pytestmark = INTERPRETED = pytest.mark.usefixtures("interpreted")

N, K = 60, 3
CENTRES = np.array([-2.0, 0.0, 2.5])
TRUTH = np.random.default_rng(1).choice(K, p=[0.5, 0.2, 0.3], size=N)
Y = CENTRES[TRUTH] + np.random.default_rng(2).normal(size=N)


@as_model
def mixture_model(y=Y):
    w = pm.Dirichlet("w", np.ones(K))
    mu = pm.Normal("mu", 0, 3, shape=K, initval=CENTRES)
    z = pm.Categorical("z", p=w, shape=len(y))
    pm.Normal("y", mu[z], 1, observed=y)


@pytest.fixture(scope="module")
def mixture():
    return mixture_model()


@pytest.fixture(scope="module")
def built(mixture):
    """Not to be moved."""
    with interpreted():
        return MinibatchCategoricalGibbs([mixture["z"]], batch_size=20, model=mixture, rng=1)


@pytest.fixture
def step(built):
    return fresh(built)


@pytest.fixture
def point(mixture):
    return {**mixture.initial_point(), "z": TRUTH.astype(np.int64)}


class ExactWeights(BlockedStep):
    """w given z is Dirichlet(alpha + counts); the counts are those that the step for z keeps."""

    name = "exact_weights"
    _state_class = StepMethodState

    def __init__(self, vars=None, *, allocations=None, alpha=1.0, model=None, blocked=True, rng=None):
        self.vars = value_variables(model_of(model), vars)
        self.allocations, self.alpha = allocations, alpha
        self.rng = get_random_generator(rng)

    def step(self, point):
        counts = self.allocations.counts(point)
        gammas = self.rng.gamma(self.alpha + counts)
        log_w = np.log(gammas / gammas.sum())
        return {**point, self.vars[0].name: log_w[:-1] - log_w.mean()}, [{}]


class TestLaw:
    """The joint law of allocations, weights summed out, against the enumeration of all K^N states."""

    N_ROWS, N_CATEGORIES, ALPHA = 4, 2, np.array([0.7, 1.5])
    ROWS = np.array([-0.4, 0.3, 0.5, 1.6])
    LEVELS = np.array([-0.5, 1.0])

    def model(self):
        with pm.Model() as model:
            w = pm.Dirichlet("w", self.ALPHA)
            z = pm.Categorical("z", p=w, shape=self.N_ROWS)
            pm.Normal("y", pt.as_tensor(self.LEVELS)[z], 1, observed=self.ROWS)
        return model

    def expected(self):
        states = np.array(list(itertools.product(range(self.N_CATEGORIES), repeat=self.N_ROWS)))
        counts = np.stack([(states == k).sum(axis=1) for k in range(self.N_CATEGORIES)], axis=1)
        log_law = gammaln(self.ALPHA + counts).sum(axis=1)
        log_law += stats.norm.logpdf(self.ROWS, self.LEVELS[states]).sum(axis=1)
        return np.exp(log_law) / np.exp(log_law).sum()

    def distances(self, batch_size, draws=8000):
        """Of the frequency of each state from its probability, in standard errors."""
        model = self.model()
        with model:
            allocate = MinibatchCategoricalGibbs([model["z"]], batch_size=batch_size)
            weights = ExactWeights([model["w"]], allocations=allocate, alpha=self.ALPHA)
            idata = sampled(draws, [allocate, weights], tune=20, chains=2, random_seed=5)
        z = idata["posterior"]["z"].values
        state = z @ (self.N_CATEGORIES ** np.arange(self.N_ROWS)[::-1])
        seen = [state == s for s in range(self.N_CATEGORIES**self.N_ROWS)]
        return np.array(
            [(s.mean() - p) / error_of_mean(s) for s, p in zip(seen, self.expected(), strict=True)]
        )

    @pytest.mark.parametrize("batch_size", [2, None])
    @pytest.mark.slow("chains of thousands of sweeps")
    def test_against_enumeration(self, batch_size):
        assert np.abs(self.distances(batch_size)).max() < LIMIT

    @pytest.mark.slow("chains of thousands of sweeps")
    def test_a_missing_prior_is_noticed(self, monkeypatch):
        """Planted fault; the check at build, which would notice it too, is switched off."""
        complete = Allocations._as_function_of_category
        monkeypatch.setattr(
            Allocations,
            "_as_function_of_category",
            lambda self, term, z: complete(self, term, z) * float(term.name != "z"),
        )
        monkeypatch.setattr(Allocations, "_compare_with_model", lambda *args: None)
        assert np.abs(self.distances(None)).max() > 2 * LIMIT


@INTERPRETED
def test_statistics_beside_other_steps(mixture):
    with mixture:
        allocate = MinibatchCategoricalGibbs(["z"], batch_size=0.5, steps_per_draw=2)
        weights = ExactWeights([mixture["w"]], allocations=allocate)
        steps = [allocate, weights, restricted_nuts(["mu"])]
        idata = sampled(15, steps, tune=10, chains=2, random_seed=3)
    stats = idata["sample_stats"]
    assert (stats["n_used"] == 30).all()
    assert (stats["fraction_used"] == 0.5).all()
    assert ((stats["changed"] >= 0) & (stats["changed"] < 0.9)).all()
    assert stats["changed"].values.std() > 0
    z = idata["posterior"]["z"].values
    assert not np.array_equal(z[0], z[1])


@INTERPRETED
class TestCounts:
    def test_no_row_is_counted_while_only_this_step_moves_z(self, step, point, monkeypatch):
        point, _ = step.step(point)
        monkeypatch.setattr(np, "bincount", lambda *args, **kwargs: pytest.fail("counted anew"))
        for _ in range(5):
            point, _ = step.step(point)
            point = {name: value.copy() for name, value in point.items()}  # as in parallel chains

    def test_another_step_may_move_z(self, step, point):
        for k in range(20):
            point, _ = step.step(point)
            # What was carried along, not counted anew.
            z, counts = step._counted
            assert z is point["z"]
            np.testing.assert_array_equal(counts, np.bincount(z, minlength=K))
            z = point["z"].copy()
            z[k] = (z[k] + 1) % K
            point = {**point, "z": z}
            np.testing.assert_array_equal(step.counts(point), np.bincount(z, minlength=K))

    def test_of_another_state(self, step, point):
        """A sampling state that is set back does not bring counts of another z with it."""
        state = step.sampling_state
        new, _ = step.step(point)
        step.sampling_state = state
        np.testing.assert_array_equal(step.counts(point), np.bincount(point["z"], minlength=K))
        again, _ = step.step(point)
        np.testing.assert_array_equal(new["z"], again["z"])

    def test_of_an_unpickled_step(self, step, point):
        """Counts belong to whoever asks."""
        point, _ = step.step(point)
        step.counts(point)[:] = 0
        assert step.counts(point).sum() == N
        copy = cloudpickle.loads(cloudpickle.dumps(step))
        np.testing.assert_array_equal(copy.counts(point), np.bincount(point["z"], minlength=K))


@INTERPRETED
class TestStep:
    def test_only_z_moves(self, step, point):
        new, _ = step.step(point)
        assert new["z"] is not point["z"]
        assert new["mu"] is point["mu"]
        assert 0 < (new["z"] != point["z"]).sum() <= 20

    def test_other_variables_are_read_at_each_step(self, step, point):
        """With one component far away and the others right, none of the rows stays there."""
        for k in range(K):
            mu = np.zeros(K)
            mu[k] = 1e3
            for _ in range(30):
                point, _ = step.step({**point, "mu": mu})
            assert step.counts(point)[k] == 0

    def test_updates_for_each_draw(self, mixture, point):
        step = MinibatchCategoricalGibbs(
            [mixture["z"]], batch_size=1, steps_per_draw=40, model=mixture, rng=1
        )
        new, (stat,) = step.step({**point, "mu": np.array([1e3, 1e3, 0.0])})
        assert stat["n_used"] == 1
        assert 20 < (new["z"] == 2).sum() < N

    def test_several_vectors(self):
        with pm.Model():
            u = pm.Categorical("u", p=np.ones(2) / 2, shape=N)
            z = pm.Categorical("z", p=np.ones(K) / K, shape=N)
            pm.Normal("y", pm.Normal("mu", 0, 1, shape=(2, K))[u, z], 1, observed=Y)
            step = MinibatchCategoricalGibbs([u, z], blocked=False)
            assert isinstance(step, CompoundStep)
            idata = sampled(5, step, tune=5, chains=1, random_seed=1)
        assert set(np.unique(idata["posterior"]["u"])) == {0, 1}
        assert idata["sample_stats"]["n_used"].shape == (1, 5, 2)


class TestManyRows:
    """A hundred thousand rows: only those of the batch are evaluated, once for each category."""

    @pytest.fixture(scope="class")
    @staticmethod
    def big():
        n = 100_000
        y = np.random.default_rng(3).normal(size=n) + CENTRES[np.arange(n) % K]
        model = mixture_model(y)
        return model, MinibatchCategoricalGibbs([model["z"]], batch_size=100, model=model, rng=2)

    def test_no_long_vector_is_computed(self, big):
        """Nothing in the compiled graph has a long axis, except what rows are looked up in."""
        fgraph = big[1]._allocations._function("log_terms").maker.fgraph
        long = {
            str(node.op)
            for node in fgraph.toposort()
            for x in node.outputs
            if max((k for k in x.type.shape if k is not None), default=0) > 1000
        }
        assert not long
        assert not big[1]._allocations.given


@INTERPRETED
class TestBadInput:
    def test_coupled_allocations(self):
        with pm.Model() as model:
            z = pm.Categorical("z", p=np.ones(K) / K, shape=N)
            pm.Potential("total", -((z.sum() - 10.0) ** 2))
        with pytest.raises(FactorisationError, match="'z' cannot be drawn row by row.*'total'"):
            MinibatchCategoricalGibbs([z], model=model)

    @pytest.mark.parametrize("wrong", [-1, K])
    def test_values_that_are_no_categories(self, step, point, wrong):
        z = point["z"].copy()
        z[7] = wrong
        with pytest.raises(ValueError, match=f"z in row 7 is {wrong}, and its categories are 0, ..., 2"):
            step.step({**point, "z": z})

    def test_another_length(self, step, point):
        with pytest.raises(ValueError, match=r"z must have shape \(60,\), got \(59,\)"):
            step.step({**point, "z": point["z"][:-1]})

    def test_a_row_that_is_impossible(self, step, point):
        with pytest.raises(ValueError, match=r"(?s)z: No category of row \d+ has .*terms z, y"):
            step.step({**point, "mu": np.full(K, np.nan)})
        # and the next step finds everything in order
        new, _ = step.step(point)
        np.testing.assert_array_equal(step.counts(new), np.bincount(new["z"], minlength=K))
