import tomllib

import pytest

from mlci.base.errors import InputError
from mlci.base.toml import read_toml, toml_line


@pytest.mark.parametrize("value", ["DX*", 'a "b" \\ c\td\ne', "é", 10, 0.25, True, [1, 2.5], (), {}, {"a b": {"c": 1}}])
@pytest.mark.parametrize("key", ["codes", "long stay", "icu.any", 'a"b', "décès", ""])
def test_a_line_is_read_back(key, value):
    expected = list(value) if isinstance(value, tuple) else value
    assert tomllib.loads(toml_line(key, value)) == {key: expected}


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"[penalty", "is not TOML: "), (b'x = "\xe9"', "is not text in UTF-8."), (b"PAR1", "is not TOML: ")],
)
def test_a_file_that_is_not_toml_is_reported_by_name(tmp_path, content, said):
    path = tmp_path / "own.toml"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        read_toml(path)
    assert str(error.value).startswith(f"{path}: {said}")


def test_a_byte_order_mark_is_skipped(tmp_path):
    path = tmp_path / "own.toml"
    path.write_text("[penalty]\r\nfolds = 3\r\n", "utf-8-sig")
    assert read_toml(path) == {"penalty": {"folds": 3}}
