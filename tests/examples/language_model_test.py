"""language_model_test.py SHOAL PROGRAM METHOD: one test of train_language_model, as a tiny network on a text made for it."""

import json
import math
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

shoal, program, method = sys.argv[1:]
folder = tempfile.TemporaryDirectory()
here = pathlib.Path(folder.name)
tiny = ("--size.layers", 1, "--size.width", 32, "--size.heads", 2, "--size.context", 16, "--batch-size", 12, "--lr", 0.01,
        "--evaluate-every", 50, "--log-every", 7, "--sample", 40, "--text", here / "text")


def make_text():
    chance = random.Random(1)
    words = ["the ring", "a queue", "the heap", "one slot", "a worker"], ["holds", "wakes", "frees", "reads"]
    sentence = lambda: f"{chance.choice(words[0])} {chance.choice(words[1])} {chance.choice(words[0])}. "
    (here / "text").write_text("".join(sentence() for _ in range(600)))


def start(ranks, *options):
    command = [shoal, "run", "--nproc-per-node", ranks, "--", program, *tiny, *options]
    return subprocess.Popen([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            stdin=subprocess.DEVNULL, start_new_session=True)


def run(ranks, *options):
    process = start(ranks, *options)
    out, err = process.communicate(timeout=200)
    return process.returncode, re.sub(r"^\[rank\d+\]: ?", "", out, flags=re.MULTILINE), err


def lines_of(log, event):
    found = {line["step"]: line for line in map(json.loads, log.read_text().splitlines()) if line["event"] == event}
    return [found[step] for step in sorted(found)]


def it_learns_and_writes():
    log, plots, text = here / "log", here / "plots", (here / "text").read_text()
    code, out, err = run(2, "--steps", 140, "--log", log, "--plots", plots, "--prompt", "the ", "--sample", 300)
    assert code == 0, (code, out, err)
    begin, = lines_of(log, "begin")
    kinds = len(set(text))
    # A table for both ends, places, one layer of 12 w^2 + 13 w, and the last norm.
    assert begin["ranks"] == 2 and begin["amp"] == "bf16", begin
    assert begin["parameters"] == kinds * 32 + 16 * 32 + 12 * 32 * 32 + 13 * 32 + 2 * 32, begin
    steps, evaluations = lines_of(log, "step"), lines_of(log, "evaluation")
    assert [line["step"] for line in steps] == list(range(7, 141, 7)), steps
    assert [line["tokens"] for line in steps] == [12 * 16 * line["step"] for line in steps], steps
    assert all(line["tokens_per_second"] > 0 and line["seconds"] > 0 for line in steps), steps
    assert [line["step"] for line in evaluations] == [50, 100, 140], evaluations
    # Worse than any other guess at first, and in the end far better than the characters' frequencies.
    entropy = -sum(n / len(text) * math.log(n / len(text)) for n in map(text.count, set(text)))
    assert abs(steps[0]["loss"] - math.log(kinds)) < 0.5 and evaluations[-1]["test_loss"] < 0.5 * entropy, (entropy, evaluations)
    assert re.search(r"140 steps, test loss \d\.\d+, \d+ tokens/s", out), out
    written = out[out.index("\nthe ") + 1:].rstrip("\n")
    written = written.split(f"\n{plots}")[0]
    assert 250 < len(written) <= 305 and set(written) <= set(text), written
    known = set(re.findall(r"[a-z]+", text))
    words = re.findall(r"[a-z]+", written)[:-1]
    assert sum(word in known for word in words) > len(words) / 2, written
    assert sorted(f.name for f in plots.iterdir()) == ["learning_rate.svg", "loss.svg"], list(plots.iterdir())


def a_stopped_training_goes_on_with_the_same_losses():
    logs = here / "disturbed", here / "undisturbed"
    # Dropout and bf16 are on; the rate does not depend on the number of steps.
    options = ("--schedule.decay", "constant", "--schedule.warmup", 0, "--checkpoint-every", 10, "--evaluate-every", 10**6)
    process = start(2, *options, "--steps", 10**6, "--log", logs[0], "--checkpoint", here / "state")
    while not logs[0].exists() or '"event":"step"' not in logs[0].read_text():
        assert process.poll() is None, process.communicate()
        time.sleep(0.02)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=100)
    stopped = int(re.search(r"stopped after step (\d+)", out)[1])
    last = max(int(f.name[5:17]) for f in (here / "state").glob("*.checkpoint"))
    assert last == stopped and not list((here / "state").glob("*.part")), (out, err)
    steps = stopped + 20
    for log, more in ((logs[0], ("--checkpoint", here / "state")), (logs[1], ())):
        code, out, err = run(2, *options, "--steps", steps, "--log", log, *more)
        assert code == 0 and f"go on after step {stopped if more else 0}\n" in out, (code, out, err)
    numbers = [([(line["step"], line["loss"]) for line in lines_of(log, "step")], lines_of(log, "evaluation")[-1]["test_loss"]) for log in logs]
    assert len(numbers[1][0]) == steps // 7 and numbers[0] == numbers[1], (stopped, numbers)


