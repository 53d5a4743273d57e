"""Models that are in public use: each ends in a step, of which the reason is true, and so is N."""

import logging
from typing import NamedTuple

import pytest

from pymc_austerity import recommend
from tests.integration import public_models

PLATE = "effects of groups are not moved group by group: "
FEW = "few rows decide exactly"
SLOW = "draws of a pilot run were worth about"


class Expected(NamedTuple):
    """The step, the rows of the likelihood, and a part of the reason."""

    step: str
    n_rows: int
    reason: str


EXPECTED = {
    "bradley_terry": Expected(
        "NUTS", 19_500, f"{PLATE}rows of the term 'won' look up 'z' in more than one way"
    ),
    "rasch": Expected("NUTS", 4_686, "contain the difference of 'z_b' and 'z_theta'"),
    "multilevel_logit": Expected("TunaMH", 30_000, "'z_state' are effects of 120 groups"),
    "crossed_slopes": Expected(
        "NUTS", 10_000, "contain 3 effects of each of 80 groups in 'z_item', and 3 of"
    ),
    "radon": Expected("TunaMH", 8_000, "'z' are effects of 600 groups"),
    "bambi_intercepts": Expected("TunaMH", 4_000, "'1|subcat_offset' are effects of 400 groups"),
    "bambi_poststratification": Expected("NUTS", 6_000, SLOW),
    "bambi_slopes": Expected(
        "TunaMH", 3_000, "'1|cluster_offset' and 'sex|cluster_offset' are effects of 90"
    ),
    "poststratification_by_two_indices": Expected("TunaMH", 6_000, "'z_state' are effects of 46 groups"),
    "poststratification_by_one_index": Expected("NUTS", 6_000, SLOW),
    "football": Expected("MetropolisHastings", 9_904, "TunaMH would draw about"),
    "churn": Expected("TunaMH", 50_000, FEW),
    "rates_of_users": Expected(
        "NUTS", 5_000, f"{PLATE}each row of the term 'clicks' has an element of 'theta' of its own"
    ),
    "beta_binomial": Expected("TunaMH", 10_000, FEW),
    "discrete_choice": Expected("TunaMH", 5_000, FEW),
    "mixed_logit": Expected("NUTS", 3_000, f"{PLATE}the likelihood 'choice' is of categories"),
    "retail": Expected("NUTS", 12_000, "contain 8 effects of their group in 'coefs', and 4 at most"),
    "store_and_product": Expected(
        "NUTS", 15_000, "has a free dispersion or the like, and 'v' and 'u' are crossed"
    ),
    "many_slopes": Expected("NUTS", 6_000, "contain 20 effects of their group in 'z_b', and 4 at most"),
    "disease_map": Expected("NUTS", 5_000, "the prior of 'smooth' is ICAR, one of all its elements together"),
    "measurement_error": Expected(
        "NUTS", 6_000, f"{PLATE}each row of the term 'seen' has an element of 'x' of its own"
    ),
    "missing_covariates": Expected("NUTS", 5_830, "'x_unobserved' are missing values of 'x'"),
    "hurdle": Expected("TunaMH", 10_000, FEW),
    "tobit": Expected("TunaMH", 10_000, FEW),
    "media_mix": Expected("NUTS", 3_000, "depends on 9 numbers beside a linear predictor"),
    "dirichlet_multinomial": Expected(
        "MetropolisHastings", 3_000, "no bound is known for all Taylor remainders"
    ),
    "repeat_buyers": Expected("TunaMH", 20_000, FEW),
}


def test_all_models_are_here():
    assert [build.__name__ for build in public_models.ALL] == list(EXPECTED)
    assert len(EXPECTED) == 27


@pytest.mark.slow("kernels of most models are compiled")
@pytest.mark.filterwarnings("ignore::pymc_austerity.SubsamplingWarning")
@pytest.mark.filterwarnings("ignore:Data in .* contains missing values")
@pytest.mark.parametrize("build", public_models.ALL, ids=lambda build: build.__name__)
def test_recommend(build, caplog):
    expected = EXPECTED[build.__name__]
    caplog.set_level(logging.INFO, "pymc.austerity")
    step = recommend(build(), progressbar=False)
    why = step.recommendation
    assert type(step).__name__ == expected.step
    assert expected.reason in why.reason
    text, line = " ".join(str(why).split()), caplog.messages[-1]
    assert f"N = {expected.n_rows:,} rows, D = {why.n_dim:,} dimensions" in text
    if why.rows is not None:
        assert f"{expected.n_rows:,} rows a draw" in line
        assert f"of {expected.n_rows:,} for a draw" in text
    if expected.step != "TunaMH":
        assert expected.reason in line
    if expected.reason.startswith(PLATE):
        assert why.reason.startswith(PLATE)  # what can be changed comes first
    assert "not known" not in text
