"""Of two workers on Fashion-MNIST one is killed half-way through the first epoch: the other goes on, a late one takes part
from the first step of its view, and the accuracy after five epochs is that of the undisturbed run within 0.02."""

import pathlib
import re
import sys

sys.path.insert(0, "tests/process")
from support.jobs import Run, main

TOLERANCE = 0.02
JOB = pathlib.Path("deploy/jobs/fashion_mnist.textproto")


def accuracy(run):
    lines = re.findall(r"epoch 5 .*?accuracy (\d\.\d+)", run.stdout())
    assert lines, run.stdout()
    return float(lines[-1])


def fashion_mnist(where):
    job = where / "job.textproto"
    job.write_text(JOB.read_text().replace("workers: 2", "workers: 2 min_workers: 1") + 'liveness: "2s"\n')
    return job


def late_one_takes_part(where, runs):
    run = Run(fashion_mnist(where))
    runs.append(run)
    run.wait_for_step(150)
    run.lose_worker("worker-1")
    alone = int(run.answer()["step"])
    run.wait_for_step(alone + 100)
    late = run.start_late_worker()
    assert run.wait(900) == 0, run.process.returncode
    assert late.wait(300) == 0, late.returncode
    views = {
        int(view): (int(step), contributors)
        for log in run.logs().values()
        for view, step, contributors in re.findall(r"a view governs view_epoch=(\d+) from_step=(\d+) .*contributors=(\S+)", log)
    }
    entered = int(re.search(r" training from_step=(\d+)", (run.out / "late.log").read_text()).group(1))
    begins, contributors = views[max(views)]
    print(f"one worker from step {views[2][0]}, two again from step {begins} (view {max(views)}), the late one from step {entered}")
    assert contributors == "0,1", views
    assert entered == begins, (entered, views)

    undisturbed = Run(fashion_mnist(where))
    runs.append(undisturbed)
    assert undisturbed.wait(900) == 0, undisturbed.process.returncode
    print(f"accuracy after 5 epochs: {accuracy(run)} disturbed, {accuracy(undisturbed)} undisturbed")
    assert abs(accuracy(run) - accuracy(undisturbed)) <= TOLERANCE


main(late_one_takes_part)
