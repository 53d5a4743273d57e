"""More models for `factorise`: other distributions, and graphs that invite a wrong split.

None may be split wrongly, or end in another error than a refusal. Importing this module adds them to
`catalogue.MODELS`.
"""

# ruff: noqa: B008 - defaults say what a model is given

import warnings

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.tensor as pt
from pymc.pytensorf import collect_default_updates
from pytensor import sparse
from pytensor.conditional.op import ifelse
from scipy.sparse import csr_matrix

from .catalogue import (
    CHOLESKY,
    DIRICHLET,
    GAMMA,
    HALF,
    INTEGERS,
    NOISE,
    NORMAL,
    UNIFORM,
    WHOLE,
    ZERO_SUM,
    Data,
    not_finite,
    optional,
    refused_so_far,
    required,
)


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
    ("ZeroInflatedBinomial", lambda eta, s: {"psi": 0.7, "n": 30, "p": pm.math.invlogit(eta)}, "count"),
    ("ZeroInflatedNegativeBinomial", lambda eta, s: {"psi": 0.7, "mu": pt.exp(eta), "alpha": s}, "count"),
    ("BetaBinomial", lambda eta, s: {"alpha": s, "beta": pt.exp(eta), "n": 30}, "count"),
    ("Binomial", lambda eta, s: {"n": 30, "logit_p": eta}, "count"),
    ("Exponential", lambda eta, s: {"scale": s * pt.exp(eta)}, "positive"),
    ("HalfNormal", lambda eta, s: {"sigma": s * pt.exp(eta)}, "positive"),
    ("Laplace", lambda eta, s: {"mu": eta, "b": s}, "real"),
    ("LogNormal", lambda eta, s: {"mu": eta, "sigma": s}, "positive"),
    ("NegativeBinomial", lambda eta, s: {"mu": pt.exp(eta), "alpha": s}, "count"),
    ("StudentT", lambda eta, s: {"nu": 2 * s, "mu": eta, "sigma": s}, "real"),
    ("Weibull", lambda eta, s: {"alpha": s, "beta": pt.exp(eta)}, "positive"),
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
    def define(rng, X):
        beta = pm.Normal("beta", 0, 0.3, shape=2)
        s = pm.Gamma("s", 20, 10)
        y = observations(support, rng, len(X))
        getattr(pm, name)("y", **parameters(X @ beta, s), observed=y)

    define.__name__ = f"distribution_{name}"
    optional(ask=["s"], columns=(1260 + number, 2, 200 + number))(define)


for number, row in enumerate(DISTRIBUTIONS):
    add_distribution(number, *row)


@optional(ask=["a"], rows=(1320, 300))
def dirichlet_multinomial_rows(y=Data("multinomial", 12, np.ones(4) / 4), a=HALF(3)[4]):
    pm.DirichletMultinomial("y", 12, a, observed=y)


@optional(rows=(1321, 301))
def dirichlet_rows(y=Data("dirichlet", [1, 2, 3]), a=HALF(3)[3]):
    pm.Dirichlet("y", a, observed=y)


@optional(ask=["nu"], rows=(1322, 302))
def multivariate_student_rows(y=NOISE[2], mu=NORMAL[2], nu=GAMMA(20, 2)):
    pm.MvStudentT("y", nu, mu=mu, Sigma=np.eye(2), observed=y)


@optional(columns=(1323, 1, 303))
def covariance_per_row(X, y=NOISE[2], b=NORMAL(0, 0.1)):
    scale = pt.exp(b * X[:, 0])[:, None, None]
    cov = scale * np.array([[2.0, 0.5], [0.5, 1.0]])
    pm.MvNormal("y", np.zeros(2), cov, observed=y)


@optional(columns=(1324, 2, 304))
def ordered_probit(X, beta, y=INTEGERS(3)):
    pm.OrderedProbit("y", X @ beta, np.array([-0.5, 0.5]), compute_p=False, observed=y)


@optional(ask=["rate"], rows=(1326, 306))
def mixture_of_two_families(y=Data("gamma", 2, 1), rate=HALF, w=DIRICHLET(np.ones(2))):
    parts = [pm.Exponential.dist(rate), pm.LogNormal.dist(0, 1)]
    pm.Mixture("y", w, parts, observed=y)


