"""A worker in Python, with nothing of ours but the .proto files: any gRPC client can take part.

Stubs come from protoc and gRPC's own plugin at run time. One shard, one contributor, SGD: the numbers are
checked by hand.
"""

import importlib
import random
import re
import subprocess
import sys
import threading
import time

sys.path.insert(0, "tests/process")
import grpc
import numpy as np
from support.jobs import main, wait_for
from support.programs import program
from support.reflection import check_reflection_and_health

JOB = """
name: "by-hand"
model { simple_cnn {} }
data { idx { directory: "/nowhere" } batch: 4 }
optimizer { sgd { rate: 0.5 } }
cluster { workers: 1 shards: 1 }
checkpoint { at_end: false }
steps: 2
"""


def stubs(where):
    """Modules made from proto/ by protoc."""
    names = ["types", "job", "checkpoint", "direct", "coordinator", "parameter_shard"]
    subprocess.run(
        ["protoc", "-I.", f"--python_out={where}", f"--grpc_out={where}", "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin"]
        + [f"proto/{name}.proto" for name in names],
        check=True,
    )
    sys.path.insert(0, str(where))
    return [importlib.import_module(f"proto.{name}") for name in ("types_pb2", "coordinator_pb2", "coordinator_pb2_grpc", "parameter_shard_pb2", "parameter_shard_pb2_grpc")]


def refused(call, code):
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code, error
        return error.details()
    raise AssertionError(f"not refused with {code}")


