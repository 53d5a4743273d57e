"""What a user types first: names, unknown options, a step of another model, data that are wrong."""

import inspect
import sys
from functools import partial
from itertools import product

import numpy as np
import pymc as pm
import pytensor
import pytest

import pymc_austerity as pma
from tests.models import as_model
from tests.sampling import sampled

pytestmark = pytest.mark.usefixtures("interpreted")

METROPOLIS = [pma.TunaMH, pma.AusterityMH, pma.MHSubLhd, pma.MetropolisHastings, pma.MinibatchBarker]
STEPS = [*METROPOLIS, pma.SCIR, pma.MinibatchCategoricalGibbs]
N = 1200
RNG = np.random.default_rng(11)
X = RNG.normal(size=N)
COUNTS = RNG.poisson(np.exp(0.5 + 0.3 * X))
GROUP = RNG.integers(0, 40, N)


@as_model
def poisson(x=X, counts=COUNTS):
    level, slope = pm.Normal("level"), pm.Normal("slope")
    pm.Deterministic("total", level + slope)
    pm.Data("x", X)
    x = pm.math.constant(x) if isinstance(x, np.ndarray) else x
    pm.Poisson("y", pm.math.exp(level + slope * x), observed=counts)


@as_model
def groups(group=GROUP, counts=COUNTS, x=X):
    mu, tau = pm.Normal("mu"), pm.HalfNormal("tau")
    effect = pm.Normal("effect", mu, tau, shape=40)
    pm.Poisson("y", pm.math.exp(effect[group] + pm.Normal("slope") * x), observed=counts)


@as_model
def mixture():
    w = pm.Dirichlet("w", np.ones(3))
    z = pm.Categorical("z", p=w, shape=N)
    pm.Normal("score", pm.math.constant([-3.0, 0.0, 3.0])[z], 1, observed=X)


def but(values, position, wrong):
    changed = np.array(values, dtype=np.result_type(values, type(wrong)))
    changed[position] = wrong
    return changed


# Names of the package ---


def test_what_is_listed():
    assert dir(pma) == sorted(pma.__all__)
    assert {"sample", "recommend", "TunaMH", "testing"} < set(dir(pma))
    step = pma.TunaMH(model=poisson())
    assert [name for name in dir(step) if not name.startswith("_")] == [
        "certificate", "configuration", "mixing", "mode_fit", "model", "prediction", "recommendation", "step",
        "steps_per_draw", "vars",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted(pma._MOVED))
def test_names_that_left_the_top(name):
    with pytest.warns(FutureWarning, match=f"^Import {name} from pymc_austerity[.]"):
        found = getattr(pma, name)
    assert found.__name__ == name
    assert name in sys.modules[f"pymc_austerity.{pma._MOVED[name]}"].__all__


def test_signatures_have_what_is_handed_on():
    """With the defaults of `MetropolisHastings`, which names them all."""
    reference = inspect.signature(pma.MetropolisHastings).parameters
    for step in (*METROPOLIS, pma.ReversibleJump, pma.AusterityGibbs):
        found = inspect.signature(step).parameters
        assert {"model", "steps_per_draw"} < set(found)
        for name in set(found) & set(reference) - {"acceptance", "control_variate", "steps_per_draw"}:
            assert found[name].default == reference[name].default, (step, name)


# Names of variables --------------------------------------------------------------------------------


@pytest.mark.parametrize("step", METROPOLIS)
@pytest.mark.covering(3)
def test_names(step):
    made = step(["slope", "level"], model=poisson())
    assert [v.name for v in made.vars] == ["slope", "level"]


@pytest.mark.slow("samples in several processes")
def test_names_of_other_steps():
    model = mixture()
    assert [v.name for v in pma.SCIR("w", model=model).vars] == ["w_simplex__"]
    assert [v.name for v in pma.MinibatchCategoricalGibbs("z", model=model).vars] == ["z"]
    assert [v.name for v in pma.restricted_nuts("w", model=model).vars] == ["w_simplex__"]
    assert len(pma.restricted_slice(["level", "slope"], model=poisson()).methods) == 2


def test_names_in_functions():
    model = poisson()
    assert pma.factorise(model, ["level"]).var_names == ("level",)
    assert set(pma.find_mode(model, "slope")) == {"level", "slope"}
    assert pma.recommend(model, ["level", "slope"]).recommendation.vars == ("level", "slope")


