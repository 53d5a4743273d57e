"""Bounds from bytes hold, are not below what is certain, and rows pass the screen with their probability."""

import math

import numba
import numpy as np
import pytest
from scipy.special import expit

from pymc_austerity.bounds import screened_draws as module
from pymc_austerity.bounds.remainder import (
    bounded_terms,
    plain_bounds,
    plain_draw,
    plain_move,
    row_sampler_of,
)
from pymc_austerity.bounds.row_constants import ExpansionCoordinates
from pymc_austerity.bounds.screened_draws import (
    kept_shares,
    mean_share,
    probe_of,
    products,
    screened,
    screened_bounds,
    screened_draw,
    screened_move,
)
from tests.statistical.errors import p_of_counts

from .families import Logistic
from .row_functions import term_of
from .test_row_sampler import remainders

N, D = 400, 12
P_LIMIT = 1e-4


@pytest.fixture(scope="module")
def setting():
    """A family, rows (one of zeros, one of a single entry, one that is huge), and a sampler with a screen."""
    rng = np.random.default_rng(1)
    family, x = Logistic(rng), rng.normal(size=(N, D))
    x[3], x[4] = 0.0, np.eye(D)[2]
    x[5] *= 50.0
    rows = np.c_[x, rng.normal(size=N) / 5]
    center = 0.1 * rng.normal(size=D)
    p = expit(rows @ np.append(center, 1.0))
    W = np.linalg.cholesky(5 * x.T @ (x * (p * (1 - p))[:, None]) + np.eye(D)).T
    coordinates = ExpansionCoordinates(2, center, np.linalg.inv(W), W)
    terms = [term_of(family, rows)]
    plain = row_sampler_of(bounded_terms(terms, coordinates, {}), coordinates, 1e-12, np.inf)
    return family, rows, plain, screened(plain, terms, coordinates).state


def pairs(rng, plain, rows):
    """Near and far, short steps and long ones, along rows, and states of one large coordinate."""
    V = np.linalg.inv(plain.whitening)
    for away in (0.01, 1.0, 2.0):
        for step in (1e-6, 0.1, 1.0, 3.0):
            w = away * rng.normal(size=D)
            yield V @ (w + step * rng.normal(size=D)), V @ w
    for x in rows[rng.integers(N, size=40), :-1]:
        v = x @ V
        if np.any(v):
            along = V @ v / np.linalg.norm(v) * plain.radii[0] * (1 - 1e-9)
            yield along, -along
            yield along, 0.0 * along
    yield 5.0 * V[:, 0], -5.0 * V[:, 1]


def true_products(plain, rows, w):
    v = rows[:, :-1] @ np.linalg.inv(plain.whitening)
    length = np.linalg.norm(v, axis=1)
    return np.abs(v @ w) / np.where(length > 0.0, length, 1.0)


def test_products_are_certified(setting):
    """Never below |u_i . w|, and above it by less than a tenth of |w|."""
    _, rows, plain, sampler = setting
    rng = np.random.default_rng(2)
    for scale in (1e-8, 1.0, 1e8):
        for w in [*scale * rng.normal(size=(30, D)), *scale * np.eye(D), np.zeros(D)]:
            expected = true_products(plain, rows, w)
            found = np.array([products(sampler.screen, probe_of(w), probe_of(-w), i) for i in range(N)])
            np.testing.assert_array_equal(found[:, 0], found[:, 1])
            assert np.all(found[:, 0] >= expected * (1 - 1e-12))
            assert np.all(found[:, 0] <= expected + 0.1 * np.linalg.norm(w))


@pytest.mark.parametrize("part", ["numbers of rows", "error of the state"])
def test_errors_that_are_forgotten_are_noticed(setting, part, monkeypatch):
    _, rows, plain, sampler = setting
    screen, rng = sampler.screen, np.random.default_rng(3)
    if part == "numbers of rows":
        screen = screen._replace(numbers=screen.numbers * np.float32([1.0, 0.0]))
    worst = math.inf
    for w in rng.normal(size=(30, D)):
        probe = probe_of(w)
        if part == "error of the state":  # as coarse as a row
            coarse = np.abs(w).max() / 20
            probe = probe._replace(integers=np.rint(w / coarse).astype(np.int16), step=coarse, error=0.0)
            screen = sampler.screen._replace(numbers=screen.numbers * np.float32([1.0, 0.0]))
        found = np.array([products(screen, probe, probe, i)[0] for i in range(N)])
        worst = min(worst, (found - true_products(plain, rows, w)).min())
    assert worst < -1e-4


