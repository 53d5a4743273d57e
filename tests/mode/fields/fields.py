"""Models whose effects are a field, and fields that are set up."""

from functools import cache
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt

from pymc_austerity import factorise
from pymc_austerity.mode.fields.draws import centered, hold_at
from pymc_austerity.mode.fields.field_model import FieldModel, field_model
from pymc_austerity.mode.fields.fit import FieldFit


def _rows(n, n_groups, seed=1):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return rng, x, rng.integers(n_groups, size=n), x @ [0.5, 0.3, -0.4] - 0.8


def _answers(rng, eta):
    return (rng.random(len(eta)) < 1.0 / (1.0 + np.exp(-eta))).astype(float)


def one_factor(n=400, n_groups=40):
    """Counts of groups."""
    rng, x, g, eta = _rows(n, n_groups)
    y = rng.poisson(np.exp(eta + 0.5 * rng.normal(size=n_groups)[g]))
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level", -1.0, 2.0)
        tau = pm.HalfNormal("tau", 1.0)
        u = pm.Normal("u", level, tau, shape=n_groups)
        pm.Poisson("y", pm.math.exp(x @ beta + u[g]), observed=pm.Data("answers", y))
    return model


def nested_slopes(n_schools=12, n_classes=4, n_pupils=12):
    """Correlated slopes of schools and of their classes."""
    n_groups = n_schools * n_classes
    rng, x, _, eta = _rows(n_groups * n_pupils, n_groups)
    c = np.repeat(np.arange(n_groups), n_pupils)
    s = c // n_classes
    u, v = rng.normal(size=(n_schools, 2)), rng.normal(size=(n_groups, 2))
    eta = eta + 0.4 * u[s, 0] + 0.3 * v[c, 0] + (0.3 * u[s, 1] + 0.25 * v[c, 1]) * x[:, 0]
    y = _answers(rng, eta)
    with pm.Model() as model:
        beta, level = pm.Normal("beta", 0.0, 2.0, shape=3), pm.Normal("level", 0.0, 2.0)
        factors = [
            pm.LKJCholeskyCov(name, n=2, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=2))[0]
            for name in ("of_schools", "of_classes")
        ]
        u = pm.Normal("z_schools", shape=(n_schools, 2)) @ factors[0].T
        v = pm.Normal("z_classes", shape=(n_groups, 2)) @ factors[1].T
        own = u[s, 0] + v[c, 0] + (u[s, 1] + v[c, 1]) * x[:, 0]
        pm.Bernoulli("y", logit_p=level + x @ beta + own, observed=pm.Data("answers", y))
    return model


def three_levels(n=900, n_regions=6, n_schools=24, n_classes=72):
    """Classes in schools in regions: schools have the level above as their location."""
    rng, x, c, eta = _rows(n, n_classes)
    school, region = (
        np.arange(n_classes) * n_schools // n_classes,
        np.arange(n_schools) * n_regions // n_schools,
    )
    s = school[c]
    y = _answers(rng, eta + 0.4 * rng.normal(size=n_schools)[s] + 0.3 * rng.normal(size=n_classes)[c])
    with pm.Model() as model:
        beta, level, tau = pm.Normal("beta", shape=3), pm.Normal("level"), pm.HalfNormal("tau", shape=3)
        of_regions = pm.Normal("of_regions", level, tau[0], shape=n_regions)
        of_schools = pm.Normal("of_schools", of_regions[region], tau[1], shape=n_schools)
        z = pm.Normal("z", shape=n_classes)
        pm.Bernoulli("y", logit_p=x @ beta + of_schools[s] + tau[2] * z[c], observed=pm.Data("answers", y))
    return model


