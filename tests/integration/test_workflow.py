"""What a user does with a posterior: summaries, predictions, comparison, a progress bar."""

import io

import arviz as az
import numpy as np
import pymc as pm
import pytest
from pymc.progress_bar import rich_progress
from rich.console import Console

from pymc_austerity import AusterityMH, RandomWalk, find_mode

from .conftest import MODE, N

INTERPRETED = pytest.mark.usefixtures("interpreted")


@pytest.fixture(scope="module")
def idata(line, draw):
    """Four chains, with PyMC's own checks."""
    step = AusterityMH(epsilon=0.005, steps_per_draw=5, model=line)
    options = {"initvals": find_mode(line), "random_seed": 21, "compute_convergence_checks": True}
    return draw(line, step, draws=500, tune=500, chains=4, **options)


class TestSummary:
    def test_summary(self, idata):
        table = az.summary(idata, round_to="none")
        assert list(table.index) == ["a", "b", "sigma"]
        assert (table["r_hat"].astype(float) < 1.05).all()
        assert (table["ess_bulk"].astype(float) > 200).all()

    def test_close_to_the_posterior(self, idata, line):
        """Of a linear model with a flat prior. The tolerance is 5 Monte Carlo errors."""
        x_y = line.rvs_to_values[line["y"]].data
        rng = np.random.default_rng(101)
        design = np.column_stack([np.ones(N), rng.normal(size=N)])
        mean, (rss,), *_ = np.linalg.lstsq(design, x_y, rcond=None)
        sd = np.sqrt(rss / N / np.diag(design.T @ design))
        for name, exact, s in zip(("a", "b"), mean, sd, strict=True):
            draws = idata.posterior[name]
            ess = float(az.ess(idata)[name])
            assert float(draws.mean()) == pytest.approx(exact, abs=5 * s / np.sqrt(ess))
            assert float(draws.std()) == pytest.approx(s, rel=0.25)

    def test_saved_and_read_again(self, idata, tmp_path):
        idata.to_netcdf(tmp_path / "idata.nc")
        again = az.from_netcdf(tmp_path / "idata.nc")
        np.testing.assert_array_equal(again.posterior["b"], idata.posterior["b"])


class TestPrediction:
    """On all the data: nothing of the model was subsampled for good."""

    def test_posterior_predictive(self, idata, line):
        with line:
            found = pm.sample_posterior_predictive(
                idata.isel(draw=slice(0, 20)), random_seed=1, progressbar=False
            )
        y = found.posterior_predictive["y"]
        assert y.shape == (4, 20, N)
        assert y.dims == ("chain", "draw", "row")
        assert float(y.mean()) == pytest.approx(line.rvs_to_values[line["y"]].data.mean(), abs=0.05)

    def test_log_likelihood_and_loo(self, idata, line):
        some = idata.isel(draw=slice(0, 100))
        with line:
            some = pm.compute_log_likelihood(some, progressbar=False)
        assert some.log_likelihood["y"].shape == (4, 100, N)
        loo = az.loo(some)
        assert loo.n_data_points == N
        assert 1.0 < loo.p < 6.0
        assert float(loo.pareto_k.max()) < 0.7


class TestProgressBar:
    """Rendered into a string, wide enough for all columns."""

    @pytest.fixture
    def show(self, monkeypatch, line, draw):
        file = io.StringIO()

        def console(**kwargs):
            return Console(**{**kwargs, "file": file, "force_terminal": True, "width": 200, "height": 50})

        def shown(step, progressbar=True, **kwargs):
            options = {"draws": 10, "tune": 10, "initvals": MODE, "random_seed": 1, "quiet": False, **kwargs}
            draw(line, step, progressbar=progressbar, **options)
            return file.getvalue()

        monkeypatch.setattr(rich_progress, "Console", console)
        return shown

    @INTERPRETED
    def test_columns(self, step, show):
        text = show(step)
        assert "Accept" in text
        assert "Rows" in text

    @pytest.mark.parametrize("bar", ["combined", "split"])
    def test_with_and_without_statistics(self, step, show, bar):
        assert "Rows" not in show(step, bar)
        assert "Rows" in show(step, f"{bar}+stats")

    @INTERPRETED
    def test_the_last_numbers_are_shown(self, line, show):
        step = AusterityMH(model=line, batch_size=N)
        text = show(step)
        assert f" {N:,} " in text

    @INTERPRETED
    def test_two_steps_beside_nuts(self, line, show):
        walk = RandomWalk(scale=0.02)
        with line:
            steps = [AusterityMH([line[n]], proposal=walk) for n in ("a", "b")]
            steps.append(pm.NUTS([line["sigma"]]))
        text = show(steps)
        header = next(row for row in text.splitlines() if "Rows" in row)
        assert header.count("Accept") == 1
        assert header.count("Rows") == 1
        assert "Step size" in text

    def test_two_cores(self, step, show):
        assert "Rows" in show(step, cores=2, mp_ctx="fork")


@INTERPRETED
class TestLongDeterministics:
    """Recording them costs more than the draws; the user is told once, when the step is made."""

    @pytest.mark.parametrize("shared", [False, True], ids=["array", "pm.Data"])
    def test_warning(self, caplog, shared):
        x = np.random.default_rng(1).normal(size=12_000)
        with pm.Model():
            beta = pm.Normal("beta")
            mu = pm.Deterministic("mu", beta * (pm.Data("x", x) if shared else x))
            pm.Normal("y", mu, 1.0, observed=x)
            with caplog.at_level("WARNING", logger="pymc_austerity"):
                AusterityMH()
        (record,) = [r for r in caplog.records if r.name.startswith("pymc_austerity")]
        assert "'mu' has 12000 elements" in record.getMessage()
        assert "var_names" in record.getMessage()

    def test_short_ones_are_fine(self, caplog, line):
        with pm.Model():
            beta = pm.Normal("beta", shape=3)
            pm.Deterministic("twice", 2 * beta)
            pm.Normal("y", beta[0], 1.0, observed=np.zeros(1000))
            with caplog.at_level("DEBUG", logger="pymc_austerity"):
                AusterityMH()
        assert not [r for r in caplog.records if r.levelname == "WARNING"]
