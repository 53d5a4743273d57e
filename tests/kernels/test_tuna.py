"""The TunaMH kernel against enumerations of all that it may draw; planted faults are noticed."""

import inspect
import itertools
import math
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numba
import numpy as np
import pytest
from numba.core.dispatcher import Dispatcher
from numba.extending import register_jitable
from scipy import stats

from pymc_austerity.bounds import group_draws, remainder, screened_draws
from pymc_austerity.bounds.block_table import block_table, rounded_up
from pymc_austerity.bounds.remainder import Move, RowSampler, distances
from pymc_austerity.compilation import entry
from pymc_austerity.kernels import tuna
from pymc_austerity.kernels.tuna import TunaRule
from pymc_austerity.model.compile.protocol import constructor
from pymc_austerity.proposals import AdaptiveRandomWalk
from pymc_austerity.proposals.base import no_adaptation
from pymc_austerity.target import CHUNK, Target
from tests.bounds.test_block_table import recovered
from tests.kernels.engines import ScriptedRng, assert_same_traces, by, itself, make_trace
from tests.kernels.three_states import (
    GLOBAL,
    JUMPS,
    RIGHT,
    TABLE,
    WITHOUT,
    counts_of_moves,
    jump,
    with_rest,
    worst_p,
)

P_LIMIT = 1e-4

# Three states on a line, as seen from the center at -0.8, 0.2 and 1.2: the last is in the second tier. Of
# two rows, and one without a remainder.
CENTRE = np.array([0.8])
RADII = np.array([1.0, 2.0, np.inf])
SMALL = 0.01 * np.array([[2.0, -0.2, 0.0], [-0.8, 1.2, 0.0], [1.2, 2.4, 0.0]])
LARGE = 12.0 * SMALL
PAIRS = list(itertools.permutations(range(3), 2))


def size_of(i, j):
    """M for a pair of states."""
    w, w_new = i - CENTRE[0], j - CENTRE[0]
    ends = (abs(w) ** 3 + abs(w_new) ** 3) / 6
    return min(ends, abs(w_new - w) * (w * w + w * w_new + w_new * w_new) / 6)


def sampler_of(center, whitening, radii, constants, rounding, most):
    """A sampler with these c_i, (3, N), to which nothing is added."""
    tables = tuple(block_table(c) for c in constants)
    totals = np.array([table.total for table in tables])
    return RowSampler(2, center, whitening, radii, totals, constants, tables, rounding, most)


def drawn_by(sampler):
    """Rows drawn in proportion to these bounds, for a kernel."""
    return remainder.plain_draws(sampler)


def make_sampler(terms, *, most=np.inf, slack=1.0, rounding=1e-12):
    """The smallest right bounds, times `slack`: one row of each tier reaches its bound for some pair.

    They are in double precision, so that the bound is reached.
    """
    tiers = []
    for inside in ([(0, 1)], [(0, 1), (0, 2), (1, 2)]):
        tiers.append(np.max([np.abs(terms[i] - terms[j]) / size_of(i, j) for i, j in inside], axis=0))
    constants = slack * np.array([*tiers, np.full(terms.shape[1], 100.0)])
    return sampler_of(CENTRE, np.eye(1), RADII, constants, rounding, most)


def law_of(terms):
    law = np.exp(terms.sum(axis=1) + GLOBAL)
    return law / law.sum()


# Transition probabilities by a formula -------------------------------------------------------------------


