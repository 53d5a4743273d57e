"""Models that are in public use, with made-up data of a fixed seed, and no more of them than are needed."""

import warnings
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit

from tests.models import as_model

_SEED = 4711


def _rng(name: str) -> np.random.Generator:
    return np.random.default_rng([_SEED, *name.encode()])


def _correlated(rng: np.random.Generator, n: int, sds: list[float]) -> npt.NDArray[np.float64]:
    return rng.normal(size=(n, len(sds))) * sds


@as_model
def bradley_terry() -> pm.Model:
    """Tennis: who wins, by the skills of two players; not centred."""
    rng, n, players = _rng("tennis"), 3_000, 600
    skill = rng.normal(size=players)
    one, two = rng.integers(players, size=n), rng.integers(1, players, size=n)
    two = (one + two) % players
    first = rng.random(n) < expit(skill[one] - skill[two])
    winner, loser = np.where(first, one, two), np.where(first, two, one)
    spread = pm.HalfNormal("spread")
    strength = spread * pm.Normal("z", shape=players)
    pm.Bernoulli("won", logit_p=strength[winner] - strength[loser], observed=np.ones(n, int))


@as_model
def rasch() -> pm.Model:
    """Fouls: one is called or not, by who gains from it and who commits it; a difference of effects."""
    rng, n, gains, commits = _rng("fouls"), 2_100, 210, 215
    who, whom = rng.integers(gains, size=n), rng.integers(commits, size=n)
    eta = rng.normal(0, 0.5, gains)[who] - rng.normal(0.2, 0.5, commits)[whom]
    theta = pm.HalfNormal("sd_theta") * pm.Normal("z_theta", shape=gains)
    b = pm.Normal("mean_b") + pm.HalfNormal("sd_b") * pm.Normal("z_b", shape=commits)
    pm.Bernoulli("called", logit_p=theta[who] - b[whom], observed=rng.random(n) < expit(eta))


@as_model
def multilevel_logit() -> pm.Model:
    """Opinions by states and years, which have regressions of their own, and 13 covariates of a person."""
    rng, n, states, years = _rng("opinions"), 30_000, 120, 15
    X, Z, W = rng.normal(size=(n, 13)), rng.normal(size=(states, 3)), rng.normal(size=(years, 2))
    state, year = rng.integers(states, size=n), rng.integers(years, size=n)
    eta = X @ rng.normal(0, 0.2, 13) + rng.normal(0, 0.5, states)[state] + rng.normal(0, 0.3, years)[year]
    u = Z @ pm.Normal("gamma", shape=3) + pm.HalfNormal("sd_state") * pm.Normal("z_state", shape=states)
    v = W @ pm.Normal("delta", shape=2) + pm.HalfNormal("sd_year") * pm.Normal("z_year", shape=years)
    logit = pm.Normal("a") + X @ pm.Normal("beta", shape=13) + u[state] + v[year]
    pm.Bernoulli("y", logit_p=logit, observed=rng.random(n) < expit(eta))


@as_model
def crossed_slopes() -> pm.Model:
    """Two crossed factors, each with an intercept and two correlated slopes."""
    rng, n, sizes = _rng("crossed"), 3_000, {"subject": 300, "item": 80}
    W = np.c_[np.ones(n), rng.normal(size=(n, 2))]
    y = W @ [1.0, 0.5, -0.5] + rng.normal(size=n)
    mean = W @ pm.Normal("beta", shape=3)
    for name, size in sizes.items():
        which = rng.integers(size, size=n)
        y += (_correlated(rng, size, [0.5, 0.3, 0.2])[which] * W).sum(1)
        sd = pm.Exponential.dist(1, shape=3)
        chol, _, _ = pm.LKJCholeskyCov(f"chol_{name}", n=3, eta=2, sd_dist=sd)
        u = (chol @ pm.Normal(f"z_{name}", shape=(3, size))).T
        mean += (u[which] * W).sum(-1)
    pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=y)


@as_model
def radon() -> pm.Model:
    """Houses in counties: an intercept and the effect of the floor of each, correlated."""
    rng, n, counties = _rng("radon"), 3_000, 600
    county, floor = rng.integers(counties, size=n), rng.integers(2, size=n)
    u = _correlated(rng, counties, [0.4, 0.3])
    y = 1.3 - 0.6 * floor + u[county, 0] + u[county, 1] * floor + rng.normal(0, 0.7, n)
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    ab = pt.dot(chol, pm.Normal("z", shape=(2, counties))).T
    mean = pm.Normal("a") + ab[county, 0] + (pm.Normal("b") + ab[county, 1]) * floor
    pm.Normal("y", mean, pm.Exponential("sigma", 1), observed=y)


