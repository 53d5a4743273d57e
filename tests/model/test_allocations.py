"""Terms as functions of one allocation: right for models that have them, refused by name for others."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

from pymc_austerity import FactorisationError
from pymc_austerity.exceptions import SelfCheckError
from pymc_austerity.model.conjugacy.allocations import Allocations, number_of_categories

N, K = 40, 3
DATA = np.random.default_rng(1).normal(size=(N, 3))
Y = DATA[:, 0]

# Models with allocations `z` that are independent given the rest.
ACCEPTED = {
    "several_columns": lambda: pm.Normal("y", levels(3)[categories()], 1, observed=DATA),
    "columns_first": lambda: pm.Normal("y", levels(3)[categories()].T, 1, observed=DATA.T),
    "multivariate_rows": lambda: pm.MvNormal("y", levels(3)[categories()], np.eye(3) + 0.5, observed=DATA),
    "no_likelihood": lambda: categories(),
    "a_lookup_in_its_own_place": lambda: pm.Normal("y", levels()[categories()][np.arange(N)], 1, observed=Y),
    "normal_mixture": lambda: pm.Normal(
        "y", levels()[categories()], pm.HalfNormal("sigma", shape=K)[1], observed=Y
    ),
    "a_sum_in_a_potential": lambda: pm.Potential("fit", 2 - 0.5 * ((Y - levels()[categories()]) ** 2).sum()),
}
# Models with coupled allocations; the message names the term `fault` and says why.
REFUSED = {
    "through_the_sum": (
        lambda: pm.Potential("fault", -((categories().sum() - 10.0) ** 2)),
        "takes a vector of 40 numbers in full \\(operation Sum",
    ),
    "through_the_size_of_components": (
        lambda: pm.Potential("fault", -(pt.eq(categories()[:, None], np.arange(K)).sum(axis=0) ** 2)),
        "takes a vector of 40 numbers in full",
    ),
    "through_a_cumulated_sum": (
        lambda: pm.Normal("fault", pt.cumsum(categories()), 1, observed=Y),
        "accumulates over the rows",
    ),
    "in_another_order": (
        lambda: pm.Normal("fault", levels()[categories()[::-1]], 1, observed=Y),
        "row 0 of it reads z\\[39\\]",
    ),
    "two_rows_for_each": (
        lambda: pm.Normal("fault", levels()[categories()[np.arange(2 * N) // 2]], 1, observed=np.tile(Y, 2)),
        "it has 80 rows, and z has 40",
    ),
    "rows_without_data": (
        lambda: pm.Normal("fault", levels()[categories()[:30]], 1, observed=Y[:30]),
        "it does not consist of 40 terms",
    ),
}


def accepted(make):
    """A model with allocations `z` that are independent given the rest."""
    ACCEPTED[make.__name__] = make
    return make


def refused(reason):
    """A model with coupled allocations; the message names the term `fault` and says why."""

    def register(make):
        REFUSED[make.__name__] = make, reason
        return make

    return register


def categories(**kwargs):
    return pm.Categorical("z", p=pm.Dirichlet("w", np.ones(K)), **{"shape": N, **kwargs})


def levels(*shape):
    return pm.Normal("mu", 0, 2, shape=(K, *shape))


# Models -----------------------------------------------------------------------------------------


@accepted
def scales_and_means_by_component():
    z = categories()
    pm.Normal("y", levels()[z], pm.HalfNormal("sigma", shape=K)[z], observed=Y)


@accepted
def two_likelihoods():
    z = categories()
    pm.Normal("y", levels()[z], 1, observed=Y)
    pm.Poisson("counts", pt.exp(levels_of_rate()[z]), observed=np.arange(N) % 4)


def levels_of_rate():
    return pm.Normal("rate", 0, 1, shape=K)


@accepted
def probabilities_for_each_row():
    table = np.random.default_rng(2).dirichlet(np.ones(K), size=N)
    pm.Normal("y", levels()[pm.Categorical("z", p=table)], 1, observed=Y)


@accepted
def probabilities_from_a_regression():
    b = pm.Normal("b", 0, 1, shape=(3, K))
    pm.Normal("y", levels()[pm.Categorical("z", logit_p=DATA @ b)], 1, observed=Y)


@accepted
def probabilities_from_shared_data():
    table = pm.Data("table", np.random.default_rng(2).dirichlet(np.ones(K), size=N))
    pm.Normal("y", levels()[pm.Categorical("z", p=table)], 1, observed=pm.Data("data", Y))


@accepted
def by_other_allocations():
    u = pm.Categorical("u", p=np.ones(2) / 2, shape=N)
    table = pm.Dirichlet("w", np.ones((2, K)))
    pm.Normal("y", levels(2)[pm.Categorical("z", p=table[u]), u], 1, observed=Y)


@accepted
def above_other_allocations():
    z = categories()
    u = pm.Categorical("u", p=pm.Dirichlet("v", np.ones((K, 2)))[z], shape=N)
    pm.Normal("y", levels(2)[z, u], 1, observed=Y)


@accepted
def above_latent_values():
    """The prior of z_i's neighbour does not matter: x_i contains z_i only."""
    x = pm.Normal("x", levels()[categories()], 1, shape=N)
    pm.Normal("y", x, 0.1, observed=Y)


