"""Notice that shared data (`pm.Data`) were replaced after a step was built."""

from __future__ import annotations

import hashlib

import numpy as np

from pymc_austerity.model.graph import LogDensityGraph

Fingerprint = list[tuple[str, tuple[int, ...], str, bytes]]


def fingerprint(graph: LogDensityGraph) -> Fingerprint:
    """Name, shape, dtype and content hash of each piece of shared data."""
    prints = []
    for shared in graph.shared:
        value = np.ascontiguousarray(shared.get_value(borrow=True))
        digest = hashlib.blake2b(value.tobytes() if value.ndim == 0 else value.data, digest_size=16)
        prints.append((str(shared.name), value.shape, value.dtype.str, digest.digest()))
    return prints
