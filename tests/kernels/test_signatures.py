"""What kernels take, and records of numbers and functions."""

import importlib
import inspect
import pkgutil

import numba
import numpy as np
import pytest
from numba.extending import register_jitable

from pymc_austerity import kernels
from pymc_austerity.acceptance import Exact, TTest
from pymc_austerity.kernels.metropolis import Rule, no_range, transitions
from pymc_austerity.kernels.subsample import rows_of
from pymc_austerity.model.compile.backend import InterpretedKernel, filled
from pymc_austerity.model.compile.protocol import call_parameters, constructor, open_fields
from pymc_austerity.proposals import RandomWalk
from pymc_austerity.target import TARGET_PARAMETERS, Target
from tests.kernels.engines import REGRESSION, normal_prior

MOST = 9
MODULES = [
    importlib.import_module(m.name) for m in pkgutil.iter_modules(kernels.__path__, f"{kernels.__name__}.")
]
FUNCTIONS = {
    f"{module.__name__}.{name}": function
    for module in MODULES
    for name, function in inspect.getmembers(module, inspect.isfunction)
    if function.__module__ == module.__name__
}


def too_long(functions):
    return {name for name, f in functions.items() if len(inspect.signature(f).parameters) > MOST}


def test_no_kernel_takes_more_than_nine_arguments():
    assert len(FUNCTIONS) > 20
    assert not too_long(FUNCTIONS)
    assert too_long({"planted": lambda a, b, c, d, e, f, g, h, i, j: 0}) == {"planted"}


# Records ------------------------------------------------------------------------------------------------

WALK = RandomWalk(0.1).bind(2)
RECORDS = {
    "rule": Rule(..., ..., *TTest(0.05, 50).functions, no_range),
    "proposal": WALK.kernel(...),
    "target": REGRESSION,
}


def test_open_fields_come_with_each_call_in_the_order_of_the_kernel():
    assert open_fields(RECORDS["rule"]) == ["schedule", "bound"]
    names = "n_transitions tune rng q args rows rule_schedule rule_bound proposal_state"
    assert call_parameters(transitions, RECORDS) == names.split()
    values = iter([1, 2, 3])
    rule = filled(RECORDS["rule"], values)
    assert (rule.schedule, rule.bound, next(values)) == (1, 2, 3)
    assert rule[2:] == RECORDS["rule"][2:]


def test_an_interpreted_kernel_fills_its_records():
    x = np.random.default_rng(1).normal(size=(400, 2))
    args, rule = (x, x @ [0.5, -1.0]), TTest(0.05, 50)
    schedule = rule.bind(400)

    def start():
        return 20, False, np.random.default_rng(2), np.array([0.5, -1.0]), args, rows_of(schedule)

    direct = Rule(schedule, None, *rule.functions, no_range), WALK.kernel(WALK.state), REGRESSION
    expected = transitions(*start(), *direct)
    ready = InterpretedKernel(transitions, RECORDS)
    for call in (ready, ready.again):
        found = call(*start(), schedule, None, WALK.state)
        np.testing.assert_array_equal(found.q, expected.q)
        assert found[1:] == expected[1:]
    assert 0 < expected.n_accepted < 20


def test_a_record_is_the_same_in_compiled_code():
    make = constructor(Rule(..., 7, *Exact().functions, no_range))

    @numba.njit
    def bound_and_end(schedule):
        rule = make(schedule)
        return rule.bound, rule.schedule.ends[-1]

    schedule = Exact().bind(12)
    assert bound_and_end(schedule) == bound_and_end.py_func(schedule) == (7, 12)
    assert make(schedule) == Rule(schedule, 7, *Exact().functions, no_range)


# Targets ------------------------------------------------------------------------------------------------


def test_stubs_have_the_parameters_of_the_functions():
    assert tuple(TARGET_PARAMETERS) == Target._fields
    assert TARGET_PARAMETERS["log_ratios"] == ("q_new", "q", "index", "args")
    assert {parameters[-1] for parameters in TARGET_PARAMETERS.values()} == {"args"}


@pytest.mark.parametrize("name", [name for name in Target._fields if name != "features"])
def test_what_a_target_lacks_raises(name):
    with pytest.raises(NotImplementedError, match="This target has no"):
        getattr(Target(), name)(*[None] * len(TARGET_PARAMETERS[name]))


def test_without_features_they_are_the_state_itself():
    q = np.arange(3.0)
    assert Target().features(q, ()) is q


def test_functions_that_are_not_called_need_not_compile():
    @register_jitable
    def not_for_numba(q, args):
        return dict(q=q)[args]

    make = constructor(Target(normal_prior, global_gradient=not_for_numba))

    @numba.njit
    def ratio(q_new, q):
        return make().global_log_ratio(q_new, q, ())

    assert ratio(np.ones(2), np.zeros(2)) == normal_prior(np.ones(2), np.zeros(2), ()) != 0.0