@accepted
def components_that_are_impossible():
    table = np.where(np.arange(N * K).reshape(N, K) % 4 == 0, 0.0, 1.0)
    z = pm.Categorical("z", p=table / table.sum(axis=1, keepdims=True))
    pm.Normal("y", levels()[z], 1, observed=Y)


@accepted
def dims():
    model = pm.modelcontext(None)
    model.add_coords({"row": range(N), "component": range(K)})
    mu = pm.Normal("mu", dims="component")
    w = pm.Dirichlet("w", np.ones(K), dims="component")
    pm.Deterministic("level", mu[pm.Categorical("z", p=w, dims="row")])
    pm.Normal("y", model["level"], 1, observed=Y, dims="row")


@accepted
def weights_longer_than_the_data():
    w = pm.Dirichlet("w", np.ones(2 * N))
    pm.Normal("y", pt.exp(pm.Normal("mu", shape=2 * N))[pm.Categorical("z", p=w, shape=N)], 1, observed=Y)


@refused("row 1 of it reads z\\[0\\]")
def hidden_markov_chain():
    z = categories()
    before = pt.concatenate([np.array([0]), z[:-1]])
    pm.Potential("fault", pt.log(pm.Dirichlet("P", np.ones((K, K)))[before, z]))


@refused("it does not consist of 40 terms, one for each row")
def hidden_markov_chain_without_a_start():
    z = categories()
    pm.Potential("fault", pt.log(pm.Dirichlet("P", np.ones((K, K)))[z[:-1], z[1:]]).sum())


@refused("reads z\\[")
def innovations_of_an_autoregression():
    mean = levels()[categories()]
    lagged = pt.concatenate([[0.0], Y[:-1] - mean[:-1]])
    pm.Normal("fault", mean + 0.5 * lagged, 1, observed=Y)


@refused("takes a vector of 40 numbers in full \\(operation Sum")
def through_the_mean():
    z = categories()
    pm.Normal("fault", z - z.mean(), 1, observed=Y)


@refused("depends on sampled variables")
def a_lookup_that_is_sampled():
    u = pm.Categorical("u", p=np.ones(N) / N, shape=N)
    pm.Normal("fault", levels()[categories()[u]], 1, observed=Y)


def built(make, **kwargs):
    with pm.Model() as model:
        make()
    value = model.rvs_to_values[model["z"]]
    return model, value, Allocations(model, value, model.initial_point(), check=True, **kwargs)


