"""Estimates with control variates: deviations have mean zero, errors fall, and nothing is biased."""

import numba
import numpy as np
import pymc as pm
import pytest
from scipy import stats
from scipy.special import expit
from xarray import open_datatree

import pymc_austerity as pma
from pymc_austerity import Laplace, MetropolisHastings, TunaMH
from pymc_austerity.kernels.fields.law import N_KNOTS, propose
from pymc_austerity.kernels.fields.records import Law
from pymc_austerity.proposals.deviations import begin_again, no_deviations, note, with_room
from pymc_austerity.proposals.laplace import propose_laplace
from pymc_austerity.sampling.estimates import GROUP
from pymc_austerity.target import QuadraticProxy

LIMIT = 4.5  # standard errors, of a few dozen comparisons


# Sums ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 31, 32, 33, 64, 65, 1000])
def test_batches_are_joined_two_by_two(n):
    """Finds a batch that is lost or counted twice, a length that is off by one."""
    deviations, given = with_room(no_deviations(3)), np.random.default_rng(n).normal(size=(n, 2, 3))
    begin_again(deviations, 1)
    for one in given:
        deviations.latest[:] = one
        note(deviations)
    length, counted = deviations.counts
    assert counted == n
    assert n <= length * len(deviations.sums) <= max(2 * n, len(deviations.sums))
    for b, found in enumerate(deviations.sums):
        np.testing.assert_allclose(found, given[b * length : (b + 1) * length].sum(axis=0), atol=1e-10)


def z_of_mean(deviations):
    return deviations.mean(axis=0) / deviations.std(axis=0) * np.sqrt(len(deviations))


@numba.njit
def of_moves(n, rng, state, q):
    found = np.empty((n, 2, q.shape[0]))
    for t in range(n):
        propose_laplace(state, q, rng)
        found[t] = state.deviations.latest
    return found


@pytest.mark.parametrize(("kind", "rho"), [("independence", None), ("pcn", 0.6)])
def test_deviations_of_fitted_moves_have_mean_zero(kind, rho):
    """Finds variances of whitened coordinates, a mean that does not follow the state."""
    cov = np.array([[2.0, 0.7], [0.7, 0.5]])
    proxy = QuadraticProxy(np.array([1.0, -3.0]), np.linalg.inv(cov))
    state = Laplace(kind, rho=rho, mix=0.0).bind_to(proxy).state
    found = of_moves(100_000, np.random.default_rng(1), state, np.array([4.0, -2.0]))
    assert np.abs(z_of_mean(found)).max() < LIMIT
    spread = (1.0 - (rho or 0.0) ** 2) * np.diag(cov)
    np.testing.assert_allclose(found[:, 0].var(axis=0), spread, rtol=0.03)


def test_variances_of_other_coordinates_would_be_noticed():
    """Planted fault: the variance of a whitened coordinate for that of q."""
    proxy = QuadraticProxy(np.zeros(2), np.linalg.inv(np.array([[2.0, 0.7], [0.7, 0.5]])))
    state = Laplace(mix=0.0).bind_to(proxy).state
    wrong = state._replace(variances=np.ones(2))
    found = of_moves(100_000, np.random.default_rng(1), wrong, np.zeros(2))
    assert np.abs(z_of_mean(found))[1].min() > 10.0 * LIMIT


@numba.njit
def of_theta(n, rng, law, theta, deviations):
    found, new = np.empty((n, 2, theta.shape[0])), np.empty_like(theta)
    for t in range(n):
        propose(rng, law, 0.0, theta, new, deviations)
        found[t] = deviations.latest
    return found


@pytest.mark.parametrize("q", [1, 3, 9])
def test_deviations_of_scores_have_mean_zero_given_the_others(q):
    """Finds a variance without the width of t, or of a coordinate without those that stay."""
    rng = np.random.default_rng(q)
    correlation = stats.random_correlation.rvs(np.full(q, 1.0), random_state=1) if q > 1 else np.eye(1)
    factor = np.linalg.cholesky(0.5 * correlation + 0.5 * np.ones((q, q)))
    knots = np.tile(np.linspace(-6.0, 6.0, N_KNOTS), (q, 1))
    no_units = np.full(q, -1)
    law = Law(np.arange(q), np.zeros(q), np.ones(q), knots, factor, np.linalg.inv(factor), no_units)
    theta = factor @ rng.normal(size=q) + 0.5
    found = of_theta(200_000, rng, law, theta, no_deviations(q))
    # Coordinates that are left as they are keep what was noted before: thin to independent ones.
    found = found[:: 1 if q <= 6 else 6]
    assert np.abs(z_of_mean(found)).max() < LIMIT


