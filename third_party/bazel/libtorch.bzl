"""libtorch_repository: LibTorch out of the PyTorch wheel, by pip, checked by hash."""

load(":wheels.bzl", "WHEELS", "unpack_wheels")

# The wheel also ships headers of protobuf and others, which would hide the system's.
_HEADER_FOLDERS = ["ATen", "c10", "caffe2", "torch"]

def _libtorch_impl(ctx):
    unpack_wheels(ctx)
    for folder in _HEADER_FOLDERS:
        ctx.symlink("torch/include/" + folder, "include/" + folder)
    ctx.file("BUILD.bazel", ctx.read(ctx.attr.build_file).replace("%{root}", str(ctx.path("."))))

libtorch_repository = repository_rule(
    implementation = _libtorch_impl,
    attrs = {
        "wheels": WHEELS,
        "build_file": attr.label(allow_single_file = True, mandatory = True),
    },
)