def walk(n=600, n_periods=60):
    """A random walk of periods."""
    rng, x, t, eta = _rows(n, n_periods)
    y = _answers(rng, eta + np.cumsum(0.2 * rng.normal(size=n_periods))[t])
    with pm.Model() as model:
        beta, tau = pm.Normal("beta", shape=3), pm.HalfNormal("tau", 0.5)
        start = pm.Normal.dist(0.0, 2.0)
        w = pm.GaussianRandomWalk("w", sigma=tau, init_dist=start, shape=n_periods)
        pm.Bernoulli("y", logit_p=x @ beta + w[t], observed=pm.Data("answers", y))
    return model


def vector_walk(n=600, n_periods=40):
    """A random walk of intercepts and slopes, which are correlated."""
    rng, x, t, eta = _rows(n, n_periods)
    path = np.cumsum(0.2 * rng.normal(size=(n_periods, 2)), axis=0)
    y = _answers(rng, eta + path[t, 0] + path[t, 1] * x[:, 0])
    with pm.Model() as model:
        beta, sd = pm.Normal("beta", shape=2), pm.HalfNormal.dist(0.5)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=sd)
        start = pm.MvNormal.dist(np.zeros(2), np.diag([4.0, 1.0]))
        w = pm.MvGaussianRandomWalk("w", np.zeros(2), chol=chol, init_dist=start, shape=(n_periods, 2))
        eta = x[:, 1:] @ beta + w[t, 0] + w[t, 1] * x[:, 0]
        pm.Bernoulli("y", logit_p=eta, observed=pm.Data("answers", y))
    return model


def autoregression(n=600, n_periods=60):
    """An autoregression of periods."""
    rng, x, t, eta = _rows(n, n_periods)
    y = _answers(rng, eta + 0.4 * rng.normal(size=n_periods)[t])
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level")
        rho, tau = pm.Uniform("rho", -0.9, 0.9), pm.HalfNormal("tau", 0.5)
        w = pm.AR("w", rho=[rho], sigma=tau, init_dist=pm.Normal.dist(0.0, tau), shape=n_periods)
        pm.Bernoulli("y", logit_p=level + x @ beta + w[t], observed=pm.Data("answers", y))
    return model


def grid(side):
    """Neighbours on a grid."""
    path = np.eye(side, k=1) + np.eye(side, k=-1)
    return np.kron(np.eye(side), path) + np.kron(path, np.eye(side))


def areas(n=900, side=6):
    """Conditionally autoregressive effects of a grid of areas, about a covariate of these."""
    n_areas, w = side * side, grid(side)
    rng, x, a, eta = _rows(n, n_areas)
    y = rng.poisson(np.exp(eta + 0.4 * rng.normal(size=n_areas)[a]))
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level")
        alpha, tau = pm.Beta("alpha", 2.0, 2.0), pm.Gamma("tau", 2.0, 1.0)
        slope = pm.Normal("slope")
        u = pm.CAR("u", mu=slope * rng.normal(size=n_areas), W=w, alpha=alpha, tau=tau)
        pm.Poisson("y", pm.math.exp(level + x @ beta + u[a]), observed=pm.Data("answers", y))
    return model


def bym2(n=900, side=6, sum_sd=0.05):
    """Areas with effects of their neighbours, whose sum is nearly zero, and of their own."""
    rng, x, a, eta = _rows(n, side * side)
    y = rng.poisson(np.exp(eta + 0.4 * rng.normal(size=side * side)[a]))
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level", -0.5, 0.5)
        sigma, share = pm.HalfNormal("sigma"), pm.Beta("share", 2.0, 2.0)
        own, phi = pm.Normal("own", shape=side * side), pm.ICAR("phi", grid(side), zero_sum_stdev=sum_sd)
        u = sigma * (pt.sqrt(1.0 - share) * own + pt.sqrt(share / 0.6) * phi)
        pm.Poisson("y", pm.math.exp(2.0 * level + x @ beta - u[a]), observed=pm.Data("answers", y))
    return model


