"""Models for `factorise` as users in many fields write them: ecology, psychology, sports, survival.

Importing this module adds them to `catalogue.MODELS`.
"""

# ruff: noqa: B008 - defaults say what a model is given

import numpy as np
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
    LOG_NORMAL,
    NARROW,
    NOISE,
    NORMAL,
    UNIFORM,
    ZERO_SUM,
    Data,
    coords,
    refused_so_far,
    required,
    scanned,
)

ORDERED = pm.distributions.transforms.ordered


def with_gaps(values, rng, share=0.1):
    """A copy of `values` with NaN at random cells."""
    values = np.array(values, dtype=float)
    values[rng.random(values.shape) < share] = np.nan
    return values


# Ecology


@required("cover", ask=["phi"], columns=(1101, 3, 1001))
def plant_cover(X, y=Data("beta", 3, 5), alpha=NORMAL, beta=NARROW[3]):
    phi = pm.Exponential("phi", 0.1, initval=10)
    mu = pm.Deterministic("mu", pm.math.invlogit(alpha + pm.math.dot(X, beta)))
    pm.Beta("cover", alpha=mu * phi, beta=(1 - mu) * phi, observed=y)


@required("fish", ask=["z", "alpha"], rows=(1103, 1003))
def zero_inflated_negative_binomial_catch(rng, camper=BITS, child=INTEGERS(4), z=NORMAL[3], c=NORMAL[2]):
    y = rng.negative_binomial(2, 0.3, size=1103) * rng.integers(2, size=1103)
    alpha = pm.Gamma("alpha", 2, 0.5)
    p = 1 - pm.math.invlogit(z[0] + z[1] * child)
    mu = pt.exp(c[0] + c[1] * camper + z[2] * child)
    pm.ZeroInflatedNegativeBinomial("fish", psi=p, mu=mu, alpha=alpha, observed=y)


@required("seeds", ask=["psi", "u"], rows=(1104, 1004), coords={"plot": np.arange(30)})
def zero_inflated_binomial_seeds(rng, mu, tau, trays=INTEGERS(5, 25), plot=INTEGERS(30), psi=BETA(2, 1)):
    u = pm.Normal("u", mu, tau, dims="plot")
    p = pm.math.invlogit(u[plot])
    y = rng.binomial(trays, 0.4) * rng.integers(2, size=1104)
    pm.ZeroInflatedBinomial("seeds", psi=psi, n=trays, p=p, observed=y)


@required("occupancy", ask=["d"], columns=(1105, 2, 1005))
def occupancy_by_hand(rng, X, visits=NOISE[4], b=NORMAL[3], d=NORMAL[2]):
    y = rng.integers(2, size=(1105, 4)) * rng.integers(2, size=(1105, 1))
    eta = b[0] + X @ b[1:]
    log_psi, log_absent = -pt.softplus(-eta), -pt.softplus(eta)
    detection = d[0] + d[1] * visits
    history = pm.logp(pm.Bernoulli.dist(logit_p=detection), y).sum(axis=1)
    seen = y.any(axis=1)
    never = pt.logaddexp(log_psi + history, log_absent)
    pm.Potential("occupancy", pt.switch(seen, log_psi + history, never).sum())


@required("y", ask=["p"], seed=1007)
def occupancy_as_mixture_of_rows(rng, psi=BETA, p=BETA[3]):
    y = rng.integers(2, size=(1107, 3)) * rng.integers(2, size=(1107, 1))

    def history(value, psi, p):
        present = pt.sum(value * pt.log(p) + (1 - value) * pt.log1p(-p), axis=-1)
        absent = pt.switch(pt.eq(value.sum(axis=-1), 0), pt.log1p(-psi), -np.inf)
        return pt.logaddexp(pt.log(psi) + present, absent)

    pm.CustomDist("y", psi, p, logp=history, signature="(),(k)->(k)", observed=y)


@required("capture", ask=["phi"], rows=(1108, 1008))
def cormack_jolly_seber(rng, first=INTEGERS(0, 5), p=BETA, phi=BETA(4, 2)[6]):
    last = np.minimum(first + rng.integers(0, 6, size=1108), 6)
    seen = np.maximum(last - first - rng.integers(0, 2, size=1108), 0)
    chi = [pt.ones(())]
    for t in range(5, -1, -1):
        chi.insert(0, 1 - phi[t] + phi[t] * (1 - p) * chi[0])
    chi = pt.stack(chi)
    survived = pt.concatenate([pt.zeros(1), pt.cumsum(pt.log(phi))])
    terms = survived[last] - survived[first] + pt.log(chi)[last]
    terms = terms + seen * pt.log(p) + (last - first - seen) * pt.log1p(-p)
    pm.Potential("capture", terms)


