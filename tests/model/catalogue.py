"""Models on which `factorise` is tested.

Each function defines a model. `MODELS` holds those that `factorise` splits (`required` names the terms that
must be local) and those that it refuses so far, `REFUSED` those that it must refuse. `catalogue_names.txt`
lists all by name, and says how to add one.
"""

import inspect
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt


@dataclass(frozen=True)
class Entry:
    build: Callable  # returns the model, and the names of variables of a subset to ask for, or None
    required: bool = False
    local: tuple[str, ...] = ()  # names that must be local, when required
    refused_so_far: bool = False  # one that is split, or a new refusal, fails the test
    finite: bool = True  # whether the log density is finite at the initial point
    words: tuple[str, ...] = ()  # regular expressions that the refusal must match

    @property
    def name(self):
        return self.build.__name__


MODELS = []
REFUSED = []


class Prior:
    """The default of an argument: a variable of its name is the argument."""

    def __init__(self, distribution, *parameters, shape=()):
        self._made_of, self._shape = (distribution, *parameters), shape

    def __getitem__(self, shape):
        return Prior(*self._made_of, shape=shape)

    def __call__(self, name):
        distribution, *parameters = self._made_of
        return distribution(name, *parameters, shape=self._shape)


NORMAL, HALF = Prior(pm.Normal, 0, 1), Prior(pm.HalfNormal, 1)
EXPON, BETA, NARROW = Prior(pm.Exponential, 1), Prior(pm.Beta, 2, 2), Prior(pm.Normal, 0, 0.5)

# Priors that a function takes by name; `beta` has a coefficient for each column of X.
PRIORS = dict.fromkeys(("a", "b", "mu"), NORMAL) | dict.fromkeys(("sigma", "tau"), HALF)


def add(entries, *, ask=None, seed=None, columns=None, **outcome):
    """Decorate a function that defines the model of an entry, with `ask` for the subset.

    It takes by name: `rng`, the random numbers of `seed`; or, of `columns`, which has the shape of a matrix
    and a seed, `rng` and the matrix `X`; and variables with the priors above. An argument that has a `Prior`
    is a variable, too. What the function returns, if anything, is done to the model.
    """

    def register(define):
        @wraps(define)
        def build():
            *shape, its_seed = columns or (seed,)
            given = {"rng": np.random.default_rng(its_seed)}
            if columns is not None:
                given["X"] = given["rng"].normal(size=shape)
            with pm.Model() as model, warnings.catch_warnings():
                warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
                arguments = inspect.signature(define).parameters
                priors = PRIORS | ({"beta": NORMAL[shape[1]]} if shape else {})
                for name, argument in arguments.items():
                    prior = priors.get(name) if argument.default is argument.empty else argument.default
                    if prior is not None:
                        given[name] = prior(name)
                change = define(**{name: given[name] for name in arguments})
            return model if change is None else change(model), ask

        entries.append(Entry(build, **outcome))
        return build

    return register


def coords(lengths):
    """Add coordinates to the model, by the name of the dimension."""
    pm.modelcontext(None).add_coords(lengths)


def scanned(step, sequences, start, *given):
    """States of a recurrence."""
    sequences = [pt.as_tensor(each) for each in sequences]
    return pytensor.scan(
        step, sequences=sequences, outputs_info=[start], non_sequences=given, return_updates=False
    )


def required(*local, **how):
    return add(MODELS, required=True, local=local, **how)


def optional(**how):
    return add(MODELS, **how)


def refused_so_far(**how):
    return add(MODELS, refused_so_far=True, **how)


def not_finite(**how):
    return add(MODELS, finite=False, **how)


def refused(*words, **how):
    return add(REFUSED, words=words, **how)


# Regressions


@required("y", ask=["sigma"], seed=1)
def normal(rng):
    mu = pm.Normal("mu", 0, 10)
    sigma = pm.HalfNormal("sigma", 5)
    pm.Normal("y", mu, sigma, observed=rng.normal(1, 2, size=1500))


@required("y", ask=["beta"], columns=(1301, 4, 2))
def linear_matmul(rng, X, beta):
    intercept = pm.Normal("intercept", 0, 5)
    sigma = pm.HalfNormal("sigma", 2)
    pm.Normal("y", intercept + X @ beta, sigma, observed=rng.normal(size=1301))


