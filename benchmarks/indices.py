"""Charlson and Elixhauser, Parquet to scores: `mlci indices` compared with comorbidipy, pycomorb and a DuckDB join.

    python benchmarks/indices.py [--quick]

- Each tool runs in a process of its own, on the same synthetic admissions of 12 ICD-10-CM codes (common codes common,
  rare ones rare).
- Seconds of work go from opening the file to closing the scores, after a first run on 1,000 admissions. Imports and the
  first run count as start-up.
- The peers get one row per code, the form they need, so reshaping is not counted. Their scores are compared with ours.
- One DuckDB join is what a user would write (codes joined with their categories, a flag for each). The other uses our
  bit masks.
- Each peer is installed into a folder of build/ with the newest Python of this machine that some version of it supports
  (or --peers-python); its row shows both versions. A peer that no Python supports is left out with a message.
- The last table compares ten indices with one.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from mlci.codes import icd

ROOT = Path(__file__).parents[1]
# What pip is asked for, the first that some Python of this machine takes; comorbidipy 0.8 wants Python 3.13.
PEERS = {"comorbidipy": ["comorbidipy>=0.8", "comorbidipy<0.8 pandas<1.5 numpy<2"], "pycomorb": ["pycomorb"]}
ONE, TEN = "charlson", "charlson,elixhauser,rcs,shmi,swedish,danish,australian,ahrq,gagne,hfrs"  # of ICD-10
CODES = 12
CHUNK = 250_000  # admissions written at once, so that making the data needs little memory too

MLCI = """
from mlci.codes.scoring import write_scores
def work(folder): write_scores(folder + "/wide.parquet", out)
"""
MLCI_LONG = MLCI.replace("/wide.", "/long.")
MLCI_COLUMNS = MLCI.replace("/wide.", "/columns.")
COMORBIDIPY = """
import polars as pl
from comorbidipy import comorbidity
try:
    from comorbidipy import ScoreType, WeightingVariant
    ways = (ScoreType.CHARLSON, WeightingVariant.CHARLSON), (ScoreType.ELIXHAUSER, WeightingVariant.VAN_WALRAVEN)
    read, done = pl.read_parquet, lambda found: found
except ImportError:  # before 0.8: by pandas
    import pandas
    ways = ("charlson", "charlson"), ("elixhauser", "vw")
    read, done = pandas.read_parquet, lambda found: pl.from_pandas(found.reset_index())
def work(folder):
    rows = read(folder + "/long.parquet")
    found = [
        done(comorbidity(rows, "admission_id", "code", None, score=kind, weighting=by)) for kind, by in ways
    ]
    cci = found[0].select("admission_id", cci_charlson="comorbidity_score")
    eci = found[1].select("admission_id", eci_vw="comorbidity_score")
    cci.join(eci, on="admission_id").write_parquet(out)
"""
PYCOMORB = """
import polars as pl
from pycomorb import comorbidity
def work(folder):
    rows = pl.read_parquet(folder + "/long.parquet").with_columns(age=pl.lit(30))  # no points for age
    cci = comorbidity("charlson", rows, id_col="admission_id", implementation="quan", weights="charlson")
    eci = comorbidity("elixhauser", rows, id_col="admission_id", implementation="quan", weights="van_walraven")
    cci = cci.select("admission_id", cci_charlson=cci.columns[-1])
    eci = eci.select("admission_id", eci_vw=eci.columns[-1])
    cci.join(eci, on="admission_id").write_parquet(out)
"""
DUCKDB = """
import duckdb
from mlci.codes.rules import rules
categories = rules().categories
listed = [(prefix, i) for i, category in enumerate(categories) for prefix in category.codes[10]]
flags = ", ".join(f"max(category = {i})::INT AS {c.column}" for i, c in enumerate(categories))
def term(c, weights):
    return f"{c.weights[weights]} * {c.column}" + "".join(f" * (1 - {severer})" for severer in c.yields_to)