def matrix_by_formula(terms, sampler, chi):
    """Row i is counted s_i ~ Poisson(c_i M [(1 - x_i) / 2 + chi C M]) times, all independent."""
    matrix = np.zeros((3, 3))
    for i, j in PAIRS:
        change = terms[j] - terms[i]
        base = GLOBAL[j] - GLOBAL[i] + math.log(JUMPS[j, i] / JUMPS[i, j])
        c = sampler.constants[1 if 2 in (i, j) else 0]
        bound = c * size_of(i, j)
        total = bound.sum()
        if total * (1 + chi * total) > sampler.most:
            matrix[i, j] = JUMPS[i, j] * min(1.0, math.exp(base + change.sum()))
            continue
        x = np.clip(change[:2] / bound[:2], -1, 1)
        there, back = ((1 - sign * x) / 2 + chi * total for sign in (1, -1))
        n = np.arange(60)
        p = [stats.poisson.pmf(n, bound[k] * there[k]) for k in range(2)]
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = [np.where(n > 0, (back[k] / there[k]) ** n, 1.0) for k in range(2)]
            accept = np.minimum(1.0, math.exp(base) * np.outer(*weight))
        matrix[i, j] = JUMPS[i, j] * np.nansum(np.outer(*p) * accept)
    return with_rest(matrix)


# Transition probabilities by enumeration -----------------------------------------------------------------


class Rng(ScriptedRng):
    """Hands out a number of draws, too, and notes what mean was asked for."""

    def __init__(self, uniforms=(), drawn=0):
        super().__init__(uniforms)
        self.drawn, self.mean = drawn, 0.0

    def poisson(self, mean):
        self.mean = mean
        return self.drawn


def uniforms_for(sampler, tier, row):
    """Random numbers that draw this row, of few in one block."""
    weights = sampler.constants[tier]
    return [0.5, (weights[:row].sum() + 0.5 * weights[row]) / weights.sum()]


def counting(chi=0.0, debug=False):
    """A rule that has met no violation yet."""
    return TunaRule(chi, np.zeros(1, np.int64), debug)


class Kernel(NamedTuple):
    terms: np.ndarray
    sampler: RowSampler
    chi: float
    proposal: np.ndarray = RIGHT
    target: Target = TABLE

    def move(self, i, j, rows=(), keeps=(), u=0.5):
        """One transition from i to j in which `rows` are drawn, with these random numbers to keep them."""
        tier = 1 if 2 in (i, j) else 0
        into_j = JUMPS[i, :j].sum() + 0.5 * JUMPS[i, j]
        draws = [u for row in rows for u in uniforms_for(self.sampler, tier, row)]
        rng = Rng([into_j, u, *draws, *keeps], len(rows))
        out = tuna.tuna_transitions(
            1, False, rng, np.array([float(i)]), (self.terms,), drawn_by(self.sampler), counting(self.chi),
            by(jump, self.proposal), self.target,
        )  # fmt: skip
        assert not out.accepted or out.q[0] == j
        return out, rng

    def log_ratio(self, *args):
        out, rng = self.move(*args)
        return out.log_ratio_mean * self.terms.shape[1], rng.mean, math.log(0.5) - 3 * out.psi

    def kept_until(self, i, j, row):
        """Rows are kept, so that the log ratio is not zero, for random numbers below this; by bisection."""
        low, high = 0.0, 1.0
        if self.log_ratio(i, j, [row], [np.nextafter(1, 0)])[0] != 0.0:
            return 1.0
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.log_ratio(i, j, [row], [middle])[0] != 0.0 else (low, middle)
        return low

    def check_decision(self, i, j, rows, keeps, log_ratio):
        """It is accepted exactly for random numbers below the exponential."""
        accept = math.exp(min(0.0, log_ratio))
        above = np.nextafter(accept, 2) * (1 + 1e-12)
        assert accept == 0.0 or self.move(i, j, rows, keeps, accept * (1 - 1e-12))[0].accepted
        assert above >= 1.0 or not self.move(i, j, rows, keeps, above)[0].accepted
        return accept

    def acceptance(self, i, j):
        """The sum over all that may be drawn."""
        log_ratio, _, base = self.log_ratio(i, j)
        if self.move(i, j)[0].n_exhausted:
            return self.check_decision(i, j, (), (), base + log_ratio)
        tier = 1 if 2 in (i, j) else 0
        p_row = recovered(self.sampler.tables[tier], self.sampler.constants[tier])
        kept = [self.kept_until(i, j, row) for row in (0, 1)]
        # Row, a number that keeps it or not, and the probability of both.
        outcomes = [(row, kept[row] * 0.5, kept[row] * p_row[row]) for row in (0, 1)]
        outcomes += [(row, (1 + kept[row]) * 0.5, (1 - kept[row]) * p_row[row]) for row in (0, 1)]
        outcomes = [(row, u, p) for row, u, p in outcomes if p > 1e-15]
        mean = self.log_ratio(i, j, [0], [0.5])[1]
        total, probability = 0.0, 0.0
        for n in range(100):
            if stats.poisson.sf(n - 1, mean) < 1e-16:
                break
            # The kernel sorts the rows it has drawn, so that their order is one.
            for chosen in itertools.combinations_with_replacement(outcomes, n):
                arrangements = math.factorial(n)
                for count in Counter(chosen).values():
                    arrangements //= math.factorial(count)
                p = stats.poisson.pmf(n, mean) * arrangements * math.prod(p for _, _, p in chosen)
                ordered = sorted(chosen)
                rows, keeps = [row for row, _, _ in ordered], [u for _, u, _ in ordered]
                # Drawn in another order than that in which they are kept.
                log_ratio = self.log_ratio(i, j, rows[::-1], keeps)[0]
                if n <= 3:
                    self.check_decision(i, j, rows, keeps, base + log_ratio)
                total += p * math.exp(min(0.0, base + log_ratio))
                probability += p
        assert probability == pytest.approx(1.0, abs=1e-13)
        return total

    def matrix(self):
        matrix = np.zeros((3, 3))
        for i, j in PAIRS:
            matrix[i, j] = JUMPS[i, j] * self.acceptance(i, j)
        return with_rest(matrix)


