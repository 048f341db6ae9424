"""Uploaded files: scored one after the other, offered for download, and deleted.

Turn an upload into a file of scores with a summary and the first rows; `Job` holds the progress. The upload is deleted
as soon as it is scored. The scores stay while their page is open, or for ten minutes if the browser runs no script to
keep them.
"""

import re
import secrets
import shutil
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, RLock, Timer
from typing import IO

import numpy as np

from mlci.base.errors import InputError
from mlci.base.tablefile import open_table
from mlci.codes.admissions import Admissions
from mlci.codes.layout import Layout
from mlci.codes.streams import file_layout
from mlci.index.model import Model
from mlci.index.scoring import score_file
from mlci.index.tally import Tally
from mlci.web._case import MOST_CODES

KEEP_SECONDS = 600
MOST_JOBS = 8  # waiting, running or kept
MOST_ERRORS = 64  # failed files whose error message is kept
MOST_ADMISSIONS = 50_000_000  # larger files need the command line
FIRST_ROWS = 200
GRACE_SECONDS = 20  # after a page is left, since it may only be reloading
BARS = 20  # of the histogram, each a twentieth of the reference admissions
FIELDS = {"id": "Column of admission ids", "codes": "Columns of codes", "icd-version": "ICD version"}  # of the form
NAMES = r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$|\.(parquet|pq)$|\.xlsx$"


class Busy(Exception):
    """There are too many files in progress."""


@dataclass
class Job:
    """One uploaded file and its scores."""

    name: str  # of the uploaded file
    folder: TemporaryDirectory
    source: Path
    target: Path
    written: int = 0  # admissions scored so far
    understood: str = ""  # how its columns were read
    tally: Tally | None = None
    rows: list[dict] = field(default_factory=list)  # the first, with their codes, and age and sex if the risks use them
    bars: np.ndarray = field(default_factory=lambda: np.zeros(BARS, dtype=np.int64))
    scored: int = 0
    high: int = 0
    error: str = ""
    timer: Timer | None = None
    loads: int = 0  # how often its page was loaded
    stopped: Event = field(default_factory=Event)
    done: Event = field(default_factory=Event)

    def take(self, admissions: Admissions, columns: Mapping[str, np.ndarray], persons: Mapping[str, list]) -> None:
        """Add a batch to the summary, and keep its rows if they are among the first."""
        percentile = columns["percentile"][~np.isnan(columns["percentile"])]
        self.bars += np.bincount(np.minimum(percentile * BARS / 100, BARS - 1).astype(int), minlength=BARS)
        self.scored += len(percentile)
        self.high += int((columns["high_severity"] == True).sum())  # noqa: E712  (None if there is no score)
        for row in range(min(len(admissions), FIRST_ROWS - len(self.rows))):
            recorded = admissions.indices[admissions.offsets[row] : admissions.offsets[row + 1]]
            versions = {int(version) for version in admissions.versions[recorded]}
            self.rows.append(
                {
                    "admission_id": admissions.ids[row],
                    **{name: values[row] for name, values in columns.items()},
                    "codes": [str(code) for code in admissions.values[recorded[:MOST_CODES]]],
                    "icd_version": versions.pop() if len(versions) == 1 else None,
                    "person": {name: values[row] for name, values in persons.items() if values[row] is not None},
                }
            )


class _Stopped(Exception):
    pass