total = lambda short, weights: " + ".join(term(c, weights) for c in categories if c.column.startswith(short))
def work(folder):
    db = duckdb.connect()
    db.execute("CREATE TABLE prefixes (prefix VARCHAR, category TINYINT)")
    db.executemany("INSERT INTO prefixes VALUES (?, ?)", listed)
    part = "SELECT code, category FROM codes JOIN prefixes ON left(code, {}) = prefix"
    db.execute(f'''COPY (
        WITH long AS (FROM '{folder}/long.parquet'), codes AS (SELECT DISTINCT code FROM long),
        map AS ({" UNION ".join(part.format(n) for n in (3, 4, 5))}),
        flagged AS (SELECT admission_id, {flags} FROM long JOIN map USING (code) GROUP BY admission_id),
        scored AS (SELECT admission_id, {total("cci", "charlson")} AS cci, {total("eci", "vw")} AS eci FROM flagged)
        SELECT admission_id, coalesce(cci, 0) AS cci_charlson, coalesce(eci, 0) AS eci_vw
        FROM (SELECT DISTINCT admission_id FROM long) LEFT JOIN scored USING (admission_id)
        ) TO '{out}' (FORMAT parquet)''')
"""
DUCKDB_MASKS = """
import duckdb
from mlci.codes.rules import rules
categories = rules().categories
bit = lambda column: f"((bits >> {rules().place[column]}) & 1)"
def term(category, weights):
    flag = bit(category.column) + "".join(f" * (1 - {bit(severer)})" for severer in category.yields_to)
    return f"{category.weights[weights]} * {flag}"
total = lambda short, weights: " + ".join(term(c, weights) for c in categories if c.column.startswith(short))
listed = sorted({prefix for category in categories for prefix in category.codes[10]})
own = lambda code: sum(1 << i for i, category in enumerate(categories) if code in category.codes[10])
prefixes = [(prefix, own(prefix)) for prefix in listed]
def work(folder):
    db = duckdb.connect()
    db.execute("CREATE TABLE prefixes (prefix VARCHAR, bits UBIGINT)")
    db.executemany("INSERT INTO prefixes VALUES (?, ?)", prefixes)
    joins = " ".join(f"LEFT JOIN prefixes p{n} ON left(code, {n}) = p{n}.prefix" for n in (3, 4, 5))
    masks = " | ".join(f"coalesce(p{n}.bits, 0)" for n in (3, 4, 5))
    db.execute(f'''COPY (SELECT admission_id, {total("cci", "charlson")} AS cci_charlson, {total("eci", "vw")} AS eci_vw
        FROM (SELECT admission_id, bit_or({masks})::BIGINT AS bits FROM '{folder}/long.parquet' {joins}
        GROUP BY admission_id)) TO '{out}' (FORMAT parquet)''')
