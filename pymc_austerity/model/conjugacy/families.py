"""Variables whose prior makes them of gamma variables, and forms of a likelihood in one of them.

    Gamma, Exponential, ChiSquared   theta itself
    InverseGamma                     1 / theta
    Beta                             theta_1 / (theta_1 + theta_2)
    Dirichlet                        theta_j / sum of theta, in every row

with independent theta_j ~ Gamma(alpha_j, rate). PyMC's point holds a transformed value (`tau_log__`,
`p_logodds__`, `w_simplex__`), which is computed from log theta directly: theta itself may be far below the
smallest floating-point number. Whoever adds a family puts it into `FAMILIES`; nothing else knows which there
are.

A form is told by derivatives; three are conjugate, and there is any other. With G = dl/d(natural value), from
`recognise`:

    counts   Dirichlet w, l = sum of s_j log w_j           G = s, whatever w is
    affine   beta or Dirichlet w, the same on the simplex  G, centred, = s - M w with M = sum of s_j
    rate     gamma theta, l = s log theta - t theta        G = s - t theta
    frozen   any other: G where the process is now

In the first three s and t follow from G at one or two fixed references, where nothing is ever zero or
infinite. `recognise` decides by numbers which form a likelihood has.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
import pymc as pm
import pytensor.tensor as pt
from pymc.logprob.transforms import LogOddsTransform, LogTransform, SimplexTransform
from pytensor.compile.sharedvalue import SharedVariable
from pytensor.graph.basic import Variable
from pytensor.graph.traversal import ancestors
from pytensor.tensor.random.basic import BetaRV, DirichletRV, ExponentialRV, GammaRV, InvGammaRV
from scipy.special import log_expit, logsumexp

from pymc_austerity.model.graph.rewrite import INTERPRETED, Compiled
from pymc_austerity.target import Array

# See above; the attribute `forms` of a step calls them so.
LikelihoodForm = Literal["counts", "affine", "rate", "frozen"]
# What is left of zero after cancellation, relative to what was cancelled.
_ROUNDING = 1e-11


class Totals(NamedTuple):
    """Statistics of a likelihood: s of shape (n_rows, n_parts), and t of shape (n_rows, 1).

    There may be one more axis in front.
    """

    s: Array
    t: Array

    def plus(self, other: Totals, weight: float = 1.0) -> Totals:
        """The sum, the second with a weight."""
        return Totals(self.s + weight * other.s, self.t + weight * other.t)

    def summed(self) -> Totals:
        """The sum over the axis in front."""
        return Totals(self.s.sum(axis=0), self.t.sum(axis=0))


class GammaFamily(ABC):
    """How a variable is made of a table of independent gamma variables theta_ij ~ Gamma(alpha_ij, rate_i).

    `PositiveFamily` and `SimplexFamily` define most of it. Tables have the shape (n_rows, n_parts), and
    natural values, by which likelihoods are differentiated, (n_rows, width).
    """

    distributions: ClassVar[tuple[type, ...]]  # PyTensor's random variables of this family
    pymc_names: ClassVar[tuple[str, ...]]  # What PyMC calls their distributions
    transform: ClassVar[type]  # PyMC's default transform
    # Forms of likelihood that are conjugate, in the order in which they are tried
    forms: ClassVar[tuple[LikelihoodForm, ...]]
    # Whether only the ratios within a row matter: its total is then a number of the chain, not of a point
    carries_total: ClassVar[bool]

    array_shape: tuple[int, ...]  # Of the variable
    # Of the table: the elements, times 1 for positive variables and 2 for beta variables; the rows and the K
    # components of Dirichlet variables
    n_rows: int
    n_parts: int
    width: int  # Natural values in a row
    transformed: bool  # Whether a point holds the value under `transform`, or the variable itself

    def __init__(self, value_shape: tuple[int, ...], transformed: bool) -> None:
        self.array_shape, self.transformed = value_shape, transformed
        self.n_rows, self.width = int(np.prod(value_shape)), 1
        self.n_parts = 2 if self.carries_total else 1

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
    def log_density(self, log_theta: Array, alpha: Array, rate: Array) -> Array:
        """Log density of what a point holds, `value(log_theta)`, in each row; up to a constant."""

    # Natural values -----------------------------------------------------------------------------

    def natural(self, log_gammas: Array) -> Array:
        """Natural values of a table of logarithms of gamma variables."""
        return log_gammas

    @abstractmethod
    def from_natural(self, natural: Variable) -> Variable:
        """The variable as a graph of its natural values, which have its shape."""

    @abstractmethod
    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """Two natural values whose weights differ in every row; near `near` unless they are bounded."""

    def random_natural(self, near: Array, rng: np.random.Generator) -> Array:
        """Random natural values, at which forms are verified."""
        return near + rng.uniform(-1.0, 1.0, near.shape)

    def weights(self, natural: Array) -> Array:
        """Theta or w, (n_rows, n_parts)."""
        return np.exp(natural)

    def tangent(self, derivatives: Array, weights: Array) -> Array:
        """Derivatives along the values that the variable can take, (n_rows, n_parts)."""
        return derivatives

    def default_shift(self, derivatives: Array, n_terms: int) -> float:
        """M of a drift that is frozen, from derivatives of all terms at the initial point."""
        return 0.0

    # Statistics of a likelihood ------------------------------------------------------------------

    def statistics(
        self, form: LikelihoodForm, derivatives: Sequence[Array], references: Sequence[Array]
    ) -> Totals:
        """S and t from derivatives G at the references of a form; linear in G.

        Between two of them the change of G says what M, or t, is: then s = G + M w, or G + t theta.
        """
        zero = np.zeros((*derivatives[0].shape[:-1], 1))
        if form == "counts":
            return Totals(derivatives[0], zero)
        weights = [self.weights(r) for r in references]
        along = [self.tangent(g, w) for g, w in zip(derivatives, weights, strict=True)]
        if form == "frozen":
            return Totals(along[0], zero)
        fall, change = along[0] - along[1], weights[1] - weights[0]
        if form == "rate":
            t = slope = fall / change
            cancelled = t * weights[0]
        else:
            squares = (change**2).sum(axis=-1, keepdims=True)
            t, slope = zero, (fall * change).sum(axis=-1, keepdims=True) / squares
            cancelled = slope
        s = along[0] + slope * weights[0]
        return Totals(np.where(np.abs(s) <= _ROUNDING * np.abs(cancelled), 0.0, s), t)

    def references(
        self,
        form: LikelihoodForm,
        start: Array,
        gradient: Callable[[Array], Array],
        prior: tuple[Array, Array],
    ) -> tuple[Array, ...]:
        """Natural values at which derivatives are taken when a conjugate form is looked for.

        `start` are those of the point of the model, `gradient` sums derivatives of all terms, and `prior` are
        shapes and rates. For rates they are near the conditional mean, where s and t theta are of one size:
        little is lost in s - t theta.
        """
        if form == "counts":  # derivatives are the same everywhere
            return self.reference_pair(start)[:1]
        if form == "rate":
            alpha, rate = prior
            start = np.where(np.isfinite(start), start, 0.0)
            for _ in range(2):
                pair = self.reference_pair(start)
                s, t = self.statistics(form, [gradient(r) for r in pair], pair)
                mean = (alpha + s) / (rate + t)
                start = np.where(np.isfinite(mean) & (mean > 0.0), np.log(np.abs(mean)), start)
        return self.reference_pair(start)

    def residuals(self, form: LikelihoodForm, found: Totals, derivatives: Array, natural: Array) -> Array:
        """Derivatives at `natural` less those that s and t of a conjugate form predict there."""
        weights = self.weights(natural)
        if form != "affine":
            return derivatives - (found.s - found.t * weights)
        return self.tangent(derivatives, weights) - (found.s - found.s.sum(axis=-1, keepdims=True) * weights)


class PositiveFamily(GammaFamily):
    """Every element is a power of one gamma variable theta; its natural value is log theta.

    A subclass says which power, and, in `parameter_graphs`, what shape and rate theta has.
    """

    transform = LogTransform
    forms: ClassVar[tuple[LikelihoodForm, ...]] = ("rate",)
    carries_total = False
    power: ClassVar[float]

    def alpha_and_rate(self, parameters: Sequence[Array]) -> tuple[Array, Array]:
        """Shapes and rates of theta, of every element."""
        alpha, rate = (np.broadcast_to(x, self.array_shape).reshape(self.n_rows, 1) for x in parameters)
        return np.array(alpha), np.array(rate)

    def log_gammas(self, value: npt.ArrayLike) -> Array:
        """Log theta at a point's value."""
        x = np.asarray(value, dtype=np.float64)
        with np.errstate(divide="ignore"):
            logs = x if self.transformed else np.log(x)
        return np.array(logs / self.power).reshape(-1, 1)

    def value(self, log_theta: Array) -> Array:
        """A point's value, from logarithms of theta, as an array of its own."""
        logs = self.power * log_theta
        return (logs if self.transformed else np.exp(logs)).reshape(self.array_shape)

    def log_density(self, log_theta: Array, alpha: Array, rate: Array) -> Array:
        """Log density of theta, in the coordinate log theta for log x."""
        logs = alpha * log_theta - rate * np.exp(log_theta)
        return (logs if self.transformed else logs - self.power * log_theta).ravel()

    def from_natural(self, natural: Variable) -> Variable:
        """The power of theta, as the exponential of log x."""
        return pt.exp(natural if self.power == 1.0 else self.power * natural)

    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """A theta and its double."""
        return near, near + np.log(2.0)


