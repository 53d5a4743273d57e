"""Detailed balance of the two moves, at fixed pairs of states some of which are beyond the reach.

The log of the ratio of acceptance probabilities, there over back, has to be that of the target, with the
proposal's. A fallback that is decided by the forward state alone, and a proposal whose density is left out,
are noticed.
"""

import numpy as np
import pytest
from scipy import stats

from pymc_austerity.kernels.plates import decisions, moves
from pymc_austerity.kernels.plates.cubic import add_cubic
from pymc_austerity.kernels.plates.moves import move_plate, move_shared, propose_shared, to_theta, to_zeta
from pymc_austerity.kernels.plates.scores import from_scores, to_scores
from pymc_austerity.kernels.plates.thinning import Rates, rates_of, shift_of
from tests.kernels.plates.cases import DRAWN, SIZES, case_of, mean_power, pair_of
from tests.kernels.plates.test_coordinates import log_jacobian

CASES = [("bernoulli", "centered"), ("poisson", "non-centered"), ("poisson", "slopes non-centered")]
# Dispersions are shared variables: one move changes them.
DISPERSED = pytest.param(
    "negative binomial", "centered", marks=pytest.mark.slow("6,000 interpreted rows, hundreds of times")
)
LIMIT = 4.0


def accepted(log_ratios, base):
    """Mean of min(1, exp(.)), by groups, with standard errors: two draws may be seen that were not."""
    found, n = np.exp(np.minimum(0.0, base + log_ratios)), len(log_ratios)
    return found.mean(axis=0), np.hypot(found.std(axis=0, ddof=1) / np.sqrt(n), 2.0 / n)


def balance(there, back, expected):
    """Standardised differences of log ratios from what they should be."""
    (a, s), (b, t) = there, back
    return (np.log(a / b) - expected) / np.hypot(s / a, t / b)


def log_target(case, theta, eps):
    """In the coordinates of the chain, by the model's own log density."""
    return case.log_density(theta, case.effects(theta, eps)) + log_jacobian(case, theta)


def plate_pairs(case):
    """Two states with one theta: levels on either side, some within the reach and some beyond."""
    n = len(case.arrays.sums.slopes)
    eps, eps_new = np.linspace(-2.0, 2.0, n), np.linspace(1.5, -1.0, n)
    theta, _ = case.draw(np.random.default_rng(21), 0.5)
    state = case.state(theta, eps)
    beyond = [(1.0, 0.98, 1.05), (-1.0, 0.98, 1.05), (1.0, 1.05, 0.5), (-1.0, 1.05, -0.2), (1.0, 0.6, 0.2)]
    for k, (sign, share, share_new) in enumerate(beyond):
        which = slice(k, n, 7)
        for g in range(len(case.arrays.bounds.sizes))[which]:
            put_at_reach(case, state, g, sign * share, eps)
            put_at_reach(case, state, g, sign * share_new, eps_new)
    return case.state(theta, eps), case.state(theta, eps_new)


def put_at_reach(case, state, g, share, eps):
    """Write eps with which the level of a group is at this share of its reach, in some direction."""
    q, reach = case.plate.n_effects, share * case.arrays.bounds.reaches[1, g]
    if q == 1:
        eps[g] = (reach - state.means[g]) / state.scales[g]
        return
    own = slice(g * q, (g + 1) * q)
    direction = np.cos(g + np.arange(q))
    direction *= reach / np.linalg.norm(direction)
    level = np.linalg.solve(case.arrays.bounds.norms[own], direction)
    eps[own] = np.linalg.solve(state.scales.reshape(-1, q, q)[g], level - state.means[own])


def compared(case, old, new, n, seed, kappa=1.0):
    """Log ratios of the groups, n times."""
    rng = np.random.default_rng(seed)
    found = np.zeros((n, len(case.arrays.bounds.sizes)))
    shift = shift_of(case.arrays.bounds, old.d, new.d)
    for row in found:
        decisions.compare(rng, case.arrays, pair_of(old, new), shift, kappa, row)
    return found


def scores_of_groups(case, old, new, n):
    """Detailed balance, group by group, for draws of N(0, 1)."""
    n_groups = len(case.arrays.bounds.sizes)
    moved = [_one(old.eps, new.eps, g, case.plate.n_effects) for g in range(n_groups)]
    expected = np.array([log_target(case, old.theta, one) for one in moved])
    expected -= log_target(case, old.theta, old.eps)
    squares = new.eps**2 - old.eps**2
    expected += 0.5 * squares.reshape(n_groups, -1).sum(axis=1)  # of the proposal
    there, back = compared(case, old, new, n, 22), compared(case, new, old, n, 23)
    base = np.zeros(n_groups)  # terms of the third order are known
    add_cubic(case.arrays.cubic, new.cubic, new.levels, 1.0, base)
    add_cubic(case.arrays.cubic, old.cubic, old.levels, -1.0, base)
    return balance(accepted(there, base), accepted(back, -base), expected), expected


