"""A tensor from one process to another one's waiting thread, against PyTorch's RPC: microseconds, in turns.

    bazel run -c opt //tests/benchmarks:rpc_hop_benchmark -- [--tcp] [--turns=3] [--kib=4,64,1024,16384]

Half of a round in which the other process gives the tensor back, the median of 200: hop_benchmark's, and a call by rpc_sync of a
function that returns what it is given (rpc_hop_loop.py), with TensorPipe as it comes, or with --tcp held to TCP as between machines.
Makes a Python environment with PyTorch of the version that the worker has (some GB to download the first time).
"""

import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

sys.path[:0] = ["tests/benchmarks"]
from pytorch_environment import environment

ROUNDS = 200


def rows(output):
    """KiB to microseconds."""
    return {int(kib): float(microseconds) for kib, microseconds in re.findall(r"^ *(\d+) +([\d.]+)", output, re.M)}


def parley(sizes, tcp):
    command = ["tests/benchmarks/hop_benchmark", f"--kib={sizes}", f"--rounds={ROUNDS}", *(["--tcp"] if tcp else [])]
    return rows(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def pytorch(python, sizes, tcp):
    loop = pathlib.Path("tests/benchmarks/rpc_hop_loop.py").resolve()
    with tempfile.TemporaryDirectory() as where:
        processes = [
            subprocess.Popen(
                [python, loop, str(rank), f"{where}/store", "tcp" if tcp else "any", str(ROUNDS), *sizes.split(",")],
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)  # fmt: skip
            for rank in range(2)
        ]
        outputs = [process.communicate(timeout=600) for process in processes]
    assert all(process.returncode == 0 for process in processes), "\n".join(error[-2000:] for _, error in outputs)
    return rows(outputs[0][0])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tcp", action="store_true", help="as between machines: no shared memory")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--kib", default="4,64,1024,16384")
    options = parser.parse_args()
    python = environment()
    turns = [(parley(options.kib, options.tcp), pytorch(python, options.kib, options.tcp)) for _ in range(options.turns)]
    print("| KiB | PyTorch's RPC | parley | times as fast |")
    print("|---|---|---|---|")
    for kib in map(int, options.kib.split(",")):
        own, other = (statistics.median(each[kib] for each in side) for side in zip(*turns))
        print(f"| {kib} | {other:.0f} us | {own:.0f} us | {other / own:.1f} |")


main()
