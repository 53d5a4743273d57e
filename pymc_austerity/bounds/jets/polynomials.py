"""Derivatives that are polynomials: in s = sigmoid(x), in 1 / (e^-x - 1), in x and phi(x) / Phi(x)."""

import math
from fractions import Fraction

import numpy as np
from numpy.polynomial import Polynomial

from pymc_austerity.bounds.jets.codes import LARGEST_ORDER
from pymc_austerity.target import Array

# Terms of the asymptotic series of erfcx and of log Phi.
SERIES = 22


def sigmoid_polynomials() -> list[Polynomial]:
    """P_k with sigmoid^(k) = P_k(s): P_(k + 1) = P_k' s (1 - s)."""
    result = [Polynomial([0.0, 1.0])]
    for _ in range(LARGEST_ORDER + 1):
        result.append(result[-1].deriv() * Polynomial([0.0, 1.0, -1.0]))
    return result


def log1mexp_polynomials() -> list[Polynomial]:
    """Q_k with (log(1 - e^x))^(k) = Q_k(b), b = 1 / (e^-x - 1): Q_(k + 1) = Q_k' b (1 + b)."""
    result = [Polynomial([0.0]), Polynomial([0.0, -1.0])]
    for _ in range(LARGEST_ORDER - 1):
        result.append(result[-1].deriv() * Polynomial([0.0, 1.0, 1.0]))
    return result


def log_ndtr_polynomials() -> Array:
    """R_k with (log Phi)^(k) = R_k(x, h), h = phi / Phi, h' = -h (x + h): of x^i h^j at [k, i, j]."""
    size = LARGEST_ORDER + 2
    result = np.zeros((LARGEST_ORDER + 1, size, size))
    result[1, 0, 1] = 1.0
    for k in range(1, LARGEST_ORDER):
        for i, j in zip(*np.nonzero(result[k]), strict=True):
            c = result[k, i, j]
            if i:
                result[k + 1, i - 1, j] += i * c
            result[k + 1, i + 1, j] -= j * c
            result[k + 1, i, j + 1] -= j * c
    return result


def taylor_table(polynomials: list[Polynomial]) -> Array:
    """Coefficients of polynomials, constant first, divided by k!: one row for each."""
    width = max(len(p.coef) for p in polynomials)
    rows = [np.pad(p.coef, (0, width - len(p.coef))) for p in polynomials]
    return np.array(rows, dtype=np.float64) / [[math.factorial(k)] for k in range(len(rows))]


def tail_series() -> tuple[Array, Array]:
    """Coefficients of v^j in A(v) = sqrt(pi) x erfcx(x), v = 1 / (2 x^2), and in log A(v)."""
    a = [Fraction(1)]
    for j in range(1, SERIES):
        a.append(-a[-1] * (2 * j - 1))
    log_a = [Fraction(0)]
    for j in range(1, SERIES):  # j a_j = sum of i l_i a_(j - i)
        log_a.append(a[j] - sum((i * log_a[i] * a[j - i] for i in range(1, j)), Fraction(0)) / j)
    return np.array(a, dtype=np.float64), np.array(log_a, dtype=np.float64)


def zeros_inside(polynomial: Polynomial, low: float, high: float) -> list[float]:
    """Real zeros strictly between low and high."""
    roots = np.asarray(polynomial.roots(), dtype=np.complex128)
    real: list[float] = roots.real[np.abs(roots.imag) < 1e-7].tolist()
    return sorted(x for x in real if low < x < high)
