"""A step for mixture weights: a draw from their Dirichlet posterior given the counts of each component."""

import numpy as np
from pymc.step_methods.compound import BlockedStep, StepMethodState
from pymc.util import get_random_generator

from pymc_austerity.model.factorise import model_of, value_variables


class ExactWeights(BlockedStep):
    """w given z is Dirichlet(alpha + counts); the counts are those that the step for z keeps."""

    name = "exact_weights"
    _state_class = StepMethodState

    def __init__(self, vars=None, *, allocations=None, alpha=1.0, model=None, blocked=True, rng=None):
        self.vars = value_variables(model_of(model), vars)
        self.allocations, self.alpha = allocations, alpha
        self.rng = get_random_generator(rng)

    def step(self, point):
        counts = self.allocations.counts(point)
        gammas = self.rng.gamma(self.alpha + counts)
        log_w = np.log(gammas / gammas.sum())
        return {**point, self.vars[0].name: log_w[:-1] - log_w.mean()}, [{}]
