"""Ways in which people write hierarchies: priors of effects, and rows that read them."""

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor.tensor as pt
from pytensor.sparse import as_sparse_variable
from pytensor.sparse import dot as sparse_dot
from scipy import sparse

N, G, H, OUTER = 300, 40, 35, 6
RNG = np.random.default_rng(8)
g, h = RNG.integers(0, G, N), RNG.integers(0, H, N)
outer = np.arange(G) % OUTER
x, X = RNG.normal(size=N), RNG.normal(size=(N, 3))
y = (RNG.random(N) < 0.5).astype(int)
covariates = RNG.normal(size=(G, 2))
neighbours = np.zeros((G, G), int)
neighbours[np.arange(G - 1), np.arange(1, G)] = neighbours[np.arange(1, G), np.arange(G - 1)] = 1
basis = np.exp(-0.5 * (np.linspace(0, 9, G)[:, None] - np.arange(10)) ** 2)
indicators = np.eye(G)[g]


def listed_in(spellings):
    """Decorator that adds a function to a table."""
    return lambda function: spellings.setdefault(function.__name__, function)


def tau():
    return pm.HalfNormal("tau")


def cholesky(q):
    return pm.LKJCholeskyCov("chol", n=q, eta=2, sd_dist=pm.Exponential.dist(1.0))[0]


# Effects of G groups ------------------------------------------------------------------------------

EFFECTS = {
    "centred": lambda: pm.Normal("u", 0, tau(), shape=G),
    "centred_about_mu": lambda: pm.Normal("u", pm.Normal("mu"), tau(), shape=G),
    "of_precision": lambda: pm.Normal("u", 0, tau=pm.Gamma("precision", 2, 1), shape=G),
    "of_log_scale": lambda: pm.Normal("u", 0, pt.exp(pm.Normal("log_tau")), shape=G),
    "not_centred": lambda: tau() * pm.Normal("z", shape=G),
    "not_centred_about_mu": lambda: pm.Normal("mu") + pm.Normal("z", shape=G) * tau(),
    "scaled_by_a_deterministic": lambda: pm.Deterministic(
        "u", pm.Normal("mu") + tau() * pm.Normal("z", shape=G)
    ),
    "divided": lambda: pm.Normal("z", shape=G) / pt.sqrt(pm.Gamma("precision", 2, 1)),
    "of_normal_scale": lambda: pm.Normal("tau") * pm.Normal("z", shape=G),
    "regression_of_groups": lambda: pm.Normal("u", covariates @ pm.Normal("gamma", shape=2), tau(), shape=G),
    "regression_of_groups_not_centred": lambda: (
        pt.dot(covariates, pm.Normal("gamma", shape=2)) + tau() * pm.Normal("z", shape=G)
    ),
    "scales_by_kind": lambda: pm.Normal("u", 0, pm.HalfNormal("scales", shape=OUTER)[outer], shape=G),
    "scales_by_kind_not_centred": lambda: (
        pm.HalfNormal("scales", shape=OUTER)[outer] * pm.Normal("z", shape=G)
    ),
    "scales_of_a_slice": lambda: pm.HalfNormal("scales", shape=G) * pm.Normal("z", shape=G + 3)[2:-1],
    "scales_of_what_is_stacked": lambda: (
        pm.HalfNormal("scales", shape=3) * pt.stack([pm.Normal(f"u{k}") for k in range(3)])
    )[np.arange(G) % 3],
    "first_is_written_as_zero": lambda: pt.set_subtensor(
        pt.zeros(G)[1:], tau() * pm.Normal("z", shape=G - 1)
    ),
    "scales_by_group": lambda: pm.HalfNormal("scales", shape=G) * pm.Normal("z", shape=G),
    "horseshoe": lambda: tau() * pm.HalfCauchy("local", 1, shape=G) * pm.Normal("z", shape=G),
    "student": lambda: pm.StudentT("u", nu=4, mu=pm.Normal("mu"), sigma=tau(), shape=G),
    "student_of_free_degrees": lambda: pm.StudentT(
        "u", nu=pm.Gamma("nu", 2, 0.1), mu=0, sigma=tau(), shape=G
    ),
    "cauchy": lambda: tau() * pm.Cauchy("z", 0, 1, shape=G),
    "laplace": lambda: pm.Laplace("u", 0, tau(), shape=G),
    "logistic": lambda: pm.Logistic("u", 0, tau(), shape=G),
    "random_walk": lambda: pm.GaussianRandomWalk("u", sigma=tau(), init_dist=pm.Normal.dist(0, 2), shape=G),
    "cumulative": lambda: pt.cumsum(tau() * pm.Normal("z", shape=G)),
    "cumulative_then_scaled": lambda: pm.Normal("mu") + tau() * pm.Normal("z", shape=G).cumsum(),
    "areas": lambda: tau() * pm.ICAR("phi", W=neighbours),
    "areas_of_own_scale": lambda: pm.ICAR("u", W=neighbours, sigma=tau()),
    "zero_sum": lambda: pm.Normal("mu") + pm.ZeroSumNormal("u", sigma=tau(), shape=G),
    "zero_sum_not_centred": lambda: pm.Normal("mu") + tau() * pm.ZeroSumNormal("u", shape=G),
    "splines": lambda: basis @ pm.Normal("coef", 0, tau(), shape=10),
    "smooth_not_centred": lambda: pt.dot(basis, tau() * pm.Normal("z", shape=10)),
    "smooth_of_a_walk": lambda: pt.dot(
        basis, pm.GaussianRandomWalk("w", sigma=tau(), init_dist=pm.Normal.dist(0, 2), shape=10)
    ),
    "stacked": lambda: pt.stack([pm.Normal(f"u{k}", 0, 1) for k in range(3)])[np.arange(G) % 3],
    "first_is_zero": lambda: pt.concatenate([[0.0], pm.Normal("u", 0, tau(), shape=G - 1)]),
    "first_is_fixed_then_scaled": lambda: tau() * pt.concatenate([[1.0], pm.Normal("z", shape=G - 1)]),
    "about_a_regression_and_a_number_then_scaled": lambda: (
        pm.HalfNormal("s")
        * pm.Normal("u", covariates @ pm.Normal("gamma", shape=2) + 1.5 * outer, tau(), shape=G)
    ),
}


