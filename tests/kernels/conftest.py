"""Let the tests of one directory import helpers of another, as in ``from statistical import errors``."""

import sys
from pathlib import Path

TESTS = str(Path(__file__).parents[1])
if TESTS not in sys.path:
    sys.path.append(TESTS)
