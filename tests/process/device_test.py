"""A job may ask for a GPU: where something is missing for it, `device: CUDA` says in one line what, and ends with 2, and
`device: AUTO` trains on the CPU and says why. Drivers and plugins are the tests' own (worker/device/testing), so that it is
the same on each machine; what the real plugin lacks on this one is looked at, too.
"""

import ctypes
import os
import pathlib
import re
import socket
import subprocess
import sys

sys.path.insert(0, "tests/process")
import torch
from support import data
from support.bits import assert_same_bits
from support.brake import Brake
from support.devices import DEVICES, machine
from support.jobs import WHOLE, Run, exported, last_line, main, scrape, small_job, wait_for
from support.programs import program
from support.traced import traced


def has_driver():
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    return True


def few_steps(where, extra):
    """What is asked of the job is seen at its start."""
    job = small_job(where, extra=extra)
    job.write_text(job.read_text().replace("epochs: 1", "steps: 2"))
    return job


# What the machine has, and what is missing for CUDA.
MACHINES = [
    ("a driver that does not start", {"driver": DEVICES / "libdriver_that_does_not_start.so"}, ["driver", "999"]),
    ("a driver that is too old", {"driver": DEVICES / "libfake_driver.so", "plugin": DEVICES / "libfake_plugin.so", "driver_is_old": True},
     ["driver", "too old"]),
    ("a driver that finds no GPU", {"driver": DEVICES / "libdriver_without_gpu.so"}, ["no GPU"]),
    ("no plugin", {"driver": DEVICES / "libfake_driver.so"}, ["libparley_cuda.so is missing", "deploy/build --cuda"]),
    ("no CUDA library", {"driver": DEVICES / "libfake_driver.so", "plugin": DEVICES / "libplugin_without_library.so"},
     ["libnot_there.so.7", "deploy/bootstrap cuda"]),
    ("a plugin of another build", {"driver": DEVICES / "libfake_driver.so", "plugin": DEVICES / "libold_plugin.so"}, ["another build"]),
]
if not has_driver():
    MACHINES.insert(0, ("no driver", {}, ["no NVIDIA driver", "libcuda.so.1"]))


