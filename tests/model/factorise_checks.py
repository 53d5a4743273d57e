"""What a factorisation of a catalogue model must satisfy, against the log density that PyMC computes.

`check` makes all of it of one model, and says in the message which check failed.
"""

import re
from functools import cached_property

import numpy as np
from pytensor.graph.traversal import explicit_graph_inputs

from pymc_austerity import FactorisationError, factorise


class Case:
    """A model of the catalogue, its factorisations and its log density."""

    def __init__(self, entry):
        self.entry = entry
        self.model, self.names = entry.build()
        self.refusal = None
        self.all = self._factorise(None)
        self.subset = None
        if self.names and not self.refusal:
            self.subset = self._factorise([self.model[name] for name in self.names])

    def _factorise(self, variables):
        try:
            return factorise(self.model, variables)
        except FactorisationError as error:
            self.refusal = str(error)
            return None

    @property
    def local(self):
        """Name and size of each local vector, None if the model is refused."""
        return None if self.refusal else self.all.local_terms

    @cached_property
    def points(self):
        """Three points around the initial point."""
        rng = np.random.default_rng(12345)
        start = self.model.initial_point()
        return [{name: _jitter(value, rng) for name, value in start.items()} for _ in range(3)]

    @cached_property
    def variables(self):
        """Names of all variables and potentials that have a log density."""
        return [term.name for term in self.model.basic_RVs + self.model.potentials]

    @cached_property
    def _densities(self):
        return self.model.logp(vars=[self.model[name] for name in self.variables], sum=False)

    @cached_property
    def _compiled(self):
        return self.model.compile_fn(self._densities, inputs=self.model.value_vars, on_unused_input="ignore")

    def terms(self, point):
        """Log density of each variable and potential, as PyMC computes it."""
        return dict(zip(self.variables, self._compiled(point), strict=True))

    def logp(self, point):
        """The log density as PyMC computes it: the sum of all these."""
        return sum(value.sum() for value in self.terms(point).values())

    def names_containing(self, variables):
        """Names of the variables and potentials whose log density contains `variables`."""
        values = {self.model.rvs_to_values[self.model[name]] for name in variables}
        pairs = zip(self.variables, self._densities, strict=True)
        return {name for name, density in pairs if values & set(explicit_graph_inputs([density]))}


def _jitter(value, rng):
    value = np.asarray(value)
    if value.dtype.kind in "iu":
        return value + rng.integers(-5, 6) if value.ndim == 0 else rng.integers(2, size=value.shape)
    return value + 0.2 * rng.normal(size=value.shape)


def check(case):
    """Make every check; the message of an error begins with the name of the check."""
    is_split_or_refused = CHECKS[0]
    with np.errstate(all="warn" if case.entry.finite else "ignore"):
        for one in CHECKS:
            if case.refusal and one is not is_split_or_refused:
                continue
            try:
                one(case)
            except AssertionError as error:
                raise AssertionError(f"{one.__name__}: {error}") from error


def is_split_or_refused(case):
    """A refusal is expected, and names a term of the model."""
    entry, refusal = case.entry, case.refusal
    if refusal:
        assert not entry.required, refusal
        names = "|".join(re.escape(name) for name in case.variables)
        assert re.search(rf"(?<!\w)({names})(?!\w)", refusal), refusal
        assert "defect" not in refusal, refusal
    assert bool(refusal) == entry.refused_so_far, refusal or "is split, no longer refused"


def names_and_sizes(case):
    """Every term is local or global, and the model's `repr` names it."""
    split = case.all
    local = [name for name, _ in split.local_terms]
    sizes = [size for _, size in split.local_terms]
    assert sum(sizes) == split.n_local
    assert all(size >= 1000 for size in sizes)
    assert set(local) | set(split.global_terms) == set(case.variables)
    assert all(name in repr(split) for name in case.variables)
    assert " at 0x" not in repr(split)
    if case.entry.required:
        assert set(local) == set(case.entry.local)


def whole_vectors_are_local(case):
    """A term that is a vector is local as a whole."""
    expected = case.terms(case.points[0])
    for name in case.entry.local:
        if expected[name].ndim == 1:
            assert (name, expected[name].size) in case.all.local_terms
            assert name not in case.all.global_terms


def sum_of_terms(case):
    """The terms and the global part sum to the log density."""
    for point in case.points:
        assert np.isfinite(case.logp(point)) == case.entry.finite
        check_sum(case.all, case.logp, point)


def positions(case):
    """A term does not depend on which others are computed with it."""
    for point in case.points[:2]:
        check_positions(case.all, point)


def terms(case):
    """The terms of a variable or potential are those that PyMC computes."""
    if not case.entry.finite:
        return
    for point in case.points[:2]:
        check_terms(case.all, case.terms(point), point)


def subset_of_variables(case):
    """Only the terms that contain the variables asked for are kept; they differ as the log density does."""
    if not case.names:
        return
    split = case.subset
    local = {name for name, _ in split.local_terms}
    assert local | set(split.global_terms) == case.names_containing(case.names)
    assert sum(size for _, size in split.local_terms) == split.n_local

    first, second, third = case.points
    moved = {case.model.rvs_to_values[case.model[name]].name for name in case.names}
    for other in [second, third]:
        other = {name: (other if name in moved else first)[name] for name in first}
        check_differences(split, case.logp, first, other)
        check_positions(split, other)


CHECKS = (
    is_split_or_refused,
    names_and_sizes,
    whole_vectors_are_local,
    sum_of_terms,
    positions,
    terms,
    subset_of_variables,
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
        rest, expected = split.global_log_density(point), logp(point)
        values.append(terms.sum() + rest - expected)
        scale += np.abs(terms).sum() + abs(rest) + abs(expected)
    assert abs(values[1] - values[0]) <= 1e-10 * scale


def check_positions(split, point, seed=0):
    """A term does not depend on which others are computed with it."""
    rng = np.random.default_rng(seed)
    full = split.log_density_terms(point)
    for index in [*_some_positions(split, rng), rng.permutation(split.n_local)]:
        assert_close(split.log_density_terms(point, index), full[index])


def _some_positions(split, rng):
    """Unsorted positions with repeats in every local term, a single one, and none."""
    index, start = [], 0
    for _, size in split.local_terms:
        index.extend([start, start + size - 1, *rng.integers(start, start + size, size=40)])
        start += size
    index = np.array(index + index[:10], dtype=int)
    return [rng.permutation(index), index[-1:], index[:0]]


def check_terms(split, expected, point):
    """The terms of a variable or potential are those that PyMC computes."""
    values = split.log_density_terms(point)
    bounds = np.cumsum([0] + [size for _, size in split.local_terms])
    names = [name for name, _ in split.local_terms]
    for name, start, stop in zip(names, bounds[:-1], bounds[1:], strict=True):
        if name in split.global_terms or names.count(name) > 1:
            continue
        theirs, ours = expected[name], values[start:stop]
        if theirs.ndim == 0:
            scale = np.abs(ours).sum()
            assert abs(ours.sum() - theirs) <= 1e-10 * scale
        elif theirs.size == ours.size:
            assert_close(ours, theirs.ravel())
        else:
            others = tuple(i for i, n in enumerate(theirs.shape) if n != ours.size)
            assert_close(ours, theirs.sum(axis=others))


def assert_close(actual, expected):
    """Equal up to rounding, NaN and infinities at the same positions."""
    finite = np.abs(expected[np.isfinite(expected)])
    assert actual.shape == expected.shape
    np.testing.assert_allclose(
        actual, expected, rtol=1e-10, atol=1e-13 * finite.max(initial=0), equal_nan=True
    )
