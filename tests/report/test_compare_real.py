"""`compare` at a real size: what is known of the steps is what the report finds."""

import pytest

from pymc_austerity import AusterityMH, Laplace, TunaMH
from pymc_austerity.report import compare
from tests.benchmarks.logistic import model as logistic

N = 100_000


@pytest.mark.full_size("four steps and their reference on 100,000 rows")
def test_epsilon_is_told_from_exact_steps(tmp_path):
    """A random walk takes small steps, whose wrong decisions add up; independent draws of nearly the
    posterior are nearly right however they are decided.
    """
    model = logistic(N)
    steps = {
        f"epsilon = {epsilon}": AusterityMH(epsilon=epsilon, steps_per_draw=20, model=model)
        for epsilon in (0.2, 0.1)
    }
    steps["fitted"] = AusterityMH(epsilon=0.01, proposal=Laplace(), model=model)
    steps["tuna"] = TunaMH(model=model)
    result = compare(model, steps, budget={"draws": 1000}, tune=100, chains=2, n_pairs=5, random_seed=1)
    assert result.verdicts == {
        "epsilon = 0.2": "differs",
        "epsilon = 0.1": "differs",
        "fitted": "agrees",
        "tuna": "agrees",
    }, result
    table = result.to_dataframe()
    assert table.loc["epsilon = 0.2", "sd_ratio"] > table.loc["epsilon = 0.1", "sd_ratio"] > 1.5
    # What it costs: terms for each effective draw.
    cost = table["terms_per_effective_draw"]
    assert cost["tuna"] < 100
    assert cost["exact (reference)"] > N
    assert list(table["normality"][1:4]) == ["normal enough"] * 3
    page = result.to_html(tmp_path / "page.html")
    assert "could not be drawn" not in page
    assert len(page.encode()) < 3e6
