"""Sweeps over a field that are decided by tests on remainders, against exact ones."""

import arviz as az
import numpy as np
import pytest

from pymc_austerity import AusterityMH, MinibatchBarker, Taylor
from tests.statistical.hierarchies.chains import run
from tests.statistical.hierarchies.models import simulate

LIMIT = 4.0
# Posterior sds, and relative change of sds, that decisions from a subsample may cost.
TOLERANCE = 0.1


def differences(ours, theirs):
    """Of means in sds, and of log sds, each beyond what is tolerated, in standard errors: the largest."""
    found = []
    for one, other in zip(np.moveaxis(ours, -1, 0), np.moveaxis(theirs, -1, 0), strict=True):
        sd = other.std()
        error = np.hypot(*(float(az.mcse(x, method="mean")) for x in (one, other)))
        found.append((abs(one.mean() - other.mean()) - TOLERANCE * sd) / error)
        sizes = [1 / np.sqrt(2 * float(az.ess(x, method="sd"))) for x in (one, other)]
        found.append((abs(np.log(one.std() / sd)) - TOLERANCE) / np.hypot(*sizes))
    return max(found)


@pytest.mark.slow("16,000 draws of 48 coordinates")
def test_posterior():
    data = simulate("logistic", 10_000, 40, seed=5)
    exact = run(data, 3000, switch_above=np.inf)
    options = {"control_variate": Taylor(), "seed": 6}
    tested = run(data, 2500, step=AusterityMH, epsilon=0.01, **options)
    print(exact, tested, differences(tested.draws, exact.draws), sep="\n")
    assert differences(tested.draws, exact.draws) < LIMIT
    assert tested.mean("n_used") < 0.5 * 2 * len(data.y)
    assert tested.mean("effects_acceptance") == pytest.approx(exact.mean("effects_acceptance"), abs=0.02)
    barker = run(data, 1500, step=MinibatchBarker, **options)
    print(barker, differences(barker.draws, exact.draws))
    assert differences(barker.draws, exact.draws) < LIMIT
    # The planted fault: one group is tested on the rows of another.
    moved = np.where(data.g == 0, 1, np.where(data.g == 1, 0, data.g))
    other = run(data._replace(g=moved), 1000, switch_above=np.inf)
    assert differences(other.draws, exact.draws) > 2 * LIMIT
