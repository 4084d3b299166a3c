"""Jobs on a real Slurm cluster, started by deploy/slurm/submit: to the end, over lost nodes, signals and a slurmctld that is away."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import time

sys.path[:0] = ["tests/process", "tests/slurm"]
import numpy as np
from cluster import Cluster, what_is_missing
from safetensors.numpy import save_file
from support.jobs import exported, main, wait_for
from support.programs import BIN

POLL = 0.25  # seconds; each look is a process or two
EPOCHS = 10  # of 15 steps: 600 samples, 2 workers with 20 each; a step sleeps 80 ms, on any machine
JOB = """
name: "sleeper"
seed: 3
model {{ sleeping {{ layers: 4 forward_seconds: 0.01 input_gradient_seconds: 0.005 weight_gradient_seconds: 0.005 }} }}
data {{ safetensors {{ train: "{data}" }} batch: 20 }}
optimizer {{ adam {{ rate: 0.01 }} }}
consistency {{ sync {{ deterministic: true {lost} }} }}
cluster {{ {members} slurm {{ {slurm} }} }}
checkpoint {{ every_steps: 10 keep_last: 0 }}
max_restarts: 3
threads: 1
liveness: "4s"
epochs: {epochs}
"""
INTEGERS = """
name: "integers"
model { own {} }
data { own {} batch: 10 }
optimizer { sgd { rate: 1 } }
consistency { sync { reduction: SUM } }
cluster { workers: 2 shards: 1 slurm { worker_cpus: 1 } }
epochs: 10
"""
CLUSTER = None


class Submitted:
    """A job that `submit` has started; runs of `main` in support/jobs.py are shown and ended like it."""

    def __init__(self, job, where, *arguments, out=None):
        self.out = out or pathlib.Path(where) / f"out-{time.monotonic_ns()}"
        tree = pathlib.Path(where) / "tree"
        if not tree.exists():  # as a clone after deploy/build
            shutil.copytree("deploy/slurm", tree / "deploy/slurm")
            (tree / "out").mkdir()
            (tree / "out/bin").symlink_to(BIN)
        self.submit = str(tree / "deploy/slurm/submit")
        self.said = CLUSTER.run(self.submit, *([str(job)] if job else []), "--out", str(self.out), *arguments).stdout
        self.read_ids()

    def read_ids(self):
        self.ids = (self.out / "slurm/jobs").read_text().split() if (self.out / "slurm/jobs").exists() else []

    def status(self):
        shown = CLUSTER.run(str(BIN / "parley"), "status", f"--coordinator=file:{self.out}/coordinator.address", "--format=json", check=False)
        return json.loads(shown.stdout) if shown.returncode == 0 else None

    def wait_for_step(self, step, seconds=120):
        return wait_for(f"step {step}", lambda: int((self.status() or {}).get("step", 0)) >= step, seconds, every=POLL)

    def tasks(self):
        """(job, state, node, name) of those that are not over. None while slurmctld does not answer."""
        queue = CLUSTER.queue()
        return None if queue is None else [task for task in queue if task[0].split("_")[0] in self.ids]

    def node_of(self, role):
        """Where its first process runs."""
        return next(node for _, state, node, name in sorted(self.tasks()) if name.endswith(f"-{role}") and state == "RUNNING")

    def wait(self, seconds=240):
        """Until Slurm has nothing of it any more; the last exit status of each process, by its log's name."""
        wait_for("an empty queue", lambda: self.tasks() == [], seconds, every=POLL)
        ended = {}
        for name, log in self.logs().items():
            found = re.findall(r"slurm \w+: ends with status (\d+)", log)
            ended[name] = int(found[-1]) if found else None
        return ended

    def logs(self):
        return {path.stem: path.read_text(errors="replace") for path in sorted(self.out.glob("logs/*.log"))}

    def show(self):
        print(self.said, CLUSTER.queue())
        for name, log in self.logs().items():
            print(f"---- {name}\n{log[-5000:]}")

    def kill(self):
        if self.tasks():
            CLUSTER.run("scancel", "--full", "--signal=KILL", *self.ids, check=False)
            CLUSTER.run("scancel", *self.ids, check=False)
            wait_for("an empty queue", lambda: self.tasks() == [], 60, every=POLL)


