"""Errors and warnings that a user of the package may meet."""


class FactorisationError(ValueError):
    """A term of the model does not split into independently computable rows.

    The message names the model term, the operation that couples its rows, and what to do.
    """


class SubsamplingWarning(UserWarning):
    """Sampling went on, but not in the way that was asked for, or not in a way to be trusted."""
