"""`parley top`: all members of a running job and where a step's time goes, as text, and on a terminal until `q`."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

sys.path.insert(0, "tests/process")
from support.jobs import Run, main, small_job, wait_for
from support.programs import program

PHASES = ["DATA", "FORWARD", "BACKWARD", "PUSH", "WAIT", "PULL"]
MEMBERS = ["shard-0", "shard-1", "worker-0", "worker-1"]
PAGE = "\x1b[?1049h"  # another page of the terminal, and back
BACK = "\x1b[?1049l"


def top(coordinator, *flags):
    return subprocess.run(
        [program("parley"), "top", f"--coordinator={coordinator}", *flags], capture_output=True, text=True, timeout=60
    )


def address_file(run):
    return f"file:{run.out}/coordinator.address"


def rows(page, head):
    """The rows under the line that begins with `head`, by their first word."""
    lines = page.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith(head))
    table = {}
    for line in lines[begin + 1 :]:
        if not line.strip():
            break
        table[line.split()[0]] = line.split()[1:]
    return table


def a_page_has_all_members_and_phases(where, runs):
    run = Run(small_job(where, epochs=100000, liveness="60s"))
    runs.append(run)
    run.wait_for_step(20)
    before = int(run.answer()["step"])
    done = top(address_file(run), "--once")
    assert done.returncode == 0, done.stderr
    page = done.stdout
    print(page)
    assert "\x1b" not in page, "it is no terminal"
    assert page.startswith("small  training  "), page
    step, total = re.search(r"step (\d+)/(\d+)  loss \d", page).groups()
    assert before <= int(step) <= int(run.answer()["step"]) and int(total) == 100000 * 15, page

    members = rows(page, "MEMBER ")
    assert sorted(members) == MEMBERS, page
    for name, row in members.items():
        assert float(row[3]) >= 0 and row[5] in ("MiB", "GiB"), f"{name}: {row}"  # CPU and memory: its metrics were read
    assert "4 OF 4 ARE HERE" in page and "no metrics" not in page, page

    assert re.search(r"^MS OF A STEP +ALL +" + " +".join(PHASES), page, re.M), page
    steps = rows(page, "MS OF A STEP")
    assert sorted(steps) == ["worker-0", "worker-1"], page
    for name, row in steps.items():
        whole, *phases = (float(number) for number in row[: 1 + len(PHASES)])
        assert abs(whole - sum(phases)) < 0.1 * len(PHASES) and phases[1] > 0 and phases[2] > 0, f"{name}: {row}"
    assert sorted(rows(page, "MS OF A SHARD")) == ["shard-0", "shard-1"], page

    # One that does not answer costs its row's numbers and says so; the others stay.
    victim = run.pids()["worker-1"]
    os.kill(victim, signal.SIGSTOP)
    page = top(address_file(run)).stdout
    os.kill(victim, signal.SIGCONT)
    stopped = next(line for line in page.splitlines() if re.match(r"worker-\d+ .*no metrics", line))
    assert "no answer within 2s" in stopped, stopped
    assert sorted(rows(page, "MEMBER ")) == MEMBERS, page
    assert len(rows(page, "MS OF A STEP")) == 1, page


def a_terminal_shows_it_until_q(where, runs):
    run = Run(small_job(where, epochs=100000, liveness="60s"))
    runs.append(run)
    run.wait_for_step(5)
    for end in ("q", signal.SIGINT):
        main_end, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        before = termios.tcgetattr(terminal)
        process = subprocess.Popen(
            [program("parley"), "top", f"--coordinator={address_file(run)}"], stdin=terminal, stdout=terminal, stderr=terminal
        )
        shown = []

        def read(patience=0.05):
            while select.select([main_end], [], [], patience)[0]:
                shown.append(os.read(main_end, 65536).decode())
            return "".join(shown)

        try:
            # Drawn more than once, with the phases, which take a scrape.
            wait_for("two pages", lambda: read().count("\x1b[H") >= 2 and "MS OF A STEP" in read(), 60)
            assert not termios.tcgetattr(terminal)[3] & termios.ECHO, "keys are shown"
            if end == "q":
                os.write(main_end, b"xq")
            else:
                process.send_signal(end)
            # What it still draws must be read for it to end.
            deadline = time.monotonic() + 30
            while process.poll() is None and time.monotonic() < deadline:
                read()
            assert process.poll() == 0, process.poll()
            text = read()
        finally:
            process.kill()
            process.wait()
        assert termios.tcgetattr(terminal) == before, "the terminal is as it was"
        os.close(terminal)
        os.close(main_end)
        assert text.startswith(PAGE) and BACK in text, text[:200]
        lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", line) for line in re.split(r"\r+\n|\x1b\[H", text)]
        assert max(len(line) for line in lines) <= 100, max(lines, key=len)
        for name in MEMBERS:
            assert any(line.startswith(name) for line in lines), f"{name} is not in {lines}"


def the_end_of_the_job_is_its_end(where, runs):
    run = Run(small_job(where, epochs=4))
    runs.append(run)
    wait_for("the coordinator", lambda: (run.out / "coordinator.address").exists(), 60)
    main_end, terminal = pty.openpty()
    process = subprocess.Popen([program("parley"), "top", f"--coordinator={address_file(run)}"], stdin=terminal, stdout=terminal)
    shown = b""
    try:
        deadline = time.monotonic() + 120
        while process.poll() is None and time.monotonic() < deadline:
            if select.select([main_end], [], [], 0.05)[0]:
                shown += os.read(main_end, 65536)
        assert process.poll() == 0, process.poll()
        while select.select([main_end], [], [], 0.05)[0]:
            shown += os.read(main_end, 65536)
    finally:
        process.kill()
        process.wait()
    assert run.wait() == 0
    rest = shown.decode().split(BACK)[1]
    # A machine that is too busy to ask in time finds the coordinator gone, with its address file.
    assert "small  finished  " in rest or "the coordinator has not answered for " in rest, rest
    assert sorted(rows(re.sub(r"\x1b\[[0-9;]*m", "", rest), "MEMBER ")) == MEMBERS or "finished" in rest, rest


def wrong_addresses_are_told(where, runs):
    for address, code, word in (("nowhere", 2, "nowhere"), ("127.0.0.1:1", 1, "127.0.0.1:1"), (f"file:{where}/none", 1, "none")):
        done = top(address, "--once")
        assert done.returncode == code and word in done.stderr and not done.stdout, (address, done)


main(a_page_has_all_members_and_phases, a_terminal_shows_it_until_q, the_end_of_the_job_is_its_end, wrong_addresses_are_told)
