"""What is announced of fields before a run, and what the run finds: acceptance, rows and effective draws.

    python -m tests.benchmarks.announcements --draws 2000

Ten models, from few rows for each group, where remainders are large, to many. Effective draws are of the
shared variable that mixes worst, for each draw, from four chains.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import NamedTuple

import arviz as az
import numpy as np
import pymc as pm

from pymc_austerity import TunaMH

# Where few rows are read though groups are small.
FEW = {"threshold": 100, "switch_above": np.inf}


class Compared(NamedTuple):
    """Pairs of what was announced and what was found."""

    acceptance: tuple[float, float]
    rows: tuple[float, float]
    effective: tuple[float, float]


def effects(spelling: str, groups: np.ndarray, n: int, loc: pm.Deterministic | float, name: str) -> object:
    """Effects of groups for each row."""
    scale = pm.HalfNormal(f"{name}_scale", 1.0)
    if spelling == "centred":
        return pm.Normal(name, loc, scale, shape=n)[groups]
    return loc + (scale * pm.Normal(name, shape=n))[groups]


def groups_of(
    seed: int, n: int, n_groups: int, spelling: str = "centred", kind: str = "logistic"
) -> pm.Model:
    """One factor, with a slope of all groups; `kind` may also be a form of the effects."""
    rng = np.random.default_rng(seed)
    groups, x = rng.choice(n_groups, n, p=rng.dirichlet(np.ones(n_groups))), rng.normal(size=n)
    eta = rng.normal(0.0, 0.7, n_groups)[groups] + 0.5 * x
    with pm.Model() as model:
        level, slope = pm.Normal("level", 0.0, 1.5), pm.Normal("slope")
        if kind == "nested":
            n_outer = max(30, n_groups // 8)
            parents = np.r_[np.arange(n_outer), rng.integers(0, n_outer, n_groups - n_outer)]
            v = pm.Normal("v", level, pm.HalfNormal("v_scale", 1.0), shape=n_outer)
            u = pm.Normal("u", v[parents], pm.HalfNormal("u_scale", 1.0), shape=n_groups)[groups]
        else:
            u = effects(spelling, groups, n_groups, level, "u")
        if kind == "slopes":
            u = u + pm.Normal("s", 0.0, pm.HalfNormal("s_scale", 1.0), shape=n_groups)[groups] * x
        if kind == "poisson":
            pm.Poisson("y", pm.math.exp(u + slope * x), observed=rng.poisson(np.exp(eta)))
        else:
            pm.Bernoulli(
                "y", logit_p=u + slope * x, observed=(rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
            )
    return model


def crossed(seed: int, n: int, first: int, second: int, level: float = 0.0) -> pm.Model:
    """Two factors."""
    rng = np.random.default_rng(seed)
    g, h, x = rng.integers(0, first, n), rng.integers(0, second, n), rng.normal(size=n)
    eta = level + rng.normal(0.0, 0.8, first)[g] + rng.normal(0.0, 0.6, second)[h] + 0.5 * x
    with pm.Model() as model:
        mean = pm.Normal("level", 0.0, 1.5)
        eta_of = effects("centred", g, first, mean, "u") + effects("centred", h, second, 0.0, "v")
        y = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(int)
        pm.Bernoulli("y", logit_p=eta_of + pm.Normal("slope") * x, observed=y)
    return model


MODELS: dict[str, tuple[Callable[[], pm.Model], dict[str, float]]] = {
    "120 rows, 32 groups": (lambda: groups_of(1, 120, 32), FEW),
    "180 rows, 36 groups, not centred": (lambda: groups_of(2, 180, 36, "not centred"), FEW),
    "240 rows, 40 groups": (lambda: groups_of(3, 240, 40), FEW),
    "240 counts, 40 groups": (lambda: groups_of(4, 240, 40, kind="poisson"), FEW),
    "240 rows, 70 groups in 31": (lambda: groups_of(5, 240, 70, kind="nested"), FEW),
    "240 rows, slopes of 40 groups": (lambda: groups_of(6, 240, 40, kind="slopes"), FEW),
    "420 rows, 110 x 105": (lambda: crossed(7, 420, 110, 105), FEW),
    "420 rows, 110 x 105, rare": (lambda: crossed(8, 420, 110, 105, -3.0), FEW),
    "20,000 rows, 300 groups": (lambda: groups_of(9, 20_000, 300), {}),
    "20,000 counts, 300 groups": (lambda: groups_of(10, 20_000, 300, kind="poisson"), {}),
}


def compared(name: str, draws: int) -> Compared:
    """Announced and found, of one of the models."""
    make, options = MODELS[name]
    with make() as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        step = TunaMH(progressbar=False, **options)
        idata = pm.sample(
            draws, tune=200, chains=4, cores=1, step=step, random_seed=1, progressbar=False, quiet=True,
            compute_convergence_checks=False,
        )  # fmt: skip
        scales = [rv.name for rv in model.free_RVs if rv.name.endswith("_scale")]
    prediction, stats, posterior = step.prediction, idata["sample_stats"], idata["posterior"]
    sizes = [float(az.ess(posterior[one].values)) for one in ("level", "slope", *scales)]
    return Compared(
        (prediction.shared_acceptance, float(stats["acceptance_rate"].mean())),
        (prediction.terms, float(stats["n_used"].mean())),
        (prediction.mixing.efficiency, min(sizes) / (4 * draws)),
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--draws", type=int, default=2000, help="of each of four chains")
    chosen = parser.parse_args()
    print(f"{'announced, found':34s} {'acceptance':>14s} {'rows a draw':>18s} {'effective a draw':>18s}")
    for each in MODELS:
        found = compared(each, chosen.draws)
        print(
            f"{each:34s} {found.acceptance[0]:6.2f}, {found.acceptance[1]:6.2f} {found.rows[0]:8.1f}, "
            f"{found.rows[1]:8.1f} {found.effective[0]:8.4f}, {found.effective[1]:8.4f}",
            flush=True,
        )
