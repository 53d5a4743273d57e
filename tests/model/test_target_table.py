"""Kernels are handed functions and arguments of a model as addresses: compiled once for all models."""

from functools import cache

import numba
import numpy as np
import pymc as pm
import pytest
from numba.core import event, types

from pymc_austerity import MetropolisHastings, RandomWalk
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.model.compile.numba_backend import (
    FIRST_ARRAY,
    TARGET,
    VECTOR,
    TableMaker,
    array_at,
    as_vector,
    places_of,
    signature_of,
)
from pymc_austerity.model.compile.protocol import constructor

INDEX = np.array([4, 0, 2])
KINDS = [("float64", 2), ("int8", 1), ("float32", 0), ("bool", 1), ("float64", 3)]
A, B, C, D, E = places_of(KINDS)


@numba.njit
def log_ratios(q_new, q, index, table):
    x = array_at(table, A, "float64", 2)
    y = array_at(table, B, "int8", 1)
    scale = array_at(table, C, "float32", 0)
    chosen = array_at(table, D, "bool", 1)
    cube = array_at(table, E, "float64", 3)
    result = np.empty(index.shape[0])
    for k in range(index.shape[0]):
        i = index[k]
        result[k] = scale.item() * (x[i] * (q_new - q)).sum() + y[i]
        if chosen[i]:
            result[k] += cube[1, 2, i]
    return result


class PlantedError(CompiledError):
    sentence = "The first number is {0}, of {1}."


@numba.njit
def global_log_ratio(q_new, q, table):
    if q_new[0] < 0.0:
        raise PlantedError(q_new[0], len(q))
    if q_new[0] > 9.0:
        raise IndexError("planted")
    return q_new[0] - q[0]


@numba.njit
def log_terms(categories, index, table):
    return (10 * categories + index).astype(np.float64)


FUNCTIONS = {
    "log_ratios": (log_ratios, signature_of("log_ratios", "float64")),
    "global_log_ratio": (global_log_ratio, signature_of("global_log_ratio", "float64")),
    "log_terms": (log_terms, signature_of("log_terms", "int64")),
}


@cache
def called(name):
    """A function of `TARGET`, as compiled code calls it."""
    make_target = constructor(TARGET)
    scope = {"make_target": make_target}
    exec(f"def call(*args): return make_target().{name}(*args)", scope)
    return numba.njit(scope["call"])


def arguments(seed=1, rows=5):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(rows, 2)),
        rng.integers(-9, 9, size=rows).astype("int8"),
        np.array(rng.normal(), "float32"),
        rng.random(rows) < 0.5,
        rng.normal(size=(2, 3, rows)),
    )


def states():
    return np.array([0.5, -1.0]), np.array([2.0, 1.0])


def expected(q_new, q, index, args):
    x, y, scale, chosen, cube = args
    return scale * (x[index] @ (q_new - q)) + y[index] + np.where(chosen[index], cube[1, 2, index], 0.0)


def test_a_table_has_functions_then_addresses_and_shapes():
    args = arguments()
    table = TableMaker(FUNCTIONS, KINDS)(args)
    assert table.dtype == np.uintp
    assert [A, B - A, C - B, D - C, E - D, len(table) - E] == [FIRST_ARRAY, 3, 2, 1, 2, 4]
    assert table[A] == args[0].ctypes.data
    assert list(table[E + 1 :]) == [2, 3, 5]
    assert len(set(table[:FIRST_ARRAY])) == 1 + len(FUNCTIONS)  # and zero, where there is none


def test_a_function_reads_its_arguments_from_the_table():
    make = TableMaker(FUNCTIONS, KINDS)
    q_new, q = states()
    for args in (arguments(), arguments(2), arguments(3, rows=70)):
        found = called("log_ratios")(q_new, q, INDEX, make(args))
        np.testing.assert_allclose(found, expected(q_new, q, INDEX, args), rtol=1e-6)


def test_arrays_in_other_places_are_noticed():
    """A planted fault: the first array is taken for the last."""
    args = arguments()
    table = TableMaker(FUNCTIONS, KINDS)(args)
    table[E] = table[A]
    q_new, q = states()
    found = called("log_ratios")(q_new, q, INDEX, table)
    assert args[3][INDEX].any()
    assert not np.allclose(found, expected(q_new, q, INDEX, args), rtol=1e-6)


