"""Loaded by @bazel_tools//tools/jdk, whose toolchains Bazel registers although nothing here is Java."""

java_binary = getattr(native, "java_binary", None)
java_import = getattr(native, "java_import", None)
java_library = getattr(native, "java_library", None)
java_runtime = getattr(native, "java_runtime", None)
java_toolchain = getattr(native, "java_toolchain", None)