class Gamma(PositiveFamily):
    """Gamma variables, x = theta."""

    distributions = (GammaRV, ExponentialRV)
    pymc_names = ("Gamma", "Exponential", "ChiSquared")
    power = 1.0

    def parameter_graphs(self, parameters: Sequence[Variable]) -> list[Variable]:
        """Shape, which is one of exponential variables, and rate, the inverse of PyTensor's scale."""
        *shape, scale = parameters
        return [*(shape or [pt.constant(1.0)]), 1.0 / scale]


class InverseGamma(PositiveFamily):
    """x = 1 / theta; the scale of x is the rate of theta."""

    distributions = (InvGammaRV,)
    pymc_names = ("InverseGamma",)
    power = -1.0


class SimplexFamily(GammaFamily):
    """w_j = theta_j / sum of theta, with rate one. Only ratios matter, so the total belongs to the chain."""

    forms: ClassVar[tuple[LikelihoodForm, ...]] = ("affine",)
    carries_total = True

    def alpha_and_rate(self, parameters: Sequence[Array]) -> tuple[Array, Array]:
        """The parameters are shapes: two of a beta variable, and a row or a table of a Dirichlet's."""
        shapes = [np.broadcast_to(x, self.array_shape).reshape(self.n_rows, self.width) for x in parameters]
        return np.concatenate(shapes, axis=1), np.ones((self.n_rows, 1))

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
        return log_gammas[:, :1] - log_gammas[:, 1:]

    def from_natural(self, natural: Variable) -> Variable:
        """The variable as a function of its log odds."""
        return pt.sigmoid(natural)

    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """The probabilities 1 / 4 and 3 / 4."""
        return np.full((self.n_rows, 1), -np.log(3.0)), np.full((self.n_rows, 1), np.log(3.0))

    def weights(self, natural: Array) -> Array:
        """Probabilities p and 1 - p."""
        return 1.0 / (1.0 + np.exp(np.concatenate([-natural, natural], axis=1)))

    def tangent(self, derivatives: Array, weights: Array) -> Array:
        """There is one direction: what the first share gains, the second loses."""
        return np.concatenate([derivatives, -derivatives], axis=-1)


