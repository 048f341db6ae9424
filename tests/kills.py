"""Kill a command, or ask it to stop, at a random moment; then run it again.

`CASES` lists the arguments of each command. After the signal, every file is complete or unchanged, and no process that
the command started is still running. The second run succeeds and leaves no private files.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

DATA = Path(__file__).parent / "data"
BEFORE = b"the old content"
PRIVATE = (".part", "mlci-scratch", ".checkpoint", ".tokens", ".fit")
PATIENCE = 300  # seconds within which the children of a killed command must end, even on a busy machine


@dataclass(frozen=True)
class Case:
    """The arguments of a command, the file that it overwrites, and the seconds within which it is killed."""

    words: tuple[str, ...]
    output: str = ""
    seconds: float = 5
    served: bool = False  # a server, which does not end by itself


# {c} a cohort, {s} its scores, {m} a table model, {d} a network, {a} admissions, {t} tables with their layout,
# {p} a cohort with present-on-admission flags.
CASES: dict[str, list[Case]] = {
    "demo": [Case(("demo", "-o", "demo", "--admissions", "1000"), seconds=15)],
    "cohort": [
        Case(("cohort", "synthetic", "3000", "-o", "out.parquet", "--as-mimic4", "raw"), "out.parquet"),
        Case(("cohort", "tables", "{t}", "--config", "{t}/layout.toml", "-o", "out.parquet"), "out.parquet"),
        Case(("cohort", "file", "{t}/visits.csv", "--icd-version", "10", "-o", "out.parquet"), "out.parquet"),
        Case(("cohort", "mimic3", str(DATA / "mimic3_demo"), "-o", "out.parquet"), "out.parquet"),
        Case(("cohort", "mimic4", str(DATA / "mimic4_demo"), "-o", "out.parquet"), "out.parquet"),
        Case(("cohort", "omop", str(DATA / "mimic4_demo_omop"), "-o", "out.parquet"), "out.parquet"),
        Case(("cohort", "nhds", str(DATA / "nhds2010" / "sample.txt.bz2"), "-o", "out.parquet"), "out.parquet"),
        Case(("cohort", "--describe", "{c}")),
    ],
    "indices": [Case(("indices", "{c}", "-o", "out.parquet"), "out.parquet")],
    "fit": [
        Case(("fit", "{c}", "-o", "out.safetensors"), "out.safetensors"),
        Case(("fit", "{c}", "-o", "out.safetensors", "--memory-map"), "out.safetensors"),
    ],
    "score": [
        Case(("score", "{m}", "{c}", "-o", "out.csv"), "out.csv"),
        Case(("score", "{d}", "{a}", "-o", "out.xlsx", "--icd-version", "10"), "out.xlsx"),
        Case(("score", "{m}", "{a}", "-o", "out.parquet", "--icd-version", "10"), "out.parquet"),
    ],
    "explain": [Case(("explain", "{m}", "{a}", "-o", "out.csv", "--icd-version", "10"), "out.csv")],
    "models": [Case(("models",))],
    "recalibrate": [
        Case(("recalibrate", "{m}", "{c}", "-o", "out.safetensors", "--page", "page.html"), "out.safetensors")
    ],
    "export": [
        Case(("export", "{m}", "-o", "out.csv"), "out.csv"),
        Case(("export", "{m}", "-o", "out.xlsx"), "out.xlsx"),
        Case(("export", "{m}", "-o", "out.sql"), "out.sql"),
    ],
    "evaluate": [Case(("evaluate", "{s}", "{c}", "--split", "all", "-o", "out.csv"), "out.csv")],
    "compare": [
        Case(("compare", "{c}", "{s}", "--by", "split", "--outcome", "mortality", "-o", "out.html"), "out.html")
    ],
    "curves": [Case(("curves", "{s}", "{c}", "--split", "all", "-o", "curves"), seconds=8)],
    "diagnose": [Case(("diagnose", "{s}", "{c}", "--split", "all", "-o", "diagnosis"), "diagnosis/diagnosis.json")],
    "benchmark": [
        Case(
            ("benchmark", "{c}", "-o", "runs", "--models", "charlson,elixhauser", "--seeds", "11", "--jobs", "2"),
            seconds=10,
        )
    ],
    "reproduce": [
        Case(("reproduce", "mimic4", str(DATA / "mimic4_demo"), "-o", "runs", "--models", "charlson"), seconds=12)
    ],
    "poa": [Case(("poa", "{p}", "-o", "out.csv", "--no-fit", "--resamples", "0"), "out.csv")],
    "report": [Case(("report", "{m}", "{c}", "-o", "out.html", "--resamples", "20"), "out.html", seconds=8)],
    "card": [
        Case(("card", "{m}", "{c}", "-o", "out.html"), "out.html"),
        Case(("card", "{m}", "{c}", "-o", "out.pdf"), "out.pdf"),
    ],
    "serve": [Case(("serve", "{m}", "--port", "0"), served=True)],
    "cite": [Case(("cite", "{m}"))],
}
ENDINGS = {".html": b"</html>", ".parquet": b"PAR1", ".png": b"IEND\xaeB`\x82", ".pdf": b"%%EOF", ".svg": b"</svg>"}


class LeftoverError(Exception):
    """A killed command left something behind; the message says what."""


def kill_and_repeat(case: Case, files: dict[str, str], workdir: Path, rng: Random, again: Callable[..., str]) -> bool:
    """Kill the command once, run it again, and return whether the first run had written its output."""
    words = [word.format(**files) for word in case.words]
    target = workdir / case.output
    if case.output:
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(BEFORE)
    number = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))
    printed = _run_and_signal(words, workdir, rng.random() * case.seconds, number)
    if "Traceback" in printed and number != signal.SIGKILL and "Exception ignored" not in printed:
        raise LeftoverError(f"{words[0]}: {printed[-300:]}")
    _wait_for_children(workdir, words[0])
    unchanged = bool(case.output) and target.read_bytes() == BEFORE
    for path in workdir.rglob("*"):
        if path.is_file() and not _private(path, workdir) and not (unchanged and path == target):
            _check_whole(path)
    if number != signal.SIGKILL:
        kept = (".checkpoint", ".tokens", ".fit")  # the next run resumes from these
        left = [path.name for path in _leftovers(workdir) if not path.name.endswith(kept)]
        if left and not any(path.parent.name.endswith(kept) for path in _leftovers(workdir)):
            raise LeftoverError(f"{words[0]}: left {left} when asked to stop")
    if words[0] == "cohort" and case.output and not unchanged:  # the first run wrote it; `cohort` asks for --force
        words.append("--force")
    printed = _run_and_signal(words, workdir, None, signal.SIGTERM) if case.served else again(*words)
    if left := [path.name for path in _leftovers(workdir)]:
        raise LeftoverError(f"{words[0]}: left {left} after the next run ({printed[-200:]})")
    return bool(case.output) and not unchanged


def _run_and_signal(words: list[str], workdir: Path, after: float | None, number: int) -> str:
    """Start a command, send it a signal after so many seconds, or once it prints its address; return its output."""
    with subprocess.Popen(
        [sys.executable, "-m", "mlci", *words],
        cwd=workdir,
        stdout=subprocess.DEVNULL if after is not None else subprocess.PIPE,
        stderr=subprocess.PIPE if after is not None else subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(workdir)},
    ) as child:
        if after is None:
            line = child.stdout.readline() if child.stdout else ""
            if "http://" not in line:
                raise LeftoverError(f"{words[0]}: does not start a second time: {line}")
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(after)
        child.send_signal(number)
        stdout, stderr = child.communicate()
    return f"{stdout or ''}{stderr or ''}"


def _wait_for_children(workdir: Path, name: str) -> None:
    """Wait until no process has `workdir` as its working folder."""
    deadline = time.monotonic() + PATIENCE
    while found := [entry for entry in Path("/proc").glob("[0-9]*/cwd") if _points_to(entry, workdir)]:
        if time.monotonic() > deadline:
            raise LeftoverError(f"{name}: {len(found)} processes are still running")
        time.sleep(0.1)


def _points_to(link: Path, workdir: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.realpath(link) == os.path.realpath(workdir) and link.parent.name != str(os.getpid())
    return False


def _private(path: Path, workdir: Path) -> bool:
    return any(word in part for part in path.relative_to(workdir).parts for word in PRIVATE)


def _leftovers(workdir: Path) -> list[Path]:
    return [path for path in workdir.rglob("*") if _private(path, workdir)]


def _check_whole(path: Path) -> None:
    """Raise an error if a file is incomplete."""
    data = path.read_bytes()
    if path.suffix == ".json":
        json.loads(data)
    elif path.suffix == ".safetensors":
        from safetensors.numpy import load

        load(data)
    elif path.suffix == ".xlsx":
        import zipfile

        if zipfile.ZipFile(path).testzip():
            raise LeftoverError(f"half of {path.name}")
    elif path.suffix in (".csv", ".md", ".sql", ".R", ".txt"):
        if data and not data.endswith(b"\n"):
            raise LeftoverError(f"half of {path.name}")
    elif path.suffix in ENDINGS and not data.rstrip(b"\n").endswith(ENDINGS[path.suffix]):
        raise LeftoverError(f"half of {path.name}")