def _of_bambi(formula: str, data: dict[str, Any], family: str = "gaussian") -> pm.Model:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Bambi's own, of what later versions of its libraries do
        import bambi

        built = bambi.Model(formula, pd.DataFrame(data), family=family)
        built.build()
    return built.backend.model


def bambi_intercepts() -> pm.Model:
    """A common slope for each of three covariates, and an intercept of each subcategory."""
    rng, n, groups = _rng("subcat"), 3_000, 100
    X, group = rng.normal(size=(n, 3)), rng.integers(groups, size=n)
    y = 3 + X @ [0.5, -0.2, 0.0] + rng.normal(0, 0.7, groups)[group] + rng.normal(0, 1.5, n)
    columns = {f"x{k + 1}": X[:, k] for k in range(3)}
    return _of_bambi("y ~ x1 + x2 + x3 + (1|subcat)", {"y": y, **columns, "subcat": group.astype(str)})


_CENSUS = {"state": 46, "eth": 3, "age": 3, "edu": 3}


def _people(rng: np.random.Generator, n: int) -> tuple[dict[str, npt.NDArray[np.int64]], Any, Any]:
    """Attributes of people, and of their states a share of votes, and what they think."""
    people = {name: rng.integers(size, size=n) for name, size in _CENSUS.items()}
    votes = rng.normal(size=_CENSUS["state"])[people["state"]]
    eta = 0.3 * votes + sum(rng.normal(0, 0.3, _CENSUS[name])[own] for name, own in people.items())
    return people, votes, rng.random(n) < expit(eta)


def bambi_poststratification() -> pm.Model:
    """A poll, with seven group terms: four attributes and three interactions of them."""
    rng, n = _rng("poll"), 3_000
    people, votes, y = _people(rng, n)
    data = {name: own.astype(str) for name, own in people.items()}
    terms = "(1|state) + (1|eth) + (1|age) + (1|edu) + (1|eth:edu) + (1|eth:age) + (1|edu:age)"
    male = rng.integers(2, size=n) - 0.5
    formula = f"y ~ male + votes + {terms}"
    return _of_bambi(formula, {"y": y.astype(int), "male": male, "votes": votes, **data}, "bernoulli")


def bambi_slopes() -> pm.Model:
    """The effect of sex by countries and by clusters, with two common terms."""
    rng, n, countries, clusters = _rng("countries"), 3_000, 32, 90
    country, cluster = rng.integers(countries, size=n), rng.integers(clusters, size=n)
    sex, age = rng.integers(2, size=n), rng.normal(size=n)
    y = 0.3 * sex + 0.2 * age + rng.normal(size=n)
    for which, size in ((country, countries), (cluster, clusters)):
        u = _correlated(rng, size, [0.6, 0.8])
        y += u[which, 0] + u[which, 1] * sex
    data = {"y": y, "sex": sex, "age": age, "country": country.astype(str), "cluster": cluster.astype(str)}
    return _of_bambi("y ~ sex + age + (sex|country) + (sex|cluster)", data)


def poststratification_by_two_indices() -> pm.Model:
    """The same poll by hand; an effect of each ethnic group and education, looked up by both."""
    rng, n = _rng("by hand"), 3_000
    people, votes, y = _people(rng, n)
    coords = {name: range(size) for name, size in _CENSUS.items()}
    with pm.Model(coords=coords) as model:
        logit = pm.Normal("a") + pm.Normal("b") * votes
        for name in ("state", "age"):
            logit += (pm.HalfNormal(f"sd_{name}") * pm.Normal(f"z_{name}", dims=name))[people[name]]
        both = pm.Normal("u", 0, pm.HalfNormal("sd_u"), shape=(8, 5))
        logit += both[(people["eth"] + 4 * rng.integers(2, size=n)), people["edu"]]
        pm.Bernoulli("y", logit_p=logit, observed=y)
    return model


@as_model
def poststratification_by_one_index() -> pm.Model:
    """The same with one flat index for each of seven factors, each with a scale."""
    rng, n = _rng("flat"), 3_000
    people, votes, y = _people(rng, n)
    logit = pm.Normal("a") + pm.Normal("b") * votes
    factors = {name: (own, _CENSUS[name]) for name, own in people.items()}
    for one, two in (("eth", "edu"), ("eth", "age"), ("edu", "age")):
        index = people[one] * _CENSUS[two] + people[two]
        factors[f"{one}_{two}"] = index, _CENSUS[one] * _CENSUS[two]
    for name, (index, size) in factors.items():
        logit += (pm.HalfNormal(f"sd_{name}") * pm.Normal(f"z_{name}", shape=size))[index]
    pm.Bernoulli("y", logit_p=logit, observed=y)


