"""Every role's /metrics is what promtool accepts, holds what docs/operating.md lists for the role and nothing else, and moves.

Three jobs, since some metrics are of pipelines or of `bounded` only. In each of them all that should rise or change while a job trains
does so between a first scrape of every process and later ones. Outcomes and failures that have not occurred are there, and 0.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

sys.path.insert(0, "tests/process")
from support.jobs import Run, main, scrape, small_job, wait_for
from support.programs import program

PROMTOOL = os.environ.get("PARLEY_TEST_PROMTOOL", os.path.expanduser("~/.cache/parley/tools/promtool"))
ROLES = {"coordinator", "shard", "stage", "worker"}
# Without a GPU and a loss scale.
NOT_HERE = {"parley_loss_scale", "parley_gpu_memory_used_bytes", "parley_gpu_memory_total_bytes",
            "parley_gpu_utilization_ratio", "parley_gpu_bus_bytes_per_second", "parley_gpu_stream_duration_seconds"}
PROCESS = ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_virtual_memory_bytes", "process_start_time_seconds",
           "process_virtual_memory_max_bytes", "process_threads", "process_open_fds", "process_max_fds"]


def histogram(name, **labels):
    """Its two series that rise."""
    inside = "{" + ",".join(f'{key}="{value}"' for key, value in labels.items()) if labels else ""
    return [f"{name}_count{inside}", f"{name}_sum{inside}"]


def phases(*names):
    return [series for name in names for series in histogram("parley_step_phase_duration_seconds", phase=name)]


def calls(method):
    return histogram("parley_rpc_duration_seconds", code="OK", method=method)


BYTES = ["parley_push_bytes_total", "parley_pull_bytes_total"]
CHECKPOINTS = [*histogram("parley_checkpoint_duration_seconds"), "parley_checkpoint_last_step"]
APPLIED = 'parley_verdicts_total{outcome="apply"'
# While a job trains; a series is the beginning of its line. Calls through shared memory rise since all that has parameters takes it by
# itself where the shards are on its machine: nothing here asks for it.
RISES = {
    "coordinator": ["parley_samples_total", "parley_goes_back_to_step", APPLIED, *CHECKPOINTS, *calls("ReportVerdicts")],
    "shard": ['parley_pushes_total{outcome="added"', "parley_local_calls_total", *BYTES, *CHECKPOINTS, *calls("Push"), *phases("reduce")],
    "stage": ["parley_samples_total", *BYTES, *calls("WhatFor"), *calls("Call"), *phases("forward", "backward", "push", "wait", "pull", "evaluate")],
    "worker": ["parley_samples_total", *calls("WhatFor"), *phases("data", "push", "wait", "pull", "evaluate")],
}
APPLIES = [APPLIED, *phases("apply")]
COMPUTES = [*BYTES, *phases("forward", "backward")]
CHANGES = {
    "coordinator": ["parley_loss"],
    "shard": [],
    "stage": ["parley_loss", "parley_remote_references", "parley_stage_activation_bytes"],
    "worker": ["parley_loss"],
}
# Where nothing goes wrong: there, so that the first one is seen as a rise.
STRANGERS = [f'parley_refused_total{{why="{why}"' for why in ("garbage", "idle", "no certificate", "wrong certificate", "no token", "wrong token")]
ZERO = {
    "coordinator": ['parley_verdicts_total{outcome="skip"', 'parley_verdicts_total{outcome="retry"', "parley_checkpoint_failures_total",
                    "parley_shards_lost_total", "parley_steps_lost_total", *STRANGERS],
    "shard": ['parley_pushes_total{outcome="duplicate"', 'parley_pushes_total{outcome="stale"', 'parley_pushes_total{outcome="fenced"',
              'parley_verdicts_total{outcome="skip"', 'parley_verdicts_total{outcome="retry"', "parley_checkpoint_failures_total",
              "parley_ranges_cut_total", *STRANGERS],
    "stage": STRANGERS,
    "worker": ["parley_late_steps_total", *STRANGERS],
}


def documented():
    """Each name of the table in docs/operating.md with the roles that have it."""
    rows = re.findall(r"^\| (`parley_.*?) \| (.*?) \|", pathlib.Path("docs/operating.md").read_text(), re.M)
    of = {}
    for names, roles in rows:
        having = ROLES if roles == "all" else set(re.findall(r"\w+", roles.replace("step leader", "shard"))) & ROLES
        of.update(dict.fromkeys(re.findall(r"`(parley_\w+)", names), having))
    assert len(of) > 25 and all(of.values()), of
    return of


def value(text, series):
    """The sum over all lines that begin so."""
    found = re.findall(rf"^{re.escape(series)}[{{,].* (\S+)$", text, re.M)
    assert found, f"there is no {series}:\n{text}"
    return sum(map(float, found))


def start(where, runs, cluster, extra):
    job = small_job(where, liveness="3s", epochs=100000, extra=f'checkpoint {{ every: "1s" keep_last: 2 }}\n{extra}')
    job.write_text(job.read_text().replace("workers: 2 shards: 2", cluster))
    run = Run(job)
    runs.append(run)
    run.wait_for_step(5)
    return run


def operate(run, *arguments):
    command = [program("parley"), *arguments, f"--coordinator=file:{run.out}/coordinator.address"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done


def endpoints(run):
    """By member, of all that the job's file for Prometheus lists."""
    groups = json.loads((run.out / "targets.json").read_text())
    assert all((group["labels"]["job"], group["labels"]["run"]) == ("small", run.out.name) for group in groups), groups
    targets = [target for group in groups for target in group["targets"]]
    found = {re.search(r'^parley_build_info{.*member="([^"]+)"', scrape(target), re.M).group(1): target for target in targets}
    assert len(found) == len(targets), targets
    return found


