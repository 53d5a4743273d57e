"""What is special about one family of variables that are made of gamma variables."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import numpy.typing as npt
from pytensor.graph.basic import Variable

from pymc_austerity.model.conjugacy.forms import ConjugateForm
from pymc_austerity.target import Array


class GammaFamily(ABC):
    """How a variable is made of a table of independent gamma variables theta_ij ~ Gamma(alpha_ij, rate_i).

    `PositiveFamily` and `SimplexFamily` define most of it. Tables have the shape (n_rows, n_parts), and
    natural values, by which likelihoods are differentiated, are flat: (n_rows * width,).

    Parameters
    ----------
    value_shape : tuple of int
        Of what a point holds.
    transformed : bool
        Whether a point holds the value under `transform`, or the variable itself.

    Attributes
    ----------
    array_shape : tuple of int
        Of the variable.
    n_rows, n_parts : int
        Of the table: the elements, times 1 for positive variables and 2 for beta variables; the rows and the
        K components of Dirichlet variables.
    width : int
        Natural values in a row.
    transformed : bool
    distributions : tuple of type
        PyTensor's random variables of this family.
    pymc_names : tuple of str
        What PyMC calls their distributions.
    transform : type
        PyMC's default transform.
    forms : tuple of ConjugateForm
        Forms of likelihood that are conjugate, in the order in which they are tried.
    carries_total : bool
        Whether only the ratios within a row matter: its total is then a number of the chain, not of a point.
    """

    distributions: ClassVar[tuple[type, ...]]
    pymc_names: ClassVar[tuple[str, ...]]
    transform: ClassVar[type]
    forms: ClassVar[tuple[ConjugateForm, ...]]
    carries_total: ClassVar[bool]

    array_shape: tuple[int, ...]
    n_rows: int
    n_parts: int
    width: int
    transformed: bool

    @abstractmethod
    def __init__(self, value_shape: tuple[int, ...], transformed: bool) -> None: ...

    # The prior ----------------------------------------------------------------------------------

    def parameter_graphs(self, parameters: Sequence[Variable]) -> list[Variable]:
        """Graphs of the numbers that `alpha_and_rate` takes, from the parameters of the distribution."""
        return list(parameters)

    @abstractmethod
    def alpha_and_rate(self, parameters: Sequence[Array]) -> tuple[Array, Array]:
        """Shapes alpha, (n_rows, n_parts), and rates, (n_rows, 1), of the gamma variables."""

    # Points -------------------------------------------------------------------------------------

    @abstractmethod
    def log_gammas(self, value: npt.ArrayLike) -> Array:
        """Logarithms of theta, or of the components of a simplex, at a point's value; (n_rows, n_parts)."""

    @abstractmethod
    def value(self, log_theta: Array) -> Array:
        """A point's value, from logarithms of theta, (n_rows, n_parts); of a simplex up to a factor."""

    @abstractmethod
    def with_total(self, log_theta: Array, log_total: Array) -> Array:
        """The table with another total in each row, if it carries totals."""

    @abstractmethod
    def log_density(self, log_theta: Array, alpha: Array, rate: Array) -> Array:
        """Log density of what a point holds, `value(log_theta)`, in each row; up to a constant."""

    # Natural values -----------------------------------------------------------------------------

    @abstractmethod
    def natural(self, log_gammas: Array) -> Array:
        """Natural values of a table of logarithms of gamma variables."""

    @abstractmethod
    def from_natural(self, natural: Variable) -> Variable:
        """The variable as a graph of its natural values, which have its shape."""

    @abstractmethod
    def central_natural(self) -> Array:
        """Natural values in the middle of those that there are, in the shape of the variable."""

    @abstractmethod
    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """Two natural values whose weights differ in every row; near `near` unless they are bounded."""

    def random_natural(self, near: Array, rng: np.random.Generator) -> Array:
        """Random natural values, at which forms are verified."""
        return near + rng.uniform(-1.0, 1.0, near.shape)

    @abstractmethod
    def weights(self, natural: Array) -> Array:
        """Theta or w, (n_rows, n_parts)."""

    def table(self, derivatives: Array) -> Array:
        """Derivatives by natural values, flat, as a table of `n_rows` rows."""
        return derivatives.reshape(*derivatives.shape[:-1], self.n_rows, self.width)

    @abstractmethod
    def tangent(self, table: Array, weights: Array) -> Array:
        """Derivatives along the values that the variable can take, (n_rows, n_parts)."""

    # Transitions --------------------------------------------------------------------------------

    @abstractmethod
    def to_rate_one(self, log_theta: Array, rate: Array) -> Array:
        """Logarithms of rate times theta."""

    @abstractmethod
    def from_rate_one(self, log_theta: Array, rate: Array) -> Array:
        """Logarithms of theta, from those of rate times theta."""

    @abstractmethod
    def default_shift(self, derivatives: Array, n_terms: int) -> float:
        """M of a drift that is frozen, from derivatives of all terms at the initial point."""

    @abstractmethod
    def shifted(self, shape: Array, rate: Array, log_theta: Array, shift: float) -> tuple[Array, Array]:
        """Shapes and rates of a drift with M w_j, or M theta, added to both sides of it."""

    @abstractmethod
    def relevant_noise(self, noise: Array, shape: Array) -> Array:
        """The part of noise in the shapes that moves the variable."""

    @abstractmethod
    def variance(self, shape: Array) -> Array:
        """Variances of gamma variables with rate one, along the values that the variable can take."""
