"""`Recommendation`: what `recommend` chose, and why."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, NamedTuple

from pymc_austerity.mode.mode_fit import ModeReport
from pymc_austerity.step_methods.messages import rows_of_draw
from pymc_austerity.step_methods.metropolis.mixing_pilot import Mixing

if TYPE_CHECKING:
    from pymc_austerity.step_methods.metropolis.field_pilot import FieldPrediction

# A terminal has 80 columns.
_WIDTH, _INDENT = 79, 15


class Recommendation(NamedTuple):
    """What `recommend` chose, and why."""

    step: str  # The step, as one would write it
    reason: str
    # vars, others: variables that it updates, and those that are left to `pymc.sample`
    vars: tuple[str, ...]
    others: tuple[str, ...]
    # N, the rows of the likelihood, without elements of priors; None if their shapes cannot be found
    n_local: int | None
    n_dim: int  # D, the dimensions of `vars`
    # Which bound is known for what a row adds to the normal distribution at the mode, or why none is
    certificate: str
    # Rows that a transition is expected to read; None for `pm.NUTS`, which reads all at each leapfrog step
    rows: float | None
    fit: ModeReport | None  # How well the normal distribution at the mode fits; None if it was not found
    guarantee: str
    # What would change the choice, and which parameters are in the way; for `pm.NUTS` also what is faster
    otherwise: str
    # Rows and acceptance rates of either move, by a pilot run, if effects are moved as a field
    field: FieldPrediction | None = None
    mixing: Mixing | None = None  # Effective draws for a draw, by a pilot run; None where there was none

    def __str__(self) -> str:
        rows = "all, at each leapfrog step"
        if self.rows is not None:
            rows = rows_of_draw(self.rows, self.n_local or 0)
        n_rows = "" if self.n_local is None else f"N = {self.n_local:,} rows, "
        lines = {
            "because": self.reason,
            "size": f"{n_rows}D = {self.n_dim:,} dimensions",
            "bound": self.certificate,
            "rows": rows,
            "guarantee": self.guarantee,
            "otherwise": self.otherwise,
        }
        if self.rows is None:
            del lines["bound"]
        if self.field is not None:
            lines["field"] = str(self.field)
        elif self.fit is not None and self.rows is not None:
            lines["normal fit"] = (
                f"{self.fit.acceptance:.0%} of independent draws from it would be accepted; the error of its "
                f"log density has a standard deviation of {self.fit.remainder_sd:.2g}"
            )
        if self.mixing is not None:
            lines["mixing"] = str(self.mixing)
        if self.others:
            lines["not updated"] = f"{', '.join(self.others)}: left to pm.sample()"
        return "\n".join(
            [textwrap.fill(f"{self.step} for {', '.join(self.vars)}", _WIDTH, subsequent_indent="  ")]
            + [
                textwrap.fill(
                    line, _WIDTH, initial_indent=f"  {title}".ljust(_INDENT), subsequent_indent=" " * _INDENT
                )
                for title, line in lines.items()
            ]
        )
