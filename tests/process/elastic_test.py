"""A worker of a job that can spare it is killed: the others go on and finish; a new one takes part."""

import sys

sys.path.insert(0, "tests/process")
from support.brake import Brake
from support.jobs import Run, job_of_small_steps, main, wait_for


def a_worker_is_replaced(where, runs):
    job = job_of_small_steps(where, liveness="2s", epochs=5)
    job.write_text(job.read_text().replace("workers: 2", "workers: 2 min_workers: 1"))
    run = Run(job)
    runs.append(run)
    brake = Brake(run, pause=0.1)
    run.wait_for_step(5)
    run.lose_worker("worker-1")
    step = int(run.answer()["step"])
    run.wait_for_step(step + 5)
    late = run.start_late_worker()
    coordinator = run.out / "coordinator.log"
    wait_for("the view with the new one", lambda: "view_epoch=3 contributors=2" in coordinator.read_text(), 30)
    brake.release()
    assert run.wait(180) == 0, run.process.returncode
    assert late.wait(20) == 0, late.returncode
    assert "accuracy" in run.stdout(), run.stdout()


main(a_worker_is_replaced)
