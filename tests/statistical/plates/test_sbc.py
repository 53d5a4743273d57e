"""Simulation-based calibration: of the reference, which tries the harness, and of TunaMH."""

import numpy as np
import pymc as pm
import pytest

from pymc_austerity import TunaMH
from tests.statistical.plates.calibration import LEVEL, Study, p_values, ranks, replicates
from tests.statistical.plates.chains import STATISTICS
from tests.statistical.plates.models import data_of, matrix_of, model_of, reference_of
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
    p = p_values(study, ranks_of_reference(study, 500, thin=30, rounds=10), DRAWS)
    print(p)
    assert min(p.values()) > LEVEL


@pytest.mark.slow("200 posteriors")
def test_a_wrong_prior_of_tau_is_noticed():
    """The planted bug: the Jacobian of log tau counts twice."""
    study = Study("poisson")
    p = p_values(study, ranks_of_reference(study, 200, thin=30, rounds=10, jacobian=2.0), DRAWS)
    assert p["log_tau"] < LEVEL


def ranks_of_step(study, replications, *, make=TunaMH, seed=1, **options):
    """Of one step, which is given other data each time; and the sample statistics of all runs."""
    out, statistics, step = [], [], None
    for k, data in enumerate(replicates(study, replications, seed)):
        if step is None:
            model = model_of(data, "non_centred", beta_sd=study.beta_sd, tau_sd=study.tau_sd)
            step = make(model=model, threshold=100, **options)
        with model:
            pm.set_data(data_of(data))
            idata = pm.sample(
                DRAWS, tune=20, chains=1, cores=1, step=step, random_seed=k, progressbar=False,
                quiet=True, compute_convergence_checks=False,
            )  # fmt: skip
        out.append(ranks(data, matrix_of(idata["posterior"], "non_centred")[0]))
        stats = idata["sample_stats"]
        statistics.append({name: float(stats[name].mean()) for name in STATISTICS if name in stats})
    return np.array(out), {name: np.array([s[name] for s in statistics]) for name in statistics[0]}
