"""Models for `factorise`: awkward data and shapes, transforms of models, and models to refuse.

Importing this module adds them to `catalogue.MODELS` and `catalogue.REFUSED`.
"""

# ruff: noqa: B008 - defaults say what a model is given

import warnings

import numpy as np
import pymc as pm
import pymc.dims as pmd
import pytensor
import pytensor.sparse as sparse
import pytensor.tensor as pt
import scipy.sparse as sp
from pymc.model.transform.optimization import freeze_dims_and_data
from pytensor.graph.basic import Apply
from pytensor.graph.op import Op
from pytensor.tensor import fft

from .catalogue import (
    BETA,
    BITS,
    COUNTS,
    DIRICHLET,
    GAMMA,
    HALF,
    INTEGERS,
    LOG_NORMAL,
    NARROW,
    NOISE,
    NORMAL,
    Data,
    coords,
    optional,
    refused,
    refused_so_far,
    required,
    scanned,
)
from .catalogue_fields_a import with_gaps

# Missing cells and masks


@required("X_observed", "y", ask=["beta"], columns=(1300, 3, 3001))
def matrix_with_missing_cells(rng, X, beta, mu=NORMAL[3], sd=HALF[3]):
    X = pm.Normal("X", mu, sd, observed=with_gaps(X, rng, 0.05))
    pm.Normal("y", pt.dot(X, beta), 1, observed=rng.normal(size=1300))


@required("X_observed", "y", ask=["beta"], columns=(1301, 2, 3002))
def masked_matrix_of_covariates(rng, X, beta):
    X = np.ma.masked_array(X, mask=rng.random(X.shape) < 0.02)
    X = pm.Normal("X", 0, 1, observed=X)
    p = pm.math.sigmoid(beta[0] * X[:, 0] + beta[1] * X[:, 1])
    pm.Bernoulli("y", p=p, observed=rng.integers(2, size=1301))


@required("y", ask=["beta"], columns=(1302, 3, 3003))
def imputed_cells_set_by_a_mask(rng, X, beta):
    mask = rng.random(X.shape) < 0.1
    missing = pm.Normal("missing", 0, 1, shape=int(mask.sum()))
    full = pt.set_subtensor(pt.as_tensor(X)[mask], missing)
    pm.Normal("y", full @ beta, 1, observed=rng.normal(size=1302))


@required("y", ask=["b"], columns=(1303, 1, 3004))
def imputed_column_set_by_a_mask(rng, X, b, nu=NORMAL):
    x = with_gaps(X[:, 0], rng, 0.2)
    gaps = np.isnan(x)
    missing = pm.Normal("missing", nu, 1, shape=int(gaps.sum()))
    full = pt.zeros(1303)
    full = pt.set_subtensor(full[np.where(gaps)], missing)
    full = pt.set_subtensor(full[np.where(~gaps)], x[~gaps])
    pm.Normal("y", b * full, 1, observed=rng.normal(size=1303))


@required("z", "y", ask=["beta"], columns=(1304, 4, 3005))
def long_imputed_cells(rng, X, beta):
    mask = rng.random(X.shape) < 0.3
    z = pm.Normal("z", 0, 1, shape=int(mask.sum()))
    full = pt.set_subtensor(pt.as_tensor(X)[mask.nonzero()], z)
    pm.Normal("y", (full * beta).sum(axis=1), 1, observed=rng.normal(size=1304))


@required("likelihood", ask=["beta"], columns=(2000, 2, 3006))
def rows_kept_by_a_mask_in_data(rng, X, beta):
    y = pm.Data("y", rng.normal(size=2000))
    keep = pm.Data("keep", rng.random(2000) < 0.7)
    mu = X @ beta
    pm.Potential("likelihood", pm.logp(pm.Normal.dist(mu[keep], 1), y[keep]).sum())


@required("train", ask=["beta"], columns=(2001, 2, 3007))
def predictor_of_a_training_mask(rng, X, beta):
    y, train = rng.normal(size=2001), rng.random(2001) < 0.7
    mask = pm.Data("mask", train)
    mu = pm.Deterministic("mu", pm.math.dot(X, beta))
    pm.Normal("train", mu[mask], 1, observed=y[train])


@required("first", "second", ask=["beta"], columns=(3000, 2, 3008))
def row_selections_in_data(rng, X, beta):
    order = rng.permutation(3000)
    rows = pm.Data("rows", order[:1300])
    others = pm.Data("others", order[1300:])
    eta = pm.Deterministic("eta", X @ beta)
    pm.Normal("first", eta[rows], 1, observed=rng.normal(size=1300))
    pm.Bernoulli("second", logit_p=eta[others], observed=rng.integers(2, size=1700))


@required("y", ask=["s"], columns=(1306, 5, 3009))
def mask_times_terms(rng, X, mu=NORMAL[5], s=HALF):
    y, mask = rng.normal(size=(1306, 5)), rng.random((1306, 5)) < 0.6
    lp = pm.logp(pm.Normal.dist(mu + 0.1 * X, s), y)
    pm.Potential("y", pt.where(mask, lp, 0).sum(axis=1))


@required("y", ask=["b"], rows=(900, 3010))
def ragged_visits_as_cells(rng, visits=INTEGERS(1, 6), a=NORMAL[900], b=NORMAL[5]):
    mask = np.arange(5) < visits[:, None]
    mu = a[:, None] + b[None, :]
    pm.Normal("y", mu[mask], 1, observed=rng.normal(size=mask.sum()))


# Data that change, transforms of models


@required("y", ask=["beta"], columns=(700, 2, 3020), coords={"column": ["a", "b"]})
def data_replaced_by_longer(rng, X, beta=NORMAL["column"]):
    X = pm.Data("X", X, dims=("row", "column"))
    y = pm.Data("y_data", rng.normal(size=700), dims="row")
    pm.Normal("y", pt.dot(X, beta), 1, observed=y, dims="row")
    new = np.random.default_rng(3021)
    pm.set_data({"X": new.normal(size=(1320, 2)), "y_data": new.normal(size=1320)})


