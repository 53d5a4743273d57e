"""Products of effects with matrices, whose elements are constants times features."""

import numpy as np
import pytensor.tensor as pt
import pytest

from pymc_austerity.mode.fields.maps import Entries, _through, matrix_of
from pymc_austerity.model.field.priors import Step

FEATURES = np.array([1.0, 0.7, -1.3])


def numbered(graph):
    """A stand-in for `Features`: elements of a graph are constants, each times one of the features."""
    n = int(np.prod(graph.type.shape))
    return np.arange(1.0, n + 1.0), np.arange(n) % len(FEATURES)


def value(shape):
    """The matrix that is numbered so."""
    constants, numbers = numbered(pt.zeros(shape))
    return (constants * FEATURES[numbers]).reshape(shape)


@pytest.mark.parametrize(
    ("shape", "kind", "matrix", "product"),
    [
        ((4,), "left", (5, 4), "rj,jz->rz"),
        ((4, 3), "left", (5, 4), "rj,jkz->rkz"),
        ((4,), "right", (4, 5), "jz,jm->mz"),
        ((4, 3), "right", (3, 2), "jkz,km->jmz"),
        ((4, 3), "right", (4, 3, 2), "jkz,jkm->jmz"),
        ((2, 4, 3), "left", (5, 4), "rj,ijkz->irkz"),
    ],
)
def test_products_with_matrices(shape, kind, matrix, product):
    rng, n = np.random.default_rng(1), int(np.prod(shape))
    rows, columns = rng.integers(n, size=20), rng.integers(6, size=20)
    entries = Entries(rows, columns, rng.normal(size=20), np.zeros((20, 0), np.int64))
    dense = matrix_of(entries, FEATURES, (n, 6)).toarray().reshape(*shape, 6)
    found, new = _through([Step(kind, pt.zeros(matrix))], entries, shape, numbered)
    arguments = (value(matrix), dense) if kind == "left" else (dense, value(matrix))
    expected = np.einsum(product, *arguments)
    assert (*new, 6) == expected.shape
    own = matrix_of(found, FEATURES, (int(np.prod(new)), 6)).toarray()
    np.testing.assert_allclose(own.reshape(expected.shape), expected, atol=1e-12)
