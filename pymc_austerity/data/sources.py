"""Where rows come from: arrays of NumPy and Zarr by name, files that pyarrow reads, and streams of Arrow.

A source tells its columns before anything is read, and gives its rows in order, in chunks of one length.
Reading may begin at any row, but not of a stream. What is damaged is named by file, part and rows.
"""

import re
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pymc_austerity.data.files import place_of_map, require_size
from pymc_austerity.extras import imported

Dtype = np.dtype[Any]
# Neighbouring rows of some columns.
Block = dict[str, NDArray[Any]]

# What decoders raise on damaged bytes: pyarrow's errors are OSError, ValueError or RuntimeError, too.
_DAMAGED = (OSError, RuntimeError, ValueError, EOFError, zlib.error)
_FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc", ".csv": "csv"}
# With these bytes a file of Arrow begins, unless it is a stream, which a dataset does not read.
_MAGIC = b"ARROW1"
# Rows that become arrays of NumPy at once: text takes much memory there.
_BATCH = 16_384
# Little ahead and in this thread: memory stays small, and messages of CSV tell the row.
_SCAN = {"batch_size": _BATCH, "batch_readahead": 0, "fragment_readahead": 0, "use_threads": False}
_RESTORE = "Restore it, then call again; RowStore.write with resume=True goes on from the last whole chunk."
_OF_URIS = (
    "URIs are those of pyarrow.fs.FileSystem.from_uri: file, s3, gs, abfs, hdfs, or fsspec+ before another "
    "scheme. Of any filesystem with credentials of its own: "
    "pyarrow.dataset.dataset(path, filesystem=..., partitioning='hive') as the source."
)
_TYPES_OF_CSV = (
    "The types of columns are those of the first rows of a file. Other types are given by "
    'pyarrow.dataset.dataset(path, schema=..., format="csv") as the source.'
)


class Column(NamedTuple):
    """A column of a table, or an array."""

    kind: Literal["numbers", "text", "other"]
    dtype: Dtype  # of its numbers, in the byte order of this machine; float64 for anything else
    shape: tuple[int, ...]  # of one row
    described: str  # its type in the words of the source


# Rows that can be read in order.
type Source = DictSource | ArrowSource | StreamSource


def opened(source: Any) -> Source:
    """Find out what a source is; it is given as in `RowStore.write`."""
    if isinstance(source, Mapping):
        return DictSource(source)
    if hasattr(source, "get_fragments"):
        return _of_dataset(source)
    if hasattr(source, "__arrow_c_stream__") or hasattr(source, "to_reader"):
        return _of_stream(source)
    paths = [source] if isinstance(source, str | Path) else source
    if isinstance(paths, Sequence) and paths and all(isinstance(path, str | Path) for path in paths):
        if paths[0] is source and (Path(source).suffix == ".zarr" or Path(source, "zarr.json").exists()):
            return DictSource(_arrays_of_group(source))
        return _of_paths(paths)
    raise ValueError(
        "The source must be a dict of names to arrays, a path or URI (.zarr, .parquet, .arrow, .feather, "
        ".csv or a folder), a list of them, a dataset of pyarrow, or a table or stream of Arrow (of pyarrow, "
        f"pandas, polars, duckdb), got {type(source).__name__}."
    )


