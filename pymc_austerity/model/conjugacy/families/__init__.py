"""Families of variables that are made of gamma variables, one in each file.

Whoever adds one imports it here and puts it into `FAMILIES`; nothing else knows which there are.
"""

from typing import Any

from pymc_austerity.model.conjugacy.families.base import GammaFamily
from pymc_austerity.model.conjugacy.families.beta import Beta
from pymc_austerity.model.conjugacy.families.dirichlet import Dirichlet
from pymc_austerity.model.conjugacy.families.gamma import Gamma
from pymc_austerity.model.conjugacy.families.inverse_gamma import InverseGamma
from pymc_austerity.model.conjugacy.families.positive import PositiveFamily
from pymc_austerity.model.conjugacy.families.simplex import SimplexFamily

FAMILIES: list[type[GammaFamily]] = [Gamma, InverseGamma, Beta, Dirichlet]


def family_of(op: Any) -> type[GammaFamily] | None:
    """The family of a random variable's operation; None if it is not made of gamma variables."""
    return next((family for family in FAMILIES if isinstance(op, family.distributions)), None)


__all__ = ["FAMILIES", "GammaFamily", "PositiveFamily", "SimplexFamily", "family_of"]
