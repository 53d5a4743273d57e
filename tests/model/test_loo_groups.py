"""Groups left out: densities with the effect integrated out, and elpd against quadrature over the rest."""

import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict
from scipy import integrate, stats
from scipy.special import expit

import pymc_austerity as pma
from pymc_austerity.exceptions import FactorisationError
from pymc_austerity.model import loo_groups
from pymc_austerity.model.loo_groups import Groups

GROUPS, ROWS = 40, 6
RNG = np.random.default_rng(11)
GROUP = RNG.permutation(np.repeat(np.arange(GROUPS), ROWS))
X = RNG.normal(size=GROUPS * ROWS)
EFFECTS = RNG.normal(0, 0.8, GROUPS)
Y = 0.5 + EFFECTS[GROUP] + RNG.normal(size=GROUPS * ROWS)
YES = RNG.binomial(1, expit(0.4 * X + EFFECTS[GROUP]))


def normal(n=GROUPS):
    """Known residuals: level and log scale are left to integrate over."""
    with pm.Model() as model:
        level, scale = pm.Normal("level", 0, 2), pm.HalfNormal("scale", 1)
        effect = pm.Normal("effect", 0, scale, shape=n)
        pm.Normal("y", level + effect[GROUP], 1.0, observed=Y)
    return model


def of_point(groups, **values):
    return [np.asarray(values[name], dtype=float) for name in groups.factorisation.graph.values]


def marginal(level, scale, k):
    """Exact log density of a group, its effect integrated out: that of N(level, I + scale^2 1 1')."""
    off, wide = Y[k == GROUP] - np.asarray(level)[..., None], 1.0 + ROWS * np.asarray(scale) ** 2
    square = (off**2).sum(axis=-1) - np.asarray(scale) ** 2 * off.sum(axis=-1) ** 2 / wide
    return -0.5 * (square + np.log(wide) + ROWS * np.log(2.0 * np.pi))


def off_exact(scale=0.3):
    groups = Groups(normal(), "effect")
    point = of_point(groups, level=0.2, scale_log__=np.log(scale), effect=RNG.normal(size=GROUPS))
    found = groups.log_densities(point, np.arange(GROUPS))
    return np.abs(found - [marginal(0.2, scale, k) for k in range(GROUPS)]).max()


@pytest.mark.parametrize("scale", [1e-6, 0.3, 50.0])
def test_effects_are_integrated_out(scale):
    assert off_exact(scale) < 1e-8


def test_a_prior_left_out_would_be_noticed(monkeypatch):
    """Planted fault: rows alone are integrated over the effect."""
    inside = loo_groups.Groups._density

    def without_prior(self, point, groups, rows, group):
        density, n = inside(self, point, groups, rows, group), len(groups)
        prior = inside(self, point, groups, rows[:n], group[:n])
        return lambda x: density(x) - prior(x)

    monkeypatch.setattr(loo_groups.Groups, "_density", without_prior)
    assert off_exact() > 0.1


@pytest.mark.parametrize("centred", [True, False])
def test_effects_of_logistic_rows_are_integrated_out(centred):
    with pm.Model() as model:
        slope, scale = pm.Normal("slope"), pm.HalfNormal("scale")
        z = pm.Normal("z", 0, scale if centred else 1.0, shape=GROUPS)
        pm.Bernoulli("y", logit_p=slope * X + (z if centred else scale * z)[GROUP], observed=YES)
    groups, scale = Groups(model, "z"), 0.9
    point = of_point(groups, slope=0.3, scale_log__=np.log(scale), z=RNG.normal(size=GROUPS))
    found = groups.log_densities(point, np.arange(0, GROUPS, 7))
    for k, value in zip(range(0, GROUPS, 7), found, strict=True):
        own = k == GROUP

        def density(u, own=own):
            eta = 0.3 * X[own] + u
            return np.exp(np.sum(YES[own] * eta - np.logaddexp(0.0, eta))) * stats.norm(0, scale).pdf(u)

        exact = np.log(integrate.quad(density, -9.0, 9.0, epsabs=0.0, epsrel=1e-11)[0])
        assert value == pytest.approx(exact, abs=1e-6)


def vectors(scale):
    a, b = (pm.Normal(name, 0, scale, shape=GROUPS) for name in "ab")
    return ["b", "a"], a[GROUP] + b[GROUP] * X, scale**2 * np.eye(2)


