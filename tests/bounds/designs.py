"""Designs, pairs of states, and rows of which only the predictor is known."""

import numpy as np

from pymc_austerity.bounds.row_function import RowFunction

N = 400


def designs(rng):
    """Designs of several kinds, with offsets: name, rows (N, D + 1)."""
    dense = rng.normal(size=(N, 5))
    dummies = np.eye(4)[rng.integers(0, 4, N)]
    heavy = rng.standard_t(2, size=(N, 4))
    collinear = np.c_[dense, dense[:, 0] - dense[:, 1], np.ones(N)]
    scales = dense * np.array([1e-6, 1.0, 1e-2, 30.0, 1e3]) / 30.0
    offset = rng.normal(size=N)
    zero = np.zeros(N)
    return {
        "intercept": np.c_[np.ones(N), zero],
        "dense": np.c_[dense, zero],
        "dense with offset": np.c_[dense, offset],
        "dummies": np.c_[np.ones(N), dummies, zero],
        "heavy tails": np.c_[0.2 * heavy, offset],
        "collinear": np.c_[collinear, offset],
        "offset in the span": np.c_[dense, dense @ np.ones(5)],
        "scales": np.c_[scales, 1e4 + offset],
        "one row sticks out": np.c_[np.where(np.arange(N)[:, None] == 7, 3.0, 0.01 * dense), zero],
        "zero column": np.c_[dense, zero, offset],
    }


USUAL = {k: v for k, v in designs(np.random.default_rng(1)).items() if k not in ("scales", "zero column")}


def whitened(rows):
    """V and W of a metric in the span of the rows, about as long as that of a posterior."""
    x = rows[:, :-1]
    _, singular, right = np.linalg.svd(x, full_matrices=False)
    kept = singular > 1e-8 * singular[0]
    scale = singular[kept] / 2
    return right[kept].T / scale, right[kept] * scale[:, None]


def states(rng, n_dim, scale=1.0):
    """Pairs of states: near, far, and along one coordinate."""
    q = scale * rng.normal(size=n_dim) / np.sqrt(n_dim)
    for size in (1e-6, 1e-3, 0.1, 1.0):
        yield q + size * scale * rng.normal(size=n_dim), q
    yield q + np.eye(n_dim)[rng.integers(n_dim)], q
    yield q, q
    yield -q, q


def opaque(rows):
    """Rows of which only the predictor is known."""
    return RowFunction(
        name="y",
        n_rows=len(rows),
        n_dim=rows.shape[1] - 1,
        n_predictors=1,
        rows=lambda positions: rows[positions, None],
        data=lambda positions: np.empty((0, len(positions))),
        form=None,
        others=(),
        offset_fixed=True,
    )
