"""Models for `factorise` as users in many fields write them: econometrics, marketing, series, space, text.

Importing this module adds them to `catalogue.MODELS`.
"""

# ruff: noqa: B008 - defaults say what a model is given

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import pytensor.tensor as pt

from .catalogue import (
    BETA,
    BITS,
    CHOLESKY,
    COUNTS,
    DIRICHLET,
    EXPON,
    GAMMA,
    HALF,
    INTEGERS,
    NARROW,
    NOISE,
    NORMAL,
    UNIFORM,
    ZERO_SUM,
    Data,
    coords,
    optional,
    required,
)
from .catalogue_fields_a import with_gaps

# Econometrics


@required("y", ask=["s"], columns=(1202, 1, 2002))
def three_quantiles_at_once(X, y):
    q = np.array([0.1, 0.5, 0.9])
    coords({"q": q})
    a = pm.Normal("a", 0, 1, dims="q")
    b = pm.Normal("b", 0, 1, dims="q")
    s = pm.HalfNormal("s", 1, dims="q")
    pm.AsymmetricLaplace("y", b=s, q=q, mu=a + X * b, observed=np.tile(y[:, None], (1, 3)))


@required("claims", ask=["alpha"], columns=(1207, 1, 2007))
def truncated_counts(rng, X, alpha=EXPON, b=NARROW[2]):
    positive = pm.NegativeBinomial.dist(mu=pt.exp(b[0] + b[1] * X[:, 0]), alpha=alpha)
    pm.Truncated("claims", positive, lower=1, observed=1 + rng.poisson(1, size=1207))


@required("outcome", "selected", ask=["rho"], columns=(1208, 2, 2008))
def heckman_selection(rng, X, sigma, g=NORMAL[2], b=NORMAL[2], rho=UNIFORM(-0.9, 0.9)):
    y, selected = rng.normal(size=1208), rng.integers(2, size=1208)
    normal = pm.Normal.dist(0, 1)
    z, r = X @ g, (y - X @ b) / sigma
    inside = pm.logcdf(normal, (z + rho * r) / pt.sqrt(1 - rho**2))
    outside = pm.logcdf(normal, -z)
    pm.Potential("outcome", (selected * (pm.logp(normal, r) - pt.log(sigma))).sum())
    pm.Potential("selected", pt.switch(selected, inside, outside).sum())


@required("panel", ask=["delta", "tau"], rows=(1200, 2009))
def panel_with_unit_and_time_effects(y, tau, sigma, delta=NORMAL):
    unit, year = np.repeat(np.arange(150), 8), np.tile(np.arange(8), 150)
    treated = (unit < 60) & (year >= 5)
    coords({"unit": np.arange(150), "year": np.arange(8)})
    unit_effect = pm.Normal("unit_effect", 0, tau, dims="unit")
    year_effect = pm.ZeroSumNormal("year_effect", 1, dims="year")
    pm.Normal("panel", unit_effect[unit] + year_effect[year] + delta * treated, sigma, observed=y)


@required("votes", ask=["slopes"], rows=(1211, 2011))
def regression_discontinuity(y, margin=Data("uniform", -1, 1), jump=NORMAL, slopes=NORMAL[2, 2]):
    x = pm.Data("margin", margin)
    side = pt.ge(x, 0)
    design = pt.stack([x, x**2]).T
    mu = jump * side + pt.where(side[:, None], design * slopes[0], design * slopes[1]).sum(axis=1)
    pm.StudentT("votes", nu=4, mu=mu, sigma=1, observed=y)


@required("cost", ask=["noise"], columns=(1212, 2, 2012))
def stochastic_frontier(rng, X, beta, noise=HALF, slack=HALF):
    total, ratio = pt.sqrt(noise**2 + slack**2), slack / noise
    e = rng.normal(size=1212) - pm.math.dot(X, beta)
    skew = pm.logcdf(pm.Normal.dist(), -e * ratio / total)
    pm.Potential("cost", np.log(2) + pm.logp(pm.Normal.dist(0, total), e) + skew)


@required("y", ask=["beta"], columns=(1213, 3, 2013))
def probit(X, y=BITS, beta=NARROW[3]):
    pm.Bernoulli("y", p=pm.math.invprobit(X @ beta), observed=y)


@required("choice", ask=["asc"], rows=(1214, 2014))
def travel_mode_by_tensor(X=NOISE[4, 2], y=INTEGERS(4), asc=NORMAL[3]):
    coords({"trip": range(1214), "mode": list("abcd"), "attribute": ["cost", "time"]})
    X = pm.Data("X", X, dims=("trip", "mode", "attribute"))
    beta = pm.Normal("beta", 0, 1, dims="attribute")
    u = pm.Deterministic("u", pt.concatenate([[0.0], asc]) + X @ beta, dims=("trip", "mode"))
    p = pm.Deterministic("p", pm.math.softmax(u, axis=1), dims=("trip", "mode"))
    pm.Categorical("choice", p=p, observed=y, dims="trip")


