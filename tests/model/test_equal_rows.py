"""Equal rows joined: the log density is that of all rows, and only rows with the same bytes are joined."""

import numpy as np
import pymc as pm
import pytensor.sparse
import pytensor.tensor as pt
import pytest
from scipy import sparse

from pymc_austerity import RowStore, factorise, stored_data
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.model import equal_rows
from pymc_austerity.model.equal_rows import said_of_joined, with_equal_rows_joined
from pymc_austerity.model.factorisation import CHUNK
from pymc_austerity.model.field.find import find_field, joined
from pymc_austerity.model.starting_point import require_finite
from tests.models import as_model

N, G = 3000, 40
RNG = np.random.default_rng(3)
X = RNG.integers(3, size=(N, 2)) / 2.0
GROUP = np.sort(RNG.integers(G, size=N))
EXPOSURE = RNG.integers(1, 4, size=N) / 2.0
COUNTS = RNG.poisson(EXPOSURE * np.exp(0.3 * X[:, 0]))
CLASSES = RNG.integers(4, size=N)
MEASURED = np.round(RNG.normal(size=N), 1)
SUCCESS = RNG.integers(2, size=N)


def predictor():
    return pm.Normal("level") + X @ pm.Normal("beta", shape=2)


@as_model
def bernoulli():
    pm.Bernoulli("y", logit_p=predictor(), observed=SUCCESS)


@as_model
def poisson():
    eta = pt.log(pm.Data("exposure", EXPOSURE)) + predictor()
    pm.Poisson("y", pm.math.exp(eta), observed=COUNTS)


@as_model
def negative_binomial():
    alpha = pm.Gamma("alpha", 2.0, 1.0)
    pm.NegativeBinomial("y", mu=EXPOSURE * pm.math.exp(predictor()), alpha=alpha, observed=COUNTS)


@as_model
def ordered():
    eta = X @ pm.Normal("beta", shape=2)
    pm.OrderedLogistic("y", eta=eta, cutpoints=pt.cumsum(pm.HalfNormal("cut", shape=3)), observed=CLASSES)


@as_model
def censored():
    normal = pm.Normal.dist(predictor(), pm.HalfNormal("sigma"))
    pm.Censored("y", normal, lower=-1.0, upper=1.0, observed=np.clip(MEASURED, -1.0, 1.0))


@as_model
def truncated():
    normal = pm.Normal.dist(predictor(), pm.HalfNormal("sigma"))
    pm.Truncated("y", normal, lower=-4.0, observed=MEASURED)


@as_model
def two_likelihoods():
    eta = predictor()
    pm.Bernoulli("y", logit_p=eta, observed=SUCCESS)
    pm.Potential("weighted", CLASSES * pm.logp(pm.Poisson.dist(pm.math.exp(eta)), COUNTS))


@as_model
def with_effects():
    effect = pm.Normal("effect", 0.0, pm.HalfNormal("tau"), shape=G)
    pm.Bernoulli("y", logit_p=predictor() + effect[GROUP], observed=SUCCESS)


@as_model
def columns():
    """Rows of data along the second axis."""
    pm.Bernoulli("y", logit_p=pm.math.dot(pm.Normal("beta", shape=2), pm.Data("X", X.T)), observed=SUCCESS)


@as_model
def multinomial():
    beta = pm.Normal("beta", shape=(2, 3))
    votes = np.random.default_rng(4).multinomial(2, np.ones(3) / 3, size=N)
    pm.Multinomial("y", n=2, p=pm.math.softmax(X @ beta, axis=-1), observed=votes)


MODELS = [
    bernoulli,
    poisson,
    negative_binomial,
    ordered,
    censored,
    truncated,
    two_likelihoods,
    with_effects,
    columns,
    multinomial,
]


def points(model, n=4):
    """The initial point of a model, moved."""
    rng = np.random.default_rng(5)
    start = model.initial_point()
    return [{k: v + 0.3 * rng.normal(size=np.shape(v)) for k, v in start.items()} for _ in range(n)]


def log_density(fact, point):
    return fact.log_density_terms(point).sum() + fact.global_log_density(point)


