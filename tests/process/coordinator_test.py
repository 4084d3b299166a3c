"""The coordinator is killed in the middle of a job: the others go on without it, for a time, until it is back."""

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, "tests/process")
import numpy as np
from safetensors.numpy import save_file
from support.jobs import Run, alive, last_line, main, scrape, wait_for
from support.programs import program

parser = argparse.ArgumentParser()
parser.add_argument("--away", type=float, default=5, help="seconds without a coordinator; more than twice liveness")
parser.add_argument("--steps", type=int, default=400)
options = parser.parse_args()

# Computing is sleep, 60 ms a step: so a job goes on for a while, and costs nothing.
JOB = """
name: "sleeper"
seed: 3
model {{ sleeping {{ layers: 1 forward_seconds: 0.02 input_gradient_seconds: 0.02 weight_gradient_seconds: 0.02 }} }}
data {{ safetensors {{ train: "train.safetensors" }} batch: 20 }}
optimizer {{ sgd {{ rate: 0.01 }} }}
cluster {{ workers: 2 shards: 2 }}
threads: 1
liveness: "{liveness}"
steps: {steps}
{extra}
"""
FOR_EVER = 1000000


def sleeper(where, liveness="10s", steps=FOR_EVER, extra=""):
    if not (where / "train.safetensors").exists():
        x = np.zeros((600, 4), dtype=np.float32)
        save_file({"x": x, "y": np.zeros(len(x), dtype=np.int64)}, where / "train.safetensors")
    path = where / "job.textproto"
    path.write_text(JOB.format(liveness=liveness, steps=steps, extra=extra))
    return path


def coordinator_by_hand(run, log):
    """The command that `parley run` says, and where it says its own."""
    command = re.search(r"to start it again: (.*)", run.stderr()).group(1).split()
    with open(log, "w") as stderr:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr)


def metric(address, name):
    return float(re.search(rf"^{name}{{[^}}]*}} (\S+)$", scrape(address), re.MULTILINE).group(1))


def metrics_address(log):
    return re.search(r" serving .*\bmetrics=(\S+)", log).group(1)


def it_comes_back(where, runs):
    """Also where what the job has started from is gone meanwhile."""
    earlier = Run(sleeper(where, "2s", steps=3))
    runs.append(earlier)
    assert earlier.wait(60) == 0, earlier.process.returncode
    start = f'checkpoint {{ start_from: "{earlier.out}/checkpoints" }}\n'
    run = Run(sleeper(where, "2s", options.steps, start + 'autonomy: "60s"\n'))
    runs.append(run)
    run.wait_for_step(5)
    shutil.rmtree(earlier.out / "checkpoints")
    shard = metrics_address(run.logs()["shard-0"])
    os.kill(run.pids()["coordinator"], signal.SIGKILL)
    wait_for("parley run to say how to go on", lambda: "to start it again: " in run.stderr(), 10)
    away = metric(shard, "parley_step")
    # Twice liveness later a job without autonomy would have ended.
    gone_at = time.monotonic()
    wait_for("steps without the coordinator", lambda: metric(shard, "parley_step") >= away + 10, 60)
    wait_for("the time without a coordinator", lambda: time.monotonic() >= gone_at + options.away, options.away + 5)
    without = metric(shard, "parley_step") - away
    status = subprocess.run(
        [program("parley"), "status", f"--coordinator=file:{run.out}/coordinator.address"], capture_output=True, text=True
    )
    assert status.returncode == 1 and "start it again" in status.stderr, status

    log = run.out / "second-coordinator.log"
    second = coordinator_by_hand(run, log)
    try:
        status = wait_for("the second coordinator", run.status, 30)
        assert int(status["generation"]) == 2, status
        assert metric(metrics_address(log.read_text()), "parley_coordinator_generation") == 2
        assert len(status["members"]) == 4, status
        assert run.wait(240) == 0, run.process.returncode
        assert second.wait(20) == 0, second.returncode
    finally:
        second.kill()
        second.wait()
    for member in ("worker-0", "shard-1"):
        said = run.logs()[member]
        assert re.search(r"warning .* has not answered since .*; this process goes on without it for 1m at most", said), said
        # Once; or more often where the machine stood still.
        assert 1 <= len(re.findall("the coordinator at .* answers again", said)) <= 3, said
    assert (run.out / "checkpoints/latest").read_text().splitlines()[0] == f"step-{options.steps:08d}"
    print(f"{without:.0f} steps in {options.away:g} s without a coordinator; then {options.steps} in all, with generation {status['generation']}")