class DictSource:
    """Rows of arrays of equal lengths, by name: of NumPy (in memory or mapped) or Zarr."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        if not arrays:
            raise ValueError("The source has no arrays.")
        self._readers = {name: Reader(name, array) for name, array in arrays.items()}
        lengths = {name: reader.shape[0] for name, reader in self._readers.items()}
        require_equal_lengths(lengths)
        self.n_rows = next(iter(lengths.values()))
        self.columns = {name: _column(reader.dtype, reader.shape) for name, reader in self._readers.items()}
        # What has to be the same for an interrupted writing to go on, for JSON.
        self.described: dict[str, Any] = {
            "arrays": {name: [list(r.shape), str(r.dtype)] for name, r in self._readers.items()}
        }

    def blocks(self, names: Sequence[str], first_row: int, length: int) -> Iterator[Block]:
        """Some columns from a row on, in blocks of one length; the last may be shorter."""
        streams = [regrouped(self._readers[name].pieces(first_row, length), length) for name in names]
        for parts in zip(*streams, strict=True):
            yield {name: rows for part in parts for name, rows in part.items()}


def require_equal_lengths(lengths: Mapping[str, int]) -> None:
    """Refuse arrays that differ in their numbers of rows, by a `ValueError` that names them."""
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name!r} {length:,}" for name, length in lengths.items())
        raise ValueError(f"Arrays must have equally many rows, got {told}.")


class Reader:
    """An array of NumPy (in memory or mapped) or Zarr that is read in pieces.

    One of Zarr is read by whole chunks, so that each is decoded once.
    """

    def __init__(self, name: Any, array: Any) -> None:
        if not isinstance(name, str):
            raise ValueError(f"Names of arrays must be text, got {name!r}.")
        zarr = sys.modules.get("zarr")
        self._is_zarr = zarr is not None and isinstance(array, zarr.Array)
        if not self._is_zarr and not isinstance(array, np.ndarray):
            raise ValueError(
                f"{name!r} must be an array of NumPy or Zarr, got {type(array).__name__}. "
                "Other arrays: np.asarray(...)."
            )
        self.shape, self.dtype = tuple(array.shape), np.dtype(array.dtype)
        if not self.shape:
            raise ValueError(f"{name!r} is a single number and has no rows. Leave it out of the source.")
        self._name, self._array, self._file = name, array, place_of_map(array)
        file, self._chunk = "" if self._file is None else self._file[0], 1  # rows that are read as a whole
        if self._is_zarr:
            # A chunk that is not there would be read as the fill value.
            self._array = array.with_config({"read_missing_chunks": False})
            file, self._chunk = array.store_path, int(array.chunks[0])
        self._where = f"{file}, array {name!r}"

    def pieces(self, first_row: int, length: int) -> Iterator[Block]:
        """Rows from a row on: so many chunks as make up the length, at least one."""
        step = self._chunk * max(1, length // self._chunk)
        for start in range(first_row - first_row % self._chunk, self.shape[0], step):
            stop = min(start + step, self.shape[0])
            with readable(self._where + self._told(start, stop), start, stop):
                rows = self._rows(start, stop)
            yield {self._name: rows[max(0, first_row - start) :]}

    def _rows(self, start: int, stop: int) -> NDArray[Any]:
        if self._file is not None:
            require_size(self._file[0], self._file[2])
        if not self._is_zarr:
            return np.asarray(self._array[start:stop])
        not_found = imported("zarr.errors", "Files of Zarr", "store").ChunkNotFoundError
        try:
            return np.asarray(self._array[start:stop])
        except not_found as error:
            raise UnreadableError(
                "it is not there. Zarr also leaves out chunks that hold the fill value only: if that is so, "
                "write the array with config={'write_empty_chunks': True}"
            ) from error

    def _told(self, start: int, stop: int) -> str:
        """The chunks of Zarr, for messages."""
        first, last = start // self._chunk, (stop - 1) // self._chunk
        if not self._is_zarr:
            return ""
        return f", chunk {first}" if first == last else f", chunks {first} to {last}"


def _column(dtype: Dtype, shape: tuple[int, ...]) -> Column:
    """The column that is an array of this dtype and shape."""
    if dtype.kind in "biuf":
        return Column("numbers", dtype.newbyteorder("="), shape[1:], str(dtype))
    # Objects may be text: that is found out when they are read.
    is_text = dtype.kind in "OUT" and len(shape) == 1
    return Column("text" if is_text else "other", np.dtype(np.float64), shape[1:], str(dtype))


def _arrays_of_group(path: str | Path) -> dict[str, Any]:
    """The arrays of a group of Zarr, without those of groups within."""
    zarr = imported("zarr", "Files of Zarr", "store")
    if "://" not in str(path) and not Path(path).exists():
        raise FileNotFoundError(f"There is no {path}.")
    try:
        group = zarr.open_group(str(path), mode="r")
        return dict(sorted(group.arrays()))
    except (OSError, ValueError, KeyError) as error:
        raise UnreadableError(
            f"{path} cannot be read as a group of Zarr: {error}. Give a single array as "
            "{'X': zarr.open_array(path, mode='r')}."
        ) from error


# Tables: files of Parquet, Arrow and CSV, and streams of Arrow ---------------------------------------


class Part(NamedTuple):
    """A part of a table that is read by itself: a row group of Parquet, or any other file as a whole."""

    fragment: Any  # of pyarrow.dataset
    where: str  # file and row group, as messages tell them
    start: int  # its first row in the whole source
    stop: int
    size: int  # bytes of its file when it was opened; 0 if there is none on this machine
    types: dict[str, Any]  # of its columns, before they become those of all parts


class ArrowSource:
    """Rows of a table that `pyarrow.dataset` reads, one part after the other; fragments have one schema."""

    def __init__(self, fragments: Sequence[Any], schema: Any) -> None:
        self._schema, self._parts = schema, _parts(fragments)
        self.n_rows = self._parts[-1].stop if self._parts else 0
        self.columns = {field.name: _column_of_arrow(field.type) for field in schema}
        self.described = {
            "parts": [[Path(part.where).name, part.stop - part.start] for part in self._parts],
            "columns": {name: column.described for name, column in sorted(self.columns.items())},
        }

    def blocks(self, names: Sequence[str], first_row: int, length: int) -> Iterator[Block]:
        """Blocks of `length` rows of named columns; `UnreadableError` if a part of a file is damaged."""
        return regrouped(self._blocks(names, first_row), length)

    def _blocks(self, names: Sequence[str], first_row: int) -> Iterator[Block]:
        for part in self._parts:
            start = part.start
            for batch in self._batches(part, names) if part.stop > first_row else ():
                yield from _blocks_of(batch, self.columns, names, start, first_row)
                start += batch.num_rows

    def _batches(self, part: Part, names: Sequence[str]) -> Iterator[Any]:
        """All rows of a part, in pieces. A row group is decoded as a whole."""
        start, batches = part.start, None
        while start < part.stop:
            with readable(part.where, start, part.stop, self._remedy(part, names)):
                if part.size:
                    # Reading from the map of a file that was cut would end the program.
                    require_size(Path(part.fragment.path), part.size)
                batches = batches or part.fragment.to_batches(
                    schema=self._schema, columns=list(names), **_SCAN
                )
                batch = next(batches, None)
                if batch is None:
                    raise EOFError("it ends early")
            yield batch
            start += batch.num_rows

    def _remedy(self, part: Part, names: Sequence[str]) -> str:
        """What can be done if a part cannot be read: columns of another type than that of all may not fit."""
        if part.where.endswith(".csv"):
            return _TYPES_OF_CSV
        for name in names:
            wanted, there = self._schema.field(name).type, part.types.get(name)
            if there not in (None, wanted):
                return (
                    f"Column {name!r} is {there} there, and {wanted} in all files together: write the files "
                    "with one type."
                )
        return _RESTORE


def _parts(fragments: Sequence[Any]) -> list[Part]:
    parts: list[Part] = []
    for fragment in fragments:
        path = getattr(fragment, "path", "The table")
        is_local = getattr(getattr(fragment, "filesystem", None), "type_name", None) == "local"
        size = Path(path).stat().st_size if is_local and Path(path).is_file() else 0
        with readable(path):
            schema = fragment.physical_schema
            if hasattr(fragment, "split_by_row_group"):
                groups = [(group, group.row_groups[0]) for group in fragment.split_by_row_group()]
                pieces = [(one, f"{path}, row group {group.id}", group.num_rows) for one, group in groups]
            else:
                pieces = [(fragment, path, fragment.count_rows())]
        types = {field.name: field.type for field in _plain(schema)}
        for piece, where, n_rows in pieces:
            start = parts[-1].stop if parts else 0
            parts.append(Part(piece, where, start, start + n_rows, size, types))
    return parts


class StreamSource:
    """Rows that come once, in order: `read` gives batches of named columns. At the end they are `n_rows`."""

    def __init__(self, schema: Any, read: Callable[[list[str]], Any]) -> None:
        self._read, self.n_rows = read, 0  # so many have come
        self.columns = {field.name: _column_of_arrow(field.type) for field in _plain(schema)}
        self.described: dict[str, Any] = {}

    def blocks(self, names: Sequence[str], first_row: int, length: int) -> Iterator[Block]:
        """Blocks of `length` rows of named columns, from the first one on."""
        return regrouped(self._blocks(names), length)

    def _blocks(self, names: Sequence[str]) -> Iterator[Block]:
        batches = iter(self._read(list(names)))
        while True:
            with readable(f"The source from row {self.n_rows:,} on", remedy="Write again from a new one."):
                batch = next(batches, None)
            if batch is None:
                return
            yield from _blocks_of(batch, self.columns, names, self.n_rows)
            self.n_rows += batch.num_rows


def _blocks_of(
    batch: Any, columns: Mapping[str, Column], names: Sequence[str], start: int, first_row: int = 0
) -> Iterator[Block]:
    """Rows of a batch that begins with the row `start`, from `first_row` on."""
    for offset in range(max(0, first_row - start), batch.num_rows, _BATCH):
        rows = batch.slice(offset, _BATCH)
        yield {name: _values(rows.column(name), columns[name], name, start + offset) for name in names}


def _of_dataset(dataset: Any) -> ArrowSource | StreamSource:
    """The rows of a `pyarrow.dataset.Dataset`."""
    try:
        fragments = list(dataset.get_fragments())
    except ValueError:  # it is filtered: nobody knows how many rows are left
        return StreamSource(dataset.schema, lambda names: dataset.scanner(names, **_SCAN).to_reader())
    return ArrowSource(fragments, _plain(dataset.schema))


def _of_stream(source: Any) -> StreamSource:
    """The rows of a scanner of pyarrow, or of what gives a stream by Arrow's PyCapsule interface."""
    reader = source.to_reader() if hasattr(source, "to_reader") else source
    if not isinstance(reader, _arrow().RecordBatchReader):
        with readable(f"The {type(source).__name__}", remedy="Give a table with names of columns."):
            reader = _arrow().RecordBatchReader.from_stream(reader)
    return StreamSource(reader.schema, lambda _: reader)


