"""Inner Hamiltonian moves: leapfrog, law, step size; and chains with the outer test."""

import inspect
import math
from functools import cache

import numba
import numpy as np
import pytest
from numba.extending import register_jitable
from scipy import integrate, stats

from pymc_austerity.acceptance import Exact
from pymc_austerity.kernels.metropolis import Rule, no_range, transitions
from pymc_austerity.kernels.subsample import rows_of
from pymc_austerity.model.compile.protocol import constructor
from pymc_austerity.proposals import Surrogate, surrogate
from pymc_austerity.proposals.base import bind, is_fitted
from pymc_austerity.proposals.surrogate import adapt_step_size, inner_transitions
from pymc_austerity.target import QuadraticProxy, Target
from tests.kernels.engines import ScriptedRng, by, rule_of
from tests.proposals.moments import COV
from tests.proposals.skewed import SHAPES, SHEAR, fit, skewed_args, skewed_ratio, zeros
from tests.statistical.errors import LIMIT, error_of_mean

PROXY = QuadraticProxy(np.array([1.0, -2.0, 0.5]), np.linalg.inv(COV))


# Parameters ----------------------------------------------------------------------------------------


def test_wrong_parameters_are_refused():
    with pytest.raises(ValueError, match="n_inner must be an integer of at least 1, got 0"):
        Surrogate(0)


def test_binding():
    bound = bind(Surrogate(), 3, 0.44, PROXY)
    assert bound.is_surrogate
    assert bound.target_functions == ("global_log_ratio", "global_gradient")
    with pytest.raises(NotImplementedError, match="a move of its own"):
        bound.propose(bound.state, np.zeros(3), np.random.default_rng(1))
    assert bound.compilable
    assert is_fitted(Surrogate())
    assert bound.state.n_inner[0] == 5
    assert bound.state.scale[0] == pytest.approx(0.5 * 3**-0.25)
    np.testing.assert_allclose(bound.state.unwhiten @ bound.state.unwhiten.T, COV, rtol=1e-12)
    other = Surrogate().bind_to(PROXY)
    assert not any(np.shares_memory(a, b) for a, b in zip(bound.state, other.state, strict=True))


# Targets: a normal law, and one that is skewed and correlated --------------------------------------


@register_jitable
def normal_ratio(q_new, q, args):
    mean, precision = args
    total = 0.0
    for i in range(len(q)):
        for j in range(len(q)):
            total += precision[i, j] * (
                (q[i] - mean[i]) * (q[j] - mean[j]) - (q_new[i] - mean[i]) * (q_new[j] - mean[j])
            )
    return 0.5 * total


@register_jitable
def normal_gradient(q, args):
    mean, precision = args
    out = np.zeros(len(q))
    for i in range(len(q)):
        for j in range(len(q)):
            out[i] -= precision[i, j] * (q[j] - mean[j])
    return out


@register_jitable
def skewed_gradient(q, args):
    shear, shapes = args
    out = np.zeros(len(q))
    for i in range(len(q)):
        y = 0.0
        for j in range(i + 1):
            y += shear[i, j] * q[j]
        for j in range(i + 1):
            out[j] += shear[i, j] * (shapes[i] - math.exp(y))
    return out


NORMAL = Target(normal_ratio, zeros, global_gradient=normal_gradient)
SKEWED = Target(skewed_ratio, zeros, global_gradient=skewed_gradient)


def normal_args(n_dim):
    return np.ascontiguousarray(PROXY.mode[:n_dim]), np.linalg.inv(COV[:n_dim, :n_dim])


def rough(n_dim):
    """A normal law that is far from those of the targets."""
    return QuadraticProxy(np.zeros(n_dim), np.diag([0.5, 3.0, 1.0][:n_dim]) + 0.2)


# Leapfrog ------------------------------------------------------------------------------------------


