"""Write the public names of the package, with signatures, to a file: `python -m tests.public_names`.

Annotations are left out: they are for readers and type checkers, and nobody's program depends on them.
"""

import importlib
import inspect
import re
from pathlib import Path

ROOMS = [
    "acceptance", "design", "diagnostics", "distributions", "model", "plots", "proposals", "report",
    "step_methods", "testing",
]  # fmt: skip
FILE = Path(__file__).with_name("public_names.txt")
MODULES = ["", *(f".{room}" for room in ROOMS)]


def listing():
    """All public names, one a line, as text."""
    lines = []
    for module in MODULES:
        namespace = importlib.import_module(f"pymc_austerity{module}")
        lines += ["", f"# {namespace.__name__}"]
        for name in sorted(namespace.__all__):
            lines += described(name, getattr(namespace, name))
    return "\n".join(lines[1:]) + "\n"


def described(name, thing):
    """Lines on a public object; on a class also those of its methods and properties."""
    if inspect.ismodule(thing):
        return [f"module {name}"]
    if inspect.isclass(thing):
        members = {key: value for cls in reversed(own_classes(thing)) for key, value in vars(cls).items()}
        lines = [f"class {name}{signature(thing)}"]
        for key in sorted(members):
            if not key.startswith("_") and key in getattr(thing, "_shown", members):
                lines += [f"    {line}" for line in described(key, members[key])]
        return lines
    if isinstance(thing, staticmethod | classmethod):
        thing = thing.__func__
    if callable(thing):
        return [f"{name}{signature(thing)}"]
    return [name]


def own_classes(cls):
    """The class and those of its bases that this package defines, in the order of resolution."""
    return [base for base in cls.__mro__ if base.__module__.startswith("pymc_austerity")]


def signature(thing):
    """Parameters with their defaults, as text."""
    try:
        found = inspect.signature(thing)
    except ValueError:  # of an exception, or of a protocol
        return ""
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    text = str(found.replace(parameters=plain, return_annotation=inspect.Signature.empty))
    return re.sub(r" at 0x[0-9a-f]+", "", text)  # of functions that are defaults


if __name__ == "__main__":
    FILE.write_text(listing())
