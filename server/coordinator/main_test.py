#!/usr/bin/env python3
"""parley-coordinator as a process: exit codes, last lines, and what it writes."""

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import unittest

PROGRAM = os.path.abspath("server/coordinator/parley-coordinator")

JOB = """
name: "digits"
model { simple_cnn {} }
data { idx { directory: "/usr/share/datasets/fashion-mnist" } batch: 10 }
optimizer { sgd { rate: 0.1 } }
epochs: 1
liveness: "1s"
%s
"""


class MainTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(dir="/tmp")
        self.out = os.path.join(self.folder.name, "out")
        self.job = self.write("job.textproto", JOB % "")
        self.started = []

    def tearDown(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            _, errors = process.communicate()
            if self._outcome.result.failures or self._outcome.result.errors:
                print("%s exited with %s:\n%s" % (process.args, process.returncode, errors))
        self.folder.cleanup()

    def write(self, name, text):
        path = os.path.join(self.folder.name, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w") as file:
            file.write(text)
        return path

    def read(self, path):
        with open(path) as file:
            return file.read().strip()

    def start(self, *flags, job=None, out=None):
        process = subprocess.Popen(
            [PROGRAM, "--job=" + (job or self.job), "--out=" + (out or self.out), *flags],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
        self.started.append(process)
        return process

    def fails(self, code, *needles, **kwargs):
        process = self.start(*kwargs.pop("flags", []), **kwargs)
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, code, errors)
        last = errors.rstrip("\n").split("\n")[-1]
        for needle in needles:
            self.assertIn(needle, last)

    def await_address(self):
        path = os.path.join(self.out, "coordinator.address")
        deadline = time.time() + 30
        while time.time() < deadline:
            if os.path.exists(path):
                return self.read(path)
            time.sleep(0.02)
        self.fail("no address file")

    def test_a_second_coordinator_goes_and_writes_nothing(self):
        first = self.start()
        address = self.await_address()
        before = sorted(os.listdir(self.out))
        self.fails(1, "runs already", address)
        self.assertEqual(sorted(os.listdir(self.out)), before)
        self.assertIsNone(first.poll())

    def test_one_that_stands_by_takes_over_when_the_first_has_gone(self):
        first = self.start()
        address = self.await_address()
        told, second = self.start("--stand_by"), self.start("--stand_by")
        for process in (told, second):
            next(line for line in iter(process.stderr.readline, "") if "stands by" in line)
        told.send_signal(signal.SIGTERM)
        self.assertEqual(told.wait(timeout=30), 75)
        time.sleep(2)  # twice liveness
        self.assertIsNone(second.poll())
        self.assertEqual(self.await_address(), address)
        first.kill()
        deadline = time.time() + 30
        while time.time() < deadline and self.await_address() == address:
            time.sleep(0.02)
        self.assertNotEqual(self.await_address(), address)
        self.assertIsNone(second.poll())

    def test_of_several_started_at_once_one_stays(self):
        all_of_them = [self.start() for _ in range(4)]
        deadline = time.time() + 30
        while time.time() < deadline and sum(p.poll() is None for p in all_of_them) > 1:
            time.sleep(0.05)
        self.await_address()
        alive = [p for p in all_of_them if p.poll() is None]
        self.assertEqual(len(alive), 1)
        self.assertEqual({p.returncode for p in all_of_them if p is not alive[0]}, {1})
        records = [name for name in os.listdir(os.path.join(self.out, "log")) if name[0] != "."]
        self.assertEqual(records, ["%020d.record" % 1])

    def test_a_killed_ones_address_is_replaced(self):
        addresses = []
        for generation in range(1, 4):
            process = self.start()
            deadline = time.time() + 30
            while time.time() < deadline and process.poll() is None and (
                    self.await_address() in addresses):
                time.sleep(0.02)
            self.assertIsNone(process.poll())
            addresses.append(self.await_address())
            self.assertEqual(len(set(addresses)), generation)
            process.kill()
            process.wait()

    def test_a_directory_whose_job_has_ended_in_order_is_free_at_once(self):
        for _ in range(2):
            process = self.start()
            self.await_address()
            self.assertFalse(os.path.exists(os.path.join(self.out, "checkpoints")))
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
            self.assertEqual(process.returncode, 75)

    def test_another_job_file_is_refused_where_a_job_has_not_ended(self):
        first = self.start()
        self.await_address()
        first.kill()
        first.wait()
        self.fails(2, "another job file", job=self.write("other.textproto", JOB % "seed: 5"))

    def test_a_damaged_log_is_refused_with_what_to_do(self):
        first = self.start()
        self.await_address()
        first.kill()
        first.wait()
        self.write("out/log/%020d.record" % 1, "nothing")
        self.fails(2, "%020d.record" % 1, "move it away")

    def test_a_stopped_one_that_has_a_successor_goes_when_it_wakes(self):
        first = self.start()
        old = self.await_address()
        first.send_signal(signal.SIGSTOP)
        second = self.start()
        deadline = time.time() + 30
        while time.time() < deadline and self.await_address() == old:
            time.sleep(0.02)
        address = self.await_address()
        self.assertNotEqual(address, old)
        first.send_signal(signal.SIGCONT)
        _, errors = first.communicate(timeout=30)
        self.assertEqual(first.returncode, 1, errors)
        self.assertIn("generation 2 at " + address, errors.rstrip("\n").split("\n")[-1])
        self.assertEqual(self.await_address(), address)
        self.assertIsNone(second.poll())

    def test_one_whose_disk_does_not_answer_says_so_and_ends_with_its_job(self):
        process = self.start()
        self.await_address()
        path = os.path.join(self.out, "coordinator.address")
        os.mkfifo(path + ".fifo")
        os.rename(path + ".fifo", path)  # who opens it hangs in the kernel, as where a mount's server is gone
        next(line for line in iter(process.stderr.readline, "") if "does not answer" in line)
        process.send_signal(signal.SIGTERM)  # it ends the job, which cannot be recorded
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 75, errors)
        self.assertIn("preempted by SIGTERM", errors.split("\n")[-2])

    def fill(self, path):
        """Whoever writes into this pipe hangs from now on, as where a mount's server is gone."""
        pipe = os.open(path, os.O_RDWR | os.O_NONBLOCK)  # not the one that the coordinator has
        self.addCleanup(os.close, pipe)
        with self.assertRaises(BlockingIOError):
            while True:
                os.write(pipe, b"x")

    def test_one_whose_main_thread_hangs_with_a_file_goes_with_its_job(self):
        os.makedirs(self.out)
        history = os.path.join(self.out, "history.jsonl")
        os.mkfifo(history)
        self.fill(history)
        process = self.start()
        next(line for line in iter(process.stderr.readline, "") if "serving" in line)
        records = os.path.join(self.out, "log")
        while not os.path.exists(records) or not os.listdir(records):
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=30)
        self.assertEqual(process.returncode, 75, errors)
        self.assertIn("preempted by SIGTERM", errors.split("\n")[-2])

    def test_so_does_one_whose_log_hangs(self):
        reads, writes = os.pipe()
        for end in (reads, writes):
            self.addCleanup(os.close, end)
        process = subprocess.Popen([PROGRAM, "--job=" + self.job, "--out=" + self.out],
                                   stdout=subprocess.DEVNULL, stderr=writes)
        self.started.append(process)
        self.await_address()
        self.fill("/proc/self/fd/%d" % writes)
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=30), 75)

    def test_signals_end_the_job_as_preempted(self):
        for number, name in ((signal.SIGTERM, "SIGTERM"), (signal.SIGUSR1, "SIGUSR1")):
            process = self.start()
            address = self.await_address()
            targets = json.loads(self.read(os.path.join(self.out, "targets.json")))
            self.assertEqual(targets[0]["labels"], {"job": "digits", "run": "out"})
            process.send_signal(number)
            _, errors = process.communicate(timeout=30)
            self.assertEqual(process.returncode, 75, errors)
            self.assertEqual(errors.rstrip("\n").split("\n")[-1],
                             "coordinator at %s: preempted by %s; last decided step 0"
                             % (address, name))
            self.assertFalse(os.path.exists(os.path.join(self.out, "coordinator.address")))

    def test_an_earlier_runs_checkpoint_is_not_overwritten(self):
        self.write("out/checkpoints/step-00000007/manifest.json", "{}")
        self.fails(2, "step-00000007", "start_from")

    def test_a_checkpoint_to_start_from_must_be_there(self):
        job = self.write("from.textproto", JOB % 'checkpoint { start_from: "nowhere" }')
        self.fails(2, "nowhere", job=job)

    def test_an_unwritable_output_directory_is_wrong_usage(self):
        self.write("file", "")
        self.fails(2, "--out", out=os.path.join(self.folder.name, "file", "out"))

    def test_an_output_directory_that_no_message_can_name_is_wrong_usage(self):
        out = os.path.join(self.folder.name, "caf").encode() + b"\xe9"
        self.fails(2, "--out: ", "caf\ufffd is not UTF-8", out=os.fsdecode(out))
        self.assertFalse(os.path.exists(out))

    def test_a_port_in_use_is_wrong_usage(self):
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            address = "127.0.0.1:%d" % taken.getsockname()[1]
            self.fails(2, address, flags=["--listen=" + address])

    def test_missing_flags_and_a_bad_job_are_wrong_usage(self):
        self.fails(2, "colour", job=self.write("bad.textproto", JOB % "colour: 3"))
        process = subprocess.run([PROGRAM, "--job=" + self.job], capture_output=True, text=True)
        self.assertEqual(process.returncode, 2)
        self.assertIn("--out", process.stderr)


if __name__ == "__main__":
    unittest.main()
