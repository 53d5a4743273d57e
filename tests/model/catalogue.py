"""Models on which `factorise` is tested.

Each function defines a model. `MODELS` holds those that `factorise` splits (`required` names the terms that
must be local) and those that it refuses so far, `REFUSED` those that it must refuse. `catalogue_names.txt`
lists all by name, and says how to add one.
"""

# ruff: noqa: B008 - defaults say what a model is given

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


class Default:
    """The default of an argument of a model: what the model is given by that name."""

    def __init__(self, source, *parameters, shape=None):
        self._source, self._parameters, self._shape = source, parameters, shape

    def __call__(self, *parameters):
        return type(self)(self._source, *parameters)

    def __getitem__(self, shape):
        shape = shape if isinstance(shape, tuple) else (shape,)
        return type(self)(self._source, *self._parameters, shape=shape)


class Prior(Default):
    """A variable with this distribution; its shape may be names of dimensions."""

    def given(self, name, rng, n):
        shape = self._shape or ()
        named = {"dims" if isinstance(shape[0], str) else "shape": shape} if shape else {}
        return self._source(name, *self._parameters, **named)


class Data(Default):
    """Random numbers, for each of n rows one or an array of the shape, from a method of NumPy's generator."""

    def given(self, name, rng, n):
        return getattr(rng, self._source)(*self._parameters, size=(n, *(self._shape or ())))


def cholesky(name, n, eta, scale=pm.Exponential):
    """Cholesky factor of a covariance."""
    return pm.LKJCholeskyCov(name, n=n, eta=eta, sd_dist=scale.dist(1, shape=n))[0]


NORMAL, HALF = Prior(pm.Normal, 0, 1), Prior(pm.HalfNormal, 1)
EXPON, BETA, NARROW = Prior(pm.Exponential, 1), Prior(pm.Beta, 2, 2), Prior(pm.Normal, 0, 0.5)
GAMMA, LOG_NORMAL, ZERO_SUM = Prior(pm.Gamma, 2, 2), Prior(pm.LogNormal), Prior(pm.ZeroSumNormal, 1)
UNIFORM, WHOLE, DIRICHLET = Prior(pm.Uniform, 0, 1), Prior(pm.DiscreteUniform), Prior(pm.Dirichlet)
CHOLESKY = Prior(cholesky)
NOISE, BITS, INTEGERS, COUNTS = Data("normal"), Data("integers", 2), Data("integers"), Data("poisson")

# What an argument without a default is; `beta` has a coefficient for each column of X.
DEFAULTS = dict.fromkeys(("a", "b", "mu"), NORMAL) | dict.fromkeys(("sigma", "tau"), HALF) | {"y": NOISE}


def add(entries, *, ask=None, seed=None, rows=None, columns=None, coords=None, **outcome):
    """Decorate a function that defines the model of an entry, with `ask` for the subset.

    A model is a function of data and variables, which it takes by name: `rng`, random numbers, of `seed` or
    of `rows`, the number of rows and a seed; or, of `columns`, which has the shape of a matrix and a seed,
    `rng` and the matrix `X`; and data and variables as their defaults say. Data are drawn in the order of
    the arguments, `y` last. What the function returns, if anything, is done to the model.
    """

    def register(define):
        @wraps(define)
        def build():
            *shape, its_seed = columns or rows or (seed,)
            given = {"rng": np.random.default_rng(its_seed)}
            if columns is not None:
                given["X"] = given["rng"].normal(size=shape)
            with pm.Model(coords=coords) as model, warnings.catch_warnings():
                warnings.simplefilter("ignore", pm.exceptions.ImputationWarning)
                arguments = inspect.signature(define).parameters
                defaults = DEFAULTS | ({"beta": NORMAL[shape[1]]} if columns else {})
                for name in sorted(arguments, key="y".__eq__):
                    own = arguments[name].default
                    default = defaults.get(name) if own is inspect.Parameter.empty else own
                    if default is not None:
                        given[name] = default.given(name, given["rng"], shape[0] if shape else None)
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


