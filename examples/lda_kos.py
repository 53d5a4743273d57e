"""Latent Dirichlet allocation: topics of blog entries by SCIR, SGRLD and collapsed Gibbs sampling.

After section 5.1 and Figures 3 (a) and 4 (a) of Baker, Fearnhead, Fox & Nemeth (2018), on another corpus:
3430 entries of the KOS blog, 6906 words, 467,714 tokens. A tenth of the documents is for validation and a
tenth for the test; K = 50 topics, batches of 50 of the 2744 others. At each iteration the topics of the
batch's tokens are drawn 5 + 15 times given phi (`lda.py`), and the last 15 estimate the a_hat of 345,300
gamma processes, which then make one step h (1 + m / tau)^-kappa of SCIR, or of SGRLD (Patterson & Teh 2013).

Perplexity: of each held-out document one half of the tokens is seen, and the score of each of the others is
its probability given these and phi. "Single draws" scores the present phi; "averaged" the mean probabilities
over the later half of the draws up to here, every 25 iterations, as one predicts from a posterior.

SCIR and SGRLD are at their best over the same step sizes, by validation documents, on chains of 300
iterations; SGRLD also over both schedules of Table 2. All start at Gamma(1), with priors Dirichlet(0.1). For
words in topics Table 2 has 0.5, which does not suit these data: with 0.5, 0.1, 0.05 and 0.01 collapsed
Gibbs sampling had validation perplexities of 1601, 1447, 1439 and 1509. Two more versions of SGRLD: with the
drift of SCIR, a - theta, instead of that of Patterson & Teh; and with the priors of Table 2, Dirichlet(0.01)
and Dirichlet(0.0001).

What `--full` printed (perplexity of test documents at the end):

                              averaged   three seeds      single draws   CPU s   iterations   best h
    SCIR                        1515     1527 1517 1501       1753        28        600       0.5
    SGRLD                       1585     1585 1567 1601       1761         8        600       0.1
    SGRLD, drift a - theta      1573     1586 1569 1564       1688         8        600       0.2
    SGRLD, prior of Table 2     1556     1542 1556 1569       1934         8        600       0.05
    collapsed Gibbs             1407     1404 1407 1410       1532         9        200 sweeps
    frequencies of words        2606

After as many iterations SCIR is below SGRLD in all of its versions, by averages over draws. But:

- Single draws of SCIR are no better than those of SGRLD, and worse than those with the drift a - theta.
- An iteration of SCIR takes 47 ms, most of it for gamma and Poisson variables, and one of SGRLD 13. After the
  same time (7.5 seconds) SGRLD is ahead, with 1548 to 1603 beside 1666 to 1687.
- With so few documents collapsed Gibbs sampling is far better than both, after two seconds already.
- No chain has converged.

Run `python examples/lda_kos.py` (a synthetic corpus, some fifteen seconds), or with `--full` (seven minutes)
on the file lda_corpus.npz in the folder that the environment variable PYMC_AUSTERITY_DATA names. `--topics`
and `--beta` change the model.
"""

import argparse
import os
import time
from pathlib import Path
from typing import NamedTuple

import lda
import matplotlib.pyplot as plt
import numba
import numpy as np
import pandas as pd
from lda import corpus_of, from_documents, halves, subcorpus
from sgrld import sgrld_transition

ALPHA, BETA = 0.1, 0.1
STEP_SIZES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02)
# Table 2 of the paper: schedules of SCIR and of SGRLD, and the prior with which it runs SGRLD.
SCHEDULE, SCHEDULE_OF_SGRLD = (10, 0.33), (1000, 0.6)
PRIOR_OF_SGRLD = (0.01, 0.0001)


class Method(NamedTuple):
    """Which step, the prior (None: the one of all methods), and schedules (tau, kappa) to choose from."""

    kind: str
    prior: tuple[float, float] | None
    schedules: tuple[tuple[float, float], ...]


METHODS = {
    "SCIR": Method("scir", None, (SCHEDULE,)),
    "SGRLD": Method("centred", None, (SCHEDULE, SCHEDULE_OF_SGRLD)),
    "SGRLD, drift a - theta": Method("plain", None, (SCHEDULE,)),
    "SGRLD, prior of Table 2": Method("centred", PRIOR_OF_SGRLD, (SCHEDULE_OF_SGRLD,)),
}

