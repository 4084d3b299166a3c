"""The C++ rules that our targets use: those of rules_cc, whose sources can see the precompiled headers."""

load("@rules_cc//cc:defs.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")

_PRECOMPILED = ["//third_party/precompiled:library", "//third_party/precompiled:test"]

def cc_library(name, srcs = [], deps = [], **kwargs):
    if srcs:
        deps = deps + _PRECOMPILED
    _cc_library(name = name, srcs = srcs, deps = deps, **kwargs)

def cc_test(name, deps = [], **kwargs):
    _cc_test(name = name, deps = deps + _PRECOMPILED, **kwargs)

def cc_binary(name, deps = [], **kwargs):
    _cc_binary(name = name, deps = deps + _PRECOMPILED, **kwargs)
