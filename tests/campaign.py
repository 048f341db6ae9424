"""Run commands on damaged and forged inputs: each case changes one file, runs one command on it and judges the result.

The verdict on a case is one of:

- *clean*: a one-sentence error, exit code 2, nothing written
- *accepted*: exit code 0, and the figures are unchanged or at least valid numbers
- *bad*: a traceback, a crash, a hang, a changed figure, a cell's content in a message, a file left behind

`supervise` runs the cases in another process, so that a crash is one bad case and does not end the campaign.

    python tests/campaign.py 2400                      the long campaign, as `make fuzz` runs it
    python tests/campaign.py 200 16 workbook,kill      200 cases with the seed 16, of these two kinds only
"""

import contextlib
import gc
import io
import json
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path

SEED = 16
CPU_SECONDS = 120  # processor time allowed for a case
WALL_SECONDS = 800  # wall-clock time allowed for a case, even on a busy machine
MEMORY = 6 << 30  # bytes allowed for the cases, beyond what the process uses before the first
KINDS = {  # relative frequency; the function of a kind has its name, with underscores
    "flipped model": 14,
    "forged model": 22,
    "table": 22,
    "workbook": 8,
    "flipped table": 8,
    "cohort": 14,
    "scores": 8,
    "own tables": 4,
    "config": 5,
    "runs": 4,
    "request": 6,
    "kill": 4,
}
ODD = ("", "\x00", "../../etc/passwd", "%00", "A" * 5000, "<script>", "I50.9", "é", "[]", "{}", "9" * 400, "-1", "NaN")


@dataclass
class Verdicts:
    """The number of cases by verdict and by kind, and the reasons of the bad ones."""

    counts: Counter = field(default_factory=Counter)
    kinds: Counter = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, case: int, kind: str, verdict: str, why: str) -> None:
        self.counts[verdict] += 1
        self.kinds[kind, verdict] += 1
        if verdict == "bad":
            self.bad.append(f"case {case} ({kind}): {why}")


def supervise(cases: range, folder: Path, *, seed: int = SEED, kinds: Iterable[str] = KINDS) -> Verdicts:
    """Run the cases with these numbers in `folder`, in another process, and return the verdicts."""
    verdicts, case, kind = Verdicts(), cases.start, "?"
    while case < cases.stop:
        words = [sys.executable, __file__, "work", str(folder), ",".join(kinds)]
        words += map(str, (seed, case, cases.stop))
        environment = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=environment) as worker:
            for line in worker.stdout or ():
                event = json.loads(line)
                case, kind = event["case"], event["kind"]
                if "verdict" in event:
                    verdicts.add(case, kind, event["verdict"], event["why"])
                    case += 1
                    if case % 100 == 0:
                        print(f"{case:,} cases: {dict(verdicts.counts)}", *verdicts.bad[-3:], sep="\n", file=sys.stderr)
        if worker.returncode and case < cases.stop:
            verdicts.add(case, kind, "bad", f"the process ended with {worker.returncode}")
            shutil.rmtree(folder / f"case{case}", ignore_errors=True)
            case += 1
    return verdicts


class BadCase(Exception):
    """Something happened that must not; the message says what."""


def run_cases(folder: Path, kinds: list[str], seed: int, first: int, last: int) -> None:
    """Run cases one after another; print a line of JSON before and after each."""
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w", buffering=1)
    originals = Originals(folder / "originals")
    in_use = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (in_use + MEMORY, in_use + MEMORY))
    for case in range(first, last):
        rng = random.Random(f"{seed}/{case}")
        kind = rng.choices(kinds, [KINDS[name] for name in kinds])[0]
        print(json.dumps({"case": case, "kind": kind}), file=out)
        workdir = folder / f"case{case}"
        workdir.mkdir()
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        signal.alarm(WALL_SECONDS)
        try:
            verdict, why = globals()[kind.replace(" ", "_")](originals, workdir, rng), ""
        except BadCase as error:
            verdict, why = "bad", str(error)
        except Exception as error:  # an error that the program does not report itself is what the campaign looks for
            verdict, why = "bad", f"{type(error).__name__}: {error} in {traceback.extract_tb(error.__traceback__)[-1]}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        shutil.rmtree(workdir)
        gc.collect()
        left = [path.name for path in folder.iterdir() if path != folder / "originals"]
        if left:
            verdict, why = "bad", f"left behind: {left}"
            for name in left:
                shutil.rmtree(folder / name, ignore_errors=True)
        print(json.dumps({"case": case, "kind": kind, "verdict": verdict, "why": why[:600]}), file=out)