# Estimates -----------------------------------------------------------------------------------------------


def regression(n=4000):
    rng = np.random.default_rng(5)
    x = rng.normal(size=n)
    y = rng.binomial(1, expit(0.3 + 0.5 * x))
    with pm.Model() as model:
        level, slope = pm.Normal("level"), pm.Normal("slope")
        pm.Deterministic("odds", pm.math.exp(level))
        pm.Bernoulli("y", logit_p=level + slope * x, observed=y)
    return model


def skewed():
    """A few rows: the posterior is far from normal, and many proposals are rejected."""
    rng = np.random.default_rng(3)
    x = 2.0 * rng.normal(size=8)
    y = (x + rng.normal(size=8) > 1.0).astype(int)
    with pm.Model() as model:
        level, slope = pm.Normal("level", 0, 3), pm.Normal("slope", 0, 3)
        pm.Bernoulli("y", logit_p=level + slope * x, observed=y)
    grid = np.linspace(-14.0, 14.0, 561)
    a, b = np.meshgrid(grid, grid, indexing="ij")
    eta = a[..., None] + b[..., None] * x
    logp = stats.norm(0, 3).logpdf(a) + stats.norm(0, 3).logpdf(b) + (y * eta - np.logaddexp(0, eta)).sum(-1)
    p = np.exp(logp - logp.max())
    p /= p.sum()
    means = np.array([(p * a).sum(), (p * b).sum()])
    return model, means, np.sqrt([(p * a**2).sum() - means[0] ** 2, (p * b**2).sum() - means[1] ** 2])


def hierarchy():
    rng = np.random.default_rng(4)
    group, effects = np.arange(20_000) % 40, rng.normal(0, 0.5, 40)
    y = rng.binomial(1, expit(0.3 + effects[group]))
    with pm.Model() as model:
        level, scale = pm.Normal("level"), pm.HalfNormal("scale")
        effect = pm.Normal("effect", 0, scale, shape=40)
        pm.Bernoulli("y", logit_p=level + effect[group], observed=y)
    return model


def sampled(model, step, seed, draws=500, chains=4, **more):
    return pma.sample(
        draws, tune=100, chains=chains, cores=1, random_seed=seed, quiet=True, step=step, model=model,
        compute_convergence_checks=False, **more,
    )  # fmt: skip


def replicates(model, step, names, n):
    """Plain and better means, standard deviations and stated errors, (n, elements) each."""
    found = []
    for seed in range(n):
        idata = sampled(model, step, seed)
        table = pma.estimates(idata, var_names=names)
        draws = [idata["posterior"][name].to_numpy().reshape(2000, -1) for name in names]
        flat = np.concatenate(draws, axis=1)
        columns = [table[column].to_numpy() for column in ("mean", "sd", "mcse_mean")]
        found.append([flat.mean(axis=0), flat.std(axis=0), *columns])
    return np.array(found).transpose(1, 0, 2)


@pytest.mark.parametrize(
    ("make", "n"),
    [
        pytest.param(regression, 16, marks=pytest.mark.slow("16 replicates of chains")),
        pytest.param(regression, 200, marks=pytest.mark.full_size("200 replicates of chains")),
        pytest.param(hierarchy, 200, marks=pytest.mark.full_size("200 replicates of chains")),
    ],
)
def test_errors_are_half_as_large_or_smaller(make, n):
    """Finds deviations of another coordinate or another batch, slopes of the wrong sign."""
    model = make()
    names = [str(rv.name) for rv in (*model.free_RVs, *model.deterministics)]
    plain, plain_sd, mean, sd, stated = replicates(model, TunaMH(model=model), names, n)
    share = mean.var(axis=0) / plain.var(axis=0)
    # The ratio of two variances of some replicates, of draws that have much in common.
    assert np.median(share) < 0.25
    assert share.max() < 1.0
    # Second moments of effects that share a level have products of deviations, which are not summed.
    most = 0.5 if make is regression else 1.0
    assert np.median(sd.var(axis=0) / plain_sd.var(axis=0)) < most
    assert 0.75 < np.median(stated.mean(axis=0) / mean.std(axis=0)) < 1.3
    moved = (mean - plain).mean(axis=0) / (mean - plain).std(axis=0) * np.sqrt(len(mean))
    assert np.abs(moved).max() < LIMIT


