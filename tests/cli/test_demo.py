import json

import pytest

from mlci.base.errors import InputError
from mlci.cli import _demo as demo


@pytest.mark.slow
@pytest.mark.xdist_group("report")
def test_demo_goes_on_where_it_stopped_and_does_nothing_twice(tmp_path, monkeypatch):
    """Run the command as a user does."""
    said: list[str] = []
    folder = tmp_path / "demo"
    monkeypatch.setattr(demo, "_report", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        demo.run(folder, admissions=3_000, say=said.append)
    assert not (folder / demo.REPORT).exists()
    assert not list(folder.glob(".*"))  # nothing half-written stays behind
    monkeypatch.undo()

    kept = {name: (folder / name).stat().st_mtime_ns for name in (demo.COHORT, demo.MODEL, demo.SCORES, demo.METRICS)}
    report = demo.run(folder, admissions=3_000, say=said.append)
    assert report.read_text().startswith("<!doctype html>")
    assert all((folder / name).stat().st_mtime_ns == time for name, time in kept.items())
    assert sum("exists already" in line for line in said) == 4

    before = report.stat().st_mtime_ns
    said.clear()
    assert demo.run(folder, admissions=3_000, say=said.append) == report
    assert said == [f"The demo is already complete; to run it again, delete {folder}."]
    assert report.stat().st_mtime_ns == before
    with pytest.raises(InputError, match="other settings"):
        demo.run(folder, admissions=4_000)


def test_a_folder_with_other_things_is_left_alone(tmp_path, mlci_cli):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("years of work")
    assert "is not empty and contains no demo" in mlci_cli("demo", "-o", "mine", code=2).stderr
    assert "does not exist" in mlci_cli("demo", "-o", "a/b", code=2).stderr
    assert [path.name for path in (tmp_path / "mine").iterdir()] == ["thesis.txt"]


def test_settings_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "_cohort", lambda *a, **k: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        demo.run(tmp_path / "demo", admissions=1_234, seed=5)
    assert json.loads((tmp_path / "demo" / "demo.json").read_text())["admissions"] == 1_234
