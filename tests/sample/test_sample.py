"""`sample`: draws of `pm.sample` bit for bit, whatever runs the chains; the step; what is refused."""

import logging
import os
import signal
import threading
import time
import warnings

import numpy as np
import pymc as pm
import pytest
from pymc.exceptions import SamplingError

import pymc_austerity as pma
from pymc_austerity.proposals import AdaptiveRandomWalk
from pymc_austerity.sampling import chains, pymc_names, run
from pymc_austerity.sampling.processes import ChainError
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from tests.models import as_model

N, GROUPS = 1200, 12
RNG = np.random.default_rng(1)
X = RNG.normal(size=N)
Y = 1.0 + 0.5 * X + RNG.normal(size=N)
QUIET = {"progressbar": False, "quiet": True, "compute_convergence_checks": False, "random_seed": 3}
pytestmark = pytest.mark.filterwarnings("ignore:(Tuning ended|Minibatches|SGLD|The chain starts)")
STARTS = pytest.mark.slow("starts processes")


@as_model
def line():
    beta = pm.Normal("beta", 0, 10, shape=2)
    sigma = pm.HalfNormal("sigma", 10, initval=1.0)
    pm.Deterministic("ratio", beta / sigma)
    pm.Normal("outcome", beta[0] + beta[1] * X, sigma, observed=Y)


@as_model
def precision():
    pm.Normal("outcome", 1.0, tau=pm.Gamma("precision", 2.0, 2.0), observed=Y)


@as_model
def groups():
    tau, sigma = pm.HalfNormal("tau"), pm.HalfNormal("sigma")
    effect = pm.Normal("effect", 0, tau, shape=40)
    pm.Normal("outcome", effect[np.arange(N) % 40], sigma, observed=Y)


def tuna(model):
    return pma.TunaMH(model=model, switch_above=np.inf)


STEPS = {
    "TunaMH": (line, tuna),
    "AusterityMH": (line, lambda model: pma.AusterityMH(model=model, proposal=pma.RandomWalk(0.02))),
    "adaptive": (
        line,
        lambda model: pma.MetropolisHastings(model=model, proposal=AdaptiveRandomWalk()),
    ),
    "SCIR": (precision, lambda model: pma.SCIR(model=model)),
    "SGLD": (line, lambda model: pma.SGLD(model=model, step_size=1e-4, batch_size=100)),
    "field": (groups, tuna),
}


def require_equal(ours, theirs):
    for group in ("posterior", "sample_stats", "observed_data"):
        assert ours[group].to_dataset().equals(theirs[group].to_dataset()), group
    changes = {"created_at", "sampling_time"}
    for tree in (ours, theirs):
        assert changes <= tree.posterior.attrs.keys()
    assert {k: v for k, v in ours.posterior.attrs.items() if k not in changes} == {
        k: v for k, v in theirs.posterior.attrs.items() if k not in changes
    }


@pytest.mark.usefixtures("interpreted")
class TestDraws:
    @pytest.mark.parametrize("name", STEPS)
    def test_bit_for_bit(self, name):
        build, make = STEPS[name]
        model = build()
        step = make(model)
        given = {"tune": 20, "chains": 2, "cores": 1, "step": step, "model": model, **QUIET}
        require_equal(pma.sample(30, **given), pm.sample(30, **given))

    def test_tuning_and_some_variables(self):
        model = line()
        given = {"tune": 20, "chains": 2, "cores": 1, "step": tuna(model), "model": model, **QUIET}
        given |= {"discard_tuned_samples": False, "var_names": ["ratio"]}
        ours, theirs = pma.sample(30, **given), pm.sample(30, **given)
        require_equal(ours, theirs)
        assert ours.warmup_posterior.equals(theirs.warmup_posterior)
        assert list(ours.posterior.data_vars) == ["ratio"]

    def test_start_and_seed_matter(self):
        model = line()
        given = {"tune": 0, "chains": 1, "cores": 1, "step": tuna(model), "model": model, **QUIET}
        start = {"beta": np.array([0.9, 0.6]), "sigma": 1.1}
        require_equal(pma.sample(5, initvals=start, **given), pm.sample(5, initvals=start, **given))
        other = pma.sample(5, **{**given, "random_seed": 4})
        assert not other.posterior.equals(pma.sample(5, **given).posterior)

    def test_draws_are_made_many_in_one_call(self, monkeypatch):
        model, asked = line(), []
        step = tuna(model)
        ahead = SubsampledStep.draw_ahead

        def counted(self, point, n_draws):
            asked.append(n_draws)
            return ahead(self, point, n_draws)

        monkeypatch.setattr(SubsampledStep, "draw_ahead", counted)
        pma.sample(100, tune=5, chains=1, cores=1, step=step, model=model, **QUIET)
        assert sum(asked) == 99  # all but the first after tuning
        assert max(asked) >= 16

    def test_planted_fault_a_state_that_is_not_written_back(self, monkeypatch):
        """Planted fault: each call of compiled code goes on from the state of the first."""
        model = line()
        given = {"tune": 0, "chains": 1, "cores": 1, "step": tuna(model), "model": model, **QUIET}
        ahead = SubsampledStep.draw_ahead
        first = {}

        def wrong(self, point, n_draws):
            return ahead(self, first.setdefault("point", point), min(n_draws, 3))

        monkeypatch.setattr(SubsampledStep, "draw_ahead", wrong)
        with pytest.raises(AssertionError, match="posterior"):
            require_equal(pma.sample(30, **given), pm.sample(30, **given))

    def test_several_steps_are_run_by_pymc(self, monkeypatch):
        model, called = line(), []
        steps = [pma.AusterityMH(["beta"], model=model), pm.Slice([model["sigma"]], model=model)]
        given = {"tune": 5, "chains": 1, "cores": 1, "step": steps, "model": model, **QUIET}
        monkeypatch.setattr(pm, "sample", lambda *_, **kwargs: called.append(kwargs["step"]))
        pma.sample(5, **given)
        assert called == [steps]


