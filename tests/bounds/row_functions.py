"""Row functions made by hand: the families of `families`, and normal errors with a free scale."""

import numpy as np

from pymc_austerity.bounds.expressions import forms
from pymc_austerity.bounds.expressions.node import constant, data, predictor
from pymc_austerity.bounds.remainder import bounded_terms, row_sampler_of
from pymc_austerity.bounds.row_constants import ExpansionCoordinates, bounded_term
from pymc_austerity.bounds.row_function import RowFunction

ETA, ZETA = predictor(0), predictor(1)


def row_function(rows, make, columns=(), *, name="y", others=(), offset_fixed=True):
    """Rows (N, D + 1) or (N, p, D + 1), and f as ``make(*columns of data)``, an expression."""
    rows = rows[:, None] if rows.ndim == 2 else rows
    columns = np.array([np.broadcast_to(column, len(rows)) for column in columns], dtype=float)
    columns = columns.reshape(-1, len(rows))
    leaves = [
        data(k, column.min(), column.max(), nonzero=not np.any(column == 0.0))
        for k, column in enumerate(columns)
    ]
    return RowFunction(
        name=name,
        n_rows=len(rows),
        n_dim=rows.shape[2] - 1,
        n_predictors=rows.shape[1],
        rows=rows.__getitem__,
        data=lambda positions: columns[:, positions],
        form=forms.finished(make(*leaves)),
        others=others,
        offset_fixed=offset_fixed,
    )


def _times(*factors):
    return forms.multiply(*(constant(x) if isinstance(x, int | float) else x for x in factors))


def logistic(y):
    return forms.subtract(_times(y, ETA), forms.softplus(ETA))


def binomial(y, n):
    return forms.subtract(_times(y, ETA), _times(n, forms.softplus(ETA)))


def normal(s):
    return _times(-0.5, s, forms.square(ETA))


def laplace(left, right):
    where = forms.greater(ETA, constant(0.0))
    return forms.select(where, _times(-1.0, right, ETA), _times(left, ETA))


def huber(s, k):
    inner = forms.less_equal(_times(s, forms.absolute(ETA)), k)
    outer = forms.subtract(_times(0.5, k, k, forms.reciprocal(s)), _times(k, forms.absolute(ETA)))
    return forms.select(inner, _times(-0.5, s, forms.square(ETA)), outer)


def student(nu, sigma):
    scaled = forms.divide(forms.square(ETA), _times(nu, sigma, sigma))
    return _times(-0.5, forms.add(nu, constant(1.0)), forms.log1p(scaled))


def poisson(y, w):
    return forms.subtract(_times(y, ETA), _times(w, forms.exp(ETA)))


def probit(y, scale=None):
    sign = forms.subtract(_times(2.0, y), constant(1.0))
    return forms.log_ndtr(_times(sign, ETA, *([] if scale is None else [scale])))


def cloglog(y):
    g = forms.exp(ETA)
    return forms.select(forms.greater(y, constant(0.0)), forms.log1mexp(forms.negative(g)), forms.negative(g))


def negative_binomial(y, alpha, shift):
    """`shift` is the logarithm of alpha over the exposure."""
    return forms.subtract(_times(y, ETA), _times(forms.add(y, alpha), forms.logaddexp(shift, ETA)))


def gamma(y, alpha):
    return _times(-1.0, alpha, forms.add(ETA, _times(y, forms.exp(forms.negative(ETA)))))


def location_scale(y, a, kappa):
    """-(a / 2) (y - eta)^2 exp(-2 kappa zeta), less its linear part."""
    part = _times(forms.square(forms.subtract(y, ETA)), forms.exp(_times(-2.0, kappa, ZETA)))
    return forms.add(_times(-1.0, kappa, ZETA), _times(-0.5, a, part))


# For each family of `families`, f and the names of the columns of data.
FORMS = {
    "binary logistic": (logistic, ("y",)),
    "logistic": (binomial, ("y", "n")),
    "normal": (normal, ("s",)),
    "Laplace": (laplace, ("left", "right")),
    "Huber": (huber, ("s", "k")),
    "Student's t": (student, ("nu", "sigma")),
    "Poisson": (poisson, ("y", "w")),
    "probit": (probit, ("y",)),
    "complementary log-log": (cloglog, ("y",)),
    "negative binomial": (negative_binomial, ("y", "alpha", "shift")),
    "gamma": (gamma, ("y", "alpha")),
}


def term_of(family, rows, **options):
    """The row function of a family of `families`."""
    make, names = FORMS[family.name]
    return row_function(rows, make, [getattr(family, name) for name in names], **options)


def sampler_of(terms, center, V, W, order=2, most=np.inf, curvature=None):
    """A `RowSampler` for some terms."""
    coordinates = ExpansionCoordinates(order, center, V, W)
    return row_sampler_of(bounded_terms(terms, coordinates, curvature or {}), coordinates, 1e-12, most)


def largest_derivatives(make, columns, low, high, order):
    """Bounds of |f^(order + 1)| from low_i to high_i, with data of their own in each row.

    The whole line is an interval, too; others have two ends.
    """
    low, high = np.broadcast_arrays(np.asarray(low, float), np.asarray(high, float))
    columns = [np.broadcast_to(column, len(low)) for column in columns]
    rows = zip(low, high, *columns, strict=True)
    return np.array([_largest_derivative(make, own, a, b, order) for a, b, *own in rows])


def _largest_derivative(make, own, low, high, order):
    middle, half, radius = 0.0, 1.0, np.inf
    if np.isfinite(low):
        middle, half, radius = (low + high) / 2.0, max((high - low) / 2.0, 1e-9), 1.0
    term = row_function(np.array([[half, middle]]), make, own)
    coordinates = ExpansionCoordinates(order, np.zeros(1), np.eye(1), np.eye(1))
    ((_, c),) = bounded_term(term, coordinates, np.array([radius])).constants()
    return c[0, 0] / half ** (order + 1)
