"""What `flights_rivals.py` does, with fewer draws; test_flights.py starts it in a process of its own."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

import flights
import flights_rivals

DRAWS = 1000

if __name__ == "__main__":
    flights.FAST["rival"] = DRAWS
    flights_rivals.main(json.loads(sys.argv[1]))
