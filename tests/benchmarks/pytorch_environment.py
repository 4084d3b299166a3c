"""A Python with PyTorch of the version that the worker has, for what is compared with it."""

import os
import pathlib
import subprocess
import tempfile

PACKAGES = ["torch==2.11.0", "torchvision==0.26.0", "numpy<2.3", "safetensors==0.8.0"]


def environment():
    """The Python with PyTorch."""
    place = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "parley/ddp"
    python = place / "venv/bin/python"
    if not python.exists() or subprocess.run([python, "-c", "import torch, torchvision, safetensors"], capture_output=True).returncode:
        print(f"making {place}", flush=True)
        subprocess.run(["/usr/bin/python3", "-m", "venv", place / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *PACKAGES], check=True)
    return python


HOROVOD = "0.28.1"


def add_horovod(python):
    """Builds Horovod in the environment, unless it is there: with Gloo, and as C++17, which this PyTorch's headers ask for."""
    if not subprocess.run([python, "-c", "import horovod.torch"], capture_output=True).returncode:
        return
    print("building Horovod", flush=True)
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "install", "cmake", "setuptools<81", "wheel", "pyyaml", "cloudpickle", "psutil", "packaging"], check=True)
    with tempfile.TemporaryDirectory() as place:
        source = pathlib.Path(place, f"horovod-{HOROVOD}")
        wanted = f"horovod=={HOROVOD}"
        subprocess.run([*pip, "download", "--no-deps", "--no-binary", ":all:", "--no-build-isolation", "--dest", place, wanted], check=True)
        subprocess.run(["tar", "-xzf", f"{source}.tar.gz", "-C", place], check=True)
        for name in ("CMakeLists.txt", "horovod/torch/CMakeLists.txt"):
            path = source / name
            path.write_text(path.read_text().replace("set(CMAKE_CXX_STANDARD 14)", "set(CMAKE_CXX_STANDARD 17)"))
        settings = {
            "PATH": f"{python.parent}:{os.environ['PATH']}", "CMAKE_POLICY_VERSION_MINIMUM": "3.5", "MAKEFLAGS": f"-j{os.cpu_count()}",
            "HOROVOD_WITH_PYTORCH": "1", "HOROVOD_WITH_GLOO": "1", "HOROVOD_WITHOUT_MPI": "1", "HOROVOD_WITHOUT_TENSORFLOW": "1",
            "HOROVOD_WITHOUT_MXNET": "1",
        }  # fmt: skip
        subprocess.run([*pip, "install", "--no-build-isolation", "--no-deps", source], env={**os.environ, **settings}, check=True)
