"""The cases: short chains whose every bit is compared. Public names only."""

from collections.abc import Callable, Mapping
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import pymc as pm

import pymc_austerity as pa
from pymc_austerity.acceptance import Barker, Concentration, Exact, ExactBarker, TTest
from pymc_austerity.distributions import UniformStiefel
from pymc_austerity.proposals import AdaptiveRandomWalk, Langevin, StiefelWalk
from pymc_austerity.step_methods import DecreasingStepSize
from tests.golden import hierarchies, models

# Statistics that are times.
TIMES = frozenset({"process_time_diff", "perf_counter_diff", "perf_counter_start"})

# Public names that are in no case, and why.
LEFT_OUT = {
    "sample_distributed": "its draws are compared with those of pm.sample",
    "sampler": "its draws are those of sample",
    "approximate": "its draws are compared with exact ones",
    "log_evidence": "compared with quadrature",
    "estimates": "a table of draws, which are compared themselves",
    "loo": "no chain: it is compared with ArviZ's, row by row",
    "sample_posterior_predictive": "its distribution is tested row by row",
    "FactorisationError": "an error",
    "SubsamplingWarning": "warnings are compared by their texts",
    "__version__": "differs by right",
    "compare": "a report, of chains by the same steps",
    "sbc": "ranks, of chains by the same steps",
    "design": "theory: no chain",
    "diagnostics": "tables of results, which are compared themselves",
    "plots": "figures",
    **dict.fromkeys(["distributions", "proposals", "testing"], "names of other modules"),
}

Arrays = dict[str, np.ndarray]


def sample(step: Any, **options: Any) -> Arrays:
    """Posterior and sample statistics of a short run in the context's model."""
    quietly = {"progressbar": False, "quiet": True, "compute_convergence_checks": False}
    chosen = {"draws": 50, "tune": 20, "chains": 2, "cores": 1, "random_seed": 11, **quietly, **options}
    result = pm.sample(step=step, **chosen)
    return {
        f"{group}/{name}": array.to_numpy()
        for group in ("posterior", "sample_stats")
        for name, array in result[group].data_vars.items()
        if name not in TIMES
    }


# A tempered likelihood, where concentration bounds decide before all rows are read.
HOT = {"temperature": 100.0, "proposal": pa.RandomWalk(0.2)}
# Many transitions for a draw, for each reads a fraction of a row on average.
THINNED = {"switch_above": np.inf, "steps_per_draw": 20}


class Chain(NamedTuple):
    """A run of `step(model)` on a model."""

    model: Callable[[], pm.Model]
    step: Callable[[pm.Model], Any]
    options: Mapping[str, Any] = {}

    def __call__(self) -> Arrays:
        with self.model() as model:
            return sample(self.step(model), **self.options)


SMALL, LARGE = hierarchies.Size(1500, 32), hierarchies.Size(2500, 264)


class FieldChain(NamedTuple):
    """A run on a model of groups, which is moved as a field."""

    model: Callable[[hierarchies.Size], Any]
    size: hierarchies.Size = SMALL
    step: Callable[[pm.Model], Any] = lambda model: pa.TunaMH(model=model, switch_above=np.inf)
    options: Mapping[str, Any] = {}

    def __call__(self) -> Arrays:
        with self.model(self.size) as model:
            step = self.step(model)
            found = sample(step, **self.options)
        self.require(step, found)
        return found

    def require(self, step: Any, found: Arrays) -> None:
        """Raise an error if the step has moved something else."""
        require_field(found)
        if isinstance(step, pa.TunaMH) and step.reads_all:
            raise ValueError("All rows are read.")


def require_field(found: Arrays) -> None:
    """Raise an error if no field was moved: sweeps tell how many of the groups accept."""
    accepted = found.get("sample_stats/effects_acceptance")
    # Barker's test accepts half of the moves after which the density is the same.
    if accepted is None or not (accepted.min() >= 0.0 and accepted.mean() > 0.4):
        raise ValueError(f"No field was found: acceptances of groups are {accepted}.")


def field_new_data() -> Arrays:
    """A step on a field before and after `pm.set_data`."""
    with hierarchies.plain(SMALL) as model:
        step = pa.TunaMH(switch_above=np.inf)
        before = sample(step)
        pm.set_data({"outcome": 1 - model["outcome"].get_value()})
        after = sample(step)
    for found in (before, after):
        require_field(found)
    return before | {f"after/{name}": array for name, array in after.items()}


def field_recommended() -> Arrays:
    """A chain on a field by the step that is recommended."""
    found = recommendation(hierarchies.plain(SMALL))
    require_field(found)
    return found