@required("augmented", ask=["omega"], seed=1009)
def capture_recapture_with_augmentation(rng, logit_p=NORMAL, omega=UNIFORM):
    y = np.concatenate([rng.binomial(6, 0.5, size=700), np.zeros(600, dtype=int)])
    real = pt.log(omega) + pm.logp(pm.Binomial.dist(6, logit_p=logit_p), y)
    fake = pt.log1p(-omega) + pt.switch(pt.eq(y, 0), 0.0, -np.inf)
    pm.Potential("augmented", pm.math.logaddexp(real, fake).sum())


@required("birds", ask=["lam"], rows=(1110, 1010))
def n_mixture_model(rng, abundance=COUNTS(4), p=BETA, lam=HALF(5)):
    y = rng.binomial(abundance[:, None], 0.5, size=(1110, 3))
    K = np.arange(25)
    prior = pm.logp(pm.Poisson.dist(lam), K)
    counts = pm.logp(pm.Binomial.dist(K[None, None, :], p), y[:, :, None]).sum(axis=1)
    pm.Potential("birds", pt.logsumexp(prior[None, :] + counts, axis=1))


@required("alpha", "beta", "weights", ask=["mu", "tau"], rows=(1112, 1012))
def rats(y=Data("normal", 2, 1)[5], tau=HALF[2], mu=NORMAL([2, 0.1], [1, 0.1])[2]):
    days = np.array([8.0, 15, 22, 29, 36])
    coords({"rat": np.arange(1112), "day": days})
    alpha = pm.Normal("alpha", mu[0], tau[0], dims="rat")
    beta = pm.Normal("beta", mu[1], tau[1], dims="rat")
    eta = alpha[:, None] + beta[:, None] * (days - days.mean())[None, :] / 10
    pm.Normal("weights", eta, 1, observed=y, dims=("rat", "day"))


# Statistical Rethinking


@required("tools", ask=["etasq"], rows=(1122, 1022))
def islands_with_distances(society=INTEGERS(10), y=COUNTS(2), a=EXPON, z=NORMAL[10], etasq=EXPON(2)):
    D = np.abs(np.subtract.outer(np.arange(10.0), np.arange(10.0)))
    rhosq = pm.Exponential("rhosq", 0.5)
    K = etasq * pt.exp(-rhosq * D**2) + 0.01 * np.eye(10)
    k = pm.Deterministic("k", pt.linalg.cholesky(K) @ z)
    pm.Poisson("tools", a * pt.exp(k[society]), observed=y)


@required("answer", ask=["delta"], rows=(1124, 1024))
def ordered_education(edu=INTEGERS(8), y=INTEGERS(5), bE=NORMAL, delta=DIRICHLET(np.repeat(2.0, 7))):
    cut = pm.Normal("cut", 0, 1.5, transform=ORDERED, shape=4, initval=np.arange(4) - 1.5)
    delta_j = pt.concatenate([pt.zeros(1), delta])
    upto = pt.cumsum(delta_j)
    pm.OrderedLogistic("answer", bE * upto[edu], cut, compute_p=False, observed=y)


@required("answer", ask=["delta"], rows=(1125, 1025))
def ordered_education_by_masks(edu=INTEGERS(6), y=INTEGERS(4), bE=NORMAL, delta=DIRICHLET(np.repeat(2.0, 5))):
    reached = (edu[:, None] >= np.arange(1, 6)).astype(float)
    cut = pm.Normal("cut", 0, 1.5, transform=ORDERED, shape=3, initval=[-1, 0, 1])
    pm.OrderedLogistic("answer", bE * pt.sum(reached * delta, axis=1), cut, observed=y)


@required("career", ask=["b"], rows=(1126, 1026))
def careers(y=INTEGERS(3), a=NORMAL[2], b=HALF(0.5)):
    income = np.array([1.0, 2.0, 5.0])
    s = pt.stack([a[0] + b * income[0], a[1] + b * income[1], pt.zeros(())])
    pm.Categorical("career", p=pm.math.softmax(s, axis=0), observed=y)