@required("chosen", rows=(1215, 2015))
def conditional_logit_by_tensordot(rng, X=NOISE[3, 2], beta=NORMAL[2]):
    chosen = np.eye(3)[rng.integers(3, size=1215)]
    u = pt.tensordot(X, beta, axes=[[2], [0]])
    log_p = u - pt.logsumexp(u, axis=1, keepdims=True)
    pm.Potential("chosen", (chosen * log_p).sum())


@required("bank", ask=["mu"], rows=(1216, 2016))
def mixed_logit_of_panellists(rng, X=NOISE[3, 2], mu=NORMAL[2], sd=HALF[2], z=NORMAL[80, 2]):
    person = rng.integers(80, size=1216)
    beta = pm.Deterministic("beta", mu + z * sd)
    u = (X * beta[person][:, None, :]).sum(axis=-1)
    pm.Categorical("bank", logit_p=u, observed=rng.integers(3, size=1216))


@required("matched", ask=["beta"], columns=(4 * 1217, 2, 2017))
def matched_case_control(X, beta=NORMAL[2]):
    eta = pt.dot(X, beta).reshape((-1, 4))
    pm.Potential("matched", eta[:, 0] - pt.logsumexp(eta, axis=1))


@required("likelihood", ask=["sigma"], columns=(1219, 2, 2019))
def normalised_survey_weights(rng, X, beta, sigma):
    w = pm.Data("w", rng.gamma(4, 0.25, size=1219))
    y = pm.Data("y", rng.normal(size=1219))
    lp = pm.logp(pm.Normal.dist(pm.math.dot(X, beta), sigma), y)
    pm.Potential("likelihood", pt.sum(w / w.mean() * lp))


@required("vote", ask=["s"], rows=(1220, 2020))
def poststratified_poll(rng, sex=BITS, age=INTEGERS(4), state=INTEGERS(50), b0=NORMAL, s=HALF[4]):
    n = rng.integers(1, 40, size=1220)
    region = rng.integers(5, size=50)
    coords({"sex": ["m", "f"], "age": range(4), "state": range(50), "region": range(5)})
    sex_effect = pm.ZeroSumNormal("sex_effect", 0.5, dims="sex")
    age_effect = pm.Normal("age_effect", 0, s[0], dims="age")
    region_effect = pm.Normal("region_effect", 0, s[1], dims="region")
    state_effect = pm.Normal("state_effect", region_effect[region], s[2], dims="state")
    cell = pm.Normal("cell", 0, s[3], dims=("sex", "age"))
    eta = b0 + sex_effect[sex] + age_effect[age] + state_effect[state] + cell[sex, age]
    pm.Binomial("vote", n=n, logit_p=eta, observed=rng.binomial(n, 0.5))


# Mixtures and robust models


@required("y", ask=["alpha", "beta"], rows=(1232, 2032))
def stick_breaking_mixture(y, alpha=GAMMA(1, 1)):
    K = 12

    def stick_breaking(beta):
        remaining = pt.concatenate([[1], pt.extra_ops.cumprod(1 - beta)])
        return pt.concatenate([beta, [1]]) * remaining

    coords({"stick": np.arange(K - 1), "component": np.arange(K), "obs_id": np.arange(1232)})
    beta = pm.Beta("beta", 1.0, alpha, dims="stick")
    w = pm.Deterministic("w", stick_breaking(beta), dims="component")
    tau = pm.Gamma("tau", 1.0, 1.0, dims="component")
    mu = pm.Normal("mu", 0, tau=tau, dims="component")
    pm.NormalMixture("y", w, mu, tau=tau, observed=y, dims="obs_id")


@required("y", ask=["gamma"], columns=(1233, 1, 2033))
def dependent_density_regression(rng, X):
    K = 5
    alpha = pm.Normal("alpha", 0, 2, shape=K)
    beta = pm.Normal("beta", 0, 1, shape=K)
    v = pm.math.invprobit(alpha + beta * X)
    left = pt.concatenate([pt.ones((1233, 1)), pt.cumprod(1 - v, axis=1)[:, :-1]], axis=1)
    w = pm.Deterministic("w", v * left / (v * left).sum(axis=1, keepdims=True))
    gamma = pm.Normal("gamma", 0, 1, shape=K)
    delta = pm.Normal("delta", 0, 1, shape=K)
    pm.NormalMixture("y", w, gamma + delta * X, tau=1.0, observed=rng.normal(size=(1233, 1))[:, 0])


