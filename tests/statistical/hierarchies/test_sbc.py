"""Simulation-based calibration of TunaMH."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH
from tests.sampling import sampled
from tests.statistical.hierarchies.calibration import LEVEL, Study, p_values, ranks, replicates
from tests.statistical.hierarchies.models import data_of, matrix_of, model_of

DRAWS = 31
SEED = 5


# Sweeps from one draw to the next: autocorrelation times are below five.
SWEEPS = 30


def ranks_of_step(study, replications, *, tau_sd=None, seed=SEED, **options):
    """Of one step, which is given other data each time, and the shares of groups that it read in full."""
    out, whole, step = [], [], None
    for k, data in enumerate(replicates(study, replications, seed)):
        if step is None:
            model = model_of(data, "non_centred", beta_sd=study.beta_sd, tau_sd=tau_sd or study.tau_sd)
            step = TunaMH(model=model, threshold=100, switch_above=np.inf, **options)
        with model:
            pm.set_data(data_of(data))
            idata = sampled(DRAWS, step, tune=20, chains=1, random_seed=k)
        out.append(ranks(data, matrix_of(idata["posterior"], "non_centred")[0]))
        whole.append(float(idata["sample_stats"]["exhausted"].mean()))
    return np.array(out), np.array(whole)


@pytest.mark.filterwarnings("ignore:Moves of what:pymc_austerity.SubsamplingWarning")
@pytest.mark.full_size("500 posteriors, a quarter of an hour")
@pytest.mark.parametrize("family", ["poisson", "logistic"])
def test_ranks_of_thinned_decisions_are_uniform(family):
    study = Study(family)
    found, whole = ranks_of_step(study, 500, steps_per_draw=SWEEPS)
    p = p_values(study, found, DRAWS)
    print(family, p, f"groups that were read in full {whole.mean():.4f}, at most {whole.max():.4f}")
    assert min(p.values()) > LEVEL
    assert whole.max() < 0.5


@pytest.mark.full_size("100 posteriors, each with a fit of its own")
@pytest.mark.filterwarnings("ignore:Moves of what:pymc_austerity.SubsamplingWarning")
def test_another_prior_of_tau_is_noticed():
    """The planted fault: the model's prior is not the one that the data are from."""
    study = Study("poisson")
    found, _ = ranks_of_step(study, 100, tau_sd=2.0 * study.tau_sd, steps_per_draw=30)
    assert p_values(study, found, DRAWS)["log_tau"] < LEVEL
