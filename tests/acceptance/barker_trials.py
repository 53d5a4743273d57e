"""Barker's minibatch tests on given terms, many times: how often they accept, and with what probability."""

from functools import cache
from typing import NamedTuple

import numba
import numpy as np
from scipy.special import expit

from pymc_austerity.acceptance.barker import correction, noise_variance, probability, skewness_error
from pymc_austerity.kernels.metropolis import Rule, sequential_test
from pymc_austerity.kernels.subsample import rows_of
from pymc_austerity.model.compile.records import constructor
from tests.kernels.engines import GIVEN

CORRECTION = correction()


class Trials(NamedTuple):
    """What each decision did.

    Attributes
    ----------
    accepted, clipped : ndarray of bool
    read, n : ndarray of float
        Rows that were read, and that decided.
    plain, corrected : ndarray of float
        Probability of accepting, given the rows that decided.
    """

    accepted: np.ndarray
    clipped: np.ndarray
    read: np.ndarray
    n: np.ndarray
    plain: np.ndarray
    corrected: np.ndarray


@cache
def _compiled(functions, g_of):
    make_rule, make_target = constructor(Rule(..., 0, *functions, None)), constructor(GIVEN)

    @numba.njit
    def run(n_calls, rng, terms, rows, schedule, correction):
        n_local, q, rule = len(terms), np.zeros(1), make_rule(schedule)
        accepted, clipped = np.empty(n_calls, np.bool_), np.empty(n_calls, np.bool_)
        read, n = np.empty(n_calls), np.empty(n_calls)
        plain, corrected = np.empty(n_calls), np.empty(n_calls)
        for t in range(n_calls):
            sample, _, read[t] = sequential_test(rng, 0.0, np.nan, q, q, (terms,), rows, rule, make_target())
            accepted[t], clipped[t] = rule.accept(schedule, sample, 0.0, rng), rule.clipped(schedule, sample)
            n[t] = sample.n
            x = n_local * sample.mean
            if sample.n == n_local:
                plain[t] = corrected[t] = 1.0 / (1.0 + np.exp(-x))
            else:
                missing = 1.0 - noise_variance(sample)
                plain[t] = probability(correction, x, missing, 0.0)
                corrected[t] = min(1.0, max(0.0, probability(correction, x, missing, g_of(sample))))
        return accepted, clipped, read, n, plain, corrected

    return run


def trials(rule, terms, n_calls, *, functions=None, schedule=None, g_of=skewness_error, seed=1):
    """Let the rule decide about these terms, with the threshold 0."""
    functions = functions or rule.functions
    schedule = rule.bind(len(terms)) if schedule is None else schedule
    rng, rows = np.random.default_rng(seed), rows_of(schedule)
    return Trials(*_compiled(functions, g_of)(n_calls, rng, terms, rows, schedule, CORRECTION))


def error_of(values, log_ratio):
    """Mean less the logistic function, and its standard error."""
    return values.mean() - expit(log_ratio), values.std() / np.sqrt(len(values))


def gamma_terms(shape, n_local, batch, s, log_ratio):
    """Gamma terms with this sum, scaled so that a batch has noise of standard deviation s."""
    x = np.random.default_rng(0).gamma(shape, size=n_local)
    return scaled(x, batch, s, log_ratio)


def scaled(x, batch, s, log_ratio):
    """Terms of this shape with this sum, scaled so that a batch has noise of standard deviation s."""
    n_local = len(x)
    z = (x - x.mean()) / x.std()
    return log_ratio / n_local + z * s / (n_local / np.sqrt(batch) * np.sqrt(1.0 - batch / n_local))
