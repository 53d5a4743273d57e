"""What a kernel knows of a plate: numbers of rows, of groups, and of the proposal.

y_i ~ f(x_i . beta + u_g(i)), and u_g ~ N(loc_g, tau^2) in G groups. `coordinates` has the notation.

With random slopes u_g is a vector of q effects, an intercept first (`slopes`). Vectors and matrices of all
groups are written one after the other: what is (G,) here is (G q,) then, and b_g and scales are (G q q,).
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for
from pymc_austerity.bounds.jets.tape import Tape
from pymc_austerity.kernels.plates.cells import Cells
from pymc_austerity.kernels.plates.cubic import Cubic
from pymc_austerity.kernels.plates.fitted_proposal import SharedProposal
from pymc_austerity.kernels.plates.outer import Outer
from pymc_austerity.target import Index, Matrix, Singles, Vector


class DispersionRows(NamedTuple):
    """Taylor coefficients of rows by n numbers phi that they share, beside their predictor. It has size N."""

    # slopes, mixed (n, N): first-order ones by phi, and those by the predictor and phi
    slopes: Matrix
    mixed: Matrix
    # (n (n + 1) / 2, N): second-order ones by phi, in the order (0, 0), (0, 1), ..., (1, 1), ...
    seconds: Matrix


class GroupedRows(NamedTuple):
    """Rows, sorted by group, at the center of their expansion. It has size N."""

    starts: Index  # (G + 1,): where each group begins; the last is N
    x: Matrix  # (N, D): the dense columns
    covariates: Matrix  # (N, q - 1): coefficients of the slopes of the row's group
    levels: npt.NDArray[np.int32]  # (F, N): which of the P columns have a one: levels of other factors
    predictors: Vector  # (N,): eta_i at the center
    # slopes, curvatures (N,): f_i' and f_i'' there
    slopes: Vector
    curvatures: Vector
    thirds: Vector  # (N,) or (0,): third derivatives there; without third-order terms empty
    dispersions: DispersionRows
    data: Matrix  # (n_data, N): columns that f reads
    program: Tape  # f, to be run at points


class GroupSums(NamedTuple):
    """The Taylor polynomial of the log likelihood in levels e_g and d = beta - beta*. It has size G D.

    P columns enter the predictor or the effects' location. D of them are dense; columns of levels of other
    factors are zero for most rows. xbar_g has both.
    """

    linear: Index  # (P,): which coordinates of theta enter the predictor or the effects' location
    center: Vector  # (P,): beta*
    dense: Index  # (D,): which of the P columns are dense
    varying: Index  # (V,): which of the D columns vary within groups
    gradient: Vector  # (P,): c = sum of f_i' z_i
    information: Matrix  # (P, P): W = sum of w_i z_i z_i'
    # slopes, curvatures (G,): a_g = sum of f_i', b_g = sum of w_i
    slopes: Vector
    curvatures: Vector
    means: Matrix  # (G, D): xbar_g, weighted by w_i, of dense columns
    cells: Cells  # Of other factors
    shares: Vector  # (C,): xbar_g of the cells' columns
    moved: Index  # (M,): which of the P columns enter the effects' location
    located: Matrix  # (G, M): how the effects' location changes with these
    # (G,) or (0,): which of the P columns is added to the location of each group beside these; -1 for none
    parents: Index
    offsets: Vector  # (G,): nu_g at the center
    effects: Vector  # (G,): u_g*
    phi: Vector  # (n,): numbers that rows share beside their predictor, at the center
    phi_slopes: Matrix  # (n, P): how they change with d
    # n_normal, squares: for a normal likelihood: N, and the sum of squares of residuals at the center. Else
    # zero.
    n_normal: float
    squares: float
    n_effects: int = 1  # Effects of a group, q


class GroupBounds(NamedTuple):
    """Bounds on the remainders of each group. It has size G.

    Bounds of a tier hold for levels within its reach, and coefficients within its radius.
    """

    whitening: Matrix  # (V, P): w = whitening . d, of dense columns that vary within groups.
    radii: Vector  # (T,): largest |w| of each tier
    reaches: Matrix  # (T, G): of each tier, the largest |e_g|; levels of other factors are allowed for
    # levels, shared (T, G): totals of the cumulative sums in `RowBounds`
    levels: Matrix
    shared: Matrix
    typical: Vector  # (G,): zeta0_g
    sizes: Index  # (G,): rows of each group
    widths: Vector  # (G,): h_g, standard deviations of the proposals for eps_g
    rounding: float  # What rounding may add to the difference of two remainders
    power: int  # m, the order of the Taylor polynomials: 2, or 3 with third-order terms
    # (G q, q): A_g, so that |A_g e_g| is bounded by the reaches, if there are slopes; else (0, 1)
    norms: Matrix


class RowBounds(NamedTuple):
    """Bounds on the remainders of rows, and cumulative sums to draw rows by them. It has size N."""

    lengths: Singles  # (N,): zeta_i, of z_i in whitened coordinates
    constants: Singles  # (T, N): K_i
    # levels, shared (T, N): cumulative sums within groups of K_i (1 + zeta_i / zeta0_g)^m, and of zeta_i
    # times that
    levels: Singles
    shared: Singles


class EffectsDensity(NamedTuple):
    """The prior of the effects; see `effects_density`."""

    kind: int
    ratio: float  # tau / scale; 1 for normal effects


class PlateRule(NamedTuple):
    """Numbers that say how moves of a plate are made and decided."""

    kappa: float  # So many times the rows are drawn for the shared move, which makes its decision less noisy
    is_centered: bool  # Whether the model has u_g itself, else z_g = (u_g - loc_g) / tau
    # How many vectors the model's effects are in, the first all intercepts; 1 if those of a group are side by
    # side
    n_vectors: int
    # scaled, scaled_by (K,): coordinates of theta that the model has divided by a feature, and by which one
    scaled: Index
    scaled_by: Index
    has_remainders: bool  # False for a normal likelihood: no row is read
    debug: bool  # Count terms that are larger than their bound, and go on
    violations: Index  # (1,)


class Workspace(NamedTuple):
    """Room for rows that are evaluated together."""

    predictors: Matrix  # (1 + n, BLOCK)
    data: Matrix  # (n_data, BLOCK)
    values: Vector  # (BLOCK,)
    points: Points


class Plate(NamedTuple):
    """Numbers of a plate that a kernel is handed: rows, sums, bounds, priors and proposals."""

    rows: GroupedRows
    sums: GroupSums
    cubic: Cubic
    bounds: GroupBounds
    weights: RowBounds
    effects: EffectsDensity
    proposal: SharedProposal
    outer: Outer
    rule: PlateRule
    room: Workspace


def workspace(program: Tape, n_predictors: int, n_data: int) -> Workspace:
    """Room for rows of a program."""
    return Workspace(
        np.zeros((n_predictors, BLOCK)), np.zeros((n_data, BLOCK)), np.zeros(BLOCK), points_for(program)
    )
