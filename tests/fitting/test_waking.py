import ctypes

import pytest

from mlci.fitting._waking import wake


class Driver:
    """A driver with one GPU that records its calls."""

    def __init__(self) -> None:
        self.asked = []

    def cuInit(self, flags: int) -> int:
        self.asked.append("init")
        return 0

    def cuDeviceGet(self, place, number: int) -> int:
        self.asked.append(f"device {number}")
        return 0 if number == 0 else 101

    def cuDevicePrimaryCtxRetain(self, context, place) -> int:
        self.asked.append("context")
        return 0


@pytest.mark.parametrize(
    ("device", "asked"),
    [
        *(("cuda", ["init", "device 0", "context"]), ("cuda:0", ["init", "device 0", "context"])),
        *(("cuda:7", ["init", "device 7"]), ("cuda:first", []), ("cpu", [])),
    ],
)
def test_a_gpu_gets_its_context_before_torch_needs_it(device, asked, monkeypatch):
    driver = Driver()
    monkeypatch.setattr(ctypes, "CDLL", lambda name: driver)
    wake(device).join()
    assert driver.asked == asked


def test_a_machine_without_a_driver_is_ignored(monkeypatch):
    def missing(name: str):
        raise OSError(f"{name}: cannot open shared object file")

    monkeypatch.setattr(ctypes, "CDLL", missing)
    wake("cuda").join()
