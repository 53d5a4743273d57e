"""Step methods for `pymc.sample`."""

from pymc_austerity.step_methods.austerity import AusterityMH
from pymc_austerity.step_methods.barker import MinibatchBarker
from pymc_austerity.step_methods.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.mhsublhd import MHSubLhd
from pymc_austerity.step_methods.minibatch_gibbs import MinibatchCategoricalGibbs
from pymc_austerity.step_methods.recommend import recommend
from pymc_austerity.step_methods.restricted import restricted_nuts, restricted_slice
from pymc_austerity.step_methods.scir import SCIR
from pymc_austerity.step_methods.sgrld import SGRLD
from pymc_austerity.step_methods.step_size import DecreasingStepSize
from pymc_austerity.step_methods.tuna import TunaMH

__all__ = [
    "SCIR",
    "SGRLD",
    "AusterityMH",
    "DecreasingStepSize",
    "MHSubLhd",
    "MetropolisHastings",
    "MinibatchBarker",
    "MinibatchCategoricalGibbs",
    "TunaMH",
    "recommend",
    "restricted_nuts",
    "restricted_slice",
]
