"""The samplers in the interpreter of this package, and a table of all."""

import time

import numpy as np

from tests.benchmarks.everyone import peers
from tests.benchmarks.everyone.plans import Clock, Method
from tests.benchmarks.everyone.problems import colour_of


def sampled(problem, plan, make_step=None, make_start=None, **options):
    """Run `pm.sample`. Whatever is not between the first draw and the last counts as set-up."""
    import pymc as pm

    model = problem.model()
    clock = Clock(plan)
    began = time.process_time()
    with model:
        if make_start is not None:
            options["initvals"] = make_start(model)
        if make_step is not None:
            options["step"] = make_step()
        idata = pm.sample(
            plan.draws,
            tune=plan.tune,
            chains=1,
            cores=1,
            random_seed=1,
            progressbar=False,
            callback=clock,
            compute_convergence_checks=False,
            discard_tuned_samples=False,
            **options,
        )
    total = time.process_time() - began
    first, tuned, last = clock.times[0], clock.times[plan.tune - 1], clock.times[-1]
    stats, warm = idata.sample_stats, idata.warmup_sample_stats
    if "n_used" in stats:
        terms, units = float(stats["n_used"].mean()), len(clock.times) - 1
    else:
        terms = problem.n * float(stats["n_steps"].mean())
        units = int(stats["n_steps"].sum() + warm["n_steps"][:, 1:].sum())
    return {
        "samples": idata.posterior["beta"].values[0],
        "set_up": total - (last - first),
        "tuning": tuned - first,
        "sampling": last - tuned,
        "terms_per_step": terms,
        "unit_seconds": (last - first) / units,
    }


def austerity_step(name, **options):
    """A run with a step of this package."""

    def run(problem, plan):
        import pymc_austerity as pa

        values = {key: make(pa) for key, make in options.items()}
        return sampled(problem, plan, lambda: getattr(pa, name)(**values))

    return run


def random_walk(problem, plan):
    import pymc_austerity as pa

    return sampled(problem, plan, pa.MetropolisHastings, pa.find_mode)


def laplace(problem, plan):
    """Independent draws, the cost of which is next to nothing; their law is known without any."""
    began = time.process_time()
    mode, precision = problem.newton()
    unwhiten = colour_of(precision)
    ready = time.process_time()
    samples = mode + np.random.default_rng(1).standard_normal((plan.draws, problem.dim)) @ unwhiten.T
    return {
        "samples": samples,
        "mean": mode,
        "sd": np.sqrt(np.diag(unwhiten @ unwhiten.T)),
        "set_up": ready - began,
        "tuning": 0.0,
        "sampling": time.process_time() - ready,
        "terms_per_step": 0.0,
        "unit_seconds": 0.0,
    }


def nuts(problem, plan):
    return sampled(problem, plan, nuts_sampler="pymc")


def nutpie(problem, plan):
    import nutpie

    model = problem.model()
    began = time.process_time()
    compiled = nutpie.compile_pymc_model(model)
    ready = time.process_time()
    idata, spent = stopped(compiled, 3 * plan.seconds, draws=plan.draws, tune=plan.tune, chains=1)
    kept, warm = (idata[g]["n_steps"].values[0] for g in ("sample_stats", "warmup_sample_stats"))
    share = kept.sum() / (kept.sum() + warm.sum())  # all the time goes into gradients
    return {
        "samples": idata.posterior["beta"].values[0],
        "set_up": ready - began,
        "tuning": spent * (1 - share),
        "sampling": spent * share,
        "terms_per_step": problem.n * float(kept.mean()),
        "unit_seconds": spent / (kept.sum() + warm.sum()),
    }


def stopped(compiled, seconds, **options):
    """nutpie, stopped after so many CPU seconds: what there is, and how long it took."""
    import nutpie

    began = time.process_time()
    handle = nutpie.sample(compiled, cores=1, seed=1, progress_bar=False, blocking=False, **options)
    found = None
    while found is None:
        try:
            found = handle.wait(timeout=0.1)
        except TimeoutError:
            if time.process_time() - began > seconds:
                found = handle.abort()
    return found, time.process_time() - began


def taylor(pa):
    return pa.Taylor()


def independent(pa):
    return pa.Laplace()


def only_independent(pa):
    return pa.Laplace(mix=0)


GRADIENTS = {"tune": (100, lambda dim: 400), "units": 12}
METHODS = {
    "tuna": Method("TunaMH", austerity_step("TunaMH"), True),
    "tuna-mix0": Method("TunaMH, mix=0", austerity_step("TunaMH", proposal=only_independent), True),
    "austerity": Method("AusterityMH + Taylor", austerity_step("AusterityMH", control_variate=taylor), False),
    "barker": Method(
        "MinibatchBarker + Taylor", austerity_step("MinibatchBarker", control_variate=taylor), False
    ),
    "exact-walk": Method("exact MH, random walk", random_walk, True, (500, lambda dim: 200 * dim)),
    "exact-laplace": Method(
        "exact MH, Laplace",
        austerity_step("MetropolisHastings", proposal=independent),
        True,
        (20, lambda d: 200),
    ),
    "laplace": Method("Laplace alone", laplace, False, (1, lambda dim: 1)),
    "nuts": Method("pm.NUTS", nuts, True, many=0.25, **GRADIENTS),
    "nutpie": Method("nutpie", nutpie, True, many=0.25, needs="nutpie", **GRADIENTS),
    "hmcecs": Method("NumPyro HMCECS", peers.hmcecs, False, needs="numpyro", is_peer=True),
    "sgld": Method("BlackJAX SGLD-CV", peers.sgld, False, many=5, needs="blackjax", is_peer=True),
}
