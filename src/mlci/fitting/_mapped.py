"""Cohorts larger than memory: stream the cohort file once into files of token ids, which are then memory-mapped.

The tokens of the two splits are memory maps, which all processes of a machine share and which the system drops when it
needs the memory. Outcomes are held in memory, four bytes each.
"""

import fcntl
import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import mlci
from mlci.base.errors import InputError
from mlci.base.files import atomic
from mlci.codes.streams import stream_rows
from mlci.cohort import cohort_head
from mlci.config import TokenConfig
from mlci.fitting._data import Split, Splits, chosen_outcomes
from mlci.fitting._processes import ALONE, Group
from mlci.tokens import Tokens, Vocabulary

if TYPE_CHECKING:
    import pyarrow as pa

FACTS, SUBJECTS = "facts.json", "subjects"  # the facts are written last
SPLITS = ("train", "valid")
TYPES = {"ids": np.int32, "offsets": np.int64, "outcomes": np.float32}


def map_cohort(
    path: str | Path,
    folder: str | Path,
    *,
    outcomes: Sequence[str] | None = None,
    tokens: TokenConfig,
    group: Group = ALONE,
) -> Splits:
    """Return the splits of a cohort file, from the files in `folder` if they were made from this cohort before."""
    path, folder, head = Path(path), Path(folder), cohort_head(path)
    rules = chosen_outcomes(head.outcomes, outcomes, str(path))
    stamp = path.stat()
    settings = json.loads(json.dumps(asdict(tokens)))
    key = [mlci.__version__, head.version, stamp.st_size, stamp.st_mtime_ns, list(rules), settings]
    if group.rank == 0:
        folder.mkdir(mode=0o700, exist_ok=True)  # the files hold patients' codes
        with _locked(folder):
            if _facts(folder).get("key") != key:
                _write(path, folder, list(rules), tokens, key)
    group.wait()
    facts = _facts(folder)
    vocabulary = Vocabulary.from_dict(facts["vocabulary"])
    splits = []
    for split in SPLITS:
        ids, offsets, known = (_opened(folder / f"{split}.{part}", kind) for part, kind in TYPES.items())
        labels = np.array(known).reshape(-1, len(rules))
        subjects = _opened(folder / f"{split}.{SUBJECTS}", np.int64)
        splits.append(Split(Tokens(ids, offsets), labels, tuple(rules), len(vocabulary), subjects))
    return Splits(vocabulary, tuple(facts["icd_versions"]), rules, head.source, *splits)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let other fits that begin with the same folder wait until its files are written."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _facts(folder: Path) -> dict[str, Any]:
    return json.loads((folder / FACTS).read_text("utf-8")) if (folder / FACTS).exists() else {}


def _write(path: Path, folder: Path, outcomes: list[str], config: TokenConfig, key: list) -> None:
    """Write the files in two passes: first the vocabulary of the training split, then the tokens of both splits."""
    import pyarrow.compute as pc

    for name in (FACTS, *(f"{split}.{part}" for split in SPLITS for part in (SUBJECTS, *TYPES))):
        (folder / name).unlink(missing_ok=True)  # another fit may have mapped the old file, and keeps it
    seen, versions, subjects = Counter(), set(), {split: [] for split in SPLITS}
    options = {name: value for name, value in asdict(config).items() if name != "min_admissions"}
    last = None
    for admissions, carried in stream_rows(path, carry=["split", "subject_id"], poa=config.poa):
        last = _in_order(path, admissions.ids, last)
        for split, found in subjects.items():
            found += carried["subject_id"].filter(pc.equal(carried["split"], split)).chunks
        train = admissions.take(np.flatnonzero(np.asarray(carried["split"]) == "train"))
        seen.update(Vocabulary.count(train, **options))
        versions.update(np.unique(train.versions[train.indices]).tolist())
    for split, found in subjects.items():
        numbered(found).tofile(folder / f"{split}.{SUBJECTS}")
    vocabulary = Vocabulary.of(seen, **asdict(config.settled(sum(map(len, subjects["train"])))))
    ends = dict.fromkeys(SPLITS, 0)
    with ExitStack() as stack:
        files = {
            (split, part): stack.enter_context(open(folder / f"{split}.{part}", "wb"))
            for split in SPLITS
            for part in TYPES
        }
        for split in SPLITS:
            np.zeros(1, np.int64).tofile(files[split, "offsets"])
        for admissions, carried in stream_rows(path, carry=["split", *outcomes], poa=config.poa):
            columns = [carried[name].cast("float32").to_numpy() for name in outcomes]
            tokens, known = vocabulary.encode(admissions), np.column_stack(columns).astype(np.float32)
            for split in SPLITS:
                rows = np.flatnonzero(np.asarray(carried["split"]) == split)
                part = tokens.take(rows)
                part.ids.tofile(files[split, "ids"])
                (part.offsets[1:] + ends[split]).tofile(files[split, "offsets"])
                known[rows].tofile(files[split, "outcomes"])
                ends[split] += len(part.ids)
    facts = {"key": key, "vocabulary": asdict(vocabulary), "icd_versions": sorted(versions)}
    with atomic(folder / FACTS) as temporary:
        temporary.write_text(json.dumps(facts), "utf-8")


def _in_order(path: Path, ids: np.ndarray, last: Any) -> Any:
    """Return the last id, if the ids increase: a fit depends on the order, which in memory is that of the ids."""
    rising = len(ids) == 0 or ((last is None or last < ids[0]) and bool((ids[:-1] < ids[1:]).all()))
    if not rising:
        raise InputError(f"{path}: is not in the order of its admission_id; sort it, or fit without --memory-map.")
    return ids[-1] if len(ids) else last


def numbered(subjects: "list[pa.Array]") -> np.ndarray:
    """Return each admission's subject as a number, as `measures.design.numbered` does, but without Python objects."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not subjects:
        return np.empty(0, np.int64)
    encoded = pa.chunked_array(subjects).combine_chunks().dictionary_encode()
    rank, unknown = np.empty(len(encoded.dictionary), np.int64), encoded.is_null().to_numpy(zero_copy_only=False)
    rank[pc.sort_indices(encoded.dictionary)] = np.arange(len(rank))
    found = np.empty(len(encoded), np.int64)
    found[~unknown] = rank[encoded.indices.drop_null()]
    found[unknown] = len(rank) + np.arange(unknown.sum())
    return found


def _opened(file: Path, kind: type) -> np.ndarray:
    # Copy-on-write mode: nothing is written, but torch wants writable arrays.
    return np.memmap(file, kind, "c") if file.stat().st_size else np.empty(0, kind)
