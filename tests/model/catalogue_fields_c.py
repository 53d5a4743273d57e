"""Models for `factorise`: awkward data and shapes, transforms of models, and models to refuse.

Importing this module adds them to `catalogue.MODELS` and `catalogue.REFUSED`.
"""

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

from .catalogue import columns, optional, refused, refused_so_far, required
from .catalogue_fields_a import imputation, with_gaps

# Missing cells and masks


@required("X_observed", "y")
def matrix_with_missing_cells():
    rng, X = columns(1300, 3, 3001)
    with imputation(), pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=3)
        sd = pm.HalfNormal("sd", 1, shape=3)
        beta = pm.Normal("beta", 0, 1, shape=3)
        X = pm.Normal("X", mu, sd, observed=with_gaps(X, rng, 0.05))
        pm.Normal("y", pt.dot(X, beta), 1, observed=rng.normal(size=1300))
    return model, ["beta"]


@required("X_observed", "y")
def masked_matrix_of_covariates():
    rng, X = columns(1301, 2, 3002)
    X = np.ma.masked_array(X, mask=rng.random(X.shape) < 0.02)
    with imputation(), pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        X = pm.Normal("X", 0, 1, observed=X)
        p = pm.math.sigmoid(beta[0] * X[:, 0] + beta[1] * X[:, 1])
        pm.Bernoulli("y", p=p, observed=rng.integers(2, size=1301))
    return model, ["beta"]


@required("y")
def imputed_cells_set_by_a_mask():
    rng, X = columns(1302, 3, 3003)
    mask = rng.random(X.shape) < 0.1
    with pm.Model() as model:
        missing = pm.Normal("missing", 0, 1, shape=int(mask.sum()))
        full = pt.set_subtensor(pt.as_tensor(X)[mask], missing)
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Normal("y", full @ beta, 1, observed=rng.normal(size=1302))
    return model, ["beta"]


@required("y")
def imputed_column_set_by_a_mask():
    rng, X = columns(1303, 1, 3004)
    x = with_gaps(X[:, 0], rng, 0.2)
    gaps = np.isnan(x)
    with pm.Model() as model:
        nu = pm.Normal("nu", 0, 1)
        missing = pm.Normal("missing", nu, 1, shape=int(gaps.sum()))
        full = pt.zeros(1303)
        full = pt.set_subtensor(full[np.where(gaps)], missing)
        full = pt.set_subtensor(full[np.where(~gaps)], x[~gaps])
        b = pm.Normal("b", 0, 1)
        pm.Normal("y", b * full, 1, observed=rng.normal(size=1303))
    return model, ["b"]


@required("z", "y")
def long_imputed_cells():
    rng, X = columns(1304, 4, 3005)
    mask = rng.random(X.shape) < 0.3
    with pm.Model() as model:
        z = pm.Normal("z", 0, 1, shape=int(mask.sum()))
        full = pt.set_subtensor(pt.as_tensor(X)[mask.nonzero()], z)
        beta = pm.Normal("beta", 0, 1, shape=4)
        pm.Normal("y", (full * beta).sum(axis=1), 1, observed=rng.normal(size=1304))
    return model, ["beta"]


@required("likelihood")
def rows_kept_by_a_mask_in_data():
    rng, X = columns(2000, 2, 3006)
    with pm.Model() as model:
        y = pm.Data("y", rng.normal(size=2000))
        keep = pm.Data("keep", rng.random(2000) < 0.7)
        beta = pm.Normal("beta", 0, 1, shape=2)
        mu = X @ beta
        pm.Potential("likelihood", pm.logp(pm.Normal.dist(mu[keep], 1), y[keep]).sum())
    return model, ["beta"]


@required("train")
def predictor_of_a_training_mask():
    rng, X = columns(2001, 2, 3007)
    y, train = rng.normal(size=2001), rng.random(2001) < 0.7
    with pm.Model() as model:
        mask = pm.Data("mask", train)
        beta = pm.Normal("beta", 0, 1, shape=2)
        mu = pm.Deterministic("mu", pm.math.dot(X, beta))
        pm.Normal("train", mu[mask], 1, observed=y[train])
    return model, ["beta"]


@required("first", "second")
def row_selections_in_data():
    rng, X = columns(3000, 2, 3008)
    order = rng.permutation(3000)
    with pm.Model() as model:
        rows = pm.Data("rows", order[:1300])
        others = pm.Data("others", order[1300:])
        beta = pm.Normal("beta", 0, 1, shape=2)
        eta = pm.Deterministic("eta", X @ beta)
        pm.Normal("first", eta[rows], 1, observed=rng.normal(size=1300))
        pm.Bernoulli("second", logit_p=eta[others], observed=rng.integers(2, size=1700))
    return model, ["beta"]


@required("y")
def mask_times_terms():
    rng, X = columns(1306, 5, 3009)
    y, mask = rng.normal(size=(1306, 5)), rng.random((1306, 5)) < 0.6
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=5)
        s = pm.HalfNormal("s", 1)
        lp = pm.logp(pm.Normal.dist(mu + 0.1 * X, s), y)
        pm.Potential("y", pt.where(mask, lp, 0).sum(axis=1))
    return model, ["s"]


@required("y")
def ragged_visits_as_cells():
    rng = np.random.default_rng(3010)
    visits = rng.integers(1, 6, size=900)
    mask = np.arange(5) < visits[:, None]
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=900)
        b = pm.Normal("b", 0, 1, shape=5)
        mu = a[:, None] + b[None, :]
        pm.Normal("y", mu[mask], 1, observed=rng.normal(size=mask.sum()))
    return model, ["b"]


# Data that change, transforms of models


@required("y")
def data_replaced_by_longer():
    rng, X = columns(700, 2, 3020)
    with pm.Model(coords={"column": ["a", "b"]}) as model:
        X = pm.Data("X", X, dims=("row", "column"))
        y = pm.Data("y_data", rng.normal(size=700), dims="row")
        beta = pm.Normal("beta", 0, 1, dims="column")
        pm.Normal("y", pt.dot(X, beta), 1, observed=y, dims="row")
    rng, X = columns(1320, 2, 3021)
    pm.set_data({"X": X, "y_data": rng.normal(size=1320)}, model=model)
    return model, ["beta"]


@required("y")
def groups_replaced():
    rng = np.random.default_rng(3022)
    with pm.Model(coords={"group": range(5)}) as model:
        g = pm.Data("g", np.zeros(1500, dtype=int))
        x = pm.Data("x", np.zeros(1500))
        y = pm.Data("y_data", np.zeros(1500))
        theta = pm.Normal("theta", 0, 1, dims="group")
        pm.Normal("y", theta[g] * x, 1, observed=y, shape=x.shape)
    new = {"g": rng.integers(5, size=1322), "x": rng.normal(size=1322), "y_data": rng.normal(size=1322)}
    pm.set_data(new, model=model)
    return model, ["theta"]


@required("u", "y")
def lengths_of_coordinates_only():
    rng = np.random.default_rng(3023)
    coords = {"person": [f"p{i}" for i in range(1323)], "wave": [1, 2, 3]}
    with pm.Model(coords=coords) as model:
        tau = pm.HalfNormal("tau", 1)
        u = pm.Normal("u", 0, tau, dims="person")
        w = pm.Normal("w", 0, 1, dims="wave")
        mu = u[:, None] + w
        pm.Normal("y", mu, 1, observed=rng.normal(size=(1323, 3)), dims=("person", "wave"))
    return model, ["tau"]


@required("y")
def frozen_dims_and_data():
    rng, X = columns(1324, 2, 3024)
    with pm.Model() as model:
        X = pm.Data("X", X, dims=("row", "column"))
        g = pm.Data("g", rng.integers(6, size=1324), dims="row")
        theta = pm.Normal("theta", 0, 1, shape=6)
        beta = pm.Normal("beta", 0, 1, dims="column")
        pm.Poisson("y", pt.exp(theta[g] + X @ beta), observed=rng.poisson(1, size=1324), dims="row")
    return freeze_dims_and_data(model), ["theta"]


