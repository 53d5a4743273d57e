"""A pilot in the kernel: others decide, all are drawn without replacement, and all are counted."""

import math

import numpy as np
import pytest
from numba.extending import register_jitable

from pymc_austerity.acceptance import Barker, ExactBarker
from pymc_austerity.acceptance.barker import others_for
from pymc_austerity.acceptance.base import RuleFunctions, above, never_clipped
from pymc_austerity.kernels.elements import Elements, element_transitions
from pymc_austerity.kernels.metropolis import sequential_test, transitions
from pymc_austerity.kernels.subsample import NO_ROWS, in_blocks, population_of, rows_of
from pymc_austerity.proposals.base import ProposalKernel, no_adaptation
from pymc_austerity.target import Target
from tests.kernels.engines import by, rule_of
from tests.statistical.errors import LIMIT

N, PILOT = 3000, 100
RULE = Barker(PILOT, pilot=True)


class Reading:
    """A target that writes down which rows are asked for."""

    def __init__(self, terms):
        self.terms, self.read = terms, []
        self.target = Target(lambda q_new, q, args: 0.0, self.log_ratios)

    def log_ratios(self, q_new, q, index, args):
        self.read.append(np.array(index))
        return self.terms[index]


def decision(reading, rng, rule=RULE, schedule=None, exact_rows=NO_ROWS, numbered=None):
    """``(sample, stages, rows read)`` of one decision with psi = 0."""
    schedule = rule.bind(len(reading.terms) - len(exact_rows)) if schedule is None else schedule
    numbered = rows_of(schedule, exact_rows) if numbered is None else numbered
    found = sequential_test(
        rng, 0.0, math.nan, None, None, (), numbered, rule_of(rule, schedule), reading.target
    )
    np.testing.assert_array_equal(numbered.population, population_of(schedule))
    return found


def terms_of(sd, n=N, seed=1):
    """Terms whose sum over all has noise of sd `sd` in a sample of one hundred."""
    return sd * math.sqrt(PILOT) / n * np.random.default_rng(seed).gamma(0.5, size=n)


@pytest.mark.parametrize("block", [1, 25])
@pytest.mark.parametrize("sd", [1.0, 2.0, 3.0])
def test_others_decide(sd, block):
    rng = np.random.default_rng(2)
    schedule = RULE.bind(N)._replace(block=block)
    for _ in range(20):
        reading = Reading(terms_of(sd))
        sample, stages, n_read = decision(reading, rng, schedule=schedule)
        pilot, others = reading.read
        assert (len(pilot), stages, n_read) == (PILOT, 2, PILOT + len(others))
        assert len(np.unique(np.concatenate(reading.read))) == n_read
        assert sample.n == len(others) >= PILOT
        values = reading.terms[others]
        assert sample.mean == pytest.approx(values.mean(), rel=1e-12)
        assert sample.m2 == pytest.approx(np.sum((values - values.mean()) ** 2), rel=1e-10)
        assert sample.center == pytest.approx(values.mean(), rel=1e-12)
        assert sample.signed_cubed == pytest.approx(np.sum((values - values.mean()) ** 3), rel=1e-8)
        assert (sample.low, sample.high) == (values.min(), values.max())


def test_all_rows_are_read_once_where_others_are_too_few():
    reading = Reading(terms_of(60.0))
    sample, stages, n_read = decision(reading, np.random.default_rng(3))
    assert (sample.n, stages, n_read) == (N, 2, N)
    assert sorted(np.concatenate(reading.read)) == list(range(N))
    assert sample.mean == pytest.approx(reading.terms.mean(), rel=1e-12)


def test_a_population_of_one_batch_is_read_at_once():
    reading = Reading(terms_of(20.0, n=PILOT))
    sample, stages, n_read = decision(reading, np.random.default_rng(4))
    assert (sample.n, stages, n_read) == (PILOT, 1, PILOT)


@pytest.mark.parametrize(("where", "stages"), [(slice(None), 1), (slice(0, 1), 2)])
def test_terms_that_are_not_finite_reject(where, stages):
    """In the pilot, or after it."""

    class Spoilt(Reading):
        def log_ratios(self, q_new, q, index, args):
            values = super().log_ratios(q_new, q, index, args)
            if len(self.read) == stages:
                values[where] = -math.inf
            return values

    reading = Spoilt(terms_of(1.0))
    sample, seen, n_read = decision(reading, np.random.default_rng(5))
    assert (sample.mean, seen) == (-math.inf, stages)
    assert n_read == sum(map(len, reading.read))


