"""Bounds of rows, and how rows are drawn by them; halved bounds are noticed."""

import numpy as np
import pymc as pm
import pytest
from scipy import stats

from pymc_austerity.bounds.jets.points import BLOCK
from pymc_austerity.kernels.plates import decisions
from pymc_austerity.kernels.plates.evaluation import changes, phi_at
from pymc_austerity.kernels.plates.records import RowBounds
from pymc_austerity.kernels.plates.thinning import (
    Rates,
    candidates_of,
    draw_row,
    rates_of,
    room_for_rows,
    shift_of,
    weight,
)
from pymc_austerity.mode.plates.group_bounds import _accumulate
from tests.kernels.plates.cases import (
    SIZES,
    case_of,
    case_of_model,
    columns_within,
    groups_of,
    levels_of_rows,
    mean_power,
    order_of,
    pair_of,
    polynomials,
    row_values,
    rows_of,
)

CASES = [
    ("bernoulli", "centered"),
    ("poisson", "non-centered"),
    ("bernoulli", "crossed"),
    ("negative binomial", "crossed"),
    ("poisson", "lkj"),
]
# Each with one of two multiples of its bounds.
AT_KAPPA = [(*case, kappa) for case, kappa in zip(CASES, [1.0, 6.0, 1.0, 6.0, 1.0], strict=True)]
P_LIMIT = 1e-4


def changes_and_bounds(case, old, new, kappa=1.0, change_of=row_values):
    """D_i and B_i by NumPy, and the rows; those of groups that are read as a whole are left out."""
    arrays = case.arrays
    rows, weights = arrays.rows, arrays.weights
    sizes = np.diff(rows.starts)
    groups = np.repeat(np.arange(len(sizes)), sizes)
    shift = shift_of(arrays.bounds, old.d, new.d)
    rates = rates_of_groups(case, old, new, shift, kappa)
    z = columns_within(case)
    y, y_new = levels_of_rows(case, old.levels), levels_of_rows(case, new.levels)
    t, t_new = y + z @ old.d, y_new + z @ new.d
    change = np.zeros(len(t))
    if change_of is not None:
        psi, psi_new = arrays.sums.phi_slopes @ old.d, arrays.sums.phi_slopes @ new.d
        change = change_of(case, rows.predictors + t_new, arrays.sums.phi + psi_new)
        change -= change_of(case, rows.predictors + t, arrays.sums.phi + psi)
        change -= polynomials(case, t_new, psi_new) - polynomials(case, t, psi)
        if len(rows.thirds):
            change -= rows.thirds * (t_new**3 - t**3) / 6.0
    tiers = rates.tiers[groups]
    zeta = weights.lengths.astype(float)
    constants = weights.constants.astype(float)[np.maximum(tiers, 0), np.arange(len(groups))]
    w, w_new = arrays.bounds.whitening @ old.d, arrays.bounds.whitening @ new.d
    size = np.linalg.norm(w_new - w)
    power = arrays.bounds.power
    of_w = (w @ w + w @ w_new + w_new @ w_new) / 3
    if power == 3:
        of_w *= max(np.linalg.norm(w), np.linalg.norm(w_new))
    of_factors = np.unique(arrays.sums.cells.columns)
    y = y + z[:, of_factors] @ old.d[of_factors]
    y_new = y_new + z[:, of_factors] @ new.d[of_factors]
    spread = mean_power(y, y_new, power) ** (1 / power) + zeta * of_w ** (1 / power)
    bound = constants * (np.abs(y_new - y) + zeta * size) * spread**power
    thinned = np.flatnonzero(tiers >= 0)
    return change[thinned], bound[thinned], thinned


def rates_of_groups(case, old, new, shift, kappa):
    """As `compare` has them."""
    return rates_of(case.arrays.bounds, case.arrays.sums.cells, pair_of(old, new), shift, kappa)


