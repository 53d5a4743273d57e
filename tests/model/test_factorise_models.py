"""`factorise` on a catalogue of models, against the log density that PyMC computes."""

import re

import numpy as np
import pytensor
import pytest
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_austerity import FactorisationError, factorise

from . import (  # noqa: F401
    catalogue,
    catalogue_fields_a,
    catalogue_fields_b,
    catalogue_fields_c,
    catalogue_unusual,
)
from .catalogue import MODELS, REFUSED

# Optional models that are refused so far. One that is split, or a new refusal, fails a test.
REFUSED_SO_FAR = {
    "as_many_rows_as_a_parameter",
    "assignment_up_to_a_parameter",
    "conditional_autoregression",
    "convolution_with_a_short_kernel",
    "intrinsic_conditional_autoregression",
    "lag_of_a_parameter",
    "learning_of_many_subjects",
    "long_ordered",
    "long_simplex",
    "long_times_long",
    "long_zero_sum",
    "normalised_by_the_largest",
    "potential_matrix_sum_of_columns",
    "potential_product_of_sums",
    "potential_square_of_sum",
    "predictor_joined_at_a_parameter",
    "projection_on_the_columns",
    "row_numbers_up_to_a_parameter",
    "rows_selected_by_a_parameter",
    "rows_selected_by_their_number",
    "short_slice_up_to_a_parameter",
    "slice_up_to_a_parameter",
    "volatility",
}

WITH_NUMBA = [
    "linear_matmul",
    "logistic",
    "poisson_offset",
    "varying_intercepts_centred",
    "normal_mixture",
    "two_observed",
]


# Models that compile for long: run by `make test-all`.
LONG_TO_COMPILE = {
    "a_b_tests_with_shared_prior",
    "answers_flattened",
    "answers_in_one_long_categorical",
    "answers_of_items_first",
    "assigned_columns",
    "bradley_terry",
    "checked_visits_summed_by_site",
    "constrained_parameters",
    "custom_dist_from_random_variables",
    "custom_dist_of_clipped_student",
    "dawid_skene_in_long_format",
    "deep_network",
    "discrete_latents",
    "distribution_Logistic",
    "distribution_Rice",
    "distribution_TruncatedNormal",
    "distribution_Wald",
    "distribution_ZeroInflatedBinomial",
    "distribution_ZeroInflatedNegativeBinomial",
    "education_and_wages",
    "gifts_of_dyads",
    "hardy_weinberg",
    "hidden_markov_chains_of_short_panels",
    "imputed_cells_set_by_a_mask",
    "imputed_columns_stacked",
    "kalman_filter_of_short_panels",
    "latents_in_another_order",
    "likelihoods_in_a_loop",
    "many_separate_coefficients",
    "mixture_of_eruptions",
    "mixture_of_multivariate_normals",
    "mixture_of_truncated_normals",
    "multinomial_topics_of_documents",
    "multivariate_latents",
    "multivariate_walk",
    "n_mixture_model",
    "network_with_skip_and_layer_norm",
    "panel_of_series",
    "panel_unrolled_over_waves",
    "periodic_spectral_gaussian_process",
    "plant_cover",
    "poisson_factorisation_by_einsum",
    "potential_of_a_map",
    "price_elasticities_of_products",
    "reading_times_with_crossed_correlated_effects",
    "selections_separated_by_a_slice",
    "shared_multinomial",
    "shifted_wald_reaction_times",
    "spectral_gaussian_process_linearised",
    "stick_breaking_mixture",
    "table_of_outcomes_with_gaps",
    "topics_marginalised",
    "truncated_incomes",
    "truncated_mixture_by_hand",
    "vector_autoregression",
}