WORKERS = {"members": "workers: 2 min_workers: 1 shards: 2", "lost": "lost_worker: WAIT"}
PIPELINE = {"members": "workers: 1 stages: 2 shards: 1", "lost": ""}  # one node of the six is spare


def job_file(where, epochs=EPOCHS, slurm="worker_cpus: 2", shape=WORKERS):
    samples = np.random.default_rng(5).standard_normal((600, 4), dtype=np.float32)
    save_file({"x": samples, "y": np.argmax(samples, axis=1)}, where / "data.safetensors")
    job = where / "job.textproto"
    job.write_text(JOB.format(data=where / "data.safetensors", epochs=epochs, slurm=slurm, **shape))
    return job


def undisturbed(where, runs, shape=WORKERS, epochs=EPOCHS, cache={}):
    """Parameters and optimizer state at the end of a job that nobody disturbs."""
    kind = (shape["members"], epochs)
    if kind not in cache:
        run = Submitted(job_file(where, epochs, shape=shape), where)
        runs.append(run)
        assert set(run.wait().values()) == {0}, run.wait()
        cache[kind] = exported(run.out)
    return cache[kind]


def check_end(run, where, runs, shape=WORKERS, epochs=EPOCHS):
    codes = run.wait()
    assert set(codes.values()) == {0}, codes
    assert exported(run.out) == undisturbed(where, runs, shape, epochs), "not the bits of the undisturbed job"


