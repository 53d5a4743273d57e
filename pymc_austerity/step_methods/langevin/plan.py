r"""What is decided of a step of Langevin dynamics, its compiled transitions, and how much too wide they are.

With precision A, a gradient with covariance V, and a preconditioner M = L L', the dynamics are a linear
recursion with normal noise. In coordinates y = L^-1 (q - mode), turned so that L'AL is diagonal with entries
lambda_i, the Lyapunov equation of its stationary covariance S can be solved entry by entry:

    S_ij = (a delta_ij + (a^2/4) V_ij) / ((a/2)(lambda_i + lambda_j) - (a^2/4) lambda_i lambda_j),

with V there the covariance L'VL, turned likewise. The posterior has the covariance diag(1 / lambda_i). In one
dimension the ratio of standard deviations is sqrt((1 + aV/4) / (1 - aA/4)).
"""

import logging
import math
from typing import NamedTuple

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import UnsuitableError
from pymc_austerity.kernels.stochastic_gradient import (
    Dynamics,
    LangevinOutcome,
    gradient_moments,
    langevin_transitions,
)
from pymc_austerity.mode.fit import expanded_again, fit_mode
from pymc_austerity.mode.mode_fit import FittedTerms, ModeFit
from pymc_austerity.model.compile.backend import NUMBA
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation, vector_of
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.log_density import Fingerprint, fingerprint
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.step_methods.base import checked_steps_per_draw
from pymc_austerity.step_methods.batch_size import batch_rows, checked_batch_size
from pymc_austerity.step_methods.messages import refuse_discrete, refuse_short, warn_of_given
from pymc_austerity.step_methods.metropolis.options import control_variate_of
from pymc_austerity.step_methods.metropolis.orthonormal import refuse_orthonormal
from pymc_austerity.step_methods.step_size import DecreasingStepSize
from pymc_austerity.target import Index, Matrix, Vector

logger = logging.getLogger(__name__)

# Dimensions up to which a prediction is worth the passes over the data that a mode takes.
_PREDICTED_UP_TO = 50
# Draws of the normal distribution at the mode at which gradients are compared, rows at each, and products.
_DRAWS, _MOST_ROWS, _MOST_PRODUCTS = 4, 100_000, 100_000_000
_FEWEST_ROWS = 1000
# Python itself takes a millisecond for a row.
_INTERPRETED_ROWS = 100
_SEED = 2011
# Decreasing step sizes: the ratio is computed for so many step sizes in each halving, and interpolated.
_PER_HALVING = 8


class SgldOptions(NamedTuple):
    """What a step was asked for; see `SGLD`."""

    model: pm.Model
    vars: list[Variable]
    step_size: DecreasingStepSize
    batch_size: int | float | None
    control_variate: Taylor | None
    preconditioner: Laplace | None
    steps_per_draw: int
    threshold: int


class Inflation:
    """The linear recursion in coordinates in which its drift is diagonal.

    `precision` is A, of the posterior at its mode, `factor` L, empty for the identity, and `noise` V, the
    covariance of the gradient. `largest` is the largest step size that will be asked for.
    """

    def __init__(self, precision: Matrix, factor: Matrix, noise: Matrix, largest: float) -> None:
        if factor.size:
            precision, noise = factor.T @ precision @ factor, factor.T @ noise @ factor
        # Eigenvalues of L'AL, (D,), and the covariance of the gradient, (D, D).
        self._rates, axes = np.linalg.eigh(0.5 * (precision + precision.T))
        self._noise, self._largest = axes.T @ noise @ axes, largest
        self._known: dict[int, float] = {}

    @property
    def largest_stable(self) -> float:
        """The step size from which on the recursion has no stationary distribution."""
        return float(4.0 / self._rates.max())

    def sd_ratio(self, a: float) -> float:
        """Largest ratio of stationary to posterior standard deviation, over all directions."""
        x = a * self._rates
        scale = np.sqrt(np.outer(x, x))
        sums = x[:, None] + x[None, :]
        # Everything times lambda^(1/2) from both sides, so that the posterior is the unit matrix.
        driven = np.diag(x) + 0.25 * a * scale * self._noise
        ratio = driven / (0.5 * sums - 0.25 * np.outer(x, x))
        return float(math.sqrt(np.linalg.eigvalsh(ratio)[-1]))

    def __call__(self, a: float) -> float:
        """`sd_ratio` at a step size; between two that were computed, interpolated."""
        place = _PER_HALVING * math.log2(self._largest / a)
        below = math.floor(place + 1e-9)
        share = max(0.0, place - below)
        ratio = self._at(below)
        return ratio if share < 1e-9 else (1.0 - share) * ratio + share * self._at(below + 1)

    def _at(self, k: int) -> float:
        if k not in self._known:
            self._known[k] = self.sd_ratio(self._largest * 2.0 ** (-k / _PER_HALVING))
        return self._known[k]


