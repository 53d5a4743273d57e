"""Models and steps that the tests share; each engine is compiled once."""

import pytest

from pymc_austerity import AusterityMH
from tests.step_methods.conftest import MODE as MODE
from tests.step_methods.conftest import N as N
from tests.step_methods.conftest import draw as draw
from tests.step_methods.conftest import line as line
from tests.step_methods.conftest import same as same


@pytest.fixture(scope="session")
def step(line):
    """A step for all variables; `pm.sample` starts each chain afresh."""
    return AusterityMH(model=line)