# Shapes


@optional(columns=(1330, 3, 310))
def column_vector_of_observations(X, y=NOISE[1], beta=NORMAL[3, 1]):
    pm.Normal("y", X @ beta, 1, observed=y)


@optional(rows=(1331, 311))
def three_axes_of_observations(y=NOISE[2, 3], mu=NORMAL[2, 1], sigma=HALF[3]):
    pm.Normal("y", mu, sigma, observed=y)


@optional(rows=(2, 312))
def rows_on_the_middle_axis(y=NOISE[1332, 3], mu=NORMAL[2, 1, 1], sigma=HALF[3]):
    pm.Normal("y", mu, sigma, observed=y)


@optional(rows=(1100, 313))
def two_long_axes(mu, y=NOISE[1150]):
    pm.Normal("y", mu, 1, observed=y)


@optional(columns=(1101, 1, 314))
def square_of_observations(X, a, b, y=NOISE[1101]):
    pm.Normal("y", a * X + b * X.T, 1, observed=y)


@optional()
def same_value_in_every_row(a):
    pm.Potential("p", pt.alloc(-(a**2), 1333))


@optional(seed=315)
def small_integers(rng, beta=NORMAL(0, 0.01)[2]):
    X = pm.Data("X", rng.integers(0, 250, size=(1334, 2)).astype("uint8"))
    eta = X @ beta / 250 + (X[:, 0] + X[:, 1]) / 1000  # the sum wraps at 256
    pm.Bernoulli("y", logit_p=eta, observed=rng.random(1334) < 0.5)


@optional(ask=["mu"], rows=(1335, 317))
def terms_without_parameters(rng, y, mu):
    pm.Normal("y", mu, 1, observed=y)
    pm.Normal("z", 0, 1, observed=rng.normal(size=1336))
    pm.Poisson("w", 2, observed=rng.poisson(2, size=9))
    pm.Potential("p", pt.as_tensor(-3.0))


@optional(rows=(150001, 316))
def many_rows(y, mu):
    pm.Normal("y", mu, 1, observed=y)


# Selections


@optional(ask=["theta"], rows=(1340, 320))
def negative_group_numbers(y, g=INTEGERS(-10, 10), theta=NORMAL[10]):
    pm.Normal("y", theta[g], 1, observed=y)


@optional(ask=["theta"], rows=(1341, 321))
def crossed_groups(y, g=INTEGERS(20), h=INTEGERS(30), theta=NORMAL[20, 30]):
    pm.Normal("y", theta[g, h] + theta[:, h][3] + theta.T[h, 5], 1, observed=y)


@optional(rows=(1342, 322))
def several_groups_per_row(y, members=INTEGERS(30)[3], theta=NORMAL[30]):
    pm.Normal("y", theta[members].mean(axis=1) + theta[members.T][0], 1, observed=y)


@optional(rows=(1343, 323))
def selections_separated_by_a_slice(g=INTEGERS(5), h=INTEGERS(7), y=NOISE[2], theta=NORMAL[5, 2, 7]):
    pm.Normal("y", theta[g, :, h], 1, observed=y)


@optional(columns=(1344, 3, 324))
def chosen_column_per_row(X, choice=INTEGERS(4), beta=NORMAL[3, 4]):
    eta = pm.math.log_softmax(X @ beta, axis=1)
    pm.Potential("likelihood", eta[np.arange(1344), choice].sum())


@optional(columns=(3700, 2, 325))
def strided_predictor(rng, X, beta):
    mu = (X @ beta)[10:-5:3] - (X @ beta)[-1:-3686:-3]
    pm.Normal("y", mu, 1, observed=rng.normal(size=1229))


@optional(columns=(1346, 2, 326))
def rolled_predictor(X, y, beta):
    pm.Normal("y", pt.roll(X @ beta, 7), 1, observed=y)


@optional(seed=327)
def long_latents_twice_selected(rng, theta=NORMAL[1347]):
    first, second = rng.integers(1347, size=2500), rng.integers(2500, size=1800)
    pm.Normal("y", pt.exp(0.1 * theta[first])[second], 1, observed=rng.normal(size=1800))