def submit_says_what_it_does(where, runs):
    job = job_file(where, slurm='time_limit: "30" worker_cpus: 2 options: "--nice=3"')
    job.write_text(job.read_text().replace("threads: 1\n", "").replace("deterministic: true", ""))
    dry = Submitted(job, where, "--dry-run", "--set", "cluster.workers=3", "--", "--comment=x y")
    lines = dry.said.splitlines()
    assert [re.search(r"/slurm/(\w+) ", line).group(1) for line in lines] == ["coordinator", "shard", "worker"], dry.said
    assert all("--time=30 --signal=B:USR1@120 --nice=3" in line and r"--comment=x\ y" in line for line in lines), dry.said
    assert "--array=0-2" in lines[2] and "--cpus-per-task=2" in lines[2], dry.said
    assert "threads: 2\n" in (dry.out / "job.textproto").read_text()
    assert CLUSTER.queue() == []
    # What an ended job has left must not end the one whose lines these are.
    (dry.out / "slurm/over").write_text("75\n")
    Submitted(job, where, "--dry-run", "--set", "cluster.workers=3", out=dry.out)
    assert not (dry.out / "slurm/over").exists()
    bad = CLUSTER.run(
        dry.submit, str(job), "--out", str(pathlib.Path(where) / "refused"), "--set", "cluster.slurm.worker_gpus=1", check=False
    )
    assert bad.returncode == 1 and "sbatch has refused the worker; nothing of the job is left" in bad.stderr, bad
    wait_for("an empty queue", lambda: CLUSTER.queue() == [], 60, every=POLL)
    bad = CLUSTER.run(str(pathlib.Path(where) / "tree/deploy/slurm/submit"), str(job), "--set", "data.batch=0", check=False)
    assert bad.returncode == 2 and "data.batch" in bad.stderr, bad
    # A GPU for each process that computes.
    for shape, role in ((WORKERS, "worker"), (PIPELINE, "stage")):
        said = Submitted(job_file(where, shape=shape), where, "--dry-run", "--set", "cluster.slurm.worker_gpus=2").said.splitlines()
        assert [re.search(r"/slurm/(\w+) ", line).group(1) for line in said if "--gpus-per-task=2" in line] == [role], said
    # With pipelines the workers do not compute; nor does Slurm know which workers are to be on one node.
    said = Submitted(job_file(where, slurm="worker_cpus: 6", shape=PIPELINE), where, "--dry-run").said.splitlines()
    cpus = {re.search(r"/slurm/(\w+) ", line).group(1): re.search(r"--cpus-per-task=(\d+)", line).group(1) for line in said}
    assert cpus == {"coordinator": "1", "shard": "2", "stage": "6", "worker": "2"}, said
    group = job_file(where)
    group.write_text(group.read_text().replace("min_workers: 1", "group: 2").replace("lost_worker: WAIT", ""))
    bad = CLUSTER.run(dry.submit, str(group), "--out", str(where / "group"), "--dry-run", check=False)
    assert bad.returncode == 2 and "--single" in bad.stderr and not (where / "group").exists(), bad
    assert len(Submitted(group, where, "--dry-run", "--single").said.splitlines()) == 1
    # A way to the programs that leads there from anywhere.
    linked = Submitted(job_file(where), where, "--dry-run", "--bin", "some/where")
    assert (linked.out / "slurm/bin").readlink().is_absolute(), (linked.out / "slurm/bin").readlink()
    # More workers for what runs there.
    more = Submitted(None, where, "--workers=2", "--dry-run", "--", "--comment=x", out=dry.out).said.splitlines()
    assert len(more) == 1 and "--array=0-1" in more[0] and "--cpus-per-task=2" in more[0] and "--time=30" in more[0], more
    assert "worker-more-%A_%a.log" in more[0] and more[0].split()[-2].endswith("/slurm/worker") and more[0].split()[-1] == str(dry.out), more
    single = Submitted(job_file(where), where, "--single", "--dry-run")
    many = [str(job_file(where)), "--set", "cluster.workers=1500", "--out", str(where / "refused")]
    for wrong, why in ((["--workers=2"], "--workers=N"), (["--workers=two", "--out", str(dry.out)], "--workers=N"),
                       (["--workers=2", "--out", str(where)], "holds no job"),
                       (["--workers=2", "--out", str(single.out)], "was started with --single: it starts more workers itself"),
                       (["--workers=1002", "--out", str(dry.out)], "--workers=1002: Slurm takes no array of 1002 jobs: its limit here is MaxArraySize=1001"),
                       (many, "cluster.workers=1500: Slurm takes no array of 1500 jobs: its limit here is MaxArraySize=1001")):
        shutil.rmtree(where / "refused", ignore_errors=True)
        bad = CLUSTER.run(dry.submit, *wrong, check=False)
        assert bad.returncode == 2 and why in bad.stderr, bad
        assert not (where / "refused").exists(), bad
    # The job to which they would have come knows nothing of it.
    bad = CLUSTER.run(dry.submit, "--workers=1", "--out", str(dry.out), "--", "--partition=none", check=False)
    assert bad.returncode == 1 and "sbatch has refused the new workers; the job itself goes on as it was" in bad.stderr, bad
    assert "nothing of the job is left" not in bad.stderr, bad


def a_directory_of_an_earlier_release_is_gone_on_with(where, runs):
    """`submit` has not always added a gather_timeout."""
    job = job_file(where)
    first = Submitted(job, where, "--dry-run")
    written = first.out / "job.textproto"
    text = written.read_text()
    assert text.count("\ngather_timeout: ") == 1, text
    written.write_text(re.sub(r"^gather_timeout: .*\n", "", text, flags=re.M))
    Submitted(job, where, "--dry-run", out=first.out)
    assert written.read_text() == text
    bad = CLUSTER.run(first.submit, str(job), "--out", str(first.out), "--dry-run", "--set", "epochs=99", check=False)
    assert bad.returncode == 2 and "holds another job" in bad.stderr, bad


