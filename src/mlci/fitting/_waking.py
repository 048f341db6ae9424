"""Wake a GPU while Python imports torch: its driver takes 0.2 to 0.3 s, in which others may have Python's lock."""

import ctypes
import threading


def wake(device: str) -> threading.Thread:
    """Make the driver's context on a GPU in a thread aside; what fails there will fail in torch too, which says it.

    >>> wake("cpu").join()
    """
    thread = threading.Thread(target=_wake, args=(device,), daemon=True)
    thread.start()
    return thread


def _wake(device: str) -> None:
    kind, _, number = device.partition(":")
    if kind != "cuda" or not (number or "0").isdecimal():
        return
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:  # not on this machine
        return
    place, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(place), int(number or 0)) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), place)