@pytest.mark.filterwarnings("ignore:Tuning ended")  # of a posterior of eight rows
@pytest.mark.full_size("200 replicates of chains")
def test_where_proposals_are_poor_nothing_is_lost_and_nothing_is_biased():
    """Finds slopes of one that are not estimated, means of accepted proposals alone."""
    model, means, sds = skewed()
    step = MetropolisHastings(model=model, proposal=Laplace(), threshold=3)
    plain, _, mean, sd, _ = replicates(model, step, ["level", "slope"], 200)
    assert (mean.var(axis=0) / plain.var(axis=0)).max() < 1.05
    for found, true in ((mean, means), (sd, sds)):
        z = (found.mean(axis=0) - true) / found.std(axis=0) * np.sqrt(len(found))
        assert np.abs(z).max() < LIMIT


def test_a_table_has_a_row_for_each_element_and_all_columns_of_arviz(tmp_path):
    model = hierarchy()
    idata = sampled(model, TunaMH(model=model), 1, trace=tmp_path / "draws.zarr")
    table = pma.estimates(idata)
    assert len(table) == 42
    assert table.loc["effect[7]", "gain"] > 1.5
    assert {"mean", "sd", "ess_bulk", "ess_tail", "r_hat", "mcse_mean", "mcse_sd"} <= set(table.columns)
    draws = idata["posterior"]["effect"][..., 7].to_numpy()
    assert abs(table.loc["effect[7]", "mean"] - draws.mean()) < 0.15 * draws.std()
    low, high = (table.loc["effect[7]", f"eti89_{end}"] for end in ("lb", "ub"))
    assert 0.85 < np.mean((low < draws) & (draws < high)) < 0.93
    again = open_datatree(tmp_path / "draws.zarr", engine="zarr", consolidated=False)
    np.testing.assert_array_equal(pma.estimates(again, var_names=["scale"]), table.loc[["scale"]])
    with pytest.raises(ValueError, match="'scael' is not in the posterior. Did you mean 'scale'"):
        pma.estimates(idata, var_names=["scael"])


def test_results_without_sums_and_those_that_were_cut_are_refused():
    model = regression()
    step = TunaMH(model=model)
    idata = sampled(model, step, 1, draws=200, chains=2)
    thinned = idata.copy()
    thinned["posterior"] = idata["posterior"].isel(draw=slice(0, 100))
    with pytest.raises(ValueError, match="100 draws of a chain, and proposals were summed for 200"):
        pma.estimates(thinned)
    thinned["posterior"] = idata["posterior"].isel(draw=slice(None, None, -1))
    with pytest.raises(ValueError, match="were summed for 200 in a row"):
        pma.estimates(thinned)
    other = idata.copy()
    other["posterior"] = idata["posterior"].isel(chain=[1])
    with pytest.raises(ValueError, match="are not those for which proposals were summed"):
        pma.estimates(other)
    del idata[GROUP]
    with pytest.raises(ValueError, match="idata has no group 'deviations'"):
        pma.estimates(idata)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"var_names": []}, "var_names is empty"),
        ({"ci_prob": 1.5}, "ci_prob must be"),
        ({"idata": None}, "idata must be what sample has returned"),
    ],
)
def test_arguments_are_checked(given, said):
    model = regression()
    found = {"idata": sampled(model, TunaMH(model=model), 1, draws=100, chains=2), **given}
    with pytest.raises(ValueError, match=said):
        pma.estimates(**found)


def test_where_nothing_is_rejected_an_error_is_left():
    """Planted fault: the error of the residuals alone, which is rounding."""
    rng = np.random.default_rng(6)
    with pm.Model() as model:
        x = np.round(rng.normal(size=300_000), 2)
        level, slope = pm.Normal("level"), pm.Normal("slope")
        pm.Bernoulli("y", logit_p=level + slope * x, observed=rng.binomial(1, expit(0.3 + 0.5 * x)))
    step = TunaMH(model=model, proposal=Laplace(mix=0.0))
    table = pma.estimates(sampled(model, step, 1, draws=100, chains=4))
    assert (table["mcse_mean"] > 2.5 * table["sd"] / 400).all()
    assert table["gain"].max() < 400


def test_a_plain_row_is_that_of_arviz_where_no_proposal_is_known():
    """One chain has too few batches for a regression."""
    import arviz_stats

    model = regression()
    idata = sampled(model, TunaMH(model=model), 1, draws=300, chains=1)
    found = pma.estimates(idata)
    table = arviz_stats.summary(idata, round_to="none", ci_kind="eti")
    np.testing.assert_array_equal(found[list(table.columns)], table)
    assert (found["gain"] == 1.0).all()