@required("is_outlier", "y", ask=["beta", "frac"], columns=(1235, 1, 2035))
def hogg_outliers(X, y, y_out=NORMAL, beta=NORMAL(0, 10)[2], sd_out=HALF(10), frac=UNIFORM(0, 0.5)):
    coords({"datapoint": np.arange(1235)})
    x = pm.Data("x", X[:, 0], dims="datapoint")
    is_outlier = pm.Bernoulli("is_outlier", p=frac, dims="datapoint")
    inlier_p = (1 - is_outlier) * pm.logp(pm.Normal.dist(beta[0] + beta[1] * x, 1), y)
    outlier_p = is_outlier * pm.logp(pm.Normal.dist(y_out, 1 + sd_out), y)
    pm.Potential("y", inlier_p.sum() + outlier_p.sum())


@required("z", "y", ask=["mu", "p"], rows=(1236, 2036))
def discrete_classes_with_switch(y, p=BETA, mu=NORMAL([-1, 1], 1)):
    z = pm.Bernoulli("z", p, shape=1236)
    pm.Normal("y", pm.math.switch(z, mu[1], mu[0]), 1, observed=y)


@required("likelihood", ask=["mu"], seed=2038)
def truncated_mixture_by_hand(rng, w=BETA, mu=NORMAL(1, 1)[2]):
    y = rng.gamma(2, 1, size=1238) + 0.5
    first, second = pm.Normal.dist(mu[0], 1), pm.Normal.dist(mu[1], 2)
    logs = pt.stack([pt.log(w), pt.log1p(-w)])
    density = pt.logsumexp(pt.stack([pm.logp(first, y), pm.logp(second, y)], axis=1) + logs, axis=1)
    above = pt.stack([pm.logcdf(first, 0.5), pm.logcdf(second, 0.5)])
    below = pm.math.logsumexp(above + logs)
    pm.Potential("likelihood", density.sum() - 1238 * pm.math.log1mexp(below))


@required("is_wet", "amount", ask=["sigma"], columns=(2440, 2, 2040))
def hurdle_in_two_parts(rng, X, sigma, a=NORMAL[2], b=NARROW[2]):
    y = rng.gamma(2, 1, size=2440) * rng.integers(2, size=2440)
    wet = y > 0
    pm.Bernoulli("is_wet", logit_p=X @ a, observed=wet)
    pm.LogNormal("amount", (X @ b)[wet], sigma, observed=y[wet])


@required("doctor", ask=["b"], columns=(1241, 2, 2041))
def hurdle_poisson(rng, X, b=NARROW[2, 2]):
    psi, mu = pm.math.invlogit(X @ b[0]), pt.exp(X @ b[1])
    y = (rng.poisson(1, size=1241) + 1) * rng.integers(2, size=1241)
    pm.HurdlePoisson("doctor", psi=psi, mu=mu, observed=y)


@required("y", ask=["d"], columns=(1242, 2, 2042))
def dispersion_regression(X, exposure=Data("uniform", 1, 9), y=COUNTS(4), b=NARROW[2], d=NARROW[2]):
    mu = exposure * pt.exp(X @ b)
    alpha = pt.exp(X @ d)
    pm.NegativeBinomial("y", n=alpha, p=alpha / (mu + alpha), observed=y)


@required("y", ask=["slope"], columns=(1243, 1, 2043))
def location_scale_groups(X, y, g=INTEGERS(25), loc=NORMAL[25], log_scale=NORMAL(0, 0.3)[25]):
    slope = pm.Normal("slope", 0, 0.3)
    sigma = pm.math.exp(log_scale[g] + slope * X[:, 0])
    pm.Normal("y", loc[g], sigma, observed=y)


@required("y", ask=["tau", "z"], columns=(1244, 20, 2044))
def horseshoe(X, y, z=NORMAL[20]):
    tau = pm.HalfCauchy("tau", 0.1)
    lam = pm.HalfCauchy("lam", 1, shape=20)
    c2 = pm.InverseGamma("c2", 2, 2)
    lam_ = lam * pt.sqrt(c2 / (c2 + tau**2 * lam**2))
    beta = pm.Deterministic("beta", z * tau * lam_)
    pm.Normal("y", pm.math.dot(X, beta), 1, observed=y)


@required("y", ask=["xi"], columns=(1245, 4, 2045))
def spike_and_slab(X, y, beta):
    xi = pm.Bernoulli("xi", 0.5, shape=4)
    pm.Normal("y", pt.dot(X, xi * beta), 1, observed=y)