@as_model
def football() -> pm.Model:
    """Goals of both sides of a match, by attack and defence, which sum to zero."""
    rng, n, teams = _rng("football"), 1_500, 40
    home, away = rng.integers(teams, size=n), rng.integers(teams, size=n)
    attack, defence = rng.normal(0, 0.3, (2, teams))
    goals = (
        rng.poisson(np.exp(0.2 + attack[home] - defence[away])),
        rng.poisson(np.exp(attack[away] - defence[home])),
    )
    attack = pm.ZeroSumNormal("attack", pm.HalfNormal("sd_attack"), shape=teams)
    defence = pm.ZeroSumNormal("defence", pm.HalfNormal("sd_defence"), shape=teams)
    level, at_home = pm.Normal("level"), pm.Normal("at_home")
    log_mean = level + at_home + attack[home] - defence[away]
    pm.Poisson("home_goals", pm.math.exp(log_mean), observed=goals[0])
    pm.Poisson("away_goals", pm.math.exp(level + attack[away] - defence[home]), observed=goals[1])


@as_model
def churn() -> pm.Model:
    """When customers leave: Weibull, and a Potential for those who have not yet left."""
    rng, n = _rng("churn"), 5_000
    X = rng.normal(size=(n, 4))
    t = np.exp(X @ [0.3, -0.2, 0.1, 0.0] + 1) * rng.weibull(1.3, n)
    left = t < 4
    shape, beta, a = pm.HalfNormal("shape", 2), pm.Normal("beta", shape=4), pm.Normal("a")
    scale = pm.math.exp(a + X @ beta)
    pm.Weibull("time", shape, scale[left], observed=t[left])
    pm.Potential("stays", -((4 / scale[~left]) ** shape))


@as_model
def rates_of_users() -> pm.Model:
    """How often users click: a rate of each, one binomial row each."""
    rng, n = _rng("users"), 3_000
    shown = rng.poisson(12, n) + 1
    phi, kappa = pm.Beta("phi", 2, 2), pm.Pareto("kappa", 1.5, 1)
    theta = pm.Beta("theta", kappa * phi, kappa * (1 - phi), shape=n)
    pm.Binomial("clicks", n=shown, p=theta, observed=rng.binomial(shown, rng.beta(3, 7, n)))


@as_model
def beta_binomial() -> pm.Model:
    """The same rates as a regression, summed over the rates of users."""
    rng, n = _rng("beta-binomial"), 3_000
    X, shown = rng.normal(size=(n, 3)), rng.poisson(12, n) + 1
    p = expit(X @ [0.3, -0.2, 0.1] - 0.5)
    mean = pm.math.sigmoid(pm.Normal("a") + X @ pm.Normal("beta", shape=3))
    kappa = pm.LogNormal("kappa", 2, 1)
    seen = rng.binomial(shown, rng.beta(8 * p, 8 * (1 - p)))
    pm.BetaBinomial("clicks", n=shown, alpha=mean * kappa, beta=(1 - mean) * kappa, observed=seen)


@as_model
def discrete_choice() -> pm.Model:
    """Which of four ways to travel, by what each costs and how long it takes."""
    rng, n, ways = _rng("travel"), 3_000, 4
    cost, hours = rng.gamma(2, 1, (n, ways)), rng.gamma(2, 1, (n, ways))
    chosen = (-0.5 * cost - 0.3 * hours + rng.gumbel(size=(n, ways))).argmax(1)
    alpha, of_cost, of_hours = (
        pm.Normal("alpha", shape=ways - 1),
        pm.Normal("of_cost"),
        pm.Normal("of_hours"),
    )
    utilities = [
        (alpha[k] if k < ways - 1 else 0.0) + of_cost * cost[:, k] + of_hours * hours[:, k]
        for k in range(ways)
    ]
    pm.Categorical("choice", p=pm.math.softmax(pm.math.stack(utilities).T, axis=1), observed=chosen)


@as_model
def mixed_logit() -> pm.Model:
    """Choices of people among three offers, with four part-worths of each person."""
    rng, people, times, offers, features = _rng("offers"), 150, 20, 3, 4
    n, who = people * times, np.repeat(np.arange(people), times)
    X = rng.normal(size=(n, offers, features))
    worth = rng.normal(0.5, 0.5, (people, features))
    chosen = ((X * worth[who][:, None]).sum(-1) + rng.gumbel(size=(n, offers))).argmax(1)
    mu, tau = pm.Normal("mu", shape=features), pm.HalfNormal("tau", shape=features)
    b = mu + tau * pm.Normal("z", shape=(people, features))
    utility = (X * b[who][:, None]).sum(-1)
    pm.Categorical("choice", p=pm.math.softmax(utility, axis=1), observed=chosen)


