"""Nested groups: coordinates of outer effects, their move, and moves of the others that keep these.

All is compared with the model's own log density. Planted faults, such as a Jacobian that is left out, are
noticed.
"""

from functools import cache

import numpy as np
import pymc as pm
import pytest

from pymc_austerity.kernels.plates import moves, sweeps
from pymc_austerity.kernels.plates.coordinates import displacement
from pymc_austerity.kernels.plates.decisions import Counts
from pymc_austerity.kernels.plates.moves import move_shared
from pymc_austerity.kernels.plates.nested import outer_terms, standardised_outer, write_outer
from pymc_austerity.kernels.plates.sweeps import move_outer
from pymc_austerity.mode.plates.center import PlateSurvey
from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.model.plates.plate_model import plate_model
from pymc_austerity.step_methods.metropolis.options import checked_options
from pymc_austerity.step_methods.metropolis.plan import factorised
from pymc_austerity.step_methods.metropolis.tuna_plan import EXACT, TAYLOR
from tests.kernels.plates.cases import DRAWN, case_of_model, log_cubic, log_remainders, rows_of
from tests.kernels.plates.test_moves import log_target

H, G, N = 32, 70, 500
# The last outer group has no group.
PARENTS = np.random.default_rng(4).integers(H - 1, size=G)
SPELLINGS = [
    "centered", "inner non-centered", "both non-centered", "added", "outer standardised, added", "student",
    "normal",
]  # fmt: skip


def model_of(spelling):
    data = rows_of(N, G)
    with pm.Model() as model:
        x = data.x @ pm.Normal("beta", 0.0, 2.0, shape=3)
        mu, tau, outer = pm.Normal("mu", 0.0, 2.0), pm.HalfNormal("tau", 1.0), pm.HalfNormal("tau_v", 1.0)
        standardised = spelling in ("both non-centered", "outer standardised, added")
        slope = 0.3 * pm.Normal("gamma") * np.linspace(-1.0, 1.0, H)
        v = (
            mu + outer * pm.Normal("vz", shape=H)
            if standardised
            else pm.Normal("v", mu + slope, outer, shape=H)
        )
        if spelling in ("centered", "normal"):
            eta = pm.Normal("u", v[PARENTS], tau, shape=G)[data.groups]
        elif spelling == "student":
            eta = pm.StudentT("u", 4.0, mu=v[PARENTS], sigma=tau, shape=G)[data.groups]
        elif spelling.endswith("added"):
            eta = pm.Normal("u", 0.0, tau, shape=G)[data.groups] + v[PARENTS[data.groups]]
        else:
            eta = (v[PARENTS] + tau * pm.Normal("z", shape=G))[data.groups]
        if spelling == "normal":
            pm.Normal("y", x + eta, pm.HalfNormal("sigma"), observed=data.noise)
        else:
            pm.Bernoulli("y", logit_p=x + eta, observed=(data.noise < 0.4).astype(int))
    return model


@cache
def case_of(spelling):
    return case_of_model(model_of(spelling))


def log_known(case, theta, eps):
    """The log density without remainders, in the coordinates (theta, eps)."""
    rest = log_remainders(case, case.state(theta, eps)) if case.arrays.rule.has_remainders else 0.0
    return log_target(case, theta, eps) - rest


def outer_at(case, theta):
    """M_h, S_h and delta_h."""
    columns, features = case.arrays.outer.columns, case.target.features(theta, case.args)
    d = np.empty(len(case.arrays.sums.center))
    displacement(case.arrays.sums, theta, d)
    locations, pulls, shares = np.empty((3, len(columns)))
    outer_terms(case.arrays.sums, case.arrays.outer, theta, d, features, locations, pulls, shares)
    scale = features[case.arrays.outer.scale_at]
    means, scales = locations + scale**2 * shares * pulls, scale * np.sqrt(shares)
    return means, scales, (d[columns] - means) / scales


def places_of(case):
    return case.arrays.sums.linear[case.arrays.outer.columns]


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.covering(1)
def test_outer_groups_are_found(spelling):
    outer = case_of(spelling).arrays.outer
    assert len(outer.columns) == H
    used = np.isin(np.arange(G), rows_of(N, G).groups)
    in_location = spelling in ("centered", "student", "normal")
    np.testing.assert_array_equal(outer.parents, np.where(used | in_location, PARENTS, -1))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.covering(1)