def pairs(case, seed, widths=(0.3, 1.0, 1.5, 2.5)):
    """Pairs of states: other theta and eps, other theta alone, and other eps alone."""
    rng = np.random.default_rng(seed)
    for width in widths:
        (theta, eps), (theta_new, eps_new) = case.draw(rng, width), case.draw(rng, width)
        for one in ((theta_new, eps_new), (theta_new, eps), (theta, eps_new)):
            yield case.state(theta, eps), case.state(*one)


@pytest.mark.parametrize(("likelihood", "spelling"), CASES)
@pytest.mark.covering(1)
def test_changes_are_within_bounds_that_are_sharp(likelihood, spelling):
    """Half of the bounds would not do."""
    case, largest, n = case_of(likelihood, spelling, SIZES.get(likelihood, 400)), 0.0, 0
    for old, new in pairs(case, 11):
        change, bound, _ = changes_and_bounds(case, old, new)
        n += len(change)
        assert (np.abs(change) <= bound + 1e-12).all()
        largest = max(largest, (np.abs(change) / bound)[bound > 1e-8].max(initial=0.0))
    assert n > 1000
    assert (0.2 if likelihood in SIZES else 0.5) < largest <= 1.0 + 1e-9


@pytest.mark.parametrize("tier", [0, 1])
def test_bounds_hold_as_far_as_a_tier_reaches(tier):
    """The largest fourth derivative of a Poisson row is where levels and coefficients go up together."""
    case = case_of("poisson", "non-centered", 400)
    rows, bounds, weights, groups = case.arrays.rows, case.arrays.bounds, case.arrays.weights, groups_of(case)
    far = bounds.reaches[tier][groups] + weights.lengths * bounds.radii[tier]
    some = bounds.reaches[tier][groups] > 0.0
    needed = np.exp(rows.predictors + far) / 6.0
    ratio = weights.constants[tier][some] / needed[some]
    assert (ratio >= 1.0).all()
    assert ratio.min() < 1.1
    nearer = np.exp(rows.predictors + bounds.reaches[tier][groups]) / 6.0
    assert (nearer < 0.9 * needed).any()  # without the coefficients bounds would be noticed


def test_the_tier_of_a_pair_contains_both():
    case = case_of("poisson", "non-centered", 400)
    bounds, n = case.arrays.bounds, len(case.arrays.sums.center)
    directions = np.linalg.pinv(bounds.whitening)[:, 0]
    near, middle, far = (share * bounds.radii[1] * directions for share in (0.3, 0.8, 1.2))
    for d, d_new, tier in (
        (np.zeros(n), near, 0), (near, middle, 1), (middle, near, 1), (near, far, 2), (far, middle, 2),
    ):  # fmt: skip
        assert shift_of(bounds, d, d_new).tier == tier


@pytest.mark.parametrize(("likelihood", "spelling"), CASES)
@pytest.mark.covering(1)
def test_rates_are_the_same_for_both_directions(likelihood, spelling):
    case = case_of(likelihood, spelling, SIZES.get(likelihood, 400))
    bounds = case.arrays.bounds
    whole = 0
    for old, new in pairs(case, 12, widths=(0.5, 2.0, 5.0)):
        there, back = shift_of(bounds, old.d, new.d), shift_of(bounds, new.d, old.d)
        assert there == back
        one = rates_of_groups(case, old, new, there, 6.0)
        np.testing.assert_equal(one, rates_of_groups(case, new, old, back, 6.0))
        whole += (one.tiers < 0).sum()
    assert whole > 20  # both kinds are seen


@pytest.mark.parametrize(("likelihood", "spelling", "kappa"), AT_KAPPA)
@pytest.mark.covering(1)
def test_rows_are_drawn_for_at_least_their_bounds(likelihood, spelling, kappa):
    case = case_of(likelihood, spelling, SIZES.get(likelihood, 400))
    arrays, seen = case.arrays, 0
    starts, bounds, weights = arrays.rows.starts, arrays.bounds, arrays.weights
    for old, new in pairs(case, 13, widths=(0.5, 1.5)):
        shift = shift_of(bounds, old.d, new.d)
        _, bound, thinned = changes_and_bounds(case, old, new, kappa)
        groups = np.repeat(np.arange(len(bounds.sizes)), bounds.sizes)[thinned]
        rates = rates_of_groups(case, old, new, shift, kappa)
        for g in np.unique(groups):
            tier = rates.tiers[g]
            own = [
                rates.levels[g] * weight(weights.levels[tier], starts[g], i)
                + rates.shared[g] * weight(weights.shared[tier], starts[g], i)
                for i in range(starts[g], starts[g + 1])
            ]
            assert (np.array(own) >= kappa * bound[groups == g] * (1 - 1e-12)).all()
            assert sum(own) == pytest.approx(rates.expected[g], rel=1e-12)
            seen += len(own)
    assert seen > 200