@required("y", ask=["theta"], seed=3022, coords={"group": range(5)})
def groups_replaced(rng, theta=NORMAL["group"]):
    g = pm.Data("g", np.zeros(1500, dtype=int))
    x = pm.Data("x", np.zeros(1500))
    y = pm.Data("y_data", np.zeros(1500))
    pm.Normal("y", theta[g] * x, 1, observed=y, shape=x.shape)
    new = {"g": rng.integers(5, size=1322), "x": rng.normal(size=1322), "y_data": rng.normal(size=1322)}
    pm.set_data(new)


@required("u", "y", ask=["tau"], rows=(1323, 3023))
def lengths_of_coordinates_only(tau, y=NOISE[3]):
    coords({"person": [f"p{i}" for i in range(1323)], "wave": [1, 2, 3]})
    u = pm.Normal("u", 0, tau, dims="person")
    w = pm.Normal("w", 0, 1, dims="wave")
    pm.Normal("y", u[:, None] + w, 1, observed=y, dims=("person", "wave"))


@required("y", ask=["theta"], columns=(1324, 2, 3024))
def frozen_dims_and_data(rng, X, theta=NORMAL[6]):
    X = pm.Data("X", X, dims=("row", "column"))
    g = pm.Data("g", rng.integers(6, size=1324), dims="row")
    beta = pm.Normal("beta", 0, 1, dims="column")
    pm.Poisson("y", pt.exp(theta[g] + X @ beta), observed=rng.poisson(1, size=1324), dims="row")
    return freeze_dims_and_data


@required("a::y", "b::y", ask=["beta"], columns=(1325, 2, 3025))
def two_models_with_prefixes(rng, X, beta):
    for name, size in [("a", 1200), ("b", 1325)]:
        with pm.Model(name=name):
            sigma = pm.HalfNormal("sigma", 1)
            mu = pm.Deterministic("mu", X[:size] @ beta)
            pm.Normal("y", mu, sigma, observed=rng.normal(size=size))


@required("inner::outer::y", ask=["mu"], columns=(1326, 2, 3026))
def models_within_models(rng, X, mu):
    with pm.Model(name="inner"):
        beta = pm.Normal("beta", mu, 1, shape=2)
        with pm.Model(name="outer"):
            pm.Normal("y", X @ beta, 1, observed=rng.normal(size=1326))


@required("y", ask=["b"], seed=3027)
def intervened_and_observed(rng, sigma, b=NORMAL[2], x=NORMAL[1327]):
    z = pm.Normal("z", 0.5 * x, 1, shape=1327)
    pm.Normal("y", b[0] * x + b[1] * z, sigma, shape=1327)
    given = {"x": rng.normal(size=1327), "z": rng.normal(size=1327)}
    return lambda model: pm.observe(pm.do(model, given), {"y": rng.normal(size=1327)})


@required("z", "y", ask=["beta"], columns=(1328, 2, 3028))
def observed_transformed_variable(rng, X, beta):
    z = pm.Normal("z", X @ beta, 1)
    pm.LogNormal("y", z, 0.5)
    return lambda model: pm.observe(model, {"y": rng.lognormal(size=1328)})


@required("y", ask=["prior", "slope"], columns=(1329, 2, 3029))
def constrained_parameters(X, y):
    beta = pm.Normal("beta", 0.5, 1, shape=2, initval=[0.2, 0.8])
    pm.Potential("ordered", pt.switch(beta[0] < beta[1] + 5, 0.0, -np.inf))
    prior = pm.Interpolated("prior", np.linspace(-3, 3, 61), np.exp(-(np.linspace(-2, 2, 61) ** 2)))
    slope = pm.Truncated("slope", pm.Normal.dist(0, 1), lower=-4, upper=4)
    pm.Normal("y", prior + slope * X[:, 0] + beta[1] * X[:, 1], 1, observed=y)


@required("positive", "y", ask=["b"], columns=(1330, 2, 3030))
def constraint_in_every_row(X, y=Data("gamma", 2, 1), b=HALF[2]):
    mu = pt.abs(X) @ b
    pm.Potential("positive", pm.math.switch(mu >= 0, 0.0, -np.inf))
    pm.Gamma("y", alpha=2, beta=2 / (mu + 0.01), observed=y)


# pymc.dims


@required("y", ask=["beta", "tau"], columns=(1340, 2, 3040))
def labelled_hierarchy(rng, X):
    coords({"obs": range(1340), "predictor": ["a", "b"], "school": range(8)})
    x = pmd.Data("x", X, dims=("obs", "predictor"))
    school = pmd.Data("school_idx", rng.integers(8, size=1340), dims="obs")
    mu = pmd.Normal("mu", 0, 1)
    tau = pmd.HalfNormal("tau", 1)
    alpha = pmd.Normal("alpha", mu, tau, dims="school")
    beta = pmd.Normal("beta", 0, 1, dims="predictor")
    eta = alpha.isel(school=school) + x.dot(beta, dim="predictor")
    y = rng.integers(2, size=1340)
    pmd.Bernoulli("y", logit_p=eta, observed=pmd.as_xtensor(y, dims="obs"))


@required("theta", "y", ask=["a"], rows=(1341, 3041), coords={"person": range(1341), "item": range(4)})
def labelled_table(y=BITS[4]):
    theta = pmd.Normal("theta", 0, 1, dims="person")
    b = pmd.Normal("b", 0, 1, dims="item")
    a = pmd.LogNormal("a", 0, 0.3, dims="item")
    eta = pmd.Deterministic("eta", a * (theta - b))
    pmd.Bernoulli("y", p=pmd.math.sigmoid(eta), observed=pmd.as_xtensor(y, dims=("person", "item")))


@required("y", ask=["sigma"], columns=(1342, 3, 3042))
def labelled_regression_transposed(rng, X):
    coords({"obs": range(1342), "k": range(3), "out": range(2)})
    x = pmd.Data("x", X, dims=("obs", "k"))
    W = pmd.Normal("W", 0, 1, dims=("k", "out"))
    sigma = pmd.HalfNormal("sigma", 1, dims="out")
    mu = pmd.dot(x, W, dim="k")
    pmd.Normal("y", mu, sigma, observed=pmd.as_xtensor(rng.normal(size=(2, 1342)), dims=("out", "obs")))


