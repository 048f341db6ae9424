"""The ready-made indices: model files that come with the package, by name."""

from pathlib import Path

from mlci.base.errors import InputError
from mlci.base.files import atomic

DATA = Path(__file__).parent / "data"
PAPERS = ("model_card.md", "report.html", "weights.R", "weights.csv", "weights_curves.csv")  # that `unpack` may write


def ready_made() -> dict[str, Path]:
    """Return the model files that come with the package, by name.

    >>> sorted(ready_made())
    ['us2010', 'us2010-early']
    """
    return {path.stem: path for path in sorted(DATA.glob("*.safetensors"), key=lambda path: path.stem)}


def model_path(name: str | Path) -> Path:
    """Return the file of a model.

    Args:
        name: a file, a folder with one model file in it (a run of `mlci benchmark`), or the name of a ready-made one.

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
            raise InputError(f"{name}: no such model file; ready-made are {', '.join(ready)}.")
        return path
    return ready[str(name)]


def unpack(path: Path, card: str, folder: str | Path) -> list[Path]:
    """Write a model file, its card and, for a ready-made index that has them, its weights and report into a folder.

    Args:
        path: of the model file.
        card: as `mlci.index.modelcard.model_card` writes it.
        folder: made where there is none.

    Returns:
        The files, in order of name.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     [file.name for file in unpack(model_path("us2010-early"), "# Card", f"{place}/early")]
    ['model_card.md', 'us2010-early.safetensors']
    """
    import zipfile

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    contents, papers = {}, DATA / f"{path.stem}.zip"
    if path.parent == DATA and papers.exists():
        with zipfile.ZipFile(papers) as archive:
            contents = {name: archive.read(name) for name in archive.namelist()}
    contents |= {"model_card.md": card.encode(), path.name: path.read_bytes()}
    for name, content in contents.items():
        with atomic(folder / name) as temporary:
            temporary.write_bytes(content)
    return sorted(folder / name for name in contents)


def judged(name: str) -> list[dict[str, str]]:
    """Return how a ready-made index did on the test split that its script kept apart.

    Args:
        name: of the index, or of a rival that was judged beside it.

    Returns:
        One row per outcome and measure.

    >>> judged("us2010")[0]["outcome"]
    'mortality'
    """
    import csv

    with open(DATA / "us2010.csv", newline="") as file:
        return [row for row in csv.DictReader(file) if row["index"] == name]
