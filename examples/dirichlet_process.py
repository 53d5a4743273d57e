r"""The slice sampler for Dirichlet-process mixtures of categorical data, exact or from minibatches.

Appendix D of Baker, Fearnhead, Fox & Nemeth (2018), after Walker (2007), Papaspiliopoulos (2008) and
Kalli, Griffin & Walker (2011). A unit i (a user, a document) has a list of categories, independent draws
from the distribution phi_j of its component j = z_i:

    phi_j ~ Dirichlet(a, .., a),   w_j = v_j prod_(l<j) (1 - v_l),   v_j ~ Beta(1, alpha),
    alpha ~ Gamma(b1, rate b2),    P(z_i = j) = w_j,   j = 1, 2, ...

With u_i ~ U(0, w_(z_i)) only the finitely many components with w_j > u_i are open to unit i. One sweep
updates, with the units of a batch of n of N,

    v_j       for j <= Z* = max z: two gamma variables, v_j = g1 / (g1 + g2), with shapes 1 + m_j and
              alpha + sum_(l>j) m_l, where m_j is N / n times the units of component j in the batch
    phi_j     for j <= Z*: gamma variables with shapes a + N / n times the categories in the batch
    u_i       in the batch
    alpha     ~ Gamma(b1 + Z*, rate b2 - sum_(j<=Z*) log(1 - v_j))
    v, phi    of further components from the prior, until the rest of the stick is shorter than all u_i
    z_i       in the batch.

The gamma variables take a step that the caller chooses: `cir_step` (SCIR), or another, such as that of
Patterson & Teh in `dp_mixture_msweb.py`. All of them are kept as logarithms. `DirichletProcessMixture` is the
sampler, compiled, with checks of its input.

The appendix carries the sums of these variables, theta_j1 + .. + theta_jD and g1 + g2, from one sweep to the
next. Given z and alpha such a sum is a gamma variable whose shape changes when these do, and what z and alpha
are drawn from knows nothing of the sum: with all units and a finite step the chain is not exact then (total
variation of the partition of four units: 0.02). `cir_step` therefore draws the sums afresh, with the exact
numbers of units and categories, which are kept up as units move.

Guarantee
---------
Exact if the batch is everything and the step is `cir_step`: then a step of any size, and a fresh draw with a
step size of inf (the ordinary slice sampler), leaves the conditional distribution invariant. With smaller
batches z and u are still drawn from their conditionals, but v and phi from wider distributions.

When it fails
-------------
With a batch a component of few units is seen by chance only: N / n units at a time, or none. And as all slice
samplers it moves units one by one, so that it stays near one mode of many for long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numba
import numpy as np
import numpy.typing as npt
from numba.extending import register_jitable

from pymc_austerity.kernels.categorical_gibbs import draw_category
from pymc_austerity.kernels.cox_ingersoll_ross import cir_transitions, log_gamma_draw
from pymc_austerity.kernels.subsample import draw_without_replacement

Index = npt.NDArray[np.int64]
Vector = npt.NDArray[np.float64]
# (rng, log_theta, prior, counts, total, step_size) -> log_theta: gamma variables with shapes prior + counts,
# where `counts` may be estimates, and `total` is their exact sum.
GammaStep = Callable[[np.random.Generator, Vector, Vector, Vector, float, float], Vector]


# State ------------------------------------------------------------------------------------------------


class MixtureState(NamedTuple):
    """Where the sampler is; K components have room in its arrays, C of them are drawn.

    Attributes
    ----------
    log_theta : ndarray of shape (K, D)
        Logarithms of gamma variables: phi_j = theta_j / sum(theta_j).
    log_total : ndarray of shape (K,)
        log sum(theta_j).
    log_sticks : ndarray of shape (K, 2)
        Logarithms of g1 and g2.
    log_w : ndarray of shape (K,)
        Logarithms of the weights.
    members, sizes : ndarray of int, shape (K,)
        Number of units of each component, and of their categories.
    n_drawn : ndarray of int, shape (1,)
        C.
    alpha : ndarray of shape (1,)
    z : ndarray of int, shape (N,)
        Component of each unit.
    order : ndarray of int, shape (N,)
        A permutation; its first elements are the last batch.
    """

    log_theta: Vector
    log_total: Vector
    log_sticks: Vector
    log_w: Vector
    members: Index
    sizes: Index
    n_drawn: Index
    alpha: Vector
    z: Index
    order: Index


class Units(NamedTuple):
    """Categories of all units: those of unit i are ``categories[starts[i] : starts[i + 1]]``.

    Attributes
    ----------
    starts : ndarray of int, shape (N + 1,)
    categories : ndarray of int, shape (M,)
        Repeated as often as observed.
    """

    starts: Index
    categories: Index


@register_jitable
def with_room(state: MixtureState, j: int) -> MixtureState:
    """`state` if it has room for component j, else a copy with twice the room."""
    old, n_categories = state.log_theta.shape
    if j < old:
        return state
    new = 2 * old
    log_theta, log_total = np.zeros((new, n_categories)), np.zeros(new)
    log_sticks, log_w = np.zeros((new, 2)), np.zeros(new)
    members, sizes = np.zeros(new, np.int64), np.zeros(new, np.int64)
    log_theta[:old], log_total[:old] = state.log_theta, state.log_total
    log_sticks[:old], log_w[:old] = state.log_sticks, state.log_w
    members[:old], sizes[:old] = state.members, state.sizes
    return MixtureState(
        log_theta, log_total, log_sticks, log_w, members, sizes,
        state.n_drawn, state.alpha, state.z, state.order,
    )  # fmt: skip


@register_jitable
def move(state: MixtureState, units: Units, i: int, j: int) -> None:
    """Put unit i into component j."""
    size = units.starts[i + 1] - units.starts[i]
    state.members[state.z[i]] -= 1
    state.members[j] += 1
    state.sizes[state.z[i]] -= size
    state.sizes[j] += size
    state.z[i] = j


@register_jitable
def log_likelihood(state: MixtureState, units: Units, i: int, j: int) -> float:
    """Log probability of the categories of unit i under component j."""
    result = 0.0
    for c in units.categories[units.starts[i] : units.starts[i + 1]]:
        result += state.log_theta[j, c] - state.log_total[j]
    return result


@register_jitable
def log_sum(x: Vector) -> float:
    """Logarithm of sum(exp(x))."""
    largest = x.max()
    return float(largest + math.log(np.exp(x - largest).sum()))


# One sweep --------------------------------------------------------------------------------------------


@register_jitable
def cir_step(
    rng: np.random.Generator, log_theta: Vector, prior: Vector, counts: Vector, total: float, step_size: float
) -> Vector:
    """SCIR, with the sum drawn afresh; with a step size of inf a draw of everything."""
    log_total = log_gamma_draw(rng, prior.sum() + total)
    return cir_transitions(rng, log_theta + (log_total - log_sum(log_theta)), prior + counts, step_size)


@register_jitable
def slice_sweep(
    rng: np.random.Generator,
    state: MixtureState,
    units: Units,
    prior: Vector,
    alpha_prior: tuple[float, float],
    batch_size: int,
    step_size: float,
    stick_step_size: float,
    step: GammaStep,
) -> MixtureState:
    """One sweep; arrays of `state` are overwritten, and replaced by larger ones when components need room.

    Parameters
    ----------
    rng : numpy.random.Generator
    state : MixtureState
    units : Units
    prior : ndarray of shape (D,)
        a, for each category.
    alpha_prior : tuple of float
        Shape b1 and rate b2.
    batch_size : int
        n.
    step_size, stick_step_size : float
        Those of the gamma variables of phi and of v.
    step : callable
        `cir_step`, or another `GammaStep`.

    Returns
    -------
    MixtureState
    """
    draw_without_replacement(rng, state.order, 0, batch_size)
    batch = state.order[:batch_size]
    top = last_occupied(state.members) + 1
    n_units, n_categories = scaled_counts(units, state.z, batch, top, prior.shape[0])
    behind = counts_behind(n_units)
    stick_prior = np.array([1.0, state.alpha[0]])
    not_before = float(state.z.shape[0])  # units of component j and of those behind
    for j in range(top):
        counts = np.array([n_units[j], behind[j]])
        state.log_sticks[j] = step(rng, state.log_sticks[j], stick_prior, counts, not_before, stick_step_size)
        not_before -= state.members[j]
        state.log_theta[j] = step(
            rng, state.log_theta[j], prior, n_categories[j], float(state.sizes[j]), step_size
        )
        state.log_total[j] = log_sum(state.log_theta[j])
    log_rest = break_sticks(state.log_sticks, state.log_w, top)
    log_u = np.empty(batch_size)
    for k in range(batch_size):
        log_u[k] = state.log_w[state.z[batch[k]]] - rng.standard_exponential()
    state.alpha[0] = rng.standard_gamma(alpha_prior[0] + top) / (alpha_prior[1] - log_rest)
    state = draw_components(rng, state, prior, top, log_rest, log_u.min())
    allocate(rng, state, units, batch, log_u)
    return state


@register_jitable
def last_occupied(members: Index) -> int:
    """The last component that has units (Z*, counted from zero)."""
    j: int = members.shape[0] - 1
    while members[j] == 0:
        j -= 1
    return j


@register_jitable
def scaled_counts(units: Units, z: Index, batch: Index, top: int, n_categories: int) -> tuple[Vector, Vector]:
    """N / n times the units, (top,), and the categories, (top, D), of each component in the batch."""
    scale = z.shape[0] / batch.shape[0]
    of_units, of_categories = np.zeros(top), np.zeros((top, n_categories))
    for i in batch:
        of_units[z[i]] += scale
        for c in units.categories[units.starts[i] : units.starts[i + 1]]:
            of_categories[z[i], c] += scale
    return of_units, of_categories


@register_jitable
def counts_behind(counts: Vector) -> Vector:
    """sum_(l>j) counts_l for each j."""
    result = np.zeros(counts.shape[0])
    for j in range(counts.shape[0] - 2, -1, -1):
        result[j] = result[j + 1] + counts[j + 1]
    return result


@register_jitable
def break_sticks(log_sticks: Vector, log_w: Vector, top: int) -> float:
    """Weights of the first components from their sticks; returns log of what remains, sum log(1 - v_j)."""
    log_rest = 0.0
    for j in range(top):
        log_total = log_sum(log_sticks[j])
        log_w[j] = log_rest + log_sticks[j, 0] - log_total
        log_rest += log_sticks[j, 1] - log_total
    return log_rest


@register_jitable
def draw_components(
    rng: np.random.Generator, state: MixtureState, prior: Vector, top: int, log_rest: float, log_u: float
) -> MixtureState:
    """Draw components from the prior until the rest of the stick is shorter than the smallest u.

    k* is the first k with w_1 + .. + w_k > 1 - u*, as all components behind it have weights below u*. (The
    paper's D.2 has the inequality the other way round.)
    """
    j = top
    while log_rest > log_u:
        state = with_room(state, j)
        state.log_sticks[j, 0] = log_gamma_draw(rng, 1.0)
        state.log_sticks[j, 1] = log_gamma_draw(rng, state.alpha[0])
        log_total = log_sum(state.log_sticks[j])
        state.log_w[j] = log_rest + state.log_sticks[j, 0] - log_total
        log_rest += state.log_sticks[j, 1] - log_total
        for c in range(prior.shape[0]):
            state.log_theta[j, c] = log_gamma_draw(rng, prior[c])
        state.log_total[j] = log_sum(state.log_theta[j])
        j += 1
    state.n_drawn[0] = j
    return state


@register_jitable
def allocate(
    rng: np.random.Generator, state: MixtureState, units: Units, batch: Index, log_u: Vector
) -> None:
    """Draw z of each unit of the batch: among components with w_j > u_i in proportion to the likelihood."""
    log_p = np.empty(state.n_drawn[0])
    for k in range(batch.shape[0]):
        i = batch[k]
        for j in range(log_p.shape[0]):
            log_p[j] = -math.inf
            if state.log_w[j] > log_u[k]:
                log_p[j] = log_likelihood(state, units, i, j)
        move(state, units, i, draw_category(rng, log_p))


# A start, and predictions -----------------------------------------------------------------------------


@register_jitable
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


@register_jitable
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


@register_jitable
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


# The mixture ------------------------------------------------------------------------------------------


def checked_units(starts: npt.ArrayLike, categories: npt.ArrayLike, n_categories: int) -> Units:
    """`Units`, or an error."""
    units = Units(np.asarray(starts).astype(np.int64), np.asarray(categories).astype(np.int64))
    if np.any(units.starts != starts) or np.any(units.categories != categories):
        raise ValueError("starts and categories must hold whole numbers.")
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


compiled = cache(numba.njit)


@cache
def compiled_sweeps(step: GammaStep) -> Callable[..., MixtureState]:
    """``(n_sweeps, rng, state, ..) -> state``, compiled around a step."""

    def sweeps(n_sweeps, rng, state, units, prior, alpha_prior, batch_size, step_size, stick_step_size):
        for _ in range(n_sweeps):
            state = slice_sweep(
                rng, state, units, prior, alpha_prior, batch_size, step_size, stick_step_size, step
            )
        return state

    return numba.njit(sweeps)


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
        `cir_step` (SCIR), or another `GammaStep`, which needs a finite step size.
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
    *Guarantee* and *When it fails*: see the head of this file. A sweep costs O(n C + C D) for C components.

    Examples
    --------
    >>> import numpy as np
    >>> from dirichlet_process import DirichletProcessMixture
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
        if batch_size not in range(1, n_units + 1):
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
        return compiled(log_predictive)(self.state, units, self._prior)

    @property
    def alpha(self) -> float:
        """The concentration."""
        return float(self.state.alpha[0])

    @property
    def n_occupied(self) -> int:
        """Number of components that have units."""
        return int(np.count_nonzero(self.state.members))
