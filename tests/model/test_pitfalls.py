"""Models on which a factorisation could easily be wrong without a sign, found by reviewers."""

import warnings

import numpy as np
import pymc as pm
import pytensor
import pytensor.tensor as pt
import pytest
from pymc.logprob.basic import logp

from pymc_austerity import FactorisationError, factorise

N = 1500


def both(model, point):
    """The density of the factorisation and of PyMC."""
    fact = factorise(model)
    ours = fact.log_density_terms(point).sum() + fact.global_log_density(point)
    return ours, float(model.compile_logp()(point))


class TestInvalidParametersInOneRow:
    """PyMC makes every row of a checked vector -inf; a row here knows only its own parameters."""

    x = np.linspace(-1.0, 1.0, N)

    def model(self, add):
        with pm.Model() as model:
            b = pm.Normal("b")
            add(b, self.x)
        return model

    def zero_inflated(self, b, x):
        y = np.where(np.arange(N) % 2, 2, 0)
        y[0] = 0
        pm.ZeroInflatedPoisson("y", 0.7, 1.0 + b * x, observed=y)

    def hurdle(self, b, x):
        y = np.where(np.arange(N) % 2, 2, 0)
        y[0] = 0
        pm.HurdlePoisson("y", 0.7, 1.0 + b * x, observed=y)

    def plain(self, b, x):
        pm.Normal("y", 0.0, 1.0 + b * x, observed=np.zeros(N))

    def hidden_by_a_switch(self, b, x):
        terms = logp(pm.Normal.dist(0.0, 1.0 + b * x), np.zeros(N))
        pm.Potential("y", pt.switch(np.arange(N) == 0, 0.0, terms))

    @pytest.mark.parametrize("name", ["zero_inflated", "hurdle", "plain", "hidden_by_a_switch"])
    @pytest.mark.covering(2)
    def test_density_is_minus_infinity_where_pymc_says_so(self, name):
        model = self.model(getattr(self, name))
        for b, valid in ((0.5, True), (1.0005, False), (-1.0005, False)):
            ours, theirs = both(model, {"b": np.array(b)})
            assert np.isfinite(theirs) == valid
            np.testing.assert_allclose(ours, theirs, rtol=1e-10)

    def test_a_component_that_pymc_drops_is_minus_infinity_here(self):
        """The one documented difference: PyMC goes on without the invalid component."""

        def mixture(b, x):
            comps = [pm.Normal.dist(0.0, 1.0), pm.Normal.dist(0.0, 1.0 + b * x)]
            pm.Mixture("y", [0.5, 0.5], comps, observed=np.zeros(N))

        model = self.model(mixture)
        ours, theirs = both(model, {"b": np.array(0.5)})
        np.testing.assert_allclose(ours, theirs, rtol=1e-10)
        ours, theirs = both(model, {"b": np.array(1.0005)})
        assert ours == -np.inf
        assert np.isfinite(theirs)

    def test_a_check_on_rows_that_are_not_used_is_refused(self):
        def sliced(b, x):
            pm.Potential("part", logp(pm.Normal.dist(0.0, 1.0 + b * x), np.zeros(N))[1:])

        with pytest.raises(FactorisationError, match="'part'"):
            factorise(self.model(sliced))


@pytest.mark.parametrize("picked", [1200, 100], ids=["local", "global"])
def test_narrow_codes_do_not_wrap_around(picked):
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 31_000, picked).astype(np.int16)
    codes[-1] = 31_999
    with pm.Model() as model:
        z = pm.Normal("z", shape=40_000)
        pm.Normal("y", (z * 1.0)[8000:][pm.Data("codes", codes)], 1.0, observed=rng.normal(size=picked))
    point = {"z": rng.normal(size=40_000)}
    ours, theirs = both(model, point)
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_stack_of_scalars_by_group():
    rng = np.random.default_rng(2)
    codes = rng.integers(0, 3, N)
    with pm.Model() as model:
        a, b, c = (pm.Normal(n) for n in "abc")
        pm.Normal("y", pt.stack([a, b, c])[codes], 1.0, observed=rng.normal(size=N))
    ours, theirs = both(model, {"a": np.array(1.0), "b": np.array(-1.0), "c": np.array(0.3)})
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


