"""Moves of single elements: against the distribution that enumeration gives, on a target written by hand."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import softmax

from pymc_austerity.acceptance.base import ExactBarker, RuleFunctions, above
from pymc_austerity.acceptance.ttest import BarkerTTest
from pymc_austerity.kernels.elements import READS_ALL, Elements, element_transitions
from pymc_austerity.kernels.metropolis import Rule, no_range
from pymc_austerity.proposals.base import ProposalKernel, no_adaptation
from pymc_austerity.proposals.elements import ElementWalk, OtherCategory, learn_scale, other_category, walk
from pymc_austerity.target import Target
from pymc_austerity.testing.compare import error_of_mean

# Sites of a field: row t contains PAIRS[t], and SITE_PRIOR holds one row for each site.
PAIRS = np.array([(0, 1), (1, 2), (0, 2), (2, 3), (1, 3)])
D, K = 4, 3
RNG = np.random.default_rng(8)
TABLE, SITE_PRIOR = RNG.normal(size=(len(PAIRS), K, K)), RNG.normal(size=(D, K))
STATES = np.array(list(itertools.product(range(K), repeat=D)))


def log_density(states):
    own = SITE_PRIOR[np.arange(D), states].sum(axis=1)
    return own + TABLE[np.arange(len(PAIRS)), states[:, PAIRS[:, 0]], states[:, PAIRS[:, 1]]].sum(axis=1)


def rows_at(q, index):
    own = index < D
    t = np.where(own, 0, index - D)
    pairs = TABLE[t, q[PAIRS[t, 0]], q[PAIRS[t, 1]]]
    return np.where(own, SITE_PRIOR[np.where(own, index, 0), q[np.where(own, index, 0)]], pairs)


TARGET = Target(log_ratios=lambda q_new, q, index, args: rows_at(q_new, index) - rows_at(q, index))


def field(first_stage, in_order=True):
    listed = [D + np.flatnonzero((d == PAIRS).any(axis=1)) for d in range(D)]
    starts = np.concatenate([[0], np.cumsum([len(rows) for rows in listed])])
    order = np.arange(0 if in_order else D)
    return Elements(
        np.arange(D), np.ones(D, dtype=int), np.arange(D + 1), np.arange(D, dtype=np.int32), starts,
        np.concatenate(listed).astype(np.int32), np.full(D, first_stage), np.arange(len(PAIRS)), order,
    )  # fmt: skip


def trace(rule, n_draws, elements, seed=1, functions=None):
    schedule = rule.bind(len(PAIRS))
    functions = rule.functions if functions is None else functions
    proposal = ProposalKernel(
        OtherCategory(np.array([math.nan]), np.full(D, K)), other_category, None, no_adaptation
    )
    whole = Rule(schedule, 0, *functions, no_range)
    rng, q, states = np.random.default_rng(seed), np.zeros(D, dtype=int), []
    for _ in range(n_draws):
        q = element_transitions(D, False, rng, q, (), elements, whole, proposal, TARGET).q
        states.append(q)
    return np.array(states)


def worst_z(states):
    """Of the probabilities of all values of all sites."""
    probability = softmax(log_density(STATES))
    z = []
    for d, k in itertools.product(range(D), range(K)):
        seen = (states[:, d] == k).astype(float)
        error = max(error_of_mean(seen), 1e-9)  # a chain may stand still
        z.append((seen.mean() - probability[STATES[:, d] == k].sum()) / error)
    return np.abs(z).max()


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.covering(1)
def test_the_distribution_of_a_field(in_order):
    assert worst_z(trace(ExactBarker(), 6000, field(READS_ALL, in_order))) < 4.0


def half_logistic(rng):
    """A planted fault: log u / log(1 - u) in place of the logarithm of u / (1 - u)."""
    u = rng.random()
    return math.log(u) / math.log(1.0 - u)


def test_a_wrong_threshold_is_noticed():
    """Planted fault: another threshold than the logistic variable."""
    functions = RuleFunctions(half_logistic, ExactBarker().functions.decide, above)
    assert worst_z(trace(ExactBarker(), 6000, field(READS_ALL), functions=functions)) > 6.0


def test_rows_of_other_sites_are_noticed():
    """A planted fault: psi for all rows, and not for those of the site."""
    elements = field(READS_ALL)
    everything = np.tile(np.arange(D, D + len(PAIRS)), D).astype(np.int32)
    without = elements._replace(own_starts=np.zeros(D + 1, dtype=int))  # the prior left out
    assert worst_z(trace(ExactBarker(), 4000, without)) > 6.0
    # Rows that do not contain a site do not change: all of them give the same sum, and the same decision.
    dense = elements._replace(rows=everything, starts=np.arange(D + 1) * len(PAIRS))
    np.testing.assert_array_equal(trace(ExactBarker(), 50, dense), trace(ExactBarker(), 50, elements))


def test_each_element_has_one_turn_in_a_sweep():
    seen = []

    def propose(state, rng, e, q_new, start, stop):
        seen.append(e)
        q_new[start] = (q_new[start] + 1) % K

    proposal = ProposalKernel(
        OtherCategory(np.array([math.nan]), np.full(D, K)), propose, None, no_adaptation
    )
    elements = field(READS_ALL, in_order=False)
    rule = Rule(ExactBarker().bind(2), 0, *ExactBarker().functions, no_range)
    for _ in range(3):
        start = np.zeros(D, dtype=int)
        element_transitions(D, False, np.random.default_rng(), start, (), elements, rule, proposal, TARGET)
        assert sorted(seen[-D:]) == list(range(D))
        np.testing.assert_array_equal(elements.order, np.arange(D))


def test_stages_of_one_element_among_those_of_others():
    """Element e is tested by its own stages: 40 rows in batches of 10, after the stages of 25 rows."""
    n, sizes = 65, [25, 40]
    rule = BarkerTTest(0.3, 10)
    first, second = (rule.bind(size) for size in sizes)
    joined = first._replace(
        ends=np.concatenate([first.ends, second.ends]), bounds=np.concatenate([first.bounds, second.bounds])
    )
    read = []

    def log_ratios(q_new, q, index, args):
        read.append(index)
        return np.zeros(len(index))  # equal terms decide nothing: all are read

    elements = Elements(
        np.array([0, 1]), np.array([1, 1]), np.zeros(3, dtype=int), np.empty(0, dtype=np.int32),
        np.array([0, 25, 65]), np.arange(n, dtype=np.int32), np.array([0, len(first.ends)]), np.arange(40),
        np.empty(0, dtype=int),
    )  # fmt: skip
    proposal = ProposalKernel(
        OtherCategory(np.array([math.nan]), np.array([2, 2])), other_category, None, no_adaptation
    )
    outcome = element_transitions(
        2, False, np.random.default_rng(1), np.zeros(2, dtype=int), (), elements,
        Rule(joined, 0, *rule.functions, no_range), proposal, Target(log_ratios=log_ratios),
    )  # fmt: skip
    assert [len(index) for index in read] == [10, 10, 5, 10, 10, 10, 10]
    assert sorted(np.concatenate(read[:3])) == list(range(25))
    assert sorted(np.concatenate(read[3:])) == list(range(25, 65))
    assert (outcome.n_used, outcome.n_possible, outcome.n_stages, outcome.n_exhausted) == (65, 65, 7, 2)


def test_a_walk_learns_a_scale_for_each_element():
    """Two normal elements of sds 1 and .01, without rows but those of the prior."""
    sds = np.array([1.0, 0.01])
    elements = Elements(
        np.arange(2), np.ones(2, dtype=int), np.arange(3), np.arange(2, dtype=np.int32),
        np.zeros(3, dtype=int), np.empty(0, dtype=np.int32), np.full(2, READS_ALL), np.arange(1),
        np.arange(2),
    )  # fmt: skip
    target = Target(log_ratios=lambda q_new, q, i, args: 0.5 * (q[i] ** 2 - q_new[i] ** 2) / sds[i] ** 2)
    rule = Rule(ExactBarker().bind(2), 0, *ExactBarker().functions, no_range)
    state = ElementWalk(np.ones(2), np.zeros(2, dtype=int), np.array([0.27]))
    proposal = ProposalKernel(state, walk, None, learn_scale)
    rng = np.random.default_rng(2)
    q = element_transitions(4000, True, rng, np.zeros(2), (), elements, rule, proposal, target).q
    assert np.all(np.abs(np.log(state.scale / (2.5 * sds))) < 0.7)
    draws = []
    for _ in range(4000):
        outcome = element_transitions(2, False, rng, q, (), elements, rule, proposal, target)
        q = outcome.q
        draws.append(q)
    assert outcome.n_possible == 0
    z = [
        (x.mean() / error_of_mean(x), ((x**2).mean() - 1) / error_of_mean(x**2))
        for x in np.array(draws).T / sds[:, None]
    ]
    assert np.abs(z).max() < 4.0
