"""What a command costs before any work: `mlci --help`, `mlci indices` of ten rows, and the whole of `mlci demo`.

    python benchmarks/start.py [--quick]

Each runs in a process of its own. The table gives wall and processor time, the fastest of five runs (one of `demo`),
and the ratio of processor time to that of an interpreter that only imports NumPy and pyarrow, which is the lower bound.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PEER = ("-c", "import numpy, pyarrow.parquet")
LIMITS = {"mlci --help": 0.1, "mlci indices, ten rows": 0.4, "mlci demo": 20.0}  # by the clock, two idle cores


def timed(*words: str) -> tuple[float, float]:
    """Wall and processor seconds."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, process.returncode, usage = os.wait4(process.pid, 0)
    assert process.returncode == 0, words
    return time.perf_counter() - start, usage.ru_utime + usage.ru_stime


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="two runs of each, and no demo")
    quick = parser.parse_args().quick
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder, "rows.csv")
        rows.write_text("admission_id,icd_version,code\n" + "".join(f"{row},10,I50.9\n" for row in range(10)))
        commands = {
            "NumPy and pyarrow alone": PEER,
            "mlci --help": ("-m", "mlci", "--help"),
            "mlci indices, ten rows": ("-m", "mlci", "indices", str(rows), "-o", f"{folder}/i.csv", "--force"),
            **({} if quick else {"mlci demo": ("-m", "mlci", "demo", "-o", f"{folder}/demo")}),
        }
        print(f"{'what':26} {'wall s':>7} {'cpu s':>7} {'ratio':>7}  at most")
        alone = 0.0
        for name, words in commands.items():
            many = 1 if name == "mlci demo" else 2 if quick else 5
            wall, cpu = map(min, zip(*(timed(*words) for _ in range(many))))
            alone = alone or cpu
            aim = f"{LIMITS[name]:g} s: {'met' if wall <= LIMITS[name] else 'missed'}" if name in LIMITS else ""
            print(f"{name:26} {wall:7.2f} {cpu:7.2f} {cpu / alone:7.2f}  {aim}", flush=True)


if __name__ == "__main__":
    main()