@as_model
def retail() -> pm.Model:
    """Sales of stores: eight slopes of each, negative binomial."""
    rng, n, stores = _rng("retail"), 3_000, 40
    X, store = np.c_[np.ones(n), rng.normal(size=(n, 7))], rng.integers(stores, size=n)
    mean = np.exp((X * rng.normal(0.1, 0.2, (stores, 8))[store]).sum(1))
    mu, tau = pm.Normal("mu", shape=8), pm.HalfNormal("tau", shape=8)
    coefs = pm.Normal("coefs", mu, tau, shape=(stores, 8))
    expected = pm.math.exp((X * coefs[store]).sum(-1))
    alpha = pm.Exponential("alpha", 1)
    pm.NegativeBinomial("sales", mu=expected, alpha=alpha, observed=rng.poisson(mean * rng.gamma(2, 0.5, n)))


@as_model
def store_and_product() -> pm.Model:
    """Sales by stores and products, crossed, negative binomial with a free dispersion."""
    rng, n, stores, products = _rng("products"), 3_000, 200, 400
    store, product = rng.integers(stores, size=n), rng.integers(products, size=n)
    log_mean = 1 + rng.normal(0, 0.4, stores)[store] + rng.normal(0, 0.6, products)[product]
    u = pm.Normal("u", 0, pm.HalfNormal("sd_store"), shape=stores)
    v = pm.Normal("v", 0, pm.HalfNormal("sd_product"), shape=products)
    expected = pm.math.exp(pm.Normal("a") + u[store] + v[product])
    alpha = pm.Exponential("alpha", 1)
    pm.NegativeBinomial("sales", mu=expected, alpha=alpha, observed=rng.poisson(np.exp(log_mean)))


@as_model
def many_slopes() -> pm.Model:
    """An intercept and twenty slopes of each group, in a vector and a matrix."""
    rng, n, groups, slopes = _rng("slopes"), 3_000, 60, 20
    X, group = rng.normal(size=(n, slopes)), rng.integers(groups, size=n)
    eta = rng.normal(0, 0.4, groups)[group] + (X * rng.normal(0.1, 0.2, (groups, slopes))[group]).sum(1)
    mu, tau = pm.Normal("mu", shape=slopes), pm.HalfNormal("tau", shape=slopes)
    b = mu + tau * pm.Normal("z_b", shape=(groups, slopes))
    a = pm.Normal("mean") + pm.HalfNormal("scale") * pm.Normal("z_a", shape=groups)
    logit = a[group] + (X * b[group]).sum(-1)
    pm.Bernoulli("y", logit_p=logit, observed=rng.random(n) < expit(eta))


@as_model
def disease_map() -> pm.Model:
    """Cases by areas on a grid: a mixture of neighbours' and own effects (BYM2)."""
    rng, n, side = _rng("areas"), 1_500, 8
    areas = side**2
    row, column = np.divmod(np.arange(areas), side)
    near = np.abs(row[:, None] - row) + np.abs(column[:, None] - column) == 1
    area, x, expected = rng.integers(areas, size=n), rng.normal(size=n), rng.gamma(4, 1, n)
    rho, scale = pm.Beta("rho", 0.5, 0.5), pm.HalfNormal("scale")
    own, smooth = pm.Normal("own", shape=areas), pm.ICAR("smooth", W=near.astype(int))
    mixed = scale * (pt.sqrt(1 - rho) * own + pt.sqrt(rho / 0.7) * smooth)
    log_rate = pm.Normal("a") + pm.Normal("b") * x + mixed[area]
    counts = rng.poisson(expected * np.exp(0.2 * x + rng.normal(0, 0.3, areas)[area]))
    pm.Poisson("cases", expected * pm.math.exp(log_rate), observed=counts)


@as_model
def measurement_error() -> pm.Model:
    """A regression on what was measured with error: a true value of each row."""
    rng, n = _rng("measured"), 1_500
    truth = rng.normal(size=n)
    x = pm.Normal("x", pm.Normal("mean"), pm.HalfNormal("spread"), shape=n)
    pm.Normal("seen", x, 0.4, observed=truth + rng.normal(0, 0.4, n))
    mean = pm.Normal("a") + pm.Normal("b") * x
    pm.Normal("y", mean, pm.HalfNormal("sigma"), observed=1 + 0.7 * truth + rng.normal(0, 0.5, n))


