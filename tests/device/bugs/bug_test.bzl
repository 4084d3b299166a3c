"""device_bug_test: whether the checks of worker/device:step_suite find a deliberate bug."""

load("@rules_shell//shell:sh_test.bzl", "sh_test")
load("//third_party/bazel:cc.bzl", "cc_binary")

def device_bug_test(bug, source, words):
    """bug.patch breaks worker/device/SOURCE; a check must then fail whose message has the words."""
    broken = "%s_source/%s" % (bug, source)
    native.genrule(
        name = bug + "_applied",
        srcs = ["//worker/device:" + source, bug + ".patch"],
        outs = [broken],
        cmd = " && ".join([
            "tree=$$(mktemp -d)",
            "cp -L --parents $(execpath //worker/device:%s) $$tree" % source,
            "git -C $$tree apply < $(execpath %s.patch)" % bug,
            "cp $$tree/$(execpath //worker/device:%s) $@" % source,
            "rm -rf $$tree",
        ]),
    )
    cc_binary(
        name = bug,
        testonly = True,
        # Before the library's own, which is then left out.
        srcs = [broken],
        deps = ["//worker/device:step_suite", "@googletest//:gtest_main"],
    )
    sh_test(
        name = bug + "_test",
        size = "small",
        srcs = ["is_found.sh"],
        args = ["$(rootpath %s)" % bug, "'%s'" % words],
        data = [bug],
    )
