"""precompiled_header: what nearly every source includes, parsed once.

Two thirds of the time of a build goes into the headers of Abseil, Protocol Buffers and GoogleTest. .bazelrc has each source of
ours begin with such a header (-include), cc.bzl lets each target see it.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "ACTION_NAMES")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _result(files):
    headers = depset(files)
    return [
        DefaultInfo(files = headers),
        CcInfo(compilation_context = cc_common.create_compilation_context(headers = headers)),
    ]

def _precompiled_header_impl(ctx):
    # Not at the place of the source: a compiler looks for the precompiled form beside the header that it finds first.
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    if not ctx.attr.enabled:
        ctx.actions.write(header, "// Nothing is precompiled in this configuration.\n")
        return _result([header])

    ctx.actions.expand_template(template = ctx.file.src, output = header, substitutions = {})
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    seen = cc_common.merge_cc_infos(cc_infos = [dep[CcInfo] for dep in ctx.attr.deps]).compilation_context
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")

    # As C++ sources are compiled, since it fits only those that are compiled just so.
    variables = cc_common.create_compile_variables(
        feature_configuration = features,
        cc_toolchain = toolchain,
        source_file = header.path,
        output_file = compiled.path,
        use_pic = True,
        user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts + ["-x", "c++-header"],
        include_directories = seen.includes,
        quote_include_directories = seen.quote_includes,
        system_include_directories = seen.system_includes,
        preprocessor_defines = seen.defines,
    )
    action = ACTION_NAMES.cpp_compile
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(feature_configuration = features, action_name = action),
        arguments = cc_common.get_memory_inefficient_command_line(
            feature_configuration = features,
            action_name = action,
            variables = variables,
        ),
        env = cc_common.get_environment_variables(feature_configuration = features, action_name = action, variables = variables),
        inputs = depset([header], transitive = [seen.headers, toolchain.all_files]),
        outputs = [compiled],
        mnemonic = "CppPrecompile",
        progress_message = "Precompiling %s" % ctx.label,
    )
    return _result([header, compiled])

precompiled_header = rule(
    implementation = _precompiled_header_impl,
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "copts": attr.string_list(doc = "Beside those of all sources; the same as of those that it is for."),
        "enabled": attr.bool(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
