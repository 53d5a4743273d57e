"""What `flights_rivals.py` does, with fewer draws; test_flights.py starts it in a process of its own."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import flights
import flights_rivals

DRAWS = 600
# Enough for an interval, which the figure has: tests ask nothing else of nutpie.
OF_NUTPIE = {"draws": 50, "tune": 50}

if __name__ == "__main__":
    flights.FAST |= {"rival": DRAWS, "nutpie": OF_NUTPIE}
    flights_rivals.main(json.loads(sys.argv[1]))
