"""Errors and warnings that a user of the package may meet."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

_PACKAGE = str(Path(__file__).parent)


class UnsuitableError(ValueError):
    """The model does not suit the step: another step has to be taken.

    `recommend` takes errors of this class, and no others, as reasons for its choice.
    """


class FactorisationError(UnsuitableError):
    """A term of the model does not split into independently computable rows.

    The message names the model term, the operation that couples its rows, and what to do. The name of the
    term alone is `term`.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import FactorisationError, factorise
    >>> with pm.Model() as model:
    ...     score = pm.Normal("score", shape=2000)
    ...     share = pm.Potential("share", pm.math.log(pm.math.softmax(score)))
    >>> try:
    ...     factorise(model)
    ... except FactorisationError as error:
    ...     print(str(error)[:73])
    Rows of the term 'share' (2,000 rows) cannot be computed from a subsample
    """

    def __init__(self, message: str, term: str = "") -> None:
        super().__init__(message)
        self.term = term


class SelfCheckError(ValueError):
    """The model's terms differ from what PyMC computes of it: a defect of this package."""


class RowsOnDiskError(ValueError):
    """Something would evaluate all rows of data that are on disk (`stored_data`), or only their head."""


class NoNormalApproximationError(UnsuitableError):
    """No normal distribution approximates the posterior: there is no mode, or several, or it is unlike.

    `along` has the names of the coordinates along which that is so, if they are known, and `remedy` what to
    do instead, without a full stop.
    """

    def __init__(self, message: str, along: Sequence[str] = (), remedy: str = "") -> None:
        super().__init__(message)
        self.along, self.remedy = tuple(along), remedy

    @classmethod
    def of_straight_pieces(cls, term: str) -> "NoNormalApproximationError":
        """The error for rows such as those of Laplace errors."""
        remedy = (
            "Errors with a smooth density, as of pm.StudentT, are followed. AusterityMH() with a random walk "
            "takes the model as it is, with decisions that are approximate"
        )
        return cls(
            f"The log density of the rows of {term!r} is made of straight pieces, as of Laplace errors or "
            f"quantiles, so that no curvature and no Taylor polynomial follows it. {remedy}.",
            remedy=remedy,
        )


class SetUpBudgetError(UnsuitableError):
    """The set-up would take more work than its budget, `set_up_budget`.

    `reason` says how much, and `remedy` what to do; neither ends with a full stop.
    """

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(reason, remedy)
        self.reason, self.remedy = reason, remedy

    def __str__(self) -> str:
        return f"{self.reason}. {self.remedy}."


class UnboundedError(UnsuitableError):
    """The log ratios or the Taylor remainders of a term have no known bound."""


class CompiledError(ValueError):
    """Error that compiled code raises: numbers, and a sentence for them, since it cannot write text itself.

    A subclass has the `sentence`, with a place for each of the numbers that it is raised with.
    """

    sentence: ClassVar[str]

    def __str__(self) -> str:
        return self.sentence.format(*self.args)


class SubsamplingWarning(UserWarning):
    """Sampling went on, but not in the way that was asked for, or not in a way to be trusted.

    Examples
    --------
    >>> import warnings
    >>> from pymc_austerity import SubsamplingWarning
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", SubsamplingWarning)
    ...     pass  # a step built here, or pm.sample, stops where it would have gone on in another way
    """


def warn(message: str) -> None:
    """Give a `SubsamplingWarning` that names the line outside the package from which it was called."""
    warnings.warn(message, SubsamplingWarning, skip_file_prefixes=(_PACKAGE,))