@required("y", ask=["sigma"], rows=(1500, 1))
def normal(y=Data("normal", 1, 2), mu=NORMAL(0, 10), sigma=HALF(5)):
    pm.Normal("y", mu, sigma, observed=y)


@required("y", ask=["beta"], columns=(1301, 4, 2))
def linear_matmul(X, y, beta, intercept=NORMAL(0, 5), sigma=HALF(2)):
    pm.Normal("y", intercept + X @ beta, sigma, observed=y)


@required("y", ask=["beta", "sigma"], columns=(1302, 3, 3))
def linear_dot(X, y, beta, sigma=EXPON):
    pm.Normal("y", pm.math.dot(X, beta), sigma, observed=y)


@optional(ask=["c"], columns=(1400, 2, 4))
def sums_of_products(X, y, b, c=NORMAL, a=NORMAL(0, 5)):
    pm.Normal("y", a + b * X[:, 0] + c * X[:, 1] + b * c * X[:, 0] * X[:, 1], 0.7, observed=y)


@optional(columns=(1401, 3, 5))
def sum_over_columns(X, y, beta):
    pm.Normal("y", (X * beta).sum(axis=1), 1, observed=y)


@optional(columns=(1402, 3, 6))
def rows_on_the_last_axis(X, y, beta):
    pm.Normal("y", beta @ X.T, 1, observed=y)


@required("y", ask=["beta"], columns=(1600, 3, 7))
def logistic(X, beta, y=BITS, intercept=NORMAL(0, 2)):
    pm.Bernoulli("y", logit_p=intercept + X @ beta, observed=y)


@required("y", ask=["intercept"], columns=(1450, 2, 9))
def poisson_offset(rng, X, beta, exposure=Data("gamma", 4, 1), intercept=NORMAL(0, 2)):
    mu = pm.math.exp(intercept + X @ beta + np.log(exposure))
    pm.Poisson("y", mu, observed=rng.poisson(exposure))


# Data


@required("y", ask=["beta"], columns=(1501, 3, 10))
def pm_data(rng, X, beta):
    X = pm.Data("X", X)
    pm.Normal("y", X @ beta, 1, observed=pm.Data("y_data", rng.normal(size=1501)))


@required("y", ask=["intercept"], columns=(1502, 3, 11))
def pm_data_shape(X, beta, y=BITS, intercept=NORMAL):
    X = pm.Data("X", X)
    pm.Bernoulli("y", logit_p=intercept + X @ beta, shape=X.shape[0], observed=y)


@optional(ask=["theta"], seed=12)
def pm_data_group_index(rng, theta=NORMAL[30]):
    group = pm.Data("group", rng.integers(30, size=1503))
    pm.Normal("y", theta[group], 1, observed=rng.normal(size=1503))


@optional(columns=(1303, 3, 13))
def fortran_order(X, y, beta, gamma=NORMAL[3]):
    X = np.asfortranarray(X)
    X_data = pm.Data("X", X)
    pm.Normal("y", X @ beta + X_data @ gamma, 1, observed=y)


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
def cumulated_data(X, y, b):
    x = pm.Data("x", X[:, 0])
    pm.Normal("y", b * pt.cumsum(x), 5, observed=y)


@optional(columns=(1309, 2, 19))
def mean_of_data_times_parameter(X, y, beta):
    X = pm.Data("X", X)
    pm.Normal("y", X @ beta - X.mean(axis=0) @ beta, 1, observed=y)


@optional(columns=(1310, 1, 20))
def number_of_rows_in_the_graph(X, y, a):
    x = pm.Data("x", X[:, 0])
    n = x.shape[0]
    pm.Normal("y", a + x / n, pt.sqrt(n / 1000), observed=y)


