r"""Stochastic-gradient Langevin dynamics: the step, its plan, its compiled transitions, and their error.

`Inflation` says how much too wide the stationary distribution is on a normal posterior. With precision A, a
gradient with covariance V, and a preconditioner M = L L', the dynamics are a linear recursion with normal
noise. In coordinates y = L^-1 (q - mode), turned so that L'AL is diagonal with entries lambda_i, the Lyapunov
equation of its stationary covariance S can be solved entry by entry:

    S_ij = (a delta_ij + (a^2/4) V_ij) / ((a/2)(lambda_i + lambda_j) - (a^2/4) lambda_i lambda_j),

with V there the covariance L'VL, turned likewise. The posterior has the covariance diag(1 / lambda_i). In one
dimension the ratio of standard deviations is sqrt((1 + aV/4) / (1 - aA/4)).
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pymc.step_methods.compound import StepMethodState
from pymc.step_methods.state import dataclass_state
from pytensor.graph.basic import Variable

from pymc_austerity.control_variates.taylor import Taylor
from pymc_austerity.exceptions import UnsuitableError, warn
from pymc_austerity.kernels.stochastic_gradient import (
    DivergedError,
    Dynamics,
    LangevinOutcome,
    gradient_moments,
    langevin_transitions,
)
from pymc_austerity.mode.mode_fit import FittedTerms, ModeFit, ModeReport, expanded_again, fit_mode
from pymc_austerity.model.compile.backend import NUMBA
from pymc_austerity.model.compile.protocol import exact_arithmetic
from pymc_austerity.model.compile.target import CompiledTarget
from pymc_austerity.model.factorisation import Factorisation, coordinate_name, point_of, vector_of
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.log_density import LogDensityGraph, fingerprint
from pymc_austerity.model.starting_point import require_finite
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.progress import stage
from pymc_austerity.proposals.laplace import Laplace
from pymc_austerity.step_methods.base import (
    ROWS,
    RebuiltStep,
    batch_rows,
    checked_batch_size,
    checked_steps_per_draw,
    floats,
)
from pymc_austerity.step_methods.messages import plain, refuse_discrete, refuse_short, warn_of_given
from pymc_austerity.step_methods.metropolis.options import control_variate_of, refuse_orthonormal
from pymc_austerity.step_methods.step_size import DecreasingStepSize, step_size_of
from pymc_austerity.target import Index, Matrix, Vector

logger = logging.getLogger(__name__)

_UNIT = (
    "It is a, the variance of the noise: in the units of the unconstrained variables squared, or in "
    "posterior variances with preconditioner=Laplace()."
)
# Of eigenvalues.
_ROUNDING = 1e-9
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


class SgldRecipe(NamedTuple):
    """What of a plan travels to other processes; nothing has size N."""

    dynamics: Dynamics
    mode_fit: ModeFit | None  # None if the posterior has no mode, or too many dimensions to look for one
    inflation: Inflation | None = None  # On the normal distribution at the mode


@dataclass_state
class LangevinState(StepMethodState):
    """All that the step carries from draw to draw."""

    n_transitions: int  # m, since the chain began, where the step size decreases


class SGLD(RebuiltStep):
    """Stochastic-gradient Langevin dynamics: moves along the gradient of a minibatch, never tested.

    Parameters
    ----------
    vars : variables or their names, optional
        Continuous variables to update together. Default: all of the model.
    step_size : float > 0 or DecreasingStepSize
        a: the variance of the noise of a move, in the units of the value variables squared (the unconstrained
        scale). With ``preconditioner=Laplace()`` in posterior variances.
    batch_size : int, float in (0, 1) or None, default 100
        Local terms of a minibatch, as a number or as a share. None: all.
    control_variate : Taylor, optional
        Minibatches estimate the gradient of the Taylor remainders only.
    preconditioner : Laplace, optional
        ``Laplace()``: M is the inverse precision at the posterior mode. Default: the unit matrix.
    steps_per_draw : int, default 1
        Transitions for each draw.
    threshold : int, default 1000
        A vector of at least so many terms is subsampled.
    model : pymc.Model, optional
        Default: the model of the context.
    blocked : bool, default True
        False makes one step for each variable.
    rng : int or numpy.random.Generator, optional
    initial_point : dict, optional
        A point as ``model.initial_point()`` gives it, for models where that is slow.
    compile_kwargs : dict, optional
        Not used, with a warning: transitions are compiled by numba.
    progressbar : bool, default True
        Whether a set-up that takes more than a second is shown while it lasts.

    Raises
    ------
    ValueError
        If a parameter is out of its range, a variable is discrete, the model has nothing to subsample, the
        step size is unstable at the mode, or a state of a chain is no longer finite.
    FactorisationError
        If rows of a term cannot be computed one by one.

    Warns
    -----
    SubsamplingWarning
        Once for each step: nothing corrects the distribution.

    Notes
    -----
    q' = q + (a/2) M g + N(0, a M), with g the gradient of the global terms plus N/n times that of the local
    terms of a minibatch, drawn without replacement (Welling & Teh 2011). There is never a test.

    *Sample statistics*: `step_size`, `n_used` and `fraction_used`. `sd_inflation` is the ratio of the
    stationary to the posterior standard deviation that theory predicts on a normal posterior, the largest
    over all directions. In one dimension it is sqrt((1 + aV/4) / (1 - aA/4)), with A the precision and V the
    variance of g. With several it is from the Lyapunov equation of the linear recursion. A is that of the
    mode, and V an average over draws of the normal distribution there, at the first values of all other
    variables. It is NaN where there is no mode. With neither a preconditioner nor a control variate no mode
    is looked for above 50 dimensions.

    A step size with aA >= 4 (with a preconditioner, a >= 4) has no stationary distribution, and is refused.

    *The paper, corrected*: Korattikara et al. (2014, section 6.4) blame large gradients met by noise for what
    goes wrong at a kink. On their example full gradients do the same: a mean of 0.0153, against the exact
    0.0100. With minibatches of 500 it is 0.0164. It is the Euler step, and no smaller noise mends it.

    *Guarantee*: none at a fixed step size. The error shrinks with it, and on a normal posterior
    `sd_inflation` says how large it is.

    *When it fails*: where `sd_inflation` is well above 1, and at kinks and other places where curvatures are
    larger than at the mode. `Langevin` makes the same moves and tests them.

    References
    ----------
    .. [1] Welling, M. & Teh, Y. W. (2011). Bayesian learning via stochastic gradient Langevin dynamics. ICML.
    .. [2] Baker, J., Fearnhead, P., Fox, E. & Nemeth, C. (2019). Control variates for stochastic gradient
       MCMC. Statistics and Computing 29.

    Examples
    --------
    >>> import warnings
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import SGLD, Laplace, SubsamplingWarning, Taylor
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=2000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> with pm.Model() as model:
    ...     level, slope = pm.Normal("level"), pm.Normal("slope")
    ...     visits = pm.Poisson("visits", pm.math.exp(level + slope * x), observed=y)
    >>> with model, warnings.catch_warnings():
    ...     warnings.simplefilter("ignore", SubsamplingWarning)
    ...     step = SGLD(step_size=0.1, control_variate=Taylor(), preconditioner=Laplace())
    ...     idata = pm.sample(100, tune=100, chains=1, step=step, random_seed=1, progressbar=False)
    >>> round(idata.sample_stats["sd_inflation"].mean().item(), 2)
    1.01
    """

    name = "sgld"
    _shown = (*RebuiltStep._shown, "mode_fit")
    _rebuilt = ("_factorisation", "_engine")
    _columns = ROWS
    _state_class = LangevinState
    _factorisation: Factorisation | None = None
    _engine: LangevinEngine | None = None
    _recipe: SgldRecipe
    _is_started = False
    stats_dtypes_shapes = floats("step_size", "n_used", "fraction_used", "sd_inflation")

    def __init__(
        self,
        vars: Variable | str | Sequence[Variable | str] | None = None,
        *,
        step_size: float | DecreasingStepSize,
        batch_size: int | float | None = 100,
        control_variate: Taylor | None = None,
        preconditioner: Laplace | None = None,
        steps_per_draw: int = 1,
        threshold: int = 1000,
        model: pm.Model | None = None,
        blocked: bool = True,
        rng: Any = None,
        initial_point: PointType | None = None,
        compile_kwargs: dict[str, Any] | None = None,
        progressbar: bool = True,
    ) -> None:
        self._made_for(vars, model, rng, compile_kwargs)
        asked = SgldOptions(
            self._model, self._vars, step_size_of(step_size, _UNIT),
            batch_size, control_variate, preconditioner, steps_per_draw, threshold,
        )  # fmt: skip
        self._options = checked_options(asked)
        self.tune, self.n_transitions = False, 0
        self._build_first(initial_point, progressbar)
        self._warn_of_no_test()

    # Building -------------------------------------------------------------------------------

    def _build(self, point: PointType) -> None:
        fact, terms, recipe = plan_sgld(self._options, point)
        self._require_stable(recipe)
        engine = LangevinEngine(terms, recipe.dynamics, vector_of(fact, point), point)
        mode_fit, dynamics = recipe.mode_fit, recipe.dynamics
        if mode_fit is not None:
            noise = engine.gradient_noise(mode_fit, point)
            if np.all(np.isfinite(noise)):
                inflation = Inflation(mode_fit.proxy.precision, dynamics.factor, noise, dynamics.h)
                recipe = recipe._replace(inflation=inflation)
        self._factorisation, self._recipe, self._engine = fact, recipe, engine

    def _rebuild(self, point: PointType) -> bool:
        fact = terms = _factorised(self._options, point, check=False)
        if [fingerprint(fact.graph)] != self._data_seen:
            return False
        if self._options.control_variate is not None:
            assert self._recipe.mode_fit is not None
            terms = expanded_again(TermStructure(fact), point, self._recipe.mode_fit).expanded
        self._factorisation = fact
        # The last: it tells that the step is built.
        self._engine = LangevinEngine(terms, self._recipe.dynamics, vector_of(fact, point), point)
        return True

    def _sd_inflation(self, step_size: float) -> float:
        """The ratio at a step size; NaN where no mode is known."""
        inflation = self._recipe.inflation
        return math.nan if inflation is None else inflation(step_size)

    def _require_stable(self, recipe: SgldRecipe) -> None:
        """Raise `ValueError` if the dynamics have no stationary distribution at the mode."""
        mode_fit, dynamics = recipe.mode_fit, recipe.dynamics
        if mode_fit is None:
            return
        precision = mode_fit.proxy.precision
        linear = Inflation(precision, dynamics.factor, np.zeros_like(precision), dynamics.h)
        largest = linear.largest_stable
        if dynamics.h >= largest * (1.0 - _ROUNDING):
            names = ", ".join(str(self._model.values_to_rvs[v].name) for v in self._vars)
            raise ValueError(
                f"step_size={dynamics.h:.4g} is unstable for {names}: steps from the posterior mode go "
                f"further and further away. The largest stable step size is {largest:.4g}. Take one of "
                f"{0.1 * largest:.2g} or less."
            )

    def _warn_of_no_test(self) -> None:
        predicted = self._sd_inflation(self._options.step_size.h)
        known = (
            f" On a normal posterior standard deviations would come out up to {predicted:.3g} times too "
            "large (sample statistic sd_inflation)."
            if math.isfinite(predicted)
            else ""
        )
        warn(
            "SGLD accepts every move: nothing corrects what the step size and the minibatches do to the "
            f"posterior.{known} proposal=Langevin(step_size) makes the same moves, with a test."
        )

    def _graphs(self) -> list[LogDensityGraph]:
        return [self.factorisation.graph]

    @property
    def factorisation(self) -> Factorisation:
        """The local terms. They have size N, and are not there before `require_built`."""
        assert self._factorisation is not None
        return self._factorisation

    @property
    def mode_fit(self) -> ModeReport | None:
        """What the search for the posterior mode found; None if there is no mode."""
        return None if self._recipe.mode_fit is None else self._recipe.mode_fit.report

    # PyMC's contract ------------------------------------------------------------------------

    def _begin_chain(self, n_tune: int) -> None:
        self.tune, self.n_transitions, self._is_started = False, 0, False

    def reset_tuning(self) -> None:
        """Nothing is tuned."""

    def _step(self, point: PointType) -> tuple[PointType, list[dict[str, Any]]]:
        """Make `steps_per_draw` transitions from `point`."""
        if self.require_built(point):  # other data
            self._is_started = False
        if not self._is_started:
            require_finite(self.factorisation, point)
            self._is_started = True
        outcome = self._run(self._options.steps_per_draw, point)
        n_used = outcome.n_used / self._options.steps_per_draw
        stats = {
            "step_size": outcome.step_size,
            "n_used": n_used,
            "fraction_used": n_used / self._recipe.dynamics.n_local,
            "sd_inflation": self._sd_inflation(outcome.step_size),
        }
        return point_of(self.factorisation, outcome.q, point), [stats]

    def _run(self, n: int, point: PointType) -> LangevinOutcome:
        assert self._engine is not None
        q = vector_of(self.factorisation, point)
        try:
            outcome = self._engine.run(n, self.n_transitions, self.rng, q, point)
        except DivergedError as error:
            name = coordinate_name(self.factorisation, int(error.args[0]))
            raise ValueError(
                f"The state of {name} is no longer finite after a step of size {error.args[1]:.4g}, "
                "or a gradient is not: the dynamics are unstable there. Take a smaller step_size, or start "
                "nearer to the mode, with initvals=find_mode(model)."
            ) from None
        if self._recipe.dynamics.kappa:
            self.n_transitions += n
        return outcome

    def _settings(self) -> dict[str, Any]:
        options = self._options
        size = options.step_size
        return {
            "step_size": plain(size if size.kappa else size.h),
            "batch_size": self._recipe.dynamics.n,
            "control_variate": plain(options.control_variate),
            "preconditioner": plain(options.preconditioner),
            "steps_per_draw": options.steps_per_draw,
            "threshold": plain(options.threshold),
            "n_local": self._recipe.dynamics.n_local,
        }


# The plan ---------------------------------------------------------------------------------------------------


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
    """The terms of the model, the same with what is expanded at the mode taken out, and the recipe."""
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


# Transitions, and how much too wide their distribution is ---------------------------------------------------


class LangevinEngine:
    """Transitions of `kernels.stochastic_gradient`, of the terms of a model or with Taylor remainders."""

    def __init__(self, terms: Factorisation, dynamics: Dynamics, q: Vector, point: PointType) -> None:
        stage("transitions")
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
