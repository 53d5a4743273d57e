"""Bounds of symmetric forms on the sphere, beside the best of many points."""

import itertools
import math

import numpy as np
import pytest

from pymc_austerity.bounds.jets.derivative_norms import _points, covering, largest_forms
from pymc_austerity.bounds.jets.tape import multi_indices

# How much larger than the truth a bound may be, for coefficients that are known.
LOOSENESS = {1: 1.0 + 1e-9, 2: 1.01, 3: 1.06, 4: 1.6}
CASES = [(p, degree) for p in (1, 2, 3, 4) for degree in (2, 3)]


def tensor_of(coefficients, p, degree):
    """The symmetric tensor of derivatives, from Taylor coefficients."""
    alphas = [index for index in multi_indices(p, degree) if sum(index) == degree]
    tensor = np.empty((p,) * degree)
    for at in itertools.product(range(p), repeat=degree):
        index = tuple(at.count(k) for k in range(p))
        tensor[at] = coefficients[alphas.index(index)] * math.prod(map(math.factorial, index))
    return tensor


def applied(tensor, x, times):
    for _ in range(times):
        tensor = tensor @ x
    return tensor


def largest(tensor, rng, starts=60):
    """The largest |T[x, ..., x]| of unit vectors, from below: ascent from many points."""
    degree, p = tensor.ndim, tensor.shape[0]
    if p == 1:
        return abs(float(tensor.ravel()[0]))
    scale, best = np.linalg.norm(tensor), 0.0
    for sign in (1.0, -1.0):
        for x in rng.normal(size=(starts, p)):
            x = x / np.linalg.norm(x)
            for _ in range(100):  # with a shift that makes the form convex
                x = sign * applied(tensor, x, degree - 1) + 0.5 * degree * scale * x
                x = x / np.linalg.norm(x)
            best = max(best, sign * float(applied(tensor, x, degree)))
    return best


def bounds(middle, radius, p, degree):
    """Of one form in every column."""
    found = np.empty(middle.shape[1])
    largest_forms(covering(p, degree), np.ascontiguousarray(middle), np.ascontiguousarray(radius), found)
    return found


def forms_of(p, degree, rng, m):
    """Coefficients of random tensors: dense, of low rank, and of one large derivative."""
    n = len(covering(p, degree).factors)
    alphas = np.array([index for index in multi_indices(p, degree) if sum(index) == degree])
    dense = rng.normal(size=(n, m))
    powers = np.prod(rng.normal(size=(m, 1, p)) ** alphas, axis=2).T / covering(p, degree).factors[:, None]
    single = np.eye(n)[:, rng.integers(0, n, m)]
    return np.concatenate([dense, powers, single * 10.0 ** rng.uniform(-3, 3, m)], axis=1)


@pytest.mark.parametrize(("p", "degree"), CASES)
def test_bounds_of_known_forms(p, degree):
    rng = np.random.default_rng(8)
    coefficients = forms_of(p, degree, rng, 4)
    found = bounds(coefficients, np.zeros_like(coefficients), p, degree)
    for one, bound in zip(coefficients.T, found, strict=True):
        truth = largest(tensor_of(one, p, degree), rng, 6)
        assert truth <= bound * (1.0 + 1e-9)
        assert bound <= LOOSENESS[p] * truth * (1.0 + 1e-6)


@pytest.mark.parametrize(("p", "degree"), CASES)
def test_bounds_of_enclosed_forms(p, degree):
    """No form with coefficients within the radii is larger, whatever their signs."""
    rng = np.random.default_rng(9)
    middle = rng.normal(size=(len(covering(p, degree).factors), 3))
    radius = rng.uniform(0.0, 1.0, middle.shape)
    found = bounds(middle, radius, p, degree)
    x = rng.normal(size=(20000, p))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    alphas = np.array([index for index in multi_indices(p, degree) if sum(index) == degree])
    monomials = math.factorial(degree) * np.prod(x[:, None, :] ** alphas, axis=2)
    truth = (np.abs(monomials @ middle) + np.abs(monomials) @ radius).max(axis=0)
    assert np.all(truth <= found * (1.0 + 1e-9))


@pytest.mark.parametrize("p", [2, 3])
def test_every_line_is_near_a_point_of_the_covering(p):
    rng = np.random.default_rng(10)
    points, angle = _points(p)
    x = rng.normal(size=(30000, p))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    farthest = np.arccos(np.minimum(np.abs(x @ points.T).max(axis=1), 1.0)).max()
    assert 0.7 * angle < farthest <= angle


@pytest.mark.parametrize("p", [2, 3])
def test_the_covering_inflates_by_its_angle(p):
    """A power of a line that no point is near: without the inflation its bound is too small."""
    # Planted fault: the maximum over the covering, not inflated.
    rng = np.random.default_rng(11)
    points, _ = _points(p)
    x = rng.normal(size=(30000, p))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    far = x[np.abs(x @ points.T).max(axis=1).argmin()]
    alphas = np.array([index for index in multi_indices(p, 3) if sum(index) == 3])
    coefficients = (np.prod(far**alphas, axis=1) / covering(p, 3).factors)[:, None]
    bound = bounds(coefficients, np.zeros_like(coefficients), p, 3)[0]
    assert 1.0 <= bound <= LOOSENESS[p]


@pytest.mark.parametrize("p", [1, 2, 3, 4])
@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_what_is_not_known_is_infinite(p, bad):
    n = len(covering(p, 3).factors)
    zero = np.zeros((n, 2))
    one = zero.copy()
    one[n // 2, 0] = bad
    assert list(bounds(zero, one, p, 3)) == [math.inf, 0.0]
    assert bounds(one, zero, p, 3)[0] == math.inf