@required("y", ask=["b"], seed=3043, coords={"obs": range(1343)})
def labelled_poisson_with_centred_covariate(rng):
    x = pmd.Data("x", rng.normal(size=1343), dims="obs")
    a = pmd.Normal("a", 0, 1)
    b = pmd.Normal("b", 0, 1)
    mu = pmd.math.exp(a + b * (x - x.mean("obs")))
    pmd.Poisson("y", mu, observed=pmd.as_xtensor(rng.poisson(2, size=1343), dims="obs"))


# Sparse designs


def sparse_design(n, d, seed, form="csr"):
    rng = np.random.default_rng(seed)
    return rng, sp.random(n, d, density=0.1, format=form, random_state=seed)


@required("y", ask=["beta"])
def sparse_structured_dot(beta=NORMAL[30]):
    rng, X = sparse_design(1350, 30, 3050)
    mu = sparse.structured_dot(sparse.as_sparse_variable(X), beta[:, None])[:, 0]
    pm.Normal("y", mu, 1, observed=rng.normal(size=1350))


@required("y", ask=["beta"])
def sparse_columns(beta=NORMAL[30, 1]):
    rng, X = sparse_design(1351, 30, 3051, "csc")
    eta = sparse.dot(sparse.as_sparse(X), beta).flatten()
    pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=1351))


@refused("'y'", r"pytensor\.sparse\.dot", ask=["a"])
def sparse_at(a, beta=NORMAL[25, 1]):
    rng, X = sparse_design(1352, 25, 3052)
    eta = a + pt.squeeze(sparse.as_sparse_variable(X) @ beta, axis=1)
    pm.Poisson("y", pt.exp(eta), observed=rng.poisson(1, size=1352))


@required("u", "y", ask=["tau"], rows=(2500, 3053))
def sparse_random_effects(y, tau, group=INTEGERS(1100)):
    Z = sp.csr_matrix((np.ones(2500), (np.arange(2500), group)), shape=(2500, 1100))
    u = pm.Normal("u", 0, tau, shape=1100)
    mu = sparse.structured_dot(sparse.as_sparse(Z), u.reshape((-1, 1))).ravel()
    pm.Normal("y", mu, 1, observed=y)


# Shapes


@required("y", ask=["b"], rows=(400, 3060))
def rows_merged_by_reshape(rng, X=NOISE[3, 2], b=NORMAL[2], a=NORMAL[400]):
    pm.Normal("y", (a[:, None] + X @ b).reshape((1200,)), 1, observed=rng.normal(size=1200))


@required("u", "y", ask=["beta"], rows=(1361, 3061))
def tensor_rows_merged(rng, X=NOISE[3, 2], beta=NORMAL[2], u=NORMAL[1361, 1, 2]):
    eta = pt.reshape(X * (beta + u), (3 * 1361, 2)).sum(axis=1)
    pm.Normal("y", eta, 1, observed=rng.normal(size=3 * 1361))


@required("theta", "y", ask=["b"], seed=3062)
def answers_flattened(rng, b=NORMAL[4], theta=NORMAL[1362, 1]):
    pm.Bernoulli("y", logit_p=(theta - b).flatten(), observed=rng.integers(2, size=4 * 1362))


@required("theta", "y", ask=["b"], seed=3063)
def answers_of_items_first(rng, b=NORMAL[4, 1], theta=NORMAL[1363]):
    eta = pt.reshape(theta - b, (-1,))
    pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=4 * 1363))


@required("a", "y", ask=["wave"], seed=3064)
def subjects_repeated(rng, wave=NORMAL[3], a=NORMAL[1364]):
    pm.Normal("y", pt.repeat(a, 3) + pt.tile(wave, 1364), 1, observed=rng.normal(size=3 * 1364))


@required("y", ask=["a"], rows=(50, 3065))
def effects_repeated_by_counts(rng, counts=INTEGERS(1, 60), a=NORMAL[50]):
    pm.Normal("y", pt.repeat(a, counts), 1, observed=rng.normal(size=counts.sum()))


@required("y", ask=["sigma"], columns=(1366, 2, 3066))
def stacked_equations(X, y=NOISE[3], b=NORMAL[3, 2], sigma=HALF[3]):
    mu = pt.stack([X @ b[k] for k in range(3)])
    pm.Normal("y", mu.T, sigma, observed=y)


@required("y", ask=["s"], seed=3067)
def joint_likelihood_concatenated(rng, b=NORMAL[3], s=HALF[3]):
    x1, x2, x3 = rng.normal(size=500), rng.normal(size=600), rng.normal(size=300)
    mu = pt.concatenate([b[0] * x1, b[1] * x2**2, pt.full((300,), b[2]) * x3])
    sigma = pt.concatenate([pt.repeat(s[0], 500), pt.ones(600) * s[1], pt.full(300, s[2])])
    y = np.concatenate([x1, x2, x3])
    pm.Normal("y", mu, sigma, observed=y)


@required("y", ask=["b"], rows=(1368, 3068))
def broadcast_to_table(a, y=NOISE[3], b=NORMAL[3]):
    pm.Normal("y", pt.broadcast_to(a + b, (1368, 3)), 1, observed=y)


@required("y", ask=["nu"], columns=(1369, 2, 3069), coords={"outcome": range(3), "obs": range(1369)})
def outcomes_by_rows(rng, X, b=NORMAL[3, 2], nu=GAMMA(4, 1)[3, 1], a=NORMAL["outcome"]):
    mu = a[:, None] + pt.dot(b, X.T)
    pm.StudentT("y", nu + 1, mu=mu, sigma=1, observed=rng.normal(size=(3, 1369)), dims=("outcome", "obs"))


@required("y", ask=["a"], seed=3070)
def indexed_deterministic(rng, a=NORMAL[40]):
    cell, item = rng.integers(40, size=300), rng.integers(300, size=1370)
    d = pm.Deterministic("d", pt.exp(a[cell]))
    e = pm.Deterministic("e", d[item])
    pm.Normal("y", pt.log(e), 1, observed=rng.normal(size=1370))


