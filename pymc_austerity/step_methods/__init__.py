"""Step methods for `pymc.sample`."""

from pymc_austerity.step_methods.austerity import AusterityMH
from pymc_austerity.step_methods.barker import MinibatchBarker
from pymc_austerity.step_methods.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.mhsublhd import MHSubLhd
from pymc_austerity.step_methods.recommend import recommend
from pymc_austerity.step_methods.restricted import restricted_nuts, restricted_slice
from pymc_austerity.step_methods.tuna import TunaMH

__all__ = [
    "AusterityMH",
    "MHSubLhd",
    "MetropolisHastings",
    "MinibatchBarker",
    "TunaMH",
    "recommend",
    "restricted_nuts",
    "restricted_slice",
]
