"""history.jsonl tells a job's course, and TensorBoard shows the same, read by the tensorboard package itself."""

import datetime
import json
import re
import signal
import sys

sys.path.insert(0, "tests/process")
import numpy as np
from support.integer_job import IntegerJob
from support.jobs import Run, main, small_job, wait_for
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

TORN = '{"time":"2026-11-'
EVERYWHERE = {
    "time": str, "kind": str, "generation": int, "job_epoch": int, "view_epoch": int, "step": int, "data_epoch": int,
    "samples": int, "workers": int,
}  # fmt: skip
OF_KIND = {
    "start": {"goes_on"},
    "view": {"went_back", "start_step", "start_from"},
    "step": {"loss", "samples_per_second"},
    "evaluation": {"epoch", "test_samples", "loss", "accuracy", "top5"},
    "checkpoint": {"outcome"},
    "end": {"outcome", "checkpoint"},
}


def history(out, torn=()):
    """All lines, but for those in `torn`, which must be there."""
    text = (out / "history.jsonl").read_text()
    assert text.endswith("\n"), text[-200:]
    lines = text.splitlines()
    for line in torn:
        lines.remove(line)
    return [json.loads(line) for line in lines]


def of_kind(lines, kind):
    return [line for line in lines if line["kind"] == kind]


def seconds(line):
    return datetime.datetime.fromisoformat(line["time"]).timestamp()


def check_form(lines):
    for line in lines:
        for field, kind in EVERYWHERE.items():
            assert type(line[field]) is kind, f"{field} of {line}"
        missing = OF_KIND[line["kind"]] - line.keys()
        if line["kind"] == "checkpoint":
            missing |= ({"directory", "seconds"} if line["outcome"] == "whole" else {"error"}) - line.keys()
        assert not missing, f"{missing} are missing in {line}"
    times = [seconds(line) for line in lines]
    assert times == sorted(times), times


def expected_points(lines):
    """Of each tag (step, value, time): what a reader of the history would draw, without what was done again."""
    points = {}

    def add(tag, line, value):
        points.setdefault(tag, []).append((line["step"], float(np.float32(value)), seconds(line)))

    for line in lines:
        if line["kind"] == "view" and line["went_back"]:
            points = {tag: [p for p in old if p[0] <= line["start_step"]] for tag, old in points.items()}
        elif line["kind"] == "step":
            add("train/loss", line, line["loss"])
            add("train/samples_per_second", line, line["samples_per_second"])
            add("workers", line, line["workers"])
        elif line["kind"] == "evaluation":
            for name in ("loss", "accuracy", "top5"):
                add(f"test/{name}", line, line[name])
    return points


def check_board(folder, lines):
    board = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    expected = expected_points(lines)
    assert sorted(board.Tags()["scalars"]) == sorted(expected), board.Tags()
    for tag, points in expected.items():
        shown = board.Scalars(tag)
        assert [(p.step, p.value) for p in shown] == [p[:2] for p in points], f"{tag}: {shown} is not {points}"
        for event, point in zip(shown, points, strict=True):
            assert abs(event.wall_time - point[2]) < 0.0011, f"{tag}: {event} is not of {point}"
    return sum(len(points) for points in expected.values())