@required("y", ask=["beta", "sigma"], columns=(1302, 3, 3))
def linear_dot(rng, X, beta, sigma=EXPON):
    pm.Normal("y", pm.math.dot(X, beta), sigma, observed=rng.normal(size=1302))


@optional(ask=["c"], columns=(1400, 2, 4))
def sums_of_products(rng, X, b, c=NORMAL):
    a = pm.Normal("a", 0, 5)
    mu = a + b * X[:, 0] + c * X[:, 1] + b * c * X[:, 0] * X[:, 1]
    pm.Normal("y", mu, 0.7, observed=rng.normal(size=1400))


@optional(columns=(1401, 3, 5))
def sum_over_columns(rng, X, beta):
    pm.Normal("y", (X * beta).sum(axis=1), 1, observed=rng.normal(size=1401))


@optional(columns=(1402, 3, 6))
def rows_on_the_last_axis(rng, X, beta):
    pm.Normal("y", beta @ X.T, 1, observed=rng.normal(size=1402))


@required("y", ask=["beta"], columns=(1600, 3, 7))
def logistic(rng, X, beta):
    intercept = pm.Normal("intercept", 0, 2)
    pm.Bernoulli("y", logit_p=intercept + X @ beta, observed=rng.integers(2, size=1600))


@required("y", ask=["intercept"], columns=(1450, 2, 9))
def poisson_offset(rng, X, beta):
    exposure = rng.gamma(4, 1, size=1450)
    intercept = pm.Normal("intercept", 0, 2)
    mu = pm.math.exp(intercept + X @ beta + np.log(exposure))
    pm.Poisson("y", mu, observed=rng.poisson(exposure))


# Data


@required("y", ask=["beta"], columns=(1501, 3, 10))
def pm_data(rng, X, beta):
    X = pm.Data("X", X)
    pm.Normal("y", X @ beta, 1, observed=pm.Data("y_data", rng.normal(size=1501)))


@required("y", ask=["intercept"], columns=(1502, 3, 11))
def pm_data_shape(rng, X, beta, intercept=NORMAL):
    X = pm.Data("X", X)
    eta = intercept + X @ beta
    pm.Bernoulli("y", logit_p=eta, shape=X.shape[0], observed=rng.integers(2, size=1502))


@optional(ask=["theta"], seed=12)
def pm_data_group_index(rng, theta=NORMAL[30]):
    group = pm.Data("group", rng.integers(30, size=1503))
    pm.Normal("y", theta[group], 1, observed=rng.normal(size=1503))


@optional(columns=(1303, 3, 13))
def fortran_order(rng, X, beta, gamma=NORMAL[3]):
    X = np.asfortranarray(X)
    X_data = pm.Data("X", X)
    pm.Normal("y", X @ beta + X_data @ gamma, 1, observed=rng.normal(size=1303))


@optional(columns=(1304, 3, 14))
def single_precision(rng, X, beta):
    pm.Normal("y", X.astype("float32") @ beta, 1, observed=rng.normal(size=1304).astype("float32"))


@optional(columns=(1305, 3, 15))
def pandas_inputs(rng, X, b, beta=NORMAL[2]):
    frame = pd.DataFrame(X, columns=list("uvw"), index=np.arange(1305)[::-1])
    mu = pm.math.dot(frame[["u", "v"]], beta) + b * pt.as_tensor(frame["w"])
    pm.Normal("y", mu, 1, observed=pd.Series(rng.normal(size=1305), index=frame.index))


@optional(columns=(1306, 2, 16))
def constant_and_duplicated_columns(rng, X, beta=NORMAL[5]):
    X = np.column_stack([np.ones(1306), X, X[:, 0], np.ones(1306)])
    pm.Normal("y", X @ beta, 1, observed=np.round(rng.normal(size=1306)))


@optional(columns=(1308, 1, 18))
def cumulated_data(rng, X, b):
    x = pm.Data("x", X[:, 0])
    pm.Normal("y", b * pt.cumsum(x), 5, observed=rng.normal(size=1308))


