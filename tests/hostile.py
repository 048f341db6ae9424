"""Damage or forge files at random: each function takes valid content and a random number generator."""

import bz2
import copy
import gzip
import io
import json
import re
import zipfile
from collections.abc import Callable
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mlci.base.tensors import digest, read_tensors, write_tensors

SECRET = "Zq7Miller"  # the content of cells; no message may contain it
NUMBERS = (0, -1, 2, 1.5, -0.0, 1e308, 10**30, float("nan"), float("inf"), True, None)
OTHERS = ("", "x", "\x00", "\ud7ff", "1", "odd", [], {}, [[]], {"a": None}, [0] * 3, ["x"] * 70_000)


def flipped(data: bytes, rng: Random) -> bytes:
    """Return the bytes with one to three bits flipped."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def truncated(data: bytes, rng: Random) -> bytes:
    return data[: rng.randrange(len(data))]


def spliced(data: bytes, rng: Random) -> bytes:
    """Return the bytes with a piece removed, doubled, or replaced by random bytes or zeros."""
    start = rng.randrange(len(data))
    end = min(len(data), start + rng.choice((1, 7, 64, 1000)))
    middle = rng.choice((b"", data[start:end] * 2, rng.randbytes(end - start), b"\x00" * (end - start)))
    return data[:start] + middle + data[end:]


def forged(value: object, rng: Random) -> object:
    """Return a JSON value in which one item at any depth is replaced, removed or doubled."""
    value = copy.deepcopy(value)
    items: list[tuple] = []

    def walk(parent: object) -> None:
        keys = list(parent) if isinstance(parent, dict) else range(min(len(parent), 50))  # type: ignore[arg-type]
        for key in keys:
            items.append((parent, key))
            if isinstance(parent[key], dict | list):  # type: ignore[index]
                walk(parent[key])  # type: ignore[index]

    walk(value)
    parent, key = rng.choice(items)
    change = rng.randrange(4)
    if change == 0 and isinstance(parent, dict):
        del parent[key]
    elif change == 1 and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[key]))
    else:
        parent[key] = rng.choice((*NUMBERS, *OTHERS))
    return value


def forged_model(path: str, target: str, rng: Random) -> None:
    """Write a model file with changed facts or weights and a checksum that matches them."""
    header, state = read_tensors(path, key="mlci", kind="a model file")
    facts = header["facts"]
    if rng.random() < 0.8:
        facts = forged(facts, rng)
    else:
        name = rng.choice(sorted(state))
        weights = state[name].copy()
        change = rng.choice(("huge", "nan", "shape", "type", "missing"))
        if change == "huge":
            weights = weights * np.array(3e30, weights.dtype)
        elif change == "nan":
            weights.flat[rng.randrange(weights.size)] = np.nan
        elif change == "shape":
            weights = weights.reshape(-1)[:-1]
        elif change == "type":
            weights = weights.astype(np.float16 if rng.random() < 0.5 else np.int32)
        state = {key: array for key, array in state.items() if key != name} | (
            {} if change == "missing" else {name: weights}
        )
    # NaN is not JSON, but a forged file may contain it
    text = json.dumps({"format": header["format"], "sha256": digest(facts, state), "facts": facts})
    try:
        write_tensors(target, state, key="mlci", facts=json.loads(text))
    except ValueError:
        from safetensors.numpy import save

        with open(target, "wb") as file:
            file.write(
                save({key: np.asarray(array, order="C") for key, array in state.items()}, metadata={"mlci": text})
            )


def altered_table(table: pa.Table, rng: Random) -> pa.Table:
    """Return a table with one column doubled, dropped, renamed, or of other values or type; or with other metadata."""
    position = rng.randrange(table.num_columns)
    name, n = table.column_names[position], table.num_rows
    kinds: list[Callable[[], object]] = [
        lambda: pa.array([SECRET] * n),
        lambda: pa.array([float("nan")] * n),
        lambda: pa.array([2**62] * n),
        lambda: pa.array([None] * n, pa.string()),
        lambda: pa.array([[SECRET, None]] * n),
        lambda: pa.array([{"a": 1}] * n),
        lambda: pa.array([b"\xff"] * n),
        lambda: table[name].take(pa.array([0] * n)),
        lambda: pa.array([True, None] * (n // 2) + [True] * (n % 2)),
        lambda: table[name].dictionary_encode() if not pa.types.is_list(table[name].type) else table[name],
    ]
    change = rng.randrange(6)
    if change == 0:
        return table.append_column(name, table[name])
    if change == 1:
        return table.drop_columns(name)
    if change == 2:
        return table.rename_columns(["renamed" if column == name else column for column in table.column_names])
    if change == 3 and table.schema.metadata:
        key, text = next(iter(table.schema.metadata.items()))
        return table.replace_schema_metadata({key: json.dumps(forged(json.loads(text), rng))})
    return table.set_column(position, name, rng.choice(kinds)())


def as_parquet(table: pa.Table) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, write_page_checksum=True)
    return file.getvalue()


def damaged_csv(text: str, rng: Random) -> bytes:
    """Return a CSV with a wrong cell, and sometimes doubled lines, another separator, encoding or flipped bits."""
    lines = text.split("\n")
    row = rng.randrange(len(lines))
    cells = lines[row].split(",")
    replacements = (
        '"',
        '"x',
        "\x00",
        "=cmd()",
        "-1",
        "9" * 400,
        "é" * 50,
        SECRET,
        "NaN",
        "1e999",
        "",
        ",",
        "\r",
        "\t",
        "'",
        " ",
    )
    cells[rng.randrange(len(cells))] = rng.choice(replacements)
    lines[row] = ",".join(cells)
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines)), rng.choice(lines))
    if rng.random() < 0.1:
        lines[0] = ",".join(lines[0].split(",")[:1] * 2)
    separator = rng.choice((",", ",", ",", ";", "\t", "|"))
    data = "\n".join(lines).replace(",", separator).encode(rng.choice(("utf-8", "utf-8", "utf-16", "utf-8-sig")))
    return flipped(data, rng) if rng.random() < 0.2 else data


def compressed(data: bytes, rng: Random) -> tuple[bytes, str]:
    """Return the bytes, perhaps compressed, perhaps damaged, and a file extension that may be wrong."""
    ending, pack = rng.choice(
        (("", bytes), ("", bytes), (".gz", gzip.compress), (".bz2", bz2.compress), (".gz", bytes))
    )
    data = pack(data)
    if rng.random() < 0.3:
        data = rng.choice((flipped, truncated, spliced))(data, rng)
    return data, ending


def as_workbook(text: str) -> bytes:
    """Return a CSV as a workbook with one sheet."""
    import xlsxwriter

    file = io.BytesIO()
    with xlsxwriter.Workbook(file, {"in_memory": True}) as book:
        sheet = book.add_worksheet()
        for row, line in enumerate(text.splitlines()):
            sheet.write_row(row, 0, line.split(","))
    return file.getvalue()


def damaged_workbook(data: bytes, rng: Random) -> bytes:
    """Return a workbook with damage in the archive, or in one of its parts, which is then compressed again."""
    damage = rng.choice((flipped, flipped, truncated, spliced))
    if rng.random() < 0.4:
        return damage(data, rng)
    file = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as new:
        chosen = rng.choice([part.filename for part in old.infolist()] + ["xl/worksheets/sheet1.xml"] * 10)
        for part in old.infolist():
            content = old.read(part)
            if part.filename == chosen:
                content = damage(content, rng) if rng.random() < 0.4 else _with_another_value(content, rng)
            if part.filename != chosen or rng.random() < 0.95:
                new.writestr(part.filename, content)
    return file.getvalue()


def _with_another_value(content: bytes, rng: Random) -> bytes:
    """Return XML with one attribute value or text replaced."""
    values = list(re.finditer(rb'(?<==")[^"]*(?=")|(?<=>)[^<]+(?=<)', content))
    if not values:
        return content
    value = rng.choice(values)
    replacements = (
        b"XFD1048576",
        b"A999999999999",
        b"-1",
        b"0",
        b"s",
        b"99999999",
        b"e",
        b"d",
        b"1e999",
        b"",
        b"&lt;",
        b"x" * 70_000,
    )
    return content[: value.start()] + rng.choice(replacements) + content[value.end() :]


def damaged_toml(text: str, rng: Random) -> str:
    """Return a config with a value out of range or of another type, or with an unexpected line."""
    lines = text.splitlines()
    row = rng.randrange(len(lines))
    replacements = (
        "-1",
        "0",
        "1e999",
        "nan",
        '"x"',
        "[]",
        f"[{'4, ' * 1000}4]",
        "true",
        "{}",
        "[[",
        "= =",
        "1" * 500,
        "\x00",
        "inf",
    )
    if "=" in lines[row] and rng.random() < 0.8:
        lines[row] = lines[row].split("=")[0] + "= " + rng.choice(replacements)
    else:
        lines.insert(row, rng.choice((*replacements, "[unknown]", "unknown = 1", "[tokens.depths]", "a.b.c = 1")))
    return "\n".join(lines)