def whom_slurm_does_not_queue_again_says_so(where, runs):
    """By `role` alone: a Slurm that refuses, and a worker that was told to end for the queue."""
    out, fakes = where / "out", where / "fakes"
    (out / "slurm/bin").mkdir(parents=True)
    fakes.mkdir()
    for path, script in ((out / "slurm/bin/parley-worker", "exit 75"), (fakes / "sleep", ":"), (fakes / "srun", ":"), (fakes / "squeue", "exit 1"),
                         (fakes / "scontrol", "echo $* >> $0.said; echo 'slurm_requeue error: Job is not requeuable'; exit 1")):
        path.write_text(f"#!/bin/bash\n{script}\n")
        path.chmod(0o755)
    done = subprocess.run(
        ["bash", "deploy/slurm/role", "worker", str(out)], capture_output=True, text=True, timeout=120,
        env={**os.environ, "PATH": f"{fakes}:{os.environ['PATH']}", "SLURM_JOB_ID": "4711"},
    )
    assert done.returncode == 75, done
    assert (fakes / "scontrol.said").read_text().count("requeue 4711") == 20, done
    assert f"NOT queued again: Slurm has refused it 20 times. `submit` with the same job and --out={out} goes on" in done.stderr, done
    assert ": queued again" not in done.stderr, done


def a_node_knows_its_address(where, runs):
    """Where its name is 127.0.1.1 to the node itself, as on many Debian machines."""
    script = """
        eval "$(sed -n '/^address() {/,/^}/p' deploy/slurm/role)"
        timeout() { shift; "$@"; }
        scontrol() { if [[ $* == *node* ]]; then echo "NodeName=c1 NodeAddr=c1 X=y"; else echo "SlurmctldHost[0]        = $controller"; fi; }
        hostname() { echo "fd00::7 172.17.0.1 10.1.1.1"; }
        getent() { if [[ $2 == c1 ]]; then echo "127.0.1.1 STREAM c1"; else command getent "$@"; fi; }
        for controller in "ctl(10.214.0.1)" ctl ""; do SLURMD_NODENAME=c1 address; done
    """
    said = CLUSTER.on("c1", "bash", "-c", script).stdout.split()
    assert said == ["10.214.0.10", "10.214.0.10", "172.17.0.1"], said


def a_job_trains_to_its_end(where, runs):
    undisturbed(where, runs)
    run = runs[-1]
    assert "scancel" in run.said, run.said
    hosts = {re.search(r"slurm \w+: (\S+) at ", log).group(1) for log in run.logs().values()}
    print(f"on nodes {sorted(hosts)}")


def a_program_of_ones_own_trains(where, runs):
    """Its worker checks its sums itself, and ends with 1 where one is wrong."""
    job = where / "integers.textproto"
    job.write_text(INTEGERS)
    submit = str(pathlib.Path(where) / "tree/deploy/slurm/submit")
    run = Submitted(job, where, f"--worker={BIN}/integer-worker")
    runs.append(run)
    codes = run.wait()
    assert len(codes) == 4 and set(codes.values()) == {0}, codes
    assert "the sums are exact" in run.logs()["worker-0"], run.logs()["worker-0"]
    alone = Submitted(job, where, "--single", "--worker", f"{BIN}/integer-worker")
    runs.append(alone)
    assert alone.wait() == {"run": 0}, alone.logs()
    for wrong, why in (([], "give it with --worker=PROGRAM"), (["--worker=/no/such/program"], "--worker=/no/such/program: is not there")):
        bad = CLUSTER.run(submit, str(job), "--out", str(where / "refused"), *wrong, check=False)
        assert bad.returncode == 2 and why in bad.stderr, bad
        assert not (where / "refused").exists()


def all_of_it_on_one_node(where, runs):
    run = Submitted(job_file(where), where, "--single", out=where / "a folder")  # what is printed is copied into a shell
    runs.append(run)
    node = wait_for("a node", lambda: next((node for _, state, node, _ in run.tasks() if state == "RUNNING"), None), 60, every=POLL)
    shown = re.search(r"how it stands +srun --overlap --jobid=(\d+) (.*)", run.said)
    assert shown and [shown.group(1)] == run.ids, run.said

    def step():
        said = CLUSTER.on(node, *shlex.split(shown.group(2)), "--format=json", check=False)
        return int(json.loads(said.stdout).get("step", 0)) if said.returncode == 0 else 0

    wait_for("step 25", lambda: step() >= 25, 120, every=POLL)
    CLUSTER.on(node, "pkill", "-KILL", "-f", "bin/parley run")  # as the kernel does where memory ends; it takes all with it
    check_end(run, where, runs)
    assert "was killed (status 137): started again" in run.logs()["run"], run.logs()["run"]


