"""Step methods for `pymc.sample`."""

from pymc_austerity.step_methods.categorical_gibbs import MinibatchCategoricalGibbs
from pymc_austerity.step_methods.gamma.scir import SCIR
from pymc_austerity.step_methods.langevin.sgld import SGLD
from pymc_austerity.step_methods.metropolis.austerity import AusterityMH
from pymc_austerity.step_methods.metropolis.austerity_gibbs import AusterityGibbs
from pymc_austerity.step_methods.metropolis.metropolis_hastings import MetropolisHastings
from pymc_austerity.step_methods.metropolis.mhsublhd import MHSubLhd
from pymc_austerity.step_methods.metropolis.minibatch_barker import MinibatchBarker
from pymc_austerity.step_methods.metropolis.reversible_jump import ReversibleJump
from pymc_austerity.step_methods.metropolis.tuna import TunaMH
from pymc_austerity.step_methods.particle_gibbs import ParticleGibbs
from pymc_austerity.step_methods.restricted import restricted_nuts, restricted_slice
from pymc_austerity.step_methods.step_size import DecreasingStepSize

__all__ = [
    "SCIR",
    "SGLD",
    "AusterityGibbs",
    "AusterityMH",
    "DecreasingStepSize",
    "MHSubLhd",
    "MetropolisHastings",
    "MinibatchBarker",
    "MinibatchCategoricalGibbs",
    "ParticleGibbs",
    "ReversibleJump",
    "TunaMH",
    "restricted_nuts",
    "restricted_slice",
]