@pytest.mark.parametrize("smallest", [1e-30, 1e-6, 1.0])
@pytest.mark.parametrize("power", [2, 3])
def test_single_precision_does_not_take_from_the_weight_of_a_row(smallest, power):
    """Groups of 100,000 rows, whose weights differ by many orders of magnitude."""
    rng, n = np.random.default_rng(14), 100_000
    starts = np.array([0, n, n, 2 * n])
    constants = (smallest ** rng.random(2 * n)).astype(np.float32)
    lengths = rng.gamma(0.5, size=2 * n).astype(np.float32)
    levels, shared = np.empty(2 * n, np.float32), np.empty(2 * n, np.float32)
    of_rows = constants, lengths, np.ones_like(lengths)
    _accumulate(of_rows, np.array([0.3, 1.0, 2.0]), starts, power, (levels, shared, np.zeros(3)))
    for first, last, typical in ((0, n, 0.3), (n, 2 * n, 2.0)):
        zeta = lengths[first:last].astype(float)
        own = constants[first:last].astype(float) * (1 + zeta / typical) ** power
        for sums, weights in ((levels, own), (shared, own * zeta)):
            found = np.diff(sums[first:last].astype(float), prepend=0.0)
            assert (found >= weights).all()
            assert sums[last - 1] < 1.05 * weights.sum()


def drawn_rows(case, old, new, n, kappa, monkeypatch):
    """Rows that `compare` draws, n times; and their bounds."""
    found: list[np.ndarray] = []
    bounds: dict[int, float] = {}

    def record(rng, plate, drawn, m, pair, result):
        some = drawn.bounds[:m] >= 0.0  # the others are of groups that are read as a whole
        found.append(drawn.rows[:m][some])
        bounds.update(zip(found[-1].tolist(), drawn.bounds[:m][some].tolist(), strict=True))

    monkeypatch.setattr(decisions, "add_log_ratios", record)
    shift = shift_of(case.arrays.bounds, old.d, new.d)
    rng, result = np.random.default_rng(15), np.zeros(len(case.arrays.bounds.sizes))
    for _ in range(n):
        decisions.compare(rng, case.arrays, pair_of(old, new), shift, kappa, result)
    return found, bounds


@pytest.mark.parametrize(("likelihood", "spelling", "kappa"), AT_KAPPA)
@pytest.mark.covering(1)
def test_counts_are_poisson_with_the_bounds_as_means(likelihood, spelling, kappa, monkeypatch):
    case = case_of(likelihood, spelling, SIZES.get(likelihood, 400))
    rng = np.random.default_rng(16)
    old, new = case.state(*case.draw(rng)), case.state(*case.draw(rng))
    few = 6 * case.plate.n_effects  # the others stay, and are compared for the change of theta alone
    old.levels[few:] = new.levels[few:]
    n = int((1500 if likelihood in SIZES else 6000) / kappa)
    found, own = drawn_rows(case, old, new, n, kappa, monkeypatch)
    _, bound, which = changes_and_bounds(case, old, new, kappa)
    means = dict(zip(which.tolist(), (kappa * bound).tolist(), strict=True))
    assert own == pytest.approx({i: means[i] for i in own}, rel=1e-9)
    counts = np.bincount(np.concatenate(found), minlength=len(order_of(case)))[which]
    assert sum(map(len, found)) == counts.sum() > 500
    assert p_of_counts(counts, n * kappa * bound) > P_LIMIT
    assert p_of_counts(counts, 1.3 * n * kappa * bound) < P_LIMIT
    mean, totals = kappa * bound.sum(), np.array([len(one) for one in found])
    spread = (totals.var(ddof=1) / mean - 1) / np.sqrt((2 + 1 / mean) / n)
    assert abs(spread) < 4.5


