"""How a step is set up, as a dictionary that can be written as JSON, and as text."""

import textwrap
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

# Longer arrays are described by their shape.
_LONGEST = 20
_WIDTH = 100


def plain(value: Any) -> Any:
    """A value as JSON can hold it: objects by their names and fields, long arrays by their shapes."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, np.ndarray):
        if value.size > _LONGEST:
            return f"array of shape {value.shape}"
        return plain(value.tolist())
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if np.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if is_dataclass(value) and not isinstance(value, type):
        return {"name": type(value).__name__} | {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    return getattr(value, "__qualname__", type(value).__name__)  # a function, or an object of the user's


def text(configuration: Mapping[str, Any]) -> str:
    """A configuration in a few lines."""
    rest = dict(configuration)
    title = f"{rest.pop('step')}({', '.join(rest.pop('vars'))})"
    n_local, n_exact = rest.pop("n_local", None), rest.pop("n_exact", 0)
    parts = [] if n_local is None else [f"{n_local:,} local terms"]
    parts += [f"{n_exact:,} of them always read"] if n_exact else []
    settings = ", ".join(f"{name}={_shown(value)}" for name, value in rest.items() if value not in (None, {}))
    body = [", ".join(parts), settings]
    wrapper = textwrap.TextWrapper(
        _WIDTH, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False, break_long_words=False
    )
    return "\n".join([title, *(wrapper.fill(line) for line in body if line)])


def _shown(value: Any) -> str:
    if isinstance(value, Mapping) and "name" in value:
        given = [f"{k}={_shown(v)}" for k, v in value.items() if k != "name" and v is not None]
        return f"{value['name']}({', '.join(given)})"
    return repr(value)
