"""Functions of equal graphs are rewritten once."""

import gc
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytensor
import pytensor.scalar as ps
import pytensor.tensor as pt
import pytest
from pytensor.compile.builders import OpFromGraph
from pytensor.graph.basic import Constant
from pytensor.graph.utils import MissingInputError

from pymc_austerity.model.compile.numba_backend import NumbaBackend
from pymc_austerity.model.graph import functions
from pymc_austerity.model.graph.functions import function_of, structure_of


@pytest.fixture(autouse=True)
def rewritten(monkeypatch):
    """How often PyTensor was asked; what earlier tests left is not there."""
    calls, function = [], pytensor.function
    monkeypatch.setattr(functions, "_makers", type(functions._makers)())
    monkeypatch.setattr(pytensor, "function", lambda *a, **k: calls.append(a) or function(*a, **k))
    return calls


def graph(power=2.0, weights=(1.0, 2.0), dtype="float64"):
    x, y = pt.vector("x", dtype=dtype), pt.scalar("y")
    return [x, y], pt.sum(pt.constant(np.array(weights)) * x**power) - y


def test_equal_graphs_are_rewritten_once(rewritten):
    first, second = (function_of(*graph()) for _ in range(2))
    assert len(rewritten) == 1
    x = np.array([1.0, 3.0])
    assert first(x, 1.0) == second(x, 1.0) == 18.0


def test_each_function_has_storage_of_its_own():
    x = pt.vector("x")
    first, second = (function_of([x], [x + 1.0, x * 2.0]) for _ in range(2))
    found = first(np.ones(2))
    second(np.zeros(3))
    np.testing.assert_array_equal(found, [[2.0, 2.0], [2.0, 2.0]])
    assert not {id(c.storage) for c in first.input_storage} & {id(c.storage) for c in second.input_storage}


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(graph(power=3.0), id="another constant"),
        pytest.param(graph(weights=(1.0, 2.5)), id="another vector of constants"),
        pytest.param(graph(weights=(np.nan, 2.0)), id="not a number"),
        pytest.param(graph(dtype="float32"), id="another type"),
    ],
)
def test_other_graphs_are_not(rewritten, other):
    for inputs, output in (graph(), other):
        function_of(inputs, output)
    assert len(rewritten) == 2


def test_an_input_that_is_missing():
    (x, _), output = graph()
    assert structure_of([x], [output]) is None
    with pytest.raises(MissingInputError):
        function_of([x], output)


def test_order_of_inputs_tells():
    x, y = pt.scalars("x", "y")
    assert function_of([x, y], x - y)(3.0, 1.0) == 2.0
    assert function_of([y, x], x - y)(3.0, 1.0) == -2.0
    assert function_of([x, y], y - x)(3.0, 1.0) == -2.0


def test_outputs_in_a_list_tell(rewritten):
    inputs, output = graph()
    assert np.ndim(function_of(inputs, output)(np.ones(2), 0.0)) == 0
    assert len(function_of(inputs, [output])(np.ones(2), 0.0)) == 1
    assert len(rewritten) == 2


def test_the_mode_tells(rewritten):
    inputs, output = graph()
    function_of(inputs, output)
    function_of(inputs, output, mode="FAST_RUN")
    assert len(rewritten) == 2


def test_shared_variables_are_not_kept(rewritten):
    x, shared = pt.vector("x"), pytensor.shared(np.ones(3), "data")
    for _ in range(2):
        assert function_of([x], x.sum() + shared.sum())(np.ones(1)) == 4.0
    shared.set_value(np.zeros(3))
    assert function_of([x], x.sum() + shared.sum())(np.ones(1)) == 1.0
    assert len(rewritten) == 3
    assert not functions._makers._made


def test_many_short_constants_are_not_kept(rewritten):
    x, short = pt.vector("x"), [np.full(functions._SHORT, float(k)) for k in range(6)]
    total = sum(pt.constant(each).sum() for each in short)
    for _ in range(2):
        assert function_of([x], x.sum() + total)(np.ones(1)) == 1.0 + 15.0 * functions._SHORT
    assert not functions._makers._made


class TestShortConstants:
    def test_one_that_is_written_to_is_another(self):
        """The sum stays, and the array, as for covariates that are shuffled in place."""
        x, own = pt.vector("x"), np.array([1.0, 2.0, 3.0])
        for _ in range(3):
            np.testing.assert_array_equal(function_of([x], x * pt.as_tensor_variable(own))(np.ones(3)), own)
            own[:] = np.roll(own, 1)

    def test_a_function_does_not_read_the_array_of_another_graph(self):
        x, first = pt.vector("x"), np.array([1.0, 2.0, 3.0])
        second = first.copy()
        function_of([x], x * pt.as_tensor_variable(first))
        function = function_of([x], x * pt.as_tensor_variable(second))
        first += 1.0
        np.testing.assert_array_equal(function(np.ones(3)), second)

    def test_a_numba_function_has_its_own(self):
        x, own = pt.vector("x"), np.array([1.0, 2.0, 3.0])
        backend = NumbaBackend()
        for _ in range(2):
            (found,) = backend.entry(backend.function([x], [x * pt.as_tensor_variable(own)]))(np.ones(3))
            np.testing.assert_array_equal(found, own)
            own[:] = own[::-1].copy()

    @pytest.mark.parametrize("shape", [(), (1,), (2,)])
    def test_signs_of_zeros_tell(self, shape):
        x = pt.scalar("x")
        for zero in (0.0, -0.0):
            found = function_of([x], x / pt.constant(np.full(shape, zero)))(1.0)
            np.testing.assert_array_equal(found, np.full(shape, np.copysign(np.inf, zero)))

    def test_a_view_does_not_keep_what_it_is_a_part_of(self):
        x, whole = pt.scalar("x"), np.ones(100_000)
        function = function_of([x], (x * pt.as_tensor_variable(whole[:5])).sum())
        assert function(1.0) == 5.0
        gone = weakref.ref(whole)
        del whole, function
        gc.collect()
        assert functions._makers._made
        assert gone() is None

    def test_arrays_within_an_operation_are_not_kept(self):
        x, own = pt.vector("x"), np.array([1.0, 2.0, 3.0])
        inner = pt.vector("inner")
        operation = OpFromGraph([inner], [inner * pt.constant(own)])
        assert structure_of([x], [operation(x)]) is None
        assert structure_of([x], [OpFromGraph([inner], [inner * 2.0])(x)]) is not None


