"""Leave-one-out cross-validation from a sample of rows, against ArviZ's from all rows."""

from pathlib import Path

import arviz_stats
import numpy as np
import pymc as pm
import pytest
from arviz_base import from_dict

import pymc_austerity as pma
from tests.peak_memory import peak_of

CHAINS, DRAWS = 2, 200
SPREAD = np.random.default_rng(1).normal(size=(CHAINS, DRAWS, 8))


def idata_of(**values):
    """Draws (chain, draw, ...)."""
    return from_dict({"posterior": values, "observed_data": {"y": np.zeros(1000)} if "mu" in values else {}})


def regression(n, columns=2, outlier=0.0):
    """A model, with draws near its posterior."""
    rng = np.random.default_rng(2)
    x = rng.normal(size=(n, 2))
    y = 1.0 + x @ [0.5, 0.2] + rng.normal(size=n)
    y[0] += outlier
    with pm.Model() as model:
        eta = pm.Normal("level") + x[:, :columns] @ pm.Normal("slopes", shape=columns)
        pm.Normal("y", eta, pm.HalfNormal("sigma"), observed=y)
    found, (rest,), *_ = np.linalg.lstsq(np.c_[np.ones(n), x[:, :columns]], y)
    sigma = np.sqrt(rest / n)
    draws = found + sigma / np.sqrt(n) * SPREAD[..., : 1 + columns]
    sigmas = sigma + sigma / np.sqrt(2 * n) * SPREAD[..., 7]
    return model, idata_of(level=draws[..., 0], slopes=draws[..., 1:], sigma=sigmas)


def by_arviz(model, idata, **given):
    """With a number for each row and draw."""
    whole = idata.copy()
    with model:
        pm.compute_log_likelihood(whole, progressbar=False)
    return arviz_stats.loo(whole, pointwise=True, **given)


def test_all_rows_are_those_of_arviz(monkeypatch):
    """In several pieces; with variables of which each is transformed in another way."""
    monkeypatch.setattr("pymc_austerity.model.loo._PIECE", 8 * CHAINS * DRAWS * 300)
    rng = np.random.default_rng(3)
    y, group = rng.normal(size=1100), rng.integers(3, size=1100)
    with pm.Model() as model:
        top, kind = pm.Normal("top"), pm.Bernoulli("kind", 0.5)
        between = pm.Uniform("between", lower=0, upper=pm.math.exp(top))
        weights = pm.Dirichlet("weights", np.ones(3))
        pm.Normal("alone")
        pm.Normal("y", weights[group] + kind * between, pm.HalfNormal("sigma"), observed=y)
    of_three = np.exp(0.1 * SPREAD[..., :3])
    draws = {
        "top": 0.1 * SPREAD[..., 3],
        "between": np.exp(0.1 * SPREAD[..., 3]) / (1 + np.exp(SPREAD[..., 4])),
        "kind": (SPREAD[..., 5] > 1).astype(int),
        "sigma": np.exp(0.05 * SPREAD[..., 6]),
        "weights": of_three / of_three.sum(axis=-1, keepdims=True),
    }
    idata = idata_of(**draws)
    with pytest.warns(pma.SubsamplingWarning, match=r"of the 1,100 rows drawn have a Pareto k above 0\.62"):
        found = pma.loo(idata, model, rows=np.arange(1100))
    sizes = [np.ravel(arviz_stats.ess(idata["posterior"][name], method="mean")) for name in draws]
    whole, reff = idata_of(alone=SPREAD[..., 7], **draws), np.concatenate(sizes).mean() / (CHAINS * DRAWS)
    with pytest.warns(UserWarning, match="Estimated shape parameter"):
        exact = by_arviz(model, whole, reff=reff)
    for name, tolerance in {"elpd_i": 1e-9, "pareto_k": 1e-5, "elpd": 1e-9, "p": 1e-9, "se": 1e-3}.items():
        np.testing.assert_allclose(np.ravel(found[name]), np.ravel(exact[name]), rtol=tolerance)
    assert found.subsampling_se == 0.0


def accurate(found, exact, coverage, ratio):
    """Do 95 % intervals cover as often, and is the stated error that of the estimates?"""
    elpd, se = np.array([[each.elpd, each.subsampling_se] for each in found]).T
    covered = np.mean(np.abs(elpd - exact) < 1.96 * se)
    return bool(
        coverage[0] <= covered <= coverage[1] and ratio[0] <= se.mean() / elpd.std(ddof=1) <= ratio[1]
    )