def test_the_name_of_a_value_variable():
    """Messages have these names."""
    assert pma.factorise(groups(), ["tau_log__", "mu"]).var_names == ("tau_log__", "mu")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("slop", r"there is none of that name. Its free variables: level, slope. Did you mean 'slope'\?$"),
        ("y", "it is observed. Its free variables: level, slope.$"),
        ("total", "it is Deterministic"),
        ("x", "it is data"),
    ],
)
@pytest.mark.parametrize("make", [*METROPOLIS, pma.recommend, pma.find_mode, pma.factorise])
def test_wrong_names(make, given, said):
    with pytest.raises(ValueError, match=f"^'{given}' is not a free variable of the model: {said}"):
        make(vars=[given], model=poisson())


# Options -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", STEPS)
def test_an_unknown_option(step):
    with pytest.raises(
        TypeError, match=rf"^{step.__name__} has no option 'step_per_draw'. Did you mean 'steps_per"
    ):
        step(step_per_draw=2, model=poisson())


def test_an_option_of_another_step():
    with pytest.raises(
        TypeError, match="^TunaMH has no option 'epsilon': it is one of AusterityMH and AusterityGibbs[.]$"
    ):
        pma.TunaMH(epsilon=0.1, model=poisson())
    with pytest.raises(
        TypeError, match=r"^TunaMH has no option 'colour'. Its options: vars, control_variate"
    ):
        pma.TunaMH(colour=0.1, model=poisson())
    with pytest.raises(TypeError, match="^AusterityMH has no option 'acceptance': it is one of"):
        pma.AusterityMH(acceptance=None, model=poisson())


@pytest.mark.parametrize("step", STEPS)
def test_options_that_all_steps_have(step):
    common = {"vars", "steps_per_draw", "model", "blocked", "rng", "initial_point", "progressbar"}
    assert common <= set(inspect.signature(step).parameters)


def test_steps_of_users():
    class Mine(pma.AusterityMH):
        def __init__(self, vars=None, *, colour="red", **options):
            super().__init__(vars, **options)

    class Other(Mine):
        pass

    assert {"colour", "epsilon", "tune"} <= set(inspect.signature(Other).parameters)
    assert Other(colour="blue", epsilon=0.1, model=poisson()).configuration["step"] == "Other"
    with pytest.raises(TypeError, match=r"^Other has no option 'color'. Did you mean 'colour'\?"):
        Other(color="blue", model=poisson())


# Another model -------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [groups, poisson], ids=["other names", "the same names"])
def test_a_step_of_another_model(other):
    step = pma.AusterityMH(model=poisson())
    with (
        other(),
        pytest.raises(ValueError, match="^This AusterityMH was made for level, slope of another model"),
    ):
        pm.sample(step=step)
    with other():
        assert repr(step).startswith("AusterityMH(level, slope)")
    with step.model:
        assert len(step.vars) == 2


@pytest.mark.parametrize("other", [pm.NUTS, pm.Metropolis, pma.AusterityMH])
@pytest.mark.parametrize("sample", [pm.sample, pma.sample])
@pytest.mark.parametrize("ours_first", [True, False])
@pytest.mark.filterwarnings("ignore:The chain starts")  # the other step has moved it
def test_one_variable_in_two_steps(sample, other, ours_first):
    with poisson() as model:
        steps = [pma.TunaMH(progressbar=False), other([model["slope"]])]
        with pytest.raises(ValueError, match="^'slope' would be moved by two steps, "):
            # Until the other step accepts a move.
            sample(500, step=steps[:: 1 if ours_first else -1], tune=500, chains=1, progressbar=False)


def test_each_variable_in_one_step():
    """Also where steps of the same variables were used before, with the same seed."""
    model = poisson()
    for order in (["slope", "level"], ["level", "slope"]):
        steps = [pma.AusterityMH([name], model=model) for name in order]
        for _ in range(2):
            with model:
                sampled(5, steps, tune=5, chains=2, random_seed=1)
        with model:
            sampled(5, pma.AusterityMH(model=model), tune=5, chains=1, random_seed=1)


# Data ----------------------------------------------------------------------------------------------


@as_model
def of_no_effects():
    pm.Poisson("y", pm.math.exp(pm.Normal("level") + pm.Normal("effect", shape=0).sum()), observed=COUNTS)


