"""Risk of the predictive mean against data read: MNIST digits 7 and 9, logistic regression.

Reproduces Figure 2 of Korattikara, Chen & Welling (2014): 12,214 training images, 50 principal components of
the pixels, a random walk with steps of 0.01, and tests with epsilon = 0, 0.01, 0.05, 0.1 and 0.2 on batches
of 500. The risk is the mean squared error of a chain's running estimate of the predictive mean, on average
over the 2,037 test images and over chains. It is squared bias plus variance: for a given amount of data
read, a larger epsilon means more transitions and less variance, until the bias is what remains.

What the paper leaves open, and what is done here: the components are those of pixels / 255 with the training
mean removed; there is no intercept (the classes are balanced, the features centred, and the paper counts
50 dimensions); chains start at weights of zero, and the running mean counts every 20th transition from the
first one on, so that time spent on the way to the posterior is paid for. The reference is a long run of NUTS
(the paper: Hamiltonian Monte Carlo), whose convergence is printed. It is saved, and found again by the next
run.

What to expect: on the way from zero decisions are clear and read little. For the same data read (5e7 terms
for each chain) the risk at epsilon = 0.2 is 15 times smaller than that of the exact chain; in this sense the
paper's claim is reproduced. With `--start posterior` (chains start at draws of the reference run, as if after
burn-in) the advantage is gone: epsilon = 0.2 makes seven times as many transitions from the same data, and
its risk is that of the exact chain. Its distribution is wider, and steps of 0.01 take longer to get through
it.

Run `python examples/logistic_mnist.py` (synthetic data with the same covariance spectrum, 3,000 rows, some
seconds), or with `--full` on MNIST (five minutes): from the file mnist79.npz in the folder that the
environment variable PYMC_AUSTERITY_DATA names, or else from openml.org, for which scikit-learn is needed.
"""

import argparse
import hashlib
import os
import time
from pathlib import Path

import arviz as az
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pymc as pm
from scipy.special import expit

from pymc_austerity import AusterityMH, RandomWalk

EPSILONS = (0.0, 0.01, 0.05, 0.1, 0.2)
BATCH = 500
STEP = 0.01
PRIOR_SD = 1 / np.sqrt(10)
COMPONENTS = 50
THIN = 20  # transitions for each draw that is recorded
SEED = 79

# Draws, tuning, chains and processor cores of the reference; chains for each epsilon, and terms for each.
FAST = {"reference": (500, 500, 2, 1), "chains": 3, "budget": 3e6}
FULL = {"reference": (1500, 800, 4, 2), "chains": 8, "budget": 5e7}

# Variances of the first 50 principal components of the digits 7 and 9, pixels / 255.
SPECTRUM = [
    5.293, 3.674, 3.103, 2.877, 2.030, 1.552, 1.413, 1.213, 1.137, 0.880, 0.814, 0.797, 0.721, 0.638, 0.559,
    0.539, 0.494, 0.444, 0.430, 0.399, 0.369, 0.349, 0.334, 0.304, 0.299, 0.263, 0.255, 0.238, 0.229, 0.218,
    0.213, 0.202, 0.189, 0.181, 0.180, 0.173, 0.170, 0.162, 0.151, 0.139, 0.135, 0.134, 0.126, 0.121, 0.118,
    0.113, 0.111, 0.108, 0.104, 0.103,
]  # fmt: skip


def synthetic(n_train=3000, n_test=500):
    """Normal features with the variances of the real ones, and labels from a logistic regression."""
    rng = np.random.default_rng(SEED)
    X = rng.normal(size=(n_train + n_test, COMPONENTS)) * np.sqrt(SPECTRUM)
    y = (rng.random(len(X)) < expit(X @ rng.normal(0, PRIOR_SD, COMPONENTS))).astype(int)
    return X[:n_train], y[:n_train], X[n_train:], y[n_train:]


def mnist():
    """Principal components of the images of 7 and 9; label 1 is a 9."""
    train, y_train, test, y_test = pixels_from_file() if os.environ.get("PYMC_AUSTERITY_DATA") else download()
    mean = train.mean(axis=0)
    _, _, directions = np.linalg.svd(train - mean, full_matrices=False)
    directions = directions[:COMPONENTS].T
    return (train - mean) @ directions, y_train, (test - mean) @ directions, y_test


def pixels_from_file():
    with np.load(Path(os.environ["PYMC_AUSTERITY_DATA"]) / "mnist79.npz") as data:
        labels = [(data[f"digit_{part}"] == 9).astype(int) for part in ("train", "test")]
        return data["X_train"] / 255, labels[0], data["X_test"] / 255, labels[1]


