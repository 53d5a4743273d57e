"""What a kernel knows of a plate: numbers of rows, of groups, and of the proposal.

y_i ~ f(x_i . beta + u_g(i)), and u_g ~ N(loc_g, tau^2) in G groups. `coordinates` has the notation.

With random slopes u_g is a vector of q effects, an intercept first (`slopes`). Vectors and matrices of all
groups are written one after the other: what is (G,) here is (G q,) then, and b_g and scales are (G q q,).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from pymc_austerity.bounds.jets.points import BLOCK, Points, points_for
from pymc_austerity.bounds.jets.tape import Tape
from pymc_austerity.kernels.plates.cells import Cells
from pymc_austerity.kernels.plates.crossing import Crossing
from pymc_austerity.kernels.plates.cubic import Cubic
from pymc_austerity.kernels.plates.fitted_proposal import SharedProposal
from pymc_austerity.kernels.plates.outer import Outer
from pymc_austerity.target import Index, Matrix, Singles, Vector


class DispersionRows(NamedTuple):
    """Taylor coefficients of rows by n numbers phi that they share, beside their predictor. It has size N.

    Attributes
    ----------
    slopes, mixed : ndarray (n, N)
        First-order ones by phi, and those by the predictor and phi.
    seconds : ndarray (n (n + 1) / 2, N)
        Second-order ones by phi, in the order (0, 0), (0, 1), ..., (1, 1), ...
    """

    slopes: Matrix
    mixed: Matrix
    seconds: Matrix


class GroupedRows(NamedTuple):
    """Rows, sorted by group, at the center of their expansion. It has size N.

    Attributes
    ----------
    starts : ndarray of int (G + 1,)
        Where each group begins; the last is N.
    x : ndarray (N, D)
        The dense columns.
    covariates : ndarray (N, q - 1)
        Coefficients of the slopes of the row's group.
    levels : ndarray of int32 (F, N)
        Which of the P columns have a one for the row: its levels of other factors. That of a crossed factor
        is beyond these columns.
    predictors : ndarray (N,)
        eta_i at the center.
    slopes, curvatures : ndarray (N,)
        f_i' and f_i'' there.
    thirds : ndarray (N,) or (0,)
        Third derivatives there; without third-order terms empty.
    dispersions : DispersionRows
    data : ndarray (n_data, N)
        Columns that f reads.
    program : Tape
        f, to be run at points.
    """

    starts: Index
    x: Matrix
    covariates: Matrix
    levels: npt.NDArray[np.int32]
    predictors: Vector
    slopes: Vector
    curvatures: Vector
    thirds: Vector
    dispersions: DispersionRows
    data: Matrix
    program: Tape


class GroupSums(NamedTuple):
    """The Taylor polynomial of the log likelihood in levels e_g and d = beta - beta*. It has size G D.

    P columns enter the predictor or the effects' location. D of them are dense; columns of levels of other
    factors are zero for most rows. xbar_g has both.

    Attributes
    ----------
    linear : ndarray of int (P,)
        Which coordinates of theta enter the predictor or the effects' location.
    center : ndarray (P,)
        beta*.
    dense : ndarray of int (D,)
        Which of the P columns are dense.
    varying : ndarray of int (V,)
        Which of the D columns vary within groups.
    gradient : ndarray (P,)
        c = sum of f_i' z_i.
    information : ndarray (P, P)
        W = sum of w_i z_i z_i'.
    slopes, curvatures : ndarray (G,)
        a_g = sum of f_i', b_g = sum of w_i.
    means : ndarray (G, D)
        xbar_g, weighted by w_i, of dense columns.
    cells : Cells
        Of other factors.
    shares : ndarray (C,)
        xbar_g of the cells' columns.
    moved : ndarray of int (M,)
        Which of the P columns enter the effects' location.
    located : ndarray (G, M)
        How the effects' location changes with these.
    parents : ndarray of int (G,) or (0,)
        Which of the P columns is added to the location of each group beside these; -1 for none.
    offsets : ndarray (G,)
        nu_g at the center.
    effects : ndarray (G,)
        u_g*.
    phi : ndarray (n,)
        Numbers that rows share beside their predictor, at the center.
    phi_slopes : ndarray (n, P)
        How they change with d.
    n_normal, squares : float
        For a normal likelihood: N, and the sum of squares of residuals at the center. Else zero.
    n_effects : int
        Effects of a group, q.
    other_squares : ndarray (1,)
        What effects of a crossed factor add to `squares`.
    """

    linear: Index
    center: Vector
    dense: Index
    varying: Index
    gradient: Vector
    information: Matrix
    slopes: Vector
    curvatures: Vector
    means: Matrix
    cells: Cells
    shares: Vector
    moved: Index
    located: Matrix
    parents: Index
    offsets: Vector
    effects: Vector
    phi: Vector
    phi_slopes: Matrix
    n_normal: float
    squares: float
    n_effects: int = 1
    other_squares: Vector = np.zeros(1)


class GroupBounds(NamedTuple):
    """Bounds on the remainders of each group. It has size G.

    Bounds of a tier hold for levels within its reach, and coefficients within its radius.

    Attributes
    ----------
    whitening : ndarray (V, P)
        w = whitening . d, of dense columns that vary within groups.
    radii : ndarray (T,)
        Largest |w| of each tier.
    reaches : ndarray (T, G)
        Of each tier, the largest |e_g|; levels of other factors are allowed for.
    levels, shared : ndarray (T, G)
        Totals of the cumulative sums in `RowBounds`.
    typical : ndarray (G,)
        zeta0_g.
    sizes : ndarray of int (G,)
        Rows of each group.
    widths : ndarray (G,)
        h_g, standard deviations of the proposals for eps_g.
    rounding : float
        What rounding may add to the difference of two remainders.
    power : int
        m, the order of the Taylor polynomials: 2, or 3 with third-order terms.
    norms : ndarray (G q, q)
        A_g, so that |A_g e_g| is bounded by the reaches, if there are slopes; else (0, 1).
    """

    whitening: Matrix
    radii: Vector
    reaches: Matrix
    levels: Matrix
    shared: Matrix
    typical: Vector
    sizes: Index
    widths: Vector
    rounding: float
    power: int
    norms: Matrix


class RowBounds(NamedTuple):
    """Bounds on the remainders of rows, and cumulative sums to draw rows by them. It has size N.

    Attributes
    ----------
    lengths : ndarray of float32 (N,)
        zeta_i, of z_i in whitened coordinates.
    constants : ndarray of float32 (T, N)
        K_i.
    levels, shared : ndarray of float32 (T, N)
        Cumulative sums within groups of K_i (1 + zeta_i / zeta0_g)^m, and of zeta_i times that.
    """

    lengths: Singles
    constants: Singles
    levels: Singles
    shared: Singles


class EffectsDensity(NamedTuple):
    """The prior of the effects; see `effects_density`.

    Attributes
    ----------
    kind : int
    ratio : float
        tau / scale; 1 for normal effects.
    """

    kind: int
    ratio: float


class PlateRule(NamedTuple):
    """Numbers that say how moves of a plate are made and decided.

    Attributes
    ----------
    kappa : float
        So many times the rows are drawn for the shared move, which makes its decision less noisy.
    is_centered : bool
        Whether the model has u_g itself, else z_g = (u_g - loc_g) / tau.
    n_vectors : int
        How many vectors the model's effects are in, the first all intercepts; 1 if those of a group are side
        by side.
    scaled, scaled_by : ndarray of int (K,)
        Coordinates of theta that the model has divided by a feature, and by which one.
    has_remainders : bool
        False for a normal likelihood: no row is read.
    debug : bool
        Count terms that are larger than their bound, and go on.
    violations : ndarray of int (1,)
    """

    kappa: float
    is_centered: bool
    n_vectors: int
    scaled: Index
    scaled_by: Index
    has_remainders: bool
    debug: bool
    violations: Index


class Workspace(NamedTuple):
    """Room for rows that are evaluated together.

    Attributes
    ----------
    predictors : ndarray (1 + n, BLOCK)
    data : ndarray (n_data, BLOCK)
    values : ndarray (BLOCK,)
    points : Points
    """

    predictors: Matrix
    data: Matrix
    values: Vector
    points: Points


class Plate(NamedTuple):
    """Numbers of a plate that a kernel is handed: rows, sums, bounds, priors and proposals.

    Attributes
    ----------
    rows : GroupedRows
    sums : GroupSums
    cubic : Cubic
    bounds : GroupBounds
    weights : RowBounds
    effects : EffectsDensity
    proposal : SharedProposal
    outer : Outer
    crossing : Crossing
    rule : PlateRule
    room : Workspace
    """

    rows: GroupedRows
    sums: GroupSums
    cubic: Cubic
    bounds: GroupBounds
    weights: RowBounds
    effects: EffectsDensity
    proposal: SharedProposal
    outer: Outer
    crossing: Crossing
    rule: PlateRule
    room: Workspace


def workspace(program: Tape, n_predictors: int, n_data: int) -> Workspace:
    """Room for rows of a program."""
    return Workspace(
        np.zeros((n_predictors, BLOCK)), np.zeros((n_data, BLOCK)), np.zeros(BLOCK), points_for(program)
    )
