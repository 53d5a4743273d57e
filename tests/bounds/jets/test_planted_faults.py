"""Faults that are put into the engine are found by what the other tests check."""

import importlib
import itertools
import math
import sys
from types import SimpleNamespace

import numba
import numpy as np
import pytest

import pymc_austerity.bounds
from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import constant, node, predictor
from tests.bounds.jets import test_largest_form
from tests.bounds.jets.exact_functions import taylor, taylor_of_two
from tests.bounds.jets.exact_jets import ExactJets

X, Y = predictor(0), predictor(1)
SLOPES = np.array([[0.3, 0.0], [-0.2, 0.7]])
ETA = np.array([0.4, -0.1])


PACKAGE = "pymc_austerity.bounds.jets"
PARTS = ("between", "functions", "ranges", "tape", "machine", "derivative_norms")


@pytest.fixture
def jets():
    """The package `bounds.jets` as plain Python, in modules of its own; rows are computed one by one."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(PACKAGE)}
    package, disabled = pymc_austerity.bounds.jets, numba.config.DISABLE_JIT
    try:
        numba.config.DISABLE_JIT = True
        parts = {name: importlib.import_module(f"{PACKAGE}.{name}") for name in PARTS}
    finally:
        numba.config.DISABLE_JIT = disabled
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]
        sys.modules.update(kept)
        pymc_austerity.bounds.jets = package
    jets = SimpleNamespace(**parts)
    jets.machine.LANES = jets.derivative_norms.LANES = 1
    return jets


def range_is_right(jets, op, low, high):
    """Are derivatives within their enclosures?"""
    work = np.empty(jets.ranges.WORK)
    middle, radius = np.empty(6), np.empty(6)
    with np.errstate(all="ignore"):
        jets.ranges.ranges_of(jets.ranges.FUNCTIONS.index(op), low, high, 0.0, 5, work, middle, radius, 0)
    exact = np.array([taylor(op, x, 5) for x in np.linspace(low, high, 101)])
    return bool(np.all(abs(exact - middle) <= radius))


def between_is_right(jets, box):
    """Are derivatives of log(Phi(s + w) - Phi(s)) at points of a box within their enclosures?"""
    s, w, s_reach, w_reach = box
    middle, radius = np.empty((2, 21))
    jets.between.between_derivatives(*box, 5, middle, radius)
    for a, b in itertools.product(np.linspace(-1.0, 1.0, 9 if s_reach else 1), (-1.0, 0.0, 1.0)):
        exact = np.array(list(taylor_of_two(s + a * s_reach, w + b * w_reach, 5).values()))
        if np.any(abs(exact - middle) > radius):
            return False
    return True


def jet_is_right(jets, expression, half=0.0, at=(0.0, 0.0), order=3):
    """Is the jet at points of a box, those in the ball, within its enclosure?"""
    tape = jets.tape.tape_of(expression, 2, order)
    slots, at, rho = jets.machine.slots_for(tape), np.array(at), 2.0
    block = jets.machine.Block(ETA[:, None], SLOPES[:, :, None], np.empty((0, 1)))
    jets.machine.run(
        tape, block, jets.machine.Box(at, np.full(2, half), rho), slots, np.empty(jets.ranges.WORK)
    )
    middle, radius = (x[tape.root, : tape.n_coefficients, 0] for x in (slots.middle, slots.radius))
    for step in itertools.product((-1.0, 0.0, 0.5, 0.75, 1.0), repeat=2) if half else ((0.0, 0.0),):
        z = at + half * np.array(step)
        if np.linalg.norm(z) <= rho:
            predictors = list(zip(ETA + SLOPES @ z, SLOPES, strict=True))
            exact = np.array(ExactJets(predictors, (), order).coefficients(expression))
            # The point itself is rounded.
            if np.any(abs(exact - middle) > radius + (1e-12 if half else 0.0) * abs(exact)):
                return False
    return True


SMOOTH = forms.multiply(forms.exp(X), forms.log1p(forms.exp(forms.add(X, Y))))
BILINEAR = forms.multiply(forms.multiply(constant(0.1), X), forms.add(Y, forms.multiply(constant(0.3), X)))
BETWEEN = forms.log_ndtr_between(X, forms.add(Y, constant(2.0)))
BRANCHES = node("select", (node("positive", (X,)), forms.exp(X), forms.sin(X)))


def test_nothing_is_wrong_without_a_fault(jets):
    assert range_is_right(jets, "sigmoid", -1.0, 3.0)
    assert range_is_right(jets, "exp", 0.1, 0.1)
    for half in (0.0, 0.2):
        for expression in (SMOOTH, BILINEAR, BRANCHES, BETWEEN):
            assert jet_is_right(jets, expression, half)
    assert jet_is_right(jets, BRANCHES, 1.0)
    assert jet_is_right(jets, forms.exp(forms.negative(Y)), 1.0, (-1.0, 1.0))


@pytest.mark.parametrize("op", ["sigmoid", "softplus", "erf", "log_ndtr", "arctan"])
@pytest.mark.covering(3)
def test_a_critical_point_left_out(jets, op):
    code = jets.ranges.FUNCTIONS.index(op)
    points = jets.ranges.CRITICAL_POINTS[code]
    known = [(k, i) for k, i in np.argwhere(~np.isnan(points)) if abs(points[k, i]) < 4.0]
    for k, i in known:
        x = points[k, i]
        assert range_is_right(jets, op, x - 0.2, x + 0.15)
        points[k, i] = math.nan
        assert not range_is_right(jets, op, x - 0.2, x + 0.15), (k, x)
        points[k, i] = x
    assert known


WIDE, POINT = (-0.5, 2.0, 2.0, 0.5), (0.3, 1.7, 0.0, 0.0)


@pytest.mark.parametrize("fault", ["no cumulants", "no peak", "lower ends", "no errors"])
def test_faults_in_ranges_of_two_arguments(jets, monkeypatch, fault):
    """Cumulants as at corners; no variance at the peak; of rates the lower ends; no errors of integrals."""
    between, box = jets.between, POINT if fault == "no errors" else WIDE
    include, product = between._include, between._set_product
    assert between_is_right(jets, box)
    if fault == "no cumulants":
        monkeypatch.setattr(between, "_largest_cumulants", lambda w, v: np.zeros(7))
    elif fault == "no peak":
        monkeypatch.setattr(
            between, "_include", lambda s, w, *ends: None if s == -0.5 * w else include(s, w, *ends)
        )
    elif fault == "lower ends":
        monkeypatch.setattr(
            between,
            "_set_product",
            lambda a, i, j, rate, *last: product(a, i, j, rate[:1].repeat(2, axis=0), *last),
        )
    else:
        monkeypatch.setattr(between, "_INTEGRAL", 0.0)
        monkeypatch.setattr(between, "_EPS", 0.0)
    assert not between_is_right(jets, box)


def test_the_peak_of_a_sine_left_out(jets, monkeypatch):
    assert range_is_right(jets, "sin", -3.0, 4.0)
    monkeypatch.setattr(jets.ranges, "_reached", lambda low, high, peak: False)
    assert not range_is_right(jets, "sin", -3.0, 4.0)


def test_no_allowance_for_the_rounding_of_functions(jets, monkeypatch):
    monkeypatch.setattr(jets.functions, "_LIBM", 0.0)
    monkeypatch.setattr(jets.ranges, "_EPS", 0.0)
    assert not range_is_right(jets, "exp", 0.1, 0.1)


def test_no_allowance_for_the_rounding_of_products(jets, monkeypatch):
    monkeypatch.setattr(jets.machine, "_EPS", 0.0)
    assert not jet_is_right(jets, BILINEAR)


def test_radii_not_multiplied(jets, monkeypatch):
    """A product whose radius is that of its midpoints alone."""
    multiply = jets.machine._multiply

    def without_radii(tape, slots, out, a, b, first, last):
        kept = slots.radius.copy()
        slots.radius[a], slots.radius[b] = 0.0, 0.0
        multiply(tape, slots, out, a, b, first, last)
        for slot in {a, b} - {out}:
            slots.radius[slot] = kept[slot]

    monkeypatch.setattr(jets.machine, "_multiply", without_radii)
    assert not jet_is_right(jets, SMOOTH, 0.2)


def test_the_wrong_branch(jets, monkeypatch):
    select = jets.machine._select
    monkeypatch.setattr(
        jets.machine, "_select", lambda slots, out, test, a, b, *last: select(slots, out, test, b, a, *last)
    )
    assert not jet_is_right(jets, BRANCHES, 0.2)


def test_an_open_condition_taken_to_hold(jets, monkeypatch):
    compare = jets.machine._compare

    def hopeful(slots, out, a, code, moves):
        compare(slots, out, a, code, moves)
        slots.decided[out] = slots.decided[out] != jets.machine._FALSE

    monkeypatch.setattr(jets.machine, "_compare", hopeful)
    assert not jet_is_right(jets, BRANCHES, 1.5)


@pytest.mark.parametrize("degree", [1, 2, 3])
def test_a_term_of_a_composition_left_out(jets, degree):
    class Forgetful(jets.tape._Writer):
        def _write(self, step, out, a=-1, b=-1, pairs=None, number=0.0, third=-1):
            if step == jets.tape.MULTIPLY and number == 1.0 and pairs[0][0] == degree:
                pairs = []
            super()._write(step, out, a, b, pairs, number, third)

    jets.tape._Writer = Forgetful
    assert not jet_is_right(jets, SMOOTH)


@pytest.mark.parametrize("place", range(1, 10))
def test_a_term_of_a_composition_of_two_left_out(jets, place):
    class Forgetful(jets.tape._Writer):
        def _write(self, step, out, a=-1, b=-1, pairs=None, number=0.0, third=-1):
            if step == jets.tape.MULTIPLY and number == 1.0 and pairs[0][0] == place:
                pairs = []
            super()._write(step, out, a, b, pairs, number, third)

    assert jet_is_right(jets, BETWEEN)
    jets.tape._Writer = Forgetful
    assert not jet_is_right(jets, BETWEEN)


def test_affine_forms_cut_about_the_wrong_center(jets, monkeypatch):
    """The value at z = 0 is not what is left of a midpoint that was moved before."""
    tighten = jets.machine._tighten

    def wrong(slots, out, box, n):
        slope = slots.middle[out, 1 : 1 + len(box.at)]
        slots.middle[out, n] = slots.middle[out, 0] - box.at @ slope
        tighten(slots, out, box, n)

    monkeypatch.setattr(jets.machine, "_tighten", wrong)
    assert not jet_is_right(jets, forms.exp(forms.negative(Y)), 1.0, (-1.0, 1.0))


def test_the_last_term_of_an_expansion_left_out(jets, monkeypatch):
    norms, effort = jets.derivative_norms, jets.derivative_norms.Effort(1, (1,))
    tape = jets.tape.tape_of(forms.multiply(constant(0.1), forms.exp(X)), 1, 4)
    arguments = (tape, np.zeros((1, 1)), np.ones((1, 1, 1)), np.empty((0, 1)), 1.0, 3, effort)
    assert norms.derivative_norms(*arguments)[0] >= 0.1 * math.e
    monkeypatch.setattr(norms, "_last_term", lambda *args: None)
    assert norms.derivative_norms(*arguments)[0] < 0.1 * math.e


def test_the_cosine_of_the_covering_left_out(monkeypatch):
    """Of a power of a line between points of the covering."""
    real = test_largest_form.covering

    def without(p, degree):
        return real(p, degree)._replace(inflation=1.0)

    monkeypatch.setattr(test_largest_form, "covering", without)
    for p in (2, 3):
        with pytest.raises(AssertionError):
            test_largest_form.test_the_covering_inflates_by_its_angle(p)
