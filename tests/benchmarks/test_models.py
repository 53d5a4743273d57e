"""Rows cost the same however many there are, for models of many kinds.

The rows are the same at every call: what is measured is the work, not how fast memory delivers rows that
were never read before. Compare N = 10000 with N = 1000000 within one group.
"""

import numpy as np
import pymc as pm
import pytensor.sparse as ps
import pytensor.tensor as pt
import pytest
from scipy.sparse import csr_matrix, random_array

from pymc_austerity import factorise
from pymc_austerity.model.starting_point import initial_point

RNG = np.random.default_rng(8)


def logistic(n):
    X = RNG.normal(size=(n, 5))
    pm.Bernoulli("y", logit_p=X @ pm.Normal("b", shape=5), observed=RNG.integers(2, size=n))


def varying_intercepts(n):
    group = RNG.integers(50, size=n)
    a = pm.Normal("a", 0, pm.HalfNormal("tau"), shape=50)
    pm.Normal("y", a[group], 1, observed=RNG.normal(size=n))


def mixture(n):
    w, mu = pm.Dirichlet("w", np.ones(3)), pm.Normal("mu", 0, 3, shape=3)
    pm.Mixture("y", w, pm.Normal.dist(mu, 1), observed=RNG.normal(size=n))


def ordinal(n):
    x, b = RNG.normal(size=n), pm.Normal("b")
    pm.OrderedLogistic("y", eta=b * x, cutpoints=[-1.0, 0.0, 1.0], observed=RNG.integers(4, size=n))


def multivariate(n):
    chol, *_ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1))
    pm.MvNormal("y", np.zeros(2), chol=chol, observed=RNG.normal(size=(n, 2)))


def topics(n):
    topic, word = RNG.integers(10, size=n), RNG.integers(30, size=n)
    phi = pm.Dirichlet("phi", np.ones(30), shape=(10, 30))
    pm.Categorical("y", p=phi[topic], observed=word)


def item_response(n):
    person, item = RNG.integers(n // 10, size=n), RNG.integers(20, size=n)
    ability, difficulty = pm.Normal("ability", shape=n // 10), pm.Normal("difficulty", shape=20)
    pm.Bernoulli("y", logit_p=ability[person] - difficulty[item], observed=RNG.integers(2, size=n))


def factors(n):
    u, v = RNG.integers(300, size=n), RNG.integers(400, size=n)
    A, B = pm.Normal("A", shape=(300, 2)), pm.Normal("B", shape=(400, 2))
    pm.Normal("y", (A @ B.T)[u, v], 1, observed=RNG.normal(size=n))


def ratings(n):
    rows, columns = n // 1000, 1000
    a, b = pm.Normal("a", shape=(rows, 1)), pm.Normal("b", shape=columns)
    pm.Normal("y", a + b, 1, observed=RNG.normal(size=(rows, columns)))


def autoregression(n):
    rho = pm.Normal("rho", 0, 0.3, shape=2)
    pm.AR("y", rho, sigma=1, init_dist=pm.Normal.dist(0, 1, shape=2), observed=RNG.normal(size=n))


def latent_walk(n):
    h = pm.GaussianRandomWalk("h", sigma=pm.HalfNormal("s"), init_dist=pm.Normal.dist(0, 1), steps=n - 1)
    pm.Normal("y", 0, pt.exp(h / 2), observed=RNG.normal(size=n))


def imputed(n):
    X = np.where(RNG.random((n, 3)) < 0.1, np.nan, RNG.normal(size=(n, 3)))
    X = pm.Normal("X", pm.Normal("mu", shape=3), 1, observed=np.ma.masked_invalid(X))
    pm.Normal("y", X @ pm.Normal("b", shape=3), 1, observed=RNG.normal(size=n))


def choice(n):
    utility = RNG.normal(size=(n, 3, 2)) @ pm.Normal("b", shape=2)
    pm.Categorical("y", logit_p=utility, observed=RNG.integers(3, size=n))


def flattened(n):
    effect = RNG.normal(size=(n // 4, 4, 2)) @ pm.Normal("b", shape=2)
    pm.Normal("y", effect.flatten(), 1, observed=RNG.normal(size=n))


def sparse(n):
    X = csr_matrix(random_array((n, 50), density=0.1, rng=np.random.default_rng(9)))
    product = ps.dot(ps.as_sparse_variable(X), pm.Normal("b", shape=50))
    pm.Normal("y", product, 1, observed=RNG.normal(size=n))


def network(n):
    X, W = RNG.normal(size=(n, 3)), pm.Normal("W", shape=(3, 4))
    pm.Normal("y", pt.tanh(X @ W) @ pm.Normal("v", shape=4), 1, observed=RNG.normal(size=n))


MODELS = [
    *(logistic, varying_intercepts, mixture, ordinal, multivariate, topics, item_response, factors),
    *(ratings, autoregression, latent_walk, imputed, choice, flattened, sparse, network),
]


@pytest.mark.filterwarnings("ignore:.*contains missing values", "ignore:PyTensor could not link to a BLAS")
@pytest.mark.parametrize("n", [10_000, 1_000_000], ids="N={}".format)
@pytest.mark.parametrize("build", MODELS, ids=lambda build: build.__name__)
def test_rows(benchmark, build, n):
    """500 rows of the likelihood, the last local term."""
    with pm.Model() as model:
        build(n)
    start = initial_point(model)
    split = factorise(model, initial_point=start)
    _, size = split.local_terms[-1]
    index = split.n_local - 1 - np.random.default_rng(1).integers(size, size=500)
    split.log_density_terms(start, index)
    benchmark.group = f"500 rows of {build.__name__}"
    benchmark(split.log_density_terms, start, index)