class Originals:
    """The undamaged files, written once, and the scores that the command computes from them."""

    def __init__(self, folder: Path) -> None:
        import pandas as _  # noqa: F401  (a command that works without pandas would hide it from the next ones)
        import pyarrow as pa

        import hostile
        from toys import code_lists, random_index, random_model, toy_cohort

        self.folder = folder
        self.deep, self.table = folder / "deep.safetensors", folder / "table.safetensors"
        self.cohort, self.scores = folder / "c.parquet", folder / "s.csv"
        codes = code_lists(40, seed=5, longest=6)
        ids = [f"{hostile.SECRET}{row}" for row in range(len(codes))]
        self.wide = "admission_id,codes\n" + "".join(f"{id},{' '.join(each)}\n" for id, each in zip(ids, codes))
        rows = [(id, code) for id, each in zip(ids, codes) for code in each]
        self.long = "admission_id,code,icd_version\n" + "".join(f"{id},{code},10\n" for id, code in rows)
        self.rows = pa.table({"admission_id": ids, "codes": codes, "icd_version": [10] * len(ids)})
        self.stays = "id,mrn,died\n" + "".join(f"{id},{row // 2},{row % 2}\n" for row, id in enumerate(ids))
        self.dx = "id,icd,rank\n" + "".join(f"{id},{code},{rank}\n" for rank, (id, code) in enumerate(rows))
        self.layout = (
            '[admissions]\ntable = "stays"\nadmission_id = "id"\nsubject_id = "mrn"\n[diagnoses]\ntable = "dx"\n'
            'admission_id = "id"\ncode = "icd"\nposition = "rank"\nicd_version = 10\n[outcomes]\ndied = "died"\n'
        )
        self.workbook = hostile.as_workbook(self.long)
        self.config = '[tokens]\ndepths = [4]\nmax_codes = 256\n[encoder]\nwidth = 8\n[selection]\nanchor = "died"\n'
        if folder.exists():
            return
        folder.mkdir()
        cohort = toy_cohort(60)
        cohort.write(self.cohort)
        random_model().save(self.deep)
        random_index(cohort, table=True).save(self.table)
        (folder / "a.csv").write_text(self.wide)
        self.scores.write_text("admission_id,score\n" + "".join(f"{i},{i % 7}.5\n" for i in range(60)))
        large = toy_cohort(600)
        large.write(folder / "large.parquet")
        random_index(large, table=True).save(folder / "large.safetensors")
        flags = pa.array([["YN"[len(code) % 2] for code in codes] for codes in large.table["codes"].to_pylist()])
        replace(large, table=large.table.append_column("poa", flags)).write(folder / "flagged.parquet")
        ids = large.table["admission_id"].to_pylist()
        (folder / "large.csv").write_text("admission_id,score\n" + "".join(f"{i},{i % 7}.5\n" for i in ids))
        self._write_tables(folder / "tables")
        for model in (self.deep, self.table):
            for name in (folder / "a.csv", self.cohort):
                run("score", model, name, "-o", folder / f"{model.stem}-{name.stem}.csv", "--icd-version", "10")

    def _write_tables(self, folder: Path) -> None:
        folder.mkdir()
        for name, text in {"stays.csv": self.stays, "dx.csv": self.dx, "layout.toml": self.layout}.items():
            (folder / name).write_text(text)
        wide = self.wide.splitlines()
        (folder / "visits.csv").write_text(
            "".join(f"{line},{row % 2 if row else 'died'}\n" for row, line in enumerate(wide))
        )

    def names(self) -> dict[str, str]:
        """Return the path for each placeholder in `kills.CASES`."""
        files = {"c": "large.parquet", "s": "large.csv", "m": "large.safetensors", "d": self.deep}
        files |= {"a": "a.csv", "t": "tables", "p": "flagged.parquet"}
        return {key: str(self.folder / name) for key, name in files.items()}


@dataclass(frozen=True)
class Result:
    """The exit code of a command and what it printed."""

    code: int
    output: str


def run(*words: object) -> Result:
    """Run `mlci` with these arguments, in this process."""
    from mlci import cli

    text = io.StringIO()
    before = sys.argv
    sys.argv = ["mlci", *map(str, words)]
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            cli.main()
    except SystemExit as ended:
        return Result(ended.code if isinstance(ended.code, int) else 1, text.getvalue())
    finally:
        sys.argv = before
    raise AssertionError("main always exits")