@optional(columns=(1311, 1, 21))
def row_number_in_the_graph(X, y, a, b):
    x = pm.Data("x", X[:, 0])
    t = pt.arange(x.shape[0]) / 1000.0
    pm.Normal("y", a * x + b * t, 1, observed=y)


@optional(seed=22)
def lagged_data(rng, rho=UNIFORM(-1, 1)):
    z = pm.Data("z", rng.normal(size=1312))
    pm.Normal("y", rho * z[:-1], 1, observed=z.eval()[1:])


@optional(columns=(2400, 1, 23))
def masked_rows(rng, X, a):
    keep = rng.random(2400) < 0.6
    x = pm.Data("x", X[:, 0])
    pm.Normal("y", (a * x)[keep], 1, observed=rng.normal(size=keep.sum()))


# Hierarchical models


@required("y", ask=["theta"], columns=(1700, 1, 24))
def varying_intercepts_centred(X, y, tau, b, g=INTEGERS(50), mu=NORMAL(0, 2)):
    theta = pm.Normal("theta", mu, tau, shape=50)
    pm.Normal("y", theta[g] + b * X[:, 0], 1, observed=y)


@required("y", ask=["mu", "tau"], rows=(1701, 25))
def varying_intercepts_non_centred(tau, g=INTEGERS(50), y=BITS, z=NORMAL[50], mu=NORMAL(0, 2)):
    theta = pm.Deterministic("theta", mu + tau * z)
    pm.Bernoulli("y", logit_p=theta[g], observed=y)


@required("theta", "y", ask=["mu", "tau"], rows=(4000, 26))
def varying_intercepts_many_groups(y, tau, sigma, g=INTEGERS(1500), mu=NORMAL(0, 2)):
    theta = pm.Normal("theta", mu, tau, shape=1500)
    pm.Normal("y", theta[g], sigma, observed=y)


@required("y", ask=["theta"], columns=(1702, 1, 27))
def varying_slopes(X, y, g=INTEGERS(40), mu=NORMAL[2], tau=HALF[2]):
    theta = pm.Normal("theta", mu, tau, shape=(40, 2))
    pm.Normal("y", theta[g, 0] + theta[g][:, 1] * X[:, 0], 1, observed=y)


@optional(columns=(1703, 3, 28))
def varying_slopes_row_products(X, y, g=INTEGERS(40), theta=NORMAL[40, 3]):
    pm.Normal("y", (X * theta[g]).sum(axis=-1), 1, observed=y)


@optional(ask=["alpha"], rows=(1704, 29))
def nested_groups(rng, g=INTEGERS(60), alpha=NORMAL[7]):
    region = rng.integers(7, size=60)
    theta = pm.Normal("theta", alpha[region], 0.5)
    pm.Normal("y", theta[g] + alpha[region][g], 1, observed=rng.normal(size=1704))


@optional(rows=(1705, 30))
def zero_sum_groups(y, g=INTEGERS(20), theta=ZERO_SUM[20]):
    pm.Normal("y", theta[g], 1, observed=y)


@required("theta", "y", ask=["mu", "tau"], rows=(1800, 31))
def latents_with_hyperparameters(y, tau, mu=NORMAL(0, 2)):
    theta = pm.Normal("theta", mu, tau, shape=1800)
    pm.Normal("y", theta, 1, observed=y)


@optional(ask=["theta"], seed=32)
def latents_in_another_order(rng, tau):
    order = rng.permutation(1801)
    theta = pm.Normal("theta", 0, tau, shape=1801)
    pm.Normal("y", theta[order], 1, observed=rng.normal(size=1801))


@optional(ask=["shape"], rows=(1803, 34))
def transformed_latents(y=COUNTS(3), shape=HALF(3)):
    rate = pm.Gamma("rate", shape, 1, shape=1803)
    pm.Poisson("y", rate, observed=y)


# Other likelihoods


@required("y", columns=(1552, 2, 37))
def gamma_log_link(X, beta, sigma, y=Data("gamma", 2, 1)):
    pm.Gamma("y", mu=pt.exp(X @ beta), sigma=sigma, observed=y)


