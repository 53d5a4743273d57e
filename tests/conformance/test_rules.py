"""Every decision rule keeps its promise, and planted faults do not pass."""

import math

import numpy as np
import pytest
from numba.extending import register_jitable

from pymc_austerity.acceptance import Barker, Concentration, Exact, ExactBarker, TTest
from pymc_austerity.acceptance.barker import draw_correction, noise_variance
from pymc_austerity.acceptance.base import log_uniform, logistic
from pymc_austerity.acceptance.concentration import hoeffding_serfling
from pymc_austerity.testing import check_rule
from pymc_austerity.testing.rules import (
    check_acceptance,
    check_compiled,
    check_law,
    check_schedule,
    check_with_all_terms,
    exact_probability,
)
from pymc_austerity.testing.targets import normal_chain, two_point_chain

METROPOLIS = [
    Exact(),
    TTest(0.01, 500),
    TTest(0.1, 50, growth=2.0, boundary=0.75),
    TTest(0.05, 100, boundary=1.0),
    TTest(0.5, 100),
    Concentration(0.01, bound="hoeffding-serfling"),
    Concentration(0.05, batch_size=50, growth=1.5, bound="empirical-bernstein"),
    Concentration(0.1, p=1.5, bound="empirical-bernstein-serfling"),
]
BARKER = [
    ExactBarker(),
    Barker(100),
    Barker(30),
    Barker(100, max_error=0.5),
    Barker(100, pilot=True),
    Barker(100, pilot=True, skew_correction=True),
    Barker(30, pilot=True, skew_correction=True),
]


# From each pair of states. The planted faults show in as many; in 5000 "noise twice" does for most seeds.
DRAWS = 7500


@pytest.mark.parametrize("rule", METROPOLIS, ids=repr)
def test_metropolis_rules(rule):
    check_rule(rule, n_draws=DRAWS)


@pytest.mark.parametrize("rule", BARKER, ids=repr)
def test_barker_rules(rule):
    check_rule(rule, exact=ExactBarker(), n_draws=DRAWS)


# Planted faults -------------------------------------------------------------------------------------


def planted(rule, **functions):
    """A rule of the package with some functions replaced."""
    kind = type("Planted", (type(rule),), {"functions": rule.functions._replace(**functions)})
    return kind(**vars(rule))


@register_jitable
def below(schedule, sample, psi, rng):
    return sample.mean < psi


@register_jitable
def not_below(schedule, sample, psi, rng):
    return sample.mean >= psi


@register_jitable
def with_variance_for_deviation(schedule, stage, sample, psi, width):
    """The standard error is taken to be the variance, which is much smaller."""
    if sample.n == sample.n_local:
        return True
    return abs(sample.mean - psi) > schedule.bounds[stage] * sample.m2 / (sample.n - 1) / sample.n


@register_jitable
def with_c_for_the_range(schedule, stage, sample, psi, width):
    """C = max |l_i| in the place of the range, which is twice as large."""
    t, n = sample.n, sample.n_local
    radius = hoeffding_serfling(t, n, 0.0, 0.5 * width, schedule.bounds[stage])
    return t == n or abs(sample.mean - psi) > radius


@register_jitable
def one_term_is_enough(schedule, stage, sample, psi, width):
    return True


@register_jitable
def without_correction(schedule, sample, psi, rng):
    """The noise of the subsample as if it were logistic."""
    log_ratio = sample.n_local * (sample.mean - psi)
    if sample.n == sample.n_local:
        return log_ratio + logistic(rng) > 0.0
    return log_ratio + math.sqrt(1.0 - noise_variance(sample)) * rng.standard_normal() > 0.0


@register_jitable
def normal_always(schedule, sample, psi, rng):
    return sample.n_local * (sample.mean - psi) + rng.standard_normal() > 0.0


@register_jitable
def with_a_whole_normal_variable(schedule, sample, psi, rng):
    """X_corr + N(0, 1), as if the subsample had no noise of its own."""
    log_ratio = sample.n_local * (sample.mean - psi)
    if sample.n == sample.n_local:
        return log_ratio + logistic(rng) > 0.0
    return log_ratio + rng.standard_normal() + draw_correction(schedule.correction, rng) > 0.0


@register_jitable
def small_noise_without_fpc(schedule, stage, sample, psi, width):
    n, n_local = sample.n, sample.n_local
    return n == n_local or n_local * (sample.m2 / (n - 1)) * n_local / n < 1.0


@register_jitable
def missing_without_fpc(schedule, sample, psi, rng):
    """The noise of rows drawn with replacement, of which 1 - n / N is not there."""
    n, n_local = sample.n, sample.n_local
    log_ratio = n_local * (sample.mean - psi)
    if n == n_local:
        return log_ratio + logistic(rng) > 0.0
    missing = math.sqrt(max(0.0, 1.0 - n_local * (sample.m2 / (n - 1)) * n_local / n))
    return log_ratio + missing * rng.standard_normal() + draw_correction(schedule.correction, rng) > 0.0


@register_jitable
def too_few_others(schedule, sample):
    """A fourth of the rows that the variance of the pilot asks for."""
    return min(60, sample.n_local - sample.n)


@register_jitable
def others_beyond_the_end(schedule, sample):
    return sample.n_local - sample.n + 1