@listed_in(EFFECTS)
def nested():
    v = pm.Normal("v", pm.Normal("mu"), pm.HalfNormal("tau_outer"), shape=OUTER)
    return pm.Normal("u", v[outer], tau(), shape=G)


@listed_in(EFFECTS)
def nested_not_centred():
    v = pm.HalfNormal("tau_outer") * pm.Normal("z_outer", shape=OUTER)
    return v[outer] + tau() * pm.Normal("z", shape=G)


@listed_in(EFFECTS)
def three_levels():
    top = pm.Normal("top", 0, pm.HalfNormal("tau_top"), shape=3)
    v = pm.Normal("v", top[np.arange(OUTER) % 3], pm.HalfNormal("tau_outer"), shape=OUTER)
    return pm.Normal("u", v[outer], tau(), shape=G)


@listed_in(EFFECTS)
def random_walk_with_drift():
    drift = pm.Normal("drift")
    return pm.GaussianRandomWalk("u", mu=drift, sigma=tau(), init_dist=pm.Normal.dist(0, 2), shape=G)


@listed_in(EFFECTS)
def autoregression():
    rho = pm.Uniform("rho", -1, 1)
    return pm.AR("u", rho=rho[None], sigma=tau(), init_dist=pm.Normal.dist(0, 2), steps=G - 1)


@listed_in(EFFECTS)
def autoregression_of_order_two():
    rho = pm.Normal("rho", 0, 0.3, shape=2)
    return pm.AR("u", rho=rho, sigma=tau(), init_dist=pm.Normal.dist(0, 2), steps=G - 2)


@listed_in(EFFECTS)
def conditional_areas():
    mu = pm.Normal("mu") * np.ones(G)
    return pm.CAR("u", mu=mu, W=neighbours, alpha=pm.Uniform("alpha"), tau=pm.Gamma("precision", 2, 1))


@listed_in(EFFECTS)
def bym2():
    rho, phi, theta = pm.Beta("rho", 1, 1), pm.ICAR("phi", W=neighbours), pm.Normal("theta", shape=G)
    return tau() * (pt.sqrt(1 - rho) * theta + pt.sqrt(rho / 0.7) * phi)


@listed_in(EFFECTS)
def joined():
    one = pm.Normal("one", 0, tau(), shape=10)
    return pt.concatenate([one, pm.Normal("other", 0, 1, shape=G - 10)])


@listed_in(EFFECTS)
def some_are_added_to():
    extra = pm.Normal("extra", 0, pm.HalfNormal("s"), shape=5)
    return pt.inc_subtensor(pm.Normal("u", 0, tau(), shape=G)[[3, 9, 5, 30, 11]], extra)


