"""The code of docs/python.md and README.md runs, and so do the examples: the same losses with both heads."""

import importlib
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "python.md"
README = ROOT / "README.md"
EXAMPLES = ROOT / "examples" / "python"
TEXT = [ROOT / "README.md", ROOT / "DESIGN.md"]


def sections(page=PAGE):
    """(title, [(language, code)]) of each section of a page that has code."""
    found, block = [("", [])], None
    for number, line in enumerate(page.read_text().splitlines(), 1):
        if block is None and line.startswith("#"):
            found.append((line.lstrip("# "), []))
        elif block is None and line.startswith("```"):
            # So many empty lines before it that an error names the line of the page.
            block = (line[3:], ["\n" * number] if line == "```python" else [])
        elif block is not None and line == "```":
            found[-1][1].append((block[0], "".join(block[1])))
            block = None
        elif block is not None:
            block[1].append(line + "\n")
    assert block is None
    return [section for section in found if section[1]]


def need(code):
    """Skips where what the code imports is not there."""
    for name in ("ml_dtypes", "torch", "jax"):
        if re.search(rf"^(import|from) {name}\b", code, re.MULTILINE):
            pytest.importorskip(name)
    if "torch.compile" in code and not hasattr(sys.modules["torch"].library, "register_autograd"):
        pytest.skip("needs PyTorch 2.4")


def python_blocks():
    """A parameter for each section that has some."""
    found = []
    for page in (PAGE, README):
        for title, blocks in sections(page):
            if code := [source for language, source in blocks if language == "python"]:
                found.append(pytest.param(page, code, id=re.sub(r"\W+", "-", title)))
    return found


@pytest.mark.parametrize("page,blocks", python_blocks())
def test_page(page, blocks, capsys):
    """The blocks of a section are one program."""
    for code in blocks:
        need(code)
    namespace = {}
    for code in blocks:
        exec(compile(code, page, "exec"), namespace)
        # What a comment says is printed.
        said = re.findall(r"^ *print\(.*\)  # (.*)$", code, re.MULTILINE)
        assert capsys.readouterr().out.splitlines() == said


def test_diff():
    """Both sides of the page's diff compute the same loss and gradients."""
    torch = pytest.importorskip("torch")
    import onehot.torch

    (diff,) = (code for _, blocks in sections() for language, code in blocks if language == "diff")
    x = torch.arange(12.0).reshape(3, 4).sin()
    w = torch.arange(20.0).reshape(5, 4).cos()
    y = torch.tensor([4, 0, 4])
    results = []
    for side in "-+":
        code = "".join(line[1:] for line in diff.splitlines(True) if line[0] in " " + side)
        namespace = {"torch": torch, "onehot": onehot}
        exec(code, namespace)
        leaves = x.clone().requires_grad_(), w.clone().requires_grad_()
        results.append([namespace["step"](*leaves, y).detach(), *(leaf.grad for leaf in leaves)])
    for plain, ours in zip(*results):
        # Sums of at most 5 terms of magnitude at most 2, in an order of their own.
        assert (plain - ours).abs().max() <= 10 * 2 * 2.0**-24
    assert results[0][0] > 0


def test_keywords():
    """Every keyword that the page names is one."""
    pytest.importorskip("torch")
    import inspect

    import onehot.torch

    known = inspect.signature(onehot.torch.linear_cross_entropy).parameters
    rows = [
        line.split("|")[3] for line in PAGE.read_text().splitlines() if line.startswith("|") and line.count("|") == 4
    ]
    named = [name for row in rows for name in re.findall(r"`(\w+)=", row)]
    assert len(named) > 8 and set(named) <= set(known)


# ---- examples


def run(script, *arguments):
    """The lines that a script prints."""
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    done = subprocess.run(
        [sys.executable, "-B", script, *map(str, arguments)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("example, modules", [("train.py", []), ("causal_lm.py", ["transformers"])])
def test_example(example, modules, tmp_path):
    for name in ["torch", "tqdm", "matplotlib", *modules]:
        pytest.importorskip(name)
    picture = tmp_path / "picture.svg"
    lines = run(EXAMPLES / example, "--steps", 2, "--out", picture, *TEXT)
    head = r"loss (\d+\.\d+), \d+\.\d s, at most (\d+) MB resident, (\d+) MB of them before the first step"
    ends = [re.fullmatch(rf"{name} +{head}", line) for name, line in zip(("plain", "onehot"), lines)]
    assert all(ends), lines
    difference = float(re.fullmatch(r"losses differ by (\S+) at most", lines[2])[1])
    # A loss of some 8 is off by 2^-21 or so in f32. A parameter whose gradient is nothing but rounding may move by the whole
    # learning rate either way, and moves the next loss by that rate times its gradient: 1e-9 x 1e-3 for each of 1e6.
    assert difference < 1e-4
    assert float(ends[0][1]) > 1
    assert "<svg" in picture.read_text()


def test_benchmark_runs():
    """With a tiny shape; the errors are those of bf16."""
    torch = pytest.importorskip("torch")
    if not hasattr(torch.nn, "LinearCrossEntropyOptions"):
        pytest.skip("needs PyTorch 2.13")
    ways = ("saving", "onehot-0")
    chosen = [word for way in ways for word in ("--way", way)]
    lines = run(ROOT / "bench" / "python_linear_cross_entropy.py", "--shape", "16x32x257", "--dtype", "bf16", *chosen)
    rows = [
        re.fullmatch(r"\| bf16 \| .* \| \d+ \| \d+ \| (\S+) \| (\S+) \| (\S+) \|", line) for line in lines[-len(ways) :]
    ]
    assert all(rows), lines
    for row in rows:
        # One rounding of the loss, of the gradients, and of the logits by those who keep them: 2^-9 of some 8 and 1.
        assert all(float(error) < 0.05 for error in row.groups())


@pytest.fixture
def causal_lm(monkeypatch):
    for name in ("torch", "tqdm", "matplotlib", "transformers"):
        pytest.importorskip(name)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module("causal_lm")


@pytest.mark.parametrize("items", [None, 37])
def test_causal_lm_is_the_model(causal_lm, items):
    """Loss and gradients of the other head, with padding, labels that do not count, and a divisor from outside."""
    import torch

    torch.manual_seed(0)
    plain = causal_lm.LlamaForCausalLM(causal_lm.configuration(100))
    ours = causal_lm.OnehotCausalLM(plain.config)
    ours.load_state_dict(plain.state_dict())
    tokens = torch.arange(2 * 24).reshape(2, 24) * 7 % 100
    attends = torch.ones_like(tokens)
    attends[1, 16:] = 0
    labels = tokens.masked_fill(attends == 0, -100)
    arguments = {"input_ids": tokens, "attention_mask": attends, "labels": labels}
    if items is not None:
        arguments["num_items_in_batch"] = torch.tensor(items)
    losses = [model(**arguments).loss for model in (plain, ours)]
    for loss in losses:
        loss.backward()
    assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-6)
    for (name, p), q in zip(plain.named_parameters(), ours.parameters()):
        # Through two layers; an error in the head would be of the gradient's own size.
        assert (p.grad - q.grad).abs().max() <= 1e-4 * p.grad.abs().max(), name
    # Without labels it is the same model.
    prompt = {"input_ids": tokens.flip(1), "attention_mask": attends.flip(1), "pad_token_id": 0}
    texts = [model.generate(**prompt, max_new_tokens=4, do_sample=False) for model in (plain, ours)]
    assert torch.equal(*texts)
