"""Models that are in public use: each ends in a step, of which the reason is true, and so is N."""

import logging
from inspect import isfunction

import pytest

from pymc_austerity import recommend
from pymc_austerity.step_methods.messages import rows_of_draw
from tests.integration import public_models as models

NO_FIELD = "effects of groups are not moved group by group: "
FEW = "few rows decide exactly"

# The step, the rows of the likelihood, and a part of the reason.
EXPECTED = {
    models.bradley_terry: ("NUTS", 3_000, "sweeps over 600 effects would read"),
    models.rasch: ("TunaMH", 2_100, "are a field of 426 effects"),
    models.multilevel_logit: ("TunaMH", 30_000, "are a field of 154 effects"),
    models.crossed_slopes: ("TunaMH", 3_000, "are a field of 1,143 effects"),
    models.radon: ("TunaMH", 3_000, "'a', 'z' and 'b' are a field of 1,202 effects"),
    models.bambi_intercepts: ("TunaMH", 3_000, "'1|subcat_offset' are a field of 104 effects"),
    models.bambi_poststratification: ("TunaMH", 3_000, "are a field of"),
    models.bambi_slopes: ("TunaMH", 3_000, "are a field of 247 effects"),
    models.poststratification_by_two_indices: ("TunaMH", 3_000, "are a field of 91 effects"),
    models.poststratification_by_one_index: ("TunaMH", 3_000, "are a field of"),
    models.football: ("TunaMH", 3_000, "are a field of 80 effects"),
    models.churn: ("TunaMH", 5_000, FEW),
    models.rates_of_users: ("MetropolisHastings", 3_000, "are a field of 3,000 effects"),
    models.beta_binomial: ("TunaMH", 3_000, FEW),
    models.discrete_choice: ("TunaMH", 3_000, FEW),
    models.mixed_logit: ("MetropolisHastings", 3_000, "are a field of 604 effects"),
    models.retail: ("MetropolisHastings", 3_000, "are a field of"),
    models.store_and_product: ("MetropolisHastings", 3_000, "are a field of"),
    models.many_slopes: ("NUTS", 3_000, "effects would read"),
    models.disease_map: ("TunaMH", 1_500, "'smooth' are a field of 130 effects"),
    models.measurement_error: ("NUTS", 3_000, f"{NO_FIELD}'x' enters times unknown numbers, and in another"),
    models.missing_covariates: ("TunaMH", 5_830, "are a field of 173 effects"),
    models.hurdle: ("TunaMH", 10_000, FEW),
    models.tobit: ("TunaMH", 3_000, FEW),
    models.media_mix: ("NUTS", 1_200, "rows are functions of 10 predictors, 9 at most have bounds"),
    models.dirichlet_multinomial: ("TunaMH", 1_200, FEW),
    models.repeat_buyers: ("TunaMH", 20_000, FEW),
}  # fmt: skip
LONG = pytest.mark.full_size("likelihood, structure and reason are those of others here or of suited.py")
LONGEST = (
    models.many_slopes,
    models.bambi_intercepts,
    models.poststratification_by_one_index,
    models.football,
    models.discrete_choice,
    models.store_and_product,
    models.hurdle,
    models.tobit,
)


def test_all_models_are_here():
    functions = (f for f in vars(models).values() if isfunction(f) and f.__module__ == models.__name__)
    assert {f for f in functions if not f.__name__.startswith("_")} == set(EXPECTED)
    assert len(EXPECTED) == 27


@pytest.mark.slow("kernels of most models are compiled")
@pytest.mark.filterwarnings("ignore::pymc_austerity.SubsamplingWarning")
@pytest.mark.filterwarnings("ignore:Data in .* contains missing values")
@pytest.mark.parametrize(
    "build", [pytest.param(b, id=b.__name__, marks=LONG if b in LONGEST else []) for b in EXPECTED]
)
def test_recommend(build, caplog):
    name, n_rows, reason = EXPECTED[build]
    caplog.set_level(logging.INFO, "pymc.austerity")
    step = recommend(build(), progressbar=False)
    why = step.recommendation
    assert type(step).__name__ == name
    assert reason in why.reason
    text, line = " ".join(str(why).split()), caplog.messages[-1]
    assert f"N = {n_rows:,} rows, D = {why.n_dim:,} dimensions" in text
    if why.rows is not None:
        for said in (line, text):
            assert rows_of_draw(why.rows, n_rows) in said
    if name != "TunaMH":
        assert reason in line
    if reason.startswith(NO_FIELD):
        assert why.reason.startswith(NO_FIELD)  # what can be changed comes first
    assert "not known" not in text
