"""`sbc`: simulation-based calibration. Fits of simulated data, ranks, and a verdict on them."""

import textwrap
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import numpy as np
import pandas as pd
import pymc as pm
import pytensor
import xarray as xr
from pymc.model.transform.conditioning import observe, remove_value_transforms
from pymc.pytensorf import compile as compiled
from rich.console import Console
from rich.progress import track
from xarray import DataTree

from pymc_austerity.diagnostics.result import chosen, scalars
from pymc_austerity.exceptions import CompiledError, SelfCheckError
from pymc_austerity.model.factorise import model_of
from pymc_austerity.plots.style import APPROXIMATE, Panels, optional, shown
from pymc_austerity.report.run import noting_interrupts
from pymc_austerity.sampling.sample import sample
from pymc_austerity.sampling.sampler import FEW_ROWS, longest
from pymc_austerity.validation import require_switches, require_whole

# Probability that ranks of a right model are said to deviate, of all scalars together.
_LEVEL = 0.01
# Fewer fits tell little; if a larger share failed, the others are a selection.
_FEWEST, _FAILED = 20, 0.03
# Effective draws for each that is ranked; draws of a chain at first and at most, and how often it is run.
_APART, _FIRST, _MOST, _RUNS = 1.5, 500, 20_000, 3
_ROWS, _PANELS = 10, 12  # that are shown
_OURS = "_simulated"  # ends the names of data
_REMEDY = "give simulate=, a function that returns parameters and data, or write it as a distribution."


@dataclass(frozen=True, repr=False, eq=False)
class Calibration:
    """Ranks of true values among draws of the posterior, which `sbc` has made.

    `tree` has the groups ``ranks`` (from 0 to `draws`), ``truth`` and ``stats``, with the dimension ``fit``;
    `failures` has the reasons of fits that failed, by number; `asked` is how many fits were asked for.
    """

    tree: DataTree
    draws: int
    asked: int
    failures: dict[int, str]

    @property
    def pit(self) -> xr.Dataset:
        """Ranks as numbers between 0 and 1, at random within a rank: one variable for each scalar."""
        rng, ranks = np.random.default_rng(0), self.tree["ranks"].to_dataset()
        flat = scalars(DataTree.from_dict({"posterior": ranks.rename(fit="draw").expand_dims("chain")}))
        unit = ((name, own[0] + rng.uniform(size=own.shape[1])) for name, own in flat.items())
        return xr.Dataset({name: ("fit", own / (self.draws + 1)) for name, own in unit})

    def to_dataframe(self) -> pd.DataFrame:
        """One row for each scalar, the most suspicious first.

        ``p`` is that of uniform ranks, and ``p_holm`` is corrected for the number of scalars. ``shift`` is
        positive if draws are too high, and ``width`` if they are too wide, each in standard errors.
        """
        import arviz_stats  # noqa: F401  # has azstats; takes half a second

        pit = self.pit
        found, root = pit.azstats.uniformity_test(dim="fit")[0], np.sqrt(pit.sizes["fit"])
        columns = {
            "p": [min(max(float(found[name]), 0.0), 1.0) for name in pit],
            "shift": [float((0.5 - u).mean()) * root * np.sqrt(12) for u in pit.values()],
            "width": [float((1 / 12 - (u - 0.5) ** 2).mean()) * root * np.sqrt(180) for u in pit.values()],
        }
        table = pd.DataFrame(columns, index=list(pit)).sort_values("p", kind="stable")
        times = table["p"].to_numpy() * np.arange(len(table), 0, -1)
        table.insert(1, "p_holm", np.minimum(np.maximum.accumulate(times), 1.0))
        return table

    @property
    def verdict(self) -> str:
        """What the ranks say: "deviates", "no deviation", or "cannot tell"."""
        if self.to_dataframe()["p_holm"].min() < _LEVEL:
            return "deviates"
        n, failed = self.tree["ranks"].sizes["fit"], len(self.failures)
        return "no deviation" if n >= _FEWEST and failed <= _FAILED * (n + failed) else "cannot tell"

    def plot(self, var_names: str | Sequence[str] | None = None, **options: Any) -> Any:
        """Distribution functions of ranks less the uniform one, as `arviz_plots.plot_ecdf_pit` draws them.

        Of some scalars, such as "beta[0]", or of the most suspicious.
        """
        pit = self.pit
        names = list(self.to_dataframe().index[:_PANELS]) if var_names is None else var_names
        pit = pit[chosen(names, pit, "the calibration")]
        own, backend = (options.pop(name, None) for name in ("plot_collection", "backend"))
        panels = Panels((), None, own, backend, {})
        panels.lay_out(pit, ["__variable__"], len(pit), col_wrap=4, panel=(3.4, 2.6))
        looks = {"ecdf_lines": {"color": APPROXIMATE}, "xlabel": {"text": "rank of the true value"}}
        options |= {"visuals": looks | options.get("visuals", {}), "plot_collection": panels.collection}
        tree = DataTree.from_dict({"pit": pit})
        return optional("arviz_plots").plot_ecdf_pit(tree, group="pit", sample_dims=["fit"], **options)

    def __repr__(self) -> str:
        table, stats, n = self.to_dataframe(), self.tree["stats"], self.tree["ranks"].sizes["fit"]
        failed, deviate = len(self.failures), int((table["p_holm"] < _LEVEL).sum())
        said = {
            "deviates": f"Deviates: ranks of {deviate} of {len(table)} scalars are not uniform.",
            "no deviation": f"No deviation: ranks of all {len(table)} scalars may be uniform.",
            "cannot tell": "Cannot tell: no deviation was found, but of too few fits, or too many failed.",
        }
        first = next(iter(self.failures.values()), "")
        short, divergent = (int((stats[name] > 0).sum()) for name in ("is_short", "divergences"))
        remarks = {
            "shift: draws are too high; width: too wide; in standard errors.": True,
            f"Interrupted: {self.asked} fits were asked for.": n + failed < self.asked,
            f"Fits that failed and are left out: {failed}, the first by {first}": failed,
            f"Fits with too few effective draws, which look too narrow: {short}.": short,
            f"Fits with divergences: {divergent}.": divergent,
        }
        told = [said[self.verdict], *(text for text, holds in remarks.items() if holds)]
        rows = table.head(_ROWS).rename(index=shown).map("{:.2g}".format).to_string()
        rest = [f"... and {len(table) - _ROWS} more: to_dataframe()"] if len(table) > _ROWS else []
        seconds = float(stats["seconds"].median())
        head = f"{n} fits of {seconds:.2g} s; ranks among {self.draws} draws of each"
        return "\n".join([head, "", rows, *rest, "", *(textwrap.fill(line, 80) for line in told)])


