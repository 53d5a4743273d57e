"""Effects whose sum is zero, or nearly: an intercept takes up what is the same for all of them."""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from pymc_austerity.mode.fields.maps import Coordinates, Entries, Maps
from pymc_austerity.mode.fields.rows import Columns
from pymc_austerity.model.field.find import Field
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.target import Index, Matrix

# Numbers that differ by less, beside their size, differ by rounding.
_SAME = 1e-12


def left_to_an_intercept(columns: Columns, maps: Maps, found: Field) -> tuple[int, Entries] | None:
    """Which coordinate takes up what is the same for all effects with a shift, and how much of it by z.

    Rows are c_i (a + b (v_g + shift)) + ... with an intercept a and numbers c_i, as the signs of binary
    answers. The tree has a + b shift in its place, which is free of the effects' sum.

    Raises
    ------
    NoField
        If no intercept can take them up.
    """
    sizes = [int(np.prod(table.input.type.shape)) for table in found.tables]
    first = np.concatenate([[0], np.cumsum(sizes)])
    parts = []
    coordinate = -1
    for k, own in maps.shifts.items():
        innovation = found.tables[k].innovation
        assert innovation is not None
        one = next(c for c in maps.coordinates if c.innovation.name == innovation.name)
        assert one.shift is not None
        name = innovation.variable
        is_own = (columns.columns >= first[k]) & (columns.columns < first[k + 1]) & (columns.values != 0.0)
        dense = columns.elements[columns.at_x]
        of_dense = (dense >= first[k]) & (dense < first[k + 1])
        of_dense &= np.any(columns.x != 0.0, axis=0)
        shares = np.zeros(columns.offsets.shape)  # What predictors have of a shift by one
        for f, of_f in enumerate(columns.of_columns):
            shares[:, of_f] += np.where(is_own[:, f], columns.values[:, f], 0.0)
        for m in np.flatnonzero(of_dense):
            shares[:, columns.of_x[m]] += columns.x[:, m]
        read = np.unique(np.append(columns.columns[is_own], dense[of_dense])) - first[k]
        alike = own.taken(np.flatnonzero(np.isin(own.rows, read)))
        if (
            not np.array_equal(alike.rows, read)
            or np.any(alike.coefficients != alike.coefficients[0])
            or np.any(alike.factors != alike.factors[0])
        ):
            raise NoField(
                f"the sum of {name!r} is nearly zero, and rows have its elements times numbers that differ"
            )
        table = maps.tables[k]
        assert table is not None
        _require_tied(one, table.columns[np.isin(table.rows, read)] - one.first)
        if not np.any(shares):  # differences of effects, in all rows
            continue
        coordinate, share = _intercept(columns, shares, maps, first, name, coordinate)
        n, common = len(one.shift.rows), alike.factors[0]
        factors = np.concatenate([one.shift.factors, np.repeat(common[None], n, axis=0)], axis=1)
        coefficients = one.shift.coefficients * alike.coefficients[0] * share
        parts.append(Entries(one.shift.rows, one.shift.columns + one.first, coefficients, factors))
    if not parts:
        return None
    wide = max(part.factors.shape[1] for part in parts)
    parts = [p._replace(factors=np.pad(p.factors, ((0, 0), (0, wide - p.factors.shape[1])))) for p in parts]
    return coordinate, Entries(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _intercept(
    columns: Columns, shares: Matrix, maps: Maps, first: Index, name: str, known: int
) -> tuple[int, float]:
    """The coordinate of an intercept, and its part in `shares` (N, p): what rows have of a shift by one.

    It has no other part in rows, and is `known` if that is no less than 0.
    """
    every = np.concatenate([e.columns for e in maps.tables if e is not None])
    for j, element in enumerate(columns.elements):
        k = int(np.searchsorted(first, element, side="right")) - 1
        own = maps.tables[k]
        at = np.zeros(0, np.int64) if own is None else np.flatnonzero(own.rows == element - first[k])
        if own is None or len(at) != 1 or np.any(own.factors[at]):
            continue
        z = int(own.columns[at[0]])
        if known not in (-1, z) or np.sum(every == z) != 1 or not _is_plain(maps, z):
            continue
        x = np.zeros(shares.shape)
        for m in np.flatnonzero(columns.at_x == j):
            x[:, columns.of_x[m]] += columns.x[:, m]
        part = float((shares * x).sum()) / max(float((x * x).sum()), 1e-300)
        if np.all(np.abs(shares - part * x) <= _SAME * np.abs(shares).max()):
            return z, part / float(own.coefficients[at[0]])
    raise NoField(
        f"the sum of {name!r} is nearly zero, and the rows have no intercept with a normal prior of a fixed "
        "scale, which would take up what it says"
    )


def _is_plain(maps: Maps, z: int) -> bool:
    """Is a coordinate independent of others, and standard normal or without a prior?"""
    one = next(c for c in maps.coordinates if c.first <= z < c.first + c.size)
    own, at = one.precision, z - one.first
    is_its = (own.rows == at) | (own.columns == at)
    diagonal = own.coefficients[is_its]
    is_one = len(diagonal) == 0 or (
        len(diagonal) == 1 and diagonal[0] == 1.0 and not own.factors[is_its].any()
    )
    return (
        one.shift is None
        and one.tails is None
        and is_one
        and bool(np.all(own.rows[is_its] == own.columns[is_its]))
    )


def _require_tied(one: Coordinates, read: Index) -> None:
    """Refuse areas that no row looks up and no neighbours tie to the last one."""
    own = one.precision
    lower = sparse.csr_array((own.coefficients, (own.rows, own.columns)), (one.size, one.size))
    whole = sparse.csr_array(lower + sparse.tril(lower, -1).T)
    n, island = connected_components(whole, directed=False)
    is_loose = np.bincount(island, whole.sum(axis=1), minlength=n) < _SAME
    is_loose[island[read]] = False
    if is_loose.any():
        raise NoField(
            f"{int(is_loose[island].sum()):,} elements of {one.innovation.variable!r} are in no row, and no "
            "neighbours tie them to others"
        )
