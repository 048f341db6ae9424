"""A campaign of hostile inputs: each case damages or forges one file, runs one command on it, and judges what came.

A case is *clean* (one sentence, exit code 2, nothing written), *accepted* (exit code 0, and figures that are as they
were, or at least numbers) or *bad*: a traceback, a crash, a hang, a figure that changed, a cell in a message, a file
left behind. `supervise` runs cases in a process of their own, so that a crash is one bad case and not the end.

    python tests/campaign.py 2400                      the long campaign, as `make fuzz` runs it
    python tests/campaign.py 200 16 workbook,kill      of that seed, cases of these kinds alone
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
SECONDS, PATIENCE = 120, 800  # that a case may take of a processor, and by the clock, on however busy a machine
MEMORY = 6 << 30  # that it may take beyond what the program itself does
KINDS = {  # how often each comes
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
    """How many cases were what, and why the bad ones are bad."""

    counts: Counter = field(default_factory=Counter)
    kinds: Counter = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, case: int, kind: str, verdict: str, why: str) -> None:
        self.counts[verdict] += 1
        self.kinds[kind, verdict] += 1
        if verdict == "bad":
            self.bad.append(f"case {case} ({kind}): {why}")


def supervise(cases: range, folder: Path, *, seed: int = SEED, kinds: Iterable[str] = KINDS) -> Verdicts:
    """Judge the cases of these numbers; `folder` is theirs."""
    found, case, kind = Verdicts(), cases.start, "?"
    while case < cases.stop:
        words = [sys.executable, __file__, "work", str(folder), ",".join(kinds)]
        words += map(str, (seed, case, cases.stop))
        settings = {**os.environ, "TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=settings) as worker:
            for line in worker.stdout or ():
                said = json.loads(line)
                case, kind = said["case"], said["kind"]
                if "verdict" in said:
                    found.add(case, kind, said["verdict"], said["why"])
                    case += 1
                    if case % 100 == 0:
                        print(f"{case:,} cases: {dict(found.counts)}", *found.bad[-3:], sep="\n", file=sys.stderr)
        if worker.returncode and case < cases.stop:
            found.add(case, kind, "bad", f"the process ended with {worker.returncode}")
            shutil.rmtree(folder / f"case{case}", ignore_errors=True)
            case += 1
    return found


class Bad(Exception):
    """What must not happen, in words."""


def work(folder: Path, kinds: list[str], seed: int, first: int, last: int) -> None:
    """Run cases one after another, telling each before and after."""
    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w", buffering=1)
    whole = Whole(folder / "whole")
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + MEMORY, now + MEMORY))
    for case in range(first, last):
        rng = random.Random(f"{seed}/{case}")
        kind = rng.choices(kinds, [KINDS[name] for name in kinds])[0]
        print(json.dumps({"case": case, "kind": kind}), file=out)
        place = folder / f"case{case}"
        place.mkdir()
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(PATIENCE)
        try:
            verdict, why = globals()[kind.replace(" ", "_")](whole, place, rng), ""
        except Bad as error:
            verdict, why = "bad", str(error)
        except Exception as error:  # whatever gets past the program's own errors is what the campaign looks for
            verdict, why = "bad", f"{type(error).__name__}: {error} in {traceback.extract_tb(error.__traceback__)[-1]}"
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        shutil.rmtree(place)
        gc.collect()
        left = [path.name for path in folder.iterdir() if path != folder / "whole"]
        if left:
            verdict, why = "bad", f"left behind: {left}"
            for name in left:
                shutil.rmtree(folder / name, ignore_errors=True)
        print(json.dumps({"case": case, "kind": kind, "verdict": verdict, "why": why[:600]}), file=out)


class Whole:
    """Files as they should be, made once; and what the commands make of them."""

    def __init__(self, folder: Path) -> None:
        import pandas as _  # noqa: F401  (commands that do without would hide it from those that follow)
        import pyarrow as pa

        import hostile
        from toys import code_lists, random_index, random_model, toy_cohort

        self.folder = folder
        self.deep, self.table = folder / "deep.safetensors", folder / "table.safetensors"
        self.cohort, self.scores = folder / "c.parquet", folder / "s.csv"
        codes = code_lists(40, seed=5, longest=6)
        ids = [f"{hostile.SECRET}{row}" for row in range(len(codes))]
        self.wide = "admission_id,codes\n" + "".join(f"{one},{' '.join(each)}\n" for one, each in zip(ids, codes))
        rows = [(one, code) for one, each in zip(ids, codes) for code in each]
        self.long = "admission_id,code,icd_version\n" + "".join(f"{one},{code},10\n" for one, code in rows)
        self.rows = pa.table({"admission_id": ids, "codes": codes, "icd_version": [10] * len(ids)})
        self.stays = "id,mrn,died\n" + "".join(f"{one},{row // 2},{row % 2}\n" for row, one in enumerate(ids))
        self.dx = "id,icd,rank\n" + "".join(f"{one},{code},{place}\n" for place, (one, code) in enumerate(rows))
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
        """What commands that are killed are given."""
        files = {"c": "large.parquet", "s": "large.csv", "m": "large.safetensors", "d": self.deep}
        files |= {"a": "a.csv", "t": "tables", "p": "flagged.parquet"}
        return {key: str(self.folder / name) for key, name in files.items()}


@dataclass(frozen=True)
class Ran:
    code: int
    said: str


def run(*words: object) -> Ran:
    """`mlci` with these words, as a person would run it."""
    from mlci import cli

    text = io.StringIO()
    before = sys.argv
    sys.argv = ["mlci", *map(str, words)]
    try:
        with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
            cli.main()
    except SystemExit as ended:
        return Ran(ended.code if isinstance(ended.code, int) else 1, text.getvalue())
    finally:
        sys.argv = before
    raise AssertionError("main always exits")


def judged(ran: Ran, output: Path | None = None) -> str:
    """Clean or accepted; all else is bad."""
    import hostile

    told = [line for line in ran.said.splitlines() if line.startswith(("mlci: ", "Error: "))]
    if hostile.SECRET in ran.said:
        raise Bad(f"a cell in a message: {ran.said[:300]}")
    if "Traceback" in ran.said or ran.code not in (0, 2) or "bug in mlci" in ran.said:
        raise Bad(f"exit code {ran.code}: {ran.said[-300:]}")
    if ran.code == 2 and not told:
        raise Bad(f"no sentence: {ran.said[-300:]}")
    if ran.code == 2 and output is not None and output.exists():
        raise Bad("refused, but the output is there")
    if output is not None and any(path.name.endswith(".part") for path in output.parent.iterdir()):
        raise Bad("a part of a file is left")
    return "clean" if ran.code else "accepted"


def numbers(path: Path) -> None:
    """Refuse a scores file in which some figure is no number."""
    import numpy as np
    import pandas as pd

    frame = pd.read_csv(path)
    if "score" in frame and len(frame):
        risks = frame[[name for name in frame if name.startswith("risk_")]].to_numpy(float)
        if not np.isfinite(frame["score"].to_numpy(float)).all() or ((risks < 0) | (risks > 1)).any():
            raise Bad("scores or risks that are no such")


def scored(whole: Whole, place: Path, model: Path, admissions: Path, *, same: Path | None) -> str:
    output = place / "out.csv"
    verdict = judged(run("score", model, admissions, "-o", output, "--icd-version", "10"), output)
    if verdict == "accepted":
        numbers(output)
        if same is not None and output.read_bytes() != same.read_bytes():
            raise Bad("a figure changed")
    return verdict


def flipped_model(whole: Whole, place: Path, rng: random.Random) -> str:
    import hostile

    source = rng.choice((whole.deep, whole.table))
    damage = rng.choice((hostile.flipped, hostile.flipped, hostile.cut, hostile.spliced))
    (place / "m").write_bytes(damage(source.read_bytes(), rng))
    return scored(whole, place, place / "m", whole.folder / "a.csv", same=whole.folder / f"{source.stem}-a.csv")


def forged_model(whole: Whole, place: Path, rng: random.Random) -> str:
    import hostile

    source, model = rng.choice((whole.deep, whole.table)), place / "m"
    hostile.forged_model(str(source), str(model), rng)
    command = rng.choices(("score", "cite", "export", "page", "card"), (12, 2, 2, 3, 1))[0]
    if command == "score":
        return scored(whole, place, model, whole.folder / "a.csv", same=None)
    if command == "cite":
        return judged(run("cite", model))
    if command == "card":
        return judged(run("card", model, whole.cohort, "-o", place / "card.html", "--quiet"), place / "card.html")
    if command == "export":
        return judged(run("export", model, "-o", place / "w.csv"), place / "w.csv")
    return page(model)


def page(model: Path) -> str:
    """The page of a forged model: refused on loading, or shown."""
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
                raise Bad(f"{address}: {answer.status_code}")
    return "accepted"


def table(whole: Whole, place: Path, rng: random.Random) -> str:
    import hostile

    if rng.random() < 0.7:
        text = rng.choice((whole.wide, whole.long))
        data, ending = hostile.packed(hostile.spoilt_text(text, rng), rng)
        source = place / f"a.{rng.choice(('csv', 'csv', 'tsv', 'txt'))}{ending}"
    else:
        data = hostile.as_parquet(hostile.rewritten(whole.rows, rng))
        source = place / f"a.{rng.choice(('parquet', 'parquet', 'csv', 'xlsx'))}"
    source.write_bytes(data)
    if rng.random() < 0.3:
        return judged(run("indices", source, "-o", place / "i.csv", "--icd-version", "10"), place / "i.csv")
    return scored(whole, place, rng.choice((whole.deep, whole.table)), source, same=None)


def workbook(whole: Whole, place: Path, rng: random.Random) -> str:
    import hostile

    source = place / "a.xlsx"
    source.write_bytes(hostile.spoilt_workbook(whole.workbook, rng))
    return scored(whole, place, whole.table, source, same=None)


def flipped_table(whole: Whole, place: Path, rng: random.Random) -> str:
    import hostile

    damage = rng.choice((hostile.flipped, hostile.flipped, hostile.flipped, hostile.cut, hostile.spliced))
    (place / "c.parquet").write_bytes(damage(whole.cohort.read_bytes(), rng))
    model = rng.choice((whole.deep, whole.table))
    return scored(whole, place, model, place / "c.parquet", same=whole.folder / f"{model.stem}-c.csv")


def cohort(whole: Whole, place: Path, rng: random.Random) -> str:
    import pyarrow.parquet as pq

    import hostile

    source, output = place / "c.parquet", place / "out.csv"
    if rng.random() < 0.7:
        source.write_bytes(hostile.as_parquet(hostile.rewritten(pq.read_table(whole.cohort), rng)))
    else:
        source.write_bytes(rng.choice((hostile.cut, hostile.spliced))(whole.cohort.read_bytes(), rng))
    options = ("--split", "all")
    words = {
        "describe": ("cohort", "--describe", source),
        "evaluate": ("evaluate", whole.scores, source, "--resamples", 0, *options, "-o", output),
        "diagnose": ("diagnose", whole.scores, source, *options),
        "indices": ("indices", source, "-o", output),
        "fit": ("fit", source, "-o", place / "m.safetensors", "--recipe", "paper", "--config", place / "absent"),
    }
    return judged(run(*words[rng.choice(list(words))]))


def scores(whole: Whole, place: Path, rng: random.Random) -> str:
    import hostile

    data, ending = hostile.packed(hostile.spoilt_text(whole.scores.read_text(), rng), rng)
    source = place / f"s.csv{ending}"
    source.write_bytes(data)
    return judged(run("evaluate", source, whole.cohort, "--resamples", 0, "--split", "all"))


def own_tables(whole: Whole, place: Path, rng: random.Random) -> str:
    import hostile

    texts = {"stays.csv": whole.stays, "dx.csv": whole.dx, "layout.toml": whole.layout}
    spoilt = rng.choice(list(texts))
    for name, text in texts.items():
        if name != spoilt:
            (place / name).write_text(text)
    if spoilt == "layout.toml":
        (place / spoilt).write_text(hostile.spoilt_toml(whole.layout, rng))
    else:
        data, ending = hostile.packed(hostile.spoilt_text(texts[spoilt], rng), rng)
        (place / (spoilt + (".gz" if ending == ".gz" else ""))).write_bytes(data)
    output = place / "c.parquet"
    return judged(run("cohort", "tables", place, "--config", place / "layout.toml", "-o", output), output)


def config(whole: Whole, place: Path, rng: random.Random) -> str:
    """A config is read before the cohort, which here is none: nothing is fitted."""
    import hostile

    (place / "f.toml").write_text(hostile.spoilt_toml(whole.config, rng))
    recipe = rng.choice(("paper", "deep", "table"))
    words = ("fit", whole.scores, "-o", place / "m", "--config", place / "f.toml", "--recipe", recipe)
    return judged(run(*words), place / "m")


def runs(whole: Whole, place: Path, rng: random.Random) -> str:
    from dataclasses import asdict

    import numpy as np

    import hostile
    from mlci.base.errors import InputError
    from mlci.benchmark import models as baselines
    from mlci.benchmark.runs import fingerprint, import_runs
    from mlci.cohort import read_cohort

    known = read_cohort(whole.cohort)
    model = asdict(baselines.discover()["charlson"])
    facts = {
        "digest": fingerprint(baselines.parts(known)),
        "runs": {"a": {"model": model, "seed": 11, "cost": {"seconds": 1.0}}},
    }
    arrays = {f"a/{part}": np.arange(len(known.split(part)), dtype=np.float32) for part in ("valid", "test")}
    facts["runs"] = hostile.forged(facts["runs"], rng) if rng.random() < 0.7 else facts["runs"]
    np.savez(place / "x.npz", facts=np.array(json.dumps(facts)), **arrays)
    if rng.random() < 0.4:
        damage = rng.choice((hostile.flipped, hostile.cut, hostile.spliced))
        (place / "x.npz").write_bytes(damage((place / "x.npz").read_bytes(), rng))
    try:
        import_runs(place / "x.npz", whole.cohort, place / "runs")
    except InputError:
        return "clean"
    if {path.name for path in place.iterdir()} != {"x.npz", "runs"}:
        raise Bad("written elsewhere")
    return "accepted"


def request(whole: Whole, place: Path, rng: random.Random) -> str:
    """Twenty requests to the page."""
    from starlette.testclient import TestClient

    from mlci.index.estimator import load
    from mlci.web import create_app

    statuses = set()
    index = load(rng.choice((whole.deep, whole.table)))
    with TestClient(create_app(index), base_url="http://localhost", raise_server_exceptions=False) as client:
        for _ in range(20):
            answer = ask(client, rng)
            statuses.add(answer.status_code)
            if answer.status_code >= 500 and answer.status_code != 503:
                raise Bad(f"{answer.request.method} {answer.request.url}: {answer.status_code}"[:300])
    return "accepted" if statuses == {200} else "clean"


def ask(client, rng: random.Random):
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


def kill(whole: Whole, place: Path, rng: random.Random) -> str:
    """A command that is killed, or told to stop, at some moment, and then given again."""
    import kills

    case = rng.choice(kills.CASES[rng.choice(list(kills.CASES))])

    def again(*words: str) -> str:
        before, tempfile.tempdir = os.getcwd(), str(place)
        os.chdir(place)
        try:
            ran = run(*words)
        finally:
            os.chdir(before)
            tempfile.tempdir = None
        gc.collect()  # what DuckDB spilled goes with its connection
        if ran.code:
            raise Bad(f"{words[0]}: not after a kill: {ran.said[-300:]}")
        return ran.said

    try:
        return "accepted" if kills.killed(case, whole.names(), place, rng, again) else "clean"
    except kills.Left as left:
        raise Bad(str(left)) from None


def main() -> None:
    if sys.argv[1] == "work":
        folder, kinds, *numbers_of_cases = sys.argv[2:]
        work(Path(folder), kinds.split(","), *map(int, numbers_of_cases))
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
