"""`TunaMH` on models with a plate: other data, other processes, other steps."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import SubsamplingWarning, TunaMH
from pymc_austerity.model.compile.backend import interpreted as without_compilation
from pymc_austerity.testing.steps import require_same_path

from .test_plates import FORK, GROUPS, INTERPRETED, G, Y, drawn, model_of, rows
from .test_plates import short_pilots as short_pilots

# Other data --------------------------------------------------------------------------------------

OTHER = dict(zip(("x", "groups", "outcome"), rows(1800, seed=54), strict=True))


@INTERPRETED
@pytest.mark.parametrize(
    "new",
    [
        pytest.param(OTHER, id="all"),
        pytest.param({"groups": np.where(GROUPS < 20, 2, GROUPS)}, id="other sizes of groups"),
        pytest.param({"outcome": 1 - Y}, id="outcomes"),
    ],
)
@pytest.mark.slow("compiles a plate")
def test_other_data(short_pilots, new):
    """A step that has run draws what a fresh step draws."""
    model = model_of()
    step = TunaMH(model=model, rng=1)
    before = drawn(step, model)
    with model:
        pm.set_data(new)
    after, fresh = drawn(step, model), drawn(TunaMH(model=model, rng=1), model)
    require_same_path("A rebuilt step", after, fresh, "It has kept something of the old data.")
    assert any((a["u"] != b["u"]).any() for a, b in zip(before[0], after[0], strict=True))


@INTERPRETED
@pytest.mark.slow("compiles a plate")
def test_other_data_within_a_chain(short_pilots):
    """See `test_data_within_a_chain.py` for other steps."""
    model = model_of()
    step = TunaMH(model=model)
    step.setup_chain(np.random.default_rng(1), 0, 0)
    point, _ = step.step(model.initial_point())
    with model:
        pm.set_data({"outcome": 1 - Y})
    fresh = TunaMH(model=model)
    fresh.setup_chain(np.random.default_rng(2), 0, 0)
    step.rng = np.random.default_rng(2)
    with pytest.warns(SubsamplingWarning, match="'outcome' were replaced"):
        found, _ = step.step(point)
    expected, _ = fresh.step(point)
    np.testing.assert_array_equal(found["u"], expected["u"])


@INTERPRETED
@pytest.mark.slow("builds a step several times")
def test_data_out_of_range_after_a_run(short_pilots):
    model = model_of()
    step = TunaMH(model=model, rng=1)
    with model:
        pm.set_data({"groups": GROUPS + 1})
    with pytest.raises(IndexError, match=str(G)):
        drawn(step, model)


# Processes ---------------------------------------------------------------------------------------


@FORK
@pytest.mark.slow("samples in processes, which build the step again")
def test_draws_are_equal_in_other_processes(draw, same):
    model = model_of(is_centered=False)
    step = TunaMH(model=model)
    one = draw(model, step, chains=2, cores=1)
    assert same(draw(model, step, chains=2, cores=2, mp_ctx="forkserver"), one)
    with model:
        pm.set_data(OTHER)
    other = draw(model, step, chains=2, cores=1)
    assert not same(other, one)
    assert same(draw(model, step, chains=2, cores=2, mp_ctx="fork"), other)


@pytest.mark.slow("builds and compiles several steps")
def test_a_part_of_the_trace(draw):
    """Effects that are not wanted are not kept, and summaries of them are."""
    model = model_of()
    with model:
        pm.Deterministic("largest", model["u"].max())
    with without_compilation():
        step = TunaMH(model=model)
    found = draw(model, step, var_names=["beta", "tau", "largest"])
    assert set(found.posterior.data_vars) == {"beta", "tau", "largest"}
    assert {"plate_acceptance", "shared_n_used", "plate_n_used"} <= set(found.sample_stats.data_vars)


# Other steps -------------------------------------------------------------------------------------


def hierarchical(sampled):
    """Effects with a scale that has a prior with a scale; some outcomes in each group."""
    x, groups, y = rows(1000)
    with pm.Model() as model:
        s = pm.LogNormal("s", 0.0, 0.5)
        tau = pm.HalfNormal("tau", s)
        u = pm.Normal("u", 0.0, tau, shape=G)
        beta = pm.Normal("beta", 0.0, 2.0, shape=2)
        pm.Bernoulli("y", logit_p=x @ beta + u[groups], observed=y)
    return model, [model[name] for name in sampled]


@pytest.mark.slow("samples twice, for some seconds")
@pytest.mark.filterwarnings("ignore:The number of samples")
def test_another_step_moves_a_scale_of_the_prior():
    """As one step that moves all: the means of theta and of its squares agree."""
    model, own = hierarchical(["beta", "tau", "u"])
    with model:
        options = {"draws": 3000, "tune": 200, "chains": 2, "cores": 1, "progressbar": False}
        names = {"var_names": ["beta", "tau", "s"], "compute_convergence_checks": False}
        both = pm.sample(
            step=[TunaMH(own, rng=1), pm.Slice([model["s"]])], random_seed=55, **options, **names
        )
        alone = pm.sample(step=TunaMH(), random_seed=56, **options, **names)
    for name in ("tau", "s", "beta"):
        for power in (1, 2):
            one, other = (np.log(i.posterior[name].values) if name != "beta" else i.posterior[name].values
                          for i in (both, alone))  # fmt: skip
            assert abs(score(one**power, other**power)) < 4.0


def score(one, other):
    """Standardised difference of means, by the means of batches."""
    found = []
    for values in (one, other):
        batches = values.reshape(-1, 200, *values.shape[2:]).mean(axis=1)
        found.append((batches.mean(axis=0), batches.std(axis=0, ddof=1) / np.sqrt(len(batches))))
    (a, s), (b, t) = found
    return np.max(np.abs((a - b) / np.hypot(s, t)))
