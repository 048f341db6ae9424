"""`mlci fit --recipe deep`, the whole command: wall time, processor time and memory, on one core and on all.

    python benchmarks/deep.py [COHORT] [--quick]

COHORT is a cohort file. Without it, the script uses NHDS 2010 from MLCI_DATA (or ../shared/data), or if that is
missing, as many synthetic admissions. The comparison is the same fit on one core, one member after another. Both model
files must be byte-for-byte identical, because a fit does not depend on the number of cores.
"""

import argparse
import os
import tempfile
from pathlib import Path

import mlci
from score import timed

SURVEY = Path(os.environ.get("MLCI_DATA", Path(__file__).parents[2] / "shared" / "data")) / "nhds2010/NHDS10.PU.txt.bz2"
ADMISSIONS = 129_242  # of NHDS 2010
LIMIT = 50.0  # seconds by the clock: NHDS, two idle cores


def cohort_file(folder: Path, given: str | None, quick: bool) -> tuple[Path, str]:
    """The cohort file and a label for it."""
    if given:
        return Path(given), given
    survey = SURVEY.exists() and not quick
    admissions = ADMISSIONS // 20 if quick else ADMISSIONS
    cohort = (
        mlci.build_cohort("nhds", SURVEY, not_stated="null") if survey else mlci.build_cohort("synthetic", admissions)
    )
    cohort.write(folder / "cohort.parquet")
    return folder / "cohort.parquet", "NHDS 2010" if survey else f"{admissions:,} synthetic admissions"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cohort", nargs="?")
    parser.add_argument("--quick", action="store_true", help="a twentieth of the admissions, synthetic")
    words = parser.parse_args()
    every, files, clock = os.sched_getaffinity(0), [], {}
    with tempfile.TemporaryDirectory() as name:
        source, said = cohort_file(Path(name), words.cohort, words.quick)
        print(f"{said}\n{'cores':>5} {'wall s':>7} {'cpu s':>7} {'ratio':>6} {'MB':>6}")
        for cores in sorted({1, len(every)}):
            os.sched_setaffinity(0, sorted(every)[:cores])
            target = Path(name, f"{cores}.safetensors")
            wall, cpu, peak = timed("fit", str(source), "-o", str(target), "--recipe", "deep", "--quiet")
            clock[cores] = wall
            print(f"{cores:>5} {wall:>7.1f} {cpu:>7.1f} {clock[1] / wall:>6.2f} {peak:>6.0f}", flush=True)
            files.append(target.read_bytes())
    assert files[0] == files[-1], "the model depends on the number of cores"
    if said == "NHDS 2010" and len(every) == 2:
        print(f"limit {LIMIT:.0f} s by the clock on two idle cores: {'met' if clock[2] <= LIMIT else 'missed'}")


if __name__ == "__main__":
    main()