class Uploads:
    """All jobs by their secret names."""

    def __init__(self, model: Model, *, keep_seconds: float = KEEP_SECONDS):
        self.model, self.keep_seconds = model, keep_seconds
        self.jobs: dict[str, Job] = {}
        self.lock = RLock()  # of jobs and their timers, which many threads use
        self.worker = ThreadPoolExecutor(1)  # scoring itself uses every core

    def add(self, file: IO[bytes], name: str, *, kind: str, icd_version: int, id: str = "", codes: str = "") -> str:
        """Store a file, queue it for scoring, and return the secret name of its job."""
        name = "".join(filter(str.isprintable, name))  # without characters that turn the text around them
        suffix = re.search(NAMES, name.lower())
        if not suffix:
            raise InputError(
                f"{name or 'the file'}: is not a table; its name must end in .csv, .csv.gz, .tsv, .xlsx or .parquet."
            )
        self._make_room()
        folder = TemporaryDirectory(prefix="mlci-", ignore_cleanup_errors=True)
        job = Job(name, folder, Path(folder.name, "admissions" + suffix[0]), Path(folder.name, f"scores.{kind}"))
        try:
            with job.source.open("wb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
            if not job.source.stat().st_size:
                raise InputError(f"{name}: is empty.")
        except BaseException:
            folder.cleanup()
            raise
        token = secrets.token_urlsafe(24)
        with self.lock:
            self.jobs[token] = job
        self.worker.submit(self._run, token, job, icd_version, id or None, codes or None)
        return token

    def _make_room(self) -> None:
        """Delete the oldest finished job if there are too many; raise `Busy` if none is finished."""
        with self.lock:
            jobs = list(self.jobs.items())
            if sum(not job.error for _, job in jobs) >= MOST_JOBS:
                finished = [token for token, job in jobs if job.done.is_set() and not job.error]
                if not finished:
                    raise Busy
                self.forget(finished[0])
            for token, _ in [(token, job) for token, job in jobs if job.error][:-MOST_ERRORS]:
                self.forget(token)

    def opened(self, token: str) -> Job | None:
        """Return the job whose page is being loaded, and keep it."""
        with self.lock:
            if job := self.jobs.get(token):
                job.loads += 1
                self.keep(token)
            return job

    def left(self, token: str, load: int) -> None:
        """Delete the job soon, unless its page was loaded again since: the message on leaving may arrive late."""
        with self.lock:
            if (job := self.jobs.get(token)) and job.loads == load:
                self.keep(token, GRACE_SECONDS)

    def keep(self, token: str, seconds: float | None = None) -> None:
        """Delete the job after so many seconds (by default `keep_seconds`), and not before."""
        with self.lock:
            if (job := self.jobs.get(token)) and job.done.is_set():
                if job.timer:
                    job.timer.cancel()
                job.timer = timer = Timer(
                    self.keep_seconds if seconds is None else seconds, lambda: self._expire(token, timer)
                )
                timer.daemon = True
                timer.start()

    def _expire(self, token: str, timer: Timer) -> None:
        """Delete the job, unless its timer was replaced meanwhile."""
        with self.lock:
            if (job := self.jobs.get(token)) and job.timer is timer:
                self.forget(token)

    def forget(self, token: str) -> None:
        """Stop the job and delete its files."""
        with self.lock:
            job = self.jobs.pop(token, None)
            if job and job.timer:
                job.timer.cancel()
        if job:
            job.stopped.set()
            job.folder.cleanup()

    def close(self) -> None:
        for token in list(self.jobs):
            self.forget(token)
        self.worker.shutdown(cancel_futures=True)

    def _run(self, token: str, job: Job, icd_version: int, id: str | None, codes: str | None) -> None:
        def on_batch(written: int) -> None:
            job.written = written
            if job.stopped.is_set():
                raise _Stopped
            if written > MOST_ADMISSIONS:
                raise InputError(f"the file has more than {MOST_ADMISSIONS:,} admissions; use `mlci score` for it.")

        try:
            layout = _layout(job.source, id, codes)
            job.understood = _understood(layout, icd_version)
            job.tally = score_file(
                self.model,
                job.source,
                job.target,
                icd_version=icd_version,
                id=id,
                codes=codes,
                defuse=job.target.suffix == ".csv",
                strict=True,
                on_batch=on_batch,
                on_scores=job.take,
            )
        except InputError as error:
            job.error = without_options(str(error)).replace(str(job.source), job.name)
        except _Stopped:
            pass
        except Exception as error:  # report it without its text, which may quote the file
            job.error = f"{job.name}: could not be read as a table of admissions ({type(error).__name__})."
        job.source.unlink(missing_ok=True)
        if job.stopped.is_set():
            job.folder.cleanup()
        job.done.set()
        self.keep(token)


def without_options(sentence: str) -> str:
    """Return a sentence of the command line in words of the page, whose form has fields instead of options.

    >>> without_options("a.csv: lacks the column codes (--codes names them); found are a, b.")
    'a.csv: lacks the column codes; found are a, b.'
    >>> without_options("a.csv: lacks the column admission_id; --id names it.")
    'a.csv: lacks the column admission_id; the field “Column of admission ids” names it.'
    """
    plain = re.sub(r" \((--[^()]*|\w+= in Python)\)", "", sentence).replace("`", "")
    plain = re.sub(r"--icd-version (9|10)", r"the chosen ICD-\1", plain)
    return re.sub("--(" + "|".join(FIELDS) + r")\b", lambda option: f"the field “{FIELDS[option[1]]}”", plain)


def _layout(path: Path, id: str | None, codes: str | None) -> Layout:
    with open_table(path) as table:
        return file_layout(table, id=id, codes=codes)


def _understood(layout: Layout, icd_version: int) -> str:
    """Return how the columns of a file are read, in words."""
    count = len(layout.codes)
    columns = f"{count} columns, {layout.codes[0]} to {layout.codes[-1]}" if count > 1 else f"column {layout.codes[0]}"
    row = "one code per row" if layout.form == "long" else "one admission per row"
    version = f"; ICD version in column {layout.version}" if layout.version else f"; codes read as ICD-{icd_version}"
    return f"admission ids in column {layout.id}; codes in {columns} ({row}){version}"
