import numpy as np
import pytest

from mlci.base.errors import InputError
from mlci.fitting._checkpoint import Checkpoint


def test_entries_come_back_as_they_were(tmp_path):
    path = tmp_path / "fit"
    saved = Checkpoint(path, "this fit")
    saved.keep("one", {"epoch": 3, "values": [0.1, None]}, {"best.weight": np.arange(6.0).reshape(2, 3)})
    saved.keep("two", None, {"step": np.array(7, np.float32), "empty": np.empty((0, 2))})
    again = Checkpoint(path, "this fit").entries
    assert again["one"].facts == {"epoch": 3, "values": [0.1, None]}
    np.testing.assert_array_equal(again["one"].arrays["best.weight"], np.arange(6.0).reshape(2, 3))
    assert again["two"].arrays["step"] == 7
    assert again["two"].arrays["empty"].shape == (0, 2)


def test_it_is_written_by_one_process_and_not_too_often(tmp_path):
    Checkpoint(tmp_path / "fit", "", writes=False).keep("one", 1, {})
    assert not (tmp_path / "fit").exists()
    saved = Checkpoint(tmp_path / "fit", "")
    saved.keep("one", 1, {}, interval=60)
    assert not (tmp_path / "fit").exists()
    saved.keep("one", 2, {})
    assert Checkpoint(tmp_path / "fit", "").entries["one"].facts == 2
    Checkpoint(None, "").keep("one", 1, {})


def test_a_flipped_bit_is_reported(tmp_path):
    path = tmp_path / "fit"
    Checkpoint(path, "this fit").keep("one", {"epoch": 1}, {"a": np.arange(500.0)})
    whole = path.read_bytes()
    for place in np.random.default_rng(0).integers(8, len(whole), 60).tolist():
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 4]) + whole[place + 1 :])
        with pytest.raises(InputError):
            Checkpoint(path, "this fit")


def test_other_files_are_refused(tmp_path):
    path = tmp_path / "fit"
    Checkpoint(path, "this fit").keep("one", 1, {"a": np.arange(99)})
    with pytest.raises(InputError, match="other data, settings or seed"):
        Checkpoint(path, "another fit")
    for damage in (b"", b"no checkpoint at all", path.read_bytes()[:-100]):
        path.write_bytes(damage)
        with pytest.raises(InputError, match="is not the checkpoint of a fit"):
            Checkpoint(path, "this fit")
    with pytest.raises(InputError, match="is a folder"):
        Checkpoint(tmp_path, "this fit")
