"""Every error ends in the same way: one sentence, exit code 2, and nothing of the file's content."""

import os
import signal
import subprocess
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import duckdb
import pyarrow as pa
import pytest

from conftest import PATIENCE
from mlci import cli
from mlci.base.errors import InputError, address, columns_of, without_secrets

CELL = "Mrs Miller, I50.9"


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (InputError("a.csv: is empty."), 2, "a.csv: is empty."),
        (FileNotFoundError(2, CELL, "a.csv"), 2, "a.csv: no such file"),
        (OSError(36, CELL, "a" * 300), 2, "file name too long"),
        (OSError(CELL), 2, "damaged"),
        (EOFError(CELL), 2, "damaged"),
        (UnicodeDecodeError("utf-8", CELL.encode(), 0, 1, CELL), 2, "damaged"),
        (pa.ArrowInvalid(CELL), 2, "damaged"),
        (pa.ArrowNotImplementedError(CELL), 2, "damaged"),
        (pa.lib.ArrowKeyError(CELL), 2, "damaged"),
        (duckdb.ConversionException(CELL), 2, "damaged"),
        (duckdb.IOException(f"{CELL}: No space left on device"), 2, "the disk is full"),
        (OSError(28, CELL), 2, "the disk is full"),
        (zlib.error(CELL), 2, "damaged"),
        (MemoryError(CELL), 2, "not enough memory"),
        (RecursionError(CELL), 2, "nested too deeply"),
        (InputError("odd\udcffname\nand line: is no file."), 2, "odd\ufffdname\ufffdand"),
        (KeyError(CELL), 1, "bug in mlci (KeyError in test_exit.py"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_every_error_is_one_sentence(error, code, said, monkeypatch, capsys):
    def raises(**_):
        raise error

    monkeypatch.setattr(cli.cli, "main", raises)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(threading, "active_count", lambda: 1)  # or this process would end at once
    with pytest.raises(SystemExit) as ended:
        cli.main()
    told = capsys.readouterr().err
    assert ended.value.code == code
    assert said in told.lower() or said in told
    assert "Miller" not in told
    assert told.count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_stopped_command_removes_its_temporary_files(number, tmp_path):
    program = f"""
import os
from mlci import cli
from mlci.base.files import atomic, scratch
def work(**_):
    with atomic("out.csv") as part, scratch() as folder:
        part.write_text("patients"); (folder / "rows.duckdb").write_text("patients")
        try:
            os.kill(os.getpid(), {int(number)})
        finally:
            for again in cli.STOP_SIGNALS: os.kill(os.getpid(), again)  # while it ends
cli.cli.main = work
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)})
    assert done.returncode == 128 + number
    assert not list(tmp_path.iterdir())


def test_a_stop_that_other_code_catches_ends_the_command_a_little_later():
    program = """
import os, signal, time
from mlci import cli
cli.LAST = 0.1
def work(**_):
    try:
        os.kill(os.getpid(), signal.SIGTERM)
    except BaseException:
        time.sleep(600)
cli.cli.main = work
cli.main()
"""
    assert subprocess.run([sys.executable, "-c", program], timeout=PATIENCE).returncode == 143


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_stopped_command_does_not_wait_for_its_threads(number, code, tmp_path):
    program = f"""
import os, tempfile, threading
from mlci import cli
from mlci.base.files import scratch
from mlci.base.threads import threads
def work(**_):
    folders = scratch()
    (folders.__enter__() / "rows.duckdb").write_text("patients")  # never left
    with threads(2) as pool:
        begun, never = threading.Barrier(3), threading.Event()
        for _ in range(9):
            pool.submit(lambda: (begun.wait(), never.wait()))
        begun.wait()
        os.kill(os.getpid(), {int(number)})
        never.wait()
cli.cli.main = work
cli.main()
"""
    env = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=env, timeout=PATIENCE, capture_output=True)
    assert done.returncode == code, done.stderr
    assert b"Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_command_that_is_stopped_inside_duckdb_is_no_fault_of_the_program(number, code):
    program = f"""
import os, threading
import duckdb
from mlci import cli
def work(**_):
    threading.Timer(0.5, lambda: os.kill(os.getpid(), {int(number)})).start()
    duckdb.sql("select sum(a.range * b.range % 7) from range(1000000) a, range(1000000) b").fetchall()
cli.cli.main = work
cli.main()
"""
    done = subprocess.run([sys.executable, "-c", program], timeout=PATIENCE, capture_output=True)
    assert done.returncode == code, done.stderr
    assert b"bug in mlci" not in done.stderr


def test_a_command_that_fails_does_not_end_the_program_that_called_it(monkeypatch, tmp_path):
    """Such as a thread in which a server answers."""
    monkeypatch.setattr(sys, "argv", ["mlci", "score", str(tmp_path / "none"), "none.csv", "-o", "s.csv"])
    monkeypatch.setattr(cli, "without_pandas", lambda _: None)  # the next test of this process may need it
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    end = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(end.wait)
        with pytest.raises(SystemExit) as ended:
            cli.main()
        end.set()
    assert (ended.value.code, other.result()) == (2, True)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://ann:hunter2@db:5432/mimic",
        "postgres://ann:hun@ter2@db:5432/mimic",
        "postgres://ann:hun/ter2@db:5432/mimic",
        "postgres://ann:hun?ter2#@db:5432/mimic",
        "postgres://db:5432/mimic?user=ann&password=hunter2",
        "postgres://db:5432/mimic?password=hun@ter2",
        "postgres://ann:hunter2",
    ],
)
def test_an_address_is_shown_without_its_password(url):
    shown = address(url)
    assert not any(part in shown for part in ("hun", "ter2"))
    assert shown.startswith("postgres://")
    assert without_secrets(f"no connection to {url}", url) == ""


def test_a_drivers_reason_is_kept_where_it_holds_no_secret():
    url = "postgres://ann:hunter2@db/mimic"
    assert without_secrets("connection refused\nmore", url) == "connection refused"
    assert without_secrets("Port could not be cast to integer value as 'hun'", "postgres://ann:hun/ter2@db/x") == ""


def test_the_first_line_of_a_file_without_header_is_not_repeated():
    assert "Miller" not in columns_of(["Miller", "I509"], ["admission_id", "codes"])
    assert columns_of(["Admission_ID", "diagnosis"], ["admission_id", "codes"]) == "it has Admission_ID, diagnosis"


@pytest.mark.parametrize(
    "words", [("report", "us2010", "none.parquet", "-o", "r.html"), ("evaluate", "none.csv", "none.parquet")]
)
def test_a_file_that_is_not_there_is_named(mlci_cli, words):
    assert "none." in mlci_cli(*words, code=2).stderr.splitlines()[-1]


def test_after_work_on_a_gpu_the_process_ends_at_once(monkeypatch, capfd):
    left = []
    monkeypatch.setitem(sys.modules, "torch.cuda", SimpleNamespace(is_initialized=lambda: True))
    monkeypatch.setattr(os, "_exit", lambda code: left.append((code, capfd.readouterr().out)))
    monkeypatch.setattr(cli.cli, "main", lambda **_: print("done", end="") or 0)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    with pytest.raises(SystemExit):  # where leaving at once did nothing
        cli.main()
    assert left == [(0, "done")]  # nothing that was said is lost


def test_a_stop_while_a_thread_imports_torch_is_one_sentence(monkeypatch, capsys):
    def stopped(**_):
        raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())  # its beginning
    monkeypatch.delitem(sys.modules, "torch.cuda", raising=False)
    monkeypatch.setattr(cli.cli, "main", stopped)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(threading, "active_count", lambda: 1)
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert (ended.value.code, capsys.readouterr().err.count("\n")) == (130, 1)


@pytest.mark.parametrize("early", ["click.py", "sitecustomize.py"])
def test_a_stop_while_the_program_is_loading_is_one_sentence(early, tmp_path):
    """Press Ctrl-C in the first tenth of a second: during an import, or before the first line of a command."""
    stop = "import os, signal; os.kill(os.getpid(), signal.SIGINT)"
    later = f"import signal\ndef handle(*_): {stop}\nsignal.signal = handle"  # called before a command begins
    (tmp_path / early).write_text(stop if early == "click.py" else later)
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    words = [sys.executable, "-m", "mlci", "--help"]
    done = subprocess.run(words, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "mlci: stopped.\n")


def test_a_terminal_of_another_encoding_shows_what_it_can(mlci_cli):
    done = mlci_cli("explain", "us2010", "N17.9", env={**os.environ, "PYTHONIOENCODING": "latin-1"})
    assert "N17.9 Acute kidney failure, unspeci?" in done.stdout
