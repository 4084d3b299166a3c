"""`parley doctor` on a machine with planted faults: the check that each one is for fails, no other one does, and what it says to do
names the right thing. On the machine as it is nothing fails.

The faults are real ones of this machine: its own ports, files, limits and programs, each in a namespace of its own where it would
be another process's. What cannot be planted so (clocks, networks, GPUs) //client/parley/doctor/... plants behind the seams.
"""

import json
import os
import pathlib
import re
import resource
import shutil
import socket
import subprocess
import sys

sys.path.insert(0, "tests/process")
from support.jobs import main, small_job, wait_for
from support.programs import BIN, program

GIBI = 1 << 30


class Machine:
    """What one examination is given; a fault changes some of it, and may undo itself at the end."""

    def __init__(self, where, job):
        self.where = where
        self.job = str(job)
        self.settings = []
        self.out = str(where / "out")
        self.listen = "127.0.0.1:0"
        self.coordinator = None
        self.limits = {}  # resource to (soft, hard)
        self.before = []  # a shell's commands, in a mount namespace of their own
        self.program = program("parley")
        self.environment = dict(os.environ)
        self.undo = []

    def doctor(self, *more):
        command = [self.program, "doctor", self.job, f"--out={self.out}", f"--listen={self.listen}", *more]
        for setting in self.settings:
            command += ["--set", setting]
        if self.coordinator:
            command.append(f"--coordinator={self.coordinator}")
        if self.before:
            flags = ["--mount"] if os.getuid() == 0 else ["--mount", "--map-root-user"]
            command = ["unshare", *flags, "sh", "-c", " && ".join([*self.before, 'exec "$@"']), "sh", *command]

        def limit():
            for which, values in self.limits.items():
                resource.setrlimit(which, values)

        return subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300,
                              env=self.environment, preexec_fn=limit)


def examine(where, plant=None):
    """The checks by name, after `plant` has changed the machine; and the exit status."""
    machine = Machine(where, small_job(where))
    try:
        if plant:
            plant(machine)
        done = machine.doctor("--format=json")
        assert done.returncode in (0, 1), f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        checks = json.loads(done.stdout)["checks"]
        return {check["check"]: check for check in checks}, done.returncode
    finally:
        for undo in reversed(machine.undo):
            undo()


# --- the faults


def a_port_that_is_taken(machine):
    taken = socket.socket()
    machine.undo.append(taken.close)
    taken.bind(("127.0.0.1", 0))
    taken.listen()
    machine.listen = "127.0.0.1:%d" % taken.getsockname()[1]


def an_address_of_another_machine(machine):
    machine.listen = "192.0.2.77:0"  # TEST-NET-1: nobody's


def a_host_without_address(machine):
    machine.listen = "no-such-host.invalid:0"


def a_name_that_is_loopback(machine):
    """As Debian's /etc/hosts gives a machine's own name."""
    hosts = machine.where / "hosts"
    hosts.write_text("127.0.0.1 localhost\n127.0.1.1 node7\n")
    machine.before = [f"mount --bind {hosts} /etc/hosts"]
    machine.listen = "node7:0"


def no_address_file(machine):
    machine.coordinator = f"file:{machine.where}/none/coordinator.address"


def a_stale_address_file(machine):
    """Of a coordinator that was killed: the port was its own a moment ago, and nobody has it now."""
    folder = machine.where / "stale"
    with open(machine.where / "coordinator.log", "w") as log:
        coordinator = subprocess.Popen([program("parley-coordinator"), f"--job={machine.job}", f"--out={folder}"], stderr=log)
    try:
        address = folder / "coordinator.address"
        wait_for("the address file", address.exists, 60)
    finally:
        coordinator.kill()
        coordinator.wait()
    machine.out = str(folder)
    machine.coordinator = f"file:{address}"