@optional(ask=["sigma"], columns=(1557, 2, 42))
def beta_mean_and_sd(X, y=Data("beta", 5, 5), coef=NORMAL(0, 0.2)[2], sigma=UNIFORM(0.01, 0.2)):
    pm.Beta("y", mu=pm.math.invlogit(0.3 * X @ coef), sigma=sigma, observed=y)


@required("y", ask=["w"], rows=(1651, 46))
def normal_mixture(y, sigma=HALF[3], w=DIRICHLET(np.ones(3)), mu=NORMAL([-2, 0, 2], 1)):
    pm.NormalMixture("y", w, mu, sigma, observed=y)


@optional(ask=["beta"], columns=(1652, 2, 47))
def mixture_of_regressions(X, y, sigma=HALF[2], w=DIRICHLET(np.ones(2)), beta=NORMAL([[-1, 0], [0, 1]], 1)):
    parts = [pm.Normal.dist(X @ beta[k], sigma[k]) for k in range(2)]
    pm.Mixture("y", w, parts, observed=y)


@optional(columns=(1653, 2, 48))
def mixture_with_covariate_weights(X, y, gamma=NORMAL[2, 3], mu=NORMAL([-1, 0, 1], 1)):
    w = pm.math.softmax(X @ gamma, axis=1)
    pm.NormalMixture("y", w, mu, 1, observed=y)


@optional(seed=49)
def mixture_by_hand(rng, mu, w=BETA):
    y = pm.Data("y", rng.normal(size=1654))
    first = pt.log(w) + pm.logp(pm.Normal.dist(mu, 1), y)
    second = pt.log1p(-w) + pm.logp(pm.Normal.dist(0, 3), y)
    pm.Potential("mixture", pm.math.logsumexp([first, second], axis=0).sum())


@required("y", columns=(1655, 3, 50))
def categorical(X, y=INTEGERS(4), beta=NORMAL[3, 4]):
    pm.Categorical("y", logit_p=X @ beta, observed=y)


@optional(columns=(1656, 3, 51))
def categorical_softmax(X, y=INTEGERS(4), beta=NORMAL[3, 4]):
    pm.Categorical("y", pm.math.softmax(X @ beta, axis=-1), observed=y)


@optional(columns=(1657, 2, 52))
def multinomial(X, counts=Data("multinomial", 10, [0.2, 0.3, 0.5]), beta=NORMAL[2, 3]):
    pm.Multinomial("y", 10, pm.math.softmax(X @ beta, axis=-1), observed=counts)


@optional(ask=["cut"], columns=(1658, 2, 53))
def ordered_logistic(X, beta, y=INTEGERS(4)):
    ordered = pm.distributions.transforms.ordered
    cut = pm.Normal("cut", [-1, 0, 1], 2, transform=ordered, initval=[-1, 0, 1])
    pm.OrderedLogistic("y", X @ beta, cut, compute_p=False, observed=y)


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
def custom_dist(X, y, beta, log_scale=NORMAL):
    def logp(value, mu, log_scale):
        z = (value - mu) * pt.exp(-log_scale)
        return -pt.log(pt.cosh(z)) - log_scale

    pm.CustomDist("y", X @ beta, log_scale, logp=logp, observed=y)


# Matrices


@optional(ask=["sigma"], rows=(1250, 58))
def matrix_of_observations(y=NOISE[3], mu=NORMAL[3], sigma=HALF[3]):
    pm.Normal("y", mu, sigma, observed=y)


@optional(columns=(1251, 2, 59))
def transposed_matrix_of_observations(rng, X, beta=NORMAL[3, 2], sigma=HALF[3, 1]):
    pm.Normal("y", beta @ X.T, sigma, observed=rng.normal(size=(3, 1251)))


@optional(ask=["chol"], columns=(1252, 2, 60))
def multivariate_normal_rows(X, y=NOISE[3], beta=NORMAL[2, 3], chol=CHOLESKY(3, 2)):
    pm.MvNormal("y", X @ beta, chol=chol, observed=y)