@pytest.mark.parametrize("name", ACCEPTED)
@np.errstate(divide="ignore")
@pytest.mark.covering(3)
def test_terms_change_as_the_log_density_does(name):
    model, _, found = built(ACCEPTED[name])
    n_categories = 2 * N if name == "weights_longer_than_the_data" else K
    assert (found.n_local, found.n_categories) == (N, n_categories)
    rng = np.random.default_rng(6)
    point = model.initial_point(random_seed=7)
    for v in model.continuous_value_vars:
        point[v.name] = point[v.name] + rng.uniform(-0.3, 0.3, np.shape(point[v.name]))
    point["z"] = z = rng.integers(K, size=N)
    if name == "components_that_are_impossible":
        point["z"] = z = np.where(np.arange(N) * K % 4 == 0, 1, 0)
    log_density = model.compile_logp()
    for i in rng.choice(N, 4, replace=False):
        ours = found.log_terms(point, np.arange(K), np.full(K, i))
        theirs = [log_density({**point, "z": np.where(np.arange(N) == i, k, z)}) for k in range(K)]
        ours, theirs = ours - ours.max(), np.array(theirs) - np.max(theirs)
        np.testing.assert_allclose(ours, theirs, rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", REFUSED)
def test_coupled_allocations_are_refused(name):
    make, reason = REFUSED[name]
    with pytest.raises(FactorisationError, match=f"(?s)'z'.*'fault'.*{reason}.*pm.CategoricalGibbs") as error:
        built(make)
    assert "threshold" not in str(error.value)
    assert "NUTS" not in str(error.value)


def test_few_weights_are_not_long_because_there_are_fewer_data():
    assert not built(weights_longer_than_the_data)[2].given


def test_the_terms_are_named():
    assert built(two_likelihoods)[2].term_names == ["z", "y", "counts"]


def test_given_z_only_what_it_needs_is_asked_for():
    found = built(above_latent_values)[2]
    assert found.term_names == ["z", "x"]
    assert sorted(found.other_names) == ["mu", "w_simplex__", "x"]


class TestPlantedFaults:
    def test_a_term_that_is_forgotten(self, monkeypatch):
        complete = Allocations._as_function_of_category

        def forgets(self, term, z):
            return complete(self, term, z) * float(term.name != "z")

        monkeypatch.setattr(Allocations, "_as_function_of_category", forgets)
        with pytest.raises(SelfCheckError, match="Self-check failed for the allocations 'z'"):
            built(probabilities_for_each_row)

    @pytest.mark.parametrize(
        "name", ["hidden_markov_chain", "in_another_order", "innovations_of_an_autoregression"]
    )
    def test_coupling_that_the_graph_does_not_show(self, name, monkeypatch):
        monkeypatch.setattr(Allocations, "_require_own_row", lambda *args: None)
        with pytest.raises(SelfCheckError, match="Self-check failed for the allocations 'z'"):
            built(REFUSED[name][0])


class TestVariable:
    @pytest.mark.parametrize(
        ("make", "message"),
        [
            (lambda: pm.Bernoulli("z", 0.3, shape=N), "a BernoulliRV, and must be a pm.Categorical"),
            (lambda: pm.Normal("z", 0, 1, shape=N), "a NormalRV, and must be a pm.Categorical"),
            (lambda: categories(shape=()), r"got shape \(\)"),
            (lambda: categories(shape=2), r"at least 3 allocations, got shape \(2,\)"),
            (lambda: categories(shape=(N, 2)), r"got shape \(40, 2\)"),
            (lambda: pm.Categorical("z", p=np.ones(1), shape=N), "has 1 category"),
        ],
        ids=["bernoulli", "normal", "scalar", "two", "table", "one_category"],
    )
    def test_others_are_refused(self, make, message):
        with pytest.raises(ValueError, match=f"'z'.*{message}"):
            built(make)

    @pytest.mark.parametrize("name", ["dims", "probabilities_from_a_regression", "by_other_allocations"])
    def test_number_of_categories(self, name):
        with pm.Model() as model:
            ACCEPTED[name]()
        value = model.rvs_to_values[model["z"]]
        assert number_of_categories(model, value, model.initial_point()) == K
