"""Families of variables that are made of gamma variables.

Whoever adds one puts it into `FAMILIES`; nothing else knows which there are.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pymc.logprob.transforms import LogOddsTransform, LogTransform, SimplexTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import BetaRV, DirichletRV, ExponentialRV, GammaRV, InvGammaRV
from scipy.special import log_expit, logsumexp

from pymc_austerity.model.conjugacy.forms import AFFINE, COUNTS, RATE, ConjugateForm, GammaFamily
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


class Gamma(PositiveFamily):
    """Gamma variables, x = theta."""

    distributions = (GammaRV, ExponentialRV)
    pymc_names = ("Gamma", "Exponential", "ChiSquared")

    def parameter_graphs(self, parameters: Sequence[Variable]) -> list[Variable]:
        """Shape, which is one of exponential variables, and rate, the inverse of PyTensor's scale."""
        *shape, scale = parameters
        return [*(shape or [pt.constant(1.0)]), 1.0 / scale]

    def log_theta_of(self, log_x: Any) -> Any:
        """The logarithm of theta, which is log x."""
        return log_x

    def log_x_of(self, log_theta: Any) -> Any:
        """The logarithm of x, which is log theta."""
        return log_theta


class InverseGamma(PositiveFamily):
    """x = 1 / theta; the scale of x is the rate of theta."""

    distributions = (InvGammaRV,)
    pymc_names = ("InverseGamma",)

    def log_theta_of(self, log_x: Any) -> Any:
        """The logarithm of theta, which is -log x."""
        return -log_x

    def log_x_of(self, log_theta: Any) -> Any:
        """The logarithm of x, which is -log theta."""
        return -log_theta


class SimplexFamily(GammaFamily):
    """w_j = theta_j / sum of theta, with rate one. Only ratios matter, so the total belongs to the chain."""

    forms: ClassVar[tuple[ConjugateForm, ...]] = (AFFINE,)
    carries_total = True

    def log_density(self, log_theta: Array, alpha: Array, rate: Array) -> Array:
        """Log density of the shares; the Jacobian of PyMC's log ratios is the product of shares."""
        log_shares = log_theta - logsumexp(log_theta, axis=1, keepdims=True)
        return ((alpha if self.transformed else alpha - 1.0) * log_shares).sum(axis=1)

    def default_shift(self, derivatives: Array, n_terms: int) -> float:
        """The number of terms: no row adds more than one to the sum of the s_j, if it is a mixture."""
        return float(n_terms)


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


class Dirichlet(SimplexFamily):
    """K shares in each row; their natural values are log w."""

    distributions = (DirichletRV,)
    pymc_names = ("Dirichlet",)
    transform = SimplexTransform
    forms = (COUNTS, AFFINE)

    def __init__(self, value_shape: tuple[int, ...], transformed: bool) -> None:
        # Transformed rows have one number less.
        self.array_shape = (*value_shape[:-1], value_shape[-1] + transformed)
        self.transformed = transformed
        self.n_rows, self.n_parts = int(np.prod(value_shape[:-1])), self.array_shape[-1]
        self.width = self.n_parts

    def alpha_and_rate(self, parameters: Sequence[Array]) -> tuple[Array, Array]:
        """The parameter is a row of shapes, or a table of them."""
        alpha = np.broadcast_to(parameters[0], self.array_shape).reshape(self.n_rows, self.n_parts)
        return np.array(alpha), np.ones((self.n_rows, 1))

    def log_gammas(self, value: npt.ArrayLike) -> Array:
        """Logarithms of the shares w, (n_rows, n_parts)."""
        x = np.asarray(value, dtype=np.float64)
        if not self.transformed:
            with np.errstate(divide="ignore"):
                return np.log(x).reshape(self.n_rows, self.n_parts)
        x = x.reshape(self.n_rows, self.n_parts - 1)
        x = np.concatenate([x, -x.sum(axis=1, keepdims=True)], axis=1)
        return x - logsumexp(x, axis=1, keepdims=True)

    def value(self, log_theta: Array) -> Array:
        """Log theta less its mean, without the last; or w."""
        if self.transformed:
            logs = log_theta[:, :-1] - log_theta.mean(axis=1, keepdims=True)
            return logs.reshape(*self.array_shape[:-1], self.n_parts - 1)
        return np.exp(log_theta - logsumexp(log_theta, axis=1, keepdims=True)).reshape(self.array_shape)

    def natural(self, log_gammas: Array) -> Array:
        """Logarithms of the shares w, flat."""
        return (log_gammas - logsumexp(log_gammas, axis=1, keepdims=True)).ravel()

    def from_natural(self, natural: Variable) -> Variable:
        """The variable as a function of log w."""
        return pt.exp(natural)

    def central_natural(self) -> Array:
        """Logarithms of equal shares."""
        return np.log(np.full(self.array_shape, 1.0 / self.n_parts))

    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """Equal shares, and shares that grow from the first to the last."""
        equal = np.full(self.n_rows * self.n_parts, -np.log(self.n_parts))
        growing = np.tile(1.0 + np.arange(self.n_parts) / self.n_parts, (self.n_rows, 1))
        return equal, np.log(growing / growing.sum(axis=1, keepdims=True)).ravel()

    def random_natural(self, near: Array, rng: np.random.Generator) -> Array:
        """Shares that are uniform on the simplex."""
        return np.log(rng.dirichlet(np.ones(self.n_parts), self.n_rows)).ravel()

    def weights(self, natural: Array) -> Array:
        """The shares w."""
        return np.exp(natural).reshape(self.n_rows, self.n_parts)

    def tangent(self, table: Array, weights: Array) -> Array:
        """w_j (g_j - sum of w_k g_k), from derivatives w_j g_j by log w_j."""
        return table - weights * table.sum(axis=-1, keepdims=True)

    def default_shift(self, derivatives: Array, n_terms: int) -> float:
        """M of a frozen drift: at least the largest sum of the s_j of a row."""
        per_row = self.table(derivatives.sum(axis=0)).sum(axis=1)
        return max(super().default_shift(derivatives, n_terms), float(per_row.max()))


FAMILIES: list[type[GammaFamily]] = [Gamma, InverseGamma, Beta, Dirichlet]


def family_of(op: Any) -> type[GammaFamily] | None:
    """The family of a random variable's operation; None if it is not made of gamma variables."""
    return next((family for family in FAMILIES if isinstance(op, family.distributions)), None)
