"""Tables that give scales their marginal distributions, against known quantiles."""

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.kernels.plates.fitted_proposal import SharedProposal
from pymc_austerity.kernels.plates.scores import LAST, N_KNOTS, from_scores, to_scores
from pymc_austerity.mode.plates.fit import normal_scores

SCORES = np.linspace(-LAST, LAST, N_KNOTS)
INNER = np.abs(SCORES) < 5.5
NONE = np.zeros(0, np.int64)


def test_a_normal_density_has_its_scores():
    root = np.random.default_rng(1).normal(size=(4, 4))
    precision, mode = root @ root.T + np.eye(4), np.arange(4.0)

    def density(zeta):
        return -0.5 * (zeta - mode) @ precision @ (zeta - mode), -precision @ (zeta - mode), -precision

    tables = normal_scores(density, mode, precision, np.zeros(4), np.array([1, 3]), NONE)
    np.testing.assert_allclose(tables[:, INNER], np.tile(SCORES[INNER], (2, 1)), atol=2e-3)


def of_a_scale(zeta):
    """s = log of a half-normal tau, and x given tau normal with mean s and variance 1 / (1 + tau^2)."""
    s, x = zeta
    t2, gap = np.exp(2.0 * s), x - s
    value = s - 0.5 * t2 + 0.5 * np.log1p(t2) - 0.5 * (1.0 + t2) * gap**2
    by_s = 1.0 - t2 + t2 / (1.0 + t2) - t2 * gap**2 + (1.0 + t2) * gap
    by_ss = -2.0 * t2 + 2.0 * t2 / (1.0 + t2) ** 2 - 2.0 * t2 * gap**2 + 4.0 * t2 * gap - (1.0 + t2)
    mixed = -2.0 * t2 * gap + 1.0 + t2
    hessian = np.array([[by_ss, mixed], [mixed, -(1.0 + t2)]])
    return value, np.array([by_s, -(1.0 + t2) * gap]), hessian


def test_a_scale_that_may_be_zero_has_its_quantiles():
    mode = np.zeros(2)
    precision = -of_a_scale(mode)[2]
    (table,) = normal_scores(of_a_scale, mode, precision, np.zeros(2), np.array([0]), NONE)
    spread = np.sqrt(np.linalg.inv(precision)[0, 0])
    expected = np.log(stats.halfnorm.isf(stats.norm.sf(SCORES))) / spread
    np.testing.assert_allclose(table[INNER], expected[INNER], atol=0.02)
    assert table[0] < -15.0


def test_what_is_integrated_out_counts_once():
    """Three effects of outer groups with a half-normal scale, of which nothing else is known."""

    def density(zeta):
        s, v = zeta[0], zeta[1:]
        precision, t2 = np.exp(-2.0 * s), np.exp(2.0 * s)
        # Of s and v, times the scales of v given s.
        value = s - 0.5 * t2 - 0.5 * precision * v @ v
        gradient = np.r_[1.0 - t2 + precision * v @ v, -precision * v]
        hessian = -precision * np.eye(4)
        hessian[0, 0] = -2.0 * t2 - 2.0 * precision * v @ v
        hessian[0, 1:] = hessian[1:, 0] = 2.0 * precision * v
        return value, gradient, hessian

    mode, outer = np.zeros(4), np.array([1, 2, 3])
    precision = -density(mode)[2]
    expected = np.log(stats.halfnorm.isf(stats.norm.sf(SCORES))) * np.sqrt(2.0)
    for integrated, right in ((outer, True), (NONE, False)):
        (table,) = normal_scores(density, mode, precision, np.zeros(4), np.array([0]), integrated)
        assert (np.abs(table - expected)[INNER].max() < 0.05) == right


def test_an_abrupt_end_is_no_maximum():
    """Of log density .04 s - .02 exp(2 s): a step falls by thousands."""

    def density(zeta):
        low, high = 0.04 * zeta[0], 0.02 * np.exp(2.0 * zeta[0])
        return low - high, np.array([0.04 - 2.0 * high]), np.array([[-4.0 * high]])

    (table,) = normal_scores(density, np.zeros(1), np.array([[0.08]]), np.zeros(1), np.array([0]), NONE)
    spread = np.sqrt(1.0 / 0.08)
    # exp(s)^2 is gamma with shape .02.
    expected = 0.5 * np.log(stats.gamma(0.02, scale=50.0).ppf(stats.norm.cdf([0.0, 1.0, 2.0]))) / spread
    np.testing.assert_allclose(table[[24, 28, 32]], expected, rtol=0.05, atol=0.05)


def test_where_the_density_ends_tails_go_on():
    """A density with no curvature beyond two standard deviations, and one that is not finite there."""

    def cut(zeta):
        value, gradient, hessian = -0.5 * zeta @ zeta, -zeta, -np.eye(2)
        if zeta[0] > 2.0:
            hessian = np.eye(2)
        return (value if zeta[0] > -2.0 else np.nan), gradient, hessian

    (table,) = normal_scores(cut, np.zeros(2), np.eye(2), np.zeros(2), np.array([0]), NONE)
    assert (np.diff(table) > 1e-3).all()
    assert table[0] < -6.0
    assert table[-1] > 6.0
    stretched = table[SCORES > 0.0] / SCORES[SCORES > 0.0]
    assert (stretched > 1.0).all()  # tails are heavier than those of a normal variable
    assert stretched[:4].max() < 1.2


def test_far_below_a_shift_does_not_count():
    """A drift by s changes the bulk, and leaves the shape of a tail in which nothing depends on s."""
    precision, hyper = -of_a_scale(np.zeros(2))[2], np.array([0])
    (plain,) = normal_scores(of_a_scale, np.zeros(2), precision, np.zeros(2), hyper, NONE)
    spread = np.sqrt(np.linalg.inv(precision)[0, 0])
    (shifted,) = normal_scores(of_a_scale, np.zeros(2), precision, np.array([0.3 * spread, 0.0]), hyper, NONE)
    median = N_KNOTS // 2
    assert shifted[median] + 0.3 > plain[median] + 0.05  # from the mode, not from the shifted mean
    assert np.diff(shifted)[:4] == pytest.approx(np.diff(plain)[:4], rel=0.02)


def test_scores_and_back():
    rng = np.random.default_rng(2)
    knots = np.cumsum(rng.gamma(2.0, size=(2, N_KNOTS)), axis=1)
    knots -= knots[:, N_KNOTS // 2, None]
    empty = np.zeros(0)
    proposal = SharedProposal(**dict.fromkeys(SharedProposal._fields, empty))._replace(
        moved=np.array([3, 0, 1]), hyper=np.array([0, 2]), mean=rng.normal(size=3),
        spreads=np.array([0.5, 1.0, 2.0]), knots=knots,
    )  # fmt: skip
    for size in (0.5, 20.0):  # also beyond the last knots
        scores = size * rng.normal(size=5)
        zeta = scores.copy()
        determinant = from_scores(proposal, zeta)
        assert (zeta[[0, 2, 4]] == scores[[0, 2, 4]]).all()
        h, slopes = 1e-6, []
        for k in (3, 1):
            ends = scores + np.outer([h, -h], np.eye(5)[k])
            for end in ends:
                from_scores(proposal, end)
            slopes.append((ends[0, k] - ends[1, k]) / (2.0 * h))
        assert determinant == pytest.approx(np.log(slopes).sum(), abs=1e-6)
        assert to_scores(proposal, zeta) == pytest.approx(determinant, abs=1e-12)
        np.testing.assert_allclose(zeta, scores, atol=1e-10)
