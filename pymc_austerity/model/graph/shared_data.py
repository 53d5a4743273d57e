"""Notice that shared data (`pm.Data`) were replaced after a step was built."""

import hashlib

import numpy as np
from scipy.sparse import issparse

from pymc_austerity.model.graph.log_density import LogDensityGraph
from pymc_austerity.model.graph.rows_on_disk import rows_of

Fingerprint = list[tuple[str, tuple[int, ...], str, bytes]]


def fingerprint(graph: LogDensityGraph) -> Fingerprint:
    """Name, shape, dtype and content hash of each piece of shared data.

    Rows on disk are not read: what is compared is their files. `ValueError` is raised if a file was cut,
    written to or replaced since it was opened.
    """
    prints = []
    for shared in graph.shared:
        rows = rows_of(shared)
        if rows is not None:
            rows.require_unchanged()
            prints.append((str(shared.name), rows.shape, rows.dtype.str, rows.fingerprint.encode()))
            continue
        value = shared.get_value(borrow=True)
        digest = hashlib.blake2b(digest_size=16)
        for part in (value.data, value.indices, value.indptr) if issparse(value) else (value,):
            array = np.ascontiguousarray(part)
            digest.update(array.tobytes() if array.ndim == 0 else array.data)
        prints.append((str(shared.name), value.shape, value.dtype.str, digest.digest()))
    return prints