def it_stays_away(where, runs):
    run = Run(sleeper(where, liveness="2s", extra='autonomy: "4s"\n'))
    runs.append(run)
    run.wait_for_step(5)
    pids = run.pids()
    os.kill(pids.pop("coordinator"), signal.SIGKILL)
    killed = time.monotonic()
    wait_for("all others to end", lambda: not any(alive(pid) for pid in pids.values()), 30)
    took = time.monotonic() - killed
    assert took > 4, took
    assert run.wait(20) == 1, run.process.returncode
    causes = {name: last_line(log) for name, log in run.logs().items() if name != "coordinator"}
    causes["parley run"] = last_line(run.stderr())
    assert len(set(causes.values())) == 1, causes
    cause = causes["parley run"]
    assert "has not answered since" in cause and "may last 4s" in cause, cause
    print(f"all others ended {took:.1f} s after the kill: {cause}")


def a_second_one_is_refused(where, runs):
    run = Run(sleeper(where))
    runs.append(run)
    run.wait_for_step(3)
    address = (run.out / "coordinator.address").read_text().strip()
    second = subprocess.run(
        [program("parley-coordinator"), f"--job={run.out}/job.textproto", f"--out={run.out}"],
        capture_output=True, text=True, timeout=300,
    )
    said = last_line(second.stderr)
    print(f"exit {second.returncode}: {said}")
    assert second.returncode == 1 and "runs already" in said and address in said, second
    assert (run.out / "coordinator.address").read_text().strip() == address
    step = int(run.answer()["step"])
    run.wait_for_step(step + 3)


def the_job_ends_in_front_of_one_that_stands_by(where, runs):
    """As it did: another run would wait for members that are gone."""

    def standing_by(run, log):
        command = [program("parley-coordinator"), f"--job={run.out}/job.textproto", f"--out={run.out}", "--resume", "--stand_by"]
        with open(log, "w") as stderr:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=stderr)
        wait_for("one that stands by", lambda: "stands by until" in log.read_text(), 30)
        return process

    def finished(run):
        pass

    def stopped(run):
        subprocess.run([program("parley"), "stop", f"--coordinator=file:{run.out}/coordinator.address"], check=True, capture_output=True)

    def failed(run):
        os.kill(run.pids()["shard-0"], signal.SIGKILL)

    for end, steps, code, says in ((finished, 120, 0, ""), (stopped, FOR_EVER, 75, "stopped by an operator"), (failed, FOR_EVER, 1, "shard 0")):
        run = Run(sleeper(where, "2s", steps))
        runs.append(run)
        run.wait_for_step(5)
        log = run.out / "second-coordinator.log"
        second = standing_by(run, log)
        try:
            end(run)
            assert run.wait(120) == code, run.process.returncode
            assert second.wait(20) == code, (end.__name__, second.returncode, log.read_text())
            assert says in last_line(log.read_text()), log.read_text()
            assert "can be joined" not in log.read_text(), log.read_text()
            if code != 0:
                assert last_line(log.read_text()) == last_line(run.stderr()), (log.read_text(), run.stderr())
        finally:
            second.kill()
            second.wait()


main(
    it_comes_back, it_stays_away, a_second_one_is_refused, the_job_ends_in_front_of_one_that_stands_by,
    at_once=2,  # they sleep
)