@required("wait", ask=["ab"], rows=(1200, 1028))
def cafes(y=Data("normal", 4, 1), a=NORMAL(5, 2), b=NORMAL(-1, 0.5), sigma=EXPON, chol=CHOLESKY(2, 2)):
    cafe, afternoon = np.repeat(np.arange(60), 20), np.tile([0, 1], 600)
    ab = pm.MvNormal("ab", mu=pt.stack([a, b]), chol=chol, shape=(60, 2))
    pm.Normal("wait", ab[cafe, 0] + ab[cafe, 1] * afternoon, sigma, observed=y)


@required("pulled_left", ask=["chol_a"], seed=1029)
def chimpanzees(rng, z_a=NORMAL[4, 7], z_b=NORMAL[6, 4], g=NORMAL[4], s=EXPON, chol_a=CHOLESKY(4, 4)):
    actor, block, treatment = (rng.integers(k, size=1129) for k in (7, 6, 4))
    alpha = pm.Deterministic("alpha", pt.dot(chol_a, z_a).T)
    p = pm.math.invlogit(g[treatment] + alpha[actor, treatment] + s * z_b[block, treatment])
    pm.Binomial("pulled_left", 1, p, observed=rng.integers(2, size=1129))


@required("giftsAB", "giftsBA", ask=["a", "gr"], seed=1033)
def gifts_of_dyads(rng, a, z=NORMAL[2, 60], sigma_d=EXPON, chol_gr=CHOLESKY(2, 4)):
    A, B = rng.integers(25, size=(2, 1133))
    gr = pm.MvNormal("gr", [0, 0], chol=chol_gr, shape=(25, 2))
    rho = pm.LKJCorr("rho", n=2, eta=8)
    corr = rho if rho.ndim == 2 else pt.eye(2)
    d = sigma_d * pt.dot(pt.linalg.cholesky(corr), z).T
    dyad = rng.integers(60, size=1133)
    pm.Poisson("giftsAB", pt.exp(a + gr[A, 0] + gr[B, 1] + d[dyad, 0]), observed=rng.poisson(1, 1133))
    pm.Poisson("giftsBA", pt.exp(a + gr[B, 0] + gr[A, 1] + d[dyad, 1]), observed=rng.poisson(1, 1133))


@required("notes", ask=["k"], rows=(1134, 1034))
def birds_and_unknown_cats(notes=COUNTS(8), cat=INTEGERS(-1, 2), k=BETA, b=NARROW, a=NORMAL(2, 0.5)):
    with_cat = pt.log(k) + pm.logp(pm.Poisson.dist(pt.exp(a + b)), notes)
    without = pt.log1p(-k) + pm.logp(pm.Poisson.dist(pt.exp(a)), notes)
    known = pt.switch(cat, with_cat, without)
    unknown = pm.math.logaddexp(with_cat, without)
    pm.Potential("notes", pt.switch(pt.ge(cat, 0), known, unknown))


# Sports


@required("home_points", "away_points", ask=["atts"], seed=1040, coords={"team": list("abcdef")})
def rugby(rng, advantage=NORMAL, intercept=NORMAL(3, 1)):
    home, away = rng.integers(6, size=(2, 1140))
    home_team = pm.Data("home_team", home, dims="match")
    away_team = pm.Data("away_team", away, dims="match")
    sd = pm.HalfStudentT("sd", nu=3, sigma=2.5, shape=2)
    atts = pm.Normal("atts", 0, sd[0], dims="team")
    defs = pm.Normal("defs", 0, sd[1], dims="team")
    atts = pm.Deterministic("atts_c", atts - pt.mean(atts), dims="team")
    defs = pm.Deterministic("defs_c", defs - pt.mean(defs), dims="team")
    home_theta = pt.exp(intercept + advantage + atts[home_team] + defs[away_team])
    away_theta = pt.exp(intercept + atts[away_team] + defs[home_team])
    pm.Poisson("home_points", home_theta, observed=rng.poisson(20, size=1140), dims="match")
    pm.Poisson("away_points", away_theta, observed=rng.poisson(18, size=1140), dims="match")