def _one(eps, eps_new, g, q):
    changed, own = eps.copy(), slice(g * q, (g + 1) * q)
    changed[own] = eps_new[own]
    return changed


@pytest.mark.parametrize(("likelihood", "spelling"), CASES)
@pytest.mark.covering(1)
def test_plate_move(likelihood, spelling):
    case = case_of(likelihood, spelling, 400)
    old, new = plate_pairs(case)
    scores, expected = scores_of_groups(case, old, new, 200)
    assert expected.max() > 0.1
    assert expected.min() < -0.1
    sizes = case.arrays.bounds.sizes
    assert np.abs(scores[sizes > 0]).max() < LIMIT
    shift = shift_of(case.arrays.bounds, old.d, new.d)
    rates = rates_of(case.arrays.bounds, case.arrays.sums.cells, pair_of(old, new), shift, 1.0)
    assert set(rates.tiers[sizes > 0]) == {-1, 0, 1}


def by_forward_state(bounds, cells, pair, shift, kappa):
    """The planted fault: a group is read as a whole only if the state that it leaves is beyond the reach."""
    e, e_new = pair.levels, pair.new_levels
    within = bounds.reaches[-1] * (1 - 1e-9)
    near = pair._replace(levels=np.clip(e, -within, within), new_levels=np.zeros(len(e)))
    tiers = rates_of(bounds, cells, near, shift, 0.0).tiers
    size = np.abs(e_new - e) * kappa * mean_power(e, e_new, bounds.power)
    wrong = Rates(tiers, size, np.zeros(len(e)), size * bounds.levels[tiers, np.arange(len(e))])
    right = rates_of(bounds, cells, pair, shift, kappa)
    is_beyond = np.abs(e) > bounds.reaches[-1]
    return Rates(*(np.where(is_beyond, one, other) for one, other in zip(right, wrong, strict=True)))


@pytest.mark.slow("a planted fault, in steps of its own")
def test_a_fallback_by_the_forward_state_is_noticed(monkeypatch):
    """Planted fault: a fallback that looks at one state only."""
    case = case_of("bernoulli", "centered", 400)
    old, new = plate_pairs(case)
    monkeypatch.setattr(decisions, "rates_of", by_forward_state)
    scores, _ = scores_of_groups(case, old, new, 200)
    assert np.abs(scores[case.arrays.bounds.sizes > 0]).max() > 2 * LIMIT


def shared_pairs(case):
    """Pairs of (theta, eps): with groups within their reach, and with groups that leave it."""
    rng = np.random.default_rng(24)
    for width in (0.5, 1.0, 1.5):
        theta, eps = case.draw(rng, width)
        theta_new, _ = case.draw(rng, width)
        yield theta, theta_new, eps
        state = case.state(theta, eps)
        eps = eps.copy()
        for g in range(6):
            put_at_reach(case, state, g, 0.999, eps)
        yield theta, theta_new, eps


def scores_of(case, theta):
    """Coordinates in which theta is proposed, and the log determinant of theta by them."""
    proposal, zeta = case.arrays.proposal, theta.copy()
    determinant = to_zeta(proposal, case.target.features(theta, case.args), zeta)
    return zeta, determinant + to_scores(proposal, zeta)


def log_q(case, theta):
    """Of independent proposals."""
    proposal = case.arrays.proposal
    zeta, determinant = scores_of(case, theta)
    w = proposal.inverse @ (zeta - proposal.mean)
    return -0.5 * (20.0 + len(theta)) * np.log1p(w @ w / 20.0) - determinant


def shared_scores(case, pair, n, monkeypatch, density=1.0):
    """Detailed balance of `move_shared`; and groups that were read as a whole."""
    theta, theta_new, eps = pair
    plate = case.arrays._replace(rule=case.arrays.rule._replace(kappa=1.0))
    ratio = log_q(case, theta) - log_q(case, theta_new)
    found, whole = [], []
    for start, end, sign in ((theta, theta_new, 1.0), (theta_new, theta, -1.0)):
        monkeypatch.setattr(moves, "propose_shared", lambda *_, e=end, s=sign: (e, density * s * ratio))
        state, other = case.state(start, eps), case.state(end, eps)
        rng = np.random.default_rng(25)
        counts = [move_shared(rng, plate, state, other, case.args, DRAWN, case.target)[2] for _ in range(n)]
        found.append(accepted(np.array([one.log_ratio for one in counts]), 0.0))
        whole.append({one.n_whole for one in counts})
        taken = np.mean([one.accepted for one in counts])
        assert abs(taken - found[-1][0]) < 5.0 * np.sqrt(max(taken * (1 - taken), 1.0 / n) / n)
    assert whole[0] == whole[1]
    expected = log_target(case, theta_new, eps) - log_target(case, theta, eps) + ratio
    return balance(*found, expected), whole[0].pop()