def the_time_limit_is_near(where, runs):
    run = Submitted(job_file(where), where)
    runs.append(run)
    run.wait_for_step(20)
    # What Slurm sends to all of them at their --signal; here to one.
    worker = next(task for task, _, _, name in run.tasks() if name.endswith("-worker"))
    CLUSTER.run("scancel", "--signal=USR1", worker)
    wait_for("all to end for the queue", lambda: sum("queued again" in log for log in run.logs().values()) == 5, 60)
    check_end(run, where, runs)


def a_step_takes_longer_than_the_grace(where, runs):
    run = Submitted(job_file(where), where, "--set", "model.sleeping.forward_seconds=1.5", "--set", "preemption_grace=1s")
    runs.append(run)
    run.wait_for_step(1)
    CLUSTER.run("scancel", "--signal=USR1", run.ids[0])
    wait_for("all to end for the queue", lambda: sum("queued again" in log for log in run.logs().values()) == 5, 60)
    assert "preempted by SIGUSR1; the job can go on with checkpoint.start_from=" in run.logs()["coordinator"], run.logs()["coordinator"]


def the_coordinator_alone_is_cancelled(where, runs):
    run = Submitted(job_file(where, epochs=100000), where, "--dry-run")
    role = where / "tree/deploy/slurm/role"
    text = role.read_text()
    role.write_text(re.sub(r"^lonely=\d+", "lonely=15", text, flags=re.M))
    assert role.read_text() != text
    run = Submitted(run.out / "job.textproto", where, out=run.out)
    runs.append(run)
    run.wait_for_step(15)
    CLUSTER.run("scancel", run.ids[0])
    wait_for("the others to be queued again", lambda: sum("queued again" in log for log in run.logs().values()) == 4, 60)
    codes = run.wait()
    assert codes.pop("coordinator") == 75 and set(codes.values()) == {1}, codes
    assert all("nobody is to come" in log for name, log in run.logs().items() if name != "coordinator")


def an_urgent_job_preempts_some(where, runs):
    run = Submitted(job_file(where, epochs=3 * EPOCHS), where, "--", "--exclusive")
    runs.append(run)
    run.wait_for_step(20)
    # Five of the six nodes are taken: two or more processes must go, Slurm queues these again, and the others themselves.
    CLUSTER.run("sbatch", "--partition=urgent", "--exclusive", "--nodes=3", "--output=/dev/null", "--wrap=sleep 3")
    wait_for("a process told to end", lambda: any("SIGTERM: a checkpoint" in log for log in run.logs().values()), 60)
    codes = run.wait()
    assert set(codes.values()) == {0}, codes
    again = sum("queued again" in log for log in run.logs().values())
    assert 0 < again < 5, again


def lost_node(role, shape=WORKERS):
    def test(where, runs):
        run = Submitted(job_file(where, shape=shape), where, "--", "--ntasks-per-node=1", "--exclusive")
        runs.append(run)
        run.wait_for_step(20)
        node = run.node_of(role)
        CLUSTER.crash(node)
        crashed = time.monotonic()
        try:
            check_end(run, where, runs, shape)
        finally:
            CLUSTER.boot(node)
        print(f"{node} with a {role} crashed; all was over {time.monotonic() - crashed:.1f} s later")

    test.__name__ = f"a_node_with_a_{role}_crashes"
    return test


def processes_on(node):
    return [int(pid) for pid in CLUSTER.on(node, "pgrep", "^parley-", check=False).stdout.split()]