@required("goals", ask=["attack"], seed=1041)
def dixon_coles(rng, attack=ZERO_SUM(0.5)[20], defence=ZERO_SUM(0.5)[20], home=NORMAL(0.2, 0.1)):
    i, j = rng.integers(20, size=(2, 1141))
    x, y = rng.poisson(1.3, size=(2, 1141))
    rho = pm.Uniform("rho", -0.1, 0.1)
    lam, mu = pt.exp(attack[i] - defence[j] + home), pt.exp(attack[j] - defence[i])
    tau = pt.ones(1141)
    tau = pt.switch((x == 0) & (y == 0), 1 - lam * mu * rho, tau)
    tau = pt.switch((x == 0) & (y == 1), 1 + lam * rho, tau)
    tau = pt.switch((x == 1) & (y == 0), 1 + mu * rho, tau)
    tau = pt.switch((x == 1) & (y == 1), 1 - rho, tau)
    scores = pm.logp(pm.Poisson.dist(lam), x) + pm.logp(pm.Poisson.dist(mu), y)
    pm.Potential("goals", scores + pt.log(pt.maximum(tau, 1e-6)))


@required("won", ask=["skill"], seed=1042)
def bradley_terry(rng, sigma):
    winner, loser = rng.integers(80, size=(2, 1142))
    skill = pm.Normal("skill", 0, sigma, shape=80)
    pm.Bernoulli("won", logit_p=skill[winner] - skill[loser], observed=np.ones(1142, dtype=int))


@required("wins", ask=["strength"], seed=1043)
def bradley_terry_by_ratio(rng, strength=GAMMA(4, 2)[30]):
    i, j = rng.integers(30, size=(2, 1143))
    games = rng.integers(1, 9, size=1143)
    p = strength[i] / (strength[i] + strength[j])
    pm.Binomial("wins", n=games, p=p, observed=rng.binomial(games, 0.5))


@required("putts", ask=["angle"], rows=(1145, 1045))
def golf_putting(rng, distance=Data("uniform", 2, 40), tries=INTEGERS(1, 40)):

    def phi(x):
        return 0.5 + 0.5 * pt.erf(x / pt.sqrt(2.0))

    angle = pm.HalfNormal("angle", initval=0.05)
    long_short = pm.HalfNormal("long_short", initval=0.2)
    by_angle = 2 * phi(pt.arcsin((4.25 - 1.68) / 2 / 12 / distance) / angle) - 1
    far = (distance + 1) * long_short
    by_distance = phi(2.0 / far) - phi(-1.0 / far)
    p = pt.switch(distance < 0, 0.0, by_angle * by_distance)
    pm.Binomial("putts", n=tries, p=p, observed=rng.binomial(tries, 0.5))


# Psychometrics


@required("theta", "answers", ask=["b", "sd"], rows=(1150, 1050))
def rasch(y=BITS[8], sd=HALF):
    coords({"person": np.arange(1150), "item": np.arange(8)})
    theta = pm.Normal("theta", 0, sd, dims="person")
    b = pm.Normal("b", 0, 1, dims="item")
    eta = theta[:, None] - b[None, :]
    pm.Bernoulli("answers", logit_p=eta, observed=y, dims=("person", "item"))


@required("y", ask=["a", "b"], rows=(2000, 1051))
def two_parameter_items(person=INTEGERS(200), item=INTEGERS(15), y=BITS, theta=NORMAL[200], b=NORMAL[15]):
    a = pm.LogNormal("a", 0, 0.3, shape=15)
    pm.Bernoulli("y", p=pm.math.sigmoid(a[item] * (theta[person] - b[item])), observed=y)


@required("theta", "y", ask=["c"], rows=(1152, 1052))
def three_parameter_items(y=BITS[6], a=HALF[1, 6], b=NORMAL[1, 6], theta=NORMAL[1152, 1], c=BETA(2, 8)[1, 6]):
    pm.Bernoulli("y", c + (1 - c) * pm.math.invlogit(a * (theta - b)), observed=y)


@required("y", ask=["theta"], rows=(1153, 1053))
def graded_responses(rng, person=INTEGERS(100), item=INTEGERS(5), theta=NORMAL[100], gaps=HALF[5, 3]):
    first = pm.Normal("first", -1, 0.5, shape=5)
    steps = pt.concatenate([first[:, None], first[:, None] + pt.cumsum(gaps, axis=1)], axis=1)
    above = pm.math.invlogit(theta[person][:, None] - steps[item])
    ones, zeros = np.ones((1153, 1)), np.zeros((1153, 1))
    p = pt.concatenate([ones, above], axis=1) - pt.concatenate([above, zeros], axis=1)
    pm.Categorical("y", p=p, observed=rng.integers(5, size=1153))