class Dirichlet(SimplexFamily):
    """K shares in each row; their natural values are log w."""

    distributions = (DirichletRV,)
    pymc_names = ("Dirichlet",)
    transform = SimplexTransform
    forms = ("counts", "affine")

    def __init__(self, value_shape: tuple[int, ...], transformed: bool) -> None:
        # Transformed rows have one number less.
        self.array_shape = (*value_shape[:-1], value_shape[-1] + transformed)
        self.transformed = transformed
        self.n_rows, self.n_parts = int(np.prod(value_shape[:-1])), self.array_shape[-1]
        self.width = self.n_parts

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
        """Logarithms of the shares w."""
        return np.asarray(log_gammas - logsumexp(log_gammas, axis=1, keepdims=True))

    def from_natural(self, natural: Variable) -> Variable:
        """The variable as a function of log w."""
        return pt.exp(natural)

    def reference_pair(self, near: Array) -> tuple[Array, Array]:
        """Equal shares, and shares that grow from the first to the last."""
        equal = np.full((self.n_rows, self.n_parts), -np.log(self.n_parts))
        growing = np.tile(1.0 + np.arange(self.n_parts) / self.n_parts, (self.n_rows, 1))
        return equal, np.log(growing / growing.sum(axis=1, keepdims=True))

    def random_natural(self, near: Array, rng: np.random.Generator) -> Array:
        """Shares that are uniform on the simplex."""
        return np.log(rng.dirichlet(np.ones(self.n_parts), self.n_rows))

    def tangent(self, derivatives: Array, weights: Array) -> Array:
        """w_j (g_j - sum of w_k g_k), from derivatives w_j g_j by log w_j."""
        return derivatives - weights * derivatives.sum(axis=-1, keepdims=True)

    def default_shift(self, derivatives: Array, n_terms: int) -> float:
        """M of a frozen drift: at least the largest sum of the s_j of a row."""
        per_row = derivatives.sum(axis=0).sum(axis=1)
        return max(super().default_shift(derivatives, n_terms), float(per_row.max()))


