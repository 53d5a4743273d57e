"""Subsampled Markov chain Monte Carlo for unmodified PyMC models."""

import importlib
import typing
import warnings

from pymc_austerity import design, diagnostics, distributions, plots, proposals
from pymc_austerity._version import __version__
from pymc_austerity.control_variates import Taylor
from pymc_austerity.data import RowStore
from pymc_austerity.exceptions import FactorisationError, SubsamplingWarning
from pymc_austerity.mode.find_mode import find_mode
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.loo import loo
from pymc_austerity.model.predictive import sample_posterior_predictive
from pymc_austerity.model.stored_data import stored_data
from pymc_austerity.proposals import Laplace, RandomWalk, Surrogate
from pymc_austerity.recommendation.recommend import recommend
from pymc_austerity.report import compare, sbc
from pymc_austerity.sampling.approximate import approximate
from pymc_austerity.sampling.distributed import sample_distributed
from pymc_austerity.sampling.estimates import estimates
from pymc_austerity.sampling.evidence import log_evidence
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

__all__ = [
    "SCIR",
    "SGLD",
    "AusterityGibbs",
    "AusterityMH",
    "FactorisationError",
    "Laplace",
    "MHSubLhd",
    "MetropolisHastings",
    "MinibatchBarker",
    "MinibatchCategoricalGibbs",
    "ParticleGibbs",
    "RandomWalk",
    "ReversibleJump",
    "RowStore",
    "SubsamplingWarning",
    "Surrogate",
    "Taylor",
    "TunaMH",
    "__version__",
    "approximate",
    "compare",
    "design",
    "diagnostics",
    "distributions",
    "estimates",
    "factorise",
    "find_mode",
    "log_evidence",
    "loo",
    "plots",
    "proposals",
    "recommend",
    "restricted_nuts",
    "restricted_slice",
    "sample",
    "sample_distributed",
    "sample_posterior_predictive",
    "sampler",
    "sbc",
    "stored_data",
    "testing",
]

# Names that were imported from here until version 0.2, and the rooms that have them.
_MOVED = {
    "AdaptiveRandomWalk": "proposals",
    "DecreasingStepSize": "step_methods",
    "Exact": "acceptance",
    "Factorisation": "model",
    "Langevin": "proposals",
    "StiefelWalk": "proposals",
    "UniformStiefel": "distributions",
    "probe": "report",
}

if not typing.TYPE_CHECKING:  # for type checkers a module with this function has every name

    def __getattr__(name: str) -> typing.Any:
        """Import what is rarely used when it is asked for, and say where a name went, for one version."""
        if name == "testing":
            return importlib.import_module("pymc_austerity.testing")
        if name in _MOVED:
            room = f"pymc_austerity.{_MOVED[name]}"
            warnings.warn(f"Import {name} from {room}.", FutureWarning, stacklevel=2)
            return getattr(importlib.import_module(room), name)
        if name == "SGRLD":
            raise ImportError(
                "SGRLD, the baseline that SCIR is compared with, has left the package: it is a file of the "
                "examples of version 0.1, examples/sgrld.py. For sampling use SCIR."
            )
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