@required("likelihood", ask=["lam"], columns=(1246, 4, 2046))
def soft_thresholding(X, y, lam=HALF(0.5)):
    beta = pm.Normal("beta", 0, 1, shape=4, initval=[1, -1, 0.5, 2])
    eta = X @ beta
    shrunk = pt.sign(eta) * pt.maximum(pt.abs(eta) - lam, 0)
    pm.Potential("likelihood", -0.5 * pt.sum(pt.sqr(y - shrunk)))


@required("u", "v", "copula", ask=["rho"], rows=(1247, 2047))
def gaussian_copula(y, mu, x=Data("gamma", 2, 1), rate=GAMMA(4, 4), rho=UNIFORM(-0.9, 0.9)):
    pm.Exponential("u", rate, observed=x)
    pm.Normal("v", mu, 1, observed=y)
    a = pm.math.probit(-pt.expm1(-rate * x))
    b = y - mu
    quadratic = (rho**2 * (a**2 + b**2) - 2 * rho * a * b) / (1 - rho**2)
    pm.Potential("copula", -0.5 * pt.sum(pt.log1p(-(rho**2)) + quadratic))


# Marketing


@required("sales", ask=["beta"], columns=(1250, 2, 2050))
def geometric_adstock(X, y):
    spend = np.abs(X)

    def adstock(x, alpha, l_max=6):
        cycles = [pt.concatenate([pt.zeros((i,)), x[: x.shape[0] - i]]) for i in range(l_max)]
        w = pt.as_tensor_variable([pt.power(alpha, i) for i in range(l_max)])
        return pt.dot(w / pt.sum(w), pt.stack(cycles))

    coords({"channel": ["tv", "web"], "date": np.arange(1250)})
    spend = pm.Data("spend", spend, dims=("date", "channel"))
    alpha = pm.Beta("alpha", 2, 2, dims="channel")
    beta = pm.HalfNormal("beta", 1, dims="channel")
    lam = pm.Gamma("lam", 3, 1, dims="channel")
    x = pt.stack([adstock(spend[:, c], alpha[c]) for c in range(2)], axis=-1)
    saturated = (1 - pt.exp(-lam * x)) / (1 + pt.exp(-lam * x))
    mu = pm.Deterministic("mu", (saturated * beta).sum(axis=-1), dims="date")
    pm.Normal("sales", mu, 1, observed=y, dims="date")


@optional(ask=["alpha"], columns=(1251, 2, 2051))
def adstock_by_batched_convolution(X, y, alpha=BETA[2]):
    l_max = 5
    x = pm.Data("x", np.abs(X))
    w = pt.power(alpha[:, None], pt.arange(l_max))
    padded = pt.zeros((1251 + l_max - 1, 2))
    padded = pt.set_subtensor(padded[l_max - 1 :], x)
    lags = pt.stack([padded[l_max - 1 - i : l_max - 1 - i + 1251] for i in range(l_max)], axis=-1)
    pm.Normal("y", (lags * w[None]).sum(axis=(1, 2)), 1, observed=y)


@required("y", ask=["kappa"], columns=(1252, 2, 2052))
def hill_saturation(X, y, beta=HALF[2], slope=GAMMA(4, 2)[2], kappa=GAMMA(4, 4)[2]):
    x = np.abs(X) + 0.05
    response = 1 - kappa**slope / (kappa**slope + x**slope)
    pm.Normal("y", response @ beta, 1, observed=y)


@required("p0", "conversions", ask=["lift"], rows=(1254, 2054))
def a_b_tests_with_shared_prior(rng, n=INTEGERS(50, 500)[2], base=BETA(2, 20), kappa=GAMMA(5, 0.1)):
    lift = pm.Normal("lift", 0, 0.1)
    p0 = pm.Beta("p0", base * kappa, (1 - base) * kappa, shape=1254)
    p = pt.stack([p0, pm.math.invlogit(pm.math.logit(p0) + lift)], axis=1)
    pm.Binomial("conversions", n=n, p=p, observed=rng.binomial(n, 0.1))


@required("demand", ask=["chol", "fourier"], seed=2055)
def price_elasticities_of_products(rng, z=NORMAL[40, 2], mu=NORMAL([1, -1], 1), fourier=NORMAL(0, 0.3)[6]):
    product, store, week = (rng.integers(k, size=1255) for k in (40, 15, 52))
    log_price = rng.normal(size=1255)
    t = np.arange(52) / 52
    F = np.column_stack([f(2 * np.pi * k * t) for k in (1, 2, 3) for f in (np.sin, np.cos)])
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))
    ab = mu + z @ chol.T
    store_effect = pm.Normal("store_effect", 0, 0.3, shape=15)
    season = pm.Deterministic("season", pt.dot(F, fourier))
    log_mu = ab[product, 0] + ab[product, 1] * log_price + store_effect[store] + season[week]
    pm.Poisson("demand", pt.exp(log_mu), observed=rng.poisson(3, size=1255))


