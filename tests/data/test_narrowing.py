"""Numbers in another dtype are the same numbers, rounded at most, or the first that is not is named."""

import numpy as np
import pytest

from pymc_austerity.data.narrowing import converted


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (np.array([-128, 127]), "int8"),
        (np.array([0, 255]), "uint8"),
        (np.array([0, 1]), "bool"),
        (np.array([0.0, 1.0]), "bool"),
        (np.array([-3.0, 2.0**62]), "int64"),
        (np.array([True, False]), "float32"),
        (np.array([-(2**24), 2**24]), "float32"),
        (np.array([-(2**53), 2**53]), "float64"),
        (np.array([1e-40, 3e38, np.nan, np.inf, 0.0, 0.1]), "float32"),
        (np.array([2**64 - 1], np.uint64), "uint64"),
    ],
)
def test_what_fits(values, dtype):
    result = converted(values, np.dtype(dtype), "column 'x'", 0)
    assert result.dtype == dtype
    np.testing.assert_allclose(
        result.astype(values.dtype), values, rtol=1e-4 if values.dtype.kind == "f" else 0
    )


@pytest.mark.parametrize(
    ("value", "kind", "dtype"),
    [
        (300, "int64", "int8"),
        (-1, "int64", "uint16"),
        (2, "int8", "bool"),
        (0.5, "float64", "bool"),
        (1.5, "float64", "int32"),
        (np.nan, "float64", "int32"),
        (np.inf, "float32", "int8"),
        (2.0**63, "float64", "int64"),
        (2.0**64, "float32", "uint64"),
        (2**63, "uint64", "int64"),
        (2**24 + 1, "int64", "float32"),
        (2**53 + 1, "int64", "float64"),
        (-(2**53) - 1, "int64", "float64"),
        (2**64 - 1, "uint64", "float64"),
        (1e39, "float64", "float32"),
        (1e-60, "float64", "float32"),
    ],
)
def test_what_does_not_fit_is_named(value, kind, dtype):
    values = np.array([0, 1, value, 1], kind)
    with pytest.raises(ValueError, match=r"in row 1,002 of column 'x' does not fit into " + dtype) as found:
        converted(values, np.dtype(dtype), "column 'x'", 1000)
    assert str(found.value).startswith(str(values[2]))
    matrix = np.zeros((3, 2), kind)
    matrix[2, 1] = value
    with pytest.raises(ValueError, match=r"in row 2 of column 'x', column 1 does not fit"):
        converted(matrix, np.dtype(dtype), "column 'x'", 0)


def test_nothing_is_copied_without_need():
    values = np.arange(3.0)
    assert converted(values, np.dtype("float64"), "", 0) is values
    big = converted(values.astype(">f8"), np.dtype("float64"), "", 0)
    assert big.dtype.isnative
    np.testing.assert_array_equal(big, values)