def two_ranks_compute_what_one_does():
    ends = []
    for ranks in (1, 2, 3):
        log = here / f"log.{ranks}"
        code, out, err = run(ranks, "--steps", 50, "--amp", "none", "--size.dropout", 0, "--log", log)
        assert code == 0, (code, out, err)
        end, = lines_of(log, "evaluation")
        assert end["tokens"] == 50 * 12 * 16, end
        ends.append(end["test_loss"])
    assert max(ends) - min(ends) < 1e-3, ends
    # Another number of ranks goes on.
    losses = []
    for ranks, steps in ((2, 25), (1, 50)):
        log = here / f"log.then.{ranks}"
        code, out, err = run(ranks, "--steps", steps, "--amp", "none", "--size.dropout", 0, "--schedule.decay", "constant", "--log", log,
                             "--checkpoint", here / "state", "--checkpoint-every", 25)
        assert code == 0, (code, out, err)
        losses.append(lines_of(log, "evaluation")[-1]["test_loss"])
    assert "go on after step 25\n" in out and losses[1] < losses[0], (out, losses)


def what_makes_no_sense_is_refused():
    for options, words in ((("--batch-size", 13), ("--batch-size is 13", "2 ranks")), (("--text", "/nowhere/text"), ("--text", "/nowhere/text")),
                           (("--size.heads", 5), ("width 32", "5 heads")), (("--size.context", 5000), ("--text has", "5000")),
                           (("--plots", here / "plots"), ("--plots", "--log")), (("--prompt", ""), ("--prompt",))):
        code, out, err = run(2, *options, "--steps", 2)
        assert code != 0 and all(word in err for word in words), (options, code, out, err)
    code, out, err = run(1, "--steps", 2, "--checkpoint", here / "state", "--checkpoint-every", 1)
    assert code == 0, (code, out, err)
    other = here / "other"
    other.write_text((here / "text").read_text().translate(str.maketrans("aeiou", "AEIOU")))
    code, out, err = run(1, "--steps", 4, "--checkpoint", here / "state", "--text", other)
    assert code != 0 and "--checkpoint is of a text with other characters" in err, (code, out, err)
    code, out, err = run(1, "--steps", 4, "--checkpoint", here / "state", "--size.width", 64)
    assert code != 0 and "CheckpointError" in err or "checkpoint" in err, (code, out, err)
    alone = subprocess.run([program, *map(str, tiny), "--steps", "2", "--sample", "0"], capture_output=True, text=True, timeout=100)
    assert alone.returncode == 0 and "1 ranks go on after step 0" in alone.stdout, alone


make_text()
try:
    globals()[method]()
finally:
    folder.cleanup()
print("1 passed, 0 failed")
