"""Runs of whole jobs by `parley run`, and what a test asks of them."""

import concurrent.futures
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
import urllib.request

from support import data
from support.programs import program

SMALL = """
name: "small"
seed: 3
model {{ simple_cnn {{}} }}
data {{ idx {{ directory: "{data}" }} batch: 20 }}
optimizer {{ adam {{ rate: 0.001 }} }}
cluster {{ workers: 2 shards: 2 }}
threads: 1
liveness: "{liveness}"
epochs: {epochs}
"""


# Told by process_test of what it has in two forms: `deploy/test --long` runs the whole, `deploy/test` and sanitizers the short one.
WHOLE = "--all" in sys.argv


def folder(prefix):
    """A fresh folder with a short path."""
    return pathlib.Path(tempfile.mkdtemp(prefix=f"parley-{prefix}.", dir="/tmp"))


def small_job(where, liveness="10s", epochs=1, extra=""):
    """A job file over data made by the test."""
    if not (where / "data").exists():
        data.write_idx(where / "data")
    path = where / "job.textproto"
    path.write_text(SMALL.format(data=where / "data", liveness=liveness, epochs=epochs) + extra)
    return path


def job_of_small_steps(where, **options):
    """Four times as many steps in an epoch, for a test that counts them and looks at nothing that they compute."""
    path = small_job(where, **options)
    path.write_text(path.read_text().replace("batch: 20", "batch: 5"))
    return path


def wait_for(what, condition, seconds, every=0.05):
    """The first true value of condition(), asked `every` seconds, or AssertionError after so many seconds."""
    end = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(every)


