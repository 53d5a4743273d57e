"""Remainders of expansions of rows, with their rounding, by the machine at points."""

import math

import numpy as np

from pymc_austerity.bounds.jets.machine import LANES, Block, Box, run, slots_for
from pymc_austerity.bounds.jets.ranges import WORK
from pymc_austerity.bounds.jets.tape import multi_indices, tape_of


def coefficients(expression, eta, data, order, factor=None):
    """Taylor coefficients of rows, and their radii: each (n, m). Derivatives are by eta, or by z with L."""
    m, p = eta.shape
    tape, work = tape_of(expression, p, order), np.empty(WORK)
    slots, box = slots_for(tape), Box(np.zeros(p), np.zeros(p), 1.0)
    found = np.empty((2, tape.n_coefficients, m))
    unit = np.repeat(np.eye(p)[None], m, axis=0) if factor is None else factor
    for start in range(0, m, LANES):
        rows = np.minimum(np.arange(start, start + LANES), m - 1)
        block = Block(
            np.ascontiguousarray(eta[rows].T),
            np.ascontiguousarray(np.moveaxis(unit[rows], 0, -1)),
            np.ascontiguousarray(data[:, rows]),
        )
        run(tape, block, box, slots, work)
        last = min(start + LANES, m)
        for which, numbers in enumerate((slots.middle, slots.radius)):
            found[which, :, start:last] = numbers[tape.root, : tape.n_coefficients, : last - start]
    return found[0], found[1]


def remainders(expression, eta, directions, data, moves, order):
    """R_i(w_k) for moves (K, m, d), and what rounding may have added: each (K, m)."""
    p = eta.shape[1]
    steps = np.einsum("mpd,kmd->kmp", directions, moves)
    c, radius = coefficients(expression, eta, data, order)
    alphas = np.array(multi_indices(p, order))
    monomials = np.prod(steps[:, :, None, :] ** alphas, axis=3)  # (K, m, n)
    values = np.empty(steps.shape[:2])
    rounding = np.empty(steps.shape[:2])
    for k, step in enumerate(steps):
        moved, moved_radius = coefficients(expression, eta + step, data, 0)
        values[k] = moved[0] - np.einsum("mn,nm->m", monomials[k], c)
        size = np.abs(moved[0]) + np.einsum("mn,nm->m", np.abs(monomials[k]), np.abs(c))
        rounding[k] = moved_radius[0] + np.einsum("mn,nm->m", np.abs(monomials[k]), radius) + 1e-15 * size
    return values, rounding


def distance(w, w_new, order):
    """M of `bounds.remainder` for moves (..., d)."""
    old, new, both = (w**2).sum(-1), (w_new**2).sum(-1), (w * w_new).sum(-1)
    ends = (old ** ((order + 1) / 2) + new ** ((order + 1) / 2)) / math.factorial(order + 1)
    step = np.sqrt(((w_new - w) ** 2).sum(-1))
    return np.minimum(ends, step * ((old + new + both) / 3) ** (order / 2) / math.factorial(order))


def to_the_border(directions, radius, n_moves, rng):
    """Moves of length `radius` along the row's own predictors: (K, m, d)."""
    m, p, _ = directions.shape
    w = np.einsum("kmp,mpd->kmd", rng.normal(size=(n_moves, m, p)), directions)
    return w * (radius * (1.0 - 1e-9) / np.linalg.norm(w, axis=2, keepdims=True))
