"""Coordinates in which a plate without remainders is independent: theta, and eps_g for each group.

With w_i = -f_i'', xbar_g the mean of the rows of a group weighted by w_i, z_i = x_i - xbar_g and
d = beta - beta*,

    e_g = u_g - u_g* + xbar_g . d,

the predictor of row i moves by t_i = e_g + z_i . d, and the second-order Taylor polynomials add up to

    c . d - d' W d / 2 + sum over g of (a_g e_g - b_g e_g^2 / 2),

without cross terms. The prior says e_g ~ N(nu_g, tau^2), nu_g = loc_g - u_g* + xbar_g . d. So e_g given theta
is N(m_g, s_g^2) but for the remainders. With t2 = tau^2, r = 1 / (1 + b_g t2) and k = a_g - b_g nu_g

    m_g = (a_g t2 + nu_g) r,    s_g^2 = t2 r,    z_g = (u_g - loc_g) / tau = tau r k + sqrt(r) eps_g,

of which nothing is lost as tau goes to 0: z_g is kept beside u_g, which does not tell it then
(`chain_memory`). The chain runs on (theta, eps), e_g = m_g + s_g eps_g, in which

    log posterior = log prior(theta) + quadratic(theta) - |eps|^2 / 2 + sum of remainders + constant,
    quadratic = c . d - d' W d / 2 + sum over g of r (a_g^2 t2 + 2 a_g nu_g - b_g nu_g^2) / 2 + log(r) / 2.

A normal likelihood with residuals of precision lambda has sums that are proportional to lambda, and no
remainders: quadratic has (N log lambda - lambda sum of squares) / 2 besides.
"""

import math

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.plates.records import GroupSums
from pymc_austerity.target import Vector

# Products of so many factors are as large as this before their logarithm is taken.
_LARGE = 1e200


@jitable
def displacement(sums: GroupSums, theta: Vector, d: Vector) -> None:
    """Write d = beta - beta*."""
    for k in range(sums.linear.shape[0]):
        d[k] = theta[sums.linear[k]] - sums.center[k]


@jitable
def prior_locations(sums: GroupSums, d: Vector, result: Vector) -> None:
    """Write loc_g - u_g* of all groups."""
    # Where a function is called for each group, counting references to its arrays takes longer than it does.
    located, own = sums.located, d[sums.moved]
    for g in range(result.shape[0]):
        result[g] = sums.offsets[g]
        for k in range(own.shape[0]):
            result[g] += located[g, k] * own[k]
    parents = sums.parents
    for g in range(parents.shape[0]):
        if parents[g] >= 0:
            result[g] += d[parents[g]]


@jitable
def locations(sums: GroupSums, d: Vector, result: Vector) -> None:
    """Write nu_g of all groups."""
    prior_locations(sums, d, result)
    means, own = sums.means, d[sums.dense]
    n_factors, starts, columns, shares = (
        sums.cells.n_factors,
        sums.cells.starts,
        sums.cells.columns,
        sums.shares,
    )
    for g in range(result.shape[0]):
        shift = 0.0
        for k in range(own.shape[0]):
            shift += means[g, k] * own[k]
        for c in range(starts[g * n_factors], starts[(g + 1) * n_factors]):
            shift += shares[c] * d[columns[c]]
        result[g] += shift


@jitable
def quadratic_of_shared(sums: GroupSums, d: Vector, log_precision: float) -> float:
    """The part of the polynomial that d alone determines, without effects of groups."""
    n, total = int(sums.gradient.shape[0]), 0.0
    for k in range(n):
        inner = sums.gradient[k]
        for j in range(n):
            inner -= 0.5 * sums.information[k, j] * d[j]
        total += inner * d[k]
    return math.exp(log_precision) * (total - 0.5 * sums.squares) + 0.5 * sums.n_normal * log_precision


@jitable
def quadratic(
    sums: GroupSums, d: Vector, tau: float, log_precision: float, nu: Vector, means: Vector, scales: Vector
) -> float:
    """The part of log p(theta) that comes from the likelihood; nu_g, m_g and s_g are written."""
    t2, precision = tau * tau, math.exp(log_precision)
    total = quadratic_of_shared(sums, d, log_precision)
    product, logarithm = 1.0, 0.0
    slopes, curvatures = sums.slopes, sums.curvatures
    locations(sums, d, nu)
    for g in range(means.shape[0]):
        a, b, own = precision * slopes[g], precision * curvatures[g], nu[g]
        r = 1.0 / (1.0 + b * t2)
        means[g] = (a * t2 + own) * r
        scales[g] = math.sqrt(t2 * r)
        total += 0.5 * r * (a * (a * t2 + 2.0 * own) - b * own * own)
        product *= 1.0 + b * t2
        if product > _LARGE:
            logarithm += math.log(product)
            product = 1.0
    return total - 0.5 * (logarithm + math.log(product))


@jitable
def standardised(sums: GroupSums, d: Vector, tau: float, effects: Vector, z: Vector) -> None:
    """Write z_g = (u_g - loc_g) / tau."""
    base = sums.effects
    prior_locations(sums, d, z)
    for g in range(z.shape[0]):
        z[g] = (effects[g] - base[g] - z[g]) / tau


@jitable
def effects_of(sums: GroupSums, d: Vector, tau: float, z: Vector, effects: Vector) -> None:
    """Write u_g = loc_g + tau z_g."""
    base = sums.effects
    prior_locations(sums, d, effects)
    for g in range(z.shape[0]):
        effects[g] += base[g] + tau * z[g]


@jitable
def eps_of(sums: GroupSums, d: Vector, tau: float, log_precision: float, z: Vector, eps: Vector) -> None:
    """Write eps_g of the standardised effects z_g, (G,)."""
    t2, precision, slopes, curvatures = tau * tau, math.exp(log_precision), sums.slopes, sums.curvatures
    locations(sums, d, eps)
    for g in range(eps.shape[0]):
        b = precision * curvatures[g]
        r = 1.0 / (1.0 + b * t2)
        eps[g] = (z[g] - tau * r * (precision * slopes[g] - b * eps[g])) / math.sqrt(r)


@jitable
def standardised_from_eps(
    sums: GroupSums, tau: float, log_precision: float, nu: Vector, eps: Vector, z: Vector
) -> None:
    """Write standardised effects z_g of eps_g, (G,)."""
    t2, precision, slopes, curvatures = tau * tau, math.exp(log_precision), sums.slopes, sums.curvatures
    for g in range(eps.shape[0]):
        b = precision * curvatures[g]
        r = 1.0 / (1.0 + b * t2)
        z[g] = tau * r * (precision * slopes[g] - b * nu[g]) + math.sqrt(r) * eps[g]
