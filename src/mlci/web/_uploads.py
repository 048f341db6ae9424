"""Files of admissions on their way through: scored one after the other, handed back, and forgotten.

In comes an upload; out comes its scores file with the first rows, while `Job` tells how far it is. The upload goes as
soon as it is scored, the scores once they are fetched or after ten minutes.
"""

import re
import secrets
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Timer
from typing import IO

from mlci.base.errors import InputError
from mlci.index.model import Model, Tally, score_file

KEEP_SECONDS = 600
MOST_JOBS = 8  # waiting, running or not yet fetched
MOST_ERRORS = 64  # files that could not be read and whose sentence waits for its reader
MOST_ADMISSIONS = 50_000_000  # beyond that, the command line
FIRST_ROWS = 50
NAMES = r"\.(csv|tsv|txt)(\.(gz|bz2|zst))?$|\.(parquet|pq)$"


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
    tally: Tally | None = None
    rows: list[dict] = field(default_factory=list)
    error: str = ""
    stopped: Event = field(default_factory=Event)
    done: Event = field(default_factory=Event)


class _Stopped(Exception):
    pass


class Uploads:
    def __init__(self, model: Model, *, keep_seconds: float = KEEP_SECONDS):
        self.model, self.keep_seconds = model, keep_seconds
        self.jobs: dict[str, Job] = {}
        self.worker = ThreadPoolExecutor(1)  # scoring itself uses every core

    def add(self, file: IO[bytes], name: str, *, kind: str, icd_version: int) -> str:
        """Take a file; the answer is the secret name of its job."""
        suffix = re.search(NAMES, name.lower())
        if not suffix:
            raise InputError(
                f"{name or 'the file'}: is not named as a table; .csv, .csv.gz, .tsv or .parquet is needed."
            )
        jobs = list(self.jobs.items())
        if sum(not job.error for _, job in jobs) >= MOST_JOBS:
            raise Busy
        for token, _ in [(token, job) for token, job in jobs if job.error][:-MOST_ERRORS]:
            self.forget(token)
        folder = TemporaryDirectory(prefix="mlci-", ignore_cleanup_errors=True)
        job = Job(name, folder, Path(folder.name, "admissions" + suffix[0]), Path(folder.name, f"scores.{kind}"))
        try:
            with job.source.open("wb") as copy:
                shutil.copyfileobj(file, copy, 1 << 20)
        except BaseException:
            folder.cleanup()
            raise
        token = secrets.token_urlsafe(24)
        self.jobs[token] = job
        self.worker.submit(self._run, token, job, icd_version)
        return token

    def forget(self, token: str) -> None:
        """Stop the job and delete what is left of it."""
        if job := self.jobs.pop(token, None):
            job.stopped.set()
            job.folder.cleanup()

    def close(self) -> None:
        for token in list(self.jobs):
            self.forget(token)
        self.worker.shutdown(cancel_futures=True)

    def _run(self, token: str, job: Job, icd_version: int) -> None:
        def on_batch(written: int) -> None:
            job.written = written
            if job.stopped.is_set():
                raise _Stopped
            if written > MOST_ADMISSIONS:
                raise InputError(f"more than {MOST_ADMISSIONS:,} admissions; `mlci score` takes any number.")

        try:
            job.tally = score_file(
                self.model,
                job.source,
                job.target,
                icd_version=icd_version,
                defuse=job.target.suffix == ".csv",
                on_batch=on_batch,
            )
            job.rows = _first_rows(job.target)
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
        late = Timer(self.keep_seconds, self.forget, [token])
        late.daemon = True
        late.start()


def _first_rows(scores: Path) -> list[dict]:
    import pandas as pd
    import pyarrow.parquet as pq

    if scores.suffix == ".csv":
        frame = pd.read_csv(scores, nrows=FIRST_ROWS, dtype={"admission_id": str})
    else:
        with pq.ParquetFile(scores) as file:
            frame = next(file.iter_batches(FIRST_ROWS)).to_pandas() if file.metadata.num_rows else pd.DataFrame()
    return frame.to_dict("records")
