import os
import subprocess
import sys


def test_help_is_instant_and_imports_nothing_heavy(mlci_cli):
    before = os.times()
    mlci_cli("--help", env=os.environ)
    after = os.times()
    probe = (
        "import sys, mlci, mlci.cli; mlci.cli.cli.get_help(mlci.cli.click.Context(mlci.cli.cli)); print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", probe], text=True, capture_output=True, check=True).stdout.split()
    heavy = {"torch", "pandas", "ibis", "duckdb", "pyarrow", "sklearn", "scipy", "matplotlib", "numpy", "rich"}
    assert not heavy & set(loaded)
    # Seconds of the processor, whoever else uses it; the import list above is what keeps them few.
    assert after.children_user + after.children_system - before.children_user - before.children_system < 1


def test_unknown_command_is_a_usage_error(mlci_cli):
    assert "No such command" in mlci_cli("nonsense", code=2).stderr