@optional(rows=(1348, 328))
def one_long_latent_in_every_row(y, theta=NORMAL[1348]):
    pm.Normal("y", theta + theta[0] + pt.exp(theta)[-2], 1, observed=y)


@optional(ask=["mu", "w"], rows=(1349, 329))
def discrete_latents(y, w=DIRICHLET(np.ones(3)), mu=NORMAL([-2, 0, 2], 1)):
    z = pm.Categorical("z", w, shape=1349)
    pm.Normal("y", mu[z], 1, observed=y)


@optional(ask=["slope"], columns=(1350, 1, 330))
def slopes_by_searching_knots(rng, X, knots=NORMAL([-1, 0, 1], 0.2)):
    slope = pm.Normal("slope", 0, 1, shape=4, initval=rng.normal(size=4))
    mu = slope[pt.searchsorted(knots, X[:, 0])] * X[:, 0]
    pm.Normal("y", mu, 1, observed=rng.normal(size=1350))


# Shapes that depend on a parameter


@refused_so_far(ask=["tau"], rows=(2410, 331))
def slice_up_to_a_parameter(y, a, tau=WHOLE(1050, 1350)):
    before = pm.logp(pm.Normal.dist(a, 1), pt.as_tensor(y)[:tau])
    after = pm.logp(pm.Normal.dist(2 * a + 1, 1), pt.as_tensor(y)[tau:])
    pm.Potential("likelihood", before.sum() + after.sum())


@refused_so_far(ask=["tau"], rows=(2411, 332))
def predictor_joined_at_a_parameter(y, a, tau=WHOLE(1050, 1350)):
    b = pm.Normal("b", 0, 1, initval=2)
    pm.Normal("y", pt.concatenate([pt.full((tau,), a), pt.full((2411 - tau,), b)]), 1, observed=y)


@refused_so_far(ask=["tau"], seed=337)
def short_slice_up_to_a_parameter(rng, a, tau=WHOLE(100, 200)):
    y, z = rng.normal(size=300), rng.normal(size=1360)
    pm.Potential("p", pm.logp(pm.Normal.dist(a, 1), pt.as_tensor(y)[:tau]).sum())
    pm.Normal("z", a, 1, observed=z)


@refused_so_far(ask=["tau"])
def as_many_rows_as_a_parameter(tau=WHOLE(1050, 1350)):
    a = pm.Normal("a", 0, 1, initval=1)
    pm.Potential("p", pt.alloc(-(a**2), tau))


@refused_so_far(ask=["tau"])
def row_numbers_up_to_a_parameter(tau=WHOLE(1050, 1350)):
    a = pm.Normal("a", 0, 1, initval=1)
    pm.Potential("p", -pt.sum((a - pt.arange(tau) / 1000) ** 2))


@refused_so_far(ask=["tau"], rows=(1361, 333))
def assignment_up_to_a_parameter(y, a, tau=WHOLE(100, 200)):
    pm.Normal("y", pt.set_subtensor(pt.zeros(1361)[:tau], a), 1, observed=y)


@refused_so_far(ask=["lag"], columns=(1400, 1, 334))
def lag_of_a_parameter(rng, X, lag=WHOLE(5, 25)):
    b = pm.Normal("b", 0, 1, initval=1)
    pm.Normal("y", b * pt.as_tensor(X[:, 0])[lag : lag + 1362], 1, observed=rng.normal(size=1362))


@refused_so_far(columns=(4000, 1, 335))
def rows_selected_by_a_parameter(X, a):
    eta = a + X[:, 0]
    pm.Potential("positive", -pt.sum(eta[eta > 0] ** 2))


@refused_so_far(columns=(4001, 1, 336))
def rows_selected_by_their_number(X, a):
    eta = a + X[:, 0]
    pm.Potential("positive", -pt.sum(eta[(eta > 0).nonzero()[0]] ** 2))


# Assignments