@required("rt", ask=["drift"], rows=(1154, 1054))
def shifted_wald_reaction_times(rng, subject=INTEGERS(25), drift=LOG_NORMAL(0.5, 0.3)[25]):
    bound = pm.LogNormal("bound", 0, 0.3)
    shift = pm.Uniform("shift", 0, 0.2)
    y = 0.25 + rng.wald(0.5, 1, size=1154)
    pm.Wald("rt", mu=bound / drift[subject], lam=bound**2, alpha=shift, observed=y)


@required("hits", "false_alarms", ask=["mu"], rows=(1156, 1056))
def signal_detection(rng, who=INTEGERS(40), y=Data("binomial", 20, 0.7), mu=NORMAL[2], z=NORMAL[40, 2]):
    s = pm.HalfNormal("s", 0.5, shape=2)
    d, c = [mu[k] + s[k] * z[:, k] for k in range(2)]
    hit = pm.math.invprobit(d[who] / 2 - c[who])
    alarm = pm.math.invprobit(-d[who] / 2 - c[who])
    pm.Binomial("hits", 20, hit, observed=y)
    pm.Binomial("false_alarms", 20, alarm, observed=rng.binomial(20, 0.3, size=1156))


@required("eta", "y", ask=["free", "sigma"], rows=(1158, 1058))
def confirmatory_factors(y=NOISE[6], nu=NORMAL[6], sigma=HALF[6], free=NORMAL(1, 0.3)[4]):
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.Exponential.dist(1, shape=2))
    eta = pm.MvNormal("eta", np.zeros(2), chol=chol, shape=(1158, 2))
    load = pt.zeros((6, 2))
    load = pt.set_subtensor(load[0, 0], 1.0)
    load = pt.set_subtensor(load[3, 1], 1.0)
    load = pt.set_subtensor(load[1:3, 0], free[:2])
    load = pt.set_subtensor(load[4:, 1], free[2:])
    pm.Normal("y", nu + pt.dot(eta, load.T), sigma, observed=y)


@required("exog", "endog", "x", "y", ask=["path"], rows=(1159, 1059))
def structural_equation(rng, y=NOISE[3], path=NORMAL, sd=HALF):
    coords({"obs": range(1159), "indicator": list("abc")})
    exog = pm.Normal("exog", 0, 1, dims="obs")
    endog = pm.Normal("endog", path * exog, sd, dims="obs")
    lx = pm.Normal("lx", 1, 0.5, dims="indicator")
    ly = pm.Normal("ly", 1, 0.5, dims="indicator")
    mu_x = pt.outer(exog, lx)
    mu_y = endog[:, None] * ly
    pm.Normal("x", mu_x, 0.5, observed=y, dims=("obs", "indicator"))
    pm.Normal("y", mu_y, 0.5, observed=rng.normal(size=(1159, 3)), dims=("obs", "indicator"))


# Survival


@required("observed", "censored", ask=["coef"], columns=(2600, 2, 1060))
def weibull_with_potential(rng, X, mu, t=Data("weibull", 1.5), coef=NARROW[2], alpha=LOG_NORMAL(0, 0.3)):
    event = rng.random(2600) < 0.5

    def weibull_lccdf(x, alpha, beta):
        return -((x / beta) ** alpha)

    beta = pm.Deterministic("beta", pt.exp(mu + pt.dot(X, coef)))
    pm.Weibull("observed", alpha=alpha, beta=beta[event], observed=t[event])
    pm.Potential("censored", weibull_lccdf(t[~event], alpha, beta[~event]))


@required("time", ask=["alpha"], rows=(1161, 1061))
def weibull_censored(rng, arm=BITS, limit=Data("uniform", 0.5, 2), b=NARROW[2], alpha=GAMMA(10, 10)):
    t = np.minimum(rng.weibull(1.5, size=1161), limit)
    latent = pm.Weibull.dist(alpha=alpha, beta=pm.math.exp(b[arm]))
    pm.Censored("time", latent, lower=None, upper=limit, observed=t)


