"""Decision rules: is the mean of the log ratios above psi?"""

from pymc_austerity.acceptance.exact import Exact
from pymc_austerity.acceptance.ttest import TTest

__all__ = ["Exact", "TTest"]