@required("a::y", "b::y")
def two_models_with_prefixes():
    rng, X = columns(1325, 2, 3025)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        for name, size in [("a", 1200), ("b", 1325)]:
            with pm.Model(name=name):
                sigma = pm.HalfNormal("sigma", 1)
                mu = pm.Deterministic("mu", X[:size] @ beta)
                pm.Normal("y", mu, sigma, observed=rng.normal(size=size))
    return model, ["beta"]


@required("inner::outer::y")
def models_within_models():
    rng, X = columns(1326, 2, 3026)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        with pm.Model(name="inner"):
            beta = pm.Normal("beta", mu, 1, shape=2)
            with pm.Model(name="outer"):
                pm.Normal("y", X @ beta, 1, observed=rng.normal(size=1326))
    return model, ["mu"]


@required("y")
def intervened_and_observed():
    rng = np.random.default_rng(3027)
    with pm.Model() as model:
        x = pm.Normal("x", 0, 1, shape=1327)
        z = pm.Normal("z", 0.5 * x, 1, shape=1327)
        b = pm.Normal("b", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        pm.Normal("y", b[0] * x + b[1] * z, sigma, shape=1327)
    model = pm.do(model, {"x": rng.normal(size=1327), "z": rng.normal(size=1327)})
    return pm.observe(model, {"y": rng.normal(size=1327)}), ["b"]


@required("z", "y")
def observed_transformed_variable():
    rng, X = columns(1328, 2, 3028)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        z = pm.Normal("z", X @ beta, 1)
        pm.LogNormal("y", z, 0.5)
    return pm.observe(model, {"y": rng.lognormal(size=1328)}), ["beta"]


@required("y")
def constrained_parameters():
    rng, X = columns(1329, 2, 3029)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0.5, 1, shape=2, initval=[0.2, 0.8])
        pm.Potential("ordered", pt.switch(beta[0] < beta[1] + 5, 0.0, -np.inf))
        prior = pm.Interpolated("prior", np.linspace(-3, 3, 61), np.exp(-(np.linspace(-2, 2, 61) ** 2)))
        slope = pm.Truncated("slope", pm.Normal.dist(0, 1), lower=-4, upper=4)
        mu = prior + slope * X[:, 0] + beta[1] * X[:, 1]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1329))
    return model, ["prior", "slope"]


@required("positive", "y")
def constraint_in_every_row():
    rng, X = columns(1330, 2, 3030)
    with pm.Model() as model:
        b = pm.HalfNormal("b", 1, shape=2)
        mu = pt.abs(X) @ b
        pm.Potential("positive", pm.math.switch(mu >= 0, 0.0, -np.inf))
        pm.Gamma("y", alpha=2, beta=2 / (mu + 0.01), observed=rng.gamma(2, 1, size=1330))
    return model, ["b"]


# pymc.dims


@required("y")
def labelled_hierarchy():
    rng, X = columns(1340, 2, 3040)
    coords = {"obs": range(1340), "predictor": ["a", "b"], "school": range(8)}
    with pm.Model(coords=coords) as model:
        x = pmd.Data("x", X, dims=("obs", "predictor"))
        school = pmd.Data("school_idx", rng.integers(8, size=1340), dims="obs")
        mu = pmd.Normal("mu", 0, 1)
        tau = pmd.HalfNormal("tau", 1)
        alpha = pmd.Normal("alpha", mu, tau, dims="school")
        beta = pmd.Normal("beta", 0, 1, dims="predictor")
        eta = alpha.isel(school=school) + x.dot(beta, dim="predictor")
        y = rng.integers(2, size=1340)
        pmd.Bernoulli("y", logit_p=eta, observed=pmd.as_xtensor(y, dims="obs"))
    return model, ["beta", "tau"]


@required("theta", "y")
def labelled_table():
    rng = np.random.default_rng(3041)
    with pm.Model(coords={"person": range(1341), "item": range(4)}) as model:
        theta = pmd.Normal("theta", 0, 1, dims="person")
        b = pmd.Normal("b", 0, 1, dims="item")
        a = pmd.LogNormal("a", 0, 0.3, dims="item")
        eta = pmd.Deterministic("eta", a * (theta - b))
        y = rng.integers(2, size=(1341, 4))
        pmd.Bernoulli("y", p=pmd.math.sigmoid(eta), observed=pmd.as_xtensor(y, dims=("person", "item")))
    return model, ["a"]


@required("y")
def labelled_regression_transposed():
    rng, X = columns(1342, 3, 3042)
    with pm.Model(coords={"obs": range(1342), "k": range(3), "out": range(2)}) as model:
        x = pmd.Data("x", X, dims=("obs", "k"))
        W = pmd.Normal("W", 0, 1, dims=("k", "out"))
        sigma = pmd.HalfNormal("sigma", 1, dims="out")
        mu = pmd.dot(x, W, dim="k")
        pmd.Normal("y", mu, sigma, observed=pmd.as_xtensor(rng.normal(size=(2, 1342)), dims=("out", "obs")))
    return model, ["sigma"]


@required("y")
def labelled_poisson_with_centred_covariate():
    rng = np.random.default_rng(3043)
    with pm.Model(coords={"obs": range(1343)}) as model:
        x = pmd.Data("x", rng.normal(size=1343), dims="obs")
        a = pmd.Normal("a", 0, 1)
        b = pmd.Normal("b", 0, 1)
        mu = pmd.math.exp(a + b * (x - x.mean("obs")))
        pmd.Poisson("y", mu, observed=pmd.as_xtensor(rng.poisson(2, size=1343), dims="obs"))
    return model, ["b"]


# Sparse designs


def sparse_design(n, d, seed, form="csr"):
    rng = np.random.default_rng(seed)
    return rng, sp.random(n, d, density=0.1, format=form, random_state=seed)


@required("y")
def sparse_structured_dot():
    rng, X = sparse_design(1350, 30, 3050)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=30)
        mu = sparse.structured_dot(sparse.as_sparse_variable(X), beta[:, None])[:, 0]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1350))
    return model, ["beta"]


@required("y")
def sparse_columns():
    rng, X = sparse_design(1351, 30, 3051, "csc")
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(30, 1))
        eta = sparse.dot(sparse.as_sparse(X), beta).flatten()
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=1351))
    return model, ["beta"]


@refused("'y'", r"pytensor\.sparse\.dot")
def sparse_at():
    rng, X = sparse_design(1352, 25, 3052)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        beta = pm.Normal("beta", 0, 1, shape=(25, 1))
        eta = a + pt.squeeze(sparse.as_sparse_variable(X) @ beta, axis=1)
        pm.Poisson("y", pt.exp(eta), observed=rng.poisson(1, size=1352))
    return model, ["a"]


@required("u", "y")
def sparse_random_effects():
    rng = np.random.default_rng(3053)
    group = rng.integers(1100, size=2500)
    Z = sp.csr_matrix((np.ones(2500), (np.arange(2500), group)), shape=(2500, 1100))
    with pm.Model() as model:
        tau = pm.HalfNormal("tau", 1)
        u = pm.Normal("u", 0, tau, shape=1100)
        mu = sparse.structured_dot(sparse.as_sparse(Z), u.reshape((-1, 1))).ravel()
        pm.Normal("y", mu, 1, observed=rng.normal(size=2500))
    return model, ["tau"]


# Shapes


@required("y")
def rows_merged_by_reshape():
    rng = np.random.default_rng(3060)
    X = rng.normal(size=(400, 3, 2))
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=2)
        a = pm.Normal("a", 0, 1, shape=400)
        mu = (a[:, None] + X @ b).reshape((1200,))
        pm.Normal("y", mu, 1, observed=rng.normal(size=1200))
    return model, ["b"]


