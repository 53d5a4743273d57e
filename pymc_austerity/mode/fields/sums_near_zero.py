"""Effects whose sum is zero, or nearly: an intercept takes up what is the same for all of them."""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from pymc_austerity.mode.fields.maps import Coordinates, Entries, Maps
from pymc_austerity.mode.fields.rows import Columns
from pymc_austerity.mode.row_tables import different, parts
from pymc_austerity.model.field.find import Field
from pymc_austerity.model.field.priors import NoField
from pymc_austerity.target import Index, Matrix

# Numbers that differ by less, beside their size, differ by rounding.
_SAME = 1e-12


def left_to_an_intercept(columns: Columns, maps: Maps, field: Field) -> tuple[int, Entries] | None:
    """Which coordinate takes up what is the same for all effects with a shift, and how much of it by z.

    Rows are c_i (a + b (v_g + shift)) + ... with an intercept a and numbers c_i, as the signs of binary
    answers. The tree has a + b shift in its place, which is free of the effects' sum.

    Raises
    ------
    NoField
        If no intercept can take them up.
    """
    sizes = [int(np.prod(table.input.type.shape)) for table in field.tables]
    first = np.concatenate([[0], np.cumsum(sizes)])
    pulls = []
    coordinate = -1
    for k, own in maps.shifts.items():
        innovation = field.tables[k].innovation
        assert innovation is not None
        one = next(c for c in maps.coordinates if c.innovation.name == innovation.name)
        assert one.shift is not None
        name = innovation.variable
        dense = columns.elements[columns.at_x]
        of_dense = (dense >= first[k]) & (dense < first[k + 1])
        of_dense &= np.array([np.any(column) for column in columns.x.T], dtype=np.bool_)
        shares = columns.tables.zeros(*columns.offsets.shape)  # What predictors have of a shift by one
        pieces = [dense[of_dense]]
        for part in parts(len(shares)):
            found, values = columns.columns[part], columns.values[part]
            is_own = (found >= first[k]) & (found < first[k + 1]) & (values != 0.0)
            pieces.append(np.unique(found[is_own]))
            for f, of_f in enumerate(columns.of_columns):
                shares[part, of_f] += np.where(is_own[:, f], values[:, f], 0.0)
        for m in np.flatnonzero(of_dense):
            shares[:, columns.of_x[m]] += columns.x[:, m]
        read = different(pieces) - first[k]
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
        pulls.append(Entries(one.shift.rows, one.shift.columns + one.first, coefficients, factors))
    if not pulls:
        return None
    wide = max(part.factors.shape[1] for part in pulls)
    pulls = [p._replace(factors=np.pad(p.factors, ((0, 0), (0, wide - p.factors.shape[1])))) for p in pulls]
    return coordinate, Entries(*(np.concatenate(column) for column in zip(*pulls, strict=True)))


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
        x = columns.tables.zeros(*shares.shape)
        for m in np.flatnonzero(columns.at_x == j):
            x[:, columns.of_x[m]] += columns.x[:, m]
        products, squares = (float(np.einsum("ik,ik->", one, x)) for one in (shares, x))
        part, far = products / max(squares, 1e-300), _SAME * max(shares.max(), -shares.min())
        if all(np.all(np.abs(shares[p] - part * x[p]) <= far) for p in parts(len(x))):
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
