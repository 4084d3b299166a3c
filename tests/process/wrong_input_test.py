"""Whatever a user can get wrong gets a clear error and the right exit status, and leaves nothing running."""

import gzip
import pathlib
import socket
import struct
import subprocess
import sys
import time

sys.path.insert(0, "tests/process")
from support import data
from support.brake import Brake
from support.jobs import SMALL, Run, main, small_job, wait_for
from support.programs import BIN, program


def left_running():
    """Command lines of processes whose program is one of ours."""
    found = []
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if str((process / "exe").readlink()).startswith(str(BIN)):
                found.append((process / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return found


def expect(what, command, code, *words, timeout=300):
    """Runs the command; its status must be `code` and its stderr must have all the words."""
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=timeout)
    said = done.stderr.strip().splitlines()
    print(f"{what}: exit {done.returncode} after {time.monotonic() - began:.1f} s: {said[-1] if said else ''}")
    assert done.returncode == code, f"{what}: exit {done.returncode}, not {code}\n{done.stdout}\n{done.stderr}"
    for word in words:
        assert word in done.stderr, f"{what}: {word!r} is not in\n{done.stderr}"
    wait_for(f"{what}: nothing left running, not {left_running()}", lambda: not left_running(), 5)


# What is wrong, the line of the good job file that is replaced (None: added at the end), by what, and what the
# message must name.
JOB_FILES = [
    ("unknown field", None, 'colour: "red"', ["colour", "job.textproto:11"]),
    ("wrong type", "seed: 3", 'seed: "three"', ["seed", "job.textproto:3"]),
    ("missing field", 'name: "small"', "", ["name"]),
    ("missing model", "model { simple_cnn {} }", "", ["model"]),
    ("negative batch", "batch: 20", "batch: -20", ["batch", "job.textproto:5"]),
    ("zero batch", "batch: 20", "batch: 0", ["batch"]),
    ("zero shards", "shards: 2", "shards: 0", ["shards", "job.textproto:7"]),
    ("zero workers", "workers: 2", "workers: 0", ["workers", "job.textproto:7"]),
    ("epochs and steps", None, "steps: 5", ["epochs", "steps"]),
    ("a bad duration", 'liveness: "10s"', 'liveness: "soon"', ["liveness", "job.textproto:9"]),
    ("a rate below zero", "rate: 0.001", "rate: -1", ["rate"]),
    ("restarts without end", None, "max_restarts: 2000000", ["max_restarts"]),
    ("an autonomy that is none", None, 'autonomy: "3s"', ["autonomy", "liveness"]),
    ("a minimum that is never reached", "shards: 2", "shards: 2 min_workers: 3", ["min_workers", "job.textproto:7"]),
    ("an option of another mode", None, "consistency { async {} } learning_rate { linear_scaling: true }", ["linear_scaling", "async"]),
    ("a loss scale of another precision", None, "precision: BFLOAT16_AUTOCAST loss_scale { initial: 2 }", ["loss_scale", "FLOAT16_AUTOCAST"]),
    ("steps that overlap on GPUs", "shards: 2", "shards: 2 stages: 2 } device: CUDA pipeline { schedule: PIPEDREAM", ["device", "PIPEDREAM"]),
]


def job_files(where, runs):
    good = small_job(where).read_text()
    job = where / "job.textproto"
    for what, old, new, words in JOB_FILES:
        text = good.rstrip("\n").lstrip("\n") + "\n"
        text = "\n" + text if old is None else "\n" + text.replace(old, new)
        assert old is None or old in good, old
        job.write_text(text + (new + "\n" if old is None else ""))
        for command in ("run", "plan"):
            expect(f"{what} ({command})", [program("parley"), command, str(job)], 2, *words)
    expect("no such job file", [program("parley"), "run", str(where / "none.textproto")], 2, "none.textproto")
    small_job(where)
    expect("a bad --set", [program("parley"), "run", str(job), "--set", "cluster.sharps=3"], 2, "sharps")
    expect("a --set without value", [program("parley"), "run", str(job), "--set", "cluster.shards"], 2, "cluster.shards")
    expect("a bad flag", [program("parley"), "run", str(job), "--what"], 2, "--what")
    expect("a bad command", [program("parley"), "dance"], 2, "dance")


def data_files(where, runs):
    job = small_job(where)
    images = where / "data/train-images-idx3-ubyte.gz"
    good = images.read_bytes()
    command = [program("parley"), "run", str(job), "--out", str(where / "out")]

    images.unlink()
    expect("data missing", command, 2, str(job), "train-images-idx3-ubyte", "dataset-fashion-mnist")
    images.write_bytes(good[: len(good) // 2])
    expect("data truncated", command, 2, "train-images-idx3-ubyte.gz")
    raw = gzip.decompress(good)
    images.write_bytes(gzip.compress(b"\0\0\x08\x04" + raw[4:], 1))
    expect("wrong magic", command, 2, "train-images-idx3-ubyte.gz", "magic")
    images.write_bytes(gzip.compress(raw[:-100], 1))
    expect("fewer images than said", command, 2, "train-images-idx3-ubyte.gz")
    images.write_bytes(gzip.compress(raw[:4] + struct.pack(">I", 0xFFFFFFFF) + raw[8:], 1))
    expect("four billion images", command, 2, "train-images-idx3-ubyte.gz")
    images.write_bytes(good)
    labels = where / "data/train-labels-idx1-ubyte.gz"
    labels.write_bytes(gzip.compress(struct.pack(">II", 2049, 599) + bytes(599), 1))
    expect("labels do not match the images", command, 2, "599", "600")
    labels.write_bytes(gzip.compress(struct.pack(">II", 2049, 600) + bytes([77]) * 600, 1))
    expect("a label that is no class", command, 2, "77")
    # In parts nobody has the whole model, and yet it is known beforehand.
    in_stages = ["--set", "cluster.stages=2", "--set", "cluster.workers=1"]
    names = ("sample 0 of the training data has class 77", "10 classes")
    expect("a label that is no class (run, stages)", [*command, *in_stages], 2, *names)
    expect("a label that is no class (plan, stages)", [program("parley"), "plan", str(job), *in_stages], 2, *names)
    worker = [program("parley-worker"), f"--job={where}/stages.textproto", "--coordinator=127.0.0.1:1"]
    (where / "stages.textproto").write_text(job.read_text().replace("workers: 2", "workers: 1 stages: 2"))
    expect("a label that is no class (worker of stages)", worker, 2, *names)
    (where / "broken.pt").write_text("this is no archive")
    job.write_text(job.read_text().replace("simple_cnn {}", 'torchscript: "broken.pt"'))
    expect("a network that is none", command, 2, "broken.pt")


def places(where, runs):
    job = small_job(where)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = f"127.0.0.1:{taken.getsockname()[1]}"
        coordinator = [program("parley-coordinator"), f"--job={job}", f"--out={where}/out1"]
        expect("port in use", [*coordinator, f"--listen={port}"], 2, port, "in use")
        expect("metrics port in use", [*coordinator, f"--metrics={port}"], 2, port)
        expect("an address that is none", [*coordinator, "--listen=here"], 2, "here")
    expect("unwritable output directory", [program("parley-coordinator"), f"--job={job}", "--out=/dev/null/out"], 2, "/dev/null/out")
    expect("unwritable output directory of a run", [program("parley"), "run", str(job), "--out", "/dev/null/out"], 2, "/dev/null/out")
    for role in ("worker", "shard"):
        expect(
            f"{role}: a coordinator that is none", [program(f"parley-{role}"), f"--job={job}", "--coordinator=foo"], 2, "--coordinator", "'foo'",
        )
        expect(
            f"{role}: unreachable coordinator",
            [program(f"parley-{role}"), f"--job={job}", "--coordinator=127.0.0.1:1", "--join_timeout=2s"], 1, "127.0.0.1:1",
        )
        expect(
            f"{role}: no address file",
            [program(f"parley-{role}"), f"--job={job}", f"--coordinator=file:{where}/none", "--join_timeout=1s"], 1, f"{where}/none",
        )
        for timeout in ("soon", "0s", "-1s"):
            expect(
                f"{role}: join_timeout {timeout}",
                [program(f"parley-{role}"), f"--job={job}", "--coordinator=127.0.0.1:1", f"--join_timeout={timeout}"], 2, "--join_timeout", timeout,
            )
    expect("status of nobody", [program("parley"), "status", "--coordinator=127.0.0.1:1"], 1, "127.0.0.1:1")


def strangers(where, runs):
    run = Run(small_job(where, epochs=100000))
    runs.append(run)
    brake = Brake(run, pause=0.1)
    run.wait_for_step(2)
    address = (run.out / "coordinator.address").read_text().strip()
    other = where / "other.textproto"
    other.write_text(SMALL.format(data=where / "data", liveness="10s", epochs=1).replace('"small"', '"other"'))
    changed = where / "changed.textproto"
    changed.write_text(SMALL.format(data=where / "data", liveness="10s", epochs=77))

    def refused(what, command, code, *words):
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        print(f"{what}: exit {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")
        assert done.returncode == code and all(word in done.stderr for word in words), done.stderr

    files = sorted(path.name for path in run.out.iterdir())
    refused("second coordinator", [program("parley-coordinator"), f"--job={where}/job.textproto", f"--out={run.out}"], 1, address)
    assert sorted(path.name for path in run.out.iterdir()) == files, "the second coordinator wrote nothing"
    for name, started in (("job", f"{where}/job.textproto"), ("another job", str(other))):
        refused(f"parley run of {name} into a running job's folder", [program("parley"), "run", started, "--out", str(run.out)], 1, address, "--out")
        assert sorted(path.name for path in run.out.iterdir()) == files, "the refused run wrote nothing"
        assert "epochs: 100000" in (run.out / "job.textproto").read_text(), "the refused run wrote nothing"
    refused("worker of another job", [program("parley-worker"), f"--job={other}", f"--coordinator={address}"], 2, "other", "small")
    refused("worker with another job file", [program("parley-worker"), f"--job={changed}", f"--coordinator={address}"], 2, "job file")
    refused("one worker too many", [program("parley-worker"), f"--job={run.out}/job.textproto", f"--coordinator={address}"], 1, "worker")
    step = int(run.answer()["step"])
    run.wait_for_step(step + 5)  # training has not noticed
    brake.release()
    run.process.terminate()
    assert run.wait(10) == 75
    wait_for("nothing left running", lambda: not left_running(), 5)


def checkpoints(where, runs):
    """A DIR that names none is wrong usage; one that is damaged is a failure."""
    (where / "empty").mkdir()
    (where / "file").write_text("this is no folder")
    lost = where / "lost"
    lost.mkdir()
    (lost / "latest").write_text("step-00000015\n")
    damaged = where / "damaged"
    damaged.mkdir()
    (damaged / "manifest.json").write_text("this is no manifest")
    for command in ("inspect", "verify", "export"):
        start = [program("parley"), "checkpoint", command]
        for what in ("nowhere", "empty", "file"):
            expect(f"checkpoint {command}: {what}", [*start, str(where / what)], 2, str(where / what), "is no checkpoint")
        expect(f"checkpoint {command}: `latest` names one that is lost", [*start, str(lost)], 1, f"{lost}/latest", "step-00000015")
        expect(f"checkpoint {command}: a damaged manifest", [*start, str(damaged)], 1, f"{damaged}/manifest.json")
        expect(f"checkpoint {command}: no DIR", start, 2, "DIR")


def content(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def a_finished_jobs_folder(where, runs):
    job = small_job(where)
    run = Run(job)
    runs.append(run)
    assert run.wait(120) == 0
    before = content(run.out)
    again = [program("parley"), "run", str(job), "--out", str(run.out)]
    expect("a run into a finished job's folder", again, 2, "earlier run", "start_from", "--out")
    expect("a run from nowhere", [*again, "--set", f"checkpoint.start_from={where}/nowhere"], 2, "checkpoint.start_from", f"{where}/nowhere")
    assert content(run.out) == before, "the refused runs wrote nothing"
    other = Run(job, "--set", f"checkpoint.start_from={run.out}/checkpoints", "--set", "epochs=2")
    runs.append(other)
    assert other.wait(120) == 0, "the same job goes on in another folder"
    assert content(run.out) == before
    wait_for("nothing left running", lambda: not left_running(), 5)


main(job_files, data_files, places, checkpoints, strangers, a_finished_jobs_folder)