# Potentials


@required("penalty", columns=(1351, 2, 61))
def potential_vector(X, y, beta):
    pm.Potential("penalty", -pt.abs(y - X @ beta))


@required("likelihood", ask=["beta"], columns=(1352, 2, 62))
def potential_sum(X, y, beta, sigma):
    pm.Potential("likelihood", pm.logp(pm.Normal.dist(X @ beta, sigma), y).sum())


@required("likelihood", columns=(1353, 2, 63))
def potential_difference_of_sums(X, beta, y=BITS, scale=HALF):
    eta = X @ beta
    value = 0.5 * scale * pt.sum(y * eta) - pt.sum(pm.math.log1pexp(eta))
    pm.Potential("likelihood", value)


@required("likelihood", ask=["mu"], rows=(1354, 64))
def potential_with_remainder(y, mu, sigma):
    squares = pt.sum((y - mu) ** 2)
    pm.Potential("likelihood", -1354 * pt.log(sigma) - 0.5 * squares / sigma**2)


@required("likelihood", columns=(1355, 2, 65))
def potential_quadratic_form(X, y, beta):
    r = y - X @ beta
    pm.Potential("likelihood", -0.5 * pt.dot(r, r))


@optional(seed=66)
def potential_of_two_lengths(rng, mu):
    first, second = rng.normal(size=1356), rng.normal(size=1657)
    value = -pt.sum((first - mu) ** 2) - pt.sum(pt.abs(second - mu)) - mu**4
    pm.Potential("likelihood", value)


@optional(rows=(1358, 67))
def potential_mean(y, mu):
    pm.Potential("likelihood", -700 * pt.mean((y - mu) ** 2))


@refused_so_far(rows=(1359, 68))
def potential_square_of_sum(y, mu):
    pm.Potential("likelihood", -((pt.sum(y - mu) / 1000) ** 2))


@optional(columns=(1360, 2, 69))
def potential_of_differences(X, beta):
    eta = X @ beta
    pm.Potential("smoothness", -0.5 * pt.sum((eta[1:] - eta[:-1]) ** 2))


@refused_so_far(columns=(1361, 3, 70))
def potential_matrix_sum_of_columns(X, beta, w=DIRICHLET(np.ones(3))):
    sums = pt.sum(-pt.abs(X - beta), axis=0)
    pm.Potential("likelihood", pt.dot(w, sums))


# Several terms and names


@required("y", "z", ask=["rate"], columns=(1204, 2, 71))
def two_observed(rng, X, beta, y=BITS, rate=HALF):
    pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    pm.Poisson("z", rate * pt.exp(beta[0]), observed=rng.poisson(2, size=2205))


@optional(ask=["sigma"], rows=(1205, 72))
def long_and_short_observed(rng, y, mu, sigma):
    pm.Normal("y", mu, sigma, observed=y)
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
def registered_deterministic(X, y, beta):
    eta = pm.Deterministic("eta", X @ beta)
    sd = pm.Deterministic("sd", pt.exp(0.1 * eta))
    pm.Normal("y", eta, sd, observed=y)


@optional(ask=["beta"], columns=(1209, 2, 76))
def imputed_missing(rng, X, beta, sigma):
    y = np.ma.masked_array(rng.normal(size=1209), mask=np.arange(1209) % 250 == 3)
    pm.Normal("y", X @ beta, sigma, observed=y)


@optional(ask=["a"], columns=(1210, 1, 77))
def bounded_priors(X, y, a=UNIFORM(-2, 3), sigma=UNIFORM(0, 10)):
    b = pm.TruncatedNormal("b", 0, 1, lower=-1)
    pm.Normal("y", a + b * X[:, 0], sigma, observed=y)


# Series