FAST = {
    "n_topics": 6, "batch_size": 20, "grid_iterations": 60, "iterations": 240, "every": 12,
    "gibbs_sweeps": 60, "gibbs_every": 3, "seeds": (1, 2, 3),
}  # fmt: skip
FULL = {
    "n_topics": 50, "batch_size": 50, "grid_iterations": 300, "iterations": 600, "every": 25,
    "gibbs_sweeps": 200, "gibbs_every": 5, "seeds": (1, 2, 3),
}  # fmt: skip
# Sweeps over a document: before its topics are counted, and while they are.
LOCAL = (5, 15)
SEED = 2018
STYLES = {
    "SCIR": "C0",
    "SGRLD": "C1",
    "SGRLD, drift a - theta": "C3",
    "SGRLD, prior of Table 2": "C4",
    "collapsed Gibbs": "C2",
}


# Data -------------------------------------------------------------------------------------------------


def kos():
    """The corpus, and the number of words of its vocabulary."""
    folder = os.environ.get("PYMC_AUSTERITY_DATA")
    if not folder:
        raise FileNotFoundError(
            "The environment variable PYMC_AUSTERITY_DATA must name the folder of lda_corpus.npz."
        )
    with np.load(Path(folder) / "lda_corpus.npz", allow_pickle=False) as data:
        n_words = len(data["vocab"])
        return corpus_of(data["indptr"], data["indices"], data["counts"], n_words), n_words


def synthetic(n_documents=400, n_words=250, n_topics=6, length=40):
    """Documents of a few sparse topics."""
    rng = np.random.default_rng(SEED)
    phi = rng.dirichlet(np.full(n_words, 0.05), size=n_topics)
    share = rng.dirichlet(np.full(n_topics, 0.2), size=n_documents)
    law = share @ phi
    return from_documents(rng.choice(n_words, size=length, p=p / p.sum()) for p in law), n_words


def split(corpus, n_words):
    """Training documents; of a tenth each, for validation and for the test, the two halves."""
    rng = np.random.default_rng(SEED)
    order = rng.permutation(len(corpus.starts) - 1)
    held_out = len(order) // 10
    return {
        "n_words": n_words,
        "train": subcorpus(corpus, order[2 * held_out :]),
        "validation": halves(rng, subcorpus(corpus, order[:held_out])),
        "test": halves(rng, subcorpus(corpus, order[held_out : 2 * held_out])),
    }


# Scores -----------------------------------------------------------------------------------------------


def perplexity(probabilities):
    return float(np.exp(-np.mean(np.log(probabilities))))


