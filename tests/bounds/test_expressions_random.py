"""Random expressions at random points: constructors keep the value, and ranges contain it."""

from collections.abc import Callable

import mpmath
import numpy as np
import pytest

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import Expression, constant, data, predictor
from tests.bounds.expressions import evaluate, log_ndtr_between, values
from tests.bounds.spellings import betaln

N_PREDICTORS = 3
# Columns of data: a positive one, a count, a class, and one of any sign.
COLUMNS = [(0.1, 4.0), (0.0, 6.0), (0.0, 3.0), (-2.0, 2.0)]
TOO_LARGE = mpmath.mpf(10) ** 8

Function = Callable[..., mpmath.mpf]


def sign(x: mpmath.mpf) -> mpmath.mpf:
    return mpmath.mpf((x > 0) - (x < 0))


def anything(*args: mpmath.mpf) -> bool:
    return True


# What is asked of the constructors, and what it means; with what the arguments must satisfy.
UNARY: list[tuple[Callable[..., Expression], Function, Callable[..., bool]]] = [
    (forms.exp, mpmath.exp, lambda a: a < 20),
    (forms.exp, mpmath.exp, lambda a: a < 20),
    (forms.expm1, mpmath.expm1, lambda a: a < 20),
    (forms.log, mpmath.log, lambda a: a > 1e-6),
    (forms.log, mpmath.log, lambda a: a > 1e-6),
    (forms.log1p, lambda a: mpmath.log(1 + a), lambda a: a > -0.999),
    (forms.log2, lambda a: mpmath.log(a, 2), lambda a: a > 1e-6),
    (forms.square, lambda a: a * a, anything),
    (forms.sqrt, mpmath.sqrt, lambda a: a > 1e-6),
    (forms.reciprocal, lambda a: 1 / a, lambda a: abs(a) > 1e-3),
    (forms.negative, lambda a: -a, anything),
    (forms.sigmoid, lambda a: 1 / (1 + mpmath.exp(-a)), lambda a: abs(a) < 20),
    (forms.softplus, lambda a: mpmath.log(1 + mpmath.exp(a)), lambda a: abs(a) < 20),
    (forms.log1mexp, lambda a: mpmath.log(1 - mpmath.exp(a)), lambda a: -15 < a < -1e-3),
    (forms.tanh, mpmath.tanh, lambda a: abs(a) < 10),
    (forms.cosh, mpmath.cosh, lambda a: abs(a) < 10),
    (forms.gammaln, mpmath.loggamma, lambda a: a > 1e-2),
    (forms.erf, mpmath.erf, lambda a: abs(a) < 3),
    (forms.erfc, mpmath.erfc, lambda a: abs(a) < 3),
    (forms.erfcx, lambda a: mpmath.erfc(a) * mpmath.exp(a * a), lambda a: abs(a) < 3),
    (forms.sin, mpmath.sin, anything),
    (forms.arctan, mpmath.atan, anything),
    (forms.absolute, abs, anything),
    (forms.sign, sign, anything),
    (lambda a: forms.power(a, constant(3.0)), lambda a: a**3, anything),
    (lambda a: forms.power(a, constant(-1.5)), lambda a: a ** mpmath.mpf(-1.5), lambda a: a > 1e-3),
    (lambda a: forms.subtract(constant(1.0), a), lambda a: 1 - a, anything),
    (lambda a: forms.multiply(constant(-0.3), a), lambda a: mpmath.mpf(-0.3) * a, anything),
]
BINARY: list[tuple[Callable[..., Expression], Function, Callable[..., bool]]] = [
    (forms.add, lambda a, b: a + b, anything),
    (forms.subtract, lambda a, b: a - b, anything),
    (forms.multiply, lambda a, b: a * b, anything),
    (forms.divide, lambda a, b: a / b, lambda a, b: abs(b) > 1e-3),
    (forms.power, lambda a, b: a**b, lambda a, b: a > 1e-3 and abs(b * mpmath.log(a)) < 20),
    (
        forms.logaddexp,
        lambda a, b: mpmath.log(mpmath.exp(a) + mpmath.exp(b)),
        lambda a, b: max(abs(a), abs(b)) < 20,
    ),
    (
        forms.log_ndtr_between,
        lambda s, w: log_ndtr_between(mpmath.mpf(s), mpmath.mpf(w)),
        lambda s, w: w > 1e-3 and max(abs(s), w) < 8,
    ),
    (forms.maximum, max, anything),
    (forms.minimum, min, anything),
    (forms.less, lambda a, b: mpmath.mpf(a < b), lambda a, b: abs(a - b) > 1e-6),
    (
        betaln,
        lambda a, b: mpmath.log(mpmath.beta(a, b)),
        lambda a, b: min(a, b) > 1e-2 and max(a, b) < 50,
    ),
]


