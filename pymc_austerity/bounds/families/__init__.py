"""Likelihoods that bounds are known for, one file each."""

from pymc_austerity.bounds.families import (
    binary_logistic,
    cloglog,
    double_exponential,
    gamma,
    huber,
    logistic,
    negative_binomial,
    normal,
    normal_location_scale,
    poisson,
    probit,
    student_t,
)
from pymc_austerity.bounds.families.base import Family, PairFamily

# A term is of the first family that identifies its slopes. Most forms exclude each other. Where one contains
# another, the special one comes first, as more is known of it: binary responses before binomial ones, and
# these before negative binomials; and before Laplace terms, for both include constant slopes, but only the
# former know their curvature.
FAMILIES: tuple[Family, ...] = (
    binary_logistic.FAMILY,
    logistic.FAMILY,
    normal.FAMILY,
    double_exponential.FAMILY,
    huber.FAMILY,
    student_t.FAMILY,
    poisson.FAMILY,
    probit.FAMILY,
    cloglog.FAMILY,
    negative_binomial.FAMILY,
    gamma.FAMILY,
)

# Families of terms with two linear predictors.
PAIR_FAMILIES: tuple[PairFamily, ...] = (normal_location_scale.FAMILY,)
