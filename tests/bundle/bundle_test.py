"""What deploy/bundle packs runs where there is nothing else: no distribution, no shell, no library, and another user than root.

The root folder has /proc, /dev and /tmp, the bundle, and the job with its data. Needs root itself, for chroot and mounts.
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
from support.programs import BIN

NOBODY = 65534
PLACE = "any place/bundle"  # where the bundle was not made
# Runs a command in the root folder $1 as a user without rights; what was mounted and started ends with it.
INSIDE = """
root=$1
shift
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
exec env -i /usr/sbin/chroot --userspec={user}:{user} "$root" "$@"
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


def inside(root, program, *arguments):
    """Standard output of one of the bundle's programs, run in the root folder."""
    command = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-euc", INSIDE, "bash", str(root), f"/{PLACE}/out/bin/{program}", *arguments]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300)
    logs = "".join(f"---- {log.name}\n{log.read_text()[-4000:]}" for log in root.glob("tmp/out/*.log"))
    assert done.returncode == 0, f"{program} {arguments}: {done.returncode}\n{done.stdout}{done.stderr}{logs}"
    return done.stdout


def a_job_runs_in_an_empty_root(where, _):
    root = where / "root"
    for folder in ("proc", "dev", "tmp", "job", pathlib.Path(PLACE).parent):
        (root / folder).mkdir(parents=True)
    (root / "tmp").chmod(0o1777)
    data.write_idx(root / "job/data")
    (root / "job/job.textproto").write_text(SMALL.format(data="/job/data", liveness="10s", epochs=2))
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


def without_libtorch_it_has_what_needs_none(where, _):
    tree = clone(where)
    said = packed(tree)
    assert "--with-libtorch" in said, said
    with tarfile.open(tree / "out/parley-bundle.tar.gz") as archive:
        members = {member.name: member for member in archive.getmembers()}
    for name in ("out/bin/parley-shard", "out/libexec/parley-shard", "out/lib/libc.so.6", "deploy/slurm/submit", "docs/slurm.md"):
        assert f"parley/{name}" in members, sorted(members)
    assert "parley/out/bin/parley-worker" not in members and not any("libtorch" in name for name in members), sorted(members)
    # Whoever unpacks it has it, and not a user of the machine where it was made.
    assert all(member.uid == 0 and member.mode & 0o444 == 0o444 for member in members.values())


if __name__ == "__main__":
    missing = what_is_missing()
    if missing:
        print(f"SKIPPED the bundle in an empty root: it needs {missing}")
        sys.exit(0)
    main(a_job_runs_in_an_empty_root, without_libtorch_it_has_what_needs_none)