@optional(ask=["b"], columns=(1370, 2, 340))
def assigned_columns(X, y=INTEGERS(3)):
    a = pm.Normal("a", 0, 1, initval=0.5)
    b = pm.Normal("b", 0, 1, initval=-0.5)
    eta = pt.set_subtensor(pt.zeros((1370, 3))[:, 0], a * X[:, 0])
    eta = pt.inc_subtensor(eta[:, 1:], (b * X[:, 1])[:, None])
    pm.Categorical("y", logit_p=eta, observed=y)


@optional(columns=(1371, 2, 341))
def assigned_backwards(X, y):
    beta = pm.Normal("beta", 0, 1, shape=2, initval=[1, 2])
    mu = pt.set_subtensor((X @ beta)[::-3], beta[0] * np.arange(457) / 100)
    mu = pt.set_subtensor(mu[-1], beta[1])
    pm.Normal("y", mu, 1, observed=y)


@optional(ask=["b"], columns=(1372, 1, 342))
def assigned_by_a_mask(X, y):
    x = X[:, 0]
    mask = x > 0.3
    a = pm.Normal("a", 0, 1, initval=1)
    b = pm.Normal("b", 0, 1, initval=2)
    mu = pt.set_subtensor((a * x)[mask], b * x[mask] ** 2)
    mu = pt.set_subtensor(mu[~mask & (x < -1)], a * b)
    pm.Normal("y", mu, 1, observed=y)


@optional(columns=(1373, 1, 343))
def incremented_twice(X, y):
    a = pm.Normal("a", 0, 1, initval=1)
    mu = pt.inc_subtensor((a * X[:, 0])[np.array([3, 3, 1000, -370])], a)
    pm.Normal("y", mu, 1, observed=y)


@optional(rows=(5000, 344))
def accumulated_by_group(rng, g=INTEGERS(1374), theta=NORMAL[5000]):
    totals = pt.inc_subtensor(pt.zeros(1374)[g], theta)
    pm.Normal("y", totals, 1, observed=rng.normal(size=1374))


# Linear algebra and loops


@optional(ask=["chol"], columns=(1380, 1, 350))
def correlated_slopes(X, y, g=INTEGERS(40), z=NORMAL[2, 40], chol=CHOLESKY(2, 2)):
    theta = pm.Deterministic("theta", (chol @ z).T)
    pm.Normal("y", theta[g, 0] + theta[g, 1] * X[:, 0], 1, observed=y)


@optional(ask=["chol"], rows=(1381, 351))
def multivariate_latents(y, chol=CHOLESKY(2, 2)):
    theta = pm.MvNormal("theta", np.zeros(2), chol=chol, shape=(1381, 2))
    pm.Normal("y", theta[:, 0] - theta[:, 1], 1, observed=y)


@optional(columns=(1382, 3, 352))
def product_per_row(X, g=INTEGERS(20), y=NOISE[2], B=NORMAL[20, 3, 2]):
    pm.Normal("y", (X[:, None, :] @ B[g])[:, 0], 1, observed=y)


@optional(rows=(1383, 353))
def tensor_products(y, X=NOISE[2, 3], B=NORMAL[2, 3]):
    mu = pt.tensordot(X, B, axes=2) + pt.einsum("nij,ij->n", pt.as_tensor(X), B)
    pm.Normal("y", mu, 1, observed=y)


@refused_so_far(columns=(1384, 2, 354))
def long_times_long(X, y, beta=NORMAL(0, 0.1)[2]):
    r = y - X @ beta
    pm.Potential("likelihood", -0.5 * r @ pt.as_tensor(np.eye(1384) + 0.01) @ r)


@refused_so_far(columns=(1385, 2, 355))
def projection_on_the_columns(X, y, beta=NORMAL(0, 0.1)[2]):
    scores = pt.as_tensor(X).T @ (y - X @ beta)
    pm.Potential("scores", -0.5 * pt.sum(scores**2) / 1385)


@refused_so_far(rows=(1386, 356))
def potential_product_of_sums(y, mu):
    value = pt.sum(y - mu) * pt.sum(pt.cos(y - mu)) / 1e6
    pm.Potential("p", value)