def leapfrog(state, q, p, n, args, target):
    """Half a kick, n drifts with whole kicks between them, half a kick; in the coordinates q = F z."""
    factor, eps = state.unwhiten, state.scale[0]
    p = p + 0.5 * eps * factor.T @ target.global_gradient(q, args)
    for k in range(n):
        q = q + eps * factor @ p
        p = p + (eps if k < n - 1 else 0.5 * eps) * factor.T @ target.global_gradient(q, args)
    return q, p


def energy_change(q_new, p_new, q, p, args, target):
    return target.global_log_ratio(q_new, q, args) + 0.5 * (p @ p - p_new @ p_new)


def steps_of(n):
    """The uniform number that gives n leapfrog steps."""
    return (n - 0.5) / 10


CASES = {
    "normal": (NORMAL, normal_args(3), PROXY),
    "normal, rough": (NORMAL, normal_args(3), rough(3)),
    "skewed": (SKEWED, skewed_args(3), fit(3)),
    "skewed, rough": (SKEWED, skewed_args(3), rough(3)),
}


def one_inner(state, q, p, n, args, target, u=0.0):
    """The inner kernel with a given momentum: (q', acceptance probability)."""
    rng = ScriptedRng([steps_of(n), u], list(p))
    q_new = inner_transitions(state, q, rng, args, target)
    assert rng.calls == ["random", "normal", "random"]
    return q_new, state.accepted[0]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("n", [1, 2, 7, 10])
def test_leapfrog_is_that_of_the_textbook_and_reversible(n, case):
    target, args, proxy = CASES[case]
    state, rng = Surrogate(1).bind_to(proxy).state, np.random.default_rng(n)
    for _ in range(10):
        q = proxy.mode + 0.5 * rng.standard_normal(3)
        p = rng.standard_normal(3)
        kept = q.copy()
        q_new, probability = one_inner(state, q, p, n, args, target)
        np.testing.assert_array_equal(q, kept)
        expected, p_new = leapfrog(state, q, p, n, args, target)
        np.testing.assert_allclose(q_new, expected, rtol=1e-9, atol=1e-9)
        change = energy_change(expected, p_new, q, p, args, target)
        assert probability == pytest.approx(math.exp(min(0.0, change)), rel=1e-7)
        # Forward, turned round, and back.
        back, reverse = one_inner(state, q_new, -p_new, n, args, target)
        np.testing.assert_allclose(back, q, rtol=1e-7, atol=1e-7)
        assert reverse == pytest.approx(math.exp(min(0.0, -change)), rel=1e-6)
        # Decided by u.
        below, above = 0.999 * probability, min(1.0, 1.001 * probability)
        assert np.array_equal(one_inner(state, q, p, n, args, target, below)[0], q_new)
        if probability < 0.999:
            np.testing.assert_array_equal(one_inner(state, q, p, n, args, target, above)[0], q)


def test_numbers_of_steps_are_1_to_10_and_equally_likely():
    found = []

    def counted(q, args):
        found[-1] += 1
        return np.zeros(1)

    target = Target(lambda *_: 0.0, zeros, global_gradient=counted)
    state, rng = Surrogate(1).bind_to(QuadraticProxy(np.zeros(1), np.eye(1))).state, np.random.default_rng(5)
    for _ in range(3000):
        found.append(-1)  # the slope at the start
        inner_transitions(state, np.zeros(1), rng, (), target)
    counts = np.bincount(found, minlength=11)
    assert counts[0] == 0
    assert len(counts) == 11
    assert stats.chisquare(counts[1:]).pvalue > 1e-4


@pytest.mark.parametrize(
    ("where", "bad"),
    [
        ("gradient", math.nan),
        ("gradient", math.inf),
        ("gradient", -math.inf),
        ("density", math.nan),
        ("density", -math.inf),
        ("density", math.inf),
    ],
)
def test_a_divergent_trajectory_stays(where, bad):
    def gradient(q, args):
        return np.full(2, bad if where == "gradient" and q[0] != 0.25 else 0.1)

    def ratio(q_new, q, args):
        return bad if where == "density" or not np.all(np.isfinite(q_new)) else 0.0

    state = Surrogate(4).bind_to(QuadraticProxy(np.zeros(2), np.eye(2))).state
    q = np.full(2, 0.25)
    with np.errstate(all="ignore"):
        result = inner_transitions(
            state, q, np.random.default_rng(1), (), Target(ratio, zeros, global_gradient=gradient)
        )
    np.testing.assert_array_equal(result, [0.25, 0.25])
    assert state.accepted[0] == 0.0