@STARTS
@pytest.mark.parametrize("mp_ctx", ["fork", "forkserver"])
class TestProcesses:
    """Chains whose work is worth it have processes of their own."""

    @pytest.fixture(autouse=True)
    def always(self, monkeypatch):
        monkeypatch.setattr(run, "_SHORT", 0.0)

    @pytest.mark.parametrize("name", ["TunaMH", "SCIR", "field"])
    def test_bit_for_bit(self, name, mp_ctx):
        build, make = STEPS[name]
        model = build()
        step = make(model)
        given = {"tune": 10, "chains": 3, "step": step, "model": model, **QUIET}
        ours = pma.sample(20, cores=2, mp_ctx=mp_ctx, **given)
        require_equal(ours, pm.sample(20, cores=1, **given))

    def test_errors_come_with_their_type_and_place(self, mp_ctx):
        model = line()
        start = {"beta": np.array([np.nan, 0.0])}
        with pytest.raises(ValueError, match="beta") as caught:
            pma.sample(
                5, chains=2, cores=2, mp_ctx=mp_ctx, step=tuna(model), model=model, initvals=start, **QUIET
            )
        assert any("In the process of chain" in note for note in caught.value.__notes__)


class Slow(pma.TunaMH):
    """Takes a while for each draw."""

    def step(self, point):
        time.sleep(0.01)
        return super().step(point)

    @property
    def runs_ahead(self):
        return False


class Dies(pma.TunaMH):
    """Ends its process in draw number 10."""

    n_made = 0

    def step(self, point):
        self.n_made += 1
        if self.n_made == 10:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().step(point)


@STARTS
def test_warnings_and_exits_of_processes_are_told(monkeypatch):
    """A warning of a class that only the chain knows, and a proposal that ends the program."""
    monkeypatch.setattr(run, "_SHORT", 0.0)
    model = line()
    given = {"tune": 5, "chains": 2, "cores": 2, "model": model, **QUIET}
    with pytest.warns(UserWarning, match="Local: careful"):
        pma.sample(5, step=Warns(model=model, switch_above=np.inf), **given)
    with pytest.raises(ChainError, match="SystemExit: 3"):
        pma.sample(5, step=Exits(model=model, switch_above=np.inf), **given)


class Warns(Slow):
    """Warns by a class that cannot be pickled."""

    def step(self, point):
        class Local(UserWarning):
            pass

        warnings.warn("careful", Local, stacklevel=2)
        return super().step(point)


class Exits(Slow):
    """Ends the program."""

    def step(self, point):
        raise SystemExit(3)


@STARTS
def test_a_process_that_dies_is_named(monkeypatch):
    monkeypatch.setattr(run, "_SHORT", 0.0)
    model = line()
    with pytest.raises(ChainError, match="chain [01] ended with code -9.*fewer cores"):
        pma.sample(
            20, tune=20, chains=2, cores=2, step=Dies(model=model, switch_above=np.inf), model=model, **QUIET
        )


