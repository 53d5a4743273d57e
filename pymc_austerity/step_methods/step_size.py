"""Step sizes that decrease, for steps with a stochastic gradient."""

from dataclasses import dataclass
from typing import Any

from pymc_austerity.validation import is_real


@dataclass(frozen=True)
class DecreasingStepSize:
    """Step sizes h (1 + m / tau)^(-kappa) for the transitions m = 0, 1, ... of a chain.

    An object and not a function of the user's: it is validated when it is made, and can be pickled and
    printed.

    Parameters
    ----------
    h : float
        The first step size.
    tau : float, default 1000.0
        Transitions after which it begins to decrease.
    kappa : float, default 0.33
        How fast. For convergence at all (Teh, Thiery & Vollmer 2016) at most one.

    Raises
    ------
    ValueError
        If h or tau is not positive, or kappa is not in [0, 1].

    Notes
    -----
    *Guarantee*: the inflation of the stationary variance vanishes with h.

    *When it fails*: draws are then neither of one distribution nor equally correlated; averages should weight
    them by their step sizes, the sample statistic `step_size`.

    Examples
    --------
    >>> from pymc_austerity.step_methods import DecreasingStepSize
    >>> step_size = DecreasingStepSize(h=0.5, tau=10, kappa=0.33)
    >>> [round(step_size(m), 3) for m in (0, 10, 1000)]
    [0.5, 0.398, 0.109]

    It is given to a step: ``SCIR([w], step_size=step_size)``.
    """

    h: float
    tau: float = 1000.0
    kappa: float = 0.33

    def __post_init__(self) -> None:
        for name in ("h", "tau"):
            value = getattr(self, name)
            if not is_real(value) or not 0.0 < value < float("inf"):
                raise ValueError(f"{name} of DecreasingStepSize must be positive and finite, got {value!r}.")
        if not is_real(self.kappa) or not 0.0 <= self.kappa <= 1.0:
            raise ValueError(f"kappa of DecreasingStepSize must be in [0, 1], got {self.kappa!r}.")

    def __call__(self, m: int) -> float:
        """Step size of transition number m of a chain."""
        return float(self.h * (1.0 + m / self.tau) ** -self.kappa)


def step_size_of(given: Any, unit: str) -> DecreasingStepSize:
    """Check `step_size`; a number is one that does not decrease. `unit` says what it is measured in."""
    if isinstance(given, DecreasingStepSize):
        return given
    if not is_real(given) or not 0.0 < given < float("inf"):
        raise ValueError(
            f"step_size must be a positive number or DecreasingStepSize(h, tau, kappa), got {given!r}. {unit}"
        )
    return DecreasingStepSize(float(given), kappa=0.0)
