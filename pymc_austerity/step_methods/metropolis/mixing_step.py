"""A step whose set-up has a budget, which is tried out before it is used, and watched while it is."""

from __future__ import annotations

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.model.compile.backend import NUMBA
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.starting_point import density_of_block
from pymc_austerity.proposals.base import is_fitted
from pymc_austerity.proposals.surrogate import Surrogate
from pymc_austerity.step_methods.base import RebuiltStep
from pymc_austerity.step_methods.metropolis.engine.base import CompiledKernel
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing, draws_of_pilot, try_out
from pymc_austerity.step_methods.metropolis.options import MetropolisOptions
from pymc_austerity.step_methods.metropolis.plan import Recipe
from pymc_austerity.target import Vector
from pymc_austerity.work import budgeted


class MixingStep(RebuiltStep):
    """What a step knows of how well its chains mix.

    Attributes
    ----------
    mixing : Mixing or None
        What a pilot run said of its draws, if there was one.
    """

    mixing: Mixing | None = None
    _reads_disk = True
    _options: MetropolisOptions
    _recipe: Recipe
    _engine: CompiledKernel | None

    @property
    def factorisation(self) -> Factorisation:
        """The local terms."""
        raise NotImplementedError

    def _build_anew(self, point: PointType) -> None:
        with budgeted(self._options.set_up_budget):
            super()._build_anew(point)

    def try_out(self, point: PointType) -> Mixing | None:
        """Make a short pilot run, and keep what it says as `mixing`; None where it would take long.

        Python itself is too slow for it: there is none where nothing is compiled.
        """
        recipe, steps = self._recipe, self._options.steps_per_draw or self._recipe.sweep
        is_surrogate = isinstance(recipe.proposal, Surrogate)
        n_draws = draws_of_pilot(self._rows_a_draw, self._n_watched, steps, is_surrogate=is_surrogate)
        if n_draws and self._is_fitted and self._engine is not None and self._engine.backend is NUMBA:
            self.mixing = try_out(
                self._engine,
                lambda rng: self._fitted_draw(point, rng),
                point,
                recipe.proposal_state,
                n_draws=n_draws,
                steps_per_draw=steps,
                n_watched=self._n_watched,
            )
        return self.mixing

    def name_of(self, dimension: int) -> str:
        """The variable that a coordinate belongs to, as the model calls it."""
        name, _ = self.factorisation.coordinate(dimension)
        model = self.model
        return str(next(model.values_to_rvs[v].name for v in model.value_vars if v.name == name))

    @property
    def _is_fitted(self) -> bool:
        """Is there a fitted distribution, from which chains of a pilot can start?"""
        return is_fitted(self._recipe.proposal)

    @property
    def _is_plate(self) -> bool:
        """Are effects of groups moved as a plate?"""
        return False

    @property
    def _rows_a_draw(self) -> float:
        """Rows that are read for a transition, roughly."""
        return float(self._recipe.n_local)

    @property
    def _n_watched(self) -> int:
        """So many of the first coordinates tell how well a chain mixes."""
        return self._recipe.n_dim

    @property
    def _efficiency(self) -> float | None:
        """Effective draws for a draw, as they were announced."""
        return None if self.mixing is None else self.mixing.efficiency

    def _fitted_draw(self, point: PointType, rng: np.random.Generator) -> Vector:
        """A draw of the distribution that the proposal is fitted to."""
        mode_fit, fact = self._recipe.mode_fit, self.factorisation
        assert mode_fit is not None
        names = ", ".join(fact.var_names)
        return mode_fit.start(vector_of(fact, point), rng, density_of_block(fact, point), names)
