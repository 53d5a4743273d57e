"""More models for `factorise`: other distributions, and graphs that invite a wrong split.

None may be split wrongly, or end in another error than a refusal. Importing this module adds them to
`catalogue.MODELS`.
"""

import warnings

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
from pymc.model.transform.optimization import freeze_model
from pymc.pytensorf import collect_default_updates
from pytensor import sparse
from pytensor.conditional.op import ifelse
from scipy.sparse import csr_matrix

from .catalogue import MODELS, Entry, columns, not_finite, optional, refused_so_far, required


def ring(n):
    """Adjacency matrix of a circle of n nodes."""
    W = np.roll(np.eye(n), 1, axis=1)
    return W + W.T


# Distributions: name, parameters from (eta, s), support. eta is a linear predictor, s > 0.

DISTRIBUTIONS = [
    ("AsymmetricLaplace", lambda eta, s: {"kappa": s, "mu": eta, "b": 1}, "real"),
    ("Cauchy", lambda eta, s: {"alpha": eta, "beta": s}, "real"),
    ("ChiSquared", lambda eta, s: {"nu": s * pt.exp(eta)}, "positive"),
    ("DiscreteWeibull", lambda eta, s: {"q": pm.math.invlogit(eta), "beta": s}, "count"),
    ("ExGaussian", lambda eta, s: {"mu": eta, "sigma": 1, "nu": s}, "real"),
    ("Geometric", lambda eta, s: {"p": pm.math.invlogit(eta)}, "positive count"),
    ("Gumbel", lambda eta, s: {"mu": eta, "beta": s}, "real"),
    ("HalfCauchy", lambda eta, s: {"beta": s * pt.exp(eta)}, "positive"),
    ("HalfStudentT", lambda eta, s: {"nu": 3, "sigma": s * pt.exp(eta)}, "positive"),
    ("HurdleGamma", lambda eta, s: {"psi": 0.8, "alpha": s, "beta": pt.exp(eta)}, "positive"),
    ("HurdlePoisson", lambda eta, s: {"psi": pm.math.invlogit(eta), "mu": s}, "count"),
    ("InverseGamma", lambda eta, s: {"alpha": s, "beta": pt.exp(eta)}, "positive"),
    ("Kumaraswamy", lambda eta, s: {"a": pt.exp(eta), "b": s}, "unit"),
    ("Logistic", lambda eta, s: {"mu": eta, "s": s}, "real"),
    ("LogitNormal", lambda eta, s: {"mu": eta, "sigma": s}, "unit"),
    ("Moyal", lambda eta, s: {"mu": eta, "sigma": s}, "real"),
    ("Pareto", lambda eta, s: {"alpha": s * pt.exp(eta), "m": 1e-6}, "positive"),
    ("Rice", lambda eta, s: {"nu": pt.exp(eta), "sigma": s}, "positive"),
    ("SkewNormal", lambda eta, s: {"mu": eta, "sigma": s, "alpha": 2}, "real"),
    ("SkewStudentT", lambda eta, s: {"a": 2, "b": 3, "mu": eta, "sigma": s}, "real"),
    ("Triangular", lambda eta, s: {"lower": -9, "upper": 9, "c": pt.tanh(eta)}, "real"),
    ("TruncatedNormal", lambda eta, s: {"mu": eta, "sigma": s, "lower": 0}, "positive"),
    ("VonMises", lambda eta, s: {"mu": eta, "kappa": s}, "real"),
    ("Wald", lambda eta, s: {"mu": pt.exp(eta), "lam": s}, "positive"),
    (
        "ZeroInflatedBinomial",
        lambda eta, s: {"psi": 0.7, "n": 30, "p": pm.math.invlogit(eta)},
        "count",
    ),
    (
        "ZeroInflatedNegativeBinomial",
        lambda eta, s: {"psi": 0.7, "mu": pt.exp(eta), "alpha": s},
        "count",
    ),
]


def observations(support, rng, n):
    if support == "real":
        return np.clip(rng.normal(size=n), -3, 3)
    if support == "positive":
        return rng.gamma(2, 1, size=n)
    if support == "unit":
        return rng.uniform(0.01, 0.99, size=n)
    return rng.poisson(2, size=n) + (support == "positive count")


