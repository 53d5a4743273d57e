"""Positive responses with a logarithmic link: f_i'(eta) = -a_i + b_i exp(-eta), b_i > 0.

With mean w exp(eta) and shape alpha (the variance is mean^2 / alpha), the gamma density gives
f = -alpha eta - alpha y exp(-eta) / w up to a constant, so a = alpha and b = alpha y / w; the exponential is
alpha = 1, and one that is censored at y has a = 0. a may have any sign.

In zeta = -eta that is `poisson`, with slope a - b exp(zeta): the bounds are those of counts a_i and weights
b_i for the reflected rows (-x_i, -o_i). Gamma densities whose inverse scale has the logarithmic link are
Poisson terms as they are, and Poisson terms of mean exp(-eta) are among these.
"""

import numpy as np

from pymc_austerity.bounds.families import poisson
from pymc_austerity.bounds.families.base import Family
from pymc_austerity.target import Matrix, Vector


def identify(eta: Vector, slopes: Matrix) -> Matrix | None:
    """The shapes a_i and the weights b_i."""
    # With more, PyMC's shape mean^2 / sd^2 has overflows in its derivative.
    inside = np.abs(eta) <= 100.0
    return poisson.identify(-eta[inside], -slopes[inside])


class ReflectedPoissonTerms(poisson.PoissonTerms):
    """Certificate of terms with shapes a_i and weights b_i."""

    @staticmethod
    def points(rows: Matrix, constants: Matrix) -> tuple[Matrix, Matrix]:
        """The points -a_i x_i, and (-x_i, -o_i + log b_i)."""
        return poisson.PoissonTerms.points(-rows, constants)


FAMILY = Family("gamma", identify, ReflectedPoissonTerms)
