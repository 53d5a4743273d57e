"""All log ratios of a few moves: right ones, of the step's own moves, and the step stays as it was."""

from copy import deepcopy

import numpy as np
import pymc as pm
import pytest
import xarray as xr
from scipy.special import expit

import pymc_austerity as pma
from pymc_austerity.acceptance import Exact
from pymc_austerity.diagnostics import normality
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.report import probe
from pymc_austerity.report.probe import SingleMoves, spread, states_of_result
from tests.sampling import sampled

pytestmark = [
    pytest.mark.filterwarnings("ignore:Tuning ended while the chain was still drifting"),
    pytest.mark.usefixtures("interpreted"),
]
N = 2000
TUNE, DRAWS = 20, 20
FEW = {"n_pairs": 4, "tune": TUNE, "draws": DRAWS, "n_batches": 50, "random_seed": 1}


@pytest.fixture(scope="module")
def normal():
    """y ~ N(a + b x, sigma)."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=N)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 10)
        b = pm.Normal("b", 0, 10)
        sigma = pm.HalfNormal("sigma", 10)
        pm.Normal("y", a + b * x, sigma, observed=x + rng.normal(size=N))
    return model


STEPS = {
    "austerity": lambda m: pma.AusterityMH(model=m),
    "random walk": lambda m: pma.AusterityMH(model=m, proposal=pma.RandomWalk(0.02), steps_per_draw=3),
    "user's": lambda m: pma.MetropolisHastings(
        model=m, proposal=lambda q, rng: (q + 0.02 * rng.normal(size=3), 0.1)
    ),
    "hot": lambda m: pma.MetropolisHastings(model=m, temperature=4.0),
    "barker": lambda m: pma.MinibatchBarker(model=m),
    "taylor": lambda m: pma.AusterityMH(model=m, control_variate=pma.Taylor(), proposal=pma.Laplace(mix=0.0)),
    "first order": lambda m: pma.AusterityMH(
        model=m, control_variate=pma.Taylor(order=1, exact_rows=0), proposal=pma.Laplace(mix=0.0)
    ),
    "surrogate": lambda m: pma.AusterityMH(model=m, control_variate=pma.Taylor(), proposal=pma.Surrogate()),
    "laplace": lambda m: pma.AusterityMH(model=m, proposal=pma.Laplace(kind="pcn", rho=0.9, mix=0.0)),
}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.covering(1)
def test_log_ratios_add_up_to_the_acceptance_ratio_of_the_model(normal, name):
    """Whatever is subtracted and always read, N mu is the log acceptance ratio that PyMC's density gives."""
    step = STEPS[name](normal)
    before = deepcopy(step.sampling_state), step.rng.bit_generator.state
    tree = probe(normal, step, **FEW)
    group = tree["log_ratios"].to_dataset()
    assert step.rng.bit_generator.state == before[1]
    np.testing.assert_equal(vars(step.sampling_state)["proposal_state"], vars(before[0])["proposal_state"])
    # The same moves again: one after the other.
    copy = deepcopy(step)
    for_chain, for_moves, _ = np.random.default_rng(1).spawn(3)
    copy.setup_chain(for_chain, tune=TUNE, draws=DRAWS)
    point, states = normal.initial_point(), []
    for k in range(TUNE + DRAWS):
        copy.tune = k < TUNE
        point, _ = copy.step(point)
        states.append({n: np.array(v) for n, v in point.items()})
    moves = SingleMoves(copy, point)
    likelihood, prior = (normal.compile_logp(vars) for vars in (normal.observed_RVs, normal.free_RVs))
    for k, state in enumerate(states[TUNE:][i] for i in spread(4, DRAWS)):
        q_new, _, log_ratios = moves.from_state(state, for_moves)
        q, new = np.array(list(state.values())), dict(zip(state, q_new, strict=True))
        expected = (
            (likelihood(new) - likelihood(state)) / copy.options.temperature + prior(new) - prior(state)
        )
        expected += log_hastings(name, copy, moves, q_new, q)
        assert group["mu"][k].item() * group.attrs["n_local"] == pytest.approx(expected, abs=1e-6)
        assert group["sd"][k].item() == pytest.approx(np.std(log_ratios))


