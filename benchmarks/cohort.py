"""Build a cohort of MIMIC-IV's size from CSV.gz, and compare it with unpacking the same files.

A synthetic hospital writes raw tables in MIMIC-IV's form (546,028 admissions, 6.4 million diagnoses, ICD-9 and ICD-10
mixed). `mlci cohort mimic4` then runs in a process of its own. The table gives wall time, processor time, peak memory
of that process, and the ratio to `gzip -dc FILES > /dev/null`, at a quarter, half and all of the admissions to show the
growth. The last columns are for the same tables as Parquet.

    python benchmarks/cohort.py [--quick]
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.compute as pc
from pyarrow.csv import read_csv
from pyarrow.parquet import write_table

from mlci.sources import synthetic

ADMISSIONS = 546_028
ICD9_SHARE = 0.68  # leaves about as many ICD-10 admissions as MIMIC-IV has
LIMITS = {"ratio": 2.5, "seconds from Parquet": 1.5, "memory": 3.0}


def timed(*command: object) -> tuple[float, float, float]:
    """Wall seconds, processor seconds and peak resident gigabytes of one process."""
    start = time.perf_counter()
    process = subprocess.Popen([str(word) for word in command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command[0]} failed with status {status}")
    wall = time.perf_counter() - start
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 2**20  # Linux counts kilobytes


def as_parquet(files: list[Path]) -> None:
    """Replace CSV files by Parquet files."""
    for file in files:
        write_table(read_csv(file), file.with_name(file.name.replace(".csv.gz", ".parquet")))
        file.unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the size")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each; the fastest counts")
    options = parser.parse_args()
    full = ADMISSIONS // 20 if options.quick else ADMISSIONS
    header = ["admissions", "diagnoses", "CSV.gz MB", "write s", "gzip -dc s", "cohort s", "ratio", "gzip -dc CPU s"]
    header += ["cohort CPU s", "CPU ratio", "peak GB", "CPU µs per diagnosis", "from Parquet s", "from Parquet CPU s"]
    print(f"| {' | '.join(header)} |\n|{'---:|' * len(header)}")
    with tempfile.TemporaryDirectory() as scratch:
        for size in (full // 4, full // 2, full):
            folder = Path(scratch) / str(size)
            start = time.perf_counter()
            hospital = synthetic.read(size, seed=1, icd9_share=ICD9_SHARE, as_mimic4=folder)
            written = time.perf_counter() - start
            diagnoses = pc.sum(pc.list_value_length(hospital.table["codes"])).as_py()
            files = sorted(folder.rglob("*.csv.gz"))
            megabytes = sum(file.stat().st_size for file in files) / 1e6
            del hospital
            unpack, unpack_cpu, _ = min(timed("gzip", "-dc", *files) for _ in range(options.repeat))
            build = [sys.executable, "-m", "mlci", "cohort", "mimic4", folder, "-o", f"{folder}.parquet", "--force"]
            seconds, cpu, memory = min(timed(*build) for _ in range(options.repeat))
            as_parquet(files)
            quick, quick_cpu, _ = min(timed(*build) for _ in range(options.repeat))
            cells = [f"{size:,}", f"{diagnoses:,}", f"{megabytes:.0f}", f"{written:.1f}", f"{unpack:.2f}"]
            cells += [f"{seconds:.2f}", f"{seconds / unpack:.2f}", f"{unpack_cpu:.2f}", f"{cpu:.2f}"]
            cells += [f"{cpu / unpack_cpu:.2f}", f"{memory:.2f}", f"{cpu / diagnoses * 1e6:.2f}"]
            cells += [f"{quick:.2f}", f"{quick_cpu:.2f}"]
            print(f"| {' | '.join(cells)} |", flush=True)
    if options.quick:
        print("Start-up outweighs the work at this size. The limits apply to the whole.")
        return
    reached = {"ratio": seconds / unpack, "seconds from Parquet": quick, "memory": memory}
    for name, found in reached.items():
        verdict = "met" if found <= LIMITS[name] else "missed"
        print(f"{name} at the whole size, by the clock: {found:.2f}; at most {LIMITS[name]:g}: {verdict}")


if __name__ == "__main__":
    main()
