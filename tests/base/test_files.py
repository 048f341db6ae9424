"""An output appears completely, keeps its target's permissions and replaces no input; killed runs leave nothing."""

import os
import re
import stat
import subprocess
import sys

import pytest

from mlci.base.errors import InputError
from mlci.base.files import atomic, check_writable, scratch


def write(path, text="new", **options):
    with atomic(path, **options) as temporary:
        temporary.write_text(text)


@pytest.mark.parametrize("mode", [0o600, 0o644, 0o640])
def test_an_existing_file_keeps_its_permissions(tmp_path, mode):
    target = tmp_path / "a.csv"
    target.write_text("old")
    target.chmod(mode)
    write(target)
    assert (target.read_text(), stat.S_IMODE(target.stat().st_mode)) == ("new", mode)


def test_a_new_file_has_the_permissions_of_any_new_file_and_is_private_until_whole(tmp_path):
    (tmp_path / "plain").touch()
    with atomic(tmp_path / "a.csv") as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        temporary.write_text("new")
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    assert (tmp_path / "a.csv").stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_link_stays_one(tmp_path):
    (tmp_path / "data").mkdir()
    link, target = tmp_path / "a.csv", tmp_path / "data" / "real.csv"
    link.symlink_to(target)
    write(link)  # to a file that is not there yet
    write(link, "newer")
    assert link.is_symlink()
    assert target.read_text() == "newer"
    assert len(list(tmp_path.rglob("*"))) == 3


def test_what_cannot_be_a_file_is_refused(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in ("/dev/null", tmp_path / "pipe", tmp_path / "loop", tmp_path, tmp_path / "no" / "a.csv"):
        with pytest.raises(InputError, match=re.escape(str(path))):
            write(path)
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_an_input_is_never_overwritten(tmp_path):
    folder = tmp_path / "hospital"
    folder.mkdir()
    source, link, hard = folder / "c.parquet", tmp_path / "link", tmp_path / "hard"
    source.write_text("patients")
    link.symlink_to(source)
    os.link(source, hard)
    for output in (source, link, hard, folder / ".." / "hospital" / "c.parquet"):
        with pytest.raises(InputError, match="read by this command"):
            check_writable(output, inputs=[tmp_path / "absent", source])
    with pytest.raises(InputError, match="read by this command"):
        check_writable(source, inputs=[folder])
    write(folder / "scores.parquet", inputs=[folder, source])
    assert source.read_text() == "patients"


def test_a_block_that_fails_leaves_the_target_alone(tmp_path):
    (tmp_path / "a").write_text("old")
    with pytest.raises(UnicodeEncodeError):
        write(tmp_path / "a", "\ud800")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_text() == "old"


def test_what_a_killed_process_left_is_swept_and_what_a_live_one_writes_is_not(tmp_path):
    program = (
        "import os, tempfile; from mlci.base.files import atomic, scratch\n"
        "with atomic('a') as part, scratch() as folder:\n"
        "    part.write_text('half'); (folder / 'rows').write_text('patients'); os._exit(9)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env={**os.environ, "TMPDIR": str(tmp_path)})
    left = {path.name for path in tmp_path.iterdir()}
    assert len(left) == 2
    with atomic(tmp_path / "b") as live:
        with atomic(tmp_path / "c") as other:
            assert {path.name for path in tmp_path.glob(".*")} == {live.name, other.name}
            other.touch()
        live.touch()


def test_scratch_is_private_and_swept(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    left = tmp_path / "mlci-scratch-dead"
    left.mkdir()
    (left / "rows.duckdb").write_text("patients")
    with scratch() as folder:
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert list(tmp_path.iterdir()) == [folder]
        with scratch() as second:
            assert folder.exists()
            assert second != folder
    assert not list(tmp_path.iterdir())
