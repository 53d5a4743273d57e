"""What a subsampled step reports of each draw, in sample statistics and in the progress bar."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
from rich.progress import TextColumn
from rich.table import Column

from pymc_austerity.kernels.metropolis import Outcome

if TYPE_CHECKING:
    from pymc_austerity.kernels.elements import ElementOutcome

DTYPES_SHAPES: dict[str, tuple[type, list[int]]] = {
    # A float, as in pm.Metropolis: equal names must have equal types.
    "accepted": (np.float64, []),
    # The name that PyMC's traces show as `acceptance_rate`, of NUTS too: equal names stack.
    "mean_tree_accept": (np.float64, []),
    "n_used": (np.float64, []),
    "fraction_used": (np.float64, []),
    "n_stages": (np.float64, []),
    "exhausted": (np.float64, []),
    "log_ratio_mean": (np.float64, []),
    "log_ratio_se": (np.float64, []),
    "psi": (np.float64, []),
    "scale": (np.float64, []),
}

# What rules have besides that may take a variance for smaller than it is.
CLIPPED_DTYPES_SHAPES: dict[str, tuple[type, list[int]]] = {"clipped": (np.float64, [])}

# What sweeps over a plate have besides.
PLATE_DTYPES_SHAPES: dict[str, tuple[type, list[int]]] = {
    "shared_n_used": (np.float64, []),
    "plate_n_used": (np.float64, []),
    "plate_acceptance": (np.float64, []),
}


def also_report(step: Any, more: dict[str, tuple[type, list[int]]]) -> None:
    """Announce sample statistics that this step has, and not every step of its class."""
    own = {**step.stats_dtypes_shapes, **more}
    kinds = {name: kind for name, (kind, _) in own.items()}
    vars(step).update(stats_dtypes_shapes=own, stats_dtypes=[kinds])


def plate_statistics(outcome: Any, n: int, n_readings: int) -> dict[str, Any]:
    """Means over the n sweeps of a draw; `exhausted` is the share of groups of which all rows were read.

    `outcome` is a `kernels.plates.sweeps.SweepOutcome`. `n_readings` are the moves of all groups with rows.
    """
    return {
        "exhausted": outcome.whole_groups / n / n_readings,
        "shared_n_used": outcome.shared_n_used / n,
        "plate_n_used": outcome.plate_n_used / n,
        "plate_acceptance": outcome.plate_accepted / n,
    }


def _with_rows_of_proposal(outcome: Outcome, proposal_state: Any) -> Outcome:
    """The outcome with what the proposal has read since the last draw, if it reads local terms."""
    n_read = getattr(proposal_state, "n_read", None)
    if n_read is None:
        return outcome
    total = outcome.n_used + int(n_read[0])
    n_read[0] = 0
    return outcome._replace(n_used=total)


def statistics(
    outcome: Outcome | ElementOutcome, n: int, n_local: int, state: Any, clips: bool = False
) -> dict[str, Any]:
    """Means over the n transitions of a draw; the last three but `scale` are those of the last transition.

    `fraction_used` is `n_used` / N: passes over the data. A sweep over a plate may need more than one, as
    each of its moves is decided on up to N rows. Of moves of single elements it is a share of the rows that
    contain them, and `scale` the mean over the elements. `state` is that of the proposal. `clips` asks for
    `clipped`.
    """
    n_possible: int | None = getattr(outcome, "n_possible", None)
    if n_possible is not None:
        passes, scale = outcome.n_used / max(1, n_possible), float(np.mean(state.scale))
    else:
        outcome = _with_rows_of_proposal(cast(Outcome, outcome), state)
        passes, scale = outcome.n_used / n / n_local, state.scale[0]
    return {
        "accepted": float(outcome.accepted),
        "mean_tree_accept": outcome.n_accepted / n,
        "n_used": outcome.n_used / n,
        "fraction_used": passes,
        "n_stages": outcome.n_stages / n,
        "exhausted": outcome.n_exhausted / n,
        "log_ratio_mean": outcome.log_ratio_mean,
        "log_ratio_se": outcome.log_ratio_se,
        "psi": outcome.psi,
        "scale": scale,
        **({"clipped": outcome.n_clipped / n} if clips else {}),
    }


def progress_columns(n_chains: int = 1) -> tuple[list[TextColumn], dict[str, list[float]]]:
    """Columns of the progress bar, and what they begin with."""
    columns = [
        TextColumn("{task.fields[acceptance_rate]:0.2f}", table_column=Column("Acceptance", ratio=1)),
        TextColumn("{task.fields[fraction_used]:0.3f}", table_column=Column("Share of data", ratio=1)),
    ]
    return columns, {"acceptance_rate": [0.0] * n_chains, "fraction_used": [0.0] * n_chains}


def progress_updates() -> tuple[Any, ...]:
    """Functions from the statistics of a draw to the fields of the columns."""

    def update_stats(step_stats: dict[str, Any]) -> dict[str, Any]:
        return {
            "acceptance_rate": step_stats["mean_tree_accept"],
            "fraction_used": step_stats["fraction_used"],
        }

    return (update_stats,)
