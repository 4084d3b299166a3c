"""What the checks that look at one source file at a time with clang have in common: which files, how each is compiled, and
that a file which was found clean is looked at again only when it, a header of ours that it includes, or the set-up has changed.
"""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OWN = re.compile(r"^(common|server|client|worker|tests)/.*\.cc$")
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache"))) / "parley"


def output(*command):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout


def own_sources():
    return [name for name in output("git", "ls-files").split() if OWN.match(name)]


def clang_command(arguments):
    """As clang compiles the file, but without an output."""
    command = ["clang++-14"]
    rest = iter(arguments[1:])
    for argument in rest:
        if argument in ("-o", "-MF"):
            next(rest)
        elif argument not in ("-c", "-MD"):
            command.append(argument)
    return command


def key(arguments, set_up):
    """Of all that the outcome depends on, but for the system's headers; None where that cannot be told."""
    listed = subprocess.run(clang_command(arguments) + ["-w", "-MM"], text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    if listed.returncode != 0:
        return None
    digest = hashlib.sha256(json.dumps(set_up + arguments).encode())
    for path in listed.stdout.replace("\\\n", " ").split(":", 1)[1].split():
        # LibTorch is fixed by its hash, which is part of its path's rule.
        if "/external/" not in path:
            digest.update(path.encode() + pathlib.Path(path).read_bytes())
    return digest.hexdigest()


def look_at(files, what, set_up, look, sure=None, seconds=0):
    """Runs look(name, arguments) for each, two at a time or as many as there are cores; it prints what is wrong and returns whether
    nothing is. set_up: what the outcome depends on beside the files. sure: so many, the first, are looked at
    in any case (None: all); of the others those found clean before count, and more are begun for so many seconds. Returns how many are unclean."""
    subprocess.run(["tests/lint/compile_commands"], check=True)
    commands = {entry["file"]: entry["arguments"] for entry in json.loads(pathlib.Path("compile_commands.json").read_text())}

    began = time.monotonic()
    surely = set(files[:sure])

    def remembered(name):
        """Whether it is clean; None: not looked at."""
        arguments = commands.get(name, [])
        stamp = key(arguments, set_up)
        place = None if stamp is None else CACHE / what / stamp
        if place is not None and place.exists():
            return True
        if name not in surely and time.monotonic() > began + seconds:
            return None
        clean = look(name, arguments)
        if clean and place is not None:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch()
        return clean

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        looks = [pool.submit(remembered, name) for name in files]
        for done, one in enumerate(looks, 1):
            one.result()
            if done % 20 == 0:
                print(f"{what}: {done} of {len(files)} files", flush=True)
    outcomes = [one.result() for one in looks]
    looked_at = len(files) - outcomes.count(None)
    print(f"{what}: {outcomes.count(True)} of {looked_at} files clean" +
          (f"; {len(files) - looked_at} of {len(files)} were not looked at" if looked_at < len(files) else ""))
    return outcomes.count(False)
