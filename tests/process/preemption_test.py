"""A job that is told to end, wherever, writes a checkpoint first, and what goes on from it ends as if nobody had."""

import random
import re
import shlex
import signal
import subprocess
import sys
import time

sys.path.insert(0, "tests/process")
from support import data
from support.brake import Brake
from support.by_hand import ByHand
from support.jobs import Run, alive, exported, job_of_small_steps, last_line, main, small_job, wait_for
from support.programs import program

GRACE = 20  # seconds
EPOCHS = 2  # of 30 steps: 300 samples, 2 workers with 5 each
PAUSE = 0.1  # seconds of a step, so that the job is not over when a busy machine sees at last how far it is
EXTRA = f'preemption_grace: "{GRACE}s"\nconsistency {{ sync {{ deterministic: true }} }}\n'


def job_file(where, **options):
    if not (where / "data").exists():
        data.write_idx(where / "data", train=300)
    return job_of_small_steps(where, **options)


def straight(where, runs, cache={}):
    """Of a job that nobody disturbs."""
    if not cache:
        run = Run(job_file(where, epochs=EPOCHS, extra=EXTRA))
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
        job = job_file(where, epochs=EPOCHS, extra=EXTRA)
        hand = ByHand(job)
        runs.append(hand)
        brake = Brake(hand, pause=PAUSE)
        step = random.randint(5, 20)
        hand.wait_for_step(step)
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
    run = Run(job_file(where, epochs=EPOCHS, extra=EXTRA))
    runs.append(run)
    brake = Brake(run, pause=PAUSE)
    run.wait_for_step(random.randint(5, 20))
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
    job = job_file(where, epochs=EPOCHS, extra=EXTRA)
    run = Run(job, "--resume")
    runs.append(run)
    brake = Brake(run, pause=PAUSE)
    run.wait_for_step(random.randint(5, 20))
    run.process.send_signal(signal.SIGUSR1)
    assert run.wait(GRACE) == 75, run.process.returncode
    brake.release()
    check_resumed(Run(job, "--resume", out=run.out), where, runs, last_line(run.stderr()))


def a_second_sigterm_ends_at_once(where, runs):
    hand = ByHand(job_file(where, epochs=100000, extra='preemption_grace: "10m"\n'))
    runs.append(hand)
    hand.wait_for_step(3)
    # It writes no checkpoint any more, so nothing else would end the job.
    hand.processes["shard-1"].send_signal(signal.SIGSTOP)
    worker = hand.processes["worker-0"]
    worker.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert worker.poll() is None
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(5) == 75


def under_slurm_a_second_sigterm_says_nothing_new(where, runs):
    hand = ByHand(job_file(where, epochs=100000, extra=EXTRA), flags=["--one_sigterm"])
    runs.append(hand)
    hand.wait_for_step(3)
    stopped = hand.processes["shard-1"]  # until then there is no checkpoint
    stopped.send_signal(signal.SIGSTOP)
    for name in ("coordinator", "shard-0", "worker-0"):
        for _ in range(3):
            hand.processes[name].send_signal(signal.SIGTERM)
            time.sleep(0.2)
    stopped.send_signal(signal.SIGCONT)
    codes = hand.wait_for_end(GRACE)
    assert set(codes.values()) == {75}, codes
    folder_in(last_line(hand.logs()["worker-0"]))
    # Ctrl-C twice is another matter.
    hand = ByHand(job_file(where, epochs=100000, extra='preemption_grace: "10m"\n'), flags=["--one_sigterm"])
    runs.append(hand)
    hand.wait_for_step(3)
    for name in ("coordinator", "shard-1"):  # neither hears of the end
        hand.processes[name].send_signal(signal.SIGSTOP)
    worker = hand.processes["worker-0"]
    worker.send_signal(signal.SIGTERM)
    time.sleep(1)
    assert worker.poll() is None
    for _ in range(2):
        worker.send_signal(signal.SIGINT)
        time.sleep(0.2)
    assert worker.wait(2) == 75


def sigusr1_has_the_time_of_the_warning(where, runs):
    # 2 s are not enough, since no checkpoint is whole without a shard that stands still.
    job = job_file(where, epochs=100000, liveness="30s", extra='preemption_grace: "2s"\n')
    hand = ByHand(job, members=("shard-0", "shard-1", "worker-0"))
    runs.append(hand)
    joined = where / "joined"
    hand.start("worker-1", f"--coordinator=file:{hand.out}/job/coordinator.address", f"--joined_file={joined}")
    hand.wait_for_step(3)
    assert joined.exists()
    stopped = hand.processes["shard-1"]
    stopped.send_signal(signal.SIGSTOP)
    hand.processes["worker-0"].send_signal(signal.SIGUSR1)
    hand.processes["shard-0"].send_signal(signal.SIGUSR1)
    time.sleep(8)
    ended = {name: process.returncode for name, process in hand.processes.items() if process.poll() is not None}
    assert not ended, ended
    stopped.send_signal(signal.SIGCONT)
    codes = hand.wait_for_end(20)
    assert set(codes.values()) == {75}, codes
    folder_in(last_line(hand.logs()["worker-0"]))


def without_time_all_end_and_say_so(where, runs):
    hand = ByHand(job_file(where, epochs=100000, extra='preemption_grace: "3s"\n'))
    runs.append(hand)
    hand.wait_for_step(3)
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
    hand = ByHand(job_file(where, epochs=100000, extra='preemption_grace: "2s"\n'))
    runs.append(hand)
    hand.wait_for_step(3)
    hand.processes["coordinator"].kill()
    for name in ("shard-1", "worker-0"):
        hand.processes[name].send_signal(signal.SIGTERM)
    for name in ("shard-1", "worker-0"):
        assert hand.processes[name].wait(10) == 75, hand.processes[name].returncode
        cause = last_line(hand.logs()[name])
        assert f"(pid {hand.processes[name].pid}): preempted by SIGTERM, and the coordinator at " in cause, cause
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
    under_slurm_a_second_sigterm_says_nothing_new,
    sigusr1_has_the_time_of_the_warning,
    without_time_all_end_and_say_so,
    without_a_coordinator_a_member_goes_by_itself,
    who_waits_for_a_coordinator_goes_at_once,
)