def errors(matrix, law):
    """Of stationarity, and of detailed balance."""
    flow = law[:, None] * matrix
    return np.abs(law @ matrix - law).max(), np.abs(flow - flow.T).max()


SETTINGS = {
    "sharp": ({}, 0.0),
    "loose": ({"slack": 1.3}, 0.0),
    "chi": ({"slack": 1.1}, 2.0),
    "sharp chi": ({}, 2.0),
    "some on all rows": ({"most": 0.1}, 0.0),
    "some on all rows chi": ({"most": 0.1}, 1.0),
}


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.covering(1)
def test_the_law_is_stationary(setting):
    options, chi = SETTINGS[setting]
    kernel = Kernel(SMALL, make_sampler(SMALL, **options), chi)
    exhausted = {pair for pair in PAIRS if kernel.move(*pair)[0].n_exhausted}
    assert all((j, i) in exhausted for i, j in exhausted)
    assert 0 < len(exhausted) < 6 if "most" in options else not exhausted
    matrix = kernel.matrix()
    assert max(errors(matrix, law_of(SMALL))) < 1e-12
    np.testing.assert_allclose(matrix, matrix_by_formula(SMALL, kernel.sampler, chi), rtol=0, atol=1e-12)
    off = matrix[~np.eye(3, dtype=bool)]
    assert np.all(off > 0.0)
    textbook = JUMPS * np.minimum(1, law_of(SMALL) * JUMPS.T / (law_of(SMALL)[:, None] * JUMPS))
    assert np.abs(matrix - textbook)[~np.eye(3, dtype=bool)].max() > 1e-4  # it is another chain


def mended(function, *changes):
    """A function with other text, in its own module."""
    source = inspect.getsource(function)
    for old, new in changes:
        assert source.count(old) == 1
        source = source.replace(old, new)
    names = dict(vars(tuna))
    exec(source, names)
    return names[function.__name__]


@register_jitable
def plain_move(sampler, q_new, q):
    """A planted fault: the tier does not look at both states."""
    tier = 0 if abs(q_new[0] - sampler.center[0]) <= sampler.radii[0] else 1
    return Move(tier, sampler.totals[tier] * distances(sampler, q_new, q)[1])