class Case:
    """A model of the catalogue, its factorisations and its log density."""

    def __init__(self, entry):
        self.entry = entry
        self.model, self.names = entry.build()
        self.logp = self.model.compile_logp()
        self.refusal = None
        self.all = self.factorise(None)
        self.subset = None
        if self.names and not self.refusal:
            self.subset = self.factorise([self.model[name] for name in self.names])

    def factorise(self, variables):
        try:
            return factorise(self.model, variables)
        except FactorisationError as error:
            self.refusal = str(error)
            return None

    def points(self, number=3):
        """Points around the initial point."""
        rng = np.random.default_rng(12345)
        start = self.model.initial_point()
        return [{name: jitter(value, rng) for name, value in start.items()} for _ in range(number)]

    def term(self, name, point):
        """Log density of one variable or potential, as PyMC computes it."""
        (value,) = self.model.compile_logp(vars=[self.model[name]], sum=False)(point)
        return value

    def names_containing(self, variables):
        """Names of the variables and potentials whose log density contains `variables`."""
        model = self.model
        terms = model.basic_RVs + model.potentials
        values = {model.rvs_to_values[model[name]] for name in variables}
        densities = model.logp(vars=terms, sum=False)
        pairs = zip(terms, densities, strict=True)
        return {term.name for term, p in pairs if values & set(explicit_graph_inputs([p]))}


def jitter(value, rng):
    value = np.asarray(value)
    if value.dtype.kind in "iu":
        return value + rng.integers(-5, 6) if value.ndim == 0 else rng.integers(2, size=value.shape)
    return value + 0.2 * rng.normal(size=value.shape)


def parameters():
    for entry in MODELS:
        marks = [pytest.mark.slow] if entry.name in LONG_TO_COMPILE else []
        yield pytest.param(entry, id=entry.name, marks=marks)


@pytest.fixture(scope="module", params=parameters())
def case(request):
    case = Case(request.param)
    with np.errstate(all="warn" if request.param.finite else "ignore"):
        yield case


def assert_close(actual, expected):
    """Equal up to rounding, NaN and infinities at the same positions."""
    finite = np.abs(expected[np.isfinite(expected)])
    assert actual.shape == expected.shape
    np.testing.assert_allclose(
        actual, expected, rtol=1e-10, atol=1e-13 * finite.max(initial=0), equal_nan=True
    )


def check_sum(split, logp, point):
    """The terms and the global part sum to the log density."""
    terms = split.log_density_terms(point)
    rest = split.global_log_density(point)
    assert isinstance(terms, np.ndarray)
    assert isinstance(rest, float)
    assert terms.shape == (split.n_local,)
    expected = logp(point)
    if np.isfinite(expected):
        assert abs(terms.sum() + rest - expected) <= 1e-10 * (np.abs(terms).sum() + abs(rest))
    else:
        np.testing.assert_equal(terms.sum() + rest, float(expected))


def check_differences(split, logp, first, second):
    """Between two points, the kept terms differ by as much as the log density."""
    values, scale = [], 0.0
    for point in [first, second]:
        terms = split.log_density_terms(point)
        rest = split.global_log_density(point)
        values.append(terms.sum() + rest - logp(point))
        scale += np.abs(terms).sum() + abs(rest) + abs(logp(point))
    assert abs(values[1] - values[0]) <= 1e-10 * scale


def check_positions(split, point, seed=0):
    """A term does not depend on which others are computed with it."""
    rng = np.random.default_rng(seed)
    full = split.log_density_terms(point)
    for index in [*some_positions(split, rng), rng.permutation(split.n_local)]:
        assert_close(split.log_density_terms(point, index), full[index])


def some_positions(split, rng):
    """Unsorted positions with repeats in every local term, a single one, and none."""
    index, start = [], 0
    for _, size in split.local_terms:
        index.extend([start, start + size - 1, *rng.integers(start, start + size, size=40)])
        start += size
    index = np.array(index + index[:10], dtype=int)
    return [rng.permutation(index), index[-1:], index[:0]]


def check_terms(split, case, point):
    """The terms of a variable or potential are those that PyMC computes."""
    values = split.log_density_terms(point)
    bounds = np.cumsum([0] + [size for _, size in split.local_terms])
    names = [name for name, _ in split.local_terms]
    for name, start, stop in zip(names, bounds[:-1], bounds[1:], strict=True):
        if name in split.global_terms or names.count(name) > 1:
            continue
        expected, actual = case.term(name, point), values[start:stop]
        if expected.ndim == 0:
            scale = np.abs(actual).sum()
            assert abs(actual.sum() - expected) <= 1e-10 * scale
        elif expected.size == actual.size:
            assert_close(actual, expected.ravel())
        else:
            others = tuple(i for i, n in enumerate(expected.shape) if n != actual.size)
            assert_close(actual, expected.sum(axis=others))