def _located(given: str | Path) -> tuple[Any, str]:
    """The filesystem of pyarrow for a path or URI, and the path there."""
    system, path = None, str(Path(given).absolute())
    if "://" in str(given):
        system, path = _arrow("fs").FileSystem.from_uri(str(given))
    if system is None or system.type_name == "local":
        # Mapped, because a batch that is not compressed is held as a whole otherwise.
        system = _arrow("fs").LocalFileSystem(use_mmap=True)
    return system, path


def _of_paths(given: Sequence[str | Path]) -> ArrowSource | StreamSource:
    """The rows of files of one format, or of one folder, whose folders such as `year=2024` make columns."""
    uri = any("://" in str(one) for one in given)
    # There may be a password in it.
    told = [re.sub("(?<=://)[^/@]*:[^/]*@|[?].*", "", str(one)) if uri else str(one) for one in given]
    remedy = _OF_URIS if uri else _RESTORE
    with readable(told[0], remedy=remedy):
        places = [_located(one) for one in given]
        found = [place.get_file_info(path) for place, path in places]
    system, kinds = places[0][0], _arrow("fs").FileType
    for one, (place, _), info in zip(told, places, found, strict=True):
        if info.type == kinds.NotFound:
            raise FileNotFoundError(f"There is no {one}.")
        if not place.equals(system):
            raise ValueError(f"{one} and {told[0]} are in different filesystems. Give files of one.")
    if len(found) > 1 or found[0].type != kinds.Directory:
        return _of_files(system, [PurePosixPath(info.path) for info in found])
    folder = PurePosixPath(found[0].path)
    with readable(told[0], remedy=remedy):
        within = system.get_file_info(_arrow("fs").FileSelector(str(folder), recursive=True))
    files = sorted(PurePosixPath(info.path) for info in within if info.type == kinds.File)
    # Without those that a dot or a line begins.
    files = [file for file in files if not any(part[0] in "._" for part in file.relative_to(folder).parts)]
    files = [file for file in files if file.suffix in _FORMATS]
    if not files:
        raise ValueError(f"{told[0]} has no file that ends in {', '.join(_FORMATS)}.")
    return _of_files(system, files, folder)