def is_same(model, fact):
    """Is a factorisation the log density of a model, to rounding?"""
    expected = model.compile_logp()
    return all(np.isclose(log_density(fact, p), expected(p), rtol=1e-12, atol=0.0) for p in points(model))


def kinds_of(*columns):
    """How many different rows some columns have, as NumPy finds them."""
    return len(np.unique(np.column_stack(columns), axis=0))


@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_the_density_is_that_of_all_rows(build):
    model = build()
    plain = factorise(model)
    fact = with_equal_rows_joined(plain)
    assert all(4 * after.size <= before.size for before, after in zip(plain.locals, fact.locals, strict=True))
    assert is_same(model, fact)
    assert fact.global_terms == plain.global_terms


def test_there_is_a_row_for_each_kind_and_it_is_said():
    plain = factorise(poisson())
    fact = with_equal_rows_joined(plain)
    n = kinds_of(X, EXPOSURE, COUNTS)
    assert fact.n_local == fact.n_rows == n
    assert said_of_joined(plain, fact) == [
        f"3,000 rows of 'y' are {n:,} different ones: each of these is read once, with a weight "
        f"({3000 / n:.0f} times fewer rows)."
    ]


def test_kinds_are_in_the_order_of_the_rows():
    """Rows in the order of groups remain so: `first` is where each kind is seen first."""
    (term,) = with_equal_rows_joined(factorise(with_effects())).locals
    assert (np.diff(term.first) > 0).all()
    _, first = np.unique(np.column_stack([X, GROUP, SUCCESS]), axis=0, return_index=True)
    assert term.first.tolist() == sorted(first)


def test_rows_of_a_field_are_joined():
    model = with_effects()
    field = find_field(model, factorise(model))
    other = joined(field)
    assert other.rows.n_local == kinds_of(X, GROUP, SUCCESS)
    tables = {name: RNG.normal(size=value.type.shape) for name, value in field.rows.graph.values.items()}
    expected = field.rows.log_density_terms(tables).sum()
    assert np.isclose(other.rows.log_density_terms(tables).sum(), expected, rtol=1e-12, atol=0.0)
    (likelihood,) = other.likelihoods
    by_input = {table.input: tables[table.input.name] for table in field.tables}
    rows, _ = likelihood.rows_at(np.arange(likelihood.term.size), by_input)
    assert np.isclose(rows.sum(), expected, rtol=1e-12, atol=0.0)


def test_rows_on_disk_are_joined(tmp_path):
    source = {"X": X.astype("float32"), "y": SUCCESS.astype("int8")}
    store = RowStore.write(source, tmp_path / "rows", chunk_rows=500)
    with pm.Model() as model:
        eta = pm.Normal("level") + stored_data("X", store["X"]) @ pm.Normal("beta", shape=2)
        pm.Bernoulli("y", logit_p=eta, observed=stored_data("z", store["y"]))
    fact = with_equal_rows_joined(factorise(model))
    assert fact.n_local == kinds_of(X, SUCCESS)
    assert is_same(bernoulli(), fact)


def test_many_rows_are_read_in_chunks():
    x = np.arange(5 * CHUNK + 7) % 1000 / 100.0
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("slope") * x, 3.0, observed=x > 5.0)
    fact = with_equal_rows_joined(factorise(model))
    assert fact.n_local == 1000
    assert is_same(model, fact)


# What is not joined ---------------------------------------------------------------------------------------


@as_model
def latent_rows():
    """A latent number of each row, whose elements are local terms, too."""
    pm.Bernoulli("y", logit_p=pm.Normal("latent", shape=N), observed=SUCCESS)


@as_model
def trend():
    pm.Bernoulli("y", logit_p=pm.Normal("level") + pm.Normal("slope") * pt.arange(N) / N, observed=SUCCESS)


@as_model
def random_walk():
    """Each row is a difference of neighbours."""
    pm.GaussianRandomWalk("walk", sigma=pm.HalfNormal("sigma"), init_dist=pm.Normal.dist(), shape=N)


@as_model
def sparse_design():
    design = pytensor.sparse.as_sparse_variable(sparse.csr_matrix(X))
    eta = pytensor.sparse.dot(design, pm.Normal("beta", shape=(2, 1)))
    pm.Bernoulli("y", logit_p=eta.flatten(), observed=SUCCESS)


