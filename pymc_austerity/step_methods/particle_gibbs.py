"""`ParticleGibbs`: draws of latent chains of states by conditional sequential Monte Carlo."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.step_methods.compound import StepMethodState
from pytensor.graph.basic import Variable

from pymc_austerity.kernels.particle_gibbs import (
    Chains,
    ImpossibleStateError,
    LinearMoves,
    ParticleFilter,
    ParticleOutcome,
    particle_gibbs,
)
from pymc_austerity.model.chains.chain_model import ChainModel, check_chain
from pymc_austerity.model.chains.found import find_chain
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.graph.log_density import LogDensityGraph, fingerprint
from pymc_austerity.progress import stage
from pymc_austerity.step_methods.base import RebuiltStep, checked_steps_per_draw, floats
from pymc_austerity.step_methods.messages import refuse_discrete
from pymc_austerity.target import Vector
from pymc_austerity.validation import is_whole


class ParticleGibbs(RebuiltStep):
    """Draw latent chains of states: particle Gibbs with ancestor sampling.

    For state-space models with any observations: stochastic volatility, counts with a level that moves, and
    the like. Other steps move the parameters beside it.

    Parameters
    ----------
    vars : variable or its name
        The states h, one variable: `pm.AR` of order 1, `pm.GaussianRandomWalk`, `pm.MvGaussianRandomWalk`, or
        a `pm.CustomDist` or `pm.Flat` with a `pm.Potential` whose rows contain h[t] and h[t - 1]. It may hold
        a batch of series, and states of up to four components; which elements follow upon which is found on
        the graph.
    particles : int, default 20
        At least 2. With more, the states of late and early times move more in a sweep.
    steps_per_draw : int, default 1
        Sweeps over all states for each draw.
    model : pymc.Model, optional
        Default: the model of the context.
    blocked : bool, default True
        PyMC's keyword; there is one variable.
    rng : int or numpy.random.Generator, optional
        `pm.sample` replaces it for each chain.
    initial_point : dict, optional
        A point at which the model can be evaluated. Default: the model's.
    compile_kwargs : dict, optional
        PyMC's keyword, not used.
    progressbar : bool, default True
        Tell how far the set-up is.

    Raises
    ------
    FactorisationError
        If the variable is no chain, or its transitions are not normal. The message names the term, and the
        states that a row of it contains.
    ValueError
        If at some time no particle has a positive, finite density. The message names the state.

    Notes
    -----
    Conditional sequential Monte Carlo with ancestor sampling (Lindsten, Jordan & Schoen, 2014). States are
    proposed from the transition, times whatever else of a row is quadratic in the state, as a normal
    observation is. All other terms that contain a single state weigh the particles. Particles are drawn anew
    by independent draws at every time. A missing observation has no term, and weighs nothing.

    A sweep costs O(particles x T) terms, and memory for the particles of the longest series.

    Sample statistics: `moved`, the share of states that changed; `smallest_ess`, the smallest effective
    sample size of the weights of a time; `n_used`, rows of terms that contain states, all of which are read,
    so that `fraction_used` is 1.

    *Guarantee*: exact. A sweep leaves the conditional distribution of the states given all other variables
    invariant, for any number of particles.

    *When it fails*: it refuses chains of order 2, rows that contain h[t] and h[t + 2] or sums over all times,
    transitions and first states without a normal distribution. Particles say little where an observation is
    far out in the tail of all of them: `smallest_ess` is 1 there, and states stay as they are. The same is
    true of a first state with a wide prior, such as the one of PyMC's default ``init_dist``, if observations
    are not normal. Parameters that follow the states closely mix slowly, whatever moves the states.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import ParticleGibbs
    >>> rng = np.random.default_rng(1)
    >>> y = rng.poisson(np.exp(1 + 0.2 * rng.normal(size=50).cumsum()))
    >>> with pm.Model() as model:
    ...     h = pm.GaussianRandomWalk("h", sigma=0.2, init_dist=pm.Normal.dist(1, 1), shape=50)
    ...     count = pm.Poisson("count", pm.math.exp(h), observed=y)
    ...     step = ParticleGibbs([h], rng=1)
    ...     point, (stats,) = step.step(model.initial_point())
    >>> point["h"].shape, stats["n_used"]
    ((50,), 100.0)

    Beside it another step moves the parameters: ``pm.sample(step=[step, AusterityMH([phi, sigma])])``.
    """

    name = "particle_gibbs"
    _rebuilt = ("_sweeps", "_chain")
    _state_class = StepMethodState
    _chain: Any = None
    _sweeps: Any = None
    stats_dtypes_shapes = floats("moved", "smallest_ess", "n_used", "fraction_used")

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
        if not is_whole(particles) or particles < 2:
            raise ValueError(
                f"particles must be an integer of at least 2, got {particles!r}: one is the present path, "
                "which alone would never move."
            )
        self._particles = int(particles)
        self._steps_per_draw = checked_steps_per_draw(steps_per_draw)
        self._made_for(vars, model, rng, compile_kwargs)
        if len(self.vars) > 1:
            raise ValueError(
                "One step draws one variable that is a chain, or a batch of chains, got "
                f"{', '.join(str(v.name) for v in self.vars)}. Name one variable, as in ParticleGibbs([h]), "
                "and give each a step of its own."
            )
        refuse_discrete(self.vars)
        self._build_first(initial_point, progressbar)

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
        return ChainModel(find_chain(self._model, self._vars[0], point))

    def _compile(self, chain: ChainModel, point: PointType) -> None:
        layout = chain.found.layout
        self._n_sites, self._n_series = layout.n_sites, len(layout.starts) - 1
        self._n_rows = chain.found.n_rows
        records = {
            "chains": Chains(..., ..., ..., ..., ...),
            "linear": LinearMoves(..., ..., ..., ..., ...),
            "rule": ParticleFilter(..., ..., ...),
        }
        self._sweeps = chain.compile(particle_gibbs, records, ("log_terms", "transitions"))
        self._chain = chain
        stage("sweeps")
        with exact_arithmetic():  # the first call compiles
            self._sweep(0, np.random.default_rng(0), np.zeros(layout.elements.size), point)

    def _graphs(self) -> list[LogDensityGraph]:
        return [self._chain.found.graph]

    # PyMC's contract ------------------------------------------------------------------------

    def _step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make `steps_per_draw` sweeps over all states; all else stays as it is."""
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
        chains = (found.layout.starts, found.layout.elements, chain.weighted, *first)
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
