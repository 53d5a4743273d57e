"""The test that reads least for a given error, for moves of an independent component analysis.

Reproduces Figure 6 of Korattikara, Chen & Welling (2014), section 6.5, on simulated sources (see `ica.py`;
the audio of the paper is not public). `probe` collects pairs of states (W, W') of an exact chain, with all of
their log ratios summed up: one set for the choice of the designs, and fresh ones to try them on.

* *average*: batch size m and epsilon by grid search, so that the mean error of the acceptance probability
  over the first set is the target (equation 7);
* *average, m = 600*: epsilon alone;
* *worst case*: so that the error at the threshold is the target, whatever the moves are (equation 8).

Also: what tests with m = 600 read, and how many of their decisions are wrong, for four values of epsilon.

What `--full` printed:

    100,000 rows, 100 pairs; mean acceptance probability 0.30.

    Tests with m = 600:
             share read  wrong decisions  |Delta|
    epsilon
    0.01          0.347            0.028    0.016
    0.05          0.173            0.111    0.074
    0.10          0.086            0.186    0.133
    0.20          0.025            0.280    0.214

    Designs, on fresh moves:
     target           design    m  epsilon  test error  data usage
       0.01          average 2000    0.013      0.0106       0.363
       0.01 average, m = 600  600  0.00654      0.0109       0.381
       0.01       worst case 2000   0.0005    0.000384       0.531
       0.02          average 2000   0.0258      0.0212       0.302
       0.02 average, m = 600  600    0.013      0.0212       0.324
       0.02       worst case 1000 0.000836     0.00104       0.501
       0.05          average 3000   0.0855      0.0544       0.186
       0.05 average, m = 600  600   0.0306      0.0475       0.233
       0.05       worst case 2000  0.00329     0.00264       0.452
        0.1          average 3000     0.17       0.103         0.1
        0.1 average, m = 600  600   0.0721       0.102       0.126
        0.1       worst case 2000  0.00776     0.00631       0.401

Run `python examples/ica_design.py` (5,000 rows, half a minute), or with `--full` (some minutes).
"""

import argparse
import runpy
from pathlib import Path
from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from pymc_austerity import AusterityMH
from pymc_austerity.design import acceptance_error, error, expected_data_usage, optimal_design
from pymc_austerity.proposals import StiefelWalk
from pymc_austerity.report import probe

TARGETS = (0.01, 0.02, 0.05, 0.1)
EPSILONS = (0.01, 0.05, 0.1, 0.2)
SIZES = (100, 200, 300, 400, 500, 600, 800, 1000, 1500, 2000, 3000)
SEED = 7

# Rows, pairs of each set, tuning draws, draws of the chain between them, batch of the heuristic, epsilons.
FAST = {"n": 5000, "pairs": 60, "tune": 500, "draws": 1200, "batch": 200, "grid": 15}
FULL = {"n": 100_000, "pairs": 100, "tune": 1000, "draws": 2000, "batch": 600, "grid": 40}


def pairs_of(model, start, settings, seed):
    """Moves of an exact chain: what `design` asks for."""
    with model:
        step = AusterityMH(["W"], epsilon=0, proposal=StiefelWalk(), progressbar=False)
    tree = probe(
        model, step, settings["pairs"], point={"W": start}, tune=settings["tune"], draws=settings["draws"],
        n_batches=3, random_seed=seed,
    )  # fmt: skip
    ratios = tree["log_ratios"]
    return SimpleNamespace(
        mu=ratios["mu"].to_numpy(), sigma_l=ratios["sd"].to_numpy(), N=int(ratios.attrs["n_local"])
    )


def tests(moves, batch):
    """Share read and wrong decisions of tests with one batch size, over the moves and over u."""
    u = (np.arange(400) + 0.5) / 400
    distance = (moves.mu[:, None] - np.log(u) / moves.N) * np.sqrt(moves.N - 1) / moves.sigma_l[:, None]
    rows = [
        {
            "epsilon": epsilon,
            "share read": expected_data_usage(
                moves.mu, moves.sigma_l, moves.N, batch_size=batch, epsilon=epsilon
            ).mean(),
            "wrong decisions": error(distance, batch / moves.N, epsilon).mean(),
            "|Delta|": np.abs(
                acceptance_error(moves.mu, moves.sigma_l, moves.N, batch_size=batch, epsilon=epsilon)
            ).mean(),
        }
        for epsilon in EPSILONS
    ]
    return pd.DataFrame(rows).set_index("epsilon")


def designs(trial, fresh, batch, grid):
    """Each kind of design for each target, tried on moves that it has not seen."""
    epsilons = np.geomspace(5e-4, 0.4, grid)
    sizes = [m for m in SIZES if m <= trial.N / 4]
    kinds = {
        "average": (trial, sizes),
        f"average, m = {batch}": (trial, [batch]),
        "worst case": (None, sizes),
    }
    rows = []
    for target in TARGETS:
        for kind, (pairs, batch_sizes) in kinds.items():
            try:
                design = optimal_design(pairs, target, N=trial.N, batch_sizes=batch_sizes, epsilons=epsilons)
            except ValueError:
                continue  # out of reach of this grid
            delta = acceptance_error(fresh.mu, fresh.sigma_l, fresh.N, **design)
            used = expected_data_usage(fresh.mu, fresh.sigma_l, fresh.N, **design)
            rows.append(
                {
                    "target": target, "design": kind, "m": design.batch_size, "epsilon": design.epsilon,
                    "test error": np.abs(delta).mean(), "data usage": used.mean(),
                }
            )  # fmt: skip
    return pd.DataFrame(rows)


def plot(table, path):
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
    for marker, (kind, rows) in zip("o^s", table.groupby("design", sort=False), strict=False):
        line = {"marker": marker, "mfc": "none", "ms": 7}
        left.loglog(rows["target"], rows["test error"], label=kind, **line)
        right.semilogx(rows["target"], rows["data usage"], label=kind, **line)
    left.plot(TARGETS, TARGETS, color="black", lw=1, ls="--", label="target")
    left.set(title="Error on fresh moves (6a)", xlabel="target", ylabel="mean |Delta|")
    right.set(title="Data usage (6b)", xlabel="target", ylabel="share of the data", ylim=(0, 1))
    for ax in (left, right):
        ax.set_xticks(TARGETS, [f"{t:g}" for t in TARGETS])
        ax.minorticks_off()
    left.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90)
    plt.close(figure)


def main(full=False, output="figures"):
    settings = FULL if full else FAST
    ica = runpy.run_path(str(Path(__file__).with_name("ica.py")))
    X, W0 = ica["white_mixture"](settings["n"])
    model, start = ica["build"](X), ica["nearest_orthogonal"](W0)
    trial, fresh = (pairs_of(model, start, settings, SEED + k) for k in (1, 2))
    accept = np.exp(np.minimum(0, fresh.N * fresh.mu)).mean()
    print(f"{fresh.N:,} rows, {settings['pairs']} pairs; mean acceptance probability {accept:.2f}.\n")
    decided = tests(fresh, settings["batch"])
    print(f"Tests with m = {settings['batch']}:\n{decided.to_string(float_format='{:.3f}'.format)}\n")
    table = designs(trial, fresh, settings["batch"], settings["grid"])
    print("Designs, on fresh moves:")
    print(table.to_string(index=False, float_format="{:.3g}".format))
    path = Path(output) / "ica_design.png"
    plot(table, path)
    print(f"\nFigure: {path}")
    return {"tests": decided, "designs": table, "acceptance": accept, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="100,000 rows")
    parser.add_argument("--output", default="figures", help="directory of the figure")
    main(**vars(parser.parse_args()))
