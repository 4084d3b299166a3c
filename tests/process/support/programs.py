"""The programs under test, beside each other in one folder as deploy/build lays them."""

import atexit
import pathlib
import shutil
import tempfile

_PLACES = {
    "parley": "client/parley/parley",
    "parley-coordinator": "server/coordinator/parley-coordinator",
    "parley-shard": "server/parameter_shard/parley-shard",
    "parley-stage": "server/pipeline_stage/parley-stage",
    "parley-worker": "worker/parley-worker",
    "integer-worker": "tests/process/integer_worker",
}


def _gather():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="parley-bin.", dir="/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for name, place in _PLACES.items():
        # Copies: a program finds its siblings by its own real path. A test has those that it needs.
        if pathlib.Path(place).exists():
            shutil.copy(place, folder / name)
    return folder


BIN = _gather()


def program(name):
    return str(BIN / name)
