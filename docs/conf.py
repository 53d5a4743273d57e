"""Sphinx configuration: `make docs`.

Pages are MyST markdown; those with a `kernelspec` are notebooks, and are run when they are built. With
``-D nb_execution_mode=off`` nothing is run. Such a page gets a link to itself as a Jupyter notebook.
"""

from __future__ import annotations

import inspect
import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from docutils import nodes
from math_core import LatexToMathML
from myst_nb.core.read import read_myst_markdown_notebook
from myst_parser.config.main import MdParserConfig
from sphinx.application import Sphinx

from pymc_austerity import __version__

sys.path.insert(0, str(Path(__file__).parent))
import files_of_the_package

project = "pymc_austerity"
author = "the authors of pymc_austerity"
release = version = __version__

NOTEBOOKS = "_notebooks"  # written by the build
# Notebooks import files of the examples, which readers put beside them. The kernels inherit this.
EXAMPLES = str(Path(__file__).parents[1] / "examples")
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [EXAMPLES, os.environ.get("PYTHONPATH")]))
extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinxcontrib.bibtex",
    "sphinx_design",
]
exclude_patterns = ["_build", "_templates", NOTEBOOKS]
templates_path = ["_templates"]

# Single backticks in docstrings name Python objects.
default_role = "py:obj"

# One page for each public name; class pages show what a class defines itself.
autosummary_generate = True
autodoc_typehints = "none"  # types are in the Parameters section
numpydoc_show_class_members = False

myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 4

nb_execution_mode = "cache"
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_execution_show_tb = True
nb_merge_streams = True

bibtex_bibfiles = ["refs.bib"]
bibtex_default_style = "plain"
bibtex_reference_style = "author_year"

MATHML = LatexToMathML()
html_math_renderer = "mathml"  # the function `formula`
html_theme = "pydata_sphinx_theme"
html_title = "pymc_austerity"
html_static_path = ["_static"]
html_css_files = ["docs.css"]
html_show_sourcelink = False
html_sidebars: dict[str, list[str]] = {"index": [], "gallery/index": []}
html_theme_options = {
    "logo": {"text": "pymc_austerity"},
    "show_prev_next": True,
    "header_links_before_dropdown": 7,
    "navbar_end": ["theme-switcher"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": ["page-toc"],
}
html_context = {"default_mode": "auto"}
copyright = "the authors of pymc_austerity. Licence: Apache 2.0"


def signature_of_init(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, None] | None:
    """Show the parameters of ``__init__``: PyMC's steps have a ``__new__`` that takes anything."""
    if what != "class" or "__init__" not in vars(obj) or not signature:
        return None
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in inspect.signature(obj).parameters.values()]
    return str(inspect.Signature(bare)), None


def as_notebook(app: Sphinx, docname: str, source: list[str]) -> None:
    """Write a page with cells as a Jupyter notebook, and put a link to it below the title."""
    text = source[0]
    if not text.startswith("---\nfile_format: mystnb"):
        return
    path = Path(app.srcdir, NOTEBOOKS, f"{docname}.ipynb")
    path.parent.mkdir(parents=True, exist_ok=True)
    notebook = read_myst_markdown_notebook(text, MdParserConfig())
    nbformat.write(notebook, path)
    head, title, rest = text.partition("\n# ")
    title_line, _, rest = rest.partition("\n")
    link = f"{{download}}`Download this page as a notebook </{NOTEBOOKS}/{docname}.ipynb>`"
    source[0] = f"{head}{title}{title_line}\n\n{link}\n{rest}"


def formula(translator: Any, node: nodes.Element) -> None:
    """Write a formula as MathML, which browsers show without a script or a network."""
    block = isinstance(node, nodes.math_block)
    text = MATHML.convert_with_local_state(node.astext(), displaystyle=block)
    translator.body.append(f'<div class="math">{text}</div>' if block else text)
    raise nodes.SkipNode


def list_of_files(app: Sphinx) -> None:
    """Write the page that names every file of the package."""
    page = Path(app.srcdir, "developer", "generated", "files.md")
    page.parent.mkdir(exist_ok=True)
    page.write_text(files_of_the_package.page())


def setup(app: Sphinx) -> None:
    """Connect the functions above."""
    app.connect("builder-inited", list_of_files)
    app.connect("autodoc-process-signature", signature_of_init)
    app.connect("source-read", as_notebook)
    app.add_html_math_renderer("mathml", (formula, None), (formula, None))
