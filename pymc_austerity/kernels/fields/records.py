"""What a kernel knows of a field: rows, sums over them, priors, bounds and proposals.

    eta_i = o_i + A_i x,  x = b(theta) + C(theta) z,  z ~ N(0, R(theta)^-1),  y_i ~ f_i(eta_i)

A row has p predictors, most often one; others are of its dispersion, its cut points and the like. x are the
elements of tables that rows use: L that are looked up, then D that all rows have (`dense`). z are
standardised coordinates, in the order of their elimination. A matrix by x, such as H, has its elements in
one vector: pairs of elements that are looked up together, then (D, L) of dense ones with these, then the
lower triangle (D, D) of the dense ones.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.points import Points
from pymc_austerity.bounds.jets.tape import Tape
from pymc_austerity.kernels.fields.tree import Tree
from pymc_austerity.target import Array, Index, Mask, Matrix, RowNumbers, Vector


class Design(NamedTuple):
    """The A_i: elements of x with their coefficients, each in one of the predictors. It has size N."""

    columns: RowNumbers  # (N, F): which elements a row looks up
    values: Matrix  # (N, F): their coefficients
    of_columns: Index  # (F,): which predictor each is a part of
    dense: Matrix  # (N, M): coefficients of elements that all rows have
    of_dense: Index  # (M,): which predictor each is a part of
    at_dense: Index  # (M,): which of the D elements each is
    n_dense: int  # D


class FieldRows(NamedTuple):
    """Rows in the order of their cells, at the center of the expansion. It has size N."""

    design: Design
    predictors: Matrix  # (N, p): eta_i
    # slopes (N, p), weights (N, p (p + 1) / 2): the gradient of f_i there, and minus its second derivatives,
    # the lower triangle row by row
    slopes: Matrix
    weights: Matrix
    data: Matrix  # (n_data, N): columns that f reads
    program: Tape  # f, to be run at points


class Sums(NamedTuple):
    """The log likelihood as a quadratic in d = x - x*, averaged over z, and what Taylor's differs by."""

    center: Vector  # (n_x,): x*
    hessian: Vector  # H, by elements
    right: Vector  # (n_x,): g + H x*
    # hessian_change, gradient_change: those of Taylor's polynomial, less H and g
    hessian_change: Vector
    gradient_change: Vector
    # first, second: of each element of H, which two of x
    first: RowNumbers
    second: RowNumbers
    of_pairs: RowNumbers  # (n_H,): the node that decides on each element, the lower one of two
    of_elements: RowNumbers  # (n_x,): the lowest node that moves each element of x
    # normal: of normal rows with a free scale, N and the residual sum at x*, in units of the precision 1
    n_normal: float
    squares: float
    precision: int  # Which feature the logarithm of their precision is; -1 for other rows
    # matched_hessian, matched_right (k,): V_z of effects that are normal only nearly
    matched_hessian: Vector
    matched_right: Vector


class Elements(NamedTuple):
    """Elements of a sparse matrix: constants times features."""

    rows: Index
    columns: Index
    coefficients: Vector
    factors: Index  # (n, m)


class HeavyTails(NamedTuple):
    """Effects that are normal given a precision of each: of Student's or Laplace's distribution."""

    coordinates: Index  # (k,): in the order of the tree
    # degrees, numbers (k,): degrees of freedom are constants times features; 0 for Laplace's distribution
    degrees: Vector
    numbers: Index


class Matched(NamedTuple):
    """Effects that are normal only nearly: of gamma, beta and logistic distributions; see `matched`."""

    coordinates: Index  # (k,): in the order of the tree
    places: Index  # (k,): where the tree has the diagonal element of each
    kinds: Index  # (k,): which K(v)
    # constants, numbers (4, k): of a, b, m and s, which are constants times features
    constants: Matrix
    numbers: Index


class Runs(NamedTuple):
    """C' H C as runs of products (S,), each of a place in the tree, an element of H and two elements of C."""

    # first, steps (S, 4): of each run the place, the element of H and those of C, and what is next
    first: RowNumbers
    steps: RowNumbers
    lengths: RowNumbers  # (S,)
    twice: npt.NDArray[np.int8]  # (S,): how often a product counts, 2 or 1


