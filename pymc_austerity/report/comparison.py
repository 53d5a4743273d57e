"""`Comparison`: what `compare` has found, as a table, as text and as a page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pymc_austerity.report.render.markdown import as_fragment, as_markdown
from pymc_austerity.report.render.page import as_html
from pymc_austerity.report.render.words import headline, verdict_of
from pymc_austerity.report.results import Results


@dataclass(frozen=True, repr=False, eq=False)
class Comparison(Results):
    """Several steps on one model, compared with a reference.

    Made by `compare`.

    Attributes
    ----------
    results : tuple of (Run, Judgement, Probed)
        Of every step: what it did, whether its posterior agrees with the reference, and whether its
        batch means are normal.
    standard : Run
        The reference.
    var_names : tuple of str
        Variables that were compared.
    tolerance : float
        The difference that matters, in posterior sds.
    settings : Settings
    notes : tuple of str
        What was done otherwise than asked for.

    Examples
    --------
    >>> import numpy as np
    >>> import pymc as pm
    >>> from pymc_austerity import MetropolisHastings, compare
    >>> with pm.Model() as model:
    ...     mu = pm.Normal("mu", 0, 10)
    ...     y = pm.Normal("y", mu, 1, observed=np.random.default_rng(1).normal(size=2000))
    >>> hot = MetropolisHastings(temperature=0.3, model=model)
    >>> result = compare(model, {"hot": hot}, budget={"draws": 1000}, chains=2, random_seed=1)
    >>> result.verdicts
    {'hot': 'differs'}
    >>> result.runs["hot"].posterior["mu"].shape
    (2, 1000)
    """

    def to_markdown(self) -> str:
        """Verdicts, tables and remarks as text."""
        return as_markdown(self)

    def to_html(self, path: str | Path | None = None) -> str:
        """One page with verdicts, tables and figures, which needs no other file.

        Parameters
        ----------
        path : str or Path, optional
            Where to write it, too; directories are made.

        Returns
        -------
        str
            The page.

        Raises
        ------
        ImportError
            If the extra `plots` is not installed: ``pip install "pymc_austerity[plots]"``.
        """
        text = as_html(self)
        if path is not None:
            path = Path(path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8", newline="\n")
        return text

    def __repr__(self) -> str:
        lines = [headline(self)]
        lines += [f"  {run.name}: {verdict_of(judgement)}" for run, judgement, _ in self.results]
        n = sum(len(run.messages) for run, _, _ in self.results) + len(self.standard.messages)
        if n:
            lines.append(f"  {n} warning{'s' if n > 1 else ''} while sampling: see to_markdown().")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        return as_fragment(self)
