"""Simulation-based calibration: of the reference, which tries the harness, and of TunaMH."""

import numpy as np
import pytest

from tests.statistical.plates.calibration import LEVEL, Study, p_values, ranks, replicates
from tests.statistical.plates.models import reference_of
from tests.statistical.plates.reference import sample

DRAWS = 31


def ranks_of_reference(study, replications, **options):
    out = []
    for k, data in enumerate(replicates(study, replications, seed=1)):
        model = reference_of(data, beta_sd=study.beta_sd, tau_sd=study.tau_sd)
        out.append(ranks(data, sample(model, DRAWS, [2, k], **options)))
    return np.array(out)


@pytest.mark.slow("500 posteriors")
@pytest.mark.parametrize("family", ["logistic", "poisson"])
def test_ranks_of_the_reference_are_uniform(family):
    study = Study(family)
    p = p_values(study, ranks_of_reference(study, 500, thin=40, rounds=10), DRAWS)
    print(p)
    assert min(p.values()) > LEVEL


@pytest.mark.slow("200 posteriors")
def test_a_wrong_prior_of_tau_is_noticed():
    """The planted bug: the Jacobian of log tau counts twice."""
    study = Study("poisson")
    p = p_values(study, ranks_of_reference(study, 200, thin=40, rounds=10, jacobian=2.0), DRAWS)
    assert p["log_tau"] < LEVEL
