"""A `TunaMH` that is tried for `recommend`: compiled only if it suits the model."""

from __future__ import annotations

from typing import Any

import pymc as pm
from pymc.initial_point import PointType
from pytensor.graph.basic import Variable

from pymc_austerity.bounds.row_constants import family_of
from pymc_austerity.bounds.row_sampler import Thinning
from pymc_austerity.exceptions import NoNormalApproximationError, UnsuitableError
from pymc_austerity.mode.mode_fit import CentreReport, Found
from pymc_austerity.model.factorisation import Factorisation
from pymc_austerity.model.structure.term_structure import TermStructure
from pymc_austerity.proposals.base import BoundProposal
from pymc_austerity.step_methods.metropolis.base import SubsampledStep
from pymc_austerity.step_methods.metropolis.engine.tuna import NoBoundError
from pymc_austerity.step_methods.metropolis.prediction import Prediction, few_digits
from pymc_austerity.step_methods.metropolis.tuna import TunaMH

# What independent draws of the fitted law need: their acceptance rate, and how sums of remainders vary.
_ACCEPTANCE, _SPREAD = 0.2, 3.0
# A surrogate follows any prior, but accepts by the remainders alone.
_SURROGATE_SPREAD = 1.0


class CostlyError(UnsuitableError):
    """The normal law fits, but exact decisions need all rows; `remedy` says what would help."""

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason)
        self.remedy = remedy


class Search:
    """What is found on the way to a `TunaMH`, so that another step need not search again.

    Attributes
    ----------
    fact : Factorisation or None
    found : Found or None
    certificate : str
    prediction : Prediction or None
        Rows that are expected for a transition.
    is_surrogate : bool
        Whether the default proposal is.
    """

    def __init__(self, model: pm.Model, block: list[Variable], point: PointType) -> None:
        self._model, self._block, self._point = model, block, point
        self.fact: Factorisation | None = None
        self.found: Found | None = None
        self.prediction: Prediction | None = None
        self.certificate = "not looked for"
        self.is_surrogate = False

    def tuna(self) -> Any:
        """A `TunaMH`.

        Raises
        ------
        CostlyError
        UnsuitableError
            If the model cannot be factorised, or no normal law fits.
        """
        search = self

        class Candidate(TunaMH):
            def _factorised(self, point: PointType, *, check: bool) -> Factorisation:
                search.fact = super()._factorised(point, check=check)
                return search.fact

            def _found(
                self, structure: TermStructure, point: PointType, proposal: Any, fresh: bool
            ) -> Found | None:
                search.found = super()._found(structure, point, proposal, fresh)
                return search.found

            def _engine_for(
                self, fact: Factorisation, found: Found | None, rule: Any, bound: BoundProposal, *args: Any
            ) -> Any:
                assert found is not None
                search.is_surrogate = bound.is_surrogate
                _require_fit(found.centre.report, bound.is_surrogate)
                try:
                    return super()._engine_for(fact, found, rule, bound, *args)
                except NoBoundError as error:
                    search.certificate = f"none: {first_sentence(error.reason)}"
                    raise CostlyError(
                        "no bound is known for the remainders of all local terms",
                        "TunaMH(curvature=...), with a bound of your own for terms with a linear predictor, "
                        "reads few and is exact.",
                    ) from error

            def _too_many(self, prediction: Prediction, thinning: Thinning) -> bool:
                search._judge(prediction, self._switch_above)
                return False

        return self._build(Candidate)

    def other(self, kind: type[SubsampledStep], **options: Any) -> Any:
        """A step of another kind, made of what was found as far as it can be used."""
        found = self.found
        assert found is not None
        assert self.fact is not None
        methods: dict[str, Any] = {"_factorised": lambda *_, check: self.fact}
        taylor = options.get("control_variate")
        if taylor is None:
            found = found._replace(centre=found.centre._replace(expansion=None), expanded=self.fact)
        if taylor is None or taylor.exact_rows == 0:  # else those rows are to be found, too
            methods["_found"] = lambda *_: found
        return self._build(type(kind.__name__, (kind,), methods), **options)

    def _build(self, kind: Any, **options: Any) -> Any:
        """Make a step of a private subclass, of which nothing remains."""
        step = kind(self._block, model=self._model, initial_point=self._point, **options)
        step.__class__ = kind.__base__
        return step

    def _judge(self, prediction: Prediction, most: float) -> None:
        """Name the bounds, and raise `CostlyError` if they are loose."""
        assert self.fact is not None
        assert self.found is not None
        rows, n_local = prediction.terms, self.fact.n_local
        self.prediction = prediction
        families = [family_of(each, self._point).name for each in self.found.predictors]
        self.certificate = (
            f"third derivatives of {' and '.join(dict.fromkeys(families))} terms "
            f"(C = {prediction.total:.3g}, M = {prediction.size:.3g})"
        )
        if not rows <= most * n_local:
            raise CostlyError(
                f"TunaMH would draw about {few_digits(rows)} of {n_local:,} rows for a transition, more "
                "than a quarter",
                "With more data for each dimension TunaMH reads few and is exact.",
            )


def _require_fit(report: CentreReport, is_surrogate: bool) -> None:
    """Raise `NoNormalApproximationError` if a step that is fitted to the mode would mix slowly."""
    if report.n_modes > 1:
        raise NoNormalApproximationError(
            f"{report.n_modes} modes were found, and a step that is fitted to one of them stays there unseen"
        )
    spread = f"sums of remainders vary by {report.remainder_sd:.2g}"
    if is_surrogate:
        if not report.remainder_sd < _SURROGATE_SPREAD:
            raise NoNormalApproximationError(f"The likelihood is far from its Taylor polynomial: {spread}")
    elif not (report.acceptance >= _ACCEPTANCE and report.remainder_sd < _SPREAD):
        raise NoNormalApproximationError(
            "The posterior is far from the normal law at its mode: independent draws would be accepted at a "
            f"rate of about {report.acceptance:.2f}, and {spread}"
        )


def first_sentence(message: str) -> str:
    """What is the matter, without what to do about it."""
    return message.split(". ")[0].rstrip(".")
