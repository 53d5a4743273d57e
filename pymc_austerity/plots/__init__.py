"""Plots of what subsampling did, and of what to expect of it; they need the extra `plots`."""

from pymc_austerity.plots.agreement import plot_agreement, plot_risk
from pymc_austerity.plots.data_usage import plot_batch_mean_qq, plot_batch_sizes, plot_data_usage
from pymc_austerity.plots.designs import (
    plot_acceptance_error,
    plot_bound_schematic,
    plot_design_curves,
    plot_test_designs,
)

__all__ = [
    "plot_acceptance_error",
    "plot_agreement",
    "plot_batch_mean_qq",
    "plot_batch_sizes",
    "plot_bound_schematic",
    "plot_data_usage",
    "plot_design_curves",
    "plot_risk",
    "plot_test_designs",
]


def __dir__() -> list[str]:
    """Functions, without the modules that they are in."""
    return __all__