def test_arrays_of_any_layout_become_contiguous_ones():
    x, *others = arguments()
    make, (q_new, q) = TableMaker(FUNCTIONS, KINDS), states()
    unaligned = np.frombuffer(b"\0" + x.tobytes(), dtype="float64", offset=1).reshape(x.shape)
    read_only = x.copy()
    read_only.flags.writeable = False
    assert not unaligned.flags.aligned
    for same in (np.asfortranarray(x), np.repeat(x, 2, axis=0)[::2], unaligned, read_only):
        found = called("log_ratios")(q_new, q, INDEX, make((same, *others)))
        np.testing.assert_allclose(found, expected(q_new, q, INDEX, (x, *others)), rtol=1e-6)


def test_a_table_is_made_anew_only_for_other_arrays():
    make, args = TableMaker(FUNCTIONS, KINDS), arguments()
    first = make(args)
    assert make(tuple(args)) is first
    scale = np.array(2.0, "float32")
    second = make((*args[:2], scale, *args[3:]))
    assert second is not first
    assert np.flatnonzero(second != first).tolist() == [C]
    assert second[C] == scale.ctypes.data
    with pytest.raises(ValueError, match="longer"):
        make(args[:-1])


def test_errors_of_a_function_are_those_of_the_call():
    table = TableMaker(FUNCTIONS, KINDS)(arguments())
    q = np.zeros(2)
    assert called("global_log_ratio")(np.ones(2), q, table) == 1.0
    with pytest.raises(PlantedError, match=r"The first number is -3.0, of 2\."):
        called("global_log_ratio")(np.full(2, -3.0), q, table)
    with pytest.raises(IndexError, match="planted"):
        called("global_log_ratio")(np.full(2, 10.0), q, table)


def test_a_function_that_is_missing_raises():
    table = TableMaker(FUNCTIONS, KINDS)(arguments())
    with pytest.raises(NotImplementedError, match="This target has no global_gradient"):
        called("global_gradient")(np.zeros(2), table)
    # There is one of integers, which must not be called with other numbers.
    categories = np.array([1, 2, 0])
    assert called("log_terms")(categories, INDEX, table).tolist() == [14.0, 20.0, 2.0]
    with pytest.raises(NotImplementedError, match="This target has no log_terms"):
        called("log_terms")(categories.astype(float), INDEX, table)
    with pytest.raises(numba.TypingError, match="contiguous"):
        called("log_terms")(categories[::2], INDEX, table)


def test_without_features_they_are_the_state():
    table, q = TableMaker(FUNCTIONS, KINDS)(arguments()), np.arange(3.0)
    np.testing.assert_array_equal(called("features")(q, table), q)


@pytest.mark.parametrize(
    "result", [np.arange(4.0), np.arange(8.0)[::2], np.arange(8.0)[4:], np.arange(4), np.empty(0)[::2]]
)
def test_results_are_one_type_of_array(result):
    def vector(array):
        return as_vector(array)

    compiled = numba.njit(vector)
    np.testing.assert_array_equal(compiled(result), result)
    assert compiled.overloads[compiled.signatures[0]].signature.return_type == VECTOR


# Steps --------------------------------------------------------------------------------------------------


def line():
    rng = np.random.default_rng(1)
    with pm.Model() as model:
        b = pm.Normal("b")
        pm.Normal("y", b, 1, observed=rng.normal(size=1500))
    return model, ["b"]


def counts():
    """Other priors, likelihood, N, D, number and types of the data, and a variable outside the block."""
    rng = np.random.default_rng(2)
    x, level = rng.normal(size=(2700, 3)).astype("float32"), rng.integers(4, size=2700)
    with pm.Model() as model:
        b, a = pm.Laplace("b", 0, 1, shape=3), pm.Normal("a", shape=4)
        alpha = pm.Exponential("alpha", 1)
        pm.NegativeBinomial("y", mu=pm.math.exp(x @ b + a[level]), alpha=alpha, observed=rng.poisson(2, 2700))
    return model, ["b", "a"]


def engine_of(make):
    model, names = make()
    step = MetropolisHastings([model[name] for name in names], model=model, proposal=RandomWalk(0.1))
    return step._engine._transitions._engine


@pytest.mark.slow("compiles in processes of their own")
def test_a_second_model_compiles_no_kernel_anew():
    first = engine_of(line)
    with event.install_recorder("numba:compile") as recorder:
        second = engine_of(counts)
    compiled = {e.data["dispatcher"].py_func.__name__ for _, e in recorder.buffer}
    assert "engine" not in compiled
    assert first.signatures == second.signatures
    assert types.Array(types.uintp, 1, "C") in first.signatures[0]
