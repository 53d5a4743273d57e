"""What cannot be sampled is refused, in a fixed order, by name."""

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_austerity import AusterityMH, FactorisationError, RandomWalk
from pymc_austerity.model.compile.backend import interpreted
from tests.models import as_model

from .conftest import N

pytestmark = [
    pytest.mark.usefixtures("interpreted"),
    pytest.mark.filterwarnings("ignore:total_size not provided"),
]
DATA = np.random.default_rng(102).normal(size=N)


def drawn(a):
    rng = pytensor.shared(np.random.default_rng(1))
    _, noise = pt.random.normal(size=N, rng=rng, return_next_rng=True)
    pm.Potential("drawn", a * noise)


def covariates(a):
    x, y = pm.Minibatch(DATA, DATA + 1, batch_size=1200)
    pm.Normal("y", a * x, 1.0, observed=y)


def few_scaled(a):
    pm.Normal("y", a, 1.0, observed=DATA)
    pm.Normal("few", a, 1.0, observed=DATA[:30], total_size=300)


def process(a):
    gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, pm.math.exp(a)))
    gp.marginal_likelihood("gp", X=DATA[:1100, None], y=DATA[:1100], sigma=1.0)


def batch():
    return pm.Minibatch(DATA, batch_size=1200)


# Faults that a model may have, each as a function that puts it in the model of the context.
FAULTS = {
    "discrete": lambda a: pm.Poisson("count", 3.0),
    "scaled": lambda a: pm.Normal("scaled", a, 1.0, observed=DATA, total_size=10 * N),
    "minibatch": lambda a: pm.Normal("batch", a, 1.0, observed=batch()),
    "both": lambda a: pm.Normal("both", a, 1.0, observed=batch(), total_size=N),
    "covariates": covariates,
    "drawn": drawn,
    "few scaled": few_scaled,
    # This comes before nothing to subsample.
    "only few scaled": lambda a: pm.Normal("y", a, 1.0, observed=DATA[:30], total_size=300),
    "coupled": lambda a: pm.Normal("coupled", pt.cumsum(a * DATA), 1.0, observed=DATA),
    "process": process,
    "short": lambda a: pm.Normal("short", a, 1.0, observed=DATA[:30]),
    "shorter": lambda a: pm.Normal("shorter", a, 1.0, observed=DATA[:20]),
}


@as_model
def model_with(*faults):
    a = pm.Normal("a")
    for fault in faults:
        FAULTS[fault](a)


class TestFirstVariables:
    def test_no_variables(self, line):
        with pytest.raises(ValueError, match="No free random variables"):
            AusterityMH([], model=line)

    def test_a_model_without_variables(self):
        with pm.Model() as model:
            pm.Normal("y", 0.0, 1.0, observed=DATA)
        with pytest.raises(ValueError, match="[Nn]o free"):
            AusterityMH(model=model)

    def test_a_variable_of_another_model(self, line):
        with pytest.raises(ValueError, match="not a free variable"):
            AusterityMH([model_with("short")["a"]], model=line)

    def test_a_variable_given_twice(self, line):
        with pytest.raises(ValueError, match="b.*(twice|more than once|repeated|duplicate)"):
            AusterityMH([line["b"], line["b"]], model=line)
        with pytest.raises(ValueError, match="b.*(twice|more than once|repeated|duplicate)"):
            AusterityMH([line["b"], line.rvs_to_values[line["b"]]], model=line)

    @pytest.mark.parametrize("given", ["named", "default"])
    def test_discrete(self, given):
        with pm.Model() as model:
            a = pm.Normal("a")
            k = pm.Poisson("count", 3.0)
            pm.Bernoulli("coin", 0.5)
            pm.Normal("y", a + k, 1.0, observed=DATA)
        chosen = [model["a"], model["count"]] if given == "named" else None
        with pytest.raises(ValueError, match="discrete: count") as caught:
            AusterityMH(chosen, model=model)
        assert ("coin" in str(caught.value)) == (given == "default")

    def test_discrete_variables_of_others_are_none_of_its_business(self):
        with pm.Model() as model:
            a = pm.Normal("a")
            pm.Normal("y", a + pm.Poisson("count", 3.0), 1.0, observed=DATA)
        step = AusterityMH([model["a"]], model=model, rng=1)
        assert step.step(model.initial_point())[1][0]["n_used"] > 0


RANDOM_OR_SCALED_OR_COUPLED = {
    "scaled": "'scaled'.*total_size",
    "minibatch": "'batch'.*Minibatch",
    "both": "'both'.*(total_size|Minibatch)",
    "covariates": "'y'.*Minibatch",
    "drawn": "'drawn'.*(random draw|Minibatch)",
    "few scaled": "'few'.*total_size",
    "only few scaled": "'y'.*total_size",
    "coupled": r"'coupled' \(2,000 rows\).*CumOp",
    "process": "'gp'",
}


