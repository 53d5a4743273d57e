"""Where rows are on another host: at the same path, or in a folder that the host names."""

from __future__ import annotations

import os
from pathlib import Path

# The folder that holds the folders of stores.
STORE_ROOT = "PMA_STORE_ROOT"


def path_here(path: str | Path) -> Path:
    """The path of rows on this host.

    Parameters
    ----------
    path : path
        Where they were opened first.

    Returns
    -------
    Path
        The same, if there is such a file, or if `PMA_STORE_ROOT` is not set. Else the file, with its folder,
        in that folder.
    """
    path = Path(path)
    root = os.environ.get(STORE_ROOT)
    return path if path.exists() or not root else Path(root) / path.parent.name / path.name
