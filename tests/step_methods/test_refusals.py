"""What cannot be sampled is refused, in a fixed order, by name."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest

from pymc_austerity import AusterityMH, FactorisationError, RandomWalk
from pymc_austerity.model.compile.backend import interpreted

from .conftest import N

pytestmark = pytest.mark.usefixtures("interpreted")
DATA = np.random.default_rng(102).normal(size=N)

# Faults that a model may have, each as a function that puts it in the model of the context.


def discrete(a):
    pm.Poisson("count", 3.0)
    return a


def scaled(a):
    pm.Normal("scaled", a, 1.0, observed=DATA, total_size=10 * N)


def minibatch(a):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="total_size not provided")
        pm.Normal("batch", a, 1.0, observed=pm.Minibatch(DATA, batch_size=1200))


def drawn(a):
    rng = pytensor.shared(np.random.default_rng(1))
    _, noise = pt.random.normal(size=N, rng=rng, return_next_rng=True)
    pm.Potential("drawn", a * noise)


def coupled(a):
    pm.Normal("coupled", pt.cumsum(a * DATA), 1.0, observed=DATA)


def short(a):
    pm.Normal("short", a, 1.0, observed=DATA[:30])


def shorter(a):
    pm.Normal("shorter", a, 1.0, observed=DATA[:20])


def model_with(*faults):
    with pm.Model() as model:
        a = pm.Normal("a")
        for fault in faults:
            fault(a)
    return model


class TestFirstVariables:
    def test_no_variables(self, line):
        with pytest.raises(ValueError, match="No free random variables"):
            AusterityMH([], model=line)

    def test_a_model_without_variables(self):
        with pm.Model() as model:
            pm.Normal("y", 0.0, 1.0, observed=DATA)
        with pytest.raises(ValueError, match="[Nn]o free"):
            AusterityMH(model=model)

    @pytest.mark.parametrize("name", ["y", "twice"])
    def test_not_a_free_variable(self, name):
        with pm.Model() as model:
            a = pm.Normal("a")
            pm.Deterministic("twice", 2 * a)
            pm.Normal("y", a, 1.0, observed=DATA)
        with pytest.raises(ValueError, match=f"{name}.*not a free variable.*free variables: a"):
            AusterityMH([model[name]], model=model)

    def test_a_variable_of_another_model(self, line):
        with pytest.raises(ValueError, match="not a free variable"):
            AusterityMH([model_with(short)["a"]], model=line)

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


class TestSecondRandomOrScaled:
    def test_total_size(self):
        with pytest.raises(FactorisationError, match="'scaled'.*total_size"):
            AusterityMH(model=model_with(scaled))

    def test_minibatch(self):
        with pytest.raises(FactorisationError, match="'batch'.*Minibatch"):
            AusterityMH(model=model_with(minibatch))

    def test_minibatch_with_total_size(self):
        with pm.Model() as model:
            a = pm.Normal("a")
            batch = pm.Minibatch(DATA, batch_size=1200)
            pm.Normal("both", a, 1.0, observed=batch, total_size=N)
        with pytest.raises(FactorisationError, match="'both'.*(total_size|Minibatch)"):
            AusterityMH(model=model)

    @pytest.mark.filterwarnings("ignore:total_size not provided")
    def test_minibatch_of_covariates(self):
        with pm.Model() as model:
            a = pm.Normal("a")
            x, y = pm.Minibatch(DATA, DATA + 1, batch_size=1200)
            pm.Normal("y", a * x, 1.0, observed=y)
        with pytest.raises(FactorisationError, match="'y'.*Minibatch"):
            AusterityMH(model=model)

    def test_random_draw(self):
        with pytest.raises(FactorisationError, match="'drawn'.*(random draw|Minibatch)"):
            AusterityMH(model=model_with(drawn))

    def test_in_a_short_term(self):
        with pm.Model() as model:
            a = pm.Normal("a")
            pm.Normal("y", a, 1.0, observed=DATA)
            pm.Normal("few", a, 1.0, observed=DATA[:30], total_size=300)
        with pytest.raises(FactorisationError, match="'few'.*total_size"):
            AusterityMH(model=model)

    def test_in_a_term_of_other_variables(self):
        with pm.Model() as model:
            a, b = pm.Normal("a"), pm.Normal("b")
            pm.Normal("y", a, 1.0, observed=DATA)
            pm.Normal("z", b, 1.0, observed=DATA, total_size=10 * N)
        step = AusterityMH([a], model=model, rng=1)
        assert step.step(model.initial_point())[1][0]["n_used"] > 0


class TestThirdCoupledRows:
    def test_names_term_and_operation(self):
        with pytest.raises(FactorisationError, match=r"'coupled' \(2,000 rows\).*CumOp"):
            AusterityMH(model=model_with(coupled))

    def test_a_gaussian_process(self):
        with pm.Model() as model:
            scale = pm.HalfNormal("scale")
            gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, scale))
            gp.marginal_likelihood("gp", X=DATA[:1100, None], y=DATA[:1100], sigma=1.0)
        with pytest.raises(FactorisationError, match="'gp'"):
            AusterityMH(model=model)


class TestFourthNothingToSubsample:
    def test_names_the_longest_term(self):
        with pytest.raises(ValueError, match="'short' with 30 rows.*threshold=1000") as caught:
            AusterityMH(model=model_with(short, shorter))
        assert not isinstance(caught.value, FactorisationError)

    def test_prior_only(self):
        with pm.Model() as model:
            pm.Normal("w", shape=7)
        with pytest.raises(ValueError, match="'w' with 7 rows"):
            AusterityMH(model=model)

    def test_scalars_only(self):
        with pm.Model() as model:
            pm.Normal("w")
        with pytest.raises(ValueError, match="'w' with 1 row"):
            AusterityMH(model=model)

    def test_only_terms_of_the_block_count(self):
        with pm.Model() as model:
            a, b = pm.Normal("a"), pm.Normal("b")
            pm.Normal("y", a, 1.0, observed=DATA)
            pm.Normal("few", b, 1.0, observed=DATA[:40])
        with pytest.raises(ValueError, match="contains? b.*'few' with 40 rows"):
            AusterityMH([b], model=model)

    def test_a_threshold_above_the_data(self, line):
        with pytest.raises(ValueError, match=f"'y' with {N} rows.*threshold={N + 1}"):
            AusterityMH([line["b"]], model=line, threshold=N + 1)

    def test_a_lower_threshold(self):
        step = AusterityMH(model=model_with(short), threshold=30, rng=1)
        assert step.step({"a": np.array(0.1)})[1][0]["n_used"] == 30


@pytest.mark.parametrize(
    ("faults", "message"),
    [
        ((discrete, scaled), "discrete: count"),
        ((discrete, minibatch), "discrete: count"),
        ((discrete, coupled), "discrete: count"),
        ((discrete, short), "discrete: count"),
        ((coupled, scaled), "total_size"),
        ((scaled, coupled), "total_size"),
        ((coupled, minibatch), "Minibatch"),
        ((coupled, drawn), "random draw"),
        ((short, scaled), "total_size"),
        ((short, coupled), "'coupled'"),
        ((coupled, short), "'coupled'"),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(f.__name__ for f in value),
)
@pytest.mark.covering(6)
def test_of_two_faults_the_first_in_the_order_is_named(faults, message):
    with pytest.raises(ValueError, match=message):
        AusterityMH(model=model_with(*faults))


def test_a_scaled_short_term_comes_before_nothing_to_subsample():
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("a"), 1.0, observed=DATA[:30], total_size=300)
    with pytest.raises(FactorisationError, match="'y'.*total_size"):
        AusterityMH(model=model)


def test_parameters_come_before_the_model():
    with pytest.raises(ValueError, match="^epsilon must be"):
        AusterityMH(model=model_with(coupled), epsilon=0.7)


@pytest.fixture(scope="module")
def bounded():
    """Rows of y have a density only below theta; theta itself only from 1 to 10."""
    y = np.random.default_rng(103).uniform(0.0, 3.0, N)
    y[[7, 1300]] = 3.9, 3.8
    with pm.Model() as model:
        theta = pm.Uniform("theta", 1.0, 10.0, default_transform=None)
        pm.Uniform("y", 0.0, theta, observed=y)
    return model


@pytest.fixture(scope="module")
def built(bounded):
    with interpreted():
        return AusterityMH(model=bounded, rng=1, batch_size=N, proposal=RandomWalk(scale=0.3))


class TestStart:
    """At the first step of a chain every term has to be finite."""

    @staticmethod
    def at(theta):
        return {"theta": np.array(theta)}

    def test_names_term_and_rows(self, built):
        built.setup_chain(np.random.default_rng(1), 0, 10)
        with pytest.raises(ValueError, match=r"'y' is -inf in rows \[7, 1300\] at the start"):
            built.step(self.at(3.7))

    def test_names_a_single_row(self, built):
        built.setup_chain(np.random.default_rng(1), 0, 10)
        with pytest.raises(ValueError, match=r"'y' is -inf in row 7 at the start"):
            built.step(self.at(3.85))

    def test_names_the_first_of_many_rows(self, built, bounded):
        built.setup_chain(np.random.default_rng(1), 0, 10)
        y = bounded.rvs_to_values[bounded["y"]].data
        first = np.flatnonzero(y > 2.0)[:5].tolist()
        message = rf"rows \[{', '.join(map(str, first))}\], \.\.\. at"
        with pytest.raises(ValueError, match=message):
            built.step(self.at(2.0))

    def test_names_a_global_term(self, built):
        built.setup_chain(np.random.default_rng(1), 0, 10)
        with pytest.raises(ValueError, match=r"'theta' is -inf at the start"):
            built.step(self.at(11.0))

    def test_nan(self, built):
        built.setup_chain(np.random.default_rng(1), 0, 10)
        with pytest.raises(ValueError, match=r"'theta' is (nan|-inf)"):
            built.step(self.at(np.nan))

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

    def test_every_chain_is_checked(self, built):
        for _ in range(2):
            built.setup_chain(np.random.default_rng(1), 0, 10)
            built.step(self.at(5.0))
        built.setup_chain(np.random.default_rng(1), 0, 10)
        with pytest.raises(ValueError, match="'y'"):
            built.step(self.at(3.0))

    def test_a_failed_chain_does_not_spoil_the_next(self, built):
        results = []
        for fail in (False, True):
            if fail:
                built.setup_chain(np.random.default_rng(1), 0, 10)
                with pytest.raises(ValueError, match="'y'"):
                    built.step(self.at(3.0))
            built.setup_chain(np.random.default_rng(1), 0, 10)
            results.append(built.step(self.at(5.0))[0]["theta"])
        assert results[0] == results[1]

    def test_in_pm_sample(self, bounded, built, draw):
        with pytest.raises((ValueError, pm.exceptions.SamplingError), match="y"):
            draw(bounded, built, initvals={"theta": 3.7})

    @pytest.mark.slow("builds and compiles several steps")
    def test_a_proposal_outside_the_support_is_rejected(self, built):
        """By the likelihood as soon as a row is seen (here: all rows are)."""
        built.setup_chain(np.random.default_rng(2), 0, 10)
        point, seen, stats = self.at(3.95), [], []
        for _ in range(1000):
            point, (stat,) = built.step(point)
            seen.append(float(point["theta"]))
            stats.append(stat)
        assert min(seen) > 3.9
        assert max(seen) < 10.0
        accepted = np.array([s["accepted"] for s in stats], dtype=bool)
        assert 0.001 < accepted.mean() < 0.98
        moved = np.diff([3.95, *seen]) != 0
        np.testing.assert_array_equal(moved, accepted)
        assert all(np.isfinite(s["log_ratio_mean"]) for s, ok in zip(stats, accepted, strict=True) if ok)

    def test_a_proposal_outside_the_prior_reads_no_data(self, built):
        point, unread = self.at(9.95), 0
        built.setup_chain(np.random.default_rng(3), 0, 10)
        for _ in range(100):
            new, (stat,) = built.step(point)
            if stat["n_used"] == 0:
                unread += 1
                assert not stat["accepted"]
                assert new["theta"] == point["theta"]
                assert stat["n_stages"] == 0
                assert stat["exhausted"] == 0
                assert stat["fraction_used"] == 0
        assert unread > 20