few = pytest.param(2000, 300, 40, (0.88, 1.0), (0.75, 1.25), marks=pytest.mark.slow("40 samples"))
many = pytest.param(
    10_000, 500, 200, (0.91, 0.98), (0.85, 1.15), marks=pytest.mark.full_size("200 samples of rows")
)


@pytest.mark.parametrize(("n", "n_rows", "repeats", "coverage", "ratio"), [few, many])
def test_stated_errors(n, n_rows, repeats, coverage, ratio):
    """Planted fault: rows that were drawn with weights, and count as if they were not."""
    model, idata = regression(n)
    exact = by_arviz(model, idata).elpd
    found = [pma.loo(idata, model, n_rows=n_rows, random_seed=k) for k in range(repeats)]
    assert accurate(found, exact, coverage, ratio)
    rng, y = np.random.default_rng(4), model.rvs_to_values[model["y"]].data
    weights = np.abs(y - y.mean()) / np.abs(y - y.mean()).sum()
    drawn = [rng.choice(n, n_rows, replace=False, p=weights) for _ in range(15)]
    assert not accurate([pma.loo(idata, model, rows=rows) for rows in drawn], exact, coverage, ratio)


def test_two_models_on_the_same_rows():
    (model, idata), (smaller, of_smaller) = (regression(3000, columns=k) for k in (2, 1))
    first = pma.loo(idata, model, n_rows=400, random_seed=1)
    second = pma.loo(of_smaller, smaller, rows=first)
    np.testing.assert_array_equal(first.loo_subsample_observations, second.loo_subsample_observations)
    assert pma.loo(idata, model, n_rows=400, random_seed=1).elpd == first.elpd
    other, others = regression(1200)
    with pytest.raises(ValueError, match="rows are some of 3,000, and 'y' has 1,200"):
        pma.loo(others, other, rows=first)
    table = arviz_stats.compare({"two": first, "one": second}, method="pseudo-bma", round_to="none")
    wanted = by_arviz(smaller, of_smaller).elpd - by_arviz(model, idata).elpd
    error = table.subsampling_dse["one"]
    assert abs(table.elpd_diff["one"] - wanted) < 3 * error < 0.2 * abs(wanted)


def test_rows_that_decide_the_fit_are_counted():
    model, idata = regression(1000, outlier=60.0)
    with pytest.warns(pma.SubsamplingWarning, match="^[12] of the 1,000 rows drawn have a Pareto k above"):
        found = pma.loo(idata, model)
    assert found.warning
    assert found.pareto_k[0] > 0.7


def counts(get):
    """A regression, with arrays that `get` finds by name."""
    with pm.Model() as model:
        pm.Poisson("count", pm.math.exp(get("x") @ pm.Normal("beta", shape=3)), observed=get("count"))
    return model


def stored(path):
    store = pma.RowStore.open(path)
    return counts(lambda name: pma.stored_data(f"of {name}", store[name]))


def written(path, n):
    """Rows, which are written, too."""
    rng = np.random.default_rng(6)
    x = rng.normal(size=(n, 3)).astype("float32")
    data = {"x": x, "count": rng.poisson(np.exp(x @ [0.3, -0.2, 0.1])).astype("int16")}
    pma.RowStore.write(data, path)
    return data


def coefficients(n):
    return idata_of(beta=np.array([0.3, -0.2, 0.1]) + SPREAD[..., :3] / np.sqrt(n))


def test_rows_on_disk_are_those_in_memory(tmp_path):
    data = written(tmp_path / "a.rows", 3000)
    models = stored(tmp_path / "a.rows"), counts(data.__getitem__)
    found, wanted = (pma.loo(coefficients(3000), model, n_rows=200, random_seed=1) for model in models)
    np.testing.assert_allclose(found.elpd_i, wanted.elpd_i, rtol=1e-12)
    assert found.elpd == pytest.approx(wanted.elpd, rel=1e-12)


