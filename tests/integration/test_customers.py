"""Models of customer bases, spelled as pymc-marketing does, and the page on them."""

import re
from pathlib import Path

import arviz as az
import numpy as np
import pymc as pm
import pytest
from scipy import stats

import pymc_austerity as pma
from pymc_austerity.bounds.expressions.guards import is_defined_everywhere
from pymc_austerity.bounds.expressions.node import ordered
from pymc_austerity.model.structure.term_structure import TermStructure
from tests.benchmarks import customers

# Customers; with seven predictors of each few rows decide among more of them.
N, MANY = 10_000, 100_000
LIMIT = 4.5
LONG = pytest.mark.full_size("the most rows, and functions that other cases have")
LONG_AND_SHORT = [
    pytest.param(build, marks=LONG if build is customers.bg_nbd_covariates else ())
    for build in customers.MODELS
]


@pytest.mark.parametrize("build", [customers.bg_nbd, customers.bg_nbd_covariates], ids=lambda f: f.__name__)
def test_bounds_of_bg_nbd_have_no_pole(build):
    """b + x - 1 is a denominator in the rows with x > 0 alone; gamma functions are rising factorials."""
    (rows,) = TermStructure(pma.factorise(build(2000))).row_functions
    assert is_defined_everywhere(rows.expression)
    operations = {one.op for one in ordered(rows.expression) if one.moves}
    assert "rising_exp" in operations
    assert operations.isdisjoint({"gammaln", "rising", "log"})


def unconstrained(model, idata):
    """Draws (chain, draw, ...) of the values that PyMC's log density is a function of."""
    found = {}
    for rv, value in model.rvs_to_values.items():
        if rv in model.free_RVs:
            draws, transform = idata.posterior[rv.name].values, model.rvs_to_transforms[rv]
            found[value.name] = (
                draws if transform is None else transform.forward(draws, *rv.owner.inputs).eval()
            )
    return found


def by_importance(model, draws, n):
    """Means, standard deviations and their number of draws by importance sampling with PyMC's log density."""
    parts = {name: one.reshape(-1, *one.shape[2:]) for name, one in draws.items()}
    flat = np.concatenate([one.reshape(len(one), -1) for one in parts.values()], axis=1)
    around = stats.multivariate_t(flat.mean(axis=0), 1.1 * np.cov(flat.T), df=10, seed=3)
    points, logp = around.rvs(n), model.compile_logp()
    ends = np.cumsum([one[0].size for one in parts.values()])[:-1]
    shapes = [one.shape[1:] for one in parts.values()]
    log_w = -around.logpdf(points)
    for k, point in enumerate(points):
        pieces = (one.reshape(shape) for one, shape in zip(np.split(point, ends), shapes, strict=True))
        log_w[k] += logp(dict(zip(parts, pieces, strict=True)))
    w = np.exp(log_w - log_w.max())
    w /= w.sum()
    mean = w @ points
    return mean, np.sqrt(w @ (points - mean) ** 2), 1.0 / (w @ w)


@pytest.mark.slow("whole chains against an independent method")
@pytest.mark.filterwarnings("ignore:Cannot cache compiled function")  # PyMC's own log density
@pytest.mark.parametrize("build", LONG_AND_SHORT, ids=lambda f: f.__name__)
def test_few_rows_decide_exactly(build):
    n = MANY if build is customers.bg_nbd_covariates else N
    model = build(n)
    step = pma.recommend(model, progressbar=False, verbose=False)
    assert isinstance(step, pma.TunaMH | pma.MetropolisHastings)  # where equal rows are joined, all are few
    with model:
        idata = pma.sample(1000, step=step, chains=2, random_seed=1, progressbar=False, quiet=True)
    assert float(idata.sample_stats["n_used"].mean()) < 0.2 * n
    draws = unconstrained(model, idata)
    mean, sd, size = by_importance(model, draws, 1000 if n == MANY else 2000)
    assert size > 200
    columns = [one[..., *k] for one in draws.values() for k in np.ndindex(one.shape[2:])]
    for column, m, s in zip(columns, mean, sd, strict=True):
        assert abs(column.mean() - m) < LIMIT * np.hypot(az.mcse(column), s / np.sqrt(size))
        error = np.hypot(az.mcse(column, method="sd"), s / np.sqrt(size))
        assert abs(column.std() - s) < LIMIT * error


@pytest.mark.slow("kernels are compiled")
def test_distributions_of_pymc_marketing():
    """Where it is installed: up to version 1.3 it does not allow PyMC 6.4."""
    theirs = pytest.importorskip(
        "pymc_marketing.clv.distributions",
        exc_type=ImportError,
        reason="pymc-marketing asks for PyMC below 6.4",
    )
    rng = np.random.default_rng(2)
    T = rng.integers(27, 78, size=20_000).astype(float)
    t_x, x = customers.purchases(rng, T, 0.9, 9.0, 0.8, 2.5)
    for kind in (theirs.BetaGeoNBD, theirs.ModifiedBetaGeoNBD):
        with pm.Model() as model:
            alpha, r = pm.Weibull("alpha", 2, 10), pm.Weibull("r", 2, 1)
            phi, kappa = pm.Uniform("phi"), pm.Pareto("kappa", 1, 1)
            kind("y", a=phi * kappa, b=(1 - phi) * kappa, r=r, alpha=alpha, T=T, observed=np.c_[t_x, x])
        step = pma.recommend(model, progressbar=False, verbose=False)
        assert isinstance(step, pma.TunaMH)
        assert step.recommendation.rows < 100


@pytest.mark.slow("two pilot runs")
@pytest.mark.filterwarnings("ignore:Numba will use object mode")
def test_the_page_on_customers():
    """With fewer customers and draws than it has."""
    page = Path(__file__).parents[2] / "docs" / "howto" / "customers.md"
    short = {"n = 1_000_000": "n = 5_000", "sample(1000, chains=4": "sample(50, tune=50, chains=1"}
    scope = {}
    for source in re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE):
        for long, brief in short.items():
            source = source.replace(long, brief)
        exec(source, scope)
    assert scope["idata"].posterior["a"].shape == (1, 50)
    assert scope["draws"].shape == (50,)
    # By the beta-binomial distribution of the same dropout: what the two formulas have in common.
    assert 0.0 < scope["draws"].mean() < 26.0
    assert scope["bought"].shape == (3,)
    assert len(scope["counts"]) == scope["fewer"].shape[0]
