"""Gibbs updates of categories, against the enumeration of all they may do; planted faults are noticed."""

import inspect
import itertools
import math

import numba
import numpy as np
import pytest
from numba.extending import register_jitable
from scipy import stats

from pymc_austerity.kernels import categorical_gibbs
from pymc_austerity.kernels.categorical_gibbs import BatchDraws, GibbsOutcome, draw_category, gibbs_updates
from pymc_austerity.model.compile.protocol import constructor
from pymc_austerity.target import Target
from tests.kernels.engines import ScriptedRng

P_LIMIT = 1e-4
N, K, BATCH = 4, 3, 2
PRIOR = np.log(np.array([0.2, 0.5, 0.3]))
LIKELIHOOD = np.random.default_rng(3).normal(0.0, 1.5, (N, K))
STATES = np.array(list(itertools.product(range(K), repeat=N)))
TARGET_LAW = np.exp((LIKELIHOOD + PRIOR)[np.arange(N), STATES].sum(axis=1))
TARGET_LAW /= TARGET_LAW.sum()
NUMBER = K ** np.arange(N)[::-1]  # of a state in STATES


@register_jitable
def table_terms(categories, index, args):
    """Prior and likelihood of each row from tables."""
    prior, likelihood = args
    out = np.empty(index.shape[0])
    for k in range(index.shape[0]):
        out[k] = prior[categories[k]] + likelihood[index[k], categories[k]]
    return out


@register_jitable
def terms_without_prior(categories, index, args):
    """A planted fault."""
    return table_terms(categories, index, (np.zeros(args[0].shape[0]), args[1]))


class Enumerated:
    """In place of a random draw: each category in its turn, and how likely it would have been."""

    def __init__(self, choices):
        self.choices, self.probability = list(choices), 1.0

    def __call__(self, rng, log_weights):
        weights = np.exp(log_weights - log_weights.max())
        k = self.choices.pop(0)
        self.probability *= weights[k] / weights.sum()
        return k


def batches(size):
    """Uniform random numbers that lead to each of the ordered batches."""
    if size == N:
        return [()]
    places = [range(N - k) for k in range(size)]
    return [tuple((j + 0.5) / (N - k) for k, j in enumerate(choice)) for choice in itertools.product(*places)]


def transition_matrix(kernel=gibbs_updates, terms=table_terms, batch_size=BATCH):
    """Probability of every state after one update from every state."""
    matrix = np.zeros((len(STATES), len(STATES)))
    scripts = batches(batch_size)
    for s, state in enumerate(STATES):
        for uniforms in scripts:
            for choices in itertools.product(range(K), repeat=batch_size):
                z, counts = state.copy(), np.bincount(state, minlength=K)
                draw, population = Enumerated(choices), np.arange(N)
                kernel(
                    1, ScriptedRng(uniforms), z, counts, (PRIOR, LIKELIHOOD), population,
                    BatchDraws(batch_size, draw), Target(log_terms=terms),
                )  # fmt: skip
                np.testing.assert_array_equal(counts, np.bincount(z, minlength=K))
                np.testing.assert_array_equal(population, np.arange(N))
                matrix[s, NUMBER @ z] += draw.probability / len(scripts)
    return matrix


def error_of(matrix):
    """How far the target law is from being invariant."""
    return np.abs(TARGET_LAW @ matrix - TARGET_LAW).max()


