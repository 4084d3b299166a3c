"""bfloat16 and float16 train as float32 does: parameters stay float32, and what float16 cannot hold is skipped by all workers alike."""

import math
import re
import subprocess
import sys

sys.path.insert(0, "tests/process")
import safetensors.torch
import torch
from support.bits import assert_same_bits
from support.jobs import WHOLE, Run, exported, last_line, main, scrape, small_job, wait_for
from support.programs import program

# Of 600 samples with 40 a step.
EPOCHS = 2 if WHOLE else 1
CLOSE = 0.02 if WHOLE else 0.05  # of accuracies; after two epochs all that can be learned is learned
DETERMINISTIC = "consistency { sync { deterministic: true } }\n"


def trained(where, runs, extra):
    """The run, and what it has learned."""
    run = Run(small_job(where, epochs=EPOCHS, extra=extra))
    runs.append(run)
    assert run.wait() == 0
    return run, safetensors.torch.load(exported(run.out)[0])


def end_of_few_steps(where, runs, extra):
    job = small_job(where, extra=extra)
    job.write_text(job.read_text().replace("epochs: 1", "steps: 6"))
    run = Run(job)
    runs.append(run)
    assert run.wait() == 0
    return exported(run.out)


def accuracy(run):
    """Of the last epoch."""
    found = re.findall(r"accuracy (\d\.\d+)", run.stdout())
    assert found, run.stdout()
    return float(found[-1])


def metric(address, name, labels=""):
    found = re.search(rf"^{name}{{[^}}]*{labels}[^}}]*}} (\S+)$", scrape(address), re.MULTILINE)
    return float(found.group(1)) if found else None


def distance(ours, theirs):
    """The largest difference of a tensor, as a part of the tensor's largest value."""
    return max(((ours[name] - theirs[name]).abs().max() / theirs[name].abs().max()).item() for name in theirs)


def it_learns_what_float32_does(where, runs):
    exact_run, exact = trained(where, runs, "precision: FLOAT32\n")
    # float16 takes a CPU long: in the short form its first update, its skipped steps and its scale are looked at, below.
    for precision in ("BFLOAT16_AUTOCAST", "FLOAT16_AUTOCAST") if WHOLE else ("BFLOAT16_AUTOCAST",):
        run, parameters = trained(where, runs, f"precision: {precision}\n")
        assert all(value.dtype == torch.float32 for value in parameters.values()), parameters
        off = distance(parameters, exact)
        print(f"{precision}: accuracy {accuracy(run):.4f} (float32 {accuracy(exact_run):.4f}); parameters differ by {off:.3g}")
        assert abs(accuracy(run) - accuracy(exact_run)) <= CLOSE, (precision, accuracy(run), accuracy(exact_run))
        # Rounded somewhere: not the same numbers.
        assert off > 1e-5, off


def the_first_step_is_that_of_float32_but_for_its_rounding(where, runs):
    """With SGD: the gradient itself."""
    updated = {}
    for precision, bits in (("FLOAT32", 24), ("BFLOAT16_AUTOCAST", 8), ("FLOAT16_AUTOCAST", 11)):
        job = small_job(where, extra=f"precision: {precision}\n")
        job.write_text(job.read_text().replace("adam { rate: 0.001 }", "sgd { rate: 1 }").replace("epochs: 1", "steps: 1"))
        run = Run(job)
        runs.append(run)
        assert run.wait() == 0
        updated[precision] = safetensors.torch.load(exported(run.out)[0])
        off = distance(updated[precision], updated["FLOAT32"])
        print(f"{precision}: the first update differs by {off:.3g}")
        assert off <= 2 ** (5 - bits), (precision, off)
        assert precision == "FLOAT32" or off > 0, "it has computed in float32"


def a_job_is_the_same_each_time(where, runs):
    extras = ["precision: BFLOAT16_AUTOCAST\n"]
    if WHOLE:
        extras.append("precision: FLOAT16_AUTOCAST\nloss_scale { initial: 1024 growth_interval: 0 }\n")
    for extra in extras:
        first, again = (end_of_few_steps(where, runs, extra + DETERMINISTIC) for _ in range(2))
        assert_same_bits(first, again, extra)


def what_float16_cannot_hold_is_skipped_by_all_alike(where, runs, group=1):
    """And counted; the scale falls until gradients fit, and rises again after so many steps."""
    job = small_job(where, epochs=100000, extra="precision: FLOAT16_AUTOCAST\nloss_scale { initial: 16777216 growth_interval: 10 }\n")
    # Some 40 steps of float16, which takes a CPU long.
    job.write_text(job.read_text().replace("batch: 20", "batch: 4").replace("workers: 2", f"workers: 2 group: {group}"))
    run = Run(job)
    runs.append(run)
    run.wait_for_step(1)
    addresses = run.addresses("metrics")
    scales = {"worker-0": [2.0**24], "worker-1": [2.0**24]}

    def has_risen():
        for worker, seen in scales.items():
            scale = metric(addresses[worker], "parley_loss_scale")
            if scale != seen[-1]:
                seen.append(scale)
        return all(min(seen) < 2**24 and any(later > earlier for earlier, later in zip(seen, seen[1:])) for seen in scales.values())

    wait_for("a scale that has fallen and risen", has_risen, 120)
    skipped = metric(addresses["coordinator"], "parley_verdicts_total", 'outcome="skip"')
    subprocess.run([program("parley"), "stop", "--wait", f"--coordinator=file:{run.out}/coordinator.address"], check=True, capture_output=True)
    assert run.wait() == 75, run.process.returncode
    parameters = safetensors.torch.load(exported(run.out)[0])
    assert all(torch.isfinite(value).all() for value in parameters.values())
    print(f"{skipped:.0f} steps skipped; loss scales: {scales}")
    assert skipped >= 24 - math.log2(min(scales["worker-0"])), (skipped, scales)
    # The same verdicts, so the same scales; a look may miss one.
    assert min(scales["worker-0"]) == min(scales["worker-1"]), scales


def and_by_the_ranks_of_a_node_group(where, runs):
    what_float16_cannot_hold_is_skipped_by_all_alike(where, runs, group=2)


def training_that_diverges_says_so(where, runs):
    job = small_job(where, epochs=100000, extra="precision: FLOAT16_AUTOCAST\n")
    # 100 steps of it.
    job.write_text(job.read_text().replace("rate: 0.001", "rate: 1e30").replace("batch: 20", "batch: 2"))
    run = Run(job)
    runs.append(run)
    assert run.wait(120) == 1, run.process.returncode
    said = last_line(run.stderr())
    print(said)
    assert "diverged" in said and "not finite" in said, said


main(
    it_learns_what_float32_does,
    the_first_step_is_that_of_float32_but_for_its_rounding,
    a_job_is_the_same_each_time,
    what_float16_cannot_hold_is_skipped_by_all_alike,
    *([and_by_the_ranks_of_a_node_group] if WHOLE else []),
    training_that_diverges_says_so,
)
