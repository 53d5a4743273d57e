"""The posterior beside a fit: seconds to 1,000 effective draws, and GPBoost's maximum of the likelihood.

    python -m tests.benchmarks.beside_fit --rows 1e5 1e6

Logistic regression with eight coefficients and an effect of each of 1,000 groups. `TunaMH` has 1,000
effective draws of everything: the model is built, the step is made, and a chain is drawn from; compiled code
is in numba's cache, unless `--cold` is given. GPBoost maximises a Laplace approximation of the likelihood
with its defaults, without standard errors and with them; what it predicts of groups knows no uncertainty of
their scale. Both have one thread; CPU seconds, without imports and the simulation of data; medians of
`--repeats` runs that take turns. Prints a line of JSON for each size.
"""

import argparse
import json
import statistics
import time
from typing import Any

import gpboost
import numpy as np
import pymc as pm

from pymc_austerity import TunaMH
from tests.benchmarks.hierarchies import _OPTIONS, effective, worst_of
from tests.benchmarks.hierarchy_models import Hierarchy, model_of, simulated


def posterior(
    of: Hierarchy, data: dict[str, np.ndarray], draws: int, worst: dict[str, int]
) -> dict[str, Any]:
    """Seconds to 1,000 effective draws of everything, the model and the step included."""
    began = time.process_time()
    model = model_of(of, data)
    with model:
        step = TunaMH()
        set_up = time.process_time() - began
        found = pm.sample(draws, step=step, random_seed=2, **_OPTIONS)
    sampling = time.process_time() - began - set_up
    size = min(effective(found.posterior, worst).values())
    beta, tau = (found.posterior[name].mean(("chain", "draw")).values for name in ("beta", "tau"))
    return {
        "seconds": set_up + 1000.0 * sampling / size, "set_up": set_up, "effective": size,
        "beta": beta.tolist(), "tau": float(tau),
    }  # fmt: skip


def fit(data: dict[str, np.ndarray], *, errors: bool) -> dict[str, Any]:
    """Seconds of GPBoost's fit, with standard errors or without them."""
    began = time.process_time()
    model = gpboost.GPModel(
        group_data=data["group"], likelihood="bernoulli_logit", num_parallel_threads=1, free_raw_data=True
    )
    model.fit(y=data["y"].astype(float), X=data["x"])
    beta = model.get_coef(std_err=errors, format_pandas=False)
    variance = model.get_cov_pars(std_err=errors, format_pandas=False)
    seconds = time.process_time() - began
    beta, variance = np.ravel(beta)[: data["x"].shape[1]], float(np.ravel(variance)[0])
    return {"seconds": seconds, "beta": beta.tolist(), "tau": float(np.sqrt(variance))}


def main() -> None:
    """Let them take turns, and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.beside_fit", description=__doc__)
    parser.add_argument("--rows", type=float, nargs="+", default=[1e5, 1e6])
    parser.add_argument("--groups", type=float, default=1000)
    parser.add_argument("--draws", type=int, default=3000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cold", action="store_true", help="one run, from the caches as they are")
    given = parser.parse_args()
    for rows in given.rows:
        of = Hierarchy("logistic", "intercepts", int(rows), int(given.groups), 0)
        data = simulated(of)
        worst = {"u": 0} if given.cold else worst_of(model_of(of, data), given.draws)
        runs: dict[str, list[dict[str, Any]]] = {"posterior": [], "fit": [], "fit with errors": []}
        for _ in range(1 if given.cold else given.repeats):
            runs["posterior"].append(posterior(of, data, given.draws, worst))
            runs["fit"].append(fit(data, errors=False))
            runs["fit with errors"].append(fit(data, errors=True))
        found = {name: statistics.median(run["seconds"] for run in each) for name, each in runs.items()}
        ratios = {name: found["posterior"] / found[name] for name in ("fit", "fit with errors")}
        about = {"rows": of.rows, "groups": of.groups, "gpboost": gpboost.__version__, "cold": given.cold}
        last = {name: each[-1] for name, each in runs.items()}
        print(json.dumps({**about, "seconds": found, "ratios": ratios, "last": last}), flush=True)


if __name__ == "__main__":
    main()
