"""A job whose ports everybody can reach: strangers are refused and counted, and training does not notice.

What it trains is compared, bit by bit, with a job that nobody disturbs.
"""

import argparse
import contextlib
import importlib
import pathlib
import re
import socket
import ssl
import struct
import subprocess
import sys

sys.path.insert(0, "tests/process")
import grpc
from support.brake import Brake
from support.jobs import Run, exported, main, scrape, small_job, wait_for
from support.programs import program

EXTRA = "consistency {{ sync {{ deterministic: true }} }}\ntls: {tls}\n"
MIB = 1 << 20
GROWTH = 300 * MIB  # of a process under attack, at most


class Secrets:
    """What lies in a job's file of credentials."""

    def __init__(self, path):
        text = path.read_text()
        assert path.stat().st_mode & 0o777 == 0o600, oct(path.stat().st_mode)
        self.token = re.search(r"^token: (\w+)$", text, re.MULTILINE).group(1)
        self.blocks = re.findall(r"-----BEGIN [A-Z ]+-----.*?-----END [A-Z ]+-----\n", text, re.DOTALL)
        self.files = []
        for name, block in zip(("authority", "certificate", "key"), self.blocks):
            self.files.append(path.parent / f"{name}.pem")
            self.files[-1].write_text(block)

    def channel(self, address):
        options = [("grpc.ssl_target_name_override", "parley"), ("grpc.max_send_message_length", -1)]
        if not self.blocks:
            return grpc.insecure_channel(address, options)
        authority, certificate, key = (block.encode() for block in self.blocks)
        return grpc.secure_channel(address, grpc.ssl_channel_credentials(authority, key, certificate), options)


def stubs(where):
    names = ["types", "job", "checkpoint", "direct", "coordinator", "parameter_shard"]
    subprocess.run(
        ["protoc", "-I.", f"--python_out={where}", f"--grpc_out={where}", "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin"]
        + [f"proto/{name}.proto" for name in names],
        check=True,
    )
    sys.path.insert(0, str(where))
    return [importlib.import_module(f"proto.{name}") for name in ("types_pb2", "coordinator_pb2", "coordinator_pb2_grpc", "parameter_shard_pb2", "parameter_shard_pb2_grpc")]


def connect(address):
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=30)


def code_of(call):
    try:
        call()
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


def memory(pid, what):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{what}:\s+(\d+) kB", text, re.MULTILINE).group(1)) * 1024


def refused(metrics):
    counts = {why: float(count) for why, count in re.findall(r'^parley_refused_total\{.*why="([^"]+)".*\} (\S+)$', metrics, re.MULTILINE)}
    assert len(counts) == 6, f"some have no series: {counts}"
    return {why: count for why, count in counts.items() if count > 0}


def shake_hands(address, secrets, authority):
    """As a client of TLS with this certificate, or none: whether the server lets it speak."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(authority.files[0])
    context.set_alpn_protocols(["h2"])
    if secrets:
        context.load_cert_chain(secrets.files[1], secrets.files[2])
    with contextlib.suppress(OSError), context.wrap_socket(connect(address), server_hostname="parley") as connection:
        connection.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]))
        return len(connection.recv(9)) > 0
    return False


def attack(addresses, own, other, idle):
    """Everything that needs no credentials of the job, at each address."""
    open_ones = []
    for address in addresses:
        assert not shake_hands(address, None, own)
        assert not shake_hands(address, other, own)
        for bytes_ in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * MIB, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"):
            stranger = connect(address)
            with contextlib.suppress(OSError):
                stranger.sendall(bytes_)
            open_ones.append(stranger)
        # A handshake that is begun and never goes on, and one that crawls.
        for _ in range(50):
            stranger = connect(address)
            stranger.sendall(b"\x16\x03\x01")
            open_ones.append(stranger)
        for _ in range(idle):
            open_ones.append(connect(address))
            if len(open_ones) > 900:  # of this process, too, there are only so many files
                open_ones.pop(0).close()
    return open_ones


def direct_frame(frame, tensor_bytes=0):
    return b"PLY1" + struct.pack("<IQ", len(frame), tensor_bytes) + frame


def is_ended(stranger, within=5):
    """Whether the other side ends the connection: within 5 s not for want of a hello."""
    stranger.settimeout(within)
    try:
        while stranger.recv(4096):  # it may say why
            pass
        return True
    except TimeoutError:
        return False
    except OSError:
        return True


def direct_port(stub, address, **metadata):
    """Where this shard takes direct connections: it tells whose call is the job's, and anybody may find it."""
    found = stub.FindDirect(importlib.import_module("proto.direct_pb2").FindDirectRequest(), timeout=60, **metadata)
    assert found.port, "the shard takes no direct connections"
    return re.sub(r":\d+$", f":{found.port}", address)


