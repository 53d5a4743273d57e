"""Effects whose sum is zero, or nearly: an intercept takes up what is the same for all of them."""

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from pymc_austerity.mode.fields.maps import Coordinates, Entries, Maps, joined
from pymc_austerity.mode.fields.rows import Columns
from pymc_austerity.mode.row_tables import parts
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
    pulls, coordinate, design = [], -1, columns.design
    for k, own in maps.shifts.items():
        innovation = field.tables[k].innovation
        assert innovation is not None
        one = next(c for c in maps.coordinates if c.innovation.name == innovation.name)
        assert one.shift is not None
        name = innovation.variable
        is_own = (columns.elements >= maps.first[k]) & (columns.elements < maps.first[k + 1])
        dense = np.flatnonzero(is_own[columns.n_lookups + design.at_dense])
        dense = dense[[bool(np.any(design.dense[:, m])) for m in dense]]
        shares = columns.tables.zeros(*columns.offsets.shape)  # What predictors have of a shift by one
        is_read = np.zeros(len(is_own), np.bool_)
        is_read[columns.n_lookups + design.at_dense[dense]] = True
        for part in parts(len(shares)):
            found, values = design.columns[part], design.values[part]
            of_shift = is_own[found] & (values != 0.0)
            is_read[found[of_shift]] = True
            for f, of_f in enumerate(design.of_columns):
                shares[part, of_f] += np.where(of_shift[:, f], values[:, f], 0.0)
        for m in dense:
            shares[:, design.of_dense[m]] += design.dense[:, m]
        read = np.sort(columns.elements[is_read])
        alike = own.taken(np.flatnonzero(np.isin(own.rows, read)))
        if (
            not np.array_equal(alike.rows, read)
            or np.any(alike.coefficients != alike.coefficients[0])
            or np.any(alike.factors != alike.factors[0])
        ):
            raise NoField(
                f"the sum of {name!r} is nearly zero, and rows have its elements times numbers that differ"
            )
        _require_tied(one, maps.elements.columns[np.isin(maps.elements.rows, read)] - one.first)
        if not np.any(shares):  # differences of effects, in all rows
            continue
        coordinate, share = _intercept(columns, shares, maps, name, coordinate)
        n, common = len(one.shift.rows), alike.factors[0]
        pulls.append(
            one.shift.shifted(0, one.first)._replace(
                coefficients=one.shift.coefficients * alike.coefficients[0] * share,
                factors=np.concatenate([one.shift.factors, np.repeat(common[None], n, axis=0)], axis=1),
            )
        )
    return (coordinate, joined(pulls)) if pulls else None


def _intercept(columns: Columns, shares: Matrix, maps: Maps, name: str, known: int) -> tuple[int, float]:
    """The coordinate of an intercept, and its part in `shares` (N, p): what rows have of a shift by one.

    It has no other part in rows, and is `known` if that is no less than 0.
    """
    own, design = maps.elements, columns.design
    for j, element in enumerate(columns.elements[columns.n_lookups :]):
        at = np.flatnonzero(own.rows == element)
        if len(at) != 1 or np.any(own.factors[at]):
            continue
        z = int(own.columns[at[0]])
        if known not in (-1, z) or np.sum(own.columns == z) != 1 or not _is_plain(maps, z):
            continue
        x = columns.tables.zeros(*shares.shape)
        for m in np.flatnonzero(design.at_dense == j):
            x[:, design.of_dense[m]] += design.dense[:, m]
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
    one, own = next(c for c in maps.coordinates if c.first <= z < c.first + c.size), maps.precision
    its = own.taken(np.flatnonzero((own.rows == z) | (own.columns == z)))
    is_one = len(its.rows) == 0 or (
        len(its.rows) == 1 and its.coefficients[0] == 1.0 and not its.factors.any()
    )
    is_alone = bool(np.all(its.rows == its.columns))
    return one.shift is None and one.tails is None and is_one and is_alone


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
