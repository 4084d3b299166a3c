"""A training program of one's own, as docs/api.md says to start it: what is written there is what runs here."""

import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys

sys.path.insert(0, "tests/process")
from support.jobs import Run, last_line, main
from support.programs import BIN, program

JOB = "client/example/spiral.textproto"
PROGRAM = "client/example/train_your_own"
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


def the_documented_command_trains(where, runs):
    out = where / "out"
    command = shlex.split(documented()) + ["--out", str(out)]
    done = subprocess.run(command, cwd=clone(where), capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    said = (out / "worker-0.log").read_text()
    accuracy = re.search(r"^accuracy (\S+)$", said, re.MULTILINE)
    assert accuracy and float(accuracy.group(1)) >= 0.95, said
    print(f"accuracy {accuracy.group(1)}")


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


main(the_documented_command_trains, it_is_told_to_end, its_model_and_data_are_not_looked_at, without_it_the_job_is_refused)
