"""Proposal distributions: ``propose(q, rng) -> (q_new, log_hastings)``."""

from pymc_austerity.proposals.langevin import Langevin
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.proposals.random_walk import AdaptiveRandomWalk, RandomWalk
from pymc_austerity.proposals.stiefel_walk import StiefelWalk
from pymc_austerity.proposals.surrogate import Surrogate

__all__ = ["AdaptiveRandomWalk", "Langevin", "Laplace", "RandomWalk", "StiefelWalk", "Surrogate"]
