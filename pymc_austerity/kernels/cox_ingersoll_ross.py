r"""Exact transitions of the Cox-Ingersoll-Ross process, in logs (Baker, Fearnhead, Fox & Nemeth 2018).

The process d theta = (a - theta) dt + sqrt(2 theta) dW has the stationary distribution Gamma(a, 1), and time
is measured in its relaxation times. After a time h

    theta' = (1 - e^-h) Gamma(a + K, 1),    K ~ Poisson(theta e^-h / (1 - e^-h)),

which is their transition (3.2), a non-central chi-square distribution, without any discretisation. A gamma
variable with rate b follows it as b theta: add log b to log theta before, and subtract it after.

With a small, theta falls far below the smallest floating-point number, so everything here is a logarithm.

Guarantee
---------
A transition with the same a at each step leaves Gamma(a, 1) invariant for every h. With independent,
unbiased estimates of a instead (the stochastic process, transition (3.3)), the mean of theta remains a, and
its stationary variance is a + tanh(h / 2) Var(estimate): see `cir_noise`.

When it fails
-------------
With noisy estimates the stationary distribution is *not* the gamma distribution, although the paper says so:
it is wider, and only as h goes to zero does this vanish. An estimate of a must be positive; the caller
checks.
"""

import math

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.target import Vector

# Beyond it the number of Poisson events is not drawn: rejection sampling of a Poisson variable compares
# log probabilities of size `mean log(mean)`, and their rounding errors (2e-9 here) would grow like that.
_MOST_EVENTS = 1e6
_LOG_MOST_EVENTS = math.log(_MOST_EVENTS)


@jitable
def log_gamma_draw(rng: np.random.Generator, shape: float) -> float:
    """Logarithm of a Gamma(shape, 1) variable; the shape is positive.

    The result is finite from a shape of 1e-300 on, even where the variable itself is 10^(-10^300).
    """
    if shape > 1.0:
        return math.log(rng.standard_gamma(shape))
    # Gamma(shape) = Gamma(shape + 1) U^(1 / shape), and -log U is exponential.
    return math.log(rng.standard_gamma(shape + 1.0)) - rng.standard_exponential() / shape


@jitable
def log_noncentral_gamma_draw(rng: np.random.Generator, shape: float, log_mean: float) -> float:
    """Logarithm of a Gamma(shape + K, 1) variable with K ~ Poisson(mean).

    Twice the variable is non-central chi-square with 2 shape degrees of freedom and non-centrality 2 mean.
    The shape is positive; the mean of K may be zero.

    For means up to a million K is drawn. Beyond, with Z a standard normal variable,

        Gamma(shape + K) = (Z + sqrt(2 mean))^2 / 2 + Gamma(shape - 1/2),    shape > 1/2,

    which is exact. For a smaller shape draw Y = Gamma(shape + 1 + K) in this way. Then Gamma(shape + K) has
    the distribution of Y exp(-E / (shape + K)), where E is exponential and K, given Y, a Bessel variable,
    which is replaced by its mean. The error is of order mean^(-3/2), 1e-9, of a standard deviation.
    """
    if log_mean <= _LOG_MOST_EVENTS:
        return log_gamma_draw(rng, shape + rng.poisson(math.exp(log_mean)))
    small = shape <= 0.5
    rest = shape + 0.5 if small else shape - 0.5
    root = 1.0 + rng.standard_normal() * math.exp(-0.5 * (log_mean + math.log(2.0)))
    # Divided by the mean, so that no part of the sum overflows.
    log_y = log_mean + math.log(root * root + math.exp(log_gamma_draw(rng, rest) - log_mean))
    if small:
        # shape + K, given Y: z I_{shape + 1}(z) / (2 I_shape(z)) with z = 2 sqrt(mean Y), for large z
        events_and_shape = math.exp(min(0.5 * (log_mean + log_y), 700.0)) + 0.5 * shape - 0.25
        log_y -= rng.standard_exponential() / events_and_shape
    return log_y


@jitable
def cir_transitions(rng: np.random.Generator, log_theta: Vector, shape: Vector, step_size: float) -> Vector:
    """Logarithms of states after transitions (3.2) of n processes, the step of Algorithm 1 of the paper.

    Logarithms of states, and shapes, have shape (n,). States may be zero. Shapes are the a, or estimates of
    them; positive. `step_size` is h, in relaxation times of the processes; positive. With inf the result are
    draws of Gamma(a, 1). A state beyond 1e28 moves by less than its logarithm can resolve.
    """
    log_scale = math.log(-math.expm1(-step_size))
    result = np.empty(log_theta.shape[0])
    for j in range(log_theta.shape[0]):
        log_mean = log_theta[j] - step_size - log_scale
        result[j] = log_scale + log_noncentral_gamma_draw(rng, shape[j], log_mean)
    return result


@jitable
def cir_noise(step_size: float) -> float:
    """Share of the variance of the estimates of a that remains in the stationary variance: tanh(h / 2).

    For a gamma variable with rate b the stationary variance is [a + tanh(h / 2) Var(estimate)] / b^2
    (Corollary 4.2 of the paper as M goes to infinity). The step size h is in relaxation times.
    """
    return math.tanh(0.5 * step_size)