def _of_files(
    system: Any, paths: Sequence[PurePosixPath], folder: PurePosixPath | None = None
) -> ArrowSource | StreamSource:
    """The rows of files of one format; folders within `folder` such as `year=2024` make columns."""
    for path in paths:
        if path.suffix not in _FORMATS:
            hint = " Give {'X': np.load(path, mmap_mode='r')}." if path.suffix == ".npy" else ""
            raise ValueError(f"{path} is none of .zarr, {', '.join(_FORMATS)}.{hint}")
        if _FORMATS[path.suffix] != _FORMATS[paths[0].suffix]:
            raise ValueError(f"{path} and {paths[0]} differ in format. Give a list of files of one format.")
    file_format = _FORMATS[paths[0].suffix]
    if len(paths) == 1 and file_format == "ipc":
        with readable(str(paths[0])):
            file = system.open_input_file(str(paths[0]))
            if file.read(len(_MAGIC)) != _MAGIC:
                file.seek(0)
                return _of_stream(_arrow("ipc").open_stream(file))
    if file_format == "parquet":
        checked = _arrow("dataset").ParquetFragmentScanOptions(page_checksum_verification=True)
        file_format = _arrow("dataset").ParquetFileFormat(default_fragment_scan_options=checked)
    with readable(str(paths[0])):
        dataset = _arrow("dataset").dataset(
            [str(path) for path in paths], format=file_format, filesystem=system,
            partitioning=folder and "hive", partition_base_dir=folder and str(folder),
        )  # fmt: skip
    fragments = list(dataset.get_fragments())
    return ArrowSource(fragments, _schema_of_all(fragments, dataset))


