"""Parameters out of range are refused with their name and their value, before anything is built."""

import contextlib
import math
import re

import numpy as np
import pytest

from pymc_austerity import AdaptiveRandomWalk, AusterityMH, RandomWalk, SubsamplingWarning

from .conftest import N

pytestmark = pytest.mark.usefixtures("interpreted")
NAN = math.nan
# Where a threshold begins to be one that `factorise` accepts.
SMALLEST_THRESHOLD = 3


OUT_OF_RANGE = {
    "epsilon": (-0.01, 0.51, NAN, math.inf, True, False, "0.1", None),
    "batch_size": (1, 0, -500, 100.0, 100.5, NAN, True, "500", N + 1),
    "growth": (1, 1.0, 0.5, -2.0, NAN, math.inf, True, "geometric", None),
    "boundary": (0.49, 1.01, NAN, True, "pocock", None),
    "steps_per_draw": (0, -1, 1.0, NAN, True, "1"),
    "threshold": (1, 0, -1, 1000.0, NAN, True, None),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in OUT_OF_RANGE.items() for value in values], ids=str
)
def test_out_of_range(line, name, value):
    kinds = (ValueError, TypeError) if value is None or isinstance(value, str) else ValueError
    with pytest.raises(kinds, match=rf"^{name} must be .*") as caught:
        AusterityMH([line["b"]], model=line, **{name: value})
    assert repr(value) in str(caught.value)


def test_parameters_are_checked_without_a_test_too(line):
    """epsilon = 0 reads everything, but a typo elsewhere is still a typo."""
    with pytest.raises(ValueError, match="^growth must be"):
        AusterityMH([line["b"]], model=line, epsilon=0.0, growth=0.5)


IN_RANGE = {
    "epsilon": (0, 0.5, np.float32(0.1)),
    "batch_size": (None, 2, np.int32(100), N),
    "growth": (2, np.int64(2), np.float32(1.5)),
    "boundary": (1, np.float64(0.7)),
    "steps_per_draw": (np.int64(2),),
    "threshold": (np.int64(N),),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in IN_RANGE.items() for value in values], ids=str
)
@pytest.mark.covering(3)
def test_in_range(line, name, value):
    _, (stats,) = AusterityMH([line["b"]], model=line, rng=1, **{name: value}).step(line.initial_point())
    assert 0 < stats["n_used"] <= N


@pytest.mark.parametrize("threshold", [2, 5, 7, 8])
def test_a_small_threshold(line, threshold):
    refused = f"^threshold must be .*{threshold}"
    with contextlib.ExitStack() as stack:
        if threshold < SMALLEST_THRESHOLD:
            stack.enter_context(pytest.raises(ValueError, match=refused))
        step = AusterityMH([line["b"]], model=line, rng=1, threshold=threshold)
        assert 0 < step.step(line.initial_point())[1][0]["n_used"] <= N


def test_only_vars_is_positional(line):
    with pytest.raises(TypeError):
        AusterityMH([line["b"]], 0.1, model=line)


def test_unknown_parameters(line):
    with pytest.raises(TypeError, match="delta"):
        AusterityMH([line["b"]], delta=0.1, model=line)


def test_compile_kwargs_are_not_used(line):
    with pytest.warns(SubsamplingWarning, match="compile_kwargs") as caught:
        AusterityMH([line["b"]], model=line, compile_kwargs={"mode": "JAX"})
    assert len(caught) == 1
    assert caught[0].filename == __file__
    AusterityMH([line["b"]], model=line, compile_kwargs={})
    AusterityMH([line["b"]], model=line, compile_kwargs=None)


class TestProposal:
    """A wrong proposal is an error when the step is made, not a wrong chain."""

    @pytest.mark.parametrize(
        "proposal",
        [3, "random walk", [0.1], np.eye(1), object(), RandomWalk, AdaptiveRandomWalk],
        ids=["number", "name", "list", "array", "object", "class", "adaptive class"],
    )
    def test_wrong_type(self, line, proposal):
        with pytest.raises((TypeError, ValueError), match="^proposal must be RandomWalk") as caught:
            AusterityMH([line["b"]], model=line, proposal=proposal)
        assert repr(proposal) in str(caught.value)

    @pytest.mark.parametrize(
        "result",
        [
            (np.zeros(1), 0.0),
            (np.zeros((2, 1)), 0.0),
            (0.0, 0.0),
            (np.zeros(2), np.zeros(2)),
            (np.zeros(2), None),
            (np.zeros(2), "0"),
            (np.zeros(2), 0.0, 1.0),
            np.zeros(2),
            None,
            (np.array(["a", "b"]), 0.0),
        ],
        ids=lambda value: re.sub(r"\s+", "", repr(value)),
    )
    @pytest.mark.covering(4)
    def test_wrong_result(self, line, result):
        with pytest.raises(
            (TypeError, ValueError), match=r"The proposal must return .*\(q_new, log_hastings\)"
        ):
            AusterityMH([line["sigma"], line["b"]], model=line, proposal=lambda q, rng: result)

    def test_wrong_number_of_arguments(self, line):
        with pytest.raises(TypeError, match="argument"):
            AusterityMH([line["b"]], model=line, proposal=lambda q: (q, 0.0))

    @pytest.mark.parametrize("kwargs", [{"scale": [0.1, 0.2]}, {"cov": np.eye(2)}], ids=str)
    def test_wrong_dimension(self, line, kwargs):
        with pytest.raises(ValueError, match="^(scale|cov) must have"):
            AusterityMH([line["b"]], model=line, proposal=RandomWalk(**kwargs))

    def test_an_error_inside_a_proposal_is_shown(self, line):
        def propose(q, rng):
            raise ZeroDivisionError("mine")

        with pytest.raises(ZeroDivisionError, match="mine"):
            AusterityMH([line["b"]], model=line, proposal=propose)