@pytest.mark.usefixtures("ctrl_c")
class TestCtrlC:
    @STARTS
    def test_no_block_is_lost_where_it_is_kept(self, monkeypatch):
        """The interrupt comes while a block is written: later ones must not take its place."""
        model, add, n = line(), run.Results.add, []
        monkeypatch.setattr(run, "_SHORT", 0.0)

        def interrupted(self, chain, block):
            n.append(block.n)
            if len(n) == 3:
                os.kill(os.getpid(), signal.SIGINT)
            add(self, chain, block)

        given = {"tune": 0, "chains": 2, "step": tuna(model), "model": model, **QUIET}
        with monkeypatch.context() as patch:
            patch.setattr(run.Results, "add", interrupted)
            ours = pma.sample(200_000, cores=2, **given).posterior
        assert ours.sizes["draw"] < 200_000
        theirs = pma.sample(ours.sizes["draw"], cores=1, **given).posterior
        assert ours.equals(theirs.sel(chain=ours.chain))

    def interrupt(self, seconds):
        threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGINT]).start()

    @pytest.mark.usefixtures("interpreted")
    def test_what_was_drawn_is_kept(self):
        model = line()
        step = Slow(model=model, switch_above=np.inf)
        self.interrupt(1.0)
        idata = pma.sample(10_000, tune=0, chains=1, cores=1, step=step, model=model, **QUIET)
        assert 20 <= idata.posterior.sizes["draw"] <= 100

    @pytest.mark.usefixtures("interpreted")
    def test_draws_that_one_call_has_made_are_kept(self, monkeypatch):
        """The interrupt comes when the call returns."""
        model = line()
        step = tuna(model)
        ahead = type(step.engine).run_ahead

        def interrupted(self, *given):
            ahead(self, *given)
            raise KeyboardInterrupt

        monkeypatch.setattr(type(step.engine), "run_ahead", interrupted)
        monkeypatch.setattr(chains, "_FIRST_AHEAD", 30)
        given = {"tune": 0, "chains": 1, "cores": 1, "step": step, "model": model, **QUIET}
        ours = pma.sample(500, **given)
        n = ours.posterior.sizes["draw"]
        assert n == 31
        assert ours.posterior.equals(pm.sample(n, **given).posterior)

    @STARTS
    def test_in_processes(self, monkeypatch):
        monkeypatch.setattr(run, "_SHORT", 0.0)
        model, made = line(), [0, 0]
        step = Slow(model=model, switch_above=np.inf)
        add = run.Results.add

        def interrupting(self, chain, block):
            add(self, chain, block)
            before, made[chain] = min(made), made[chain] + block.n
            if before < 200 <= min(made):
                os.kill(os.getpid(), signal.SIGINT)

        monkeypatch.setattr(run.Results, "add", interrupting)
        idata = pma.sample(10_000, tune=0, chains=2, cores=2, step=step, model=model, **QUIET)
        sizes = idata.posterior.sizes
        assert 400 <= sizes["chain"] * sizes["draw"] < 10_000
        given = {"tune": 0, "chains": 2, "cores": 1, "step": tuna(model), "model": model, **QUIET}
        whole = pma.sample(sizes["draw"], **given).posterior.sel(chain=idata.posterior.chain)
        assert idata.posterior.equals(whole)  # no draw is left out


# Which step is used --------------------------------------------------------------------------------


@pytest.fixture
def of_pymc(monkeypatch):
    """What `pm.sample` was called with, which makes no draws."""
    given = {}
    monkeypatch.setattr(pm, "sample", lambda **kwargs: given.update(kwargs))
    return given


def test_recommend_is_asked(caplog, interpreted):
    caplog.set_level(logging.INFO, "pymc.austerity")
    idata = pma.sample(20, tune=20, chains=1, model=line(), **{**QUIET, "quiet": False})
    assert "exhausted" in idata.sample_stats
    assert caplog.messages[0].startswith("recommend: ")


def test_options_of_nuts_beside_another_step(caplog, interpreted):
    caplog.set_level(logging.INFO, "pymc.austerity")
    step = pma.TunaMH(model=line(), progressbar=False)
    quiet = {**QUIET, "quiet": False}
    pma.sample(10, tune=10, chains=1, model=step.model, step=step, target_accept=0.9, **quiet)
    assert "sample: TunaMH has no use for options of NUTS: {'target_accept': 0.9}." in caplog.messages


def test_progress_bars_count_draws():
    """Not the blocks that they come in."""
    step = pma.TunaMH(model=line(), progressbar=False)
    bars = pymc_names.ProgressBars(step_method=step, chains=1, draws=100, tune=0, progressbar=True)
    told = []
    bars._backend.update = lambda *given, **named: told.append(given[1] if given else named["advance"])
    stats = [dict.fromkeys(("mean_tree_accept", "n_used"), 1.0)]
    bars.see(0, 40, is_last=False, draw=39, tuning=False, stats=stats)
    bars.see(0, 60, is_last=True, draw=99, tuning=False, stats=stats)
    assert sum(told) == 100