@required("u", "y", ask=["beta"], columns=(1500, 2, 3071))
def long_deterministic_indexed(rng, X, beta, tau, u=NORMAL[1500]):
    item = rng.integers(1500, size=3000)
    quality = pm.Deterministic("quality", X @ beta + tau * u)
    pm.Normal("y", quality[item], 1, observed=rng.normal(size=3000))


@required("y", ask=["beta"], columns=(1372, 3, 3072))
def standardised_in_the_graph(rng, X, beta):
    X = pm.Data("X", X)
    y = pm.Data("y_data", rng.normal(3, 2, size=1372))
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    pm.Normal("y", Z @ beta, 1, observed=(y - y.mean()) / y.std())


@required("y", ask=["beta"], columns=(1374, 1, 3074))
def polynomial_by_powers(X, y, beta=NORMAL[4]):
    x = pm.Data("x", X[:, 0])
    mu = pt.sum([beta[k] * x**k for k in range(4)], axis=0)
    curve = pt.power(x[:, None], np.arange(4)) @ beta
    pm.Normal("y", (mu + curve) / 2, 1, observed=y)


@required("y", ask=["k"], columns=(1375, 1, 3075))
def hinges_at_parameters(X, y, k=NORMAL[3], b=NORMAL[3]):
    basis = pt.switch(pt.gt(X, k), X - k, 0)
    pm.Normal("y", pt.sum(basis * b, axis=-1), 1, observed=y)


@required("y", ask=["V"], columns=(1377, 3, 3077))
def network_with_skip_and_layer_norm(rng, X):
    W = pm.Normal("W", 0, 1, shape=(3, 6), initval=rng.normal(size=(3, 6)))
    V = pm.Normal("V", 0, 1, shape=(6, 2), initval=rng.normal(size=(6, 2)))
    h = X @ W
    h = (h - h.mean(axis=-1, keepdims=True)) / pt.sqrt(h.var(axis=-1, keepdims=True) + 0.1)
    logits = pt.concatenate([X[:, :1], pm.math.maximum(h, 0) @ V], axis=1)
    pm.Categorical("y", logit_p=logits, observed=rng.integers(3, size=1377))


@required("y", ask=["sigma"], rows=(1378, 3078))
def crossed_kronecker_effects(y, sigma, r=INTEGERS(12), c=INTEGERS(9), Z=NORMAL[12, 9]):
    L1 = np.linalg.cholesky(np.exp(-np.abs(np.subtract.outer(range(12), range(12)))))
    L2 = np.linalg.cholesky(np.exp(-np.abs(np.subtract.outer(range(9), range(9)))))
    F = sigma * (L1 @ Z @ L2.T)
    pm.Normal("y", F[r, c], 1, observed=y)


@required("y", ask=["a"], rows=(1400, 3079))
def kronecker_product_of_effects(y, a=NORMAL[40], b=NORMAL[35]):
    mu = pt.outer(a, b).ravel() + pt.linalg.kron(a[:, None], b[:, None])[:, 0]
    pm.Normal("y", mu, 1, observed=y)


@required("y", ask=["sigma"], columns=(1380, 2, 3080))
def custom_dist_of_exponentiated_sums(X, sigma, y=Data("lognormal"), beta=NARROW[2]):
    def dist(eta, sigma, size):
        return pt.exp(eta + pm.Gumbel.dist(0, sigma, size=size))

    pm.CustomDist("y", pt.dot(X, beta), sigma, dist=dist, observed=y)


@required("y", ask=["sigma"], columns=(1381, 2, 3081))
def custom_dist_of_clipped_student(rng, X, sigma, beta=NARROW[2]):

    def dist(mu, sigma, size):
        return pt.clip(pm.StudentT.dist(5, mu=mu, sigma=sigma, size=size), -1, 1)

    pm.CustomDist("y", X @ beta, sigma, dist=dist, observed=np.clip(rng.normal(size=1381), -1, 1))


@required("y", ask=["b"], columns=(1382, 1, 3082))
def custom_dist_of_a_map(rng, X, b, sigma):
    x = X[:, 0]

    def dist(b, sigma, size):
        def row(x, rng, b, sigma):
            rng, draw = pm.Normal.dist(b * x, sigma, rng=rng, return_next_rng=True)
            return draw, rng

        draws, _ = pytensor.scan(
            row,
            sequences=[pt.as_tensor(x)],
            outputs_info=[None, pytensor.shared(np.random.default_rng(1))],
            non_sequences=[b, sigma],
            return_updates=False,
        )
        return draws

    pm.CustomDist("y", b, sigma, dist=dist, observed=rng.normal(size=1382))


@required("likelihood", ask=["beta"], columns=(1383, 2, 3083))
def potential_of_a_map(X, y, beta):
    terms = pytensor.map(
        lambda x, y, beta: -((y - pt.dot(x, beta)) ** 2),
        [pt.as_tensor(X), pt.as_tensor(y)],
        [beta],
        return_updates=False,
    )
    pm.Potential("likelihood", terms.sum())


@required("y", ask=["b"], columns=(1384, 3, 3084))
def vectorised_function_of_rows(X, y, b=NORMAL[3]):
    def row(x, b):
        return pt.tanh(pt.dot(x, b)) + x[0]

    pm.Normal("y", pt.vectorize(row, signature="(k),(k)->()")(pt.as_tensor(X), b), 1, observed=y)


@required("f", "y", ask=["packed", "psi"], rows=(5, 3085))
def factor_analysis_of_columns(y=NOISE[1385], packed=NORMAL[9], psi=HALF):
    coords({"latent": range(2), "rows": range(1385), "column": range(5)})
    W = pt.zeros((5, 2))
    lower = np.tril_indices(5, 0, 2)
    W = pt.set_subtensor(W[lower], packed)
    F = pm.Normal("f", dims=("latent", "rows"))
    pm.Normal("y", pt.dot(W, F), sigma=psi, observed=y, dims=("column", "rows"))