class SgldRecipe(NamedTuple):
    """What of a plan travels to other processes; nothing has size N."""

    dynamics: Dynamics
    mode_fit: ModeFit | None  # None if the posterior has no mode, or too many dimensions to look for one
    inflation: Inflation | None = None  # On the normal distribution at the mode


def checked_options(asked: SgldOptions) -> SgldOptions:
    """Check the keywords of `SGLD`; the model and the variables are known."""
    refuse_discrete(asked.vars)
    refuse_orthonormal(asked.model, asked.vars, None, has_control_variate=False)
    taylor = control_variate_of(asked.control_variate)
    if taylor is not None and taylor.exact_rows:
        raise ValueError(
            f"exact_rows={taylor.exact_rows} is for steps that decide moves. SGLD draws all rows alike: "
            "leave it out."
        )
    if asked.preconditioner not in (None, Laplace()):
        raise ValueError(
            f"preconditioner must be None or Laplace(), got {asked.preconditioner!r}. Laplace() is the "
            "inverse precision at the posterior mode; its parameters are for proposals."
        )
    return asked._replace(
        batch_size=checked_batch_size(asked.batch_size),
        control_variate=taylor,
        steps_per_draw=checked_steps_per_draw(asked.steps_per_draw),
    )


def plan_sgld(options: SgldOptions, point: PointType) -> tuple[Factorisation, Factorisation, SgldRecipe]:
    """Find the local terms, the mode, and what is expanded and preconditioned there.

    Returns the terms of the model, the same with what is expanded taken out, and the recipe.
    """
    fact = _factorised(options, point, check=True)
    if not fact.n_local:
        refuse_short(fact, options.threshold, options.model)
    rows = batch_rows(options.batch_size, fact.n_local, fact.var_names[0], fact.longest_term())
    found = _mode(options, TermStructure(fact), point)
    factor = np.empty((0, 0))
    if options.preconditioner is not None:
        assert found is not None
        _, factor = found.mode_fit.proxy.factors()
    size = options.step_size
    n = fact.n_local if rows is None else rows
    dynamics = Dynamics(size.h, float(size.tau), float(size.kappa), n, fact.n_local, factor)
    if found is None:
        return fact, fact, SgldRecipe(dynamics, None)
    return fact, found.expanded, SgldRecipe(dynamics, found.mode_fit)


def replan_sgld(
    options: SgldOptions, recipe: SgldRecipe, data: Fingerprint, point: PointType
) -> tuple[Factorisation, Factorisation] | None:
    """The terms of the same plan in another process; None if the data are others there."""
    fact = _factorised(options, point, check=False)
    if fingerprint(fact.graph) != data:
        return None
    if options.control_variate is None:
        return fact, fact
    assert recipe.mode_fit is not None
    return fact, expanded_again(TermStructure(fact), point, recipe.mode_fit).expanded


def _factorised(options: SgldOptions, point: PointType, *, check: bool) -> Factorisation:
    return build(options.model, options.vars, threshold=options.threshold, initial_point=point, check=check)


def _mode(options: SgldOptions, structure: TermStructure, point: PointType) -> FittedTerms | None:
    """The mode; None if there is none, and nothing but the prediction needs it."""
    taylor = options.control_variate
    is_needed = taylor is not None or options.preconditioner is not None
    n_dim = len(vector_of(structure.factorisation, point))
    if n_dim > _PREDICTED_UP_TO and not is_needed:
        return None
    try:
        return fit_mode(options.model, structure, point, taylor, whole_block=True, certify=False)
    except UnsuitableError as error:
        if is_needed:
            raise
        logger.info("sd_inflation is not predicted: %s", error)
        return None


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
