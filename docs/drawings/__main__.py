"""Draw all pictures, or those that are named."""

import sys
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt

from docs.drawings import barker, exact, groups, langevin, tests

FOLDER = Path(__file__).parents[1] / "_static" / "drawings"
DRAWINGS = {
    function.__name__: function
    for function in (
        *(exact.rows_drawn, exact.bound, exact.aligned, exact.remainder, exact.heavy_rows, exact.surrogate),
        *(groups.coordinates, groups.crossed, groups.clock),
        *(groups.gamma_process, groups.trees, groups.turns),
        *(langevin.kink, barker.skewed_terms),
        *(tests.sequential, tests.too_wide, tests.errors, tests.cost, tests.verdict),
    )
}


def main(names: list[str]) -> None:
    """Draw the pictures of these names, or all."""
    mpl.use("agg")
    mpl.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9})
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in names or DRAWINGS:
        figure = DRAWINGS[name]()
        figure.savefig(FOLDER / f"{name}.png", dpi=100)
        plt.close(figure)
        print(FOLDER / f"{name}.png")


if __name__ == "__main__":
    main(sys.argv[1:])
