"""Long variables of which a predictor contains one element for each row.

A predictor with groups, eta_i = x_i . b + u[g_i], has for each row i one element g_i of the long variable u.
`incidence` has the map from elements to rows, for terms of any form.
"""

from __future__ import annotations

from typing import NamedTuple

from pymc_austerity.target import Index


class Group(NamedTuple):
    """A long variable of which a predictor contains one element for each row."""

    variable: str  # Name of the value variable
    n_elements: int  # Its length
    elements: Index  # (n_rows,): the element that each row contains
