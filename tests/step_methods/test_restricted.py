"""NUTS and Slice on the terms with their variables: the same draws, at the cost of these terms."""

import warnings
from copy import deepcopy
from functools import cache

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pymc.exceptions import SamplingError
from pymc.step_methods.compound import CompoundStep
from pymc.step_methods.hmc.quadpotential import QuadPotentialDiag
from pytensor.compile.mode import Mode
from pytensor.graph.basic import Constant

import pymc_austerity.step_methods.restricted as view
from pymc_austerity import AusterityMH, RandomWalk, restricted_nuts, restricted_slice
from tests.models import as_model

from .conftest import N, line_data

INTERPRETED = pytest.mark.usefixtures("interpreted")
# Nothing is compiled.
PYTHON = Mode(linker="py", optimizer="fast_compile")
GROUP = np.arange(N) % 20
Y = np.random.default_rng(7).normal(size=20)[GROUP] + line_data(N)[1]


def groups():
    """Two hyperparameters above effects, an unrelated variable, and a simplex."""
    with pm.Model(coords={"group": range(20)}) as model:
        mu = pm.Normal("mu", 0, 5)
        tau = pm.HalfNormal("tau", 2)
        alone = pm.Beta("alone", 2, 3)
        w = pm.Dirichlet("w", np.ones(3))
        pm.Potential("pull", -((w[0] - alone) ** 2))
        effect = pm.Normal("effect", mu, tau, dims="group")
        pm.Deterministic("total", effect.sum())
        pm.Normal("y", effect[GROUP], 1.5, observed=pm.Data("outcome", Y))
    return model


@as_model
def correlated():
    sd = pm.Exponential.dist(1, shape=3)
    start = np.array([1.0, 0.1, 1.0, 0.2, -0.1, 1.0])  # saves PyMC a loop to find one
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2, sd_dist=sd, initval=start)
    z = pm.MvNormal("z", 0, chol=chol, shape=(4, 3))
    u = pm.Uniform("u", 0, 2)
    pm.Poisson("y", pm.math.exp(u * z.sum()), observed=[1, 0, 2])


