"""The example on sparse Dirichlet distributions, with two seeds; more in tests/statistical."""

FAST = {"seeds": 2}


def test_scir_is_nearer_where_the_posterior_is_sparse(result):
    mean = result["best"].groupby(["case", "method", "n"])["distance"].mean()
    assert (mean["sparse", "SGRLD"] > 3 * mean["sparse", "SCIR"]).all()
    assert mean["sparse", "SCIR"].is_monotonic_decreasing
    assert (mean["dense", "SGRLD"] < 2 * mean["dense", "SCIR"]).all()


def test_small_components(result):
    medians = result["medians"]
    assert medians["SGRLD"] > -5 > -5.5 > medians["SCIR"]
