"""README and pages are short, have pictures, and print only numbers that a script has measured."""

import json
import re
from pathlib import Path

import pytest

from tests.benchmarks import front, front_pages, over_time, rivals

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
README = (ROOT / "README.md").read_text()
RECORD = json.loads(front.RECORD.read_text())
PAGES = sorted(DOCS.rglob("*.md"))
EXPLANATIONS = [p for p in sorted((DOCS / "explanation").glob("*.md")) if p.stem not in ("index", "glossary")]
TUTORIALS = [p for p in sorted((DOCS / "tutorials").glob("*.md")) if p.stem != "index"]
NUMBER = r"(?<![\w.])\d[\d,]*(?:\.\d+)?(?!\w)"
# Not measured: versions, years of papers, sizes and settings that the text itself chooses.
CHOSEN = {"3.12", "6.4", "2.0", "2014", "2015", "2017", "2018", "2020", "1,000", "10,000"}


def name_of(path):
    return path.relative_to(ROOT).as_posix()


def without(text, *patterns):
    for pattern in patterns:
        text = re.sub(pattern, " ", text, flags=re.DOTALL | re.MULTILINE)
    return text


def prose(text):
    """Text outside code, formulas, tables and marks."""
    return without(
        text, r"\A---\n.*?^---\n", r"^ *(`{3,}).*?^ *\1", r"<!-- table.*?<!-- end -->", r"\$\$.*?\$\$",
        r"\$[^$]*\$", r"`[^`]*`", r"\]\([^)]*\)", r"^\|.*?$",
    )  # fmt: skip


def code(text):
    return "\n".join(re.findall(r"^```\{code-cell\}[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE))


def sentences(text):
    for paragraph in re.split(r"\n\s*\n|^[-#].*?(?=\s)|:::.*?$", prose(text), flags=re.MULTILINE):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.split()))


def test_readme_is_short():
    lines = README.splitlines()
    assert len(lines) <= 150
    assert [line for line in lines if len(line) > 100] == []


def test_sentences_of_the_readme_are_short():
    found = [s for s in sentences(README) if len(s.split()) > 25 or len(re.findall(NUMBER, s)) > 1]
    # Names of authors and years, and what is printed below the name.
    assert [s for s in found if "(20" not in s and "Python 3.12" not in s] == []


def test_a_long_sentence_would_be_noticed():
    assert max(len(s.split()) for s in sentences("Word " * 30 + ".\n\nShort one.")) > 25


def test_tables_are_those_of_the_record():
    for page in front_pages.PAGES:
        assert front_pages.filled(page.read_text(), RECORD) == page.read_text(), name_of(page)
    for of, tables in ((rivals, rivals.TABLES), (over_time, {"over_time": over_time.table})):
        text, record = of.PAGE.read_text(), json.loads(of.RECORD.read_text())
        assert front_pages.filled(text, record, tables) == text, name_of(of.PAGE)


TIMES = {"model": "groups", "n": 100_000, "set_up": 1.0, "cold": 9.0, "tuning": 1.0, "sampling": 4.0}
MOMENTS = {"mean": [1.0], "mean_error": [0.1], "sd": [2.0], "sd_error": [0.0]}
NOTHING = {"mean": [0.0], "mean_error": [0.0], "sd": [None], "sd_error": [None]}
RUNS = [
    {**TIMES, **MOMENTS, "method": "ours", "ess": 2000.0},
    {**TIMES, "method": "nutpie", "ess": 400.0, "bound": True},
    {**TIMES, **NOTHING, "method": "gpboost", "ess": None, "cold": None},
    {"model": "groups", "n": 100_000, "method": "hmcecs", "note": "why"},
]


def test_rivals_are_written_from_their_record():
    lines = rivals.table(RUNS, "groups").splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0][2:] == ["1 (9)", "500", "4", "reference", ""]
    assert cells[1][2:] == ["1 (9)", "", "> 12", "", ""]
    assert cells[2][2:] == ["1", "", "6", "-0.500 (0.050)", ""]
    assert [line[4] for line in cells[3:]] == ["no figure", *4 * ["not measured"]]
    told = rivals.missing(RUNS)
    assert "HMCECS, groups, N = 100,000: why." in told
    assert (
        "\npython -m tests.benchmarks.rivals --sizes 1000000 --models groups --methods ours nutpie " in told
    )


def test_a_rival_that_is_not_installed_is_named(capsys, monkeypatch, tmp_path):
    for name in ("RECORD", "PAGE", "FIGURE"):
        monkeypatch.setattr(rivals, name, tmp_path / name)
    rivals.PAGE.write_text("<!-- table: rivals_missing -->\n<!-- end -->\n")
    monkeypatch.setattr(rivals.importlib.util, "find_spec", lambda name: None)
    rivals.main(["--models", "groups", "--sizes", "100", "--methods", "hmcecs"])
    said = capsys.readouterr().out
    assert 'HMCECS left out: numpyro is not installed (pip install -e ".[bench]").' in said
    assert "Not measured yet:\n\n```bash\npython -m tests.benchmarks.rivals" in said


def test_numbers_of_the_readme_are_measured_or_chosen():
    assert set(re.findall(NUMBER, prose(README))) <= CHOSEN


def test_a_number_beside_its_cell_would_be_noticed():
    text = "Its ratio is 1.18, `known` to 0.04.\n\n```{code-cell} python\nprint(0.5)\n```\n"
    assert re.findall(NUMBER, prose(text)) == ["1.18", "0.04"]
    assert "1.18" not in code(text)


@pytest.mark.parametrize("page", TUTORIALS, ids=name_of)
def test_numbers_of_tutorials_are_in_their_cells(page):
    """What a run gives is printed by the cell, and not told beside it."""
    text = page.read_text()
    told = re.findall(NUMBER, without(prose(text), r"^#+ \d\. ", r"^\d\. ", r"\(\d\)"))
    known = {number.replace("_", "").replace(",", "") for number in re.findall(r"\d[\d_,.]*", code(text))}
    assert {n for n in told if n.replace(",", "") not in known} == set()


@pytest.mark.parametrize("page", TUTORIALS, ids=name_of)
def test_tutorials_draw_a_picture(page):
    assert "plt.subplots" in code(page.read_text())


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_pages_are_short(page):
    assert len(page.read_text().splitlines()) <= 200


@pytest.mark.parametrize("page", EXPLANATIONS, ids=name_of)
def test_explanations_are_short_and_have_a_drawing(page):
    text = page.read_text()
    assert len(without(text, r"^ *(`{3,}).*?^ *\1", r"\$\$.*?\$\$", r"\$[^$]*\$").split()) <= 1500
    assert re.search(r":::\{figure\} \.\./_static/\S+\.png", text)
