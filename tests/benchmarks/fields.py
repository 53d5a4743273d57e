"""Fields beside one factor of groups: set-up, rows, milliseconds and effective draws a second.

    python -m tests.benchmarks.fields                       # all models at N = 1e5
    python -m tests.benchmarks.fields nested_slopes walk --rows 1e6 --nutpie 300
    python -m tests.benchmarks.fields tennis --rows 39e3     # a fifth of what is played

CPU seconds of one thread; what is compiled is in numba's cache before a model is timed. Each model is drawn
from in turn with that one, so that ratios hold on a machine that is busy. Effective draws are the smaller of
bulk and tail, of theta and of 40 effects; the smallest is biased downwards. nutpie gets CPU seconds after its
compilation. Its rate is without its warm-up, and where it has not reached 300 effective draws by then, every
draw counts as effective. Prints a line of JSON a model.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any, NamedTuple

import numpy as np
import pymc as pm
from arviz_stats.base import array_stats

from pymc_austerity import TunaMH
from tests.benchmarks import public_fields
from tests.benchmarks.hierarchies import nutpie_of
from tests.benchmarks.hierarchy_models import Hierarchy, model_of, simulated
from tests.mode.fields import fields

_SETTLE, _ROUNDS, _EACH, _EFFECTS = 200, 10, 150, 40
_MODELS = {
    "nested_slopes": lambda n: fields.nested_slopes(n // 500, 10, 50),
    "three_levels": lambda n: fields.three_levels(n, n // 5000, n // 500, n // 50),
    "walk": lambda n: fields.walk(n, 500),
    "smooth": lambda n: fields.smooth(n, n // 100, 60, 20),
    "rasch": lambda n: fields.rasch(n, n // 50, 50),
    "areas": lambda n: fields.areas(n, 30),
    "bym2": lambda n: fields.bym2(n, 32, 0.001),
    "normal_rows": lambda n: fields.normal_rows(n, n // 100),
    "crossed_logistic": lambda n: public_fields.crossed_slopes(n, "logistic"),
    **{f.__name__: f for f in public_fields.ALL},
}


class Chain(NamedTuple):
    """A step that draws, with the state of its chain."""

    step: Any
    state: Any
    q: np.ndarray
    point: dict[str, np.ndarray]
    rng: np.random.Generator

    def draw(self, n: int) -> tuple[np.ndarray, float, float]:
        """Draws, CPU seconds, and rows."""
        draws, rows, began = np.empty((n, len(self.q))), 0.0, time.process_time()
        for k in range(n):
            rows += self.step.engine.run(1, False, self.rng, self.q, self.point, self.state).n_used
            draws[k] = self.q
        return draws, time.process_time() - began, rows


def chain(model: pm.Model) -> tuple[Chain, float]:
    """A chain, and the CPU seconds of a set-up whose compiled code is kept."""
    with model:
        TunaMH()
        began = time.process_time()
        step = TunaMH()
        seconds = time.process_time() - began
    point, rng = model.initial_point(), np.random.default_rng(1)
    q = step.recipe.fitted_draw(step.factorisation, step.engine, point, rng)
    return Chain(step, step.engine.new_state(), q, point, rng), seconds


def effective(draws: np.ndarray) -> float:
    """Effective draws for each, of the coordinate that mixes worst."""
    n, n_dim = draws.shape
    some = np.append(np.arange(min(10, n_dim)), np.linspace(0, n_dim - 1, _EFFECTS).astype(int))
    found = []
    for j in np.unique(some):
        one = draws[None, :, j]
        found.append(array_stats.ess(one, chain_axis=0, draw_axis=1, method="bulk"))
        found.append(array_stats.ess(one, chain_axis=0, draw_axis=1, method="tail", prob=(0.05, 0.95)))
    return float(min(found)) / n


def beside(model: pm.Model, plain: Chain, nutpie: float = 0.0) -> dict[str, Any]:
    """A model's figures, and ratios to those of one factor in the same minutes, and to those of nutpie."""
    own, seconds = chain(model)
    own.draw(_SETTLE)
    runs = [(own.draw(_EACH), plain.draw(_EACH)) for _ in range(_ROUNDS)]
    figures = []
    for k in range(2):
        draws = np.concatenate([run[k][0] for run in runs])
        spent = sum(run[k][1] for run in runs) / len(draws)
        rows = sum(run[k][2] for run in runs) / len(draws)
        figures.append((effective(draws), 1e3 * spent, rows))
    (ess, ms, rows), (ess_of_plain, ms_of_plain, _) = figures
    rival: dict[str, Any] = {}
    if nutpie:
        found = nutpie_of(model, nutpie, 300, {})
        if found["seconds"] is not None:
            seconds_of_1000 = found["seconds"] - found["compilation"] - found["warm_up"]
            names = ("draws", "leapfrogs_a_draw", "every_draw_counted_as_effective")
            rival = {f"nutpie_{name}": found[name] for name in names}
            rival["to_nutpie"] = round(ess / ms * seconds_of_1000, 1)
    return {
        "step": type(own.step.recipe).__name__,
        "set_up": round(seconds, 2),
        "acceptance": round(own.step.prediction.shared_acceptance, 2),
        "rows": round(rows, 1),
        "ms": round(ms, 3),
        "ess_a_draw": round(ess, 3),
        "ess_a_second": round(1e3 * ess / ms, 1),
        "to_the_plain": round((ess / ms) / (ess_of_plain / ms_of_plain), 4),
        "ms_of_plain": round(ms_of_plain, 3),
        **rival,
    }


def main() -> None:
    """Print a line for each model."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="*", choices=[[], *_MODELS], default=[])
    parser.add_argument("--rows", type=float, default=1e5)
    parser.add_argument("--nutpie", type=float, default=0.0, help="CPU seconds of nutpie; 0: without")
    options = parser.parse_args()
    n = int(options.rows)
    kind = Hierarchy("logistic", "intercepts", 100_000, 1000, 0)
    plain, _ = chain(model_of(kind, simulated(kind)))
    plain.draw(_SETTLE)
    for name in options.models or _MODELS:
        print(
            json.dumps({"model": name, "rows_of_data": n, **beside(_MODELS[name](n), plain, options.nutpie)}),
            flush=True,
        )


if __name__ == "__main__":
    main()