def on_rows(step: Callable[..., Any], **options: Any) -> Callable[[pm.Model], Any]:
    """A step whose rule decides on remainders."""
    return lambda model: step(model=model, control_variate=pa.Taylor(), **options)


def beside(name: str, other: Callable[..., Any]) -> Callable[[pm.Model], Any]:
    """A subsampled step for all but the variable `name`, which another moves."""

    def steps(model: pm.Model) -> list[Any]:
        rest = [rv for rv in model.free_RVs if rv.name != name]
        return [pa.AusterityMH(rest, proposal=pa.RandomWalk(0.05)), other([model[name]])]

    return steps


def one_by_one(model: pm.Model, name: str, **options: Any) -> list[Any]:
    """A step for the elements of one variable, and a slice step for the others."""
    others = [rv for rv in model.free_RVs if rv.name != name]
    return [pa.AusterityMH([model[name]], elementwise=True, **options), pa.restricted_slice(others)]


def gibbs_with_counts(model: pm.Model) -> list[Any]:
    allocations = pa.MinibatchCategoricalGibbs([model["z"]], batch_size=0.2, steps_per_draw=2)
    return [
        allocations,
        pa.SCIR([model["w"]], step_size=3.0, counts=allocations),
        pa.MetropolisHastings([model["mu"]], proposal=pa.RandomWalk(0.05)),
    ]


def two_subsampled_steps(model: pm.Model) -> list[Any]:
    return [
        pa.AusterityMH([model["a"], model["b"]], batch_size=100, proposal=pa.RandomWalk(0.02)),
        pa.MinibatchBarker([model["sigma"]], temperature=20.0, proposal=pa.RandomWalk(0.05)),
    ]


def new_data() -> Arrays:
    """One step before and after `pm.set_data`: the second run has fewer rows."""
    with models.line() as model:
        step = pa.AusterityMH(batch_size=100)
        before = sample(step)
        old = {name: model[name].get_value() for name in ("given", "outcome")}
        pm.set_data({name: 0.9 * values[:1100] for name, values in old.items()})
        after = sample(step)
    return before | {f"after/{name}": array for name, array in after.items()}


def stored() -> Arrays:
    """A chain on data that are on disk."""
    rng = np.random.default_rng(5)
    covariates = rng.normal(size=(2000, 2))
    source = {"x": covariates, "y": rng.poisson(np.exp(1 + 0.3 * covariates[:, 0]))}
    with TemporaryDirectory() as folder, pm.Model():
        store = pa.RowStore.write(source, f"{folder}/rows")
        x, y = pa.stored_data("x", store["x"]), pa.stored_data("y", store["y"])
        beta = pm.Normal("beta", 0, 1, shape=2)
        pm.Poisson("o", pm.math.exp(1 + x @ beta), observed=y)
        return sample(pa.TunaMH(**THINNED))


def recommendation(model: pm.Model, **options: Any) -> Arrays:
    """A chain by the step that is recommended, and which that is."""
    with model:
        step = pa.recommend(**options)
        return {"recommended": np.array(step.recommendation.step), **sample(step)}


def factorisation() -> Arrays:
    """Log densities of rows, of the rest, and the mode."""
    found = {}
    for make in (models.hierarchy, models.two_terms, models.weights):
        model = make()
        point, split = model.initial_point(), pa.factorise(model)
        found[f"{make.__name__}/local"] = split.log_density_terms(point)
        found[f"{make.__name__}/rows"] = split.log_density_terms(point, [7, 0, 7, 1100])
        found[f"{make.__name__}/global"] = np.array(split.global_log_density(point))
        found |= {f"{make.__name__}/mode/{name}": value for name, value in pa.find_mode(model).items()}
    return found


