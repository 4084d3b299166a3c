"""Slows a job down: a fast machine would be through with it before a test has done what it does in its middle."""

import os
import re
import signal
import threading
import time

from support.jobs import scrape

PAUSE = 0.04  # seconds after each step, or each few of them on a fast machine; unless told otherwise
PATIENCE = 0.2  # seconds for a step on a slow one


class Brake:
    """Stops a worker of a synchronous job after each step for a moment, from now until `release` or the worker's end."""

    def __init__(self, job, worker="worker-0", pause=PAUSE):
        self._job = job
        self._worker = worker
        self._pause = pause
        self._released = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def release(self):
        self._released.set()
        self._thread.join()

    def _run(self):
        pid = int(self._await("pid", self._worker))
        metrics = self._await("metrics", "shard-0")
        step = 0
        try:
            while not self._released.is_set():
                step = self._next_step(metrics, step)
                os.kill(pid, signal.SIGSTOP)
                self._released.wait(self._pause)
                os.kill(pid, signal.SIGCONT)
        except OSError:
            pass  # the job ends, or what it was to be slowed down for

    def _await(self, what, role):
        """From the line that it logs when it serves; "0" if released before."""
        while not self._released.wait(0.02):
            found = re.search(rf" serving .*\b{what}=(\S+)", self._job.logs().get(role, ""))
            if found:
                return found.group(1)
        return "0"

    @staticmethod
    def _next_step(metrics, step):
        """The shard's step when it is another than this one, or when nothing has come in time."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            now = re.search(r"^parley_step{[^}]*} (\S+)$", scrape(metrics), re.MULTILINE)
            if now and float(now.group(1)) != step:
                return float(now.group(1))
            time.sleep(0.01)
        return step