# The law of the inner kernel -----------------------------------------------------------------------


@cache
def chain_of(inner, target):
    make_target = constructor(target)

    @numba.njit
    def chain(n, rng, state, q, args):
        draws, accepted = np.empty((n, q.shape[0])), np.empty(n)
        for t in range(n):
            q = inner(state, q, rng, args, make_target())
            draws[t], accepted[t] = q, state.accepted[0]
        return draws, accepted

    return chain


N_LONG = 20_000


def scores(draws, name):
    """Uniform numbers, independent, if the law is right."""
    n_dim = draws.shape[1]
    if name == "normal":
        mean, precision = normal_args(n_dim)
        return stats.norm.cdf((draws - mean) @ np.linalg.cholesky(precision))
    y = draws @ SHEAR[:n_dim, :n_dim].T
    return np.column_stack([stats.loggamma.cdf(y[:, d], SHAPES[d]) for d in range(n_dim)])


def worst_z(p):
    """Probabilities below quantiles, first and second moments, in standard errors from batch means."""
    z = stats.norm.ppf(np.clip(p, 1e-12, 1 - 1e-12))
    n_dim = p.shape[1]
    checks = [(p[:, d] < level, level) for d in range(n_dim) for level in (0.05, 0.25, 0.5, 0.75, 0.95)]
    checks += [(z[:, d], 0.0) for d in range(n_dim)]
    checks += [(z[:, d] * z[:, e], float(d == e)) for d in range(n_dim) for e in range(d + 1)]
    return max(abs(x.mean() - level) / max(error_of_mean(x), 1e-9) for x, level in checks)


LAWS = {"normal": (NORMAL, normal_args), "skewed": (SKEWED, skewed_args)}


def long_run(name, n_dim, proxy, *, inner=inner_transitions, n_inner=3, scale=None, n=N_LONG, seed=7):
    target, args = LAWS[name]
    state = Surrogate(n_inner).bind_to(proxy).state
    if scale is not None:
        state.scale[0] = scale
    q = np.ascontiguousarray(PROXY.mode[:n_dim]) if name == "normal" else fit(n_dim).mode
    return chain_of(inner, target)(n, np.random.default_rng(seed), state, q, args(n_dim))


@pytest.mark.parametrize("scale", [None, 0.9, 1.3])
@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("n_dim", [1, 3])
@pytest.mark.covering(3)
def test_a_long_run_has_the_law_of_the_global_terms(n_dim, name, scale):
    proxy = fit(n_dim) if name == "skewed" else QuadraticProxy(*normal_args(n_dim))
    draws, accepted = long_run(name, n_dim, proxy, scale=scale)
    assert worst_z(scores(draws, name)) < LIMIT
    if scale == 1.3:
        assert accepted.mean() < 0.97  # the test is needed


@pytest.mark.parametrize("name", LAWS)
def test_whatever_the_fitted_law(name):
    draws, _ = long_run(name, 3, rough(3), scale=0.4)
    assert worst_z(scores(draws, name)) < LIMIT


def planted(old, new):
    """The inner kernel with one piece of its source replaced."""
    source = inspect.getsource(inner_transitions)
    assert source.count(old) == 1, old
    names = dict(vars(surrogate))
    exec(source.replace(old, new), names)
    return names["inner_transitions"]


