"""The compiled transitions of `SGLD`, and the noise of their gradients."""

import numpy as np
from pymc.initial_point import PointType

from pymc_austerity.kernels.stochastic_gradient import (
    Dynamics,
    LangevinOutcome,
    gradient_moments,
    langevin_transitions,
)
from pymc_austerity.mode.mode_fit import ModeFit
from pymc_austerity.model.compile.backend import NUMBA
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.step_methods.messages import warn_of_given
from pymc_austerity.target import Index, Vector

# Draws of the normal distribution at the mode at which gradients are compared, rows at each, and products.
_DRAWS, _MOST_ROWS, _MOST_PRODUCTS = 4, 100_000, 100_000_000
_FEWEST_ROWS = 1000
# Python itself takes a millisecond for a row.
_INTERPRETED_ROWS = 100
_SEED = 2011


class LangevinEngine:
    """Transitions of `kernels.stochastic_gradient`, of the terms of a model or with Taylor remainders.

    It has size N. It is compiled with a state q, and the values of all variables.
    """

    def __init__(self, terms: Factorisation, dynamics: Dynamics, q: Vector, point: PointType) -> None:
        self.target = CompiledTarget(terms)
        warn_of_given(self.target)
        self._dynamics = dynamics
        self._transitions = self.target.compile(
            langevin_transitions, {}, ["global_gradient", "local_gradient"]
        )
        with exact_arithmetic():  # the first call compiles
            self._transitions(0, 0, np.random.default_rng(0), q, self.target.args(point), dynamics)

    def run(
        self, n: int, first: int, rng: np.random.Generator, q: Vector, point: PointType
    ) -> LangevinOutcome:
        """Make n transitions from q, which may be written over; `point` has the other variables."""
        args = self.target.args(point)
        outcome: LangevinOutcome = self._transitions.again(n, first, rng, q, args, self._dynamics)
        return outcome

    def gradient_noise(self, mode_fit: ModeFit, point: PointType) -> np.ndarray:
        """Covariance of the gradient, from minibatches, averaged over draws of the fitted distribution.

        The same in every process. NaN where a gradient is not finite.
        """
        n, n_local = self._dynamics.n, self._dynamics.n_local
        n_dim = len(mode_fit.proxy.mode)
        if n == n_local:
            return np.zeros((n_dim, n_dim))
        rng, args = np.random.default_rng(_SEED), self.target.args(point)
        most = _MOST_ROWS if self.target.backend is NUMBA else _INTERPRETED_ROWS
        n_rows = min(n_local, most, max(_FEWEST_ROWS, _MOST_PRODUCTS // n_dim**2))
        moments = self.target.compile(gradient_moments, {}, ["local_gradient"])
        total = np.zeros((n_dim, n_dim))
        for _ in range(_DRAWS):
            rows: Index = np.sort(rng.choice(n_local, n_rows, replace=False, shuffle=False))
            mean, products = np.zeros(n_dim), np.zeros((n_dim, n_dim))
            state = mode_fit.drawn(mode_fit.proxy.mode, rng)
            with exact_arithmetic():
                moments(rng, state, args, rows.astype(np.int64), mean, products)
            total += products + np.tril(products, -1).T
        covariance = total / (_DRAWS * (n_rows - 1))
        return np.asarray(covariance * n_local**2 * (1.0 - n / n_local) / n)
