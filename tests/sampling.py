"""`pm.sample` for tests: in one process, without a bar, messages, or checks of convergence."""

import pymc as pm


def sampled(draws, step, **options):
    """Draws of the model of the context, or of `model`."""
    quiet = {"cores": 1, "progressbar": False, "quiet": True, "compute_convergence_checks": False}
    return pm.sample(draws, step=step, **{**quiet, **options})