# Series


@required("h", "r", ask=["step", "nu"], rows=(1260, 2060))
def stochastic_volatility_as_walk(y, step=EXPON(10), nu=EXPON(0.1)):
    coords({"time": pd.date_range("2000-01-01", periods=1260)})
    h = pm.GaussianRandomWalk("h", sigma=step, init_dist=pm.Normal.dist(0, 1), dims="time")
    volatility = pm.Deterministic("volatility", pm.math.exp(h / 2), dims="time")
    pm.StudentT("r", nu=nu + 2, lam=1 / volatility**2, observed=y, dims="time")


@required("h", "r", ask=["phi"], rows=(1261, 2061))
def stochastic_volatility_as_autoregression(y, mu, s=HALF, phi=UNIFORM(-1, 1)):
    start = pm.Normal.dist(0, 1)
    h = pm.AR("h", rho=[mu * (1 - phi), phi], sigma=s, constant=True, init_dist=start, shape=1261)
    pm.Normal("r", 0, pt.exp(h / 2), observed=y)


@required("h", "transitions", "r", ask=["phi", "s"], rows=(1262, 2062))
def stochastic_volatility_by_hand(y, mu, s=HALF, phi=UNIFORM(-1, 1), h=NORMAL(0, 100)[1262]):
    step = pm.Normal.dist(mu + phi * (h[:-1] - mu), s)
    pm.Potential("transitions", pm.logp(step, h[1:]).sum())
    pm.Potential("start", pm.logp(pm.Normal.dist(mu, s / pt.sqrt(1 - phi**2)), h[0]))
    pm.Normal("r", 0, pt.exp(h / 2), observed=y)


@required("y", ask=["rho"], rows=(1266, 2064))
def autoregression_on_lagged_data(sigma, values=NOISE, rho=NORMAL(0, 0.3)[2]):
    y = pm.Data("series", values)
    pm.Normal("y", rho[0] * y[1:-1] + rho[1] * y[:-2], sigma, observed=values[2:])


@required("y", ask=["rho"], seed=2065)
def autoregression_as_custom_scan(rng, init=NORMAL[2], rho=NORMAL(0, 0.2)[2], sigma=HALF(0.5)):
    steps = 1265

    def ar_step(x_tm2, x_tm1, rng, rho, sigma):
        mu = x_tm1 * rho[0] + x_tm2 * rho[1]
        rng, x = pm.Normal.dist(mu, sigma, rng=rng, return_next_rng=True)
        return x, rng

    def ar_dist(init, rho, sigma, size):
        innov, _ = pytensor.scan(
            ar_step,
            outputs_info=[{"initial": init, "taps": [-2, -1]}, pytensor.shared(np.random.default_rng(1))],
            non_sequences=[rho, sigma],
            n_steps=steps,
            strict=True,
            return_updates=False,
        )
        return innov

    pm.CustomDist("y", init, rho, sigma, dist=ar_dist, observed=rng.normal(size=steps))


@required("y", ask=["coefs"], rows=(1268, 2066), coords={"lags": [1, 2], "equations": list("abc")})
def vector_autoregression(data=NOISE[3], intercept=NORMAL[3,], chol=CHOLESKY(3, 2)):
    lags = 2
    coefs = pm.Normal("coefs", 0, 0.3, shape=(lags, 3, 3))
    betas = []
    for j in range(3):
        ars = [pm.math.sum(coefs[i, j] * data[lags - i - 1 : -(i + 1)], axis=-1) for i in range(lags)]
        betas.append(pm.math.sum(ars, axis=0))
    mean = intercept + pm.math.stack(betas, axis=-1)
    pm.MvNormal("y", mu=mean, chol=chol, observed=data[lags:])


@required("level", "y", ask=["s"], rows=(1267, 2067))
def local_level_and_season(y, s=HALF(0.5)[2], season=ZERO_SUM[12]):
    month = np.arange(1267) % 12
    level = pm.GaussianRandomWalk("level", sigma=s[0], init_dist=pm.Normal.dist(0, 1), steps=1266)
    pm.Normal("y", level + season[month], s[1], observed=y)


@required("level_steps", "trend_steps", "level", "trend", "y", ask=["s"], seed=2068)
def local_linear_trend_by_hand(rng, s=HALF(0.5)[3]):
    n = 1269
    level = pm.Normal("level", 0, 50, shape=n)
    trend = pm.Normal("trend", 0, 50, shape=n)
    moved = level[1:] - level[:-1] - trend[:-1]
    pm.Potential("level_steps", pm.logp(pm.Normal.dist(0, s[0]), moved))
    pm.Potential("trend_steps", pm.logp(pm.Normal.dist(0, s[1]), trend[1:] - trend[:-1]))
    pm.Normal("y", level, s[2], observed=rng.normal(size=n))


