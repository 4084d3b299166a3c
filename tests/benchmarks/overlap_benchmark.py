"""A step over a slow link: how much of its messages hides behind forward and backward.

    bazel run -c opt //tests/benchmarks:overlap_benchmark -- [--mbit=1000] [--steps=20] [--depth=18|34|50] [--batch=32]
      [--wire=AS_COMPUTED|WIRE_BFLOAT16|WIRE_FLOAT16]

One worker (one thread) trains a residual network through a coordinator and a shard that live in another network namespace,
behind a link with so many Mbit/s each way (`tc` with a token bucket). The limit is max(backward, push) + max(forward, pull):
forward and backward as they take over shared memory on this machine, push and pull what the model's bytes take over the same
link through one raw TCP connection; with --wire, gradients are fewer bytes than parameters. Needs root, `ip` and `tc`.
"""

import argparse
import os
import pathlib
import re
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, "tests/process")
from support.data import write_cifar
from support.jobs import folder, scrape, wait_for
from support.programs import program

NAMESPACE, NEAR, FAR = f"parley-{os.getpid()}", "10.213.77.1", "10.213.77.2"

JOB = """
name: "overlap"
seed: 1
model {{ resnet {{ depth: {depth} }} }}
data {{ cifar10 {{ directory: "cifar" }} batch: {batch} }}
optimizer {{ sgd {{ rate: 0.001 }} }}
cluster {{ workers: 1 shards: 1 }}
threads: 1
steps: {steps}
gradients_on_wire: {wire}
checkpoint {{ at_end: false }}
"""


class Link:
    """A namespace behind a slow link."""

    def __init__(self, mbit):
        near, far = f"pn{os.getpid()}", f"pf{os.getpid()}"
        self.commands = [
            f"ip netns add {NAMESPACE}",
            f"ip link add {near} type veth peer name {far}",
            f"ip link set {far} netns {NAMESPACE}",
            f"ip addr add {NEAR}/24 dev {near}",
            f"ip link set {near} up",
            f"ip netns exec {NAMESPACE} ip addr add {FAR}/24 dev {far}",
            f"ip netns exec {NAMESPACE} ip link set {far} up",
            f"ip netns exec {NAMESPACE} ip link set lo up",
            f"tc qdisc add dev {near} root tbf rate {mbit}mbit burst 256kb latency 20ms",
            f"ip netns exec {NAMESPACE} tc qdisc add dev {far} root tbf rate {mbit}mbit burst 256kb latency 20ms",
        ]

    def __enter__(self):
        for command in self.commands:
            subprocess.run(command.split(), check=True)
        return self

    def __exit__(self, *_):
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=False)  # and the link with it

    def seconds_for(self, size):
        """What so many bytes take over it through one TCP connection."""
        reader = subprocess.Popen(
            ["ip", "netns", "exec", NAMESPACE, sys.executable, "-c",
             "import socket\n"
             f"server = socket.create_server(('{FAR}', 9))\n"
             "print(flush=True)\n"
             "peer, _ = server.accept()\n"
             "while peer.recv(1 << 20): pass\n"],
            stdout=subprocess.PIPE)
        reader.stdout.readline()
        with socket.create_connection((FAR, 9)) as peer:
            began = time.monotonic()
            peer.sendall(bytes(size))
            peer.shutdown(socket.SHUT_WR)
            reader.wait()
        return time.monotonic() - began


class Job:
    """The three programs; with a link, coordinator and shard behind it."""

    def __init__(self, where, link):
        self.where, self.processes = where, []
        here, there = (NEAR, FAR) if link else ("127.0.0.1", "127.0.0.1")
        inside = ["ip", "netns", "exec", NAMESPACE] if link else []
        self.start("coordinator", inside, [f"--out={where}/out", f"--listen={there}:0", f"--metrics={there}:0"])
        member = [f"--coordinator=file:{where}/out/coordinator.address"]
        self.start("shard", inside, [*member, f"--listen={there}:0", f"--metrics={there}:0"])
        self.start("worker", [], [*member, f"--listen={here}:0", f"--metrics={here}:0"])

    def start(self, role, inside, flags):
        with open(self.where / f"{role}.log", "w") as log:
            command = [*inside, program(f"parley-{role}"), f"--job={self.where}/job.textproto", *flags]
            self.processes.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def metrics(self):
        address = re.search(r" serving .*\bmetrics=(\S+)", (self.where / "worker.log").read_text())
        try:
            return scrape(address.group(1)) if address else ""
        except OSError:
            return ""

    def step(self):
        found = re.search(r"^parley_step\{[^}]*\} (\d+)", self.metrics(), re.M)
        return int(found.group(1)) if found else 0

    def phases(self):
        """Sums of seconds until now, by phase."""
        return {phase: float(value) for phase, value in
                re.findall(r'^parley_step_phase_duration_seconds_sum\{.*phase="(\w+)"[^}]*\} (\S+)', self.metrics(), re.M)}

    def measure(self, warm, steps):
        """Seconds of a step, and of each of its phases, after the first ones."""
        wait_for(f"step {warm}", lambda: self.step() >= warm, 300)
        first, before, began = self.step(), self.phases(), time.monotonic()
        wait_for(f"step {first + steps}", lambda: self.step() >= first + steps, 600)
        last, after, seconds = self.step(), self.phases(), time.monotonic() - began
        return seconds / (last - first), {phase: (after[phase] - before[phase]) / (last - first) for phase in after}

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()


def measured(where, name, args, link):
    place = where / name
    place.mkdir()
    (place / "cifar").symlink_to(where / "cifar")
    (place / "job.textproto").write_text(JOB.format(depth=args.depth, batch=args.batch, steps=100000, wire=args.wire))
    job = Job(place, link)
    try:
        result = job.measure(3, args.steps)
        pushed = re.search(r"^parley_push_bytes_total\{[^}]*\} (\S+)", job.metrics(), re.M)
        return *result, float(pushed.group(1)) / max(1, job.step())
    except BaseException:
        for log in place.glob("*.log"):
            print(f"--- {log.name}\n{log.read_text()[-2000:]}")
        raise
    finally:
        job.kill()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mbit", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--depth", type=int, default=50)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--wire", default="AS_COMPUTED")
    args = parser.parse_args()
    where = pathlib.Path(folder("overlap"))
    write_cifar(where / "cifar")
    alone, near, model = measured(where, "alone", args, link=False)
    with Link(args.mbit) as link:
        step, far, sent = measured(where, "far", args, link=True)
        there, back = link.seconds_for(int(sent)), link.seconds_for(int(model))
    forward, backward = near["forward"], near["backward"]
    limit = max(backward, there) + max(forward, back)
    print(f"ResNet-{args.depth}, batch {args.batch}, {sent / 1e6:.1f} MB there, {model / 1e6:.1f} MB back, {args.mbit} Mbit/s")
    print("  alone: " + ", ".join(f"{phase} {1e3 * seconds:.0f} ms" for phase, seconds in near.items()) + f"; step {1e3 * alone:.0f} ms")
    print("  over the link: " + ", ".join(f"{phase} {1e3 * seconds:.0f} ms" for phase, seconds in far.items()))
    print(f"  raw TCP over the link {1e3 * there:.0f} ms there, {1e3 * back:.0f} ms back")
    print(f"  step {1e3 * step:.0f} ms; limit {1e3 * limit:.0f} ms: {step / limit:.2f} times it; one after the other "
          f"{1e3 * (forward + backward + there + back):.0f} ms")


if __name__ == "__main__":
    main()
