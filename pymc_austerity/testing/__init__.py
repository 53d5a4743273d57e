"""Any decision rule, any proposal, any step, run through the same checks.

For whoever writes their own: plain functions that raise `AssertionError`, with or without a test framework.
"""

from pymc_austerity.testing.proposals import check_proposal
from pymc_austerity.testing.rules import check_rule
from pymc_austerity.testing.steps import check_posterior, check_step

__all__ = ["check_posterior", "check_proposal", "check_rule", "check_step"]