def sbc(
    model: Any,
    fits: int = 100,
    draws: int = 100,
    *,
    var_names: str | Sequence[str] | None = None,
    step: Any = "recommend",
    simulate: Callable[[np.random.Generator], Mapping[str, Any]] | None = None,
    random_seed: int | None = None,
    progressbar: bool = True,
) -> Calibration:
    """Calibrate by simulation: fit data drawn from the prior, and rank the true values among the draws.

    Parameters are drawn from the prior, data are drawn given these, and the model is fitted to the data. If
    all is right, ranks of the true values among posterior draws are uniform.

    Parameters
    ----------
    model : pymc.Model or bambi.Model
        A model with observed variables. It is not changed.
    fits : int >= 1, default 100
        Data sets that are simulated and fitted.
    draws : int >= 1, default 100
        Posterior draws that a true value is ranked among. Chains are longer: these are nearly independent.
    var_names : str or sequence of str, optional
        Variables that are ranked, deterministics too; besides the log likelihood of the data. Default: all
        free variables.
    step : "recommend", "nuts" or callable, default "recommend"
        As in `sample`; or a function of a model that returns a step, or several. With "nuts", and where the
        data are few, nutpie is compiled once, and runs in the coordinates of the model.
    simulate : callable, optional
        A function of a `numpy.random.Generator` that returns values of all free and observed variables by
        name, and of those in `var_names`. Default: draws of the model.
    random_seed : int, optional
    progressbar : bool, default True

    Returns
    -------
    Calibration
        Print it. It has `verdict`, `to_dataframe()`, `plot()`, and `tree`, a DataTree with all ranks. After
        Ctrl-C it has the fits that were made.

    Raises
    ------
    ValueError, NotImplementedError
        If nothing is observed; if there is no `simulate`, and no data can be drawn of a potential or of a
        distribution, which the message names; or if the first ten fits fail.
    TypeError
        If `simulate` leaves a variable out.
    SelfCheckError, CompiledError
        At once: a defect of the package, or a row beyond its bound, is no failed fit.

    Notes
    -----
    As Talts et al. (2018) propose, with the log likelihood as a test quantity that depends on the data
    (Modrak et al. 2023). Uniformity is tested by ``uniformity_test`` of arviz_stats, with Holm's correction
    for the number of scalars. With `simulate` true values are ranked among draws of the model's prior, too
    (``prior of beta``): where data are many, the posterior hardly tells of a wrong prior.

    *Guarantee*: ranks are uniform if draws are independent and of the right posterior. Then "deviates" is
    said with a probability of about 0.01, whatever the number of scalars. Ties are ranked at random.

    *When it fails*: without `simulate` the data are from the model, so that the sampler is tested, and
    whether densities and random draws belong together; not whether your data are like that. If the prior is
    vague, so are most data, and what holds for them may not hold for yours. Calibration from the posterior
    of an earlier fit is not offered. Small faults need many fits.

    Examples
    --------
    >>> import pymc as pm
    >>> import pymc_austerity as pma
    >>> with pm.Model() as model:
    ...     rate = pm.Gamma("rate", 2, 1)
    ...     counts = pm.Poisson("counts", rate, observed=[1, 0, 2])
    >>> pma.sbc(model, 20, 20, step=pm.Slice, random_seed=1, progressbar=False).verdict
    'no deviation'
    """
    require_whole(1, fits=fits, draws=draws)
    require_switches(progressbar=progressbar)
    if not callable(step) and step not in ("recommend", "nuts"):
        raise ValueError(
            f'step must be "recommend", "nuts" or a function of a model, got {step!r}. Fits are of copies of '
            "your model: write step=lambda model: pma.TunaMH(model=model)."
        )
    failures: dict[int, str] = {}
    made: list[tuple[xr.Dataset, ...]] = []
    console = Console(stderr=True)
    with warnings.catch_warnings(), noting_interrupts() as interrupted:
        warnings.filterwarnings("ignore", "Detected variables likely created|Numba will use object mode")
        try:
            bench = _Bench(model_of(model), var_names, step, int(draws), simulate, random_seed)
            for k in track(range(fits), "sbc", console=console, transient=True, disable=not progressbar):
                try:
                    one = bench.fit(k, interrupted.is_set)
                except (NotImplementedError, SelfCheckError, CompiledError):  # of no draws; or a defect
                    raise
                except (ValueError, ArithmeticError, RuntimeError) as error:  # as of absurd data
                    if interrupted.is_set():
                        break
                    failures[k] = f"{type(error).__name__}: {error}".partition("\n")[0]
                    if not made and k + 1 == min(10, fits):
                        raise ValueError(f"None of {k + 1} fits succeeded. {failures[k]}") from error
                    continue
                if interrupted.is_set():  # `sample` has returned a part of the draws
                    break
                made.append(one)
        except KeyboardInterrupt:
            pass
    if not made:
        raise KeyboardInterrupt
    groups = zip(("ranks", "truth", "stats"), zip(*made, strict=True), strict=True)
    tree = DataTree.from_dict({name: xr.concat(own, "fit") for name, own in groups})
    return Calibration(tree, int(draws), int(fits), failures)


