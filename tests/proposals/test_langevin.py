"""Langevin: its two densities, every rule, options; and reverse densities that are wrong."""

import math
from contextlib import nullcontext
from dataclasses import replace

import numpy as np
import pymc as pm
import pytensor.tensor as pt
import pytest

import pymc_austerity as pma
from pymc_austerity.acceptance import Exact
from pymc_austerity.kernels.metropolis import full_transitions, unknown_sum
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.proposals import Langevin
from pymc_austerity.proposals.base import Block, bind
from pymc_austerity.proposals.langevin import distinct_positions, estimated_gradient, langevin_move
from pymc_austerity.report import probe
from pymc_austerity.target import Target
from pymc_austerity.testing import check_proposal, check_step
from pymc_austerity.testing.models import normal_mean
from pymc_austerity.testing.steps import move
from tests.statistical.errors import LIMIT, sd_with_error, z_of_mean

N, BATCH, STEP = 200, 20, 0.01
Y = np.random.default_rng(4).gamma(1.0, 2.0, N)
PRECISION = N + 1.0
MEAN = Y.sum() / PRECISION


def prior_ratio(q_new, q, args):
    return float(0.5 * (q @ q - q_new @ q_new))


def prior_slope(q, args):
    return -q


def terms(q, index, args):
    return -0.5 * (Y[index] - q[0]) ** 2


def slopes(q, index, args):
    return np.array([np.sum(Y[index] - q[0])])


NORMAL = Target(prior_ratio, log_terms=terms, global_gradient=prior_slope, local_gradient=slopes)


def bound(**options):
    given = {"step_size": STEP, "batch_size": BATCH, **options}
    return bind(Langevin(**given), 1, 0.5, block=Block(1, N))


def chain(one, n=8_000, seed=1):
    """Exact decisions, interpreted."""
    rng, current = np.random.default_rng(seed), unknown_sum(N, np.array([MEAN]))
    draws, q = np.empty(n), np.array([MEAN])
    kernel, rule = one.kernel(one.state), Exact().functions
    for k in range(n):
        q = full_transitions(1, False, rng, q, (), current, rule, kernel, NORMAL).q
        draws[k] = q[0]
    return draws


def is_right(draws):
    sd, error = sd_with_error(draws)
    return abs(z_of_mean(draws, MEAN)) < LIMIT and abs(sd - PRECISION**-0.5) < LIMIT * error


# Densities ----------------------------------------------------------------------------------------


def test_the_ratio_of_densities():
    """Both given the minibatch that was drawn."""
    one, q = bound(mix=0.0), np.array([1.7])
    q_new, base = one.move(one.kernel(one.state), q, np.random.default_rng(3), (), NORMAL)
    rng = np.random.default_rng(3)
    rng.random(), rng.standard_normal(1)
    batch = distinct_positions(rng, BATCH, N)

    def log_density(to, start):
        gradient = -start[0] + N / BATCH * np.sum(Y[batch] - start[0])
        return -0.5 * (to[0] - start[0] - 0.5 * STEP * gradient) ** 2 / STEP

    expected = prior_ratio(q_new, q, ()) + log_density(q, q_new) - log_density(q_new, q)
    assert base == pytest.approx(expected, rel=1e-9)
    assert one.state.n_read[0] == BATCH


def test_a_share_of_the_moves_is_a_random_walk():
    one, q, rng = bound(mix=0.3, scale=0.5), np.array([MEAN]), np.random.default_rng(1)
    walks = 0
    for _ in range(2000):
        before = one.state.n_read[0]
        q_new, base = one.move(one.kernel(one.state), q, rng, (), NORMAL)
        if one.state.n_read[0] == before:
            walks += 1
            assert base == prior_ratio(q_new, q, ())
    assert abs(walks - 600) < LIMIT * math.sqrt(2000 * 0.21)
    assert bound().state.scale[0] == math.sqrt(STEP)


@pytest.mark.parametrize("options", [{}, {"mix": 0.0}, {"batch_size": N}], ids=str)
@pytest.mark.covering(1)
def test_the_posterior_stays(options):
    assert is_right(chain(bound(**options)))


