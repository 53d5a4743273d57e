"""What a chain on a field remembers beside the values of the model, where these no longer tell it."""

import numpy as np
import pytest

from pymc_austerity.model.compile.backend import interpreted
from pymc_austerity.step_methods.metropolis.engine.fields import FieldEngine
from tests.mode.fields.fields import fitted, turns_of


def there_and_back(name, log_scale):
    """Coordinates of a state, and those from which a chain goes on: by memory, and by the values alone."""
    one, rng = fitted(name), np.random.default_rng(1)
    values, point = one.field.values, one.model.initial_point()
    theta = one.fit.theta.copy()
    names = [values.shared.coordinate(k)[0] for k in range(len(theta))]
    if log_scale is not None:
        theta[next(k for k, own in enumerate(names) if own.endswith("log__"))] = log_scale
    z = rng.standard_normal(values.maps.n_coordinates)
    with interpreted():
        engine = FieldEngine(values, turns_of(one), point)
        found = []
        for is_kept in (True, False):
            state, q = engine.new_state(), values(theta, z)
            if is_kept:
                state.memory.theta[:], state.memory.z[:], state.memory.q[:] = theta, z, q
                state.memory.eps[:] = np.nan
            engine.run(0, False, rng, q, point, state)
            found.append(state.memory.z.copy())
    return z, *found


@pytest.mark.parametrize(
    ("name", "log_scale"),
    [
        ("one_factor", None),
        ("one_factor", -45.0),
        ("three_levels", None),
        ("three_levels", -45.0),
        ("walk", None),
        ("areas", None),
        ("survey", None),
        ("dispersions", None),
        ("heavy_tails", None),
        ("normal_rows", None),
    ],
)
def test_a_chain_goes_on_where_it_was(name, log_scale):
    """Planted fault: a chain that forgets takes z from the values again, where a small scale has lost it."""
    z, kept, forgotten = there_and_back(name, log_scale)
    np.testing.assert_allclose(kept, z, rtol=1e-12, atol=0.0)
    assert (np.abs(forgotten - z).max() > 1e-2) == (log_scale is not None)