def cuda_says_in_one_line_what_is_missing(where, runs):
    job = small_job(where, extra="device: CUDA\n")
    out = where / "out"
    commands = {
        # Nothing is started.
        "run": [program("parley"), "run", str(job), "--out", str(out)],
        # One that is started by hand would tell the others, if there were any.
        "worker": [program("parley-worker"), f"--job={job}", "--coordinator=127.0.0.1:1", "--join_timeout=1s"],
    }
    for what, has, words in MACHINES:
        machine(where, **has)
        for name, command in commands.items():
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            line = last_line(done.stderr)
            print(f"{what} ({name}): exit {done.returncode}: {line}")
            assert done.returncode == 2, done.stderr
            of = f"{job}: " if name == "run" else ""
            assert line.startswith(f"{of}device: CUDA cannot be had: ") and all(word in line for word in words), done.stderr
            assert name == "worker" or done.stderr.strip() == line, done.stderr
        assert not out.exists()
    # Where the job will run is not asked by who plans it.
    done = subprocess.run([program("parley"), "plan", str(job)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def auto_says_why_it_runs_on_the_cpu(where, runs):
    for what, has, words in MACHINES:
        machine(where, **has)
        run = Run(few_steps(where, "device: AUTO\n"), "--set", "cluster.workers=1", "--set", "cluster.shards=1")
        runs.append(run)
        code = run.wait(120)
        said = [line for line in run.logs()["worker-0"].splitlines() if "device" in line]
        print(f"{what}: exit {code}: {said}")
        assert code == 0, code
        assert len(said) == 1 and "device: AUTO runs on the CPU" in said[0] and all(word in said[0] for word in words), said


def what_the_real_plugin_lacks_is_one_line_too(where, runs):
    """On a machine without GPUs it lacks at least the rest of the driver."""
    machine(where, DEVICES / "libfake_driver.so", pathlib.Path("worker/cuda/libparley_cuda.so"))
    job = small_job(where, extra="device: CUDA\n")
    command = [program("parley"), "run", str(job), "--out", str(where / "out")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    print(f"exit {done.returncode}: {done.stderr.strip()}")
    assert done.returncode == 2 and done.stderr.startswith(f"{job}: device: CUDA cannot be had: "), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr


def trains_through_a_device_to_the_same_bits_as_on_the_cpu(where, runs):
    """A plugin whose devices are fake, in plain memory, and end the worker where any use of memory is in no order: all of
    the worker's own way to a GPU and back, with microbatches, buffers and evaluations, and two workers.
    """
    model = where / "model.pt"
    torch.manual_seed(1)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(1, 8, 5), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.MaxPool2d(4), torch.nn.Flatten(), torch.nn.Dropout(0.1),
        torch.nn.Linear(288, 64), torch.nn.Linear(64, 10),
    )
    torch.jit.script(network).save(model)
    # One worker: the sum of two workers' gradients depends on who comes first.
    settings = ["--set", f"model.torchscript={model}", "--set", "accumulate=2", "--set", "cluster.workers=1"]
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    outcomes = {}
    # The last one has its values in two places in turn (of the first linear layer, which is large enough).
    devices = ("CPU", "CUDA", "AUTO", "CUDA, ahead") if WHOLE else ("CPU", "CUDA", "CUDA, ahead")
    for device in devices:
        ahead = "consistency { sync { update_ahead: true } }" if device.endswith("ahead") else ""
        run = Run(small_job(where, epochs=2, extra=f"device: {device.split(',')[0]}\n{ahead}\n"), *settings)
        runs.append(run)
        assert run.wait(120) == 0, device
        log = run.logs()["worker-0"]
        assert ("computes on a GPU device=fake:0 shared=no" in log) == (device != "CPU"), log
        outcomes[device] = exported(run.out)
    for device in devices[1:]:
        assert_same_bits(outcomes[device], outcomes["CPU"], f"{device}, through a device, and the CPU")


def steps_as_cuda_graphs_come_to_the_same_bits(where, runs):
    """The fake devices call again what a GPU would do again without being told."""
    model = where / "model.pt"
    torch.manual_seed(2)
    torch.jit.script(torch.nn.Sequential(
        torch.nn.Flatten(), torch.nn.Linear(784, 20), torch.nn.BatchNorm1d(20), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(20, 10),
    )).save(model)
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    # The last step of an epoch has fewer samples than the others.
    settings = ["--set", f"model.torchscript={model}", "--set", "cluster.workers=1", "--set", "data.batch=37"]
    outcomes = {}
    for extra in ("device: CPU", "device: CUDA cuda_graphs: true", "device: CUDA cuda_graphs: true accumulate: 2"):
        run = Run(small_job(where, epochs=2, extra=extra + "\n"), *settings)
        runs.append(run)
        assert run.wait(120) == 0, extra
        outcomes[extra] = exported(run.out)
        log = run.logs()["worker-0"]
        assert log.count("computes steps as a CUDA graph from_step=4") == (1 if extra.endswith("true") else 0), log
        whys = re.findall(r'computes without a CUDA graph step=\d+ why="([^"]*)"', log)
        if extra.endswith("true"):
            assert len(whys) == 1 and whys[0].endswith("and the graph is of 37"), log
        elif extra.endswith("2"):
            assert whys == ["the gradients of several microbatches are added up"], log
        else:
            assert not whys, log
    assert_same_bits(outcomes["device: CUDA cuda_graphs: true"], outcomes["device: CPU"], "as graphs, and on the CPU")


def pipeline_job(where, name, schedule, device, stages=2, model="", steps=8, extra=""):
    """Evaluations, dropout, an uneven last microbatch; the sums of one pipeline are in one order, on devices too."""
    folder = where / name
    folder.mkdir()
    (folder / "book.txt").write_text(" ".join(f"the {word} of a loom was bright" for word in "warp weft light thread shade".split()) * 40)
    path = folder / "job.textproto"
    path.write_text(
        f"""
        name: "pipeline"
        seed: 5
        model {{ {model or "transformer { width: 32 heads: 2 hidden: 48 layers: 3 dropout: 0.2 }"} }}
        data {{ {f'idx {{ directory: "{where}/data" }}' if model else 'text { train: "book.txt" test_share: 0.2 length: 12 columns: 4 }'} batch: 3 }}
        optimizer {{ adam {{ rate: 0.002 }} clip_norm: 0.5 }}
        cluster {{ workers: 1 shards: 2 stages: {stages} }}
        accumulate: 4
        threads: 1
        liveness: "10s"
        steps: {steps}
        device: {device}
        pipeline {{ schedule: {schedule} {extra} }}
        """
    )
    return path


def stages_compute_on_devices_to_the_same_bits_as_on_the_cpu(where, runs):
    """By the fake plugin, as above: whatever nothing has put in an order ends the stage. The worker takes no device."""
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    data.write_idx(where / "data")

    def end(name, *arguments, **options):
        run = Run(pipeline_job(where, name, *arguments, **options))
        runs.append(run)
        assert run.wait(240) == 0, name
        logs = run.logs()
        devices = sorted(re.findall(r"computes on a GPU device=(\S+) shared=(\w+)", logs["stage-0"] + logs["stage-1"]))
        assert devices == ([] if "CPU" in arguments else [("fake:0", "no"), ("fake:1", "no")]), devices
        assert "GPU" not in logs["worker-0"], logs["worker-0"]
        reach = [re.findall("copied by those of other stages stages=(.*)", logs[f"stage-{stage}"]) for stage in (0, 1)]
        by_host = "CPU" in arguments or "PARLEY_FAKE_DEVICE_IS_ALONE" in os.environ or "peer_copies: false" in options.get("extra", "")
        assert reach == ([[], []] if by_host else [["1"], ["0"]]), reach
        return exported(run.out)

    expected = end("cpu", "ONE_F_ONE_B", "CPU")
    for schedule in ("ONE_F_ONE_B", "INTERLEAVED", "ZERO_BUBBLE") if WHOLE else ("ZERO_BUBBLE",):
        assert_same_bits(end(schedule, schedule, "CUDA"), expected, f"{schedule} on devices and on the CPU")
    # The GPUs of machines that do not let one process read another one's: by the host.
    os.environ["PARLEY_FAKE_DEVICE_IS_ALONE"] = "yes"
    try:
        assert_same_bits(end("AUTO", "GPIPE", "AUTO", extra="recompute: true"), expected, "AUTO, with forwards computed again, and the CPU")
    finally:
        del os.environ["PARLEY_FAKE_DEVICE_IS_ALONE"]
    # Batch normalisation: buffers go both ways.
    residual = {"model": "resnet { depth: 18 }", "steps": 3 if WHOLE else 2, "extra": "peer_copies: false"}
    assert_same_bits(
        end("resnet", "ONE_F_ONE_B", "CUDA", **residual), end("resnet-cpu", "ONE_F_ONE_B", "CPU", **residual), "a residual network"
    )


def stages_say_what_is_missing_for_their_device(where, runs):
    what, has, words = MACHINES[-1]
    machine(where, **has)
    job = pipeline_job(where, "cuda", "ONE_F_ONE_B", "CUDA")
    commands = {
        "run": [program("parley"), "run", str(job), "--out", str(where / "out")],
        "stage": [program("parley-stage"), f"--job={job}", "--coordinator=127.0.0.1:1", "--join_timeout=1s"],
    }
    for name, command in commands.items():
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        line = last_line(done.stderr)
        print(f"{what} ({name}): exit {done.returncode}: {line}")
        assert done.returncode == 2, done.stderr
        of = f"{job}: " if name == "run" else ""
        assert line.startswith(f"{of}device: CUDA cannot be had: ") and all(word in line for word in words), done.stderr
    assert not (where / "out").exists()
    run = Run(pipeline_job(where, "auto", "ONE_F_ONE_B", "AUTO"))
    runs.append(run)
    assert run.wait(120) == 0
    for name, log in run.logs().items():
        said = [line for line in log.splitlines() if "device: AUTO runs on the CPU" in line]
        assert len(said) == name.startswith("stage"), (name, said)
        assert all(word in line for word in words for line in said), said


def workers_share_out_the_gpus_of_their_machine(where, runs):
    """Three of them, two GPUs; then one alone, while another process has the first one."""
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")

    def devices(workers):
        run = Run(few_steps(where, "device: CUDA\n"), "--set", f"cluster.workers={workers}")
        runs.append(run)
        assert run.wait(120) == 0
        logs = "".join(log for name, log in run.logs().items() if name.startswith("worker"))
        return sorted(re.findall(r"computes on a GPU device=(\S+) shared=(\w+)", logs))

    three = devices(3)
    assert {device for device, shared in three if shared == "no"} == {"fake:0", "fake:1"}, three
    assert [shared for _, shared in three].count("yes") == 1, three
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as other:
        other.bind("\0parley-gpu fake-0")
        other.listen()
        assert devices(1) == [("fake:1", "no")]
    assert devices(1) == [("fake:0", "no")]


def the_gpu_has_metrics(where, runs):
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so", DEVICES / "libfake_nvml.so")
    run = Run(small_job(where, epochs=100000, extra="device: CUDA\n"))
    runs.append(run)
    run.wait_for_step(3)
    logs, addresses = run.logs(), run.addresses("metrics")
    for worker in ("worker-0", "worker-1"):
        found = dict(re.findall(r"^(parley_gpu_(?!stream)\w+{[^}]*}) (\S+)$", scrape(addresses[worker]), re.MULTILINE))
        # NVML knows the first GPU only.
        knows = "device=fake:0" in logs[worker]
        assert ("no metrics of the GPU why=" in logs[worker]) != knows, logs[worker]
        values = {}
        for series, value in found.items():
            direction = re.search(r'direction="(\w+)"', series)
            values[series.split("{")[0].removeprefix("parley_gpu_"), direction.group(1) if direction else ""] = float(value)
        expected = {
            ("memory_used_bytes", ""): 3000, ("memory_total_bytes", ""): 8000, ("utilization_ratio", ""): 0.75,
            ("bus_bytes_per_second", "to_device"): 30e3, ("bus_bytes_per_second", "to_host"): 20e3,
        }
        assert values == (expected if knows else {}), found

        def looked_at():
            return dict(re.findall(r'^parley_gpu_stream_duration_seconds_count{[^}]*stream="(\w+)"[^}]*} (\d+)$', scrape(addresses[worker]),
                                   re.MULTILINE))

        # One step of 64; nothing goes from GPU to GPU here.
        wait_for("times of the streams", lambda: float(looked_at().get("compute", 0)) >= 2, 60)
        counts = {stream: int(count) for stream, count in looked_at().items()}
        assert counts["communication"] == 0 and min(counts["to_host"], counts["to_device"]) >= 1, counts
    run.kill()


def a_device_without_room_ends_the_job(where, runs):
    """And all say what for, how much, and where."""
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    os.environ["PARLEY_FAKE_DEVICE_BYTES"] = "300000"
    try:
        run = Run(few_steps(where, "device: CUDA\n"))
        runs.append(run)
        assert run.wait(60) == 1, run.process.returncode
    finally:
        del os.environ["PARLEY_FAKE_DEVICE_BYTES"]
    said = {name: last_line(log) for name, log in run.logs().items()}
    print(said)
    for line in [last_line(run.stderr()), *said.values()]:
        assert re.search(r": no room for \d+ bytes on fake:[01], which has \d+ bytes free of 300000", line), said


def spans_of(events):
    """By lane and name: (begin, end), in microseconds."""
    lanes = {event["tid"]: event["args"]["name"] for event in events if event["name"] == "thread_name"}
    spans = {}
    for event in events:
        if event["ph"] == "X":
            spans.setdefault((lanes[event["tid"]], event["name"]), []).append((event["ts"], event["ts"] + event["dur"]))
    print({where: len(found) for where, found in spans.items()})
    return spans


def a_trace_has_the_gpus_streams_beside_what_the_host_does(where, runs):
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    spans = spans_of(traced(where, few_steps(where, "device: CUDA\n"), workers=2, shards=2))
    for phase in ("forward", "backward"):
        given, done = spans["training thread", phase], spans["GPU: compute", phase]
        assert len(given) == len(done) == 2, spans
        # The fake device's compute stream does what it is given at once; and the host's look at the clock is never early.
        assert all(begin <= end for begin, end in done) and all(began <= begin for (began, _), (begin, _) in zip(given, done)), (given, done)
    assert spans["GPU: to host", "copy to the host"] and spans["GPU: to device", "copy to the device"], spans


def a_stages_trace_has_its_gpus_work(where, runs):
    """A stage's copies are work of the compute stream."""
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    job = pipeline_job(where, "traced", "ONE_F_ONE_B", "CUDA", steps=3)
    spans = spans_of(traced(job.parent, job, workers=1, shards=2, stages=2))
    forwards = [len(found) for (lane, name), found in spans.items() if lane == "GPU: compute" and name.startswith("forward")]
    # Three steps of four microbatches.
    assert sum(forwards) == 12 and len(spans["GPU: compute", "backward"]) == 12, spans.keys()
    assert spans["GPU: compute", "copy to the device"], spans.keys()
    # An activation from the other stage's device, and its gradient for that one.
    assert len(spans["GPU: compute", "copy between devices"]) >= 24, spans.keys()


def group_job(where, reduction, workers=2, epochs=2, extra="", batch=20):
    job = small_job(where, liveness="2s", epochs=epochs, extra=f"device: CUDA\n{extra}")
    cluster = f"workers: {workers} group: {workers} group_reduction: {reduction} shards: 2"
    job.write_text(job.read_text().replace("workers: 2 shards: 2", cluster).replace("batch: 20", f"batch: {batch}"))
    return job


def a_node_group_adds_up_on_its_gpus_to_the_same_bits_as_on_the_host(where, runs):
    """The fake group adds up in the order of ranks, too. Uneven: the last steps of an epoch have samples for one rank only."""
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    data.write_idx(where / "data", train=570)
    ends = {}
    for reduction in ("ON_HOST", "ON_GPUS"):
        run = Run(group_job(where, reduction, epochs=2 if WHOLE else 1))
        runs.append(run)
        assert run.wait(120) == 0, reduction
        ends[reduction] = exported(run.out)
    assert_same_bits(ends["ON_GPUS"], ends["ON_HOST"], "added up on GPUs and on the host")
    # A GPU for each, or none.
    many = Run(group_job(where, "ON_GPUS", workers=3))
    runs.append(many)
    assert many.wait(60) == 1
    said = last_line(many.stderr())
    print(said)
    assert "ON_GPUS" in said and "a GPU for each worker" in said, said


def what_float16_cannot_hold_is_skipped_by_all_whose_gpus_add_up(where, runs):
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    data.write_idx(where / "data", train=120)  # 12 steps; float16 takes a CPU long
    scale = "precision: FLOAT16_AUTOCAST\nloss_scale { initial: 2097152 growth_interval: 3 }\n"
    ends, skipped = {}, {}
    for reduction in ("ON_HOST", "ON_GPUS"):
        run = Run(group_job(where, reduction, epochs=1, extra=scale, batch=5))
        runs.append(run)
        assert run.wait(240) == 0, reduction
        ends[reduction] = exported(run.out)
        skipped[reduction] = int(re.search(r"of which skipped (\d+)", run.stdout_path.read_text() + run.stderr()).group(1))
    print(f"{skipped} of 12 steps")
    assert skipped["ON_GPUS"] == skipped["ON_HOST"] and 2 <= skipped["ON_GPUS"] < 12, skipped
    assert_same_bits(ends["ON_GPUS"], ends["ON_HOST"], "added up on GPUs and on the host, with skipped steps")


def a_rank_that_is_killed_changes_nothing(where, runs):
    machine(where, DEVICES / "libfake_driver.so", DEVICES / "libfake_plugin.so")
    ends = []
    for kill in (False, True):
        # 120 steps, with little to compute in the short form.
        length = {"epochs": 8} if WHOLE else {"epochs": 2, "batch": 5}
        run = Run(group_job(where, "ON_GPUS", extra="max_restarts: 10\n", **length))
        runs.append(run)
        if kill:
            brake = Brake(run)
            for step, worker in ((20, "worker-1"), (60, "worker-0")):
                run.wait_for_step(step)
                run.lose_worker(worker)
            brake.release()
        assert run.wait(240) == 0, kill
        ends.append(exported(run.out))
    assert_same_bits(ends[1], ends[0], "with lost ranks and without")


main(
    stages_compute_on_devices_to_the_same_bits_as_on_the_cpu,
    stages_say_what_is_missing_for_their_device,
    the_gpu_has_metrics,
    a_trace_has_the_gpus_streams_beside_what_the_host_does,
    a_device_without_room_ends_the_job,
    a_stages_trace_has_its_gpus_work,
    a_node_group_adds_up_on_its_gpus_to_the_same_bits_as_on_the_host,
    a_rank_that_is_killed_changes_nothing,
    *([what_float16_cannot_hold_is_skipped_by_all_whose_gpus_add_up] if WHOLE else []),
    trains_through_a_device_to_the_same_bits_as_on_the_cpu,
    steps_as_cuda_graphs_come_to_the_same_bits,
    workers_share_out_the_gpus_of_their_machine,
    cuda_says_in_one_line_what_is_missing,
    auto_says_why_it_runs_on_the_cpu,
    what_the_real_plugin_lacks_is_one_line_too,
)
