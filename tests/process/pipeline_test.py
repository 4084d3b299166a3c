"""Pipelines of real stage processes compute the same, bit for bit, as one process; also where some of them are killed.

A small transformer with dropout on a made text, deterministic, with Adam and clipping: without stages, and with two of them under
each schedule. A residual network. Then two pipelines, of whose processes some are killed while the job trains.
"""

import os
import random
import signal
import sys
import time

sys.path.insert(0, "tests/process")
import safetensors.torch
import torch
from support import data
from support.bits import assert_same_bits
from support.brake import Brake
from support.jobs import WHOLE, Run, evaluations, exported, main
from support.text_pipeline import SEED, pid_of, start

def course(run):
    """What the job's evaluations have come to."""
    return [{field: line[field] for field in ("step", "test_samples", "loss")} for line in evaluations(run.out)]


def every_schedule_computes_what_one_process_does(where, runs):
    alone = start(where, "alone")
    runs.append(alone)
    assert alone.wait() == 0
    expected = exported(alone.out)
    evaluated = course(alone)
    assert evaluated and evaluated[-1]["test_samples"] // 8 % 2 == 0, f"an uneven last batch of an odd number: {evaluated}"
    for schedule in ("GPIPE", "ONE_F_ONE_B", "EAGER", "INTERLEAVED", "ZERO_BUBBLE"):
        run = start(where, schedule, "stages: 2", f"pipeline {{ schedule: {schedule} }}")
        runs.append(run)
        assert run.wait() == 0, schedule
        assert_same_bits(exported(run.out), expected, schedule)
        assert course(run) == evaluated, f"{schedule}: {course(run)} and not {evaluated}"
        print(f"{schedule}: the same bits")
    cut = start(where, "recomputed", "stages: 3", 'pipeline { recompute: true cut_before: "transformer_encoder.layers.1" cut_before: "decoder" }')
    runs.append(cut)
    assert cut.wait() == 0
    assert_same_bits(exported(cut.out), expected, "three stages that compute forwards again")


def a_skip_connection_goes_over_a_stage(where, runs):
    """Layer 0, of the first stage, to layer 3, of the third; layers 1 and 2 within the second."""
    alone = start(where, "alone-skips", layers=4, model="skips: true")
    runs.append(alone)
    assert alone.wait() == 0
    expected = exported(alone.out)
    assert any("skip_weight" in name for name in safetensors.torch.load(expected[0]))
    cuts = 'cut_before: "transformer_encoder.layers.1" cut_before: "transformer_encoder.layers.3"'
    ways = {"skips-halves": f"schedule: ZERO_BUBBLE {cuts}", "skips-recomputed": f"recompute: true {cuts}"}
    if WHOLE:
        ways["skips"] = cuts
    for name, how in ways.items():
        run = start(where, name, "stages: 3", f"pipeline {{ {how} }}", layers=4, model="skips: true")
        runs.append(run)
        assert run.wait() == 0, name
        assert_same_bits(exported(run.out), expected, name)


def chimera_and_tied_embeddings_compute_the_same_but_for_the_order_of_sums(where, runs):
    # Not Adam, which makes steps as large as any of gradients that are 0 but for rounding (a key's bias has one).
    cases = {
        "chimera": dict(cluster="stages: 2", rest="pipeline { schedule: CHIMERA }"),
        "tied-words": dict(cluster="stages: 2", model="tied: true", text="tokens: WORDS"),
    }
    if WHOLE:
        cases |= {
            "tied": dict(cluster="stages: 2", model="tied: true"),
            # No microbatch goes the other way.
            "chimera-tied-1": dict(cluster="stages: 2", rest="pipeline { schedule: CHIMERA }", model="tied: true", accumulate=1),
        }
    for name, options in cases.items():
        options["optimizer"] = "sgd { rate: 0.5 }"
        alone = start(where, f"{name}-alone", **{**options, "cluster": "", "rest": ""})
        run = start(where, name, **options)
        runs += [alone, run]
        assert alone.wait() == 0 and run.wait() == 0, name
        assert_close(name, run, alone)