def _schema_of_all(fragments: Sequence[Any], dataset: Any) -> Any:
    """Columns of all files, and of the folders they are in; numbers in a type that holds those of all."""
    schema: Any = None
    for fragment in fragments:
        with readable(fragment.path):
            found = _plain(fragment.physical_schema)
        schema = schema or found
        if odd := sorted(set(schema.names) ^ set(found.names)):
            told = ", ".join(map(repr, odd))
            raise ValueError(
                f"{fragment.path} has other columns than the files before it: {told} are not in all."
            )
        try:
            schema = _arrow().unify_schemas([schema, found], promote_options="permissive")
        except _arrow().ArrowTypeError as error:
            raise ValueError(f"{fragment.path} does not suit the files before it: {error}.") from error
    for field in dataset.schema:
        schema = schema if field.name in schema.names else schema.append(field)
    return schema


def _plain(schema: Any) -> Any:
    """A schema without dictionaries: their values are read."""
    if len(set(schema.names)) < len(schema.names):
        twice = sorted({name for name in schema.names if schema.names.count(name) > 1})
        raise ValueError(f"Several columns are called {', '.join(map(repr, twice))}.")
    is_dictionary = _arrow().types.is_dictionary
    return _arrow().schema([(f.name, f.type.value_type if is_dictionary(f.type) else f.type) for f in schema])


