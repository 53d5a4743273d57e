"""Beta variables: theta_1 / (theta_1 + theta_2) of every element."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pymc.logprob.transforms import LogOddsTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BetaRV
from scipy.special import log_expit

from pymc_austerity.model.conjugacy.families.simplex import SimplexFamily
from pymc_austerity.target import Array


class Beta(SimplexFamily):
    """The first of two shares; its natural value is its log odds."""

    distributions = (BetaRV,)
    pymc_names = ("Beta",)
    transform = LogOddsTransform

    def __init__(self, value_shape: tuple[int, ...], transformed: bool) -> None:
        self.array_shape, self.transformed = value_shape, transformed
        self.n_rows, self.n_parts, self.width = int(np.prod(value_shape)), 2, 1

    def alpha_and_rate(self, parameters: Sequence[Array]) -> tuple[Array, Array]:
        """The two parameters are the two shapes."""
        shapes = [np.broadcast_to(x, self.array_shape).reshape(self.n_rows, 1) for x in parameters]
        return np.concatenate(shapes, axis=1), np.ones((self.n_rows, 1))

    def log_gammas(self, value: npt.ArrayLike) -> Array:
        """Logarithms of p and 1 - p."""
        x = np.asarray(value, dtype=np.float64).reshape(-1, 1)
        with np.errstate(divide="ignore"):
            pair = [log_expit(x), log_expit(-x)] if self.transformed else [np.log(x), np.log1p(-x)]
        return np.concatenate(pair, axis=1)

    def value(self, log_theta: Array) -> Array:
        """Log odds of p, or p itself, as a point holds it."""
        logs = log_theta[:, 0] - log_theta[:, 1]
        return (logs if self.transformed else np.exp(log_expit(logs))).reshape(self.array_shape)

    def natural(self, log_gammas: Array) -> Array:
        """Log odds of p."""
        return log_gammas[:, 0] - log_gammas[:, 1]

    def from_natural(self, natural: Variable) -> Variable:
        """The variable as a function of its log odds."""
        return pt.sigmoid(natural)

    def central_natural(self) -> Array:
        """The probability 1 / 2."""
        return np.zeros(self.array_shape)

    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """The probabilities 1 / 4 and 3 / 4."""
        return np.full(self.n_rows, -np.log(3.0)), np.full(self.n_rows, np.log(3.0))

    def weights(self, natural: Array) -> Array:
        """Probabilities p and 1 - p."""
        return 1.0 / (1.0 + np.exp(np.stack([-natural, natural], axis=1)))

    def tangent(self, table: Array, weights: Array) -> Array:
        """There is one direction: what the first share gains, the second loses."""
        return np.concatenate([table, -table], axis=-1)