def test_is_split_or_refused(case, record_property):
    if case.refusal:
        record_property("refusal", case.refusal)
        assert not case.entry.required, case.refusal
        assert names_a_term(case.refusal, case.model), case.refusal
        assert "defect" not in case.refusal, case.refusal
    refused_so_far = case.entry.name in REFUSED_SO_FAR
    assert bool(case.refusal) == refused_so_far, case.refusal or "is split, no longer refused"


def names_a_term(message, model):
    names = [term.name for term in model.basic_RVs + model.potentials]
    return any(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", message) for name in names)


def test_names_and_sizes(case):
    if case.refusal:
        return
    split = case.all
    local = [name for name, _ in split.local_terms]
    sizes = [size for _, size in split.local_terms]
    expected = {term.name for term in case.model.basic_RVs + case.model.potentials}
    assert sum(sizes) == split.n_local
    assert all(size >= 1000 for size in sizes)
    assert set(local) | set(split.global_terms) == expected
    assert all(name in repr(split) for name in expected)
    assert " at 0x" not in repr(split)
    if case.entry.required:
        assert set(local) == set(case.entry.local)


def test_whole_vectors_are_local(case):
    if case.refusal or not case.entry.required:
        return
    (point,) = case.points(1)
    for name in case.entry.local:
        value = case.term(name, point)
        if value.ndim == 1:
            assert (name, value.size) in case.all.local_terms
            assert name not in case.all.global_terms


def test_sum(case):
    if case.refusal:
        return
    for point in case.points():
        assert np.isfinite(case.logp(point)) == case.entry.finite
        check_sum(case.all, case.logp, point)


def test_positions(case):
    if case.refusal:
        return
    for point in case.points(2):
        check_positions(case.all, point)


def test_terms(case):
    if case.refusal or not case.entry.finite:
        return
    for point in case.points(2):
        check_terms(case.all, case, point)


def test_subset_of_variables(case):
    if case.refusal or not case.names:
        return
    split = case.subset
    local = {name for name, _ in split.local_terms}
    assert local | set(split.global_terms) == case.names_containing(case.names)
    assert sum(size for _, size in split.local_terms) == split.n_local

    first, second, third = case.points()
    moved = {case.model.rvs_to_values[case.model[name]].name for name in case.names}
    for other in [second, third]:
        other = {name: (other if name in moved else first)[name] for name in first}
        check_differences(split, case.logp, first, other)
        check_positions(split, other)


@pytest.mark.parametrize("name", WITH_NUMBA)
def test_numba(name):
    model = Case(next(entry for entry in MODELS if entry.name == name))
    with pytensor.config.change_flags(mode="NUMBA"):
        split = factorise(model.model)
        for point in model.points(2):
            check_sum(split, model.logp, point)
            check_positions(split, point)
            assert_close(split.log_density_terms(point), model.all.log_density_terms(point))


@pytest.mark.parametrize("entry", REFUSED, ids=lambda entry: entry.name)
def test_refused(entry):
    model, _ = entry.build()
    with pytest.raises(FactorisationError) as caught:
        factorise(model)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    for word in entry.words:
        assert re.search(word, message), f"{word!r} not in: {message}"


def test_only_variables_of_interest_can_be_refused():
    """A term that couples rows but does not contain the variables asked for is left out."""
    model, _ = catalogue.cumulated_predictor()
    with model:
        catalogue.pm.Normal("other", 0, 1)
        split = factorise(vars=[model["other"]])
    assert split.n_local == 0
    assert split.global_terms == ["other"]


def test_threshold():
    model, _ = catalogue.two_observed()
    logp = model.compile_logp()
    point = model.initial_point()
    for threshold, names in [(1204, ["y", "z"]), (1205, ["z"]), (3000, [])]:
        split = factorise(model, threshold=threshold)
        assert [name for name, _ in split.local_terms] == names
        check_sum(split, logp, point)
        check_positions(split, point)
    assert split.n_local == 0
    assert split.log_density_terms(point).shape == (0,)


def test_value_variables():
    model, _ = catalogue.varying_intercepts_many_groups()
    rvs = [model["tau"], model["sigma"]]
    by_rv = factorise(model, rvs)
    by_value = factorise(model, [model.rvs_to_values[rv] for rv in rvs])
    point = model.initial_point()
    assert by_rv.local_terms == by_value.local_terms == [("theta", 1500), ("y", 4000)]
    assert set(by_rv.global_terms) == {"tau", "sigma"}
    assert by_rv.global_log_density(point) == by_value.global_log_density(point)
    assert_close(by_rv.log_density_terms(point), by_value.log_density_terms(point))


def test_model_in_context():
    model, _ = catalogue.normal()
    with model:
        split = factorise()
    check_sum(split, model.compile_logp(), model.initial_point())


def test_initial_point():
    model, _ = catalogue.linear_dot()
    point = {name: value + 1 for name, value in model.initial_point().items()}
    split, expected = factorise(model, initial_point=point), factorise(model)
    assert split.local_terms == expected.local_terms
    assert split.global_terms == expected.global_terms
    check_sum(split, model.compile_logp(), point)


def test_index():
    model, _ = catalogue.two_observed()
    split, point = factorise(model), model.initial_point()
    full = split.log_density_terms(point)
    assert_close(split.log_density_terms(point, [3408, 0, 3408]), full[[3408, 0, 3408]])
    for outside in [-1, 3409]:
        with pytest.raises(IndexError):
            split.log_density_terms(point, np.array([0, outside]))


# The checks find bugs planted on purpose.


class Broken:
    """A factorisation with one method replaced."""

    def __init__(self, split, **methods):
        self.split = split
        self.__dict__.update(methods)

    def __getattr__(self, name):
        return getattr(self.split, name)


@pytest.fixture(scope="module")
def two_vectors():
    return Case(next(entry for entry in MODELS if entry.name == "two_observed"))


def test_intact_factorisation_passes(two_vectors):
    split, points = Broken(two_vectors.all), two_vectors.points(2)
    check_sum(split, two_vectors.logp, points[0])
    check_positions(split, points[0])
    check_terms(split, two_vectors, points[0])
    check_differences(split, two_vectors.logp, *points)


def test_shifted_index_is_found(two_vectors):
    def shifted(point, index=None):
        index = index if index is None else (np.asarray(index) + 1) % split.n_local
        return split.log_density_terms(point, index)

    split, point = two_vectors.all, two_vectors.points()[0]
    broken = Broken(split, log_density_terms=shifted)
    check_sum(broken, two_vectors.logp, point)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_positions(broken, point)


def test_sorted_index_is_found(two_vectors):
    def sorted_index(point, index=None):
        return split.log_density_terms(point, index if index is None else np.sort(index))

    split, point = two_vectors.all, two_vectors.points()[0]
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_positions(Broken(split, log_density_terms=sorted_index), point)


def test_rows_in_another_order_are_found(two_vectors):
    def backwards(point, index=None):
        index = np.arange(split.n_local) if index is None else index
        return split.log_density_terms(point, split.n_local - 1 - index)

    split, point = two_vectors.all, two_vectors.points()[0]
    broken = Broken(split, log_density_terms=backwards)
    check_sum(broken, two_vectors.logp, point)
    check_positions(broken, point)
    with pytest.raises(AssertionError, match="Not equal to tolerance"):
        check_terms(broken, two_vectors, point)


def test_lost_global_part_is_found(two_vectors):
    broken = Broken(two_vectors.all, global_log_density=lambda point: 0.0)
    points = two_vectors.points(2)
    with pytest.raises(AssertionError):
        check_sum(broken, two_vectors.logp, points[0])
    with pytest.raises(AssertionError):
        check_differences(broken, two_vectors.logp, *points)


def test_wrong_scale_is_found(two_vectors):
    def scaled(point, index=None):
        return two_vectors.all.log_density_terms(point, index) * (1 + 1e-8)

    broken, points = Broken(two_vectors.all, log_density_terms=scaled), two_vectors.points(2)
    with pytest.raises(AssertionError):
        check_sum(broken, two_vectors.logp, points[0])
    with pytest.raises(AssertionError):
        check_differences(broken, two_vectors.logp, *points)
