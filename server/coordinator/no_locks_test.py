#!/usr/bin/env python3
"""Where no file can be locked, as on some file systems of clusters, a second coordinator is refused all the same."""

import os
import subprocess
import sys
import tempfile
import time
import unittest

PROGRAM = os.path.abspath("server/coordinator/parley-coordinator")
ENVIRONMENT = dict(os.environ, LD_PRELOAD=os.path.abspath("server/coordinator/libno_locks.so"))

JOB = """
name: "digits"
model { simple_cnn {} }
data { idx { directory: "/usr/share/datasets/fashion-mnist" } batch: 10 }
optimizer { sgd { rate: 0.1 } }
epochs: 1
liveness: "1s"
"""

LOCK = """
import errno, fcntl, tempfile
for lock in (fcntl.flock, fcntl.lockf):
    try:
        lock(tempfile.TemporaryFile(), fcntl.LOCK_EX)
    except OSError as error:
        assert error.errno == errno.ENOLCK, error
    else:
        raise SystemExit("a file was locked")
"""


class NoLocksTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.job = os.path.join(self.folder.name, "job.textproto")
        self.address = os.path.join(self.folder.name, "out", "coordinator.address")
        with open(self.job, "w") as file:
            file.write(JOB)
        self.started = []

    def tearDown(self):
        for process in self.started:
            process.kill()
            process.communicate()
        self.folder.cleanup()

    def start(self):
        self.started.append(subprocess.Popen(
            [PROGRAM, "--job=" + self.job, "--out=" + os.path.dirname(self.address)],
            env=ENVIRONMENT, stderr=subprocess.PIPE, text=True))
        return self.started[-1]

    def wait_for(self, what, condition):
        deadline = time.time() + 30
        while not condition():
            self.assertLess(time.time(), deadline, what)
            time.sleep(0.02)

    def test_no_file_can_be_locked_here(self):
        subprocess.run([sys.executable, "-c", LOCK], env=ENVIRONMENT, check=True)

    def test_a_second_one_is_refused_and_a_successor_is_not(self):
        first = self.start()
        self.wait_for("the first one's address", lambda: os.path.exists(self.address))
        with open(self.address) as file:
            address = file.read().strip()
        second = self.start()
        _, errors = second.communicate(timeout=30)
        self.assertEqual(second.returncode, 1, errors)
        last = errors.rstrip("\n").split("\n")[-1]
        self.assertIn("runs already", last)
        self.assertIn(address, last)
        self.assertIsNone(first.poll())
        first.kill()
        first.wait()
        third = self.start()
        records = os.path.join(self.folder.name, "out", "log")
        self.wait_for("the third one's record",
                      lambda: len([name for name in os.listdir(records) if name[0] != "."]) > 1)
        self.assertIsNone(third.poll())


if __name__ == "__main__":
    unittest.main()
