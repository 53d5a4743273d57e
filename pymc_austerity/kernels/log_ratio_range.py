"""The range of all N log ratios, for rules whose guarantee needs it.

A function ``(bound, q_new, q, args, rows, target) -> float`` returns a number that
max_i l_i - min_i l_i over the rows that are sampled from does not exceed; `bound` is whatever it needs.
"""

import math
from typing import Any

from pymc_austerity.bounds.remainder import remainder_range
from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.subsample import Rows, among_others
from pymc_austerity.target import CHUNK, Target, Vector, chunk_from


@jitable
def certified_range(
    bound: Any, q_new: Vector, q: Vector, args: tuple[Any, ...], rows: Rows, target: Target
) -> float:
    """Range from a certificate of remainders, of order zero if there is no control variate, in O(D^2).

    Or in O(p^2) in p features of the state.
    """
    return remainder_range(bound, target.features(q_new, args), target.features(q, args))


@jitable
def exact_range(
    bound: Any, q_new: Vector, q: Vector, args: tuple[Any, ...], rows: Rows, target: Target
) -> float:
    """Evaluate all log ratios, as the authors of MHSubLhd do."""
    low, high = math.inf, -math.inf
    for start in range(0, rows.n_others, CHUNK):
        index = among_others(chunk_from(start, rows.n_others), rows)
        for x in target.log_ratios(q_new, q, index, args):
            if math.isnan(x):
                return math.inf  # nothing is known of the others' order, so all are read
            low = min(low, x)
            high = max(high, x)
    return high - low
