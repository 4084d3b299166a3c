"""What is computed in bfloat16 on a GPU learns as well as in float32: a residual network of 23.5 million parameters on
Fashion-MNIST, and a transformer of 75.8 million on a real text (tag gpu). Some 5 minutes on an H200.
"""

import os
import pathlib
import shutil
import sys

sys.path.insert(0, "tests/process")
from support.jobs import Run, evaluations, main
from support.programs import BIN

shutil.copy("worker/cuda/libparley_cuda.so", BIN / "libparley_cuda.so")

# Beside the tests where tests/gpu/pack has packed them.
PACKED = pathlib.Path("data").resolve()
FASHION_MNIST = PACKED / "fashion-mnist" if PACKED.exists() else "/usr/share/datasets/fashion-mnist"
TEXT = PACKED / "king_james.txt" if PACKED.exists() else pathlib.Path(os.environ.get("PARLEY_TEST_TEXTS", "out/texts")) / "king_james.txt"

# The rate falls to 0, so that an accuracy does not depend on which step was the last one.
JOB = """
name: "accuracy"
seed: 7
model {{ {model} }}
data {{ {data} }}
optimizer {{ adam {{ rate: {rate} }} clip_norm: 1 }}
learning_rate {{ cosine {{}} warmup_steps: 100 }}
cluster {{ workers: 1 shards: 1 }}
device: CUDA
precision: {precision}
epochs: {epochs}
"""
TOLERANCE = 0.01


def last_evaluation(where, runs, name, precision, **job):
    path = where / f"{name}-{precision}.textproto"
    path.write_text(JOB.format(precision=precision, **job))
    run = Run(path)
    runs.append(run)
    assert run.wait(400) == 0, precision
    assert "computes on a GPU device=" in run.logs()["worker-0"], run.logs()["worker-0"]
    return evaluations(run.out)[-1]


def in_both(where, runs, name, measure, **job):
    """The measure of its last evaluation, in float32 and in bfloat16."""
    found = []
    for precision in ("FLOAT32", "BFLOAT16_AUTOCAST"):
        last = last_evaluation(where, runs, name, precision, **job)
        print(f"{name}: {precision}: {measure} {last[measure]:.4f} at step {last['step']}", flush=True)
        found.append(last[measure])
    return found


def a_residual_network_learns_as_well_in_bfloat16(where, runs):
    data = f'idx {{ directory: "{FASHION_MNIST}" mean: 0.286 deviation: 0.353 }} batch: 128 evaluation_batch: 1000'
    single, half = in_both(where, runs, "resnet50", "accuracy", model="resnet { depth: 50 }", data=data, rate=0.001, epochs=4)
    print(f"resnet50: accuracies are {abs(half - single):.4f} apart")
    assert single > 0.85 and abs(half - single) <= TOLERANCE, (single, half)


def a_transformer_learns_as_well_in_bfloat16(where, runs):
    """By the loss of the text that it has not seen: of a language model nobody asks an accuracy."""
    data = f'text {{ train: "{TEXT}" test_share: 0.05 tokens: WORDS vocabulary: 28782 length: 35 columns: 32 }} batch: 32 evaluation_batch: 32'
    model = "transformer { width: 1024 heads: 8 hidden: 1024 layers: 3 }"
    single, half = in_both(where, runs, "transformer", "loss", model=model, data=data, rate=0.0002, epochs=1)
    print(f"transformer: losses are {abs(half / single - 1):.4f} of one apart")
    assert single < 6.5 and abs(half / single - 1) <= TOLERANCE, (single, half)


main(a_residual_network_learns_as_well_in_bfloat16, a_transformer_learns_as_well_in_bfloat16)