def add_distribution(number, name, parameters, support):
    def build():
        rng, X = columns(1260 + number, 2, 200 + number)
        with pm.Model() as model:
            beta = pm.Normal("beta", 0, 0.3, shape=2)
            s = pm.Gamma("s", 20, 10)
            y = observations(support, rng, len(X))
            getattr(pm, name)("y", **parameters(X @ beta, s), observed=y)
        return model, ["s"]

    build.__name__ = f"distribution_{name}"
    MODELS.append(Entry(build))


for number, row in enumerate(DISTRIBUTIONS):
    add_distribution(number, *row)


@optional
def dirichlet_multinomial_rows():
    rng = np.random.default_rng(300)
    with pm.Model() as model:
        a = pm.HalfNormal("a", 3, shape=4)
        y = rng.multinomial(12, np.ones(4) / 4, size=1320)
        pm.DirichletMultinomial("y", 12, a, observed=y)
    return model, ["a"]


@optional
def dirichlet_rows():
    rng = np.random.default_rng(301)
    with pm.Model() as model:
        a = pm.HalfNormal("a", 3, shape=3)
        pm.Dirichlet("y", a, observed=rng.dirichlet([1, 2, 3], size=1321))
    return model, None


@optional
def multivariate_student_rows():
    rng = np.random.default_rng(302)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        nu = pm.Gamma("nu", 20, 2)
        pm.MvStudentT("y", nu, mu=mu, Sigma=np.eye(2), observed=rng.normal(size=(1322, 2)))
    return model, ["nu"]


@optional
def covariance_per_row():
    rng, X = columns(1323, 1, 303)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 0.1)
        scale = pt.exp(b * X[:, 0])[:, None, None]
        cov = scale * np.array([[2.0, 0.5], [0.5, 1.0]])
        pm.MvNormal("y", np.zeros(2), cov, observed=rng.normal(size=(1323, 2)))
    return model, None


@optional
def ordered_probit():
    rng, X = columns(1324, 2, 304)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        y = rng.integers(3, size=1324)
        pm.OrderedProbit("y", X @ beta, np.array([-0.5, 0.5]), compute_p=False, observed=y)
    return model, None


@optional
def custom_dist_from_random_variables():
    def dist(mu, sigma, size):
        return pm.math.exp(pm.Normal.dist(mu, sigma, size=size))

    rng, X = columns(1325, 2, 305)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        y = rng.lognormal(size=1325)
        pm.CustomDist("y", X @ beta, 1.0, dist=dist, observed=y)
    return model, None


@optional
def mixture_of_two_families():
    rng = np.random.default_rng(306)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(2))
        rate = pm.HalfNormal("rate", 1)
        parts = [pm.Exponential.dist(rate), pm.LogNormal.dist(0, 1)]
        pm.Mixture("y", w, parts, observed=rng.gamma(2, 1, size=1326))
    return model, ["rate"]


# Shapes


@optional
def column_vector_of_observations():
    rng, X = columns(1330, 3, 310)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(3, 1))
        pm.Normal("y", X @ beta, 1, observed=rng.normal(size=(1330, 1)))
    return model, None


@optional
def three_axes_of_observations():
    rng = np.random.default_rng(311)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=(2, 1))
        sigma = pm.HalfNormal("sigma", 1, shape=3)
        pm.Normal("y", mu, sigma, observed=rng.normal(size=(1331, 2, 3)))
    return model, None


@optional
def rows_on_the_middle_axis():
    rng = np.random.default_rng(312)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=(2, 1, 1))
        sigma = pm.HalfNormal("sigma", 1, shape=3)
        pm.Normal("y", mu, sigma, observed=rng.normal(size=(2, 1332, 3)))
    return model, None


@optional
def two_long_axes():
    rng = np.random.default_rng(313)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=rng.normal(size=(1100, 1150)))
    return model, None


@optional
def square_of_observations():
    rng, X = columns(1101, 1, 314)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        b = pm.Normal("b", 0, 1)
        mu = a * X + b * X.T
        pm.Normal("y", mu, 1, observed=rng.normal(size=(1101, 1101)))
    return model, None


@optional
def same_value_in_every_row():
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        pm.Potential("p", pt.alloc(-(a**2), 1333))
    return model, None