@required("u", "y")
def tensor_rows_merged():
    rng = np.random.default_rng(3061)
    X = rng.normal(size=(1361, 3, 2))
    with pm.Model() as model:
        u = pm.Normal("u", 0, 1, shape=(1361, 1, 2))
        beta = pm.Normal("beta", 0, 1, shape=2)
        eta = pt.reshape(X * (beta + u), (3 * 1361, 2)).sum(axis=1)
        pm.Normal("y", eta, 1, observed=rng.normal(size=3 * 1361))
    return model, ["beta"]


@required("theta", "y")
def answers_flattened():
    rng = np.random.default_rng(3062)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=(1362, 1))
        b = pm.Normal("b", 0, 1, shape=4)
        eta = (theta - b).flatten()
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=4 * 1362))
    return model, ["b"]


@required("theta", "y")
def answers_of_items_first():
    rng = np.random.default_rng(3063)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=1363)
        b = pm.Normal("b", 0, 1, shape=(4, 1))
        eta = pt.reshape(theta - b, (-1,))
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=4 * 1363))
    return model, ["b"]


@required("a", "y")
def subjects_repeated():
    rng = np.random.default_rng(3064)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=1364)
        wave = pm.Normal("wave", 0, 1, shape=3)
        mu = pt.repeat(a, 3) + pt.tile(wave, 1364)
        pm.Normal("y", mu, 1, observed=rng.normal(size=3 * 1364))
    return model, ["wave"]


@required("y")
def effects_repeated_by_counts():
    rng = np.random.default_rng(3065)
    counts = rng.integers(1, 60, size=50)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=50)
        mu = pt.repeat(a, counts)
        pm.Normal("y", mu, 1, observed=rng.normal(size=counts.sum()))
    return model, ["a"]


@required("y")
def stacked_equations():
    rng, X = columns(1366, 2, 3066)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=(3, 2))
        sigma = pm.HalfNormal("sigma", 1, shape=3)
        mu = pt.stack([X @ b[k] for k in range(3)])
        pm.Normal("y", mu.T, sigma, observed=rng.normal(size=(1366, 3)))
    return model, ["sigma"]


@required("y")
def joint_likelihood_concatenated():
    rng = np.random.default_rng(3067)
    x1, x2, x3 = rng.normal(size=500), rng.normal(size=600), rng.normal(size=300)
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        s = pm.HalfNormal("s", 1, shape=3)
        mu = pt.concatenate([b[0] * x1, b[1] * x2**2, pt.full((300,), b[2]) * x3])
        sigma = pt.concatenate([pt.repeat(s[0], 500), pt.ones(600) * s[1], pt.full(300, s[2])])
        y = np.concatenate([x1, x2, x3])
        pm.Normal("y", mu, sigma, observed=y)
    return model, ["s"]


@required("y")
def broadcast_to_table():
    rng = np.random.default_rng(3068)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        b = pm.Normal("b", 0, 1, shape=3)
        mu = pt.broadcast_to(a + b, (1368, 3))
        pm.Normal("y", mu, 1, observed=rng.normal(size=(1368, 3)))
    return model, ["b"]


@required("y")
def outcomes_by_rows():
    rng, X = columns(1369, 2, 3069)
    with pm.Model(coords={"outcome": range(3), "obs": range(1369)}) as model:
        a = pm.Normal("a", 0, 1, dims="outcome")
        b = pm.Normal("b", 0, 1, shape=(3, 2))
        nu = pm.Gamma("nu", 4, 1, shape=(3, 1))
        mu = a[:, None] + pt.dot(b, X.T)
        pm.StudentT("y", nu + 1, mu=mu, sigma=1, observed=rng.normal(size=(3, 1369)), dims=("outcome", "obs"))
    return model, ["nu"]


@required("y")
def indexed_deterministic():
    rng = np.random.default_rng(3070)
    cell, item = rng.integers(40, size=300), rng.integers(300, size=1370)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=40)
        d = pm.Deterministic("d", pt.exp(a[cell]))
        e = pm.Deterministic("e", d[item])
        pm.Normal("y", pt.log(e), 1, observed=rng.normal(size=1370))
    return model, ["a"]


@required("u", "y")
def long_deterministic_indexed():
    rng, X = columns(1500, 2, 3071)
    item = rng.integers(1500, size=3000)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        tau = pm.HalfNormal("tau", 1)
        u = pm.Normal("u", 0, 1, shape=1500)
        quality = pm.Deterministic("quality", X @ beta + tau * u)
        pm.Normal("y", quality[item], 1, observed=rng.normal(size=3000))
    return model, ["beta"]


@required("y")
def standardised_in_the_graph():
    rng, X = columns(1372, 3, 3072)
    with pm.Model() as model:
        X = pm.Data("X", X)
        y = pm.Data("y_data", rng.normal(3, 2, size=1372))
        Z = (X - X.mean(axis=0)) / X.std(axis=0)
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Normal("y", Z @ beta, 1, observed=(y - y.mean()) / y.std())
    return model, ["beta"]


@required("y")
def cumulated_rain():
    rng, X = columns(1373, 1, 3073)
    with pm.Model() as model:
        rain = pm.Data("rain", np.abs(X[:, 0]))
        week = pt.cumsum(rain)[7:] - pt.cumsum(rain)[:-7]
        b = pm.Normal("b", 0, 1)
        pm.Normal("y", b * pt.log1p(week), 1, observed=rng.normal(size=1366))
    return model, ["b"]


@required("y")
def polynomial_by_powers():
    rng, X = columns(1374, 1, 3074)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        beta = pm.Normal("beta", 0, 1, shape=4)
        mu = pt.sum([beta[k] * x**k for k in range(4)], axis=0)
        curve = pt.power(x[:, None], np.arange(4)) @ beta
        pm.Normal("y", (mu + curve) / 2, 1, observed=rng.normal(size=1374))
    return model, ["beta"]


@required("y")
def hinges_at_parameters():
    rng, X = columns(1375, 1, 3075)
    with pm.Model() as model:
        k = pm.Normal("k", 0, 1, shape=3)
        b = pm.Normal("b", 0, 1, shape=3)
        basis = pt.switch(pt.gt(X, k), X - k, 0)
        pm.Normal("y", pt.sum(basis * b, axis=-1), 1, observed=rng.normal(size=1375))
    return model, ["k"]


@required("out")
def two_layer_network():
    rng, X = columns(1376, 4, 3076)
    with pm.Model(coords={"h1": range(5), "h2": range(4), "x": range(4)}) as model:
        data = pm.Data("data", X)
        w1 = pm.Normal("w1", 0, 1, initval=rng.normal(size=(4, 5)), dims=("x", "h1"))
        w2 = pm.Normal("w2", 0, 1, initval=rng.normal(size=(5, 4)), dims=("h1", "h2"))
        w3 = pm.Normal("w3", 0, 1, initval=rng.normal(size=4), dims="h2")
        act1 = pm.math.tanh(pm.math.dot(data, w1))
        act2 = pm.math.tanh(pm.math.dot(act1, w2))
        p = pm.math.sigmoid(pm.math.dot(act2, w3))
        y = pm.Data("y", rng.integers(2, size=1376))
        pm.Bernoulli("out", p, observed=y, total_size=None)
    return model, ["w1", "w3"]


@required("y")
def network_with_skip_and_layer_norm():
    rng, X = columns(1377, 3, 3077)
    with pm.Model() as model:
        W = pm.Normal("W", 0, 1, shape=(3, 6), initval=rng.normal(size=(3, 6)))
        V = pm.Normal("V", 0, 1, shape=(6, 2), initval=rng.normal(size=(6, 2)))
        h = X @ W
        h = (h - h.mean(axis=-1, keepdims=True)) / pt.sqrt(h.var(axis=-1, keepdims=True) + 0.1)
        logits = pt.concatenate([X[:, :1], pm.math.maximum(h, 0) @ V], axis=1)
        pm.Categorical("y", logit_p=logits, observed=rng.integers(3, size=1377))
    return model, ["V"]


