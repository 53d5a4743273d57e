"""The example of which a file of tests has the name, in its fast mode, run once for the file."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def example(request):
    """The names of its script; where a file of tests has settings `FAST`, its fast mode has these."""
    names = runpy.run_path(str(EXAMPLES / request.path.name.removeprefix("test_")))
    if settings := getattr(request.module, "FAST", None):
        names["main"].__globals__["FAST"].update(settings)
    return names


@pytest.fixture(scope="module")
def result(example, tmp_path_factory):
    """What `main` returns; its figures are saved."""
    found = example["main"](output=tmp_path_factory.mktemp("example"))
    for figure in found["figures"] if "figures" in found else [found["figure"]]:
        assert figure.stat().st_size > 10_000
    return found
