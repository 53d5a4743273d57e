"""Theory of the tests: what errors they make, how much they read, and which one to choose."""

from pymc_austerity.design.acceptance import acceptance_error, expected_data_usage, stationary_error_bound
from pymc_austerity.design.optimal import Design, optimal_design
from pymc_austerity.design.sequential import data_usage, error
from pymc_austerity.design.stopping_time import expected_share, stopping_time_bound

__all__ = [
    "Design",
    "acceptance_error",
    "data_usage",
    "error",
    "expected_data_usage",
    "expected_share",
    "optimal_design",
    "stationary_error_bound",
    "stopping_time_bound",
]
