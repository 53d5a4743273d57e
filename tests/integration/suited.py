"""Likelihoods of rows, and structures of what they depend on: each pair is a model.

    python -m tests.integration.suited                          # writes the tables of docs/howto/suited.md
    python -m tests.integration.suited binary "choice of three"   # rows of these alone

A cell says what `recommend` chooses for 20,000 rows, and the CPU seconds that it takes, compiled code kept:
a number of rows for a draw, `sums` where none is read, `all` where all are, or `NUTS`.
"""

import argparse
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pymc as pm
import pytensor.tensor as pt
from scipy.special import expit

from pymc_austerity import SubsamplingWarning, recommend

ROWS = 20_000
PAGE = Path(__file__).parents[2] / "docs" / "howto" / "suited.md"


class Part(NamedTuple):
    """What a structure adds to rows: in the data, and in a model, where it is called."""

    truth: np.ndarray
    of_model: Callable[[], pt.TensorVariable]


def _groups(rng, n, size):
    return np.sort(rng.integers(size, size=n))


def _coefficients(rng, n):
    x = rng.normal(size=(n, 3))
    return Part(x @ [0.4, -0.3, 0.2], lambda: pm.Normal("level") + x @ pm.Normal("beta", shape=3))


def _intercepts(rng, n):
    g = _groups(rng, n, n // 50)
    return Part(
        0.5 * rng.normal(size=n // 50)[g],
        lambda: pm.Normal("u", 0.0, pm.HalfNormal("of_u", 1.0), shape=n // 50)[g],
    )


def _slopes(rng, n):
    g, t = _groups(rng, n, n // 50), rng.normal(size=n)
    own = rng.normal(size=(n // 50, 2)) * [0.5, 0.3]

    def of_model():
        sds = pm.HalfNormal.dist(1.0, shape=2)
        chol, _, _ = pm.LKJCholeskyCov("chol", n=2, eta=2.0, sd_dist=sds)
        u = pm.Normal("z", shape=(n // 50, 2)) @ chol.T
        return u[g, 0] + u[g, 1] * t

    return Part(own[g, 0] + own[g, 1] * t, of_model)


def _three_levels(rng, n):
    g = _groups(rng, n, n // 50)
    school, region = np.arange(n // 50) // 8, np.arange(n // 400 + 1) // 5
    own = [
        sd * rng.normal(size=size) for sd, size in ((0.4, n // 50), (0.3, n // 400 + 1), (0.2, n // 2000 + 1))
    ]

    def of_model():
        tau = pm.HalfNormal("tau", 1.0, shape=3)
        outer = pm.Normal("of_regions", 0.0, tau[2], shape=n // 2000 + 1)
        middle = pm.Normal("of_schools", outer[region], tau[1], shape=n // 400 + 1)
        return pm.Normal("of_classes", middle[school], tau[0], shape=n // 50)[g]

    return Part((own[0] + (own[1] + own[2][region])[school])[g], of_model)


def _crossed(rng, n):
    g, h = _groups(rng, n, n // 50), rng.integers(20, size=n)

    def of_model():
        u = pm.Normal("u", 0.0, pm.HalfNormal("of_u", 1.0), shape=n // 50)
        return u[g] + pm.HalfNormal("of_v", 1.0) * pm.Normal("v", shape=20)[h]

    return Part(0.5 * rng.normal(size=n // 50)[g] + 0.3 * rng.normal(size=20)[h], of_model)


def _large_crossed(rng, n):
    g, h = _groups(rng, n, n // 50), rng.integers(n // 100, size=n)

    def of_model():
        u = pm.Normal("u", 0.0, pm.HalfNormal("of_u", 1.0), shape=n // 50)
        return u[g] + pm.HalfNormal("of_v", 1.0) * pm.Normal("v", shape=n // 100)[h]

    return Part(0.5 * rng.normal(size=n // 50)[g] + 0.3 * rng.normal(size=n // 100)[h], of_model)


def _walk(rng, n):
    t = _groups(rng, n, 100)

    def of_model():
        start = pm.Normal.dist(0.0, 1.0)
        return pm.GaussianRandomWalk("w", sigma=pm.HalfNormal("of_w", 0.3), init_dist=start, shape=100)[t]

    return Part(np.cumsum(0.1 * rng.normal(size=100))[t], of_model)


def _areas(rng, n):
    path = np.eye(12, k=1) + np.eye(12, k=-1)
    w = np.kron(np.eye(12), path) + np.kron(path, np.eye(12))
    a = _groups(rng, n, 144)

    def of_model():
        tau, alpha = pm.Gamma("tau", 2.0, 1.0), pm.Beta("alpha", 2.0, 2.0)
        return pm.CAR("phi", mu=np.zeros(144), W=w, alpha=alpha, tau=tau)[a]

    return Part(0.4 * rng.normal(size=144)[a], of_model)


def _smooth(rng, n):
    t = rng.uniform(-1.0, 1.0, size=n)

    def of_model():
        cov = pm.HalfNormal("eta", 1.0) ** 2 * pm.gp.cov.Matern52(1, ls=pm.InverseGamma("ell", 5.0, 2.0))
        return pm.gp.HSGP(m=[12], c=1.5, cov_func=cov).prior("f", X=t[:, None])

    return Part(0.6 * np.sin(3.0 * t), of_model)


def _heavy_tails(rng, n):
    g = _groups(rng, n, n // 50)
    return Part(
        0.4 * rng.standard_t(4, size=n // 50)[g],
        lambda: pm.StudentT("u", nu=4.0, sigma=pm.HalfNormal("of_u", 1.0), shape=n // 50)[g],
    )


def _zero_sum(rng, n):
    g = _groups(rng, n, n // 50)
    return Part(
        0.4 * rng.normal(size=n // 50)[g],
        lambda: pm.Normal("level") + pm.ZeroSumNormal("u", pm.HalfNormal("of_u", 1.0), shape=n // 50)[g],
    )


def _of_each_row(rng, n):
    return Part(
        0.5 * rng.normal(size=n),
        lambda: pm.Normal("level") + pm.HalfNormal("of_e", 1.0) * pm.Normal("e", shape=n),
    )


STRUCTURES = {
    "coefficients alone": _coefficients,
    "groups": _intercepts,
    "correlated slopes of groups": _slopes,
    "three nested levels": _three_levels,
    "groups and a short factor": _crossed,
    "two large crossed factors": _large_crossed,
    "a random walk": _walk,
    "areas": _areas,
    "a smooth function": _smooth,
    "groups with heavy tails": _heavy_tails,
    "groups that sum to zero": _zero_sum,
    "an effect of each row": _of_each_row,
}


def _binary(rng, truth, eta):
    pm.Bernoulli("y", logit_p=eta, observed=rng.random(len(truth)) < expit(truth))


def _binomial(rng, truth, eta):
    m = rng.integers(1, 20, size=len(truth))
    pm.Binomial("y", m, logit_p=eta, observed=rng.binomial(m, expit(truth)))


def _poisson(rng, truth, eta):
    exposure = rng.uniform(0.5, 2.0, size=len(truth))
    pm.Poisson("y", exposure * pm.math.exp(eta), observed=rng.poisson(exposure * np.exp(truth)))


def _negative_binomial(rng, truth, eta):
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(truth)))
    pm.NegativeBinomial("y", mu=pm.math.exp(eta), alpha=pm.LogNormal("dispersion", 0.5, 0.5), observed=y)


def _zero_inflated(rng, truth, eta):
    y = rng.poisson(np.exp(1.0 + truth)) * (rng.random(len(truth)) < 0.7)
    mu = pm.math.exp(1.0 + eta)
    pm.ZeroInflatedPoisson("y", psi=pm.Beta("psi", 3.0, 2.0), mu=mu, observed=y)


def _hurdle(rng, truth, eta):
    y = rng.negative_binomial(2.0, 2.0 / (2.0 + np.exp(1.0 + truth)))
    y = np.where(rng.random(len(truth)) < 0.7, np.maximum(y, 1), 0)
    pm.HurdlePoisson("y", psi=pm.Beta("psi", 3.0, 2.0), mu=pm.math.exp(1.0 + eta), observed=y)


def _normal(rng, truth, eta):
    pm.Normal("y", eta, pm.HalfNormal("sigma", 1.0), observed=truth + 0.8 * rng.normal(size=len(truth)))


def _student(rng, truth, eta):
    y = truth + 0.8 * rng.standard_t(4.0, size=len(truth))
    pm.StudentT("y", nu=4.0, mu=eta, sigma=pm.HalfNormal("sigma", 1.0), observed=y)


def _gamma(rng, truth, eta):
    shape = pm.LogNormal("shape", 0.5, 0.5)
    pm.Gamma("y", shape, shape / pm.math.exp(eta), observed=rng.gamma(2.0, np.exp(truth) / 2.0) + 1e-6)


def _beta(rng, truth, eta):
    y = np.clip(rng.beta(4.0 * expit(truth), 4.0 * expit(-truth)), 1e-4, 1.0 - 1e-4)
    pm.Beta("y", mu=pm.math.sigmoid(eta), nu=1.0 + pm.LogNormal("size", 1.0, 0.5), observed=y)


def _ordered(rng, truth, eta):
    cuts = pm.Normal("cuts", [-1.0, 0.0, 1.0], 1.0, transform=pm.distributions.transforms.ordered)
    y = np.digitize(truth + rng.logistic(size=len(truth)), [-1.0, 0.0, 1.0])
    pm.OrderedLogistic("y", eta=eta, cutpoints=cuts, observed=y)


def _choices(rng, truth, eta):
    own = pm.Normal("of_others", shape=2)
    utility = np.stack([truth, np.full(len(truth), 0.3), np.zeros(len(truth))], axis=1)
    y = (utility + rng.gumbel(size=utility.shape)).argmax(axis=1)
    others = pt.broadcast_to(own, (len(truth), 2))
    p = pm.math.softmax(pt.concatenate([eta[:, None], others], axis=1), axis=-1)
    pm.Categorical("y", p=p, observed=y)


def _durations(rng, truth, eta):
    t = np.exp(truth) * rng.weibull(1.5, size=len(truth)) + 1e-6
    rows = pm.Weibull.dist(alpha=pm.LogNormal("dispersion", 0.3, 0.3), beta=pm.math.exp(eta))
    pm.Censored("y", rows, lower=None, upper=2.0, observed=np.minimum(t, 2.0))


def _location_and_scale(rng, truth, eta):
    x = rng.normal(size=len(truth))
    scale = pm.math.exp(pm.Normal("of_scale") + 0.3 * x * pm.Normal("of_x"))
    pm.Normal("y", eta, scale, observed=truth + np.exp(0.2 * x) * rng.normal(size=len(truth)))


def _mixture(rng, truth, eta):
    y = truth + np.where(rng.random(len(truth)) < 0.3, 3.0, 0.0) + 0.7 * rng.normal(size=len(truth))
    share, shift = pm.Beta("share", 3.0, 3.0), pm.Normal("shift", 3.0, 0.5)
    weights = pt.stack([1.0 - share, share])
    parts = [pm.Normal.dist(eta, 0.7), pm.Normal.dist(eta + shift, 0.7)]
    pm.Mixture("y", w=weights, comp_dists=parts, observed=y)


def _several(rng, truth, eta):
    y = truth[:, None] + rng.normal(size=(len(truth), 3)) @ np.diag([0.5, 0.7, 0.9])
    sds = pm.HalfNormal.dist(1.0, shape=3)
    chol, _, _ = pm.LKJCholeskyCov("of_y", n=3, eta=2.0, sd_dist=sds)
    pm.MvNormal("y", eta[:, None] + pm.Normal("levels", shape=3), chol=chol, observed=y)


LIKELIHOODS = {
    "binary": _binary,
    "binomial": _binomial,
    "Poisson": _poisson,
    "negative binomial, free dispersion": _negative_binomial,
    "zero-inflated Poisson": _zero_inflated,
    "hurdle Poisson": _hurdle,
    "normal, free scale": _normal,
    "Student's t, free scale": _student,
    "gamma, free shape": _gamma,
    "beta, free size": _beta,
    "ordered, free cut points": _ordered,
    "choice of three": _choices,
    "censored Weibull, free shape": _durations,
    "normal, scale by a covariate": _location_and_scale,
    "mixture of two normals": _mixture,
    "normal of three, free covariance": _several,
}


def model_of(likelihood: str, structure: str, n: int = ROWS) -> pm.Model:
    """The model of a cell."""
    rng = np.random.default_rng(1)
    part = STRUCTURES[structure](rng, n)
    x = rng.normal(size=n)
    with pm.Model() as model:
        eta = part.of_model() + x * pm.Normal("of_covariate")
        LIKELIHOODS[likelihood](rng, part.truth + 0.3 * x, eta)
    return model


# The page ---------------------------------------------------------------------------------------------

Cells = dict[tuple[str, str], str]
_MARK = "<!-- table: {} -->"


def cell(likelihood: str, structure: str) -> str:
    """What the page says of a model."""
    model = model_of(likelihood, structure)
    chosen(model)  # what is compiled is kept
    began = time.process_time()
    return f"{chosen(model)}, {max(time.process_time() - began, 1.0):.0f} s"


def chosen(model: pm.Model) -> str:
    """What `recommend` chooses."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SubsamplingWarning)
        return _verdict(recommend(model, progressbar=False, verbose=False).recommendation.rows)


def _verdict(rows: float | None) -> str:
    if rows is None:
        return "NUTS"
    if rows >= ROWS:
        return "all"
    return f"{max(rows, 1.0):,.0f}" if rows else "sums"


def kind(text: str) -> str:
    """What a cell says, without numbers of rows and seconds."""
    return text.partition(", ")[0] if not text[0].isdigit() else "few"


def cells_of_page() -> Cells:
    """The cells of the page."""
    found: Cells = {}
    structures: list[str] = []
    for line in PAGE.read_text().splitlines():
        parts = [part.strip() for part in line.strip().strip("|").split("|")]
        if not line.startswith("| "):
            structures = []
        elif parts[0] == "":
            structures = parts[1:]
        elif not set(parts[0]) <= set("-: "):
            found.update({(parts[0], one): text for one, text in zip(structures, parts[1:], strict=True)})
    return found


def wrong_cells(cells: Cells, some: Iterable[tuple[str, str]]) -> list[str]:
    """Those of some cells that say something else than `recommend`, in words."""
    return [
        f"{likelihood}, {structure}: {cells[likelihood, structure]} on the page, and {found} here"
        for likelihood, structure in some
        if kind(cells[likelihood, structure]) != kind(found := chosen(model_of(likelihood, structure)))
    ]


def _table(cells: Cells, structures: list[str]) -> str:
    lines = [["", *structures], ["---"] + ["---:"] * len(structures)]
    lines += [[one, *(cells[one, structure] for structure in structures)] for one in LIKELIHOODS]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def write(cells: Cells) -> None:
    """Put cells into the tables of the page, of six structures each."""
    text, names = PAGE.read_text(), list(STRUCTURES)
    for k in range(0, len(names), 6):
        before, mark, after = text.partition(_MARK.format(k // 6 + 1) + "\n")
        _, gap, rest = after.partition("\n\n")
        text = before + mark + _table(cells, names[k : k + 6]) + gap + rest
    PAGE.write_text(text)


def main() -> None:
    """Find the cells anew, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("likelihoods", nargs="*", choices=[[], *LIKELIHOODS], default=[])
    chosen, cells = parser.parse_args().likelihoods or list(LIKELIHOODS), cells_of_page()
    for likelihood in chosen:
        for structure in STRUCTURES:
            cells[likelihood, structure] = cell(likelihood, structure)
            print(f"{likelihood}, {structure}: {cells[likelihood, structure]}", flush=True)
    write(cells)


if __name__ == "__main__":
    main()
