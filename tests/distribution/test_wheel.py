"""What a user installs: the wheel in an empty environment, outside of the repository, without a network.

The environment has pip, the wheel, and a view of the libraries that are installed beside the tests, not of
the package in this repository: pip takes what is declared as a dependency from there, or fails.

`make check-extras` also installs the files of `dist`, and each extra alone, with what they bring, from the
network.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from email import message_from_string
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pymc_austerity._version import __version__

pytest.importorskip("hatchling", reason="hatchling is not installed; make test installs it")

ROOT = Path(__file__).parents[2]
# Seconds until a process that hangs is ended.
PATIENCE = 600

pytestmark = pytest.mark.slow("builds the wheel, installs it and runs the script of the README")


def run(*command, cwd, **variables):
    """Run a command that knows nothing of the repository; return what it prints."""
    own = ("PYTHONPATH", "VIRTUAL_ENV", "PYTEST_CURRENT_TEST")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def readme_script():
    """The script of the README that makes a model, and the one after it, which prints the reasons."""
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.DOTALL | re.MULTILINE)
    first = next(k for k, block in enumerate(blocks) if "pm.Model" in block)
    return "\n".join(blocks[first : first + 2])


def metadata_of(wheel):
    """What the wheel tells of itself."""
    archive = zipfile.ZipFile(wheel)
    (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    return message_from_string(archive.read(name).decode())


def brought(declared, extra):
    """Names of the distributions that requirements bring, with what these require themselves."""
    left, seen, names = [(each, extra) for each in declared], set(), set()
    while left:
        each = left.pop()
        needed = Requirement(each[0])
        if each in seen or (needed.marker and not needed.marker.evaluate({"extra": each[1]})):
            continue
        seen.add(each)
        names.add(needed.name)
        of_extras = ("", *needed.extras)
        left += [(more, own) for more in metadata.requires(needed.name) or () for own in of_extras]
    return names


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The wheel and the sdist: those in the folder that is asked for, or new ones."""
    folder = Path(os.environ["DIST"]) if "DIST" in os.environ else tmp_path_factory.mktemp("dist")
    if "DIST" not in os.environ:
        run(sys.executable, "-m", "hatchling", "build", "-d", folder, cwd=ROOT)
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, sdist


@pytest.fixture(scope="module")
def python(built, tmp_path_factory):
    """The interpreter of an environment in which nothing but the wheel was installed."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    interpreter = folder / "bin" / "python"
    (site,) = (folder / "lib").glob("python*/site-packages")
    # A folder on a .pth is searched, but a .pth in it is not read: an editable installation stays unseen.
    (site / "libraries.pth").write_text(sysconfig.get_path("purelib") + "\n")
    run(
        interpreter, "-m", "pip", "install", "--no-index", "--ignore-installed", "--no-deps", built[0],
        cwd=folder,
    )  # fmt: skip
    return interpreter


def test_what_is_in_the_files(built):
    wheel, sdist = built
    names = zipfile.ZipFile(wheel).namelist()
    assert {"pymc_austerity/py.typed", "pymc_austerity/report/template.html"} <= set(names)
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "pymc_austerity").rglob("*.py")}
    assert modules <= set(names)
    assert all(name.startswith("pymc_austerity") for name in names)
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert modules | {"CITATION.cff", "LICENSE", "README.md", "pyproject.toml"} <= inside


def test_metadata(built):
    told = metadata_of(built[0])
    assert told["Version"] == __version__
    requirements = told.get_all("Requires-Dist")
    bare = [each for each in requirements if ">=" not in each and "pymc-austerity[" not in each]
    assert bare == []  # each has a lower bound
    assert "Typing :: Typed" in told.get_all("Classifier")
    citation = (ROOT / "CITATION.cff").read_text()
    assert f"\nversion: {__version__}\n" in citation
    assert set(told.get_all("Provides-Extra")) == {*OF_EXTRAS, "test", "docs", "bench", "lint"}


def test_dependencies_are_declared_and_met(built, python, tmp_path):
    """pip looks for what is declared, and there is no index that could have it."""
    told = run(python, "-m", "pip", "install", "--no-index", built[0], cwd=tmp_path)
    assert "Requirement already satisfied: pymc" in told


NETCDF = """
import importlib.util as util, numpy as np, arviz as az, pymc_austerity
assert not any(util.find_spec(name) for name in ("pytest", "zarr"))
az.from_dict({"posterior": {"x": np.ones((2, 3))}}).to_netcdf("draws.nc")
print(float(az.from_netcdf("draws.nc").posterior["x"].sum()))
"""


def test_the_extra_netcdf_alone_writes_draws(built, tmp_path):
    """In an environment of the wheel and of what it brings with this extra: the tests have more."""
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=False)
    (site,) = (folder / "lib").glob("python*/site-packages")
    zipfile.ZipFile(built[0]).extractall(site)
    libraries = Path(sysconfig.get_path("purelib"))
    for name in brought(metadata_of(built[0]).get_all("Requires-Dist"), "netcdf"):
        for part in {path.parts[0] for path in metadata.files(name)} - {"..", "__pycache__"}:
            if not (site / part).exists():
                (site / part).symlink_to(libraries / part)
    assert run(folder / "bin" / "python", "-c", NETCDF, cwd=tmp_path, PYTHONWARNINGS="ignore") == "6.0\n"


def test_the_script_of_the_readme(python, tmp_path):
    """And it imports the wheel."""
    (tmp_path / "script.py").write_text(f"{readme_script()}\nprint(pma.__file__)\n")
    told = run(python, "script.py", cwd=tmp_path, PYTHONWARNINGS="ignore")
    assert Path(told.splitlines()[-1]).is_relative_to(python.parents[1])
    assert "TunaMH" in told
    assert "because" in told


MODEL = """
import importlib.util, warnings
import arviz as az, numpy as np, pymc as pm, pymc_austerity as pma
warnings.simplefilter("ignore")
there = [name for name in absent if importlib.util.find_spec(name)]
assert there == [], there
rng = np.random.default_rng(1)
rows = {"x": rng.normal(size=5000), "y": rng.integers(2, size=5000).astype(float)}
with pm.Model() as model:
    alpha, beta = pm.Normal("alpha"), pm.Normal("beta")
    pm.Bernoulli("outcome", logit_p=alpha + beta * rows["x"], observed=rows["y"])
