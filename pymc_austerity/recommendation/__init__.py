"""Which step suits a model, and why."""

from pymc_austerity.recommendation.recommend import recommend

__all__ = ["recommend"]
