"""What the examples share: a text as numbers, steps in a process of their own, their memory, a picture of it."""

import argparse
import collections
import multiprocessing
import pathlib
import re
import time

import matplotlib
import torch
from tqdm import tqdm

matplotlib.use("Agg")  # files only
import matplotlib.pyplot as plt

FORTUNES = pathlib.Path("/usr/share/games/fortunes")


def read_words(files):
    """The words of the files as numbers, the most frequent first, and how many words there are."""
    files = files or sorted(f for f in FORTUNES.glob("*") if f.is_file() and not f.suffix)
    if not files:
        raise SystemExit("no text: install the Debian package fortunes, or name text files")
    content = " ".join(pathlib.Path(file).read_text(encoding="utf-8", errors="replace") for file in files)
    words = re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", content.lower())
    number = {word: k for k, (word, _) in enumerate(collections.Counter(words).most_common())}
    return torch.tensor([number[word] for word in words]), len(number)


def memory(name):
    """In MB: VmRSS, what is resident, or VmHWM, the most that was since `reset_peak`."""
    status = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(rf"^{name}:\s*(\d+)", status, re.MULTILINE)[1]) * 1024 / 1e6


def reset_peak():
    pathlib.Path("/proc/self/clear_refs").write_text("5")


def apart(train, heads, *arguments):
    """train(head, *arguments) for each head, in a new process each: no memory that one has left is there for the next."""
    with multiprocessing.get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
        return {head: pool.apply(train, (head, *arguments)) for head in heads}


def train(head, steps, optimizer, loss_of_step):
    """Minimises what loss_of_step() gives, and notes the loss and the most memory of each step."""
    run = {"loss": [], "memory": [], "before": memory("VmRSS")}
    start = time.perf_counter()
    with tqdm(range(steps), desc=head) as bar:
        for _ in bar:
            reset_peak()
            loss = loss_of_step()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            run["loss"].append(loss.item())
            run["memory"].append(memory("VmHWM"))
            bar.set_postfix(loss=f"{loss.item():.3f}")
    return run | {"seconds": time.perf_counter() - start}


def main(description, train, title, steps, file):
    """The command line: train(head, steps, files) with each head, then the report."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--head", choices=["plain", "onehot", "both"], default="both")
    parser.add_argument("--steps", type=int, default=steps)
    parser.add_argument("--out", default=file, help="of the picture, .png or .svg")
    parser.add_argument("text", nargs="*")
    options = parser.parse_args()
    heads = ["plain", "onehot"] if options.head == "both" else [options.head]
    report(apart(train, heads, options.steps, options.text), title, options.out)


def report(runs, title, file):
    """Prints the end of each run, and draws loss and memory by step."""
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    figure.suptitle(title)
    styles = {"plain": {"linewidth": 5, "color": "tab:orange", "alpha": 0.5}, "onehot": {"linewidth": 1.5, "color": "tab:blue"}}
    for head, run in runs.items():
        for panel, what in zip(axes, ("loss", "memory")):
            panel.plot(range(1, len(run[what]) + 1), run[what], label=head, **styles[head])
        print(f"{head:7} loss {run['loss'][-1]:.4f}, {run['seconds']:.1f} s, at most {max(run['memory']):.0f} MB resident, "
              f"{run['before']:.0f} MB of them before the first step")
    if len(runs) == 2:
        print(f"losses differ by {max(abs(a - b) for a, b in zip(*(run['loss'] for run in runs.values()))):.1g} at most")
    for panel, label in zip(axes, ("loss", "most resident memory of a step, MB")):
        panel.set_xlabel("step")
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
        panel.legend()
    axes[1].set_ylim(bottom=0)
    figure.savefig(file, dpi=120)
    print(f"wrote {file}")