@pytest.mark.parametrize(("likelihood", "spelling"), [*CASES, DISPERSED, ("bernoulli", "crossed")])
@pytest.mark.covering(1)
def test_shared_move(likelihood, spelling, monkeypatch):
    case = case_of(likelihood, spelling, SIZES.get(likelihood, 400))
    n = 60 if likelihood in SIZES else 150
    found = [shared_scores(case, pair, n, monkeypatch) for pair in shared_pairs(case)]
    assert max(abs(score) for score, _ in found) < LIMIT
    assert min(whole for _, whole in found) <= 2 < max(whole for _, whole in found)


@pytest.mark.slow("a planted fault, in steps of its own")
def test_without_the_density_of_the_proposal_it_fails(monkeypatch):
    """Planted fault: no density of the proposal."""
    case = case_of("bernoulli", "centered", 400)
    found = [shared_scores(case, pair, 150, monkeypatch, density=0.0) for pair in shared_pairs(case)]
    assert max(abs(score) for score, _ in found) > 2 * LIMIT


@pytest.mark.parametrize("spelling", ["centered", "crossed"])
def test_ratio_of_the_proposal(spelling):
    """Multivariate t of scores, or a random walk there."""
    case, rng = case_of("bernoulli", spelling, 400), np.random.default_rng(26)
    proposal = case.arrays.proposal
    theta, draws, n_walks = case.draw(rng)[0], [], 0
    scores, determinant = scores_of(case, theta)
    for _ in range(1000):
        new, ratio = propose_shared(rng, proposal, theta, case.args, case.target)
        other, of_new = scores_of(case, new)
        if abs(ratio - (of_new - determinant)) < 1e-11:
            n_walks += 1
            assert np.abs(proposal.inverse @ (other - scores)).max() < 6.0 * proposal.scale
            continue
        assert ratio == pytest.approx(log_q(case, theta) - log_q(case, new), abs=1e-9)
        draws.append(proposal.inverse @ (other - proposal.mean))
    assert stats.binomtest(n_walks, 1000, 1.0 - proposal.independent).pvalue > 1e-4
    pvalues = [stats.kstest(one, stats.t(20).cdf).pvalue for one in np.transpose(draws)]
    assert min(pvalues) > 1e-4 / len(pvalues)


def test_jacobian_of_the_proposal():
    """By differences, for effects of a second factor, and scales of both."""
    case, rng = case_of("bernoulli", "crossed", 400), np.random.default_rng(28)
    proposal, h = case.arrays.proposal, 1e-6
    assert len(proposal.mapped) == 5

    def theta_at(scores):
        theta = scores.copy()
        determinant = from_scores(proposal, theta)
        return theta, determinant + to_theta(proposal, case.target.features(theta, case.args), theta)

    theta, _ = case.draw(rng, 1.5)
    zeta, determinant = scores_of(case, theta)
    again, same = theta_at(zeta)
    np.testing.assert_allclose(again, theta, atol=1e-12)
    assert same == pytest.approx(determinant, abs=1e-12)
    slopes = [(theta_at(zeta + s)[0] - theta_at(zeta - s)[0]) / (2 * h) for s in h * np.eye(len(zeta))]
    sign, numeric = np.linalg.slogdet(slopes)
    assert abs(numeric - determinant) < 1e-6
    assert sign != 0.0


@pytest.mark.parametrize(("width", "spelling"), [(1.0, "centered"), (1.3, "slopes")])
@pytest.mark.covering(1)
def test_plate_moves_without_remainders_keep_standard_normals(width, spelling):
    case, rng = case_of("normal", spelling, 400), np.random.default_rng(27)
    n = len(case.arrays.sums.slopes)
    plate = case.arrays._replace(bounds=case.arrays.bounds._replace(widths=np.full(30, width)))
    state = case.state(case.fit.theta, rng.standard_normal(n))
    found = []
    for k in range(800):
        counts = move_plate(rng, plate, state, DRAWN)
        assert counts.n_used == 0
        if k % 5 == 0:
            found.append(state.eps.copy())
    assert stats.kstest(np.ravel(found), "norm").pvalue > 1e-4
    levels = case.state(case.fit.theta, state.eps).levels
    np.testing.assert_allclose(state.levels, levels, atol=1e-14)


def test_a_shift_beyond_the_radius_reads_all_rows():
    case = case_of("bernoulli", "centered", 400)
    bounds = case.arrays.bounds
    n = len(case.arrays.sums.linear)
    far = shift_of(bounds, np.zeros(n), np.zeros(n))._replace(tier=len(bounds.radii))
    state = case.state(case.fit.theta, np.zeros(len(bounds.sizes)))
    pair, cells = pair_of(state, state), case.arrays.sums.cells
    assert (rates_of(bounds, cells, pair, far, 1.0).tiers == -1).all()