def judge(result: Result, target: Path | None = None) -> str:
    """Return "clean" or "accepted"; raise BadCase for anything else. `target`: the file that the command writes."""
    import hostile

    errors = [line for line in result.output.splitlines() if line.startswith(("mlci: ", "Error: "))]
    if hostile.SECRET in result.output:
        raise BadCase(f"a message contains a cell: {result.output[:300]}")
    if "Traceback" in result.output or result.code not in (0, 2) or "bug in mlci" in result.output:
        raise BadCase(f"exit code {result.code}: {result.output[-300:]}")
    if result.code == 2 and not errors:
        raise BadCase(f"no error message: {result.output[-300:]}")
    if result.code == 2 and target is not None and target.exists():
        raise BadCase("the command failed, but wrote its output")
    if target is not None and any(path.name.endswith(".part") for path in target.parent.iterdir()):
        raise BadCase("a partial file is left")
    return "clean" if result.code else "accepted"


def check_figures(path: Path) -> None:
    """Raise BadCase if a score is not finite or a risk is not between 0 and 1."""
    import numpy as np
    import pandas as pd

    frame = pd.read_csv(path)
    if "score" in frame and len(frame):
        risks = frame[[name for name in frame if name.startswith("risk_")]].to_numpy(float)
        if not np.isfinite(frame["score"].to_numpy(float)).all() or ((risks < 0) | (risks > 1)).any():
            raise BadCase("a score is not finite or a risk is not a probability")


def score_and_judge(workdir: Path, model: Path, admissions: Path, *, expected: Path | None) -> str:
    """Score a file; scores that are accepted must equal the file `expected`, if given."""
    output = workdir / "out.csv"
    verdict = judge(run("score", model, admissions, "-o", output, "--icd-version", "10"), output)
    if verdict == "accepted":
        check_figures(output)
        if expected is not None and output.read_bytes() != expected.read_bytes():
            raise BadCase("a figure changed")
    return verdict


def flipped_model(originals: Originals, workdir: Path, rng: random.Random) -> str:
    import hostile

    source = rng.choice((originals.deep, originals.table))
    damage = rng.choice((hostile.flipped, hostile.flipped, hostile.truncated, hostile.spliced))
    (workdir / "m").write_bytes(damage(source.read_bytes(), rng))
    return score_and_judge(
        workdir, workdir / "m", originals.folder / "a.csv", expected=originals.folder / f"{source.stem}-a.csv"
    )


def forged_model(originals: Originals, workdir: Path, rng: random.Random) -> str:
    import hostile

    source, model = rng.choice((originals.deep, originals.table)), workdir / "m"
    hostile.forged_model(str(source), str(model), rng)
    command = rng.choices(("score", "cite", "export", "page", "card"), (12, 2, 2, 3, 1))[0]
    if command == "score":
        return score_and_judge(workdir, model, originals.folder / "a.csv", expected=None)
    if command == "cite":
        return judge(run("cite", model))
    if command == "card":
        return judge(
            run("card", model, originals.cohort, "-o", workdir / "card.html", "--quiet"), workdir / "card.html"
        )
    if command == "export":
        return judge(run("export", model, "-o", workdir / "w.csv"), workdir / "w.csv")
    return page(model)


def page(model: Path) -> str:
    """Load a forged model and request its pages; loading may raise InputError."""
    from starlette.testclient import TestClient

    from mlci.base.errors import InputError
    from mlci.index.estimator import load
    from mlci.web import create_app

    try:
        index = load(model)
    except InputError:
        return "clean"
    with TestClient(create_app(index), base_url="http://localhost", raise_server_exceptions=False) as client:
        for address in ("/", "/?codes=A000+B010", "/model", "/api/model"):
            if (answer := client.get(address)).status_code >= 500:
                raise BadCase(f"{address}: {answer.status_code}")
    return "accepted"


def table(originals: Originals, workdir: Path, rng: random.Random) -> str:
    import hostile

    if rng.random() < 0.7:
        text = rng.choice((originals.wide, originals.long))
        data, ending = hostile.compressed(hostile.damaged_csv(text, rng), rng)
        source = workdir / f"a.{rng.choice(('csv', 'csv', 'tsv', 'txt'))}{ending}"
    else:
        data = hostile.as_parquet(hostile.altered_table(originals.rows, rng))
        source = workdir / f"a.{rng.choice(('parquet', 'parquet', 'csv', 'xlsx'))}"
    source.write_bytes(data)
    if rng.random() < 0.3:
        return judge(run("indices", source, "-o", workdir / "i.csv", "--icd-version", "10"), workdir / "i.csv")
    return score_and_judge(workdir, rng.choice((originals.deep, originals.table)), source, expected=None)


