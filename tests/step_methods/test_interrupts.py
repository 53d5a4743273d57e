"""Ctrl-C at any moment: `pymc.sample` keeps the draws, and the step can be used again."""

import ctypes
import os
import signal
import sys
import threading
import traceback
from functools import cache, partial
from pathlib import Path

import numba.core.serialize
import numpy as np
import pymc as pm
import pytest

import pymc_austerity as pma
from pymc_austerity.model.compile import native
from tests.models import as_model
from tests.sampling import sampled

pytestmark = pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs a timer that sends signals")

N = 1000
TUNE = 5


@cache
@as_model
def logistic():
    rng = np.random.default_rng(1)
    x = rng.normal(size=N)
    b = pm.Normal("b")
    pm.Bernoulli("y", logit_p=b * x, observed=rng.random(N) < 1.0 / (1.0 + np.exp(-x)))


@cache
@as_model
def choices():
    counts = np.random.default_rng(1).multinomial(1, np.full(300, 1 / 300), size=N)
    w = pm.Dirichlet("w", np.ones(300))
    pm.Multinomial("choice", n=1, p=w, observed=counts)


@cache
@as_model
def mixture():
    centers = np.array([-2.0, 0.0, 2.0])
    rng = np.random.default_rng(1)
    z = pm.Categorical("z", p=np.ones(3) / 3, shape=N)
    mean = pm.math.constant(centers)[z]
    pm.Normal("y", mean, 1, observed=rng.normal(centers[rng.integers(3, size=N)]))


# Enough transitions for a draw that most of the time is spent in machine code.
STEPS = {
    "AusterityMH": (logistic, partial(pma.AusterityMH, epsilon=0.05, steps_per_draw=50)),
    "MHSubLhd": (logistic, partial(pma.MHSubLhd, steps_per_draw=50)),
    "MinibatchBarker": (logistic, partial(pma.MinibatchBarker, steps_per_draw=50)),
    "MetropolisHastings": (logistic, partial(pma.MetropolisHastings, steps_per_draw=50)),
    "TunaMH": (logistic, partial(pma.TunaMH, steps_per_draw=500)),
    "SCIR": (choices, partial(pma.SCIR, steps_per_draw=20)),
    "SCIR of minibatches": (
        choices,
        partial(pma.SCIR, batch_size=100, step_size=0.001, steps_per_draw=20),
    ),
    "MinibatchCategoricalGibbs": (mixture, partial(pma.MinibatchCategoricalGibbs, steps_per_draw=5)),
}


@cache
def built(name):
    build, make = STEPS[name]
    return build(), make(model=build())


def sample(name, draws, callback=None):
    model, step = built(name)
    return sampled(draws, step, tune=TUNE, chains=1, random_seed=7, model=model, callback=callback)


@pytest.fixture
def signals(ctrl_c):
    """A timer's signal as Ctrl-C, too: it comes while machine code runs, which no thread could send."""
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0.0)
    signal.signal(signal.SIGALRM, before)


def by_timer(delay):
    signal.setitimer(signal.ITIMER_REAL, delay)


def by_thread(delay):
    threading.Timer(delay, os.kill, (os.getpid(), signal.SIGINT)).start()


def at_once(delay):
    signal.raise_signal(signal.SIGINT)


WAYS = [by_timer] * 6 + [by_thread] * 2 + [at_once] * 2


def interrupted(name, way, delay, number):
    """Sample until interrupted, at draw `number` or some time after it."""

    def callback(trace, draw):
        if draw.draw_idx == TUNE + number:
            way(delay)

    while True:
        try:
            return sample(name, 20_000, callback)
        except SystemError as error:
            if not in_the_trace(error):
                raise
        delay *= 1.1


def in_the_trace(error):
    """Did the interrupt meet the function with which PyMC records a draw, which is none of ours?"""
    frames = traceback.extract_tb(error.__traceback__)
    return any(Path(frame.filename).parts[-3:-1] == ("pymc", "backends") for frame in frames)


def names(idata):
    return set(idata["sample_stats"].data_vars)


# Where the signal meets a callback of the garbage collector, Python prints it and goes on sampling.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.covering(1)
def test_draws_are_kept(name):
    expected = sample(name, 20)
    (variable,) = expected["posterior"].data_vars
    rng = np.random.default_rng(20)
    for way in WAYS:
        found = interrupted(name, way, rng.uniform(0.002, 0.04), rng.integers(1, 50))
        n = found["posterior"].sizes["draw"]
        assert found["sample_stats"].sizes["draw"] == n
        assert names(found) == names(expected)
        least = min(n, 20)
        assert least > 0
        for group, key in [("posterior", variable), *(("sample_stats", key) for key in names(expected))]:
            kept, full = (x[group][key].values[:, :least] for x in (found, expected))
            np.testing.assert_array_equal(kept, full)
    after = sample(name, 20)
    np.testing.assert_array_equal(after["posterior"][variable], expected["posterior"][variable])


# Where numba looks up classes and functions in Python, and the only places where it may.
LOOK_UPS = {numba.core.serialize._numba_unpickle.__code__, ctypes.cast.__code__}
ALLOWED = {native.addresses_of.__wrapped__.__code__, native.interruptible(len).__code__}


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.covering(1)
def test_no_python_code_runs_inside_machine_code(name):
    model, shared = built(name)
    shared.setup_chain(np.random.default_rng(3), 0, 10)
    point, _ = shared.step(model.initial_point())
    calls = []

    def note(frame, event, argument):
        if event == "call":
            calls.append((frame.f_code, frame.f_back.f_code))

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        for _ in range(3):
            point, _ = shared.step(point)
    finally:
        sys.setprofile(before)
    assert (type(shared).step.__code__, test_no_python_code_runs_inside_machine_code.__code__) in calls
    assert [caller for code, caller in calls if code in LOOK_UPS and caller not in ALLOWED] == []


def test_an_interrupt_inside_machine_code_is_raised_after_it(ctrl_c):
    interrupt = getattr(ctypes.CDLL(None), "raise")
    interrupt.argtypes, interrupt.restype = [ctypes.c_int], ctypes.c_int
    number = int(signal.SIGINT)

    def propose(q, rng):
        if q[0] > 50.0:
            interrupt(number)
        return q + 0.01 * rng.standard_normal(q.shape[0]), 0.0

    step = pma.AusterityMH(model=logistic(), proposal=propose, rng=1)
    near, far = {"b": np.array(1.0)}, {"b": np.array(60.0)}
    step.setup_chain(np.random.default_rng(8), 0, 10)
    expected = [step.step(near)[0]["b"] for _ in range(3)]
    with pytest.raises(KeyboardInterrupt):
        step.step(far)
    step.setup_chain(np.random.default_rng(8), 0, 10)
    assert [step.step(near)[0]["b"] for _ in range(3)] == expected


def test_an_interrupt_inside_a_function_of_pytensor_is_raised_as_such():
    interrupt = KeyboardInterrupt()

    def function(nested):
        try:
            try:
                raise interrupt
            except KeyboardInterrupt as error:
                raise SystemError("returned a result with an exception set") from error
        except SystemError as error:
            raise SystemError(nested) from error

    with pytest.raises(KeyboardInterrupt) as raised:
        native.interruptible(function)("once more")
    assert raised.value is interrupt

    def defect():
        raise SystemError("no interrupt")

    with pytest.raises(SystemError, match="no interrupt"):
        native.interruptible(defect)()