"""
CHILD = """
import json, sys, time
begin = time.perf_counter()
small, folder, out = sys.argv[1:]
{task}
work(small)
before = time.perf_counter() - begin
start, cpu = time.perf_counter(), time.process_time()
work(folder)
seconds = [time.perf_counter() - start, time.process_time() - cpu]
# The high-water mark of this process alone: getrusage would count the parent's before exec.
peak = [line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")]
print(json.dumps([*seconds, int(peak[0]) / 1024, before]))
"""
TOOLS = {
    "mlci": MLCI,
    "mlci, row per code": MLCI_LONG,
    "mlci, DX1 to DX12": MLCI_COLUMNS,
    "DuckDB join": DUCKDB,
    "DuckDB, our masks": DUCKDB_MASKS,
    "comorbidipy": COMORBIDIPY,
    "pycomorb": PYCOMORB,
}


def make(folder: Path, admissions: int) -> None:
    """wide.parquet (a list of codes per admission), long.parquet (a row per code) and columns.parquet (a column for
    each code), with the same content."""
    folder.mkdir(exist_ok=True)
    table = icd.icd_table(10)
    codes = table["code"].filter(table["billable"]).combine_chunks()
    rng = np.random.default_rng(0)
    shuffled = rng.permutation(len(codes))
    sinks = {}
    for start in range(0, admissions, CHUNK):
        n = min(CHUNK, admissions - start)
        flat = codes.take(pa.array(shuffled[(len(codes) * rng.random(n * CODES) ** 3).astype(int)]))
        ids = np.arange(start, start + n)
        lists = pa.ListArray.from_arrays(np.arange(0, n * CODES + 1, CODES, dtype=np.int32), flat)
        parts = {
            "wide": pa.table({"admission_id": ids, "codes": lists, "icd_version": np.full(n, 10, dtype=np.int8)}),
            "long": pa.table(
                {"admission_id": np.repeat(ids, CODES), "code": flat, "icd_version": np.full(n * CODES, 10, np.int8)}
            ),
        }
        each = {f"DX{place + 1}": flat.take(pa.array(np.arange(place, len(flat), CODES))) for place in range(CODES)}
        parts["columns"] = pa.table({"admission_id": ids, **each, "icd_version": np.full(n, 10, dtype=np.int8)})
        for name, part in parts.items():
            sinks[name] = sinks.get(name) or pq.ParquetWriter(folder / f"{name}.parquet", part.schema)
            sinks[name].write_table(part)
    for sink in sinks.values():
        sink.close()


def measure(python: str, task: str, folder: Path) -> tuple[list[float] | None, str]:
    env = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "ignore"}
    places = map(str, (folder / "small", folder, folder / "scores.parquet"))
    command = [python, "-c", CHILD.replace("{task}", task), *places]
    done = subprocess.run(command, text=True, capture_output=True, env=env)
    if done.returncode:
        return None, textwrap.shorten(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "killed", 100)
    return json.loads(done.stdout.splitlines()[-1]), ""


def peer(name: str, asked: str | None) -> tuple[str | None, str]:
    """The newest interpreter on which this peer installs, and both versions; or why there is none."""
    said = "no Python was found"
    tries = [(ask, python) for ask in enumerate(PEERS[name]) for python in ([asked] if asked else interpreters())]
    for (number, wanted), python in tries:
        found = shutil.which(python)
        if not found:
            said = f"{python} is not installed"
            continue
        home = ROOT / "build" / "-".join(["peer", name, str(number), *Path(found).parts[1:]])  # one for each Python
        steps = [] if home.exists() else [[found, "-m", "venv", str(home)]]
        steps.append([str(home / "bin/pip"), "install", "-q", *wanted.split(), "polars", "pyarrow"])
        for step in steps:
            done = subprocess.run(step, text=True, capture_output=True)
            if done.returncode:
                lines = [line.strip() for line in done.stderr.splitlines()]
                errors = [line for line in lines if line.lower().startswith("error")] or lines[-1:]
                said = textwrap.shorten(f"{python}: {' '.join(errors)}", 100)
                break
        else:
            inside = str(home / "bin/python")
            tell = f"import sys, importlib.metadata as m; print(m.version('{name}'), sys.version.split()[0])"
            return inside, "{} on Python {}".format(*subprocess.check_output([inside, "-c", tell], text=True).split())
    return None, said


def interpreters() -> list[str]:
    """Every working Python of this machine, newest first."""
    homes = Path.home().glob(".pyenv/versions/3.*/bin/python3")
    versions = {}
    for python in [*(f"python3.{minor}" for minor in range(14, 9, -1)), *map(str, homes), sys.executable]:
        if shutil.which(python):
            done = subprocess.run(
                [python, "-c", "import sys; print(sys.version_info[1])"], text=True, capture_output=True
            )
            versions |= {python: int(done.stdout)} if not done.returncode else {}
    return sorted(versions, key=lambda python: -versions[python])


def agreement(ours: pa.Table, theirs: pa.Table) -> str:
    """The share of admissions for which both scores agree."""
    both = ours.join(theirs, "admission_id", right_suffix="_peer")
    same = [np.asarray(both[name]) == np.asarray(both[f"{name}_peer"]) for name in ("cci_charlson", "eci_vw")]
    return f"{(same[0] & same[1]).mean():.2%}"


def compare(admissions: int, repeats: int, pythons: dict[str, tuple[str | None, str]]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, admissions)
        make(folder / "small", 1000)
        size = (folder / "wide.parquet").stat().st_size / 1e6
        print(
            f"\n{admissions:,} admissions x {CODES} ICD-10 codes, {size:.0f} MB of Parquet; best of {repeats}, "
            f"{os.cpu_count()} cores"
        )
        print(f"{'':20} {'work s':>7} {'CPU s':>7} {'start s':>7} {'admissions/s':>13} {'peak MB':>8}   same scores")
        best, reference = {}, None
        for tool, task in TOOLS.items():
            python, why = pythons.get(tool, (sys.executable, ""))
            if python is None:
                print(f"{tool:20} left out: {why}")
                continue
            runs = [measure(python, task, folder) for _ in range(repeats)]
            if failed := [reason for run, reason in runs if run is None]:
                print(f"{tool:20} left out: {failed[0]}")
                continue
            seconds, cpu, peak, before = min(run for run, _ in runs if run)
            best[tool] = admissions / seconds
            found = pq.read_table(folder / "scores.parquet", columns=["admission_id", "cci_charlson", "eci_vw"])
            reference = reference or found
            same = agreement(reference, found)
            print(f"{tool:20} {seconds:7.2f} {cpu:7.2f} {before:7.2f} {best[tool]:13,.0f} {peak:8.0f}   {same} {why}")
        for tool in sorted(best, key=best.__getitem__, reverse=True):
            if not tool.startswith("mlci"):
                print(f"mlci is {best['mlci'] / best[tool]:.1f} x {tool}")


def many(admissions: int, repeats: int) -> None:
    """Compare ten indices with one, in processor time."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make(folder, admissions)
        make(folder / "small", 1000)
        seconds = {}
        for names in (ONE, TEN):
            task = MLCI.replace("out)", f"out, index={names!r})")
            runs = [measure(sys.executable, task, folder) for _ in range(repeats)]
            if failed := [why for run, why in runs if run is None]:
                sys.exit(failed[0])
            seconds[names] = min(run[1] for run, _ in runs if run)
        print(f"\n{admissions:,} admissions, processor time: one index {seconds[ONE]:.2f} s, ten {seconds[TEN]:.2f} s")
        print(f"Ten indices cost {seconds[TEN] / seconds[ONE]:.2f} x one.")


def growth(sizes: list[int]) -> None:
    print(f"\nGrowth: mlci alone\n{'admissions':>12} {'file MB':>8} {'s':>7} {'admissions/s':>13} {'peak MB':>8}")
    for admissions in sizes:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            make(folder, admissions)
            make(folder / "small", 1000)
            size = (folder / "wide.parquet").stat().st_size / 1e6
            run, why = measure(sys.executable, MLCI, folder)
            if run is None:
                sys.exit(why)
            print(f"{admissions:12,} {size:8.0f} {run[0]:7.2f} {admissions / run[0]:13,.0f} {run[2]:8.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a tenth of the size, once")
    parser.add_argument("--peers-python", help="interpreter for the peers (default: the newest that works)")
    options = parser.parse_args()
    pythons = {name: peer(name, options.peers_python) for name in PEERS}
    scale = 10 if options.quick else 1
    compare(1_000_000 // scale, 1 if options.quick else 3, pythons)
    many(1_000_000 // scale, 1 if options.quick else 3)
    growth([size // scale for size in (1_000_000, 4_000_000, 16_000_000)])


if __name__ == "__main__":
    main()
