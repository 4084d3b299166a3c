"""As much of rules_cc as a Bazel with built-in C++ rules needs."""

cc_binary = native.cc_binary
cc_import = native.cc_import
cc_library = native.cc_library
cc_test = native.cc_test
cc_toolchain = getattr(native, "cc_toolchain", None)
cc_toolchain_suite = getattr(native, "cc_toolchain_suite", None)
cc_proto_library = getattr(native, "cc_proto_library", None)
objc_library = getattr(native, "objc_library", None)
