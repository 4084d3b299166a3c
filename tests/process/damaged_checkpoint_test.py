"""A checkpoint with a flipped bit: the job that is to start from it ends with file, byte range and the checkpoint before it; or,
if its job file says so, goes on from that one, and ends with the same bits as if nothing had been damaged.
"""

import re
import sys

sys.path.insert(0, "tests/process")
from support.jobs import Run, exported, main, small_job

CHECKPOINTS = 'consistency {{ sync {{ deterministic: true }} }}\nsteps: 20\ncheckpoint {{ every_steps: 5 keep_last: 0 {rest} }}\n'


def start(where, name, rest=""):
    folder = where / name
    folder.mkdir()
    job = small_job(folder, epochs=1, extra=CHECKPOINTS.format(rest=rest))
    job.write_text(job.read_text().replace("epochs: 1\n", ""))
    return Run(job)


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def a_damaged_checkpoint_is_named_and_the_one_before_is_taken(where, runs):
    first = start(where, "first")
    runs.append(first)
    assert first.wait() == 0
    expected = exported(first.out)
    checkpoints = first.out / "checkpoints"
    # Steps 10 and 15, or where the disk is slow the ones at which the one before was written.
    before, damaged = sorted(checkpoints.glob("step-*"))[-3:-1]
    step = int(before.name.removeprefix("step-"))
    flip(damaged / "shard-1.safetensors", -1)

    offered = start(where, "offered", f'start_from: "{damaged}"')
    runs.append(offered)
    assert offered.wait() == 1
    told = offered.stderr()
    assert re.search(rf"{damaged.name}/shard-1\.safetensors: is damaged: the CRC-32 of its bytes \d+ to \d+", told), told
    assert f"{before}, is of step {step}" in told, told

    taken = start(where, "taken", f'start_from: "{damaged}" use_previous_if_damaged: true')
    runs.append(taken)
    assert taken.wait() == 0
    log = taken.logs()["coordinator"]
    assert " a checkpoint is damaged: the job turns to an earlier one" in log, log
    assert before.name in log
    assert exported(taken.out) == expected
    print(f"went on from {before.name} in place of {damaged.name}, with the same bits at the end")

    # A manifest is looked at before anybody joins.
    good = (damaged / "manifest.json").read_bytes()
    for at in (30, 0):  # the second is a brace: then it is no JSON
        (damaged / "manifest.json").write_bytes(good)
        flip(damaged / "manifest.json", at)
        offered = start(where, f"offered-early-{at}", f'start_from: "{damaged}"')
        runs.append(offered)
        assert offered.wait() == 2
        assert f"{before.name}, is of step {step}" in offered.stderr(), offered.stderr()
    taken = start(where, "taken-early", f'start_from: "{damaged}" use_previous_if_damaged: true')
    runs.append(taken)
    assert taken.wait() == 0
    assert exported(taken.out) == expected


main(a_damaged_checkpoint_is_named_and_the_one_before_is_taken)
