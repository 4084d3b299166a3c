"""process_test: NAME.py run by the tests' Python, with all programs and the harness at hand."""

load("@rules_shell//shell:sh_test.bzl", "sh_test")

_PROGRAMS = [
    "//client/parley",
    "//server/coordinator:parley-coordinator",
    "//server/parameter_shard:parley-shard",
    "//worker:parley-worker",
]

def process_test(name, size, data = [], tags = []):
    sh_test(
        name = name,
        size = size,
        srcs = ["run_python.sh"],
        args = ["tests/process/%s.py" % name],
        data = [name + ".py"] + native.glob(["support/*.py"]) + _PROGRAMS + data,
        # They train: two of them at once would measure each other.
        tags = ["cpu:2", "libtorch"] + tags,
    )