@as_model
def missing_covariates() -> pm.Model:
    """A regression of which one value in twenty of a covariate is missing, and drawn."""
    rng, n = _rng("missing"), 3_000
    x = rng.normal(size=n)
    y = 1 + 0.5 * x + rng.normal(0, 0.5, n)
    seen = np.ma.masked_array(x, mask=rng.random(n) < 0.05)
    x = pm.Normal("x", pm.Normal("mean"), pm.HalfNormal("spread"), observed=seen)
    pm.Normal("y", pm.Normal("a") + pm.Normal("b") * x, pm.HalfNormal("sigma"), observed=y)


@as_model
def hurdle() -> pm.Model:
    """What customers spend: nothing, or a log-normal sum; 45 coefficients for each part."""
    rng, n, columns = _rng("spend"), 10_000, 44
    X = rng.normal(size=(n, columns)) / 3
    buys = rng.random(n) < expit(X @ rng.normal(0, 0.3, columns))
    spent = np.where(buys, np.exp(1 + X @ rng.normal(0, 0.3, columns) + rng.normal(0, 0.8, n)), 0.0)
    psi = pm.math.sigmoid(pm.Normal("a") + X @ pm.Normal("alpha", shape=columns))
    mu = pm.Normal("b") + X @ pm.Normal("beta", shape=columns)
    pm.HurdleLogNormal("spent", psi=psi, mu=mu, sigma=pm.HalfNormal("sigma"), observed=spent)


@as_model
def tobit() -> pm.Model:
    """A regression whose response is censored at zero."""
    rng, n, columns = _rng("tobit"), 3_000, 5
    X = rng.normal(size=(n, columns))
    y = np.maximum(0.5 + X @ rng.normal(0, 0.5, columns) + rng.normal(size=n), 0.0)
    mean = pm.Normal("a") + X @ pm.Normal("beta", shape=columns)
    pm.Censored("y", pm.Normal.dist(mean, pm.HalfNormal("sigma")), lower=0.0, upper=None, observed=y)


@as_model
def media_mix() -> pm.Model:
    """Sales of areas by what is spent on four channels, which saturate."""
    rng, n, areas, channels = _rng("media"), 1_200, 32, 4
    spent, area = rng.gamma(2, 1, (n, channels)), rng.integers(areas, size=n)
    y = (
        2
        + np.tanh(spent / 2) @ [0.5, 0.3, 0.2, 0.1]
        + rng.normal(0, 0.5, areas)[area]
        + rng.normal(0, 0.5, n)
    )
    half = pm.Gamma("half", 3, 1, shape=channels)
    mean = (spent / (spent + half)) @ pm.HalfNormal("beta", shape=channels)
    u = pm.Laplace("u", pm.Normal("a", 2, 2), pm.HalfNormal("scale"), shape=areas)
    pm.Normal("sales", mean + u[area], pm.HalfNormal("sigma"), observed=y)


@as_model
def dirichlet_multinomial() -> pm.Model:
    """Counts of five species at many places."""
    rng, n = _rng("species"), 1_200
    share = rng.dirichlet(10 * np.array([0.4, 0.25, 0.15, 0.15, 0.05]), n)
    counts = np.array([rng.multinomial(50, one) for one in share])
    frac, conc = pm.Dirichlet("frac", np.ones(5)), pm.LogNormal("conc", 1, 1)
    pm.DirichletMultinomial("counts", n=50, a=frac * conc, shape=(n, 5), observed=counts)


@as_model
def repeat_buyers() -> pm.Model:
    """How often customers buy again, and whether they still do (BG/NBD)."""
    rng, n = _rng("buyers"), 20_000
    age, rate, leaves = rng.uniform(20, 40, n), rng.gamma(1.5, 1 / 8, n), rng.beta(1.0, 3.0, n)
    until = np.minimum(age, rng.geometric(leaves) / rate)
    times = rng.poisson(rate * until)
    last = np.where(times > 0, until * rng.beta(np.maximum(times, 1), 1), 0.0)
    r, alpha, a, b = (pm.LogNormal(name, 0, 1) for name in ("r", "alpha", "a", "b"))
    both = pt.gammaln(r + times) - pt.gammaln(r) + r * pt.log(alpha)
    both += pt.gammaln(a + b) + pt.gammaln(b + times) - pt.gammaln(b) - pt.gammaln(a + b + times)
    stays = -(r + times) * pt.log(alpha + age)
    left = pt.log(a) - pt.log(b + np.maximum(times, 1) - 1) - (r + times) * pt.log(alpha + last)
    pm.Potential("buys", both + pt.where(times > 0, pt.logaddexp(stays, left), stays))
