"""libtorch_repository: LibTorch out of the PyTorch wheel, by pip, checked by hash.

The index is the one that pip is set up with. Of Python only pip is used; the wheel's own version of
Python does not matter, since only its C++ libraries and headers are taken.
"""

# The wheel also ships headers of protobuf and others, which would hide the system's.
_HEADER_FOLDERS = ["ATen", "c10", "caffe2", "torch"]

def _run(ctx, what, command, timeout):
    result = ctx.execute(command, timeout = timeout, quiet = False)
    if result.return_code:
        fail("LibTorch: %s failed:\n%s%s" % (what, result.stdout, result.stderr))

def _libtorch_impl(ctx):
    ctx.file("requirements.txt", "".join([
        "%s --hash=sha256:%s\n" % (requirement, digest)
        for requirement, digest in ctx.attr.wheels.items()
    ]))
    platforms = ["--platform=manylinux" + p + "_x86_64" for p in ["_2_28", "_2_25", "_2_17", "2014"]]
    _run(ctx, "the download", [
        "python3", "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
        "--no-deps", "--only-binary=:all:", "--require-hashes",
        "--python-version=3.12", "--implementation=cp", "--dest=wheels", "--requirement=requirements.txt",
    ] + platforms, 1800)
    for wheel in ctx.path("wheels").readdir():
        _run(ctx, "unpacking " + wheel.basename, ["python3", "-m", "zipfile", "-e", str(wheel), "."], 600)
    ctx.delete("wheels")
    for folder in _HEADER_FOLDERS:
        ctx.symlink("torch/include/" + folder, "include/" + folder)
    ctx.file("BUILD.bazel", ctx.read(ctx.attr.build_file).replace("%{root}", str(ctx.path("."))))

libtorch_repository = repository_rule(
    implementation = _libtorch_impl,
    attrs = {
        "wheels": attr.string_dict(doc = "requirement to its sha256", mandatory = True),
        "build_file": attr.label(allow_single_file = True, mandatory = True),
    },
)
