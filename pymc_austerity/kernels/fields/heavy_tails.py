"""Heavy-tailed effects: normal ones given a precision of each, which is drawn.

A standard effect t of Student's or Laplace's distribution is normal given its own precision lambda:

    Student's t of nu:  lambda ~ Gamma(nu / 2, nu / 2),
                        lambda | t ~ Gamma((nu + 1) / 2, (nu + t^2) / 2);
    Laplace's:          1 / lambda ~ Exponential(1 / 2),
                        lambda | t ~ InverseGaussian(1 / |t|, 1).

A sweep begins with all lambda given t, which reads no row. Given these the prior of a field is normal, with
lambda in R. A chain need not remember them.
"""

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.records import HeavyTails
from pymc_austerity.target import Vector

# Laplace's precision is bounded where t is zero, by the square of this.
_NEAREST = 1e-100


@jitable
def draw_precisions(
    rng: np.random.Generator, tails: HeavyTails, features: Vector, t: Vector, precisions: Vector
) -> None:
    """Draw the precisions of all heavy-tailed effects, given these."""
    for k in range(tails.coordinates.shape[0]):
        c = tails.coordinates[k]
        if tails.degrees[k] > 0.0:
            nu = tails.degrees[k] * features[tails.numbers[k]]
            precisions[c] = 2.0 * rng.standard_gamma(0.5 * (nu + 1.0)) / (nu + t[c] * t[c])
            continue
        mean = 1.0 / max(abs(t[c]), _NEAREST)
        normal = rng.standard_normal()
        a = 0.5 * mean * normal * normal
        smaller = mean / (1.0 + a + math.sqrt(a * (2.0 + a)))
        precisions[c] = smaller if rng.random() * (mean + smaller) <= mean else mean * (mean / smaller)


@jitable
def log_prior_of_precisions(tails: HeavyTails, features: Vector, precisions: Vector) -> float:
    """Log density of the precisions, as far as it depends on theta: by degrees of freedom that do."""
    total, k, n = 0.0, 0, tails.coordinates.shape[0]
    while k < n:
        number, degrees = tails.numbers[k], tails.degrees[k]
        if number == 0 or degrees == 0.0:
            k += 1
            continue
        half, count, sums = 0.5 * degrees * features[number], 0.0, 0.0
        while k < n and tails.numbers[k] == number and tails.degrees[k] == degrees:
            value = precisions[tails.coordinates[k]]
            count, sums, k = count + 1.0, sums + math.log(value) - value, k + 1
        if not half > 0.0:
            return -math.inf
        total += count * (half * math.log(half) - math.lgamma(half)) + half * sums
    return total
