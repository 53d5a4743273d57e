"""The comparison as a page and as text: complete, escaped, small, and without other files."""

import base64
import re
import sys
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest

from pymc_austerity.plots.style import looks
from pymc_austerity.report.comparison import number
from pymc_austerity.report.figures import Album, Plot, most_different, plot_forest
from pymc_austerity.report.judgement import ABSENT, with_error

VOID = {"meta", "link", "img", "br", "hr", "input"}


class Reader(HTMLParser):
    """Elements with their attributes; fails on tags that do not match."""

    def __init__(self, text):
        super().__init__()
        self.found, self.open, self.texts = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.found if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())


@pytest.fixture(scope="module")
def reader(page):
    return Reader(page)


@pytest.mark.slow("a planted fault, in steps of its own")
def test_no_figure_failed_or_was_left_out(page):
    assert "could not be drawn" not in page
    assert "Left out" not in page
    # An overview, the risk; for each step that ran: posterior, data used, batch sizes; one probe.
    assert page.count("<img") == 2 + 3 * 3 + 1


@pytest.mark.slow("builds and compiles several steps")
def test_nothing_is_loaded(reader):
    sources = [attrs.get("src") or attrs.get("href") for tag, attrs in reader.found]
    for source in filter(None, sources):
        assert source.startswith(("data:", "#step-"))
    assert not reader.all("script")
    anchors = {attrs["href"] for attrs in reader.all("a")}
    assert anchors <= {f"#{attrs['id']}" for _, attrs in reader.found if "id" in attrs}


def test_images_have_sizes_and_texts(reader):
    for image in reader.all("img"):
        png = base64.b64decode(image["src"].partition(",")[2])
        assert png.startswith(b"\x89PNG")
        assert int(image["width"]) == int.from_bytes(png[16:20], "big")
        assert len(image["alt"]) > 30


def test_headings_and_tables(reader):
    assert len(reader.all("h1")) == 1
    levels = [int(tag[1]) for tag, _ in reader.found if re.fullmatch("h[1-6]", tag)]
    assert max(np.diff(levels)) <= 1
    assert len(reader.all("caption")) == len(reader.all("table"))
    assert all(attrs.get("scope") in ("row", "col") for attrs in reader.all("th"))
    assert reader.all("html")[0]["lang"] == "en"


def test_what_is_on_the_page(comparison, reader):
    for run, judgement, _ in comparison.results:
        assert run.name in reader.text
        assert judgement.reason in reader.text
    assert "planted warning | with a bar" in reader.text
    assert "Batch means are normal enough" in reader.text
    assert "Monte Carlo standard errors" in reader.text
    assert "PyMC 6." in reader.text
    assert '"temperature": 0.64' in reader.text


def test_names_and_messages_are_escaped(page, reader):
    assert "planted &lt;failure&gt; &amp; more" in page
    assert "sloppy &lt;b&gt;" in page
    assert not reader.all("b")
    assert len(page.encode()) < 3e6