@optional(columns=(1309, 2, 19))
def mean_of_data_times_parameter(rng, X, beta):
    X = pm.Data("X", X)
    pm.Normal("y", X @ beta - X.mean(axis=0) @ beta, 1, observed=rng.normal(size=1309))


@optional(columns=(1310, 1, 20))
def number_of_rows_in_the_graph(rng, X, a):
    x = pm.Data("x", X[:, 0])
    n = x.shape[0]
    pm.Normal("y", a + x / n, pt.sqrt(n / 1000), observed=rng.normal(size=1310))


@optional(columns=(1311, 1, 21))
def row_number_in_the_graph(rng, X, a, b):
    x = pm.Data("x", X[:, 0])
    t = pt.arange(x.shape[0]) / 1000.0
    pm.Normal("y", a * x + b * t, 1, observed=rng.normal(size=1311))


@optional(seed=22)
def lagged_data(rng):
    z = pm.Data("z", rng.normal(size=1312))
    rho = pm.Uniform("rho", -1, 1)
    pm.Normal("y", rho * z[:-1], 1, observed=z.eval()[1:])


@optional(columns=(2400, 1, 23))
def masked_rows(rng, X, a):
    keep = rng.random(2400) < 0.6
    x = pm.Data("x", X[:, 0])
    pm.Normal("y", (a * x)[keep], 1, observed=rng.normal(size=keep.sum()))


# Hierarchical models


@required("y", ask=["theta"], columns=(1700, 1, 24))
def varying_intercepts_centred(rng, X, tau, b):
    g = rng.integers(50, size=1700)
    mu = pm.Normal("mu", 0, 2)
    theta = pm.Normal("theta", mu, tau, shape=50)
    pm.Normal("y", theta[g] + b * X[:, 0], 1, observed=rng.normal(size=1700))


@required("y", ask=["mu", "tau"], seed=25)
def varying_intercepts_non_centred(rng, tau, z=NORMAL[50]):
    g = rng.integers(50, size=1701)
    mu = pm.Normal("mu", 0, 2)
    theta = pm.Deterministic("theta", mu + tau * z)
    pm.Bernoulli("y", logit_p=theta[g], observed=rng.integers(2, size=1701))


@required("theta", "y", ask=["mu", "tau"], seed=26)
def varying_intercepts_many_groups(rng, tau, sigma):
    g = rng.integers(1500, size=4000)
    mu = pm.Normal("mu", 0, 2)
    theta = pm.Normal("theta", mu, tau, shape=1500)
    pm.Normal("y", theta[g], sigma, observed=rng.normal(size=4000))


@required("y", ask=["theta"], columns=(1702, 1, 27))
def varying_slopes(rng, X, mu=NORMAL[2], tau=HALF[2]):
    g = rng.integers(40, size=1702)
    theta = pm.Normal("theta", mu, tau, shape=(40, 2))
    eta = theta[g, 0] + theta[g][:, 1] * X[:, 0]
    pm.Normal("y", eta, 1, observed=rng.normal(size=1702))


@optional(columns=(1703, 3, 28))
def varying_slopes_row_products(rng, X, theta=NORMAL[40, 3]):
    g = rng.integers(40, size=1703)
    pm.Normal("y", (X * theta[g]).sum(axis=-1), 1, observed=rng.normal(size=1703))


@optional(ask=["alpha"], seed=29)
def nested_groups(rng, alpha=NORMAL[7]):
    g = rng.integers(60, size=1704)
    region = rng.integers(7, size=60)
    theta = pm.Normal("theta", alpha[region], 0.5)
    pm.Normal("y", theta[g] + alpha[region][g], 1, observed=rng.normal(size=1704))


@optional(seed=30)
def zero_sum_groups(rng):
    g = rng.integers(20, size=1705)
    theta = pm.ZeroSumNormal("theta", 1, shape=20)
    pm.Normal("y", theta[g], 1, observed=rng.normal(size=1705))


@required("theta", "y", ask=["mu", "tau"], seed=31)
def latents_with_hyperparameters(rng, tau):
    mu = pm.Normal("mu", 0, 2)
    theta = pm.Normal("theta", mu, tau, shape=1800)
    pm.Normal("y", theta, 1, observed=rng.normal(size=1800))


