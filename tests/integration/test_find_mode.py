"""`find_mode`: a start near the posterior mode."""

import numpy as np
import pymc as pm
import pytensor
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from pymc_austerity import AusterityMH, FactorisationError, RandomWalk, SubsamplingWarning, find_mode

from .conftest import N

RNG = np.random.default_rng(301)


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Compile fast, with no C code."""
    with pytensor.config.change_flags(mode="FAST_COMPILE", cxx=""):
        yield


def exact_mode(model, **start):
    """Mode of the log density of the unconstrained variables, on all the data."""
    logp, dlogp = model.compile_logp(), model.compile_dlogp()
    point = {**model.initial_point(), **start}
    names = list(point)
    shapes = [np.shape(point[n]) for n in names]
    ends = np.cumsum([int(np.prod(s)) for s in shapes])

    def unravel(q):
        parts = np.split(q, ends[:-1])
        return {n: p.reshape(s) for n, p, s in zip(names, parts, shapes, strict=True)}

    found = minimize(
        lambda q: -float(logp(unravel(q))),
        np.concatenate([np.ravel(point[n]) for n in names]),
        jac=lambda q: -dlogp(unravel(q)),
        method="BFGS",
        options={"gtol": 1e-5 * N},
    )
    return unravel(found.x)


def logistic(n=N, d=4, coords=None):
    rng = np.random.default_rng(302)
    x = rng.normal(size=(n, d))
    beta = np.linspace(-1.0, 1.0, d)
    y = (rng.random(n) < expit(x @ beta)).astype(int)
    with pm.Model(coords=coords) as model:
        dims = {"dims": "feature"} if coords else {"shape": d}
        b = pm.Normal("beta", 0.0, 1.0, **dims)
        pm.Bernoulli("y", logit_p=sum(b[k] * x[:, k] for k in range(d)), observed=y)
    return model


class TestIsTheMode:
    @pytest.mark.parametrize(("n", "within"), [(1200, 2e-3), (N, 2e-3), (25_000, 1e-3)])
    def test_logistic(self, n, within):
        """Where there are fewer rows than in a first search, and through searches on 2,000 and all rows."""
        model = logistic(n)
        found, exact = find_mode(model), exact_mode(model)
        assert list(found) == ["beta"]
        np.testing.assert_allclose(found["beta"], exact["beta"], atol=within)

    def test_linear_with_sigma(self, line):
        """On its own scale: the mode of the log density with the Jacobian of log sigma."""
        found = find_mode(line)
        assert all(isinstance(value, np.ndarray) and value.shape == () for value in found.values())
        assert all(value.dtype == np.float64 for value in found.values())
        exact = exact_mode(line, b=np.array(1.9), a=np.array(0.9))
        assert set(found) == {"a", "b", "sigma"}
        np.testing.assert_allclose(found["a"], exact["a"], atol=2e-3)
        np.testing.assert_allclose(found["b"], exact["b"], atol=2e-3)
        np.testing.assert_allclose(found["sigma"], np.exp(exact["sigma_log__"]), rtol=2e-3)


@pytest.mark.usefixtures("interpreted")
class TestResult:
    def test_starts_there(self, line, draw):
        mode = find_mode(line)
        step = AusterityMH(model=line, proposal=RandomWalk(scale=1e-7))
        posterior = draw(line, step, tune=0, initvals=mode).posterior
        for name, value in mode.items():
            np.testing.assert_allclose(posterior[name], value, atol=1e-4)

    def test_dims(self, draw):
        model = logistic(coords={"feature": list("abcd")})
        mode = find_mode(model)
        assert mode["beta"].shape == (4,)
        idata = draw(model, AusterityMH(model=model), initvals=mode)
        assert idata.posterior["beta"].dims == ("chain", "draw", "feature")

    def test_the_model_of_the_context(self, line):
        with line:
            assert set(find_mode()) == {"a", "b", "sigma"}
        with pytest.raises(TypeError, match="No model on context stack"):
            find_mode()

    def test_constrained_variables(self, draw):
        """Values on their own scale, which are accepted as starts."""
        k = np.random.default_rng(303).choice(3, size=N, p=[0.2, 0.3, 0.5])
        with pm.Model() as model:
            p = pm.Dirichlet("p", np.ones(3))
            u = pm.Uniform("u", -1.0, 4.0)
            pm.Categorical("k", p, observed=k)
            pm.Normal("y", u, 1.0, observed=RNG.normal(2.0, 1.0, size=N))
        mode = find_mode(model)
        # The mode on the unconstrained scale, where each class has one more count.
        np.testing.assert_allclose(mode["p"], (np.bincount(k) + 1) / (N + 3), atol=2e-3)
        assert mode["p"].sum() == pytest.approx(1.0)
        assert mode["u"] == pytest.approx(2.0, abs=0.1)
        idata = draw(model, AusterityMH(model=model), initvals=mode)
        assert idata.posterior["p"].shape == (2, 20, 3)


class TestSomeVariables:
    def test_the_others_stay(self, line):
        found = find_mode(line, [line.rvs_to_values[line[n]] for n in ("a", "b")])
        start = line.initial_point()
        assert found["sigma"] == pytest.approx(np.exp(start["sigma_log__"]))
        assert found["b"] == pytest.approx(2.0, abs=0.1)

    def test_initial_point(self, line):
        point = {"a": np.array(0.5), "b": np.array(0.5), "sigma_log__": np.array(0.7)}
        found = find_mode(line, [line["b"]], initial_point=point)
        assert found["a"] == 0.5
        assert found["sigma"] == pytest.approx(np.exp(0.7))
        assert found["b"] == pytest.approx(2.0, abs=0.1)
        assert point["b"] == 0.5

    def test_discrete_variables_are_refused_by_name(self):
        with pm.Model() as model:
            k = pm.Poisson("count", 3.0)
            a = pm.Normal("a")
            pm.Normal("y", a + k, 1.0, observed=RNG.normal(size=N))
        with pytest.raises(ValueError, match="discrete: count"):
            find_mode(model, [a, k])
        found = find_mode(model)
        assert found["a"] == pytest.approx(-3.0, abs=0.2)
        assert found["count"] == 3

    def test_no_variables(self, line):
        with pytest.raises(ValueError, match="."):
            find_mode(line, [])


class TestSizes:
    def test_nothing_to_subsample(self):
        """A short model has a mode too, and so has a prior alone."""
        y = RNG.normal(size=50)
        with pm.Model() as model:
            mu = pm.Normal("mu", 0.0, 10.0)
            pm.Normal("y", mu, 1.0, observed=y)
        assert find_mode(model)["mu"] == pytest.approx(y.sum() / (50 + 0.01), abs=1e-3)
        with pm.Model() as model:
            pm.Normal("mu", 3.0, 1.0)
        assert find_mode(model)["mu"] == pytest.approx(3.0, abs=1e-3)

    def test_several_local_vectors(self):
        with pm.Model() as model:
            mu = pm.Normal("mu", 0.0, 10.0)
            y = RNG.normal(size=1500)
            z = RNG.normal(1.0, 1.0, size=1100)
            pm.Normal("y", mu, 1.0, observed=y)
            pm.Normal("z", mu, 1.0, observed=z)
        exact = (y.sum() + z.sum()) / (2600 + 0.01)
        assert find_mode(model)["mu"] == pytest.approx(exact, abs=1e-3)


class TestErrors:
    def test_a_start_that_is_not_finite(self):
        with pm.Model() as model:
            theta = pm.Uniform("theta", 1.0, 10.0, default_transform=None, initval=2.0)
            pm.Uniform("y", 0.0, theta, observed=RNG.uniform(0.0, 3.0, N))
        with pytest.raises(ValueError, match="not finite at the start"):
            find_mode(model)

    def test_coupled_rows(self):
        with pm.Model() as model:
            a = pm.Normal("a")
            x = RNG.normal(size=N)
            pm.Potential("square", -((a * x).sum() ** 2))
        with pytest.raises(FactorisationError, match="'square'"):
            find_mode(model)

    def test_too_few_iterations_warn(self):
        with pytest.warns(SubsamplingWarning, match="did not converge .*max_iterations=1") as caught:
            find_mode(logistic(), max_iterations=1)
        assert len(caught) == 1
        assert caught[0].filename == __file__

    @pytest.mark.parametrize("value", [0, -1, 1.5, True])
    def test_max_iterations(self, line, value):
        with pytest.raises(ValueError, match=f"max_iterations must be .*{value}"):
            find_mode(line, max_iterations=value)


class TestUntypicalModes:
    """Modes that are no place for a chain to start from."""

    def test_a_scale_that_vanishes(self):
        with pm.Model() as model:
            tau = pm.HalfNormal("tau", 5.0)
            theta = pm.Normal("theta", pm.Normal("mu", 0.0, 5.0), tau, shape=8)
            pm.Normal("y", theta, 10.0, observed=RNG.normal(0.0, 10.0, size=8))
        with pytest.warns(SubsamplingWarning, match="rises for ever as tau goes to zero") as caught:
            find_mode(model)
        assert len(caught) == 1
        find_mode(model, [model["mu"], model["theta"]])

    def test_a_small_scale_is_none_that_vanishes(self):
        y = 1e-7 * RNG.normal(size=N)
        with pm.Model() as model:
            pm.Normal("y", 0.0, pm.HalfNormal("sigma", 1.0), observed=y)
        assert find_mode(model)["sigma"] == pytest.approx(np.sqrt(np.mean(y**2)), rel=1e-2)

    @pytest.mark.parametrize("weights", ["equal", "dirichlet"])
    def test_a_symmetric_mixture(self, weights):
        y = np.r_[RNG.normal(-2.0, 1.0, size=900), RNG.normal(2.0, 1.0, size=600)]
        with pm.Model() as model:
            w = pm.Dirichlet("w", np.ones(2)) if weights == "dirichlet" else np.array([0.5, 0.5])
            mu = pm.Normal("mu", 0.0, 5.0, shape=2, initval=[-1.0, 1.0])
            pm.NormalMixture("y", w, mu, 1.0, observed=y)
        both = "w and mu" if weights == "dirichlet" else "mu"
        with pytest.warns(SubsamplingWarning, match=f"exchanging components of {both} leaves") as caught:
            found = find_mode(model)
        assert len(caught) == 1
        np.testing.assert_allclose(np.sort(found["mu"]), [-2.0, 2.0], atol=0.3)

    def test_ordered_components_have_one_mode(self):
        y = np.r_[RNG.normal(-2.0, 1.0, size=900), RNG.normal(2.0, 1.0, size=600)]
        ordered = pm.distributions.transforms.ordered
        with pm.Model() as model:
            mu = pm.Normal("mu", 0.0, 5.0, shape=2, initval=[-1.0, 1.0], transform=ordered)
            pm.NormalMixture("y", np.array([0.5, 0.5]), mu, 1.0, observed=y)
        assert np.all(np.diff(find_mode(model)["mu"]) > 3.0)

    def test_effects_that_vanish_together_with_their_scale(self):
        y = np.random.default_rng(9).normal(size=2000)
        with pm.Model() as model:
            scale = pm.HalfNormal("scale", 1.0)
            pm.Normal("effect", 0.0, scale, shape=8)
            pm.Normal("y", pm.Normal("level"), 1.0, observed=y)
        with pytest.warns(SubsamplingWarning, match="rises for ever as scale goes to zero"):
            find_mode(model)

    def test_components_near_each_other_on_one_hill_are_one_mode(self):
        """Groups with few rows: their exchange changes a sum of many terms by less than rounding might."""
        n = 400_000
        group = np.full(n, 2)
        group[:40] = np.repeat([0, 1], 20)
        y = np.random.default_rng(10).normal(size=n)
        for k, mean in enumerate((0.5, 0.504)):
            y[group == k] += mean - y[group == k].mean()
        with pm.Model() as model:
            u = pm.Normal("u", 0.0, 1.0, shape=3)
            pm.Normal("y", u[group], 1.0, observed=y)
        find_mode(model)

    def test_a_flat_hill_on_which_the_search_ends_early_is_one_mode(self):
        X = np.random.default_rng(11).normal(size=(2000, 60))
        with pm.Model() as model:
            a = pm.Normal("a", 0.0, 1.0, shape=60)
            pm.Normal("c", 0.0, 10.0, shape=3, initval=[3.0, -2.0, 1.0])
            pm.Normal("y", X @ a, 1.0, observed=RNG.normal(size=2000))
        find_mode(model)


class TestKinks:
    """Where the curvature says nothing of the density, the gradient has to do."""

    @pytest.mark.parametrize("kappa", [1.0, 2.0])
    def test_absolute_deviations(self, kappa):
        rng = np.random.default_rng(12)
        x = rng.normal(size=(3000, 3))
        y = rng.laplace(size=3000) + x @ [1.0, 2.0, 3.0]
        with pm.Model() as model:
            b, scale = pm.Normal("b", 0.0, 1.0, shape=3), pm.HalfNormal("scale", 1.0)
            pm.AsymmetricLaplace("y", kappa=kappa, mu=(x * b).sum(axis=1), b=1.0 / scale, observed=y)
        found = find_mode(model)
        logp = model.compile_logp()
        reached = logp({"b": found["b"], "scale_log__": np.log(found["scale"])})
        best = exact_mode(model, b=np.array([1.0, 2.0, 3.0]))
        assert reached > logp(best) - 0.05