def intrinsic(n=700, side=5):
    """Areas with a scale of their own, and a sum that may be far from zero, in normal rows."""
    rng, x, a, eta = _rows(n, side * side)
    y = eta + 0.4 * rng.normal(size=side * side)[a] + rng.normal(size=n)
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level", 0.0, 0.2)
        sigma, noise = pm.HalfNormal("sigma", shape=2), pm.HalfNormal("noise")
        phi = pm.ICAR("phi", grid(side), sigma=sigma[0], zero_sum_stdev=0.5)
        pm.Normal("y", level + x @ beta + sigma[1] * phi[a], noise, observed=pm.Data("answers", y))
    return model


def smooth(n=800, n_groups=40, n_levels=8, n_columns=5):
    """Groups, a short factor that is crossed with them, and a smooth."""
    rng, x, g, eta = _rows(n, n_groups)
    h, t = rng.integers(n_levels, size=n), rng.uniform(-1.0, 1.0, n)
    frequencies = np.pi * np.arange(1, n_columns + 1) / 3.0
    basis = np.sin(frequencies * (t[:, None] + 1.5))
    y = _answers(rng, eta + 0.5 * rng.normal(size=n_groups)[g] + 0.5 * np.sin(4.0 * t))
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level")
        scales = pm.HalfNormal("scales", shape=3)
        length = pm.LogNormal("length", np.log(0.5), 0.5)
        u, v = pm.Normal("u", 0.0, scales[0], shape=n_groups), pm.Normal("v", 0.0, scales[1], shape=n_levels)
        spread = scales[2] * pt.exp(-0.25 * (length * frequencies) ** 2)
        of_basis = basis @ (spread * pm.Normal("z", shape=n_columns))
        pm.Bernoulli("y", logit_p=level + x @ beta + of_basis + v[h] + u[g], observed=pm.Data("answers", y))
    return model


