"""Initialise a GPU's driver while Python imports torch.

The driver takes 0.2 to 0.3 s, during which other threads can hold the GIL.
"""

import ctypes
import threading


def wake(device: str) -> threading.Thread:
    """Create the driver's context on a GPU in a background thread; if that fails, torch fails later with a message.

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
