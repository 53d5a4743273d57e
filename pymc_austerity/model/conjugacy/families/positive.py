"""Positive variables that are a power of one gamma variable each."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pymc.logprob.transforms import LogTransform
from pytensor.graph.basic import Variable

from pymc_austerity.model.conjugacy.families.base import GammaFamily
from pymc_austerity.model.conjugacy.forms import RATE
from pymc_austerity.target import Array

# Half of the distance over which log x is differentiated by log theta.
_SMALL = 1e-4


class PositiveFamily(GammaFamily):
    """Every element is a function of one gamma variable theta; its natural value is log theta.

    A subclass says how log theta and the logarithm of an element follow from each other, and, in
    `parameter_graphs`, what shape and rate theta has.
    """

    transform = LogTransform
    forms = (RATE,)
    carries_total = False

    def __init__(self, value_shape: tuple[int, ...], transformed: bool) -> None:
        self.array_shape, self.transformed = value_shape, transformed
        self.n_rows, self.n_parts, self.width = int(np.prod(value_shape)), 1, 1

    @abstractmethod
    def log_theta_of(self, log_x: Any) -> Any:
        """Log theta of an element with the logarithm `log_x`."""

    @abstractmethod
    def log_x_of(self, log_theta: Any) -> Any:
        """The logarithm of an element, from log theta: of an array or of a graph."""

    def alpha_and_rate(self, parameters: Sequence[Array]) -> tuple[Array, Array]:
        """Shapes and rates of theta, of every element."""
        alpha, rate = (np.broadcast_to(x, self.array_shape).reshape(self.n_rows, 1) for x in parameters)
        return np.array(alpha), np.array(rate)

    def log_gammas(self, value: npt.ArrayLike) -> Array:
        """Log theta at a point's value."""
        x = np.asarray(value, dtype=np.float64)
        with np.errstate(divide="ignore"):
            logs = x if self.transformed else np.log(x)
        return np.array(self.log_theta_of(logs)).reshape(-1, 1)

    def value(self, log_theta: Array) -> Array:
        """A point's value, from logarithms of theta, as an array of its own."""
        logs = np.array(self.log_x_of(log_theta))
        return (logs if self.transformed else np.exp(logs)).reshape(self.array_shape)

    def with_total(self, log_theta: Array, log_total: Array) -> Array:
        """The table as it is: there is no total."""
        return log_theta

    def log_density(self, log_theta: Array, alpha: Array, rate: Array) -> Array:
        """Log density of theta, less the logarithm of the derivative of the value by log theta."""
        above, below = (np.asarray(self.log_x_of(log_theta + h)) for h in (_SMALL, -_SMALL))
        logs = alpha * log_theta - rate * np.exp(log_theta) - np.log(np.abs(above - below) / (2.0 * _SMALL))
        return (logs if self.transformed else logs - self.log_x_of(log_theta)).ravel()

    def natural(self, log_gammas: Array) -> Array:
        """Logarithms of theta, flat."""
        return log_gammas.ravel()

    def from_natural(self, natural: Variable) -> Variable:
        """The exponential of log x."""
        return pt.exp(self.log_x_of(natural))

    def central_natural(self) -> Array:
        """Logarithms of theta = 1."""
        return np.zeros(self.array_shape)

    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """A theta and its double."""
        return near, near + np.log(2.0)

    def weights(self, natural: Array) -> Array:
        """Values of theta, (n_rows, 1)."""
        return np.exp(natural).reshape(self.n_rows, 1)

    def tangent(self, table: Array, weights: Array) -> Array:
        """The derivatives themselves: every positive value is possible."""
        return table

    def to_rate_one(self, log_theta: Array, rate: Array) -> Array:
        """Logarithms of rate times theta: log theta plus log rate."""
        return log_theta + np.log(rate)

    def from_rate_one(self, log_theta: Array, rate: Array) -> Array:
        """Logarithms of theta, from which log rate is subtracted."""
        return log_theta - np.log(rate)

    def default_shift(self, derivatives: Array, n_terms: int) -> float:
        """M of a frozen drift: 0."""
        return 0.0

    def shifted(self, shape: Array, rate: Array, log_theta: Array, shift: float) -> tuple[Array, Array]:
        """M theta added to the shape, and M to the rate."""
        return shape + shift * np.exp(log_theta), rate + shift

    def relevant_noise(self, noise: Array, shape: Array) -> Array:
        """The noise as it is: no direction of it is without effect."""
        return noise

    def variance(self, shape: Array) -> Array:
        """Variance of Gamma(a, 1), which is a."""
        return shape
