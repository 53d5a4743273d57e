"""What the documentation says of likelihoods and structures is what `recommend` does."""

import pytest

from tests.integration import suited

# Each likelihood, each structure and each kind of answer at least once, by cells that take few seconds.
SOME = [
    ("binary", "three nested levels"),
    ("binomial", "groups"),
    ("Poisson", "correlated slopes of groups"),
    ("negative binomial, free dispersion", "an effect of each row"),
    ("zero-inflated Poisson", "areas"),
    ("hurdle Poisson", "a random walk"),
    ("normal, free scale", "two large crossed factors"),
    ("Student's t, free scale", "a smooth function"),
    ("gamma, free shape", "groups with heavy tails"),
    ("beta, free size", "coefficients alone"),
    ("ordered, free cut points", "a random walk"),
    ("choice of three", "groups that sum to zero"),
    ("censored Weibull, free shape", "coefficients alone"),
    ("normal, scale by a covariate", "groups and a short factor"),
    ("mixture of two normals", "correlated slopes of groups"),
    ("normal of three, free covariance", "coefficients alone"),
]
OTHER = {"few": "all, 1 s", "all": "7, 1 s", "sums": "NUTS, 1 s", "NUTS": "sums, 1 s"}


def test_the_page_has_all_cells():
    cells = suited.cells_of_page()
    assert set(cells) == {(a, b) for a in suited.LIKELIHOODS for b in suited.STRUCTURES}
    assert len(suited.LIKELIHOODS) >= 12
    assert len(suited.STRUCTURES) >= 8
    assert {suited.kind(one) for one in cells.values()} == set(OTHER)
    assert {likelihood for likelihood, _ in SOME} == set(suited.LIKELIHOODS)
    assert {structure for _, structure in SOME} == set(suited.STRUCTURES)
    assert {suited.kind(cells[pair]) for pair in SOME} == set(OTHER)


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