@as_model
def custom():
    """A custom density, missing values, a discrete variable, and one without a prior."""
    rng = np.random.default_rng(1)
    free = pm.Flat("free")
    nu = pm.Gamma("nu", 2, 1)
    k = pm.Poisson("k", nu)
    pm.CustomDist(
        "c", free, nu, logp=lambda x, m, s: -(((x - m) / s) ** 2) - pt.log(s), observed=rng.random(9)
    )
    cells = np.ma.masked_greater(rng.normal(size=(6, 2)), 0.3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
        pm.Normal("cells", k + free, nu, observed=cells)


@as_model
def summed():
    """One term that is a sum; only some of its parts contain tau."""
    tau = pm.Uniform("tau", 0, 5)
    b = pm.Flat("b")
    pm.Potential("posterior", -0.5 * (b - Y).clip(-9, 9).sum() + (-0.5 * (b / tau) ** 2 - pt.log(tau)))


MODELS = {"groups": groups, "correlated": correlated, "custom": custom, "summed": summed}
CASES = [
    ("groups", ["tau"], ["mu", "effect"]),
    ("groups", ["tau", "mu"], ["effect"]),
    ("groups", ["mu", "alone", "tau"], ["w_simplex__", "effect"]),
    ("groups", ["w"], ["alone_logodds__"]),
    ("groups", ["effect"], ["mu", "tau_log__"]),
    ("correlated", ["chol"], ["z"]),
    ("correlated", ["u"], ["z"]),
    ("custom", ["nu"], ["free", "k", "cells_unobserved"]),
    ("custom", ["cells_unobserved"], ["free", "nu_log__", "k"]),
    ("summed", ["tau"], ["b"]),
]


@cache
def models(name):
    return MODELS[name]()


def near(model, seed=3):
    """A point beside the initial one."""
    rng = np.random.default_rng(seed)
    return {
        k: np.asarray(v + 0.3 * rng.normal(size=v.shape) if v.dtype.kind == "f" else v + 1)
        for k, v in model.initial_point().items()
    }


def path(step, point, n=25, seed=5):
    """Draws of a step while other variables move as well."""
    step.setup_chain(np.random.default_rng(seed), n, n)
    own = [v.name for v in step.vars]
    start, rng, draws = point, np.random.default_rng(seed), []
    for _ in range(n):
        moved = {
            k: np.asarray(v + 0.1 * rng.normal() if v.dtype.kind == "f" else v) for k, v in start.items()
        }
        point, _ = step.step({**moved, **{k: point[k] for k in own}})
        draws.append(np.concatenate([np.ravel(point[k]) for k in own]))
    return np.array(draws)


def evaluate(step, point):
    """Log density and, if the step has one, the gradient."""
    for name, shared in step.shared.items():
        shared.set_value(point[name])
    q = np.concatenate([point[v.name].ravel() for v in step.vars])
    if isinstance(step, pm.Slice):
        return step.logp(q)
    return np.hstack(step._logp_dlogp_func([q], extra_vars=point))


def same_draws(one, two, point):
    return np.allclose(path(one, point), path(two, point), rtol=1e-6, atol=1e-6)


@INTERPRETED
@pytest.mark.parametrize(("name", "vars", "others"), CASES)
@pytest.mark.covering(1)
def test_density_and_gradient(name, vars, others):
    """Equal to those of the model up to a constant; nothing else is an input."""
    model = models(name)
    rvs = [model[v] for v in vars]
    step = restricted_nuts(rvs, model=model, compile_kwargs={"mode": PYTHON})
    assert sorted(step.shared) == sorted([o for o in others if o not in vars])
    values = [model.rvs_to_values[rv] for rv in rvs]
    logp = model.compile_logp(mode=PYTHON)
    dlogp = model.compile_dlogp(rvs, mode=PYTHON)
    base, found, expected = near(model), [], []
    for seed in (1, 2):
        point = {**base, **{v.name: near(model, seed)[v.name] for v in values}}
        density, *gradient = evaluate(step, point)
        np.testing.assert_allclose(gradient, dlogp(point), rtol=1e-7, atol=1e-9)
        found.append(density)
        expected.append(logp(point))
    assert np.isfinite(expected).all()
    np.testing.assert_allclose(np.diff(found), np.diff(expected), rtol=1e-7, atol=1e-7)


@INTERPRETED
@pytest.mark.parametrize(
    ("restricted", "full"), [(restricted_nuts, pm.NUTS), (restricted_slice, pm.Slice)], ids=["nuts", "slice"]
)
def test_same_draws(restricted, full):
    """Of other models, density and gradient are compared."""
    model = models("groups")
    rvs = [model["mu"], model["tau"]]
    options = {"model": model, "blocked": True, "rng": 1}
    one, two = restricted(rvs, **options), full(rvs, **options)
    assert isinstance(one, full)
    assert one.name == two.name
    assert same_draws(one, two, near(model))


@INTERPRETED
def test_a_missing_term_is_noticed(monkeypatch):
    """Planted fault: without its prior, the draws of tau are others."""
    model = models("groups")
    options = {"model": model, "rng": 1}
    full = pm.Slice([model["tau"]], **options)
    terms = view.raw_terms(model, [model.rvs_to_values[model["tau"]]])
    assert list(terms) == ["tau", "effect"]
    for left_out in terms:
        kept = {k: v for k, v in terms.items() if k != left_out}
        with monkeypatch.context() as patch:
            patch.setattr(view, "raw_terms", lambda model, vars, kept=kept: kept)
            wrong = restricted_slice([model["tau"]], **options)
        assert not same_draws(wrong, full, near(model))


@INTERPRETED
class TestCost:
    @pytest.mark.parametrize("make", [restricted_nuts, restricted_slice])
    def test_data_are_not_in_the_function(self, make):
        model = models("groups")
        step = make([model["tau"]], model=model)
        function = step.logp if make is restricted_slice else step._logp_dlogp_func._pytensor_function
        sizes = [np.size(c.value) for c in function.input_storage if c.value is not None]
        sizes += [v.data.size for v in function.maker.fgraph.variables if isinstance(v, Constant)]
        assert max(sizes) == 20

    @pytest.mark.parametrize("make", [restricted_nuts, restricted_slice])
    def test_nothing_else_in_the_point_is_copied(self, make):
        model = models("groups")
        step = make([model["alone"]], model=model)
        point = near(model)
        new, _ = step.step(point)
        assert list(new) == list(point)
        assert all(new[k] is point[k] for k in point if k != "alone_logodds__")

    def test_only_parts_of_a_sum(self):
        model = models("summed")
        step = restricted_nuts([model["tau"]], model=model)
        nodes = step._logp_dlogp_func._pytensor_function.maker.fgraph.variables
        assert all(v.type.ndim < 2 and v.type.shape != (N,) for v in nodes)
        assert max([np.size(v.data) for v in nodes if isinstance(v, Constant)], default=0) <= 1


@INTERPRETED
class TestBlocks:
    def test_no_other_variable(self):
        """Every variable is drawn as itself, in whatever order they are given."""
        with pm.Model() as model:
            a, b = pm.Normal("a", 10, 1), pm.Normal("b", -5, 1)
            pm.Normal("unrelated", shape=1000)
        for step in (
            restricted_nuts([b, a], model=model),
            restricted_slice([b, a], model=model, blocked=True),
        ):
            b_draws, a_draws = path(step, model.initial_point(), 100).T
            assert abs(a_draws - 10).max() < 6
            assert abs(b_draws + 5).max() < 6

    @pytest.mark.parametrize(
        ("make", "full", "blocked"), [(restricted_slice, pm.Slice, None), (restricted_nuts, pm.NUTS, False)]
    )
    def test_unblocked(self, make, full, blocked):
        """Each sees its own terms only."""
        model = models("groups")
        rvs = [model["tau"], model["alone"]]
        one, two = (f(rvs, model=model, blocked=blocked, rng=3) for f in (make, full))
        assert isinstance(one, CompoundStep)
        assert [sorted(m.shared) for m in one.methods] == [["effect", "mu"], ["w_simplex__"]]
        for left, right in zip(one.methods, two.methods, strict=True):
            assert same_draws(left, right, near(model))

    def test_model_of_the_context_and_value_variables(self):
        model = models("groups")
        with model:
            assert restricted_nuts(model["tau"])._model is model
            assert restricted_slice(model.rvs_to_values[model["tau"]]).var_names == ("tau_log__",)

    def test_variables_without_a_density(self):
        """One that is drawn, and one of which only the shape matters."""
        with pm.Model() as model:
            a, flat, ones = pm.Normal("a"), pm.Flat("flat"), pm.Flat("ones", shape=3)
            pm.Potential("p", a * pt.ones_like(ones).sum())
        for make in (restricted_nuts, restricted_slice):
            assert list(make([a], model=model).shared) in ([], ["ones"])
            assert np.isfinite(path(make([flat], model=model), model.initial_point(), 3)).all()

    def test_frozen_model(self):
        from pymc.model.transform.optimization import freeze_model

        model = models("groups")
        frozen = freeze_model(model)
        one = restricted_nuts([frozen["tau"]], model=frozen, rng=1)
        assert same_draws(one, restricted_nuts([model["tau"]], model=model, rng=1), near(model))
        assert len(frozen.value_vars) == 5


@INTERPRETED
@pytest.mark.parametrize(
    "options",
    [
        {"target_accept": 0.95, "step_scale": 0.1, "max_treedepth": 3, "early_max_treedepth": 2}
        | {"scaling": np.array([0.2, 3.0])},
        {"scaling": "point"},
        {"potential": QuadPotentialDiag(np.array([2.0, 0.5])), "initial_point": "point"}
        | {"adapt_step_size": False},
    ],
    ids=lambda options: next(iter(options)),
)
@pytest.mark.slow("rewrites the gradient of each model")
def test_options_of_nuts(options):
    model = models("groups")
    point = near(model)
    options = {k: point if isinstance(v, str) else v for k, v in options.items()}
    rvs = [model["tau"], model["mu"]]
    one, two = (f(rvs, model=model, rng=2, **deepcopy(options)) for f in (restricted_nuts, pm.NUTS))
    assert same_draws(one, two, point)


@INTERPRETED
def test_options_of_slice():
    model = models("groups")
    options = {"model": model, "rng": 2, "w": 0.3, "max_steps": 5, "tune": False}
    one, two = restricted_slice([model["tau"]], **options), pm.Slice([model["tau"]], **options)
    assert same_draws(one, two, near(model))


class TestSample:
    @pytest.mark.slow("compiles NUTS, and samples in two processes")
    @pytest.mark.filterwarnings("ignore:Tuning ended")
    def test_beside_a_subsampled_step(self, draw):
        """One seed gives the same draws, bit by bit, in sequence and in parallel."""
        model = models("groups")
        start = {"effect": np.random.default_rng(1).normal(size=20)}
        results = []
        for parallel in ({}, {"cores": 2, "mp_ctx": "forkserver"}):
            steps = [
                AusterityMH([model["effect"]], proposal=RandomWalk(0.02), model=model),
                restricted_slice([model["alone"], model["w"]], model=model),
                restricted_nuts([model["tau"], model["mu"]], model=model),
            ]
            results.append(draw(model, steps, initvals=start, **parallel))
        assert results[0]["posterior"].to_dataset().equals(results[1]["posterior"].to_dataset())
        stats = results[0]["sample_stats"]
        assert np.isnan(stats["lp"]).all()
        assert np.isfinite(stats["energy"]).all()

    @INTERPRETED
    @pytest.mark.parametrize("make", [restricted_nuts, restricted_slice])
    def test_data_are_replaced(self, draw, make):
        y = line_data(N)[1]
        with pm.Model() as model:
            outcome = pm.Data("outcome", y)
            b = pm.Normal("b", 0, 1)
            sigma = pm.HalfNormal("sigma", 10)
            pm.Normal("y", b, sigma, observed=outcome)
        step, means = make([sigma], model=model), []
        for values in (y, 3 * y[:500], y):
            pm.set_data({"outcome": values}, model=model)
            result = draw(model, [step, pm.Metropolis([b], model=model)], chains=1, draws=30)
            means.append(result["posterior"]["sigma"].values[0, -20:].mean())
            fresh, point = make([sigma], model=model), near(model)
            np.testing.assert_array_equal(evaluate(step, point), evaluate(fresh, point))
        assert means[1] > 2 * means[0]
        assert means[2] == pytest.approx(means[0], rel=0.2)


@INTERPRETED
class TestErrors:
    @pytest.mark.parametrize("make", [restricted_nuts, restricted_slice])
    def test_variables(self, make):
        model = models("groups")
        for wrong, message in [
            ("taus", r"none of that name.*Did you mean .tau."),
            ([], "vars is empty"),
            ([model["y"]], "not a free variable"),
            ([model["total"]], "not a free variable"),
            ([models("custom")["nu"]], "not a free variable"),
            ([model["tau"], model["tau"]], "given twice"),
            ([3], "vars must be a variable"),
        ]:
            with pytest.raises(ValueError, match=message):
                make(wrong, model=model)
        with pytest.raises(ValueError, match="discrete: k"):
            make([models("custom")["k"]], model=models("custom"))
        with pytest.raises(TypeError, match="No model on context stack"):
            make([model["tau"]])
        with pytest.raises(TypeError, match="model must be"):
            make([model["tau"]], model=3)

    def test_arguments(self):
        model = models("groups")
        with pytest.raises(TypeError, match="leave it out"):
            restricted_nuts([model["tau"]], model=model, logp_dlogp_func=lambda q: 0.0)
        with pytest.raises(TypeError, match="target_accept"):
            restricted_slice([model["tau"]], model=model, target_accept=0.9)

    def test_a_bad_start_is_pymcs_error(self):
        model = models("groups")
        step = restricted_nuts([model["tau"]], model=model)
        with pytest.raises(SamplingError, match="Bad initial energy"):
            step.step({**near(model), "mu": np.array(np.nan)})

    def test_checks_are_those_of_the_model(self):
        """Also where the step is made outside of its context."""
        for check_bounds in (True, False):
            with pm.Model(check_bounds=check_bounds) as model:
                s = pm.Normal("s")
                pm.Potential("p", pm.logp(pm.Bernoulli.dist(s), 1))
            step = restricted_slice([s], model=model)
            assert np.isfinite(step.logp(np.array([1.5]))) is np.bool_(not check_bounds)