@required("y", ask=["psi"], seed=3086)
def marginal_factor_analysis(rng, psi=HALF[4]):
    W = pm.Normal("W", 0, 1, shape=(4, 2), initval=rng.normal(size=(4, 2)))
    cov = pt.dot(W, W.T) + pt.diag(psi**2)
    pm.MvNormal("y", pt.zeros(4), cov=cov, observed=rng.normal(size=(1386, 4)))


@required("y", ask=["ell", "coefs"], columns=(1387, 1, 3087))
def spectral_gaussian_process_linearised(X, y=COUNTS(1), eta=HALF, ell=LOG_NORMAL(0, 0.3)):
    gp = pm.gp.HSGP(m=[10], L=[5.0], cov_func=eta**2 * pm.gp.cov.Matern52(1, ell))
    X = pm.Data("X", X)
    phi, sqrt_psd = gp.prior_linearized(X=X)
    coefs = pm.Normal("coefs", 0, 1, size=gp.n_basis_vectors)
    f = pm.Deterministic("f", phi @ (coefs * sqrt_psd))
    pm.Poisson("y", pt.exp(f), observed=y)


@required("y", ask=["ls"], rows=(1388, 3088))
def periodic_spectral_gaussian_process(y, ls=LOG_NORMAL(0, 0.3)):
    t = np.linspace(0, 10, 1388)[:, None]
    periodic = pm.gp.cov.Periodic(1, period=1, ls=ls)
    seasonal = pm.gp.HSGPPeriodic(m=6, scale=1.0, cov_func=periodic).prior("seasonal", X=t)
    trend_cov = pm.gp.cov.ExpQuad(1, ls=4)
    trend = pm.gp.HSGP(m=[7], c=1.5, cov_func=trend_cov).prior("trend", X=t)
    pm.Normal("y", trend + seasonal, 1, observed=y)


@required("y", ask=["z"], columns=(1389, 1, 3089))
def inducing_points_by_hand(X, y, z=NORMAL[8], ell=LOG_NORMAL(0, 0.3)):
    u = np.linspace(-2, 2, 8)[:, None]
    cov = pm.gp.cov.ExpQuad(1, ell)
    L = pt.linalg.cholesky(cov(u) + 1e-4 * np.eye(8))
    f = cov(X, u) @ pt.linalg.solve_triangular(L.T, z, lower=False)
    pm.Normal("y", f, 1, observed=y)


# Two long axes


@required("a", "b", "y", ask=["mu"], rows=(1200, 3090))
def ratings_of_additive_effects(mu, y=NOISE[1100], a=NORMAL[1200], b=NORMAL[1100]):
    pm.Normal("y", mu + a[:, None] + b[None, :], 1, observed=y)


@required("A", "B", "y", ask=["s"], rows=(1200, 3091))
def ratings_of_factors(y=NOISE[1100], s=HALF, A=NORMAL[1200, 2], B=NORMAL[1100, 2]):
    pm.Normal("y", pt.dot(A, B.T), s, observed=y)


@required("likelihood", seed=3092)
def ratings_of_short_effects_by_index(rng, M=NORMAL[20, 30]):
    u, v = rng.integers(20, size=1200), rng.integers(30, size=1100)
    y = rng.normal(size=(1200, 1100))
    pm.Potential("likelihood", -0.5 * pt.sum((y - M[u][:, v]) ** 2))


# More masks, designs and shapes


@required("y", ask=["b"], columns=(2002, 1, 3131))
def observed_data_selected_by_a_mask(rng, X, b):
    x = pm.Data("x", X[:, 0])
    y = pm.Data("y_data", rng.normal(size=2002))
    mask = pm.Data("mask", rng.random(2002) < 0.6)
    pm.Normal("y", (b * x)[mask], 1, observed=y[mask])


@required("y", ask=["theta"], seed=3132)
def group_effects_selected_by_a_mask(rng, theta=NORMAL[9]):
    g = pm.Data("g", rng.integers(9, size=2003))
    keep = pm.Data("keep", rng.integers(2, size=2003).astype(bool))
    lp = pm.logp(pm.Normal.dist(theta[g[keep]], 1), rng.normal(size=2003)[keep.get_value()])
    pm.Potential("y", lp)


@required("y", ask=["a"], seed=3133)
def matrix_cells_selected_by_a_mask_in_data(rng, a=NORMAL[80], b=NORMAL[40]):
    seen = pm.Data("seen", rng.random((80, 40)) < 0.5)
    mu = a[:, None] + b[None, :]
    R = pm.Data("R", rng.normal(size=(80, 40)))
    pm.Potential("y", pm.logp(pm.Normal.dist(mu[seen], 1), R[seen]).sum())


@required("y", ask=["b"], columns=(3000, 1, 3134))
def rows_where_a_covariate_is_positive(rng, X, b=NORMAL[2]):
    x = pm.Data("x", X[:, 0])
    rows = pt.nonzero(x > 0)[0]
    pm.Normal("y", b[0] + b[1] * pt.log(x[rows]), 1, observed=rng.normal(size=int((X > 0).sum())))


@required("y", ask=["b"], columns=(1335, 2, 3135))
def missing_cells_of_long_rows_imputed_by_regression(rng, X, a=NORMAL[2], b=NORMAL[2]):
    gaps = rng.random(1335) < 0.15
    rows = np.flatnonzero(gaps)
    missing = pm.Normal("missing", a[0] + a[1] * X[rows, 1], 1, shape=len(rows))
    filled = pt.set_subtensor(pt.as_tensor(X)[rows, 0], missing)
    pm.Normal("y", pt.dot(filled, b), 1, observed=rng.normal(size=1335))


@required("x1_observed", "x2_observed", "y", ask=["beta", "s"], columns=(1336, 3, 3136))
def imputed_columns_stacked(rng, X, beta, s=HALF):
    x1 = pm.Normal("x1", 0, 1, observed=with_gaps(X[:, 0], rng))
    x2 = pm.Normal("x2", 0.5 * x1, s, observed=with_gaps(X[:, 1], rng))
    design = pt.stack([x1, x2, pt.as_tensor(X[:, 2])], axis=1)
    pm.Bernoulli("y", logit_p=design @ beta, observed=rng.integers(2, size=1336))


