"""Gamma, exponential and chi-squared variables: theta itself."""

from collections.abc import Sequence
from typing import Any

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import ExponentialRV, GammaRV

from pymc_austerity.model.conjugacy.families.positive import PositiveFamily


class Gamma(PositiveFamily):
    """Gamma variables, x = theta."""

    distributions = (GammaRV, ExponentialRV)
    pymc_names = ("Gamma", "Exponential", "ChiSquared")

    def parameter_graphs(self, parameters: Sequence[Variable]) -> list[Variable]:
        """Shape, which is one of exponential variables, and rate, the inverse of PyTensor's scale."""
        *shape, scale = parameters
        return [*(shape or [pt.constant(1.0)]), 1.0 / scale]

    def log_theta_of(self, log_x: Any) -> Any:
        """The logarithm of theta, which is log x."""
        return log_x

    def log_x_of(self, log_theta: Any) -> Any:
        """The logarithm of x, which is log theta."""
        return log_theta