class Prior(NamedTuple):
    """C(theta), R(theta) and b(theta)."""

    map: Elements  # C: first one element of each row, then the second ones, ...; rows are elements of x
    precision: Elements  # R; `rows` are where its elements are stored in the tree
    runs: Runs
    # given (g,), numbers (g,), scales (g,): elements of x that are features, and constants
    given: Index
    numbers: Index
    constants: Vector
    # (k,): elements of H with one of these
    with_given: Index
    # Of effects whose sum is nearly zero: the standardised intercept is z_b - pulls . z, of which the tree
    # has z_b alone; which coordinate that is, or -1
    pulls: Elements
    intercept: int
    tails: HeavyTails
    matched: Matched


class Loose(NamedTuple):
    """Blocks of levels that are on no path: of crossed factors, of vectors looked up twice, of what is held.

    A row may see any of them, so that rates are by the largest.
    """

    elements: Index  # Elements of x of each block, from n_x on those that are held
    starts: Index  # (L + 1,)
    nodes: Index  # (L,): the node that moves them; -1 for what is held
    factors: Vector  # F_l, (q, q) each
    places: Index  # (L,): where F_l begins
    blocks: RowNumbers  # (N, K): which blocks a row sees
    lengths: Array  # (N, K): shares of rows, in the first column of each block, else 0


class Cubic(NamedTuple):
    """Third-order terms of cells: see `cubic`. A cell without them has no coefficients."""

    places: Index  # (U + 1,): where the coefficients of each cell begin
    # Of cells whose lowest blocks are a run, with all else on their paths in common: (U,) cells of that run
    # from each on, and from one coefficient of a cell to the next
    run: Index
    strides: Index
    numbers: Vector
    levels: Index  # (n_x,): which level each element of x has the pivot of; -1 for none
    pivots: Index  # Its inverse, by places among the variables of a block
    thirds: Matrix  # (N, n): third derivatives; 0 in cells without
    which: npt.NDArray[np.int64]  # (p, p, p): which of the n has those by three predictors
    sizes: Vector  # (N,): C_i, their size in the units v_ik


class Bounds(NamedTuple):
    """Bounds on the remainders: levels as the rows see them, e_f = F_f' d, and rates of rows."""

    starts: Index  # (B + 1,): variables of each block of levels
    variables: Index
    blocks: Index  # (B + 1,): where its levels begin in the vector of all
    matrix: Vector  # By levels, then variables
    places: Index  # (B,): where the matrix of each block begins
    # Blocks of one level that differ in their first variable alone, which follow upon each other, are a run:
    # (B,) blocks of it from each on, and from one variable of a block to the next in the matrix
    run: Index
    strides: Index
    nodes: Index  # (B,): the node of the tree that moves the lowest variables
    loose: Loose
    sizes: Vector  # (B + L,): typical |e_f|, of loose blocks after the others
    cells: Index  # (U + 1,): rows of each cell
    of_cells: Index  # (U,): its lowest node
    paths: Index  # (U, K): blocks that its rows see; -1 for none
    # (N, K), or (N, K + 1) with the sum of loose blocks that move: the m_if
    lengths: Matrix
    # (U, K + 1): the largest share that each block has in a row of the cell, and all loose ones
    shares: Matrix
    cubic: Cubic
    # By tiers: largest |e_f| / s_f for which bounds hold (T,), sums of k_if m_if (T, ., N + 1), and those of
    # each cell (T, U, .)
    reaches: Vector
    cumulative: Array
    totals: Array
    rounding: float  # What rounding may add to a change of a remainder
    always: Index  # (U,): 1 for cells that are always read