def log_hastings(name, step, moves, q_new, q):
    """Of a user's proposal, of normal ones around the mode, and of a surrogate."""
    if name == "user's":
        return 0.1
    if name == "surrogate":
        return -moves._target.global_log_ratio(q_new, q, moves._compiled.args({}))
    if name not in ("laplace", "taylor", "first order"):
        return 0.0
    proxy = step.recipe.mode_fit.proxy
    after, before = ((x - proxy.mode) @ proxy.precision @ (x - proxy.mode) / 2 for x in (q_new, q))
    return after - before


def test_what_is_noted_of_the_step(normal):
    group = probe(normal, pma.AusterityMH(model=normal, control_variate=pma.Taylor()), **FEW)["log_ratios"]
    assert group.attrs == {
        "n_local": N - 100,
        "n_exact": 100,
        "batch_size": 50,
        "epsilon": 0.01,
        "boundary": 0.5,
        "rule": "TTest",
        "control_variate": "Taylor",
        "step": "AusterityMH(a, b, sigma)",
    }
    assert dict(group.sizes) == {"pair": 4, "k": 3, "rank": 101, "batch": 50}


def test_steps_without_a_test_of_their_own_batch_size(normal):
    step = pma.MetropolisHastings(model=normal, acceptance=Exact(), proposal=pma.RandomWalk(0.01))
    attrs = probe(normal, step, **FEW)["log_ratios"].attrs
    assert (attrs["batch_size"], attrs["rule"]) == (500, "Exact")
    assert np.isnan(attrs["epsilon"])
    assert probe(normal, step, batch_size=70, **FEW)["log_ratios"].attrs["batch_size"] == 70


@pytest.mark.filterwarnings("ignore:range_bound=")
def test_a_step_that_does_not_rely_on_normal_means(normal):
    step = pma.MHSubLhd(model=normal, range_bound="exact", proposal=pma.RandomWalk(0.02))
    tree = probe(normal, step, n_pairs=3, tune=0, draws=3, random_seed=1)
    assert tree["log_ratios"].attrs["batch_size"] == 500
    assert "(MHSubLhd(a, b, sigma) decides by Concentration, not by a t-test.)" in normality(tree).reason


