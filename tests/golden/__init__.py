"""Compare two commits bit for bit: what the same seeds draw on each, and how long it takes.

For changes that should change nothing a user sees: files that move, names inside, work done once. From the
root of the repository::

    python -m tests.golden main HEAD          # all cases; exit code 1 if any differs
    python -m tests.golden HEAD WORKTREE      # the files as they are now, committed or not; `.` is the same
    python -m tests.golden main HEAD --only 'tuna*' scir_beta
    python -m tests.golden main HEAD --allow tuna_poisson="tighter constants"
    python -m tests.golden main HEAD --bench  # paired ratios of times instead

Cases (`cases`) are those of the present tree on both commits, and use public names only, so that they run on
either side of a reorganisation. A name that one of the commits does not have makes its cases fail there.

The first run on a commit compiles all engines, some minutes; they are kept in the user's cache directory by
the content of the package (`worktrees`), never shared by two versions of it.

Where draws change on purpose, `python -m tests.golden.statistical` compares their distributions.
"""
