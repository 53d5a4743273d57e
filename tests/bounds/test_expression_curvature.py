"""Rows that are concave in their predictors: as graphs of PyMC spell them, and at random points."""

import math

import numpy as np
import pytest

from pymc_austerity.bounds.expressions.curvature import is_concave
from pymc_austerity.bounds.expressions.forms import (
    add,
    divide,
    exp,
    finished,
    log,
    log1p,
    multiply,
    negative,
    select,
    sigmoid,
    softplus,
    square,
    subtract,
)
from pymc_austerity.bounds.expressions.node import Expression, constant, data
from tests.bounds.expressions import evaluate
from tests.bounds.spellings import (
    BINARY,
    COUNT,
    ETA,
    ONE,
    TIME,
    TWO,
    ZETA,
    Y,
    bernoulli,
    logsumexp,
    negative_binomial,
    normal,
    normal_cdf,
    poisson_rows,
    student,
    weibull,
    zero_inflated,
)

WEIGHT, SIGNED = data(1, 0.0, 30.0), data(0, -5.0, 5.0)
HALF = constant(0.5)

CONCAVE = {
    "logistic": bernoulli(sigmoid(ETA)),
    "weighted": multiply(WEIGHT, bernoulli(sigmoid(ETA))),
    "probit": select(BINARY, normal_cdf(ETA), normal_cdf(negative(ETA))),
    "poisson": poisson_rows(exp(ETA)),
    "poisson with an offset of each row": poisson_rows(exp(add(ETA, Y))),
    "poisson, identity link": subtract(multiply(COUNT, log(ETA)), ETA),
    "negative binomial": negative_binomial(TWO, divide(TWO, add(TWO, exp(ETA)))),
    "normal": normal(ETA, TWO),
    "normal, scaled by the data": normal(multiply(TIME, ETA), TIME),
    "weibull": weibull(TWO, exp(ETA)),
    "two predictors": negative(add(softplus(ETA), exp(subtract(ZETA, ETA)), square(add(ETA, ZETA)))),
    "log of a concave function": log(log1p(ETA)),
    "affine": add(ETA, multiply(Y, ZETA)),
    "data alone": exp(Y),
}
NOT_CONCAVE = {
    "convex": softplus(ETA),
    "of both signs": multiply(SIGNED, softplus(ETA)),
    "student": student(TWO, ETA, ONE),
    "free scale": normal(ETA, exp(ZETA)),
    "zero inflated": zero_inflated(HALF, exp(ETA)),
    "mixture": logsumexp(normal(ETA, ONE), normal(ZETA, ONE)),
    "one case is not": select(BINARY, negative(exp(ETA)), exp(ETA)),
    "product": multiply(ETA, ZETA),
    "square of what is not affine": negative(square(subtract(exp(ETA), TWO))),
    "difference": subtract(exp(ETA), exp(multiply(TWO, ETA))),
    "decreasing outside": negative(exp(negative(exp(ETA)))),
    "probability": sigmoid(ETA),
}


def violation(x: Expression, rng: np.random.Generator, n: int) -> float:
    """By how much chords are above the function, at most: at the same data."""
    worst = -math.inf
    for _ in range(n):
        given = [rng.uniform(0.1, 4.0), float(rng.integers(0, 9)), float(rng.integers(0, 2)), 1.0, 0.5]
        given.append(rng.uniform(0.1, 4.0))
        ends = rng.uniform(0.2, 3.0, (2, 2))  # where all logarithms are defined
        at = [*ends, ends.mean(axis=0)]
        a, b, middle = (float(evaluate(x, list(point), given)) for point in at)
        if all(map(math.isfinite, (a, b, middle))):
            worst = max(worst, 0.5 * (a + b) - middle)
    return worst


@pytest.mark.parametrize("x", CONCAVE.values(), ids=CONCAVE)
def test_concave(x):
    x = finished(x)
    assert is_concave(x)
    assert -math.inf < violation(x, np.random.default_rng(1), 30) < 1e-9


@pytest.mark.parametrize("x", NOT_CONCAVE.values(), ids=NOT_CONCAVE)
def test_not_known_to_be_concave(x):
    assert not is_concave(finished(x))


def test_random_sums_that_are_called_concave_are():
    """Of functions and their compositions, with signs at random: more are not concave than are."""
    rng = np.random.default_rng(2)
    inner = [ETA, negative(ETA), add(ETA, ZETA), subtract(multiply(TIME, ZETA), ETA)]
    parts = [function(x) for function in (exp, softplus, square, sigmoid) for x in inner]
    parts += [exp(x) for x in parts[4:8]] + [softplus(negative(x)) for x in parts[:4]]
    found = []
    for _ in range(400):
        chosen = rng.choice(len(parts), 2, replace=False)
        signs = rng.choice([-1.0, 1.0], 2)
        terms = [multiply(constant(s), parts[k]) for k, s in zip(chosen, signs, strict=True)]
        terms[0] = multiply([WEIGHT, negative(WEIGHT), SIGNED][rng.integers(3)], terms[0])
        x = finished(add(*terms))
        if is_concave(x):
            found.append(violation(x, rng, 10))
    assert 20 < len(found) < 200
    assert -math.inf < min(found) <= max(found) < 1e-7


def test_the_random_test_notices_a_convex_function():
    for x in (exp(ETA), softplus(ZETA), square(ETA), subtract(exp(ETA), softplus(ETA))):
        assert violation(x, np.random.default_rng(3), 10) > 1e-3
