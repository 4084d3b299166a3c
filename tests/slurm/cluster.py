"""A real Slurm cluster on this machine: munged, slurmctld and a slurmd for each node, from Debian's packages, without systemd.

Each node is a set of namespaces (network, processes, mounts, host name) with an address of its own on a bridge, so that it can
crash or lose its cable. Needs root. All of it ends with the object, or with this process, however that ends.
"""

import ctypes
import os
import pathlib
import shutil
import signal
import subprocess
import time

SUBNET = "10.214.0"
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol", "squeue", "scancel", "ip", "nsenter", "unshare")
os.environ["PATH"] += ":/usr/sbin:/sbin"

# The first process of a node: it reaps the orphans.
INIT = """
hostname {name} && mount --bind {folder}/hosts /etc/hosts && mount -t proc proc /proc && ip link set lo up || exit 1
: > {folder}/{name}.up
exec < /dev/null > /dev/null 2>&1
while :; do sleep 86400; done
"""

# Short times where Slurm's defaults are minutes. cred_expire: else a job that is queued again waits two minutes.
CONF = """
ClusterName=local
SlurmctldHost=ctl({subnet}.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.sock,cred_expire=5
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool/%n
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
MailProg=/bin/true
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdTimeout=5
MessageTimeout=3
TCPTimeout=1
KillWait=10
InactiveLimit=0
MinJobAge=3600
ReturnToService=1
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
"""


