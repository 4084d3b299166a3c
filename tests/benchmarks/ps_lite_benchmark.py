"""One worker with one shard over shared memory against ps-lite's own benchmark (push + pull, nothing added up), in turns.

    git clone https://github.com/bytedance/ps-lite && git -C ps-lite checkout a848f53    (the one that docs/benchmarks.md has)
    make -C ps-lite DEPS_PATH=/usr PROTOC=/usr/bin/protoc    (needs libzmq3-dev)
    bazel run -c opt //tests/benchmarks:ps_lite_benchmark -- PS_LITE [--turns=3]

Ours pushes, applies SGD and pulls: exchange_benchmark. Both have one key (a tensor of one shard).
"""

import argparse
import os
import pathlib
import re
import statistics
import subprocess
import tempfile

SIZES = [4 << 10, 4 << 20, 64 << 20]
OURS = ["tests/benchmarks/exchange_benchmark", "server/coordinator/parley-coordinator", "server/parameter_shard/parley-shard"]


def theirs(folder, size):
    """Seconds of a round, the best of four times ten."""
    common = {
        "DMLC_NUM_SERVER": "1", "DMLC_NUM_WORKER": "1", "DMLC_PS_ROOT_URI": "127.0.0.1", "DMLC_NODE_HOST": "127.0.0.1",
        "DMLC_PS_ROOT_PORT": str(18000 + os.getpid() % 1000), "DMLC_GROUP_SIZE": "1", "DMLC_ENABLE_RDMA": "0",
        "BYTEPS_ENABLE_IPC": "0", "NUM_KEY_PER_SERVER": "1", "LOG_DURATION": "10", "TOTAL_DURATION": "40",
    }
    with tempfile.TemporaryFile("w+") as log:
        processes = [
            subprocess.Popen(
                [folder / "tests/test_benchmark", str(size), "1", "1"],
                env={**os.environ, **common, "DMLC_ROLE": role},
                stdout=log if role == "worker" else subprocess.DEVNULL,
                stderr=log if role == "worker" else subprocess.DEVNULL,
            )
            for role in ("scheduler", "server", "worker")
        ]
        try:
            for process in processes:
                process.wait(120)
        finally:
            for process in processes:
                process.kill()
        log.seek(0)
        # In microseconds, whatever it calls them.
        rounds = [float(value) * 1e-6 for value in re.findall(r"Avg latency = ([\d.]+) ns per key", log.read())]
    assert rounds, "ps-lite's benchmark said nothing"
    return min(rounds)


def ours():
    """Size to seconds of a round, a median."""
    mib = ",".join(str(size >> 20) for size in SIZES if size >= 1 << 20)
    output = subprocess.run([*OURS, f"--mib={mib}", "--rounds=20"], capture_output=True, text=True, check=True).stdout
    found = {int(size) << 20: float(round_) * 1e-3 for size, round_ in re.findall(r"^ +(\d+) +[\d.]+ +[\d.]+ +([\d.]+) .*\n", output, re.M)}
    found[4 << 10] = float(re.search(r"^ +1 x 4 KiB +[\d.]+ +[\d.]+ +([\d.]+)", output, re.M).group(1)) * 1e-3
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ps_lite", type=pathlib.Path)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    # `bazel run` starts this in a folder of its own.
    ps_lite = pathlib.Path(os.environ.get("BUILD_WORKING_DIRECTORY", ".")) / options.ps_lite
    turns = [({size: theirs(ps_lite.resolve(), size) for size in SIZES}, ours()) for _ in range(options.turns)]
    print("| size | ps-lite | parley | times as fast |")
    print("|---|---|---|---|")
    for size in SIZES:
        other = statistics.median(turn[0][size] for turn in turns)
        own = statistics.median(turn[1][size] for turn in turns)
        print(f"| {size >> 10} KiB | {1e3 * other:.3f} ms | {1e3 * own:.3f} ms | {other / own:.1f} |")


main()