def unplugged_node(role, shape=WORKERS):
    """Split brain: the old process lives on and reaches nobody, another one takes its place, then the cable is back."""

    def test(where, runs):
        run = Submitted(job_file(where, 2 * EPOCHS, shape=shape), where, "--", "--ntasks-per-node=1", "--exclusive")
        runs.append(run)
        run.wait_for_step(20)
        node = run.node_of(role)
        old = processes_on(node)
        assert old, f"nothing of the job on {node}"
        CLUSTER.unplug(node)
        unplugged = time.monotonic()
        try:
            wait_for("another node in its place", lambda: any(
                name.endswith(f"-{role}") and state == "RUNNING" and other != node and other != ""
                for _, state, other, name in run.tasks() or []) and node not in [other for _, _, other, _ in run.tasks() or []], 120)
            assert set(old) & set(processes_on(node)), "the old process has gone by itself: no split brain was tested"
            step = int((run.status() or {}).get("step", 0))
        finally:
            CLUSTER.plug(node)
        print(f"{node} with a {role} came back {time.monotonic() - unplugged:.1f} s later, at step {step}, with {old} on it")
        run.wait_for_step(step + 5)
        codes = run.wait()
        assert 0 in codes.values(), codes
        assert exported(run.out) == undisturbed(where, runs, shape, 2 * EPOCHS), "the old process has changed something"

    test.__name__ = f"a_node_with_a_{role}_is_cut_off_and_comes_back"
    return test


def the_shipped_job(where, runs, epochs, accuracy):
    run = Submitted("deploy/jobs/fashion_mnist.textproto", where, "--set", f"epochs={epochs}", "--set", "cluster.slurm.worker_cpus=1")
    runs.append(run)
    found = []

    def ended():
        found.extend((run.status() or {}).get("evaluations", [])[-1:])
        return run.tasks() == []

    wait_for("the end of the job", ended, 900)
    assert set(run.wait().values()) == {0}, run.wait()
    reached = int(found[-1]["correct"]) / int(found[-1]["samples"])
    assert int(found[-1]["epoch"]) == epochs and reached >= accuracy, found[-1]
    assert CLUSTER.queue() == []
    print(f"{epochs} epochs of the shipped job: accuracy {reached:.4f}")


def the_shipped_job_trains_an_epoch(where, runs):
    the_shipped_job(where, runs, 1, 0.75)


def the_shipped_job_trains_to_its_accuracy(where, runs):
    the_shipped_job(where, runs, 5, 0.89)


def scancel_leaves_nothing(where, runs):
    run = Submitted(job_file(where, epochs=100000), where)
    runs.append(run)
    run.wait_for_step(15)
    CLUSTER.run("scancel", *run.ids)
    began = time.monotonic()
    wait_for("an empty queue", lambda: run.tasks() == [], 30, every=POLL)
    took = time.monotonic() - began
    assert all("queued again" not in log for log in run.logs().values())
    left = {node: CLUSTER.on(node, "pgrep", "-a", "parley", check=False).stdout for node in CLUSTER.nodes}
    assert not any(left.values()), left
    segments = [path.name for path in pathlib.Path("/dev/shm").glob("parley*")]
    assert not segments, segments
    assert any((run.out / "checkpoints").glob("step-*/manifest.json"))
    print(f"all was over {took:.1f} s after scancel")


