"""process_test: NAME.py run by the tests' Python, with all programs and the harness at hand."""

load("@rules_shell//shell:sh_test.bzl", "sh_test")

_SERVERS = [
    "//client/parley",
    "//server/coordinator:parley-coordinator",
    "//server/parameter_shard:parley-shard",
]

def process_test(name, size, test = None, args = [], integers = False, stages = False, data = [], tags = []):
    """test: the name of the .py if it is another one. integers: its workers are integer_worker, without LibTorch. stages: it has pipelines."""
    test = test or name
    sh_test(
        name = name,
        size = size,
        srcs = ["run_python.sh"],
        args = ["tests/process/%s.py" % test] + args,
        data = [test + ".py"] + native.glob(["support/*.py"]) + _SERVERS + data +
               ([":integer_worker"] if integers else ["//worker:parley-worker"]) +
               (["//server/pipeline_stage:parley-stage"] if stages else []),
        # They train: two of them at once would measure each other.
        tags = ["cpu:2"] + ([] if integers else ["libtorch"]) + tags,
    )