given = {"chains": 2, "random_seed": 1, "model": model, "progressbar": False}
if __name__ == "__main__":
    step = pma.TunaMH(model=model)
"""
# What each extra is for, and libraries of others, which it works without.
OF_EXTRAS = {
    "netcdf": (
        """
    pma.sample(200, step=step, **given).to_netcdf("draws.nc")
    assert az.from_netcdf("draws.nc").posterior.sizes["draw"] == 200
""",
        ["zarr", "distributed", "nutpie", "pytest"],
    ),
    "plots": (
        """
    steps = {"TunaMH": step, "coarse": pma.AusterityMH(epsilon=0.2, model=model)}
    found = pma.compare(model, steps, budget=3)
    assert "<svg" in found.to_html("report.html") or "data:image" in found.to_html()
    pma.plots.plot_bound_schematic().figure.savefig("plot.png")
""",
        ["h5netcdf", "zarr", "distributed", "nutpie", "pytest"],
    ),
    "store": (
        """
    import pyarrow, pyarrow.parquet, zarr
    pyarrow.parquet.write_table(pyarrow.table(rows), "rows.parquet")
    zarr.save_group("rows.zarr", **rows)
    for kind in ("parquet", "zarr"):
        store = pma.RowStore.write(f"rows.{kind}", f"{kind}.rows")
        assert (np.asarray(store["x"]) == rows["x"]).all()
    pma.sample(200, step=step, trace="draws.zarr", **given)
    import xarray
    tree = xarray.open_datatree("draws.zarr", engine="zarr", consolidated=False)
    assert tree.posterior.sizes["draw"] == 200
""",
        ["h5netcdf", "distributed", "nutpie", "pytest"],
    ),
    "cluster": (
        """
    from distributed import Client
    with Client(n_workers=1, threads_per_worker=1, dashboard_address=None) as client:
        there = pma.sample_distributed(200, step=step, client=client, **given)
    assert there.posterior.equals(pm.sample(200, step=step, cores=1, **given).posterior)
""",
        ["h5netcdf", "zarr", "nutpie", "pytest"],
    ),
    "nuts": (
        """
    assert pma.sample(200, step="nuts", **given).posterior.attrs["inference_library"] == "nutpie"
""",
        ["h5netcdf", "distributed", "pytest"],
    ),
    "examples": (
        """
    import subprocess, sys
    sys.path.insert(0, examples)
    from flights_data import real_flights
    assert len(real_flights()) == 327_346
    subprocess.run([sys.executable, f"{examples}/randhie_doctor_visits.py", "--fast"], check=True)
    pma.sample(200, step=step, **given).to_netcdf("draws.nc")
""",
        ["zarr", "distributed", "nutpie", "pytest"],
    ),
}


@pytest.fixture
def empty(tmp_path):
    """Makes the interpreter of an empty environment, with what is asked for; it is deleted afterwards."""
    folder = tmp_path / "environment"
    interpreter = folder / "bin" / "python"

    def made(asked):
        try:
            run("uv", "--version", cwd=tmp_path)
        except (AssertionError, FileNotFoundError):
            venv.create(folder, with_pip=True)
            pip = [interpreter, "-m", "pip"]
        else:
            run("uv", "venv", "--python", sys.executable, folder, cwd=tmp_path)
            pip = ["uv", "pip"]
        run(*pip, "install", asked, cwd=tmp_path, VIRTUAL_ENV=str(folder))
        return interpreter

    yield made
    shutil.rmtree(folder)


@pytest.mark.full_size("installs all libraries from the network")
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_each_file_alone_runs_the_script_of_the_readme(kind, built, empty, tmp_path):
    (tmp_path / "script.py").write_text(f"{readme_script()}\nprint(pma.__file__)\n")
    python = empty(built[kind == "sdist"])
    told = run(python, "script.py", cwd=tmp_path, PYTHONWARNINGS="ignore")
    assert Path(told.splitlines()[-1]).is_relative_to(python.parents[1])


@pytest.mark.full_size("installs all libraries from the network")
@pytest.mark.parametrize("extra", OF_EXTRAS)
def test_each_extra_alone_brings_what_it_is_for(extra, built, empty, tmp_path):
    script, absent = OF_EXTRAS[extra]
    (tmp_path / "script.py").write_text(
        f"absent, examples = {absent}, {str(ROOT / 'examples')!r}{MODEL}{script}"
    )
    python = empty(f"{built[0]}[{extra}]")
    run(python, "script.py", cwd=tmp_path, PYTHONWARNINGS="ignore")
