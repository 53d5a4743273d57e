"""Hierarchies are found as people write them: priors, tables and rows are those of the graph."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest
from pytensor.tensor.random.basic import NormalRV

from pymc_austerity import factorise, work
from pymc_austerity.exceptions import SelfCheckError, SetUpBudgetError
from pymc_austerity.model.factorisation import pass_operations
from pymc_austerity.model.field import priors, rows
from pymc_austerity.model.field.find import Likelihood, find_field
from pymc_austerity.model.field.priors import NoField, Step
from tests.model.field import spellings
from tests.model.field.spellings import EFFECTS, OUTER, PREDICTORS, ROWS, G, H, N, g, h, outer, x, y
from tests.models import as_model

IN_MANY_ROWS = "nested", "student", "bym2", "random_walk", "splines"
# Each way of reading effects, with two priors; each prior, with six ways.
PAIRS = [(IN_MANY_ROWS[(k + j) % 5], predictor) for k, predictor in enumerate(ROWS) for j in (0, 2)]


ORDERED = pm.distributions.transforms.ordered
START = pm.MvNormal.dist(np.zeros(2), np.eye(2))


def found_in(define, threshold=100):
    """The field; `find_field` compares it with the graph at three points."""
    model = as_model(define)()
    return find_field(model, factorise(model, threshold=threshold))


def field_of(predictor, **options):
    return found_in(lambda: pm.Bernoulli("y", logit_p=predictor(), observed=y), **options)


@pytest.mark.parametrize("effects", EFFECTS)
def test_priors(effects):
    field = field_of(lambda: EFFECTS[effects]()[g])
    (likelihood,) = field.likelihoods
    assert len(likelihood.graph.scalars) == 1  # no number moves beside the predictor
    numbers = [table for table in field.tables if table.innovation is None]
    # Numbers of the data, times tau or s.
    scaled = "first_is_fixed_then_scaled", "about_a_regression_and_a_number_then_scaled"
    assert len(numbers) == (effects in scaled)


@pytest.mark.parametrize("predictor", ROWS)
def test_rows(predictor):
    (likelihood,) = field_of(lambda: ROWS[predictor](EFFECTS["not_centred_about_mu"]())).likelihoods
    assert len(likelihood.graph.scalars) == 1


@pytest.mark.parametrize("predictor", PREDICTORS)
def test_predictors(predictor):
    (likelihood,) = field_of(PREDICTORS[predictor]).likelihoods
    assert len(likelihood.graph.scalars) == 1


@pytest.mark.slow("the same rules, in other pairs")
@pytest.mark.parametrize(("effects", "predictor"), PAIRS)
def test_priors_and_rows(effects, predictor):
    assert field_of(lambda: ROWS[predictor](EFFECTS[effects]())).likelihoods


def test_any_size_against_the_threshold():
    (local,) = field_of(spellings.lkj_chol_z).likelihoods
    (short,) = field_of(spellings.lkj_chol_z, threshold=10_000).likelihoods
    positions = np.arange(N)
    for one, other in zip(local(positions), short(positions), strict=True):
        for table, same in zip(one.terms.values(), other.terms.values(), strict=True):
            np.testing.assert_array_equal(table[0], same[0])
            np.testing.assert_array_equal(table[1], same[1])


def test_several_likelihoods_of_the_same_effects():
    with pm.Model() as model:
        attack, defence = (
            pm.ZeroSumNormal(n, pm.HalfNormal(f"sd_{n}"), shape=G) for n in ("attack", "defence")
        )
        home = pm.Normal("home")
        for name, one, two in (("home_goals", g, (g + 1) % G), ("away_goals", (g + 1) % G, g)):
            pm.Poisson(name, pt.exp(home + attack[one] - defence[two]), observed=y)
    field = find_field(model, factorise(model, threshold=100))
    assert [one.term.name for one in field.likelihoods] == ["home_goals", "away_goals"]
    assert [table.name for table in field.tables] == ["home", "attack_zerosum__", "defence_zerosum__"]


@pytest.mark.parametrize(
    ("likelihood", "n_predictors"),
    [
        (lambda eta: pm.Normal("y", eta, pm.HalfNormal("s"), observed=x), 2),
        (lambda eta: pm.Normal("y", eta, pm.HalfNormal("s", shape=H)[h], observed=x), 2),
        (lambda eta: pm.NegativeBinomial("y", mu=pt.exp(eta), alpha=pm.Exponential("a", 1), observed=y), 2),
        (lambda eta: pm.StudentT("y", nu=4, mu=eta, sigma=pm.HalfNormal("s"), observed=x), 2),
        (lambda eta: pm.ZeroInflatedPoisson("y", psi=pm.Beta("psi", 1, 1), mu=pt.exp(eta), observed=y), 2),
    ],
)
def test_dispersions_are_predictors(likelihood, n_predictors):
    (found,) = found_in(lambda: likelihood(pm.Normal("mu") + EFFECTS["not_centred"]()[g])).likelihoods
    assert len(found.graph.scalars) == n_predictors


# Effects on another scale are normal on that on which they are sampled, or nearly so.
@pytest.mark.parametrize(
    "effects",
    [
        lambda: pm.LogNormal("u", pm.Normal("mu"), pm.HalfNormal("tau"), shape=G),
        lambda: pm.Gamma("u", pm.Exponential("a", 1), 2.0, shape=G),
        lambda: pm.Exponential("u", pm.Exponential("rate", 1), shape=G),
        lambda: pm.InverseGamma("u", 3.0, 2.0, shape=G),
    ],
    ids=["LogNormal", "Gamma", "Exponential", "InverseGamma"],
)
def test_positive_effects(effects):
    field = found_in(lambda: pm.Poisson("y", effects()[g], observed=y))
    assert any(table.name == "u_log__" and table.innovation is not None for table in field.tables)


def test_probabilities_of_groups():
    with pm.Model() as model:
        pm.Bernoulli("y", pm.Beta("u", 2, pm.Exponential("b", 1), shape=G)[g], observed=y)
    (likelihood,) = find_field(model, factorise(model, threshold=100)).likelihoods
    assert len(likelihood.graph.scalars) == 1


def test_other_terms_with_effects_are_told():
    """Potentials, variables that nothing depends on, and a likelihood of one row."""
    with pm.Model() as model:
        u = EFFECTS["centred_about_mu"]()
        pm.Bernoulli("y", logit_p=u[g], observed=y)
        pm.Potential("smooth", -((u[1:] - u[:-1]) ** 2).sum())
        pm.Normal("new", u[0], 1.0)
        pm.Normal("measured", model["mu"], 0.1, observed=0.3)
        pm.Normal("apart", 0, 1)
    assert find_field(model, factorise(model, threshold=100)).others == ("new", "measured", "smooth")


def test_rows_are_impossible_where_those_of_the_model_are():
    field = found_in(lambda: pm.Poisson("y", 1.0 + pm.Normal("u", 0, 1, shape=G)[g], observed=y))
    (table,), (likelihood,) = field.tables, field.likelihoods
    found, _ = likelihood.rows_at(np.arange(N), {table.input: np.full(G, -2.0)})
    assert (found == -np.inf).all()


def test_data_in_priors():
    with pm.Model() as model:
        groups, scale = pm.Data("groups", spellings.outer), pm.Data("scale", 2.5)
        v = pm.Normal("v", 0, scale, shape=spellings.OUTER)
        pm.Bernoulli("y", logit_p=pm.Normal("u", v[groups], 1.0, shape=G)[g], observed=y)
    assert [table.name for table in find_field(model, factorise(model, threshold=100)).tables] == ["u", "v"]


def test_passes_over_rows_are_counted():
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=EFFECTS["centred"]()[g], observed=y)
    fact = factorise(model, threshold=100)
    with work.budgeted(1e-9 * pass_operations(fact)):
        work.sized(N, 1, 0.0)
        with pytest.raises(SetUpBudgetError, match="The search for the hierarchy"):
            find_field(model, fact)


# What is refused -----------------------------------------------------------------------------------


def two_parameters():
    return pm.HalfNormal("a", shape=H)[h] * pm.Normal("ability", shape=G)[g]


def factor_model():
    return pm.Normal("loading", shape=H)[h] * pm.Normal("score", shape=G)[g]


def measured_groups():
    th = pm.Normal("th", shape=G)
    pm.Normal("measured", th[g], 1.0, observed=x)
    return pm.HalfNormal("slope") * th[g]


def one_element_with_two_scales():
    z, s = pm.Normal("z", shape=(G, 2)), pm.HalfNormal("s", shape=2)
    return s[0] * z[g, 0] + s[1] * (z[g, 1] + z[0, 0])


def latent_covariate():
    latent = pm.Normal("latent", 0, 1, shape=N)
    pm.Normal("measured", latent, 0.5, observed=x)
    return pm.Normal("b") * latent


@pytest.mark.parametrize(
    ("predictor", "names"),
    [
        (two_parameters, ("a", "ability")),
        (factor_model, ("loading", "score")),
        (latent_covariate, ("latent",)),
        (measured_groups, ("th",)),
        (one_element_with_two_scales, ("z",)),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_products_of_unknown_vectors_are_named(predictor, names):
    with pytest.raises(NoField, match="bilinear") as error:
        field_of(predictor)
    assert all(repr(name) in str(error.value) for name in names)


@pytest.mark.parametrize(
    ("predictor", "reason"),
    [
        (
            lambda: pt.cumsum(pm.Normal("u", pm.Normal("m"), 1, shape=G))[g],
            "location of 'u' is the same for several",
        ),
        (
            lambda: pm.Normal("u", shape=G)[pm.Categorical("k", np.ones(G) / G, shape=N)],
            "'k', on which rows depend",
        ),
        (lambda: pm.HalfNormal("s") * x, "whose prior has a rule: 's' has the prior HalfNormal"),
        (
            lambda: pm.Normal("u", shape=3, transform=ORDERED, initval=[-1.0, 0.0, 1.0])[g % 3],
            "'u' has the prior Normal, transformed by Ordered",
        ),
        (
            lambda: (pm.HalfNormal("s", shape=G) * pm.Normal("u", shape=OUTER)[outer])[g],
            "elements of 'u' are looked up, and each has several scales",
        ),
        (
            lambda: pm.MvStudentTRandomWalk("u", nu=4, mu=[0, 0], scale=np.eye(2), init_dist=START, steps=G)[
                g, 0
            ],
            "'u' has steps or a start that are not normal",
        ),
        (
            lambda: pm.AR("u", [0.1, 0.5], constant=True, init_dist=pm.Normal.dist(), shape=G)[g],
            "'u' has a constant term",
        ),
        (spellings.labelled_vectors_with_groups_last, "'u' has the prior MvNormal, with its dims in another"),
    ],
    ids=["location", "discrete", "no effects", "ordered", "scales", "vectors", "constant", "dims"],
)
def test_reasons(predictor, reason):
    with pytest.raises(NoField, match=reason):
        field_of(predictor)


def test_a_long_vector_without_a_rule_is_named():
    def predictor():
        return pm.Normal("v", shape=G)[g] + pm.Uniform("u", -1, 1, shape=250)[RNG.integers(0, 250, N)]

    RNG = np.random.default_rng(1)
    with pytest.raises(NoField, match="'u' has no rule, and it has 250 elements"):
        field_of(predictor)


# Planted faults --------------------------------------------------------------------------------------


def test_a_wrong_sign_is_found(monkeypatch):
    monkeypatch.setattr(
        rows, "added", lambda forms, signs, added=rows.added: added(forms, [1.0] * len(forms))
    )
    with pytest.raises(SelfCheckError, match="Self-check failed for the term 'y'"):
        field_of(lambda: ROWS["minus"](EFFECTS["centred"]()))


def test_a_transposed_index_is_found(monkeypatch):
    def transposed(shape):
        return np.arange(int(np.prod(shape))).reshape(shape[::-1]).T[..., None]

    monkeypatch.setattr(rows, "places_of", transposed)
    with pytest.raises(SelfCheckError, match="Self-check failed for the term 'y'"):
        field_of(PREDICTORS["two_indices"])


def test_a_dropped_column_is_found(monkeypatch):
    def dropped(self, axes, summed=rows.Form.summed):
        whole = summed(self, axes)
        return rows.Form(whole.offset, {t: (c[..., :-1], p[..., :-1]) for t, (c, p) in whole.terms.items()})

    monkeypatch.setattr(rows.Form, "summed", dropped)
    with pytest.raises(SelfCheckError, match="Self-check failed for the term 'y'"):
        field_of(spellings.columns_last)


def test_a_wrong_piece_of_a_term_is_found(monkeypatch):
    """A planted fault: rows of the second of two pieces of a potential are a little larger."""
    with pm.Model() as model:
        u = EFFECTS["centred"]()
        pm.Potential("p", -((x - u[g]) ** 2).sum() - ((x[:200] - u[h[:200]]) ** 2).sum())
    fact = factorise(model, threshold=100)
    assert [one.term.size for one in find_field(model, fact).likelihoods] == [N, 200]

    def larger(self, positions, tables, rows_at=Likelihood.rows_at):
        ours, size = rows_at(self, positions, tables)
        return ours + 1e-3 * (self.term.size == 200), size

    monkeypatch.setattr(Likelihood, "rows_at", larger)
    with pytest.raises(SelfCheckError, match="Self-check failed for the term 'p': the sum of its field"):
        find_field(model, fact)


def test_a_factor_of_two_in_a_prior_is_found(monkeypatch):
    def doubled(drawn, rule=priors.RULES[NormalRV]):
        found = rule(drawn)
        return priors.replace(found, steps=(*found.steps, Step("scale", pt.constant(2.0))))

    monkeypatch.setitem(priors.RULES, NormalRV, doubled)
    with pytest.raises(NoField, match="the prior of 'u' differs from its rule"):
        field_of(lambda: EFFECTS["centred"]()[g])
