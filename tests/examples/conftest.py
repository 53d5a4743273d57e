"""The example of which a file of tests has the name, in its fast mode, run once for the file."""

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example(request):
    """The names of its script; where a file of tests has settings `FAST`, its fast mode has these."""
    names = runpy.run_path(str(EXAMPLES / request.path.name.removeprefix("test_")))
    if settings := getattr(request.module, "FAST", None):
        own = names["main"].__globals__
        own["FAST"].update(settings) if isinstance(settings, dict) else own.update(FAST=settings)
    return names


@pytest.fixture(scope="module")
def result(example, tmp_path_factory):
    """What `main` returns; its figures are saved."""
    found = example["main"](output=tmp_path_factory.mktemp("example"))
    for figure in found["figures"] if "figures" in found else [found["figure"]]:
        assert figure.stat().st_size > 10_000
    return found


@pytest.fixture
def pixels(tmp_path, monkeypatch):
    """Writes a file of pixels as that of MNIST, of two digits, where examples look for it."""

    def write(name, digits):
        rng, arrays = np.random.default_rng(2), {}
        for part, n in (("train", 200), ("test", 20)):
            arrays[f"X_{part}"] = rng.integers(0, 256, size=(n, 784)).astype(np.uint8)
            arrays[f"digit_{part}"] = rng.choice(digits, size=n).astype(np.uint8)
        np.savez(tmp_path / name, **arrays)
        monkeypatch.setenv("PYMC_AUSTERITY_DATA", str(tmp_path))
        return arrays

    return write