def the_course_of_a_job_is_told(where, runs):
    extra = '\ncheckpoint { every_steps: 10 keep_last: 0 }\ntensorboard: "board"\n'
    run = Run(small_job(where, epochs=2, extra=extra))
    runs.append(run)
    assert run.wait() == 0
    lines = history(run.out)
    check_form(lines)
    assert [lines[0]["kind"], lines[-1]["kind"]] == ["start", "end"], lines
    assert lines[0]["goes_on"] is False and lines[-1]["outcome"] == "finished"
    assert lines[-1]["checkpoint"] == str(run.out / "checkpoints/step-00000030"), lines[-1]

    steps = of_kind(lines, "step")
    told = [line["step"] for line in steps]
    assert told == sorted(set(told)) and told[-1] == 30, told
    assert all(line["samples"] == 40 * line["step"] for line in steps), steps
    assert all(line["workers"] == 2 and line["loss"] > 0 for line in steps[:-1]), steps
    assert len(of_kind(lines, "view")) == 1 and not of_kind(lines, "view")[0]["went_back"]

    # What `parley run` prints of each evaluation.
    printed = re.findall(r"epoch (\d+)  step (\d+)  accuracy (\S+)  top-5 (\S+)  loss (\S+)", run.stdout())
    told = [
        (str(e["epoch"]), str(e["step"]), f"{e['accuracy']:.4f}", f"{e['top5']:.4f}", f"{e['loss']:.4f}")
        for e in of_kind(lines, "evaluation")
    ]
    assert told == printed and [line[1] for line in told] == ["15", "30"], f"{told} is not {printed}"

    whole = {line["directory"] for line in of_kind(lines, "checkpoint") if line["outcome"] == "whole"}
    assert whole <= {str(path) for path in (run.out / "checkpoints").glob("step-*")} and len(whole) >= 1, whole
    points = check_board(run.out / "board", lines)
    print(f"{len(lines)} lines, of which {len(steps)} are steps; {points} points in TensorBoard")


def one_that_fails_says_why(where, runs):
    run = Run(small_job(where, epochs=1000))
    runs.append(run)
    run.wait_for_step(3)
    run.process.send_signal(signal.SIGINT)
    assert run.wait() == 1
    lines = history(run.out)
    end = lines[-1]
    assert end["kind"] == "end" and end["outcome"] == "preempted", end
    assert "SIGINT" in end["cause"], end
    assert of_kind(lines, "step")[-1]["step"] == end["step"], lines[-3:]
    assert not (run.out / "tensorboard").exists()


def what_is_done_again_is_shown_once(where, runs):
    """The coordinator is lost, in the middle of a line, and another one goes on; a shard is lost, and all go back."""
    job = IntegerJob(where, workers=2, shards=2, epochs=30, liveness="2s", pause="50ms", elements="1000,7",
                     extra='max_restarts: 9 checkpoint { every_steps: 20 keep_last: 2 } tensorboard: "board"')  # fmt: skip
    runs.append(job)
    job.wait_for_step(10)
    job.send("coordinator", signal.SIGKILL)
    wait_for("its end", lambda: job.processes["coordinator"].poll() is not None, 30)
    with open(job.out / "history.jsonl", "a") as file:
        file.write(TORN)
    job.start_coordinator()
    wait_for("another coordinator", lambda: job.step() >= 0, 60)
    wait_for("a whole checkpoint", lambda: " a checkpoint is whole " in job.coordinator_logs(), 60)
    job.wait_for_step(job.step() + 8)
    job.send("shard-1", signal.SIGKILL)
    job.start_shard()
    ends = job.wait_for_end([name for name in job.processes if name not in ("coordinator", "shard-1")])
    assert all(code == 0 for code in ends.values()), ends
    job.check_sums()

    lines = history(job.out, torn=[TORN])
    check_form(lines)
    assert [line["generation"] for line in of_kind(lines, "start")] == [1, 2], of_kind(lines, "start")
    assert [line["goes_on"] for line in of_kind(lines, "start")] == [False, True]
    back = [line for line in of_kind(lines, "view") if line["went_back"]]
    # One whose turn passed while no coordinator ruled is written as soon as one does, of another step.
    whole = {int(step) for step in re.findall(r" a checkpoint is whole .*\bstep=(\d+)", job.coordinator_logs())}
    assert len(back) == 1 and back[0]["job_epoch"] == 2 and back[0]["start_step"] in whole, (back, whole)
    steps = [(line["job_epoch"], line["step"]) for line in of_kind(lines, "step")]
    assert steps == sorted(set(steps)), steps
    again = len(steps) - len({step for _, step in steps})
    told = any(epoch == 1 and step > back[0]["start_step"] for epoch, step in steps)
    assert back[0]["steps_lost"] > 0 if told else back[0]["steps_lost"] < 8, (back, steps)
    assert len(list((job.out / "board").iterdir())) == 2
    points = check_board(job.out / "board", lines)
    print(f"{len(lines)} lines over two coordinators; {again} steps told again; {points} points in TensorBoard")


main(the_course_of_a_job_is_told, one_that_fails_says_why, what_is_done_again_is_shown_once)
