"""The documentation names what exists: links, references, public names, pictures, code that parses."""

import ast
import importlib
import re
from pathlib import Path

import pytest

from tests.test_doctests import MODULES

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = sorted(p for p in DOCS.rglob("*.md") if not {"_build", "generated"} & {*p.parts})
LISTS = sorted((DOCS / "reference").glob("*.rst"))
PICTURES = sorted((DOCS / "_static").rglob("*.png"))
LARGEST = 120_000  # bytes of a picture


def name_of(path):
    return path.relative_to(DOCS).as_posix()


def code_cells(text):
    for cell in re.findall(r"^```\{code-cell\}[^\n]*\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        yield re.sub(r"\A(:\S+:.*\n)+", "", cell)


@pytest.mark.parametrize("module", MODULES)
def test_every_public_name_is_in_the_reference(module):
    listed = {name for page in LISTS for name in re.findall(r"^   (\w+)$", page.read_text(), re.MULTILINE)}
    namespace = importlib.import_module(module)
    # Modules have pages of their own.
    names = {name for name in namespace.__all__ if callable(getattr(namespace, name))}
    assert names - listed == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_relative_links_lead_to_files(page):
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)|:::\{figure\} (\S+)|download\}`[^<`]*<([^>]+)>`", text):
        link = "".join(target)
        if re.match(r"https?:|#", link):
            continue
        path = page.parent / link.split("#")[0]
        # Pages of single names are written when the documentation is built.
        assert path.exists() or "generated/" in link, f"{link} does not exist"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_generated_pages_name_what_is_public(page):
    for name in re.findall(r"generated/(pymc_austerity[\w.]+)", page.read_text()):
        module, _, last = name.removesuffix(".md").rpartition(".")
        assert last in importlib.import_module(module).__all__


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_headings_that_are_linked_exist(page):
    for link in re.findall(r"\]\(([^)\s]*\.md)?#([^)]+)\)", page.read_text()):
        target = (page.parent / link[0] if link[0] else page).read_text()
        anchors = {
            re.sub(r"[^\w -]", "", title.lower()).strip().replace(" ", "-")
            for title in re.findall(r"^#+ (.*)$", target, re.MULTILINE)
        }
        assert link[1] in anchors


def test_papers_that_are_cited_are_in_the_bibliography():
    known = set(re.findall(r"^@\w+\{(\w+),", (DOCS / "refs.bib").read_text(), re.MULTILINE))
    for page in PAGES:
        cited = re.findall(r"\{cite(?::\w+)?\}`([^`]+)`", page.read_text())
        assert {key.strip() for keys in cited for key in keys.split(",")} <= known, page.name


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_page_is_in_a_table_of_contents(page):
    if page == DOCS / "index.md":
        return
    index = DOCS / "index.md" if page.name == "index.md" else page.parent / "index.md"
    entry = name_of(page).removesuffix(".md") if page.name == "index.md" else page.stem
    assert re.search(rf"^{re.escape(entry)}$", index.read_text(), re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_code_cells_parse(page):
    text = page.read_text()
    cells = list(code_cells(text))
    for cell in cells:
        ast.parse(cell)
    # A page with cells that is no notebook would show them without running them.
    assert not cells or text.startswith("---\nfile_format: mystnb")


@pytest.mark.parametrize("picture", PICTURES, ids=name_of)
def test_pictures_are_small_and_shown(picture):
    """Those of the gallery on its page."""
    assert picture.stat().st_size < LARGEST
    folder = picture.parent.name
    pages = [DOCS / "gallery" / "index.md"] if folder == "gallery" else [*PAGES, ROOT / "README.md"]
    assert any(f"{folder}/{picture.name}" in page.read_text() for page in pages)


def test_every_example_script_with_a_figure_is_in_the_gallery():
    gallery = (DOCS / "gallery" / "index.md").read_text()
    drawing = [p for p in (ROOT / "examples").glob("*.py") if "savefig" in p.read_text()]
    # That of the first is drawn from a run that the page does not show.
    missing = {p.name for p in drawing if f"examples/{p.name}" not in gallery} - {"randhie_doctor_visits.py"}
    assert missing == set()