def what_is_missing():
    """Why there can be no cluster here; empty if there can."""
    if os.geteuid() != 0:
        return "root, for the namespaces of its nodes"
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        return f"{', '.join(missing)} (deploy/bootstrap test installs them)"
    tried = subprocess.run(["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "true"], capture_output=True)
    return "" if tried.returncode == 0 else "namespaces, which this machine does not give"


def _ends_with_this_process():
    ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _wait_for(what, condition, seconds):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"waited {seconds} s for {what}")
        time.sleep(0.05)


class Cluster:
    """Up once it is made: nodes c1 to cN, of 16 processors each, in partitions `cpu` (the default) and `urgent`, which preempts it."""

    def __init__(self, folder, nodes=6):
        self.folder = pathlib.Path(folder)
        self.nodes = [f"c{i}" for i in range(1, nodes + 1)]
        self._inits = {}  # name to the Popen of its unshare
        for part in ("state", "spool"):
            (self.folder / part).mkdir(parents=True)
        (self.folder / "munge.key").write_bytes(os.urandom(1024))
        (self.folder / "munge.key").chmod(0o400)
        self._address = {"ctl": f"{SUBNET}.1"} | {name: f"{SUBNET}.{10 + i}" for i, name in enumerate(self.nodes)}
        hosts = "".join(f"{address} {name}\n" for name, address in self._address.items())
        (self.folder / "hosts").write_text("127.0.0.1 localhost\n" + hosts)
        lines = [f"NodeName={n} NodeAddr={self._address[n]} CPUs=16 RealMemory=16000 State=UNKNOWN" for n in self.nodes]
        lines.append(f"PartitionName=cpu Nodes=c[1-{nodes}] Default=YES State=UP PriorityTier=1 GraceTime=20")
        lines.append(f"PartitionName=urgent Nodes=c[1-{nodes}] State=UP PriorityTier=2")
        conf = CONF.format(subnet=SUBNET, folder=self.folder) + "\n".join(lines) + "\n"
        (self.folder / "slurm.conf").write_text(conf)
        try:
            self._start()
        except BaseException:
            self.stop()
            raise

    def _start(self):
        self._boot_namespaces("ctl")
        munge = self.folder / "munge"
        self._daemon("ctl", "munged", "--force", f"--key-file={munge}.key", f"--socket={munge}.sock", f"--pid-file={munge}.pid",
                     f"--log-file={munge}.log", f"--seed-file={munge}.seed")
        self.start_controller()
        for name in self.nodes:
            self.boot(name)
        _wait_for("nodes that can take jobs", self._all_idle, 60)

    def _all_idle(self):
        shown = self.run("sinfo", "--noheader", "--Node", "--format=%N %T", check=False)
        states = dict(line.split() for line in shown.stdout.splitlines())
        return all(states.get(name) == "idle" for name in self.nodes)

    def _boot_namespaces(self, name):
        up = self.folder / f"{name}.up"
        up.unlink(missing_ok=True)
        self._inits[name] = subprocess.Popen(
            ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child", "bash", "-c",
             INIT.format(name=name, folder=self.folder)],
            stdin=subprocess.DEVNULL, preexec_fn=_ends_with_this_process,
        )
        _wait_for(f"{name}'s namespaces", up.exists, 30)
        if name == "ctl":
            self._switch("link", "add", "name", "br0", "type", "bridge")
            self._switch("addr", "add", f"{SUBNET}.1/24", "dev", "br0")
            self._switch("link", "set", "br0", "up")
        else:
            # Without the node's mounts, whose /proc knows no process of this machine.
            self._switch("link", "add", "name", name, "type", "veth", "peer", "name", "eth0", "netns", str(self._pid(name)))
            self._switch("link", "set", "dev", name, "master", "br0", "up")
            inside = ["nsenter", f"--target={self._pid(name)}", "--net", "ip"]
            subprocess.run([*inside, "addr", "add", f"{self._address[name]}/24", "dev", "eth0"], check=True)
            subprocess.run([*inside, "link", "set", "eth0", "up"], check=True)

    def _pid(self, name):
        """Of the node's first process, as this machine has it."""
        parent = self._inits[name].pid
        return int(pathlib.Path(f"/proc/{parent}/task/{parent}/children").read_text().split()[0])

    def _switch(self, *arguments):
        subprocess.run(["nsenter", f"--target={self._pid('ctl')}", "--net", "ip", *arguments], check=True, capture_output=True)

    def _inside(self, name):
        return ["nsenter", f"--target={self._pid(name)}", "--net", "--uts", "--mount", "--ipc", "--pid", f"--wdns={os.getcwd()}", "--",
                "env", f"SLURM_CONF={self.folder}/slurm.conf"]

    def _daemon(self, name, *command):
        subprocess.run([*self._inside(name), *command], check=True, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=60)

    def start_controller(self):
        self._daemon("ctl", "slurmctld", "-f", str(self.folder / "slurm.conf"))
        _wait_for("slurmctld", lambda: self.run("scontrol", "ping", check=False).returncode == 0, 30)

    def stop_controller(self):
        """It saves what it knows, as for an upgrade: what it would forget is lost to Slurm, whoever runs there."""
        self.on("ctl", "pkill", "-TERM", "slurmctld")
        _wait_for("slurmctld's end", lambda: self.on("ctl", "pgrep", "slurmctld", check=False).returncode != 0, 30)

    def boot(self, name):
        if name not in self._inits:
            self._boot_namespaces(name)
        (self.folder / "spool" / name).mkdir(exist_ok=True)
        self._daemon(name, "slurmd", "-f", str(self.folder / "slurm.conf"), "-N", name)

    def crash(self, name):
        """All its processes at once, and silently: the cable first."""
        self._switch("link", "set", "dev", name, "down")
        init = self._inits.pop(name)
        init.kill()
        init.wait()
        # Sockets of the dead may keep the namespace, and with it the other end.
        subprocess.run(["nsenter", f"--target={self._pid('ctl')}", "--net", "ip", "link", "del", "dev", name], capture_output=True)

    def unplug(self, name):
        """Its processes live on, and reach nobody."""
        self._switch("link", "set", "dev", name, "down")

    def plug(self, name):
        self._switch("link", "set", "dev", name, "up")

    def on(self, name, *command, check=True):
        """Runs a command in a node."""
        return subprocess.run([*self._inside(name), *command], check=check, capture_output=True, text=True, timeout=120)

    def run(self, *command, check=True):
        """Runs a command where sbatch, squeue and the like work: on the login node."""
        done = self.on("ctl", *command, check=False)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr}{done.stdout}")
        return done

    def queue(self):
        """What squeue knows: (job, state, node, name) of each task that is not over. None while nobody answers."""
        shown = self.run("squeue", "--noheader", "--array", "--format=%i|%T|%N|%j", check=False)
        if shown.returncode != 0:
            return None
        return [tuple(line.strip().split("|")) for line in shown.stdout.splitlines() if line.strip()]

    def stop(self):
        for name in [*(n for n in self._inits if n != "ctl"), "ctl"]:
            if name in self._inits:
                init = self._inits.pop(name)
                init.kill()
                init.wait()
