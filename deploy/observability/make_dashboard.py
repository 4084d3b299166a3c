#!/usr/bin/env python3
"""Writes grafana_dashboard.json beside this file: each panel is a line or two here, and many more there.

  deploy/observability/make_dashboard.py            writes it
  deploy/observability/make_dashboard.py --print    prints it; //tests/observability:dashboard_test compares

Every query names $job and $run, so that a Prometheus that also follows other things shows nothing of them, and two runs of one job
file are two.
"""

import json
import pathlib
import sys

FILE = pathlib.Path(__file__).resolve().parent / "grafana_dashboard.json"
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
JOB = 'job=~"$job",run=~"$run"'
WIDTH, HEIGHT, COLUMNS = 8, 8, 3
LINE = 140


def rate(metric, *labels):
    return f"rate({metric}{{{','.join((JOB, *labels))}}}[$__rate_interval])"


def now(metric, *labels):
    return f"{metric}{{{','.join((JOB, *labels))}}}"


def quantiles(metric, by):
    """Median and 99th percentile of a histogram, as queries with their legends."""
    legend = " ".join(f"{{{{{label}}}}}" for label in by)
    buckets = f"sum by ({', '.join(('job', 'run', *by, 'le'))}) ({rate(metric + '_bucket')})"
    return [(f"histogram_quantile({q}, {buckets})", f"{{{{job}}}} {{{{run}}}} {legend} {name}".replace("  ", " ")) for q, name in ((0.5, "p50"), (0.99, "p99"))]


def mean_phases(role):
    """Seconds of each phase in a step of the mean process of a role. Evaluations are no part of a step."""
    of = (f'role="{role}"', 'phase!="evaluate"')
    total, count = (rate(f"parley_step_phase_duration_seconds_{part}", *of) for part in ("sum", "count"))
    return [(f"sum by (job, run, phase) ({total}) / sum by (job, run, phase) ({count})", "{{job}} {{run}} {{phase}}")]


COORDINATOR, SHARD, WORKER, STAGE = (f'role="{role}"' for role in ("coordinator", "shard", "worker", "stage"))
WAIT = 'phase="wait"'
MEMBER = "{{job}} {{run}} {{member}}"

