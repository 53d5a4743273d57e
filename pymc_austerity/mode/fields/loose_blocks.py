"""Loose blocks: levels of crossed factors, of vectors looked up twice, and of what is held; see `bounds`."""

from collections.abc import Callable

import numpy as np

from pymc_austerity.bounds.jets.compiled import of_records
from pymc_austerity.kernels.fields.records import FieldArrays, Loose
from pymc_austerity.kernels.fields.tree import tree_of
from pymc_austerity.mode.fields.compiled import factorise
from pymc_austerity.mode.fields.layout import Layout
from pymc_austerity.mode.fields.passes import place_of
from pymc_austerity.mode.row_tables import parts
from pymc_austerity.target import Index, Matrix

# Weights of rows are at least this share of their mean; what is added to the diagonal of a block.
_LEAST, _RIDGE = 0.05, 1e-6


def weights_of_factors(plan: FieldArrays) -> Callable[[slice], Matrix]:
    """Weights of rows for factors, by predictors (n, p): above zero in every row, of a part of the rows.

    The least ones are by all.
    """
    weights, (n, p) = plan.rows.weights, plan.rows.predictors.shape
    own = [place_of(k, k) for k in range(p)]
    total = sum((np.abs(weights[part][:, own]).sum(axis=0) for part in parts(n)), np.zeros(p))
    least = _LEAST * np.maximum(total / n, 1e-300)
    return lambda part: np.maximum(weights[part][:, own], least)


def elements_of_groups(combos: Index, columns: tuple[int, ...]) -> Index:
    """Elements that the groups of a factor have in its columns, each once (G, .)."""
    _, at = np.unique(combos[:, columns[0]], return_index=True)
    return np.unique(combos[at][:, list(columns)], axis=1)


def loose_blocks(
    layout: Layout, plan: FieldArrays, weights: Callable[[slice], Matrix]
) -> tuple[Loose, Callable[[slice], np.ndarray]]:
    """Blocks on no path; and for a part of the rows the lengths of those of size one, by predictors."""
    held, design, n_x, n = layout.held, layout.design, len(layout.elements), layout.n_rows
    combos, tables = layout.combos, layout.columns.tables
    own, counts = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    block, n_own = np.zeros(n_x + len(held.center), np.int32), 0
    known = np.zeros(n_x, bool)
    for some in layout.loose:  # effects of one group are a block; those that are looked up twice are alone
        elements = elements_of_groups(combos, some)
        elements = elements[~known[elements[:, 0]]]
        known[elements] = True
        block[elements] = n_own + np.arange(len(elements))[:, None]
        own.append(elements.ravel())
        counts.append(np.full(len(elements), elements.shape[1]))
        n_own += len(elements)
    sizes_of_held = np.diff(held.starts)
    block[n_x:] = n_own + np.repeat(np.arange(len(sizes_of_held)), sizes_of_held)
    elements = np.concatenate([*own, n_x + np.arange(len(held.center))])
    sizes = np.concatenate([*counts, sizes_of_held])
    starts, places = np.concatenate([[0], np.cumsum(sizes)]), np.concatenate([[0], np.cumsum(sizes**2)])
    nodes = np.full(len(sizes), -1)
    nodes[:n_own] = plan.sums.of_elements[elements[starts[:n_own]]]
    looked_up = [f for some in layout.loose for f in some]
    of_columns = np.append(design.of_columns[looked_up], held.of_columns)
    place = np.zeros(len(block), np.int64)  # of an element within its block
    place[elements] = np.arange(len(elements)) - np.repeat(starts[:-1], sizes)
    blocks = tables.zeros(n, len(of_columns), dtype=np.int32)
    loose = Loose(elements, starts, nodes, np.zeros(places[-1]), places[:-1], blocks, np.zeros((0, 0, 0)))

    def read(part: slice) -> tuple[Loose, Index, Matrix]:
        """Places in blocks, and coefficients, of a part of the rows."""
        columns = np.concatenate([design.columns[part][:, looked_up], n_x + held.columns[part]], axis=1)
        values = np.concatenate([design.values[part][:, looked_up], held.values[part]], axis=1)
        blocks[part] = block[columns]
        lengths = np.zeros((*columns.shape, layout.columns.n_predictors))
        return loose._replace(blocks=blocks[part], lengths=lengths), place[columns], values

    def lengths_of(part: slice) -> np.ndarray:
        own, within, values = read(part)
        if len(sizes):
            _write_loose_lengths(own, within, values, of_columns)
        return np.asarray(own.lengths)

    for part in parts(n) if len(sizes) else ():
        of_part, within, values = read(part)
        _add_loose(of_part, within, values, of_columns, weights(part))
    at = np.repeat(places[:-1], sizes) + place[elements] * (np.repeat(sizes, sizes) + 1)
    diagonal = loose.factors[at]
    loose.factors[at] = np.where(diagonal > 0.0, diagonal * (1.0 + _RIDGE), 1.0)
    none = np.zeros(0, np.int64)
    apart = tree_of(np.zeros(len(elements) + 1, np.int64), none, np.append(sizes, 0))  # a node for each
    factorise(apart, loose.factors, np.zeros(len(elements)))
    return loose._replace(lengths=np.zeros((0, 0))), lengths_of


@of_records
def _add_loose(loose: Loose, within: Index, values: Matrix, of_columns: Index, weights: Matrix) -> None:
    """Add sums of w_ik a_ikl a_ikl'; `within` are places in blocks."""
    factors, blocks, starts = loose.factors, loose.blocks, loose.starts
    for i in range(within.shape[0]):
        for f in range(within.shape[1]):
            b = blocks[i, f]
            q, row = starts[b + 1] - starts[b], within[i, f]
            for g in range(within.shape[1]):
                if blocks[i, g] == b and within[i, g] <= row and of_columns[g] == of_columns[f]:
                    value = weights[i, of_columns[f]] * values[i, f] * values[i, g]
                    factors[loose.places[b] + row * q + within[i, g]] += value


@of_records
def _write_loose_lengths(loose: Loose, within: Index, values: Matrix, of_columns: Index) -> None:
    """|F_l^-1 a_ikl|, in the first column with the block."""
    factors, blocks, starts, lengths = loose.factors, loose.blocks, loose.starts, loose.lengths
    for i in range(within.shape[0]):
        for f in range(within.shape[1]):
            b, is_first = blocks[i, f], True
            for g in range(f):
                is_first = is_first and blocks[i, g] != b
            if not is_first:
                continue
            q, at = starts[b + 1] - starts[b], loose.places[b]
            z = np.zeros((q, lengths.shape[2]))
            for g in range(f, within.shape[1]):
                if blocks[i, g] == b:
                    z[within[i, g], of_columns[g]] += values[i, g]
            for own in range(lengths.shape[2]):
                total = 0.0
                for j in range(q):
                    for k in range(j):
                        z[j, own] -= factors[at + j * q + k] * z[k, own]
                    z[j, own] /= factors[at + j * q + j]
                    total += z[j, own] ** 2
                lengths[i, f, own] = np.sqrt(total)
