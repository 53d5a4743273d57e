"""Dirichlet variables: theta_j / sum of theta, in every row."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pytensor.tensor as pt
from pymc.logprob.transforms import SimplexTransform
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import DirichletRV
from scipy.special import logsumexp

from pymc_austerity.model.conjugacy.families.simplex import SimplexFamily
from pymc_austerity.model.conjugacy.forms import AFFINE, COUNTS
from pymc_austerity.target import Array


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