@required("deaths", ask=["lambda0"], columns=(1163, 1, 1063), coords={"intervals": np.arange(6)})
def piecewise_exponential(rng, X, beta=NORMAL, lambda0=GAMMA["intervals"]):
    death = rng.integers(2, size=(1163, 6)) * (rng.random((1163, 6)) < 0.3)
    exposure = rng.uniform(0.1, 3, size=(1163, 6))
    lam = pm.Deterministic("lam", pt.outer(pt.exp(beta * X[:, 0]), lambda0))
    mu = pm.Deterministic("mu", exposure * lam)
    pm.Poisson("deaths", mu, observed=death)


@required("deaths", ask=["beta"], columns=(1164, 1, 1064))
def piecewise_exponential_with_changing_effect(X, exposure=Data("uniform", 0.1, 3)[5], y=BITS[5]):
    coords({"interval": np.arange(5), "patient": np.arange(1164)})
    log_rate = pm.GaussianRandomWalk("log_rate", sigma=0.3, init_dist=pm.Normal.dist(0, 1), dims="interval")
    beta = pm.GaussianRandomWalk("beta", sigma=0.3, init_dist=pm.Normal.dist(0, 1), dims="interval")
    lam = pt.exp(log_rate[None, :] + X * beta[None, :])
    pm.Poisson("deaths", exposure * lam, observed=y, dims=("patient", "interval"))


@required("interval", ask=["mu"], rows=(1166, 1066))
def interval_censored_inspections(rng, sigma, left=Data("uniform", 0.1, 2), mu=NARROW[12]):
    right = left + rng.uniform(0.2, 1, size=1166)
    machine = rng.integers(12, size=1166)
    life = pm.LogNormal.dist(mu[machine], sigma)
    upper, lower = pm.logcdf(life, right), pm.logcdf(life, left)
    pm.Potential("interval", pt.sum(pm.math.logdiffexp(upper, lower)))


@required("frailty", "relapse", ask=["theta"], columns=(2400, 2, 1067))
def shared_frailty(X, y=Data("exponential"), beta=NARROW[2], theta=GAMMA(4, 2)):
    hospital = np.repeat(np.arange(1200), 2)
    frailty = pm.Gamma("frailty", alpha=theta, beta=theta, shape=1200)
    rate = frailty[hospital] * pm.math.exp(X @ beta)
    pm.Exponential("relapse", rate, observed=y)


@required("cured", ask=["lam"], columns=(1168, 1, 1068))
def mixture_cure(rng, X, t=Data("exponential"), g=NORMAL[2], lam=GAMMA(4, 4)):
    event = rng.random(1168) < 0.4
    cured = pm.math.invlogit(g[0] + g[1] * X.ravel())
    log_f = pt.log1p(-cured) + pt.log(lam) - lam * t
    log_s = pt.log(cured + (1 - cured) * pt.exp(-lam * t))
    pm.Potential("cured", pt.where(event, log_f, log_s))


# Generated and generic models


@required("score", ask=["s", "school"], columns=(1171, 1, 1071))
def pupils_in_classes_in_schools(rng, X, mu, s=HALF[3], z=NORMAL[60], slope=NORMAL[10]):
    school_of_class = rng.integers(10, size=60)
    class_of_pupil = rng.integers(60, size=1171)
    school = pm.Normal("school", mu, s[0], shape=10)
    classes = pm.Deterministic("classes", school[school_of_class] + s[1] * z)
    eta = classes[class_of_pupil] + slope[school_of_class[class_of_pupil]] * X[:, 0]
    pm.Normal("score", eta, s[2], observed=rng.normal(size=1171))


@required("y", ask=["mu", "w"], rows=(1172, 1072))
def mixture_of_multivariate_normals(y=NOISE[2], w=DIRICHLET(np.ones(2)), mu=NORMAL([[-1, 0], [1, 0]], 1)):
    chols = [
        pm.LKJCholeskyCov(f"chol_{k}", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))[0]
        for k in range(2)
    ]
    parts = [pm.MvNormal.dist(mu[k], chol=chols[k]) for k in range(2)]
    pm.Mixture("y", w, parts, observed=y)


@required("y", ask=["w"], columns=(1173, 1, 1073))
def zero_inflation_as_mixture(X, y=COUNTS(1), b=NARROW[2], w=DIRICHLET(np.ones(2))):
    mu = pt.exp(b[0] + b[1] * X[:, 0])
    parts = [pm.DiracDelta.dist(0), pm.Poisson.dist(mu)]
    pm.Mixture("y", w, parts, observed=y)


