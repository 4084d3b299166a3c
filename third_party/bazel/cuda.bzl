"""cuda_repository: the CUDA compiler, its headers and NCCL out of wheels, by pip, checked by hash.
cuda_library: .cu files by nvcc.

The repository is fetched only where something of CUDA is built. No GPU, no driver and no toolkit is needed.
"""

load("@rules_cc//cc:defs.bzl", "cc_library")
load(":wheels.bzl", "WHEELS", "unpack_wheels")

def _cuda_impl(ctx):
    unpack_wheels(ctx)

    # zipfile forgets which files are programs.
    toolkit = ctx.path("nvidia/cu13")
    programs = ctx.execute(["find", "nvidia/cu13/bin", "nvidia/cu13/nvvm/bin", "-maxdepth", "1", "-type", "f", "-exec", "chmod", "a+x", "{}", "+"])
    if programs.return_code:
        fail("%s: %s" % (ctx.name, programs.stderr))
    ctx.file("BUILD.bazel", ctx.read(ctx.attr.build_file).replace("%{toolkit}", str(toolkit)).replace("%{nccl}", str(ctx.path("nvidia/nccl"))))

cuda_repository = repository_rule(
    implementation = _cuda_impl,
    attrs = {
        "wheels": WHEELS,
        "build_file": attr.label(allow_single_file = True, mandatory = True),
    },
)

def _nvcc_objects_impl(ctx):
    contexts = [dep[CcInfo].compilation_context for dep in ctx.attr.deps]
    objects = []
    for src in ctx.files.srcs:
        compiled = ctx.actions.declare_file("%s/%s.pic.o" % (ctx.label.name, src.basename))
        args = ctx.actions.args()

        # As -std and -ffp-contract of .bazelrc; a multiply and an add are fused only where the code says so.
        args.add_all(["-c", src.path, "-o", compiled.path, "-std=c++20", "-O3", "--fmad=false", "-Xcompiler=-fPIC", "-I."])
        args.add_all(["-Xcompiler=-Wall,-Wextra", "--Werror=all-warnings"])
        args.add_all(["-gencode=arch=compute_%s,code=sm_%s" % (arch, arch) for arch in ctx.attr.archs])

        # For GPUs that are newer than all of these: compiled by the driver.
        args.add("-gencode=arch=compute_%s,code=compute_%s" % (ctx.attr.archs[-1], ctx.attr.archs[-1]))
        for context in contexts:
            args.add_all(context.includes, before_each = "-I")
            args.add_all(context.quote_includes, before_each = "-I")
            args.add_all(context.system_includes, before_each = "-isystem")
        ctx.actions.run(
            executable = ctx.executable._nvcc,
            arguments = [args],
            inputs = depset([src] + ctx.files.hdrs, transitive = [context.headers for context in contexts]),
            tools = ctx.files._toolkit,
            outputs = [compiled],
            mnemonic = "NvccCompile",
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin"},
            progress_message = "Compiling CUDA %s" % src.short_path,
        )
        objects.append(compiled)
    return [DefaultInfo(files = depset(objects))]

_nvcc_objects = rule(
    implementation = _nvcc_objects_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".cu"], mandatory = True),
        "hdrs": attr.label_list(allow_files = [".h"]),
        "deps": attr.label_list(providers = [CcInfo]),
        "archs": attr.string_list(),
        "_nvcc": attr.label(default = "@cuda//:nvcc", allow_single_file = True, executable = True, cfg = "exec"),
        "_toolkit": attr.label(default = "@cuda//:toolkit", cfg = "exec"),
    },
)

def cuda_library(name, srcs, hdrs = [], deps = [], archs = ["80", "90", "100"], **kwargs):
    """A cc_library of .cu files: Ampere, Hopper, Blackwell and what is newer than these."""
    _nvcc_objects(name = name + "_objects", srcs = srcs, hdrs = hdrs, deps = deps + ["@cuda//:runtime"], archs = archs)
    cc_library(name = name, srcs = [name + "_objects"], hdrs = hdrs, deps = deps + ["@cuda//:runtime"], linkstatic = True, **kwargs)