class TestInvariance:
    @pytest.mark.parametrize("batch_size", [1, BATCH, N])
    def test_the_law_of_the_categories_is_invariant(self, batch_size):
        matrix = transition_matrix(batch_size=batch_size)
        np.testing.assert_allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-12)
        assert error_of(matrix) < 1e-12

    def test_all_rows_at_once_are_an_independent_draw(self):
        np.testing.assert_allclose(
            transition_matrix(batch_size=N), np.tile(TARGET_LAW, (len(STATES), 1)), rtol=1e-12
        )

    def test_batches_reach_every_state(self):
        matrix = transition_matrix()
        assert np.linalg.matrix_power(matrix, 2).min() > 0
        assert matrix.min() == 0

    def test_every_batch_is_as_likely_as_every_other(self):
        """Of four rows, each of the six pairs is drawn one time in six."""
        stay = np.zeros((N, K))
        stay[:, 0] = 800.0  # so every row drawn goes to category 0
        matrix = np.zeros(16)
        for uniforms in batches(BATCH):
            z, counts = np.full(N, 1), np.array([0, N, 0])
            gibbs_updates(
                1, ScriptedRng(uniforms), z, counts, (PRIOR, stay), np.arange(N),
                BatchDraws(BATCH, lambda rng, log_weights: int(np.argmax(log_weights))),
                Target(log_terms=table_terms),
            )  # fmt: skip
            matrix[(z == 0) @ (1, 2, 4, 8)] += 1.0 / len(batches(BATCH))
        pairs = [2**i + 2**j for i, j in itertools.combinations(range(N), 2)]
        np.testing.assert_allclose(matrix[pairs], 1 / 6, rtol=1e-12)

    def test_a_missing_prior_is_noticed(self):
        """Planted fault: terms without the prior."""
        assert error_of(transition_matrix(terms=terms_without_prior)) > 0.01

    @pytest.mark.parametrize(
        "chosen",
        ["np.argsort(z)[:batch_size]", "np.flatnonzero(z != z[0])[:batch_size]"],
        ids=["low", "other"],
    )
    def test_a_batch_that_depends_on_the_state_is_noticed(self, chosen):
        """Planted fault: a batch that depends on the state."""
        kernel = planted("population[:batch_size].copy()", chosen)
        kernel = planted("for start in range(0, batch_size,", "for start in range(0, len(rows),", kernel)
        assert error_of(transition_matrix(kernel)) > 0.01

    def test_counts_that_are_not_carried_along_are_noticed(self):
        """Planted fault: counts that are not carried along."""
        with pytest.raises(AssertionError):
            transition_matrix(planted("counts[z[i]] -= 1", "pass"))

    def test_places_that_are_not_put_back_are_noticed(self):
        """Planted fault: places that are not put back."""
        with pytest.raises(AssertionError):
            transition_matrix(planted("restore_order(population,", "(lambda *_: None)(population,"))


def planted(old, new, source=gibbs_updates):
    """The kernel with a planted fault."""
    text = source if isinstance(source, str) else getattr(source, "text", None) or inspect.getsource(source)
    assert text.count(old) == 1
    names = dict(vars(categorical_gibbs))
    text = text.replace(old, new)
    exec(text, names)
    names["gibbs_updates"].text = text
    return names["gibbs_updates"]


class TestDraw:
    LOG_WEIGHTS = np.array([-1001.0, -np.inf, -1000.0, -1002.5, -np.inf])

    @property
    def probabilities(self):
        weights = np.exp(self.LOG_WEIGHTS + 1000.0)
        return weights / weights.sum()

    def test_each_category_has_its_share_of_the_unit_interval(self):
        edges = np.cumsum(self.probabilities)
        for k in (0, 2, 3):
            low = edges[k] - self.probabilities[k]
            for u in (low + 1e-12, edges[k] - 1e-12):
                assert draw_category(ScriptedRng([u]), self.LOG_WEIGHTS) == k

    @pytest.mark.parametrize("u", [0.0, np.nextafter(1.0, 0.0)])
    def test_impossible_categories_are_never_drawn(self, u):
        for log_weights in itertools.product([-np.inf, 0.0, -0.1, 3.7], repeat=4):
            if max(log_weights) > -np.inf:
                k = draw_category(ScriptedRng([u]), np.array(log_weights))
                assert log_weights[k] > -np.inf

    def test_rounding_leaves_nothing_over(self):
        """Whatever is left over after all weights belongs to the last possible category."""
        assert draw_category(ScriptedRng([1.0]), np.array([0.0, 0.3, -np.inf])) == 1

    @pytest.mark.parametrize(
        "draw", [draw_category, numba.njit(draw_category)], ids=["interpreted", "compiled"]
    )
    def test_frequencies(self, draw):
        rng, n = np.random.default_rng(5), 20_000
        counts = np.bincount([draw(rng, self.LOG_WEIGHTS) for _ in range(n)], minlength=5)
        assert not counts[[1, 4]].any()
        possible = self.probabilities > 0
        assert stats.chisquare(counts[possible], n * self.probabilities[possible]).pvalue > P_LIMIT

    @pytest.mark.parametrize(
        "log_weights", [(-np.inf, -np.inf), (0.0, np.nan), (np.nan, 0.0), (np.inf, 0.0)], ids=str
    )
    def test_no_weights(self, log_weights):
        assert draw_category(ScriptedRng(), np.array(log_weights)) == -1