KEEPS_WRONGLY = ("0.5 * (1.0 - x) + extra", "0.5 * (1.0 + x) + extra")
WRONG_SIGN = ("result += math.log", "result -= math.log")
BOUNDS_ALIKE = ("bound = bounds[k]", "bound = 0.9 * move.expected")
TOO_FEW = ("rng.poisson(move.expected * (1.0 + extra))", "rng.poisson(move.expected)")
BUGS = {
    "keeps with the other probability": (tuna, mended(tuna.poisson_log_ratio, KEEPS_WRONGLY)),
    "log ratio of the wrong sign": (tuna, mended(tuna.poisson_log_ratio, WRONG_SIGN)),
    "tier of one state": (remainder, plain_move),
    "bounds that are not those it draws by": (tuna, mended(tuna.poisson_log_ratio, BOUNDS_ALIKE)),
    "draws too few for chi": (tuna, mended(tuna.poisson_log_ratio, TOO_FEW)),
}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.covering(1)
def test_planted_faults_are_noticed(monkeypatch, bug):
    module, wrong = BUGS[bug]
    monkeypatch.setattr(module, wrong.__name__, wrong)
    sampler = make_sampler(SMALL, slack=1.2)  # nothing is divided by zero
    if "tier" in bug:  # bounds that hold in either tier
        constants = np.array([2.0, 1.5, 1.0])[:, None] * sampler.constants[1]
        sampler = sampler_of(CENTRE, np.eye(1), RADII, constants, sampler.rounding, sampler.most)
    kernel = Kernel(SMALL, sampler, 1.0 if "chi" in bug else 0.0)
    assert errors(kernel.matrix(), law_of(SMALL))[0] > 1e-7


def test_wrong_proposal_ratios_are_noticed():
    """Planted fault: proposals whose ratio is left out."""
    kernel = Kernel(SMALL, make_sampler(SMALL), 0.0, WITHOUT)
    assert errors(kernel.matrix(), law_of(SMALL))[0] > 1e-3


# Counts of a compiled chain -------------------------------------------------------------------------------


def interpreted_trace(propose, adapt, target, kernel=tuna.tuna_transitions):
    return make_trace(kernel, constructor(drawn_by(...)), itself, by(propose, ..., adapt), target)


@cache
def compiled_trace(*functions, **options):
    return entry(interpreted_trace(*functions, **options), cache=False)


def chain_of(sampler, chi, n=400_000, proposal=RIGHT, seed=5, kernel=tuna.tuna_transitions):
    """A compiled chain on the three states."""
    trace, rng = compiled_trace(jump, no_adaptation, TABLE, kernel=kernel), np.random.default_rng(seed)
    return trace(n, False, rng, np.zeros(1), (LARGE,), sampler, proposal, counting(chi))


LARGE_SETTINGS = {"sharp": ({}, 0.0), "chi": ({"slack": 1.1}, 0.2), "some on all rows": ({"most": 1.0}, 0.0)}


@pytest.mark.parametrize("setting", LARGE_SETTINGS)
@pytest.mark.covering(1)
def test_a_compiled_chain_has_the_right_transition_probabilities(setting):
    options, chi = LARGE_SETTINGS[setting]
    sampler = make_sampler(LARGE, **options)
    matrix = matrix_by_formula(LARGE, sampler, chi)
    assert max(errors(matrix, law_of(LARGE))) < 1e-12
    found = chain_of(sampler, chi)
    states = found.q[:, 0].astype(int)
    assert worst_p(counts_of_moves(states), matrix) > P_LIMIT
    assert 0.0 <= found.exhausted.mean() < 0.9
    np.testing.assert_array_equal(found.n_used[found.exhausted == 1], 3)