@optional(ask=["s"], seed=357)
def potential_of_nested_sums(rng, mu, s=HALF):
    y = pm.Data("y", rng.normal(size=1387))
    inner = pt.sum(-((y - mu) ** 2)) / s + 3 * pt.log(s)
    value = 0.5 * (inner - (2 - pt.sum(pt.cos(y * mu)))) / (1 + s)
    pm.Potential("p", value - pt.sum(y) * mu)


@optional(columns=(1388, 2, 358))
def branches(X, y, beta):
    pm.Normal("y", ifelse(beta[0] > 0, X @ beta, pt.as_tensor(X)[:, 0] * beta[1]), 1, observed=y)


# Constrained and structured vectors


@refused_so_far(rows=(1390, 360))
def long_simplex(y, w=DIRICHLET(np.full(1390, 2.0))):
    pm.Normal("y", 1000 * w, 1, observed=y)


@refused_so_far(rows=(1391, 361))
def long_zero_sum(y, theta=ZERO_SUM[1391]):
    pm.Normal("y", theta, 1, observed=y)


@refused_so_far(rows=(1392, 362))
def long_ordered(y):
    start = np.linspace(-2, 2, 1392)
    ordered = pm.distributions.transforms.ordered
    theta = pm.Normal("theta", 0, 1, shape=1392, transform=ordered, initval=start)
    pm.Normal("y", theta, 1, observed=y)


@optional(ask=["sigma"], rows=(3, 363))
def several_walks(y=NOISE[1100], sigma=HALF[3]):
    start = pm.Normal.dist(0, 1)
    x = pm.GaussianRandomWalk("x", mu=0, sigma=sigma[:, None], init_dist=start, shape=(3, 1, 1100))
    pm.Normal("y", x[:, 0], 1, observed=y)


@optional(ask=["rho"], rows=(1394, 364))
def panel_of_series(y=NOISE[12], rho=UNIFORM(-1, 1)):
    start = pm.Normal.dist(0, 1)
    pm.AR("y", [rho], 0.5, init_dist=start, observed=y)


@optional(ask=["start_sd"], rows=(1395, 365))
def observed_series(y, start_sd=HALF, rho=NORMAL(0, 0.3)[2]):
    start = pm.Normal.dist(0, start_sd, shape=2)
    pm.AR("y", rho, 0.5, init_dist=start, observed=y)


@optional(rows=(1396, 366))
def multivariate_walk(y=NOISE[2], mu=NORMAL[2]):
    start = pm.MvNormal.dist(np.zeros(2), np.eye(2))
    pm.MvGaussianRandomWalk("y", mu, cov=np.eye(2), init_dist=start, observed=y)


@optional(rows=(1397, 367))
def diffusion(y, rate=HALF):
    start = pm.Normal.dist(0, 1)
    pm.EulerMaruyama("y", 0.1, lambda x, k: (-k * x, 1.0), (rate,), init_dist=start, observed=y)


@refused_so_far(rows=(1100, 368))
def volatility(y, omega=HALF):
    pm.GARCH11("y", omega, 0.3, 0.3, 1.0, observed=y)


@optional(ask=["tau"], rows=(1050, 369))
def conditional_autoregression(y, tau):
    phi = pm.CAR("phi", np.zeros(1050), ring(1050), alpha=0.5, tau=tau)
    pm.Normal("y", phi, 1, observed=y)


@optional(ask=["sigma"], rows=(1051, 370))
def intrinsic_conditional_autoregression(y, sigma):
    phi = pm.ICAR("phi", ring(1051), sigma=1)
    pm.Normal("y", sigma * phi, 1, observed=y)


# Models made from models


@optional(ask=["beta"], columns=(1410, 2, 380), coords={"row": np.arange(1410), "column": ["a", "b"]})
def labelled_tensors(rng, X):
    X = pmd.Data("X", X, dims=("row", "column"))
    beta = pmd.Normal("beta", 0, 1, dims="column")
    y = pmd.Data("y_data", rng.normal(size=1410), dims="row")
    pmd.Normal("y", (X * beta).sum("column"), 1, observed=y, dims="row")


