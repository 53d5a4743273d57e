"""Subsampled Markov chain Monte Carlo for unmodified PyMC models."""

import typing

from pymc_austerity import design, diagnostics, plots
from pymc_austerity._version import __version__
from pymc_austerity.acceptance import Exact
from pymc_austerity.control_variates import Taylor
from pymc_austerity.data import RowStore
from pymc_austerity.distributions import UniformStiefel
from pymc_austerity.exceptions import FactorisationError, SubsamplingWarning
from pymc_austerity.mode.find_mode import find_mode
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.predictive import sample_posterior_predictive
from pymc_austerity.model.stored_data import stored_data
from pymc_austerity.proposals import AdaptiveRandomWalk, Langevin, Laplace, RandomWalk, StiefelWalk, Surrogate
from pymc_austerity.recommendation.recommend import recommend
from pymc_austerity.report import compare, probe
from pymc_austerity.sampling.distributed import sample_distributed
from pymc_austerity.sampling.sample import sample
from pymc_austerity.sampling.sampler import sampler
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
    "AdaptiveRandomWalk",
    "AusterityGibbs",
    "AusterityMH",
    "DecreasingStepSize",
    "Exact",
    "Factorisation",
    "FactorisationError",
    "Langevin",
    "Laplace",
    "MHSubLhd",
    "MetropolisHastings",
    "MinibatchBarker",
    "MinibatchCategoricalGibbs",
    "ParticleGibbs",
    "RandomWalk",
    "ReversibleJump",
    "RowStore",
    "StiefelWalk",
    "SubsamplingWarning",
    "Surrogate",
    "Taylor",
    "TunaMH",
    "UniformStiefel",
    "__version__",
    "compare",
    "design",
    "diagnostics",
    "factorise",
    "find_mode",
    "plots",
    "probe",
    "recommend",
    "restricted_nuts",
    "restricted_slice",
    "sample",
    "sample_distributed",
    "sample_posterior_predictive",
    "sampler",
    "stored_data",
]

if not typing.TYPE_CHECKING:  # for type checkers a module with this function has every name

    def __getattr__(name: str) -> None:
        """Say where a name went, for one version."""
        if name == "SGRLD":
            raise ImportError(
                "SGRLD, the baseline that SCIR is compared with, has left the package: it is a file of the "
                "examples of version 0.1, examples/sgrld.py. For sampling use SCIR."
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