@required("y")
def crossed_kronecker_effects():
    rng = np.random.default_rng(3078)
    r, c = rng.integers(12, size=1378), rng.integers(9, size=1378)
    L1 = np.linalg.cholesky(np.exp(-np.abs(np.subtract.outer(range(12), range(12)))))
    L2 = np.linalg.cholesky(np.exp(-np.abs(np.subtract.outer(range(9), range(9)))))
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        Z = pm.Normal("Z", 0, 1, shape=(12, 9))
        F = sigma * (L1 @ Z @ L2.T)
        pm.Normal("y", F[r, c], 1, observed=rng.normal(size=1378))
    return model, ["sigma"]


@required("y")
def kronecker_product_of_effects():
    rng = np.random.default_rng(3079)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=40)
        b = pm.Normal("b", 0, 1, shape=35)
        mu = pt.outer(a, b).ravel() + pt.linalg.kron(a[:, None], b[:, None])[:, 0]
        pm.Normal("y", mu, 1, observed=rng.normal(size=1400))
    return model, ["a"]


@required("y")
def custom_dist_of_exponentiated_sums():
    rng, X = columns(1380, 2, 3080)

    def dist(eta, sigma, size):
        return pt.exp(eta + pm.Gumbel.dist(0, sigma, size=size))

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.5, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        y = rng.lognormal(size=1380)
        pm.CustomDist("y", pt.dot(X, beta), sigma, dist=dist, observed=y)
    return model, ["sigma"]


@required("y")
def custom_dist_of_clipped_student():
    rng, X = columns(1381, 2, 3081)

    def dist(mu, sigma, size):
        return pt.clip(pm.StudentT.dist(5, mu=mu, sigma=sigma, size=size), -1, 1)

    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 0.5, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        y = np.clip(rng.normal(size=1381), -1, 1)
        pm.CustomDist("y", X @ beta, sigma, dist=dist, observed=y)
    return model, ["sigma"]


@required("y")
def custom_dist_of_a_map():
    rng, X = columns(1382, 1, 3082)
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

    with pm.Model() as model:
        b = pm.Normal("b", 0, 1)
        sigma = pm.HalfNormal("sigma", 1)
        pm.CustomDist("y", b, sigma, dist=dist, observed=rng.normal(size=1382))
    return model, ["b"]


@required("likelihood")
def potential_of_a_map():
    rng, X = columns(1383, 2, 3083)
    y = rng.normal(size=1383)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        terms = pytensor.map(
            lambda x, y, beta: -((y - pt.dot(x, beta)) ** 2),
            [pt.as_tensor(X), pt.as_tensor(y)],
            [beta],
            return_updates=False,
        )
        pm.Potential("likelihood", terms.sum())
    return model, ["beta"]


@required("y")
def vectorised_function_of_rows():
    rng, X = columns(1384, 3, 3084)

    def row(x, b):
        return pt.tanh(pt.dot(x, b)) + x[0]

    with pm.Model() as model:
        b = pm.Normal("b", 0, 1, shape=3)
        mu = pt.vectorize(row, signature="(k),(k)->()")(pt.as_tensor(X), b)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1384))
    return model, ["b"]


@required("f", "y")
def factor_analysis_of_columns():
    rng = np.random.default_rng(3085)
    with pm.Model(coords={"latent": range(2), "rows": range(1385), "column": range(5)}) as model:
        packed = pm.Normal("packed", 0, 1, shape=9)
        W = pt.zeros((5, 2))
        lower = np.tril_indices(5, 0, 2)
        W = pt.set_subtensor(W[lower], packed)
        F = pm.Normal("f", dims=("latent", "rows"))
        psi = pm.HalfNormal("psi", 1.0)
        y = rng.normal(size=(5, 1385))
        pm.Normal("y", pt.dot(W, F), sigma=psi, observed=y, dims=("column", "rows"))
    return model, ["packed", "psi"]


@required("y")
def marginal_factor_analysis():
    rng = np.random.default_rng(3086)
    with pm.Model() as model:
        W = pm.Normal("W", 0, 1, shape=(4, 2), initval=rng.normal(size=(4, 2)))
        psi = pm.HalfNormal("psi", 1, shape=4)
        cov = pt.dot(W, W.T) + pt.diag(psi**2)
        pm.MvNormal("y", pt.zeros(4), cov=cov, observed=rng.normal(size=(1386, 4)))
    return model, ["psi"]


@required("y")
def spectral_gaussian_process_linearised():
    rng, X = columns(1387, 1, 3087)
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0, 0.3)
        eta = pm.HalfNormal("eta", 1)
        gp = pm.gp.HSGP(m=[10], L=[5.0], cov_func=eta**2 * pm.gp.cov.Matern52(1, ell))
        X = pm.Data("X", X)
        phi, sqrt_psd = gp.prior_linearized(X=X)
        coefs = pm.Normal("coefs", 0, 1, size=gp.n_basis_vectors)
        f = pm.Deterministic("f", phi @ (coefs * sqrt_psd))
        pm.Poisson("y", pt.exp(f), observed=rng.poisson(1, size=1387))
    return model, ["ell", "coefs"]


@required("y")
def periodic_spectral_gaussian_process():
    rng = np.random.default_rng(3088)
    t = np.linspace(0, 10, 1388)[:, None]
    with pm.Model() as model:
        ls = pm.LogNormal("ls", 0, 0.3)
        periodic = pm.gp.cov.Periodic(1, period=1, ls=ls)
        seasonal = pm.gp.HSGPPeriodic(m=6, scale=1.0, cov_func=periodic).prior("seasonal", X=t)
        trend_cov = pm.gp.cov.ExpQuad(1, ls=4)
        trend = pm.gp.HSGP(m=[7], c=1.5, cov_func=trend_cov).prior("trend", X=t)
        pm.Normal("y", trend + seasonal, 1, observed=rng.normal(size=1388))
    return model, ["ls"]


@required("y")
def inducing_points_by_hand():
    rng, X = columns(1389, 1, 3089)
    u = np.linspace(-2, 2, 8)[:, None]
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0, 0.3)
        cov = pm.gp.cov.ExpQuad(1, ell)
        z = pm.Normal("z", 0, 1, shape=8)
        L = pt.linalg.cholesky(cov(u) + 1e-4 * np.eye(8))
        f = cov(X, u) @ pt.linalg.solve_triangular(L.T, z, lower=False)
        pm.Normal("y", f, 1, observed=rng.normal(size=1389))
    return model, ["z"]


# Two long axes


@required("a", "b", "y")
def ratings_of_additive_effects():
    rng = np.random.default_rng(3090)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        a = pm.Normal("a", 0, 1, shape=1200)
        b = pm.Normal("b", 0, 1, shape=1100)
        eta = mu + a[:, None] + b[None, :]
        pm.Normal("y", eta, 1, observed=rng.normal(size=(1200, 1100)))
    return model, ["mu"]


@required("A", "B", "y")
def ratings_of_factors():
    rng = np.random.default_rng(3091)
    with pm.Model() as model:
        A = pm.Normal("A", 0, 1, shape=(1200, 2))
        B = pm.Normal("B", 0, 1, shape=(1100, 2))
        s = pm.HalfNormal("s", 1)
        pm.Normal("y", pt.dot(A, B.T), s, observed=rng.normal(size=(1200, 1100)))
    return model, ["s"]


@required("likelihood")
def ratings_of_short_effects_by_index():
    rng = np.random.default_rng(3092)
    u, v = rng.integers(20, size=1200), rng.integers(30, size=1100)
    y = rng.normal(size=(1200, 1100))
    with pm.Model() as model:
        M = pm.Normal("M", 0, 1, shape=(20, 30))
        pm.Potential("likelihood", -0.5 * pt.sum((y - M[u][:, v]) ** 2))
    return model, None


# More masks, designs and shapes


@required("y")
def observed_data_selected_by_a_mask():
    rng, X = columns(2002, 1, 3131)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        y = pm.Data("y_data", rng.normal(size=2002))
        mask = pm.Data("mask", rng.random(2002) < 0.6)
        b = pm.Normal("b", 0, 1)
        pm.Normal("y", (b * x)[mask], 1, observed=y[mask])
    return model, ["b"]


