"""What a step says of a posterior that is unlike its expansion."""

import numpy as np
import pytest

from pymc_austerity import SubsamplingWarning
from pymc_austerity.mode.mode_fit import ModeReport
from pymc_austerity.step_methods.metropolis.fit_watch import Fit, warn_if_unlike

N_SEEN = 200
REPORT = ModeReport(3, 1e-9, 1.0, 0.1, 8, 1, acceptance=0.8, remainder_sd=0.1)


@pytest.mark.parametrize(
    ("independent", "said"),
    [
        (0.9, r"the acceptance rate is 0\.02, predicted was 0\.72 or more\. Steps stay"),
        (0.0, r"the acceptance rate is 0\.02\. Steps stay"),
    ],
    ids=["independent moves", "other moves"],
)
def test_a_chain_that_is_stuck(independent, said):
    """Only of independent moves an acceptance rate was predicted."""
    stuck = Fit(np.array([400, 400, N_SEEN, 0]), np.array([0.02 * N_SEEN, 0.0, 0.0]))
    with pytest.warns(SubsamplingWarning, match=said):
        warn_if_unlike(stuck, REPORT, independent, reads_all=False, needs_range=False)
