"""A Python with PyTorch of the version that the worker has, for what is compared with it."""

import os
import pathlib
import subprocess

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
