"""The processes of a job without `parley run`: their exit statuses are to be seen."""

import re
import subprocess
import time

from support.jobs import coordinator_step, wait_for
from support.programs import program

WITHOUT_STAGES = ("shard-0", "shard-1", "worker-0", "worker-1")


class ByHand:
    def __init__(self, job, members=WITHOUT_STAGES, flags=()):
        """members: beside the coordinator. Who gets which place is a matter of who joins first. flags: of all."""
        self.out = job.parent / f"hand-{time.monotonic_ns()}"
        self.out.mkdir()
        self.job = job
        self.processes = {}
        self.flags = flags
        self.start_coordinator()
        for name in members:
            self.start(name, f"--coordinator=file:{self.out}/job/coordinator.address")

    def start_coordinator(self):
        self.start("coordinator", f"--out={self.out}/job")

    def start(self, name, *flags):
        """A process anew, if it has run before."""
        with open(self.out / f"{name}.log", "w") as log:
            self.processes[name] = subprocess.Popen(
                [program("parley-" + name.split("-")[0]), f"--job={self.job}", *self.flags, *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def step(self):
        seen = coordinator_step(self.out / "coordinator.log")
        return -1 if seen is None else seen

    def wait_for_step(self, step, seconds=120):
        self._wait_while_all_run(f"step {step}", lambda: self.step() >= step, seconds)

    def wait_for_log(self, name, text, seconds=120):
        self._wait_while_all_run(f"{text} of {name}", lambda: text in self.logs()[name], seconds)

    def _wait_while_all_run(self, what, reached, seconds):
        def reached_in_time():
            ended = {name: process.returncode for name, process in self.processes.items() if process.poll() is not None}
            assert not ended, f"the job ended early: {ended}"
            return reached()

        wait_for(what, reached_in_time, seconds)

    def place(self, name):
        """As messages name it: "shard 1"."""
        member = re.search(rf" joined member=(\S+) address={self.address(name)} ", self.logs()["coordinator"])
        return member.group(1).replace("-", " ") if member else name

    def address(self, name):
        return re.search(r" serving .*?\baddress=(\S+)", self.logs()[name]).group(1)

    def wait_for_end(self, seconds):
        wait_for("all to end", lambda: all(p.poll() is not None for p in self.processes.values()), seconds)
        return {name: process.returncode for name, process in self.processes.items()}

    def logs(self):
        return {path.stem: path.read_text() for path in sorted(self.out.glob("*.log"))}

    def show(self):
        for name, text in self.logs().items():
            print(f"---- {name}\n{text[-6000:]}")

    def kill(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