def test_a_planted_fault_of_a_compiled_chain_is_noticed():
    matrix = matrix_by_formula(LARGE, make_sampler(LARGE), 0.0)
    states = chain_of(make_sampler(LARGE), 0.0, proposal=WITHOUT).q[:, 0].astype(int)
    assert worst_p(counts_of_moves(states), matrix) < P_LIMIT


def test_a_planted_fault_of_the_compiled_kernel_is_noticed(monkeypatch):
    wrong = mended(tuna.poisson_log_ratio, KEEPS_WRONGLY)
    monkeypatch.setattr(tuna, "poisson_log_ratio", register_jitable(wrong))
    # Another function object, so that what is compiled is not found in the cache of this test module.
    kernel = register_jitable(mended(tuna.tuna_transitions))
    sampler = make_sampler(LARGE, slack=1.2)
    matrix = matrix_by_formula(LARGE, sampler, 0.0)
    states = chain_of(sampler, 0.0, kernel=kernel).q[:, 0].astype(int)
    assert worst_p(counts_of_moves(states), matrix) < P_LIMIT


# Interpreted and compiled ---------------------------------------------------------------------------------

N, D = 600, 3


@register_jitable
def normal_global(q_new, q, args):
    total = 0.0
    for d in range(q.shape[0]):
        total += (q[d] - q_new[d]) * (q[d] + q_new[d]) / 2.0
    return total


@register_jitable
def rational(t):
    """Expanded at zero to second order it is all remainder; its third derivative is at most 6."""
    return t * t * t / (1.0 + t * t)


@register_jitable
def rational_terms(q_new, q, index, args):
    x, a = args
    out = np.empty(index.shape[0])
    for k in range(index.shape[0]):
        i = index[k]
        new, old = 0.0, 0.0
        for d in range(q.shape[0]):
            new += x[i, d] * q_new[d]
            old += x[i, d] * q[d]
        out[k] = a[i] * (rational(new) - rational(old))
    return out


RATIONAL = Target(normal_global, rational_terms)


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(1)
    return rng.normal(size=(N, D)) / 10, rng.normal(size=N)


def bounds_of(data, most=np.inf, factor=1.0, rounding=1e-12):
    """The same everywhere, so that there is one tier."""
    x, a = data
    c = rounded_up(factor * 6.0 * np.abs(a) * np.linalg.norm(x, axis=1) ** 3)
    return sampler_of(np.zeros(D), np.eye(D), np.full(3, np.inf), np.tile(c, (3, 1)), rounding, most)


def run(trace, n, data, sampler, *, chi=0.0, debug=False):
    bound = AdaptiveRandomWalk().bind(D, 0.3)
    rng, rule = np.random.default_rng(2), counting(chi, debug)
    found = trace(n, True, rng, np.zeros(D), data, sampler, bound.state, rule)
    return found, bound.state, rng.random(), rule.violations[0]


WALK = AdaptiveRandomWalk().bind(D, 0.3)


def both():
    functions = WALK.propose, WALK.adapt, RATIONAL
    return compiled_trace(*functions), interpreted_trace(*functions)


@pytest.mark.parametrize(
    ("chi", "most"),
    [
        (0.0, np.inf),
        (0.0, 10.0),
        pytest.param(0.05, np.inf, marks=pytest.mark.slow("draws many rows, interpreted")),
    ],
)
@pytest.mark.covering(1)
def test_interpreted_and_compiled_draws_are_identical(data, chi, most):
    """NumPy's Poisson numbers are numba's; powers of numbers may differ in their last digits."""
    sampler = bounds_of(data, most)
    (ours, state, after, _), (theirs, plain, plain_after, _) = (
        run(trace, 150, data, sampler, chi=chi) for trace in both()
    )
    assert 20 < ours.accepted.sum() < 140
    assert ours.n_used.max() > 20
    assert (0 < ours.exhausted.sum() < 150) == (most < np.inf)
    assert after == plain_after
    assert_same_traces(ours, theirs, mean=1e-9)
    for a, b in zip(state, plain, strict=True):
        np.testing.assert_array_equal(a, b)


