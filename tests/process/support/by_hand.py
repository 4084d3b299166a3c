"""The processes of a job without `parley run`: their exit statuses are to be seen."""

import re
import signal
import subprocess
import time

from support.jobs import coordinator_step, last_line, wait_for
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

    def kill_and_await_the_end_of_all(self, victim, liveness):
        """All others end in time with 1 and the same last line, which it returns."""
        self.processes[victim].kill()
        killed = time.monotonic()
        # Twice the liveness is the promise; a machine that is busy with other tests gets some more here.
        ends = self.wait_for_end(4 * liveness)
        took = time.monotonic() - killed
        assert ends.pop(victim) == -signal.SIGKILL
        assert set(ends.values()) == {1}, ends
        causes = {name: last_line(log) for name, log in self.logs().items() if name != victim}
        assert causes.keys() == ends.keys() and len(set(causes.values())) == 1, causes
        cause = causes.popitem()[1]
        print(f"{victim}: all others ended with 1, {took:.1f} s after the kill (liveness {liveness} s): {cause}")
        return cause

    def logs(self):
        return {path.stem: path.read_text() for path in sorted(self.out.glob("*.log"))}

    def show(self):
        for name, text in self.logs().items():
            print(f"---- {name}\n{text[-6000:]}")

    def kill(self):
        for process in self.processes.values():
            process.kill()
            process.wait()
