#!/usr/bin/env python3
"""parley-shard as a process: what its flags do before there is a job to join."""

import os
import subprocess
import tempfile
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
    def run_it(self, *flags):
        """Its exit status and stderr, where no coordinator comes."""
        with tempfile.TemporaryDirectory(dir="/tmp") as folder:
            job = os.path.join(folder, "job.textproto")
            with open(job, "w") as file:
                file.write(JOB)
            command = [PROGRAM, "--job=" + job, "--coordinator=file:%s/none" % folder, "--join_timeout=1s", *flags]
            done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=60)
            return done.returncode, done.stderr

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


if __name__ == "__main__":
    unittest.main()