class Held(NamedTuple):
    """Effects that this turn leaves as they are: what rows, sums and priors have of them.

    Where one tree would have too much fill, effects are moved in turns. Held elements of x come in blocks,
    such as the intercept and slope of one group.
    """

    coordinates: Index  # (k,): which of all coordinates these elements are made of
    map: Elements  # C of these, by rows
    center: Vector  # (k,): x*
    columns: RowNumbers  # (N, F): which elements a row looks up
    values: Matrix  # (N, F): their coefficients
    of_columns: Index  # (F,): which predictor each is a part of
    # Elements of H that held ones have with those that move (first, second), and with each other
    first: Index
    second: Index
    hessian: Vector
    one: Index
    other: Index
    own_hessian: Vector
    gradient: Vector  # (k,): of the log likelihood at x*, by held elements
    starts: Index  # (B + 1,): elements and coordinates of each block
    is_bound: bool  # Whether theta of this turn has a part in C: held elements stay, so z changes
    # Room: d of held elements; C and z of two thetas
    d: Vector
    elements: Matrix  # (2, .)
    z: Matrix  # (2, k)

    def with_room(self) -> "Held":
        """What is held, with room of its own."""
        own = ("d", "elements", "z")
        return self._replace(**{name: getattr(self, name).copy() for name in own})


class Law(NamedTuple):
    """The proposal of zeta: normal scores with a correlation.

    zeta_j = theta_j, or theta_j / exp(theta_k): an element below the diagonal of a Cholesky factor in units
    of the diagonal one of its row.
    """

    which: Index  # (q,): elements of theta that a turn moves
    mean: Vector  # (q,)
    spread: Vector  # (q,)
    knots: Matrix  # (q, K): (zeta - mean) / spread at equidistant scores
    factor: Matrix  # (q, q): Cholesky factor of the correlation of scores
    inverse: Matrix  # (q, q): its inverse
    units: Index  # (q,): k of each j, both of `which`; -1 for none


class Schedule(NamedTuple):
    """What a sweep moves together."""

    n_roots: int  # Moves of theta
    depths: Index  # (K + 1,): where groups of depths begin, and one more than the largest
    kappas: Vector  # (K + 1,): so many times rows are drawn, for the root and each group
    walks: float  # Share of walks among all proposals: others are independent of the state, or nearly so


class Room(NamedTuple):
    """Room for two states, and for rows that are read together."""

    # (2, .): fronts, c, z, eps, d, e of two states
    fronts: Matrix
    shifts: Matrix
    z: Matrix
    eps: Matrix
    d: Matrix
    levels: Matrix
    elements: Matrix  # (2, .): of C
    precisions: Vector  # (n,): of heavy-tailed effects; one for others
    pulls: Matrix  # (2, .)
    work: Matrix  # (2, n): a right side, and changes of z
    sizes: Matrix  # (3, B + L): X_f, largest |e_f| of both ends, and Y_f, in typical sizes
    deciding: Index  # (V,)
    base: Vector  # (V,)
    accepted: Mask  # (V,)
    # (2, depth + 1): effects that were proposed, and that moved, in a draw by groups of depths; in the last
    # column moves of theta, and the probabilities with which they were accepted
    tally: Matrix
    moved: Vector  # (V,): changes of pulls . z by the nodes that decide
    cubics: Matrix  # (2, U): third-order terms of cells
    # Of cells: rates, h of the lowest block and of others (3, U); and tiers (U,): T where all rows are read,
    # -1 where none is
    rates: Matrix
    tiers: Index
    predictors: Matrix  # (p, BLOCK)
    data: Matrix  # (n_data, BLOCK)
    points: Points
    right: Vector  # (n_x,): g + H x*, less what held effects take from it
    squares: Vector  # (1,): the residual sum of normal rows at x = 0 of what moves
    theta: Vector  # (q,): of the side whose factor is kept from one draw to the next
    kept: Vector  # (2,): that side, or -1, and log p^ there without the prior of theta


class FieldArrays(NamedTuple):
    """Numbers of a field that a kernel is handed."""

    coordinates: Index  # (n,): which of all coordinates each of the tree is
    tree: Tree
    rows: FieldRows
    sums: Sums
    prior: Prior
    held: Held
    bounds: Bounds
    law: Law
    widths: Vector  # (V,): standard deviations of the proposals for eps of each node
    schedule: Schedule
    reads_all: bool
    has_remainders: bool  # False for normal rows: none is read
    debug: bool
    violations: Index  # (1,)
    room: Room
