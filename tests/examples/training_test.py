"""training_test.py PROGRAM METHOD: one test of train_fashion_mnist, on a small data set in which every class is a bright
square at a place of its own."""

import gzip
import json
import os
import pathlib
import random
import signal
import struct
import subprocess
import sys
import tempfile
import time
import uuid

program, method = sys.argv[1:]
folder = tempfile.TemporaryDirectory()
data = pathlib.Path(folder.name) / "data"
# Inherited by every process of the program: how its leftovers are told from other processes.
mark = f"SHOAL_TRAINING_TEST={uuid.uuid4()}"


def make_data():
    data.mkdir()
    chance = random.Random(1)
    for name, count in (("train", 1280), ("t10k", 320)):
        images, labels = bytearray(), bytearray()
        for _ in range(count):
            label = chance.randrange(10)
            top, left = 2 + 14 * (label // 5), 1 + 5 * (label % 5)
            image = bytearray(chance.randrange(60) for _ in range(784))
            for row in range(top, top + 8):
                image[28 * row + left : 28 * row + left + 5] = b"\xf0" * 5
            images += image
            labels.append(label)
        with gzip.open(data / f"{name}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">IIII", 2051, count, 28, 28) + images)
        with gzip.open(data / f"{name}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">II", 2049, count) + labels)


def start(*arguments):
    key, value = mark.split("=")
    options = {"--data": data, "--epochs": 1, **dict(zip(arguments[::2], arguments[1::2]))}
    command = [program, *(str(word) for option in options.items() for word in option)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                            env={**os.environ, key: value}, start_new_session=True)


def run(*arguments):
    process = start(*arguments)
    out, err = process.communicate(timeout=200)
    return process.returncode, out, err


def living():
    """The program's processes, by the mark in their environment: pid -> command line."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and mark.encode() in (entry / "environ").read_bytes():
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            pass
    return found


def wait_until(condition, what, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, f"no {what} after 120 s; living: {living()}"
        assert process.poll() is None, f"ended before {what}: {process.communicate()}"
        time.sleep(0.02)


def check_nothing_left():
    # A while, for a loaded machine: that it is soon is measured elsewhere, that it is at all is tested here.
    deadline = time.monotonic() + 30
    while living() and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not living(), f"left over: {living()}"


def check_refused(code, out, err, *words):
    assert code == 2, (code, out, err)
    assert len(err.strip().splitlines()) == 1, f"more than one line: {err}"
    for word in words:
        assert word in err, f"no word of '{word}': {err}"


def all_three_runs_learn_and_end_in_a_line_of_json():
    code, out, err = run("--mode", "all", "--epochs", 4, "--batch-size", 32)
    assert code == 0, (code, out, err)
    runs = json.loads(out.strip().splitlines()[-1])["runs"]
    assert [r["mode"] for r in runs] == ["single", "ddp", "hogwild"], runs
    for r in runs:
        assert r["test_accuracy"] > 0.8 and r["samples_per_second"] > 0 and r["seconds"] > 0, r
    assert "test accuracy" in out and "\x1b" not in err + out, (out, err)
    check_nothing_left()


def missing_data_is_named_with_its_package():
    code, out, err = run("--data", "/nowhere/at/all")
    check_refused(code, out, err, "/nowhere/at/all", "dataset-fashion-mnist")


def damaged_data_is_named():
    file = data / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:5000])
    check_refused(*run(), "train-images-idx3-ubyte")


def senseless_numbers_get_one_line_each():
    for option, value in (("--nprocs", 0), ("--nprocs", 1000000), ("--batch-size", 0), ("--workers", -1), ("--epochs", 0),
                          ("--lr", 0), ("--mode", "other"), ("--profile", -1)):
        code, out, err = run(option, value)
        check_refused(code, out, err, "" if value == 1000000 else option)
        assert len(err) < 120, err
    check_nothing_left()


def a_checkpoint_is_gone_on_from():
    file = data / "state"
    code, out, err = run("--mode", "ddp", "--checkpoint", file)
    assert code == 0 and file.exists(), (code, out, err)
    code, out, err = run("--mode", "ddp", "--checkpoint", file, "--epochs", 2)
    assert code == 0 and "after epoch 1" in err, (code, out, err)
    assert [f.name for f in data.glob("state*")] == ["state"], list(data.iterdir())


def a_checkpoint_of_something_else_is_refused():
    file = data / "state"
    file.write_bytes(b"this is no checkpoint")
    check_refused(*run("--mode", "single", "--checkpoint", file), str(file))
    assert file.read_bytes() == b"this is no checkpoint"


def a_profile_of_each_mode_says_which_side_is_the_bottleneck():
    file = data / "state"
    code, out, err = run("--mode", "all", "--profile", 6, "--batch-size", 32, "--checkpoint", file)
    assert code == 0, (code, out, err)
    for heading in ("single, rank 0 of 1", "ddp, rank 0 of 2", "hogwild, rank 0 of 2"):
        assert heading in out, out
    assert out.count("6 batches, 1 workers") == 3 and out.count("bottleneck: ") == 3, out
    for row in ("dataset (in a worker)", "wait for a batch", "step (in the loop)"):
        assert out.count(row) == 3, out
    assert "test accuracy" not in out and not list(data.glob("state*")), (out, list(data.iterdir()))
    check_nothing_left()


def a_trace_of_a_profile_has_what_the_loop_did():
    file = data / "trace.json"
    code, out, err = run("--mode", "all", "--profile", 4, "--batch-size", 32, "--trace", file)
    assert code == 0, (code, out, err)
    for mode in ("single", "ddp", "hogwild"):
        names = [event["name"] for event in json.loads((data / f"trace.json.{mode}").read_text())["traceEvents"]]
        for name, times in (("wait for batch", 4), ("step", 4), ("aten::addmm", 8)):
            assert names.count(name) == times, (mode, name, names.count(name))
        assert "aten::convolution_backward" in names, mode
    check_refused(*run("--profile", 4, "--trace", "/nowhere/at/all/trace.json"), "--trace", "/nowhere/at/all")
    check_refused(*run("--trace", file), "--trace", "--profile")
    check_nothing_left()


def interrupted_nothing_is_left():
    process = start("--mode", "ddp", "--epochs", 1000, "--checkpoint", data / "state")
    wait_until(lambda: (data / "state").exists(), "checkpoint of the first epoch", process)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to every process
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, (process.returncode, out, err)
    check_nothing_left()
    assert [f.name for f in data.glob("state*")] == ["state"], list(data.iterdir())
    code, out, err = run("--mode", "ddp", "--checkpoint", data / "state")  # whole: it can be gone on from
    assert code == 0 and "after epoch" in err, (code, out, err)


def a_killed_rank_is_named_and_nothing_is_left():
    process = start("--mode", "ddp", "--epochs", 1000, "--checkpoint", data / "state")
    wait_until(lambda: (data / "state").exists(), "checkpoint of the first epoch", process)
    # All are children of the fork server, which is the program's own child; rank 0 was started first.
    parents = {pid: int(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[1]) for pid in living()}
    rank = min(pid for pid, parent in parents.items() if parent not in (process.pid, os.getpid()))
    os.kill(rank, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "SIGKILL" in err and f"rank 0 (pid {rank})" in err, (process.returncode, out, err)
    check_nothing_left()


make_data()
try:
    globals()[method]()
finally:
    for pid in living():
        os.kill(pid, signal.SIGKILL)
    folder.cleanup()
print("1 passed, 0 failed")