@optional(ask=["theta"], seed=32)
def latents_in_another_order(rng, tau):
    order = rng.permutation(1801)
    theta = pm.Normal("theta", 0, tau, shape=1801)
    pm.Normal("y", theta[order], 1, observed=rng.normal(size=1801))


@optional(ask=["shape"], seed=34)
def transformed_latents(rng):
    shape = pm.HalfNormal("shape", 3)
    rate = pm.Gamma("rate", shape, 1, shape=1803)
    pm.Poisson("y", rate, observed=rng.poisson(3, size=1803))


# Other likelihoods


@required("y", columns=(1552, 2, 37))
def gamma_log_link(rng, X, beta, sigma):
    pm.Gamma("y", mu=pt.exp(X @ beta), sigma=sigma, observed=rng.gamma(2, 1, size=1552))


@optional(ask=["sigma"], columns=(1557, 2, 42))
def beta_mean_and_sd(rng, X):
    coef = pm.Normal("coef", 0, 0.2, shape=2)
    sigma = pm.Uniform("sigma", 0.01, 0.2)
    y = rng.beta(5, 5, size=1557)
    pm.Beta("y", mu=pm.math.invlogit(0.3 * X @ coef), sigma=sigma, observed=y)


@required("y", ask=["w"], seed=46)
def normal_mixture(rng, sigma=HALF[3]):
    w = pm.Dirichlet("w", np.ones(3))
    mu = pm.Normal("mu", [-2, 0, 2], 1)
    pm.NormalMixture("y", w, mu, sigma, observed=rng.normal(size=1651))


@optional(ask=["beta"], columns=(1652, 2, 47))
def mixture_of_regressions(rng, X, sigma=HALF[2]):
    w = pm.Dirichlet("w", np.ones(2))
    beta = pm.Normal("beta", [[-1, 0], [0, 1]], 1)
    parts = [pm.Normal.dist(X @ beta[k], sigma[k]) for k in range(2)]
    pm.Mixture("y", w, parts, observed=rng.normal(size=1652))


@optional(columns=(1653, 2, 48))
def mixture_with_covariate_weights(rng, X, gamma=NORMAL[2, 3]):
    mu = pm.Normal("mu", [-1, 0, 1], 1)
    w = pm.math.softmax(X @ gamma, axis=1)
    pm.NormalMixture("y", w, mu, 1, observed=rng.normal(size=1653))


@optional(seed=49)
def mixture_by_hand(rng, mu, w=BETA):
    y = pm.Data("y", rng.normal(size=1654))
    first = pt.log(w) + pm.logp(pm.Normal.dist(mu, 1), y)
    second = pt.log1p(-w) + pm.logp(pm.Normal.dist(0, 3), y)
    pm.Potential("mixture", pm.math.logsumexp([first, second], axis=0).sum())


@required("y", columns=(1655, 3, 50))
def categorical(rng, X, beta=NORMAL[3, 4]):
    pm.Categorical("y", logit_p=X @ beta, observed=rng.integers(4, size=1655))


@optional(columns=(1656, 3, 51))
def categorical_softmax(rng, X, beta=NORMAL[3, 4]):
    p = pm.math.softmax(X @ beta, axis=-1)
    pm.Categorical("y", p, observed=rng.integers(4, size=1656))


@optional(columns=(1657, 2, 52))
def multinomial(rng, X, beta=NORMAL[2, 3]):
    counts = rng.multinomial(10, [0.2, 0.3, 0.5], size=1657)
    pm.Multinomial("y", 10, pm.math.softmax(X @ beta, axis=-1), observed=counts)


@optional(ask=["cut"], columns=(1658, 2, 53))
def ordered_logistic(rng, X, beta):
    ordered = pm.distributions.transforms.ordered
    cut = pm.Normal("cut", [-1, 0, 1], 2, transform=ordered, initval=[-1, 0, 1])
    pm.OrderedLogistic("y", X @ beta, cut, compute_p=False, observed=rng.integers(4, size=1658))


@optional(columns=(1659, 2, 54))
def truncated(rng, X, beta, sigma):
    y = np.abs(rng.normal(size=1659))
    pm.Truncated("y", pm.Normal.dist(X @ beta, sigma), lower=0, observed=y)


