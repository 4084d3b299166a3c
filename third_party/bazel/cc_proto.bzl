"""cc_proto: C++ messages, and gRPC services, of .proto files, by the system's protoc."""

load("@rules_cc//cc:defs.bzl", "cc_library")

_ProtoInfo = provider("The .proto files that an importer's protoc must see.", fields = ["sources"])

def _generate_impl(ctx):
    suffix = ".grpc.pb" if ctx.attr.services else ".pb"
    headers = []
    sources = []
    for proto in ctx.files.srcs:
        stem = proto.basename[:-len(".proto")] + suffix
        headers.append(ctx.actions.declare_file(stem + ".h", sibling = proto))
        sources.append(ctx.actions.declare_file(stem + ".cc", sibling = proto))

    args = ctx.actions.args()
    args.add("-I.")
    if ctx.attr.services:
        args.add("--plugin=protoc-gen-grpc=" + ctx.file._grpc_plugin.path)
        args.add("--grpc_out=" + ctx.bin_dir.path)
    else:
        args.add("--cpp_out=" + ctx.bin_dir.path)
    args.add_all(ctx.files.srcs)

    protos = depset(ctx.files.srcs, transitive = [dep[_ProtoInfo].sources for dep in ctx.attr.deps])
    ctx.actions.run(
        executable = ctx.file._protoc,
        arguments = [args],
        inputs = protos,
        tools = [ctx.file._grpc_plugin],
        outputs = headers + sources,
        mnemonic = "CcProto",
        progress_message = "Generating C++ of %s" % ctx.label,
    )
    return [
        DefaultInfo(files = depset(headers + sources)),
        OutputGroupInfo(headers = depset(headers), sources = depset(sources)),
        _ProtoInfo(sources = protos),
    ]

_generate = rule(
    implementation = _generate_impl,
    attrs = {
        "srcs": attr.label_list(allow_files = [".proto"], mandatory = True),
        "deps": attr.label_list(providers = [_ProtoInfo]),
        "services": attr.bool(),
        "_protoc": attr.label(default = "@protoc//:protoc", allow_single_file = True, cfg = "exec"),
        "_grpc_plugin": attr.label(default = "@protoc//:grpc_cpp_plugin", allow_single_file = True, cfg = "exec"),
    },
)

def _library(name, srcs, imports, services, deps):
    _generate(
        name = name + "_generated",
        srcs = srcs,
        deps = [dep + "_generated" for dep in imports],
        services = services,
    )
    for group in ["headers", "sources"]:
        native.filegroup(name = name + "_" + group, srcs = [name + "_generated"], output_group = group)
    cc_library(
        name = name,
        srcs = [name + "_sources"],
        hdrs = [name + "_headers"],
        copts = ["-w"],
        deps = deps,
    )

def cc_proto(name, srcs, deps = [], services = False):
    """The messages of srcs as a C++ library; with services = True also NAME_grpc, their gRPC services.

    They are two libraries so that a core can use the messages and never see gRPC.
    deps are other cc_proto targets.
    """
    _library(name, srcs, deps, False, deps + ["@protobuf"])
    if services:
        _library(name + "_grpc", srcs, deps, True, [":" + name, "@grpc//:grpc++"])
