"""Shapes that enclose points: nothing sticks out, and they are not too wide."""

import numba
import numpy as np
import pytest

from pymc_austerity.bounds.enclosure import EnclosureBuilder, extent, extent_of_product, product

from .families import N, designs

DESIGNS = designs(np.random.default_rng(1))


def enclosed(points, sample=None):
    builder = EnclosureBuilder(points if sample is None else sample)
    for part in np.array_split(points, 3):
        builder.add(part)
    return builder.enclosure()


def directions(rng, width):
    for scale in (1.0, 1e-9, 1e6):
        yield scale * rng.normal(size=width)
    yield np.zeros(width)
    yield from np.eye(width)
    yield np.append(rng.normal(size=width - 1), 0.0)


@pytest.mark.parametrize("rows", [1, 2, 3, 10, N])
@pytest.mark.parametrize("name", DESIGNS)
def test_extent_contains_all_points(name, rows):
    rng = np.random.default_rng(2)
    points = DESIGNS[name]
    enclosure = enclosed(points, points[:rows])
    for u in directions(rng, points.shape[1]):
        low, high = extent(enclosure, u)
        along = points @ u
        assert low <= along.min()
        assert along.max() <= high
        for w in directions(rng, points.shape[1]):
            low, high = extent_of_product(enclosure, u, w)
            both = along * (points @ w)
            assert low <= both.min()
            assert both.max() <= high


def test_null_direction_of_collinear_points_is_narrow_but_not_empty():
    points = DESIGNS["collinear"]
    u = np.array([1.0, -1.0, 0, 0, 0, -1.0, 0, 0])
    assert np.abs(points @ u).max() < 1e-14
    low, high = extent(enclosed(points), u)
    assert -1e-9 < low <= high < 1e-9


def test_sample_that_misses_a_direction():
    points = DESIGNS["dense"].copy()
    points[:50, 0] = 0.0
    low, high = extent(enclosed(points, points[:50]), np.array([1.0, 0, 0, 0, 0, 0]))
    assert low <= points[:, 0].min()
    assert points[:, 0].max() <= high


def test_box_is_sharp_for_dummies_and_ellipsoid_for_correlated_columns():
    rng = np.random.default_rng(3)
    dummies = np.eye(4)[rng.integers(0, 4, N)]
    np.testing.assert_allclose(extent(enclosed(dummies), np.array([0.0, 1.0, 0, 0])), [0, 1], atol=1e-11)
    z = rng.normal(size=(N, 6))
    correlated = (z[:, :1] + 0.05 * z) * 10.0
    u = rng.normal(size=6)
    u -= u.mean()
    low, high = extent(enclosed(correlated), u)
    along = correlated @ u
    box = np.abs(correlated).max(0) @ np.abs(u)
    assert high - low < 2.5 * np.ptp(along)
    assert high - low < 0.2 * box


def test_product_over_an_ellipsoid_is_half_as_wide_at_right_angles():
    rng = np.random.default_rng(4)
    points = rng.normal(size=(20_000, 8))
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    enclosure = enclosed(points)
    u, w = np.eye(8)[0] + np.eye(8)[1], np.eye(8)[0] - np.eye(8)[1]
    low, high = extent_of_product(enclosure, u, w)
    a, b = extent(enclosure, u)
    c, d = extent(enclosure, w)
    whole = product(a, b, c, d)
    assert high - low < 0.6 * (whole[1] - whole[0])
    assert high > 0.9


def test_too_small_a_radius_is_noticed():
    points = DESIGNS["dense"]
    enclosure = enclosed(points)._replace(low=np.full(6, -1e9), high=np.full(6, 1e9), ball_radius=1e9)
    short = enclosure._replace(ellipsoid_radius=enclosure.ellipsoid_radius * 0.5)
    rng = np.random.default_rng(5)

    def sticks_out(c):
        us = rng.normal(size=(200, 6))
        return any((points @ u).max() > extent(c, u)[1] + 1e-6 for u in us)

    # The box pads for rounding in proportion to its size, so it is narrow again here.
    narrow = {"low": points.min(0) * 10, "high": points.max(0) * 10}
    assert sticks_out(short._replace(**narrow))
    assert not sticks_out(enclosure._replace(**narrow))


def test_many_columns_go_without_ellipsoid():
    points = np.random.default_rng(6).normal(size=(300, 205))
    enclosure = enclosed(points)
    assert enclosure.axes.shape == (205, 0)
    u = np.random.default_rng(7).normal(size=205)
    low, high = extent(enclosure, u)
    assert low <= (points @ u).min() <= (points @ u).max() <= high


def test_empty_enclosure_and_bad_rows():
    empty = EnclosureBuilder(np.empty((0, 3))).enclosure()
    assert extent(empty, np.ones(3)) == (0.0, 0.0)
    assert extent_of_product(empty, np.ones(3), np.ones(3)) == (0.0, 0.0)
    with pytest.raises(ValueError, match="not finite"):
        EnclosureBuilder(np.zeros((1, 2))).add(np.array([[1.0, np.nan]]))


def test_compiled_as_interpreted():
    points = DESIGNS["dense with offset"]
    enclosure = enclosed(points)
    compiled = numba.njit(lambda c, u, w: (extent(c, u), extent_of_product(c, u, w)))
    u, w = np.random.default_rng(8).normal(size=(2, 6))
    np.testing.assert_allclose(
        compiled(enclosure, u, w), (extent(enclosure, u), extent_of_product(enclosure, u, w)), rtol=1e-12
    )