# Planted faults -----------------------------------------------------------------------------------


def with_densities(forward_is_fresh, has_reverse, batch_size=BATCH):
    """A move whose reverse density has a minibatch of its own, if it has one, and the forward one too."""

    def move(proposal, q, rng, args, target):
        state = proposal.state
        a, (n, size) = state.step_size[0], state.sizes

        def ahead(q, batch):
            return q + 0.5 * a * estimated_gradient(q, batch, size, args, target)

        batch, other = distinct_positions(rng, n, size), distinct_positions(rng, n, size)
        q_new = ahead(q, batch) + math.sqrt(a) * rng.standard_normal(len(q))
        there, back = ahead(q, other if forward_is_fresh else batch), ahead(q_new, other)
        change = np.sum((q_new - there) ** 2) - np.sum((q - back) ** 2)
        log_hastings = 0.5 * change / a if has_reverse else 0.0
        return q_new, target.global_log_ratio(q_new, q, args) + log_hastings

    return replace(bound(batch_size=batch_size), move=move)


@pytest.mark.slow("a planted fault, in steps of its own")
def test_densities_of_another_minibatch_than_that_of_the_move_fail():
    assert not is_right(chain(with_densities(forward_is_fresh=True, has_reverse=True)))


def test_no_densities_fail():
    assert not is_right(chain(with_densities(forward_is_fresh=False, has_reverse=False, batch_size=N)))


@pytest.mark.slow("long runs")
def test_a_fresh_minibatch_for_the_way_back_is_right_but_accepts_less():
    """An exchange of two independent minibatches is reversible; but both of them are noisy."""
    fresh = chain(with_densities(forward_is_fresh=False, has_reverse=True), n=15_000)
    assert is_right(fresh)
    assert np.mean(np.diff(fresh) != 0) < np.mean(np.diff(chain(bound(mix=0.0), n=2000)) != 0) - 0.02


@pytest.mark.slow("a planted fault, in steps of its own")
def test_a_test_on_the_minibatch_of_the_proposal_fails():
    """Whose log ratios are known to the proposal: it is as if there was no test."""
    one, q, rng = bound(mix=0.0), np.array([MEAN]), np.random.default_rng(1)
    draws = np.empty(8_000)
    for k in range(len(draws)):
        state = rng.bit_generator.state
        q_new, base = one.move(one.kernel(one.state), q, rng, (), NORMAL)
        again = np.random.default_rng()
        again.bit_generator.state = state
        again.random(), again.standard_normal(1)
        batch = distinct_positions(again, BATCH, N)
        ratios = terms(q_new, batch, ()) - terms(q, batch, ())
        if np.log(rng.random()) < base + N / BATCH * ratios.sum():
            q = q_new
        draws[k] = q[0]
    assert not is_right(draws)


# In steps -----------------------------------------------------------------------------------------

MOVES = Langevin(1e-4, batch_size=300)


@pytest.mark.filterwarnings("ignore:Tuning ended")
@pytest.mark.slow("compiles each kernel")
def test_conformance():
    def make_step(vars=None, **options):
        return pma.MetropolisHastings(vars, proposal=MOVES, steps_per_draw=10, **options)

    check_step(make_step)


# With an exact rule it is the step of `test_conformance`.
STEPS = {
    "AusterityMH": (pma.AusterityMH, {"epsilon": 0.01}),
    "MHSubLhd": (pma.MHSubLhd, {}),
    "MinibatchBarker": (pma.MinibatchBarker, {}),
    "Taylor": (pma.AusterityMH, {"control_variate": pma.Taylor(), "epsilon": 0.01}),
}