@optional
def small_integers():
    rng = np.random.default_rng(315)
    with pm.Model() as model:
        X = pm.Data("X", rng.integers(0, 250, size=(1334, 2)).astype("uint8"))
        beta = pm.Normal("beta", 0, 0.01, shape=2)
        eta = X @ beta / 250 + (X[:, 0] + X[:, 1]) / 1000  # the sum wraps at 256
        pm.Bernoulli("y", logit_p=eta, observed=rng.random(1334) < 0.5)
    return model, None


@optional
def terms_without_parameters():
    rng = np.random.default_rng(317)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1335))
        pm.Normal("z", 0, 1, observed=rng.normal(size=1336))
        pm.Poisson("w", 2, observed=rng.poisson(2, size=9))
        pm.Potential("p", pt.as_tensor(-3.0))
    return model, ["mu"]


@optional
def many_rows():
    rng = np.random.default_rng(316)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.Normal("y", mu, 1, observed=rng.normal(size=150_001))
    return model, None


# Selections


@optional
def negative_group_numbers():
    rng = np.random.default_rng(320)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=10)
        g = rng.integers(-10, 10, size=1340)
        pm.Normal("y", theta[g], 1, observed=rng.normal(size=1340))
    return model, ["theta"]


@optional
def crossed_groups():
    rng = np.random.default_rng(321)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=(20, 30))
        g, h = rng.integers(20, size=1341), rng.integers(30, size=1341)
        mu = theta[g, h] + theta[:, h][3] + theta.T[h, 5]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1341))
    return model, ["theta"]


@optional
def several_groups_per_row():
    rng = np.random.default_rng(322)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=30)
        members = rng.integers(30, size=(1342, 3))
        mu = theta[members].mean(axis=1) + theta[members.T][0]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1342))
    return model, None


@optional
def selections_separated_by_a_slice():
    rng = np.random.default_rng(323)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=(5, 2, 7))
        g, h = rng.integers(5, size=1343), rng.integers(7, size=1343)
        pm.Normal("y", theta[g, :, h], 1, observed=rng.normal(size=(1343, 2)))
    return model, None


@optional
def chosen_column_per_row():
    rng, X = columns(1344, 3, 324)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(3, 4))
        choice = rng.integers(4, size=1344)
        eta = pm.math.log_softmax(X @ beta, axis=1)
        pm.Potential("likelihood", eta[np.arange(1344), choice].sum())
    return model, None


@optional
def strided_predictor():
    rng, X = columns(3700, 2, 325)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        mu = (X @ beta)[10:-5:3] - (X @ beta)[-1:-3686:-3]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1229))
    return model, None


@optional
def rolled_predictor():
    rng, X = columns(1346, 2, 326)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("y", pt.roll(X @ beta, 7), 1, observed=rng.normal(size=1346))
    return model, None


@optional
def long_latents_twice_selected():
    rng = np.random.default_rng(327)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=1347)
        first, second = rng.integers(1347, size=2500), rng.integers(2500, size=1800)
        mu = pt.exp(0.1 * theta[first])[second]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1800))
    return model, None


@optional
def one_long_latent_in_every_row():
    rng = np.random.default_rng(328)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=1348)
        mu = theta + theta[0] + pt.exp(theta)[-2]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1348))
    return model, None


@optional
def discrete_latents():
    rng = np.random.default_rng(329)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(3))
        mu = pm.Normal("mu", [-2, 0, 2], 1)
        z = pm.Categorical("z", w, shape=1349)
        pm.Normal("y", mu[z], 1, observed=rng.normal(size=1349))
    return model, ["mu", "w"]


@optional
def slopes_by_searching_knots():
    rng, X = columns(1350, 1, 330)
    with pm.Model() as model:
        knots = pm.Normal("knots", [-1, 0, 1], 0.2)
        slope = pm.Normal("slope", 0, 1, shape=4, initval=rng.normal(size=4))
        mu = slope[pt.searchsorted(knots, X[:, 0])] * X[:, 0]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1350))
    return model, ["slope"]


# Shapes that depend on a parameter


@refused_so_far
def slice_up_to_a_parameter():
    y = np.random.default_rng(331).normal(size=2410)
    with pm.Model() as model:
        tau = pm.DiscreteUniform("tau", 1050, 1350)
        a = pm.Normal("a", 0, 1)
        before = pm.logp(pm.Normal.dist(a, 1), pt.as_tensor(y)[:tau])
        after = pm.logp(pm.Normal.dist(2 * a + 1, 1), pt.as_tensor(y)[tau:])
        pm.Potential("likelihood", before.sum() + after.sum())
    return model, ["tau"]