def trains_by_hand(where, runs):
    types, coordinator, coordinator_grpc, shard, shard_grpc = stubs(where)
    job = where / "job.textproto"
    job.write_text(JOB)
    logs = {name: open(where / f"{name}.log", "w") for name in ("coordinator", "shard")}
    processes = [
        subprocess.Popen([program("parley-coordinator"), f"--job={job}", f"--out={where}/out"], stderr=logs["coordinator"]),
        subprocess.Popen([program("parley-shard"), f"--job={job}", f"--coordinator=file:{where}/out/coordinator.address"], stderr=logs["shard"]),
    ]
    try:
        address = wait_for("the address file", lambda: (where / "out/coordinator.address").exists() and (where / "out/coordinator.address").read_text().strip(), 20)
        control = coordinator_grpc.CoordinatorStub(grpc.insecure_channel(address))
        incarnation = random.getrandbits(64)

        fingerprint = wait_for(
            "the job's fingerprint from a refused join",
            lambda: refused(
                lambda: control.Join(
                    coordinator.JoinRequest(header=types.CallHeader(job="another", incarnation=incarnation), role=types.WORKER), timeout=5
                ),
                grpc.StatusCode.NOT_FOUND,
            ),
            10,
        )
        print("another job is refused:", fingerprint)

        def join():
            return control.Join(
                coordinator.JoinRequest(
                    header=types.CallHeader(job="by-hand", incarnation=incarnation), role=types.WORKER, address="127.0.0.1:1"
                ),
                timeout=5,
            )

        joined = join()
        assert join() == joined, "a repeated Join gives the same member"
        header = types.CallHeader(job="by-hand", member=joined.member, incarnation=incarnation)

        stop = threading.Event()

        def heartbeats():
            while not stop.wait(1):
                control.Heartbeat(coordinator.HeartbeatRequest(header=header), timeout=5)

        threading.Thread(target=heartbeats, daemon=True).start()

        tensors = [
            types.TensorSpec(name="w", dtype=types.F32, shape=[2, 3]),
            types.TensorSpec(name="b", dtype=types.F32, shape=[3]),
        ]
        control.RegisterModel(coordinator.RegisterModelRequest(header=header, tensors=tensors, training_samples=8), timeout=5)

        revision, view = 0, None
        while view is None or not view.slices:
            state = control.Watch(coordinator.WatchRequest(header=header, seen_revision=revision), timeout=30)
            revision, view = state.revision, state.view
        assert [t.name for t in view.tensors] == ["w", "b"]
        assert len(view.slices) == 2 and view.total_steps == 2
        header.job_epoch, header.view_epoch = view.job_epoch, view.view_epoch
        server = shard_grpc.ParameterShardStub(grpc.insecure_channel(next(m.address for m in view.members if m.role == types.SHARD)))

        w = np.arange(6, dtype=np.float32).reshape(2, 3)
        b = np.float32([10, 20, 30])
        slice_of = {view.tensors[s.tensor].name: s.id for s in view.slices}

        def data(name, array):
            return types.SliceData(slice=slice_of[name], dtype=types.F32, data=array.astype("<f4").tobytes())

        def retried(call):
            """UNAVAILABLE and FAILED_PRECONDITION mean: not yet."""
            end = time.monotonic() + 20
            while True:
                try:
                    return call()
                except grpc.RpcError as error:
                    if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION) or time.monotonic() > end:
                        raise
                    time.sleep(0.1)

        retried(lambda: server.Initialize(shard.InitializeRequest(header=header, slices=[data("w", w), data("b", b)]), timeout=5))

        def pull(version):
            reply = server.Pull(shard.PullRequest(header=header, version=version, slices=[slice_of["w"], slice_of["b"]]), timeout=20)
            assert reply.version == version
            values = [np.frombuffer(s.data, "<f4") for s in reply.slices]
            return values[0].reshape(2, 3), values[1]

        got = pull(0)
        assert np.array_equal(got[0], w) and np.array_equal(got[1], b)

        g = np.float32([[1, 2, 3], [4, 5, 6]])

        def push(step, member_header=header):
            return server.Push(
                shard.PushRequest(header=member_header, step=step, attempt=0, contributor=joined.ordinal, part=0, slices=[data("w", g)]), timeout=5
            ).outcomes

        assert list(push(1)) == [shard.ADDED]
        assert list(push(1)) == [shard.DUPLICATE], "the same identity is not added twice"
        older = types.CallHeader()
        older.CopyFrom(header)
        older.incarnation ^= 1
        print("another incarnation is refused:", refused(lambda: push(1, older), grpc.StatusCode.ABORTED))
        print(
            "a wrong size is refused:",
            refused(
                lambda: server.Push(
                    shard.PushRequest(header=header, step=1, contributor=0, slices=[types.SliceData(slice=slice_of["w"], dtype=types.F32, data=b"123")]),
                    timeout=5,
                ),
                grpc.StatusCode.INVALID_ARGUMENT,
            ),
        )

        def complete(step, begin):
            share = types.Share(contributor=0, weight=1, samples=4, ranges=[types.SampleRange(begin=begin, end=begin + 4)], loss_sum=8.0)
            return server.Complete(
                shard.CompleteRequest(header=header, step=step, attempt=0, part=0, share=share, none=[slice_of["b"]], data_epoch=0), timeout=20
            ).verdict

        verdict = complete(1, 0)
        assert verdict.outcome == types.Verdict.APPLY and verdict.total_weight == 1.0, verdict
        assert complete(1, 0) == verdict, "a repeated Complete gives the same verdict"
        got = pull(1)
        assert np.array_equal(got[0], w - np.float32(0.5) * g), got
        assert np.array_equal(got[1], b), "no gradient: untouched"

        assert list(push(1)) == [shard.STALE]
        assert list(push(2)) == [shard.ADDED]
        assert complete(2, 4).outcome == types.Verdict.APPLY
        got = pull(2)
        assert np.array_equal(got[0], w - np.float32(0.5) * g - np.float32(0.5) * g)

        control.Finish(coordinator.FinishRequest(header=header, last_step=2), timeout=5)
        phase = 0
        while phase != coordinator.FINISHED:
            state = control.Watch(coordinator.WatchRequest(header=header, seen_revision=revision), timeout=30)
            revision, phase = state.revision, state.phase
            assert phase != coordinator.FAILED, state.cause
        stop.set()
        control.Leave(coordinator.LeaveRequest(header=header), timeout=5)
        for process in processes:
            assert process.wait(20) == 0
        print("coordinator and shard ended with 0")
    except BaseException:
        for name in logs:
            print(f"---- {name}\n{(where / f'{name}.log').read_text()[-4000:]}")
        raise
    finally:
        for process in processes:
            process.kill()
            process.wait()


def serves_reflection_and_health(where, runs):
    job = where / "job.textproto"
    job.write_text(JOB)
    log = where / "shard.log"
    with open(log, "w") as stderr:
        processes = [
            subprocess.Popen([program("parley-coordinator"), f"--job={job}", f"--out={where}/out"], stderr=subprocess.DEVNULL),
            subprocess.Popen([program("parley-shard"), f"--job={job}", f"--coordinator=file:{where}/out/coordinator.address"], stderr=stderr),
        ]
    try:
        path = where / "out/coordinator.address"
        check_reflection_and_health(wait_for("the address file", lambda: path.exists() and path.read_text().strip(), 20), "parley.Coordinator")
        serving = wait_for("the shard to serve", lambda: re.search(r" serving address=(\S+)", log.read_text()), 20)
        check_reflection_and_health(serving.group(1), "parley.ParameterShard")
    finally:
        for process in processes:
            process.kill()
            process.wait()


main(trains_by_hand, serves_reflection_and_health)