@pytest.mark.full_size("2,600,000 rows on disk")
def test_memory(tmp_path):
    written(tmp_path / "a.rows", 2_600_000)
    script = f"""
    sys.path.insert(0, {str(Path(__file__).parents[2])!r})
    from tests.model.test_loo import coefficients, pma, stored
    idata, model = coefficients(int(sys.argv[2])), stored(sys.argv[1] + "/a.rows")
    peak(lambda: pma.loo(idata, model, random_seed=1))
    """
    assert 50e6 < peak_of(script, tmp_path, 2_600_000) < 500e6


@pytest.mark.slow("a sampler is run")
@pytest.mark.filterwarnings("ignore:.*(shape parameter of Pareto|a Pareto k above)")
def test_bambi():
    """Its results have the intercept of predictors that are not centred, and effects on their scale."""
    bmb, pandas = pytest.importorskip("bambi"), pytest.importorskip("pandas")
    rng = np.random.default_rng(7)
    data = pandas.DataFrame({"x": 3 + rng.normal(size=1000), "g": rng.integers(30, size=1000)})
    data["y"] = 1 + 0.5 * data["x"] + rng.normal(size=1000)
    model = bmb.Model("y ~ x + (1|g)", data)
    idata = pma.sample(model, 100, chains=2, cores=1, random_seed=1, progressbar=False, quiet=True)
    found = pma.loo(idata, model, n_rows=100, random_seed=1)
    exact = arviz_stats.loo(model.compute_log_likelihood(idata, inplace=False), pointwise=True)
    chosen = found.loo_subsample_observations
    np.testing.assert_allclose(found.elpd_i[chosen], exact.elpd_i[chosen], atol=0.01)


def observed(values, *names):
    return lambda mu: [pm.Normal(name, mu, 1.0, observed=values) for name in names or ["y"]]


@pytest.mark.filterwarnings("ignore:Data in y contains missing values")
@pytest.mark.parametrize(
    ("define", "given", "match"),
    [
        (observed(np.zeros(1000), "y", "z"), {}, "has the observed variables y, z. Say which by var_name"),
        (observed(np.zeros(1000), "y", "z"), {"var_name": "x"}, "var_name: 'x' is none of them"),
        (
            lambda mu: [pm.Potential(name, mu * np.ones(1000)) for name in "pq"],
            {},
            "the observed variables and potentials p, q. Say which by var_name",
        ),
        (
            observed(np.r_[np.nan, np.zeros(1000)]),
            {"var_name": "y"},
            "variables y_observed. var_name: 'y' is none",
        ),
        (observed(np.zeros(30)), {}, "'y' has 30 rows.*arviz.loo"),
        (
            lambda mu: pm.AR("y", [mu], 1.0, init_dist=pm.Normal.dist(), observed=np.zeros(1500)),
            {},
            "not consist of one number for each row",
        ),
        (observed(np.zeros(1000)), {"n_rows": 1}, "n_rows must be an integer of at least 2"),
        (observed(np.zeros(1000)), {"rows": [0, 1000]}, r"rows must be different integers in \[0, 1000\)"),
        (observed(np.zeros(1000)), {"rows": [1, 1]}, "rows must be different integers"),
        (observed(np.zeros(1000)), {}, "at some draws: they are none of this model"),
        (observed(np.ones(1000)), {}, "The data 'y' of the model are not those of idata"),
    ],
)
def test_refused(define, given, match):
    with pm.Model() as model:
        define(pm.Normal("mu"))
    idata = idata_of(mu=(np.nan if match.startswith("at some draws") else 0.1) * SPREAD[..., 0])
    with pytest.raises(ValueError, match=match):
        pma.loo(idata, model, **given)


def test_a_variable_is_missing_and_a_table_has_rows():
    """Rows do not depend on 'sigma'."""
    values = np.random.default_rng(5).normal(size=(1000, 2))
    with pm.Model() as model:
        pm.Normal("sigma"), pm.Normal("y", pm.Normal("means", shape=2), 1.0, observed=values)
    found = pma.loo(idata_of(means=0.03 * SPREAD[..., :2]), model, n_rows=300, random_seed=1)
    wanted = -0.5 * (values**2).sum(axis=1) - np.log(2 * np.pi)
    np.testing.assert_allclose(found.elpd_loo_approx, wanted, atol=0.02)
    with pytest.raises(ValueError, match="The posterior has no 'means', on which rows of 'y' depend"):
        pma.loo(idata_of(sigma=SPREAD[..., 0]), model)