def test_one_seed_gives_one_result_on_disk_too(normal, tmp_path):
    step = pma.AusterityMH(model=normal, proposal=pma.RandomWalk(0.02))
    one, two = (probe(normal, step, **FEW) for _ in range(2))
    assert one["log_ratios"].to_dataset().identical(two["log_ratios"].to_dataset())
    one.to_netcdf(tmp_path / "pairs.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "pairs.nc", engine="h5netcdf") as read:
        assert read["log_ratios"].to_dataset().equals(one["log_ratios"].to_dataset())
        assert normality(read).reason == normality(one).reason


@pytest.mark.compiled
def test_sampling_is_as_if_the_step_had_not_been_probed(normal):
    def sample(step):
        with normal:
            return sampled(20, step, tune=20, chains=1, random_seed=4)

    step = pma.AusterityMH(model=normal, proposal=pma.proposals.AdaptiveRandomWalk(), rng=3)
    before = sample(deepcopy(step)).posterior.to_dataset()
    probe(normal, step, n_pairs=2, tune=100, draws=2000, n_batches=3, random_seed=1)
    assert sample(step).posterior.to_dataset().equals(before)


@pytest.fixture(scope="module")
def compound(normal):
    """A step for two of the variables, and a result of two chains in which NUTS moves the other."""
    with normal, interpreted():
        step = pma.AusterityMH([normal["a"], normal["sigma"]])
        idata = sampled(
            50, [step], tune=50, chains=2, random_seed=4, initvals={"a": 0.0, "b": 1.0, "sigma": 1.0}
        )
    return step, idata


@pytest.mark.slow("draws 2,000 times in compiled engines")
def test_states_of_a_result(normal, compound):
    _, idata = compound
    states = states_of_result(normal, idata, 7)
    draws = idata.posterior.to_dataset().stack(sample=("chain", "draw"))
    for k, state in zip(spread(7, 100), states, strict=True):
        assert list(state) == ["a", "b", "sigma_log__"]
        assert state["a"] == draws["a"].values[k]
        assert state["sigma_log__"] == pytest.approx(np.log(draws["sigma"].values[k]))
        assert state["b"].dtype == np.float64


def test_variables_with_named_dimensions():
    """Their static shape is not known."""
    rng = np.random.default_rng(1)
    with pm.Model(coords={"group": ["a", "b"]}) as model:
        beta = pm.Normal("beta", dims="group")
        pm.Normal("y", beta[np.arange(N) % 2], observed=rng.normal(size=N))
    draws = rng.normal(size=(2, 5, 2))
    idata = xr.DataTree.from_dict({"posterior": xr.Dataset({"beta": (("chain", "draw", "group"), draws)})})
    states = states_of_result(model, idata, 10)
    np.testing.assert_array_equal([state["beta"] for state in states], draws.reshape(10, 2))


@pytest.mark.slow("interpreted, beside NUTS")
def test_a_step_beside_nuts(normal, compound):
    step, idata = compound
    with pytest.raises(ValueError, match=r"The AusterityMH does not move b\. .* idata="):
        probe(normal, step, **FEW)
    tree = probe(normal, step, idata=idata, **FEW)
    assert tree["log_ratios"].sizes["pair"] == 4
    assert np.all(tree["log_ratios"]["sd"] > 0)
    idata = idata.copy()
    idata.update(tree)
    assert normality(idata).verdict in ("normal enough", "doubtful")


@pytest.mark.slow("builds many steps")
def test_results_that_do_not_fit(normal, compound):
    step, idata = compound
    with pytest.raises(ValueError, match="'b' is not in the posterior of idata.*without var_names="):
        probe(
            normal,
            step,
            idata=xr.DataTree.from_dict({"posterior": idata.posterior.to_dataset().drop_vars("b")}),
        )
    with pytest.raises(ValueError, match="at most the 100 draws of idata, got 101"):
        probe(normal, step, 101, idata=idata)
    with pytest.raises(ValueError, match="no group posterior"):
        probe(normal, step, idata=xr.DataTree())


@pytest.mark.slow("builds and compiles several steps")
def test_what_cannot_be_probed(normal):
    with pytest.raises(TypeError, match="TunaMH draws rows in proportion.*nothing to probe"):
        probe(normal, pma.TunaMH(model=normal, switch_above=np.inf))
    with pytest.raises(TypeError, match="NUTS makes none"):
        probe(normal, pm.NUTS(model=normal))
    with pm.Model() as other:
        w = pm.Dirichlet("w", np.ones(2))
        pm.Categorical("z", w, observed=np.arange(N) % 2)
    with pytest.raises(TypeError, match="SCIR makes none from subsamples of log ratios"):
        probe(other, pma.SCIR([w], step_size=3.0, model=other))
    with pytest.raises(ValueError, match="The AusterityMH was made for another model"):
        probe(other, pma.AusterityMH(model=normal))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_pairs": 0}, "n_pairs must be an integer of at least 1, got 0"),
        ({"tune": -1}, "tune must be an integer of at least 0, got -1"),
        ({"draws": 3}, "draws must be at least n_pairs=10, got 3"),
        ({"batch_size": N}, "batch_size must be an integer from 2 to less than the 2,000 terms"),
        ({"n_batches": 1}, "n_batches must be an integer of at least 3"),
    ],
)
@pytest.mark.covering(3)
def test_parameters_are_checked(normal, options, message):
    step = pma.AusterityMH(model=normal, proposal=pma.RandomWalk(0.02))
    with pytest.raises(ValueError, match=message):
        probe(normal, step, **options)


