"""Families of distributions that effects of groups may have: those with a location and a scale."""

from collections.abc import Callable
from typing import Any, NamedTuple

import pytensor.tensor as pt
from pytensor.graph.basic import Variable
from pytensor.tensor.random.basic import CauchyRV, LaplaceRV, LogisticRV, NormalRV, StudentTRV
from scipy import stats

# The mass of a normal distribution below one standard deviation.
_BELOW_ONE_SD = float(stats.norm.cdf(1.0))


class Family(NamedTuple):
    """A standard distribution, of location 0 and scale 1."""

    name: str  # As PyMC calls it
    distribution: Callable[[float], Any]  # callable: ``(shape) -> ``, as SciPy has it
    degrees: float = 0.0  # Degrees of freedom that the name fixes; 0 for none

    def fixed_shape(self) -> Variable:
        """The shape, where the model has none."""
        return pt.constant(self.degrees, dtype="float64")

    def ratio(self, shape: float) -> float:
        """The standard deviation of a normal distribution with as much mass within it."""
        return 1.0 if self.name == "Normal" else float(self.distribution(shape).ppf(_BELOW_ONE_SD))


FAMILIES: dict[type, Family] = {
    NormalRV: Family("Normal", lambda shape: stats.norm()),
    StudentTRV: Family("StudentT", lambda shape: stats.t(shape)),
    CauchyRV: Family("Cauchy", lambda shape: stats.t(1.0), 1.0),
    LaplaceRV: Family("Laplace", lambda shape: stats.laplace()),
    LogisticRV: Family("Logistic", lambda shape: stats.logistic()),
}
