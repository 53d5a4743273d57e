"""The smallest cut of a graph, against all sets of nodes."""

from itertools import combinations

import numpy as np
import pytest

from pymc_austerity.model.structure.case_predictors import smallest_cut


def random_graph(rng, n):
    """Inputs of nodes 0, ..., n - 1, each made of earlier ones."""
    return {
        k: sorted(rng.choice(k, size=min(k, rng.integers(1, 4)), replace=False).tolist()) if k > 2 else []
        for k in range(n)
    }


def is_cut(inputs, sources, root, nodes):
    """Does no way lead from a source to the root without one of the nodes?"""
    reached = {one for one in sources if one not in nodes}
    for k, args in inputs.items():
        if k not in nodes and any(arg in reached for arg in args):
            reached.add(k)
    return root not in reached


def brute(inputs, sources, root, allowed):
    """All smallest cuts."""
    for size in range(len(allowed) + 1):
        found = [set(some) for some in combinations(allowed, size) if is_cut(inputs, sources, root, some)]
        if found:
            return found
    return []


@pytest.mark.parametrize("seed", range(60))
def test_as_few_as_of_all_sets(seed):
    rng = np.random.default_rng(seed)
    inputs = random_graph(rng, 11)
    allowed = [k for k in inputs if rng.random() < 0.7]
    expected = brute(inputs, [0, 1, 2], 10, allowed)
    found = smallest_cut(inputs, [0, 1, 2], 10, allowed)
    if not expected:
        assert found is None
        return
    assert found in expected
    # On the way to it everything has passed through any other smallest cut.
    for other in expected:
        assert all(node in other or is_cut(inputs, [0, 1, 2], node, other) for node in found)


def test_of_several_the_one_nearest_to_the_root():
    chain = {"x": [], "a": ["x"], "b": ["a"], "root": ["b"]}
    assert smallest_cut(chain, ["x"], "root", {"x", "a", "b"}) == {"b"}
    assert smallest_cut(chain, ["x"], "root", {"x"}) == {"x"}
    assert smallest_cut(chain, ["x"], "root", set(chain)) == {"root"}


def test_one_value_that_is_used_twice_counts_once():
    graph = {"x": [], "y": [], "eta": ["x", "y"], "a": ["eta"], "b": ["eta"], "root": ["a", "b"]}
    assert smallest_cut(graph, ["x", "y"], "root", {"x", "y", "eta"}) == {"eta"}
    assert smallest_cut(graph, ["x", "y"], "root", {"x", "y"}) == {"x", "y"}


def test_no_cut():
    assert smallest_cut({"x": [], "root": ["x"]}, ["x"], "root", set()) is None