def download():
    try:
        from sklearn.datasets import fetch_openml
    except ImportError as error:
        raise ImportError(
            "Without scikit-learn MNIST cannot be downloaded: install it, or let the environment variable "
            "PYMC_AUSTERITY_DATA name the folder of mnist79.npz."
        ) from error
    pixels, digit = fetch_openml("mnist_784", version=1, return_X_y=True, as_frame=False)
    digit = digit.astype(int)
    chosen = (digit == 7) | (digit == 9)
    in_train = np.arange(len(digit)) < 60_000
    train, test = chosen & in_train, chosen & ~in_train
    return pixels[train] / 255, (digit[train] == 9) * 1, pixels[test] / 255, (digit[test] == 9) * 1


def build_model(X, y):
    with pm.Model() as model:
        beta = pm.Normal("beta", 0, PRIOR_SD, shape=X.shape[1])
        pm.Bernoulli("y", logit_p=X @ beta, observed=y)
    return model


def sample(model, draws, tune, chains, cores=1, **kwargs):
    return pm.sample(
        draws, tune=tune, chains=chains, cores=cores, model=model, random_seed=SEED, progressbar=False,
        compute_convergence_checks=False, quiet=True, **kwargs,
    )  # fmt: skip


def reference(model, X, y, X_test, settings, folder):
    """The predictive mean from a long run of NUTS, and draws for chains to start from; saved in `folder`."""
    draws, tune, chains, cores = settings
    key = hashlib.sha256(repr((settings[:3], SEED)).encode() + X.tobytes() + y.tobytes() + X_test.tobytes())
    path = folder / f"logistic_mnist_reference_{key.hexdigest()[:12]}.npz"
    if not path.exists():
        idata = sample(model, draws, tune, chains, cores)
        beta = idata.posterior["beta"].values
        ess = [float(az.ess(beta[:, :, d])) for d in range(beta.shape[2])]
        rhat = [float(az.rhat(beta[:, :, d])) for d in range(beta.shape[2])]
        flat = beta.reshape(-1, beta.shape[2])
        mean, variance = predictive(flat, X_test)
        spread = np.random.default_rng(SEED).permutation(flat)[:100]
        folder.mkdir(parents=True, exist_ok=True)
        np.savez(
            path, mean=mean, variance=variance.mean(), beta_mean=flat.mean(axis=0), beta_sd=flat.std(axis=0),
            starts=spread, ess=min(ess), rhat=max(rhat),
        )  # fmt: skip
    with np.load(path) as saved:
        result = {name: saved[name] for name in saved.files}
    print(
        f"Reference: NUTS, {chains} x {draws} draws, largest rhat {result['rhat']:.4f}, smallest effective "
        f"sample size {result['ess']:.0f}.\nIts predictive means have a risk of about "
        f"{result['variance'] / result['ess']:.1e} of their own. Saved in {path}.\n",
        flush=True,
    )
    return result


def predictive(beta, X_test, block=500):
    """Mean and variance over draws of p(y = 1 | x, beta), for each test row."""
    total, squares = np.zeros(len(X_test)), np.zeros(len(X_test))
    for k in range(0, len(beta), block):
        p = expit(beta[k : k + block] @ X_test.T)
        total, squares = total + p.sum(axis=0), squares + (p**2).sum(axis=0)
    mean = total / len(beta)
    return mean, squares / len(beta) - mean**2


def squared_errors(beta, X_test, truth, ends):
    """Of the running predictive mean after the first n draws, for each n in `ends`, averaged over rows."""
    total, errors = np.zeros(len(X_test)), np.empty(len(ends))
    for k, (begin, end) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
        total += expit(beta[begin:end] @ X_test.T).sum(axis=0)
        errors[k] = np.mean((total / end - truth) ** 2)
    return errors


