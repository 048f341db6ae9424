"""Score a folder of Parquet files in parts, so that several machines can share the work.

`parts_of` lists the parts, `score_part` scores one part as `score_file` scores a file, and `publishing` makes the files
of all parts appear together. A scheduler assigns the parts to machines (`mlci.spark.score_files`). Paths are those of
the machines, or URIs that `pyarrow.fs` understands.
"""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from mlci.base.errors import InputError
from mlci.base.files import scratch
from mlci.base.parquet import open_parquet
from mlci.base.tablefile import parquet_table
from mlci.codes.layout import find_layout
from mlci.codes.poa import ALL
from mlci.codes.streams import file_layout
from mlci.index.model import Model
from mlci.index.scoring import score_file
from mlci.index.tally import Tally

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

PART = 1 << 20  # admissions per part, in whole row groups
HIDDEN = ("_", ".")  # prefixes of file and folder names that are skipped
TEMPORARY, DONE = "_temporary", "_SUCCESS"


@dataclass(frozen=True)
class Part:
    """Some row groups of a Parquet file."""

    number: int
    path: str
    groups: tuple[int, ...]
    names: tuple[str, ...]  # of the columns
    filesystem: "FileSystem"
    unread: str = ""  # a warning on columns that look like codes by their names but are not read

    def __str__(self) -> str:
        return f"{self.path} (row groups from {self.groups[0]})" if self.groups else self.path


@dataclass(frozen=True)
class PartFolder:
    """A temporary folder for finished parts."""

    path: str
    filesystem: "FileSystem"


def parts_of(
    source: str, *, id: str | None = None, codes: str | Sequence[str] | None = None, poa: str = ALL
) -> list[Part]:
    """Divide Parquet files of one row per admission into parts that can be scored separately.

    Args:
        source: a file, or a folder with files at any depth.
        id: the column of admission identifiers, if its name is not recognised.
        codes: the column or columns of codes, if their names are not recognised.
        poa: which codes count, one of the names in `mlci.codes.poa`.

    Returns:
        The parts, at least one for each file. Files in another layout raise an `InputError`.

    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> with scratch() as folder:
    ...     visits = pa.table({"visit_id": [1, 2], "codes": [["I50.9", "N17.9"], ["Z37.0"]]})
    ...     pq.write_table(visits, folder / "visits.parquet")
    ...     [part.groups for part in parts_of(str(folder))]
    [(0,)]
    """
    filesystem, place = _located(source)
    found: list[Part] = []
    for path in _files(filesystem, place, source):
        with open_parquet(path, filesystem=filesystem) as file:
            schema, metadata = file.schema_arrow, file.metadata
        layout = find_layout(schema.names, path, id=id, codes=codes, poa=poa)
        if layout.form == "list" and not hasattr(schema.field(layout.codes[0]).type, "value_type"):
            table = parquet_table(path, path, filesystem=filesystem)  # strings: all codes of an admission, or one
            layout = file_layout(table, id=id, codes=codes, poa=poa)
        if layout.form == "long":
            raise InputError(
                f"{path}: has one row per code, not per admission; `mlci.spark.score` can read this layout."
            )
        groups: list[int] = []
        rows = 0
        for group in range(metadata.num_row_groups):
            groups.append(group)
            rows += metadata.row_group(group).num_rows
            if rows >= PART or group == metadata.num_row_groups - 1:
                found.append(Part(len(found), path, tuple(groups), tuple(schema.names), filesystem, layout.doubt))
                groups, rows = [], 0
        if not metadata.num_row_groups:
            found.append(Part(len(found), path, (), tuple(schema.names), filesystem, layout.doubt))
    return found


def score_part(model: Model, part: Part, folder: PartFolder, **options: Any) -> Tally:
    """Score one part, as `score_file` does a file.

    Args:
        model: an index.
        part: one of `parts_of`.
        folder: the result of `publishing`; the part becomes one file there. Scoring a part twice is harmless.
        **options: those of `score_file`.

    Returns:
        A tally with the warnings about the admissions.

    >>> import pyarrow as pa, pyarrow.parquet as pq
    >>> from mlci.index.estimator import load
    >>> with scratch() as place:
    ...     visits = pa.table({"visit_id": [1, 2], "codes": [["I50.9", "N17.9"], ["Z37.0"]]})
    ...     pq.write_table(visits, place / "visits.parquet")
    ...     with publishing(str(place / "scores")) as folder:
    ...         for part in parts_of(str(place / "visits.parquet")):
    ...             tally = score_part(load("us2010").model_, part, folder, icd_version=10)
    ...     tally.admissions, pq.read_table(place / "scores")["admission_id"].to_pylist()
    (2, [1, 2])
    """
    from pyarrow import fs

    table = parquet_table(part.path, str(part), groups=part.groups, filesystem=part.filesystem)
    name = f"part-{part.number:05}.parquet"
    if isinstance(folder.filesystem, fs.LocalFileSystem):
        return score_file(model, table, f"{folder.path}/{name}", **options)
    with scratch() as here:
        tally = score_file(model, table, here / name, **options)
        fs.copy_files(str(here / name), f"{folder.path}/{name}", destination_filesystem=folder.filesystem)
    return tally


@contextlib.contextmanager
def publishing(target: str) -> Iterator[PartFolder]:
    """Open an output folder whose files appear when the block ends without an error, followed by `_SUCCESS`.

    Args:
        target: a folder that does not exist, or is empty.

    Yields:
        The temporary folder to write to.

    >>> with scratch() as place:
    ...     with publishing(f"{place}/scores") as folder:
    ...         _ = Path(folder.path, "part-00000.parquet").write_text("...")
    ...     sorted(path.name for path in Path(place, "scores").iterdir())
    ['_SUCCESS', 'part-00000.parquet']
    """
    from pyarrow.fs import FileSelector, FileType

    filesystem, path = _located(target)
    there = filesystem.get_file_info(path).type
    inside = filesystem.get_file_info(FileSelector(path)) if there == FileType.Directory else []
    if inside or there not in (FileType.Directory, FileType.NotFound):
        raise InputError(f"{target}: exists already; name a folder that does not exist, or is empty.")
    temporary = f"{path}/{TEMPORARY}"
    filesystem.create_dir(temporary, recursive=True)
    try:
        yield PartFolder(temporary, filesystem)
        for file in filesystem.get_file_info(FileSelector(temporary)):
            filesystem.move(file.path, f"{path}/{file.base_name}")
        filesystem.open_output_stream(f"{path}/{DONE}").close()
    finally:
        filesystem.delete_dir(temporary)
        if there == FileType.NotFound and not filesystem.get_file_info(FileSelector(path)):
            filesystem.delete_dir(path)


def _located(place: str) -> tuple["FileSystem", str]:
    from pyarrow import fs

    if "://" in place:
        return fs.FileSystem.from_uri(place)
    return fs.LocalFileSystem(), str(Path(place).resolve())


def _files(filesystem: "FileSystem", place: str, source: str) -> list[str]:
    """Return the Parquet files of a folder, or the one file, in order."""
    from pyarrow.fs import FileSelector, FileType

    if filesystem.get_file_info(place).type == FileType.File:
        return [place]
    selector = FileSelector(place, allow_not_found=True, recursive=True)
    files = [info.path for info in filesystem.get_file_info(selector) if info.type == FileType.File]
    shown = [
        path
        for path in sorted(files)
        if not any(name.startswith(HIDDEN) for name in PurePosixPath(path).relative_to(place).parts)
    ]
    if not shown:
        raise InputError(f"{source}: contains no Parquet file.")
    return shown