@refused_so_far
def predictor_joined_at_a_parameter():
    y = np.random.default_rng(332).normal(size=2411)
    with pm.Model() as model:
        tau = pm.DiscreteUniform("tau", 1050, 1350)
        a = pm.Normal("a", 0, 1)
        b = pm.Normal("b", 0, 1, initval=2)
        mu = pt.concatenate([pt.full((tau,), a), pt.full((2411 - tau,), b)])
        pm.Normal("y", mu, 1, observed=y)
    return model, ["tau"]


@refused_so_far
def short_slice_up_to_a_parameter():
    rng = np.random.default_rng(337)
    y, z = rng.normal(size=300), rng.normal(size=1360)
    with pm.Model() as model:
        tau = pm.DiscreteUniform("tau", 100, 200)
        a = pm.Normal("a", 0, 1)
        pm.Potential("p", pm.logp(pm.Normal.dist(a, 1), pt.as_tensor(y)[:tau]).sum())
        pm.Normal("z", a, 1, observed=z)
    return model, ["tau"]


@refused_so_far
def as_many_rows_as_a_parameter():
    with pm.Model() as model:
        tau = pm.DiscreteUniform("tau", 1050, 1350)
        a = pm.Normal("a", 0, 1, initval=1)
        pm.Potential("p", pt.alloc(-(a**2), tau))
    return model, ["tau"]


@refused_so_far
def row_numbers_up_to_a_parameter():
    with pm.Model() as model:
        tau = pm.DiscreteUniform("tau", 1050, 1350)
        a = pm.Normal("a", 0, 1, initval=1)
        pm.Potential("p", -pt.sum((a - pt.arange(tau) / 1000) ** 2))
    return model, ["tau"]


@refused_so_far
def assignment_up_to_a_parameter():
    y = np.random.default_rng(333).normal(size=1361)
    with pm.Model() as model:
        tau = pm.DiscreteUniform("tau", 100, 200)
        a = pm.Normal("a", 0, 1)
        mu = pt.set_subtensor(pt.zeros(1361)[:tau], a)
        pm.Normal("y", mu, 1, observed=y)
    return model, ["tau"]


@refused_so_far
def lag_of_a_parameter():
    rng, X = columns(1400, 1, 334)
    with pm.Model() as model:
        lag = pm.DiscreteUniform("lag", 5, 25)
        b = pm.Normal("b", 0, 1, initval=1)
        mu = b * pt.as_tensor(X[:, 0])[lag : lag + 1362]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1362))
    return model, ["lag"]


@refused_so_far
def rows_selected_by_a_parameter():
    _, X = columns(4000, 1, 335)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        eta = a + X[:, 0]
        pm.Potential("positive", -pt.sum(eta[eta > 0] ** 2))
    return model, None


@refused_so_far
def rows_selected_by_their_number():
    _, X = columns(4001, 1, 336)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        eta = a + X[:, 0]
        pm.Potential("positive", -pt.sum(eta[(eta > 0).nonzero()[0]] ** 2))
    return model, None


# Assignments


@optional
def assigned_columns():
    rng, X = columns(1370, 2, 340)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, initval=0.5)
        b = pm.Normal("b", 0, 1, initval=-0.5)
        eta = pt.set_subtensor(pt.zeros((1370, 3))[:, 0], a * X[:, 0])
        eta = pt.inc_subtensor(eta[:, 1:], (b * X[:, 1])[:, None])
        pm.Categorical("y", logit_p=eta, observed=rng.integers(3, size=1370))
    return model, ["b"]


@optional
def assigned_backwards():
    rng, X = columns(1371, 2, 341)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2, initval=[1, 2])
        mu = pt.set_subtensor((X @ beta)[::-3], beta[0] * np.arange(457) / 100)
        mu = pt.set_subtensor(mu[-1], beta[1])
        pm.Normal("y", mu, 1, observed=rng.normal(size=1371))
    return model, None


@optional
def assigned_by_a_mask():
    rng, X = columns(1372, 1, 342)
    x = X[:, 0]
    mask = x > 0.3
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, initval=1)
        b = pm.Normal("b", 0, 1, initval=2)
        mu = pt.set_subtensor((a * x)[mask], b * x[mask] ** 2)
        mu = pt.set_subtensor(mu[~mask & (x < -1)], a * b)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1372))
    return model, ["b"]