@required("y")
def group_effects_selected_by_a_mask():
    rng = np.random.default_rng(3132)
    with pm.Model() as model:
        g = pm.Data("g", rng.integers(9, size=2003))
        keep = pm.Data("keep", rng.integers(2, size=2003).astype(bool))
        theta = pm.Normal("theta", 0, 1, shape=9)
        lp = pm.logp(pm.Normal.dist(theta[g[keep]], 1), rng.normal(size=2003)[keep.get_value()])
        pm.Potential("y", lp)
    return model, ["theta"]


@required("y")
def matrix_cells_selected_by_a_mask_in_data():
    rng = np.random.default_rng(3133)
    with pm.Model() as model:
        seen = pm.Data("seen", rng.random((80, 40)) < 0.5)
        a = pm.Normal("a", 0, 1, shape=80)
        b = pm.Normal("b", 0, 1, shape=40)
        mu = a[:, None] + b[None, :]
        R = pm.Data("R", rng.normal(size=(80, 40)))
        pm.Potential("y", pm.logp(pm.Normal.dist(mu[seen], 1), R[seen]).sum())
    return model, ["a"]


@required("y")
def rows_where_a_covariate_is_positive():
    rng, X = columns(3000, 1, 3134)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        rows = pt.nonzero(x > 0)[0]
        b = pm.Normal("b", 0, 1, shape=2)
        mu = b[0] + b[1] * pt.log(x[rows])
        pm.Normal("y", mu, 1, observed=rng.normal(size=int((X > 0).sum())))
    return model, ["b"]


@required("y")
def missing_cells_of_long_rows_imputed_by_regression():
    rng, X = columns(1335, 2, 3135)
    gaps = rng.random(1335) < 0.15
    rows = np.flatnonzero(gaps)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=2)
        missing = pm.Normal("missing", a[0] + a[1] * X[rows, 1], 1, shape=len(rows))
        filled = pt.set_subtensor(pt.as_tensor(X)[rows, 0], missing)
        b = pm.Normal("b", 0, 1, shape=2)
        pm.Normal("y", pt.dot(filled, b), 1, observed=rng.normal(size=1335))
    return model, ["b"]


@required("x1_observed", "x2_observed", "y")
def imputed_columns_stacked():
    rng, X = columns(1336, 3, 3136)
    with imputation(), pm.Model() as model:
        x1 = pm.Normal("x1", 0, 1, observed=with_gaps(X[:, 0], rng))
        s = pm.HalfNormal("s", 1)
        x2 = pm.Normal("x2", 0.5 * x1, s, observed=with_gaps(X[:, 1], rng))
        design = pt.stack([x1, x2, pt.as_tensor(X[:, 2])], axis=1)
        beta = pm.Normal("beta", 0, 1, shape=3)
        pm.Bernoulli("y", logit_p=design @ beta, observed=rng.integers(2, size=1336))
    return model, ["beta", "s"]


@required("y_observed")
def table_of_outcomes_with_gaps():
    rng = np.random.default_rng(3137)
    y = with_gaps(rng.normal(size=(1337, 3)), rng)
    with imputation(), pm.Model() as model:
        mu = pm.Normal("mu", 0, 1, shape=3)
        sigma = pm.HalfNormal("sigma", 1, shape=3)
        pm.Normal("y", mu, sigma, observed=y)
    return model, ["sigma"]


@required("y")
def censored_rows_of_a_latent_vector():
    rng, X = columns(2604, 1, 3138)
    y = rng.normal(size=2604)
    high = y > 0.8
    with pm.Model() as model:
        b = pm.Normal("b", 0, 1)
        hidden = pm.HalfNormal("hidden", 1, shape=int(high.sum()))
        full = pt.set_subtensor(pt.as_tensor(y)[high], 0.8 + hidden)
        pm.Potential("y", pm.logp(pm.Normal.dist(b * X[:, 0], 1), full))
    return model, ["b"]


@required("y")
def sparse_dot_with_a_vector():
    rng, X = sparse_design(1353, 20, 3139)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=20)
        eta = sparse.dot(sparse.as_sparse_variable(X), beta)
        pm.Bernoulli("y", logit_p=eta, observed=rng.integers(2, size=1353))
    return model, ["beta"]


@required("y")
def sparse_matrix_of_two_outcomes():
    rng, X = sparse_design(1354, 20, 3140)
    with pm.Model() as model:
        B = pm.Normal("B", 0, 1, shape=(20, 2))
        mu = sparse.structured_dot(sparse.as_sparse_variable(X), B)
        pm.Normal("y", mu, 1, observed=rng.normal(size=(1354, 2)))
    return model, ["B"]


@required("y")
def sparse_weighted_and_summed():
    rng, X = sparse_design(1355, 20, 3141)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=20)
        mu = sparse.sp_sum(sparse.multiply(sparse.as_sparse_variable(X), beta), axis=1)
        pm.Normal("y", mu, 1, observed=rng.normal(size=1355))
    return model, ["beta"]


@required("y")
def sparse_design_made_dense():
    rng, X = sparse_design(1356, 20, 3142)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=20)
        dense = sparse.dense_from_sparse(sparse.as_sparse_variable(X))
        pm.Normal("y", dense @ beta, 1, observed=rng.normal(size=1356))
    return model, ["beta"]


@required("y")
def choices_reshaped_to_alternatives():
    rng = np.random.default_rng(3143)
    X = rng.normal(size=(3 * 1357, 2))
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        asc = pm.Normal("asc", 0, 1, shape=2)
        u = pm.math.dot(X, beta).reshape((1357, 3)) + pt.concatenate([pt.zeros(1), asc])
        pm.Categorical("y", p=pm.math.softmax(u, axis=-1), observed=rng.integers(3, size=1357))
    return model, ["asc"]


@required("y")
def answers_in_one_long_categorical():
    rng, X = columns(1358, 2, 3144)
    with pm.Model() as model:
        B = pm.Normal("B", 0, 1, shape=(2, 3, 4))
        logits = pt.tensordot(X, B, axes=1).reshape((-1, 4))
        pm.Categorical("y", logit_p=logits, observed=rng.integers(4, size=3 * 1358))
    return model, ["B"]


@required("y")
def panel_as_wide_then_long():
    rng = np.random.default_rng(3145)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=120)
        b = pm.Normal("b", 0, 1, shape=120)
        t = np.arange(10) / 10
        wide = a[:, None] + b[:, None] * t
        pm.Normal("y", wide.T.ravel(), 1, observed=rng.normal(size=1200))
    return model, ["a"]


@required("y")
def errors_of_panels_reshaped_for_rows():
    rng, X = columns(5 * 1150, 2, 3146)
    y = rng.normal(size=5 * 1150)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        sigma = pm.HalfNormal("sigma", 1)
        tau = pm.HalfNormal("tau", 1)
        cov = sigma**2 * pt.eye(5) + tau**2 * pt.ones((5, 5))
        residuals = (y - X @ beta).reshape((1150, 5))
        pm.Potential("y", pm.logp(pm.MvNormal.dist(pt.zeros(5), cov), residuals))
    return model, ["beta"]


@required("y")
def mesh_of_effects():
    rng = np.random.default_rng(3147)
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1, shape=30)
        b = pm.Normal("b", 0, 1, shape=40)
        A, B = pt.broadcast_arrays(a[:, None], b[None, :])
        eta = pt.stack([A.flatten(), B.flatten()], axis=1)
        pm.Normal("y", eta.sum(axis=1), 1, observed=rng.normal(size=1200))
    return model, ["a"]


@required("y")
def dummies_made_in_the_graph():
    rng = np.random.default_rng(3148)
    with pm.Model() as model:
        g = pm.Data("g", rng.integers(6, size=1359))
        D = pt.eq(g[:, None], pt.arange(6)[None, :]).astype("float64")
        E = pt.eye(6)[g]
        b = pm.Normal("b", 0, 1, shape=6)
        c = pm.Normal("c", 0, 1, shape=6)
        pm.Normal("y", D @ b + E @ c, 1, observed=rng.normal(size=1359))
    return model, ["b"]