FAMILIES: list[type[GammaFamily]] = [Gamma, InverseGamma, Beta, Dirichlet]


def family_of(op: Any) -> type[GammaFamily] | None:
    """The family of a random variable's operation; None if it is not made of gamma variables."""
    return next((family for family in FAMILIES if isinstance(op, family.distributions)), None)


class GammaPrior(Compiled):
    """A variable made of independent gamma variables.

    `value` is its value variable, and `point` a point of the model, for shapes. `ValueError` names the
    variable, if its prior is of another kind, or has a transform of the user's.
    """

    def __init__(self, model: pm.Model, value: Variable, point: Mapping[str, Any]) -> None:
        self.rv = model.values_to_rvs[value]
        self.name = str(self.rv.name)
        self.value_name = str(value.name)
        op = None if self.rv.owner is None else self.rv.owner.op
        family = family_of(op)
        if family is None:
            *names, last = (name for known in FAMILIES for name in known.pymc_names)
            raise ValueError(
                f"The prior of {self.name!r} is {_distribution_name(op)}, not made of gamma variables: this "
                f"step takes {', '.join(names)} and {last} variables. Give "
                f"{self.name!r} to another step method, such as pm.NUTS."
            )
        transform = model.rvs_to_transforms[self.rv]
        if transform is not None and type(transform) is not family.transform:
            raise ValueError(
                f"The variable {self.name!r} has the transform {type(transform).__name__}, under which it "
                f"may not take all values of its prior. Leave transform= out of pm.{_distribution_name(op)}."
            )
        self.family = family(np.shape(point[self.value_name]), transform is not None)
        self._model = model
        self._known: tuple[Array, Array] | None = None  # Parameters that are the same at all points

    @property
    def parents(self) -> list[str]:
        """Value variables that the parameters depend on."""
        return self._function[0]

    @cached_property
    def _function(self) -> tuple[list[str], Any, bool]:
        """Names of the parents; the parameters as a function of them, compiled when first asked for.

        The last says whether they depend on none, and on no shared data either: these may be replaced.
        """
        model, node = self._model, self.rv.owner
        parameters = [pt.as_tensor(x).astype("float64") for x in node.op.dist_params(node)]
        graphs = list(model.replace_rvs_by_values(self.family.parameter_graphs(parameters)))
        used = set(ancestors(graphs))
        parents = [v for v in model.value_vars if v in used]
        is_constant = not parents and not any(isinstance(v, SharedVariable) for v in used)
        return [v.name for v in parents], pm.compile(parents, graphs, mode=INTERPRETED), is_constant

    def parameters(self, point: Mapping[str, Any]) -> tuple[Array, Array]:
        """Shapes alpha, (n_rows, n_parts), and rates, (n_rows, 1), of the gamma variables at `point`.

        `ValueError` is raised if one of them is not positive.
        """
        if self._known is not None:
            return self._known
        names, function, is_constant = self._function
        alpha, rate = self.family.alpha_and_rate(function(*(point[name] for name in names)))
        for what, numbers in (("shape parameters (alpha)", alpha), ("rates", rate)):
            bad = numbers[~((numbers > 0.0) & np.isfinite(numbers))]
            if len(bad):
                raise ValueError(
                    f"The {what} of the prior of {self.name!r} must be positive, got {bad[0]}. Leave "
                    "categories that cannot occur out of the model."
                )
        if is_constant:
            self._known = alpha, rate
        return alpha, rate


def _distribution_name(op: Any) -> str:
    name = type(op).__name__.removesuffix("RV")
    return str(getattr(op, "_print_name", (name,))[0] or name)
