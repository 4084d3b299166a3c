"""A job may ask for a GPU: where something is missing for it, `device: CUDA` says in one line what, and ends with 2, and
`device: AUTO` trains on the CPU and says why. Drivers and plugins are the tests' own (worker/device/testing), so that it is
the same on each machine; what the real plugin lacks on this one is looked at, too.
"""

import ctypes
import os
import pathlib
import shutil
import subprocess
import sys

sys.path.insert(0, "tests/process")
import torch
from support.bits import assert_same_bits
from support.jobs import Run, exported, last_line, main, small_job
from support.programs import BIN, program

DEVICES = pathlib.Path("worker/device")
PLUGIN = BIN / "libparley_cuda.so"


def machine(where, driver=None, plugin=None):
    """From here on programs find this driver, and this plugin beside them."""
    libraries = where / "libraries"
    shutil.rmtree(libraries, ignore_errors=True)
    libraries.mkdir()
    if driver is not None:
        shutil.copy(driver, libraries / "libcuda.so.1")
    os.environ["LD_LIBRARY_PATH"] = str(libraries)
    PLUGIN.unlink(missing_ok=True)
    if plugin is not None:
        shutil.copy(plugin, PLUGIN)


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


# What the machine has, and what is missing for CUDA.
MACHINES = [
    ("a driver that finds no GPU", {"driver": DEVICES / "libdriver_without_gpu.so"}, ["no GPU"]),
    ("no plugin", {"driver": DEVICES / "libfake_driver.so"}, ["libparley_cuda.so is missing", "deploy/build --cuda"]),
    ("no CUDA library", {"driver": DEVICES / "libfake_driver.so", "plugin": DEVICES / "libplugin_without_library.so"},
     ["libnot_there.so.7", "deploy/bootstrap cuda"]),
    ("a plugin of another build", {"driver": DEVICES / "libfake_driver.so", "plugin": DEVICES / "libold_plugin.so"}, ["another build"]),
]
if not has_driver():
    MACHINES.insert(0, ("no driver", {}, ["no NVIDIA driver", "libcuda.so.1"]))


def cuda_says_in_one_line_what_is_missing(where, runs):
    job = small_job(where, extra="device: CUDA\n")
    out = where / "out"
    commands = {
        # Nothing is started.
        "run": [program("parley"), "run", str(job), "--out", str(out)],
        # One that is started by hand would tell the others, if there were any.
        "worker": [program("parley-worker"), f"--job={job}", "--coordinator=127.0.0.1:1", "--join_timeout=1s"],
    }
    for what, has, words in MACHINES:
        machine(where, **has)
        for name, command in commands.items():
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            line = last_line(done.stderr)
            print(f"{what} ({name}): exit {done.returncode}: {line}")
            assert done.returncode == 2, done.stderr
            assert line.startswith("device: CUDA cannot be had: ") and all(word in line for word in words), done.stderr
            assert name == "worker" or done.stderr.strip() == line, done.stderr
        assert not out.exists()
    # Where the job will run is not asked by who plans it.
    done = subprocess.run([program("parley"), "plan", str(job)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def auto_says_why_it_runs_on_the_cpu(where, runs):
    for what, has, words in MACHINES:
        machine(where, **has)
        run = Run(small_job(where, extra="device: AUTO\n"), "--set", "cluster.workers=1", "--set", "cluster.shards=1")
        runs.append(run)
        code = run.wait(120)
        said = [line for line in run.logs()["worker-0"].splitlines() if "device" in line]
        print(f"{what}: exit {code}: {said}")
        assert code == 0, code
        assert len(said) == 1 and "device: AUTO runs on the CPU" in said[0] and all(word in said[0] for word in words), said


def what_the_real_plugin_lacks_is_one_line_too(where, runs):
    """On a machine without GPUs it lacks at least the rest of the driver."""
    machine(where, DEVICES / "libfake_driver.so", pathlib.Path("worker/cuda/libparley_cuda.so"))
    command = [program("parley"), "run", str(small_job(where, extra="device: CUDA\n")), "--out", str(where / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    print(f"exit {done.returncode}: {done.stderr.strip()}")
    assert done.returncode == 2 and done.stderr.startswith("device: CUDA cannot be had: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def trains_through_a_device_to_the_same_bits_as_on_the_cpu(where, runs):
    """A plugin whose devices are fake, in plain memory, and end the worker where any use of memory is in no order: all of
    the worker's own way to a GPU and back, with microbatches, buffers and evaluations, and two workers.
    """
    model = where / "model.pt"
    torch.manual_seed(1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(4), torch.nn.Flatten(), torch.nn.Dropout(0.1),
        torch.nn.Linear(288, 10),
    )
    torch.jit.script(network).save(model)
    # One worker: the sum of two workers' gradients depends on who comes first.
    settings = ["--set", f"model.torchscript={model}", "--set", "accumulate=2", "--set", "cluster.workers=1"]
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    outcomes = {}
    for device in ("CPU", "CUDA", "AUTO"):
        run = Run(small_job(where, epochs=2, extra=f"device: {device}\n"), *settings)
        runs.append(run)
        assert run.wait(120) == 0, device
        log = run.logs()["worker-0"]
        assert ("computes on a GPU device=fake:0" in log) == (device != "CPU"), log
        outcomes[device] = exported(run.out)
    assert_same_bits(outcomes["CUDA"], outcomes["CPU"], "through a device and on the CPU")
    assert_same_bits(outcomes["AUTO"], outcomes["CPU"], "AUTO and the CPU")
    two = Run(small_job(where, epochs=1, extra="device: CUDA\n"))
    runs.append(two)
    assert two.wait(120) == 0


main(trains_through_a_device_to_the_same_bits_as_on_the_cpu, cuda_says_in_one_line_what_is_missing, auto_says_why_it_runs_on_the_cpu, what_the_real_plugin_lacks_is_one_line_too)
