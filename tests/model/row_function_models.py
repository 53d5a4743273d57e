"""Models whose rows are functions of few predictors, or of none that is known."""

import numpy as np
import pymc as pm
import pytensor.tensor as pt

N = 240
_RNG = np.random.default_rng(5)
X = _RNG.normal(size=(N, 3))
COUNTS, REAL, BITS = _RNG.poisson(2, N), _RNG.normal(size=N), _RNG.integers(0, 2, N)
POSITIVE, UNIT = np.exp(REAL), _RNG.beta(2, 3, N)
GROUP = _RNG.integers(0, 70, N)
exp, sigmoid = pm.math.exp, pm.math.sigmoid

# By name: a function that adds the term "y" to a model, the number of predictors, and where.
MODELS = {}


def model(p, where="q"):
    """Keep a function by its name."""

    def keep(function):
        MODELS[function.__name__] = function, p, where
        return function

    return keep


def eta(name="b"):
    """A linear predictor."""
    return pm.Normal(f"{name}_0") + X @ pm.Normal(name, shape=3)


def half(name="s"):
    """A positive parameter."""
    return pm.HalfNormal(name)


def cutpoints():
    """Three, in order."""
    ordered = pm.distributions.transforms.ordered
    return pm.Normal("c", shape=3, transform=ordered, initval=[-1.0, 0.0, 1.0])


# Those of one expression, by the number of predictors or what is in the way.
TERMS = {
    1: {
        "poisson": lambda: pm.Poisson("y", exp(eta()), observed=COUNTS),
        "poisson_identity": lambda: pm.Poisson("y", eta() ** 2, observed=COUNTS),
        "truncated_poisson": lambda: pm.Truncated(
            "y", pm.Poisson.dist(exp(eta())), lower=1, observed=COUNTS + 1
        ),
        "binomial": lambda: pm.Binomial("y", n=20, p=sigmoid(eta()), observed=COUNTS),
        "geometric": lambda: pm.Geometric("y", p=sigmoid(eta()), observed=COUNTS + 1),
        "bernoulli_logit": lambda: pm.Bernoulli("y", logit_p=eta(), observed=BITS),
        "bernoulli_sigmoid": lambda: pm.Bernoulli("y", p=sigmoid(eta()), observed=BITS),
        "bernoulli_probit": lambda: pm.Bernoulli("y", p=pm.math.invprobit(eta()), observed=BITS),
        "bernoulli_cloglog": lambda: pm.Bernoulli("y", p=1 - exp(-exp(eta())), observed=BITS),
        "pareto": lambda: pm.Pareto("y", alpha=exp(eta()), m=0.001, observed=POSITIVE),
    },
    2: {
        "negative_binomial": lambda: pm.NegativeBinomial("y", mu=exp(eta()), alpha=half(), observed=COUNTS),
        "zero_inflated_poisson": lambda: pm.ZeroInflatedPoisson(
            "y", psi=pm.Beta("psi", 1, 1), mu=exp(eta()), observed=COUNTS
        ),
        "hurdle_poisson": lambda: pm.HurdlePoisson(
            "y", psi=pm.Beta("psi", 1, 1), mu=exp(eta()), observed=COUNTS
        ),
        "beta_binomial": lambda: pm.BetaBinomial("y", alpha=exp(eta()), beta=half(), n=20, observed=COUNTS),
        "categorical": lambda: pm.Categorical(
            "y", logit_p=X @ pm.Normal("b", shape=(3, 3)), observed=np.minimum(COUNTS, 2)
        ),
        "normal": lambda: pm.Normal("y", eta(), half(), observed=REAL),
        "normal_log_scale": lambda: pm.Normal("y", eta(), exp(eta("g")), observed=REAL),
        "censored_normal": lambda: pm.Censored(
            "y", pm.Normal.dist(eta(), half()), lower=None, upper=1.0, observed=np.minimum(REAL, 1.0)
        ),
        "log_normal": lambda: pm.LogNormal("y", eta(), half(), observed=POSITIVE),
        "laplace": lambda: pm.Laplace("y", eta(), half(), observed=REAL),
        "cauchy": lambda: pm.Cauchy("y", eta(), half(), observed=REAL),
        "gumbel": lambda: pm.Gumbel("y", eta(), half(), observed=REAL),
        "logistic": lambda: pm.Logistic("y", eta(), half(), observed=REAL),
        "beta_sigma": lambda: pm.Beta("y", mu=sigmoid(eta()), sigma=pm.Uniform("s", 0, 0.3), observed=UNIT),
        "inverse_gamma": lambda: pm.InverseGamma("y", alpha=half(), beta=exp(eta()), observed=POSITIVE),
        "weibull": lambda: pm.Weibull("y", alpha=half(), beta=exp(eta()), observed=POSITIVE),
        "custom": lambda: pm.CustomDist(
            "y", eta(), half(), logp=lambda v, m, s: -pm.math.log(s) - (v - m) ** 2 / s**2, observed=REAL
        ),
    },
    3: {
        "zero_inflated_negative_binomial": lambda: pm.ZeroInflatedNegativeBinomial(
            "y", psi=pm.Beta("psi", 1, 1), mu=exp(eta()), alpha=half(), observed=COUNTS
        ),
        "hurdle_negative_binomial": lambda: pm.HurdleNegativeBinomial(
            "y", psi=pm.Beta("psi", 1, 1), mu=exp(eta()), alpha=half(), observed=COUNTS
        ),
        "student": lambda: pm.StudentT(
            "y", nu=pm.Exponential("nu", 0.1), mu=eta(), sigma=half(), observed=REAL
        ),
        "asymmetric_laplace": lambda: pm.AsymmetricLaplace(
            "y", mu=eta(), b=half(), kappa=half("k"), observed=REAL
        ),
        "skew_normal": lambda: pm.SkewNormal(
            "y", mu=eta(), sigma=half(), alpha=pm.Normal("a"), observed=REAL
        ),
        "ex_gaussian": lambda: pm.ExGaussian("y", mu=eta(), sigma=half(), nu=half("nu"), observed=REAL),
    },
    "'s_log__' enters the term 'y' through I0e, whose derivatives have no known bounds": {
        "von_mises": lambda: pm.VonMises("y", mu=eta(), kappa=half(), observed=REAL)
    },
    "'z', which enters the term 'y', is discrete": {
        "discrete": lambda: pm.Poisson("y", exp(eta()) + pm.Bernoulli("z", 0.5), observed=COUNTS)
    },
}
for p, terms in TERMS.items():
    MODELS.update({name: (term, p, "q") for name, term in terms.items()})


