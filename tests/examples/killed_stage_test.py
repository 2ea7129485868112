"""killed_stage_test.py PROGRAM: each stage of the recipe `pipeline` is killed once; the program ends with a failure that names it."""

import os
import pathlib
import signal
import subprocess
import sys
import time


def pid_of(title, session):
    """The process of that title in a session of the system's, once it is there."""
    for _ in range(3000):
        for process in pathlib.Path("/proc").glob("[0-9]*"):
            try:
                words = (process / "cmdline").read_bytes().decode().replace("\0", " ").rstrip()
                if words.endswith(" " + title) and os.getsid(int(process.name)) == session:
                    return int(process.name)
            except OSError:   # it has just ended
                pass
        time.sleep(0.01)
    sys.exit(f"no process '{title}' in 30 s")


for stage, named in (("reader", "'reader'"), ("transform 0", "rank 0"), ("transform 1", "rank 1")):
    with subprocess.Popen([sys.argv[1], "1000000000"], stderr=subprocess.PIPE, text=True, start_new_session=True) as program:
        try:
            os.kill(pid_of(stage, program.pid), signal.SIGKILL)
            said = program.communicate(timeout=30)[1]
        finally:
            if program.poll() is None:
                os.killpg(program.pid, signal.SIGKILL)
    print(f"{stage}: {said.strip()}")
    if program.returncode != 1 or named not in said or "SIGKILL" not in said:
        sys.exit(f"{stage}: exit status {program.returncode}")
