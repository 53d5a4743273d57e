"""Proposal distributions: ``propose(q, rng) -> (q_new, log_hastings)``."""

from pymc_austerity.proposals.random_walk import AdaptiveRandomWalk, RandomWalk

__all__ = ["AdaptiveRandomWalk", "RandomWalk"]
