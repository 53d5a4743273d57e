"""The most anonymous memory of a script beyond what it has before, in a process of its own."""

import subprocess
import sys
import textwrap

# A script calls `peak` with what it measures; its arguments are a folder and a number of rows.
WATCH = """
import re, sys, threading

def anonymous():
    return 1024 * int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1])

def peak(run):
    most, over, before = [0], threading.Event(), anonymous()

    def watch():
        while not over.wait(0.002):
            most[0] = max(most[0], anonymous() - before)

    watcher = threading.Thread(target=watch)
    watcher.start()
    run()
    over.set()
    watcher.join()
    print(most[0])
"""


def peak_of(script, folder, n):
    """Bytes, for n rows."""
    file = folder / "peak.py"
    file.write_text(WATCH + textwrap.dedent(script))
    run = [sys.executable, "-W", "ignore", str(file), str(folder), str(n)]
    return int(subprocess.run(run, capture_output=True, text=True, check=True).stdout)
