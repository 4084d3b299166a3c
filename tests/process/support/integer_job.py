"""Jobs of tests/process/integer_worker.cc: processes of their own, not under `parley run`, whose end is known beforehand."""

import json
import os
import pathlib
import re
import signal
import struct
import subprocess
import time

from support.jobs import alive, scrape, wait_for
from support.programs import program

JOB = """
name: "{name}"
seed: 3
model {{ own {{}} }}
data {{ own {{}} batch: {batch} }}
optimizer {{ sgd {{ rate: 1 }} }}
consistency {{ {consistency} }}
cluster {{ workers: {workers} shards: {shards} min_workers: {min_workers} group: {group} }}
liveness: "{liveness}"
epochs: {epochs}
{extra}
"""

# Shared memory (of the machine's processes), a TCP connection of our own, gRPC.
TRANSPORTS = ("local", "direct", "grpc")


class IntegerJob:
    """One job. `proxy`: a FaultProxy through which all processes reach each other. `transport`: of tensors; TRANSPORTS. `tls`: of all connections."""

    def __init__(self, where, workers=2, shards=2, min_workers=None, epochs=10, samples=240, batch=10, liveness="10s",
                 pause="0s", elements="300000,1000,7", window=None, proxy=None, transport="local", tls=False, group=1, extra="", consistency="sync { reduction: SUM }"):
        if tls:
            extra += " tls: ON"
        self.out = pathlib.Path(where) / "out"
        self.logs_folder = pathlib.Path(where) / "logs"
        self.logs_folder.mkdir(parents=True)
        self.job = pathlib.Path(where) / "job.textproto"
        # Many run on one machine, where a coordinator may come to have the port that another's has had.
        name = f"integers-{os.getpid()}-{time.monotonic_ns()}"
        self.job.write_text(JOB.format(name=name, workers=workers, shards=shards, min_workers=min_workers or workers, epochs=epochs,
                                       batch=batch, liveness=liveness, group=group, extra=extra, consistency=consistency))
        self.epochs, self.samples, self.proxy = epochs, samples, proxy
        self.elements = [int(n) for n in elements.split(",")]
        self.worker_flags = [f"--samples={samples}", f"--pause={pause}", f"--elements={elements}"]
        # The other ways go past a proxy.
        self.worker_flags.append(f"--transport={'grpc' if proxy else transport}")
        if window:
            self.worker_flags.append(f"--push_window={window}")
        self.processes = {}  # name ("worker-1": the second that was started) to Popen
        self.ruler = "coordinator"  # the coordinator that was started last
        self._start(self.ruler, "parley-coordinator", [f"--out={self.out}"])
        self.coordinator = f"file:{self.out}/coordinator.address"
        if proxy:
            wait_for("the coordinator's address", (self.out / "coordinator.address").exists, 60)
            self.coordinator = proxy.front("coordinator", lambda: self.serving("coordinator")["address"])
        for _ in range(shards):
            self.start_shard()
        for _ in range(workers):
            self.start_worker()

    def _member_flags(self, name):
        flags = [f"--coordinator={self.coordinator}"]
        if self.proxy:
            flags.append(f"--advertise={self.proxy.front(name, lambda: self.serving(name).get('address'))}")
        return flags

    def _start(self, name, binary, flags):
        with open(self.logs_folder / f"{name}.log", "w") as log:
            self.processes[name] = subprocess.Popen(
                [program(binary), f"--job={self.job}", *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def start_coordinator(self):
        """Another one, with the same command."""
        self.ruler = f"coordinator-{sum(n.startswith('coordinator') for n in self.processes)}"
        self._start(self.ruler, "parley-coordinator", [f"--out={self.out}"])
        return self.ruler

    def start_shard(self):
        name = f"shard-{sum(n.startswith('shard') for n in self.processes)}"
        self._start(name, "parley-shard", self._member_flags(name))
        return name

    def start_worker(self):
        name = f"worker-{sum(n.startswith('worker') for n in self.processes)}"
        self._start(name, "integer-worker", self._member_flags(name) + self.worker_flags)
        return name

    def log(self, name):
        return (self.logs_folder / f"{name}.log").read_text()

    def coordinator_logs(self):
        """Of all of them, in the order of their starts."""
        return "".join(self.log(name) for name in self.processes if name.startswith("coordinator"))

    def serving(self, name):
        """Its addresses, once it serves: {"address": ..., "metrics": ...}."""
        line = re.search(r" serving (.*)", self.log(name))
        return dict(re.findall(r"(\w+)=(\S+)", line.group(1))) if line else {}

    def with_ordinal(self, role, ordinal):
        """The process that has this place. Which one gets it is a matter of who joins first."""
        names = [name for name in self.processes if name.startswith(role)]
        return next(name for name in names if re.search(rf" joined .*\bordinal={ordinal}\b", self.log(name)))

    def step(self, name=None):
        """The last decided step, as the coordinator (or another process) knows it; -1 where it does not answer."""
        return self.metric(name or self.ruler, "parley_step")

    def metric(self, name, metric):
        """A process's whole number, of a name or of a name and its first labels; -1 where it does not answer."""
        try:
            text = scrape(self.serving(name)["metrics"])
        except (OSError, KeyError):
            return -1
        found = re.search(rf"^{re.escape(metric)}[{{,][^}}]*\}} (\d+)", text, re.M)
        return int(found.group(1)) if found else -1

    def wait_for_step(self, step, seconds=120):
        def reached():
            assert self.processes[self.ruler].poll() is None, "the job ended early"
            return self.step() >= step

        wait_for(f"step {step}", reached, seconds)

    def send(self, name, what):
        self.processes[name].send_signal(what)

    def wait_for_end(self, names, seconds=180):
        """The exit status of each."""
        wait_for("the job to end", lambda: all(self.processes[name].poll() is not None for name in names), seconds)
        return {name: self.processes[name].returncode for name in names}

    def why_stuck(self, *flags):
        done = subprocess.run(
            [program("parley"), "why-stuck", f"--coordinator=file:{self.out}/coordinator.address", *flags],
            capture_output=True, text=True, timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def check_sums(self):
        """The job's checkpoint holds what it must, element by element."""
        done = subprocess.run(
            [program("parley"), "checkpoint", "export", str(self.out / "checkpoints"), "--out", str(self.out / "export")],
            capture_output=True, text=True,
        )
        assert done.returncode == 0, done.stderr
        file = (self.out / "export/model.safetensors").read_bytes()
        (size,) = struct.unpack("<Q", file[:8])
        header, data = json.loads(file[8 : 8 + size]), file[8 + size :]
        factors = sum(1 + sample * 2654435761 % 5 for sample in range(self.samples))
        for tensor, elements in enumerate(self.elements):
            begin, end = header[f"sum{tensor}"]["data_offsets"]
            values = struct.unpack(f"<{elements}f", data[begin:end])
            for i, value in enumerate(values):
                pattern = 0 if i // 4096 % 2 == 1 else (tensor + i) % 7 - 3
                right = -self.epochs * factors * pattern
                assert value == right, f"element {i} of sum{tensor} is {value}, {right} is right"

    def logs(self):
        return {path.stem: path.read_text() for path in sorted(self.logs_folder.glob("*.log"))}

    def show(self):
        """All that the processes said, for a failed test."""
        for name, text in self.logs().items():
            print(f"---- {name}\n{text[-6000:]}")

    def kill(self):
        for process in self.processes.values():
            if alive(process.pid):
                os.kill(process.pid, signal.SIGKILL)
            process.wait()