def _column_of_arrow(arrow_type: Any) -> Column:
    types, described = _arrow().types, str(arrow_type)
    shape: tuple[int, ...] = ()
    while types.is_fixed_size_list(arrow_type):
        shape, arrow_type = (*shape, arrow_type.list_size), arrow_type.value_type
    arrow_type = _arrow().float64() if types.is_decimal(arrow_type) else arrow_type
    if types.is_boolean(arrow_type) or types.is_integer(arrow_type) or types.is_floating(arrow_type):
        return Column("numbers", np.dtype(arrow_type.to_pandas_dtype()), shape, described)
    is_text = str(arrow_type) in ("string", "large_string", "string_view") and not shape
    return Column("text" if is_text else "other", np.dtype(np.float64), shape, described)


def _values(array: Any, column: Column, name: str, first_row: int) -> NDArray[Any]:
    """The rows of a column; missing floating-point numbers are NaN, missing text is None."""
    types = _arrow().types
    if column.shape:
        _require_none_missing(array, name, first_row, 1)
    for _ in column.shape:
        array = array.flatten()
    if column.kind == "numbers" and column.dtype.kind != "f":
        _require_none_missing(array, name, first_row, int(np.prod(column.shape)))
    if types.is_decimal(array.type):
        array = array.cast("float64")
    elif column.kind == "text" and types.is_dictionary(array.type):
        # pyarrow does not decode dictionaries of the views of text that polars has.
        array = array.from_arrays(array.indices, array.dictionary.cast("large_string"))
    values: NDArray[Any] = array.to_numpy(zero_copy_only=False)
    return values.reshape(-1, *column.shape)


def _require_none_missing(array: Any, name: str, first_row: int, per_row: int) -> None:
    if array.null_count:
        missing = int(np.argmax(array.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(
            f"Row {first_row + missing // per_row:,} of column {name!r} is missing. Leave such rows out, or "
            "store floating-point numbers, in which NaN stands for it."
        )


def _arrow(module: str = "") -> Any:
    """pyarrow, or a module of it."""
    return imported(f"pyarrow.{module}".rstrip("."), "Tables and files of Parquet, Arrow and CSV", "store")


# Files that may be damaged, and chunks of one length -----------------------------------------------


class UnreadableError(OSError):
    """A part of the source cannot be read: what was written before it is kept for `resume=True`."""


@contextmanager
def readable(where: str, first: int = 0, stop: int = 0, remedy: str = _RESTORE) -> Iterator[None]:
    """Name the file, its part and its rows if what is read within is damaged, by an `UnreadableError`.

    Rows of the source are from `first` to before `stop`; none are told if these are equal.
    """
    try:
        yield
    except _DAMAGED as error:
        rows = f" (rows {first:,} to {stop - 1:,})" if stop > first else ""
        raise UnreadableError(f"{where}{rows} cannot be read: {str(error).rstrip('.')}. {remedy}") from error


def regrouped(blocks: Iterator[Block], length: int) -> Iterator[Block]:
    """Rows that come in blocks of any length, in blocks of one length; the last may be shorter."""
    held: list[Block] = []
    n_held = 0
    for block in blocks:
        start, n_rows = 0, len(next(iter(block.values())))
        while start < n_rows:
            stop = min(n_rows, start + length - n_held)
            held.append({name: rows[start:stop] for name, rows in block.items()})
            n_held += stop - start
            start = stop
            if n_held == length:
                yield _joined(held)
                held, n_held = [], 0
    if held:
        yield _joined(held)


def _joined(held: list[Block]) -> Block:
    if len(held) == 1:
        return held[0]
    return {name: np.concatenate([block[name] for block in held]) for name in held[0]}