def a_coordinator_of_another_job(machine):
    other = machine.where / "other.textproto"
    other.write_text(pathlib.Path(machine.job).read_text().replace('"small"', '"other"'))
    folder = machine.where / "other"
    with open(machine.where / "coordinator.log", "w") as log:
        coordinator = subprocess.Popen([program("parley-coordinator"), f"--job={other}", f"--out={folder}"], stderr=log)
    machine.undo += [coordinator.wait, coordinator.kill]
    wait_for("the address file", (folder / "coordinator.address").exists, 60)
    machine.coordinator = f"file:{folder}/coordinator.address"


def a_file_in_the_directorys_way(machine):
    (machine.where / "file").write_text("no folder")
    machine.out = str(machine.where / "file" / "out")
    machine.undo.append((machine.where / "file").unlink)


def a_file_system_that_is_read_only(machine):
    closed = machine.where / "closed"
    closed.mkdir()
    machine.before = [f"mount -t tmpfs tmpfs {closed}", f"mount -o remount,ro {closed}"]
    machine.out = str(closed / "out")


def a_disk_without_room(machine):
    disk = machine.where / "disk"
    disk.mkdir()
    machine.before = [f"mount -t tmpfs -o size=8m,mode=755 tmpfs {disk}"]
    machine.out = str(disk)


def a_directory_that_all_may_write(machine):
    folder = machine.where / "open"
    folder.mkdir()
    folder.chmod(0o777)
    machine.out = str(folder)


def credentials_that_all_may_read(machine):
    folder = machine.where / "told"
    folder.mkdir()
    (folder / "credentials").write_text("token: 00\n")
    (folder / "credentials").chmod(0o644)
    machine.out = str(folder)


def few_open_files(machine):
    machine.limits[resource.RLIMIT_NOFILE] = (200, 200)


def small_files_only(machine):
    machine.limits[resource.RLIMIT_FSIZE] = (4 << 20, 4 << 20)


def few_addresses(machine):
    machine.limits[resource.RLIMIT_AS] = (3 * GIBI, resource.RLIM_INFINITY)


def more_workers_than_memory(machine):
    """More than 300 MiB each, and nothing else that is missing for them."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    machine.limits[resource.RLIMIT_NOFILE] = (hard, hard)
    total = int(re.search(r"MemTotal:\s+(\d+)", pathlib.Path("/proc/meminfo").read_text()).group(1)) << 10
    machine.settings = [f"cluster.workers={total // (300 << 20)}"]


def data_that_is_missing(machine):
    images = machine.where / "data/train-images-idx3-ubyte.gz"
    away = machine.where / "away.gz"
    images.rename(away)
    machine.undo.append(lambda: away.rename(images))


def a_job_file_with_an_unknown_field(machine):
    wrong = machine.where / "wrong.textproto"
    wrong.write_text(pathlib.Path(machine.job).read_text() + 'colour: "red"\n')
    machine.job = str(wrong)


def a_start_that_is_not_there(machine):
    machine.settings = [f"checkpoint.start_from={machine.where}/nothing"]


def cuda_without_a_driver(machine):
    """Where there is one it is hidden by one that is none."""
    libraries = machine.where / "libraries"
    libraries.mkdir()
    (libraries / "libcuda.so.1").write_text("this is no library")
    machine.environment["LD_LIBRARY_PATH"] = str(libraries)
    machine.settings = ["device=CUDA"]


def copies(machine):
    """Programs of the test's own folder, which may lack some."""
    folder = machine.where / "bin"
    folder.mkdir()
    for each in BIN.iterdir():
        os.link(each, folder / each.name) if os.stat(each).st_dev == os.stat(folder).st_dev else shutil.copy(each, folder)
    machine.program = str(folder / "parley")
    machine.undo.append(lambda: shutil.rmtree(folder))
    return folder


def a_program_that_is_missing(machine):
    (copies(machine) / "parley-shard").unlink()