@pytest.mark.parametrize("fault", RANDOM_OR_SCALED_OR_COUPLED)
def test_second_and_third_random_or_scaled_or_coupled_rows(fault):
    with pytest.raises(FactorisationError, match=RANDOM_OR_SCALED_OR_COUPLED[fault]):
        AusterityMH(model=model_with(fault))


def test_a_scaled_term_of_other_variables():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        pm.Normal("y", a, 1.0, observed=DATA)
        pm.Normal("z", b, 1.0, observed=DATA, total_size=10 * N)
    step = AusterityMH([a], model=model, rng=1)
    assert step.step(model.initial_point())[1][0]["n_used"] > 0


class TestFourthNothingToSubsample:
    def test_names_the_longest_term(self):
        with pytest.raises(ValueError, match="'short' with 30 rows.*threshold=1000") as caught:
            AusterityMH(model=model_with("short", "shorter"))
        assert not isinstance(caught.value, FactorisationError)

    @pytest.mark.parametrize(("shape", "said"), [(7, "7 rows"), ((), "1 row")])
    def test_prior_only(self, shape, said):
        with pm.Model() as model:
            pm.Normal("w", shape=shape)
        with pytest.raises(ValueError, match=f"'w' with {said}"):
            AusterityMH(model=model)

    def test_only_terms_of_the_block_count(self):
        with pm.Model() as model:
            a, b = pm.Normal("a"), pm.Normal("b")
            pm.Normal("y", a, 1.0, observed=DATA)
            pm.Normal("few", b, 1.0, observed=DATA[:40])
        with pytest.raises(ValueError, match="contains? b.*'few' with 40 rows"):
            AusterityMH([b], model=model)


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        (("discrete", "scaled"), "discrete: count"),
        (("discrete", "minibatch"), "discrete: count"),
        (("discrete", "coupled"), "discrete: count"),
        (("discrete", "short"), "discrete: count"),
        (("coupled", "scaled"), "total_size"),
        (("scaled", "coupled"), "total_size"),
        (("coupled", "minibatch"), "Minibatch"),
        (("coupled", "drawn"), "random draw"),
        (("short", "scaled"), "total_size"),
        (("short", "coupled"), "'coupled'"),
        (("coupled", "short"), "'coupled'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
)
@pytest.mark.covering(6)
def test_of_two_faults_the_first_in_the_order_is_named(faults, message):
    with pytest.raises(ValueError, match=message):
        AusterityMH(model=model_with(*faults))


def test_parameters_come_before_the_model():
    with pytest.raises(ValueError, match="^epsilon must be"):
        AusterityMH(model=model_with("coupled"), epsilon=0.7)


@pytest.fixture(scope="module")
@as_model
def bounded():
    """Rows of y have a density only below theta; theta itself only from 1 to 10."""
    y = np.random.default_rng(103).uniform(0.0, 3.0, N)
    y[[7, 1300]] = 3.9, 3.8
    theta = pm.Uniform("theta", 1.0, 10.0, default_transform=None)
    pm.Uniform("y", 0.0, theta, observed=y)


@pytest.fixture(scope="module")
def built(bounded):
    with interpreted():
        return AusterityMH(model=bounded, rng=1, batch_size=N, proposal=RandomWalk(scale=0.3))


class TestStart:
    """At the first step of a chain every term has to be finite."""

    @staticmethod
    def at(theta):
        return {"theta": np.array(theta)}

    @pytest.mark.parametrize(
        ("theta", "message"),
        [
            (3.7, r"'y' is -inf in rows \[7, 1300\] at the start"),
            (3.85, r"'y' is -inf in row 7 at the start"),
            (2.0, r"'y' is -inf in rows \[(\d+, ){4}\d+\], \.\.\. at the start"),
            (11.0, r"'theta' is -inf at the start"),
            (np.nan, r"'theta' is (nan|-inf)"),
        ],
    )
    def test_names_term_and_rows(self, built, theta, message):
        built.setup_chain(np.random.default_rng(1), 0, 10)
        with pytest.raises(ValueError, match=message):
            built.step(self.at(theta))

    def test_nan_in_the_data(self):
        x = DATA.copy()
        x[[3, 11]] = np.nan
        with pm.Model() as model:
            pm.Normal("y", pm.Normal("a") * x, 1.0, observed=DATA)
        step = AusterityMH(model=model, rng=1)
        with pytest.raises(
            ValueError, match=r"'y' is nan in rows 3, 11 .*a covariate .* is nan in rows 3, 11"
        ):
            step.step({"a": np.array(0.5)})

    def test_every_chain_is_checked_and_a_failed_one_does_not_spoil_the_next(self, built):
        results = []
        for theta in (5.0, 3.0, 5.0):
            built.setup_chain(np.random.default_rng(1), 0, 10)
            if theta == 3.0:
                with pytest.raises(ValueError, match="'y'"):
                    built.step(self.at(theta))
            else:
                results.append(built.step(self.at(theta))[0]["theta"])
        assert results[0] == results[1]

    def test_in_pm_sample(self, bounded, built, draw):
        with pytest.raises((ValueError, pm.exceptions.SamplingError), match="y"):
            draw(bounded, built, initvals={"theta": 3.7})
