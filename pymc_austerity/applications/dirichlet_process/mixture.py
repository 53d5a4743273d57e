"""A Dirichlet-process mixture of categorical data: `dp_slice` compiled, with checks of its input."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from pymc_austerity.applications.dirichlet_process.slice import GammaStep, allocate, cir_step, slice_sweep
from pymc_austerity.applications.dirichlet_process.state import MixtureState, Units, log_likelihood, log_sum
from pymc_austerity.applications.topics.corpus import whole_numbers
from pymc_austerity.compilation import entry, jitable
from pymc_austerity.kernels.cox_ingersoll_ross import log_gamma_draw
from pymc_austerity.target import Vector
from pymc_austerity.validation import is_whole


class DirichletProcessMixture:
    """Mixture of categorical distributions with a Dirichlet-process prior, sampled from minibatches of units.

    Equation (5.1) of Baker et al. (2018): unit i has a list of categories, all from the distribution phi of
    its component; phi ~ Dirichlet(a, .., a), weights by stick-breaking with concentration alpha ~ Gamma(b1,
    rate b2). The number of components is not bounded.

    Parameters
    ----------
    starts : array_like of int, shape (N + 1,)
        The categories of unit i are ``categories[starts[i] : starts[i + 1]]``, as in a sparse row matrix.
    categories : array_like of int, shape (M,)
        From 0 to `n_categories` - 1; repeat a category that is observed several times.
    n_categories : int
        D.
    a : float, default 0.5
        Shape of the symmetric Dirichlet distribution of a component.
    alpha_prior : tuple of float, default (1, 1)
        Shape b1 and rate b2.
    batch_size : int, optional
        Units that each sweep reads, drawn without replacement; all by default.
    step_size : float, default inf
        h of the gamma variables of components. The default draws them afresh: the exact slice sampler if
        `batch_size` is everything, but too noisy otherwise.
    stick_step_size : float, optional
        h of those of the sticks; `step_size` by default.
    step : callable, default `cir_step`
        `cir_step` (SCIR) or `sgrld_step`, which needs a finite step size.
    n_start : int, default 20
        Components at the start. They are drawn from the prior, and each unit goes to one of them with a
        probability in proportion to its likelihood.
    rng : numpy.random.Generator or int, optional

    Attributes
    ----------
    state : MixtureState

    Raises
    ------
    ValueError
        If an argument is out of its range.

    Notes
    -----
    Guarantee and When it fails: see `dp_slice`. A sweep costs O(n C + C D) for C components.

    Examples
    --------
    >>> import numpy as np
    >>> from pymc_austerity.applications.dirichlet_process.mixture import DirichletProcessMixture
    >>> starts, categories = np.array([0, 2, 4, 6]), np.array([0, 1, 0, 1, 2, 2])
    >>> mixture = DirichletProcessMixture(starts, categories, 3, rng=1)
    >>> mixture.sweep(100)
    >>> mixture.log_predictive(np.array([0, 2]), np.array([0, 1])).shape
    (1,)
    """

    def __init__(
        self,
        starts: npt.ArrayLike,
        categories: npt.ArrayLike,
        n_categories: int,
        *,
        a: float = 0.5,
        alpha_prior: tuple[float, float] = (1.0, 1.0),
        batch_size: int | None = None,
        step_size: float = math.inf,
        stick_step_size: float | None = None,
        step: GammaStep = cir_step,
        n_start: int = 20,
        rng: np.random.Generator | int | None = None,
    ) -> None:
        self._units = checked_units(starts, categories, n_categories)
        n_units = self._units.starts.shape[0] - 1
        batch_size = n_units if batch_size is None else batch_size
        if not is_whole(batch_size) or not 1 <= batch_size <= n_units:
            raise ValueError(
                f"batch_size must be from 1 to the {n_units} units, an integer, got {batch_size}."
            )
        stick_step_size = step_size if stick_step_size is None else stick_step_size
        positive = {
            "a": a, "the shape in alpha_prior": alpha_prior[0], "the rate in alpha_prior": alpha_prior[1],
            "step_size": step_size, "stick_step_size": stick_step_size, "n_start": n_start,
        }  # fmt: skip
        for name, value in positive.items():
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}.")
        if step is not cir_step and not math.isfinite(max(step_size, stick_step_size)):
            raise ValueError("Only cir_step takes a step_size of inf. Give one, such as 0.001.")
        self._prior = np.full(n_categories, float(a))
        b1, b2 = alpha_prior
        self._settings = (float(b1), float(b2)), int(batch_size), float(step_size), float(stick_step_size)
        self._sweeps = compiled_sweeps(step)
        self._rng = np.random.default_rng(rng)
        self.state = compiled(start)(self._rng, self._units, self._prior, b1 / b2, n_start)

    def sweep(self, n_sweeps: int = 1) -> None:
        """Update `state` by some sweeps."""
        self.state = self._sweeps(n_sweeps, self._rng, self.state, self._units, self._prior, *self._settings)

    def log_predictive(self, starts: npt.ArrayLike, categories: npt.ArrayLike) -> Vector:
        """Log probability of each new unit given the present components.

        The order of its categories counts: there is no multinomial coefficient.

        Parameters
        ----------
        starts, categories : array_like
            As those of the data, for N' units.

        Returns
        -------
        ndarray of shape (N',)
        """
        units = checked_units(starts, categories, self._prior.shape[0])
        result: Vector = compiled(log_predictive)(self.state, units, self._prior)
        return result

    @property
    def alpha(self) -> float:
        """The concentration."""
        return float(self.state.alpha[0])

    @property
    def n_occupied(self) -> int:
        """Number of components that have units."""
        return int(np.count_nonzero(self.state.members))


def checked_units(starts: npt.ArrayLike, categories: npt.ArrayLike, n_categories: int) -> Units:
    """`Units`, or an error."""
    units = Units(whole_numbers(starts, "starts"), whole_numbers(categories, "categories"))
    if units.starts.ndim != 1 or len(units.starts) < 2 or units.categories.ndim != 1:
        raise ValueError("starts (N + 1,) and categories (M,) must be vectors, with at least one unit.")
    if units.starts[0] != 0 or units.starts[-1] != len(units.categories) or np.any(np.diff(units.starts) < 0):
        raise ValueError(
            f"starts must rise from 0 to the {len(units.categories)} categories, got {units.starts[0]} to "
            f"{units.starts[-1]}, or it falls in between."
        )
    outside = (units.categories < 0) | (units.categories >= n_categories)
    if np.any(outside):
        raise ValueError(
            f"categories must be from 0 to n_categories - 1 = {n_categories - 1}, got "
            f"{units.categories[outside][0]}."
        )
    return units


@cache
def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, compiled by numba."""
    result: Callable[..., Any] = entry(function, cache=False)
    return result


@cache
def compiled_sweeps(step: GammaStep) -> Callable[..., Any]:
    """``(n_sweeps, rng, state, ..) -> state``, compiled around a step."""

    def sweeps(
        n_sweeps: int,
        rng: np.random.Generator,
        state: MixtureState,
        units: Units,
        prior: Vector,
        alpha_prior: tuple[float, float],
        batch_size: int,
        step_size: float,
        stick_step_size: float,
    ) -> MixtureState:
        for _ in range(n_sweeps):
            state = slice_sweep(
                rng, state, units, prior, alpha_prior, batch_size, step_size, stick_step_size, step
            )
        return state

    return compiled(sweeps)


@jitable
def start(rng: np.random.Generator, units: Units, prior: Vector, alpha: float, n_start: int) -> MixtureState:
    """Components from the prior, each unit allocated in proportion to its likelihood."""
    n_units, n_categories = units.starts.shape[0] - 1, prior.shape[0]
    state = MixtureState(
        np.zeros((n_start, n_categories)),
        np.zeros(n_start),
        np.zeros((n_start, 2)),
        np.zeros(n_start),
        np.zeros(n_start, np.int64),
        np.zeros(n_start, np.int64),
        np.array([n_start]),
        np.array([alpha]),
        np.zeros(n_units, np.int64),
        np.arange(n_units),
    )
    for j in range(n_start):
        state.log_sticks[j, 0] = log_gamma_draw(rng, 1.0)
        state.log_sticks[j, 1] = log_gamma_draw(rng, alpha)
        for c in range(n_categories):
            state.log_theta[j, c] = log_gamma_draw(rng, prior[c])
        state.log_total[j] = log_sum(state.log_theta[j])
    state.members[0], state.sizes[0] = n_units, units.categories.shape[0]
    # All weights are one here, so all components are open.
    allocate(rng, state, units, state.order, np.full(n_units, -1.0))
    return state


@jitable
def log_predictive(state: MixtureState, units: Units, prior: Vector) -> Vector:
    """Log probability of the categories of new units given the components, (N,).

    Components that are not drawn have the rest of the stick, and the probability that the prior gives.
    """
    n_drawn = state.n_drawn[0]
    log_rest = 0.0
    for j in range(n_drawn):
        log_rest += state.log_sticks[j, 1] - log_sum(state.log_sticks[j])
    result, log_p = np.empty(units.starts.shape[0] - 1), np.empty(n_drawn + 1)
    for i in range(result.shape[0]):
        for j in range(n_drawn):
            log_p[j] = state.log_w[j] + log_likelihood(state, units, i, j)
        log_p[n_drawn] = log_rest + log_prior_predictive(units, i, prior)
        result[i] = log_sum(log_p)
    return result


@jitable
def log_prior_predictive(units: Units, i: int, prior: Vector) -> float:
    """Log probability of the categories of unit i under a component from the prior, by Polya's urn."""
    mine = units.categories[units.starts[i] : units.starts[i + 1]]
    result, total = 0.0, prior.sum()
    for k in range(mine.shape[0]):
        seen = 0
        for earlier in range(k):
            seen += mine[earlier] == mine[k]
        result += math.log((prior[mine[k]] + seen) / (total + k))
    return result