make_rule = constructor(BatchDraws(..., draw_category))
make_target = constructor(Target(log_terms=table_terms))


@numba.njit
def compiled(n_updates, rng, z, counts, args, population, batch_size):
    return gibbs_updates(n_updates, rng, z, counts, args, population, make_rule(batch_size), make_target())


def interpreted(n_updates, rng, z, counts, args, population, batch_size, terms=table_terms):
    rule = BatchDraws(batch_size, draw_category)
    return gibbs_updates(n_updates, rng, z, counts, args, population, rule, Target(log_terms=terms))


def run(kernel, n_rows=1000, n_categories=7, n_updates=5, batch_size=100, seed=1, **kwargs):
    """Outcome, categories and counts after some updates of a larger problem."""
    rng = np.random.default_rng(8)
    args = (rng.normal(size=n_categories), rng.normal(size=(n_rows, n_categories)))
    z = rng.integers(n_categories, size=n_rows)
    counts = np.bincount(z, minlength=n_categories)
    population = np.arange(n_rows)
    generator = np.random.default_rng(seed)
    outcome = kernel(n_updates, generator, z, counts, args, population, batch_size, **kwargs)
    np.testing.assert_array_equal(counts, np.bincount(z, minlength=n_categories))
    np.testing.assert_array_equal(population, np.arange(n_rows))
    return GibbsOutcome(*outcome), z, generator.random()


class TestCompiled:
    @pytest.mark.parametrize("batch_size", [1, 100, 999, 1000])
    def test_the_same_draws_as_interpreted(self, batch_size):
        one, two = (run(kernel, batch_size=batch_size) for kernel in (interpreted, compiled))
        assert one[0] == two[0]
        np.testing.assert_array_equal(one[1], two[1])
        assert one[2] == two[2]

    def test_the_size_of_chunks_does_not_matter(self, monkeypatch):
        expected = run(interpreted, batch_size=1000)
        for chunk in (1, 10, 63):
            monkeypatch.setattr(categorical_gibbs, "CHUNK", chunk)
            np.testing.assert_array_equal(run(interpreted, batch_size=1000)[1], expected[1])

    @pytest.mark.parametrize("kernel", [interpreted, compiled])
    def test_a_row_without_possible_categories_is_named(self, kernel):
        terms = np.zeros((5, 2))
        terms[3] = -np.inf
        z, counts = np.zeros(5, np.int64), np.array([5, 0])
        with pytest.raises(ValueError, match="No category of row 3 has") as caught:
            kernel(1, np.random.default_rng(1), z, counts, (np.zeros(2), terms), np.arange(5), 5)
        assert caught.value.args == (3,)


class TestOutcome:
    def test_counts_what_was_done(self):
        outcome, _, _ = run(interpreted)
        assert outcome.n_rows == 500
        assert 0 < outcome.n_changed < 500

    def test_terms_are_asked_for_the_rows_of_the_batch_only(self):
        asked = []

        def watched(categories, index, args):
            asked.append((categories.copy(), index.copy()))
            return table_terms(categories, index, args)

        run(interpreted, n_rows=100_000, n_updates=3, batch_size=20, terms=watched)
        assert [len(index) for _, index in asked] == [20 * 7] * 3
        for categories, index in asked:
            rows = index[::7]
            assert len(set(rows.tolist())) == 20
            np.testing.assert_array_equal(index, np.repeat(rows, 7))
            np.testing.assert_array_equal(categories, np.tile(np.arange(7), 20))

    def test_memory_does_not_grow_with_the_batch(self):
        asked = []

        def watched(categories, index, args):
            asked.append(len(index))
            return table_terms(categories, index, args)

        run(interpreted, n_rows=5000, n_updates=1, batch_size=5000, terms=watched)
        assert max(asked) <= categorical_gibbs.CHUNK
        assert sum(asked) == 5000 * 7
        assert math.ceil(5000 * 7 / categorical_gibbs.CHUNK) <= len(asked) <= 6
