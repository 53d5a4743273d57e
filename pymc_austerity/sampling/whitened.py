"""NUTS in coordinates w in which the posterior is nearly round; the model's values are center + factor w."""

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from arviz_base import dict_to_dataset
from pymc.exceptions import SamplingError
from pytensor.graph.basic import Variable
from pytensor.graph.replace import graph_replace
from scipy import sparse
from xarray import DataTree

from pymc_austerity.mode.whitening import Whitening
from pymc_austerity.sampling import pymc_names
from pymc_austerity.sampling.chains import kept_of
from pymc_austerity.sampling.run import Run
from pymc_austerity.step_methods.metropolis.mixing_pilot import mixing_of

logger = logging.getLogger("pymc.austerity")

# Draws for tuning: masses are nearly one from the beginning. And the acceptance that is tuned to: where few
# steps are needed, shorter ones cost little and follow scales near zero better.
_TUNE, _ACCEPT = 200, 0.9
# Draws and chains of a pilot run; and what speaks against the coordinates: longer trajectories, more
# divergences a draw, and fewer effective draws a draw.
_PILOT_TUNE, _PILOT, _PILOT_CHAINS = 60, 100, 2
_LONGEST, _DIVERGENT, _EFFECTIVE = 47.0, 0.01, 0.1
# How far the mean square of w is from one, beside what it is for N(0, I).
_AWAY = 0.3
# A matrix with a larger share of elements that are not zero is written as a dense one.
_DENSE = 0.25


def sample_whitened(
    model: pm.Model, whitening: Whitening, run: Run, nuts: Mapping[str, Any]
) -> DataTree | None:
    """Draws of NUTS in coordinates, as `pm.sample` returns them; None if a pilot speaks against these."""
    kept = kept_of(model, run.var_names)
    white = whitened_model(model, whitening, kept)
    cores = min(4, pymc_names.cpu_count()) if run.cores is None else run.cores
    chains = max(2, cores) if run.chains is None else run.chains
    seeds = [int(rng.integers(2**30)) for rng in pymc_names.get_random_generator(run.random_seed).spawn(2)]
    names, nuts = [str(var.name) for var in kept], {"target_accept": _ACCEPT, **nuts}
    draw = (_by_nutpie if find_spec("nutpie") else _by_pymc)(white, nuts)
    quietly = run._replace(progressbar=False, quiet=True)
    pilot = draw(_PILOT, _PILOT_TUNE, _PILOT_CHAINS, cores, seeds[0], quietly)
    if pilot is None or not _is_round(pilot, white.free_RVs[0].name):
        return None
    if not run.quiet:
        logger.info(
            "sample: NUTS in coordinates in which the posterior is nearly round; in those of the model it is "
            "%.3g times longer than wide.",
            whitening.stretch,
        )
    began, tune = time.time(), _TUNE if run.tune is None else run.tune
    tree = draw(run.draws, tune, chains, cores, seeds[1], run)
    if tree is None:
        return None
    tree["posterior"].attrs["tuning_steps"] = tune
    found = _as_of_model(tree, model, names, time.time() - began)
    if run.compute_convergence_checks:
        warnings = pymc_names.run_convergence_checks(found, model)
        if not run.quiet:
            pymc_names.log_warnings(warnings)
    return found


def _is_round(pilot: DataTree, name: str) -> bool:
    """Does a pilot run look as if w were nearly N(0, I)?"""
    stats, w = pilot["sample_stats"], pilot["posterior"][name].to_numpy()
    if w.shape[:2] != (_PILOT_CHAINS, _PILOT):
        raise KeyboardInterrupt  # nutpie returns what it has
    away = np.abs(np.mean(w**2, axis=-1) - 1.0).mean()
    return bool(
        stats["n_steps"].mean() <= _LONGEST
        and stats["diverging"].mean() <= _DIVERGENT
        and away <= _AWAY + math.sqrt(2.0 / w.shape[-1])
        and mixing_of(w).efficiency >= _EFFECTIVE
    )


def whitened_model(model: pm.Model, whitening: Whitening, kept: Sequence[Variable]) -> pm.Model:
    """A model of w with the density of another one, which has variables of that as deterministics."""
    name = "whitened"
    while any(other.startswith(name) for other in model.named_vars):
        name += "_"
    values = model.value_vars
    white, point = whitening.in_order(tuple(value.name for value in values)), model.initial_point()
    places, start = {}, 0
    with pm.Model(model=None) as result:
        w = pm.Normal(name, shape=len(white.center), initval="prior")
        for value, size in zip(values, white.sizes, strict=True):
            own = slice(start, start + size)
            part = pt.as_tensor(white.center[own]) + _product(white.factor[own], w)
            places[value] = part.reshape(np.shape(point[value.name]))
            start = own.stop
        graphs = [model.logp(), *model.replace_rvs_by_values([_copied(model, var) for var in kept])]
        log_density, *draws = graph_replace(graphs, places, strict=False)
        pm.Potential(f"{name}_density", log_density - pm.logp(pm.Normal.dist(), w).sum())
        for var, graph in zip(kept, draws, strict=True):
            pm.Deterministic(var.name, graph)
    return result


