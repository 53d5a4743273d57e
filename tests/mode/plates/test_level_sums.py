"""Sums of columns of levels of other factors, by their cells, against those of a dense design by NumPy."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.mode.plates.center import Center
from pymc_austerity.mode.plates.group_means import locations, mean_shifts, slopes_of_locations
from pymc_austerity.mode.plates.sorted_rows import occupied
from pymc_austerity.model.compile.backend import interpreted
from tests.kernels.plates.cases import N_GROUPS, rows_of, survey_of_model

N = 600
FACTORS = {
    "crossed": lambda groups, rng: [rng.integers(0, 6, N)],
    "constant within groups": lambda groups, rng: [groups % 4],
    "two": lambda groups, rng: [rng.integers(0, 6, N), (groups + (rng.random(N) < 0.2)) % 5],
}


def expanded_with(factors, likelihood):
    """Two dense columns, one of them constant within groups and large, and a location of the effects."""
    rng, data = np.random.default_rng(43), rows_of(N)
    own = FACTORS[factors](data.groups, rng)
    of_groups = 1e6 + rng.normal(size=N_GROUPS)
    x = np.c_[data.x[:, 1], of_groups[data.groups]]
    with pm.Model() as model:
        u = pm.Normal("u", pm.Normal("mu"), pm.HalfNormal("tau"), shape=N_GROUPS)
        eta = x @ pm.Normal("beta", 0.0, [1.0, 1e-6], shape=2) + u[data.groups]
        for f, levels in enumerate(own):
            eta = eta + pm.Normal(f"v{f}", 0.0, pm.HalfNormal(f"tau{f}"), shape=6)[levels]
        if likelihood == "poisson":
            pm.Poisson("y", pm.math.exp(eta), observed=rng.poisson(1.0, N))
        else:  # weights of some groups nearly cancel
            pm.StudentT("y", nu=3.0, mu=eta, sigma=0.3, observed=rng.standard_t(2, N))
    with interpreted():
        _, survey = survey_of_model(model)
    theta = survey.start + 0.2 * np.arange(len(survey.start)) / len(survey.start)
    theta[survey.linear[survey.rows.dense]] *= [1.0, 1e-6]
    return survey.rows, *survey.expand(Center(theta, rng.normal(0.0, 0.3, N_GROUPS)))


def dense_columns(rows, n_columns):
    """All columns, with their groups."""
    groups = np.repeat(np.arange(N_GROUPS), np.diff(rows.starts))
    x = np.zeros((N, n_columns))
    x[:, rows.dense] = rows.x
    for one in rows.levels:
        x[np.arange(N), one] = 1.0
    return x, groups


@pytest.mark.parametrize("likelihood", ["poisson", "student"])
@pytest.mark.parametrize("factors", list(FACTORS))
def test_sums_are_those_of_a_dense_design(factors, likelihood):
    rows, at, sums = expanded_with(factors, likelihood)
    x, groups = dense_columns(rows, len(sums.center))
    expanded = at.group_weights > 0.0
    assert likelihood == "poisson" or not expanded.all()
    weights = np.where(expanded[groups], -at.curvatures, 1.0)
    means = np.zeros((N_GROUPS, x.shape[1]))
    for g in np.unique(groups):
        means[g] = np.average(x[groups == g], axis=0, weights=weights[groups == g])
    z = x - means[groups]
    largest = 1.0 + np.abs(x).max(axis=0)
    size = np.sqrt(np.diag(z.T @ (np.abs(weights)[:, None] * z))) + 1e-9 * largest
    information = z.T @ (-at.curvatures[:, None] * z)
    np.testing.assert_allclose(
        sums.information / np.outer(size, size), information / np.outer(size, size), atol=1e-9
    )
    np.testing.assert_array_equal(sums.information, sums.information.T)
    np.testing.assert_allclose(sums.gradient / largest, z.T @ at.slopes / largest, rtol=1e-9, atol=1e-11)
    d, v = np.random.default_rng(44).normal(size=(2, max(x.shape[1], N_GROUPS)))
    d, v = d[: x.shape[1]], v[:N_GROUPS]
    np.testing.assert_allclose(mean_shifts(sums, d), means @ d, rtol=1e-9)
    located = np.zeros_like(means)
    located[:, sums.moved] = sums.located
    np.testing.assert_allclose(locations(sums, d), sums.offsets + (means + located) @ d, rtol=1e-9)
    np.testing.assert_allclose(slopes_of_locations(sums, v), v @ (means + located), rtol=1e-9, atol=1e-9)
    assert sums.located.any()


@pytest.mark.parametrize("factors", list(FACTORS))
def test_what_is_constant_within_groups_does_not_vary(factors):
    """Exactly: neither a column of large numbers, nor levels that are those of the group."""
    _, _, sums = expanded_with(factors, "poisson")
    assert sums.varying.tolist() == [0]
    if factors == "constant within groups":
        columns = np.unique(sums.cells.columns)
        assert not sums.information[columns].any()
        assert not sums.gradient[columns].any()
        assert (sums.shares == 1.0).all()


def test_cells():
    """Of each group and factor, the levels of its rows, once."""
    rng = np.random.default_rng(45)
    starts = np.array([0, 4, 4, 30, 50])
    levels = np.stack([rng.integers(3, 7, 50), rng.integers(7, 20, 50)]).astype(np.int32)
    cells = occupied(levels, starts)
    for g in range(4):
        for f in range(2):
            own = cells.columns[cells.starts[2 * g + f] : cells.starts[2 * g + f + 1]]
            np.testing.assert_array_equal(np.sort(own), np.unique(levels[f, starts[g] : starts[g + 1]]))
    nothing = occupied(np.zeros((0, 50), np.int32), starts)
    assert nothing.starts.tolist() == [0]
