"""How many shared variables a plate may have."""

from collections.abc import Sequence

import numpy as np

from pymc_austerity.model.plates.gathers import LargeFactor
from pymc_austerity.model.plates.inner_effects import InnerEffects
from pymc_austerity.model.plates.plate_rows import PlateRows

# Shared coefficients, at most: their covariance is kept, and moved.
MOST_SHARED = 200
# Effects of outer groups, at most: their covariance is kept, though each is moved for itself. More than these
# are a long term, as the rows of data are.
MOST_OUTER = 999
_CHUNK = 16_384


def require_few_shared(name: str, rows: PlateRows, inner: Sequence[InnerEffects]) -> None:
    """Are there few shared coefficients beside the effects `name`?

    Raises
    ------
    LargeFactor
        If not. Effects of outer groups, which each group has one of, may be more.
    """
    most = max((len(one.coordinates) for one in inner), default=0)
    if most > MOST_OUTER:
        raise LargeFactor(
            f"the location of the effects {name!r}, or the likelihood, has {most:,} effects of other groups, "
            f"and a plate takes {MOST_OUTER:,} at most of these"
        )
    n = len(rows.places)
    if n <= MOST_SHARED:
        return
    nested = [own for f, own in enumerate(rows.factors) if is_nested(rows, f)]
    n -= max((len(own) for own in nested for one in inner if np.array_equal(own, one.coordinates)), default=0)
    if n > MOST_SHARED:
        raise LargeFactor(
            f"there are {n} shared coefficients beside the effects {name!r}, and {MOST_SHARED} at most are "
            "moved together: of two large factors one has to be nested in the other"
        )


def is_nested(rows: PlateRows, factor: int) -> bool:
    """Do all rows of a group have the same level of a factor?"""
    seen = np.full(rows.n_groups, -1)
    for start in range(0, rows.n_rows, _CHUNK):
        chunk = np.arange(start, min(start + _CHUNK, rows.n_rows))
        groups, levels = rows.groups(chunk), rows.levels(chunk)[factor]
        first = seen[groups] < 0
        seen[groups[first]] = levels[first]
        if np.any(seen[groups] != levels):
            return False
    return True