TTEST = TTest(0.01, 500)
HOEFFDING = Concentration(0.01, bound="hoeffding-serfling")
WRONG = {
    "exact the wrong way round": (planted(Exact(), accept=below), Exact(), "should be"),
    "t-test the wrong way round": (planted(TTEST, accept=below), Exact(), "should be"),
    "a tie accepts": (planted(Exact(), accept=not_below), Exact(), "tie"),
    "a root is forgotten": (planted(TTEST, decide=with_variance_for_deviation), Exact(), "error_bound"),
    "no test at all": (planted(TTEST, decide=one_term_is_enough), Exact(), "error_bound"),
    "C as the range": (planted(HOEFFDING, decide=with_c_for_the_range), Exact(), "error_bound"),
    "Metropolis's draw": (planted(Barker(100), draw=log_uniform), ExactBarker(), "should be"),
    "Metropolis's test": (planted(ExactBarker(), draw=log_uniform), ExactBarker(), "should be"),
    "Barker's test": (planted(Exact(), draw=logistic), Exact(), "should be"),
    "no correction": (planted(Barker(100), accept=without_correction), ExactBarker(), "error_bound"),
    "always normal": (planted(Barker(100), accept=normal_always), ExactBarker(), "With all terms"),
    "noise twice": (planted(Barker(100), accept=with_a_whole_normal_variable), ExactBarker(), "error_bound"),
    "too few rows after a pilot": (
        planted(Barker(100, pilot=True), others=too_few_others),
        ExactBarker(),
        "error_bound",
    ),
    "more rows than there are": (
        planted(Barker(100, pilot=True), others=others_beyond_the_end),
        ExactBarker(),
        "others",
    ),
    "no finite-population correction": (
        planted(Barker(100), decide=small_noise_without_fpc, accept=missing_without_fpc),
        ExactBarker(),
        "error_bound",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_rule_fails(name):
    rule, exact, message = WRONG[name]
    with pytest.raises(AssertionError, match=message):
        check_rule(rule, exact=exact, n_draws=DRAWS)


def test_a_bound_on_the_range_matters_only_where_it_is_sharp():
    """Normal log ratios do not tell; two-valued ones, whose log ratio is 0, are there to."""
    with pytest.raises(AssertionError, match="log ratio 0 "):
        check_acceptance(WRONG["C as the range"][0])


def test_the_law_alone_finds_a_rule_without_a_test():
    with pytest.raises(AssertionError, match="total variation"):
        check_law(WRONG["no test at all"][0])


@register_jitable
def remembering(schedule, stage, sample, psi, width):
    """Counts in its schedule how often it was asked."""
    schedule.bounds[0] += 1.0
    return sample.n == sample.n_local


def test_a_rule_that_remembers_fails():
    with pytest.raises(AssertionError, match="changes its schedule"):
        check_compiled(planted(Exact(), decide=remembering))


def test_a_rule_that_does_not_compile_fails():
    @register_jitable
    def decide(schedule, stage, sample, psi, width):
        options = dict(whole=sample.n == sample.n_local)
        return options["whole"]

    with pytest.raises(AssertionError, match="numba cannot compile"):
        check_compiled(planted(Exact(), decide=decide))


def test_a_rule_whose_compiled_code_differs_fails():
    @register_jitable
    def accept(schedule, sample, psi, rng):
        # Compiled, this is the value of the moment of compilation.
        return sample.mean > psi + SHIFT

    global SHIFT
    SHIFT = 0.0
    rule = planted(Exact(), accept=accept)
    check_compiled(rule, n_transitions=10)
    SHIFT = 1.0
    with pytest.raises(AssertionError, match="Python source"):
        check_compiled(rule, n_transitions=10)


SHIFT = 0.0


@pytest.mark.parametrize(
    ("ends", "message"),
    [([5.0], "int64"), ([10, 5], "increase"), ([5], "increase"), ([0, 2000], "increase")],
)
def test_a_wrong_schedule_fails(ends, message):
    class Wrong(Exact):
        def bind(self, n_local):
            return super().bind(n_local)._replace(ends=np.array(ends))

    with pytest.raises(AssertionError, match=message):
        check_schedule(Wrong())


def test_a_rule_that_never_has_enough_fails():
    @register_jitable
    def decide(schedule, stage, sample, psi, width):
        return False

    with pytest.raises(AssertionError, match="beyond the end"):
        check_with_all_terms(planted(Exact(), decide=decide))


def test_only_two_tests_are_exact():
    with pytest.raises(TypeError, match="must be Exact"):
        exact_probability(TTEST, 0.0)


# The chains themselves ----------------------------------------------------------------------------


@pytest.mark.parametrize("chain", [normal_chain(), two_point_chain()], ids=["normal", "two_point"])
def test_chains_are_what_they_say(chain):
    np.testing.assert_allclose(chain.jumps.sum(axis=1), 1.0)
    np.testing.assert_allclose(chain.law.sum(), 1.0)
    for exact in (Exact(), ExactBarker()):
        matrix = chain.jumps * exact_probability(exact, chain.log_ratios)
        flow = chain.law[:, None] * matrix
        np.testing.assert_allclose(flow, flow.T, atol=1e-12)