@as_model
def only_numbers():
    """Rows have no data."""
    pm.Potential("y", -(pm.Normal("level") ** 2) * pt.ones(N))


@as_model
def one_kind():
    pm.Bernoulli("y", logit_p=pm.Normal("level") + np.zeros(N), observed=np.ones(N, int))


@as_model
def different():
    pm.Bernoulli("y", logit_p=pm.Normal("slope") * RNG.normal(size=N), observed=SUCCESS)


@pytest.mark.parametrize(
    "build", [latent_rows, trend, random_walk, sparse_design, only_numbers, one_kind, different]
)
def test_other_rows_stay_as_they_are(build):
    fact = factorise(build())
    assert fact.n_local >= N - 1
    assert with_equal_rows_joined(fact) is fact


def test_rows_are_equal_if_their_bytes_are():
    x = np.tile([0.0, -0.0, 1.0, np.nextafter(1.0, 2.0)], N // 4)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("slope") * x, observed=np.zeros(N))
    fact = with_equal_rows_joined(factorise(model))
    assert fact.n_local == 4
    assert is_same(model, fact)


def test_one_term_is_joined_and_another_is_not():
    with pm.Model() as model:
        eta = predictor()
        pm.Bernoulli("y", logit_p=eta, observed=SUCCESS)
        pm.Normal("z", eta, observed=RNG.normal(size=N))
    fact = with_equal_rows_joined(factorise(model))
    assert fact.local_terms == [("y", kinds_of(X, SUCCESS)), ("z", N)]
    assert is_same(model, fact)


@pytest.mark.parametrize(("n_kinds", "is_joined"), [(12_000, True), (60_000, False)])
def test_some_rows_tell_how_many_kinds_there_are(monkeypatch, n_kinds, is_joined):
    """A quarter of 100,000 rows are 25,000, which is more than the rows that are looked at."""
    n, read = 100_000, []
    x = np.random.default_rng(6).integers(n_kinds, size=n) / n_kinds
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("slope") * x, observed=np.zeros(n))
    monkeypatch.setattr(equal_rows.work, "spend", lambda operations, what: read.append(operations))
    fact = with_equal_rows_joined(factorise(model))
    assert fact.n_local == (len(np.unique(x)) if is_joined else n)
    assert bool(read) == is_joined


def test_it_gives_up_where_rows_are_fewer_than_they_seemed(monkeypatch):
    """Kinds of the first rows, as they are looked at, are few; the others are all different."""
    x = np.append(np.zeros(60_000), np.arange(40_000) + 1.0)
    with pm.Model() as model:
        pm.Normal("y", pm.Normal("slope") * x, observed=np.zeros(len(x)))
    monkeypatch.setattr(equal_rows, "_estimated", lambda counts: 2.0)
    fact = factorise(model)
    assert with_equal_rows_joined(fact) is fact


def test_a_row_that_is_not_finite_has_its_own_number():
    """Of two rows that are equal, and impossible, the first is named."""
    x, y = X[:, 0].copy(), SUCCESS.copy()
    x[[1234, 2000]], y[[1234, 2000]] = 0.5, 2
    with pm.Model() as model:
        pm.Bernoulli("y", logit_p=pm.Normal("level") + x, observed=y)
    with pytest.raises(UnsuitableError, match="in row 1234 at"):
        require_finite(with_equal_rows_joined(factorise(model)), model.initial_point())


# Planted faults -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", ["no weights", "weights of other kinds", "data are left out"])
def test_a_planted_fault_is_noticed(monkeypatch, fault):
    kinds, of_rows = equal_rows._kinds, equal_rows._bytes

    def wrong(data, n_rows):
        first, counts = kinds(data, n_rows)
        return first, np.ones(len(counts)) if fault == "no weights" else counts[::-1].copy()

    if fault == "data are left out":
        monkeypatch.setattr(equal_rows, "_bytes", lambda data: of_rows(data[:1]))
    else:
        monkeypatch.setattr(equal_rows, "_kinds", wrong)
    model = bernoulli()
    assert not is_same(model, with_equal_rows_joined(factorise(model)))
