"""What others do with the model of flights.py in a given time; that script starts this one.

Takes a specification in JSON, and writes what was found to the path in it. `all rows` is the step that is
recommended, in the same coordinates, with every decision from all rows. `austerity` is
`AusterityMH(epsilon=0.01)` on the model without effects of planes and destinations, beside `TunaMH` on that.
"""

import json
import sys
import time
import warnings
from pathlib import Path

import flights
import flights_figure
import numpy as np

from pymc_austerity import AusterityMH, Laplace, MetropolisHastings, Taylor, TunaMH
from pymc_austerity.diagnostics import agreement

TUNE = 30


def settings(given):
    return flights.FULL if given["full"] else flights.FAST


def by_nutpie(model, seconds, draws, tune):
    """One chain, stopped after `seconds`."""
    import nutpie

    began = time.process_time()
    compiled = nutpie.compile_pymc_model(model)
    ready = time.process_time()
    options = {"chains": 1, "cores": 1, "seed": flights.SEED, "progress_bar": False, "blocking": False}
    handle = nutpie.sample(compiled, draws=draws, tune=tune, **options)
    idata = None
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Found chain dimension", UserWarning)  # where there is no draw yet
        while idata is None:
            try:
                idata = handle.wait(timeout=0.2)
            except TimeoutError:
                if time.process_time() - began > seconds:
                    idata = handle.abort()
    tuned = int(np.isfinite(idata.warmup_sample_stats["n_steps"]).sum())
    return idata, {"set_up": ready - began, "sampling": time.process_time() - ready, "tuned": tuned}


def widths(idata, reference):
    """Ratios of standard deviations to those of the reference, with errors."""
    table = agreement(idata, reference)
    return {
        "sd_ratio": float(table["sd_ratio"].mean()),
        "lowest": float(table["sd_ratio"].min()),
        "highest": float(table["sd_ratio"].max()),
        "error": float(table["sd_ratio_error"].median()),
        "share": float(idata.sample_stats["fraction_used"].mean()),
    }


def all_rows(model, n, given):
    def make():
        return MetropolisHastings(control_variate=Taylor())

    draws = settings(given)["rival"]
    _, idata, spent = flights.by_step(model, make, draws, TUNE, seconds=given["seconds"])
    return idata, {"row": flights.row(idata, spent, n)}


def nutpie(model, n, given):
    idata, spent = by_nutpie(model, given["seconds"], **settings(given)["nutpie"])
    return idata, {"row": flights.row(idata, spent, n)}


def austerity(model, n, given):
    """With a random walk, the default, 31 coefficients get one effective draw in 35 seconds."""
    _, exact, taken = flights.by_step(model, TunaMH, 4000, TUNE)

    def make():
        return AusterityMH(epsilon=0.01, proposal=Laplace())

    left = max(0.5 * given["seconds"], 10)
    _, idata, spent = flights.by_step(model, make, settings(given)["rival"], TUNE, seconds=left)
    rows = {"row": flights.row(idata, spent, n), "exact": flights.row(exact, taken, n)}
    return idata, {**rows, "widths": widths(idata, exact)}


def main(given):
    data = flights.load(given["full"], given["flights"])
    run = {"all rows": all_rows, "nutpie": nutpie, "austerity": austerity}[given["name"]]
    model = flights.build_model(data, effects=run is not austerity)
    idata, found = run(model, len(data), given)
    if run is not austerity and found["row"]["draws"] >= flights.FEWEST:
        found |= {v: flights_figure.intervals(idata, v).to_dict("list") for v in ("plane", "carrier")}
    Path(given["path"]).write_text(json.dumps(found))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
