"""The ready-made indices: model files that come with the package, by name."""

from pathlib import Path

from mlci.base.errors import InputError
from mlci.base.files import atomic

DATA = Path(__file__).parent / "data"
DOCUMENTS = ("model_card.md", "report.html", "weights.R", "weights.csv", "weights_curves.csv")  # `unpack` may write


def ready_made() -> dict[str, Path]:
    """Return the model files that come with the package, by name.

    >>> sorted(ready_made())
    ['us2010', 'us2010-early']
    """
    return {path.stem: path for path in sorted(DATA.glob("*.safetensors"), key=lambda path: path.stem)}


def model_path(name: str | Path) -> Path:
    """Return the file of a model.

    Args:
        name: a file, a folder with one model file (a run of `mlci benchmark`), or the name of a ready-made index.

    >>> model_path("us2010").name
    'us2010.safetensors'
    """
    path, ready = Path(name), ready_made()
    if path.is_dir():
        found = sorted(path.glob("*.safetensors"))
        if len(found) != 1:
            raise InputError(f"{name}: holds {len(found)} model files (*.safetensors); name one of them.")
        return found[0]
    if path.exists() or str(name) not in ready:
        if not path.exists() and path.suffix != ".safetensors":
            raise InputError(f"{name}: no such model file; ready-made indices are {', '.join(ready)}.")
        return path
    return ready[str(name)]


def unpack(path: Path, card: str, folder: str | Path) -> list[Path]:
    """Write a model file and its card into a folder; for some ready-made indices also their weights and report.

    Args:
        path: of the model file.
        card: the output of `mlci.index.modelcard.model_card`.
        folder: created if it does not exist.

    Returns:
        The files, sorted by name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     [file.name for file in unpack(model_path("us2010-early"), "# Card", f"{place}/early")]
    ['model_card.md', 'us2010-early.safetensors']
    """
    import zipfile

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents, documents = {}, DATA / f"{path.stem}.zip"
    if path.parent == DATA and documents.exists():
        with zipfile.ZipFile(documents) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
    contents |= {"model_card.md": card.encode(), path.name: path.read_bytes()}
    for name, content in contents.items():
        with atomic(folder / name) as temporary:
            temporary.write_bytes(content)
    return sorted(folder / name for name in contents)


def judged(name: str) -> list[dict[str, str]]:
    """Return the performance of a ready-made index on its held-out test split.

    Args:
        name: of the index, or of a baseline evaluated on the same split.

    Returns:
        One row per outcome and measure.

    >>> judged("us2010")[0]["outcome"]
    'mortality'
    """
    import csv

    with open(DATA / "us2010.csv", newline="", encoding="utf-8") as file:
        return [row for row in csv.DictReader(file) if row["index"] == name]