def test_threads_wait_for_each_other():
    """An ordered dictionary that two of them change may crash the process."""
    kept, at_work, most = functions.Kept(), [], []

    def make():
        at_work.append(None)
        most.append(len(at_work))
        time.sleep(0.002)
        at_work.pop()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda k: kept.get(k, make), range(20)))
    assert max(most) == 1


class TestData:
    """Long constants: they are no part of the graph that is kept."""

    LONG = np.arange(functions._SHORT + 1.0)

    def graph(self, data, **options):
        x = pt.vector("x")
        return [x], [pt.sum(x) * pt.constant(data), pt.sum(pt.exp(pt.constant(data, **options) - x[0]))]

    def test_other_data_are_the_same_graph(self, rewritten):
        functions_, arrays = [], [self.LONG, self.LONG[::-1].copy(), np.ones(len(self.LONG))]
        for data in arrays:
            functions_.append(function_of(*self.graph(data / 1000.0)))
        assert len(rewritten) == 1
        for data, function in zip(arrays, functions_, strict=True):  # each has kept its own
            times, total = function(np.array([2.0, 1.0]))
            np.testing.assert_array_equal(times, 3.0 * (data / 1000.0))
            np.testing.assert_allclose(total, np.exp(data / 1000.0 - 2.0).sum())

    def test_they_are_forgotten_with_their_function(self, rewritten):
        data = self.LONG.copy()
        function = function_of(*self.graph(data))
        function(np.ones(2))
        own, (kept,) = weakref.ref(data), functions._makers._made.values()
        assert not [one for one in kept.fgraph.inputs if isinstance(one, Constant)]
        del data, function
        gc.collect()
        assert own() is None

    def test_one_array_is_one_input_of_each_type(self, rewritten):
        one, other = (pt.constant(self.LONG) for _ in range(2))
        whole = pt.constant(self.LONG[:, None])
        column = type(whole)(whole.type, self.LONG[:, None])
        x = pt.scalar("x")
        found = function_of([x], (x * one + other).sum() + (x * column).sum())(2.0)
        assert found == 5.0 * self.LONG.sum()
        (kept,) = functions._makers._made.values()
        assert len(kept.fgraph.inputs) <= 4

    def test_an_output_may_be_data(self, rewritten):
        np.testing.assert_array_equal(function_of([], pt.constant(self.LONG))(), self.LONG)

    def test_another_length_is_another_graph(self, rewritten):
        for data in (self.LONG, np.append(self.LONG, 1.0)):
            function_of(*self.graph(data))
        assert len(rewritten) == 2


def test_the_oldest_is_forgotten(rewritten, monkeypatch):
    monkeypatch.setattr(functions, "_MOST", 2)
    x = pt.scalar("x")
    for k in (1, 2, 1, 3, 1, 2):
        assert function_of([x], x * k)(2.0) == 2.0 * k
    assert len(rewritten) == 4  # 1, 2, 3, and 2 again
    assert len(functions._makers._made) == 2


def test_outputs_are_made_stable_once(rewritten, monkeypatch):
    asked, stable = [], functions.stable
    monkeypatch.setattr(functions, "stable", lambda graph: asked.append(graph) or stable(graph))
    x = pt.vector("x")
    first, second = (function_of([x], pt.log(1.0 - pt.sigmoid(x)), stabilised=True) for _ in range(2))
    assert len(asked) == len(rewritten) == 1
    far = np.array([1.0, 800.0])
    expected = [-np.log1p(np.exp(1.0)), -800.0]
    np.testing.assert_allclose([first(far), second(far)], [expected, expected])
    assert function_of([x], pt.log(1.0 - pt.sigmoid(x)))(far)[1] == -np.inf  # another function
    assert len(rewritten) == 2


def test_a_number_for_each_of_some_others_is_not_computed_one_by_one():
    """PyTensor calls Python for each element of `second`."""
    x, y = pt.matrix("x"), pt.vector("y")
    function = function_of([x, y], [pt.second(x, y), pt.second(x, 2)])
    operations = [getattr(node.op, "scalar_op", None) for node in function.maker.fgraph.apply_nodes]
    assert not any(isinstance(one, ps.Second) for one in operations)
    found, number = function(np.full((2, 3), np.nan), np.arange(3.0))
    np.testing.assert_array_equal(found, [[0.0, 1.0, 2.0]] * 2)
    np.testing.assert_array_equal(number, np.full((2, 3), 2))
    assert number.dtype == pt.second(x, 2).type.dtype


def test_graphs_within_operations_are_written_out():
    """PyTensor would call a compiler of C for them."""
    x = pt.matrix("x")
    function = function_of([x], [pt.special.softmax(x, axis=1), pt.special.log_softmax(x, axis=1)])
    assert not any(isinstance(node.op, OpFromGraph) for node in function.maker.fgraph.apply_nodes)
    shares, logs = function(np.log([[1.0, 2.0, 5.0]]))
    np.testing.assert_allclose(shares, [[0.125, 0.25, 0.625]])
    np.testing.assert_allclose(logs, np.log(shares))
