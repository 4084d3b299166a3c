"""A job that is told to end, wherever, writes a checkpoint first, and what goes on from it ends as if nobody had."""

import json
import random
import re
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, "tests/process")
from support.brake import Brake
from support.jobs import Run, alive, exported, last_line, main, small_job, wait_for
from support.programs import program

GRACE = 20  # seconds
EPOCHS = 6  # of 15 steps: 600 samples, 2 workers with 20 each
EXTRA = f'preemption_grace: "{GRACE}s"\nconsistency {{ sync {{ deterministic: true }} }}\n'


class ByHand:
    """The processes of a job without `parley run`: their exit statuses are to be seen."""

    def __init__(self, job):
        self.out = job.parent / f"hand-{time.monotonic_ns()}"
        self.out.mkdir()
        self.job = job
        self.processes = {}
        self._start("coordinator", f"--out={self.out}/job")
        for name in ("shard-0", "shard-1", "worker-0", "worker-1"):
            self._start(name, f"--coordinator=file:{self.out}/job/coordinator.address")

    def _start(self, name, *flags):
        with open(self.out / f"{name}.log", "w") as log:
            self.processes[name] = subprocess.Popen(
                [program("parley-" + name.split("-")[0]), f"--job={self.job}", *flags], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def step(self):
        done = subprocess.run(
            [program("parley"), "status", f"--coordinator=file:{self.out}/job/coordinator.address", "--format=json"],
            capture_output=True, text=True, timeout=300,
        )
        return int(json.loads(done.stdout).get("step", 0)) if done.returncode == 0 else -1

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


def straight(where, runs, cache={}):
    """Of a job that nobody disturbs."""
    if not cache:
        run = Run(small_job(where, epochs=EPOCHS, extra=EXTRA))
        runs.append(run)
        assert run.wait() == 0
        cache["files"] = exported(run.out)
    return cache["files"]


def folder_in(cause):
    found = re.search(r"the job can go on with checkpoint\.start_from=(\S+);", cause)
    assert found, cause
    return found.group(1)


def check_resumed(run, where, runs, what):
    runs.append(run)
    assert run.wait() == 0
    for resumed, undisturbed in zip(exported(run.out), straight(where, runs)):
        assert resumed == undisturbed
    print(f"{what}; what went on from it is bitwise the undisturbed run")


def tell(victim, number):
    def test(where, runs):
        job = small_job(where, epochs=EPOCHS, extra=EXTRA)
        hand = ByHand(job)
        runs.append(hand)
        brake = Brake(hand)
        step = random.randint(5, 40)
        wait_for(f"step {step}", lambda: hand.step() >= step, 120)
        hand.processes[victim].send_signal(number)
        began = time.monotonic()
        codes = hand.wait_for_end(GRACE)
        took = time.monotonic() - began
        brake.release()
        assert set(codes.values()) == {75}, codes
        causes = {last_line(log) for log in hand.logs().values()}
        assert len(causes) == 1, causes
        cause = causes.pop()
        who = "coordinator at " if victim == "coordinator" else f"(pid {hand.processes[victim].pid})"
        assert who in cause and f": preempted by {number.name}; " in cause, cause
        assert "told to end" in hand.logs()[victim], hand.logs()[victim]
        rest = Run(job, "--set", f"checkpoint.start_from={folder_in(cause)}")
        check_resumed(rest, where, runs, f"{number.name} to {victim}: all ended after {took:.1f} s: {cause}")

    test.__name__ = f"{number.name}_to_{victim}"
    return test


def sigterm_to_parley_run(where, runs):
    run = Run(small_job(where, epochs=EPOCHS, extra=EXTRA))
    runs.append(run)
    brake = Brake(run)
    run.wait_for_step(random.randint(5, 40))
    pids = run.pids()
    run.process.send_signal(signal.SIGTERM)
    began = time.monotonic()
    assert run.wait(GRACE) == 75, run.process.returncode
    brake.release()
    took = time.monotonic() - began
    assert not any(alive(pid) for pid in pids.values()), pids
    said = run.stderr()
    assert "SIGTERM: the job goes on until a checkpoint is whole, 20s at most" in said, said
    cause = last_line(said)
    command = shlex.split(re.search(r"to go on from it: parley (.*)", said).group(1))
    assert command[0] == "run" and command[-1] == f"checkpoint.start_from={folder_in(cause)}", command
    rest = Run(command[1], *command[2:])
    check_resumed(rest, where, runs, f"SIGTERM to parley run: it ended after {took:.1f} s: {cause}")


def the_same_command_again_goes_on(where, runs):
    job = small_job(where, epochs=EPOCHS, extra=EXTRA)
    run = Run(job, "--resume")
    runs.append(run)
    brake = Brake(run)
    run.wait_for_step(random.randint(5, 40))
    run.process.send_signal(signal.SIGUSR1)
    assert run.wait(GRACE) == 75, run.process.returncode
    brake.release()
    check_resumed(Run(job, "--resume", out=run.out), where, runs, last_line(run.stderr()))


def a_second_sigterm_ends_at_once(where, runs):
    hand = ByHand(small_job(where, epochs=100000, extra='preemption_grace: "10m"\n'))
    runs.append(hand)
    wait_for("step 3", lambda: hand.step() >= 3, 120)
    # It writes no checkpoint any more, so nothing else would end the job.
    hand.processes["shard-1"].send_signal(signal.SIGSTOP)
    worker = hand.processes["worker-0"]
    worker.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert worker.poll() is None
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(5) == 75


def without_time_all_end_and_say_so(where, runs):
    hand = ByHand(small_job(where, epochs=100000, extra='preemption_grace: "3s"\n'))
    runs.append(hand)
    wait_for("step 3", lambda: hand.step() >= 3, 120)
    stopped = hand.processes.pop("shard-1")  # it neither trains nor writes
    stopped.send_signal(signal.SIGSTOP)
    try:
        hand.processes["shard-0"].send_signal(signal.SIGTERM)
        began = time.monotonic()
        codes = hand.wait_for_end(3 + 8)
        took = time.monotonic() - began
        assert took >= 3 and set(codes.values()) == {75}, (took, codes)
        causes = {last_line(log) for name, log in hand.logs().items() if name != "shard-1"}
        assert len(causes) == 1, causes
        cause = causes.pop()
        assert "preempted by SIGTERM; no checkpoint could be written within 3s; there is none; " in cause, cause
        print(f"all others ended after {took:.1f} s: {cause}")
    finally:
        stopped.kill()
        stopped.wait()


def without_a_coordinator_a_member_goes_by_itself(where, runs):
    hand = ByHand(small_job(where, epochs=100000, extra='preemption_grace: "2s"\n'))
    runs.append(hand)
    wait_for("step 3", lambda: hand.step() >= 3, 120)
    hand.processes["coordinator"].kill()
    for name in ("shard-1", "worker-0"):
        hand.processes[name].send_signal(signal.SIGUSR1)
    for name in ("shard-1", "worker-0"):
        assert hand.processes[name].wait(10) == 75, hand.processes[name].returncode
        cause = last_line(hand.logs()[name])
        assert f"(pid {hand.processes[name].pid}): preempted by SIGUSR1, and the coordinator at " in cause, cause
    print(cause)


def who_waits_for_a_coordinator_goes_at_once(where, runs):
    job = small_job(where)
    for role in ("shard", "worker"):
        for number in (signal.SIGTERM, signal.SIGUSR1):
            log = where / f"{role}-{number}.log"
            with open(log, "w") as file:
                process = subprocess.Popen(
                    [program(f"parley-{role}"), f"--job={job}", f"--coordinator=file:{where}/none", "--join_timeout=720h"],
                    stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                )
            try:
                wait_for("its line", lambda: " serving " in log.read_text(), 60)
                time.sleep(0.5)
                process.send_signal(number)
                assert process.wait(10) == 75, (process.returncode, log.read_text())
                assert "before it had joined the job" in last_line(log.read_text()), log.read_text()
            finally:
                process.kill()
                process.wait()


main(
    sigterm_to_parley_run,
    the_same_command_again_goes_on,
    tell("worker-1", signal.SIGTERM),
    tell("shard-1", signal.SIGUSR1),
    tell("coordinator", signal.SIGTERM),
    a_second_sigterm_ends_at_once,
    without_time_all_end_and_say_so,
    without_a_coordinator_a_member_goes_by_itself,
    who_waits_for_a_coordinator_goes_at_once,
)