def attack_direct_with_tls(address, own, other):
    """Everything that can be sent to a port of direct connections without the job's certificate."""
    for bytes_ in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\0" * MIB, direct_frame(b"\x11" + bytes(8)), b"\x16\x03\x01\0\x40" + b"c" * 64):
        stranger = connect(address)
        with contextlib.suppress(OSError):
            stranger.sendall(bytes_)
        assert is_ended(stranger), bytes_[:8]
    assert not shake_hands(address, None, own)
    assert not shake_hands(address, other, own)
    # Who has the certificate is heard, but not without the token of this very process.
    assert not shake_hands(address, own, own)
    begun = [connect(address) for _ in range(200)]
    for stranger in begun:
        stranger.sendall(b"\x16\x03\x01\x02\x00\x01")
    strangers = begun + [connect(address) for _ in range(200)]
    assert is_ended(strangers[0]), "all of them wait"
    assert not is_ended(strangers[-1], within=0.1)
    return strangers


def attack_direct(address):
    """Everything that can be sent to a port of direct connections without the token that is said there first."""
    for frame in (
        b"\x2a\x00" * (4 * MIB),  # slices of nothing
        b"\x2a\x00" * 2000,
        b"\x0a" * MIB,
        b"\x11" + bytes(8),  # a hello to another process
    ):
        stranger = connect(address)
        with contextlib.suppress(OSError):
            stranger.sendall(direct_frame(frame))
        assert is_ended(stranger), frame[:8]
    stranger = connect(address)
    stranger.sendall(direct_frame(bytes(100), 256 * MIB)[:16])
    assert is_ended(stranger), "room is made for tensors"
    strangers = [connect(address) for _ in range(400)]
    assert is_ended(strangers[0]), "all of them wait"
    assert not is_ended(strangers[-1], within=0.1)
    return strangers


def job(where, runs, name, tls, epochs):
    folder = where / name
    folder.mkdir()
    run = Run(small_job(folder, epochs=epochs, extra=EXTRA.format(tls=tls)))
    runs.append(run)
    return run


def strangers_with_tls(where, runs):
    epochs = 6 + IDLE // 250  # it goes on for longer than they need
    undisturbed = job(where, runs, "undisturbed", "ON", epochs)
    assert undisturbed.wait() == 0, undisturbed.stderr()
    run = job(where, runs, "disturbed", "ON", epochs)
    brake = Brake(run, pause=0.4)  # also where the machine has other work
    run.wait_for_step(5)
    own, other = Secrets(run.out / "credentials"), Secrets(undisturbed.out / "credentials")
    assert own.token != other.token
    addresses, pids = run.addresses(), run.pids()
    attacked = [name for name in addresses if name == "coordinator" or name.startswith("shard")]
    before = {name: memory(pids[name], "VmRSS") for name in attacked}

    strangers = attack([addresses[name] for name in attacked], own, other, IDLE)
    # Who has the certificate is no stranger; but a message has its bounds, and an incarnation its own pushes.
    types, coordinator, coordinator_grpc, shard, shard_grpc = stubs(where)
    server = shard_grpc.ParameterShardStub(own.channel(addresses["shard-0"]))
    status = coordinator_grpc.CoordinatorStub(own.channel(addresses["coordinator"])).GetStatus(coordinator.GetStatusRequest(), timeout=60)
    worker = next(m.member for m in status.members if m.member.role == types.WORKER)
    header = types.CallHeader(job="small", member=worker.id, incarnation=worker.incarnation ^ 1, job_epoch=status.job_epoch, view_epoch=status.view_epoch)
    large = shard.PushRequest(header=header, slices=[types.SliceData(slice=0, dtype=types.F32, data=bytes(100 * MIB))])
    assert code_of(lambda: server.Push(large, timeout=60)) in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE)
    replayed = shard.PushRequest(header=header, step=status.step + 1, slices=[types.SliceData(slice=0, dtype=types.F32, data=bytes(400))])
    assert code_of(lambda: server.Push(replayed, timeout=60)) not in (grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED)

    # The port of direct connections is the shard's, too, and counts with its others.
    known = refused(scrape(run.addresses("metrics")["shard-0"]))
    strangers += attack_direct_with_tls(direct_port(server, addresses["shard-0"]), own, other)
    least = {"garbage": 5, "no certificate": 1, "wrong certificate": 1, "idle": 400 - 256}
    counted = lambda: all(refused(scrape(run.addresses("metrics")["shard-0"])).get(why, 0) - known.get(why, 0) >= count for why, count in least.items())
    wait_for("the strangers at the direct port to be counted", counted, 30)

    # Who has another job's credentials says why it does not come in.
    command = [program("parley-worker"), f"--job={run.out}/job.textproto", f"--coordinator={addresses['coordinator']}"]
    foreign = subprocess.run([*command, f"--credentials={undisturbed.out}/credentials", "--join_timeout=3s"], capture_output=True, text=True, timeout=60)
    said = re.findall(r"has not been taken in by (\S+) since \S+Z \(\d", foreign.stderr)
    assert foreign.returncode == 1 and 1 <= len(said) <= 3 and set(said) == {addresses["coordinator"]}, foreign

    seen = {}
    metrics = run.addresses("metrics")
    for name in attacked:
        seen[name] = refused(scrape(metrics[name]))
        grown = memory(pids[name], "VmHWM") - before[name]
        print(f"{name}: refused {seen[name]}; memory grew by {grown / MIB:.0f} MiB at most")
        assert {"garbage", "idle", "no certificate", "wrong certificate"} <= set(seen[name]), seen[name]
        assert grown < GROWTH, grown
    run.wait_for_step(int(status.step) + 1)  # with all of them still connected
    brake.release()
    assert run.wait() == 0, run.stderr()
    for stranger in strangers:
        stranger.close()
    assert exported(run.out) == exported(undisturbed.out), "strangers have changed what was trained"
    assert re.search(r'a stranger was refused.* from="?(one of )?127\.0\.0\.1:\d+', run.logs()["coordinator"]), run.logs()["coordinator"]
    assert own.token not in "".join(run.logs().values()), "a log tells the token"


