"""The package as it was at a commit: a worktree for as long as a run takes, and a cache of compiled code.

Only the package is checked out: cases and tools are those of the present tree. Compiled code must never pass
from one version to another, for keys of caches may miss what a reorganisation moves: PyTensor's cache is a
directory for each content of the package, and numba's lies beside the sources and goes with the worktree.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from shutil import rmtree
from typing import IO, NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = "pymc_austerity"
PRESENT = (".", "WORKTREE")
UNUSED = 14 * 86_400  # seconds until a cache that nobody used is deleted
ONE_THREAD = dict.fromkeys(
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"], "1"
)
# What would send a child to another repository, or to caches of other versions.
_FOREIGN = ("GIT_", "PYTENSOR_FLAGS", "NUMBA_CACHE_DIR", "PYTHONPATH")


class Version(NamedTuple):
    """A state of the package: what it was called, the git tree, and a name for its content."""

    name: str
    tree: str
    content: str


class Checkout(NamedTuple):
    """Where a version lies, and the environment for children that import it."""

    version: Version
    path: Path
    environment: dict[str, str]

    @contextmanager
    def start(self, module: str, *arguments: str) -> Iterator[IO[str]]:
        """Run a module of these tools with this version of the package: the lines that it prints."""
        command = [sys.executable, "-m", module, *arguments]
        with subprocess.Popen(
            command, cwd=self.path, env=self.environment, stdout=subprocess.PIPE, text=True
        ) as child:
            assert child.stdout is not None
            try:
                yield child.stdout
            finally:
                child.terminate()  # of use only if this process was interrupted


class GitError(Exception):
    """git refused."""


def _environment() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith(_FOREIGN)}


def git(root: Path, *arguments: str, **more: str) -> str:
    """Output of a git command."""
    command = ["git", *arguments]
    done = subprocess.run(
        command, cwd=root, env=_environment() | more, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise GitError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def resolve(name: str, root: Path = ROOT) -> Version:
    """The version of a commit, or of the files as they are now (a copy: they may be edited meanwhile)."""
    if name in PRESENT:
        with tempfile.TemporaryDirectory() as folder:
            index = {"GIT_INDEX_FILE": str(Path(folder) / "index")}
            git(root, "read-tree", "HEAD", **index)
            git(root, "add", "--all", "--", PACKAGE, **index)
            tree = git(root, "write-tree", **index)
    else:
        tree = git(root, "rev-parse", "--verify", f"{name}^{{commit}}")
    return Version(name, tree, git(root, "rev-parse", f"{tree}:{PACKAGE}"))


@contextmanager
def checked_out(version: Version, root: Path = ROOT) -> Iterator[Checkout]:
    """A worktree with the package of a version, which is removed at the end, also after an error."""
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        path = Path(folder).resolve() / "tree"
        git(root, "worktree", "add", "--detach", "--no-checkout", str(path), "HEAD")
        try:
            git(path, "checkout", version.tree, "--", PACKAGE)
            environment = _environment() | ONE_THREAD
            environment |= {
                "PYTHONPATH": os.pathsep.join([str(path), str(ROOT)]),
                "PYTENSOR_FLAGS": f"base_compiledir={cache_of(version)}",
            }
            yield Checkout(version, path, environment)
        finally:
            git(root, "worktree", "remove", "--force", str(path))


def cache_of(of: Version) -> Path:
    """A directory for what is compiled of a version; caches that were not used for long are deleted."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    caches = Path(home) / "pymc_austerity_golden"
    compilers = [sys.version, *(version(name) for name in ("pymc", "pytensor", "numba", "numpy"))]
    key = hashlib.sha256(repr([of.content, *compilers]).encode()).hexdigest()[:20]
    (caches / key).mkdir(parents=True, exist_ok=True)
    os.utime(caches / key)
    for other in caches.iterdir():
        if time.time() - other.stat().st_mtime > UNUSED:
            rmtree(other)
    return caches / key