def p_of_counts(counts, means):
    """Of a chi-square test of Poisson counts; those with small means are put together."""
    order = np.argsort(means)
    cells = np.floor(np.cumsum(means[order]) / 10.0).astype(int)
    counts, means = np.bincount(cells, counts[order]), np.bincount(cells, means[order])
    filled = means > 5.0
    statistic = ((counts - means)[filled] ** 2 / means[filled]).sum()
    return 2 * min(stats.chi2(filled.sum()).sf(statistic), stats.chi2(filled.sum()).cdf(statistic))


def test_a_row_without_weight_is_never_drawn():
    """Neither at the beginning, nor in the middle, nor at the end of a group."""
    own = np.array([0.0, 2.0, 0.0, 1.0, 0.0], dtype=np.float32)
    sums = np.cumsum(own, dtype=np.float32)[None]
    nothing = np.zeros((1, 5), np.float32)
    case = case_of("bernoulli", "centered", 400)
    rows = case.arrays.rows._replace(starts=np.array([0, 5]))
    plate = case.arrays._replace(rows=rows, weights=RowBounds(nothing[0], own[None], sums, nothing))
    old, new = case.state(case.fit.theta, np.zeros(30)), case.state(case.fit.theta, np.zeros(30))
    old.levels[0], new.levels[0] = 1.0, 2.0
    rng, pair = np.random.default_rng(17), pair_of(old, new)
    rates = Rates(np.zeros(1, np.int64), np.ones(1), np.zeros(1), sums[0, -1:].astype(float))
    shift = shift_of(case.arrays.bounds, old.d, old.d)
    found = [draw_row(rng, candidates_of(plate), 0, rates, pair, shift, 1.0)[0] for _ in range(600)]
    assert set(found) == {1, 3}
    assert stats.binomtest(found.count(1), 600, 2 / 3).pvalue > P_LIMIT


def rows_of_every_likelihood(n, n_groups=30):
    """Definitions of likelihoods, by a predictor."""
    data = rows_of(n, n_groups)
    eta = data.x @ [0.3, 0.5, -0.2]
    counts = np.random.default_rng(18).poisson(np.exp(eta))
    reals = eta + np.random.default_rng(19).standard_t(4, n)
    trials = 1 + counts % 4
    many = np.random.default_rng(20).poisson(1e5 * np.exp(eta))
    y = (data.noise < 0.4).astype(int)
    return data, {
        "binomial": lambda t: pm.Binomial("y", n=trials, logit_p=t, observed=np.minimum(counts, trials)),
        "probit": lambda t: pm.Bernoulli("y", p=pm.math.invprobit(t), observed=y),
        "cloglog": lambda t: pm.Bernoulli("y", p=1 - pm.math.exp(-pm.math.exp(t)), observed=y),
        "poisson": lambda t: pm.Poisson("y", pm.math.exp(t), observed=counts),
        "large counts": lambda t: pm.Poisson("y", 1e5 * pm.math.exp(t), observed=many),
        "many trials": lambda t: pm.Binomial("y", n=10**6, logit_p=t, observed=many),
        "negative binomial": lambda t: pm.NegativeBinomial(
            "y", mu=pm.math.exp(t), alpha=3.0, observed=counts
        ),
        "gamma": lambda t: pm.Gamma("y", alpha=3.0, beta=3.0 / pm.math.exp(t), observed=np.exp(reals)),
        "student": lambda t: pm.StudentT("y", nu=5.0, mu=t, sigma=0.7, observed=reals),
        "normal": lambda t: pm.Normal("y", t, 0.7, observed=reals),
    }


NAMES = list(rows_of_every_likelihood(30)[1])
MANY = ["binomial", "negative binomial", "student"]


