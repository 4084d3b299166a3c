"""The repositories of the build: Debian's packages. Nothing here is downloaded."""

_SYSTEM = {
    "absl": "/usr/include/absl",
    "benchmark": "/usr/include/benchmark",
    "cli11": "/usr/include/CLI",
    "googletest": "/usr/include/gtest",
    "grpc": "/usr/include/grpcpp",
    "nlohmann_json": "/usr/include/nlohmann",
    "prometheus_cpp": "/usr/include/prometheus",
    "protobuf": "/usr/include/google/protobuf",
    "protoc": "/usr",
}

_OFFLINE = ["rules_cc", "rules_java", "rules_shell", "remote_coverage_tools"]

def offline_rules():
    """Shims for what Bazel 4.2.3 would download for any C++ target.

    Debian's bazel-bootstrap alone has an empty version; upstream's releases bring or fetch the real rules.
    """
    if native.bazel_version:
        return
    for name in _OFFLINE:
        native.local_repository(name = name, path = "third_party/offline/" + name)

def system_repos():
    for name, path in _SYSTEM.items():
        native.new_local_repository(name = name, path = path, build_file = "//third_party:%s.BUILD" % name)
    native.new_local_repository(name = "libdeflate", path = "/usr/share/doc/libdeflate-dev", build_file = "//third_party:libdeflate.BUILD")
    native.new_local_repository(name = "libpng", path = "/usr/share/doc/libpng-dev", build_file = "//third_party:libpng.BUILD")
    native.new_local_repository(name = "openssl", path = "/usr/share/doc/libssl-dev", build_file = "//third_party:openssl.BUILD")
    native.new_local_repository(name = "turbojpeg", path = "/usr/share/doc/libturbojpeg0-dev", build_file = "//third_party:turbojpeg.BUILD")
    native.new_local_repository(name = "jemalloc", path = "/usr/share/doc/libjemalloc-dev", build_file = "//third_party:jemalloc.BUILD")
    native.new_local_repository(name = "zlib", path = "/usr/share/doc/zlib1g-dev", build_file = "//third_party:zlib.BUILD")
