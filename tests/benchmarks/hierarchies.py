"""Effects of many groups: seconds to 1,000 effective draws of everything, and of others in the same run.

    python -m tests.benchmarks.hierarchies --rows 1e5 --groups 1000 --likelihood logistic --budget 300
    python -m tests.benchmarks.hierarchies --effects crossed --rows 1e6 --groups 5000 --second 1000 --budget 0

Seconds are CPU seconds of one thread, all set-up included, imports and what is in numba's cache excluded. The
worst of the effects is chosen in a run of its own: the smallest of 1,000 noisy estimates is biased. nutpie is
stopped after its budget. Where it has not reached 300 effective draws by then, its figure is the bound in its
favour: every draw effective. Prints JSON.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from typing import Any

import arviz as az
import numpy as np
import pymc as pm

from pymc_austerity import MetropolisHastings, Taylor, TunaMH
from tests.benchmarks.everyone.methods import stopped
from tests.benchmarks.hierarchy_models import EFFECTS, LIKELIHOODS, Hierarchy, model_of, simulated

_ENOUGH = 300.0
# A vector of more elements has effects.
_SHORT = 20
_OPTIONS: dict[str, Any] = {
    "chains": 1,
    "cores": 1,
    "tune": 50,
    "progressbar": False,
    "compute_convergence_checks": False,
}


def effective(posterior: Any, worst: dict[str, int]) -> dict[str, float]:
    """Effective sizes of numbers and short vectors, and of one effect of each factor."""
    shared = [name for name, draws in posterior.items() if np.prod(draws.shape[2:]) <= _SHORT]
    sizes = {name: float(np.nanmin(az.ess(posterior, var_names=[name])[name].values)) for name in shared}
    for name, index in worst.items():
        effects = posterior[name].values
        sizes[name] = float(az.ess(effects.reshape(*effects.shape[:2], -1)[..., index]))
    return sizes


def worst_of(model: pm.Model, draws: int) -> dict[str, int]:
    """The effects that mix worst in a run of its own, which also fills the caches of compiled code."""
    with model:
        first = pm.sample(draws, step=TunaMH(), random_seed=1, **_OPTIONS)
    factors = [name for name in ("u", "v") if name in first.posterior]
    return {name: int(np.argmin(az.ess(first.posterior, var_names=[name])[name].values)) for name in factors}


def ours(model: pm.Model, make: Callable[[], Any], draws: int, worst: dict[str, int]) -> dict[str, Any]:
    """A step of this package through `pm.sample`."""
    with model:
        make()  # fills the cache of compiled code
    began = time.process_time()
    with model:
        step = make()
        set_up = time.process_time() - began
        found = pm.sample(draws, step=step, random_seed=2, **_OPTIONS)
    sampling = time.process_time() - began - set_up
    sizes = effective(found.posterior, worst)
    size = min(sizes.values())
    statistics = {
        name: float(found.sample_stats[name].mean())
        for name in ("shared_n_used", "effects_n_used", "acceptance_rate", "effects_acceptance")
        if name in found.sample_stats
    }
    seconds = set_up + 1000.0 * sampling / size
    result = {"set_up": set_up, "ms_a_draw": 1e3 * sampling / draws, "effective": size, "draws": draws}
    return {**result, **statistics, "sizes": sizes, "seconds": seconds}


def all_rows() -> MetropolisHastings:
    """The same coordinates, with every decision from all rows."""
    return MetropolisHastings(control_variate=Taylor())


def nutpie_of(model: pm.Model, budget: float, tune: int, worst: dict[str, int]) -> dict[str, Any]:
    """nutpie, stopped after `budget` CPU seconds."""
    import nutpie

    began = time.process_time()
    compiled = nutpie.compile_pymc_model(model)
    compilation = time.process_time() - began
    found, seconds = stopped(compiled, budget, draws=400_000, tune=tune, chains=1, save_warmup=True)
    steps, warm = (np.ravel(g["n_steps"].values) for g in (found.sample_stats, found.warmup_sample_stats))
    steps, warm = (each[np.isfinite(each)].astype(float) for each in (steps, warm))
    share, n = steps.sum() / (steps.sum() + warm.sum()), len(steps)
    size = min(effective(found.posterior.isel(draw=slice(0, n)), worst).values()) if n > 20 else 0.0
    used = size if size >= _ENOUGH else float(n)
    set_up = compilation + seconds * (1.0 - share)
    return {
        "compilation": compilation,
        "warm_up": seconds * (1.0 - share),
        "draws": n,
        "leapfrogs_a_draw": float(steps.mean()) if n else None,
        "effective": size,
        "every_draw_counted_as_effective": size < _ENOUGH,
        "seconds": set_up + 1000.0 * seconds * share / used if n else None,
    }


def main() -> None:
    """Run both, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=float, default=1e5)
    parser.add_argument("--groups", type=float, default=1000)
    parser.add_argument("--likelihood", choices=LIKELIHOODS, default="logistic")
    parser.add_argument("--effects", choices=EFFECTS, default="intercepts")
    parser.add_argument("--second", type=float, default=50, help="outer or crossed groups")
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--budget", type=float, default=300.0, help="CPU seconds of nutpie; 0: without")
    parser.add_argument("--tune", type=int, default=150, help="of nutpie")
    given = parser.parse_args()
    of = Hierarchy(given.likelihood, given.effects, int(given.rows), int(given.groups), int(given.second))
    model = model_of(of, simulated(of))
    result: dict[str, Any] = {"machine": platform.processor() or platform.machine(), **of._asdict()}
    worst = worst_of(model, given.draws)
    result["TunaMH"] = ours(model, TunaMH, given.draws, worst)
    if of.effects in ("intercepts", "slopes") and of.likelihood != "normal":
        result["all rows"] = ours(model, all_rows, given.draws // 4, worst)
    if given.budget:
        result["nutpie"] = nutpie_of(model, given.budget, given.tune, worst)
        if result["nutpie"]["seconds"]:
            result["ratio"] = result["nutpie"]["seconds"] / result["TunaMH"]["seconds"]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