def clipped_scales(n=400, n_groups=40):
    """Two factors whose scales are equal where the second is below the first."""
    rng, x, g, eta = _rows(n, n_groups)
    h = g // 4
    y = _answers(rng, eta)
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level")
        tau, least = pm.HalfNormal("tau"), pm.HalfNormal("least", 0.01)
        u, v = pm.Normal("u", 0.0, tau, shape=n_groups), pm.Normal("z", shape=n_groups // 4)
        of_groups = u[g] + (pm.math.maximum(tau, least) * v)[h]
        pm.Bernoulli("y", logit_p=level + x @ beta + of_groups, observed=pm.Data("answers", y))
    return model


def rasch(n=900, n_persons=60, n_items=12):
    """Persons less items."""
    rng = np.random.default_rng(1)
    p, i = rng.integers(n_persons, size=n), rng.integers(n_items, size=n)
    y = _answers(rng, rng.normal(size=n_persons)[p] - rng.normal(size=n_items)[i])
    with pm.Model() as model:
        scales, level = pm.HalfNormal("scales", shape=2), pm.Normal("level")
        ability = pm.Normal("ability", 0.0, scales[0], shape=n_persons)
        difficulty = pm.Normal("difficulty", level, scales[1], shape=n_items)
        pm.Bernoulli("y", logit_p=ability[p] - difficulty[i], observed=pm.Data("answers", y))
    return model


def normal_rows(n=600, n_groups=40):
    """Normal rows with a free scale, and independent slopes by column."""
    rng, x, g, eta = _rows(n, n_groups)
    y = eta + 0.5 * rng.normal(size=n_groups)[g] + 0.7 * rng.normal(size=n)
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level")
        tau, sigma = pm.HalfNormal("tau", shape=2), pm.HalfNormal("sigma", 2.0)
        u = pm.Normal("u", 0.0, tau, shape=(n_groups, 2))
        pm.Normal("y", level + x @ beta + u[g, 0] + u[g, 1] * x[:, 1], sigma, observed=pm.Data("answers", y))
    return model


def crossed_slopes(n=4000, sizes=(70, 66)):
    """Correlated slopes in both of two factors that are crossed: moved in turns."""
    rng, x, _, eta = _rows(n, 2)
    which = [rng.integers(size, size=n) for size in sizes]
    for g, size in zip(which, sizes, strict=True):
        v = rng.normal(size=(size, 2)) * [0.7, 0.4]
        eta = eta + v[g, 0] + v[g, 1] * x[:, 0]
    y = _answers(rng, eta)
    with pm.Model() as model:
        eta = pm.Normal("level", 0.0, 2.0) + x @ pm.Normal("beta", 0.0, 2.0, shape=3)
        for g, size, name in zip(which, sizes, ("persons", "items"), strict=True):
            sds = pm.HalfNormal.dist(1.0, shape=2)
            factor = pm.LKJCholeskyCov(f"of_{name}", n=2, eta=2.0, sd_dist=sds)[0]
            v = pm.Normal(f"z_{name}", shape=(size, 2)) @ factor.T
            eta = eta + v[g, 0] + v[g, 1] * x[:, 0]
        pm.Bernoulli("y", logit_p=eta, observed=pm.Data("answers", y))
    return model


def bradley_terry(n=6000, n_players=320):
    """Who wins, by the skills of two players, and a home advantage: one vector is looked up twice."""
    rng = np.random.default_rng(1)
    one, two = rng.integers(n_players, size=n), rng.integers(1, n_players, size=n)
    two = (one + two) % n_players
    skill = rng.normal(size=n_players)
    y = _answers(rng, 0.3 + skill[one] - skill[two])
    with pm.Model() as model:
        spread, home = pm.HalfNormal("spread"), pm.Normal("home")
        skill = pm.Normal("skill", 0.0, spread, shape=n_players)
        pm.Bernoulli("y", logit_p=home + skill[one] - skill[two], observed=pm.Data("answers", y))
    return model


def score_differences(n=3000, n_teams=320):
    """Normal differences of the strengths of two teams, and nothing that all rows have."""
    rng = np.random.default_rng(1)
    one, two = rng.integers(n_teams, size=n), rng.integers(1, n_teams, size=n)
    two = (one + two) % n_teams
    strength = rng.normal(size=n_teams)
    y = strength[one] - strength[two] + 1.5 * rng.normal(size=n)
    with pm.Model() as model:
        spread, sigma = pm.HalfNormal("spread"), pm.HalfNormal("sigma", 2.0)
        strength = pm.Normal("strength", 0.0, spread, shape=n_teams)
        pm.Normal("y", strength[one] - strength[two], sigma, observed=pm.Data("answers", y))
    return model


def crossed_normal(n=2500, sizes=(300, 290)):
    """Normal rows with a free scale, and two crossed factors."""
    rng, x, _, eta = _rows(n, 2)
    which = [rng.integers(size, size=n) for size in sizes]
    eta = eta + sum(0.6 * rng.normal(size=size)[g] for g, size in zip(which, sizes, strict=True))
    y = eta + 0.7 * rng.normal(size=n)
    with pm.Model() as model:
        eta = pm.Normal("level", 0.0, 2.0) + x @ pm.Normal("beta", 0.0, 2.0, shape=3)
        for g, size, name in zip(which, sizes, ("persons", "items"), strict=True):
            eta = eta + pm.Normal(name, 0.0, pm.HalfNormal(f"of_{name}"), shape=size)[g]
        pm.Normal("y", eta, pm.HalfNormal("sigma", 2.0), observed=pm.Data("answers", y))
    return model


def survey(n=600, sizes=(40, 4, 3)):
    """Groups that nest, and kinds of few levels across these, one of which is looked up twice."""
    rng, x, g, eta = _rows(n, sizes[0])
    age, before, education = (rng.integers(size, size=n) for size in (sizes[1], *sizes[1:]))
    own = [0.4 * rng.normal(size=size) for size in sizes]
    y = _answers(rng, eta + own[0][g] + own[1][age] - own[1][before] + own[2][education])
    with pm.Model() as model:
        beta, level, sd = pm.Normal("beta", shape=3), pm.Normal("level"), pm.HalfNormal("sd", 0.5, shape=4)
        outer = pm.Normal("outer", level, sd[3], shape=8)
        u = pm.Normal("u", outer[np.arange(sizes[0]) % 8], sd[0], shape=sizes[0])
        by_age, by_education = (sd[k] * pm.Normal(f"z{k}", shape=sizes[k]) for k in (1, 2))
        eta = x @ beta + u[g] + by_age[age] - by_age[before] + by_education[education]
        pm.Bernoulli("y", logit_p=eta, observed=pm.Data("answers", y))
    return model


def dispersions(n=900, n_groups=60, n_levels=9):
    """Counts with a free dispersion, groups and a short factor that is crossed with them."""
    rng, x, g, eta = _rows(n, n_groups)
    h = rng.integers(n_levels, size=n)
    mean = np.exp(1.0 + eta + 0.5 * rng.normal(size=n_groups)[g] + 0.4 * rng.normal(size=n_levels)[h])
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level", 0.0, 1.0)
        u = pm.Normal("u", 0.0, pm.HalfNormal("of_u", 1.0), shape=n_groups)
        v = pm.HalfNormal("of_v", 1.0) * pm.Normal("v", shape=n_levels)
        mu = pm.math.exp(level + x @ beta + u[g] + v[h])
        alpha = pm.LogNormal("alpha", 0.5, 0.5)
        y = rng.negative_binomial(2.0, 2.0 / (2.0 + mean))
        pm.NegativeBinomial("y", mu=mu, alpha=alpha, observed=pm.Data("answers", y))
    return model


def crossed_counts(n=3000, sizes=(300, 290)):
    """Counts with a free dispersion, and two crossed factors: moved in turns."""
    rng, x, _, eta = _rows(n, 2)
    which = [rng.integers(size, size=n) for size in sizes]
    eta = 1.0 + eta + sum(0.4 * rng.normal(size=size)[g] for g, size in zip(which, sizes, strict=True))
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(eta)))
    with pm.Model() as model:
        eta = pm.Normal("level", 1.0, 1.0) + x @ pm.Normal("beta", 0.0, 0.5, shape=3)
        for g, size, name in zip(which, sizes, ("stores", "products"), strict=True):
            eta = eta + pm.Normal(name, 0.0, pm.HalfNormal(f"of_{name}", 0.5), shape=size)[g]
        alpha = pm.LogNormal("alpha", 0.5, 0.5)
        pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=alpha, observed=pm.Data("answers", y))
    return model