@required("y", ask=["p"], rows=(1174, 1074))
def mixture_of_binomials_by_stacked_component(rng, n=INTEGERS(5, 20), w=DIRICHLET(np.ones(3))):
    p = pm.Beta("p", [1, 2, 4], [4, 2, 1])
    parts = pm.Binomial.dist(n=n[:, None], p=p)
    pm.Mixture("y", w=w, comp_dists=parts, observed=rng.binomial(n, 0.5))


@required("y", ask=["mu"], rows=(1175, 1075))
def covariance_of_each_group(g=INTEGERS(3), y=NOISE[2], mu=NORMAL[3, 2]):
    chols = [
        pm.LKJCholeskyCov(f"chol_{k}", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))[0]
        for k in range(3)
    ]
    chol = pt.stack(chols)
    pm.MvNormal("y", mu[g], chol=chol[g], observed=y)


@required("curves", ask=["ell"], rows=(1176, 1076))
def curves_with_shared_process(y=NOISE[8], eta=HALF, mean=NORMAL[8], ell=LOG_NORMAL(-1, 0.3)):
    t = np.linspace(0, 1, 8)[:, None]
    K = eta**2 * pm.gp.cov.ExpQuad(1, ell)(t) + 0.1 * pt.eye(8)
    pm.MvNormal("curves", mean, cov=K, observed=y)


@required("y", ask=["nu"], rows=(1177, 1077))
def multivariate_student_with_group_means(g=INTEGERS(6), y=NOISE[2], mu=NORMAL[6, 2], nu=GAMMA(20, 4)):
    chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=pm.HalfNormal.dist(1, shape=2))
    pm.MvStudentT("y", nu=nu, mu=mu[g], scale=chol @ chol.T, observed=y)


@required("y", ask=["cut"], columns=(1178, 1, 1078))
def cutpoints_of_each_rater(X, b, rater=INTEGERS(5), y=INTEGERS(4)):
    start = np.tile([-1.0, 0.0, 1.0], (5, 1))
    cut = pm.Normal("cut", 0, 2, shape=(5, 3), transform=ORDERED, initval=start)
    pm.OrderedLogistic("y", eta=b * X[:, 0], cutpoints=cut[rater], compute_p=False, observed=y)


@required("y", ask=["gaps"], columns=(1179, 2, 1079))
def ordered_cutpoints_by_cumulated_gaps(X, beta, y=INTEGERS(5), gaps=EXPON[3], first=NORMAL(-1, 1)):
    cut = pt.concatenate([first[None], first + pt.cumsum(gaps)])
    eta = pt.dot(X, beta)
    below = pm.math.invlogit(cut[None, :] - eta[:, None])
    edges = pt.concatenate([pt.zeros((1179, 1)), below, pt.ones((1179, 1))], axis=1)
    pm.Categorical("y", p=pt.diff(edges, axis=1), observed=y)


@required("y", ask=["beta"], rows=(1180, 1080))
def epidemic_simulated_for_some_days(day=INTEGERS(40), y=COUNTS(50), beta=LOG_NORMAL(-1, 0.3)):

    def step(s, i, beta, gamma):
        new = beta * s * i
        return s - new, i + new - gamma * i

    gamma = pm.LogNormal("gamma", -2, 0.3)
    _, i = pytensor.scan(
        step,
        outputs_info=[pt.as_tensor(0.99), pt.as_tensor(0.01)],
        non_sequences=[beta, gamma],
        n_steps=40,
        return_updates=False,
    )
    pm.Poisson("y", 1000 * i[day] + 0.1, observed=y)


@refused_so_far(seed=1081)
def learning_of_many_subjects(rng, alpha=BETA(1, 1)):
    action, reward = rng.integers(2, size=(2, 20, 1181))

    def update(action, reward, Q, alpha):
        rows = pt.arange(1181)
        return pt.set_subtensor(Q[rows, action], Q[rows, action] + alpha * (reward - Q[rows, action]))

    Q = scanned(update, [action, reward], pt.full((1181, 2), 0.5), alpha)
    logits = Q[:-1, :, 1] - Q[:-1, :, 0]
    pm.Bernoulli("choices", logit_p=logits, observed=action[1:])