def more_workers_and_a_stop(where, runs):
    job = job_file(where, epochs=100000)
    job.write_text(job.read_text().replace("deterministic: true lost_worker: WAIT", ""))
    run = Submitted(job, where, out=where / "with more workers")
    runs.append(run)
    run.wait_for_step(15)
    operator = [str(BIN / "parley")]
    at = f"--coordinator=file:{run.out}/coordinator.address"
    said = CLUSTER.run(*operator, "scale", "workers", "3", at).stdout
    command = shlex.split(re.search(r"deploy/slurm/submit (.*)", said).group(1))
    CLUSTER.run(run.submit, *command)
    run.read_ids()
    wait_for("three workers", lambda: "contributors=3" in run.logs()["coordinator"], 60)
    CLUSTER.run(*operator, "scale", "workers", "2", at)
    wait_for("two workers", lambda: "contributors=2" in run.logs()["coordinator"].split("contributors=3", 1)[1], 60)
    folder = CLUSTER.run(*operator, "stop", "--wait", at).stdout.strip()
    assert (pathlib.Path(folder) / "manifest.json").exists(), folder
    # The same job again goes on from there; what was stopped goes first.
    again = Submitted(run.out / "job.textproto", where, out=run.out)
    runs.append(again)
    codes = run.wait(1)
    assert sorted(codes.values()) == [0, 75, 75, 75, 75, 75], codes
    assert all("queued again" not in log for log in run.logs().values())
    again.wait_for_step(int(folder.rsplit("-", 1)[1]) + 5)
    assert not (run.out / "stopped").exists()
    # Who has gone does not come back with those that are queued again.
    CLUSTER.run(*operator, "scale", "workers", "1", at)
    wait_for("one worker", lambda: "contributors=1" in run.logs()["coordinator"], 60)
    before = int(again.status()["step"])
    CLUSTER.run("scancel", "--signal=USR1", again.ids[0])
    wait_for("all others to end for the queue", lambda: sum("queued again" in log for log in run.logs().values()) == 4, 60)
    again.wait_for_step(before + 5)
    assert int(again.status()["wanted_workers"]) == 1, again.status()


def without_slurmctld(where, runs, seconds, epochs):
    run = Submitted(job_file(where, epochs), where)
    runs.append(run)
    run.wait_for_step(20)
    CLUSTER.stop_controller()
    for _ in range(seconds // 5):
        before = int(run.status()["step"])
        time.sleep(5)
        assert int(run.status()["step"]) > before, "training stands still"
    CLUSTER.start_controller()
    check_end(run, where, runs, epochs=epochs)


def slurmctld_is_away(where, runs):
    without_slurmctld(where, runs, 5, EPOCHS)
    # Nor is a job that may run taken for one that is over.
    run = runs[-1]
    before = (run.out / "slurm/jobs").read_text()
    CLUSTER.stop_controller()
    try:
        bad = CLUSTER.run(run.submit, str(run.out / "job.textproto"), "--out", str(run.out), check=False)
        assert bad.returncode == 2 and "whether an earlier run in" in bad.stderr, bad
        assert (run.out / "slurm/jobs").read_text() == before
    finally:
        CLUSTER.start_controller()


def slurmctld_is_away_for_a_minute(where, runs):
    without_slurmctld(where, runs, 60, 6 * EPOCHS)


if __name__ == "__main__":
    missing = what_is_missing()
    if missing:
        print(f"SKIPPED the tests on a Slurm cluster: it needs {missing}")
        sys.exit(0)
    folder = pathlib.Path(f"/tmp/slurm-{time.monotonic_ns() % 10**9}")
    CLUSTER = Cluster(folder)
    try:
        short = [
            submit_says_what_it_does, a_directory_of_an_earlier_release_is_gone_on_with, whom_slurm_does_not_queue_again_says_so, a_node_knows_its_address, a_job_trains_to_its_end, a_program_of_ones_own_trains, the_shipped_job_trains_an_epoch, all_of_it_on_one_node, the_time_limit_is_near,
            an_urgent_job_preempts_some, *(lost_node(role) for role in ("worker", "shard", "coordinator")), lost_node("stage", PIPELINE),
            scancel_leaves_nothing, a_step_takes_longer_than_the_grace, the_coordinator_alone_is_cancelled,
            more_workers_and_a_stop, slurmctld_is_away,
        ]
        long = [
            the_shipped_job_trains_to_its_accuracy, *(unplugged_node(role) for role in ("worker", "shard", "coordinator")),
            unplugged_node("stage", PIPELINE), slurmctld_is_away_for_a_minute,
        ]
        named = [test for test in short + long if test.__name__ in sys.argv[1:]]
        chosen = named or (long if sys.argv[1:] == ["--long"] else short)
        main(*chosen)
    finally:
        CLUSTER.stop()
        shutil.rmtree(folder, ignore_errors=True)