def own_scales(n=2400, n_groups=24):
    """Normal rows of which groups have a mean and a scale."""
    rng, x, g, eta = _rows(n, n_groups)
    scale = np.exp(-0.5 + 0.4 * rng.normal(size=n_groups))
    y = eta + 0.6 * rng.normal(size=n_groups)[g] + scale[g] * rng.normal(size=n)
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level", 0.0, 1.0)
        u = pm.Normal("u", level, pm.HalfNormal("of_u", 1.0), shape=n_groups)
        w = pm.Normal("w", pm.Normal("scale", -0.5, 0.5), pm.HalfNormal("of_w", 0.5), shape=n_groups)
        pm.Normal("y", x @ beta + u[g], pm.math.exp(w[g]), observed=pm.Data("answers", y))
    return model


def ordered(n=900, n_groups=50):
    """Ordered answers of groups, with free cut points."""
    rng, x, g, eta = _rows(n, n_groups)
    latent = eta + 0.6 * rng.normal(size=n_groups)[g] + rng.logistic(size=n)
    with pm.Model() as model:
        beta, of_u = pm.Normal("beta", shape=3), pm.HalfNormal("of_u", 1.0)
        u = of_u * pm.Normal("u", shape=n_groups)
        cuts = pm.Normal("cuts", [-1.5, -0.5, 0.7], 1.0, transform=pm.distributions.transforms.ordered)
        y = np.digitize(latent, [-2.0, -0.8, 0.4])
        pm.OrderedLogistic("y", eta=x @ beta + u[g], cutpoints=cuts, observed=pm.Data("answers", y))
    return model