@listed_in(EFFECTS)
def written_twice():
    u = pm.Normal("u", 0, tau(), shape=G)
    return pt.set_subtensor(pt.set_subtensor(u[::2], pm.Normal("even", shape=G // 2))[:3], 0.7)


@listed_in(EFFECTS)
def scales_of_what_is_joined():
    first, others = pm.Normal("first", shape=10), pm.Normal("others", shape=G - 11)
    return pm.HalfNormal("scales", shape=G) * pt.concatenate([first, [0.0], others])


@listed_in(EFFECTS)
def less_its_mean():
    u = pm.Normal("u", 0, tau(), shape=G)
    return pm.Normal("mu") + u - u.mean()


# Predictors of rows in the effects u of G groups -----------------------------------------------------

ROWS = {
    "looked_up": lambda u: u[g],
    "beside_a_regression": lambda u: pm.math.dot(X, pm.Normal("beta", shape=3)) + u[g],
    "taken": lambda u: pt.take(u, g),
    "minus": lambda u: pm.Normal("ability", 0, pm.HalfNormal("sd"), shape=H)[h] - u[g],
    "difference": lambda u: u[g] - u[(g + 1 + h) % G],
    "slope": lambda u: pm.Normal("alpha") + x * u[g],
    "mean_inside": lambda u: (pm.Normal("b") + u[g]) * x,
    "indicator_matrix": lambda u: pt.dot(indicators, u),
    "member_of_two": lambda u: 0.5 * u[g] + 0.5 * u[(g + 1) % G],
    "summed_over_columns": lambda u: (pt.stack([u[g], u[(g + 1) % G]], axis=1) * X[:, :2]).sum(axis=1),
    "as_a_column": lambda u: (u[:, None] * np.ones((1, 2)))[g, 1],
    "sums_of_data_columns": lambda u: pt.sum(X * pm.Normal("beta", shape=3), axis=1) + u[g],
}


@listed_in(ROWS)
def beside_columns(u):
    beta = pm.Normal("beta", shape=2)
    return pm.Normal("alpha") + beta[0] * x + beta[1] * x**2 + u[g]


@listed_in(ROWS)
def beside_stacked_coefficients(u):
    beta = pt.stack([pm.Normal("b0"), pm.Normal("b1"), pm.Normal("b2")])
    return X @ beta + u[g]


@listed_in(ROWS)
def sparse_product(u):
    matrix = as_sparse_variable(sparse.csr_matrix(indicators))
    return sparse_dot(matrix, u[:, None])[:, 0]


# Effects in tables, and whole predictors ----------------------------------------------------------------

PREDICTORS = {
    "cumulative_of_several_series": lambda: (
        pm.HalfNormal("scales", shape=3) * pt.cumsum(pm.Normal("z", shape=(G, 3)), axis=0)
    )[g, h % 3],
    "autoregressions_of_several_series": lambda: pm.AR(
        "u", rho=pm.Uniform("rho", -1, 1)[None], sigma=tau(), init_dist=pm.Normal.dist(0, 2), shape=(3, G)
    )[h % 3, g],
    "two_indices": lambda: pm.Normal("u", 0, tau(), shape=(8, 5))[g // 5, g % 5],
}


@listed_in(PREDICTORS)
def columns_last():
    t, b = pm.HalfNormal("t", shape=3), pm.Normal("b", shape=3)
    return ((b + t * pm.Normal("z", shape=(G, 3)))[g] * X).sum(-1)


@listed_in(PREDICTORS)
def columns_first():
    t, b = pm.HalfNormal("t", shape=3), pm.Normal("b", shape=3)
    return ((b[:, None] + t[:, None] * pm.Normal("z", shape=(3, G)))[:, g] * X.T).sum(0)


@listed_in(PREDICTORS)
def slopes_one_by_one():
    a, b = pm.Normal("a", pm.Normal("mu"), tau(), shape=G), pm.Normal("b", 0, pm.HalfNormal("t"), shape=G)
    return a[g] + b[g] * x


@listed_in(PREDICTORS)
def slopes_of_a_vector_and_a_matrix():
    a = pm.Normal("a", 0, tau(), shape=G)
    return a[g] + (pm.Normal("b", 0, pm.HalfNormal("t", shape=3), shape=(G, 3))[g] * X).sum(axis=1)


@listed_in(PREDICTORS)
def lkj_z_chol():
    u = pm.Normal("z", shape=(G, 2)) @ cholesky(2).T
    return u[g, 0] + u[g, 1] * x


@listed_in(PREDICTORS)
def lkj_chol_z():
    u = pt.dot(cholesky(2), pm.Normal("z", shape=(2, G))).T
    return u[g, 0] + u[g, 1] * x


@listed_in(PREDICTORS)
def lkj_chol_z_rows():
    u = pt.dot(cholesky(2), pm.Normal("z", shape=(2, G)))
    return u[0][g] + u[1][g] * x


@listed_in(PREDICTORS)
def lkj_about_means():
    u = pm.Normal("b", shape=2) + pt.dot(pm.Normal("z", shape=(G, 2)), cholesky(2).T)
    return u[g, 0] + u[g, 1] * x


@listed_in(PREDICTORS)
def lkj_in_sums():
    u = pt.dot(cholesky(3), pm.Normal("z", shape=(3, G))).T
    return (u[g] * X).sum(-1)


@listed_in(PREDICTORS)
def mv_normal():
    u = pm.MvNormal("u", mu=pm.Normal("b", shape=2), chol=cholesky(2), shape=(G, 2))
    return u[g, 0] + u[g, 1] * x


@listed_in(PREDICTORS)
def mv_normal_of_cov():
    c = cholesky(2)
    u = pm.MvNormal("u", mu=np.zeros(2), cov=c @ c.T, shape=(G, 2))
    return u[g, 0] + u[g, 1] * x


@listed_in(PREDICTORS)
def mv_normal_fixed():
    u = pm.MvNormal("u", mu=np.zeros(2), cov=np.array([[1.0, 0.3], [0.3, 0.5]]), shape=(G, 2))
    return u[g, 0] + u[g, 1] * x


@listed_in(PREDICTORS)
def walks_of_several_series():
    start = pm.Normal.dist(0, [1.0, 2.0, 3.0])
    sigma = pm.HalfNormal("scales", shape=3)
    return pm.GaussianRandomWalk("u", pm.Normal("drift"), sigma, init_dist=start, shape=(3, G))[h % 3, g]


@listed_in(PREDICTORS)
def walks_of_series_with_their_own_drifts():
    drift, start = pm.Normal("drift", shape=3), pm.Normal.dist(0, 2)
    u = pm.GaussianRandomWalk("u", drift, tau(), init_dist=start, shape=(3, G))
    return (u.T[g] * X).sum(-1)


@listed_in(PREDICTORS)
def conditional_areas_of_several_series():
    weights, alpha = neighbours.astype(float), pm.Uniform("alpha")
    return pm.CAR("u", mu=np.zeros(G), W=weights, alpha=alpha, tau=tau(), shape=(3, G))[h % 3, g]


@listed_in(PREDICTORS)
def columns_scaled_one_by_one():
    z, s = pm.Normal("z", shape=(G, 2)), pm.HalfNormal("s", shape=2)
    return s[0] * z[:, 0][g] + s[1] * z[g, 1] * x


@listed_in(PREDICTORS)
def scales_of_kinds_of_many_groups():
    many, kinds = RNG.integers(0, 2 * N, N), np.arange(2 * N) % OUTER
    return pm.HalfNormal("scales", shape=OUTER)[kinds[many]] * pm.Normal("z", shape=2 * N)[many]


@listed_in(PREDICTORS)
def scales_of_columns_that_are_stacked():
    u = pt.stack([pm.Normal("a", shape=G), pm.Normal("b", shape=G)], axis=1)
    return (u * pm.HalfNormal("s", shape=2) * np.array([0.5, 2.0]))[g, h % 2]


@listed_in(PREDICTORS)
def hsgp():
    gp = pm.gp.HSGP(m=[8], c=1.5, cov_func=tau() ** 2 * pm.gp.cov.ExpQuad(1, pm.InverseGamma("ell", 3, 1)))
    return gp.prior("f", X=np.linspace(-1, 1, N)[:, None])


@listed_in(PREDICTORS)
def hsgp_centred():
    covariance = tau() ** 2 * pm.gp.cov.ExpQuad(1, pm.InverseGamma("ell", 3, 1))
    gp = pm.gp.HSGP(m=[8], c=1.5, cov_func=covariance, parametrization="centered")
    return gp.prior("f", X=np.linspace(-1, 1, N)[:, None])


@listed_in(PREDICTORS)
def hsgp_by_hand():
    coef, sqrt_psd = pm.Normal("coef", shape=10), pt.exp(-pm.HalfNormal("ell") * np.arange(10.0))
    return (np.repeat(basis, 8, axis=0)[:N] @ (coef * sqrt_psd)) * tau()


@listed_in(PREDICTORS)
def gaussian_process():
    t = np.linspace(0, 1, 15)[:, None]
    gp = pm.gp.Latent(cov_func=tau() ** 2 * pm.gp.cov.Matern52(1, 0.3))
    return gp.prior("f", X=t)[g % 15]


@listed_in(PREDICTORS)
def crossed_with_slopes():
    u = pt.dot(cholesky(2), pm.Normal("z", shape=(2, G))).T
    v = pm.Normal("v", 0, pm.HalfNormal("t"), shape=H)
    return u[g, 0] + u[g, 1] * x + v[h]


@listed_in(PREDICTORS)
def seven_factors():
    sizes = (3, 4, 5, 6, 7, 8, 9)
    terms = [pm.Normal(f"u{k}", 0, pm.HalfNormal(f"t{k}"), shape=k)[RNG.integers(0, k, N)] for k in sizes]
    return pm.Normal("alpha") + sum(terms)


@listed_in(PREDICTORS)
def walk_of_vectors():
    start = pm.MvNormal.dist(np.zeros(2), np.array([[4.0, 0.5], [0.5, 1.0]]))
    u = pm.MvGaussianRandomWalk("u", np.zeros(2), chol=cholesky(2), init_dist=start, shape=(G, 2))
    return u[g, 0] + u[g, 1] * x


@listed_in(PREDICTORS)
def walk_of_vectors_with_drift():
    start, drift = pm.MvNormal.dist([1.0, -1.0], np.eye(2)), pm.Normal("drift", shape=2)
    u = pm.MvGaussianRandomWalk("u", drift, cov=tau() * np.eye(2), init_dist=start, steps=G - 1)
    return u[g, 0] + u[g, 1] * x


# With labels of pymc.dims ---------------------------------------------------------------------------------


def labelled(array, *dims):
    """An array with dims, which the model gets to know."""
    pm.modelcontext(None).add_coords(dict(zip(dims, map(np.arange, np.shape(array)), strict=True)))
    return pmd.as_xtensor(array, dims=dims)


def by_row(u):
    return u.isel(group=labelled(g, "row"))


def with_groups():
    labelled(covariates, "group", "covariate")
    return pmd.HalfNormal("tau")


PREDICTORS |= {
    "labelled": lambda: by_row(pmd.Normal("u", 0, with_groups(), dims="group")).values,
    "labelled_not_centred": lambda: by_row(with_groups() * pmd.Normal("z", dims="group")).values,
    "labelled_laplace": lambda: by_row(pmd.Laplace("u", 0, with_groups(), dims="group")).values,
    "labelled_log_normal": lambda: (
        by_row(pmd.math.log(pmd.LogNormal("u", 0, with_groups(), dims="group"))).values
    ),
}


@listed_in(PREDICTORS)
def labelled_regression_of_groups():
    t = with_groups()
    mean = (labelled(covariates, "group", "covariate") * pmd.Normal("gamma", dims="covariate")).sum(
        "covariate"
    )
    u = pmd.Normal("u", pmd.Normal("mu") + mean, t, dims="group")
    return (pmd.Normal("alpha") + by_row(u) * labelled(x, "row")).values


@listed_in(PREDICTORS)
def labelled_slopes_with_groups_last():
    """Scales of columns and means of groups: the operation has the dims in the other order."""
    with_groups()
    columns = labelled(X, "row", "column")
    mean = pmd.Normal("v", dims="group")
    u = pmd.Normal("u", mean, pmd.HalfNormal("t", dims="column"), dims=("column", "group"))
    return (by_row(u) * columns).sum("column").values


@listed_in(PREDICTORS)
def labelled_zero_sum():
    return (pmd.Normal("mu") + by_row(pmd.ZeroSumNormal("u", with_groups(), core_dims="group"))).values


def vectors_with_dims(*order):
    with_groups()
    columns, chol = labelled(X[:, :2], "row", "column"), cholesky(2)
    chol, core = pmd.as_xtensor(chol, dims=("column", "other")), ("column", "other")
    u = pmd.MvNormal("u", labelled(np.zeros(2), "column"), chol=chol, core_dims=core, dims=order)
    return (by_row(u) * columns).sum("column").values


@listed_in(PREDICTORS)
def labelled_vectors():
    return vectors_with_dims("group", "column")


def labelled_vectors_with_groups_last():
    return vectors_with_dims("column", "group")