@required("x", "y", ask=["rho", "sigma"], rows=(2000, 78))
def autoregression_1(y, sigma, rho=UNIFORM(-1, 1)):
    x = pm.AR("x", [rho], sigma, init_dist=pm.Normal.dist(0, 1), shape=2000)
    pm.Normal("y", x, 1, observed=y)


@required("x", "y", ask=["rho"], rows=(2000, 79))
def autoregression_2(y, rho=NORMAL(0, 0.3)[3]):
    start = pm.Normal.dist(0, 10, shape=2)
    x = pm.AR("x", rho, sigma=0.5, constant=True, init_dist=start, shape=2000)
    pm.Normal("y", x, 1, observed=y)


@required("x", "y", ask=["sigma"], rows=(2000, 80))
def random_walk(y, sigma):
    start = pm.Normal.dist(0, 1)
    x = pm.GaussianRandomWalk("x", mu=0.001, sigma=sigma, init_dist=start, shape=2000)
    pm.Normal("y", x, 1, observed=y)


@optional(ask=["tau"], seed=82)
def switchpoint(rng, a=EXPON, b=EXPON, tau=WHOLE(0, 1211)):
    t = np.arange(1212)
    pm.Poisson("y", pt.switch(t < tau, a, b), observed=rng.poisson(1 + (t > 500)))


# Predictors built in the graph


@optional(ask=["c"], columns=(1214, 1, 84))
def hinge(X, y, a=NORMAL[2], c=NARROW):
    pm.Normal("y", a[0] + a[1] * pt.maximum(X[:, 0] - c, 0), 1, observed=y)


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
def set_subtensor(X, y, beta, a):
    pm.Normal("y", pt.set_subtensor((X @ beta)[100:400], a), 1, observed=y)


@optional(columns=(1218, 2, 90))
def increment_some_rows(rng, X, beta, a=NORMAL[200]):
    some = rng.choice(1218, size=200, replace=False)
    pm.Normal("y", pt.inc_subtensor((X @ beta)[some], a), 1, observed=rng.normal(size=1218))


@optional(rows=(1200, 91))
def repeated_groups(y, theta=NORMAL[40], phi=NORMAL[30]):
    pm.Normal("y", pt.repeat(theta, 30) + pt.tile(phi, 40), 1, observed=y)


@optional(rows=(1240, 92))
def flattened_table(y, rows=NORMAL[40], cells=NORMAL[31]):
    pm.Normal("y", (rows[:, None] + cells[None, :]).ravel(), 1, observed=y)


@optional(columns=(1219, 2, 93))
def reversed_predictor(X, y, beta):
    pm.Normal("y", (X @ beta)[::-1], 1, observed=y)


@optional(columns=(1220, 1220, 94))
def square_data_summed_over_rows(X, y, b=NORMAL(0, 0.1)):
    pm.Normal("y", b * pt.as_tensor(X).sum(axis=0), 5, observed=y)


@refused_so_far(columns=(1221, 2, 95))
def normalised_by_the_largest(X, y):
    beta = pm.Normal("beta", 0, 1, shape=2, initval=[1, 2])
    eta = pt.exp(0.1 * X @ beta)
    pm.Normal("y", eta / eta.max(), 1, observed=y)


@optional(ask=["ls"], columns=(1222, 1, 96))
def spectral_gaussian_process(X, y, ls=GAMMA(5, 5)):
    gp = pm.gp.HSGP(m=[8], c=1.5, cov_func=pm.gp.cov.ExpQuad(1, ls))
    f = gp.prior("f", X=X)
    pm.Normal("y", f, 1, observed=y)


# Not finite at the initial point


@not_finite(rows=(1223, 97))
def observations_out_of_bounds(y=Data("uniform", 0, 3), upper=HALF):
    pm.Uniform("y", 0, upper, observed=y)


@not_finite(columns=(1224, 1, 98))
def undefined_rows(X, sigma, a=HALF):
    pm.Potential("p", -pt.sqrt(a + X[:, 0]) / sigma)