def workbook(originals: Originals, workdir: Path, rng: random.Random) -> str:
    import hostile

    source = workdir / "a.xlsx"
    source.write_bytes(hostile.damaged_workbook(originals.workbook, rng))
    return score_and_judge(workdir, originals.table, source, expected=None)


def flipped_table(originals: Originals, workdir: Path, rng: random.Random) -> str:
    import hostile

    damage = rng.choice((hostile.flipped, hostile.flipped, hostile.flipped, hostile.truncated, hostile.spliced))
    (workdir / "c.parquet").write_bytes(damage(originals.cohort.read_bytes(), rng))
    model = rng.choice((originals.deep, originals.table))
    return score_and_judge(workdir, model, workdir / "c.parquet", expected=originals.folder / f"{model.stem}-c.csv")


def cohort(originals: Originals, workdir: Path, rng: random.Random) -> str:
    import pyarrow.parquet as pq

    import hostile

    source, output = workdir / "c.parquet", workdir / "out.csv"
    if rng.random() < 0.7:
        source.write_bytes(hostile.as_parquet(hostile.altered_table(pq.read_table(originals.cohort), rng)))
    else:
        source.write_bytes(rng.choice((hostile.truncated, hostile.spliced))(originals.cohort.read_bytes(), rng))
    options = ("--split", "all")
    words = {
        "describe": ("cohort", "--describe", source),
        "evaluate": ("evaluate", originals.scores, source, "--resamples", 0, *options, "-o", output),
        "diagnose": ("diagnose", originals.scores, source, *options),
        "indices": ("indices", source, "-o", output),
        "fit": ("fit", source, "-o", workdir / "m.safetensors", "--recipe", "paper", "--config", workdir / "absent"),
    }
    return judge(run(*words[rng.choice(list(words))]))


def scores(originals: Originals, workdir: Path, rng: random.Random) -> str:
    import hostile

    data, ending = hostile.compressed(hostile.damaged_csv(originals.scores.read_text(), rng), rng)
    source = workdir / f"s.csv{ending}"
    source.write_bytes(data)
    return judge(run("evaluate", source, originals.cohort, "--resamples", 0, "--split", "all"))


def own_tables(originals: Originals, workdir: Path, rng: random.Random) -> str:
    import hostile

    texts = {"stays.csv": originals.stays, "dx.csv": originals.dx, "layout.toml": originals.layout}
    damaged = rng.choice(list(texts))
    for name, text in texts.items():
        if name != damaged:
            (workdir / name).write_text(text)
    if damaged == "layout.toml":
        (workdir / damaged).write_text(hostile.damaged_toml(originals.layout, rng))
    else:
        data, ending = hostile.compressed(hostile.damaged_csv(texts[damaged], rng), rng)
        (workdir / (damaged + (".gz" if ending == ".gz" else ""))).write_bytes(data)
    output = workdir / "c.parquet"
    return judge(run("cohort", "tables", workdir, "--config", workdir / "layout.toml", "-o", output), output)


def config(originals: Originals, workdir: Path, rng: random.Random) -> str:
    """Read a damaged config. Nothing is fitted: the file given as the cohort, which is read later, is not a cohort."""
    import hostile

    (workdir / "f.toml").write_text(hostile.damaged_toml(originals.config, rng))
    recipe = rng.choice(("paper", "deep", "table"))
    words = ("fit", originals.scores, "-o", workdir / "m", "--config", workdir / "f.toml", "--recipe", recipe)
    return judge(run(*words), workdir / "m")


