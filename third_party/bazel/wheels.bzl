"""unpack_wheels: wheels by pip, checked by hash, unpacked into an external repository.

The index is the one that pip is set up with. Of Python only pip is used; a wheel's own version of
Python does not matter, since only its libraries, headers and tools are taken.
"""

# What wheels for Linux call themselves.
_PLATFORMS = ["_2_28", "_2_27", "_2_25", "_2_18", "_2_17", "_2_12", "2014", "2010"]

WHEELS = attr.string_dict(doc = "requirement to its sha256", mandatory = True)

def _run(ctx, what, command, timeout):
    result = ctx.execute(command, timeout = timeout, quiet = False)
    if result.return_code:
        fail("%s: %s failed:\n%s%s" % (ctx.name, what, result.stdout, result.stderr))

def unpack_wheels(ctx):
    """Unpacks those of ctx.attr.wheels into the repository, as site-packages would have them."""
    ctx.file("requirements.txt", "".join([
        "%s --hash=sha256:%s\n" % (requirement, digest)
        for requirement, digest in ctx.attr.wheels.items()
    ]))
    _run(ctx, "the download", [
        "python3", "-m", "pip", "--disable-pip-version-check", "download", "--quiet",
        "--no-deps", "--only-binary=:all:", "--require-hashes",
        "--python-version=3.12", "--implementation=cp", "--dest=wheels", "--requirement=requirements.txt",
    ] + ["--platform=manylinux" + p + "_x86_64" for p in _PLATFORMS], 1800)
    for wheel in ctx.path("wheels").readdir():
        _run(ctx, "unpacking " + wheel.basename, ["python3", "-m", "zipfile", "-e", str(wheel), "."], 600)
    ctx.delete("wheels")