@pytest.mark.filterwarnings("ignore:The posterior is not as its expansion:pymc_austerity.SubsamplingWarning")
@pytest.mark.slow("an engine for each rule")
@pytest.mark.parametrize("name", STEPS)
def test_every_rule(name):
    kind, options = STEPS[name]
    solved = normal_mean()
    with solved.model:
        step = kind(proposal=MOVES, steps_per_draw=5, **options)
    step.setup_chain(np.random.default_rng(1), 0, 3000)
    point, draws = {"mu": solved.mean["mu"]}, np.empty(3000)
    for k in range(3000):
        point, (stats,) = step.step(point)
        draws[k] = point["mu"]
    sd, error = sd_with_error(draws)
    assert abs(draws.mean() - solved.mean["mu"]) < 0.1 * solved.sd["mu"] + LIMIT * error
    assert abs(sd / solved.sd["mu"] - 1) < 0.15 + LIMIT * error / solved.sd["mu"]
    assert stats["scale"] == 0.01


@pytest.mark.slow("compiles each kernel")
def test_interpreted_draws_are_those_of_compiled_ones():
    paths = []
    for context in (nullcontext, interpreted):
        with context(), normal_mean().model:
            step = pma.AusterityMH(control_variate=pma.Taylor(order=1), proposal=MOVES)
            step.setup_chain(np.random.default_rng(1), 0, 5)
            paths.append([point["mu"] for point in move(step, {"mu": np.array(0.7)}, 5)[0]])
    np.testing.assert_allclose(*paths, rtol=1e-10)
    assert len(set(map(float, paths[0]))) > 1


def test_rows_of_both_minibatches_are_counted():
    with normal_mean().model as model:
        step = pma.AusterityMH(epsilon=0.5, batch_size=100, proposal=Langevin(1e-4, 200, mix=0.0))
    _, (stats,) = step.step({"mu": np.array(0.7)})
    assert (stats["n_used"], stats["fraction_used"]) == (300, 0.1)
    _, (stats,) = step.step({"mu": np.array(0.7)})
    assert stats["n_used"] == 300
    assert "proposal=Langevin(step_size=0.0001, batch_size=200, mix=0.0)" in repr(step)
    assert model


def test_moves_can_be_probed():
    with normal_mean().model as model:
        step = pma.MetropolisHastings(proposal=MOVES)
        found = probe(model, step, 3, tune=20, draws=20, n_batches=5, random_seed=1)
    assert found.children


# Refusals -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"step_size": 0.0}, "step_size of Langevin must be positive and finite, got 0.0"),
        ({"step_size": 1.0, "batch_size": 0}, "batch_size of Langevin must be a positive integer, got 0"),
        ({"step_size": 1.0, "batch_size": 2.5}, "got 2.5"),
        ({"step_size": 1.0, "mix": 1.0}, r"mix must be in \[0, 1\), got 1.0"),
        ({"step_size": 1.0, "scale": 0}, "scale of Langevin must be positive and finite, got 0"),
    ],
)
def test_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        Langevin(**options)


def test_a_minibatch_larger_than_the_data():
    with (
        normal_mean().model,
        pytest.raises(ValueError, match="number of local terms, 3000, got 3001"),
    ):
        pma.AusterityMH(proposal=Langevin(1e-4, batch_size=3001))


def test_discrete_variables_and_terms_without_a_gradient_are_refused_by_name():
    with pm.Model():
        k = pm.Poisson("k", 3.0)
        mu = pm.Normal("mu")
        rows = pt.as_tensor(np.linspace(0, 5, 2000))
        pm.Potential("counts", pm.logp(pm.Poisson.dist(rows + 3), pt.floor(mu + 5) + k))
        with pytest.raises(ValueError, match="Only continuous variables can be updated; discrete: k"):
            pma.AusterityMH([k], proposal=MOVES)
    with pm.Model():
        mu = pm.Normal("mu")
        pm.Potential("odd", pt.gammaincc(pt.abs(mu) + 1.0, rows) + pt.argmax(pt.stack([mu, -mu])) * rows)
        pm.Potential("bessel", pt.jv(pt.abs(mu) + 1.0, rows))
        with pytest.raises(ValueError, match=r"\('odd', 'bessel'\) have no gradient, which Langevin moves"):
            pma.AusterityMH(proposal=MOVES)


def test_the_suite_of_proposals_says_where_to_try_it():
    with pytest.raises(TypeError, match=r"Langevin needs to know the block.*check_step"):
        check_proposal(MOVES, 1)
    assert bound().move is langevin_move
