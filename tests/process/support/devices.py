"""What a machine has for GPUs, as programs find it: drivers and plugins of the tests' own (worker/device/testing)."""

import os
import pathlib
import shutil

from support.programs import BIN

DEVICES = pathlib.Path("worker/device")
PLUGIN = BIN / "libparley_cuda.so"


def machine(where, driver=None, plugin=None, nvml=None, driver_is_old=False):
    """From here on programs find this driver, and this plugin beside them."""
    os.environ.pop("PARLEY_FAKE_DRIVER_IS_OLD", None)
    if driver_is_old:
        os.environ["PARLEY_FAKE_DRIVER_IS_OLD"] = "yes"
    libraries = where / "libraries"
    shutil.rmtree(libraries, ignore_errors=True)
    libraries.mkdir()
    if driver is not None:
        shutil.copy(driver, libraries / "libcuda.so.1")
    if nvml is not None:
        shutil.copy(nvml, libraries / "libnvidia-ml.so.1")
    os.environ["LD_LIBRARY_PATH"] = str(libraries)
    PLUGIN.unlink(missing_ok=True)
    if plugin is not None:
        shutil.copy(plugin, PLUGIN)
