"""What runs steps to judge them: `probe`, `compare` and `sbc`."""

from pymc_austerity.report.calibration import sbc
from pymc_austerity.report.compare import compare
from pymc_austerity.report.comparison import Comparison
from pymc_austerity.report.probe import probe

__all__ = ["Comparison", "compare", "probe", "sbc"]