@optional
def incremented_twice():
    rng, X = columns(1373, 1, 343)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, initval=1)
        mu = pt.inc_subtensor((a * X[:, 0])[np.array([3, 3, 1000, -370])], a)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1373))
    return model, None


@optional
def accumulated_by_group():
    rng = np.random.default_rng(344)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=5000)
        g = rng.integers(1374, size=5000)
        totals = pt.inc_subtensor(pt.zeros(1374)[g], theta)
        pm.Normal("y", totals, 1, observed=rng.normal(size=1374))
    return model, None


# Linear algebra and loops


@optional
def correlated_slopes():
    rng, X = columns(1380, 1, 350)
    g = rng.integers(40, size=1380)
    with pm.Model() as model:
        sd = pm.Exponential.dist(1, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sd)
        z = pm.Normal("z", 0, 1, shape=(2, 40))
        theta = pm.Deterministic("theta", (chol @ z).T)
        pm.Normal("y", theta[g, 0] + theta[g, 1] * X[:, 0], 1, observed=rng.normal(size=1380))
    return model, ["chol"]


@optional
def multivariate_latents():
    rng = np.random.default_rng(351)
    with pm.Model() as model:
        sd = pm.Exponential.dist(1, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sd)
        theta = pm.MvNormal("theta", np.zeros(2), chol=chol, shape=(1381, 2))
        pm.Normal("y", theta[:, 0] - theta[:, 1], 1, observed=rng.normal(size=1381))
    return model, ["chol"]


@optional
def product_per_row():
    rng, X = columns(1382, 3, 352)
    g = rng.integers(20, size=1382)
    with pm.Model() as model:
        B = pm.Normal("B", 0, 1, shape=(20, 3, 2))
        mu = (X[:, None, :] @ B[g])[:, 0]
        pm.Normal("y", mu, 1, observed=rng.normal(size=(1382, 2)))
    return model, None


@optional
def tensor_products():
    rng = np.random.default_rng(353)
    X = rng.normal(size=(1383, 2, 3))
    with pm.Model() as model:
        B = pm.Normal("B", 0, 1, shape=(2, 3))
        mu = pt.tensordot(X, B, axes=2) + pt.einsum("nij,ij->n", pt.as_tensor(X), B)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1383))
    return model, None


@refused_so_far
def long_times_long():
    rng, X = columns(1384, 2, 354)
    y = rng.normal(size=1384)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.1, shape=2)
        r = y - X @ beta
        pm.Potential("likelihood", -0.5 * r @ pt.as_tensor(np.eye(1384) + 0.01) @ r)
    return model, None


@refused_so_far
def projection_on_the_columns():
    rng, X = columns(1385, 2, 355)
    y = rng.normal(size=1385)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.1, shape=2)
        scores = pt.as_tensor(X).T @ (y - X @ beta)
        pm.Potential("scores", -0.5 * pt.sum(scores**2) / 1385)
    return model, None


@refused_so_far
def potential_product_of_sums():
    y = np.random.default_rng(356).normal(size=1386)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        value = pt.sum(y - mu) * pt.sum(pt.cos(y - mu)) / 1e6
        pm.Potential("p", value)
    return model, None


@optional
def potential_of_nested_sums():
    rng = np.random.default_rng(357)
    with pm.Model() as model:
        y = pm.Data("y", rng.normal(size=1387))
        mu = pm.Normal("mu", 0, 1)
        s = pm.HalfNormal("s", 1)
        inner = pt.sum(-((y - mu) ** 2)) / s + 3 * pt.log(s)
        value = 0.5 * (inner - (2 - pt.sum(pt.cos(y * mu)))) / (1 + s)
        pm.Potential("p", value - pt.sum(y) * mu)
    return model, ["s"]


@optional
def branches():
    rng, X = columns(1388, 2, 358)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        mu = ifelse(beta[0] > 0, X @ beta, pt.as_tensor(X)[:, 0] * beta[1])
        pm.Normal("y", mu, 1, observed=rng.normal(size=1388))
    return model, None


# Constrained and structured vectors


@refused_so_far
def long_simplex():
    rng = np.random.default_rng(360)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.full(1390, 2.0))
        pm.Normal("y", 1000 * w, 1, observed=rng.normal(size=1390))
    return model, None


