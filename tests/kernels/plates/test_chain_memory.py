"""What a chain remembers beside the values of the model, where these no longer tell it."""

import numpy as np
import pytest

from pymc_austerity.kernels.plates.chain_memory import begin, end, new_memory
from pymc_austerity.kernels.plates.moves import at_theta, no_state
from tests.kernels.plates.cases import case_of
from tests.kernels.plates.test_nested import case_of as nested_case_of

CASES = {
    "centered": lambda: case_of("bernoulli", "centered", 400),
    "non-centered": lambda: case_of("bernoulli", "non-centered", 400),
    "student": lambda: case_of("bernoulli", "student", 400),
    "slopes": lambda: case_of("bernoulli", "slopes", 400),
    "lkj": lambda: case_of("bernoulli", "lkj", 400),
    "nested": lambda: nested_case_of("centered"),
    "both non-centered": lambda: nested_case_of("both non-centered"),
}
# Of the last scale, which is far below what location and rounding leave of effects.
TINY = {"lkj": None, "slopes": "tau_b_log__", "nested": "tau_v_log__", "both non-centered": "tau_v_log__"}


def there_and_back(case, theta, eps, delta, memory):
    """A state as it is returned, and what a chain goes on with from there."""
    q = np.empty(len(theta) + len(eps))
    empty = no_state(len(theta), case.arrays)
    state = at_theta(empty, theta, delta, eps, case.arrays, case.args, case.target)
    end(q, state, case.arrays, memory, case.args, case.target)
    found, _ = begin(q.copy(), case.arrays, memory, case.args, case.target)
    return q, found


@pytest.mark.parametrize("spelling", CASES)
@pytest.mark.parametrize("log_scale", [None, -45.0])
@pytest.mark.covering(1)
def test_a_chain_goes_on_where_it_was(spelling, log_scale):
    case, rng = CASES[spelling](), np.random.default_rng(1)
    theta, eps = case.draw(rng)
    delta = case.delta(theta)
    name = TINY.get(spelling, "tau_log__")
    if log_scale is not None and name is not None:
        names = [case.plate.shared.coordinate(k)[0] for k in range(len(theta))]
        theta[names.index(name)] = log_scale
    memory = new_memory(case.arrays, len(theta) + len(eps))
    q, found = there_and_back(case, theta, eps, delta, memory)
    np.testing.assert_allclose(found.eps, eps, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(found.delta, delta, rtol=1e-7, atol=1e-7)
    is_lost = (
        log_scale is not None and name is not None and spelling in ("centered", "student", "slopes", "nested")
    )
    # Planted fault: the chain forgets, and takes z from the values again.
    forgotten, _ = begin(q.copy(), case.arrays, new_memory(case.arrays, len(q)), case.args, case.target)
    wrong = max(np.abs(forgotten.eps - eps).max(), np.abs(forgotten.delta - delta).max(initial=0.0))
    assert (wrong > 1e-2) == is_lost


@pytest.mark.covering(1)
def test_other_values_are_taken_as_they_are():
    case, rng = CASES["nested"](), np.random.default_rng(2)
    theta, eps = case.draw(rng)
    memory = new_memory(case.arrays, len(theta) + len(eps))
    q, _ = there_and_back(case, theta, eps, case.delta(theta), memory)
    other = q.copy()
    other[-1] += 0.25
    found, _ = begin(other.copy(), case.arrays, memory, case.args, case.target)
    fresh, _ = begin(other.copy(), case.arrays, new_memory(case.arrays, len(q)), case.args, case.target)
    np.testing.assert_array_equal(found.eps, fresh.eps)
    assert abs(found.eps[-1] - eps[-1]) > 0.01


@pytest.mark.covering(1)
def test_scales_that_another_step_moved_are_noticed():
    """The effects are the same then, and z is not."""
    case, rng = CASES["centered"](), np.random.default_rng(3)
    theta, eps = case.draw(rng)
    memory = new_memory(case.arrays, len(theta) + len(eps))
    q, _ = there_and_back(case, theta, eps, case.delta(theta), memory)
    wider = case.target._replace(
        features=lambda theta, args: case.target.features(theta, args) * [2.0, 1.0, 1.0]
    )
    found, _ = begin(q.copy(), case.arrays, memory, case.args, wider)
    fresh, _ = begin(q.copy(), case.arrays, new_memory(case.arrays, len(q)), case.args, wider)
    np.testing.assert_array_equal(found.eps, fresh.eps)


@pytest.mark.covering(1)
def test_a_run_that_does_not_end_is_not_remembered():
    """What it began with is of another state than the one that was returned."""
    case, rng = CASES["centered"](), np.random.default_rng(4)
    theta, eps = case.draw(rng)
    memory = new_memory(case.arrays, len(theta) + len(eps))
    q, _ = there_and_back(case, theta, eps, case.delta(theta), memory)
    other = q.copy()
    other[-3:] += 0.5
    begin(other, case.arrays, memory, case.args, case.target)
    found, _ = begin(q.copy(), case.arrays, memory, case.args, case.target)
    np.testing.assert_allclose(found.eps, eps, rtol=1e-7, atol=1e-7)
