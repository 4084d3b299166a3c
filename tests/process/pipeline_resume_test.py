"""A pipeline's checkpoint is the same whatever the cut: jobs with two stages that are killed go on with three and with none, bit for bit.

Then a shard of a job with stages is killed: all go back to a checkpoint, stages too, and the result is the same bits.
"""

import os
import re
import signal
import sys

sys.path.insert(0, "tests/process")
from support.bits import assert_same_bits
from support.brake import Brake
from support.jobs import exported, main, wait_for
from support.text_pipeline import pid_of, start

STEPS = 30
EVERY = "every_steps: 4"


def undisturbed(where, runs):
    run = start(where, "straight", "stages: 2", steps=STEPS, accumulate=2)
    runs.append(run)
    assert run.wait() == 0
    return exported(run.out)


def a_killed_pipeline_goes_on_with_another_cut(where, runs):
    expected = undisturbed(where, runs)
    for name, cluster, rest in [("three", "stages: 3", 'pipeline { cut_before: "transformer_encoder.layers.1" cut_before: "decoder" }'), ("none", "", "")]:
        first = start(where, f"killed-{name}", "stages: 2", f"checkpoint {{ {EVERY} }}", steps=STEPS, accumulate=2)
        runs.append(first)
        brake = Brake(first)
        first.wait_for_step(9)
        wait_for("a checkpoint", (first.out / "checkpoints/latest").exists, 30)
        first.kill_everything()
        brake.release()
        start_from = f'checkpoint {{ start_from: "{first.out}/checkpoints" }}'
        second = start(where, f"resumed-{name}", cluster, f"{rest} {start_from}", steps=STEPS, accumulate=2)
        runs.append(second)
        assert second.wait() == 0
        version = int(re.search(r" loaded the checkpoint .*\bversion=(\d+)", second.logs()["shard-0"]).group(1))
        assert 4 <= version < STEPS
        print(f"killed with 2 stages, resumed from step {version} with stages: {name}")
        assert_same_bits(exported(second.out), expected, name)


def a_lost_shard_takes_the_stages_back(where, runs):
    expected = undisturbed(where, runs)
    run = start(where, "lost", "stages: 2", f"max_restarts: 3 checkpoint {{ {EVERY} }}", steps=STEPS, accumulate=2, liveness="4s")
    runs.append(run)
    brake = Brake(run)
    run.wait_for_step(9)
    wait_for("a checkpoint", (run.out / "checkpoints/latest").exists, 30)
    os.kill(pid_of(run, "SHARD", 1), signal.SIGKILL)
    wait_for("all to go back", lambda: " all go back to a checkpoint " in run.logs()["coordinator"], 60)
    brake.release()
    assert run.wait() == 0
    assert_same_bits(exported(run.out), expected, "after a shard was lost")


main(a_killed_pipeline_goes_on_with_another_cut, a_lost_shard_takes_the_stages_back)
