"""Names of PyMC that are not public: each is there, and takes what it is called with."""

import inspect

import pytest

from pymc_austerity.sampling import pymc_names

# Parameters that are used; of classes those of their constructor.
USED = {
    "ProgressBars": {"step_method", "chains", "draws", "tune", "progressbar"},
    "NutpieProgressBarManager": {"chains", "draws", "progressbar"},
    "assign_step_methods": {"model", "step", "methods"},
    "coords_and_dims_for_inferencedata": {"model"},
    "find_constants": {"model"},
    "find_observations": {"model"},
    "get_default_tune_steps": {"step", "tune"},
    "instantiate_steppers": {
        "model", "steps", "selected_steps", "step_kwargs", "initial_point", "compile_kwargs",
    },
    "make_initial_point_fns_per_chain": {"model", "overrides", "jitter_rvs", "chains"},
    "multiprocessing_context": {"mp_ctx"},
    "quiet_logging": {"quiet"},
    "run_convergence_checks": {"idata", "model"},
    "sample_return": {
        "run", "traces", "tune", "t_sampling", "discard_tuned_samples", "compute_convergence_checks",
        "return_inferencedata", "keep_warning_stat", "idata_kwargs", "model", "quiet",
    },
    "setup_cores_blas_cores": {"blas_cores", "chains", "cores", "mp_ctx"},
}  # fmt: skip


@pytest.mark.parametrize("name", USED)
def test_parameters(name):
    assert USED[name] <= set(inspect.signature(getattr(pymc_names, name)).parameters)


def test_no_parameter_has_come_that_has_to_be_given():
    for name, used in USED.items():
        parameters = inspect.signature(getattr(pymc_names, name)).parameters.values()
        needed = {
            one.name for one in parameters if one.default is one.empty and one.kind is not one.VAR_KEYWORD
        }
        assert needed <= used, name


def test_others_are_there():
    assert pymc_names.cpu_count() >= 1
    assert {method.name for method in pymc_names.STEP_METHODS} >= {"nuts", "metropolis", "slice"}
    for name in pymc_names.__all__:
        assert getattr(pymc_names, name) is not None
