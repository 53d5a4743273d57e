"""Are rows on disk what they were, and finite? One pass before anything is computed from them."""

from __future__ import annotations

import numpy as np
from pytensor.graph.traversal import ancestors

from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.rows_on_disk import rows_of
from pymc_austerity.progress import stage

# Chunks of each array that are read again where a chain begins.
_CHUNKS = 16


def require_sound_rows(graph: LogDensityGraph) -> None:
    """Compare every chunk with its checksum, and look for NaN and infinity.

    Raises
    ------
    ValueError
        It names the term, the column, the row and the chunk; or the file and chunk that have changed.
    """
    read = {name: set(ancestors([term])) for name, term in graph.terms.items()}
    for typed in graph.on_disk:
        rows = rows_of(graph.data[typed])
        assert rows is not None
        names = " and ".join(repr(name) for name, those in read.items() if typed in those)
        stage("checksums", f" of {len(rows):,} rows of {rows.name!r}")
        for number in range(rows.n_chunks):
            rows.require_unchanged()
            rows.chunk(number)
            try:
                rows.require_finite(number)
            except ValueError as error:
                raise ValueError(
                    f"The term {names} cannot be computed: {error} Leave such rows out, or write what is to "
                    "stand in their place."
                ) from None


def require_some_sound_rows(graph: LogDensityGraph) -> None:
    """Compare some chunks at random with their checksums.

    Raises
    ------
    ValueError
        It names the file and chunk that have changed.
    """
    rng = np.random.default_rng()  # others for every chain, whatever its seed
    for typed in graph.on_disk:
        rows = rows_of(graph.data[typed])
        assert rows is not None
        rows.spot_check(rng, _CHUNKS)