def assert_close(name, run, other):
    got, expected = (safetensors.torch.load(exported(one.out)[0]) for one in (run, other))
    assert got.keys() == expected.keys()
    for tensor, value in expected.items():
        torch.testing.assert_close(got[tensor], value, rtol=1e-4, atol=1e-5, msg=lambda text: f"{name}: {tensor}: {text}")
    print(f"{name}: the same to 1e-5")


def pipelines_compute_what_one_process_with_as_many_microbatches_does(where, runs):
    """The samples of a step are divided in order, and what is dropped out follows from them."""
    sgd = dict(optimizer="sgd { rate: 0.5 }")
    alone = start(where, "alone-of-8", accumulate=8, **sgd)
    two = start(where, "two-of-4", "stages: 2", workers=2, **sgd)
    runs += [alone, two]
    assert alone.wait() == 0 and two.wait() == 0
    assert_close("two pipelines", two, alone)


def a_residual_network_is_cut_anywhere(where, runs):
    """Batch normalisation in training, images, an uneven last microbatch, fewer microbatches than stages."""

    def network(name, cluster="", rest=""):
        folder = where / name
        folder.mkdir()
        data.write_idx(folder / "data")
        (folder / "job.textproto").write_text(
            f"""
            name: "resnet"
            seed: 3
            model {{ resnet {{ depth: 18 }} }}
            data {{ idx {{ directory: "{folder}/data" }} batch: 7 }}
            optimizer {{ sgd {{ rate: 0.01 momentum: 0.9 }} }}
            consistency {{ sync {{ deterministic: true }} }}
            cluster {{ workers: 1 shards: 2 {cluster} }}
            accumulate: 3
            threads: 1
            steps: {3 if WHOLE else 2}
            {rest}
            """
        )
        run = Run(folder / "job.textproto")
        runs.append(run)
        assert run.wait() == 0, name
        return exported(run.out)

    expected = network("alone")
    if WHOLE:
        assert_same_bits(network("two", "stages: 2"), expected, "two stages")
    assert_same_bits(network("four", "stages: 4", "pipeline { recompute: true }"), expected, "four stages, three microbatches")


def processes_that_are_killed_change_nothing(where, runs):
    chance = random.Random(SEED)
    rounds = 100 if WHOLE else 10
    steps = 50 + 8 * rounds  # a slow machine sees late that a step is decided, and the job goes on meanwhile
    accumulate = 4 if WHOLE else 2
    straight = start(where, "straight", "stages: 2", workers=2, steps=steps, accumulate=accumulate)
    runs.append(straight)
    assert straight.wait() == 0
    expected = exported(straight.out)
    run = start(where, "killed", "stages: 2", f"max_restarts: {rounds + 10}", workers=2, steps=steps, accumulate=accumulate, liveness="4s")
    runs.append(run)
    killed = 0
    for step in range(4, 4 + 8 * rounds, 8):
        brake = Brake(run)
        if int(run.wait_for_step(step)["step"]) > steps - 20:
            brake.release()
            break  # a slower machine still, or one with a sanitizer: who is killed as the job ends makes it end with 1
        killed += 1
        role, ordinal = chance.choice([("STAGE", 0), ("STAGE", 1), ("STAGE", 2), ("STAGE", 3), ("WORKER", 1)])
        os.kill(pid_of(run, role, ordinal), signal.SIGKILL)
        began = time.monotonic()
        # The one that is decided may be the last that it has taken part in.
        run.wait_for_step(int(run.wait_for_step(step)["step"]) + 2)
        brake.release()
        print(f"killed {role.lower()} {ordinal} after step {step}; going on after {time.monotonic() - began:.1f} s")
    assert run.wait() == 0
    assert killed >= rounds / 2, killed
    assert_same_bits(exported(run.out), expected, "after processes were killed")


if __name__ == "__main__":
    main(
        every_schedule_computes_what_one_process_does,
        a_skip_connection_goes_over_a_stage,
        chimera_and_tied_embeddings_compute_the_same_but_for_the_order_of_sums,
        pipelines_compute_what_one_process_with_as_many_microbatches_does,
        a_residual_network_is_cut_anywhere,
        processes_that_are_killed_change_nothing,
    )
