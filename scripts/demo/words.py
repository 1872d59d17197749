"""Words of a text as numbers, and the check of a training step of the next-word model against its definition.

  words.py text WORDS FILE...    WORDS gets all words of the files as numbers, by frequency, [words] i32
  words.py check DIR             the step that examples/word_model.cpp left in DIR
"""

import collections
import pathlib
import re
import sys

import numpy as np

U = 2.0**-24  # half a unit in the last place of an f32 in [1, 2)


def read_words(files):
    """Characters of the files, their words as numbers, the words by frequency, and how often each of them occurs."""
    content = [pathlib.Path(file).read_text(encoding="utf-8", errors="replace") for file in files]
    words = [word for part in content for word in re.findall(r"[^\W\d_]+(?:'[^\W\d_]+)*", part.lower())]
    counts = collections.Counter(words)
    vocabulary = sorted(counts, key=lambda word: (-counts[word], word))
    number = {word: k for k, word in enumerate(vocabulary)}
    return sum(map(len, content)), np.array([number[word] for word in words], np.int64), vocabulary, counts


def text(path, *files):
    np.save(path, read_words(files)[1].astype(np.int32))


def sum_and_error(terms, errors):
    """Sums over the first axis as a chain of fused multiply-adds in f32 gives them, in double, and by how much the chain
    may be off: each addition rounds its own result, and each term has an error to begin with."""
    sums = np.cumsum(terms, axis=0)
    return sums[-1], 1.01 * U * np.abs(sums).sum(axis=0) + errors.sum(axis=0)  # 1.01: the chain's sums are off themselves


def compare(name, result, exact, allowed):
    error = np.abs(result - exact)
    worst = np.unravel_index(np.argmax(np.where(error <= allowed, error, np.inf)), error.shape)  # a NaN comes first
    if not error[worst] <= allowed[worst]:
        sys.exit(f"{name}{list(map(int, worst))} = {result[worst]:.9g}, the definition gives {exact[worst]:.9g}, "
                 f"bound {allowed[worst]:.3g}")
    return f"largest error {error[worst]:.2g} at a value of {exact[worst]:.2g}, where {allowed[worst]:.2g} is allowed"


def check(directory):
    load = lambda name: np.load(pathlib.Path(directory) / f"{name}.npy")
    x, table, dx, dtable, drows = (load(name).astype(np.float64) for name in ("x", "table", "dx", "dtable", "drows"))
    target, context = load("target"), load("context")
    n, v, h = len(x), len(table), x.shape[1]
    some = np.arange(0, n, -(-n // 32))  # positions, and classes: the frequent ones and some of all others
    classes = np.unique(np.concatenate([np.arange(min(64, v)), np.arange(0, v, -(-v // 256))]))

    # A logit is a chain of H fused multiply-adds: off by at most H u sum |x w| <= H u s with s = |x| max |w|. The
    # log-sum-exp is then off by that and 5 units in its last place, 2 u each (cross_entropy.h), and p in proportion by both,
    # and by the roundings of the argument of exp, |z - max| <= 2 s and as much again for its reduction, of exp and the
    # division. p - 1 and the factor 1 / n are rounded too.
    s = np.linalg.norm(x, axis=1) * np.linalg.norm(table, axis=1).max()
    lse, p = np.empty(n), np.empty((n, len(classes)))
    for begin in range(0, n, 128):  # 128 V doubles at a time
        z = x[begin : begin + 128] @ table.T
        top = z.max(axis=1)
        lse[begin : begin + 128] = top + np.log(np.exp(z - top[:, None]).sum(axis=1))
        p[begin : begin + 128] = np.exp(z[:, classes] - lse[begin : begin + 128, None])
    at_target = (x * table[target]).sum(axis=1)
    off = U * (2 * h * s + 10 * np.maximum(1, lse))
    exact, allowed = (lse - at_target).mean(), off.mean() + U * np.abs(lse - at_target).mean()
    loss = float(load("loss"))
    if not abs(loss - exact) <= allowed:
        sys.exit(f"the loss is {loss:.9g}, the definition gives {exact:.9g}, bound {allowed:.2g}")
    print(f"loss {loss:.9f}: apart by {abs(loss - exact):.1g}, {allowed:.1g} is allowed")
    relative = 1.01 * (off + U * (4 * s + 16))

    def logit_gradient(p, is_target, relative):
        return (p - is_target) / n, (relative * p + 4 * U * np.abs(p - is_target)) / n

    exact, allowed = np.empty((len(some), h)), np.empty((len(some), h))
    for k, i in enumerate(some):
        dz, error = logit_gradient(np.exp(table @ x[i] - lse[i]), np.arange(v) == target[i], relative[i])
        exact[k], allowed[k] = sum_and_error(dz[:, None] * table, error[:, None] * np.abs(table))
    said = compare("dx", dx[some], exact, allowed)
    print(f"gradient of x at {len(some)} positions: {said}")

    exact, allowed = np.empty((len(classes), h)), np.empty((len(classes), h))
    for k, word in enumerate(classes):
        dz, error = logit_gradient(p[:, k], target == word, relative)
        head, head_error = sum_and_error(dz[:, None] * x, error[:, None] * np.abs(x))
        rows = drows[context == word]  # chunks of 512 and then their sums, each of it at most one chain of all
        words, words_error = sum_and_error(rows, 0 * rows) if len(rows) else (0, 0)
        words_error += U * len(rows) * np.abs(rows).sum(axis=0)
        exact[k], allowed[k] = head + words, head_error + words_error + U * np.abs(head + words)
    said = compare("dtable", dtable[classes], exact, allowed)
    print(f"gradient of the table for {len(classes)} words: {said}")


if __name__ == "__main__":
    {"text": text, "check": check}[sys.argv[1]](*sys.argv[2:])
