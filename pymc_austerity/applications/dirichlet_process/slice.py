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

The gamma variables take a step that the caller chooses: `cir_step` (SCIR) or `sgrld_step`. All of them are
kept as logarithms.

The appendix carries the sums of these variables, theta_j1 + .. + theta_jD and g1 + g2, from one sweep to the
next. Given z and alpha such a sum is a gamma variable whose shape changes when these do, and what z and alpha
are drawn from knows nothing of the sum: with all units and a finite step the chain is not exact then (total
variation of the partition of four units: 0.02). `cir_step` therefore draws the sums afresh, with the exact
numbers of units and categories, which are kept up as units move.

Guarantee
---------
Exact if the batch is everything and the step is `cir_step`: then a step of any size, and a fresh draw with a
step size of inf (the ordinary slice sampler), leaves the conditional distribution invariant. With smaller
batches z and u are still drawn from their conditionals, but v and phi from wider distributions (see `cir`).

When it fails
-------------
With a batch a component of few units is seen by chance only: N / n units at a time, or none. And as all slice
samplers it moves units one by one, so that it stays near one mode of many for long.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from pymc_austerity.applications.dirichlet_process.state import (
    MixtureState,
    Units,
    log_likelihood,
    log_sum,
    move,
    with_room,
)
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.categorical_gibbs import draw_category
from pymc_austerity.kernels.cox_ingersoll_ross import cir_transitions, log_gamma_draw
from pymc_austerity.kernels.langevin import sgrld_transitions
from pymc_austerity.kernels.subsample import draw_without_replacement
from pymc_austerity.target import Index, Vector

# (rng, log_theta, prior, counts, total, step_size) -> log_theta: gamma variables with shapes prior + counts,
# where `counts` may be estimates, and `total` is their exact sum.
GammaStep = Callable[[np.random.Generator, Vector, Vector, Vector, float, float], Vector]


@jitable
def cir_step(
    rng: np.random.Generator, log_theta: Vector, prior: Vector, counts: Vector, total: float, step_size: float
) -> Vector:
    """SCIR, with the sum drawn afresh; with a step size of inf a draw of everything."""
    log_total = log_gamma_draw(rng, prior.sum() + total)
    return cir_transitions(rng, log_theta + (log_total - log_sum(log_theta)), prior + counts, step_size)


@jitable
def sgrld_step(
    rng: np.random.Generator, log_theta: Vector, prior: Vector, counts: Vector, total: float, step_size: float
) -> Vector:
    """The step of Patterson & Teh (2013): the sum is drawn to that of `prior`, whatever the counts."""
    theta = np.exp(log_theta)
    drift = prior - theta + counts - counts.sum() * theta / theta.sum()
    return np.log(sgrld_transitions(rng, theta, drift, step_size))


@jitable
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
        `cir_step` or `sgrld_step`.

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


@jitable
def last_occupied(members: Index) -> int:
    """The last component that has units (Z*, counted from zero)."""
    j: int = members.shape[0] - 1
    while members[j] == 0:
        j -= 1
    return j


@jitable
def scaled_counts(units: Units, z: Index, batch: Index, top: int, n_categories: int) -> tuple[Vector, Vector]:
    """N / n times the units, (top,), and the categories, (top, D), of each component in the batch."""
    scale = z.shape[0] / batch.shape[0]
    of_units, of_categories = np.zeros(top), np.zeros((top, n_categories))
    for i in batch:
        of_units[z[i]] += scale
        for c in units.categories[units.starts[i] : units.starts[i + 1]]:
            of_categories[z[i], c] += scale
    return of_units, of_categories


@jitable
def counts_behind(counts: Vector) -> Vector:
    """sum_(l>j) counts_l for each j."""
    result = np.zeros(counts.shape[0])
    for j in range(counts.shape[0] - 2, -1, -1):
        result[j] = result[j + 1] + counts[j + 1]
    return result


@jitable
def break_sticks(log_sticks: Vector, log_w: Vector, top: int) -> float:
    """Weights of the first components from their sticks; returns log of what remains, sum log(1 - v_j)."""
    log_rest = 0.0
    for j in range(top):
        log_total = log_sum(log_sticks[j])
        log_w[j] = log_rest + log_sticks[j, 0] - log_total
        log_rest += log_sticks[j, 1] - log_total
    return log_rest


@jitable
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


@jitable
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