def a_program_of_another_version(machine):
    shard = copies(machine) / "parley-shard"
    shard.unlink()
    shard.write_text("#!/bin/sh\necho parley-shard 0.0.1\n")
    shard.chmod(0o755)


def a_program_that_does_not_start(machine):
    """As a worker without its LibTorch."""
    worker = copies(machine) / "parley-worker"
    worker.unlink()
    worker.write_text("#!/bin/sh\necho \"$0: error while loading shared libraries: libtorch_cpu.so: cannot open\" >&2\nexit 127\n")
    worker.chmod(0o755)


# The fault, the check that fails by it, what was found, and what the remedy names.
FAULTS = [
    (a_port_that_is_taken, "listen port", "in use", ["--listen=127.0.0.1:0", "ss -ltnp"]),
    (an_address_of_another_machine, "listen address", "192.0.2.77 is no address of this machine", ["--listen"]),
    (a_host_without_address, "listen address", "no-such-host.invalid has no address", ["/etc/hosts"]),
    (a_name_that_is_loopback, "listen address", "node7 (127.0.1.1)", ["127.0.1.1 node7", "/etc/hosts"]),
    (no_address_file, "coordinator address", "none/coordinator.address", ["start parley-coordinator", "/none", "mount"]),
    (a_stale_address_file, "coordinator reachable", "Connection refused", ["stale/coordinator.address is stale", "Start parley-coordinator again"]),
    (a_coordinator_of_another_job, "coordinator answer", "job other", ["the same job"]),
    (a_file_in_the_directorys_way, "job directory", "Not a directory", ["--out whose path is of folders"]),
    (a_file_system_that_is_read_only, "job directory", "Read-only file system", ["mounted to be written", "findmnt"]),
    (a_disk_without_room, "free space", "8.00 MiB free", ["/disk", "df -h"]),
    (a_directory_that_all_may_write, "directory's mode", "0777", ["chmod o-w", "/open"]),
    (credentials_that_all_may_read, "credentials", "others than its owner", ["0600"]),
    (few_open_files, "open files", "200 (hard 200)", ["nofile", "limits.conf"]),
    (small_files_only, "file size", "4.00 MiB", ["ulimit -f"]),
    (few_addresses, "address space", "3.00 GiB", ["ulimit -v unlimited"]),
    (more_workers_than_memory, "memory", "the job needs", ["cluster.workers", "other machines"]),
    (data_that_is_missing, "model and data", "train-images-idx3-ubyte", ["mount or copy"]),
    (a_job_file_with_an_unknown_field, "job file", "colour", ["proto/job.proto"]),
    (a_start_that_is_not_there, "start in directory", "nothing", ["checkpoint.start_from"]),
    (cuda_without_a_driver, "GPU driver", "no NVIDIA driver", ["NVIDIA's driver for CUDA 13", "device=CPU"]),
    (a_program_that_is_missing, "parley-shard", "not beside this program", ["deploy/build"]),
    (a_program_of_another_version, "parley-shard", "parley-shard 0.0.1", ["one build"]),
    (a_program_that_does_not_start, "parley-worker", "libtorch_cpu.so", ["deploy/bootstrap"]),
]


def is_sanitized():
    """Sanitizers reserve terabytes of addresses before a program's main."""
    text = pathlib.Path(program("parley")).read_bytes()
    return any(name in text for name in (b"__asan_init", b"__tsan_init"))


