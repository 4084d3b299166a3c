"""A training program of one's own, as docs/api.md says to start it: what is written there is what runs here."""

import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, "tests/process")
from support.bits import assert_same_bits
from support.devices import DEVICES, machine
from support.jobs import Run, evaluations, exported, last_line, main, scrape, wait_for
from support.programs import BIN, program

JOB = "client/example/spiral.textproto"
PROGRAM = "client/example/train_your_own"
FAULTY = "tests/process/faulty_program"
SECTION = "\n## Your own program\n"


def documented():
    """The line that starts it, out of docs/api.md."""
    text = pathlib.Path("docs/api.md").read_text()
    assert SECTION in text, "docs/api.md has no such section"
    section = text.split(SECTION, 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"^(out/bin/parley run .*)$", section, re.MULTILINE)
    assert len(found) == 1, found
    return found[0]


def clone(where):
    """A folder in which things lie as in a clone after the commands before that line."""
    tree = where / "clone"
    for name, target in (("out/bin", BIN), (JOB, pathlib.Path(JOB).resolve()), (f".bazel/bin/{PROGRAM}", pathlib.Path(PROGRAM).resolve())):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).symlink_to(target)
    return tree


def parley(*arguments):
    return subprocess.run([program("parley"), *arguments], capture_output=True, text=True, timeout=120)


def evaluated(out):
    """The last evaluation of a job, of its whole test set."""
    last = evaluations(out)[-1]
    assert last["test_samples"] == 501, last
    return last


