"""Does `pymc.sample` find a posterior that is known?"""

from __future__ import annotations

from typing import Any

import numpy as np
import pymc as pm

from pymc_austerity.testing.compare import error_of_mean, require_close
from pymc_austerity.testing.models import Solved


def check_posterior(
    solved: Solved,
    step: Any,
    *,
    tolerance: float = 0.0,
    draws: int = 1000,
    tune: int = 500,
    seed: int = 0,
    **options: Any,
) -> None:
    """`pymc.sample` with a step, or a list of them, finds the means and standard deviations of the posterior.

    Parameters
    ----------
    solved : Solved
    step : step method, or list of them
        Other variables are given to PyMC's choice.
    tolerance : float, default 0.0
        In posterior standard deviations.
    draws, tune, seed : int
        Of two chains.
    **options
        For `pymc.sample`.

    Examples
    --------
    >>> from pymc_austerity import MetropolisHastings, RandomWalk
    >>> from pymc_austerity.testing import check_posterior
    >>> from pymc_austerity.testing.models import normal_mean
    >>> solved = normal_mean()
    >>> step = MetropolisHastings(proposal=RandomWalk(0.04), model=solved.model)
    >>> check_posterior(solved, step, draws=2000, tune=0)
    """
    options = {"chains": 2, "cores": 1, "progressbar": False, "quiet": True, **options}
    idata = pm.sample(
        model=solved.model, step=step, draws=draws, tune=tune, random_seed=seed,
        initvals=solved.start or solved.mean, compute_convergence_checks=False, **options,
    )  # fmt: skip
    for name, mean in solved.mean.items():
        found = idata["posterior"][name].to_numpy()
        for place in np.ndindex(np.shape(mean)):
            sd = solved.sd[name][place]
            # In units of the posterior.
            z = (found[(..., *place)] - mean[place]) / sd
            what = f"{name}{list(place) if place else ''}"
            meaning = f"From {z.size} draws; in posterior standard deviations."
            require_close(
                f"The posterior mean of {what}, less the true one,",
                z.mean(), 0.0, error_of_mean(z), tolerance, meaning,
            )  # fmt: skip
            root = float(np.sqrt(np.mean(z**2)))
            require_close(
                f"The posterior standard deviation of {what}, over the true one,",
                root, 1.0, error_of_mean(z**2) / (2.0 * root), tolerance, meaning,
            )  # fmt: skip
