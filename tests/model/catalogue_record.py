"""The models of the catalogue by name, and what was recorded of them.

`catalogue_names.txt` has a line for each model, `covering.txt` the names of those that `make test` runs. Both
are written by ``python -m tests.model.covering``.
"""

from dataclasses import dataclass
from pathlib import Path

from . import catalogue_fields_a, catalogue_fields_b, catalogue_fields_c, catalogue_unusual  # noqa: F401 - they add their models
from .catalogue import MODELS, REFUSED

ENTRIES = {entry.name: entry for entry in [*MODELS, *REFUSED]}
FOLDER = Path(__file__).parent
NAMES_FILE = FOLDER / "catalogue_names.txt"
COVERING_FILE = FOLDER / "covering.txt"

SPLIT, REFUSED_SO_FAR, MUST_BE_REFUSED = "split", "refused so far", "must be refused"


@dataclass(frozen=True)
class Recorded:
    """A line of `catalogue_names.txt`."""

    name: str
    file: str
    outcome: str
    local: tuple[tuple[str, int], ...] = ()  # name and size of each local vector

    @classmethod
    def of(cls, entry, local):
        """What there is to record of a model whose local vectors are `local`, None if it is refused."""
        file = entry.build.__module__.rpartition(".")[2]
        return cls(entry.name, file, expected_outcome(entry), tuple(local or ()))

    @classmethod
    def read(cls, line):
        name, file, outcome, *rest = line.split("\t")
        pairs = [pair.rpartition("=") for pair in rest[1:]]
        return cls(name, file, outcome, tuple((term, int(size)) for term, _, size in pairs))

    def __str__(self):
        fields = [self.name, self.file, self.outcome]
        if self.outcome == SPLIT:
            fields += [str(sum(size for _, size in self.local))]
            fields += [f"{term}={size}" for term, size in self.local]
        return "\t".join(fields)


def expected_outcome(entry):
    """What a test demands of a model."""
    if entry in REFUSED:
        return MUST_BE_REFUSED
    return REFUSED_SO_FAR if entry.refused_so_far else SPLIT


def lines_of(path):
    """The lines of a file without its header."""
    if not path.exists():
        return []
    return [line for line in path.read_text().splitlines() if line and not line.startswith("#")]


RECORDED = {one.name: one for one in map(Recorded.read, lines_of(NAMES_FILE))}
COVERING = frozenset(lines_of(COVERING_FILE))
