"""The largest derivative of second or third order over an interval, in closed form, for some likelihoods.

Where |f''| or |f'''| has no local maxima but those listed, its largest value from low to high is at the point
that is nearest to one of them.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.special import erfcx

PEAKS = {
    "logistic": {2: [0.0], 3: [-math.log(2 + math.sqrt(3)), math.log(2 + math.sqrt(3))]},
    "cloglog": {2: [0.6208296545655724], 3: [-0.1989415669582954, 1.4266906535862955]},
    "probit": {2: [-math.inf], 3: [1.0023693422683704]},
    "student t": {
        2: [-math.sqrt(3), 0.0, math.sqrt(3)],
        3: [s * (math.sqrt(2) + t) for s in (-1, 1) for t in (-1, 1)],
    },
}


def _logistic(x, degree):
    e = np.exp(-np.abs(x))
    second = e / (1 + e) ** 2
    return second if degree == 2 else -second * np.expm1(-np.abs(x)) / (1 + e)


def _cloglog(x, degree):
    g = np.exp(x)
    s = g / np.expm1(g)
    a, b = g + s - 1, 1 - s
    return s * a if degree == 2 else s * np.abs(a**2 - (1 + a) * b)


def _probit(x, degree):
    h = math.sqrt(2 / math.pi) / erfcx(-x / math.sqrt(2))
    u = x + h
    return h * u if degree == 2 else h * (u * (u + h) - 1)


def _student(x, degree):
    z = 1 / (1 + x**2)
    return np.abs(z * (2 * z - 1) if degree == 2 else 2 * x * z**2 * (4 * z - 1))


_SIZES = {"logistic": _logistic, "cloglog": _cloglog, "probit": _probit, "student t": _student}


def _largest(name, low, high, degree):
    peaks = PEAKS[name][degree]
    return np.max([_SIZES[name](np.clip(peak, low, high), degree) for peak in peaks], axis=0)


def curvature(name, y, low, high, degree):
    """The largest |f^(degree)| from low to high, for `jets.likelihoods` with one predictor."""
    if name == "logistic":
        return _largest(name, low, high, degree)
    if name == "negative binomial":
        return (y + 2) * _largest("logistic", low - math.log(2), high - math.log(2), degree)
    if name == "poisson":
        return np.exp(high)
    if name == "gamma":
        return 3 * y * np.exp(-low)
    if name == "normal":
        return np.full(len(y), 1.0 if degree == 2 else 0.0)
    if name == "student t":
        unit = math.sqrt(5)
        return 6 / unit**degree * _largest(name, (low - y) / unit, (high - y) / unit, degree)
    if name == "cloglog":
        return np.where(y > 0, _largest(name, low, high, degree), np.exp(high))
    if name == "probit":
        return np.where(y > 0, _largest(name, low, high, degree), _largest(name, -high, -low, degree))
    raise KeyError(name)


def normal_norms(eta, directions, y, radius, degree):
    """Of normal errors with a free scale: the largest derivative along unit vectors, for |w| <= radius.

    With s = exp(-zeta) and r = (y - eta) s, along a change (a, b) of (eta, zeta),

        f''  = -(s^2 a^2 + 4 r s a b + 2 r^2 b^2),    f''' = b (6 s^2 a^2 + 12 r s a b + 4 r^2 b^2),

    with s and |r| at their largest in the rectangle that |w| <= radius can reach, and a dense set of angles.
    """
    length = np.linalg.norm(directions, axis=2)
    s = np.exp(-eta[:, 1] + radius * length[:, 1])
    r = (np.abs(y - eta[:, 0]) + radius * length[:, 0]) * s
    cosine = np.abs(np.einsum("md,md->m", directions[:, 0], directions[:, 1])) / length.prod(axis=1)
    t0 = np.arccos(np.minimum(cosine, 1.0))[:, None]
    t = t0 * np.linspace(0.0, 1.0, 2001)
    a, b = length[:, :1] * np.cos(t), length[:, 1:] * np.cos(t - t0)
    s, r = s[:, None], r[:, None]
    if degree == 2:
        return (s**2 * a**2 + 4 * r * s * a * b + 2 * r**2 * b**2).max(axis=1)
    return (b * (6 * s**2 * a**2 + 12 * r * s * a * b + 4 * r**2 * b**2)).max(axis=1)
