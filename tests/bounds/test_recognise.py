"""The list of families is whole and in the order that is said, and compiled code tells families apart."""

import pkgutil
import warnings
from importlib import import_module

import numba
import numpy as np
import pytest
from scipy.special import expit

from pymc_austerity.bounds import families
from pymc_austerity.bounds.families import (
    FAMILIES,
    affine,
    binary_logistic,
    double_exponential,
    logistic,
    negative_binomial,
    probit,
)
from pymc_austerity.bounds.families.base import FINE_GRID
from pymc_austerity.bounds.families.recognise import recognise
from pymc_austerity.bounds.log_ratio_range import certified_range, certify
from pymc_austerity.model.compile.cache_key import modules_of

from .families import N, predictor
from .test_families import Cloglog, Normal, Probit

ROWS = np.c_[np.ones(N), np.zeros(N)]


def modules():
    return [
        import_module(f"{families.__name__}.{found.name}")
        for found in pkgutil.iter_modules(families.__path__)
    ]


def test_every_family_is_listed():
    made = [module.FAMILY for module in modules() if hasattr(module, "FAMILY")]
    listed = [*FAMILIES, affine.FAMILY]
    assert sorted(family.name for family in made) == sorted(family.name for family in listed)
    assert len({family.name for family in listed}) == len(listed)


def family_of_slopes(slope):
    return recognise(predictor(ROWS, slope), {})[0]


def test_special_families_come_first():
    y = np.arange(N) % 2

    def binary(eta, i, point):
        return y[i] - expit(eta)

    slopes = binary(FINE_GRID[:, None], np.arange(N), {})
    for family in (binary_logistic.FAMILY, logistic.FAMILY, negative_binomial.FAMILY):
        assert family.identify(FINE_GRID, slopes) is not None
    assert family_of_slopes(binary) is binary_logistic.FAMILY
    assert family_of_slopes(lambda eta, i, point: 2 * binary(eta, i, point)) is logistic.FAMILY

    constant = np.ones((len(FINE_GRID), N))
    for family in (logistic.FAMILY, double_exponential.FAMILY):
        assert family.identify(FINE_GRID, constant) is not None
    assert family_of_slopes(lambda eta, i, point: 1.0) is logistic.FAMILY


def test_infinite_slopes_are_of_no_probit_term():
    slopes = np.ones((len(FINE_GRID), 2))
    slopes[FINE_GRID == 0.0] = np.inf, -np.inf
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert probit.identify(FINE_GRID, slopes) is None


def test_engines_of_one_kernel_know_all_families():
    """A change of any of them makes engines anew."""
    known = set(modules_of(["pymc_austerity.kernels.log_ratio_range"]))
    assert {module.__name__ for module in modules()} <= known


@pytest.mark.parametrize("first", [Normal, Cloglog])
def test_certificates_of_different_families_are_of_different_types(first):
    """Compiled code is kept under the types of its arguments."""
    rng = np.random.default_rng(0)
    one, other = (certify([predictor(ROWS, make(rng).slope)], {}).certificates[0] for make in (first, Probit))
    assert one._fields == other._fields
    assert numba.typeof(one) != numba.typeof(other)


def test_a_term_without_a_range_leaves_none_for_all():
    rng = np.random.default_rng(1)
    made = certify([predictor(ROWS, make(rng).slope) for make in (Normal, Probit)], {})
    normal, of_probit = made.certificates
    q_new, q = np.array([0.1]), np.array([0.0])
    assert np.isfinite(certified_range((normal, of_probit), q_new, q))
    unknown = normal._replace(factors=np.full(2, np.nan))
    assert certified_range((unknown, of_probit), q_new, q) == np.inf
    assert certified_range((of_probit, unknown), q_new, q) == np.inf
