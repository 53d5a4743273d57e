"""The terms of a model by the elements of some of its variables: what each element is decided on.

All terms that contain the block become rows, priors as well, however short they are. Rows of the variables'
own priors, and terms of one number, are read at every transition of an element. The others are its
population.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.exceptions import FactorisationError, SelfCheckError
from pymc_austerity.model.factorisation import Factorisation, LocalTerm, point_of, some_rows, vector_of
from pymc_austerity.model.factorise import build
from pymc_austerity.model.graph.rewrite import INTERPRETED
from pymc_austerity.model.lift.rows import as_row
from pymc_austerity.model.self_check import REPORT, jittered
from pymc_austerity.model.structure.incidence import Incidence, Lookups, UsedAsAWhole, incidence
from pymc_austerity.model.structure.prepared_rows import indexed_first
from pymc_austerity.target import Index

# Every vector of terms is taken apart: the smallest threshold that there is.
_ALL = 3
# Elements that are changed, and rows that are looked at, when a map is checked.
_CHECKED, _ENOUGH_ROWS = 3, 100_000
_SEED = 2014


@dataclass(frozen=True)
class ElementRows:
    """The rows of each element: its own, and those of its population."""

    own: Incidence
    tested: Incidence


class ElementTerms:
    """All terms that contain variables which are moved element by element.

    The value variables `vars` have shape (E,) or (E, k): an element is a row. With `check` the terms are
    compared with the model, at the cost of some evaluations of its log density. `FactorisationError` is
    raised if a term uses a variable in another way than element by element. The message names both.

    The `factorisation` has no global terms. Its first `n_own` rows are read at every transition, the other
    `n_tested` are the populations. Element e has `width[e]` coordinates of q from `first[e]` on. Variables of
    other steps that say which rows contain an element are `followed`.
    """

    def __init__(
        self,
        model: pm.Model,
        vars: Sequence[Variable],
        point: PointType,
        *,
        check: bool,
        temperature: float = 1.0,
    ) -> None:
        names = ", ".join(repr(model.values_to_rvs[value].name) for value in vars)
        fact = _factorised(model, vars, point, check, temperature, names)
        own = {model.values_to_rvs[value].name for value in vars}
        terms = [replace(term, rows=indexed_first(term.rows)) for term in fact.locals]
        alone = [as_row(name, graph) for name, graph in fact.globals]
        mine = [*(term for term in terms if term.name in own), *alone]
        others = [term for term in terms if term.name not in own]
        self.n_own, self.n_tested = sum(t.size for t in mine), sum(t.size for t in others)
        self.factorisation = fact = replace(fact, locals=(*mine, *others), globals=())
        self._n_mine = len(mine)
        values = [fact.graph.values[name] for name in fact.var_names]
        lengths = [int(value.type.shape[0]) for value in values]
        widths = [int(np.prod(value.type.shape[1:])) for value in values]
        self.width: Index = np.repeat(widths, lengths).astype(np.int64)
        self.first: Index = np.concatenate([[0], np.cumsum(self.width)[:-1]])
        firsts = dict(zip(values, np.concatenate([[0], np.cumsum(lengths)[:-1]]).tolist(), strict=True))
        self._lookups = [_lookups(fact, term, firsts, names) for term in fact.locals]
        self.followed = tuple(dict.fromkeys(n for one in self._lookups for n in one.followed))
        self._tables: list[np.ndarray | None] = [None] * len(self._lookups)
        self._seen: tuple[np.ndarray, ...] = ()
        self._rows: ElementRows | None = None
        if check:
            self._check()

    @property
    def n_elements(self) -> int:
        """Number of elements of the variable, E."""
        return len(self.first)

    def rows(self, point: Mapping[str, Any]) -> ElementRows:
        """The rows of each element; found anew where a variable that they follow has changed."""
        values = tuple(np.asarray(point[name]) for name in self.followed)
        if self._rows is not None and all(map(np.array_equal, values, self._seen)):
            return self._rows
        tables, start = [], 0
        for k, lookups in enumerate(self._lookups):
            table = self._tables[k]
            if table is None:
                table = lookups.table(point)
                # Tables of terms that follow nothing are kept where others have to be made again.
                self._tables[k] = table if self.followed and not lookups.followed else None
            tables.append((start, table))
            start += len(table)
        self._seen = tuple(value.copy() for value in values)
        mine, others = tables[: self._n_mine], tables[self._n_mine :]
        self._rows = ElementRows(incidence(mine, self.n_elements), incidence(others, self.n_elements))
        return self._rows

    def forget(self) -> None:
        """Let go of the map, which has the size of the data; a compiled step has its own."""
        if not self.followed:
            self._rows = None

    def _check(self) -> None:
        """Change an element: no row may change that is not said to contain it."""
        fact = self.factorisation
        point = dict(zip(fact.graph.values, jittered(fact.graph), strict=True))
        rng = np.random.default_rng(_SEED)
        chosen = rng.choice(self.n_elements, min(_CHECKED, self.n_elements), replace=False)
        found = self.rows(point)
        self._rows = None
        moved = [_moved(fact, point, int(self.first[e]), int(self.width[e])) for e in chosen]
        start = 0
        for term in fact.locals:
            rows = fact.compile(term.rows, [term.index], mode=INTERPRETED)
            for index in some_rows(term.size, _ENOUGH_ROWS):
                with np.errstate(all="ignore"):
                    before, *after = (
                        rows(*fact.point_values(p), index, *fact.leaf_values) for p in (point, *moved)
                    )
                for e, values in zip(chosen, after, strict=True):
                    changed = start + index[~((before == values) | (np.isnan(before) & np.isnan(values)))]
                    listed = [
                        part.rows[part.starts[e] : part.starts[e + 1]] for part in (found.own, found.tested)
                    ]
                    if not np.isin(changed, np.concatenate(listed)).all():
                        raise SelfCheckError(
                            f"Self-check failed for the term {term.name!r}: a row depends on an element of "
                            f"{', '.join(fact.var_names)} that it is not said to contain. {REPORT}"
                        )
            start += term.size


def _moved(fact: Factorisation, point: PointType, first: int, width: int) -> PointType:
    """A point at which one element has other values."""
    q = vector_of(fact, point)
    own = q[first : first + width]
    own[:] = own + 0.1 if q.dtype.kind == "f" else 1 - np.minimum(own, 1)
    return point_of(fact, q, point)


def _factorised(
    model: pm.Model, vars: Sequence[Variable], point: PointType, check: bool, temperature: float, names: str
) -> Factorisation:
    """The terms with all vectors taken apart."""
    try:
        return build(
            model,
            list(vars),
            threshold=_ALL,
            initial_point=point,
            check=check,
            temperature=temperature,
            limit_cost=False,
        )
    except FactorisationError as error:
        # What `factorise` advises, another threshold, is of no use here.
        reason = re.sub(r" \(if these are not observations.*? allows that\)", "", str(error))
        reason = reason.split(" Use another step method")[0]
        raise FactorisationError(f"{names} cannot be moved element by element. {reason} {_ADVICE}") from error


def _lookups(fact: Factorisation, term: LocalTerm, firsts: Mapping[Variable, int], names: str) -> Lookups:
    try:
        return Lookups(fact, term, firsts)
    except UsedAsAWhole as reason:
        raise FactorisationError(
            f"{names} cannot be moved element by element because of the term {term.name!r}: {reason}. "
            f"{_ADVICE}",
            term.name,
        ) from None


_ADVICE = (
    "Each row of a term has to look its elements up: write v[idx] with the numbers of the elements as data, "
    "in place of a product X @ v with indicators, a sum or a slice of many. Where each row does need all of "
    "the variable, leave elementwise out, or use pm.NUTS."
)
