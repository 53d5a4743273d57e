"""Effects of many groups: seconds to 1,000 effective draws of everything, and of others in the same run.

    python -m tests.benchmarks.plates --rows 1e5 --groups 1000 --likelihood logistic --budget 300 --slopes

Seconds are CPU seconds of one thread, all set-up included, imports and what is in numba's cache excluded. The
worst of the effects is chosen in a run of its own: the smallest of 1,000 noisy estimates is biased. nutpie is
stopped after its budget. Where it has not reached 300 effective draws by then, its figure is the bound in its
favour: every draw effective. Prints JSON.
"""

from __future__ import annotations

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

_COLUMNS, _ENOUGH = 8, 300.0
_OPTIONS: dict[str, Any] = {
    "chains": 1,
    "cores": 1,
    "tune": 50,
    "progressbar": False,
    "compute_convergence_checks": False,
}


def simulated(likelihood: str, n_rows: int, n_groups: int, slopes: bool = False) -> dict[str, np.ndarray]:
    """Rows with an intercept, a binary and six normal covariates; groups of very different sizes.

    With slopes each group has one of the first normal covariate, correlated with its intercept.
    """
    rng = np.random.default_rng(3)
    sizes = rng.gamma(2.0, size=n_groups)
    group = rng.choice(n_groups, n_rows, p=sizes / sizes.sum())
    x = rng.normal(size=(n_rows, _COLUMNS))
    x[:, 0], x[:, 1] = 1.0, rng.random(n_rows) < 0.3
    beta = rng.normal(0.0, 0.3, _COLUMNS)
    beta[0] = -0.7
    effects = rng.normal(0.0, 0.5, n_groups)
    eta = x @ beta + effects[group]
    if slopes:
        eta += (0.3 * effects + rng.normal(0.0, 0.3, n_groups))[group] * x[:, 2]
    exposure = rng.gamma(2.0, 0.5, n_rows)
    y = rng.poisson(exposure * np.exp(eta))
    if likelihood == "logistic":
        y = (rng.random(n_rows) < 1.0 / (1.0 + np.exp(-eta))).astype(np.int64)
    return {"x": x, "group": group, "exposure": exposure, "y": y}


def model_of(likelihood: str, data: dict[str, np.ndarray], n_groups: int, slopes: bool = False) -> pm.Model:
    """The model, centred; with slopes of one covariate that have an LKJ prior with the intercepts."""
    group = data["group"]
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, 2, shape=_COLUMNS)
        if slopes:
            of_scales = pm.HalfNormal.dist(1, shape=2)
            chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2, sd_dist=of_scales)
            u = pm.MvNormal("u", np.zeros(2), chol=chol, shape=(n_groups, 2))
            eta = data["x"] @ beta + u[group, 0] + u[group, 1] * data["x"][:, 2]
        else:
            u = pm.Normal("u", 0, pm.HalfNormal("tau", 1), shape=n_groups)
            eta = data["x"] @ beta + u[group]
        if likelihood == "logistic":
            pm.Bernoulli("y", logit_p=eta, observed=data["y"])
        else:
            pm.Poisson("y", data["exposure"] * pm.math.exp(eta), observed=data["y"])
    return model


def effective(posterior: Any, worst: int) -> float:
    """The smallest effective size of beta, scales and one effect."""
    names = [name for name in ("beta", "tau", "chol") if name in posterior]
    sizes = [az.ess(posterior, var_names=[name])[name].values.min() for name in names]
    u = posterior["u"].values
    return float(min(*sizes, float(az.ess(u.reshape(*u.shape[:2], -1)[..., worst]))))


def worst_of(model: pm.Model, draws: int) -> int:
    """The effect that mixes worst in a run of its own, which also fills the caches of compiled code."""
    with model:
        first = pm.sample(draws, step=TunaMH(), random_seed=1, **_OPTIONS)
    return int(np.argmin(az.ess(first.posterior, var_names=["u"])["u"].values))


def ours(model: pm.Model, make: Callable[[], Any], draws: int, worst: int) -> dict[str, Any]:
    """A step of this package through `pm.sample`."""
    began = time.process_time()
    with model:
        step = make()
        set_up = time.process_time() - began
        found = pm.sample(draws, step=step, random_seed=2, **_OPTIONS)
    sampling = time.process_time() - began - set_up
    size = effective(found.posterior, worst)
    rows = {name: float(found.sample_stats[name].mean()) for name in ("shared_n_used", "plate_n_used")}
    accepted = {
        name: float(found.sample_stats[name].mean()) for name in ("acceptance_rate", "plate_acceptance")
    }
    seconds = set_up + 1000.0 * sampling / size
    result = {"set_up": set_up, "ms_a_draw": 1e3 * sampling / draws, "effective": size, "draws": draws}
    return {**result, **rows, **accepted, "seconds": seconds}


def all_rows() -> MetropolisHastings:
    """The same coordinates, with every decision from all rows."""
    return MetropolisHastings(control_variate=Taylor())


def nutpie_of(model: pm.Model, budget: float, tune: int, worst: int) -> dict[str, Any]:
    """nutpie, stopped after `budget` CPU seconds."""
    import nutpie

    began = time.process_time()
    compiled = nutpie.compile_pymc_model(model)
    compilation = time.process_time() - began
    began = time.process_time()
    handle = nutpie.sample(
        compiled, draws=5000, tune=tune, chains=1, cores=1, progress_bar=False, seed=1, save_warmup=True,
        blocking=False,
    )  # fmt: skip
    found = None
    while found is None:
        try:
            found = handle.wait(timeout=0.5)
        except TimeoutError:
            if time.process_time() - began > budget:
                found = handle.abort()
    seconds = time.process_time() - began
    steps, warm = (np.ravel(g["n_steps"].values) for g in (found.sample_stats, found.warmup_sample_stats))
    steps, warm = (each[np.isfinite(each)].astype(float) for each in (steps, warm))
    share, n = steps.sum() / (steps.sum() + warm.sum()), len(steps)
    size = effective(found.posterior.isel(draw=slice(0, n)), worst) if n > 20 else 0.0
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
    parser.add_argument("--likelihood", choices=("logistic", "poisson"), default="logistic")
    parser.add_argument("--draws", type=int, default=4000)
    parser.add_argument("--budget", type=float, default=300.0, help="CPU seconds of nutpie; 0: without")
    parser.add_argument("--tune", type=int, default=150, help="of nutpie")
    parser.add_argument("--slopes", action="store_true", help="a random slope, with an LKJ prior")
    given = parser.parse_args()
    n_rows, n_groups = int(given.rows), int(given.groups)
    data = simulated(given.likelihood, n_rows, n_groups, given.slopes)
    model = model_of(given.likelihood, data, n_groups, given.slopes)
    result: dict[str, Any] = {
        "machine": platform.processor() or platform.machine(),
        "likelihood": given.likelihood,
        "rows": n_rows,
        "groups": n_groups,
        "slopes": given.slopes,
    }
    worst = worst_of(model, given.draws)
    result["TunaMH"] = ours(model, TunaMH, given.draws, worst)
    result["all rows"] = ours(model, all_rows, given.draws // 4, worst)
    if given.budget:
        result["nutpie"] = nutpie_of(model, given.budget, given.tune, worst)
        if result["nutpie"]["seconds"]:
            result["ratio"] = result["nutpie"]["seconds"] / result["TunaMH"]["seconds"]
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