def test_outer_effects_are_standard_normal_but_for_remainders(spelling):
    case, rng = case_of(spelling), np.random.default_rng(1)
    theta, eps = case.draw(rng)
    means, scales, delta = outer_at(case, theta)
    other, places = theta.copy(), places_of(case)
    new = rng.standard_normal(H)
    other[places] = case.arrays.sums.center[case.arrays.outer.columns] + means + scales * new
    change = log_known(case, other, eps) - log_known(case, theta, eps)
    change -= case.state(other, eps).excesses.sum() - case.state(theta, eps).excesses.sum()
    np.testing.assert_allclose(change, 0.5 * (delta @ delta - new @ new), rtol=1e-6, atol=1e-6)
    # The planted fault: locations that forget what other shared variables do.
    wrong = case.arrays.outer._replace(base=case.arrays.outer.base + 0.1)
    planted = case._replace(arrays=case.arrays._replace(outer=wrong))
    _, _, off = outer_at(planted, theta)
    _, _, new_off = outer_at(planted, other)
    assert abs(change - 0.5 * (off @ off - new_off @ new_off)) > 1e-3


@pytest.mark.parametrize("spelling", ["centered", "both non-centered", "added"])
@pytest.mark.covering(1)
def test_outer_groups_do_not_meet(spelling):
    case = case_of(spelling)
    theta, eps = case.draw(np.random.default_rng(2))
    state, other = case.state(theta, eps), theta.copy()
    other[places_of(case)[PARENTS[0]]] += 0.5
    moved = case.state(other, eps).levels != state.levels
    np.testing.assert_array_equal(moved, case.arrays.outer.parents == PARENTS[0])


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.covering(1)
def test_moves_of_others_keep_delta(spelling):
    case, rng = case_of(spelling), np.random.default_rng(3)
    theta, eps = case.draw(rng)
    places, (other, _) = places_of(case), case.draw(rng)
    _, _, delta = outer_at(case, theta)
    np.testing.assert_allclose(case.delta(theta), delta, rtol=1e-8, atol=1e-8)
    state = case.state(theta, eps)
    new = moves.at_theta(state, other, state.delta.copy(), eps, case.arrays, case.args, case.target)
    np.testing.assert_allclose(outer_at(case, new.theta)[2], delta, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(np.delete(new.theta, places), np.delete(other, places))
    np.testing.assert_allclose(new.theta[case.arrays.sums.linear], case.arrays.sums.center + new.d)
    z, features = np.empty(H), case.target.features(new.theta, case.args)
    standardised_outer(case.arrays.sums, case.arrays.outer, new.theta, new.d, features, z)
    np.testing.assert_allclose(new.outer, z, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("spelling", ["centered", "both non-centered", "normal"])
@pytest.mark.parametrize("planted", [False, True])
def test_base_of_the_shared_move(spelling, planted, monkeypatch):
    case, rng = case_of(spelling), np.random.default_rng(5)
    theta, eps = case.draw(rng)
    states, seen = [], []

    def proposed(rng, proposal, old, args, target):
        return case.draw(rng)[0], 0.0

    def written(sums, outer, theta, d, features, delta, z):
        value = write_outer(sums, outer, theta, d, features, delta, z)
        states.append(theta.copy())
        return -0.5 * float(z @ z) if planted else value  # the planted fault: no Jacobian

    def shared(rng, plate, numbers, pair, base):
        seen.append(base)
        return Counts(1.0, 0, 0, 0, base)

    monkeypatch.setattr(moves, "propose_shared", proposed)
    monkeypatch.setattr(moves, "write_outer", written)
    state, room = case.state(theta, eps), case.state(theta, eps)
    move_shared(rng, case.arrays, state, room, case.args, DRAWN._replace(shared=shared), case.target)
    new = states[-1]
    expected = log_known(case, new, eps) - log_known(case, theta, eps)
    expected += np.log(outer_at(case, new)[1] / outer_at(case, theta)[1]).sum()
    expected += log_cubic(case, case.state(new, eps)) - log_cubic(case, case.state(theta, eps))
    assert (abs(seen[0] - expected) < 1e-6) == (not planted)


@pytest.mark.parametrize("spelling", ["centered", "both non-centered"])
@pytest.mark.covering(1)
def test_outer_scales_near_zero(spelling):
    """Nothing is lost: z and levels are those of a scale of zero, and the density is finite."""
    case = case_of(spelling)
    theta, eps = case.draw(np.random.default_rng(7))
    state, delta = case.state(theta, eps), case.delta(theta)
    names = [case.plate.shared.coordinate(k)[0] for k in range(len(theta))]
    for log_scale in (-30.0, -80.0, -400.0):
        theta[names.index("tau_v_log__")] = log_scale
        found = moves.at_theta(state, theta, delta, eps, case.arrays, case.args, case.target)
        np.testing.assert_allclose(found.outer, delta, rtol=1e-9, atol=1e-9)
        assert np.isfinite(found.quadratic)
        assert np.all(np.isfinite(found.levels))


@pytest.mark.parametrize("spelling", ["centered", "both non-centered"])
def test_states_after_outer_moves(spelling, monkeypatch):
    """Outer groups that are not accepted stay; levels are those of the new theta; ratios are of rows."""
    case, rng = case_of(spelling), np.random.default_rng(6)
    theta, eps = case.draw(rng)
    whole = case.arrays.bounds._replace(reaches=np.full_like(case.arrays.bounds.reaches, -1.0))
    arrays = case.arrays._replace(bounds=whole)  # all rows are read: nothing is drawn
    proposed, seen = [], []

    def at_theta(state, *rest):
        found = moves.at_theta(state, *rest)
        proposed.append(found.theta.copy())
        return found

    def outer(rng, plate, numbers, pair, of_groups, log_ratios, accepted):
        counts = DRAWN.outer(rng, plate, numbers, pair, of_groups, log_ratios, accepted)
        seen.append((log_ratios.copy(), accepted.copy()))
        return counts

    def independent(rng, old, width):
        return rng.standard_normal(), 0.0

    monkeypatch.setattr(sweeps, "at_theta", at_theta)
    monkeypatch.setattr(sweeps, "propose_normal", independent)
    state, room = case.state(theta, eps), case.state(theta, eps)
    decided = DRAWN._replace(outer=outer)
    found, _, counts = move_outer(rng, arrays, state, room, case.args, decided, case.target)
    log_ratios, accepted = seen[0]
    places = places_of(case)
    assert 0.0 < counts.accepted == accepted.mean() < 1.0
    np.testing.assert_array_equal(found.theta[places], np.where(accepted, proposed[0][places], theta[places]))
    expected = case.state(found.theta, eps)
    np.testing.assert_allclose(found.levels, expected.levels)
    assert found.quadratic == pytest.approx(expected.quadratic)
    # All ratios add up to what the model says: none of the proposals is a random walk here.
    change = log_target(case, proposed[0], eps) - log_target(case, theta, eps)
    delta, new_delta = outer_at(case, theta)[2], outer_at(case, proposed[0])[2]
    known = 0.5 * (delta @ delta - new_delta @ new_delta)
    assert log_ratios.sum() == pytest.approx(change - known, abs=1e-6)
    alone = theta.copy()
    alone[places[3]] = proposed[0][places[3]]
    change = log_target(case, alone, eps) - log_target(case, theta, eps)
    assert log_ratios[3] == pytest.approx(change - 0.5 * (delta[3] ** 2 - new_delta[3] ** 2), abs=1e-6)


@pytest.mark.covering(1)
@pytest.mark.parametrize(
    "vars", [None, ["beta", "tau", "tau_v", "gamma", "v", "u"]], ids=["all", "without mu"]
)
def test_outer_effects_whose_location_others_move_are_shared_variables(vars):
    """Kernels read that location once: with a mean that another step moves it would be an old one."""
    model = model_of("centered")
    options = checked_options(vars, EXACT, control_variate=TAYLOR, model=model, threshold=100)
    point = model.initial_point()
    with interpreted():
        plate = plate_model(model, factorised(options, point))
        survey = PlateSurvey(plate, point)
    assert len(survey.outer.columns) == (H if vars is None else 0)
    kept = [name for name, _ in survey.of_kernel.globals]
    assert ("v" in kept) == (vars is not None)
