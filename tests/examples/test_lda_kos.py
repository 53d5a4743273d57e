"""The example of latent Dirichlet allocation, in its fast mode on a synthetic corpus."""

import numpy as np
import pytest
from lda import from_documents, subcorpus


def test_topics_predict_better_than_frequencies_of_words(result):
    table = result["table"]
    assert np.all(table["averaged"].astype(float) < 0.8 * result["frequencies"]), table


def test_averages_predict_better_than_single_draws(result):
    table = result["table"]
    assert np.all(table["averaged"] < table["single draws"]), table


def test_each_is_at_its_best_of_one_grid(result, example):
    grid = result["grid"]
    assert np.all(np.isfinite(grid["perplexity"]))
    for name, method in example["METHODS"].items():
        rows = grid[grid["method"] == name]
        assert len(rows) == len(method.schedules) * len(example["STEP_SIZES"])
        best = rows.loc[rows["perplexity"].idxmin()]
        assert result["table"].loc[name, "chosen"] == f"h = {best['step size']:g} {best['schedule']}"


def test_best_step_sizes_of_scir_are_inside_the_grid(result):
    rows = result["grid"].query("method == 'SCIR'").set_index("step size")["perplexity"]
    assert 0.02 < rows.idxmin() < 1


def test_documents_are_in_one_part(example):
    """Each word is one document here, so that its number says which."""
    corpus = from_documents(np.full(4, d) for d in range(40))
    data = example["split"](corpus, 40)
    parts = [data["train"].words, data["validation"][0].words, data["test"][0].words]
    assert [len(np.unique(p)) for p in parts] == [32, 4, 4]
    assert sorted(np.concatenate([np.unique(p) for p in parts])) == list(range(40))
    for seen, aside in (data["validation"], data["test"]):
        np.testing.assert_array_equal(np.unique(seen.words), np.unique(aside.words))


def test_perplexity_of_one_of_eight(example):
    assert example["perplexity"](np.full(5, 1 / 8)) == pytest.approx(8)


def test_averages_are_over_the_later_half(example, monkeypatch):
    probabilities = iter([np.full(3, p) for p in (0.9, 0.5, 0.25, 0.125)])
    scores = example["Scores"]((None, None), (0.1, 0.1))
    monkeypatch.setitem(example["COMPILED"], "completion", lambda *args: next(probabilities))
    for m in range(4):
        scores.add(m, 0.0, None)
    assert scores.table()["draw"].to_list() == pytest.approx([1 / 0.9, 2, 4, 8])
    assert scores.table()["averaged"].to_list() == pytest.approx([1 / 0.9, 2, 1 / 0.375, 1 / 0.1875])


def test_corpus_of_the_file(example, tmp_path, monkeypatch):
    monkeypatch.delenv("PYMC_AUSTERITY_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match="PYMC_AUSTERITY_DATA"):
        example["kos"]()
    arrays = {"indptr": [0, 2, 3], "indices": [0, 2, 1], "counts": [1, 2, 1], "vocab": ["a", "b", "c"]}
    np.savez(tmp_path / "lda_corpus.npz", **arrays)
    monkeypatch.setenv("PYMC_AUSTERITY_DATA", str(tmp_path))
    corpus, n_words = example["kos"]()
    assert n_words == 3
    np.testing.assert_array_equal(subcorpus(corpus, [0]).words, [0, 2, 2])