@refused_so_far
def long_zero_sum():
    rng = np.random.default_rng(361)
    with pm.Model() as model:
        theta = pm.ZeroSumNormal("theta", 1, shape=1391)
        pm.Normal("y", theta, 1, observed=rng.normal(size=1391))
    return model, None


@refused_so_far
def long_ordered():
    rng = np.random.default_rng(362)
    start = np.linspace(-2, 2, 1392)
    ordered = pm.distributions.transforms.ordered
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=1392, transform=ordered, initval=start)
        pm.Normal("y", theta, 1, observed=rng.normal(size=1392))
    return model, None


@optional
def several_walks():
    rng = np.random.default_rng(363)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1, shape=3)
        start = pm.Normal.dist(0, 1)
        x = pm.GaussianRandomWalk("x", mu=0, sigma=sigma[:, None], init_dist=start, shape=(3, 1, 1100))
        pm.Normal("y", x[:, 0], 1, observed=rng.normal(size=(3, 1100)))
    return model, ["sigma"]


@optional
def panel_of_series():
    rng = np.random.default_rng(364)
    with pm.Model() as model:
        rho = pm.Uniform("rho", -1, 1)
        start = pm.Normal.dist(0, 1)
        y = rng.normal(size=(1394, 12))
        pm.AR("y", [rho], 0.5, init_dist=start, observed=y)
    return model, ["rho"]


@optional
def observed_series():
    y = np.random.default_rng(365).normal(size=1395)
    with pm.Model() as model:
        rho = pm.Normal("rho", 0, 0.3, shape=2)
        start_sd = pm.HalfNormal("start_sd", 1)
        start = pm.Normal.dist(0, start_sd, shape=2)
        pm.AR("y", rho, 0.5, init_dist=start, observed=y)
    return model, ["start_sd"]


@optional
def multivariate_walk():
    y = np.random.default_rng(366).normal(size=(1396, 2))
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=2)
        start = pm.MvNormal.dist(np.zeros(2), np.eye(2))
        pm.MvGaussianRandomWalk("y", mu, cov=np.eye(2), init_dist=start, observed=y)
    return model, None


@optional
def diffusion():
    y = np.random.default_rng(367).normal(size=1397)
    with pm.Model() as model:
        rate = pm.HalfNormal("rate", 1)
        start = pm.Normal.dist(0, 1)
        pm.EulerMaruyama("y", 0.1, lambda x, k: (-k * x, 1.0), (rate,), init_dist=start, observed=y)
    return model, None


@refused_so_far
def volatility():
    y = np.random.default_rng(368).normal(size=1100)
    with pm.Model() as model:
        omega = pm.HalfNormal("omega", 1)
        pm.GARCH11("y", omega, 0.3, 0.3, 1.0, observed=y)
    return model, None


@refused_so_far
def conditional_autoregression():
    y = np.random.default_rng(369).normal(size=1050)
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        phi = pm.CAR("phi", np.zeros(1050), ring(1050), alpha=0.5, tau=tau)
        pm.Normal("y", phi, 1, observed=y)
    return model, ["tau"]


@refused_so_far
def intrinsic_conditional_autoregression():
    y = np.random.default_rng(370).normal(size=1051)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        phi = pm.ICAR("phi", ring(1051), sigma=1)
        pm.Normal("y", sigma * phi, 1, observed=y)
    return model, ["sigma"]


# Models made from models


@optional
def labelled_tensors():
    rng, X = columns(1410, 2, 380)
    coords = {"row": np.arange(1410), "column": ["a", "b"]}
    with pm.Model(coords=coords) as model:
        X = pmd.Data("X", X, dims=("row", "column"))
        beta = pmd.Normal("beta", 0, 1, dims="column")
        y = pmd.Data("y_data", rng.normal(size=1410), dims="row")
        pmd.Normal("y", (X * beta).sum("column"), 1, observed=y, dims="row")
    return model, ["beta"]


@optional
def frozen():
    rng, X = columns(1411, 2, 381)
    with pm.Model() as model:
        X = pm.Data("X", X)
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Normal("y", X @ beta, 1, observed=rng.normal(size=1411))
    return freeze_model(model), ["beta"]


@optional
def observed_afterwards():
    rng, X = columns(1412, 2, 382)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", X @ beta, sigma, shape=1412)
    model = pm.observe(model, {"y": rng.normal(size=1412)})
    return pm.do(model, {"sigma": 0.5}), ["beta"]