@required("y_observed", ask=["sigma"], seed=3137)
def table_of_outcomes_with_gaps(rng, mu=NORMAL[3], sigma=HALF[3]):
    pm.Normal("y", mu, sigma, observed=with_gaps(rng.normal(size=(1337, 3)), rng))


@required("y", ask=["b"], columns=(2604, 1, 3138))
def censored_rows_of_a_latent_vector(X, y, b):
    high = y > 0.8
    hidden = pm.HalfNormal("hidden", 1, shape=int(high.sum()))
    full = pt.set_subtensor(pt.as_tensor(y)[high], 0.8 + hidden)
    pm.Potential("y", pm.logp(pm.Normal.dist(b * X[:, 0], 1), full))


@required("y", ask=["B"])
def sparse_matrix_of_two_outcomes(B=NORMAL[20, 2]):
    rng, X = sparse_design(1354, 20, 3140)
    mu = sparse.structured_dot(sparse.as_sparse_variable(X), B)
    pm.Normal("y", mu, 1, observed=rng.normal(size=(1354, 2)))


@required("y", ask=["beta"])
def sparse_weighted_and_summed(beta=NORMAL[20]):
    rng, X = sparse_design(1355, 20, 3141)
    mu = sparse.sp_sum(sparse.multiply(sparse.as_sparse_variable(X), beta), axis=1)
    pm.Normal("y", mu, 1, observed=rng.normal(size=1355))


@required("y", ask=["beta"])
def sparse_design_made_dense(beta=NORMAL[20]):
    rng, X = sparse_design(1356, 20, 3142)
    dense = sparse.dense_from_sparse(sparse.as_sparse_variable(X))
    pm.Normal("y", dense @ beta, 1, observed=rng.normal(size=1356))


@required("y", ask=["asc"], seed=3143)
def choices_reshaped_to_alternatives(rng, beta=NORMAL[2], asc=NORMAL[2]):
    X = rng.normal(size=(3 * 1357, 2))
    u = pm.math.dot(X, beta).reshape((1357, 3)) + pt.concatenate([pt.zeros(1), asc])
    pm.Categorical("y", p=pm.math.softmax(u, axis=-1), observed=rng.integers(3, size=1357))


@required("y", ask=["B"], columns=(1358, 2, 3144))
def answers_in_one_long_categorical(rng, X, B=NORMAL[2, 3, 4]):
    logits = pt.tensordot(X, B, axes=1).reshape((-1, 4))
    pm.Categorical("y", logit_p=logits, observed=rng.integers(4, size=3 * 1358))


@required("y", ask=["a"], rows=(1200, 3145))
def panel_as_wide_then_long(y, a=NORMAL[120], b=NORMAL[120]):
    t = np.arange(10) / 10
    wide = a[:, None] + b[:, None] * t
    pm.Normal("y", wide.T.ravel(), 1, observed=y)


@required("y", ask=["beta"], columns=(5 * 1150, 2, 3146))
def errors_of_panels_reshaped_for_rows(rng, X, sigma, tau, beta=NORMAL[2]):
    y = rng.normal(size=5 * 1150)
    cov = sigma**2 * pt.eye(5) + tau**2 * pt.ones((5, 5))
    residuals = (y - X @ beta).reshape((1150, 5))
    pm.Potential("y", pm.logp(pm.MvNormal.dist(pt.zeros(5), cov), residuals))


@required("y", ask=["a"], rows=(1200, 3147))
def mesh_of_effects(y, a=NORMAL[30], b=NORMAL[40]):
    A, B = pt.broadcast_arrays(a[:, None], b[None, :])
    eta = pt.stack([A.flatten(), B.flatten()], axis=1)
    pm.Normal("y", eta.sum(axis=1), 1, observed=y)


@required("y", ask=["b"], seed=3148)
def dummies_made_in_the_graph(rng, b=NORMAL[6], c=NORMAL[6]):
    g = pm.Data("g", rng.integers(6, size=1359))
    D = pt.eq(g[:, None], pt.arange(6)[None, :]).astype("float64")
    E = pt.eye(6)[g]
    pm.Normal("y", D @ b + E @ c, 1, observed=rng.normal(size=1359))


@required("y", ask=["b"], columns=(1362, 3, 3149))
def interactions_by_row_products(X, y, b=NORMAL[9]):
    x = pm.Data("x", X)
    pairs = (x[:, :, None] * x[:, None, :]).reshape((x.shape[0], 9))
    pm.Normal("y", pairs @ b, 1, observed=y)


@required("y", ask=["V"], columns=(1363, 3, 3150))
def quadratic_forms_of_rows(X, y, V=NORMAL[3, 2], linear=NORMAL[3]):
    interactions = 0.5 * pt.sum(pt.dot(X, V) ** 2 - pt.dot(X**2, V**2), axis=1)
    pm.Normal("y", X @ linear + interactions, 1, observed=y)


@required("y", ask=["w"], columns=(1370, 1, 3151))
def averages_of_short_windows(rng, X, b, w=DIRICHLET(np.ones(5))):
    x = pm.Data("x", X[:, 0])
    windows = pt.stack([x[k : 1366 + k] for k in range(5)], axis=1)
    pm.Normal("y", b * windows @ w, 1, observed=rng.normal(size=1366))


@refused_so_far(ask=["w"], columns=(1371, 1, 3152))
def convolution_with_a_short_kernel(rng, X, w=DIRICHLET(np.ones(5))):
    mu = pt.signal.convolve1d(pt.as_tensor(X[:, 0]), w, mode="valid")
    pm.Normal("y", mu, 1, observed=rng.normal(size=1367))


@optional(ask=["theta"], rows=(1370, 3153))
def moving_average_of_latents(y, theta=NARROW[2], e=NORMAL[1372]):
    pm.Normal("y", e[2:] + theta[0] * e[1:-1] + theta[1] * e[:-2], 1, observed=y)


@required("y", rows=(1100, 3154))
def long_table_of_links(block=INTEGERS(3), y=BITS[1100], B=BETA(1, 1)[3, 3]):
    pm.Bernoulli("y", p=B[block][:, block], observed=y)


