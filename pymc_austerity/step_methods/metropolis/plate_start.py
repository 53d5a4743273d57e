"""Where a chain on a plate begins, and what its user is told before."""

import logging
import math
from collections.abc import Callable

import numpy as np

from pymc_austerity.exceptions import warn
from pymc_austerity.mode.plates.fit import SharedFit
from pymc_austerity.step_methods.metropolis.mixing_pilot import warn_of_poor_mixing
from pymc_austerity.step_methods.metropolis.plate_pilot import PlatePrediction
from pymc_austerity.target import Vector

logger = logging.getLogger(__name__)

# States that are further out than all but very few draws of the fitted distribution.
_FAR = 5.0
# Below this acceptance rate chains mix badly.
_POOR = 0.2


def start_of_plate(
    q: Vector,
    default: Callable[[], Vector],
    drawn: Callable[[], Vector],
    distance: tuple[Callable[[], float], int],
    names: str,
) -> Vector:
    """A first state: a draw of the fitted distribution, or q if somebody has chosen it.

    The chain is to begin at `q`. `default` returns the model's initial point, where chains begin if nobody
    says where; `distance` are how many standard deviations the shared variables are from the fitted
    distribution there, and how many they are; `names` are those of the variables, for the warning.
    """
    if np.allclose(q, default()):
        logger.info("%s: the chain starts from a draw of the fitted distribution.", names)
        return drawn()
    measured, n = distance
    found = measured()
    if found**2 > n + _FAR * math.sqrt(2.0 * n):
        warn(
            f"The chain starts {found:.3g} standard deviations from the distribution that was fitted to "
            f"the shared variables of {names}, at a point that is not the model's initial point and was "
            "therefore kept. Proposals may be rejected there for long. Without initvals the chain starts "
            "from a draw of the fitted distribution."
        )
    return q


def distance_of(fit: SharedFit, theta: Vector) -> float:
    """How many standard deviations theta is from the distribution that was fitted to a plate."""
    return float(np.linalg.norm(np.linalg.solve(fit.slopes @ fit.factor, theta - fit.theta)))


def tell_of_plate(
    prediction: PlatePrediction, n_rows: int, name_of: Callable[[int], str], *, reads_all_instead: bool
) -> None:
    """Warn if the shared variables will mix badly, or if all rows are read where few were asked for.

    `name_of` gives the variable that a coordinate belongs to.
    """
    mixing = prediction.mixing
    if prediction.shared_acceptance < _POOR:
        warn(
            f"Moves of what the {prediction.n_groups:,} groups share are accepted at a rate of about "
            f"{prediction.shared_acceptance:.2f}: {prediction.why_few(n_rows)}. The chain is exact, "
            "and mixes slowly. pm.NUTS may suit the model better."
        )
    elif mixing is not None and mixing.is_poor:
        warn_of_poor_mixing(mixing, name_of(mixing.dimension), is_plate=True)
    if reads_all_instead:
        warn(
            f"TunaMH would draw many of {n_rows:,} rows for a sweep over {prediction.n_groups:,} "
            "groups: all are read instead."
        )