CASES: dict[str, Callable[[], Arrays]] = {
    "austerity": Chain(models.line, lambda m: pa.AusterityMH(batch_size=100)),
    "austerity_adaptive": Chain(
        models.logistic,
        lambda m: pa.AusterityMH(
            epsilon=0.05, batch_size=100, proposal=AdaptiveRandomWalk(target_accept=0.3)
        ),
    ),
    "austerity_shaped": Chain(
        models.poisson,
        lambda m: pa.AusterityMH(batch_size=50, growth=1.5, boundary=0.8, proposal=pa.RandomWalk(0.02)),
    ),
    "austerity_correlated": Chain(
        models.poisson,
        lambda m: pa.AusterityMH(
            batch_size=100, proposal=pa.RandomWalk(cov=[[4e-4, -1e-4], [-1e-4, 4e-4]]), steps_per_draw=5
        ),
    ),
    "austerity_blocks": Chain(
        models.poisson,
        lambda m: pa.AusterityMH(subsample="block", batch_size=128, proposal=pa.RandomWalk(0.02)),
    ),
    "austerity_taylor": Chain(models.logistic, lambda m: pa.AusterityMH(control_variate=pa.Taylor())),
    "austerity_exact_rows": Chain(
        models.poisson,
        lambda m: pa.AusterityMH(
            control_variate=pa.Taylor(order=1, exact_rows=30), proposal=pa.RandomWalk(0.02)
        ),
    ),
    "austerity_centre": Chain(
        models.logistic,
        lambda m: pa.AusterityMH(
            control_variate=pa.Taylor(center={"beta": np.array([0.5, -1.0, 0.3])}, exact_rows=0)
        ),
    ),
    "austerity_surrogate": Chain(
        models.hierarchy,
        lambda m: pa.AusterityMH(control_variate=pa.Taylor(), proposal=pa.Surrogate(n_inner=3)),
    ),
    "austerity_laplace": Chain(
        models.logistic, lambda m: pa.AusterityMH(batch_size=100, proposal=pa.Laplace(kind="pcn"))
    ),
    "austerity_temperature": Chain(
        models.two_terms,
        lambda m: pa.AusterityMH(temperature=10.0, batch_size=100, proposal=pa.RandomWalk(0.1)),
    ),
    "elementwise": Chain(models.hierarchy, lambda m: one_by_one(m, "theta", epsilon=0.1, batch_size=20)),
    "particle_gibbs": Chain(models.states, lambda m: pa.ParticleGibbs(["h"], particles=5)),
    "gibbs_field": Chain(models.field, lambda m: pa.AusterityGibbs(epsilon=0.1, batch_size=20)),
    "reversible_jump": Chain(models.selection, lambda m: pa.ReversibleJump(acceptance=TTest(0.05, 100))),
    "reversible_jump_one": Chain(
        models.selection,
        lambda m: pa.ReversibleJump(redraw="one", proposal=AdaptiveRandomWalk(), steps_per_draw=5),
    ),
    "mhsublhd": Chain(models.logistic, lambda m: pa.MHSubLhd(growth=1.5, **HOT)),
    "mhsublhd_hoeffding": Chain(models.poisson, lambda m: pa.MHSubLhd(bound="hoeffding-serfling", **HOT)),
    "mhsublhd_bernstein": Chain(
        models.poisson, lambda m: pa.MHSubLhd(bound="empirical-bernstein", batch_size=20, **HOT)
    ),
    "mhsublhd_exact_range": Chain(models.line, lambda m: pa.MHSubLhd(range_bound="exact", **HOT)),
    "mhsublhd_remainders": Chain(models.logistic, lambda m: pa.MHSubLhd(control_variate=pa.Taylor())),
    "minibatch_barker": Chain(
        models.line, lambda m: pa.MinibatchBarker(temperature=20.0, proposal=pa.RandomWalk(0.05))
    ),
    "minibatch_barker_taylor": Chain(
        models.poisson, lambda m: pa.MinibatchBarker(control_variate=pa.Taylor())
    ),
    "minibatch_barker_pilot": Chain(
        models.line, lambda m: pa.MinibatchBarker(temperature=20.0, pilot=True, proposal=pa.RandomWalk(0.05))
    ),
    "minibatch_barker_skewness": Chain(
        models.poisson,
        lambda m: pa.MinibatchBarker(
            temperature=20.0,
            pilot=True,
            skew_correction=True,
            subsample="block",
            batch_size=64,
            proposal=pa.RandomWalk(0.05),
        ),
    ),
    "austerity_langevin": Chain(
        models.poisson, lambda m: pa.AusterityMH(batch_size=100, proposal=Langevin(4e-4, batch_size=50))
    ),
    "austerity_stiefel": Chain(
        lambda: models.unmixing(UniformStiefel),
        lambda m: pa.AusterityMH(batch_size=100, epsilon=0.05, proposal=StiefelWalk()),
    ),
    "sgld": Chain(models.poisson, lambda m: pa.SGLD(step_size=DecreasingStepSize(2e-4), batch_size=50)),
    "sgld_taylor": Chain(
        models.logistic,
        lambda m: pa.SGLD(step_size=0.1, control_variate=pa.Taylor(), preconditioner=pa.Laplace()),
    ),
    "exact": Chain(
        models.line, lambda m: pa.MetropolisHastings(acceptance=Exact(), proposal=pa.RandomWalk(0.02))
    ),
    "exact_barker": Chain(
        models.poisson, lambda m: pa.MetropolisHastings(acceptance=ExactBarker(), proposal=pa.Laplace())
    ),
    "barker": Chain(
        models.poisson,
        lambda m: pa.MetropolisHastings(acceptance=Barker(200, max_error=0.5), proposal=pa.RandomWalk(0.02)),
    ),
    "ttest": Chain(
        models.poisson,
        lambda m: pa.MetropolisHastings(acceptance=TTest(0.05, 100), proposal=pa.RandomWalk(0.02)),
    ),
    "concentration": Chain(
        models.logistic,
        lambda m: pa.MetropolisHastings(acceptance=Concentration(0.1, batch_size=100), **HOT),
    ),
    "tuna_stored": stored,
    "tuna_logistic": Chain(models.logistic, lambda m: pa.TunaMH(chi=0.5, **THINNED)),
    "tuna_poisson": Chain(models.poisson, lambda m: pa.TunaMH(proposal=pa.RandomWalk(0.02), **THINNED)),
    "tuna_hierarchy": Chain(models.hierarchy, lambda m: pa.TunaMH(proposal=pa.Surrogate(), **THINNED)),
    "tuna_terms": Chain(models.two_terms, lambda m: pa.TunaMH(control_variate=pa.Taylor(order=1), **THINNED)),
    "tuna_features": Chain(models.weights, lambda m: pa.TunaMH(**THINNED)),
    "tuna_switched": Chain(models.hierarchy, lambda m: pa.TunaMH(switch_above=1e-9)),
    "field": FieldChain(hierarchies.plain),
    "field_slopes": FieldChain(hierarchies.slopes),
    "field_correlated": FieldChain(hierarchies.correlated),
    "field_nested": FieldChain(hierarchies.nested),
    "field_crossed": FieldChain(hierarchies.crossed, size=LARGE),
    "field_student": FieldChain(hierarchies.student),
    "field_dispersion": FieldChain(hierarchies.dispersion),
    "field_normal": FieldChain(hierarchies.normal),
    "field_second_factor": FieldChain(hierarchies.second_factor),
    "field_stored": FieldChain(hierarchies.stored),
    "field_tested": FieldChain(hierarchies.plain, step=on_rows(pa.AusterityMH, batch_size=10)),
    "field_barker": FieldChain(hierarchies.plain, step=on_rows(pa.MinibatchBarker, batch_size=10)),
    "field_all_rows": FieldChain(hierarchies.plain, step=on_rows(pa.MetropolisHastings)),
    "field_forkserver": FieldChain(hierarchies.plain, options={"cores": 2, "mp_ctx": "forkserver"}),
    "field_new_data": field_new_data,
    "field_recommended": field_recommended,
    "scir_exact": Chain(models.shares, lambda m: pa.SCIR(step_size=3.0)),
    "scir_dirichlet": Chain(
        models.shares, lambda m: [pa.SCIR([m["w"]], batch_size=100), pa.SCIR([m["rate"], m["chance"]])]
    ),
    "scir_gamma": Chain(
        models.shares,
        lambda m: [pa.SCIR([m["rate"]], batch_size=0.1, steps_per_draw=3), pa.SCIR([m["w"], m["chance"]])],
    ),
    "scir_beta": Chain(
        models.shares,
        lambda m: [
            pa.SCIR([m["chance"]], step_size=DecreasingStepSize(0.5, tau=20), batch_size=100),
            pa.SCIR([m["w"], m["rate"]]),
        ],
    ),
    "scir_anchor": Chain(
        models.mixture,
        lambda m: [
            pa.SCIR([m["w"]], batch_size=200, control_variate="anchor", refresh=10),
            pa.MinibatchCategoricalGibbs([m["z"]], batch_size=100),
            pa.MetropolisHastings([m["mu"]], proposal=pa.RandomWalk(0.05)),
        ],
    ),
    "scir_frozen": Chain(models.weights, lambda m: pa.SCIR(step_size=0.05, batch_size=300)),
    "gibbs_with_counts": Chain(models.mixture, gibbs_with_counts),
    "restricted_nuts": Chain(models.hierarchy, beside("tau", lambda v: pa.restricted_nuts(v))),
    "restricted_slice": Chain(models.hierarchy, beside("tau", lambda v: pa.restricted_slice(v))),
    "two_subsampled_steps": Chain(models.line, two_subsampled_steps),
    "new_data": new_data,
    "fork": Chain(models.line, lambda m: pa.AusterityMH(batch_size=100), {"cores": 2, "mp_ctx": "fork"}),
    "forkserver": Chain(
        models.logistic,
        lambda m: pa.TunaMH(chi=0.5, **THINNED),
        {"cores": 2, "mp_ctx": "forkserver"},
    ),
    "forkserver_scir": Chain(
        models.shares, lambda m: pa.SCIR(batch_size=100), {"cores": 2, "mp_ctx": "forkserver"}
    ),
    "recommend": lambda: recommendation(models.poisson()),
    "recommend_approximate": lambda: recommendation(models.skewed(), approximate=True),
    "factorisation": factorisation,
}