BUGS = {
    "momentum forgotten": ("+ before - 0.5 * squared(momentum)", ""),
    "no test": ("if u < math.exp(min(0.0, change)):", "if True:"),
    "wrong sign": ("change = target", "change = -target"),
    "more steps far out": (
        "1 + int(rng.random() * _LONGEST)",
        "1 + int(rng.random() * (10 if q[0] > state.unwhiten[0, 0] else 1))",
    ),
}


@pytest.mark.parametrize("bug", BUGS)
@pytest.mark.covering(1)
def test_planted_faults_change_the_law(bug):
    draws, _ = long_run("skewed", 1, fit(1), inner=planted(*BUGS[bug]), scale=1.3)
    assert worst_z(scores(draws, "skewed")) > 1.5 * LIMIT


@pytest.mark.parametrize("name", LAWS)
def test_interpreted_and_compiled_draws_are_identical(name):
    target, args = LAWS[name]
    results = []
    for run in (chain_of(inner_transitions, target), chain_of(inner_transitions, target).py_func):
        state, rng = Surrogate(3).bind_to(rough(3)).state, np.random.default_rng(8)
        draws, accepted = run(60, rng, state, np.array([0.5, -1.0, 0.2]), args(3))
        results.append((draws, accepted, rng.random()))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert len(np.unique(results[0][0][:, 0])) > 30


# The step size -------------------------------------------------------------------------------------


@cache
def transitions_of(target):
    make_rule, make_target = constructor(Rule(..., 0, *Exact().functions, no_range)), constructor(target)
    make_proposal = constructor(Surrogate().bind_to(fit(2)).kernel(...))

    def run(n, tune, rng, q, args, state, rows, schedule):
        draws, scales = np.empty((n, q.shape[0])), np.empty(n)
        n_accepted = n_used = 0
        for t in range(n):
            out = transitions(
                1, tune, rng, q, args, rows, make_rule(schedule), make_proposal(state), make_target()
            )
            q = out.q
            draws[t], scales[t] = q, state.scale[0]
            n_accepted += out.n_accepted
            n_used += out.n_used
        return draws, scales, n_accepted, n_used

    return numba.njit(run)


@pytest.mark.slow("a long run")
def test_the_step_size_adapts_only_when_it_is_told():
    run, args = transitions_of(SKEWED), skewed_args(3)
    state = Surrogate(1).bind_to(rough(3)).state
    start = state.scale[0]
    schedule = Exact().bind(1)
    rest = fit(3).mode, args, state, rows_of(schedule), schedule
    _, scales, _, _ = run(200, False, np.random.default_rng(1), *rest)
    np.testing.assert_array_equal(scales, start)
    assert state.counts[0] == 0
    _, scales, _, _ = run(3000, True, np.random.default_rng(2), *rest)
    assert state.counts[0] == 3000
    assert len(np.unique(scales)) > 1000
    tuned = state.scale[0]
    draws, scales, _, _ = run(3000, False, np.random.default_rng(3), *rest)
    np.testing.assert_array_equal(scales, tuned)
    assert state.counts[0] == 3000
    _, accepted = chain_of(inner_transitions, SKEWED)(3000, np.random.default_rng(4), state, draws[-1], args)
    assert accepted.mean() == pytest.approx(0.8, abs=0.04)


@pytest.mark.parametrize("start", [1e-3, 50.0])
@pytest.mark.slow("thousands of inner transitions")
def test_the_step_size_is_found_from_far_away(start):
    state = Surrogate(2).bind_to(fit(3)).state
    state.scale[0] = start
    run, schedule, rng = transitions_of(SKEWED), Exact().bind(1), np.random.default_rng(5)
    run(500, True, rng, fit(3).mode, skewed_args(3), state, rows_of(schedule), schedule)
    assert 0.3 < state.scale[0] < 3.0


def test_adaptation_looks_at_the_inner_rate_alone():
    """Robbins and Monro with a gain of min(1, 10 / t), whatever the outer test said."""
    state = Surrogate().bind_to(PROXY).state
    expected = state.scale[0]
    for t, (rate, accepted) in enumerate([(1.0, False), (0.0, True)] * 15, start=1):
        state.accepted[0] = rate
        adapt_step_size(state, np.zeros(3), accepted)
        expected *= math.exp((rate - 0.8) * min(1.0, 10 / t))
        assert state.scale[0] == pytest.approx(expected, rel=1e-12)