def zero_inflated(n=1200, n_groups=40):
    """Counts of groups with too many zeros."""
    rng, x, g, eta = _rows(n, n_groups)
    mean = np.exp(1.2 + eta + 0.4 * rng.normal(size=n_groups)[g])
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level", 0.0, 1.0)
        u = pm.Normal("u", level, pm.HalfNormal("of_u", 1.0), shape=n_groups)
        psi = pm.Beta("psi", 3.0, 2.0)
        y = rng.poisson(mean) * (rng.random(n) < 0.7)
        mu = pm.math.exp(x @ beta + u[g])
        pm.ZeroInflatedPoisson("y", psi=psi, mu=mu, observed=pm.Data("answers", y))
    return model


def heavy_tails(n=900, n_groups=60):
    """Binary rows of groups and a short factor, with Student's and Laplace's effects."""
    rng, x, g, eta = _rows(n, n_groups)
    h = rng.integers(8, size=n)
    y = _answers(rng, eta + 0.4 * rng.standard_t(3.0, size=n_groups)[g] + 0.3 * rng.laplace(size=8)[h])
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level", 0.0, 1.0)
        nu = 2.0 + pm.Gamma("nu", 2.0, 0.5)
        u = pm.StudentT("u", nu=nu, mu=level, sigma=pm.HalfNormal("of_u", 1.0), shape=n_groups)
        v = pm.HalfNormal("of_v", 1.0) * pm.Laplace("v", 0.0, 1.0, shape=8)
        pm.Bernoulli("y", logit_p=x @ beta + u[g] + v[h], observed=pm.Data("answers", y))
    return model


def cauchy_effects(n=600, n_groups=40):
    """Normal rows with a free scale, and Cauchy effects."""
    rng, x, g, eta = _rows(n, n_groups)
    y = eta + 0.3 * rng.standard_cauchy(size=n_groups).clip(-20, 20)[g] + 0.7 * rng.normal(size=n)
    with pm.Model() as model:
        beta, tau = pm.Normal("beta", shape=3), pm.HalfNormal("tau", 0.5)
        u = pm.Cauchy("u", 0.0, tau, shape=n_groups)
        pm.Normal("y", x @ beta + u[g], pm.HalfNormal("sigma", 1.0), observed=pm.Data("answers", y))
    return model


def gamma_rates(n=900, n_groups=60):
    """Counts of groups whose rates are gamma variables."""
    rng, x, g, eta = _rows(n, n_groups)
    exposure, rates = rng.uniform(0.2, 1.5, size=n), rng.gamma(2.0, 0.5, size=n_groups)
    with pm.Model() as model:
        beta, shape = pm.Normal("beta", shape=3), 0.5 + pm.HalfNormal("shape", 3.0)
        rate = pm.Gamma("rate", shape, shape / pm.LogNormal("mean", 0.0, 1.0), shape=n_groups)
        y = rng.poisson(exposure * rates[g] * np.exp(eta))
        mu = exposure * rate[g] * pm.math.exp(x @ beta)
        pm.Poisson("y", mu, observed=pm.Data("answers", y))
    return model


def beta_rates(n=700, n_groups=70):
    """Binomial rows of groups whose probabilities are beta variables."""
    rng, g = np.random.default_rng(1), np.arange(n) % n_groups
    p, trials = rng.beta(2.0, 4.0, size=n_groups), rng.integers(1, 5, size=n)
    with pm.Model() as model:
        mean, size = pm.Beta("mean", 6.0, 6.0), 4.0 + pm.HalfNormal("size", 10.0)
        own = pm.Beta("p", mean * size, (1.0 - mean) * size, shape=n_groups)
        pm.Binomial("y", trials, own[g], observed=pm.Data("answers", rng.binomial(trials, p[g])))
    return model


