"""`loo`: leave-one-out cross-validation of models with many rows, from some of the rows."""

import math
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pymc as pm
from numpy.typing import NDArray
from pymc.pytensorf import compile as compiled
from pytensor.graph.basic import Variable
from pytensor.graph.replace import clone_replace
from pytensor.graph.traversal import ancestors
from xarray import DataArray

from pymc_austerity.exceptions import FactorisationError, warn
from pymc_austerity.model.bambi import as_drawn
from pymc_austerity.model.factorisation import Factorisation, LocalTerm, distance_of_rows, some_rows
from pymc_austerity.model.factorise import model_of
from pymc_austerity.model.field.of_model import factorise
from pymc_austerity.model.graph.checks import array_of
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.loo_groups import Groups
from pymc_austerity.model.predictive import draws_of
from pymc_austerity.model.starting_point import transformed
from pymc_austerity.validation import nearest, require_whole

if TYPE_CHECKING:
    from arviz_stats.utils import ELPDDataLOOSubsample

# Bytes of log likelihoods in memory: all draws of some rows. Smoothing takes some copies of them.
_PIECE = 32_000_000

# Rows or groups that are drawn, and draws of which densities of groups are computed, at most.
_N_ROWS, _DRAWS = {"row": 1000, "group": 200}, 500

Point = list[NDArray[Any]]