@required("y", ask=["delta"], rows=(1270, 2069))
def prophet_like_trend(y, k=NORMAL, m=NORMAL, beta=NORMAL[2]):
    t = np.linspace(0, 1, 1270)
    s = np.linspace(0, 0.8, 10)
    A = (t[:, None] > s) * 1.0
    F = np.column_stack([np.sin(50 * t), np.cos(50 * t)])
    delta = pm.Laplace("delta", 0, 0.1, shape=10)
    growth = k + pm.math.dot(A, delta)
    offset = m + pm.math.dot(A, -s * delta)
    mu = pm.Deterministic("mu", (growth * t + offset) * (1 + pm.math.dot(F, beta)))
    pm.Normal("y", mu, 0.5, observed=y)


@required("disasters_observed", ask=["switchpoint", "early"], seed=2070)
def coal_mining_with_gaps(rng, early=EXPON, late=EXPON):
    years = np.arange(1300)
    gaps = np.isin(years, [40, 83, 700])
    disasters = np.ma.masked_array(rng.poisson(2, size=1300), mask=gaps)
    switchpoint = pm.DiscreteUniform("switchpoint", lower=0, upper=1300)
    rate = pm.math.switch(switchpoint >= years, early, late)
    pm.Poisson("disasters", rate, observed=disasters)


@required("y", ask=["mu"], rows=(1271, 2071))
def two_change_points(y, mu=NORMAL[3], share=DIRICHLET(np.full(3, 2.0))):
    t = np.linspace(0, 1, 1271)
    tau = pm.Deterministic("tau", pt.cumsum(share)[:2])
    level = mu[0] + pt.where(t >= tau[0], mu[1], 0) + (t >= tau[1]) * mu[2]
    pm.Normal("y", level, 1, observed=y)


@required("y", ask=["tau"], rows=(1272, 2072))
def smooth_change_points(y, tau=BETA[3], jump=NORMAL[3]):
    t = np.linspace(0, 1, 1272)
    steps = pm.math.sigmoid(50 * (t[:, None] - tau[None, :]))
    pm.Normal("y", pm.math.dot(steps, jump), 1, observed=y)


@required("y_observed", ask=["beta"], columns=(1400, 2, 2073))
def series_with_missing_values(rng, X, beta, sigma):
    pm.Normal("y", X @ beta, sigma, observed=with_gaps(rng.normal(size=1400), rng))


# Epidemiology and space


@required("cases", ask=["beta", "theta"], columns=(1280, 2, 2080))
def counties_with_exposure(rng, X, E=Data("gamma", 5, 2), theta=NORMAL[64], beta=NARROW[2], tau=HALF(0.5)):
    log_E = pm.Data("log_E", np.log(E))
    county = rng.integers(64, size=1280)
    pm.Poisson("cases", pt.exp(log_E + X @ beta + tau * theta[county]), observed=rng.poisson(E))


@required("cases", ask=["rho", "phi"], rows=(1200, 2081))
def besag_york_mollie(sigma, y=COUNTS(2), beta0=NORMAL, theta=NORMAL[60], rho=BETA(0.5, 0.5)):
    W = np.roll(np.eye(60), 1, axis=1)
    W = W + W.T
    area = np.repeat(np.arange(60), 20)
    phi = pm.ICAR("phi", W=W)
    mixture = pm.Deterministic("mixture", pt.sqrt(1 - rho) * theta + pt.sqrt(rho / 0.7) * phi)
    pm.Poisson("cases", pt.exp(beta0 + sigma * mixture[area]), observed=y)


@required("lip_cancer", ask=["alpha", "tau"], rows=(1282, 2082))
def conditional_autoregression_of_areas(area=INTEGERS(40), x=NOISE, y=COUNTS(2), beta=NORMAL[2], alpha=BETA):
    W = np.roll(np.eye(40), 1, axis=1)
    tau = pm.Gamma("tau", 2, 2)
    phi = pm.CAR("phi", mu=np.zeros(40), tau=tau, alpha=alpha, W=W + W.T)
    pm.Poisson("lip_cancer", pt.exp(beta[0] + beta[1] * x + phi[area]), observed=y)


@required("phi", "edges", "y", ask=["tau"], seed=2083)
def neighbours_as_edges(rng, tau=GAMMA, phi=NORMAL(0, 10)[1150]):
    first, second = rng.integers(1150, size=(2, 3000))
    edges = -0.5 * tau * (phi[first] - phi[second]) ** 2 + 0.5 * 1149 / 3000 * pt.log(tau)
    pm.Potential("edges", edges.sum())
    pm.Poisson("y", pt.exp(0.1 * phi), observed=rng.poisson(1, size=1150))