@pytest.mark.parametrize(
    ("name", "n"), [*((name, 400) for name in NAMES), *((name, 24_000) for name in MANY)]
)
@pytest.mark.covering(1)
def test_bounds_of_every_likelihood(name, n):
    """By the program of the kernel; of many rows bounds are looked up in a table."""
    data, likelihoods = rows_of_every_likelihood(n)
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=30)
        likelihoods[name](data.x @ pm.Normal("beta", shape=3) + u[data.groups])
    require_bounds(case_of_model(model))


@pytest.mark.parametrize("name", ["large counts", "many trials"])
def test_rounding_is_measured(name):
    """Where f holds a large constant, an allowance relative to its size would not do."""
    data, likelihoods = rows_of_every_likelihood(400)
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=30)
        likelihoods[name](data.x @ pm.Normal("beta", shape=3) + u[data.groups])
    case = case_of_model(model)
    assert 1e-11 < case.arrays.bounds.rounding < 1e-6
    usual = case.arrays.bounds._replace(rounding=1e-12)
    with pytest.raises(AssertionError):
        require_bounds(case._replace(arrays=case.arrays._replace(bounds=usual)))


def require_bounds(case, n_factors=0):
    """|D_i| <= B_i for some rows of some pairs of states."""
    seen, sizes = 0, case.arrays.bounds.sizes
    assert case.arrays.sums.cells.n_factors == n_factors
    groups, rng = np.repeat(np.arange(30), sizes), np.random.default_rng(20)
    some = np.unique(rng.choice(sizes.sum(), 400))
    for old, new in pairs(case, 21, widths=(1.0, 2.0)):
        _, bound, thinned = changes_and_bounds(case, old, new, change_of=None)
        kept = np.intersect1d(some, thinned)
        found = program_changes(case, old, new, groups, kept)
        own = bound[np.searchsorted(thinned, kept)]
        assert (np.abs(found) <= own + case.arrays.bounds.rounding).all()
        seen += len(kept)
    assert seen > 200


FACTOR = np.arange(400) % 6


@pytest.mark.parametrize(
    ("predictor", "n_factors"),
    [
        pytest.param(lambda v, x: v[FACTOR], 1, id="one factor"),
        pytest.param(lambda v, x: v[FACTOR] + pm.Normal("a", shape=4)[np.arange(400) % 4], 2, id="two"),
        pytest.param(lambda v, x: v[FACTOR] - v[FACTOR[::-1].copy()], 0, id="a difference"),
        pytest.param(lambda v, x: v[FACTOR] * x, 0, id="slopes"),
        pytest.param(lambda v, x: v[rows_of(400).groups % 6], 1, id="a factor of groups"),
    ],
)
@pytest.mark.covering(1)
def test_bounds_with_other_factors(predictor, n_factors):
    """Levels have bounds of their own where each row has one level, and they are used nowhere else."""
    data, likelihoods = rows_of_every_likelihood(400)
    with pm.Model() as model:
        u = pm.Normal("u", 0.0, pm.HalfNormal("tau"), shape=30)
        v = pm.Normal("v", 0.0, pm.HalfNormal("tau_v"), shape=6)
        slopes = data.x @ pm.Normal("beta", shape=3)
        likelihoods["poisson"](slopes + predictor(v, data.x[:, 1]) + u[data.groups])
    require_bounds(case_of_model(model), n_factors)


def program_changes(case, old, new, groups, some):
    """D_i of some rows, as the kernel evaluates them."""
    rows, within = case.arrays.rows, columns_within(case)
    result = np.empty(len(some))
    lanes = room_for_rows(1).lanes
    for start in range(0, len(some), BLOCK):
        chunk = some[start : start + BLOCK]
        index, before, after, found = lanes
        first = BLOCK - len(chunk)
        index[first:] = chunk
        z = within[chunk]
        before[first:] = old.levels[groups[chunk]] + z @ old.d
        after[first:] = new.levels[groups[chunk]] + z @ new.d
        phi = [phi_at(case.arrays.sums, one.d) for one in (old, new)]
        changes(rows, case.arrays.room, index, len(chunk), (before, phi[0]), (after, phi[1]), found)
        result[start : start + BLOCK] = found[first:]
    return result
