"""The package `bounds.jets` as plain Python, of which parts can be replaced."""

import importlib
import sys
from types import SimpleNamespace

import numba

import pymc_austerity.bounds

PACKAGE = "pymc_austerity.bounds.jets"
PARTS = ("functions", "ranges", "tape", "machine", "derivative_norms")


def uncompiled_jets() -> SimpleNamespace:
    """Modules of their own, that nothing else uses; rows are computed one by one."""
    kept = {name: sys.modules.pop(name) for name in list(sys.modules) if name.startswith(PACKAGE)}
    package, disabled = pymc_austerity.bounds.jets, numba.config.DISABLE_JIT
    try:
        numba.config.DISABLE_JIT = True
        parts = {name: importlib.import_module(f"{PACKAGE}.{name}") for name in PARTS}
    finally:
        numba.config.DISABLE_JIT = disabled
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]
        sys.modules.update(kept)
        pymc_austerity.bounds.jets = package
    jets = SimpleNamespace(**parts)
    jets.machine.LANES = jets.derivative_norms.LANES = 1
    return jets
