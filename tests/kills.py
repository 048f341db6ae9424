"""Commands that are killed, or told to stop, at some moment, and are then given again.

`CASES` names what each command is run with. What must hold: every file is whole or as it was; nothing else that a
command started goes on; given again, the command succeeds, and nothing private is left.
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
BEFORE = b"what was there"
PRIVATE = (".part", "mlci-scratch", ".checkpoint", ".tokens", ".fit")
PATIENCE = 300  # seconds for what a killed command started to end, on a busy machine


@dataclass(frozen=True)
class Case:
    """Words of a command, the file that is there before it, and the seconds within which it is killed."""

    words: tuple[str, ...]
    output: str = ""
    seconds: float = 5
    served: bool = False  # a command that does not end


# {c} a cohort, {s} its scores, {m} a table model, {d} a network, {a} admissions, {t} tables with their layout.
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
ENDS = {".html": b"</html>", ".parquet": b"PAR1", ".png": b"IEND\xaeB`\x82", ".pdf": b"%%EOF", ".svg": b"</svg>"}


class Left(Exception):
    """What a killed command left behind, in words."""


def killed(case: Case, files: dict[str, str], place: Path, rng: Random, again: Callable[..., str]) -> bool:
    """Kill the command once and run it again; whether it was over before, or wrote its output all the same."""
    words = [word.format(**files) for word in case.words]
    target = place / case.output
    if case.output:
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(BEFORE)
    number = rng.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM, signal.SIGHUP))
    said = _stopped(words, place, rng.random() * case.seconds, number)
    if "Traceback" in said and number != signal.SIGKILL and "Exception ignored" not in said:
        raise Left(f"{words[0]}: {said[-300:]}")
    _nobody_goes_on(place, words[0])
    unchanged = bool(case.output) and target.read_bytes() == BEFORE
    for path in place.rglob("*"):
        if path.is_file() and not _private(path, place) and not (unchanged and path == target):
            _check_whole(path)
    if number != signal.SIGKILL:
        kept = (".checkpoint", ".tokens", ".fit")  # from which the command goes on
        left = [path.name for path in _leftovers(place) if not path.name.endswith(kept)]
        if left and not any(path.parent.name.endswith(kept) for path in _leftovers(place)):
            raise Left(f"{words[0]}: left {left} when told to stop")
    if words[0] == "cohort" and case.output and not unchanged:  # it was written whole: never overwritten unasked
        words.append("--force")
    said = _stopped(words, place, None, signal.SIGTERM) if case.served else again(*words)
    if left := [path.name for path in _leftovers(place)]:
        raise Left(f"{words[0]}: left {left} after the next run ({said[-200:]})")
    return bool(case.output) and not unchanged


def _stopped(words: list[str], place: Path, after: float | None, number: int) -> str:
    """Start a command and send it a signal after so many seconds, or when it says its address; what it said."""
    with subprocess.Popen(
        [sys.executable, "-m", "mlci", *words],
        cwd=place,
        stdout=subprocess.DEVNULL if after is not None else subprocess.PIPE,
        stderr=subprocess.PIPE if after is not None else subprocess.STDOUT,
        text=True,
        env={**os.environ, "TMPDIR": str(place)},
    ) as child:
        if after is None:
            line = child.stdout.readline() if child.stdout else ""
            if "http://" not in line:
                raise Left(f"{words[0]}: does not start again: {line}")
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(after)
        child.send_signal(number)
        said, more = child.communicate()
    return f"{said or ''}{more or ''}"


def _nobody_goes_on(place: Path, name: str) -> None:
    """Wait until no process has its working folder here."""
    deadline = time.monotonic() + PATIENCE
    while found := [entry for entry in Path("/proc").glob("[0-9]*/cwd") if _leads_to(entry, place)]:
        if time.monotonic() > deadline:
            raise Left(f"{name}: {len(found)} processes go on")
        time.sleep(0.1)


def _leads_to(link: Path, place: Path) -> bool:
    with contextlib.suppress(OSError):
        return os.path.realpath(link) == os.path.realpath(place) and link.parent.name != str(os.getpid())
    return False


def _private(path: Path, place: Path) -> bool:
    return any(word in part for part in path.relative_to(place).parts for word in PRIVATE)


def _leftovers(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if _private(path, place)]


def _check_whole(path: Path) -> None:
    """Refuse half a file."""
    data = path.read_bytes()
    if path.suffix == ".json":
        json.loads(data)
    elif path.suffix == ".safetensors":
        from safetensors.numpy import load

        load(data)
    elif path.suffix == ".xlsx":
        import zipfile

        if zipfile.ZipFile(path).testzip():
            raise Left(f"half of {path.name}")
    elif path.suffix in (".csv", ".md", ".sql", ".R", ".txt"):
        if data and not data.endswith(b"\n"):
            raise Left(f"half of {path.name}")
    elif path.suffix in ENDS and not data.rstrip(b"\n").endswith(ENDS[path.suffix]):
        raise Left(f"half of {path.name}")