def line():
    """A figure, outside of any page."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots()
    axes.plot([1, 2])
    return figure


def test_figures_are_left_out_of_a_full_page(monkeypatch):
    monkeypatch.setattr("pymc_austerity.report.figures._MOST", 10)
    album = Album()
    assert album.drawn(Plot(line, "A line.", "One."))["data"]
    assert album.drawn(Plot(line, "A line.", "Two.")) == {"caption": "Left out to keep the page small: Two."}


def test_a_figure_that_fails_is_told(comparison, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("planted")

    monkeypatch.setattr("pymc_austerity.report.figures.plot_risk", fail)
    assert "This figure could not be drawn (RuntimeError: planted)." in Reader(comparison.to_html()).text


def test_figures_do_not_take_over_the_style_of_the_user():
    """Nor stay open."""
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    own, _ = plt.subplots()
    try:
        light = Album().drawn(Plot(line, "", ""))
        with plt.style.context("dark_background"):
            before = dict(mpl.rcParams)
            dark = Album().drawn(Plot(line, "", ""))
            assert dict(mpl.rcParams) == before
        assert dark["data"] == light["data"]
        assert plt.get_fignums() == [own.number]
    finally:
        plt.close(own)


NAMES = ["reference", "exact", "$\\bad$", "_hidden", "a|`b`*c*<i>ü'\"", "x" * 300]


@pytest.fixture(scope="module")
def oddly_named(comparison):
    run, judgement, probe = comparison.results[2]
    reference = replace(comparison.standard, messages=("of the reference",))
    results = tuple((replace(run, name=name, messages=(name,)), judgement, probe) for name in NAMES)
    return replace(comparison, results=results, standard=reference)


@pytest.mark.slow("draws all figures of a page once more")
def test_odd_names_on_the_page(oddly_named):
    """Not as mathematics, not hidden in legends, not taken for the reference."""
    page = oddly_named.to_html()
    assert "could not be drawn" not in page
    assert len(page.encode()) < 3e6
    headings = [text for text in Reader(page).texts if text.startswith("Step: ")]
    assert headings == [f"Step: {name}" for name in NAMES]
    assert not Reader(page).all("i")
    assert list(oddly_named.to_dataframe().index) == ["exact (reference)", *NAMES]


def test_odd_names_in_markdown(oddly_named):
    text = oddly_named.to_markdown()
    assert "**a|\\`b\\`\\*c\\*\\<i>ü'\"** differs" in text
    assert "\n| a\\|\\`b\\`\\*c\\*\\<i>ü'\"" in text
    assert "- exact (reference) warned: of the reference\n" in text
    assert "- exact warned: exact\n" in text


def differences(names, shift, sd_ratio):
    """A table of scalars, as a `Judgement` has it."""
    numbers = {"shift": shift, "shift_error": 0.05, "sd_ratio": sd_ratio, "sd_ratio_error": 0.1}
    return pd.DataFrame({**numbers, "z_shift": [20.0 * x for x in shift], "z_sd": 0.0}, index=names)


def test_labels_of_odd_names():
    import matplotlib.pyplot as plt

    table = differences(["$\\bad$"], [0.1], [1.0])
    figure = plot_forest(dict.fromkeys(NAMES, table), ["$\\bad$"], 0.2)
    figure.canvas.draw()
    (legend,) = figure.legends
    texts = [text.get_text() for text in legend.get_texts()]
    assert texts[:4] == ["reference", "exact", "\\$\\bad\\$", " _hidden"]
    assert len(texts[-1]) == 44
    plt.close(figure)


def test_seven_steps_can_be_told_apart_and_have_fewer_rows():
    table = differences([f"x{k}" for k in range(20)], np.arange(20.0), 1.0)
    assert most_different([table])[0] == "x19"
    assert [len(most_different([table] * n)) for n in (1, 4, 8, 30)] == [12, 12, 6, 3]
    assert looks("os", 13) == ["o"] * 6 + ["s"] * 6 + ["o"]


def test_writing_a_file(comparison, tmp_path, monkeypatch):
    monkeypatch.setattr("pymc_austerity.report.figures._MOST", -1)  # without figures it is fast
    path = tmp_path / "new" / "page.html"
    for _ in range(2):  # a file that exists is overwritten
        assert comparison.to_html(path).encode() == path.read_bytes()


@pytest.mark.parametrize("missing", ["jinja2", "matplotlib.pyplot"])
def test_missing_extra(comparison, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=r'pip install "pymc_austerity\[plots\]"'):
        comparison.to_html()
    assert comparison.to_markdown()


def test_markdown(comparison):
    text = comparison.to_markdown()
    assert text.startswith("# Comparison of 4 steps with exact Metropolis-Hastings on all data, N = 2,000")
    assert "**failing** failed: RuntimeError: planted" in text
    assert "right warned: planted warning | with a bar" in text
    tables = [block.splitlines() for block in text.split("\n\n") if block.startswith("| ")]
    assert len(tables) == 4  # one in all: its columns go on below
    for table in tables:
        assert {len(line) for line in table} == {len(table[0])}
        assert len(table[0]) <= 80
        bars = {len(re.findall(r"(?<!\\)\|", line)) for line in table}
        assert len(bars) == 1, table


def test_a_step_that_is_too_wide_is_not_compared_by_its_effective_draws(comparison, reader):
    """That with a large epsilon; not the right one, nor one that is too narrow."""
    table = comparison.to_dataframe()
    assert list(table["too_wide"]) == [False, False, False, True, False]
    for text in (comparison.to_markdown(), reader.text, comparison._repr_html_()):
        assert len(re.findall("its effective draws are not those of the posterior", text)) == 1
    lines = [line for line in comparison.to_markdown().splitlines() if line.startswith("| ")]
    marked = {line.split("|")[1].strip() for line in lines if "\N{DAGGER}" in line}
    assert marked == {"sloppy \\<b>"}


def test_in_a_notebook(comparison):
    text = comparison._repr_html_()
    assert "<strong>sloppy &lt;b&gt;</strong> differs from the reference:" in text
    assert len(Reader(text).all("table")) == 1


def test_repr(comparison):
    lines = repr(comparison).splitlines()
    assert max(map(len, lines)) <= 80
    head, _, *rows = (re.split(r" *\| *", line)[1:-1] for line in lines if line.startswith("|"))
    assert head == ["step", "verdict", "seconds", "ESS", "ESS per second"]
    assert [row[:2] for row in rows[:3]] == [
        ["exact (reference)", "reference"], ["right", "agrees"], ["hot", "differs"]
    ]  # fmt: skip
    assert all(number for row in rows[:3] for number in row)
    text = " ".join(" ".join(lines).split())
    assert "right agrees with the reference within Monte Carlo error in all 2 scalars" in text
    assert "hot differs from the reference: the sd of beta[" in text


def test_numbers():
    given = [np.nan, 0, 12, 0.012345, 12345.6, 2.5e8, -3.0]
    texts = [ABSENT, "0", "12", "0.0123", "12,346", "2.5e8", "-3"]
    assert [number(value) for value in given] == texts


def test_numbers_with_errors():
    given = [(0.123456, 0.0123), (3.14159, 0.11), (12.34, 25.0), (0.5, 0.0), (np.nan, 0.1)]
    texts = ["0.123 (0.012)", "3.14 (0.11)", "12 (25)", "0.5", ABSENT]
    assert [with_error(*pair) for pair in given] == texts
    assert with_error(0.31, 0.05, sign=True) == "+0.310 (0.050)"


def test_the_forest_shows_the_numbers():
    import matplotlib.pyplot as plt

    table = differences(["a", "b"], [0.1, -0.3], [1.0, 2.9])
    names = most_different([table])
    assert names == ["b", "a"]
    figure = plot_forest({"step": table}, names, 0.2)
    left, right = figure.axes
    np.testing.assert_allclose(left.containers[0].lines[0].get_xdata(), [-0.3, 0.1])
    np.testing.assert_allclose(right.containers[0].lines[0].get_xdata(), [2.9, 1.0])
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["b", "a"]
    assert right.get_xscale() == "log"
    plt.close(figure)
