"""training_test.py PROGRAM METHOD: one test of train_fashion_mnist, on a small data set in which every class is a bright
square at a place of its own."""

import collections
import csv
import gzip
import json
import math
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import sys
import tempfile
import time
import uuid
import xml.etree.ElementTree

program, method = sys.argv[1:]
modes = ["single", "ddp", "hogwild", "data_parallel"]
folder = tempfile.TemporaryDirectory()
data = pathlib.Path(folder.name) / "data"
# Inherited by every process of the program: how its leftovers are told from other processes.
mark = f"SHOAL_TRAINING_TEST={uuid.uuid4()}"


def make_data():
    data.mkdir()
    chance = random.Random(1)
    dark = bytes(byte * 60 // 256 for byte in range(256))
    for name, count in (("train", 1280), ("t10k", 320)):
        images, labels = bytearray(), bytearray()
        for _ in range(count):
            label = chance.randrange(10)
            top, left = 2 + 14 * (label // 5), 1 + 5 * (label % 5)
            image = bytearray(chance.randbytes(784).translate(dark))
            for row in range(top, top + 8):
                image[28 * row + left : 28 * row + left + 5] = b"\xf0" * 5
            images += image
            labels.append(label)
        with gzip.open(data / f"{name}-images-idx3-ubyte.gz", "wb") as file:
            file.write(struct.pack(">IIII", 2051, count, 28, 28) + images)
        with gzip.open(data / f"{name}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(struct.pack(">II", 2049, count) + labels)


def start(*arguments):
    # One thread a process: OpenMP's threads spin while they wait, and so several tests at once take ten times as long.
    key, value = mark.split("=")
    options = {"--data": data, "--epochs": 1, **dict(zip(arguments[::2], arguments[1::2]))}
    command = [program, *(str(word) for option in options.items() for word in option)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL,
                            env={**os.environ, "OMP_NUM_THREADS": "1", key: value}, start_new_session=True)


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


def log_of(file, mode):
    """The lines of a mode by event; of two for one step the later one, as docs/training-programs.md says."""
    events = {}
    for line in map(json.loads, file.read_text().splitlines()):
        if line["mode"] == mode:
            events.setdefault(line["event"], {})[line["step"]] = line
    return {event: [lines[step] for step in sorted(lines)] for event, lines in events.items()}


def numbers_of(log):
    """What has to be the same in a training that was disturbed and in one that was not."""
    return ([(line["step"], line["loss"], line["lr"]) for line in log["step"]],
            [(line["step"], line["train_loss"], line["test_loss"], line["test_accuracy"], line["confusion"]) for line in log["evaluation"]])


def check_evaluations(log, labels):
    for line in log["evaluation"]:
        assert [sum(row) for row in line["confusion"]] == labels, line   # each sample once
        right = sum(line["confusion"][i][i] for i in range(10))
        assert line["test_accuracy"] == right / sum(labels), line
        assert 0 <= line["test_loss"] < 10 and 0 <= line["train_loss"] < 10, line


def test_labels():
    content = gzip.open(data / "t10k-labels-idx1-ubyte.gz").read()[8:]
    return [content.count(label) for label in range(10)]


def all_runs_learn_and_end_in_a_line_of_json():
    log = data / "log"
    code, out, err = run("--mode", "all", "--epochs", 4, "--batch-size", 32, "--log", log, "--log-every", 10)
    assert code == 0, (code, out, err)
    runs = json.loads(out.strip().splitlines()[-1])["runs"]
    assert [r["mode"] for r in runs] == modes, runs
    for r in runs:
        assert r["test_accuracy"] > 0.8 and r["samples_per_second"] > 0 and r["seconds"] > 0, r
        lines = log_of(log, r["mode"])
        alone = r["mode"] == "single"
        begin, = lines["begin"]
        assert begin["processes"] == (1 if alone else 2) and begin["parameters"] == 206922 and begin["optimizer"] == "momentum", begin
        # 1280 samples: 40 steps of one process, 20 of each of two, or of one loop over both.
        assert [line["step"] for line in lines["evaluation"]] == [(40 if alone else 20) * epoch for epoch in (1, 2, 3, 4)], lines
        assert [line["samples"] for line in lines["evaluation"]] == [1280, 2560, 3840, 5120], lines
        assert [line["step"] for line in lines["step"]] == list(range(10, 161 if alone else 81, 10)), lines
        check_evaluations(lines, test_labels())
        assert lines["evaluation"][-1]["test_accuracy"] == r["test_accuracy"] and lines["evaluation"][-1]["train_loss"] == r["loss"], (lines, r)
        times = [line["seconds"] for line in lines["step"]]
        assert times == sorted(times) and times[0] > 0, times
    assert "test accuracy" in out and "\x1b" not in err + out, (out, err)
    code, out, err = run("--epochs", 1, "--batch-size", 32)
    assert code == 0 and [r["mode"] for r in json.loads(out.strip().splitlines()[-1])["runs"]] == modes[:3], (code, out, err)
    check_nothing_left()


def every_optimizer_learns():
    for optimizer in ("sgd", "momentum", "adam", "adamw", "adagrad", "rmsprop"):
        for mode in ("single", "hogwild"):
            code, out, err = run("--mode", mode, "--optimizer", optimizer, "--epochs", 3, "--batch-size", 16, "--workers", 0)
            assert code == 0, (optimizer, mode, code, out, err)
            result, = json.loads(out.strip().splitlines()[-1])["runs"]
            assert result["test_accuracy"] > 0.6, (optimizer, result)


def mixed_precision_learns_as_well_and_is_another_one():
    results = {}
    for amp in ("none", "bf16"):
        code, out, err = run("--mode", "all", "--amp", amp, "--epochs", 3, "--batch-size", 32)
        assert code == 0, (code, out, err)
        results[amp] = json.loads(out.strip().splitlines()[-1])["runs"]
    for mode, full, mixed in zip(modes, results["none"], results["bf16"]):
        assert mixed["test_accuracy"] > 0.8, mixed
        if mode != "hogwild":   # whose runs differ in any case
            assert mixed["loss"] != full["loss"] and abs(mixed["loss"] - full["loss"]) < 0.1, (full, mixed)


def uneven_shares_end_together():
    log = data / "log"
    for mode in ("ddp", "hogwild"):
        code, out, err = run("--mode", mode, "--join", "true", "--shares", "4,1", "--epochs", 4, "--batch-size", 16, "--log", log)
        assert code == 0, (code, out, err)
        lines = log_of(log, mode)
        # 1024 samples of rank 0 are 64 steps; all 1280 are seen in each epoch, and the test set is whole.
        assert [line["step"] for line in lines["evaluation"]] == [64, 128, 192, 256], lines
        assert [line["samples"] for line in lines["evaluation"]] == [1280, 2560, 3840, 5120], lines
        check_evaluations(lines, test_labels())
        assert lines["evaluation"][-1]["test_accuracy"] > 0.8, lines["evaluation"][-1]
    check_refused(*run("--shares", "4,1"), "--shares", "--join")
    check_refused(*run("--join", "true", "--shares", "4,1,2"), "--shares", "3 numbers", "2 processes")
    check_refused(*run("--join", "true", "--shares", "4,0"), "shares")


def an_evaluation_by_any_number_of_ranks_is_that_of_one():
    log = data / "log"
    for ranks in (1, 3):   # 320 samples: shares of 107, 107 and 106
        code, out, err = run("--mode", "ddp", "--nprocs", ranks, "--batch-size", 48 // ranks, "--workers", 0, "--log", log)
        assert code == 0, (code, out, err)
        check_evaluations(log_of(log, "ddp"), test_labels())
    one, three = (json.loads(line) for line in log.read_text().splitlines() if '"evaluation"' in line)
    assert abs(one["test_loss"] - three["test_loss"]) < 0.05, (one, three)


def the_learning_rate_follows_its_schedule():
    steps = 80
    def at(decay, step):
        place = step / steps
        return {"constant": 1, "linear": 1 - place, "cosine": (1 + math.cos(math.pi * place)) / 2,
                "step": 0.5 ** math.floor(place * 4)}[decay]
    for decay in ("constant", "linear", "cosine", "step"):
        log = data / f"log.{decay}"
        code, out, err = run("--mode", "single", "--epochs", 2, "--batch-size", 32, "--lr", 0.02, "--schedule.decay", decay,
                             "--schedule.factor", 0.5, "--log", log, "--log-every", 1, "--workers", 0)
        assert code == 0, (code, out, err)
        rates = [line["lr"] for line in log_of(log, "single")["step"]]
        assert len(rates) == steps
        for step, rate in enumerate(rates):
            assert abs(rate - 0.02 * at(decay, step)) < 1e-9, (decay, step, rate)
    log = data / "log.warmup"
    code, out, err = run("--mode", "ddp", "--epochs", 2, "--batch-size", 16, "--lr", 0.02, "--schedule.decay", "constant",
                         "--schedule.warmup", 0.25, "--log", log, "--log-every", 1)
    assert code == 0, (code, out, err)
    rates = [line["lr"] for line in log_of(log, "ddp")["step"]]
    assert 0 < rates[0] < 0.002 and rates[:20] == sorted(rates[:20]) and rates[20:] == [0.02] * 60, rates


def pictures_and_a_table_are_made_of_the_log():
    log, plots = data / "log", data / "plots"
    code, out, err = run("--mode", "all", "--epochs", 2, "--batch-size", 32, "--log", log, "--log-every", 10, "--plots", plots)
    assert code == 0 and not err.count("no pictures"), (code, out, err)
    expected = ["accuracy.svg", "convergence.svg", "learning_rate.svg", "loss.svg"] + [f"confusion_{mode}.svg" for mode in modes]
    assert sorted(f.name for f in plots.iterdir()) == sorted(expected), list(plots.iterdir())
    space = "{http://www.w3.org/2000/svg}"
    for name in expected:
        picture = xml.etree.ElementTree.parse(plots / name).getroot()
        assert picture.tag == space + "svg", name
        texts = [text.text for text in picture.iter(space + "text")]
        if name.startswith("confusion"):
            last = log_of(log, name[len("confusion_"):-len(".svg")])["evaluation"][-1]
            cells = [text.text for text in picture.iter(space + "text") if text.get("class") == "cell"]
            assert cells == [str(count) for row in last["confusion"] for count in row if count], (name, cells)
        else:
            assert all(mode in texts for mode in modes), (name, texts)
            lines = [path.get("d").count("L") for path in picture.iter(space + "path") if path.get("stroke-width") == "1.8"]
            points = {"loss.svg": [7, 3, 3, 3, 1, 1, 1, 1], "accuracy.svg": [1] * 8, "learning_rate.svg": [7, 3, 3, 3],
                      "convergence.svg": [1] * 8 + [7, 3, 3, 3]}[name]
            assert lines == points, (name, lines)
    script = pathlib.Path(__file__).resolve().parents[2] / "docs/examples/training/plot.py"
    subprocess.run([sys.executable, script, log, plots, "--csv", data / "log.csv"], check=True, stdout=subprocess.DEVNULL)
    rows = list(csv.DictReader(open(data / "log.csv", newline="")))
    assert len(rows) == len(log.read_text().splitlines()), rows
    for mode in modes:
        assert [float(row["loss"]) for row in rows if row["event"] == "step" and row["mode"] == mode] \
            == [line["loss"] for line in log_of(log, mode)["step"]], mode
    # Without Python the training is done all the same.
    os.environ["PATH"] = "/nowhere"
    code, out, err = run("--mode", "single", "--log", log, "--plots", plots)
    assert code == 0 and "no pictures: python3" in err and str(log) in err, (code, out, err)
    check_refused(*run("--plots", plots), "--plots", "--log")


def missing_data_is_named_with_its_package():
    code, out, err = run("--data", "/nowhere/at/all")
    check_refused(code, out, err, "/nowhere/at/all", "dataset-fashion-mnist")


def damaged_data_is_named():
    file = data / "train-images-idx3-ubyte.gz"
    file.write_bytes(file.read_bytes()[:5000])
    check_refused(*run(), "train-images-idx3-ubyte")


def senseless_numbers_get_one_line_each():
    for option, value in (("--nprocs", 0), ("--nprocs", 1000000), ("--batch-size", 0), ("--workers", -1), ("--epochs", 0),
                          ("--lr", 0), ("--mode", "other"), ("--profile", -1), ("--optimizer", "lbfgs"),
                          ("--amp", "fp16"), ("--schedule.warmup", 2), ("--log-every", 0)):
        code, out, err = run(option, value)
        check_refused(code, out, err, "" if value == 1000000 else option)
        assert len(err) < 120, err
    check_nothing_left()


def checkpoints_in(folder):
    return sorted(f.name for f in folder.glob("**/*.checkpoint"))


def is_whole_checkpoint_in(folder):
    """One that all ranks have written. With one of some of them alone a killed training begins anew, and says so."""
    shards = collections.Counter(re.fullmatch(r"(step-\d+)\.rank-\d+-of-(\d+)\.checkpoint", name).groups() for name in checkpoints_in(folder))
    return any(count == int(ranks) for (_, ranks), count in shards.items())


def disturbed_and_undisturbed(name, signals, *options):
    """Trains, is sent the signals once it has logged and saved something, goes on; and trains without a disturbance."""
    folder, logs = data / name, [data / f"{name}.{i}" for i in range(2)]
    options = ("--batch-size", 8, "--schedule.decay", "constant", "--log-every", 9, *options)
    mode = options[options.index("--mode") + 1]
    process = start(*options, "--epochs", 1000, "--checkpoint", folder, "--log", logs[0])
    wait_until(lambda: logs[0].exists() and '"event":"step"' in logs[0].read_text() and (signals == [signal.SIGTERM] or is_whole_checkpoint_in(folder)),
               "line of the log", process)
    for number in signals:
        (os.killpg if number == signal.SIGKILL else os.kill)(process.pid, number)
    out, err = process.communicate(timeout=100)
    assert process.returncode == -signals[0], (process.returncode, out, err)
    assert ("stopped after step" in err) == (signals[0] == signal.SIGTERM), err
    check_nothing_left()
    assert checkpoints_in(folder), err
    last = max(int(f[5:17]) for f in checkpoints_in(folder))
    per_epoch = log_of(logs[0], mode)["begin"][0]["steps_of_epoch"]
    epochs = last // per_epoch + 2
    for log, more in ((logs[0], ("--checkpoint", folder)), (logs[1], ())):
        code, out, err = run(*options, "--epochs", epochs, "--log", log, *more)
        assert code == 0 and ("goes on from" in err) == bool(more), (code, out, err)
    disturbed, undisturbed = (numbers_of(log_of(log, mode)) for log in logs)
    assert len(undisturbed[0]) == per_epoch * epochs // 9 and len(undisturbed[1]) == epochs, undisturbed
    assert disturbed == undisturbed, (last, disturbed, undisturbed)


def a_beton_file_is_written_once_and_all_modes_learn_from_it():
    cache, log = data / "made/cache", data / "log"
    options = ("--data-format", "beton", "--cache", cache, "--batch-size", 32)
    code, out, err = run("--mode", "all", *options, "--epochs", 4, "--log", log, "--log-every", 10)
    assert code == 0, (code, out, err)
    file, = cache.iterdir()
    wrote = [line for line in err.splitlines() if "wrote" in line]
    assert wrote == [f"wrote {file}: 1280 samples"], err
    for result in json.loads(out.strip().splitlines()[-1])["runs"]:
        assert result["test_accuracy"] > 0.8, result
        lines = log_of(log, result["mode"])
        steps = 40 if result["mode"] == "single" else 20
        assert [(line["step"], line["samples"]) for line in lines["evaluation"]] == [(steps * n, 1280 * n) for n in (1, 2, 3, 4)], lines
        check_evaluations(lines, test_labels())
    before = file.stat()
    # Three ranks have 427 samples each, so one comes again.
    code, out, err = run("--mode", "ddp", *options, "--nprocs", 3, "--log", data / "three")
    assert code == 0 and "wrote" not in err, (code, out, err)
    assert log_of(data / "three", "ddp")["evaluation"][0]["samples"] == 1281
    assert [file] == list(cache.iterdir()) and file.stat().st_ino == before.st_ino and file.stat().st_mtime_ns == before.st_mtime_ns
    code, out, err = run("--mode", "all", *options, "--profile", 4)
    assert code == 0 and out.count("bottleneck: ") == 4, (code, out, err)
    check_nothing_left()


def a_beton_file_is_of_one_version_of_the_data():
    cache = data / "cache"
    options = ("--mode", "single", "--data-format", "beton", "--cache", cache, "--workers", 0)
    for files in (1, 1, 2):
        if files == 2:   # other labels
            labels = data / "train-labels-idx1-ubyte.gz"
            content = gzip.open(labels).read()
            labels.write_bytes(gzip.compress(content[:8] + bytes(9 - label for label in content[8:]), 1))
        code, out, err = run(*options, "--epochs", 4, "--batch-size", 32)
        assert code == 0 and len(list(cache.iterdir())) == files, (code, out, err, list(cache.iterdir()))
        accuracy = json.loads(out.strip().splitlines()[-1])["runs"][0]["test_accuracy"]
        assert (accuracy > 0.8) == (files == 1) and (accuracy < 0.2) == (files == 2), (files, accuracy)
    # Without --cache it is the user's.
    os.environ["XDG_CACHE_HOME"] = str(data / "of_the_user")
    code, out, err = run("--mode", "single", "--data-format", "beton")
    assert code == 0 and len(list((data / "of_the_user/shoal/fashion-mnist").glob("train-*.beton"))) == 1, (code, out, err)
    file = max(cache.iterdir(), key=lambda f: f.stat().st_mtime_ns)
    file.write_bytes(file.read_bytes()[:5000])
    check_refused(*run(*options), str(file))


def what_a_beton_file_is_not_for_is_refused():
    beton = ("--data-format", "beton", "--cache", data / "cache")
    check_refused(*run("--mode", "ddp", *beton, "--join", "true"), "--join", "--data-format")
    check_refused(*run("--cache", data / "cache"), "--cache", "--data-format")
    check_refused(*run("--data-format", "tar"), "--data-format")
    check_refused(*run("--data-format", "beton", "--cache", data / "train-images-idx3-ubyte.gz"), "--cache", "no folder")
    check_refused(*run(*beton, "--data", "/nowhere/at/all"), "/nowhere/at/all", "dataset-fashion-mnist")
    assert not (data / "cache").exists()


def a_stopped_training_goes_on_with_the_same_losses():
    for mode in ("single", "ddp", "data_parallel"):
        disturbed_and_undisturbed(mode, [signal.SIGTERM], "--mode", mode, "--optimizer", "adam")
    # Alone Hogwild is no race.
    disturbed_and_undisturbed("hogwild", [signal.SIGTERM], "--mode", "hogwild", "--nprocs", 1)


def a_killed_training_goes_on_with_the_same_losses():
    disturbed_and_undisturbed("killed", [signal.SIGKILL], "--mode", "ddp", "--checkpoint-every", 7, "--amp", "bf16")


def a_killed_training_from_a_beton_file_goes_on_with_the_same_losses():
    disturbed_and_undisturbed("killed", [signal.SIGKILL], "--mode", "ddp", "--checkpoint-every", 7,
                              "--data-format", "beton", "--cache", data / "cache")


def a_training_of_uneven_shares_goes_on_with_the_same_losses():
    # Most of an epoch one rank has no batch any more.
    disturbed_and_undisturbed("uneven", [signal.SIGTERM], "--mode", "ddp", "--join", "true", "--shares", "9,1", "--optimizer", "adam")


def another_number_of_ranks_goes_on():
    file = data / "state"
    for ranks, epochs in ((2, 1), (3, 2), (1, 3)):
        code, out, err = run("--mode", "ddp", "--checkpoint", file, "--nprocs", ranks, "--epochs", epochs)
        assert code == 0 and ("goes on from" in err) == (epochs > 1), (code, out, err)
    assert json.loads(out.strip().splitlines()[-1])["runs"][0]["test_accuracy"] > 0.8, out
    code, out, err = run("--mode", "hogwild", "--checkpoint", data / "hogwild")
    assert code == 0, (code, out, err)
    code, out, err = run("--mode", "hogwild", "--checkpoint", data / "hogwild", "--epochs", 4, "--batch-size", 32)
    assert code == 0 and "goes on from" in err, (code, out, err)
    assert json.loads(out.strip().splitlines()[-1])["runs"][0]["test_accuracy"] > 0.8, out


def a_checkpoint_of_something_else_is_refused():
    file = data / "state"
    file.write_bytes(b"this is no checkpoint")
    check_refused(*run("--mode", "single", "--checkpoint", file), str(file), "no folder")
    assert file.read_bytes() == b"this is no checkpoint"
    folder = data / "of_adam"
    code, out, err = run("--mode", "single", "--checkpoint", folder, "--optimizer", "adam")
    assert code == 0, (code, out, err)
    kept = {f.name: f.read_bytes() for f in folder.iterdir()}
    code, out, err = run("--mode", "single", "--checkpoint", folder, "--optimizer", "rmsprop", "--epochs", 2)
    assert code == 2 and str(folder) in err and "optimizer" in err, (code, out, err)
    assert {f.name: f.read_bytes() for f in folder.iterdir()} == kept


def a_profile_of_each_mode_says_which_side_is_the_bottleneck():
    file = data / "state"
    code, out, err = run("--mode", "all", "--profile", 6, "--batch-size", 32, "--checkpoint", file)
    assert code == 0, (code, out, err)
    for heading in ("single, rank 0 of 1", "ddp, rank 0 of 2", "hogwild, rank 0 of 2", "data_parallel, rank 0 of 1"):
        assert heading in out, out
    assert out.count("6 batches, 1 workers") == 4 and out.count("bottleneck: ") == 4, out
    for row in ("dataset (in a worker)", "wait for a batch", "step (in the loop)"):
        assert out.count(row) == 4, out
    assert "test accuracy" not in out and not list(data.glob("state*")), (out, list(data.iterdir()))
    check_nothing_left()


def a_trace_of_a_profile_has_what_the_loop_did():
    file = data / "trace.json"
    code, out, err = run("--mode", "all", "--profile", 4, "--batch-size", 32, "--trace", file)
    assert code == 0, (code, out, err)
    for mode in ("single", "ddp", "hogwild"):  # data_parallel computes elsewhere
        names = [event["name"] for event in json.loads((data / f"trace.json.{mode}").read_text())["traceEvents"]]
        for name, times in (("wait for batch", 4), ("step", 4), ("aten::addmm", 8)):
            assert names.count(name) == times, (mode, name, names.count(name))
        assert "aten::convolution_backward" in names, mode
    code, out, err = run("--profile", 4, "--trace", "/nowhere/at/all/trace.json")  # seen when it is opened
    assert code == 1 and len(err.strip().splitlines()) == 1 and "opening /nowhere/at/all/trace.json" in err, (code, err)
    check_refused(*run("--trace", file), "--trace", "--profile")
    check_nothing_left()


def a_sweep_has_a_table_of_results_and_goes_on():
    runs = data / "runs"

    def sweep(*rates):
        # --sweep takes words up to the next option.
        command = [program, "--data", data, "--mode", "single", "--epochs", "2", "--log", "log", "--sweep-folder", runs,
                   "--sweep", "lr=" + ",".join(rates), "batch_size=32,64"]
        key, value = mark.split("=")
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, stdin=subprocess.DEVNULL,
                              env={**os.environ, "OMP_NUM_THREADS": "1", key: value}, timeout=250)
        rows = [line.split(maxsplit=5) for line in done.stdout.splitlines()]
        assert rows[0] == ["lr", "batch_size", "accuracy", "loss", "seconds", "state"], (done.stdout, done.stderr)
        return done.returncode, rows[1:], done.stderr

    code, rows, err = sweep("0.05")
    assert code == 0, (code, rows, err)
    assert [row[:2] for row in rows] == [["0.05", "32"], ["0.05", "64"]], rows
    assert [row[5] for row in rows] == ["done", "done"], rows
    for row in rows:
        folder = runs / f"lr={row[0]},batch_size={row[1]}"
        assert f"batch_size = {row[1]}" in (folder / "config.toml").read_text(), folder
        last = log_of(folder / "log", "single")["evaluation"][-1]
        assert abs(last["test_accuracy"] - float(row[2])) < 1e-4 and abs(last["train_loss"] - float(row[3])) < 1e-4, (last, row)
        assert float(row[4]) > 0, row
    # Two that are there and two that are not.
    code, again, err = sweep("0.05", "0.01")
    assert code == 0 and [row[5] for row in again] == ["done before", "done before", "done", "done"], (code, again, err)
    assert [row[:5] for row in again[:2]] == [row[:5] for row in rows], (again, rows)
    check_nothing_left()


def interrupted_nothing_is_left():
    process = start("--mode", "ddp", "--epochs", 1000, "--checkpoint", data / "state")
    wait_until(lambda: checkpoints_in(data / "state"), "checkpoint of the first epoch", process)
    os.killpg(process.pid, signal.SIGINT)  # as the terminal does: to every process
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGINT, (process.returncode, out, err)
    check_nothing_left()
    assert not list(data.glob("state/*.part")) and "stopped after step" in err, (list(data.glob("state/*")), err)
    code, out, err = run("--mode", "ddp", "--checkpoint", data / "state")  # whole: it can be gone on from
    assert code == 0 and "goes on from" in err, (code, out, err)
    # Without a checkpoint there is nothing to wait for.
    log = data / "log"
    process = start("--mode", "all", "--epochs", 1000, "--log", log)
    wait_until(lambda: log.exists() and '"event":"begin"' in log.read_text(), "line of the log", process)
    os.kill(process.pid, signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGTERM and "interrupted" in err, (process.returncode, out, err)
    check_nothing_left()


def a_killed_rank_is_named_and_nothing_is_left():
    process = start("--mode", "ddp", "--epochs", 1000, "--checkpoint", data / "state")
    wait_until(lambda: checkpoints_in(data / "state"), "checkpoint of the first epoch", process)
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