class Scores:
    """Perplexities along a chain, of single draws of the topics and of predictions averaged over draws."""

    def __init__(self, parts, prior):
        self.parts, self.alpha, self.rng = parts, prior[0], np.random.default_rng(SEED)
        self.rows, self.probabilities = [], []

    def add(self, iteration, seconds, phi):
        self.probabilities.append(COMPILED["completion"](self.rng, *self.parts, phi, self.alpha, *LOCAL))
        # Of the draws up to here the later half: the first are burn-in.
        kept = self.probabilities[len(self.probabilities) // 2 :]
        self.rows.append(
            {
                "iteration": iteration,
                "seconds": seconds,
                "draw": perplexity(self.probabilities[-1]),
                "averaged": perplexity(np.mean(kept, axis=0)),
            }
        )

    def table(self):
        return pd.DataFrame(self.rows)


# Chains -----------------------------------------------------------------------------------------------


def sgrld_update(rng, theta, shapes, beta, centred, step_size):
    """Move all K V processes over one step of the discretisation, in place.

    Parameters
    ----------
    rng : numpy.random.Generator
    theta : ndarray of shape (V, K)
    shapes : ndarray of shape (V, K)
        a_hat.
    beta : float
    centred : bool
        The drift is beta - theta + (L / n) sum of E[n_dkw - phi_kw n_dk], as in Patterson & Teh, whose
        limit for small steps is the posterior; the sum of theta over words is drawn to V beta. Otherwise
        it is a_hat - theta, that of SCIR; the sum is drawn to V beta and the tokens of the topic.
    step_size : float
        h.
    """
    total, pull = theta.sum(axis=0), np.zeros(theta.shape[1])
    if centred:
        pull = (shapes - beta).sum(axis=0)
    for w in range(theta.shape[0]):
        for k in range(theta.shape[1]):
            drift = shapes[w, k] - theta[w, k] - pull[k] * theta[w, k] / total[k]
            theta[w, k] = sgrld_transition(rng, theta[w, k], drift, step_size)


KERNELS = (
    lda.shape_estimates,
    lda.scir_update,
    sgrld_update,
    lda.topics,
    lda.completion,
    lda.collapsed_sweep,
)
COMPILED = {kernel.__name__: numba.njit(kernel) for kernel in KERNELS}


def stochastic_chain(data, part, kind, prior, schedule, step_size, settings, iterations, seed):
    """Perplexities of a part of the documents along a chain of SCIR or SGRLD."""
    rng = np.random.default_rng(seed)
    (alpha, beta), (tau, kappa) = prior, schedule
    log_theta = np.log(rng.standard_gamma(1.0, (data["n_words"], settings["n_topics"])))
    theta = np.exp(log_theta)
    population = np.arange(len(data["train"].starts) - 1)
    scores, seconds = Scores(data[part], prior), 0.0
    phi = COMPILED["topics"](log_theta)
    for m in range(iterations):
        began = time.process_time()
        h = step_size * (1 + m / tau) ** -kappa
        shapes = COMPILED["shape_estimates"](
            rng, data["train"], population, settings["batch_size"], phi, alpha, beta, *LOCAL
        )
        if kind == "scir":
            COMPILED["scir_update"](rng, log_theta, shapes, h)
            phi = COMPILED["topics"](log_theta)
        else:
            COMPILED["sgrld_update"](rng, theta, shapes, beta, kind == "centred", h)
            phi = theta / theta.sum(axis=0)
        seconds += time.process_time() - began
        if (m + 1) % settings["every"] == 0:
            scores.add(m + 1, seconds, phi)
    return scores.table()


def gibbs_chain(data, part, prior, settings, seed):
    """The same of collapsed Gibbs sampling; the topics are drawn given the counts."""
    rng = np.random.default_rng(seed)
    train, n_topics = data["train"], settings["n_topics"]
    start = rng.integers(n_topics, size=len(train.words))
    allocation = lda.allocation_of(train, start, data["n_words"], n_topics)
    scores, seconds = Scores(data[part], prior), 0.0
    for m in range(settings["gibbs_sweeps"]):
        began = time.process_time()
        COMPILED["collapsed_sweep"](rng, train, allocation, *prior)
        seconds += time.process_time() - began
        if (m + 1) % settings["gibbs_every"] == 0:
            scores.add(m + 1, seconds, lda.drawn_topics(rng, allocation, prior[1]))
    return scores.table()


def compile_everything(data):
    """On a few documents, so that no chain is timed while its functions are compiled."""
    few = subcorpus(data["train"], np.arange(2))
    little = {**data, "train": few, "test": (few, few)}
    settings = {"n_topics": 2, "batch_size": 1, "every": 1, "gibbs_sweeps": 1, "gibbs_every": 1}
    prior = (0.1, 0.1)
    for kind in ("scir", "centred"):
        stochastic_chain(little, "test", kind, prior, SCHEDULE, 0.1, settings, 1, SEED)
    gibbs_chain(little, "test", prior, settings, SEED)


def search(data, prior, settings):
    """Perplexity of the validation documents after a shorter chain: methods x schedules x step sizes."""
    rows = []
    for name, method in METHODS.items():
        for schedule in method.schedules:
            for step_size in STEP_SIZES:
                table = stochastic_chain(
                    data, "validation", method.kind, method.prior or prior, schedule, step_size, settings,
                    settings["grid_iterations"], SEED,
                )  # fmt: skip
                rows.append(
                    {
                        "method": name,
                        "schedule": "(1 + m/{})^-{}".format(*schedule),
                        "step size": step_size,
                        "perplexity": table["averaged"].iloc[-1],
                        "settings": schedule,
                    }
                )
        print(f"{name}: {len(STEP_SIZES) * len(method.schedules)} chains done.", flush=True)
    return pd.DataFrame(rows)


def compare(data, prior, settings, grid):
    """Chains at the best settings: a table for each method and seed, and the figures at the end."""
    chains, chosen = {}, {}
    for name, method in METHODS.items():
        best = grid.loc[grid[grid["method"] == name]["perplexity"].idxmin()]
        chosen[name] = f"h = {best['step size']:g} {best['schedule']}"
        print(f"{name}: {chosen[name]}", flush=True)
        for seed in settings["seeds"]:
            chains[name, seed] = stochastic_chain(
                data, "test", method.kind, method.prior or prior, best["settings"], best["step size"],
                settings, settings["iterations"], seed,
            )  # fmt: skip
    chosen["collapsed Gibbs"] = ""
    for seed in settings["seeds"]:
        chains["collapsed Gibbs", seed] = gibbs_chain(data, "test", prior, settings, seed)
    rows = {}
    for name, setting in chosen.items():
        ends = [chains[name, seed] for seed in settings["seeds"]]
        row = {f"seed {s}": t["averaged"].iloc[-1] for s, t in zip(settings["seeds"], ends, strict=True)}
        # Single draws vary: their mean over the last quarter.
        draws = [t["draw"].iloc[-(len(t) // 4) :].mean() for t in ends]
        rows[name] = {
            "averaged": np.mean(list(row.values())),
            **row,
            "single draws": np.mean(draws),
            "CPU seconds": np.mean([t["seconds"].iloc[-1] for t in ends]),
            "ms/iteration": np.mean([1e3 * t["seconds"].iloc[-1] / t["iteration"].iloc[-1] for t in ends]),
            "chosen": setting,
        }
    return chains, pd.DataFrame(rows).T


def word_frequencies(data, prior):
    """Perplexity of the test documents without any topics: (beta + counts of words), normalised."""
    counts = prior[1] + np.bincount(data["train"].words, minlength=data["n_words"])
    return perplexity((counts / counts.sum())[data["test"][1].words])


# Figure -----------------------------------------------------------------------------------------------


def plot(chains, grid, path):
    figure, axes = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    for (name, seed), table in chains.items():
        label = name if seed == min(s for _, s in chains) else None
        for ax, x in ((axes[0], "iteration"), (axes[1], "seconds")):
            ax.plot(table[x], table["averaged"], color=STYLES[name], label=label)
            ax.plot(table[x], table["draw"], color=STYLES[name], lw=0.6, alpha=0.4)
    for (name, schedule), rows in grid.groupby(["method", "schedule"], sort=False):
        later = schedule != grid.loc[grid["method"] == name, "schedule"].iloc[0]
        axes[2].plot(
            rows["step size"],
            rows["perplexity"],
            "o--" if later else "o-",
            ms=4,
            color=STYLES[name],
            label=f"{name}{', slower decay' if later else ''}",
        )
    ends = np.concatenate([table[["draw", "averaged"]].iloc[-1] for table in chains.values()])
    low = min(table["averaged"].min() for table in chains.values())
    high = np.median(ends) + 3 * (np.median(ends) - low)
    for ax in axes:
        ax.set_ylim(low - 0.05 * (high - low), high)
    axes[0].set(xlabel="iteration (Gibbs: sweep over all documents)", ylabel="perplexity, test documents")
    axes[1].set(xlabel="CPU seconds", xscale="log", title="thin: single draws; thick: averaged over draws")
    axes[2].set(
        xlabel="step size h", xscale="log", ylabel="perplexity, validation documents", title="choice of h"
    )
    axes[0].legend(frameon=False, fontsize=8)
    axes[2].legend(frameon=False, fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)
    plt.close(figure)


def main(full=False, output=".", topics=None, beta=BETA):
    settings, folder, prior = dict(FULL if full else FAST), Path(output), (ALPHA, beta)
    if topics is not None:
        settings["n_topics"] = topics
    began = time.process_time()
    data = split(*(kos() if full else synthetic()))
    compile_everything(data)
    grid = search(data, prior, settings)
    chains, table = compare(data, prior, settings, grid)
    print("\nPerplexity of validation documents after the chains of the grid:\n")
    pivot = grid.pivot(index=["method", "schedule"], columns="step size", values="perplexity")
    print(pivot.to_string(float_format="{:.1f}".format))
    print("\nPerplexity of test documents at the end, at the best of these:\n")
    print(table.to_string(float_format="{:.1f}".format))
    print(f"\nFrequencies of words, without topics: {word_frequencies(data, prior):.1f}")
    print(f"All chains: {(time.process_time() - began) / 60:.1f} CPU minutes")
    figure = folder / "lda_kos.png"
    plot(chains, grid, figure)
    print(f"Figure: {figure}")
    return {
        "grid": grid,
        "table": table,
        "chains": chains,
        "frequencies": word_frequencies(data, prior),
        "figure": figure,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--full", action="store_true", help="the KOS blog entries, instead of a synthetic corpus"
    )
    parser.add_argument("--topics", type=int, help="K (50 with --full)")
    parser.add_argument("--beta", type=float, default=BETA, help="of the prior of words in topics")
    parser.add_argument("--output", default=".", help="directory of the figure")
    main(**vars(parser.parse_args()))
