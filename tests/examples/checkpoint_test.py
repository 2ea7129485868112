"""The program docs/examples/checkpoints.cpp under shoal run: it is asked to stop, saves, and goes on with other numbers of ranks."""

import re
import signal
import subprocess
import sys
import tempfile

shoal, program = sys.argv[1:3]


def run(folder, ranks, steps, stop):
    """Starts it and, if asked to, stops it once it has begun. Returns the step it began and the one it stopped at, with samples."""
    command = [shoal, "run", "--nproc-per-node", str(ranks), "--", program, folder, str(steps)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    said = ""
    for line in process.stdout:
        said += line
        if stop and "go on after" in line:
            process.send_signal(signal.SIGTERM)
    code = process.wait()
    print(said, f"code {code}", sep="")
    begun = re.search(r"(\d+) ranks go on after step (\d+), (\d+) samples", said)
    assert begun and int(begun[1]) == ranks, said
    stopped = re.search(r"stopped after step (\d+), (\d+) samples", said)
    assert bool(stopped) == stop, said
    if not stop:
        assert code == 0, code
    return tuple(map(int, begun.groups()[1:])), tuple(map(int, stopped.groups())) if stopped else None


with tempfile.TemporaryDirectory() as folder:
    begun, first = run(folder, 2, 10**9, stop=True)
    assert begun == (0, 0)
    assert first[0] > 0 and first[1] == 12 * first[0], first
    begun, second = run(folder, 3, 10**9, stop=True)
    assert begun == first, (begun, first)
    assert second[0] > first[0] and second[1] == 12 * second[0], second
    begun, _ = run(folder, 1, second[0] + 60, stop=False)
    assert begun == second, (begun, second)