def largest_share(setting, slack=None):
    """The largest |R_i(q') - R_i(q)| / b_i, with b_i divided by the slack."""
    family, rows, plain, sampler = setting
    found = []
    for new, old in pairs(np.random.default_rng(4), plain, rows):
        q_new, q = sampler.center + new, sampler.center + old
        move = screened_move(sampler, q_new, q)
        changes = [remainders(family, rows, sampler.center, 2, state) for state in (q_new, q)]
        bounds = screened_bounds(sampler, move, np.arange(N))
        before = plain_bounds(plain, plain_move(plain, q_new, q), np.arange(N))
        assert np.all(bounds <= before * (1 + 1e-9))
        if slack:
            bounds = bounds / slack
        found.append(np.max((np.abs(changes[0] - changes[1]) - 1e-14) / np.maximum(bounds, 1e-300)))
    return float(max(found))


def test_all_changes_are_within(setting):
    assert largest_share(setting) <= 1.0


def test_planted_fault_is_noticed(setting):
    assert largest_share(setting, slack=3.0) > 1.0


@numba.njit
def counted(rng, sampler, move, n):
    return np.bincount(screened_draw(rng, sampler, move, n), minlength=N)


@numba.njit
def counted_without(rng, sampler, move, n):
    return np.bincount(plain_draw(rng, sampler, move, n), minlength=N)


@pytest.mark.parametrize("bug", [None, "all pass", "plain bounds"])
@pytest.mark.covering(1)
def test_rows_pass_with_their_probability(setting, bug):
    """As many as they should, and each in proportion to its bound; planted faults are noticed."""
    *_, plain, sampler = setting
    w = 0.7 * np.random.default_rng(5).normal(size=(2, D))
    states = sampler.center + w @ np.linalg.inv(plain.whitening).T
    move, n = screened_move(sampler, *states), 400_000
    draws = counted_without if bug == "all pass" else counted
    counts = draws(np.random.default_rng(6), sampler, move, n)
    bounds_of = plain_bounds if bug == "plain bounds" else screened_bounds
    bounds = bounds_of(sampler, move, np.arange(N)) / move.expected
    order = np.argsort(bounds)
    rare = int(np.searchsorted(bounds[order], 10 / n)) + 1
    starts = np.r_[0, rare:N]
    seen, p = (np.add.reduceat(x[order], starts) for x in (counts, bounds))
    p_value = (
        p_of_counts(np.append(seen, n - seen.sum()), np.append(p, 1.0 - p.sum())) if p.sum() < 0.999 else 0.0
    )
    assert (p_value > P_LIMIT) == (bug is None)
    share = mean_share(sampler, move, np.arange(N))
    assert 0.01 < share < 0.9
    np.testing.assert_allclose(
        share, screened_bounds(sampler, move, np.arange(N)).sum() / move.expected, rtol=1e-6
    )


def test_moves_are_the_same_either_way(setting):
    _, rows, plain, sampler = setting
    for new, old in pairs(np.random.default_rng(7), plain, rows):
        q_new, q = sampler.center + new, sampler.center + old
        there, back = screened_move(sampler, q_new, q), screened_move(sampler, q, q_new)
        assert there[:2] == back[:2]
        everywhere = np.arange(N)
        np.testing.assert_array_equal(
            screened_bounds(sampler, there, everywhere), screened_bounds(sampler, back, everywhere)
        )
        before = plain_move(plain, q_new, q)
        assert there.tier == before.tier
        np.testing.assert_allclose(there.expected, before.expected, rtol=1e-9)


def test_numbers_that_overflow(setting):
    *_, sampler = setting
    for far in (1e80, np.inf, np.nan):
        with np.errstate(all="ignore"):
            for pair in ((sampler.center + far, sampler.center), (sampler.center, sampler.center + far)):
                assert not screened_move(sampler, *pair).expected <= 1e100


def test_products_of_many_coordinates_fit():
    """The largest bytes and integers, in a thousand dimensions."""
    d = 1000
    x = np.ones((1, d)) / math.sqrt(d)
    screen = module.ByteScreen(
        np.eye(d), np.full((1, d), 127, np.int8), np.float32([[x[0, 0] / 127 * (1 + 1e-7), 0.0]])
    )
    for sign in (1.0, -1.0):
        found = products(screen, probe_of(sign * np.ones(d)), probe_of(np.ones(d)), 0)
        np.testing.assert_allclose(found, math.sqrt(d), rtol=1e-3)
    assert np.all(kept_shares(screen, np.ones(d), np.ones(d), 1.0, np.zeros(1, np.int64)) == 1.0)