def test_few_rows_take_no_search(of_pymc, monkeypatch, caplog):
    caplog.set_level(logging.INFO, "pymc.austerity")
    monkeypatch.setattr("pymc_austerity.sampling.sampler.recommend", None)
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, observed=np.zeros(999))
    pma.sample(model=model, nuts={"target_accept": 0.9})
    assert of_pymc["step"] is None
    assert of_pymc["nuts"] == {"target_accept": 0.9}
    assert "because no variable has 1,000 observations" in caplog.text


def test_nuts(of_pymc):
    pma.sample(model=line(), step="nuts")
    assert of_pymc["step"] is None


def test_a_search_that_ends_with_nuts_leaves_the_choice_to_pymc(of_pymc, caplog):
    """And does not advise to call `sample`."""
    caplog.set_level(logging.INFO, "pymc.austerity")
    with pm.Model() as model:
        pm.Normal("y", pm.math.exp(pm.Normal("a") * Y).cumsum(), observed=Y)
    pma.sample(model=model, progressbar=False)
    assert of_pymc["step"] is None
    assert caplog.messages[0].startswith("recommend: pm.NUTS for ")
    assert "pma.sample" not in caplog.text


def test_potentials_may_have_rows(of_pymc, monkeypatch):
    asked = []
    monkeypatch.setattr("pymc_austerity.sampling.sampler.recommend", lambda model, **_: asked.append(model))
    with pm.Model() as model:
        pm.Potential("sum", -pm.math.sum((pm.Normal("mu") - Y) ** 2))
    pma.sample(model=model, quiet=True)
    assert asked == [model]


def test_only_discrete_variables_are_left_to_pymc(of_pymc):
    with pm.Model() as model:
        pm.Normal("y", pm.Bernoulli("z", 0.5), observed=Y)
    pma.sample(model=model)
    assert of_pymc["step"] is None


# What is refused -----------------------------------------------------------------------------------

REFUSED = {
    "a slip": ({"drawz": 10}, TypeError, "no keyword 'drawz'. Did you mean 'draws'"),
    "of another sampler": ({"thin": 10}, TypeError, "no keyword 'thin'"),
    "another result": ({"return_inferencedata": False}, TypeError, "sample returns a DataTree"),
    "draws": ({"draws": -1}, ValueError, "draws must be an integer of at least 1, got -1"),
    "no draws": ({"draws": 0}, ValueError, "draws must be an integer of at least 1, got 0"),
    "an option": ({"nuts": {"target_acept": 0.9}}, ValueError, "Did you mean 'target_accept'"),
    "tune": ({"tune": 0.5}, ValueError, "tune must be an integer of at least 0, got 0.5"),
    "chains": ({"chains": 0}, ValueError, "chains must be an integer of at least 1, got 0"),
    "cores": ({"cores": True}, ValueError, "cores must be an integer of at least 1, got True"),
    "var_names": ({"var_names": ["bet"]}, ValueError, "no variable 'bet'. Did you mean 'beta'"),
    "twice": ({"target_accept": 0.9, "nuts": {"target_accept": 0.8}}, ValueError, "given twice"),
    "a class": ({"step": pma.TunaMH}, TypeError, "step is a class: write TunaMH"),
    "step": ({"step": "NUTS"}, ValueError, '"recommend" or "nuts", got \'NUTS\''),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case):
    given, error, message = REFUSED[case]
    with pytest.raises(error, match=message):
        pma.sample(model=line(), **given)


def test_refused_by_pymc_too(interpreted):
    with pytest.raises(TypeError, match="No model on context"):
        pma.sample()
    with pm.Model() as model:
        pm.Normal("y", 0, 1, observed=Y)
    with pytest.raises(SamplingError, match="does not contain any free variables"):
        pma.sample(model=model)
    ours, other = line(), line()
    with other, pytest.raises(ValueError, match="of another model"):
        pma.sample(step=tuna(ours))
    with pytest.raises(ValueError, match="TunaMH moves 'beta' of another model"):
        pma.sample(model=other, step=[tuna(ours)])
    with pytest.raises(ValueError, match="TunaMH moves 'beta' of another model"):
        pma.approximate(other, step=tuna(ours), quiet=True)
    with pytest.raises(ValueError, match="var_names is empty"):
        pma.sample(step=tuna(ours), model=ours, var_names=[])
    with pytest.raises(ValueError, match="no variable 'gamma'"):
        pma.sample(step=tuna(ours), model=ours, var_names=["beta", "gamma"])


def test_large_results_are_announced(caplog, interpreted, monkeypatch):
    monkeypatch.setattr(run, "_LARGE", 100.0)
    model = line()
    pma.sample(10, tune=0, chains=1, step=tuna(model), model=model, **{**QUIET, "quiet": False})
    assert "of memory. trace='draws.zarr' writes them to disk" in caplog.text