def own_variances(n=900, n_groups=50):
    """Normal rows with a variance of each group, which are inverse gamma variables."""
    rng, x, g, eta = _rows(n, n_groups)
    sds = 1.0 / np.sqrt(rng.gamma(3.0, 0.5, size=n_groups))
    with pm.Model() as model:
        beta, typical = pm.Normal("beta", shape=3), pm.HalfNormal("typical", 2.0)
        variance = pm.InverseGamma("variance", 3.0, typical, shape=n_groups)
        y = eta + sds[g] * rng.normal(size=n)
        pm.Normal("y", x @ beta, pm.math.sqrt(variance[g]), observed=pm.Data("answers", y))
    return model


def football(n=700, n_teams=40):
    """Goals of both sides: two likelihoods over the same effects."""
    rng = np.random.default_rng(1)
    home, away = rng.integers(n_teams, size=(2, n))
    away = np.where(away == home, (away + 1) % n_teams, away)
    attack, defence = 0.4 * rng.normal(size=(2, n_teams))
    with pm.Model() as model:
        level, at_home = pm.Normal("level", 0.0, 1.0), pm.Normal("at_home", 0.0, 1.0)
        a = pm.Normal("attack", 0.0, pm.HalfNormal("of_attack", 1.0), shape=n_teams)
        d = pm.HalfNormal("of_defence", 1.0) * pm.Normal("defence", shape=n_teams)
        y = rng.poisson(np.exp(0.6 + attack[home] - defence[away]))
        pm.Poisson("y", pm.math.exp(level + at_home + a[home] - d[away]), observed=pm.Data("answers", y))
        y = rng.poisson(np.exp(0.3 + attack[away] - defence[home]))
        alpha = pm.Exponential("alpha", 0.2)
        mu = pm.math.exp(level + a[away] - d[home])
        pm.NegativeBinomial("others", mu=mu, alpha=alpha, observed=y)
    return model


def choices(n=1200, n_persons=60):
    """What persons choose among three, by part-worths of their own."""
    rng, g = np.random.default_rng(1), np.arange(n) % n_persons
    x = rng.normal(size=(n, 3, 2))
    own = np.array([0.6, -0.4]) + 0.5 * rng.normal(size=(n_persons, 2))
    utility = (x * own[g][:, None, :]).sum(-1) + rng.gumbel(size=(n, 3))
    with pm.Model() as model:
        mu, tau = pm.Normal("mu", shape=2), pm.HalfNormal("tau", 0.7, shape=2)
        worths = mu + tau * pm.Normal("z", shape=(n_persons, 2))
        p = pm.math.softmax((x * worths[g][:, None, :]).sum(-1), axis=-1)
        pm.Categorical("y", p=p, observed=pm.Data("answers", utility.argmax(axis=1)))
    return model


def zero_sum(n=900, n_groups=80):
    """Binary rows of groups whose effects sum to zero."""
    rng, x, g, eta = _rows(n, n_groups)
    y = _answers(rng, eta + 0.5 * rng.normal(size=n_groups)[g])
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level", -1.0, 2.0)
        u = pm.ZeroSumNormal("u", pm.HalfNormal("tau", 1.0), shape=n_groups)
        pm.Bernoulli("y", logit_p=level + x @ beta + u[g], observed=pm.Data("answers", y))
    return model