def matrix(scale):
    cov = scale**2 * np.array([[1.0, 0.7], [0.7, 2.0]])
    u = pm.MvNormal("u", np.zeros(2), cov, shape=(GROUPS, 2))
    return "u", u[GROUP, 0] + u[GROUP, 1] * X, cov


def by_a_factor(scale):
    factor = scale * np.array([[1.0, 0.0], [-1.5, 0.1]])
    u = pm.math.dot(pm.Normal("z", shape=(GROUPS, 2)), factor.T)
    return ["z"], u[GROUP, 0] + u[GROUP, 1] * X, factor @ factor.T


@pytest.mark.parametrize("scale", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("effects", [vectors, matrix, by_a_factor])
def test_several_effects_are_integrated_out(effects, scale):
    """Against the closed form of normal rows. With one effect given, off by .1."""
    with pm.Model() as model:
        names, predictor, cov = effects(scale)
        pm.Normal("y", predictor, 1.0, observed=Y)
    groups = Groups(model, names)
    values = {str(rv.name): RNG.normal(size=rv.type.shape) for rv in model.free_RVs}
    found = groups.log_densities(of_point(groups, **values), np.arange(GROUPS))
    for k in range(GROUPS):
        z = np.stack([np.ones(ROWS), X[k == GROUP]], axis=1)
        exact = stats.multivariate_normal(cov=np.eye(ROWS) + z @ cov @ z.T).logpdf(Y[k == GROUP])
        assert found[k] == pytest.approx(exact, abs=1e-7)


def test_two_effects_of_logistic_rows():
    with pm.Model() as model:
        a, b = pm.Normal("a", shape=GROUPS), pm.Normal("b", shape=GROUPS)
        pm.Bernoulli("y", logit_p=a[GROUP] + b[GROUP] * X, observed=YES)
    groups = Groups(model, ["a", "b"])
    values = {name: RNG.normal(size=GROUPS) for name in "ab"}
    found = groups.log_densities(of_point(groups, **values), np.arange(0, GROUPS, 7))
    u = np.linspace(-8.0, 8.0, 321)
    for k, value in zip(range(0, GROUPS, 7), found, strict=True):
        own = k == GROUP
        eta = u[:, None, None] + u[:, None] * X[own]
        log_p = (YES[own] * eta - np.logaddexp(0.0, eta)).sum(axis=-1) - 0.5 * (u[:, None] ** 2 + u**2)
        exact = integrate.simpson(integrate.simpson(np.exp(log_p), x=u), x=u) / (2.0 * np.pi)
        assert value == pytest.approx(np.log(exact), abs=5e-4)  # the error of nine nodes in each direction


def test_elements_without_rows_are_no_groups():
    more = normal(GROUPS + 5)
    groups, fewer = Groups(more, "effect"), Groups(normal(), "effect")
    assert groups.n_groups == GROUPS
    values = {"level": 0.2, "scale_log__": -0.5, "effect": RNG.normal(size=GROUPS + 5)}
    found = groups.log_densities(of_point(groups, **values), np.arange(GROUPS))
    values["effect"] = values["effect"][:GROUPS]
    np.testing.assert_allclose(found, fewer.log_densities(of_point(fewer, **values), np.arange(GROUPS)))
    with pm.Model() as unused:
        pm.Normal("u", shape=GROUPS)
        pm.Normal("y", pm.Normal("a"), observed=Y)
    with pytest.raises(FactorisationError, match="No row looks up an element of 'u'"):
        Groups(unused, "u")


@pytest.mark.filterwarnings("ignore:. of the 5 groups drawn")
def test_other_effects_of_the_same_groups_are_told():
    """Not those of other groups, of which there are as many, nor what rows do not have."""
    with pm.Model() as model:
        a, b, c = (pm.Normal(name, shape=GROUPS) for name in "abc")
        log_sd = pm.Normal("log_sd", shape=(GROUPS, 1))
        pm.Normal("idle", shape=GROUPS)
        eta = a[GROUP] + b[GROUP] * X + c[np.arange(len(Y)) % GROUPS]
        pm.Normal("y", eta, pm.math.exp(log_sd[GROUP, 0]), observed=Y)
    assert Groups(model, "a").others() == ["b", "log_sd"]
    assert Groups(model, ["log_sd", "a", "b"]).others() == []
    draws = {name: RNG.normal(0, 0.1, size=(2, 20, GROUPS)) for name in ("a", "b", "c", "idle")}
    idata = from_dict({"posterior": {**draws, "log_sd": np.zeros((2, 20, GROUPS, 1))}})
    with pytest.warns(pma.SubsamplingWarning, match=r"'b', 'log_sd' has .* group=\['a', 'b', 'log_sd'\]"):
        pma.loo(idata, model, group="a", n_rows=5)


def test_a_deterministic_stands_for_the_variable_that_it_is_made_of():
    with pm.Model() as model:
        z = pm.Normal("z", shape=GROUPS)
        u = pm.Deterministic("u", pm.HalfNormal("scale") * z)
        pm.Normal("y", u[GROUP], observed=Y)
    assert Groups(model, "u").names == ("z",)


def on_grid():
    """Exact leave-one-group-out densities, and independent draws of the whole posterior."""
    levels, logs = np.linspace(-1.0, 2.0, 81), np.linspace(-2.5, 1.2, 81)
    a, b = (one.ravel() for one in np.meshgrid(levels, logs, indexing="ij"))
    each = np.array([marginal(a, np.exp(b), k) for k in range(GROUPS)]).T
    prior = stats.norm(0, 2).logpdf(a) + stats.halfnorm(0, 1).logpdf(np.exp(b)) + b
    whole = prior + each.sum(axis=1)
    exact = [np.logaddexp.reduce(whole) - np.logaddexp.reduce(whole - each[:, k]) for k in range(GROUPS)]
    p = np.exp(whole - whole.max())
    rng = np.random.default_rng(1)
    drawn = rng.choice(len(p), 2000, p=p / p.sum())
    level, scale = a[drawn], np.exp(b[drawn])
    sums = np.array([(Y[k == GROUP][:, None] - level).sum(axis=0) for k in range(GROUPS)]).T
    precision = ROWS + 1.0 / scale[:, None] ** 2
    effect = sums / precision + rng.normal(size=sums.shape) / np.sqrt(precision)
    values = {"level": level, "scale": scale, "effect": effect}
    draws = {name: one.reshape(4, 500, *one.shape[1:]) for name, one in values.items()}
    return np.array(exact), from_dict({"posterior": draws})


def test_elpd_is_that_of_quadrature(monkeypatch):
    exact, idata = on_grid()
    found = pma.loo(idata, normal(), group="effect")
    assert found.n_data_points == GROUPS
    assert not found.warning
    assert found.elpd_i.dims == ("effect_group",)
    np.testing.assert_allclose(found.elpd_i, exact, atol=0.1)
    assert found.elpd == pytest.approx(exact.sum(), abs=0.3)
    monkeypatch.setattr("pymc_austerity.model.loo._DRAWS", 100)
    some = pma.loo(idata, normal(), group="effect", n_rows=20, random_seed=1)
    assert abs(some.elpd - found.elpd) < 4.0 * some.subsampling_se
    assert some.subsampling_se < 1.0
    again = pma.loo(idata, normal(), group="effect", rows=some)
    np.testing.assert_array_equal(again.loo_subsample_observations, some.loo_subsample_observations)


def walk():
    pm.Normal(
        "y", pm.GaussianRandomWalk("u", 1.0, init_dist=pm.Normal.dist(), shape=GROUPS)[GROUP], observed=Y
    )


def matches():
    u = pm.Normal("u", shape=GROUPS)
    pm.Normal("y", u[GROUP] - u[np.roll(GROUP, 1)], observed=Y)


def turned():
    pm.Normal("y", pm.Normal("u", shape=(2, GROUPS))[0, GROUP], observed=Y)


def nested():
    inner = pm.Normal("inner", pm.Normal("u", shape=GROUPS)[np.arange(80) % GROUPS], shape=80)
    pm.Normal("y", inner[np.arange(len(Y)) % 80], observed=Y)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (walk, "depend on one another"),
        (matches, "two elements of 'u'"),
        (turned, r"shapes u \(2, 40\): give vectors, or matrices with a row for each group"),
        (nested, "it has a part in 'inner'"),
    ],
)
def test_what_is_no_group_is_refused(make, said):
    with pm.Model() as model:
        make()
    with pytest.raises(FactorisationError, match=said):
        Groups(model, "u")


def test_arguments_are_checked():
    _, idata = on_grid()
    with pytest.raises(ValueError, match="'effects' is not a free variable.*Did you mean 'effect'"):
        pma.loo(idata, normal(), group="effects")
    with pytest.raises(ValueError, match="var_name='y' is not for group="):
        pma.loo(idata, normal(), group="effect", var_name="y")