@required("y")
def interactions_by_row_products():
    rng, X = columns(1362, 3, 3149)
    with pm.Model() as model:
        x = pm.Data("x", X)
        pairs = (x[:, :, None] * x[:, None, :]).reshape((x.shape[0], 9))
        b = pm.Normal("b", 0, 1, shape=9)
        pm.Normal("y", pairs @ b, 1, observed=rng.normal(size=1362))
    return model, ["b"]


@required("y")
def quadratic_forms_of_rows():
    rng, X = columns(1363, 3, 3150)
    with pm.Model() as model:
        V = pm.Normal("V", 0, 1, shape=(3, 2))
        linear = pm.Normal("linear", 0, 1, shape=3)
        interactions = 0.5 * pt.sum(pt.dot(X, V) ** 2 - pt.dot(X**2, V**2), axis=1)
        pm.Normal("y", X @ linear + interactions, 1, observed=rng.normal(size=1363))
    return model, ["V"]


@required("y")
def averages_of_short_windows():
    rng, X = columns(1370, 1, 3151)
    with pm.Model() as model:
        x = pm.Data("x", X[:, 0])
        w = pm.Dirichlet("w", np.ones(5))
        b = pm.Normal("b", 0, 1)
        windows = pt.stack([x[k : 1366 + k] for k in range(5)], axis=1)
        pm.Normal("y", b * windows @ w, 1, observed=rng.normal(size=1366))
    return model, ["w"]


@refused_so_far
def convolution_with_a_short_kernel():
    rng, X = columns(1371, 1, 3152)
    with pm.Model() as model:
        w = pm.Dirichlet("w", np.ones(5))
        mu = pt.signal.convolve1d(pt.as_tensor(X[:, 0]), w, mode="valid")
        pm.Normal("y", mu, 1, observed=rng.normal(size=1367))
    return model, ["w"]


@optional
def moving_average_of_latents():
    rng = np.random.default_rng(3153)
    with pm.Model() as model:
        e = pm.Normal("e", 0, 1, shape=1372)
        theta = pm.Normal("theta", 0, 0.5, shape=2)
        pm.Normal("y", e[2:] + theta[0] * e[1:-1] + theta[1] * e[:-2], 1, observed=rng.normal(size=1370))
    return model, ["theta"]


@required("y")
def long_table_of_links():
    rng = np.random.default_rng(3154)
    block = rng.integers(3, size=1100)
    y = rng.integers(2, size=(1100, 1100))
    with pm.Model() as model:
        B = pm.Beta("B", 1, 1, shape=(3, 3))
        pm.Bernoulli("y", p=B[block][:, block], observed=y)
    return model, None


@required("Z", "y")
def long_table_of_distances():
    rng = np.random.default_rng(3155)
    with pm.Model() as model:
        Z = pm.Normal("Z", 0, 1, shape=(1050, 2), initval=rng.normal(size=(1050, 2)))
        D = ((Z[:, None, :] - Z[None, :, :]) ** 2).sum(axis=-1)
        pm.Bernoulli("y", logit_p=1 - D, observed=rng.integers(2, size=(1050, 1050)))
    return model, None


# Large graphs


@required("y")
def many_separate_coefficients():
    rng, X = columns(1390, 24, 3160)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        mu = pm.Normal("intercept", 0, 1)
        for k in range(24):
            mu = mu + pm.Normal(f"b_{k}", 0, 0.2) * X[:, k]
        pm.Normal("y", mu, sigma, observed=rng.normal(size=1390))
    return model, ["b_3", "sigma"]


@required(*[f"y_{k}" for k in range(6)])
def likelihoods_in_a_loop():
    rng = np.random.default_rng(3161)
    with pm.Model() as model:
        mu = pm.Normal("mu", 0, 1)
        tau = pm.HalfNormal("tau", 1)
        for k in range(6):
            a = pm.Normal(f"a_{k}", mu, tau)
            b = pm.Normal(f"b_{k}", 0, 1)
            x = rng.normal(size=1000 + k)
            pm.Normal(f"y_{k}", a + b * x, 1, observed=rng.normal(size=1000 + k))
    return model, ["mu", "b_2"]


@required("y")
def panel_unrolled_over_waves():
    rng = np.random.default_rng(3162)
    y = rng.normal(size=(1391, 12))
    with pm.Model() as model:
        gain = pm.Beta("gain", 2, 2)
        level, levels = pt.as_tensor(y[:, 0]), []
        for k in range(1, 12):
            levels.append(level)
            level = level + gain * (y[:, k] - level)
        mu = pt.stack(levels, axis=1)
        pm.Normal("y", mu, 1, observed=y[:, 1:])
    return model, ["gain"]


@required("fraud")
def deep_network():
    rng, X = columns(1392, 6, 3163)
    with pm.Model() as model:
        h = pt.as_tensor(X)
        for k in range(8):
            W = pm.Normal(f"W_{k}", 0, 1, shape=(6, 6), initval=rng.normal(size=(6, 6)) / 3)
            h = h + pm.math.tanh(h @ W)
        w = pm.Normal("w", 0, 1, shape=6)
        pm.Bernoulli("fraud", logit_p=h @ w, observed=rng.integers(2, size=1392))
    return model, ["w", "W_0"]


@required("y")
def decision_tree_by_switches():
    rng, X = columns(1393, 3, 3164)
    with pm.Model() as model:
        cut = pm.Normal("cut", 0, 0.5, shape=7)
        leaf = pm.Normal("leaf", 0, 1, shape=8)

        def branch(node, depth):
            if depth == 3:
                return leaf[node - 8]
            below, above = branch(2 * node, depth + 1), branch(2 * node + 1, depth + 1)
            return pm.math.switch(X[:, depth] < cut[node - 1], below, above)

        pm.Normal("y", branch(1, 0), 1, observed=rng.normal(size=1393))
    return model, ["cut"]


@required("y")
def kalman_filter_of_short_panels():
    rng = np.random.default_rng(3165)
    y = rng.normal(size=(1394, 8))
    with pm.Model() as model:
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
    return model, ["q"]


@required("y")
def hidden_markov_chains_of_short_panels():
    rng = np.random.default_rng(3166)
    y = rng.normal(size=(1395, 6))
    with pm.Model() as model:
        P = pm.Dirichlet("P", [[4, 1], [1, 4]])
        mu = pm.Normal("mu", [-1, 1], 1)
        alpha = pm.logp(pm.Normal.dist(mu, 1), y[:, 0, None]) + np.log(0.5)
        for k in range(1, 6):
            emission = pm.logp(pm.Normal.dist(mu, 1), y[:, k, None])
            alpha = emission + pt.logsumexp(alpha[:, :, None] + pt.log(P), axis=1)
        pm.Potential("y", pm.math.logsumexp(alpha, axis=1).sum())
    return model, ["P"]


# To refuse


@refused(r"\bfield\b")
def marginal_process_of_time():
    rng = np.random.default_rng(3100)
    t = np.linspace(0, 1, 1050)[:, None]
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 1)
        cov = eta**2 * pm.gp.cov.Matern32(1, 0.1) + pm.gp.cov.WhiteNoise(0.1)
        gp = pm.gp.Marginal(mean_func=pm.gp.mean.Linear(pm.Normal("b", 0, 1, shape=1)), cov_func=cov)
        gp.marginal_likelihood("field", X=t, y=rng.normal(size=1050), sigma=0.1)
    return model, None


@refused(r"\bbrains\b")
def primates_of_one_tree():
    rng, X = columns(1060, 1, 3101)
    D = np.abs(np.subtract.outer(np.arange(1060.0), np.arange(1060.0)))
    with pm.Model() as model:
        a = pm.Normal("a", 0, 1)
        b = pm.Normal("b", 0, 1)
        sigma = pm.Exponential("sigma", 1)
        cov = sigma**2 * pt.exp(-D / 50) + 0.1 * np.eye(1060)
        pm.MvNormal("brains", a + b * X[:, 0], cov=cov, observed=rng.normal(size=1060))
    return model, None