@optional(columns=(1660, 2, 55))
def censored(rng, X, beta, sigma):
    y = np.clip(rng.normal(size=1660), -1, 1)
    pm.Censored("y", pm.Normal.dist(X @ beta, sigma), lower=-1, upper=1, observed=y)


@optional(ask=["psi"], columns=(1661, 2, 56))
def zero_inflated_poisson(rng, X, beta, psi=BETA):
    y = rng.poisson(1, size=1661) * rng.integers(2, size=1661)
    pm.ZeroInflatedPoisson("y", psi, pt.exp(X @ beta), observed=y)


@optional(columns=(1662, 2, 57))
def custom_dist(rng, X, beta, log_scale=NORMAL):
    def logp(value, mu, log_scale):
        z = (value - mu) * pt.exp(-log_scale)
        return -pt.log(pt.cosh(z)) - log_scale

    pm.CustomDist("y", X @ beta, log_scale, logp=logp, observed=rng.normal(size=1662))


# Matrices


@optional(ask=["sigma"], seed=58)
def matrix_of_observations(rng, mu=NORMAL[3], sigma=HALF[3]):
    pm.Normal("y", mu, sigma, observed=rng.normal(size=(1250, 3)))


@optional(columns=(1251, 2, 59))
def transposed_matrix_of_observations(rng, X, beta=NORMAL[3, 2], sigma=HALF[3, 1]):
    pm.Normal("y", beta @ X.T, sigma, observed=rng.normal(size=(3, 1251)))


@optional(ask=["chol"], columns=(1252, 2, 60))
def multivariate_normal_rows(rng, X, beta=NORMAL[2, 3]):
    sd = pm.Exponential.dist(1, shape=3)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2, sd_dist=sd)
    pm.MvNormal("y", X @ beta, chol=chol, observed=rng.normal(size=(1252, 3)))


# Potentials


@required("penalty", columns=(1351, 2, 61))
def potential_vector(rng, X, beta):
    y = rng.normal(size=1351)
    pm.Potential("penalty", -pt.abs(y - X @ beta))


@required("likelihood", ask=["beta"], columns=(1352, 2, 62))
def potential_sum(rng, X, beta, sigma):
    y = rng.normal(size=1352)
    pm.Potential("likelihood", pm.logp(pm.Normal.dist(X @ beta, sigma), y).sum())


@required("likelihood", columns=(1353, 2, 63))
def potential_difference_of_sums(rng, X, beta, scale=HALF):
    y = rng.integers(2, size=1353)
    eta = X @ beta
    value = 0.5 * scale * pt.sum(y * eta) - pt.sum(pm.math.log1pexp(eta))
    pm.Potential("likelihood", value)


@required("likelihood", ask=["mu"], seed=64)
def potential_with_remainder(rng, mu, sigma):
    y = rng.normal(size=1354)
    squares = pt.sum((y - mu) ** 2)
    pm.Potential("likelihood", -1354 * pt.log(sigma) - 0.5 * squares / sigma**2)


@required("likelihood", columns=(1355, 2, 65))
def potential_quadratic_form(rng, X, beta):
    y = rng.normal(size=1355)
    r = y - X @ beta
    pm.Potential("likelihood", -0.5 * pt.dot(r, r))


@optional(seed=66)
def potential_of_two_lengths(rng, mu):
    first, second = rng.normal(size=1356), rng.normal(size=1657)
    value = -pt.sum((first - mu) ** 2) - pt.sum(pt.abs(second - mu)) - mu**4
    pm.Potential("likelihood", value)


@optional(seed=67)
def potential_mean(rng, mu):
    y = rng.normal(size=1358)
    pm.Potential("likelihood", -700 * pt.mean((y - mu) ** 2))


@refused_so_far(seed=68)
def potential_square_of_sum(rng, mu):
    y = rng.normal(size=1359)
    pm.Potential("likelihood", -((pt.sum(y - mu) / 1000) ** 2))


@optional(columns=(1360, 2, 69))
def potential_of_differences(X, beta):
    eta = X @ beta
    pm.Potential("smoothness", -0.5 * pt.sum((eta[1:] - eta[:-1]) ** 2))


