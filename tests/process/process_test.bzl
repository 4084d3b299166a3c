"""process_test: NAME.py run by the tests' Python, with all programs and the harness at hand."""

load("@rules_shell//shell:sh_test.bzl", "sh_test")

_SERVERS = [
    "//client/parley",
    "//server/coordinator:parley-coordinator",
    "//server/parameter_shard:parley-shard",
]

def process_test(name, size, test = None, args = [], integers = False, stages = False, data = [], tags = [], env = {}, cpus = 1):
    """test: the name of the .py if it is another one. integers: its workers are integer_worker, without LibTorch. stages: it has pipelines. cpus: 2 for one that keeps a core busy, 4 for one that measures."""
    test = test or name
    sh_test(
        name = name,
        size = size,
        srcs = ["run_python.sh"],
        args = ["tests/process/%s.py" % test] + args,
        data = [test + ".py"] + native.glob(["support/*.py"]) + _SERVERS + data +
               ([":integer_worker"] if integers else ["//worker:parley-worker"]) +
               (["//server/pipeline_stage:parley-stage"] if stages else []),
        env = env,
        # Their processes wait for each other most of the time.
        tags = ["cpu:%d" % cpus] + tags,
    )
