"""Files of admissions on their way through: scored one after the other, handed back, and forgotten.

In comes an upload; out comes its scores file with a summary and the first rows, while `Job` tells how far it is. The
upload goes as soon as it is scored; the scores stay while their page is open, or for ten minutes where no script
tells that it is.
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
from mlci.codes.streams import file_layout
from mlci.index.model import Model
from mlci.index.scoring import score_file
from mlci.index.tally import Tally
from mlci.web._case import MOST_CODES

KEEP_SECONDS = 600
MOST_JOBS = 8  # waiting, running or kept
MOST_ERRORS = 64  # files that could not be read and whose sentence waits for its reader
MOST_ADMISSIONS = 50_000_000  # beyond that, the command line
FIRST_ROWS = 200
GRACE_SECONDS = 20  # after a page is left: it may only be loaded anew
BARS = 20  # of the histogram, each a twentieth of the reference admissions
NAMES = r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$|\.(parquet|pq)$|\.xlsx$"


class Busy(Exception):
    """Too many files at once."""


@dataclass
class Job:
    """One file, from upload to scores."""

    name: str  # of the file, as its owner calls it
    folder: TemporaryDirectory
    source: Path
    target: Path
    written: int = 0  # admissions scored so far
    understood: str = ""  # which columns hold what
    tally: Tally | None = None
    rows: list[dict] = field(default_factory=list)  # the first, with their codes
    bars: np.ndarray = field(default_factory=lambda: np.zeros(BARS, dtype=np.int64))
    scored: int = 0
    high: int = 0
    error: str = ""
    timer: Timer | None = None
    loads: int = 0  # of its page
    stopped: Event = field(default_factory=Event)
    done: Event = field(default_factory=Event)

    def take(self, admissions: Admissions, columns: Mapping[str, np.ndarray]) -> None:
        """Sum up a batch, and keep its rows while they are among the first."""
        percentile = columns["percentile"][~np.isnan(columns["percentile"])]
        self.bars += np.bincount(np.minimum(percentile * BARS / 100, BARS - 1).astype(int), minlength=BARS)
        self.scored += len(percentile)
        self.high += int((columns["high_severity"] == True).sum())  # noqa: E712  (None where there is no score)
        for row in range(min(len(admissions), FIRST_ROWS - len(self.rows))):
            recorded = admissions.indices[admissions.offsets[row] : admissions.offsets[row + 1]]
            versions = {int(version) for version in admissions.versions[recorded]}
            self.rows.append(
                {
                    "admission_id": admissions.ids[row],
                    **{name: values[row] for name, values in columns.items()},
                    "codes": [str(code) for code in admissions.values[recorded[:MOST_CODES]]],
                    "icd_version": versions.pop() if len(versions) == 1 else None,
                }
            )


class _Stopped(Exception):
    pass


class Uploads:
    def __init__(self, model: Model, *, keep_seconds: float = KEEP_SECONDS):
        self.model, self.keep_seconds = model, keep_seconds
        self.jobs: dict[str, Job] = {}
        self.lock = RLock()  # of jobs and their timers: requests come by many threads
        self.worker = ThreadPoolExecutor(1)  # scoring itself uses every core

    def add(self, file: IO[bytes], name: str, *, kind: str, icd_version: int, id: str = "", codes: str = "") -> str:
        """Take a file and, maybe, the names of its columns; the answer is the secret name of its job."""
        suffix = re.search(NAMES, name.lower())
        if not suffix:
            raise InputError(
                f"{name or 'the file'}: is not named as a table; .csv, .csv.gz, .tsv, .xlsx or .parquet is needed."
            )
        self._make_room()
        folder = TemporaryDirectory(prefix="mlci-", ignore_cleanup_errors=True)
        job = Job(name, folder, Path(folder.name, "admissions" + suffix[0]), Path(folder.name, f"scores.{kind}"))
        try:
            with job.source.open("wb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
            if not job.source.stat().st_size:
                raise InputError(f"{name}: is empty; it has no byte.")
        except BaseException:
            folder.cleanup()
            raise
        token = secrets.token_urlsafe(24)
        with self.lock:
            self.jobs[token] = job
        self.worker.submit(self._run, token, job, icd_version, id or None, codes or None)
        return token

    def _make_room(self) -> None:
        """Forget the oldest scores where there are too many; files in work are not forgotten."""
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
        """Return a job whose page is being loaded, and keep it."""
        with self.lock:
            if job := self.jobs.get(token):
                job.loads += 1
                self.keep(token)
            return job

    def left(self, token: str, load: int) -> None:
        """Forget the job soon, unless its page was loaded again since: what is said on leaving may come late."""
        with self.lock:
            if (job := self.jobs.get(token)) and job.loads == load:
                self.keep(token, GRACE_SECONDS)

    def keep(self, token: str, seconds: float | None = None) -> None:
        """Forget the job, but not before so many seconds (by default those of a page nobody watches)."""
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
        """Forget the job, unless it was kept while its timer rang."""
        with self.lock:
            if (job := self.jobs.get(token)) and job.timer is timer:
                self.forget(token)

    def forget(self, token: str) -> None:
        """Stop the job and delete what is left of it."""
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
                raise InputError(f"more than {MOST_ADMISSIONS:,} admissions; `mlci score` takes any number.")

        try:
            job.understood = _understood(job.source, id, codes)
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
            job.error = str(error).replace(str(job.source), job.name)
        except _Stopped:
            pass
        except Exception as error:  # a person waits for an answer; the text of the error may hold what is in the file
            job.error = f"{job.name}: could not be read as a table of admissions ({type(error).__name__})."
        job.source.unlink(missing_ok=True)
        if job.stopped.is_set():
            job.folder.cleanup()
        job.done.set()
        self.keep(token)


def _understood(path: Path, id: str | None, codes: str | None) -> str:
    """Return which columns of a file hold what, in words."""
    with open_table(path) as table:
        layout = file_layout(table, id=id, codes=codes)
    many = len(layout.codes)
    named = f"{many} columns, {layout.codes[0]} to {layout.codes[-1]}" if many > 1 else f"the column {layout.codes[0]}"
    row = "a row is a code" if layout.form == "long" else "a row is an admission"
    version = f"; their ICD version in {layout.version}" if layout.version else ""
    return f"admissions are told by {layout.id}, codes stand in {named} ({row}){version}"