def _copied(model: pm.Model, var: Variable) -> Variable:
    """A variable as a function of itself, if it is a free one: PyMC replaces these within graphs only."""
    return var + 0 if var in model.free_RVs else var


def _product(matrix: sparse.csr_array, w: Variable) -> Variable:
    """A matrix times w. (A rewrite of PyTensor's fails on its own sparse matrices.)"""
    if matrix.nnz > _DENSE * math.prod(matrix.shape):
        return pt.dot(pt.as_tensor(matrix.toarray()), w)
    elements = matrix.tocoo()
    products = pt.as_tensor(elements.data) * w[elements.col]
    return pt.zeros(matrix.shape[0])[elements.row].inc(products)


# None if no chain could start.
type _Draw = Callable[[int, int, int, int, int, Run], DataTree | None]


def _by_nutpie(white: pm.Model, nuts: Mapping[str, Any]) -> _Draw:
    """Draws by nutpie, of a model that is compiled once."""
    import nutpie  # optional, and slow to import

    compiled = nutpie.compile_pymc_model(white, default_initialization_strategy="prior", jitter_rvs=set())
    options = {"maxdepth" if key == "max_treedepth" else key: value for key, value in nuts.items()}

    def draw(draws: int, tune: int, chains: int, cores: int, seed: int, run: Run) -> DataTree:
        bars = pymc_names.NutpieProgressBarManager(
            chains=chains, draws=draws, progressbar=run.progressbar and not run.quiet
        )
        with bars:
            tree: DataTree = nutpie.sample(
                compiled, draws=draws, tune=max(1, tune), chains=chains, cores=cores, seed=seed,
                save_warmup=not run.discard_tuned_samples, progress_bar=False,
                progress_callback=bars.update, **options,
            )  # fmt: skip
        library = {"inference_library": "nutpie", "inference_library_version": nutpie.__version__}
        tree["posterior"].attrs |= library
        return tree

    return draw


def _by_pymc(white: pm.Model, nuts: Mapping[str, Any]) -> _Draw:
    """Draws by NUTS of PyMC."""

    def draw(draws: int, tune: int, chains: int, cores: int, seed: int, run: Run) -> DataTree | None:
        try:
            tree: DataTree = pm.sample(
                draws, tune=tune, chains=chains, cores=cores, random_seed=seed, model=white,
                nuts_sampler="pymc", init="adapt_diag", nuts=dict(nuts), progressbar=run.progressbar,
                quiet=True, discard_tuned_samples=run.discard_tuned_samples, compute_convergence_checks=False,
            )  # fmt: skip
        except SamplingError:  # the density is zero where one of them would begin
            return None
        tree["posterior"].attrs |= {"inference_library": "pymc", "inference_library_version": pm.__version__}
        return tree

    return draw


def _as_of_model(tree: DataTree, model: pm.Model, kept: list[str], seconds: float) -> DataTree:
    """The draws with dimensions and coordinates of the model, and its data."""
    coords, dims = pymc_names.coords_and_dims_for_inferencedata(model)
    for group in ("posterior", "warmup_posterior"):
        if group not in tree.children:
            continue
        own = tree[group].to_dataset()[kept]
        renamed = {
            f"{name}_dim_{k}": dim for name in own.data_vars for k, dim in enumerate(dims.get(name, ()))
        }
        own = own.drop_vars([name for name in renamed if name in own.coords]).rename_dims(renamed)
        used = {dim: _labels(coords.get(dim), own.sizes[dim]) for dim in renamed.values()}
        tree[group] = DataTree(own.assign_coords(used))
    for group, data in (
        ("constant_data", pymc_names.find_constants(model)),
        ("observed_data", pymc_names.find_observations(model)),
    ):
        tree[group] = DataTree(
            dict_to_dataset(data, inference_library=pm, coords=coords, dims=dims, sample_dims=[])
        )
    tree["posterior"].attrs["sampling_time"] = seconds
    return tree


def _labels(given: Any, n: int) -> np.ndarray:
    """Labels of a dimension, as PyMC writes them."""
    labels = np.arange(n) if given is None else np.asarray(given)
    return labels.astype(object) if labels.dtype.kind == "U" else labels
