"""Likelihoods whose log ratios have known ranges, one file each."""

from pymc_austerity.bounds.families import (
    binary_logistic,
    cloglog,
    double_exponential,
    gamma,
    huber,
    logistic,
    negative_binomial,
    normal,
    poisson,
    probit,
    student_t,
)
from pymc_austerity.bounds.families.base import Family

# A term is of the first family that identifies its slopes. Most forms exclude each other. Where one contains
# another, the special one comes first: binary responses, whose ranges are sharper, before binomial ones, and
# these before negative binomials and, as both include constant slopes, before Laplace terms.
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
