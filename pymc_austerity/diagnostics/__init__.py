"""Diagnostics: what the approximation did, from the result of a run."""

from pymc_austerity.diagnostics.agreement import agreement
from pymc_austerity.diagnostics.data_usage import (
    data_usage_summary,
    decision_summary,
    decisions,
    effective_cost,
)
from pymc_austerity.diagnostics.inclusion import Inclusion, inclusion
from pymc_austerity.diagnostics.invariants import amari_distance, n_clusters
from pymc_austerity.diagnostics.normality import Normality, from_log_ratios, normality
from pymc_austerity.diagnostics.result import stamp

__all__ = [
    "Inclusion",
    "Normality",
    "agreement",
    "amari_distance",
    "data_usage_summary",
    "decision_summary",
    "decisions",
    "effective_cost",
    "from_log_ratios",
    "inclusion",
    "n_clusters",
    "normality",
    "stamp",
]
