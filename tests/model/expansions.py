"""A model whose local terms are expanded: states about a center, and remainders beside PyMC's log density."""

from functools import cached_property

import numpy as np

from pymc_austerity.mode.expansion import expand
from pymc_austerity.model.factorisation import point_of
from pymc_austerity.model.factorise import build
from pymc_austerity.model.structure.differentiable import Differentiable
from pymc_austerity.model.structure.local_terms import LocalTerms
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.target import Expansion
from tests.models import as_model


class Case:
    """A model, its factorisation, and points about a center."""

    def __init__(self, define, names=None, *, threshold=50, temperature=1.0, most_features=0):
        self.model = as_model(define)()
        chosen = self.model.free_RVs if names is None else [self.model[n] for n in names]
        self.fact = build(
            self.model, chosen, threshold=threshold, initial_point=None, check=True, temperature=temperature
        )
        rng = np.random.default_rng(1)
        start = self.model.initial_point()
        self.point = {name: v + 0.3 * rng.normal(size=np.shape(v)) for name, v in start.items()}
        self.structure = TermStructure(self.fact, most_features)
        self.function = Differentiable(self.structure, self.point)
        self.likelihood = self.function.likelihood()
        self.center = self.function.start
        self._expanded = {}

    @cached_property
    def log_density(self):
        """PyMC's own."""
        return self.model.compile_logp()

    @cached_property
    def slope(self):
        """PyMC's gradient, over the block."""
        variables = {value.name: rv for rv, value in self.model.rvs_to_values.items()}
        return self.model.compile_dlogp([variables[n] for n in self.fact.var_names])

    def expansion(self, order=2):
        center = self.function.features(self.center)
        total = self.likelihood.at(center).total
        return Expansion(order, center, total.gradient, total.hessian)

    def expanded(self, order=2):
        if order not in self._expanded:
            self._expanded[order] = Expanded(self, self.expansion(order))
        return self._expanded[order]

    def at(self, q):
        """All variables, with those of the block from q."""
        return point_of(self.fact, q, self.point)

    def near(self, seed=0, scale=0.3):
        return self.center + scale * np.random.default_rng([2, seed]).normal(size=len(self.center))

    def column(self, q, d, h=1e-4):
        """Row d of the Hessian, by differences of the gradient."""
        step = h * np.eye(len(q))[d]
        ends = [self.slope(self.at(q + k * step)) for k in (-2, -1, 1, 2)]
        return (ends[0] - 8 * ends[1] + 8 * ends[2] - ends[3]) / (12 * h)


class Expanded:
    """The expanded factorisation of a case, compiled."""

    def __init__(self, case, expansion, structure=None):
        slopes = case.likelihood.slopes(expansion.center)
        self.case, self.fact = case, expand(structure or case.structure, expansion, slopes)
        self._terms = LocalTerms(self.fact)

    def remainders(self, q):
        """r_i(q) - r_i(center)."""
        return self._terms(self.case.at(q)) - self._terms(self.case.at(self.case.center))

    def log_density(self, point):
        """Of all terms, but for a constant."""
        return self.fact.global_log_density(point) + self._terms(point).sum()

    def sum_error(self, reference=None):
        """By how much the sum misses PyMC's log density, less a constant, over some points."""
        case = self.case
        points = [case.at(q) for q in (case.center, *(case.near(seed) for seed in range(3)))]
        wanted = np.array([(reference or case.log_density)(p) for p in points])
        found = np.array([self.log_density(p) for p in points])
        return np.ptp(found - wanted) / np.abs(wanted).max()
