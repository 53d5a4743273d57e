"""Decision rules: is the mean of the log ratios above psi?"""

from pymc_austerity.acceptance.barker import Barker
from pymc_austerity.acceptance.base import Exact, ExactBarker
from pymc_austerity.acceptance.concentration import Concentration
from pymc_austerity.acceptance.ttest import TTest

__all__ = ["Barker", "Concentration", "Exact", "ExactBarker", "TTest"]
