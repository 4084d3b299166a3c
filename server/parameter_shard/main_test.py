#!/usr/bin/env python3
"""parley-shard as a process: what its flags and its stderr do before there is a job to join."""

import fcntl
import os
import signal
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.path.abspath("server/parameter_shard/parley-shard")

JOB = """
name: "digits"
model { simple_cnn {} }
data { idx { directory: "/nowhere" } batch: 10 }
optimizer { sgd { rate: 0.1 } }
epochs: 1
"""


class MainTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.addCleanup(folder.cleanup)
        job = os.path.join(folder.name, "job.textproto")
        with open(job, "w") as file:
            file.write(JOB)
        self.command = [PROGRAM, "--job=" + job, "--coordinator=file:%s/none" % folder.name]

    def run_it(self, *flags):
        """Its exit status and stderr, where no coordinator comes."""
        command = [*self.command, "--join_timeout=1s", *flags]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60)
        return done.returncode, done.stderr

    def takes_signals(self, pid):
        """Whether SIGTERM would not just end it."""
        with open("/proc/%d/status" % pid) as file:
            masks = [int(line.split()[1], 16) for line in file if line.startswith(("SigCgt", "SigBlk"))]
        return any(mask >> (signal.SIGTERM - 1) & 1 for mask in masks)

    def full_pipe(self):
        """Where a write waits for ever."""
        reads, writes = os.pipe()
        for end in (reads, writes):
            self.addCleanup(os.close, end)
        os.write(writes, b"-" * fcntl.fcntl(writes, fcntl.F_SETPIPE_SZ, 4096))
        return writes

    def test_it_takes_no_more_cores_than_it_is_told(self):
        code, said = self.run_it("--threads=1")
        self.assertEqual(code, 1, said)
        self.assertIn("applies the optimizer threads=1\n", said)
        _, said = self.run_it()
        most = min(12, len(os.sched_getaffinity(0)))
        self.assertIn("applies the optimizer threads=%d\n" % most, said)

    def test_none_at_all_is_refused(self):
        code, said = self.run_it("--threads=0")
        self.assertEqual(code, 2, said)
        self.assertIn("--threads", said)

    def test_it_ends_though_its_stderr_takes_nothing(self):
        command = [*self.command, "--join_timeout=1s"]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=self.full_pipe(), timeout=60)
        self.assertEqual(done.returncode, 1)

    def test_and_at_a_signal_too(self):
        shard = subprocess.Popen([*self.command, "--join_timeout=10m"], stderr=self.full_pipe())
        self.addCleanup(shard.wait)
        self.addCleanup(shard.kill)
        end = time.monotonic() + 60
        while not self.takes_signals(shard.pid) and time.monotonic() < end:
            time.sleep(0.05)
        time.sleep(1)  # so that it has said something, which does not go
        shard.send_signal(signal.SIGTERM)
        self.assertEqual(shard.wait(timeout=60), 75)


if __name__ == "__main__":
    unittest.main()