def loo(
    idata: Any,
    model: Any = None,
    *,
    n_rows: int | None = None,
    var_name: str | None = None,
    group: str | Sequence[str] | None = None,
    rows: "ELPDDataLOOSubsample | npt.ArrayLike | None" = None,
    random_seed: Any = None,
) -> "ELPDDataLOOSubsample":
    """Leave-one-out cross-validation (PSIS-LOO) of a model with many rows, from some rows or groups.

    Parameters
    ----------
    idata : DataTree
        What `pm.sample` or `pma.sample` has returned, with a group ``posterior``.
    model : pm.Model or bambi.Model, optional
        Default: that of the context.
    n_rows : int, optional
        How many rows are drawn, or groups; all if there are fewer. Default: 1,000 rows, or 200 groups.
    var_name : str, optional
        The observed variable, or a potential that has a number for each row. Default: the only observed one,
        or the only potential.
    group : str or sequence of str, optional
        Effects, such as ``u`` of ``u[group]``: a vector, a matrix with a row for each group, or several, as
        intercepts and slopes. With them whole groups are left out, one by one: all rows that look up the same
        element. Rows of all observed variables count; elements that no row looks up do not.
    rows : ELPDData or array of int, optional
        Take these rows, or groups: those of another model's result, or numbers that were drawn at random.
    random_seed : int, optional
        By which rows are drawn.

    Returns
    -------
    ELPDDataLOOSubsample
        ArviZ's record. ``se`` is the standard error of ``elpd`` as ``arviz.loo`` has it, ``subsampling_se``
        that of taking a sample; ``loo_subsample_observations`` are the rows that were drawn.

    Raises
    ------
    FactorisationError
        If the variable has no log density of each row, or fewer than 1,000 rows; if a row has two elements of
        `group`, or these depend on one another given the variables of their prior.
    ValueError
        If several variables are observed and none is named, the posterior lacks a variable, the data of
        `idata` are not those of the model, or a row that was drawn is impossible.

    Warns
    -----
    SubsamplingWarning
        With the number of rows drawn whose Pareto k is above 0.7 (less with fewer than 2,200 draws); if other
        effects have the same groups as `group` and are not named there.

    Notes
    -----
    The difference estimator of Magnusson et al. (2019, 2020), by functions of ArviZ. The log density of each
    row is computed at one point, the posterior mean. What leave-one-out densities differ from it is estimated
    from the rows drawn, of which densities are computed at all draws. No array has a number for each row and
    draw. Rows on disk are read once, and then those that were drawn.

    A row is what `factorise` calls a row: where an observation is a vector, all of it. The relative
    efficiency of draws is that of the variables that rows depend on.

    Where groups are left out, the density of a group has its effects integrated out, by Gauss and Hermite's
    rule around the mode, with eleven nodes for one effect, 9^2 for two and 3^5 for five:
    p(y_g | theta) = int p(y_g | u, theta) p(u | theta) du. It is smoothed over up to 500 draws of all other
    variables, which are given to it.

    *Guarantee*: over random rows, ``elpd`` is an unbiased estimate of ``arviz.loo``'s, and ``subsampling_se``
    estimates its standard deviation. With all rows the two are equal.

    *When it fails*: if few rows differ much from the approximation, ``subsampling_se`` is too small where
    none of them was drawn. If the mean is no typical point (labels that switch, effects that are multiplied
    by a scale), it is large; draw more rows. Effects of the groups that `group` does not name are given, not
    integrated out. It is not found out whether draws are those of this model.

    Examples
    --------
    >>> import arviz_stats
    >>> import numpy as np
    >>> import pymc as pm
    >>> import pymc_austerity as pma
    >>> rng = np.random.default_rng(1)
    >>> x = rng.normal(size=5000)
    >>> y = rng.poisson(np.exp(1 + 0.3 * x))
    >>> found = {}
    >>> for name, data in {"x": x, "none": 0 * x}.items():
    ...     with pm.Model():
    ...         rate = pm.math.exp(pm.Normal("level") + pm.Normal("slope") * data)
    ...         visits = pm.Poisson("visits", rate, observed=y)
    ...         step = pma.TunaMH(progressbar=False)
    ...         idata = pm.sample(200, tune=100, chains=1, step=step, progressbar=False, random_seed=1)
    ...         found[name] = pma.loo(idata, n_rows=200, rows=found.get("x"), random_seed=1)
    >>> table = arviz_stats.compare(found, method="pseudo-bma")
    >>> table.index[0], bool(table.elpd_diff["none"] < -10 * table.subsampling_dse["none"])
    ('x', True)
    """
    from arviz_stats.base.array import array_stats  # takes half a second
    from arviz_stats.utils import ELPDDataLOOSubsample

    idata = as_drawn(model, idata)
    model = model_of(model)
    if group is None:
        name = _likelihood(model, var_name)
        factorisation = factorise(model)
        term = _term(factorisation, name)
        n, what, most = term.size, "row", None
        graphs = [term.rows]
        function = factorisation.compile(term.rows, [term.index], mode=INTERPRETED)

        def of_rows(point: Point, index: NDArray[Any]) -> NDArray[Any]:
            found: NDArray[Any] = function(*point, index, *factorisation.leaf_values)
            return found

        log_densities: Callable[[Point, NDArray[Any]], NDArray[Any]] = of_rows
    else:
        if var_name is not None:
            raise ValueError(f"var_name={var_name!r} is not for group=, which takes the rows of all.")
        of_groups = Groups(model, group)
        name, factorisation, log_densities = of_groups.name, of_groups.factorisation, of_groups.log_densities
        n, what, most = of_groups.n_groups, "group", _DRAWS
        if others := of_groups.others():
            every = ", ".join(map(repr, [*of_groups.names, *others]))
            warn(
                f"{', '.join(map(repr, others))} has the same groups as {name!r}, and is given by draws that "
                f"have seen the group left out: elpd is too high. Name all of them: group=[{every}]."
            )
        graphs = [one.rows for one in factorisation.locals]
    n_rows = _N_ROWS[what] if n_rows is None else n_rows
    chosen = _rows(n, name, n_rows, rows, random_seed, what)
    points, draws, reff = _points(idata, model, factorisation, graphs, name, most)
    require_same_data(idata, model)
    total = reduce(lambda a, b: [x + y for x, y in zip(a, b, strict=True)], points())
    variables = factorisation.graph.values.values()
    mean = [_mean(x, draws, var.type.dtype) for x, var in zip(total, variables, strict=True)]
    approximate = np.concatenate([log_densities(mean, index) for index in some_rows(n)])
    finite = np.isfinite(approximate)  # for the others any number will do
    approximate[~finite] = approximate[finite].min(initial=0.0)

    parts = []
    for index in np.array_split(chosen, -(-8 * math.prod(draws) * len(chosen) // _PIECE)):
        values = np.array([log_densities(point, index) for point in points()]).T
        if not (possible := np.isfinite(values).all(axis=1)).all():
            raise ValueError(
                f"{what.capitalize()} {index[~possible][0]} of {name!r} has no finite log density at some "
                "draws: they are none of this model with these data."
            )
        parts.append(array_stats.loo(values.reshape(-1, *draws), r_eff=reff))
    elpd_i, pareto_k, p_i = (np.concatenate(found) for found in zip(*parts, strict=True))
    elpd, subsampling_se, se = array_stats.diff_srs_estimator(elpd_i, approximate[chosen], approximate, n)

    n_draws = math.prod(draws)
    good_k = min(1.0 - 1.0 / math.log10(n_draws), 0.7) if n_draws > 1 else 0.7
    if high := int((pareto_k > good_k).sum()):
        warn(
            f"{high:,} of the {len(chosen):,} {what}s drawn have a Pareto k above {good_k:.2f}: without such "
            f"a {what} the posterior is another one, and elpd may be off by more than its standard errors."
        )

    def of_all(sample: NDArray[Any]) -> DataArray:
        values = np.full(n, np.nan)
        values[chosen] = sample
        return DataArray(values, dims=(f"{name}_{what}",))

    return ELPDDataLOOSubsample(
        elpd=elpd,
        se=se,
        p=array_stats.srs_estimator(p_i, n)[0],
        n_samples=n_draws,
        n_data_points=n,
        scale="log",
        warning=high > 0,
        good_k=good_k,
        elpd_i=of_all(elpd_i),
        pareto_k=of_all(pareto_k),
        subsample_size=len(chosen),
        subsampling_se=subsampling_se,
        loo_subsample_observations=chosen,
        elpd_loo_approx=DataArray(approximate, dims=(f"{name}_{what}",)),
    )


def _likelihood(model: pm.Model, var_name: str | None) -> str:
    """Name of the variable whose rows are left out."""
    observed = [str(rv.name) for rv in model.observed_RVs]
    every = [*observed, *(str(potential.name) for potential in model.potentials)]
    if var_name is None and len(observed or every) == 1:
        return every[0]
    if var_name in every:
        return str(var_name)
    asked = "Say which by var_name" if var_name is None else f"var_name: {var_name!r} is none of them"
    meant = nearest(var_name, every) if var_name else ""
    kinds = "observed variables and potentials" if model.potentials else "observed variables"
    raise ValueError(f"The model has the {kinds} {', '.join(every) or '-'}. {asked}.{meant}")


def _term(factorisation: Factorisation, name: str) -> LocalTerm:
    """The rows of the variable `name`."""
    found = [term for term in factorisation.locals if term.name == name]
    graph = factorisation.graph
    if len(found) == 1 and name not in factorisation.global_terms and graph.raw[name].type.ndim:
        return found[0]
    if found or graph.likelihood[name] >= factorisation.threshold:
        raise FactorisationError(
            f"The log density of {name!r} does not consist of one number for each row, as leaving a row out "
            "needs. For series see arviz_stats.lfo_cv.",
            name,
        )
    raise FactorisationError(
        f"{name!r} has {graph.likelihood[name]:,} rows, and samples are drawn from "
        f"{factorisation.threshold:,} or more. Use pm.compute_log_likelihood and arviz.loo.",
        name,
    )


def _rows(size: int, name: str, n_rows: int, rows: Any, seed: Any, what: str) -> NDArray[np.int64]:
    """Numbers of the rows or groups that are drawn, or given, in ascending order."""
    if rows is None:
        require_whole(2, n_rows=n_rows)
        return np.sort(np.random.default_rng(seed).choice(size, min(n_rows, size), replace=False))
    of = getattr(rows, "n_data_points", size)
    if of != size:
        raise ValueError(
            f"rows are some of {of:,}, and {name!r} has {size:,} {what}s: give models the same data."
        )
    found = np.unique(given := np.asarray(getattr(rows, "loo_subsample_observations", rows)))
    if given.dtype.kind not in "iu" or not 2 <= len(found) == given.size or found[0] < 0 or found[-1] >= size:
        raise ValueError(f"rows must be different integers in [0, {size}), two at least, or a result of loo.")
    return found.astype(np.int64)


def require_same_data(idata: Any, model: pm.Model) -> None:
    """Refuse draws given other data than the model has now; data that are not in `idata` are not compared."""
    for group in ("observed_data", "constant_data"):
        for name, then in idata[group].data_vars.items() if group in idata else ():
            var = model.named_vars.get(name)
            now = None if var is None else array_of(model.rvs_to_values.get(var, var))
            if now is not None and not np.array_equal(now, then.values, equal_nan=now.dtype.kind == "f"):
                raise ValueError(
                    f"The data {name!r} of the model are not those of idata. Put them back (pm.set_data)."
                )


def _points(
    idata: Any,
    model: pm.Model,
    factorisation: Factorisation,
    graphs: list[Variable],
    name: str,
    most: int | None,
) -> tuple[Callable[[], Iterator[Point]], tuple[int, int], float]:
    """Values of the model at each draw, numbers of chains and draws, and their relative efficiency.

    Variables on which the `graphs` do not depend stay where they are. Of many draws `most` are
    taken, at equal distances.
    """
    from arviz_stats.base.array import array_stats

    graph, used = factorisation.graph, set(ancestors(graphs))
    names = [name for name, var in graph.values.items() if var in used]
    values = transformed(model, [model[graph.variables[name]] for name in names])
    free = set(model.free_RVs)
    given, coords = draws_of(
        idata, [v for v in ancestors(values, blockers=free) if v in free], f"rows of {name!r}"
    )
    inputs = {rv: rv.type() for rv in given}
    function = compiled(
        list(inputs.values()), clone_replace(values, inputs), mode=INTERPRETED, on_unused_input="ignore"
    )
    apart = distance_of_rows(len(coords["draw"]), most / len(coords["chain"])) if most else 1
    given = {rv: one[:, ::apart] for rv, one in given.items()}
    draws = (len(coords["chain"]), -(-len(coords["draw"]) // apart))

    def points() -> Iterator[Point]:
        for k in np.ndindex(draws):
            found = function(*(one[k] for one in given.values()))
            yield list({**graph.point, **dict(zip(names, found, strict=True))}.values())

    if draws[0] == 1:
        return points, draws, 1.0
    sizes = []
    for one in given.values():
        flat = one.reshape(*draws, -1)
        some = flat[
            ..., :: distance_of_rows(flat.shape[-1], 1000)
        ]  # of a variable with an element for each row
        sizes.append(array_stats.ess(some, chain_axis=0, draw_axis=1, method="mean").ravel())
    known = [size for size in np.concatenate(sizes) if np.isfinite(size)]
    return points, draws, float(np.mean(known)) / math.prod(draws) if known else 1.0


def _mean(total: NDArray[Any], draws: tuple[int, int], dtype: str) -> NDArray[Any]:
    """The mean of a value variable, or a whole number beside it."""
    mean = np.asarray(total) / math.prod(draws)
    return (mean if np.dtype(dtype).kind == "f" else np.rint(mean)).astype(dtype)