def runs(originals: Originals, workdir: Path, rng: random.Random) -> str:
    from dataclasses import asdict

    import numpy as np

    import hostile
    from mlci.base.errors import InputError
    from mlci.benchmark import models as baselines
    from mlci.benchmark.runs import fingerprint, import_runs
    from mlci.cohort import read_cohort

    original = read_cohort(originals.cohort)
    model = asdict(baselines.discover()["charlson"])
    facts = {
        "digest": fingerprint(baselines.parts(original)),
        "runs": {"a": {"model": model, "seed": 11, "cost": {"seconds": 1.0}}},
    }
    arrays = {f"a/{part}": np.arange(len(original.split(part)), dtype=np.float32) for part in ("valid", "test")}
    facts["runs"] = hostile.forged(facts["runs"], rng) if rng.random() < 0.7 else facts["runs"]
    np.savez(workdir / "x.npz", facts=np.array(json.dumps(facts)), **arrays)
    if rng.random() < 0.4:
        damage = rng.choice((hostile.flipped, hostile.truncated, hostile.spliced))
        (workdir / "x.npz").write_bytes(damage((workdir / "x.npz").read_bytes(), rng))
    try:
        import_runs(workdir / "x.npz", originals.cohort, workdir / "runs")
    except InputError:
        return "clean"
    if {path.name for path in workdir.iterdir()} != {"x.npz", "runs"}:
        raise BadCase("something was written outside the folder of runs")
    return "accepted"


def request(originals: Originals, workdir: Path, rng: random.Random) -> str:
    """Send twenty invalid or unusual requests to the page."""
    from starlette.testclient import TestClient

    from mlci.index.estimator import load
    from mlci.web import create_app

    statuses = set()
    index = load(rng.choice((originals.deep, originals.table)))
    with TestClient(create_app(index), base_url="http://localhost", raise_server_exceptions=False) as client:
        for _ in range(20):
            answer = send_odd_request(client, rng)
            statuses.add(answer.status_code)
            if answer.status_code >= 500 and answer.status_code != 503:
                raise BadCase(f"{answer.request.method} {answer.request.url}: {answer.status_code}"[:300])
    return "accepted" if statuses == {200} else "clean"


def send_odd_request(client, rng: random.Random):
    word, other = rng.choice(ODD), rng.choice(ODD)
    body = rng.choice(
        ({"admissions": [[word]]}, {"admissions": word}, [word], {"admissions": [["A000"] * 300], "explain": True})
    )
    way = rng.randrange(7)
    if way == 0:
        return client.get("/", params={"codes": word, "q": other})
    if way == 1:
        return client.get("/api/codes", params={"q": word, "limit": other})
    if way == 2:
        return client.post("/api/score", json=body)
    if way == 3:
        return client.post("/api/score", content=word.encode() * 50)
    if way == 4:
        return client.post("/files", files={"file": (f"{word[:50]}.csv", rng.randbytes(99))})
    if way == 5:
        return client.get(f"/files/{word[:200]!r}/scores", headers={"range": "bytes=5-1"})
    return client.request(rng.choice(("PUT", "DELETE", "HEAD")), "/", headers={"x": "y" * 999})


def kill(originals: Originals, workdir: Path, rng: random.Random) -> str:
    """Kill a command, or ask it to stop, at a random moment; then run it again."""
    import kills

    case = rng.choice(kills.CASES[rng.choice(list(kills.CASES))])

    def again(*words: str) -> str:
        before, tempfile.tempdir = os.getcwd(), str(workdir)
        os.chdir(workdir)
        try:
            result = run(*words)
        finally:
            os.chdir(before)
            tempfile.tempdir = None
        gc.collect()  # DuckDB deletes its spill files with its connection
        if result.code:
            raise BadCase(f"{words[0]}: fails after a kill: {result.output[-300:]}")
        return result.output

    try:
        return "accepted" if kills.kill_and_repeat(case, originals.names(), workdir, rng, again) else "clean"
    except kills.LeftoverError as error:
        raise BadCase(str(error)) from None


def main() -> None:
    if sys.argv[1] == "work":
        folder, kinds, *numbers_of_cases = sys.argv[2:]
        run_cases(Path(folder), kinds.split(","), *map(int, numbers_of_cases))
        return
    start = time.monotonic()
    seed, kinds = sys.argv[2:3] or [SEED], sys.argv[3].split(",") if sys.argv[3:] else KINDS
    with tempfile.TemporaryDirectory() as folder:
        found = supervise(range(int(sys.argv[1])), Path(folder), seed=int(seed[0]), kinds=kinds)
    for kind in kinds:
        print(f"{kind:14}", *(f"{verdict} {found.kinds[kind, verdict]:5}" for verdict in ("clean", "accepted", "bad")))
    total = {verdict: found.counts[verdict] for verdict in ("clean", "accepted", "bad")}
    print(f"{sum(total.values()):,} cases in {time.monotonic() - start:.0f} s:", total)
    print(*found.bad[:40], sep="\n")
    sys.exit(bool(found.bad))


if __name__ == "__main__":
    main()
