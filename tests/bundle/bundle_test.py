"""What deploy/bundle packs runs where there is nothing else: no distribution, no shell, no library, and another user than root.

The root folder has /proc, /dev and /tmp, the bundle, and the job with its data; without LibTorch in the bundle also a folder that
plays the machine's own torch. Needs root itself, for chroot and mounts.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, "tests/process")
from support import data
from support.jobs import SMALL, main
from support.programs import BIN, program

NOBODY = 65534
PLACE = "any place/bundle"  # where the bundle was not made
# Runs a command in the root folder $1 as a user without rights; what was mounted and started ends with it.
INSIDE = """
root=$1
shift
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec env -i "LD_LIBRARY_PATH=$LIBRARIES" /usr/sbin/chroot --userspec={user}:{user} "$root" "$@"
""".format(user=NOBODY)


def what_is_missing():
    if os.geteuid() != 0:
        return "root, for chroot and mounts"
    tried = subprocess.run(["unshare", "--mount", "--pid", "--fork", "true"], capture_output=True)
    return "" if tried.returncode == 0 else "namespaces, which this machine does not give"


def clone(where):
    """As a clone after deploy/build."""
    tree = where / "tree"
    for folder in ("deploy", "docs", "proto"):
        shutil.copytree(folder, tree / folder)
    shutil.copy("README.md", tree)
    (tree / "out").mkdir()
    (tree / "out/bin").symlink_to(BIN)
    return tree


def packed(tree, *arguments):
    done = subprocess.run([tree / "deploy/bundle", *arguments], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def started(root, program, *arguments, libraries=""):
    """One of the bundle's programs, run to its end in the root folder. libraries: LD_LIBRARY_PATH."""
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", INSIDE, "bash", str(root), f"/{PLACE}/out/bin/{program}", *arguments]
    environment = {**os.environ, "LIBRARIES": libraries}
    return subprocess.run(command, stdin=subprocess.DEVNULL, env=environment, capture_output=True, text=True, timeout=300)


def inside(root, program, *arguments, libraries=""):
    """Standard output of one that must end well."""
    done = started(root, program, *arguments, libraries=libraries)
    logs = "".join(f"---- {log.name}\n{log.read_text()[-4000:]}" for log in root.glob("tmp/out/*.log"))
    assert done.returncode == 0, f"{program} {arguments}: {done.returncode}\n{done.stdout}{done.stderr}{logs}"
    return done.stdout


def empty_root(where):
    """But for a job."""
    root = where / "root"
    for folder in ("proc", "dev", "tmp", "job", pathlib.Path(PLACE).parent):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    data.write_idx(root / "job/data")
    (root / "job/job.textproto").write_text(SMALL.format(data="/job/data", liveness="10s", epochs=2))
    return root


def a_job_runs_in_an_empty_root(where, _):
    root = empty_root(where)
    made = where / "made"
    said = packed(clone(where), "--with-libtorch", f"--out={made}")
    made.rename(root / PLACE)
    print(said.strip().splitlines()[0])

    bundle = root / PLACE
    links = [path for path in bundle.rglob("*") if path.is_symlink()]
    assert not links, f"links, which may lead out of it: {links}"
    for licence in ("libc6", "libstdc++6", "libgrpc++-dev"):
        assert (bundle / "licenses" / licence).stat().st_size > 500, licence
    assert any(bundle.glob("licenses/torch-*/LICENSE")), "LibTorch's licence is missing"

    for program in ("parley", "parley-coordinator", "parley-shard", "parley-worker", "parley-stage"):
        assert inside(root, program, "--version").strip(), program
    # Its processes are the bundle's own programs: others are not there.
    said = inside(root, "parley", "run", "/job/job.textproto", "--out=/tmp/out")
    assert "accuracy" in said, said
    out = root / "tmp/out"
    assert out.stat().st_uid == NOBODY, out.stat()
    inside(root, "parley", "checkpoint", "verify", "/tmp/out/checkpoints")
    print(f"a job has run: {said.strip().splitlines()[-1]}")
    submit_finds_its_programs(where, bundle, root / "job/data")


