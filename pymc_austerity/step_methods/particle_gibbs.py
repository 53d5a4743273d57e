"""`ParticleGibbs`: draws of latent chains of states by conditional sequential Monte Carlo."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.step_methods.compound import StepMethodState
from pymc.util import get_random_generator
from pytensor.graph.basic import Variable

from pymc_austerity.kernels.particle_gibbs import (
    Chains,
    ImpossibleStateError,
    ParticleFilter,
    ParticleOutcome,
    normalise,
    particle_gibbs,
)
from pymc_austerity.kernels.particle_moves import LinearMoves, add_links
from pymc_austerity.model.chains.chain_model import ChainModel
from pymc_austerity.model.chains.found import find_chain
from pymc_austerity.model.chains.proposal import divide
from pymc_austerity.model.chains.self_check import check_chain
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.factorise import model_of, value_variables
from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.shared_data import fingerprint
from pymc_austerity.model.starting_point import initial_point as default_point
from pymc_austerity.progress import checked_progressbar, stage, watched
from pymc_austerity.step_methods.base import RebuiltStep, checked_steps_per_draw, warn_of_compile_kwargs
from pymc_austerity.step_methods.messages import refuse_discrete, warn_of_long_deterministics
from pymc_austerity.step_methods.siblings import has_moved
from pymc_austerity.target import Vector
from pymc_austerity.validation import is_whole


class ParticleGibbs(RebuiltStep):
    """Draw latent chains of states by particle Gibbs."""

    name = "particle_gibbs"
    _rebuilt = ("_chain", "_sweeps")
    _state_class = StepMethodState
    _chain: Any = None
    _sweeps: Any = None
    stats_dtypes_shapes: ClassVar[dict[str, tuple[type, list[int]]]] = {
        "moved": (np.float64, []),
        "smallest_ess": (np.float64, []),
        "n_used": (np.float64, []),
        "fraction_used": (np.float64, []),
    }

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        particles: int = 20,
        steps_per_draw: int = 1,
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        progressbar: bool = True,
    ) -> None:
        shown = checked_progressbar(progressbar)
        self._particles = _checked_particles(particles)
        self._steps_per_draw = checked_steps_per_draw(steps_per_draw)
        warn_of_compile_kwargs(self, compile_kwargs)
        self._model = model_of(model)
        self.vars = value_variables(self._model, vars)
        if len(self.vars) > 1:
            raise ValueError(
                "One step draws one variable that is a chain, or a batch of chains, got "
                f"{', '.join(str(v.name) for v in self.vars)}. Name one variable, as in ParticleGibbs([h]), "
                "and give each a step of its own."
            )
        refuse_discrete(self.vars)
        self.rng = get_random_generator(rng)
        with watched(type(self).__name__, shown):
            stage("reading the model")
            if initial_point is None:
                initial_point = default_point(self._model)
            warn_of_long_deterministics(self._model, initial_point)
            self._build_anew(initial_point)

    # Building -------------------------------------------------------------------------------

    def _build(self, point: PointType) -> None:
        """Find the chain on the graph, compare it with the model, and compile."""
        chain = self._found(point)
        check_chain(chain, self._model)
        self._compile(chain, point)

    def _rebuild(self, point: PointType) -> bool:
        chain = self._found(point)
        if [fingerprint(chain.found.graph)] != self._data_seen:
            return False
        self._compile(chain, point)
        return True

    def _found(self, point: PointType) -> ChainModel:
        found = find_chain(self._model, self._vars[0], point)
        return ChainModel(found, divide(found))

    def _compile(self, chain: ChainModel, point: PointType) -> None:
        layout = chain.found.layout
        self._n_sites, self._n_series = layout.n_sites, len(layout.starts) - 1
        self._n_rows = chain.found.n_rows
        records = {
            "chains": Chains(..., ..., ..., ..., ...),
            "linear": LinearMoves(..., ..., ..., ..., ...),
            "rule": ParticleFilter(..., ..., ..., normalise, add_links),
        }
        self._sweeps = chain.compile(particle_gibbs, records, chain.function_names)
        self._chain = chain
        stage("sweeps")
        with exact_arithmetic():  # the first call compiles
            self._sweep(0, np.random.default_rng(0), np.zeros(layout.cells.size), point)

    @property
    def is_built(self) -> bool:
        """Whether this process has built the step."""
        return self._chain is not None

    def _graphs(self) -> list[LogDensityGraph]:
        return [self._chain.found.graph]

    # PyMC's contract ------------------------------------------------------------------------

    def step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make `steps_per_draw` sweeps over all states; all else stays as it is."""
        has_moved()
        self.require_built(point)
        name, layout = str(self._vars[0].name), self._chain.found.layout
        if np.shape(point[name]) != layout.shape:
            raise ValueError(
                f"The value of {name} must have shape {layout.shape}, got {np.shape(point[name])}. If data "
                "were replaced, make a new step, or use the step through pm.sample."
            )
        states = np.array(point[name], dtype=np.float64).ravel()
        outcome = self._sweep(self._steps_per_draw, self.rng, states, point)
        stats = {
            "moved": outcome.n_moved / (self._n_sites * self._steps_per_draw),
            "smallest_ess": outcome.smallest_ess,
            "n_used": float(self._n_rows),
            "fraction_used": 1.0,
        }
        return {**point, name: states.reshape(layout.shape)}, [stats]

    def _sweep(
        self, n_sweeps: int, rng: np.random.Generator, states: Vector, point: PointType
    ) -> ParticleOutcome:
        chain = self._chain
        found = chain.found
        args = chain.args(point)
        first, linear, has_constants = chain.moves(args)
        chains = (found.layout.starts, found.layout.cells, chain.weighted, *first)
        rule = (self._particles, chain.is_linear, has_constants)
        try:
            outcome: ParticleOutcome = self._sweeps(n_sweeps, rng, states, args, *chains, *linear, *rule)
        except ImpossibleStateError as error:
            site = int(error.args[0])
            raise ValueError(
                f"No particle for {found.layout.label(found.name, site)} has a positive, finite density "
                f"given all other variables (terms {found.names_at(site)}). Check the data of this "
                "time and the support of the likelihood, and start the chain where the density is positive."
            ) from None
        return outcome

    def _settings(self) -> dict[str, Any]:
        return {
            "particles": self._particles,
            "steps_per_draw": self._steps_per_draw,
            "n_series": self._n_series,
            "n_states": self._n_sites,
            "n_local": self._n_rows,
        }


def _checked_particles(given: Any) -> int:
    if not is_whole(given) or given < 2:
        raise ValueError(
            f"particles must be an integer of at least 2, got {given!r}: one is the present path, which "
            "alone would never move."
        )
    return int(given)