@required("Z", "y", seed=3155)
def long_table_of_distances(rng):
    Z = pm.Normal("Z", 0, 1, shape=(1050, 2), initval=rng.normal(size=(1050, 2)))
    D = ((Z[:, None, :] - Z[None, :, :]) ** 2).sum(axis=-1)
    pm.Bernoulli("y", logit_p=1 - D, observed=rng.integers(2, size=(1050, 1050)))


# Large graphs


@required("y", ask=["b_3", "sigma"], columns=(1390, 24, 3160))
def many_separate_coefficients(X, y, sigma):
    mu = pm.Normal("intercept", 0, 1)
    for k in range(24):
        mu = mu + pm.Normal(f"b_{k}", 0, 0.2) * X[:, k]
    pm.Normal("y", mu, sigma, observed=y)


@required(*[f"y_{k}" for k in range(6)], ask=["mu", "b_2"], seed=3161)
def likelihoods_in_a_loop(rng, mu, tau):
    for k in range(6):
        a = pm.Normal(f"a_{k}", mu, tau)
        b = pm.Normal(f"b_{k}", 0, 1)
        x = rng.normal(size=1000 + k)
        pm.Normal(f"y_{k}", a + b * x, 1, observed=rng.normal(size=1000 + k))


@required("y", ask=["gain"], rows=(1391, 3162))
def panel_unrolled_over_waves(y=NOISE[12], gain=BETA):
    level, levels = pt.as_tensor(y[:, 0]), []
    for k in range(1, 12):
        levels.append(level)
        level = level + gain * (y[:, k] - level)
    pm.Normal("y", pt.stack(levels, axis=1), 1, observed=y[:, 1:])


@required("fraud", ask=["w", "W_0"], columns=(1392, 6, 3163))
def deep_network(rng, X, w=NORMAL[6]):
    h = pt.as_tensor(X)
    for k in range(8):
        W = pm.Normal(f"W_{k}", 0, 1, shape=(6, 6), initval=rng.normal(size=(6, 6)) / 3)
        h = h + pm.math.tanh(h @ W)
    pm.Bernoulli("fraud", logit_p=h @ w, observed=rng.integers(2, size=1392))


@required("y", ask=["cut"], columns=(1393, 3, 3164))
def decision_tree_by_switches(X, y, leaf=NORMAL[8], cut=NARROW[7]):
    def branch(node, depth):
        if depth == 3:
            return leaf[node - 8]
        below, above = branch(2 * node, depth + 1), branch(2 * node + 1, depth + 1)
        return pm.math.switch(X[:, depth] < cut[node - 1], below, above)

    pm.Normal("y", branch(1, 0), 1, observed=y)


@required("y", ask=["q"], rows=(1394, 3165))
def kalman_filter_of_short_panels(y=NOISE[8]):
    q, r = pm.HalfNormal("q", 1), pm.HalfNormal("r", 1)
    mean, var, total = pt.zeros(1394), pt.as_tensor(10.0), 0
    for k in range(8):
        var = var + q**2
        spread = var + r**2
        total = total + pm.logp(pm.Normal.dist(mean, pt.sqrt(spread)), y[:, k])
        gain = var / spread
        mean = mean + gain * (y[:, k] - mean)
        var = (1 - gain) * var
    pm.Potential("y", total)


@required("y", ask=["P"], rows=(1395, 3166))
def hidden_markov_chains_of_short_panels(y=NOISE[6], P=DIRICHLET([[4, 1], [1, 4]]), mu=NORMAL([-1, 1], 1)):
    alpha = pm.logp(pm.Normal.dist(mu, 1), y[:, 0, None]) + np.log(0.5)
    for k in range(1, 6):
        emission = pm.logp(pm.Normal.dist(mu, 1), y[:, k, None])
        alpha = emission + pt.logsumexp(alpha[:, :, None] + pt.log(P), axis=1)
    pm.Potential("y", pm.math.logsumexp(alpha, axis=1).sum())


# To refuse


@refused(r"\bkinship\b", rows=(1070, 3102))
def kinship_precision(y, h=BETA):
    tau = (1 - h) * np.eye(1070) + 0.01 * h * np.ones((1070, 1070))
    pm.MvNormal("kinship", mu=0, tau=tau, observed=y)


@refused(r"\by\b", columns=(1055, 1, 3103))
def latent_process(X, y=BITS, ell=LOG_NORMAL(0, 0.3)):
    f = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ell)).prior("f", X=X)
    pm.Bernoulli("y", logit_p=f, observed=y)


@refused(r"\bf\b", columns=(1056, 1, 3104))
def latent_process_centred(X, y=COUNTS(1), eta=HALF):
    cov = eta * pm.gp.cov.Matern52(1, 1.0) + pm.gp.cov.WhiteNoise(0.1)
    f = pm.gp.Latent(cov_func=cov).prior("f", X=X, reparameterize=False)
    pm.Poisson("y", pt.exp(f), observed=y)


@refused(r"\bstock\b", r"[Cc]um", columns=(1109, 1, 3107))
def discounted_stock(X, y, rate=BETA(50, 2)):
    flow = X[:, 0] * rate
    pm.Normal("stock", pt.cumprod(1 + flow / 1000), 1, observed=y)


@refused(r"\barm\b", r"[Ss]oftmax|[Ss]um|[Ll]og|[Ee]xp|in full", columns=(1110, 2, 3108))
def choice_among_all_rows(X, beta):
    pm.Categorical("arm", logit_p=X @ beta, observed=np.array([3, 5, 700]))


@refused(r"\battention\b", r"[Ss]oftmax|[Ss]um|[Ee]xp", columns=(1111, 2, 3109))
def weights_normalised_over_rows(X, y, beta):
    w = pt.exp(X @ beta)
    pm.Normal("attention", 1111 * w / w.sum(), 1, observed=y)


@refused(r"\bplacement\b", r"[Ss]ort", columns=(1112, 2, 3110))
def plackett_luce_by_sorting(X, y, beta):
    eta = X @ beta
    pm.Normal("placement", eta[pt.argsort(eta)], 1, observed=y)