def strangers_without_tls(where, runs):
    run = job(where, runs, "token", "OFF", 8 * HUGE // (256 * MIB))
    brake = Brake(run, pause=0.1)  # it goes on until the message is refused
    run.wait_for_step(2)
    own = Secrets(run.out / "credentials")
    assert not own.blocks
    types, coordinator, coordinator_grpc, shard, shard_grpc = stubs(where)
    control = coordinator_grpc.CoordinatorStub(own.channel(run.addresses()["coordinator"]))
    ask = lambda metadata: code_of(lambda: control.GetStatus(coordinator.GetStatusRequest(), timeout=60, metadata=metadata))
    assert ask([]) == grpc.StatusCode.UNAUTHENTICATED
    assert ask([("parley-token", own.token[:-1] + ("0" if own.token[-1] != "0" else "1"))]) == grpc.StatusCode.UNAUTHENTICATED
    assert ask([("parley-token", own.token)]) == grpc.StatusCode.OK
    # What follows the headers of one who is refused is thrown away as it comes.
    pid = run.pids()["shard-0"]
    before = memory(pid, "VmHWM")
    server = shard_grpc.ParameterShardStub(own.channel(run.addresses()["shard-0"]))
    huge = shard.PushRequest(slices=[types.SliceData(slice=0, dtype=types.F32, data=bytes(HUGE))])
    code = code_of(lambda: server.Push(huge, timeout=120, metadata=[("parley-token", "x")]))
    assert code == grpc.StatusCode.UNAUTHENTICATED, code
    grown = memory(pid, "VmHWM") - before
    print(f"shard-0: memory grew by {grown / MIB:.0f} MiB for a message of {HUGE / MIB:.0f} MiB")
    assert grown < 100 * MIB, grown
    direct = direct_port(server, run.addresses()["shard-0"], metadata=[("parley-token", own.token)])
    before = memory(pid, "VmHWM")
    metrics = run.addresses("metrics")["shard-0"]
    known = refused(scrape(metrics))
    strangers = attack_direct(direct)
    grown = memory(pid, "VmHWM") - before
    print(f"shard-0: memory grew by {grown / MIB:.0f} MiB under attack on its direct connections")
    assert grown < 100 * MIB, grown
    least = {"garbage": 4, "wrong token": 1, "idle": 400 - 256}
    counted = lambda: all(refused(scrape(metrics)).get(why, 0) - known.get(why, 0) >= count for why, count in least.items())
    wait_for("the strangers to be counted", counted, 30)
    print(f"shard-0: refused {known}, then {refused(scrape(metrics))}")
    brake.release()
    assert run.wait() == 0, run.stderr()
    for stranger in strangers:
        stranger.close()
    assert "tls: OFF" in run.logs()["shard-0"], "nobody has warned"


arguments = argparse.ArgumentParser()
arguments.add_argument("--idle", type=int, default=400, help="connections that say nothing, to each process")
IDLE = arguments.parse_args().idle
HUGE = (256 if IDLE < 1000 else 1024) * MIB
main(strangers_with_tls, strangers_without_tls)