# Row: (title, unit of Grafana, what an operator reads from it, [(query, legend)], options).
ROWS = {
    "Progress": [
        ("Last decided step", "none", "Stands still when the job does: then ask `parley why-stuck`.",
         [(f"max by (job, run) ({now('parley_step', COORDINATOR)})", "{{job}} {{run}}")]),
        ("Throughput (samples/s)", "short", "Samples of the training set that decided steps have used.",
         [(f"sum by (job, run) ({rate('parley_samples_total', COORDINATOR)})", "{{job}} {{run}}")]),
        ("Steps (1/s)", "short", "Decided steps; below zero where the job went back to a checkpoint.",
         [(f"max by (job, run) (deriv({now('parley_step', COORDINATOR)}[$__rate_interval]))", "{{job}} {{run}}")]),
        ("Loss", "none", "Mean over the samples of the last decided step. Noisy where steps are small.",
         [(f"max by (job, run) ({now('parley_loss', COORDINATOR)})", "{{job}} {{run}}")]),
        ("Loss scale", "none", "With `precision: FLOAT16_AUTOCAST`, by worker. One that falls and falls: the loss itself is not finite.",
         [(f"max by (job, run, member) ({now('parley_loss_scale')})", MEMBER)]),
        ("Throughput of each worker (samples/s)", "short", "One below the others holds a synchronous job up; in async only itself.",
         [(f"sum by (job, run, member) ({rate('parley_samples_total', WORKER)})", MEMBER)]),
        ("Alerts firing", "none", "By name; docs/alerts.md says of each what to do. Empty is good.",
         [('count by (job, run, alertname) (ALERTS{alertname=~"Parley.*",alertstate="firing",job=~"$job",run=~"$run"})', "{{job}} {{run}} {{alertname}}")]),
    ],
    "Members and epochs": [
        ("Members", "none", "That have joined and not left, by the coordinator, and how many are wanted; and processes that Prometheus reaches, by role.",
         [(f"max by (job, run) ({now('parley_members', COORDINATOR)})", "{{job}} {{run}} joined"),
          (f"max by (job, run) ({now('parley_expected_members', COORDINATOR)})", "{{job}} {{run}} wanted"),
          ('count by (job, run, role) (up{job=~"$job",run=~"$run",role=~"coordinator|shard|worker|stage"} == 1)', "{{job}} {{run}} {{role}} reached")]),
        ("Epochs", "none",
         "The view's rises with each change of membership, the job's with each return to a checkpoint, the generation with each coordinator. "
         "A member whose epoch stays behind has not heard of a change.",
         [(f"max by (job, run) ({now('parley_view_epoch', COORDINATOR)})", "{{job}} {{run}} view"),
          (f"max by (job, run) ({now('parley_job_epoch', COORDINATOR)})", "{{job}} {{run}} job"),
          (f"max by (job, run) ({now('parley_coordinator_generation')})", "{{job}} {{run}} coordinator"),
          (f"min by (job, run, role) ({now('parley_view_epoch')} > 0)", "{{job}} {{run}} oldest view of a {{role}}")]),
        ("Shards lost, steps done again", "none", "Since the coordinator's start. Each lost shard takes all back to the last checkpoint.",
         [(f"max by (job, run) ({now('parley_shards_lost_total')})", "{{job}} {{run}} shards"), (f"max by (job, run) ({now('parley_steps_lost_total')})", "{{job}} {{run}} steps")]),
    ],
    "Where a step's time goes": [
        ("A worker's step (s)", "s",
         "Mean over the job's workers. Much `wait`: slow shards, or a slow worker that the others wait for. Much `data`: the data source. "
         "`push` and `pull`: the network, or too few shards.", mean_phases("worker"), "stack"),
        ("A stage's step (s)", "s", "Jobs with pipelines: mean over the stages. What is no forward and no backward is the bubble, or messages.",
         mean_phases("stage"), "stack"),
        ("A shard's time (share)", "percentunit",
         "Mean over the shards: adding pushes (reduce), verdicts (apply), and verdicts before which what a checkpoint still held was copied. "
         "Near 100 %: more shards.",
         [(f"avg by (job, run, phase) ({rate('parley_step_phase_duration_seconds_sum', SHARD)})", "{{job}} {{run}} {{phase}}")], "stack"),
        ("Updates ahead (slices/s)", "short", "With `sync.update_ahead`: computed before the step was decided. Many that are dropped: the verdict comes before they are begun.",
         [(f"sum by (job, run, outcome) ({rate('parley_updates_ahead_total')})", "{{job}} {{run}} {{outcome}}")]),
        ("A shard's time with updates ahead (share)", "percentunit", "Of one thread, mean over the shards; beside what is shown of reduce and apply.",
         [(f"avg by (job, run) ({rate('parley_updates_ahead_seconds_total')})", "{{job}} {{run}}")]),
        ("Waiting, by worker (share of its time)", "percentunit", "In `sync` the one that waits least is the one that the others wait for.",
         [(f"sum by (job, run, member) ({rate('parley_step_phase_duration_seconds_sum', WORKER, WAIT)})", MEMBER)]),
    ],
    "Bytes": [
        ("Gradients into the shards (bytes/s)", "Bps", "By shard; they should be alike, as each has as much of the model.",
         [(f"sum by (job, run, member) ({rate('parley_push_bytes_total', SHARD)})", MEMBER)]),
        ("Parameters out of the shards (bytes/s)", "Bps", "By shard. About as much as goes in: each worker pulls what it has pushed to.", [(f"sum by (job, run, member) ({rate('parley_pull_bytes_total', SHARD)})", MEMBER)]),
        ("Sent and received, by worker (bytes/s)", "Bps", "A node group sends once for all its workers.",
         [(f"sum by (job, run, member) ({rate('parley_push_bytes_total', WORKER)})", MEMBER + " sent"),
          (f"sum by (job, run, member) ({rate('parley_pull_bytes_total', WORKER)})", MEMBER + " received")]),
        ("Copied for checkpoints and pulls (bytes/s)", "Bps", "Values that an update had to copy first, since a checkpoint or a pull on its way held them.",
         [(f"sum by (job, run) ({rate('parley_copied_bytes_total')})", "{{job}} {{run}}")]),
        ("Calls through shared memory (1/s)", "short",
         "By shard. 0 with workers on its machine: their containers may have network namespaces of their own.",
         [(f"sum by (job, run, member) ({rate('parley_local_calls_total')})", MEMBER)]),
        ("Calls over direct connections (1/s)", "short",
         "By process. Always 0 with TLS, the default beyond one machine: gRPC is used then. 0 without TLS on a job over several machines: a "
         "firewall lets gRPC through and not these; half the speed.",
         [(f"sum by (job, run, member) ({rate('parley_direct_calls_total')})", MEMBER)]),
    ],
    "Calls": [
        ("Duration by method (s)", "s", "As the answering process has it. Watch, Complete and Pull wait for others by design.",
         quantiles("parley_rpc_duration_seconds", ["method"])),
        ("Calls by method (1/s)", "short", "Answered, by all processes.",
         [(f"sum by (job, run, method) ({rate('parley_rpc_duration_seconds_count')})", "{{job}} {{run}} {{method}}")]),
        ("Calls by status (1/s)", "short",
         "ABORTED: a fenced process or a return to a checkpoint. FAILED_PRECONDITION: an old view. RESOURCE_EXHAUSTED: back-pressure.",
         [(f"sum by (job, run, code) ({rate('parley_rpc_duration_seconds_count')})", "{{job}} {{run}} {{code}}")]),
        ("Strangers refused (1/s)", "short", "Who sends garbage, has connected and says nothing, or has no credentials or those of another run.",
         [(f"sum by (job, run, why) ({rate('parley_refused_total')})", "{{job}} {{run}} {{why}}")]),
    ],
    "Pushes, verdicts, staleness": [
        ("Pushed slices by outcome (1/s)", "short", "duplicate: sent again after a fault, not applied twice. stale: too late for its step. fenced: of a former incarnation.",
         [(f"sum by (job, run, outcome) ({rate('parley_pushes_total')})", "{{job}} {{run}} {{outcome}}")]),
        ("Verdicts by outcome (1/s)", "short", "skip: gradients were not finite. retry: a contributor was lost half-way, the others send again.",
         [(f"sum by (job, run, outcome) ({rate('parley_verdicts_total', COORDINATOR)})", "{{job}} {{run}} {{outcome}}")]),
        ("Staleness (updates)", "none", "In `bounded` and `async`: updates of a slice between what a worker pulled and its push.",
         quantiles("parley_staleness_steps", [])),
        ("Late steps (1/s)", "short", "By worker: steps that the job went on without. With `backup` of the slowest one; else it was cut off.",
         [(f"sum by (job, run, member) ({rate('parley_late_steps_total')})", MEMBER)]),
        ("Contributions refused, ranges cut (1/s)", "short", "In `bounded` and `async`: too stale; and samples handed out again of which a push may have counted.",
         [(f"sum by (job, run) ({rate('parley_contributions_refused_total')})", "{{job}} {{run}} refused"), (f"sum by (job, run) ({rate('parley_ranges_cut_total')})", "{{job}} {{run}} cut")]),
    ],
    "Checkpoints": [
        ("Duration, mean of the last hour (s)", "s", "coordinator: from the order to the commit. shard: to write and sync its file.",
         [(f"sum by (job, run, role) (increase({now('parley_checkpoint_duration_seconds_sum')}[1h]))"
           f" / sum by (job, run, role) (increase({now('parley_checkpoint_duration_seconds_count')}[1h]))", "{{job}} {{run}} {{role}}")]),
        ("Age (steps)", "none", "Steps since the last whole checkpoint, or the one that the job has started from: what a lost shard would cost. All of the job's, "
         "where there is none.",
         [(f"max by (job, run) ({now('parley_step', COORDINATOR)}) - max by (job, run) ({now('parley_goes_back_to_step', COORDINATOR)})", "{{job}} {{run}}")]),
        ("Age (s)", "s", "The time that these steps take at the speed of the last five minutes. +Inf: the job stands still.",
         [(f"(max by (job, run) ({now('parley_step', COORDINATOR)}) - max by (job, run) ({now('parley_goes_back_to_step', COORDINATOR)}))"
           f" / clamp_min(max by (job, run) (deriv({now('parley_step', COORDINATOR)}[5m])), 0)", "{{job}} {{run}}")]),
        ("Failures", "none", "Checkpoints that could not be written, by process; its log says why. The previous one stays valid.",
         [(f"sum by (job, run, member) ({now('parley_checkpoint_failures_total')})", MEMBER)]),
        ("Barriers (share of time)", "percentunit", "In `bounded` and `async`: time in which no samples were handed out, as a checkpoint waited for those on their way.",
         [(f"sum by (job, run) ({rate('parley_checkpoint_barrier_wait_seconds_total')})", "{{job}} {{run}}")]),
    ],
    "Pipelines": [
        ("Bubble (share)", "percentunit", "Time of the last step in which a stage has not computed, by pipeline. `parley plan` says what to expect.",
         [(f"max by (job, run, member) ({now('parley_pipeline_bubble_ratio')})", MEMBER)]),
        ("Remote references", "none", "Values on one process that another one holds. They must not grow from step to step.",
         [(f"max by (job, run, member) ({now('parley_remote_references')})", MEMBER)]),
        ("Activations kept for their backward (bytes)", "bytes", "By stage; the first ones of a pipeline keep the most.",
         [(f"max by (job, run, member) ({now('parley_stage_activation_bytes')})", MEMBER)]),
    ],
    "GPUs": [
        ("Utilisation (share)", "percentunit", "By process, of its GPU, whoever uses it. Low: look at `wait` and `data` above.",
         [(f"max by (job, run, member) ({now('parley_gpu_utilization_ratio')})", MEMBER)]),
        ("Memory (share)", "percentunit", "By process, of its GPU, whoever uses it. Near 100 %: the next larger batch does not fit.",
         [(f"max by (job, run, member) ({now('parley_gpu_memory_used_bytes')} / {now('parley_gpu_memory_total_bytes')})", MEMBER)]),
        ("Bus (bytes/s)", "Bps", "By process and direction: gradients to the host, parameters to the device.",
         [(f"max by (job, run, member, direction) ({now('parley_gpu_bus_bytes_per_second')})", MEMBER + " {{direction}}")]),
        ("Streams, in a step (s)", "s", "Mean of a step, of each 64th: how long a stream is at work. The longest one is what a step cannot be shorter than.",
         [(f"sum by (job, run, role, stream) ({rate('parley_gpu_stream_duration_seconds_sum')})"
           f" / sum by (job, run, role, stream) ({rate('parley_gpu_stream_duration_seconds_count')})", "{{job}} {{run}} {{role}} {{stream}}")]),
    ],
    "Processes": [
        ("Memory (bytes)", "bytes", "Resident. A shard has values, optimizer state, and what is pushed; it must not grow for long.",
         [(f"max by (job, run, member) ({now('process_resident_memory_bytes')})", MEMBER)]),
        ("Processor time (cores)", "short", "Cores that each process keeps busy.", [(f"sum by (job, run, member) ({rate('process_cpu_seconds_total')})", MEMBER)]),
        ("Open files", "none", "Sockets too. One that grows without end comes up against `ulimit -n`.", [(f"max by (job, run, member) ({now('process_open_fds')})", MEMBER)]),
        ("Threads", "none", "Of each process; they do not grow once all have joined.", [(f"max by (job, run, member) ({now('process_threads')})", MEMBER)]),
        ("Programs by version", "none", "More than one of a job: a member was started from another build.",
         [(f"count by (job, run, version, role) ({now('parley_build_info')})", "{{job}} {{run}} {{role}} {{version}}")]),
    ],
}