# Not finite


@not_finite
def invalid_scale_of_rows_and_columns():
    rng = np.random.default_rng(390)
    with pm.Model() as model:
        a = pm.HalfNormal("a", 0.1)
        sigma = a + np.array([[0.5, -1, 1]])  # negative in the second column
        pm.Normal("y", 0, sigma, observed=rng.normal(size=(1420, 3)))
    return model, None


@not_finite
def some_impossible_rows():
    rng = np.random.default_rng(391)
    with pm.Model() as model:
        mu = pm.HalfNormal("mu", 1)
        y = rng.poisson(2, size=1421) - 1
        pm.Poisson("y", mu, observed=y)
    return model, None


@not_finite
def infinite_data():
    _, X = columns(1422, 1, 392)
    x = X[:, 0]
    x[[5, 900]] = np.inf
    x[17] = np.nan
    with pm.Model() as model:
        b = pm.HalfNormal("b", 1)
        pm.Potential("p", -((b * x) ** 2) + pt.switch(x > 5, np.inf, 0))
    return model, None


@required("effect", "fit")
def labelled_potential():
    with pm.Model(coords={"row": range(1411)}) as model:
        effect = pmd.Normal("effect", 0, 1, dims="row")
        pmd.Potential("fit", -pmd.math.exp(effect))
    return model, ["effect"]


@required("y")
def short_sparse_term():
    X = csr_matrix(np.diag(np.arange(1.0, 61.0))[np.arange(300) % 60])
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=60)
        pm.Normal("short", sparse.dot(sparse.as_sparse_variable(X), b), 1, observed=np.zeros(300))
        pm.Normal("y", b[0], 1, observed=np.ones(1412))
    return model, ["b"]


@required("z", "fit")
def first_value_of_an_assigned_vector():
    with pm.Model() as model:
        z = pm.Normal("z", 0, 1, shape=1413)
        y = pt.set_subtensor(pt.exp(z)[3:9], z[:6] ** 2)
        pm.Potential("fit", y - y[:1])
    return model, ["z"]


@required("z", "fit")
def lags_of_lags():
    """Eleven levels: two to the power of eleven ways from the top to the bottom."""
    with pm.Model() as model:
        walk = pm.Normal("z", 0, 1, shape=1430)
        for _ in range(11):
            walk = walk[1:] * 0.5 + pt.tanh(walk[:-1])
        pm.Potential("fit", -(walk**2))
    return model, ["z"]


@required("fit")
def checked_rows_in_a_column_that_is_dropped():
    """Where the check fails that column is -inf, and the other is as it was."""
    x = np.linspace(-1, 1, 1414)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1)
        checked = pm.logp(pm.Normal.dist(0.0, 1.0 + b * x), np.zeros(1414))
        pm.Potential("fit", pt.stack([checked, b * x], axis=1)[:, 1])
    return model, ["b"]


@required("y")
def loop_that_cannot_be_written_out():
    """Its name is from the time before PyTensor's frozen graphs were copied."""
    rng, X = columns(1415, 1, 715)

    def dist(mu, size):
        def row(x, mu):
            draw = pm.Normal.dist(mu * x, 1, size=(3,))
            return draw, collect_default_updates(inputs=[x, mu], outputs=draw)

        with warnings.catch_warnings():  # PyMC needs the updates of the loop's random numbers
            warnings.simplefilter("ignore", DeprecationWarning)
            rows, _ = pytensor.scan(row, sequences=[pt.as_tensor(X[:, 0])], non_sequences=[mu])
        return rows

    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        pm.CustomDist("y", mu, dist=dist, observed=rng.normal(size=(1415, 3)))
    return model, ["mu"]


@required("fit")
def checked_visits_summed_by_site():
    """Every visit counts in the sum of its site, so that a check of all visits is one of the sites."""
    rng, X = columns(4000, 1, 716)
    site = rng.integers(1416, size=4000)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        visits = pm.logp(pm.Bernoulli.dist(logit_p=b[0] + b[1] * X[:, 0]), rng.integers(2, size=4000))
        visits += pm.logp(pm.Normal.dist(0, 2 + pt.tanh(b[1]) * X[:, 0] / 4), X[:, 0])
        by_site = pt.inc_subtensor(pt.zeros(1416)[site], visits)
        pm.Potential("fit", pt.logaddexp(by_site, -3.0))
    return model, ["b"]
