"""The parts of the demo that are not onehot: the text, the loss, the descent, and the check against the definition.

  cbow.py text DIR BATCH WIDTH FILE...       vocabulary.txt, tokens.npy, table.npy from the words of the files
  cbow.py loss ROWS GRAD                     the gradient of the loss in the gathered rows; prints the loss
  cbow.py step TABLE GRADIENT RATE           table -= rate * gradient, in place
  cbow.py check TABLE TOKENS GRAD GRADIENT   the embedding gradient against its definition in double, and against the
                                             slope of the loss

The loss predicts the vector of a token from the mean of its neighbours' vectors, two on each side:

  e[i] = mean of rows[j] over j = i-2, i-1, i+1, i+2 that exist - rows[i]        loss = sum of e[i]^2 / (2 N)

All of it is in f32 with one rounding per operation and in a fixed order, so that examples/aclnn_embedding_demo.c gets the
same bits.
"""

import collections
import pathlib
import sys

import numpy as np

from words import read_words

OFFSETS = (-2, -1, 1, 2)


def text(directory, batch, width, *files):
    characters, words, vocabulary, counts = read_words(files)
    tokens = words[: int(batch)]
    table = np.random.default_rng(1).standard_normal((len(vocabulary), int(width)), np.float32)
    table /= np.float32(int(width) ** 0.5)  # vectors of length 1, about

    directory = pathlib.Path(directory)
    (directory / "vocabulary.txt").write_text("".join(f"{counts[word]} {word}\n" for word in vocabulary))
    np.save(directory / "tokens.npy", tokens)
    np.save(directory / "table.npy", table)

    used = collections.Counter(tokens.tolist())
    print(f"{len(files)} files, {characters / 1e6:.1f} MB, {len(words):,} words, {len(vocabulary):,} of them distinct")
    once = sum(n == 1 for n in used.values())
    print(f"the first {len(tokens):,} words: {len(used):,} distinct, {once:,} of them occur once")
    print("  ".join(f"{vocabulary[k]} {n:,}" for k, n in used.most_common(8)))
    print(f"table {len(table):,} x {width} f32 ({table.nbytes / 1e6:.1f} MB), "
          f"rows and their gradient {len(tokens):,} x {width} f32 ({4e-6 * len(tokens) * int(width):.1f} MB each)")


def over_neighbours(values):
    """At each position the sum of the values at its neighbours."""
    total = np.zeros_like(values)
    for offset in OFFSETS:
        if offset < 0:
            total[-offset:] += values[:offset]
        else:
            total[:-offset] += values[offset:]
    return total


def prediction_error(rows):
    """The error e of the predictions, and the number of neighbours at each position."""
    neighbours = over_neighbours(np.ones((len(rows), 1), rows.dtype))
    return over_neighbours(rows) / neighbours - rows, neighbours


def mean_loss(error):
    return np.square(error, dtype=np.float64).sum() / (2 * len(error))


def loss(rows_path, grad_path):
    rows = np.load(rows_path, mmap_mode="r")
    error, neighbours = prediction_error(rows)
    np.save(grad_path, (over_neighbours(error / neighbours) - error) / np.float32(len(rows)))
    print(f"{mean_loss(error):.5f}")


def step(table_path, gradient_path, rate):
    table = np.load(table_path)
    np.save(table_path, table - np.float32(rate) * np.load(gradient_path, mmap_mode="r"))


def check(table_path, tokens_path, grad_path, gradient_path):
    grad = np.load(grad_path).astype(np.float64)
    tokens = np.load(tokens_path)
    result = np.load(gradient_path)
    exact = np.zeros(result.shape)
    magnitude = np.zeros(result.shape)
    np.add.at(exact, tokens, grad)
    np.add.at(magnitude, tokens, np.abs(grad))

    # A row named c times is summed left to right in chunks of 512 and so are the chunks: an addend goes through at most
    # k = min(c, 512) - 1 + ceil(c / 512) - 1 additions, so the error is at most k u / (1 - k u) times the sum of
    # magnitudes, u = 2^-24. The double sum here errs by (c - 1) 2^-53 of it, which the last term allows.
    c = np.bincount(tokens, minlength=len(result))[:, None]
    k = np.maximum(np.minimum(c, 512) - 1 + -(-c // 512) - 1, 0)
    u = 2.0**-24
    bound = (k * u / (1 - k * u) + np.maximum(c - 1, 0) * 2.0**-53) * magnitude
    error = np.abs(result - exact)
    if not (error <= bound).all():  # also if the result is NaN
        v, d = np.unravel_index(np.argmax(~(error <= bound)), error.shape)
        sys.exit(f"gradient[{v}, {d}] = {result[v, d]!r}, the definition gives {exact[v, d]!r}, bound {bound[v, d]:.3g}")
    worst = np.unravel_index(np.argmax(error), error.shape)
    print(f"largest error {error[worst]:.2g} at a value of {exact[worst]:.2g}, where {bound[worst]:.2g} is allowed")
    print(f"all {error.size:,} elements within their bounds; {(c == 1).sum():,} rows named once are copies, "
          f"{(c == 0).sum():,} never named are 0")

    # The loss is quadratic in the table, so its central difference along the gradient is exactly its slope there, which is
    # the square of the gradient. The double arithmetic here is good to 1e-12; what f32 lost, u = 6e-8 for each of some ten
    # roundings of either sign between the table and the gradient, stays far below 1e-5.
    rows = np.load(table_path).astype(np.float64)[tokens]
    along = result.astype(np.float64)[tokens]
    slope = (mean_loss(prediction_error(rows + along)[0]) - mean_loss(prediction_error(rows - along)[0])) / 2
    square = np.square(result, dtype=np.float64).sum()
    if not abs(slope - square) <= 1e-5 * square:
        sys.exit(f"the loss has slope {slope:.9g} along the gradient, whose square is {square:.9g}")
    print(f"slope of the loss along the gradient {slope:.7f}, square of the gradient {square:.7f}")


if __name__ == "__main__":
    {"text": text, "loss": loss, "step": step, "check": check}[sys.argv[1]](*sys.argv[2:])