@required("y", ask=["beta"], columns=(1183, 3, 1083))
def flat_priors(X, y):
    beta = pm.Flat("beta", shape=3)
    sigma = pm.HalfFlat("sigma")
    pm.Normal("y", X @ beta, sigma, observed=y)


@required("f", "genotypes", ask=["inbreeding"], rows=(1184, 1084), coords={"locus": range(1184)})
def hardy_weinberg(y=Data("multinomial", 50, [0.25, 0.5, 0.25]), a=GAMMA(4, 2)[2], inbreeding=BETA(1, 9)):
    f = pm.Beta("f", a[0], a[1], dims="locus")
    het = 2 * f * (1 - f) * (1 - inbreeding)
    p = pt.stack([f - het / 2, het, 1 - f - het / 2], axis=-1)
    pm.Multinomial("genotypes", n=50, p=p, observed=y)


@required("y", ask=["z_item"], seed=1085)
def reading_times_with_crossed_correlated_effects(rng, beta=NORMAL([6, 0], 0.5)):
    subject, item, so = rng.integers(20, size=1185), rng.integers(16, size=1185), rng.choice([-1, 1], 1185)
    effects = {}
    for name, size in [("subject", 20), ("item", 16)]:
        sd = pm.HalfNormal.dist(1, shape=2)
        chol, _, _ = pm.LKJCholeskyCov(f"chol_{name}", n=2, eta=2, sd_dist=sd)
        z = pm.Normal(f"z_{name}", 0, 1, shape=(size, 2))
        effects[name] = pm.Deterministic(name, pt.einsum("ij,nj->ni", chol, z))
    u = effects["subject"][subject] + effects["item"][item]
    mu = beta[0] + u[:, 0] + (beta[1] + u[:, 1]) * so
    pm.LogNormal("y", mu, 1, observed=rng.lognormal(6, 1, size=1185))


@required("degradation", ask=["activation"], seed=1086)
def degradation_increments(rng, scale=HALF, activation=NARROW, rate=GAMMA(4, 4)[30]):
    unit, dt, temperature = rng.integers(30, size=1186), rng.uniform(0.5, 2, 1186), rng.normal(size=1186)
    shape = rate[unit] * pt.exp(activation * temperature) * dt
    pm.Gamma("degradation", alpha=shape, beta=1 / scale, observed=rng.gamma(2, 1, size=1186))


@required("adjacency", ask=["Z"], seed=1087)
def latent_space_network_of_pairs(rng, a):
    i, j = np.triu_indices(50, 1)
    Z = pm.Normal("Z", 0, 1, shape=(50, 2), initval=rng.normal(size=(50, 2)))
    distance = pt.sqrt(((Z[i] - Z[j]) ** 2).sum(axis=1) + 1e-9)
    pm.Bernoulli("adjacency", logit_p=a - distance, observed=rng.integers(2, size=len(i)))


@required("adjacency", ask=["Z"], seed=1088)
def latent_space_network_of_a_matrix(rng):
    i, j = np.tril_indices(50, -1)
    Z = pm.Normal("Z", 0, 1, shape=(50, 2), initval=rng.normal(size=(50, 2)))
    squares = (Z**2).sum(axis=1)
    D = squares[:, None] + squares[None, :] - 2 * pt.dot(Z, Z.T)
    pm.Bernoulli("adjacency", logit_p=-D[i, j], observed=rng.integers(2, size=len(i)))


@required("edges", ask=["packed"], rows=(60, 1089))
def stochastic_blocks(rng, block=INTEGERS(4), packed=BETA(1, 1)[10]):
    i, j = np.triu_indices(60, 1)
    lookup = np.zeros((4, 4), dtype=int)
    lookup[np.triu_indices(4)] = np.arange(10)
    lookup = np.maximum(lookup, lookup.T)
    P = pm.Deterministic("P", packed[lookup])
    pm.Bernoulli("edges", P[block[i], block[j]], observed=rng.integers(2, size=len(i)))


@required("half", ask=["long", "object"], columns=(1190, 3, 1090))
def names_that_mean_something_to_numpy(X, y):
    b = [pm.Normal(name, 0, 1) for name in ("long", "short", "x1,x2")]
    scale = pm.HalfNormal("object", 1)
    pm.Normal("half", b[0] * X[:, 0] + b[1] * X[:, 1] + b[2] * X[:, 2], scale, observed=y)