def submit_finds_its_programs(where, bundle, folder):
    """On a login node; the nodes of this job have their own, in a container (docs/containers.md)."""
    job, out = where / "slurm.textproto", where / "submitted"
    text = SMALL.format(data=folder, liveness="10s", epochs=1)
    job.write_text(text.replace("shards: 2", 'shards: 2 slurm { options: "--container-image=/shared/parley.sqsh" }'))
    command = [bundle / "deploy/slurm/submit", job, f"--out={out}", "--bin=/opt/parley/out/bin", "--dry-run"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all("--container-image=/shared/parley.sqsh" in line for line in lines), lines
    assert os.readlink(out / "slurm/bin") == "/opt/parley/out/bin"


def machines_torch(root):
    """The folder of Python packages in the root folder: what programs need of LibTorch's wheel, and what else use_torch looks at."""
    listed = subprocess.run(["ldd", program("parley-worker")], capture_output=True, text=True, check=True).stdout
    (torch,) = (pathlib.Path(line.split()[2]).parents[1] for line in listed.splitlines() if line.split()[0] == "libtorch_cpu.so")
    packages = root / "opt/packages"
    for file in [torch / "__init__.py", torch / "version.py", *torch.glob("lib/*.so*"), *torch.parent.glob("nvidia/*/lib/*.so*")]:
        to = packages / file.relative_to(torch.parent)
        to.parent.mkdir(parents=True, exist_ok=True)
        if "torch_cuda" not in file.name:  # 1 GB
            shutil.copyfile(file, to)
    return packages


def use_torch(bundle, *arguments, packages=None):
    """The exit status, and all that it said."""
    environment = {**os.environ, "PYTHONPATH": str(packages)} if packages else os.environ
    command = [bundle / "deploy/use_torch", *arguments]
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
    print(f"use_torch: {done.stdout.strip()}")
    return done.returncode, done.stdout


def without_libtorch_it_takes_the_machines(where, _):
    root = empty_root(where)
    bundle = root / PLACE
    unpacked(where, bundle)
    for name in ("parley", "parley-coordinator", "parley-shard"):
        assert inside(root, name, "--version").strip(), name

    def assert_told():
        for name, *arguments in (("parley-worker", "--version"), ("parley-stage", "--version"), ("parley", "run", "/job/job.textproto", "--out=/tmp/out")):
            done = started(root, name, *arguments)
            print(f"{name}: exit {done.returncode}: {done.stderr.strip()}")
            assert done.returncode == 2 and done.stderr.count("\n") == 1 and f"run /{PLACE}/deploy/use_torch" in done.stderr, done.stderr

    assert_told()
    without = where / "python without packages"
    without.write_text('#!/bin/sh\nexec /usr/bin/python3 -S "$@"\n')
    without.chmod(0o755)
    # Debian's own is of another version.
    for python, words in ((without, "has no torch"), ("/usr/bin/python3", "is for torch 2.11.0 alone"), ("/no/python", "there is no /no/python")):
        code, said = use_torch(bundle, python)
        assert code == 2 and said.count("\n") == 1 and words in said, said
    assert not (bundle / "out/torch").exists()

    packages = machines_torch(root)
    code, said = use_torch(bundle, "/usr/bin/python3", packages=packages)
    assert code == 0 and str(packages / "torch") in said and "on CPUs only" in said and "libcufile.so.0" in said, said
    link = bundle / "out/torch"
    assert os.readlink(link) == str(packages)
    link.unlink()
    link.symlink_to("/opt/packages")  # where it is in the root folder
    said = inside(root, "parley", "run", "/job/job.textproto", "--out=/tmp/out")
    assert "accuracy" in said, said
    a_job_finds_plugin_and_driver(root)
    shutil.rmtree(packages)
    assert_told()


def unpacked(where, bundle):
    """A bundle without LibTorch and with the plugin, put there by its archive."""
    tree = clone(where)
    shutil.copy("worker/cuda/libparley_cuda.so", BIN)
    said = packed(tree)
    assert "deploy/use_torch" in said, said
    with tarfile.open(tree / "out/parley-bundle.tar.gz") as archive:
        members = {member.name: member for member in archive.getmembers()}
        archive.extractall(where)
    (where / "parley").rename(bundle)
    for name in ("out/bin/libparley_cuda.so", "out/libexec/parley-worker", "out/lib/libc.so.6", "deploy/slurm/submit", "docs/slurm.md"):
        assert f"parley/{name}" in members, sorted(members)
    # Nothing of LibTorch and CUDA, wherever they lie here.
    for word in ("libtorch", "libc10", "libgomp", "libcudart", "libcublas", "libcudnn", "libnccl", "licenses/torch"):
        assert not any(word in name for name in members), (word, sorted(members))
    # Whoever unpacks it has it, and not a user of the machine where it was made.
    assert all(member.uid == 0 and member.mode & 0o444 == 0o444 for member in members.values())


def a_job_finds_plugin_and_driver(root):
    """With GPUs in plain memory: a driver of the machine, and another plugin in the place of the real one."""
    shutil.copy("worker/device/libfake_plugin.so", root / PLACE / "out/bin/libparley_cuda.so")
    (root / "driver").mkdir()
    shutil.copy("worker/device/libfake_driver.so", root / "driver/libcuda.so.1")
    inside(root, "parley", "run", "/job/job.textproto", "--out=/tmp/gpu", "--set=device=CUDA", libraries="/driver")
    logs = [log.read_text() for log in (root / "tmp/gpu").glob("worker-*.log")]
    assert len(logs) == 2 and all("computes on a GPU device=fake:" in log for log in logs), logs


def needed(library):
    """What it names of other libraries."""
    dynamic = subprocess.run(["readelf", "--dynamic", "--wide", library], capture_output=True, text=True, check=True).stdout
    return [line.split("[")[1].split("]")[0] for line in dynamic.splitlines() if "(NEEDED)" in line]


def stand_ins(folder, names):
    folder.mkdir(parents=True)
    for name in names:
        subprocess.run(["gcc", "-shared", f"-Wl,-soname,{name}", "-o", folder / name, "-x", "c", "/dev/null"], check=True)


def cuda_can_lie_in_it_too(where, _):
    """All that the plugin names is in the bundle, but for the driver. (CUDA's own libraries are 2 GB: others stand for them.)"""
    root = empty_root(where)
    tree = clone(where)
    shutil.copy("worker/cuda/libparley_cuda.so", BIN)
    made = where / "made"
    refused = subprocess.run([tree / "deploy/bundle", "--with-libtorch", f"--out={made}"], capture_output=True, text=True, timeout=300)
    assert refused.returncode == 2 and "deploy/build --cuda" in refused.stderr, refused.stderr

    listed = subprocess.run(["ldd", program("parley-worker")], capture_output=True, text=True, check=True).stdout
    (torch,) = (pathlib.Path(line.split()[2]).parent for line in listed.splitlines() if line.split()[0] == "libtorch_cpu.so")
    of_torch = [torch / f"lib{name}.so" for name in ("torch_cuda", "torch_cuda_linalg", "torch_nvshmem", "c10_cuda", "caffe2_nvrtc")]
    names = {name for library in [BIN / "libparley_cuda.so", *of_torch] for name in needed(library)}
    of_cuda = sorted(name for name in names if not (torch / name).exists() and name.startswith(("libcu", "libnccl", "libnv")) and name != "libcuda.so.1")
    assert "libnccl.so.2" in of_cuda and len(of_cuda) > 5, of_cuda
    stand_ins(tree / "out/cuda/nvidia/cu13/lib", of_cuda)
    info = tree / "out/cuda/nvidia_stand_in-13.0.dist-info/licenses"
    info.mkdir(parents=True)
    (info / "License.txt").write_text("a licence")
    said = packed(tree, "--with-libtorch", f"--out={made}")
    print(said.strip().splitlines()[0])
    assert "libparley_cuda.so CUDA" in said, said
    made.rename(root / PLACE)
    bundle = root / PLACE
    assert (bundle / "licenses/nvidia_stand_in-13.0/License.txt").read_text() == "a licence"
    listed = inside(root, "parley-loader", "--library-path", f"/{PLACE}/out/lib", "--list", f"/{PLACE}/out/bin/libparley_cuda.so")
    missing = [line.split()[0] for line in listed.splitlines() if "not found" in line]
    assert missing in ([], ["libcuda.so.1"]), listed
    assert f"libnccl.so.2 => /{PLACE}/out/" in listed, listed
    a_job_finds_plugin_and_driver(root)
    (BIN / "libparley_cuda.so").unlink()


if __name__ == "__main__":
    missing = what_is_missing()
    if missing:
        print(f"SKIPPED the bundle in an empty root: it needs {missing}")
        sys.exit(0)
    main(a_job_runs_in_an_empty_root, without_libtorch_it_takes_the_machines, cuda_can_lie_in_it_too)