def role_of(member):
    return member.partition("-")[0]


def is_accepted_and_complete(member, text, not_here):
    done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True, text=True)
    assert done.returncode == 0, f"{member}: {done.stdout}{done.stderr}"
    role = role_of(member)
    samples = re.findall(r"^parley_.*", text, re.M)
    labels = ('job="small"', f'role="{role}"', f'member="{member}"')
    assert all(label in line for line in samples for label in labels), f"{member}: {text}"
    names = {re.sub(r"_(bucket|sum|count)$", "", re.match(r"\w+", line).group(0)) for line in samples}
    expected = {name for name, roles in documented().items() if role in roles} - not_here
    assert names - NOT_HERE == expected, f"{member}: missing {expected - names}, not documented {names - expected}"
    for name in PROCESS:
        assert value(text, name) > 0, f"{member}: {name}"
    assert value(text, "parley_build_info") == 1, member
    for series in ZERO[role]:
        assert value(text, series) == 0, f"{member}: {series} is {value(text, series)}"


def all_move(run, also_rise):
    """The endpoints, and what each said first. also_rise: of this job, by role or member."""
    operate(run, "why-stuck")  # the only call by gRPC that workers and stages answer
    targets = endpoints(run)
    bubble = {"parley_pipeline_bubble_ratio"}  # of a pipeline's worker
    is_pipeline = "stage-0" in targets
    first = {member: scrape(target) for member, target in targets.items()}
    for member, text in first.items():
        is_accepted_and_complete(member, text, NOT_HERE if is_pipeline else NOT_HERE | bubble)
    for name in ("parley_job_epoch", "parley_view_epoch"):
        epochs = {member: value(text, name) for member, text in first.items()}
        assert len(set(epochs.values())) == 1 and 0 not in epochs.values(), f"{name} is not the same everywhere: {epochs}"
    operate(run, "why-stuck")
    rise, change = set(), {("worker-0", name) for name in bubble if is_pipeline}
    for member in targets:
        role = role_of(member)
        series = ["parley_step", "process_cpu_seconds_total", *RISES[role], *also_rise.get(role, []), *also_rise.get(member, [])]
        rise.update((member, one) for one in series)
        change.update((member, one) for one in CHANGES[role])
    still = rise | change

    def all_have_moved():
        now = {member: scrape(target) for member, target in targets.items()}
        for member, series in sorted(still):
            before, after = value(first[member], series), value(now[member], series)
            if after > before or (after < before and (member, series) in change):
                still.remove((member, series))
        return not still

    try:
        wait_for("all series to move", all_have_moved, 60)
    except AssertionError as error:
        raise AssertionError(f"{error}; these do not: {sorted(still)}") from None
    print(f"{len(targets)} endpoints accepted by promtool; {len(rise)} series have risen, {len(change)} have changed")
    return targets, first


def those_of_a_synchronous_job_move(where, runs):
    run = start(where, runs, "workers: 2 min_workers: 1 shards: 2", "max_restarts: 1\n")
    targets, first = all_move(run, {"shard": APPLIES, "worker": COMPUTES})
    coordinator = first["coordinator"]
    assert [value(coordinator, f"parley_{name}") for name in ("coordinator_generation", "members", "expected_members", "wanted_workers")] == [1, 4, 4, 2], coordinator
    assert value(first["shard-0"], "parley_staleness_steps_count") == 0

    # What moves only when members come and go.
    def wait_until_all(but, name):
        left = [member for member in targets if member not in but]
        wait_for(f"a new {name}", lambda: all(value(scrape(targets[member]), name) > value(first[member], name) for member in left), 60)

    operate(run, "drain", "worker-1")
    wait_until_all({"worker-1"}, "parley_view_epoch")
    wait_for("one member fewer", lambda: value(scrape(targets["coordinator"]), "parley_members") == 3, 60)
    wanted = value(scrape(targets["coordinator"]), "parley_wanted_workers")
    assert wanted == 1, f"parley_wanted_workers is {wanted}"
    os.kill(run.pids()["shard-1"], signal.SIGKILL)
    wait_until_all({"worker-1", "shard-1"}, "parley_job_epoch")
    told = r" lost member=shard-1 id=\d+ address=\S+ heard_of=\S+Z why=.*shard 1 at .*"
    wait_for("the loss in the log", lambda: re.search(told, run.logs()["coordinator"]), 30)  # written after the metrics
    lost = value(scrape(targets["coordinator"]), "parley_shards_lost_total")
    assert lost == 1, f"parley_shards_lost_total is {lost}"


def those_of_a_pipeline_move(where, runs):
    run = start(where, runs, "workers: 1 shards: 1 stages: 2", "accumulate: 2\n")
    targets, _ = all_move(run, {"shard": APPLIES, "worker": calls("Call")})
    assert sorted(targets) == ["coordinator", "shard-0", "stage-0", "stage-1", "worker-0"], targets


def those_of_a_bounded_job_move(where, runs):
    run = start(where, runs, "workers: 2 shards: 2", "consistency { bounded { bound: 2 } }\n")
    # Every push is applied as it comes; the leader alone has verdicts.
    leader = [*APPLIES, "parley_checkpoint_barriers_total", "parley_checkpoint_barrier_wait_seconds_total"]
    staleness = histogram("parley_staleness_steps")
    all_move(run, {"shard": staleness, "shard-0": leader, "worker": COMPUTES})


main(those_of_a_synchronous_job_move, those_of_a_pipeline_move, those_of_a_bounded_job_move, at_once=2)
