import subprocess
import sys
import time

import pytest


def test_help_is_instant_and_imports_nothing_heavy(mlci_cli):
    times = []
    for _ in range(3):
        start = time.perf_counter()
        mlci_cli("--help")
        times.append(time.perf_counter() - start)
    probe = (
        "import sys, mlci, mlci.cli; mlci.cli.cli.get_help(mlci.cli.click.Context(mlci.cli.cli)); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", probe], text=True, capture_output=True, check=True).stdout.split()
    heavy = {"torch", "pandas", "ibis", "duckdb", "pyarrow", "sklearn", "scipy", "matplotlib", "numpy", "rich"}
    assert not heavy & set(loaded)
    assert min(times) < 2  # half a second on an idle machine; the import list above is what keeps it so


def test_unknown_command_is_a_usage_error(mlci_cli):
    assert "No such command" in mlci_cli("nonsense", code=2).stderr


def test_unknown_public_name_lists_the_known_ones():
    import mlci

    with pytest.raises(AttributeError, match="read_cohort"):
        mlci.charlsen  # noqa: B018