@refused(r"\bkinship\b")
def kinship_precision():
    rng = np.random.default_rng(3102)
    with pm.Model() as model:
        h = pm.Beta("h", 2, 2)
        tau = (1 - h) * np.eye(1070) + 0.01 * h * np.ones((1070, 1070))
        pm.MvNormal("kinship", mu=0, tau=tau, observed=rng.normal(size=1070))
    return model, None


@refused(r"\by\b")
def latent_process():
    rng, X = columns(1055, 1, 3103)
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0, 0.3)
        f = pm.gp.Latent(cov_func=pm.gp.cov.ExpQuad(1, ell)).prior("f", X=X)
        pm.Bernoulli("y", logit_p=f, observed=rng.integers(2, size=1055))
    return model, None


@refused(r"\bf\b")
def latent_process_centred():
    rng, X = columns(1056, 1, 3104)
    with pm.Model() as model:
        eta = pm.HalfNormal("eta", 1)
        cov = eta * pm.gp.cov.Matern52(1, 1.0) + pm.gp.cov.WhiteNoise(0.1)
        f = pm.gp.Latent(cov_func=cov).prior("f", X=X, reparameterize=False)
        pm.Poisson("y", pt.exp(f), observed=rng.poisson(1, size=1056))
    return model, None


@refused(r"\bnormaliser\b", r"[Ll]og|[Ss]um|[Ee]xp|in full")
def energy_normalised_over_states():
    _, X = columns(1107, 2, 3105)
    with pm.Model() as model:
        theta = pm.Normal("theta", 0, 1, shape=2)
        energy = X @ theta
        pm.Potential("normaliser", energy[0] - pm.math.logsumexp(energy))
    return model, None


@refused(r"\by\b", r"[Cc]um")
def innovations_cumulated():
    rng = np.random.default_rng(3106)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        z = pm.Normal("z", 0, 1, shape=1108)
        level = pm.Deterministic("level", sigma * z.cumsum())
        pm.Normal("y", level, 1, observed=rng.normal(size=1108))
    return model, None


@refused(r"\bstock\b", r"[Cc]um")
def discounted_stock():
    rng, X = columns(1109, 1, 3107)
    with pm.Model() as model:
        rate = pm.Beta("rate", 50, 2)
        flow = X[:, 0] * rate
        pm.Normal("stock", pt.cumprod(1 + flow / 1000), 1, observed=rng.normal(size=1109))
    return model, None


@refused(r"\barm\b", r"[Ss]oftmax|[Ss]um|[Ll]og|[Ee]xp|in full")
def choice_among_all_rows():
    _, X = columns(1110, 2, 3108)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Categorical("arm", logit_p=X @ beta, observed=np.array([3, 5, 700]))
    return model, None


@refused(r"\battention\b", r"[Ss]oftmax|[Ss]um|[Ee]xp")
def weights_normalised_over_rows():
    rng, X = columns(1111, 2, 3109)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        w = pt.exp(X @ beta)
        pm.Normal("attention", 1111 * w / w.sum(), 1, observed=rng.normal(size=1111))
    return model, None


@refused(r"\bplacement\b", r"[Ss]ort")
def plackett_luce_by_sorting():
    rng, X = columns(1112, 2, 3110)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        eta = X @ beta
        pm.Normal("placement", eta[pt.argsort(eta)], 1, observed=rng.normal(size=1112))
    return model, None


@refused(r"\by\b", r"[Mm]edian|[Ss]ort|[Pp]artition|[Ss]ubtensor|quantile")
def centred_by_the_median():
    rng, X = columns(1113, 2, 3111)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        eta = X @ beta
        pm.Normal("y", eta - pt.sort(eta)[556], 1, observed=rng.normal(size=1113))
    return model, None


@refused(r"\by\b", r"[Ss]can")
def exponential_smoothing():
    rng = np.random.default_rng(3112)
    y = rng.normal(size=1114)
    with pm.Model() as model:
        alpha = pm.Beta("alpha", 2, 2)
        level = pytensor.scan(
            lambda y, before, alpha: alpha * y + (1 - alpha) * before,
            sequences=[pt.as_tensor(y[:-1])],
            outputs_info=[pt.as_tensor(y[0])],
            non_sequences=[alpha],
            return_updates=False,
        )
        pm.Normal("y", level, 1, observed=y[1:])
    return model, None


@refused(r"\bchoices\b", r"[Ss]can")
def rescorla_wagner():
    rng = np.random.default_rng(3113)
    action, reward = rng.integers(2, size=1115), rng.integers(2, size=1115)

    def update(action, reward, Q, alpha):
        return pt.set_subtensor(Q[action], Q[action] + alpha * (reward - Q[action]))

    with pm.Model() as model:
        alpha = pm.Beta("alpha", 1, 1)
        beta = pm.HalfNormal("beta", 10)
        Qs = pytensor.scan(
            update,
            sequences=[pt.as_tensor(action), pt.as_tensor(reward)],
            outputs_info=[pt.full((2,), 0.5)],
            non_sequences=[alpha],
            return_updates=False,
        )
        logits = beta * (Qs[:-1, 1] - Qs[:-1, 0])
        pm.Bernoulli("choices", logit_p=logits, observed=action[1:])
    return model, None


@refused(r"\bhidden\b", r"[Ss]can|in full")
def hidden_markov_forward():
    rng = np.random.default_rng(3114)
    y = rng.normal(size=1116)
    with pm.Model() as model:
        P = pm.Dirichlet("P", np.ones((2, 2)))
        mu = pm.Normal("mu", [-1, 1], 1)
        emission = pm.logp(pm.Normal.dist(mu, 1), y[:, None])
        alphas = pytensor.scan(
            lambda e, a, P: e + pt.logsumexp(a[:, None] + pt.log(P), axis=0),
            sequences=[emission[1:]],
            outputs_info=[emission[0]],
            non_sequences=[P],
            return_updates=False,
        )
        pm.Potential("hidden", pt.logsumexp(alphas[-1]))
    return model, None


@refused(r"\breturns\b")
def garch():
    y = np.random.default_rng(3115).normal(size=1117)
    with pm.Model() as model:
        omega = pm.HalfNormal("omega", 1)
        alpha = pm.Beta("alpha", 2, 8)
        beta = pm.Beta("beta", 2, 8)
        pm.GARCH11("returns", omega=omega, alpha_1=alpha, beta_1=beta, initial_vol=1.0, observed=y)
    return model, None


@refused(r"\breturns\b", r"[Ss]can")
def garch_by_scan():
    y = np.random.default_rng(3116).normal(size=1118)
    with pm.Model() as model:
        omega = pm.HalfNormal("omega", 1)
        a = pm.Beta("a", 2, 8)
        b = pm.Beta("b", 2, 8)
        var = pytensor.scan(
            lambda y, v, omega, a, b: omega + a * y**2 + b * v,
            sequences=[pt.as_tensor(y[:-1])],
            outputs_info=[pt.ones(())],
            non_sequences=[omega, a, b],
            return_updates=False,
        )
        pm.Normal("returns", 0, pt.sqrt(var), observed=y[1:])
    return model, None


@refused(r"\by\b", r"\b([Mm]ean|[Ss]um|[Ss]td|[Vv]ar)\b")
def effects_centred_over_rows():
    y = np.random.default_rng(3117).normal(size=1119)
    with pm.Model() as model:
        sigma = pm.HalfNormal("sigma", 1)
        u = pm.Normal("u", 0, sigma, shape=1119)
        pm.Normal("y", (u - u.mean()) / u.std(), 1, observed=y)
    return model, None


@refused(r"\by\b", r"\b([Mm]ax|[Mm]in)\b")
def scaled_to_the_unit_interval():
    rng, X = columns(1120, 2, 3118)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2, initval=[1, 2])
        eta = X @ beta
        mu = (eta - pt.min(eta)) / (pt.max(eta) - pt.min(eta))
        pm.Normal("y", mu, 1, observed=rng.normal(size=1120))
    return model, None