def alive(pid):
    """Whether the process runs (a zombie does not)."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class Run:
    """One `parley run`, in a new directory or in `out`."""

    def __init__(self, job, *arguments, out=None):
        new = pathlib.Path(job).parent / f"out-{time.monotonic_ns()}"
        self.out = out or new
        self.stderr_path = new.with_suffix(".stderr")
        self.stdout_path = new.with_suffix(".stdout")
        with open(self.stdout_path, "w") as stdout, open(self.stderr_path, "w") as stderr:
            self.process = subprocess.Popen(
                [program("parley"), "run", str(job), "--out", str(self.out), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
            )

    def status(self):
        """GetStatus as a dict; None while nobody answers."""
        done = subprocess.run(
            [program("parley"), "status", f"--coordinator=file:{self.out}/coordinator.address", "--format=json"],
            capture_output=True,
            text=True,
            timeout=30,
        )
        return json.loads(done.stdout) if done.returncode == 0 else None

    def step(self):
        """The last decided step, by the coordinator's metrics: what is asked again and again is not worth a process each time."""
        return coordinator_step(self.out / "coordinator.log")

    def answer(self, seconds=120):
        """GetStatus as a dict, as soon as there is an answer: on a busy machine one may come late."""
        return wait_for("an answer of the coordinator", self.status, seconds)

    def wait_for_step(self, step, seconds=120):
        """The status once so many steps are decided."""

        def reached():
            if self.process.poll() is not None:
                raise AssertionError(f"the job ended early with {self.process.returncode}")
            # None: it is another coordinator, maybe, that has a log of its own.
            seen = self.step()
            if seen is not None and seen < step:
                return None
            status = self.status()
            return status if status and int(status.get("step", 0)) >= step else None

        return wait_for(f"step {step}", reached, seconds)

    def start_late_worker(self):
        """One that `parley run` knows nothing of; its process."""
        with open(self.out / "late.log", "w") as log:
            return subprocess.Popen(
                [program("parley-worker"), f"--job={self.out}/job.textproto", f"--coordinator=file:{self.out}/coordinator.address"],
                stderr=log,
            )

    def lose_worker(self, name):
        """Kills it, and waits until the coordinator says so."""
        os.kill(self.pids()[name], signal.SIGKILL)
        wait_for("the view without it", lambda: f"lost member={name}" in (self.out / "coordinator.log").read_text(), 30)

    def wait(self, seconds=300):
        """The exit status."""
        return self.process.wait(timeout=seconds)

    def stdout(self):
        return self.stdout_path.read_text()

    def stderr(self):
        return self.stderr_path.read_text()

    def logs(self):
        """Name of the role ("worker-1") to the text of its log."""
        return {path.stem: path.read_text() for path in sorted(self.out.glob("**/*.log"))}

    def pids(self):
        """Name of the role to its process, from the line that each program logs when it serves."""
        found = {}
        for name, log in self.logs().items():
            match = re.search(r" serving .*\bpid=(\d+)", log)
            if match:
                found[name] = int(match.group(1))
        return found

    def addresses(self, what="address"):
        """Of each process; what="metrics": of its metrics endpoint."""
        found = {}
        for name, log in self.logs().items():
            match = re.search(rf" serving .*?\b{what}=(\S+)", log)
            if match:
                found[name] = match.group(1)
        return found

    def show(self):
        """All that it said, for a failed test."""
        for name, text in {"parley run stdout": self.stdout(), "parley run stderr": self.stderr(), **self.logs()}.items():
            print(f"---- {name}\n{text[-6000:]}")

    def kill_everything(self):
        """As a power cut does: `parley run` and all that it has started, at once."""
        pids = list(self.pids().values())
        self.process.send_signal(signal.SIGKILL)
        for pid in pids:
            # Some are gone by themselves, with who has started them.
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_for("all to be gone", lambda: not any(alive(pid) for pid in pids), 30)

    def kill(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        for pid in self.pids().values():
            if alive(pid):
                with contextlib.suppress(ProcessLookupError):  # it ends by itself meanwhile
                    os.kill(pid, signal.SIGKILL)


def exported(out):
    """What `parley checkpoint export` makes of a job's last checkpoint: the bytes of parameters and of optimizer state."""
    done = subprocess.run(
        [program("parley"), "checkpoint", "export", str(out / "checkpoints"), "--out", str(out / "export")], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    files = [(out / "export" / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]
    shutil.rmtree(out / "export")  # disks are small, tests many
    return files


def evaluations(out):
    """What a job's history tells of each whole evaluation, in their order."""
    lines = [json.loads(line) for line in (out / "history.jsonl").read_text().splitlines()]
    return [line for line in lines if line["kind"] == "evaluation"]


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def scrape(address):
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return answer.read().decode()


def coordinator_step(log):
    """The last decided step as the coordinator with this log file has it in its metrics; None where it does not answer."""
    addresses = re.findall(r" serving .*\bmetrics=(\S+)", log.read_text()) if log.exists() else []
    if not addresses:
        return None
    try:
        found = re.search(r'^parley_step{[^}]*role="coordinator"[^}]*} (\d+)', scrape(addresses[-1]), re.MULTILINE)
    except (OSError, http.client.HTTPException):
        return None
    return int(found.group(1)) if found else None


def passes(test):
    """Runs the function; a failing one shows its runs' logs if it has put them into `runs`."""
    began = time.monotonic()
    where = folder(test.__name__)
    runs = []
    try:
        test(where, runs)
        check_sanitizers(runs)
        print(f"passed {test.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
        return True
    except BaseException as error:  # a test that is interrupted must still end its processes
        failed = f"FAILED {test.__name__} ({time.monotonic() - began:.1f} s): {type(error).__name__}: {error}"
        print(failed, flush=True)
        for run in runs:
            run.show()
        traceback.print_exception(error)
        print(failed, flush=True)
        if isinstance(error, KeyboardInterrupt):
            raise
        return False
    finally:
        for run in runs:
            run.kill()
        shutil.rmtree(where, ignore_errors=True)


def check_sanitizers(runs):
    """A process that a test kills cannot tell by its exit status what a sanitizer has found in it."""
    for run in runs:
        for name, log in run.logs().items():
            report = re.search(r"(WARNING|ERROR): \w+Sanitizer.*|.*: runtime error: .*", log)
            assert not report, f"{name}: {report.group(0)}"


def main(*tests, at_once=1):
    """Runs the functions, so many at a time."""
    with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
        results = list(pool.map(passes, tests))
    sys.exit(0 if all(results) else 1)