@required("deaths", ask=["s"], rows=(1200, 2084))
def age_period_cohort(rng, population=Data("uniform", 50, 500), a=NORMAL[20], p=NORMAL[60], c=NORMAL[79]):
    age, period = np.meshgrid(np.arange(20), np.arange(60), indexing="ij")
    s = pm.HalfNormal("s", 0.3, shape=3)
    for k, effect in enumerate([a, p, c]):
        pm.Potential(
            f"walk_{k}", pm.logp(pm.Normal.dist(0, s[k]), effect[2:] - 2 * effect[1:-1] + effect[:-2]).sum()
        )
    cohort = (period - age + 19).ravel()
    rate = pt.exp(-3 + a[age.ravel()] + p[period.ravel()] + c[cohort])
    pm.Poisson("deaths", population * rate, observed=rng.poisson(9, size=1200))


@required("deaths", ask=["b"], rows=(30, 2085), coords={"age": range(30), "year": range(40)})
def age_period_table(rng, population=Data("uniform", 50, 500)[40], a=NORMAL(-3, 1)["age"]):
    b = pm.Dirichlet("b", np.ones(30), dims="age")
    k = pm.GaussianRandomWalk("k", sigma=0.3, init_dist=pm.Normal.dist(0, 1), dims="year")
    log_rate = a[:, None] + pt.outer(b, k)
    mu = (population * pt.exp(log_rate)).flatten()
    pm.Poisson("deaths", mu, observed=rng.poisson(9, size=1200))


@required("tests", ask=["se"], rows=(1286, 2086))
def latent_disease_status(y=BITS[3], prevalence=BETA(2, 5), se=BETA(8, 2)[3], sp=BETA(8, 2)[3]):
    ill = pm.logp(pm.Bernoulli.dist(se), y).sum(axis=-1) + pt.log(prevalence)
    well = pm.logp(pm.Bernoulli.dist(1 - sp), y).sum(axis=-1) + pt.log1p(-prevalence)
    pm.Potential("tests", pm.math.logsumexp(pt.stack([ill, well]), axis=0))


@required("ratings", ask=["pi"], rows=(1287, 2087))
def dawid_skene(y=INTEGERS(3)[4], pi=DIRICHLET(np.ones(3))):
    prior = np.full((4, 3, 3), 1.0) + 3 * np.eye(3)
    theta = pm.Dirichlet("theta", prior)
    by_class = pt.log(theta)[np.arange(4)[None, :], :, y]
    pm.Potential("ratings", pt.logsumexp(by_class.sum(axis=1) + pt.log(pi), axis=-1).sum())


@optional(ask=["pi"], rows=(3300, 2088))
def dawid_skene_in_long_format(rater=INTEGERS(6), y=BITS, pi=BETA, theta=BETA([[2, 6]] * 6, [[6, 2]] * 6)):
    item = np.repeat(np.arange(1100), 3)
    p = theta[rater]
    lp = pt.log(pt.switch(y[:, None], p, 1 - p))
    by_item = pt.inc_subtensor(pt.zeros((1100, 2))[item], lp)
    by_item = by_item + pt.log(pt.stack([1 - pi, pi]))
    pm.Potential("ratings", pt.logsumexp(by_item, axis=1))


@required("concentration", ask=["mu"], seed=2089)
def one_compartment_pharmacokinetics(rng, eta=NORMAL[3, 50], mu=NORMAL([0, -2, 1], 0.3), omega=HALF(0.3)[3]):
    subject, t = rng.integers(50, size=1289), rng.uniform(0.1, 24, size=1289)
    ka, ke, V = (pt.exp(mu[k] + omega[k] * eta[k])[subject] for k in range(3))
    c = 10 * ka / (V * (ka - ke)) * (pt.exp(-ke * t) - pt.exp(-ka * t))
    sigma = pm.HalfNormal("sigma", 0.5)
    pm.LogNormal("concentration", pt.log(pt.maximum(c, 1e-9)), sigma, observed=rng.lognormal(size=1289))


@required("y", ask=["hill"], seed=2090)
def dose_response_of_assays(rng, bottom=NORMAL[12], log_ec50=NORMAL, top=NORMAL(3, 1), hill=HALF(2)):
    dose, plate = rng.uniform(0.01, 10, size=1290), rng.integers(12, size=1290)
    mu = bottom[plate] + (top - bottom[plate]) / (1 + (pt.exp(log_ec50) / dose) ** hill)
    pm.Normal("y", mu, 0.5, observed=rng.normal(size=1290))


# Text and recommendations