def test_moves_that_the_prior_rejects_are_proposed_again():
    with pm.Model() as model:
        p = pm.Uniform("p", 0.0, 1.0, default_transform=None)
        pm.Bernoulli("y", p, observed=np.arange(N) % 2)
    joined = pma.MetropolisHastings(model=model)
    with pytest.raises(ValueError, match="give it compress=False"):
        probe(model, joined, n_pairs=1, tune=0, draws=1)
    outside = pma.MetropolisHastings(model=model, proposal=pma.RandomWalk(1e9), compress=False)
    with pytest.raises(ValueError, match="only moves that the prior rejects"):
        probe(model, outside, n_pairs=1, tune=0, draws=1)
    often = pma.MetropolisHastings(model=model, proposal=pma.RandomWalk(1.0), compress=False)
    tree = probe(model, often, n_pairs=20, tune=0, draws=20, random_seed=1, n_batches=3)
    assert np.all(np.isfinite(tree["log_ratios"]["mu"]))


# Check 5: models with a known answer --------------------------------------------------------------------


def of_data(y, *, scale):
    """A normal model, as in figure 4 of Bardenet et al. (2014)."""
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 100)
        sigma = pm.HalfNormal("sigma", 100) if scale else 1.0
        pm.Normal("y", mu, sigma, observed=y)
    return model


def rare_feature():
    """As in `tests/statistical/test_tuna.py`: a covariate is 1 in 20 of 100,000 rows, all successes."""
    rng = np.random.default_rng(5)
    n, n_rare = 100_000, 20
    X = np.c_[np.ones(n), rng.integers(-1, 2, (n, 3)), np.zeros(n)]
    X[:n_rare, 4] = 1.0
    y = (rng.random(n) < expit(X @ [0.3, 0.5, -0.5, 0.3, 0.0])).astype(int)
    y[:n_rare] = 1
    with pm.Model() as model:
        b = pm.Normal("b", 0, 2, shape=5)
        pm.Bernoulli("y", logit_p=X @ b, observed=y)
    return model


@pytest.mark.compiled
@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.covering(1)
def test_normal_data_are_safe(scale):
    y = np.random.default_rng(2).normal(1.0, 1.0, 20_000)
    model = of_data(y, scale=scale)
    epsilon = 0.05 if scale else 0.01
    found = normality(probe(model, pma.AusterityMH(model=model, epsilon=epsilon), random_seed=1))
    assert found.verdict == "normal enough"
    assert "not normal" not in found.reason or scale


@pytest.mark.compiled
@pytest.mark.slow("builds a step several times")
def test_lognormal_data_are_unsafe():
    y = np.random.default_rng(2).lognormal(0.0, 2.0, 20_000)
    model = of_data(y, scale=True)
    for step in (pma.AusterityMH(model=model), pma.AusterityMH(model=model, epsilon=0.2)):
        found = normality(probe(model, step, random_seed=1))
        assert found.verdict == "not normal"
        assert "top 100 of 20,000 rows carry" in found.reason
        assert found.table["tail_index"].median() < 2


@pytest.mark.compiled
@pytest.mark.slow("three probes of 20,000 rows")
def test_a_rare_feature_is_unsafe_unless_its_rows_are_always_read():
    model = rare_feature()
    proposal = pma.Laplace(kind="pcn", rho=0.7, mix=0.3)
    verdicts = {}
    for exact_rows in (0, 100):
        step = pma.AusterityMH(
            model=model, control_variate=pma.Taylor(exact_rows=exact_rows), proposal=proposal
        )
        found = normality(probe(model, step, tune=200, draws=200, random_seed=1))
        verdicts[exact_rows] = found.verdict
    assert verdicts == {0: "not normal", 100: "normal enough"}