@not_finite(columns=(1235, 1, 99))
def invalid_scales(X, y, a=HALF):
    sigma = a + 0.5 * X[:, 0]  # negative in some rows
    pm.Normal("y", 0, sigma, observed=y)


@not_finite(columns=(1236, 1, 100))
def invalid_probabilities(X, y=BITS, b=HALF):
    p = 0.5 + 0.3 * b * X[:, 0]  # outside [0, 1] in some rows
    pm.Bernoulli("y", p, observed=y)


# To refuse


@refused(r"\bprocess\b", columns=(1100, 1, 101))
def gaussian_process(rng, X, ls=GAMMA(5, 5)):
    gp = pm.gp.Marginal(cov_func=pm.gp.cov.ExpQuad(1, ls))
    gp.marginal_likelihood("process", X, rng.normal(size=1100), sigma=1.0)


@refused(r"\btotal\b", r"cumsum|cumulative|CumOp", columns=(1225, 1, 102))
def cumulated_predictor(X, y, theta=NORMAL):
    pm.Normal("total", pt.cumsum(theta * X[:, 0]), 5, observed=y)


@refused(r"\bchoice\b", r"[Ss]oftmax", columns=(1226, 2, 103))
def softmax_over_observations(X, y, beta):
    pm.Normal("choice", pm.math.softmax(X @ beta, axis=0), 1, observed=y)


@refused(r"\bfiltered\b", r"[Ss]can", columns=(1227, 1, 104))
def recurrence(X, y, rho=UNIFORM):
    state = scanned(lambda x, before, rho: rho * before + x, [X[:, 0]], pt.zeros(()), rho)
    pm.Normal("filtered", state, 1, observed=y)


@refused(r"\bscore\b", r"\b([Mm]ean|[Ss]um|[Ss]td|[Vv]ar)\b", columns=(1228, 2, 105))
def standardised_predictor(X, y):
    beta = pm.Normal("beta", 0, 1, shape=2, initval=[1, 2])
    eta = X @ beta
    pm.Normal("score", (eta - eta.mean()) / eta.std(), 1, observed=y)


@refused("Minibatch", columns=(5000, 2, 106))
def minibatch(rng, X, beta):
    X, y = pm.Minibatch(X, rng.normal(size=5000), batch_size=1230)
    pm.Normal("y", X @ beta, 1, observed=y, total_size=5000)


@refused("Minibatch", columns=(5000, 2, 112))
def minibatch_in_a_potential(rng, X, beta):
    X, y = pm.Minibatch(X, rng.normal(size=5000), batch_size=1237)
    pm.Potential("likelihood", pm.logp(pm.Normal.dist(X @ beta, 1), y))


@refused("total_size", columns=(1231, 2, 107))
def total_size(X, y, beta):
    pm.Normal("y", X @ beta, 1, observed=y, total_size=5000)


@refused(r"\bfield\b", rows=(1050, 108))
def one_multivariate_normal(y, scale=HALF):
    cov = scale**2 * np.eye(1050) + 0.1
    pm.MvNormal("field", np.zeros(1050), cov, observed=y)


@refused(r"\branked\b", r"[Ss]ort", columns=(1232, 2, 109))
def sorted_predictor(X, y, beta):
    pm.Normal("ranked", pt.sort(X @ beta), 1, observed=y)


@refused(r"\bsmooth\b", r"\bDot\b|@|[Mm]atrix|[Mm]atmul|product", columns=(1233, 1101, 110))
def kernel_times_latents(X, y, w=NORMAL(0, 0.01)[1101]):
    pm.Normal("smooth", X @ w, 1, observed=y)


@refused(r"\bpartition\b", r"\b([Ll]og|[Ss]um|[Ee]xp|[Ll]og[Ss]um[Ee]xp)\b", columns=(1234, 1, 111))
def partition_function(X, theta=NORMAL):
    pm.Potential("partition", -pt.log(pt.sum(pt.exp(theta * X[:, 0]))))