def run(model, epsilon, X_test, truth, start, chains, budget):
    """Chains that read about `budget` terms each: their risk on the way, and what it cost."""
    step = AusterityMH(
        epsilon=epsilon, batch_size=BATCH, proposal=RandomWalk(scale=STEP), steps_per_draw=THIN, model=model
    )
    starts = [{"beta": draw if start == "posterior" else 0 * draw} for draw in truth["starts"][:chains]]
    pilot = sample(model, 10, 0, 1, step=step, initvals={"beta": truth["starts"][0]})
    draws = max(20, int(budget / THIN / float(pilot.sample_stats["n_used"].mean())))
    began = time.process_time()
    idata = sample(model, draws, 0, chains, step=step, initvals=starts)
    seconds = (time.process_time() - began) / chains
    stats, beta = idata.sample_stats, idata.posterior["beta"].values
    terms = THIN * np.cumsum(stats["n_used"].values.mean(axis=0))
    ends = np.unique(np.geomspace(1, draws, 60).astype(int))
    errors = np.array([squared_errors(b, X_test, truth["mean"], ends) for b in beta])
    late = (beta[:, draws // 2 :] - truth["beta_mean"]) / truth["beta_sd"]
    return {
        "epsilon": epsilon,
        "terms per transition": terms[-1] / (draws * THIN),
        "share": float(stats["fraction_used"].mean()),
        "acceptance": float(stats["acceptance_rate"].mean()),
        "sd ratio": np.sqrt(np.mean(late**2)),
        "microseconds": 1e6 * seconds / (draws * THIN),
        "terms": terms[ends - 1],
        # Only their sum is measured; they go into reading terms.
        "seconds": seconds * terms[ends - 1] / terms[-1],
        "risk": errors.mean(axis=0),
        "error": errors.std(axis=0, ddof=1) / np.sqrt(chains),
    }


def risk_at(result, axis, value):
    """Risk after so many terms or seconds; NaN where the chains are shorter."""
    return np.exp(np.interp(np.log(value), np.log(result[axis]), np.log(result["risk"]), right=np.nan))


def tabulate(results, budget):
    columns = ["terms per transition", "share", "acceptance", "microseconds", "sd ratio"]
    table = pd.DataFrame([{"epsilon": r["epsilon"], **{c: r[c] for c in columns}} for r in results])
    for part in (0.03, 0.1, 0.3, 0.9):
        table[f"risk at {part * budget:.0e}"] = [risk_at(r, "terms", part * budget) for r in results]
    table["last risk"] = [r["risk"][-1] for r in results]
    table["its error"] = [r["error"][-1] for r in results]
    return table.set_index("epsilon")


def plot(results, path):
    figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), sharey=True, layout="constrained")
    colours = plt.get_cmap("viridis")(np.linspace(0, 0.9, len(results)))
    labels = {"terms": "likelihood terms read", "seconds": "processor time [s]"}
    for ax, axis in zip(axes, labels, strict=True):
        for result, unwhiten in zip(results, colours, strict=True):
            epsilon = result["epsilon"]
            label = f"{epsilon:g}" if epsilon else "0 (exact)"
            ax.loglog(result[axis], result["risk"], color=unwhiten, label=label, lw=1.5)
        ax.set_xlabel(labels[axis])
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("risk of the predictive mean")
    axes[0].legend(title="epsilon", frameon=False, loc="lower left")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def report(table, chains):
    print(f"\nMeans over {chains} chains. 'risk at' so many terms read by each; 'sd ratio': root mean square")
    print("distance of weights from their posterior means, in posterior sds, second half of the chains.\n")
    print(table.to_string(float_format="{:.3g}".format))


def main(full=False, output=".", start="zero", budget=None):
    settings, folder = dict(FULL if full else FAST), Path(output)
    settings["budget"] = budget or settings["budget"]
    X, y, X_test, y_test = mnist() if full else synthetic()
    print(f"{len(y):,} training rows, {X.shape[1]} features, {len(y_test):,} test rows.")
    model = build_model(X, y)
    truth = reference(model, X, y, X_test, settings.pop("reference"), folder)
    print(f"Test error of the predictive mean: {np.mean((truth['mean'] > 0.5) != y_test):.1%}.")
    results = []
    for epsilon in EPSILONS:
        results.append(run(model, epsilon, X_test, truth, start, **settings))
        print(f"epsilon = {epsilon:g} done.", flush=True)
    table = tabulate(results, settings["budget"])
    report(table, settings["chains"])
    path = folder / f"logistic_mnist_from_{start}.png"
    plot(results, path)
    print(f"\nFigure: {path}")
    return {"results": results, "table": table, "truth": truth, "figure": path}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="MNIST instead of synthetic data")
    parser.add_argument("--output", default=".", help="directory of the figure and of the reference run")
    parser.add_argument("--start", choices=["zero", "posterior"], default="zero", help="of the chains")
    parser.add_argument("--budget", type=float, help="terms that each chain may read")
    main(**vars(parser.parse_args()))