@pytest.mark.parametrize("blocks", [False, True])
def test_every_row_is_as_likely_to_decide(blocks):
    n, calls, exact = 300, 4000, np.array([0, 7, 299])
    schedule = Barker(20, pilot=True).bind(n - len(exact))
    if blocks:
        schedule = in_blocks(schedule, always=True)
        assert schedule.block == 20
    reading = Reading(np.random.default_rng(6).normal(size=n) / n)
    rng, numbered = np.random.default_rng(7), rows_of(schedule, exact)
    counts, n_decided = np.zeros((2, n)), 0
    for _ in range(calls):
        reading.read.clear()
        sample, _, _ = decision(reading, rng, Barker(20, pilot=True), schedule, exact, numbered)
        for count, index in zip(counts, reading.read, strict=True):
            count[index] += 1
        n_decided += sample.n
    assert np.all(counts[:, exact] == 0)
    others = np.delete(counts, exact, axis=1)
    for count, total in zip(others, (20 * calls, n_decided), strict=True):
        share = total / calls / 297
        z = (count - share * calls) / math.sqrt(calls * share * (1 - share))
        assert np.abs(z).max() < LIMIT + 1
        assert abs(np.mean(z**2) - 1) < 0.5


@register_jitable
def walk(state, q, rng):
    return q + 1.0, 0.0


def test_outcome_counts_pilots_and_clipped_decisions():
    reading = Reading(terms_of(1.6))
    schedule = RULE.bind(N)
    clips = []

    def clipped(schedule, sample):
        clips.append(RULE.functions.clipped(schedule, sample))
        return clips[-1]

    rule = RULE.functions._replace(clipped=clipped)
    out = transitions(
        200, False, np.random.default_rng(8), np.zeros(1), (), rows_of(schedule), rule_of(rule, schedule),
        by(walk, None, no_adaptation), reading.target,
    )  # fmt: skip
    assert out.n_used == sum(map(len, reading.read))
    assert (out.n_stages, out.n_exhausted, len(clips)) == (400, 0, 200)
    assert out.n_clipped == sum(clips)
    assert 5 < out.n_clipped < 100


def test_a_rule_without_a_pilot_never_clips():
    for rule in (Barker(PILOT), ExactBarker()):
        assert rule.functions.others(None, None) == 0
        assert rule.functions.clipped is never_clipped
        assert not rule.functions.clipped(None, None)


def test_elements_have_pilots_of_their_own():
    """Two elements of 400 and 700 rows."""
    sizes, rule = [400, 700], Barker(20, pilot=True)
    n = sum(sizes)
    schedules = [rule.bind(size) for size in sizes]
    joined = schedules[0]._replace(ends=np.concatenate([s.ends for s in schedules]))
    reading = Reading(np.random.default_rng(9).normal(size=n) * 0.004)
    elements = Elements(
        np.array([0, 1]), np.array([1, 1]), np.zeros(3, dtype=int), np.empty(0, dtype=np.int32),
        np.array([0, 400, n]), np.arange(n, dtype=np.int32), np.array([0, 2]), np.arange(700),
        np.empty(0, dtype=int),
    )  # fmt: skip

    def propose(state, rng, e, q_new, start, stop):
        q_new[start] += 1.0

    out = element_transitions(
        2, False, np.random.default_rng(10), np.zeros(2), (), elements, rule_of(rule, joined),
        ProposalKernel(None, propose, None, no_adaptation), reading.target,
    )  # fmt: skip
    assert [len(index) for index in reading.read[::2]] == [20, 20]
    assert all(index.max() < 400 for index in reading.read[:2])
    assert all(index.min() >= 400 for index in reading.read[2:])
    assert out.n_used == sum(map(len, reading.read)) < n
    assert (out.n_stages, out.n_exhausted) == (4, 0)


@register_jitable
def _always(schedule, stage, sample, psi, width):
    return sample.n == sample.n_local


def test_others_are_asked_for_only_where_a_stage_was_not_enough():
    asked = []

    def others(schedule, sample):
        asked.append(sample.n)
        return others_for(schedule, sample)

    functions = RuleFunctions(RULE.functions.draw, _always, above, others)
    decision(Reading(terms_of(1.0)), np.random.default_rng(11), functions, RULE.bind(N))
    decision(Reading(terms_of(1.0, n=PILOT)), np.random.default_rng(11), functions, RULE.bind(PILOT))
    assert asked == [PILOT]