def test_replaced_data_are_noticed():
    with pm.Model() as model:
        mu = pm.Normal("mu")
        pm.Normal("y", mu, 1.0, observed=pm.Data("seen", np.zeros(N)))
    fact = factorise(model)
    point = {"mu": np.array(0.0)}
    fact.log_density_terms(point)
    with model:
        pm.set_data({"seen": np.ones(N)})
    for call in (fact.log_density_terms, fact.global_log_density):
        with pytest.raises(ValueError, match="'seen'"):
            call(point)


def test_a_point_of_the_wrong_shape_is_refused():
    with pm.Model() as model:
        v = pm.Normal("v", shape=3)
        pm.Normal("y", v[np.arange(N) % 3], 1.0, observed=np.zeros(N))
    fact = factorise(model)
    with pytest.raises(ValueError, match=r"'v' must have shape \(3,\), got \(2,\)"):
        fact.log_density_terms({"v": np.zeros(2)})
    with pytest.raises(KeyError, match="'v'"):
        fact.log_density_terms({})


def test_unknown_operations_are_refused_by_name():
    with pm.Model() as model:
        a, b = pm.Normal("a"), pm.Normal("b")
        x = np.linspace(0, 1, N)
        pm.Normal("y", pt.choose(np.arange(N) % 2, [a * x, b * x]), 1.0, observed=np.zeros(N))
    with pytest.raises(FactorisationError, match="'y'"):
        factorise(model)
    with pm.Model() as model:
        phi = pm.ICAR("phi", W=np.array([[0, 1], [1, 0]]))
        pm.Normal("y", phi[np.arange(N) % 2], 1.0, observed=np.zeros(N))
    ours, theirs = both(model, {"phi": np.array([0.2, -0.2])})
    np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda m: factorise([m["a"]]), "model must be a pm.Model"),
        (
            lambda m: factorise(m, ["b"]),
            "'b' is not a free variable of the model: there is none of that name",
        ),
        (lambda m: factorise(m, []), "vars is empty"),
        (lambda m: factorise(m, [m["y"]]), "not a free variable"),
        (lambda m: factorise(m, [[m["a"]]]), "must be a variable, its name, or a list"),
        (lambda m: factorise(m, [m["a"], m["a"]]), "'a' was given twice"),
        (lambda m: factorise(m, threshold=2), "threshold must be"),
    ],
)
def test_wrong_arguments(wrong, said):
    with pm.Model() as model:
        a = pm.Normal("a")
        pm.Normal("y", a, 1.0, observed=np.zeros(N))
    with pytest.raises((TypeError, ValueError), match=said):
        wrong(model)


@pytest.mark.parametrize("number", [33, 70])
@pytest.mark.covering(1)
def test_more_coefficients_than_numpy_takes_operands(number):
    """Interpreted, a sum of more than 32 terms is an error of PyTensor's; the build checks all rows."""
    X = np.random.default_rng(9).normal(size=(1010, number))
    with pm.Model() as model:
        predictor = sum(pm.Normal(f"b{k}", 0, 1) * X[:, k] for k in range(number))
        pm.Normal("y", predictor, 1, observed=X[:, 0])
    split = factorise(model)
    assert split.local_terms == [("y", 1010)]
    assert len(split.global_terms) == number


def test_a_loop_over_rows_whose_parts_differ_in_length():
    """As BG/BB of pymc-marketing is written; it was evaluated for all rows at once, of one length."""
    with pm.Model() as model:
        a = pm.HalfNormal("a")
        lengths = pt.as_tensor(1 + np.arange(2000) % 5)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            sums, _ = pytensor.scan(
                lambda k, a: pt.log(pt.exp(-a * pt.arange(k)).sum()), sequences=[lengths], non_sequences=[a]
            )
        pm.Potential("y", sums)
    with pytest.raises(FactorisationError, match="'y' .* a loop over the rows that cannot be written"):
        factorise(model)