@required("z", "w", ask=["phi"], rows=(1200, 2100))
def topics_of_words(y=INTEGERS(12), theta=DIRICHLET(np.ones(3))[30, 3], phi=DIRICHLET(np.ones(12))[3, 12]):
    doc = np.repeat(np.arange(30), 40)
    z = pm.Categorical("z", p=theta[doc], shape=1200)
    pm.Categorical("w", p=phi[z], observed=y)


@required("w", ask=["theta"], rows=(1301, 2101))
def topics_marginalised(doc=INTEGERS(40), word=INTEGERS(15), theta=DIRICHLET(np.ones((40, 3)))):
    phi = pm.Dirichlet("phi", np.ones((3, 15)))
    lp = pt.log(theta)[doc] + pt.log(phi).T[word]
    pm.Potential("w", pm.math.logsumexp(lp, axis=1))


@required("w", ask=["phi"], rows=(1302, 2102))
def topics_as_matrix_product(doc=INTEGERS(40), y=INTEGERS(15), theta=DIRICHLET(np.ones((40, 3)))):
    phi = pm.Dirichlet("phi", np.ones((3, 15)))
    pm.Categorical("w", p=(theta @ phi)[doc], observed=y)


@required("theta", "counts", ask=["phi"], rows=(1303, 2103))
def multinomial_topics_of_documents(counts=Data("multinomial", 30, np.ones(10) / 10)):
    theta = pm.Dirichlet("theta", np.ones(3), shape=(1303, 3))
    phi = pm.Dirichlet("phi", np.ones(10), shape=(3, 10))
    pm.Multinomial("counts", n=counts.sum(axis=1), p=theta @ phi, observed=counts)


@required("words", ask=["alpha", "phi"], rows=(1304, 2104))
def naive_bayes(rng, label=BITS, n=INTEGERS(10, 40), alpha=EXPON):
    counts = np.array([rng.multinomial(k, np.ones(8) / 8) for k in n])
    phi = pm.Dirichlet("phi", alpha * np.ones((2, 8)))
    pm.Multinomial("words", n=n, p=phi[label], observed=counts)


@required("counts", ask=["conc"], rows=(1306, 2106), coords={"tree": list("abcde"), "forest": range(10)})
def overdispersed_species(forest=INTEGERS(10), y=Data("multinomial", 50, np.ones(5) / 5)):
    frac = pm.Dirichlet("frac", np.ones(5), dims="tree")
    conc = pm.LogNormal("conc", 1, 1, dims="forest")
    alpha = pm.Deterministic("alpha", frac * conc[forest][:, None])
    pm.DirichletMultinomial("counts", n=50, a=alpha, observed=y)


@required("r", ask=["A"], rows=(2000, 2107))
def matrix_factorisation_of_a_list(y, u=INTEGERS(90), v=INTEGERS(70), A=NORMAL[90, 3], B=NORMAL[70, 3]):
    pm.Normal("r", pm.math.dot(A, B.T)[u, v], 1, observed=y)


@required("A", "B", "r", ask=["s"], rows=(4000, 2108))
def factors_of_many_users_and_items(y, u=INTEGERS(1200), v=INTEGERS(1100), s=HALF[2]):
    A = pm.Normal("A", 0, s[0], shape=(1200, 3))
    B = pm.Normal("B", 0, s[1], shape=(1100, 3))
    pm.Normal("r", (A[u] * B[v]).sum(axis=-1), 1, observed=y)


@required("A", "B", "r", rows=(3000, 2109))
def product_of_long_factors_selected(y, u=INTEGERS(1200), v=INTEGERS(1100), A=NORMAL[1200, 2]):
    B = pm.Normal("B", 0, 1, shape=(1100, 2))
    R = A @ B.T
    pm.Normal("r", R[u, v], 1, observed=y)


@required("rate", ask=["A"], rows=(1310, 2110))
def poisson_factorisation_by_einsum(u=INTEGERS(50), v=INTEGERS(40), y=COUNTS(3), A=GAMMA[50, 3]):
    B = pm.Gamma("B", 2, 2, shape=(40, 3))
    pm.Poisson("rate", pt.einsum("nk,nk->n", A[u], B[v]), observed=y)


@required("R", ask=["U"], seed=2111)
def half_observed_rating_matrix(rng):
    seen = rng.random((50, 60)) < 0.5
    U = pm.MvNormal("U", mu=np.zeros(3), tau=2 * np.eye(3), shape=(50, 3))
    V = pm.MvNormal("V", mu=np.zeros(3), tau=2 * np.eye(3), shape=(60, 3))
    R = rng.normal(size=(50, 60))
    pm.Normal("R", mu=(U @ V.T)[seen], tau=2, observed=R[seen])