@refused_so_far(columns=(1361, 3, 70))
def potential_matrix_sum_of_columns(X, beta):
    w = pm.Dirichlet("w", np.ones(3))
    sums = pt.sum(-pt.abs(X - beta), axis=0)
    pm.Potential("likelihood", pt.dot(w, sums))


# Several terms and names


@required("y", "z", ask=["rate"], columns=(1204, 2, 71))
def two_observed(rng, X, beta, rate=HALF):
    pm.Bernoulli("y", logit_p=X @ beta, observed=rng.integers(2, size=1204))
    pm.Poisson("z", rate * pt.exp(beta[0]), observed=rng.poisson(2, size=2205))


@optional(ask=["sigma"], seed=72)
def long_and_short_observed(rng, mu, sigma):
    pm.Normal("y", mu, sigma, observed=rng.normal(size=1205))
    pm.Normal("z", mu, 2, observed=rng.normal(size=7))
    pm.Potential("p", -(mu**2) * sigma)


@required("y", ask=["theta", "sigma"], columns=(1206, 3, 73))
def dims_and_coords(rng, X, sigma):
    coords({"row": np.arange(1206) + 10, "column": list("abc"), "group": list("pqrs")})
    X = pm.Data("X", X, dims=("row", "column"))
    g = pm.Data("g", rng.integers(4, size=1206), dims="row")
    theta = pm.Normal("theta", 0, 1, dims="group")
    beta = pm.Normal("beta", 0, 1, dims="column")
    eta = pm.Deterministic("eta", theta[g] + X @ beta, dims="row")
    pm.Normal("y", eta, sigma, observed=rng.normal(size=1206), dims="row")


@optional(ask=["inner::sigma"], seed=74)
def nested_model_names(rng, mu):
    with pm.Model(name="inner"):
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", mu, sigma, observed=rng.normal(size=1207))


@optional(columns=(1208, 2, 75))
def registered_deterministic(rng, X, beta):
    eta = pm.Deterministic("eta", X @ beta)
    sd = pm.Deterministic("sd", pt.exp(0.1 * eta))
    pm.Normal("y", eta, sd, observed=rng.normal(size=1208))


@optional(ask=["beta"], columns=(1209, 2, 76))
def imputed_missing(rng, X, beta, sigma):
    y = np.ma.masked_array(rng.normal(size=1209), mask=np.arange(1209) % 250 == 3)
    pm.Normal("y", X @ beta, sigma, observed=y)


@optional(ask=["a"], columns=(1210, 1, 77))
def bounded_priors(rng, X):
    a = pm.Uniform("a", -2, 3)
    b = pm.TruncatedNormal("b", 0, 1, lower=-1)
    sigma = pm.Uniform("sigma", 0, 10)
    pm.Normal("y", a + b * X[:, 0], sigma, observed=rng.normal(size=1210))


# Series


@required("x", "y", ask=["rho", "sigma"], seed=78)
def autoregression_1(rng, sigma):
    rho = pm.Uniform("rho", -1, 1)
    x = pm.AR("x", [rho], sigma, init_dist=pm.Normal.dist(0, 1), shape=2000)
    pm.Normal("y", x, 1, observed=rng.normal(size=2000))


@required("x", "y", ask=["rho"], seed=79)
def autoregression_2(rng):
    rho = pm.Normal("rho", 0, 0.3, shape=3)
    start = pm.Normal.dist(0, 10, shape=2)
    x = pm.AR("x", rho, sigma=0.5, constant=True, init_dist=start, shape=2000)
    pm.Normal("y", x, 1, observed=rng.normal(size=2000))


@required("x", "y", ask=["sigma"], seed=80)
def random_walk(rng, sigma):
    start = pm.Normal.dist(0, 1)
    x = pm.GaussianRandomWalk("x", mu=0.001, sigma=sigma, init_dist=start, shape=2000)
    pm.Normal("y", x, 1, observed=rng.normal(size=2000))


@optional(ask=["tau"], seed=82)
def switchpoint(rng, a=EXPON, b=EXPON):
    t = np.arange(1212)
    tau = pm.DiscreteUniform("tau", 0, 1211)
    pm.Poisson("y", pt.switch(t < tau, a, b), observed=rng.poisson(1 + (t > 500)))