def panel(number, x, y, title, unit, description, queries, stack=None):
    return {
        "id": number,
        "type": "timeseries",
        "title": title,
        "description": description,
        "datasource": SOURCE,
        "gridPos": {"x": x, "y": y, "w": WIDTH, "h": HEIGHT},
        "fieldConfig": {
            "defaults": {
                "unit": unit,
                "custom": {"fillOpacity": 30 if stack else 0, "showPoints": "never", "stacking": {"mode": "normal" if stack else "none"}},
            },
            "overrides": [],
        },
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}},
        "targets": [
            {"refId": chr(ord("A") + i), "datasource": SOURCE, "expr": query, "legendFormat": legend}
            for i, (query, legend) in enumerate(queries)
        ],
    }


def panels():
    made, y = [], 0
    for title, row in ROWS.items():
        made.append({"id": len(made) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
        y += 1
        for i, one in enumerate(row):
            made.append(panel(len(made) + 1, i % COLUMNS * WIDTH, y + i // COLUMNS * HEIGHT, *one))
        y += (len(row) + COLUMNS - 1) // COLUMNS * HEIGHT
    return made


def variable(name, label, query):
    """What is chosen at the top: as many of a label's values as one likes."""
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": SOURCE,
        "query": {"query": query, "refId": name},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
    }


def dashboard():
    return {
        "uid": "parley",
        "title": "parley",
        "description": "Jobs of parley: progress, members, where the time goes, checkpoints. Made by deploy/observability/make_dashboard.py.",
        "tags": ["parley"],
        "schemaVersion": 37,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {
            "list": [
                {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
                variable("job", "Job", "label_values(parley_build_info, job)"),
                variable("run", "Run", 'label_values(parley_build_info{job=~"$job"}, run)'),
            ]
        },
        "annotations": {"list": []},
        "links": [],
        "panels": panels(),
    }


def text_of(value, indent=0):
    """JSON with what fits into a line on one."""
    line = json.dumps(value)
    if not isinstance(value, (dict, list)) or len(line) + indent <= LINE:
        return line
    inner = " " * (indent + 2)
    if isinstance(value, dict):
        parts = [f"{json.dumps(key)}: {text_of(one, indent + 2)}" for key, one in value.items()]
    else:
        parts = [text_of(one, indent + 2) for one in value]
    first, last = "{}" if isinstance(value, dict) else "[]"
    return f"{first}\n" + ",\n".join(inner + part for part in parts) + f"\n{' ' * indent}{last}"


def main():
    text = text_of(dashboard()) + "\n"
    if sys.argv[1:] == ["--print"]:
        sys.stdout.write(text)
    elif not sys.argv[1:]:
        FILE.write_text(text)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
