"""A disk that runs full in the middle of a checkpoint: training goes on, it is told, and the checkpoint before stays valid.

The checkpoints lie on a small tmpfs, which the test fills and empties again: alone, or as by default in the job's directory, with
the coordinator's log. Mounting it takes root, or user namespaces.
"""

import contextlib
import os
import subprocess
import sys

sys.path.insert(0, "tests/process")
from support.brake import Brake
from support.jobs import Run, job_of_small_steps, main, scrape, wait_for
from support.programs import program

INSIDE = "--inside"


def verify(folder):
    done = subprocess.run([program("parley"), "checkpoint", "verify", str(folder)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def fill(path):
    with open(path, "wb") as file:
        try:
            while True:
                file.write(b"x" * 65536)
                file.flush()
        except OSError:
            pass


def failures(run):
    text = scrape(run.logs()["coordinator"].split(" metrics=")[1].split()[0])
    line = next(line for line in text.splitlines() if line.startswith("parley_checkpoint_failures_total{"))
    return float(line.rsplit(" ", 1)[1])


@contextlib.contextmanager
def small_disk(where, runs):
    disk = where / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(disk)], check=True)
    try:
        yield disk
    finally:
        for each in runs:
            each.kill()
        subprocess.run(["umount", "-l", str(disk)], check=False)


def training_goes_on_over_a_full_disk(where, runs):
    with small_disk(where, runs) as disk:
        # A checkpoint of this network is 1.9 MB.
        extra = f'\ncheckpoint {{ directory: "{disk}/checkpoints" every_steps: 5 keep_last: 2 }}\n'
        run = Run(job_of_small_steps(where, epochs=5, extra=extra))
        runs.append(run)
        brake = Brake(run, pause=0.1)
        wait_for("a whole checkpoint", (disk / "checkpoints/latest").exists, 60)
        fill(disk / "ballast")
        wait_for("a failure", lambda: " a checkpoint failed" in run.logs()["coordinator"], 60)
        log = run.logs()["coordinator"]
        assert "No space left" in log or "no space" in log.lower(), log[-2000:]
        step = int(run.answer()["step"])
        assert failures(run) >= 1
        verify(disk / "checkpoints")
        run.wait_for_step(step + 20)
        whole = log.count(" a checkpoint is whole ")
        (disk / "ballast").unlink()
        wait_for("another whole one", lambda: run.logs()["coordinator"].count(" a checkpoint is whole ") > whole, 60)
        brake.release()
        assert run.wait() == 0
        verify(disk / "checkpoints")
        print(f"{int(failures_told(run))} checkpoints failed, the job did not")


def a_checkpoint_that_fills_the_disk_of_the_log_makes_room_again(where, runs):
    with small_disk(where, runs) as disk:
        extra = "\ncheckpoint { every_steps: 5 keep_last: 2 }\n"
        run = Run(job_of_small_steps(where, epochs=5, extra=extra), out=disk / "out")
        runs.append(run)
        brake = Brake(run, pause=0.1)
        wait_for("a whole checkpoint", (run.out / "checkpoints/latest").exists, 60)
        fill(disk / "ballast")
        # Room for many records, and not for a checkpoint.
        os.truncate(disk / "ballast", os.path.getsize(disk / "ballast") - (1 << 20))

        def have_failed(count):
            # What is not recorded is told nobody.
            return lambda: int((run.status() or {}).get("checkpoints_failed", 0)) >= count

        wait_for("failures that are recorded", have_failed(3), 60)
        (disk / "ballast").unlink()
        brake.release()
        assert run.wait() == 0
        verify(run.out / "checkpoints")


def failures_told(run):
    return run.logs()["coordinator"].count(" a checkpoint failed")


if INSIDE not in sys.argv:
    flags = ["--mount"] if os.getuid() == 0 else ["--mount", "--map-root-user"]
    os.execvp("unshare", ["unshare", *flags, sys.executable, __file__, INSIDE])
main(training_goes_on_over_a_full_disk, a_checkpoint_that_fills_the_disk_of_the_log_makes_room_again)