# Predictors built in the graph


@optional(ask=["c"], columns=(1214, 1, 84))
def hinge(rng, X, a=NORMAL[2], c=NARROW):
    pm.Normal("y", a[0] + a[1] * pt.maximum(X[:, 0] - c, 0), 1, observed=rng.normal(size=1214))


@optional(ask=["w"], columns=(1216, 4, 86))
def network(rng, X, b=NORMAL[5], w=NORMAL[2]):
    W = pm.Normal("W", 0, 1, shape=(4, 5), initval=rng.normal(size=(4, 5)))
    V = pm.Normal("V", 0, 1, shape=(5, 2), initval=rng.normal(size=(5, 2)))
    out = pt.tanh(pt.tanh(X @ W + b) @ V) @ w
    pm.Bernoulli("y", logit_p=out, observed=rng.integers(2, size=1216))


@optional(seed=87)
def concatenated_data(rng, b):
    first = pm.Data("first", rng.normal(size=700))
    second = pm.Data("second", rng.normal(size=1100))
    x = pt.concatenate([first, second])
    pm.Normal("y", b * x, 1, observed=rng.normal(size=1800))


@optional(ask=["b"], seed=88)
def concatenated_predictors(rng, a, b):
    first, second = rng.normal(size=701), rng.normal(size=1102)
    pm.Normal("y", pt.concatenate([a * first, b * second]), 1, observed=rng.normal(size=1803))


@optional(columns=(1217, 2, 89))
def set_subtensor(rng, X, beta, a):
    pm.Normal("y", pt.set_subtensor((X @ beta)[100:400], a), 1, observed=rng.normal(size=1217))


@optional(columns=(1218, 2, 90))
def increment_some_rows(rng, X, beta, a=NORMAL[200]):
    some = rng.choice(1218, size=200, replace=False)
    pm.Normal("y", pt.inc_subtensor((X @ beta)[some], a), 1, observed=rng.normal(size=1218))


@optional(seed=91)
def repeated_groups(rng, theta=NORMAL[40], phi=NORMAL[30]):
    pm.Normal("y", pt.repeat(theta, 30) + pt.tile(phi, 40), 1, observed=rng.normal(size=1200))


@optional(seed=92)
def flattened_table(rng, rows=NORMAL[40], cells=NORMAL[31]):
    pm.Normal("y", (rows[:, None] + cells[None, :]).ravel(), 1, observed=rng.normal(size=1240))


@optional(columns=(1219, 2, 93))
def reversed_predictor(rng, X, beta):
    pm.Normal("y", (X @ beta)[::-1], 1, observed=rng.normal(size=1219))


@optional(columns=(1220, 1220, 94))
def square_data_summed_over_rows(rng, X):
    b = pm.Normal("b", 0, 0.1)
    pm.Normal("y", b * pt.as_tensor(X).sum(axis=0), 5, observed=rng.normal(size=1220))


@refused_so_far(columns=(1221, 2, 95))
def normalised_by_the_largest(rng, X):
    beta = pm.Normal("beta", 0, 1, shape=2, initval=[1, 2])
    eta = pt.exp(0.1 * X @ beta)
    pm.Normal("y", eta / eta.max(), 1, observed=rng.normal(size=1221))


@optional(ask=["ls"], columns=(1222, 1, 96))
def spectral_gaussian_process(rng, X):
    ls = pm.Gamma("ls", 5, 5)
    gp = pm.gp.HSGP(m=[8], c=1.5, cov_func=pm.gp.cov.ExpQuad(1, ls))
    f = gp.prior("f", X=X)
    pm.Normal("y", f, 1, observed=rng.normal(size=1222))


# Not finite at the initial point


@not_finite(seed=97)
def observations_out_of_bounds(rng, upper=HALF):
    pm.Uniform("y", 0, upper, observed=rng.uniform(0, 3, size=1223))


@not_finite(columns=(1224, 1, 98))
def undefined_rows(X, sigma, a=HALF):
    pm.Potential("p", -pt.sqrt(a + X[:, 0]) / sigma)