@model(2)
def negative_binomial_n_p():
    n = half()
    pm.NegativeBinomial("y", n=n, p=n / (n + exp(eta())), observed=COUNTS)


@model(2, "phi")
def ordered_logistic():
    b = X @ pm.Normal("b", shape=3)
    pm.OrderedLogistic("y", eta=b, cutpoints=cutpoints(), observed=np.minimum(COUNTS, 3))


@model(2, "phi")
def ordered_probit():
    b = X @ pm.Normal("b", shape=3)
    pm.OrderedProbit("y", eta=b, cutpoints=cutpoints(), observed=np.minimum(COUNTS, 3))


@model(2)
def truncated_on_both_sides():
    pm.TruncatedNormal("y", eta(), half(), lower=-4.0, upper=4.0, observed=np.clip(REAL, -3.9, 3.9))


@model(2)
def categorical_with_reference():
    others = X @ pm.Normal("b", shape=(3, 2))
    p = pm.math.softmax(pt.concatenate([pt.zeros((N, 1)), others], axis=1), axis=-1)
    pm.Categorical("y", p=p, observed=np.minimum(COUNTS, 2))


@model(3)
def multinomial():
    p = pm.math.softmax(X @ pm.Normal("b", shape=(3, 3)), axis=-1)
    pm.Multinomial("y", n=5, p=p, observed=np.random.default_rng(1).multinomial(5, [0.3, 0.3, 0.4], N))


@model(2)
def beta_phi():
    mu, phi = sigmoid(eta()), half()
    pm.Beta("y", alpha=mu * phi, beta=(1 - mu) * phi, observed=UNIT)


@model(2)
def gamma():
    alpha = half()
    pm.Gamma("y", alpha=alpha, beta=alpha / exp(eta()), observed=POSITIVE)


@model(2)
def censored_weibull():
    weibull = pm.Weibull.dist(alpha=half(), beta=exp(eta()))
    pm.Censored("y", weibull, lower=None, upper=2.0, observed=np.minimum(POSITIVE, 2.0))


@model(4)
def mixture():
    parts = [pm.Normal.dist(pm.Normal("m"), 1.0), pm.Normal.dist(pm.Normal("k"), half())]
    pm.Mixture("y", w=pm.Dirichlet("w", [1.0, 1.0]), comp_dists=parts, observed=REAL)


@model(4)
def normal_mixture():
    w, mu = pm.Dirichlet("w", [1.0, 1.0]), pm.Normal("m", shape=2)
    pm.NormalMixture("y", w=w, mu=mu, sigma=half(), observed=REAL)


@model(2)
def potential():
    scale = half()
    pm.Potential("y", -pm.math.log(scale) - pm.math.log(1 + ((REAL - eta()) / scale) ** 2))


@model(2, "phi")
def groups():
    u = pm.Normal("u", shape=70)[GROUP] * half("tau")
    pm.Normal("y", u + eta(), half(), observed=REAL)


@model(3)
def group_scales():
    u = exp(pm.Normal("u", shape=70))[GROUP]
    pm.StudentT("y", nu=half("nu"), mu=eta(), sigma=u, observed=REAL)


@model(1)
def residual_twice():
    r = REAL - eta()
    pm.Potential("y", -pm.math.log1p(r**2) - exp(r))


@model("'a_log__' and 'k_log__' enter the term 'y' through BetaInc, whose derivatives have no known bounds")
def censored_beta():
    beta = pm.Beta.dist(half("a"), half("k"))
    pm.Censored("y", beta, lower=None, upper=0.5, observed=np.minimum(UNIT, 0.5))


@model("the term 'y' is a function of 11 linear predictors, and bounds are known for 9 at most")
def network():
    hidden = pm.math.tanh(X @ pm.Normal("v", shape=(3, 5)))
    pm.Normal("y", hidden @ pm.Normal("w", shape=5), half(), observed=REAL)