class _Bench:
    """A copy of a model whose data can be replaced: draws them, fits them, and ranks true values."""

    def __init__(
        self, model: pm.Model, var_names: Any, step: Any, draws: int, simulate: Any, seed: int | None
    ) -> None:
        if not model.observed_RVs:
            raise ValueError("The model has no observed variables, and so no data to simulate.")
        if model.potentials and simulate is None:
            raise ValueError(f"{model.potentials[0].name!r} is a potential, without random draws: {_REMEDY}")
        free, others = ([str(var.name) for var in own] for own in (model.free_RVs, model.deterministics))
        wanted = free if var_names is None else var_names
        self.ranked = chosen(wanted, dict.fromkeys(free + others), "the model")
        self.kept = list(dict.fromkeys(free + self.ranked))
        data = {}
        for rv in model.observed_RVs:
            values = np.asarray(model.rvs_to_values[rv].eval(), rv.dtype)
            data[rv] = pytensor.shared(values, f"{rv.name}{_OURS}", shape=rv.type.shape)
        initial = model.rvs_to_initial_values
        model.rvs_to_initial_values = dict.fromkeys(initial)  # with others PyMC copies no model
        try:
            self.model = observe(model, data)
        finally:
            model.rvs_to_initial_values = initial
        plain = remove_value_transforms(self.model)
        self.data = [each.rvs_to_values[rv] for each in (self.model, plain) for rv in each.observed_RVs]
        self.points = [value.name for value in plain.value_vars]
        options = {"inputs": plain.value_vars, "point_fn": False, "on_unused_input": "ignore"}
        self.log_likelihood = plain.compile_fn(plain.logp(vars=plain.observed_RVs), **options)
        self.draws, self.step, self.seeds = draws, step, np.random.SeedSequence(seed)
        self.simulate = simulate or self.own_draws([*self.kept, *(rv.name for rv in model.observed_RVs)])
        self.priors: list[str] = []
        if simulate is not None and not model.potentials:
            with suppress(NotImplementedError):  # of a prior without draws
                self.prior = self.own_draws(self.ranked)
                self.priors = list(self.prior(None))
        self.sampled = self.by_nutpie() or self.by_sample

    def own_draws(self, names: list[str]) -> Callable[[Any], Mapping[str, Any]]:
        """A function that draws from the model, or says of which variable it cannot."""
        seed = int(self.seeds.generate_state(1)[0])
        draw = compiled([], [self.model[name] for name in names], random_seed=seed)

        def simulated(rng: Any) -> Mapping[str, Any]:
            try:
                return dict(zip(names, draw(), strict=True))
            except NotImplementedError:
                for rv in self.model.basic_RVs:  # parents first
                    try:
                        pm.draw(rv)
                    except NotImplementedError as error:
                        raise NotImplementedError(f"{rv.name!r} has no random draws: {_REMEDY}") from error
                raise

        return simulated

    def by_nutpie(self) -> Callable[[int, int], DataTree] | None:
        """NUTS that is compiled once, if NUTS is what would run."""
        n_rows, n = longest(self.model), len(self.model.continuous_value_vars)
        is_nuts = self.step == "nuts" or (self.step == "recommend" and (n_rows or FEW_ROWS) < FEW_ROWS)
        if not is_nuts or n < len(self.model.value_vars) or find_spec("nutpie") is None:
            return None
        import nutpie  # optional, and slow to import

        nuts = nutpie.compile_pymc_model(self.model, var_names=self.kept)
        options = {"tune": 1000, "chains": 2, "cores": 1, "progress_bar": False}

        def sampled(draws: int, seed: int) -> DataTree:
            own = nuts.with_data(**{value.name: value.get_value() for value in self.data})
            return nutpie.sample(own, draws=draws, seed=seed, **options)  # type: ignore[no-any-return]

        return sampled

    def by_sample(self, draws: int, seed: int) -> DataTree:
        """A run by the step that was asked for."""
        step = self.step
        if callable(step):
            with self.model:
                step = step(model=self.model) if isinstance(step, type) else step(self.model)
        return sample(
            draws, chains=2, cores=1, step=step, model=self.model, random_seed=seed, var_names=self.kept,
            quiet=True, progressbar=False, compute_convergence_checks=False,
        )  # fmt: skip

    def fit(self, k: int, is_over: Callable[[], bool]) -> tuple[xr.Dataset, ...]:
        """Ranks, true values, and statistics of a fit, which is not run again if all `is_over`."""
        import arviz_stats  # takes half a second

        rng = np.random.default_rng(np.random.SeedSequence(self.seeds.entropy, spawn_key=(k,)))
        values, began, n, needed = self.simulate(rng), time.perf_counter(), _FIRST, _APART * self.draws
        named = [own.name.removesuffix(_OURS) for own in self.data]
        if missing := [name for name in dict.fromkeys([*self.kept, *named]) if name not in values]:
            raise TypeError(f"simulate has to return {', '.join(missing)} too; it returned {[*values]}.")
        for own in self.data:
            own.set_value(np.asarray(values[own.name.removesuffix(_OURS)], own.dtype))
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            for _ in range(_RUNS):
                idata = self.sampled(n, int(rng.integers(2**31)))
                posterior = idata["posterior"].to_dataset().drop_attrs()[self.kept]
                sizes = arviz_stats.ess(posterior[self.ranked]).values()
                ess = float(np.nanmin([*(one.min() for one in sizes), np.inf]))
                if ess >= needed or n == _MOST or is_over():
                    break
                n = min(_MOST, int(1.2 * n * needed / max(ess, 1.0)) + 1)
        every = posterior.stack(at=("chain", "draw")).transpose("at", ...).drop_vars(["at", "chain", "draw"])
        some = every.isel(at=np.linspace(0, every.sizes["at"] - 1, self.draws).astype(int))
        truth = xr.Dataset({v: (one.dims[1:], np.asarray(values[str(v)])) for v, one in some.items()})
        log_p = [self.log_likelihood(*(some[v].values[i] for v in self.points)) for i in range(self.draws)]
        at_truth = self.log_likelihood(*(truth[v].values for v in self.points))
        some = some[self.ranked].assign(log_likelihood=("at", np.asarray(log_p, dtype=np.float64)))
        truth = truth[self.ranked].assign(log_likelihood=float(at_truth))
        if self.priors:
            drawn = [self.prior(rng) for _ in range(self.draws)]
            for name in self.priors:
                some[f"prior of {name}"] = some[name].copy(data=np.stack([one[name] for one in drawn]))
                truth[f"prior of {name}"] = truth[name]
        ties = (some == truth).sum("at").map(lambda one: one.copy(data=rng.integers(0, one.values + 1)))
        diverging = idata["sample_stats"].to_dataset().get("diverging", np.zeros(1)).sum()
        stats = {"ess": ess, "is_short": ess < needed, "draws": every.sizes["at"], "warnings": len(told)}
        stats |= {"divergences": int(diverging), "seconds": time.perf_counter() - began}
        return (some < truth).sum("at") + ties, truth, xr.Dataset(stats)
