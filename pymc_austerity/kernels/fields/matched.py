"""Effects that are normal only nearly: gamma, inverse gamma, beta and logistic ones, on the scale of PyMC.

v = log u, logit u, or a standard logistic number, has a mean m and a standard deviation s that are functions
of theta. With v = m + s z,

    log p(z | theta) = -z^2 / 2 + excess(z, theta) + a function of theta,
    excess = z^2 / 2 + a (v - m) - b (K(v) - K(m)),

where K(v) is exp(v) for gamma, exp(-v) for inverse gamma and log(1 + exp(v)) for others. The tree has
N(0, 1), and a quadratic V_z of each excess, which is averaged as that of the rows is. By how much the excess
changes more than V_z is weighed in each decision: that of all such effects with theta, and of those that move
with a node. No row is read for that.
"""

import math

from pymc_austerity.compilation import jitable
from pymc_austerity.kernels.fields.records import FieldArrays, Matched
from pymc_austerity.target import Vector

# Which K(v); of what is beyond this the exponential is infinite.
EXPONENTIAL, OF_MINUS, LOGISTIC = 0, 1, 2
_LARGEST = 700.0


@jitable
def excess(matched: Matched, k: int, features: Vector, z: float) -> float:
    """What the log density of an effect has besides that of N(0, 1) and functions of theta."""
    constants, numbers = matched.constants, matched.numbers
    a, b = constants[0, k] * features[numbers[0, k]], constants[1, k] * features[numbers[1, k]]
    mean, sd = constants[2, k] * features[numbers[2, k]], constants[3, k] * features[numbers[3, k]]
    change, kind = sd * z, matched.kinds[k]
    if kind == LOGISTIC:
        curve = _softplus(mean + change) - _softplus(mean)
    else:
        sign = 1.0 if kind == EXPONENTIAL else -1.0
        curve = math.inf
        if sign * change < _LARGEST:
            curve = math.exp(sign * mean) * math.expm1(sign * change)
    found: float = 0.5 * z * z + a * change - b * curve
    return found


@jitable
def _softplus(x: float) -> float:
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@jitable
def add_excess(plan: FieldArrays, now: int, old: Vector, new: Vector) -> None:
    """Add what the excess changes more than V_z, by the nodes that decide; features of both sides."""
    room, matched, sums = plan.room, plan.prior.matched, plan.sums
    for k in range(matched.coordinates.shape[0]):
        c = matched.coordinates[k]
        g = room.deciding[plan.tree.node_of[c]]
        if g >= 0:
            z, z2 = room.z[now, c], room.z[1 - now, c]
            change = excess(matched, k, new, z2) - excess(matched, k, old, z)
            change -= (z2 - z) * (sums.matched_right[k] - 0.5 * sums.matched_hessian[k] * (z2 + z))
            room.base[g] += change if math.isfinite(change) else -math.inf
