"""Gibbs updates of latent categories, of some rows at a time.

The categories z_1, ..., z_N of the rows are independent given all else:

    P(z_i = k | rest) = w_ik / sum over m of w_im,   log w_ik = log density terms of row i, if z_i = k.

So the rows of a batch can be drawn at once, from K terms each. A batch that is chosen without looking at z
leaves the distribution of z given the rest as it is, whatever its size and however often.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from pymc_austerity.compilation import jitable
from pymc_austerity.exceptions import CompiledError
from pymc_austerity.kernels.subsample import draw_without_replacement, restore_order
from pymc_austerity.target import CHUNK, Index, Target, Vector

Draw = Callable[[np.random.Generator, Vector], int]


class ImpossibleRowError(CompiledError):
    """There is nothing to draw the category of a row from."""

    sentence = (
        "No category of row {0} has a positive, finite density given all other variables. Check the data "
        "of this row and the support of its likelihood, and start the chain where the density is positive."
    )


class BatchDraws(NamedTuple):
    """Numbers of rows that are drawn at a time, and how they are drawn."""

    # n, from 1 to N. With N all rows are drawn, in order, and no random numbers are spent on the choice.
    batch_size: Any
    # ``(rng, log_weights) -> k``, or -1 where there is nothing to draw from: `draw_category`
    draw: Draw


class GibbsOutcome(NamedTuple):
    """Counts of what some Gibbs updates did."""

    n_rows: int  # Rows that were drawn
    n_changed: int  # Rows that were drawn and got another category


@jitable
def draw_category(rng: np.random.Generator, log_weights: Vector) -> int:
    """Draw k with probability in proportion to exp(log_weights[k]); -1 if these are no weights.

    That is if one of them is not a number or plus infinity, or if all are minus infinity.
    """
    largest = -math.inf
    for x in log_weights:
        if math.isnan(x):
            return -1
        largest = max(largest, x)
    if math.isinf(largest):
        return -1
    total = 0.0
    for x in log_weights:
        total += math.exp(x - largest)
    left = rng.random() * total
    last = 0
    for k in range(log_weights.shape[0]):
        weight = math.exp(log_weights[k] - largest)
        if weight > 0.0:
            last = k  # rounding may leave something over: that belongs to a category that is possible
            if left < weight:
                break
        left -= weight
    return last


@jitable
def gibbs_updates(
    n_updates: int,
    rng: np.random.Generator,
    z: Index,
    counts: Index,
    args: tuple[Any, ...],
    population: Index,
    rule: BatchDraws,
    target: Target,
) -> GibbsOutcome:
    """Draw the categories of batches of rows, each batch uniformly without replacement.

    The categories `z` (N,) and the number of rows in each, `counts` (K,), are changed in place. `population`
    has the numbers 0, ..., N - 1 in order: work space, left as it was found. `args` are handed to the
    functions of `target`. Its ``log_terms(categories, index, args)`` are the sums of the terms of the log
    density that contain z_i, for the m rows i in `index`, with z_i as in `categories`. Rows may be repeated.

    Raises `ImpossibleRowError` if a row has no category of positive probability, or a term is not a number.
    Costs O(n K) terms for each batch. Memory does not grow with the batch.
    """
    n_categories, batch_size = counts.shape[0], rule.batch_size
    # Rows whose terms, of all categories, are evaluated at a time.
    at_once = max(1, CHUNK // n_categories)
    n_changed = 0
    for _ in range(n_updates):
        draw_without_replacement(rng, population, 0, batch_size)
        rows = population[:batch_size].copy()
        restore_order(population, batch_size if batch_size < population.shape[0] else 0)
        for start in range(0, batch_size, at_once):
            some = rows[start : start + at_once]
            index = np.repeat(some, n_categories)
            categories = np.empty(index.shape[0], dtype=np.int64)
            for k in range(n_categories):
                categories[k::n_categories] = k
            log_weights = target.log_terms(categories, index, args)
            for r in range(some.shape[0]):
                i = some[r]
                new = rule.draw(rng, log_weights[r * n_categories : (r + 1) * n_categories])
                if new < 0:
                    raise ImpossibleRowError(i)
                if new != z[i]:
                    counts[z[i]] -= 1
                    counts[new] += 1
                    z[i] = new
                    n_changed += 1
    return GibbsOutcome(n_updates * batch_size, n_changed)