WRONG = {
    "rows": (lambda: poisson(pytensor.shared(X[:-1])), "^Shapes .*1199.* meet in the term 'y'[.]"),
    "nan": (lambda: poisson(x=but(X, 7, np.nan)), "a covariate .* is nan in row 7[.]"),
    "inf": (lambda: poisson(x=but(X, 7, np.inf)), "a covariate .* is inf in row 7[.]"),
    "negative count": (
        lambda: poisson(counts=but(COUNTS, 7, -1)),
        "in row 7 .*the observation is -1 .a negative count., which is outside",
    ),
    "negative count in a group": (
        lambda: groups(counts=but(COUNTS, 7, -1)),
        "in row 7 .*the observation is -1 ",
    ),
    "nan in a group": (lambda: groups(x=but(X, 7, np.nan)), "a covariate .* is nan in row 7[.]"),
    "no data": (lambda: poisson(X[:0], COUNTS[:0]), r"'y' has no observations \(shape \(0,\)\)"),
    "no data of groups": (lambda: groups(GROUP[:0], COUNTS[:0], X[:0]), "'y' has no observations"),
    "no effects": (of_no_effects, r"'effect' has no elements \(shape \(0,\)\). Leave it out"),
    "large count": (
        lambda: poisson(counts=but(COUNTS, 7, 3_000_000_000)),
        "the observation is -1294967296. PyMC may have made it of a larger number.*32 bits",
    ),
    "large counts alone": (
        lambda: poisson(counts=np.full(len(COUNTS), 3_000_000_000)),
        "The observation is -1294967296. PyMC may have made it of a larger number.*32 bits",
    ),
    "large shared count": (
        lambda: poisson(counts=pytensor.shared(but(COUNTS, [7, 9], 5_000_000_000))),
        r"'y' in rows 7, 9 \(2 of 1,200\) is 5,000,000,000: PyMC would take 705032704 for it",
    ),
    "index": (
        lambda: groups(but(GROUP, 9, 40)),
        r"^The index in row 9 of the term 'y' is 40, and 'effect' has 40 elements \(0, \.\.\., 39\)",
    ),
    "negative index": (lambda: groups(but(GROUP, [9, 12], -41)), r"in row 9 \(2 of 1,200 rows\) .* is -41"),
}


# What every step refuses.
EVERYWHERE = ("no data", "large shared count")
OTHERS = [
    *METROPOLIS[1:],
    *(partial(make, ["level"]) for make in (pma.restricted_nuts, pma.restricted_slice)),
]


@pytest.mark.parametrize(
    ("case", "make"), [*product(WRONG, [pma.TunaMH]), *product(EVERYWHERE, [pma.recommend, *OTHERS])]
)
@pytest.mark.covering(12)
def test_wrong_data(case, make):
    define, said = WRONG[case]
    with pytest.raises(ValueError, match=said):
        make(model=define())


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_covariate_that_is_missing_is_named_where_nothing_is_fitted(wrong):
    """Such a step looks at the data where a chain starts."""
    with poisson(but(X, 9, wrong)) as model:
        step = pma.AusterityMH()
        with pytest.raises(ValueError, match=r"a covariate \(array of shape \(\d+,\)\) is \w+ in row 9\."):
            step.step(model.initial_point())


@pytest.mark.slow("builds a step several times")
def test_data_that_separate_the_responses_of_a_field():
    rng = np.random.default_rng(3)
    x, group = rng.normal(size=1500), rng.integers(0, 40, 1500)
    with pm.Model():
        effect = pm.Normal("effect", 0, pm.HalfNormal("tau"), shape=40)
        eta = effect[group] + pm.Flat("slope") * x + pm.Normal("level")
        pm.Bernoulli("y", logit_p=eta, observed=(x > 0).astype(int))
        with pytest.raises(ValueError, match="no mode along .slope.*separate the responses perfectly"):
            pma.TunaMH()


def test_an_index_that_is_data():
    with pm.Model() as model:
        group = pm.Data("group", but(GROUP, 9, 40))
        pm.Normal("y", 2.0 * pm.Normal("effect", shape=40)[group], 1, observed=X)
    with pytest.raises(
        ValueError, match="^The index 'group' in row 9 of the term 'y' is 40, and .*'effect' has 40"
    ):
        pma.AusterityMH(model=model)


def test_indices_from_the_end_are_fine():
    assert type(pma.TunaMH(model=poisson(), vars=["level", "slope"])) is pma.TunaMH
    pma.factorise(groups(but(GROUP, 9, -1)))


def test_few_rows():
    model = poisson(X[:5], COUNTS[:5])
    assert isinstance(pma.recommend(model), pm.NUTS)
    with pytest.raises(ValueError, match="There is nothing to subsample.*'y' with 5 rows"):
        pma.TunaMH(model=model)