def mixture(n=900, n_groups=30):
    """A mixture of three normal distributions, which groups shift."""
    rng, x, g, eta = _rows(n, n_groups)
    means = np.array([-3.0, 0.0, 3.0])
    y = eta + 0.5 * rng.normal(size=n_groups)[g] + 0.7 * rng.normal(size=n)
    y = y + means[rng.choice(3, p=[0.3, 0.4, 0.3], size=n)]
    with pm.Model() as model:
        beta, mu = pm.Normal("beta", shape=3), pm.Normal("mu", means, 0.5, shape=3)
        w, sd = pm.Dirichlet("w", 5.0 * np.ones(3)), pm.LogNormal("sd", -0.4, 0.3)
        u = pm.HalfNormal("tau", 1.0) * pm.Normal("u", shape=n_groups)
        parts = [pm.Normal.dist(mu[k] + u[g] + x @ beta, sd) for k in range(3)]
        pm.Mixture("y", w=w, comp_dists=parts, observed=pm.Data("answers", y))
    return model


def several_answers(n=500, n_groups=30):
    """Three normal answers in each row, with a free covariance, and effects of groups on all of them."""
    rng, x, g, eta = _rows(n, n_groups)
    sds = np.array([0.5, 0.7, 0.9])
    y = (eta + 0.6 * rng.normal(size=n_groups)[g])[:, None] + rng.normal(size=(n, 3)) * sds
    with pm.Model() as model:
        beta, level = pm.Normal("beta", shape=3), pm.Normal("level", shape=3)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=3, eta=2.0, sd_dist=pm.HalfNormal.dist(1.0, shape=3))
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau", 1.0), shape=n_groups)
        mean = (x @ beta + u[g])[:, None] + level
        pm.MvNormal("y", mean, chol=chol, observed=pm.Data("answers", y))
    return model


def logistic_effects(n=400, n_groups=40):
    """Counts of groups whose effects are logistic, about a level."""
    rng, x, g, eta = _rows(n, n_groups)
    y = rng.poisson(np.exp(eta + 0.3 * rng.logistic(size=n_groups)[g]))
    with pm.Model() as model:
        u = pm.Logistic("u", pm.Normal("level"), pm.HalfNormal("tau", 1.0), shape=n_groups)
        rates = pm.math.exp(x @ pm.Normal("beta", shape=3) + u[g])
        pm.Poisson("y", rates, observed=pm.Data("answers", y))
    return model


MODELS = {
    one.__name__: one
    for one in (
        one_factor, clipped_scales, nested_slopes, three_levels, walk, vector_walk, autoregression, areas,
        bym2, intrinsic, smooth, rasch, normal_rows, crossed_slopes, bradley_terry, crossed_normal,
        score_differences, survey, dispersions, crossed_counts, own_scales, ordered, zero_inflated,
        choices, football, heavy_tails, cauchy_effects, gamma_rates, beta_rates, own_variances,
        zero_sum, mixture, several_answers, logistic_effects,
    )
}  # fmt: skip


# Models with the number of a turn.
TURNS = [(name, 0) for name in MODELS]
TURNS += [("crossed_slopes", 1), ("bradley_terry", 2), ("crossed_normal", 1), ("score_differences", 1)]
TURNS += [("crossed_counts", 1)]


class Fitted(NamedTuple):
    """A field that is set up."""

    model: pm.Model
    field: FieldModel
    fits: tuple[FieldFit, ...]

    @property
    def fit(self):
        """That of the first turn."""
        return self.fits[0]


@cache
def fitted(name):
    """A model and its field, set up once."""
    model = MODELS[name]()
    field = field_model(model, factorise(model))
    return Fitted(model, field, field.fit())


def arrays_of(one, *, turn=0, reads_all=True, planted=lambda arrays: arrays):
    """What a kernel is handed in a turn, with other effects held at a draw."""
    turns = [planted(arrays) for arrays in turns_of(one, reads_all=reads_all)]
    rng, features = np.random.default_rng(turn), one.field.values.features(one.fit.theta)
    if len(turns) > 1:
        z = centered(turns, features)
        hold_at(turns[turn], features, z + 0.3 * rng.standard_normal(len(z)))
    return turns[turn]


def turns_of(one, *, reads_all=True):
    """What a kernel is handed in each turn."""
    return one.field.arrays(one.fits, reads_all=reads_all, debug=True)