@refused(r"\brepresenter\b", r"\bDot\b|@|[Mm]atrix|[Mm]atmul|product")
def kernel_regression():
    rng, X = columns(1500, 1, 3119)
    K = np.exp(-0.5 * (X - X.T) ** 2)
    with pm.Model() as model:
        v = pm.Normal("v", 0, 1, shape=1500)
        pm.Normal("representer", pm.math.dot(K, v), 1, observed=rng.normal(size=1500))
    return model, None


@refused(r"\brepresenter\b")
def kernel_regression_with_a_length_scale():
    rng, X = columns(1100, 1, 3120)
    D = (X - X.T) ** 2
    with pm.Model() as model:
        ell = pm.LogNormal("ell", 0, 0.3)
        v = pm.Normal("v", 0, 1, shape=1100)
        mu = pt.sum(pt.exp(-D / ell) * v[None, :], axis=1)
        pm.Normal("representer", mu, 1, observed=rng.normal(size=1100))
    return model, None


@refused("Minibatch")
def minibatch_of_groups():
    rng = np.random.default_rng(3121)
    with pm.Model() as model:
        g, y = pm.Minibatch(rng.integers(5, size=4000), rng.normal(size=4000), batch_size=1200)
        theta = pm.Normal("theta", 0, 1, shape=5)
        pm.Normal("y", theta[g], 1, observed=y, total_size=4000)
    return model, None


@refused("total_size")
def total_size_of_counts():
    rng, X = columns(1122, 2, 3122)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Poisson("y", pt.exp(X @ beta), observed=rng.poisson(1, size=1122), total_size=(50_000,))
    return model, None


@refused(r"\bfiltered\b", r"[Ss]can")
def moving_average_errors():
    y = np.random.default_rng(3123).normal(size=1123)
    with pm.Model() as model:
        theta = pm.Uniform("theta", -1, 1)
        err = pytensor.scan(
            lambda y, e, theta: y - theta * e,
            sequences=[pt.as_tensor(y)],
            outputs_info=[pt.zeros(())],
            non_sequences=[theta],
            return_updates=False,
        )
        pm.Potential("filtered", pm.logp(pm.Normal.dist(0, 1), err).sum())
    return model, None


@refused(r"\bsmoothed\b")
def kernel_smoothing_of_latents():
    rng = np.random.default_rng(3124)
    lags = np.abs(np.subtract.outer(np.arange(1124.0), np.arange(1124.0)))
    with pm.Model() as model:
        width = pm.HalfNormal("width", 5)
        z = pm.Normal("z", 0, 1, shape=1124)
        K = pt.exp(-0.5 * (lags / (width + 1)) ** 2)
        pm.Normal("smoothed", K @ z, 1, observed=rng.normal(size=1124))
    return model, None


@refused(r"\bspectrum\b", r"[Ff][Ff][Tt]|[Ff]ourier")
def fourier_transform_of_latents():
    y = np.random.default_rng(3125).normal(size=1126)
    with pm.Model() as model:
        z = pm.Normal("z", 0, 1, shape=1126)
        power = (fft.rfft(z[None, :]) ** 2).sum(axis=-1)[0]
        pm.Normal("spectrum", power, 1, observed=y[: 1126 // 2 + 1])
    return model, None


@refused(r"\bsimulated\b")
def simulator():
    y = np.random.default_rng(3126).normal(size=1127)

    def simulate(rng, mu, size=None):
        return rng.normal(mu, 1, size=1127)

    with pm.Model() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        mu = pm.Normal("mu", 0, 1)
        pm.Simulator("simulated", simulate, mu, sum_stat="sort", epsilon=1, observed=y)
    return model, None


class LogLike(Op):
    """Log-likelihood of a model of which only a function is known."""

    def make_node(self, theta, x, y):
        inputs = [pt.as_tensor(v) for v in (theta, x, y)]
        return Apply(self, inputs, [pt.vector(shape=(None,))])

    def perform(self, node, inputs, outputs):
        theta, x, y = inputs
        outputs[0][0] = -0.5 * (y - theta[0] - theta[1] * x) ** 2


@refused(r"\blikelihood\b", "LogLike")
def black_box_likelihood():
    rng, X = columns(1128, 1, 3127)
    with pm.Model() as model:
        m, c = pm.Uniform("m", -10, 10), pm.Uniform("c", -10, 10)
        theta = pt.as_tensor_variable([m, c])
        pm.Potential("likelihood", LogLike()(theta, X[:, 0], rng.normal(size=1128)))
    return model, None


@refused(r"\blikelihood\b", "LogLike")
def black_box_custom_dist():
    rng, X = columns(1129, 1, 3128)

    def logp(y, m, c):
        return LogLike()(pt.stack([m, c]), X[:, 0], y)

    with pm.Model() as model:
        m, c = pm.Normal("m", 0, 1), pm.Normal("c", 0, 1)
        pm.CustomDist("likelihood", m, c, logp=logp, observed=rng.normal(size=1129))
    return model, None


@refused(r"\bzero_sum\b")
def soft_sum_to_zero():
    first, second = np.arange(1130), np.roll(np.arange(1130), 1)
    with pm.Model() as model:
        phi = pm.Normal("phi", 0, 10, shape=1130)
        pm.Potential("pairs", -0.5 * pt.sum((phi[first] - phi[second]) ** 2))
        pm.Potential("zero_sum", pm.logp(pm.Normal.dist(0, 1.13), pt.sum(phi)))
    return model, None


@refused(r"\bdistance\b")
def distance_to_the_data():
    rng, X = columns(1131, 2, 3130)
    y = rng.normal(size=1131)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Potential("distance", -pt.sqrt(pt.sum((y - X @ beta) ** 2)))
    return model, None


@refused(r"\bpartial\b", r"[Cc]um")
def cox_partial_likelihood():
    rng, X = columns(1169, 2, 3131)
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=2)
        eta = X @ beta
        at_risk = pt.log(pt.cumsum(pt.exp(eta)[::-1])[::-1])
        pm.Potential("partial", pt.sum((eta - at_risk) * rng.integers(2, size=1169)))
    return model, None


# Short terms that select rows of a long predictor


def censored_survival(seed, as_mask):
    """Weibull survival of 1,500 subjects, of whom 400 are censored: a term below the threshold."""
    rng, X = columns(1500, 3, seed)
    time = rng.weibull(1.5, size=1500) + 0.01
    censored = np.zeros(1500, bool)
    censored[rng.choice(1500, 400, replace=False)] = True
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=3)
        alpha = pm.HalfNormal("alpha", 1)
        eta = X @ beta
        inside, outside = as_mask(censored)
        pm.Potential("censored", -((time[censored] / pt.exp(eta[inside])) ** alpha))
        # Two selections in one sum, of which the second overlaps the first.
        pm.Potential("ridge", -0.01 * (eta[inside] ** 2).sum() - 0.02 * (eta[300:600] ** 2).sum())
        pm.Weibull("observed", alpha, pt.exp(eta[outside]), observed=time[~censored])
    return model, ["beta"]


@required("observed")
def censored_rows_by_a_mask():
    return censored_survival(3150, lambda censored: (censored, ~censored))


@required("observed")
def censored_rows_by_their_numbers():
    return censored_survival(3151, lambda censored: (np.flatnonzero(censored), np.flatnonzero(~censored)))


@required("observed")
def censored_rows_by_a_mask_in_data():
    def as_mask(censored):
        mask = pm.Data("mask", censored)
        return mask, ~mask

    return censored_survival(3152, as_mask)


@required("table")
def cells_of_a_table_by_a_mask_in_data():
    rng, X = columns(1501, 2, 3153)
    few = np.zeros((1501, 4), bool)
    few[rng.integers(1501, size=150), rng.integers(4, size=150)] = True
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 1, shape=(2, 4))
        eta = X @ beta
        pm.Potential("few", -0.1 * eta[pm.Data("mask", few)] ** 2)
        pm.Normal("table", eta, 1, observed=rng.normal(size=(1501, 4)))
    return model, ["beta"]
