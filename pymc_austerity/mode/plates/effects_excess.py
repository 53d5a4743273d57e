"""What a prior of effects that is not normal adds to the Laplace marginal of theta, on average over eps.

The sum over groups of excess(y_g), y_g = tau r k + sqrt(r) eps_g with k = a_g - b_g nu_g, is a function of
theta at fixed eps (`kernels.plates.effects_density`). Its mean over some draws of eps belongs to the log
density from which theta is proposed. Only proposals depend on what is computed here.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln

from pymc_austerity.kernels.plates.effects_density import LAPLACE, LOGISTIC, NORMAL, STUDENT_T
from pymc_austerity.kernels.plates.records import EffectsDensity, GroupSums
from pymc_austerity.mode.plates.group_means import location_slopes, locations
from pymc_austerity.model.plates.effects_prior import EffectsPrior
from pymc_austerity.target import Matrix, Vector

_KINDS = {
    "Normal": NORMAL, "StudentT": STUDENT_T, "Cauchy": STUDENT_T, "Laplace": LAPLACE, "Logistic": LOGISTIC,
}  # fmt: skip
# The kink of Laplace's density is rounded off, as far as this from zero, for a search by its curvature.
_ROUND = 0.1
# Steps for derivatives by the shape, relative to it.
_STEP = 1e-3


def density_of(prior: EffectsPrior) -> EffectsDensity:
    """Prior density of effects in the form that kernels take."""
    return EffectsDensity(_KINDS[prior.family.name], prior.ratio)


class ExcessAt(NamedTuple):
    """The mean over eps of the sum over groups, with derivatives by (d, log tau^2, log lambda, shape)."""

    value: float
    gradient: Vector
    hessian: Matrix


class EffectsExcess(NamedTuple):
    """The excess of a prior over the normal one, over some draws of eps."""

    density: EffectsDensity
    eps: Matrix  # (k, G)

    def __call__(
        self, sums: GroupSums, d: Vector, log_square: float, log_precision: float, shape: float
    ) -> ExcessAt:
        """Excess at theta with gradient and Hessian, by d, log tau^2, log lambda and the shape."""
        n = len(d)
        if self.density.kind == NORMAL:
            return ExcessAt(0.0, np.zeros(n + 3), np.zeros((n + 3, n + 3)))
        y, slopes, curved = self._coordinates(sums, d, log_square, log_precision)
        value, first, second, mixed, of_shape = self._derivatives(y, shape)
        # By (nu_g, log tau^2, log lambda) for each group, averaged over eps.
        v = np.mean(first * slopes, axis=1)
        m = np.mean(second * slopes[:, None] * slopes[None] + first * curved, axis=2)
        s = np.mean(mixed * slopes, axis=1)
        gradient, hessian = np.zeros(n + 3), np.zeros((n + 3, n + 3))
        by = location_slopes(sums).T
        gradient[:n], gradient[n : n + 2] = by @ v[0], v[1:].sum(axis=1)
        hessian[:n, :n] = (by * m[0, 0]) @ by.T
        hessian[:n, n : n + 2] = by @ m[0, 1:].T
        hessian[n : n + 2, n : n + 2] = m[1:, 1:].sum(axis=2)
        hessian[:n, -1], hessian[n : n + 2, -1] = by @ s[0], s[1:].sum(axis=1)
        gradient[-1], hessian[-1, -1] = of_shape
        upper = np.triu(hessian, 1)
        return ExcessAt(value, gradient, np.triu(hessian) + upper.T)

    def _coordinates(
        self, sums: GroupSums, d: Vector, log_square: float, log_precision: float
    ) -> tuple[Matrix, Matrix, Matrix]:
        """All y (k, G), and their first and second derivatives by (nu_g, log tau^2, log lambda)."""
        tau, precision = np.exp(0.5 * log_square), np.exp(log_precision)
        nu = locations(sums, d)
        a, b = precision * sums.slopes, precision * sums.curvatures
        r = 1.0 / (1.0 + b * tau**2)
        k, scale = a - b * nu, tau * r
        noise = np.sqrt(r) * self.eps
        less = -0.5 * (1.0 - r) * noise
        lesser = -0.5 * (1.0 - r) * (1.5 * r - 0.5) * noise
        zero = np.zeros_like(noise)
        y = scale * k + noise
        slopes = np.array([zero - scale * b, scale * (r - 0.5) * k + less, scale * r * k + less])
        by_square = scale * k * (0.5 * (r - 0.5) - (2.0 * r - 0.5) * (1.0 - r)) + lesser
        by_both = scale * k * ((r - 0.5) - (2.0 * r - 0.5) * (1.0 - r)) + lesser
        by_precision = scale * k * r * (2.0 * r - 1.0) + lesser
        of_square, of_precision = zero - scale * b * (r - 0.5), zero - scale * b * r
        curved = np.array(
            [
                [zero, of_square, of_precision],
                [of_square, by_square, by_both],
                [of_precision, by_both, by_precision],
            ]
        )
        return y, slopes, curved

    def _derivatives(
        self, y: Matrix, shape: float
    ) -> tuple[float, Matrix, Matrix, Matrix, tuple[float, float]]:
        """The sum, first and second derivatives by y, the mixed one, and both of the sum by the shape."""
        c, log_density = self.density.ratio, _LOG_DENSITIES[self.density.kind]
        value, first, second = log_density(c * y, shape)
        total = self._sum(value, y)
        mixed, of_shape = np.zeros_like(y), (0.0, 0.0)
        if self.density.kind == STUDENT_T:
            h = _STEP * shape
            low, slope_low, _ = log_density(c * y, shape - h)
            high, slope_high, _ = log_density(c * y, shape + h)
            below, above = self._sum(low, y), self._sum(high, y)
            mixed = c * (slope_high - slope_low) / (2.0 * h)
            of_shape = (above - below) / (2.0 * h), (above - 2.0 * total + below) / h**2
        return total, c * first + y, c * c * second + 1.0, mixed, of_shape

    def _sum(self, log_density: Matrix, y: Matrix) -> float:
        return float((log_density + 0.5 * y**2).sum(axis=1).mean())


_WithDerivatives = tuple[Matrix, Matrix, Matrix]


def _student_t(x: Matrix, shape: float) -> _WithDerivatives:
    """The log of p0 up to a constant, and two derivatives by x."""
    square = shape + x**2
    normaliser = gammaln(0.5 * (shape + 1.0)) - gammaln(0.5 * shape) - 0.5 * np.log(shape)
    value = normaliser - 0.5 * (shape + 1.0) * np.log1p(x**2 / shape)
    return value, -(shape + 1.0) * x / square, -(shape + 1.0) * (shape - x**2) / square**2


def _laplace(x: Matrix, shape: float) -> _WithDerivatives:
    size = np.sqrt(x**2 + _ROUND**2)
    return -size, -x / size, -(_ROUND**2) / size**3


def _logistic(x: Matrix, shape: float) -> _WithDerivatives:
    half = np.tanh(0.5 * x)
    return -np.abs(x) - 2.0 * np.log1p(np.exp(-np.abs(x))), -half, -0.5 * (1.0 - half**2)


_LOG_DENSITIES: dict[int, Callable[[Matrix, float], _WithDerivatives]] = {
    STUDENT_T: _student_t, LAPLACE: _laplace, LOGISTIC: _logistic,
}  # fmt: skip
