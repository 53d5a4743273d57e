"""Inverse gamma variables: 1 / theta."""

from typing import Any

from pytensor.tensor.random.basic import InvGammaRV

from pymc_austerity.model.conjugacy.families.positive import PositiveFamily


class InverseGamma(PositiveFamily):
    """x = 1 / theta; the scale of x is the rate of theta."""

    distributions = (InvGammaRV,)
    pymc_names = ("InverseGamma",)

    def log_theta_of(self, log_x: Any) -> Any:
        """The logarithm of theta, which is -log x."""
        return -log_x

    def log_x_of(self, log_theta: Any) -> Any:
        """The logarithm of x, which is -log theta."""
        return -log_theta
