"""What the documentation says of likelihoods and structures is what `recommend` does."""

import pytest

from tests.integration import suited

# Each likelihood and each structure at least once.
SOME = [
    (likelihood, list(suited.STRUCTURES)[k % len(suited.STRUCTURES)])
    for k, likelihood in enumerate(suited.LIKELIHOODS)
]
SOME[-1] = SOME[-1][0], "coefficients alone"  # the others take longer
OTHER = {"few": "all, 1 s", "all": "7, 1 s", "sums": "NUTS, 1 s", "NUTS": "sums, 1 s"}


def test_the_page_has_all_cells():
    cells = suited.cells_of_page()
    assert set(cells) == {(a, b) for a in suited.LIKELIHOODS for b in suited.STRUCTURES}
    assert len(suited.LIKELIHOODS) >= 12
    assert len(suited.STRUCTURES) >= 8
    assert {suited.kind(one) for one in cells.values()} == set(OTHER)


@pytest.mark.slow("kernels of most models are compiled")
@pytest.mark.parametrize("pair", SOME, ids="-".join)
def test_some_cells(pair):
    cells = suited.cells_of_page()
    assert not suited.wrong_cells(cells, [pair])


@pytest.mark.parametrize("pair", [("binary", "areas"), ("normal, free scale", "groups")], ids="-".join)
def test_a_wrong_cell_is_found(pair):
    cells = suited.cells_of_page()
    wrong = cells | {pair: OTHER[suited.kind(cells[pair])]}
    assert not suited.wrong_cells(cells, [pair])
    (said,) = suited.wrong_cells(wrong, [pair])
    assert said.startswith(", ".join(pair))


@pytest.mark.full_size("all cells")
@pytest.mark.parametrize("likelihood", suited.LIKELIHOODS)
def test_all_cells(likelihood):
    cells = suited.cells_of_page()
    assert not suited.wrong_cells(cells, [(likelihood, one) for one in suited.STRUCTURES])
