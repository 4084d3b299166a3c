"""process_test: NAME.py run by the tests' Python, with all programs and the harness at hand."""

load("@rules_shell//shell:sh_test.bzl", "sh_test")

_SERVERS = [
    "//client/parley",
    "//server/coordinator:parley-coordinator",
    "//server/parameter_shard:parley-shard",
]

def process_test(name, size, test = None, args = [], integers = False, stages = False, data = [], tags = [], env = {}, cpus = 1, whole = None):
    """test: the name of the .py if it is another one. integers: its workers are integer_worker, without LibTorch. stages: it has pipelines. cpus: 2 for one that keeps a core busy, 4 for one that measures.

    whole: the size of NAME's ..._long_test, which has `--all` and runs with `deploy/test --long` only: what NAME runs is a short form.
    """
    test = test or name
    forms = [(name, size, args, tags)]
    if whole:
        forms.append((name[:-len("_test")] + "_long_test", whole, args + ["--all"], tags + ["only_long"]))
    for form, its_size, its_args, its_tags in forms:
        sh_test(
            name = form,
            size = its_size,
            srcs = ["run_python.sh"],
            args = ["tests/process/%s.py" % test] + its_args,
            data = [test + ".py"] + native.glob(["support/*.py"]) + _SERVERS + data +
                   ([":integer_worker"] if integers else ["//worker:parley-worker"]) +
                   (["//server/pipeline_stage:parley-stage"] if stages else []),
            env = env,
            # Their processes wait for each other most of the time.
            tags = ["cpu:%d" % cpus] + its_tags,
        )