@not_finite(columns=(1235, 1, 99))
def invalid_scales(rng, X, a=HALF):
    sigma = a + 0.5 * X[:, 0]  # negative in some rows
    pm.Normal("y", 0, sigma, observed=rng.normal(size=1235))


@not_finite(columns=(1236, 1, 100))
def invalid_probabilities(rng, X, b=HALF):
    p = 0.5 + 0.3 * b * X[:, 0]  # outside [0, 1] in some rows
    pm.Bernoulli("y", p, observed=rng.integers(2, size=1236))


# To refuse


@refused(r"\bprocess\b", columns=(1100, 1, 101))
def gaussian_process(rng, X):
    ls = pm.Gamma("ls", 5, 5)
    gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls))
    gp.marginal_likelihood("process", X, rng.normal(size=1100), sigma=1.0)


@refused(r"\btotal\b", r"cumsum|cumulative|CumOp", columns=(1225, 1, 102))
def cumulated_predictor(rng, X, theta=NORMAL):
    pm.Normal("total", pt.cumsum(theta * X[:, 0]), 5, observed=rng.normal(size=1225))


@refused(r"\bchoice\b", r"[Ss]oftmax", columns=(1226, 2, 103))
def softmax_over_observations(rng, X, beta):
    p = pm.math.softmax(X @ beta, axis=0)
    pm.Normal("choice", p, 1, observed=rng.normal(size=1226))


@refused(r"\bfiltered\b", r"[Ss]can", columns=(1227, 1, 104))
def recurrence(rng, X):
    rho = pm.Uniform("rho", 0, 1)
    state = scanned(lambda x, before, rho: rho * before + x, [X[:, 0]], pt.zeros(()), rho)
    pm.Normal("filtered", state, 1, observed=rng.normal(size=1227))


@refused(r"\bscore\b", r"\b([Mm]ean|[Ss]um|[Ss]td|[Vv]ar)\b", columns=(1228, 2, 105))
def standardised_predictor(rng, X):
    beta = pm.Normal("beta", 0, 1, shape=2, initval=[1, 2])
    eta = X @ beta
    pm.Normal("score", (eta - eta.mean()) / eta.std(), 1, observed=rng.normal(size=1228))


@refused("Minibatch", columns=(5000, 2, 106))
def minibatch(rng, X, beta):
    X, y = pm.Minibatch(X, rng.normal(size=5000), batch_size=1230)
    pm.Normal("y", X @ beta, 1, observed=y, total_size=5000)


@refused("Minibatch", columns=(5000, 2, 112))
def minibatch_in_a_potential(rng, X, beta):
    X, y = pm.Minibatch(X, rng.normal(size=5000), batch_size=1237)
    pm.Potential("likelihood", pm.logp(pm.Normal.dist(X @ beta, 1), y))


@refused("total_size", columns=(1231, 2, 107))
def total_size(rng, X, beta):
    pm.Normal("y", X @ beta, 1, observed=rng.normal(size=1231), total_size=5000)


@refused(r"\bfield\b", seed=108)
def one_multivariate_normal(rng, scale=HALF):
    cov = scale**2 * np.eye(1050) + 0.1
    pm.MvNormal("field", np.zeros(1050), cov, observed=rng.normal(size=1050))


@refused(r"\branked\b", r"[Ss]ort", columns=(1232, 2, 109))
def sorted_predictor(rng, X, beta):
    pm.Normal("ranked", pt.sort(X @ beta), 1, observed=rng.normal(size=1232))


@refused(r"\bsmooth\b", r"\bDot\b|@|[Mm]atrix|[Mm]atmul|product", columns=(1233, 1101, 110))
def kernel_times_latents(rng, X):
    w = pm.Normal("w", 0, 0.01, shape=1101)
    pm.Normal("smooth", X @ w, 1, observed=rng.normal(size=1233))


@refused(r"\bpartition\b", r"\b([Ll]og|[Ss]um|[Ee]xp|[Ll]og[Ss]um[Ee]xp)\b", columns=(1234, 1, 111))
def partition_function(X, theta=NORMAL):
    pm.Potential("partition", -pt.log(pt.sum(pt.exp(theta * X[:, 0]))))
