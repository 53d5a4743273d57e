"""A disk that is full, as far as a program can tell."""

import resource
from contextlib import contextmanager


@contextmanager
def limited_file_size(most):
    """No file may have more bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
