"""A fuzz target: a test that runs over its corpus, and with --config=fuzz the fuzzer itself (tests/fuzz/run)."""

load("@rules_cc//cc:defs.bzl", "cc_test")

def fuzz_target(name, deps):
    """NAME.cc has LLVMFuzzerTestOneInput; corpus/NAME has its inputs."""
    corpus = native.glob(["corpus/%s/*" % name])
    cc_test(
        name = name,
        size = "small",
        srcs = [
            name + ".cc",
            "require.h",
        ],
        args = ["tests/fuzz/corpus/" + name],
        data = corpus,
        deps = deps + select({
            "//third_party:fuzz": [],
            "//conditions:default": [":corpus_main"],
        }),
    )