def test_random_expressions_keep_their_value_and_their_range():
    rng = np.random.default_rng(20240901)
    for _ in range(150):
        check_one_pool(rng)


def check_one_pool(rng: np.random.Generator) -> None:
    """Expressions made of one another from leaves, all at the same points."""
    points = rng.normal(size=(3, N_PREDICTORS))
    rows = np.stack([rng.uniform(low, high, size=3) for low, high in COLUMNS], axis=1)
    rows[:, 1:3] = np.floor(rows[:, 1:3])
    pool = [(predictor(k), [mpmath.mpf(v) for v in points[:, k]]) for k in range(N_PREDICTORS)]
    pool += [
        (data(j, low, high), [mpmath.mpf(v) for v in rows[:, j]]) for j, (low, high) in enumerate(COLUMNS)
    ]
    pool += [(constant(c), [mpmath.mpf(c)] * 3) for c in (1.0, 0.5)]
    for _ in range(14):
        made = made_from(rng, pool)
        if made is None:
            continue
        expression, truth = made
        pool.append(made)
        for point, row, value in zip(points, rows, truth, strict=True):
            check_value(expression, point, row, value)
    root, truth = pool[-1]
    for point, row, value in zip(points, rows, truth, strict=True):
        check_value(forms.finished(root), point, row, value)


def made_from(rng: np.random.Generator, pool: list):
    """A new expression and its values at the points, or None if it is not finite there."""
    kind = rng.random()
    picked = [pool[int(i)] for i in rng.integers(len(pool), size=3)]
    if kind < 0.1:
        condition = forms.equal(data(2, *COLUMNS[2]), constant(float(rng.integers(4))))
        return chosen(condition, picked, pool)
    table, n = (UNARY, 1) if kind < 0.6 else (BINARY, 2)
    make, meaning, is_allowed = table[int(rng.integers(len(table)))]
    args = [[value[i] for _, value in picked[:n]] for i in range(3)]
    if not all(is_allowed(*arg) for arg in args):
        return None
    truth = [mpmath.mpf(meaning(*arg)) for arg in args]
    if any(abs(value) > TOO_LARGE for value in truth):
        return None
    return make(*(x for x, _ in picked[:n])), truth


def chosen(condition: Expression, picked: list, pool: list):
    classes = pool[N_PREDICTORS + 2][1]
    tested = [evaluate(condition, [0.0] * N_PREDICTORS, [0.0, 0.0, float(c), 0.0]) for c in classes]
    (a, at_a), (b, at_b), _ = picked
    truth = [x if c != 0 else y for c, x, y in zip(tested, at_a, at_b, strict=True)]
    return forms.select(condition, a, b), truth


def check_value(expression: Expression, point, row, truth: mpmath.mpf) -> None:
    found = values(expression, point, row)
    value = found[expression]
    scale = max([abs(x) for x in found.values() if mpmath.isfinite(x)] + [mpmath.mpf(1)])
    assert abs(value - truth) <= 1e-12 * scale + 1e-9 * abs(truth), (expression, value, truth)
    for x, inside in found.items():
        if mpmath.isfinite(inside):
            assert x.range.low <= inside <= x.range.high, (x, x.range, inside)
            assert not (x.range.nonzero and inside == 0), (x, x.range, inside)


@pytest.mark.parametrize("seed", range(3))
def test_the_order_in_which_expressions_are_made_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    terms = [forms.exp(predictor(1)), predictor(0), data(0, 0.1, 4.0), forms.log(predictor(2))]
    shuffled = [terms[int(i)] for i in rng.permutation(len(terms))]
    assert forms.add(*terms) is forms.add(*shuffled)
    assert forms.multiply(*terms) is forms.multiply(*shuffled)