@numba.njit
def poisson_numbers(rng, mean, n):
    return np.array([rng.poisson(mean) for _ in range(n)])


@pytest.mark.parametrize("mean", [0.0, 1e-9, 0.3, 3.0, 9.99, 10.0, 11.5, 300.0, 1e5, 1e9])
def test_poisson_numbers_are_those_of_numpy(mean):
    """Below 10 they are made in one way, and from there on in another."""
    ours, theirs = np.random.default_rng(6), np.random.default_rng(6)
    np.testing.assert_array_equal(
        poisson_numbers(ours, mean, 2000), [theirs.poisson(mean) for _ in range(2000)]
    )
    assert ours.random() == theirs.random()


@pytest.mark.parametrize("n", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK])
def test_all_that_was_drawn_is_read(data, n):
    """In portions; each is sorted."""
    asked = []

    def log_ratios(q_new, q, index, args):
        asked.append(index)
        return np.zeros(len(index))

    rng = Rng(np.random.default_rng(7).random(3 * n), n)
    rows, target = drawn_by(bounds_of(data)), Target(normal_global, log_ratios)
    result, used = tuna.poisson_log_ratio(
        rng, np.ones(D), np.zeros(D), data, rows, Move(0, 3.0), counting(), target
    )
    assert (result, used, rng.uniforms) == (0.0, n, [])
    assert sum(map(len, asked)) == n
    assert all(len(index) <= CHUNK and np.all(np.diff(index) >= 0) for index in asked)


def test_all_rows_are_summed_in_portions():
    terms = np.random.default_rng(8).normal(size=2 * CHUNK + 5)
    target = Target(normal_global, lambda q_new, q, index, args: terms[index])
    for n in (1, CHUNK, CHUNK + 1, len(terms)):
        total = tuna.sum_of_log_ratios(np.ones(1), np.zeros(1), (), n, target)
        assert total == pytest.approx(terms[:n].sum(), rel=1e-11)


# Terms larger than their bounds -----------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1], ids=["compiled", "interpreted"])
def test_wrong_bounds_are_errors_with_the_figures(data, which):
    """Planted fault: bounds that are too small."""
    with pytest.raises(ValueError, match="the bound is wrong, and so would be the decisions") as raised:
        run(both()[which], 300, data, bounds_of(data, factor=0.05))
    position, log_ratio, bound = raised.value.args
    assert 0 <= position < N
    assert abs(log_ratio) > bound > 0.0
    text = str(raised.value)
    assert f"term number {position} changed by {log_ratio}" in text
    assert f"the bound on that is {bound}" in text


@pytest.mark.parametrize("which", [0, 1], ids=["compiled", "interpreted"])
def test_wrong_bounds_are_counted(data, which):
    found, _, _, violations = run(both()[which], 300, data, bounds_of(data, factor=0.05), debug=True)
    assert 0 < violations <= found.n_used.sum()
    assert run(both()[which], 300, data, bounds_of(data), debug=True)[3] == 0


def one_further(state, q, rng):
    return q + 1.0, 0.0


def one_move(log_ratio, bound=0.25, *, keep=0.5, u=0.5, debug=False, rounding=1e-12, chi=0.0):
    """A move in which row 0, of one, is drawn once."""
    # M = 1 / 6 for w' = 1.
    c = np.full((3, 1), 6 * bound)
    sampler = sampler_of(np.zeros(1), np.eye(1), np.full(3, np.inf), c, rounding, np.inf)
    target = Target(lambda q_new, q, args: 0.0, lambda q_new, q, index, args: np.full(1, log_ratio))
    rng, rule = Rng([u, 0.3, 0.3, keep], 1), counting(chi, debug)
    rows = drawn_by(sampler)
    out = tuna.tuna_transitions(1, False, rng, np.zeros(1), (), rows, rule, by(one_further), target)
    assert rng.mean == pytest.approx(bound * (1 + chi * bound))
    return out, rule.violations[0]


