"""Langevin dynamics at a kink: what goes wrong without a test, and what a test does not mend by itself.

Reproduces Figure 5 of Korattikara, Chen & Welling (2014), section 6.4: linear regression with one coefficient
under a Laplace prior, N = 10,000. The paper does not say how x is distributed. Its figure needs a mean square
of 1/3. So x is uniform on (-1, 1), and the sufficient statistics are fixed: sum x^2 = N/3, residuals
orthogonal to x with the same sum of squares, y = x/2 + r, a standard deviation of 3^-1/2, and a prior of
scale 1/4950. The posterior has its mode at .005. To the left of zero its slope is some 9,950.

* *SGLD*, step size 5e-6, minibatches of 500, and with all rows. The paper blames large gradients that are met
  by noise. Full gradients do the same: it is the Euler step that overshoots.
* *Langevin moves with a test*, epsilon = .5 (one batch of 500 decides, as in the paper), .05, and exact.
* *Without a random walk among them* (``mix=0``), from -.0001. The chain never moves: at the place where such
  a move would have to come from, the gradient points the other way.

What `--full` printed, over 400,000 transitions (exact: mean .01004, sd .00699, P(> .02) .0961, P(< 0) .0051):

                                mean      sd  P(> .02)  P(< 0)  share read
    SGLD, 500 rows          0.01637  0.00836    0.3328  0.0119        0.05
    SGLD, all rows          0.01527  0.00780    0.2826  0.0100        1.00
    Langevin, epsilon 0.5   0.01024  0.00723    0.1050  0.0074        0.09
    Langevin, epsilon 0.05  0.00981  0.00700    0.0922  0.0059        0.24
    Langevin, exact         0.00988  0.00682    0.0892  0.0045        1.05

Run `python examples/l1_langevin.py` (some seconds), or with `--full` (some minutes).
"""

import argparse
import warnings
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm

from pymc_austerity import SGLD, AusterityMH, MetropolisHastings, SubsamplingWarning
from pymc_austerity.proposals import Langevin

N, A, BATCH, SEED = 10_000, 5e-6, 500, 2014
FAST, FULL = 40_000, 400_000
PER_DRAW = 10


def data(seed=SEED):
    rng = np.random.default_rng(seed)
    x, r = rng.uniform(-1, 1, N), rng.normal(size=N)
    x *= np.sqrt(N / 3 / (x @ x))
    r -= x * (x @ r) / (x @ x)
    r *= np.sqrt(N / 3 / (r @ r))
    return x, 0.5 * x + r


def build():
    x, y = data()
    with pm.Model() as model:
        theta = pm.Laplace("theta", 0, 1 / 4950)
        pm.Normal("y", theta * x, 3**-0.5, observed=y)
    return model


def log_density(theta):
    return 5000 * theta - 5000 * theta**2 - 4950 * np.abs(theta)


def exact():
    """Moments by quadrature."""
    theta = (np.arange(1_000_000) + 0.5) * 1.04e-7 - 0.004
    weight = np.exp(log_density(theta))
    weight /= weight.sum()
    mean = weight @ theta
    sd = np.sqrt(weight @ (theta - mean) ** 2)
    return {"mean": mean, "sd": sd, "P(> .02)": weight[theta > 0.02].sum(), "P(< 0)": weight[theta < 0].sum()}


def steps():
    """Samplers by their names, in the context of the model."""
    given = {"steps_per_draw": PER_DRAW, "progressbar": False}
    moves = Langevin(A, batch_size=BATCH)
    return {
        "SGLD, 500 rows": SGLD(step_size=A, batch_size=BATCH, **given),
        "SGLD, all rows": SGLD(step_size=A, batch_size=None, **given),
        "Langevin, epsilon 0.5": AusterityMH(epsilon=0.5, proposal=moves, **given),
        "Langevin, epsilon 0.05": AusterityMH(epsilon=0.05, proposal=moves, **given),
        "Langevin, exact": MetropolisHastings(proposal=moves, **given),
    }


def chain(step, n, start=0.005):
    """Draws, one in ten transitions, and the mean share of the data read."""
    step.setup_chain(np.random.default_rng(SEED), 0, n // PER_DRAW)
    point, draws, used = {"theta": np.array(start)}, np.empty(n // PER_DRAW), 0.0
    for k in range(len(draws)):
        point, (stats,) = step.step(point)
        draws[k] = point["theta"]
        used += stats["fraction_used"] / len(draws)
    return draws, used


def left_of_the_kink(model):
    """Transitions until a chain that starts at -.0001 is to the right, without and with a random walk."""
    found = {}
    for mix in (0.0, 0.1):
        with model:
            step = MetropolisHastings(proposal=Langevin(A, batch_size=BATCH, mix=mix), progressbar=False)
        step.setup_chain(np.random.default_rng(SEED), 0, 0)
        point = {"theta": np.array(-0.0001)}
        count = 0
        while point["theta"] < 0 and count < 2000:
            point, _ = step.step(point)
            count += 1
        found[mix] = count if point["theta"] > 0 else None
    return found


def plot(draws, path):
    figure, axes = plt.subplots(1, 5, figsize=(17, 3.2), layout="constrained")
    theta = np.linspace(-0.004, 0.04, 800)
    density = np.exp(log_density(theta))
    density /= density.sum() * (theta[1] - theta[0])
    axes[0].plot(theta, density, "k")
    axes[0].set_title("Posterior density (5a)")
    axes[1].plot(theta, 5000 - 10_000 * theta - 4950 * np.sign(theta), "k")
    axes[1].set_title("Its slope, of the logarithm (5b)")
    shown = {"SGLD, 500 rows": "(5c)", "Langevin, epsilon 0.5": "(5d)", "SGLD, all rows": ""}
    for ax, (name, figure_number) in zip(axes[2:], shown.items(), strict=True):
        ax.hist(draws[name], bins=np.linspace(-0.004, 0.04, 90), density=True, color="C0", alpha=0.5)
        ax.plot(theta, density, "k", lw=1)
        ax.set_title(f"{name} {figure_number}")
    for ax in axes:
        ax.set_xlabel("coefficient")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=70)
    plt.close(figure)


def main(full=False, output="figures"):
    model, n = build(), FULL if full else FAST
    with model, warnings.catch_warnings():
        warnings.simplefilter("ignore", SubsamplingWarning)  # that SGLD has no test is the point
        samplers = steps()
    draws, rows = {}, {"exact, by quadrature": exact()}
    for name, step in samplers.items():
        draws[name], used = chain(step, n)
        found = draws[name]
        rows[name] = {
            "mean": found.mean(), "sd": found.std(), "P(> .02)": np.mean(found > 0.02),
            "P(< 0)": np.mean(found < 0), "share read": used,
        }  # fmt: skip
    table = pd.DataFrame(rows).T
    print(table.to_string(float_format="{:.5f}".format))
    left = left_of_the_kink(model)
    print(
        f"\nFrom -.0001 to the right of zero: mix=0 {'never' if left[0.0] is None else left[0.0]} in 2,000 "
        f"moves; mix=0.1 after {left[0.1]}."
    )
    path = Path(output) / "l1_langevin.png"
    plot(draws, path)
    print(f"Figure: {path}")
    return {"table": table, "left": left, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="400,000 transitions of each chain")
    parser.add_argument("--output", default="figures", help="directory of the figure")
    main(**vars(parser.parse_args()))