@refused(r"\by\b", r"[Mm]edian|[Ss]ort|[Pp]artition|[Ss]ubtensor|quantile", columns=(1113, 2, 3111))
def centred_by_the_median(X, y, beta):
    eta = X @ beta
    pm.Normal("y", eta - pt.sort(eta)[556], 1, observed=y)


@refused(r"\bhidden\b", r"[Ss]can|in full", rows=(1116, 3114))
def hidden_markov_forward(y, P=DIRICHLET(np.ones((2, 2))), mu=NORMAL([-1, 1], 1)):
    emission = pm.logp(pm.Normal.dist(mu, 1), y[:, None])
    alphas = scanned(
        lambda e, a, P: e + pt.logsumexp(a[:, None] + pt.log(P), axis=0), [emission[1:]], emission[0], P
    )
    pm.Potential("hidden", pt.logsumexp(alphas[-1]))


@refused(r"\brepresenter\b", columns=(1100, 1, 3120))
def kernel_regression_with_a_length_scale(X, y, ell=LOG_NORMAL(0, 0.3), v=NORMAL[1100]):
    D = (X - X.T) ** 2
    pm.Normal("representer", pt.sum(pt.exp(-D / ell) * v[None, :], axis=1), 1, observed=y)


@refused(r"\bspectrum\b", r"[Ff][Ff][Tt]|[Ff]ourier", seed=3125)
def fourier_transform_of_latents(rng, z=NORMAL[1126]):
    power = (fft.rfft(z[None, :]) ** 2).sum(axis=-1)[0]
    pm.Normal("spectrum", power, 1, observed=rng.normal(size=1126)[: 1126 // 2 + 1])


@refused(r"\bsimulated\b", rows=(1127, 3126))
def simulator(rng, y):

    def simulate(rng, mu, size=None):
        return rng.normal(mu, 1, size=1127)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        mu = pm.Normal("mu", 0, 1)
        pm.Simulator("simulated", simulate, mu, sum_stat="sort", epsilon=1, observed=y)


class LogLike(Op):
    """Log-likelihood of a model of which only a function is known."""

    def make_node(self, theta, x, y):
        inputs = [pt.as_tensor(v) for v in (theta, x, y)]
        return Apply(self, inputs, [pt.vector(shape=(None,))])

    def perform(self, node, inputs, outputs):
        theta, x, y = inputs
        outputs[0][0] = -0.5 * (y - theta[0] - theta[1] * x) ** 2


@refused(r"\blikelihood\b", "LogLike", columns=(1129, 1, 3128))
def black_box_custom_dist(rng, X):

    def logp(y, m, c):
        return LogLike()(pt.stack([m, c]), X[:, 0], y)

    m, c = pm.Normal("m", 0, 1), pm.Normal("c", 0, 1)
    pm.CustomDist("likelihood", m, c, logp=logp, observed=rng.normal(size=1129))


@refused(r"\bzero_sum\b")
def soft_sum_to_zero(phi=NORMAL(0, 10)[1130]):
    first, second = np.arange(1130), np.roll(np.arange(1130), 1)
    pm.Potential("pairs", -0.5 * pt.sum((phi[first] - phi[second]) ** 2))
    pm.Potential("zero_sum", pm.logp(pm.Normal.dist(0, 1.13), pt.sum(phi)))


@refused(r"\bdistance\b", columns=(1131, 2, 3130))
def distance_to_the_data(X, y, beta):
    pm.Potential("distance", -pt.sqrt(pt.sum((y - X @ beta) ** 2)))


@refused(r"\bpartial\b", r"[Cc]um", columns=(1169, 2, 3131))
def cox_partial_likelihood(rng, X, beta):
    eta = X @ beta
    at_risk = pt.log(pt.cumsum(pt.exp(eta)[::-1])[::-1])
    pm.Potential("partial", pt.sum((eta - at_risk) * rng.integers(2, size=1169)))


# Short terms that select rows of a long predictor


def censored_survival(rng, X, as_mask):
    """Weibull survival of 1,500 subjects, of whom 400 are censored: a term below the threshold."""
    time = rng.weibull(1.5, size=1500) + 0.01
    censored = np.zeros(1500, bool)
    censored[rng.choice(1500, 400, replace=False)] = True
    beta = pm.Normal("beta", 0, 1, shape=3)
    alpha = pm.HalfNormal("alpha", 1)
    eta = X @ beta
    inside, outside = as_mask(censored)
    pm.Potential("censored", -((time[censored] / pt.exp(eta[inside])) ** alpha))
    # Two selections in one sum, of which the second overlaps the first.
    pm.Potential("ridge", -0.01 * (eta[inside] ** 2).sum() - 0.02 * (eta[300:600] ** 2).sum())
    pm.Weibull("observed", alpha, pt.exp(eta[outside]), observed=time[~censored])


@required("observed", ask=["beta"], columns=(1500, 3, 3150))
def censored_rows_by_a_mask(rng, X):
    censored_survival(rng, X, lambda censored: (censored, ~censored))


@required("observed", ask=["beta"], columns=(1500, 3, 3151))
def censored_rows_by_their_numbers(rng, X):
    censored_survival(rng, X, lambda censored: (np.flatnonzero(censored), np.flatnonzero(~censored)))


@required("observed", ask=["beta"], columns=(1500, 3, 3152))
def censored_rows_by_a_mask_in_data(rng, X):
    def as_mask(censored):
        mask = pm.Data("mask", censored)
        return mask, ~mask

    censored_survival(rng, X, as_mask)


@required("table", ask=["beta"], columns=(1501, 2, 3153))
def cells_of_a_table_by_a_mask_in_data(rng, X, beta=NORMAL[2, 4]):
    few = np.zeros((1501, 4), bool)
    few[rng.integers(1501, size=150), rng.integers(4, size=150)] = True
    eta = X @ beta
    pm.Potential("few", -0.1 * eta[pm.Data("mask", few)] ** 2)
    pm.Normal("table", eta, 1, observed=rng.normal(size=(1501, 4)))
