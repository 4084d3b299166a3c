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
LIVENESS, STALL = 2, 4  # seconds
FINISHED, FAILED = 5, 6  # coordinator.proto, Phase


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


class Heart:
    """Heartbeats on a thread of their own, by which the coordinator knows that the training thread gets on (docs/api.md)."""

    def __init__(self, beat, liveness):
        """beat(progress, moves): sends one."""
        self._beat, self._pause = beat, liveness / 4
        self._moves = self._waits = 0
        self._waiting = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def gets_on(self):
        """From the training thread: it has done something."""
        self._moves += 1

    def waits(self, call):
        """What the call answers; it may wait for others as long as they take."""
        self._waiting = True
        try:
            return call()
        finally:
            self._waiting = False
            self.gets_on()

    def stop(self):
        self._stop.set()
        self._thread.join()

    def _run(self):
        while not self._stop.wait(self._pause):
            self._waits += self._waiting
            try:
                self._beat(self._moves + self._waits, self._moves)
            except grpc.RpcError:
                pass  # the next one comes soon


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

        def beat(progress, moves):
            control.Heartbeat(coordinator.HeartbeatRequest(header=header, progress=progress, moves=moves), timeout=5)

        heart = Heart(beat, liveness=10)

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
            request = shard.CompleteRequest(header=header, step=step, attempt=0, part=0, share=share, none=[slice_of["b"]], data_epoch=0)
            return heart.waits(lambda: server.Complete(request, timeout=20)).verdict

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
        heart.stop()
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


def ends_after_a_long_step(where, says_progress):
    """How a job ends, the first of whose two steps takes longer than stall_timeout: its last phase, and the first cause."""
    types, coordinator, coordinator_grpc, shard, shard_grpc = stubs(where)
    job = where / "job.textproto"
    job.write_text(JOB + f'liveness: "{LIVENESS}s"\nstall_timeout: "{STALL}s"\n')
    with open(where / "coordinator.log", "w") as log, open(where / "shard.log", "w") as shard_log:
        processes = [
            subprocess.Popen([program("parley-coordinator"), f"--job={job}", f"--out={where}/out"], stderr=log),
            subprocess.Popen([program("parley-shard"), f"--job={job}", f"--coordinator=file:{where}/out/coordinator.address"], stderr=shard_log),
        ]
    heart = None
    try:
        path = where / "out/coordinator.address"
        control = coordinator_grpc.CoordinatorStub(grpc.insecure_channel(wait_for("the address file", lambda: path.exists() and path.read_text().strip(), 20)))
        header = types.CallHeader(job="by-hand", incarnation=random.getrandbits(64))
        header.member = control.Join(coordinator.JoinRequest(header=header, role=types.WORKER), timeout=5).member

        def beat(progress, moves):
            counts = {"progress": progress, "moves": moves} if says_progress else {}
            control.Heartbeat(coordinator.HeartbeatRequest(header=header, **counts), timeout=5)

        heart = Heart(beat, LIVENESS)
        tensors = [types.TensorSpec(name="w", dtype=types.F32, shape=[3])]
        control.RegisterModel(coordinator.RegisterModelRequest(header=header, tensors=tensors, training_samples=8), timeout=5)
        state = coordinator.WatchReply()

        def watch(until):
            """Until the job is in this phase, or has failed."""
            nonlocal state
            while state.phase not in (until, coordinator.FAILED):
                newer = control.Watch(coordinator.WatchRequest(header=header, seen_revision=state.revision), timeout=30)
                if newer.phase:
                    state = newer
            return state.phase == until

        assert watch(coordinator.PREPARING), state
        header.job_epoch, header.view_epoch = state.view.job_epoch, state.view.view_epoch
        server = shard_grpc.ParameterShardStub(grpc.insecure_channel(next(m.address for m in state.view.members if m.role == types.SHARD)))

        def again(call):
            end = time.monotonic() + 20
            while True:
                try:
                    return heart.waits(call)
                except grpc.RpcError as error:
                    if error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.FAILED_PRECONDITION) or time.monotonic() > end:
                        raise
                    time.sleep(0.1)

        values = [types.SliceData(slice=0, dtype=types.F32, data=np.zeros(3, "<f4").tobytes())]
        again(lambda: server.Initialize(shard.InitializeRequest(header=header, slices=values), timeout=5))
        assert watch(coordinator.TRAINING), state
        if not says_progress:  # it may compute as long as it likes: the coordinator does not wait
            watch(coordinator.FINISHED)
            return state.phase, state.cause.text
        for step in (1, 2):
            for _ in range(15 * STALL if step == 1 else 1):  # layers, say
                time.sleep(0.1)
                heart.gets_on()
            share = types.Share(contributor=0, weight=1, samples=4, ranges=[types.SampleRange(begin=4 * step - 4, end=4 * step)])
            # No gradient for the only slice: without `none` the step would never be decided.
            request = shard.CompleteRequest(header=header, step=step, share=share, none=[0])
            verdict = again(lambda: server.Complete(request, timeout=20)).verdict
            assert verdict.outcome == types.Verdict.APPLY, verdict
        control.Finish(coordinator.FinishRequest(header=header, last_step=2), timeout=5)
        watch(coordinator.FINISHED)
        return state.phase, state.cause.text
    finally:
        if heart:
            heart.stop()
        for process in processes:
            process.kill()
            process.wait()


def a_step_may_take_longer_than_stall_timeout(where, runs):
    assert ends_after_a_long_step(where, says_progress=True) == (FINISHED, ""), (where / "coordinator.log").read_text()


def who_says_nothing_of_progress_is_taken_to_hang(where, runs):
    phase, cause = ends_after_a_long_step(where, says_progress=False)
    assert phase == FAILED and "worker 0 " in cause and " is alive but has made no progress since " in cause, (phase, cause)
    print(cause)


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


main(
    trains_by_hand,
    a_step_may_take_longer_than_stall_timeout,
    who_says_nothing_of_progress_is_taken_to_hang,
    serves_reflection_and_health,
)
