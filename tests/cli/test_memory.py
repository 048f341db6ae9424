"""Commands that stream make Arrow use jemalloc if Arrow has it."""

import pyarrow as pa
import pytest

from mlci.cli import _memory


@pytest.fixture(autouse=True)
def pool():
    before = pa.default_memory_pool()
    yield
    pa.set_memory_pool(before)


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="this Arrow has no jemalloc")
def test_the_pool_is_jemalloc():
    _memory.spare_memory()
    assert pa.default_memory_pool().backend_name == "jemalloc"


def test_an_arrow_without_it_is_left_alone(monkeypatch):
    before = pa.default_memory_pool().backend_name
    monkeypatch.setattr(_memory, "POOL", "none such")
    _memory.spare_memory()
    assert pa.default_memory_pool().backend_name == before