def each_fault_is_named_with_its_remedy(where, runs):
    faults = [fault for fault in FAULTS if fault[0] is not few_addresses or not is_sanitized()]
    for number, (plant, check, found, remedies) in enumerate(faults):
        place = where / str(number)
        place.mkdir()
        checks, code = examine(place, plant)
        failed = [each for each in checks.values() if each["severity"] == "fail"]
        for each in failed:
            print(f"{plant.__name__}: {each['check']}: {each['found']}\n    -> {each['remedy']}", flush=True)
        assert code == 1, f"{plant.__name__}: exit {code}"
        assert [each["check"] for each in failed] == [check], f"{plant.__name__}: {failed}"
        assert found in failed[0]["found"], f"{plant.__name__}: {found!r} is not in {failed[0]['found']!r}"
        for word in remedies:
            assert word in failed[0]["remedy"], f"{plant.__name__}: {word!r} is not in {failed[0]['remedy']!r}"
        shutil.rmtree(place)
    print(f"{len(faults)} faults, each found by its check alone")


def a_healthy_machine_has_none(where, runs):
    job = small_job(where)
    before = sorted(path.name for path in where.iterdir())
    machine = Machine(where, job)
    done = machine.doctor()
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "FAIL" not in done.stdout and done.stderr == "", done.stderr
    assert re.search(r"^\d+ checks: \d+ ok, \d+ warnings, 0 failed$", done.stdout.splitlines()[-1])
    # Every line that is not ok says what to do.
    lines = done.stdout.splitlines()
    for line, below in zip(lines, lines[1:]):
        assert not line.startswith("warn") or below.strip().startswith("-> "), line
    assert sorted(path.name for path in where.iterdir()) == before, "it leaves nothing behind"
    # With AUTO a machine without GPUs is healthy, too.
    machine.settings = ["device=AUTO"]
    assert machine.doctor().returncode == 0
    # So is one that only has one process of the job.
    machine.settings = []
    machine.listen = "0.0.0.0:0"
    done = machine.doctor()
    assert done.returncode == 0 and "all addresses" in done.stdout, done.stdout


def a_job_that_runs_is_seen_from_a_machine_that_joins_it(where, runs):
    job = small_job(where, extra="tls: ON")
    with open(where / "coordinator.log", "w") as log:
        coordinator = subprocess.Popen([program("parley-coordinator"), f"--job={job}", f"--out={where}/out"], stderr=log)
    try:
        wait_for("the address file", (where / "out/coordinator.address").exists, 60)
        done = subprocess.run([program("parley"), "doctor", str(job), f"--coordinator=file:{where}/out/coordinator.address", "--format=json"],
                              capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
        assert checks["coordinator answer"]["found"].startswith("job small, gathering"), checks["coordinator answer"]
        assert checks["credentials"]["found"].startswith("the job's certificate"), checks["credentials"]
        # Out of the record that it has written.
        assert "coordinator's clock" in checks and checks["coordinator's clock"]["severity"] != "fail", checks
        # A second run in its directory would be refused.
        done = subprocess.run([program("parley"), "doctor", str(job), f"--out={where}/out"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 1 and "FAIL  start in directory" in done.stdout, done.stdout
    finally:
        coordinator.kill()
        coordinator.wait()


def wrong_usage_ends_with_2(where, runs):
    for arguments in (["--set", "cluster.workers=2"], ["--what"], ["--format=xml"]):
        done = subprocess.run([program("parley"), "doctor", *arguments], capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, f"{arguments}: exit {done.returncode}\n{done.stderr}"
    # Without a job it looks at the machine.
    done = subprocess.run([program("parley"), "doctor", f"--out={where}/out"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and "job file" not in done.stdout, done.stdout + done.stderr


def the_driver_is_for_the_cuda_that_is_installed(where, runs):
    libraries = pathlib.Path("deploy/cuda_libraries.txt").read_text()
    major = re.search(r"^nvidia-cuda-runtime==(\d+)\.", libraries, re.M).group(1)
    header = pathlib.Path("client/parley/doctor/gpu_check.h").read_text()
    assert f"kCudaMajor = {major};" in header, header


main(a_healthy_machine_has_none, each_fault_is_named_with_its_remedy, a_job_that_runs_is_seen_from_a_machine_that_joins_it,
     wrong_usage_ends_with_2, the_driver_is_for_the_cuda_that_is_installed)
