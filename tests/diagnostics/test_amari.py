"""The Amari distance, by hand and by what it must not see."""

import numpy as np
import pytest

from pymc_austerity.diagnostics import amari_distance

TRUE = np.random.default_rng(1).normal(size=(4, 4))


def by_hand(W, W0):
    p, D = np.abs(W @ np.linalg.inv(W0)), len(W0)
    total = 0.0
    for i in range(D):
        total += sum(p[i, j] for j in range(D)) / max(p[i, j] for j in range(D)) - 1
        total += sum(p[j, i] for j in range(D)) / max(p[j, i] for j in range(D)) - 1
    return total / (2 * D * (D - 1))


def test_formula():
    W = np.random.default_rng(2).normal(size=(3, 2, 4, 4))
    found = amari_distance(W, TRUE)
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found[1, 0], by_hand(W[1, 0], TRUE))
    assert np.all((found > 0) & (found < 1))


def test_order_signs_and_scales_of_rows_do_not_matter():
    W = np.diag([1.0, -2.0, 0.1, 5.0])[[2, 0, 3, 1]] @ TRUE
    assert amari_distance(W, TRUE) == pytest.approx(0.0, abs=1e-13)


def test_extremes():
    assert amari_distance(np.array([[1.0, 1.0], [1.0, -1.0]]), np.eye(2)) == pytest.approx(1.0)
    angle = 0.3
    turned = [[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]]
    assert amari_distance(turned, np.eye(2)) == pytest.approx(np.tan(angle))


@pytest.mark.parametrize(
    ("W", "W0", "message"),
    [
        (np.eye(2), np.eye(3), r"W must have the shape \(..., 3, 3\) of W0, got \(2, 2\)"),
        (np.eye(1), np.eye(1), "at least two rows"),
        (np.ones(4), np.ones(4), r"got shape \(4,\)"),
        (np.eye(2), np.ones((2, 2)), "linearly dependent"),
    ],
)
def test_bad_input(W, W0, message):
    with pytest.raises(ValueError, match=message):
        amari_distance(W, W0)