# With the outer test -------------------------------------------------------------------------------

# What is left of 40 terms, of which each is bounded; their sum is 1.2 tanh(y1) + 0.8 sin(2 y2).
N_LOCAL = 40


@register_jitable
def rest_of(q, i):
    return (1.2 * math.tanh(q[0]) + 0.8 * math.sin(2.0 * q[1])) / 40 + (0.1 if i % 2 else -0.1) * math.cos(
        q[0]
    )


@register_jitable
def remainders(q_new, q, index, args):
    out = np.empty(index.shape[0])
    for k in range(index.shape[0]):
        out[k] = rest_of(q_new, index[k]) - rest_of(q, index[k])
    return out


OUTER = Target(skewed_ratio, remainders, global_gradient=skewed_gradient)


def posterior_means(functions):
    """By quadrature, over the two coordinates of the skewed law times the rest."""
    shear, shapes = skewed_args(2)

    def density(b, a):
        y = shear @ [a, b]
        rest = 1.2 * math.tanh(a) + 0.8 * math.sin(2.0 * b)
        return math.exp(shapes @ y - np.exp(y).sum() + rest)

    box = (-6.0, 3.5, -7.0, 7.0)
    options = {"epsabs": 1e-6, "epsrel": 1e-6}
    total = integrate.dblquad(density, *box, **options)[0]
    return [
        integrate.dblquad(lambda b, a, f=f: f(a, b) * density(b, a), *box, **options)[0] / total
        for f in functions
    ]


FUNCTIONS = [lambda a, b: a, lambda a, b: b, lambda a, b: a * a, lambda a, b: a * b]


@pytest.fixture(scope="module")
def truth():
    return np.array(posterior_means(FUNCTIONS))


def z_of_posterior(draws, truth):
    values = [f(draws[:, 0], draws[:, 1]) for f in FUNCTIONS]
    return max(abs(v.mean() - t) / error_of_mean(v) for v, t in zip(values, truth, strict=True))


def outer_run(n, *, seed=6):
    state = Surrogate(3).bind_to(fit(2)).state
    state.scale[0] = 1.0
    rng = np.random.default_rng(seed)
    schedule = Exact().bind(N_LOCAL)
    return transitions_of(OUTER)(
        n, False, rng, fit(2).mode, skewed_args(2), state, rows_of(schedule), schedule
    )


@pytest.mark.slow("a long run")
def test_with_the_outer_test_the_law_is_the_posterior(truth):
    draws, _, n_accepted, n_used = outer_run(40_000)
    assert z_of_posterior(draws, truth) < LIMIT
    assert 0.4 < n_accepted / 40_000 < 0.95
    assert n_used <= 40_000 * N_LOCAL
    # Without that test it is the law of the global terms.
    inner, _ = long_run("skewed", 2, fit(2))
    assert z_of_posterior(inner, truth) > 2 * LIMIT


def test_the_global_terms_must_not_be_counted_twice(truth):
    """A planted fault: the test of all of the posterior after moves for the global terms."""

    @register_jitable
    def propose(state, q, rng):
        return inner_transitions(state, q, rng, skewed_args(2), OUTER), 0.0

    state, schedule = Surrogate(1).bind_to(fit(2)).state, Exact().bind(N_LOCAL)
    rng, q, draws, target = np.random.default_rng(7), fit(2).mode, [], OUTER
    for _ in range(4000):
        q = transitions(
            1, False, rng, q, skewed_args(2), rows_of(schedule), rule_of(Exact(), schedule),
            by(propose, state), target,
        ).q  # fmt: skip
        draws.append(q)
    assert z_of_posterior(np.array(draws), truth) > LIMIT
