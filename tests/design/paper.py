"""Equations 10 to 12, 21 and 22 of Korattikara et al. (2014) as they stand, by Simpson's rule.

Nothing is shared with the package: the density of z_j itself is carried from stage to stage, with its drift.
"""

import numpy as np
from scipy.special import ndtr, ndtri


def paper_law(mu_std, n_local, batch, epsilon, boundary=0.5, size=801, count=None):
    """Error and data usage at one mu_std >= 0, with the errata: the last stage is exact.

    `count` stages, if given; more or fewer than ceil(N / m) would be a mistake.
    """
    ends = np.append(np.arange(batch, n_local, batch), n_local)
    share = ends[:count] / n_local
    bound = ndtri(1 - epsilon) * share ** (0.5 - boundary)
    unit = np.linspace(-1, 1, size)
    simpson = np.where(np.arange(size) % 2, 4.0, 2.0) / 3 * (unit[1] - unit[0])
    simpson[[0, -1]] /= 2
    wrong = used = 0.0
    z, mass, before = np.zeros(1), np.ones(1), 0.0
    for pi, g in zip(share[:-1], bound[:-1], strict=True):
        mean = mu_std * (pi - before) / (1 - before) / np.sqrt(pi * (1 - pi))
        mean = mean + z * np.sqrt(before / pi * (1 - pi) / (1 - before))
        sd = np.sqrt((pi - before) / (pi * (1 - before)))
        low, high = mass @ ndtr((-g - mean) / sd), mass @ ndtr((mean - g) / sd)
        wrong, used = wrong + low, used + pi * (low + high)
        z = g * unit
        density = np.exp(-0.5 * ((z[:, None] - mean) / sd) ** 2) / (sd * np.sqrt(2 * np.pi))
        mass, before = g * simpson * (density @ mass), pi
    return wrong, used + share[-1] * mass.sum()