@optional(ask=["beta"], columns=(1412, 2, 382))
def observed_afterwards(rng, X, beta, sigma):
    pm.Normal("y", X @ beta, sigma, shape=1412)
    return lambda model: pm.do(pm.observe(model, {"y": rng.normal(size=1412)}), {"sigma": 0.5})


# Not finite


@not_finite(rows=(1420, 390))
def invalid_scale_of_rows_and_columns(y=NOISE[3], a=HALF(0.1)):
    sigma = a + np.array([[0.5, -1, 1]])  # negative in the second column
    pm.Normal("y", 0, sigma, observed=y)


@not_finite(seed=391)
def some_impossible_rows(rng, mu=HALF):
    pm.Poisson("y", mu, observed=rng.poisson(2, size=1421) - 1)


@not_finite(columns=(1422, 1, 392))
def infinite_data(X, b=HALF):
    x = X[:, 0]
    x[[5, 900]] = np.inf
    x[17] = np.nan
    pm.Potential("p", -((b * x) ** 2) + pt.switch(x > 5, np.inf, 0))


@required("effect", "fit", ask=["effect"], coords={"row": range(1411)})
def labelled_potential():
    effect = pmd.Normal("effect", 0, 1, dims="row")
    pmd.Potential("fit", -pmd.math.exp(effect))


@required("y", ask=["b"])
def short_sparse_term(b=NORMAL[60]):
    X = csr_matrix(np.diag(np.arange(1.0, 61.0))[np.arange(300) % 60])
    pm.Normal("short", sparse.dot(sparse.as_sparse_variable(X), b), 1, observed=np.zeros(300))
    pm.Normal("y", b[0], 1, observed=np.ones(1412))


@required("z", "fit", ask=["z"])
def first_value_of_an_assigned_vector(z=NORMAL[1413]):
    y = pt.set_subtensor(pt.exp(z)[3:9], z[:6] ** 2)
    pm.Potential("fit", y - y[:1])


@required("z", "fit", ask=["z"])
def lags_of_lags():
    """Eleven levels: two to the power of eleven ways from the top to the bottom."""
    walk = pm.Normal("z", 0, 1, shape=1430)
    for _ in range(11):
        walk = walk[1:] * 0.5 + pt.tanh(walk[:-1])
    pm.Potential("fit", -(walk**2))


@required("fit", ask=["b"])
def checked_rows_in_a_column_that_is_dropped(b):
    """Where the check fails that column is -inf, and the other is as it was."""
    x = np.linspace(-1, 1, 1414)
    checked = pm.logp(pm.Normal.dist(0.0, 1.0 + b * x), np.zeros(1414))
    pm.Potential("fit", pt.stack([checked, b * x], axis=1)[:, 1])


@required("y", ask=["mu"], columns=(1415, 1, 715))
def loop_that_cannot_be_written_out(X, mu, y=NOISE[3]):
    """Its name is from the time before PyTensor's frozen graphs were copied."""

    def dist(mu, size):
        def row(x, mu):
            draw = pm.Normal.dist(mu * x, 1, size=(3,))
            return draw, collect_default_updates(inputs=[x, mu], outputs=draw)

        with warnings.catch_warnings():  # PyMC needs the updates of the loop's random numbers
            warnings.simplefilter("ignore", DeprecationWarning)
            rows, _ = pytensor.scan(row, sequences=[pt.as_tensor(X[:, 0])], non_sequences=[mu])
        return rows

    pm.CustomDist("y", mu, dist=dist, observed=y)


@required("fit", ask=["b"], columns=(4000, 1, 716))
def checked_visits_summed_by_site(rng, X, site=INTEGERS(1416), b=NORMAL[2]):
    """Every visit counts in the sum of its site, so that a check of all visits is one of the sites."""
    visits = pm.logp(pm.Bernoulli.dist(logit_p=b[0] + b[1] * X[:, 0]), rng.integers(2, size=4000))
    visits += pm.logp(pm.Normal.dist(0, 2 + pt.tanh(b[1]) * X[:, 0] / 4), X[:, 0])
    by_site = pt.inc_subtensor(pt.zeros(1416)[site], visits)
    pm.Potential("fit", pt.logaddexp(by_site, -3.0))
