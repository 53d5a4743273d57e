"""`factorise`: its arguments, and the index of its terms."""

import numpy as np
import pytest

from pymc_austerity import factorise

from . import catalogue
from .factorise_checks import assert_close, check_positions, check_sum


def test_only_variables_of_interest_can_be_refused():
    """A term that couples rows but does not contain the variables asked for is left out."""
    model, _ = catalogue.cumulated_predictor()
    with model:
        catalogue.pm.Normal("other", 0, 1)
        split = factorise(vars=[model["other"]])
    assert split.n_local == 0
    assert split.global_terms == ["other"]


def test_threshold():
    model, _ = catalogue.two_observed()
    logp = model.compile_logp()
    point = model.initial_point()
    for threshold, names in [(1204, ["y", "z"]), (1205, ["z"]), (3000, [])]:
        split = factorise(model, threshold=threshold)
        assert [name for name, _ in split.local_terms] == names
        check_sum(split, logp, point)
        check_positions(split, point)
    assert split.n_local == 0
    assert split.log_density_terms(point).shape == (0,)


def test_value_variables():
    model, _ = catalogue.varying_intercepts_many_groups()
    rvs = [model["tau"], model["sigma"]]
    by_rv = factorise(model, rvs)
    by_value = factorise(model, [model.rvs_to_values[rv] for rv in rvs])
    point = model.initial_point()
    assert by_rv.local_terms == by_value.local_terms == [("theta", 1500), ("y", 4000)]
    assert set(by_rv.global_terms) == {"tau", "sigma"}
    assert by_rv.global_log_density(point) == by_value.global_log_density(point)
    assert_close(by_rv.log_density_terms(point), by_value.log_density_terms(point))


def test_model_in_context():
    model, _ = catalogue.normal()
    with model:
        split = factorise()
    check_sum(split, model.compile_logp(), model.initial_point())


def test_initial_point():
    model, _ = catalogue.linear_dot()
    point = {name: value + 1 for name, value in model.initial_point().items()}
    split, expected = factorise(model, initial_point=point), factorise(model)
    assert split.local_terms == expected.local_terms
    assert split.global_terms == expected.global_terms
    check_sum(split, model.compile_logp(), point)


def test_index():
    model, _ = catalogue.two_observed()
    split, point = factorise(model), model.initial_point()
    full = split.log_density_terms(point)
    assert_close(split.log_density_terms(point, [3408, 0, 3408]), full[[3408, 0, 3408]])
    for outside in [-1, 3409]:
        with pytest.raises(IndexError):
            split.log_density_terms(point, np.array([0, outside]))