def test_rounding_is_forgiven():
    for sign in (1, -1):
        for excess in (0.0, 1e-14, 0.9e-12):
            assert one_move(sign * (0.25 + excess))[1] == 0
            assert one_move(sign * (0.25 + excess), debug=True)[1] == 0
        with pytest.raises(ValueError, match="the bound is wrong"):
            one_move(sign * (0.25 + 2e-12))
        assert one_move(sign * (0.25 + 2e-12), debug=True)[1] == 1
        assert one_move(sign * (0.25 + 2e-12), rounding=1e-11)[1] == 0


def test_a_term_at_its_bound():
    """Falling by all it may, a row is always kept and ends the matter; rising, it is never kept."""
    for excess in (0.0, 5e-13):
        out, _ = one_move(-0.25 - excess, keep=np.nextafter(1, 0), u=1e-300)
        assert not out.accepted
        assert out.log_ratio_mean == -math.inf
        out, _ = one_move(0.25 + excess, keep=0.0)
        assert out.accepted
        assert out.log_ratio_mean == 0.0
    for sign in (1, -1):  # with chi neither is certain
        out, _ = one_move(sign * 0.25, chi=2.0, keep=0.0)
        assert out.log_ratio_mean == pytest.approx(sign * math.log((2 + 4 * 0.25 * 1) / (4 * 0.25)))


@pytest.mark.parametrize("keep", [0.0, 0.5, np.nextafter(1, 0)])
def test_what_is_not_a_number(keep):
    out, violations = one_move(math.nan, debug=True, keep=keep, u=1e-300)
    assert (out.accepted, violations) == (False, 1)
    assert out.q[0] == 0.0
    with pytest.raises(ValueError, match="the bound is wrong"):
        one_move(math.nan, keep=keep)
    for infinite in (math.inf, -math.inf):
        with pytest.raises(ValueError, match="the bound is wrong"):
            one_move(infinite, keep=keep)
        assert one_move(infinite, keep=keep, debug=True)[1] == 1


def test_outside_of_the_prior_no_data_are_read(data):
    for base in (-math.inf, math.nan):
        rng = Rng([0.5, *[0.5] * 9], 3)
        target = Target(lambda q_new, q, args, base=base: base, lambda *args: 1 / 0)
        out = tuna.tuna_transitions(
            1, False, rng, np.zeros(D), data, drawn_by(bounds_of(data)), counting(), by(one_further), target
        )
        assert (out.accepted, out.n_used, out.n_stages) == (False, 0, 0)
        assert rng.calls == ["random"]


@pytest.mark.parametrize("total", [math.inf, 1e19, math.nan])
def test_without_a_bound_all_rows_are_read_whatever_was_asked_for(data, total):
    """Nobody can draw so many; the move back is decided on all rows, too."""
    sampler = bounds_of(data)._replace(totals=np.full(3, total))
    trace = both()[0]
    found, *_ = run(trace, 100, data, sampler)
    np.testing.assert_array_equal(found.exhausted, 1)
    np.testing.assert_array_equal(found.n_used, N)
    exact, *_ = run(trace, 100, data, bounds_of(data, most=-1.0))
    np.testing.assert_array_equal(found.q, exact.q)


def test_a_kernel_can_be_kept_on_disk():
    """Records have no function with an address of its own, which numba would refuse to keep."""
    ways = {
        remainder: ["plain_move", "plain_draw", "plain_bounds"],
        group_draws: ["group_move", "group_draw", "group_bounds"],
        screened_draws: ["screened_move", "screened_draw", "screened_bounds"],
    }
    for module, names in ways.items():
        for name in names:
            function = getattr(module, name)
            assert not isinstance(function, Dispatcher)
            assert name in Path(module.__file__).read_text().partition("return RowDraws(")[2]