def the_documented_command_trains(where, runs):
    out = where / "out"
    command = shlex.split(documented()) + ["--out", str(out)]
    done = subprocess.run(command, cwd=clone(where), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    assert evaluated(out)["accuracy"] >= 0.95, done.stdout


def it_is_told_to_end(where, runs):
    run = Run(JOB, f"--worker={PROGRAM}", "--set", "epochs=100000", out=where / "out")
    runs.append(run)
    run.wait_for_step(20)
    pid = next(int(one["member"]["pid"]) for one in run.answer()["members"] if one["member"]["role"] == "WORKER")
    os.kill(pid, signal.SIGTERM)
    assert run.wait(60) == 75, run.stderr()
    assert "preempted by SIGTERM; the job can go on with checkpoint.start_from=" in last_line(run.stderr()), run.stderr()
    assert list((run.out / "checkpoints").glob("step-*/manifest.json")), "no checkpoint"
    again = re.search(r"to go on from it: parley (run .*)", run.stderr()).group(1)
    assert again.endswith("/" + PROGRAM), again
    done = parley(*shlex.split(again), "--set", "epochs=60", "--out", str(where / "again"))
    assert done.returncode == 0, done.stderr


def it_is_watched_as_a_worker_is(where, runs):
    """Its log, its metrics, and who waits for whom; what it says of its end."""
    run = Run(JOB, f"--worker={PROGRAM}", "--set", "epochs=100000", out=where / "out")
    runs.append(run)
    run.wait_for_step(20)
    address = run.addresses("metrics")["worker-0"]

    def steps():
        found = re.search(r'^parley_step{[^}]*job="spiral"[^}]*role="worker"[^}]*} (\d+)$', scrape(address), re.MULTILINE)
        return found and int(found.group(1))

    first = wait_for("its steps in its metrics", steps, 30)
    wait_for("more steps there", lambda: steps() > first, 30)
    assert re.search(r"^parley_loss{", scrape(address), re.MULTILINE)
    assert parley("why-stuck", f"--coordinator=file:{run.out}/coordinator.address").returncode == 0
    run.process.send_signal(signal.SIGTERM)
    assert run.wait(60) == 75, run.stderr()
    assert "preempted" in last_line(run.logs()["worker-0"]), run.logs()["worker-0"]


def one_that_is_sent_away_ends_well(where, runs):
    """In the middle of the job, with parameters of no version that counts."""
    run = Run(JOB, f"--worker={PROGRAM}", "--set", "cluster.workers=2", "--set", "cluster.min_workers=1", "--set", "epochs=100000", out=where / "out")
    runs.append(run)
    run.wait_for_step(20)
    for command in (("drain", "worker-1"), ("stop", "--wait")):
        done = parley(*command, f"--coordinator=file:{run.out}/coordinator.address")
        assert done.returncode == 0, done.stderr
        if command[0] == "drain":
            wait_for("it to go", lambda: "has left the job, which goes on with fewer workers" in run.logs()["worker-1"], 60)
            step = int(run.answer()["step"])
            run.wait_for_step(step + 20)
    assert run.wait(60) == 75, run.stderr()


def the_job_gives_it_options(where, runs):
    """The model is as wide as they say; what the program does not know it says, and nothing is trained."""
    run = Run(JOB, f"--worker={PROGRAM}", "--set", 'model.own={ arguments: "--width=24" }', "--set", "epochs=1", out=where / "out")
    runs.append(run)
    assert run.wait(60) == 0, run.stderr()
    assert b'"second.weight":{"dtype":"F32","shape":[24,24]' in exported(run.out)[0].replace(b" ", b""), exported(run.out)[0][:500]
    assert 'arguments: "--width=24"' in (run.out / "job.textproto").read_text()
    for wrong, says in (("--depth=3", "train_your_own: The following argument was not expected: --depth=3"), ("--width=0", "--width: Value 0 not in range")):
        run = Run(JOB, f"--worker={PROGRAM}", "--set", f'data.own={{ arguments: "{wrong}" }}', "--set", 'liveness="2s"', out=where / wrong)
        runs.append(run)
        assert run.wait(60) == 2, run.stderr()
        for log in ("worker-0", "shard-0"):
            assert says in last_line(run.logs()[log]), run.logs()
        assert says in last_line(run.stderr()), run.stderr()


def workers_of_one_host_add_up_first(where, runs):
    run = Run(JOB, f"--worker={PROGRAM}", "--set", "cluster.workers=2", "--set", "cluster.group=2", out=where / "out")
    runs.append(run)
    assert run.wait(120) == 0, run.stderr()
    assert evaluated(run.out)["accuracy"] >= 0.9, evaluated(run.out)


def on_a_gpu_it_computes_the_same(where, runs):
    """Over the fake plugin, which ends it where any use of memory is in no order. The program lies beside the plugin."""
    here = BIN / "train_your_own"
    shutil.copy(PROGRAM, here)
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    ends = {}
    for device in ("CPU", "CUDA"):
        run = Run(JOB, f"--worker={here}", "--set", f"device={device}", "--set", "epochs=5", out=where / device)
        runs.append(run)
        assert run.wait(120) == 0, run.stderr()
        log = run.logs()["worker-0"]
        assert ("computes on a GPU device=fake:0 shared=no" in log) == (device == "CUDA"), log
        ends[device] = exported(run.out), evaluated(run.out)
    assert_same_bits(ends["CUDA"][0], ends["CPU"][0], "through a device, and on the CPU")
    for what in ("accuracy", "loss"):
        assert ends["CUDA"][1][what] == ends["CPU"][1][what], (ends["CUDA"][1], ends["CPU"][1])
    # What is missing it says before it joins.
    machine(where, DEVICES / "libfake_driver.so")
    run = Run(JOB, f"--worker={here}", "--set", "device=CUDA", out=where / "none")
    runs.append(run)
    assert run.wait(60) == 2, run.stderr()
    said = last_line(run.logs()["worker-0"])
    assert said.startswith("device: CUDA cannot be had: ") and "libparley_cuda.so is missing" in said, said
    assert "device: CUDA cannot be had" in last_line(run.stderr()), run.stderr()
    run = Run(JOB, f"--worker={here}", "--set", "device=AUTO", "--set", "epochs=1", out=where / "auto")
    runs.append(run)
    assert run.wait(60) == 0, run.stderr()
    assert "device: AUTO runs on the CPU" in run.logs()["worker-0"], run.logs()["worker-0"]


def what_goes_wrong_in_it_all_are_told(where, runs):
    def end(fault, *settings):
        option = f'model.own={{ arguments: "--fault={fault}" }}'
        run = Run(JOB, f"--worker={FAULTY}", "--set", option, "--set", 'liveness="2s"', *settings, out=where / f"{fault}-out")
        runs.append(run)
        return run.wait(60), run

    code, run = end("prepare")
    assert code == 2 and last_line(run.logs()["worker-0"]) == "spiral lacks its data", run.logs()
    assert "spiral lacks its data" in last_line(run.logs()["shard-0"]), run.logs()
    for fault, says in (
        ("train", "the loop has come upon something"),
        ("throw", "the program's loop: an index is out of range"),
        ("oddly", "the program's loop has thrown something that is no std::exception"),
        ("return", "the program's loop has returned before the job's end"),
    ):
        code, run = end(fault)
        assert code == 1, run.stderr()
        for log in ("worker-0", "shard-0"):
            assert "worker 0 at" in last_line(run.logs()[log]) and says in last_line(run.logs()[log]), run.logs()
    # What it does when the job has finished is its own matter, and waits for nobody.
    began = time.monotonic()
    code, run = end("late", "--set", "epochs=1")
    assert code == 1 and time.monotonic() - began < 20, run.stderr()
    assert last_line(run.logs()["worker-0"]) == "no room for what is written at the end", run.logs()
    assert last_line(run.stderr()) == "no room for what is written at the end", run.stderr()
    # The one that hangs in its loop ends with the job all the same.
    code, run = end("hang", "--set", "cluster.workers=2")
    assert code == 1, run.stderr()
    for log in ("worker-0", "worker-1"):
        assert "the other one hangs" in last_line(run.logs()[log]), run.logs()


def its_model_and_data_are_not_looked_at(where, runs):
    done = parley("plan", JOB)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^model and data +are the program's own, and so not looked at", done.stdout, re.MULTILINE), done.stdout
    assert "1 of a program of your own" in done.stdout, done.stdout
    done = parley("doctor", JOB, "--out", str(where / "out"))
    line = re.search(r"^(\S+) +model and data +(.*)$", done.stdout, re.MULTILINE)
    assert line and line.group(1) == "ok" and "not looked at" in line.group(2), done.stdout
    assert "parley-worker" not in done.stdout and "FAIL" not in done.stdout and done.returncode == 0, done.stdout
    # What is wrong with the rest still shows.
    done = parley("plan", JOB, "--set", f"checkpoint.start_from={where}/none")
    assert done.returncode == 2 and "checkpoint.start_from" in done.stderr, done.stderr


def without_it_the_job_is_refused(where, runs):
    done = parley("run", JOB, "--out", str(where / "out"))
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith(f"{JOB}: ") and "give it with --worker=PROGRAM (docs/api.md, Your own program)" in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) == 1 and not (where / "out").exists(), done.stderr
    for none in (str(where / "none"), str(where), JOB):
        done = parley("run", JOB, f"--worker={none}", "--out", str(where / "out"))
        assert done.returncode == 2 and done.stderr.startswith(f"--worker={none}: is not there, or no program"), done.stderr


main(
    the_documented_command_trains,
    it_is_told_to_end,
    it_is_watched_as_a_worker_is,
    one_that_is_sent_away_ends_well,
    the_job_gives_it_options,
    workers_of_one_host_add_up_first,
    on_a_gpu_it_computes_the_same,
    what_goes_wrong_in_it_all_are_told,
    its_model_and_data_are_not_looked_at,
    without_it_the_job_is_refused,
)
