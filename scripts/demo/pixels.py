"""The check of the demo's classifier of pixels against its definition.

  pixels.py DIR LOSS RIGHT    what examples/pixel_classifier.cpp left in DIR, and loss.npy and nll_gradient.npy, which
                              nll-loss and nll-loss-backward computed from it; LOSS and RIGHT (in %) are what it printed
"""

import pathlib
import struct
import sys
import zlib

import numpy as np

IGNORED = 255
U = 2.0**-24


def require(condition, sentence):
    if not condition:
        sys.exit(sentence)


def read_png(path):
    """Class numbers [H, W] and the size of the palette of a PNG with 8 bits a pixel and a palette, unfiltered."""
    content = path.read_bytes()
    require(content[:8] == b"\x89PNG\r\n\x1a\n", f"{path}: not a PNG file")
    parts, at = {}, 8
    while at < len(content):
        length, kind = struct.unpack(">I4s", content[at : at + 8])
        body = content[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack(">I", content[at + 8 + length : at + 12 + length])
        require(checksum == zlib.crc32(kind + body), f"{path}: chunk {kind.decode()} is damaged")
        parts[kind] = parts.get(kind, b"") + body
        at += 12 + length
    require(list(parts)[0] == b"IHDR" and list(parts)[-1] == b"IEND", f"{path}: cut off")
    width, height, *form = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    require(form == [8, 3, 0, 0, 0], f"{path}: not 8 bits a pixel with a palette")
    rows = np.frombuffer(zlib.decompress(parts[b"IDAT"]), np.uint8).reshape(height, width + 1)
    require((rows[:, 0] == 0).all(), f"{path}: filtered rows")
    return rows[:, 1:], len(parts[b"PLTE"]) // 3


def check(directory, loss, right):
    directory = pathlib.Path(directory)
    load = lambda name: np.load(directory / f"{name}.npy")
    target, lse, logs, weight = load("target")[0], load("lse")[0], load("log_probability")[0], load("weight")
    classes = len(weight)
    counted = target != IGNORED
    y = np.where(counted, target, 0)
    at_target = np.take_along_axis(logs, y[None].astype(np.int64), 0)[0]
    spread = 5 * 2 * U * np.maximum(1, np.abs(lse.astype(np.float64)))

    # A log-sum-exp is off by at most 5 units in the last place of max(1, |lse|), 2^-23 of it each (cross_entropy.h), and
    # the log-probability by that and its own rounding; so is the loss of the classifier, by 5 units of max(1, |loss|).
    nll = float(load("loss"))
    allowed = spread.max() + 11 * U * max(1, np.abs(at_target[counted]).max())
    apart = abs(nll - float(loss))
    require(apart <= allowed, f"nll-loss gives {nll:.9g}, the classifier {loss}, allowed difference {allowed:.2g}")
    print(f"nll-loss of its log-probabilities gives {nll:.9f}: apart by {apart:.1g}, {allowed:.1g} is allowed")

    # Through the softmax: the gradient of the logits is n - p * sum of n, n that of the log-probabilities. With s the
    # size of n at the target: in either gradient p is the exponential of something that is off by `spread` and by a rounding
    # of log p, and p |log p| < 1/2, so one rounding for both; 15 more are those of the factors, of exp, and of p - 1.
    n, gradient = load("nll_gradient")[0].astype(np.float64), load("gradient")[0]
    size = -n.sum(0)
    p = np.exp(logs.astype(np.float64))
    exact = n + p * size
    allowed = size * (2 * spread * p + 16 * U)
    error = np.abs(gradient - exact)
    require((error <= allowed).all(), f"the gradients differ by up to {error.max():.3g}")
    worst = np.unravel_index(np.argmax(error), error.shape)
    print(f"nll-loss-backward, taken through the softmax, gives its gradient: apart by {error[worst]:.2g} at most, where "
          f"{allowed[worst]:.2g} is allowed")
    require((gradient[:, ~counted] == 0).all() and (n[:, ~counted] == 0).all(), "an ignored pixel has a gradient")

    labels, colours = read_png(directory / "labels.png")
    prediction, _ = read_png(directory / "prediction.png")
    require((labels == np.where(counted, target, classes)).all() and colours == classes + 1, "labels.png is not the map")
    require(prediction.max() < classes, "prediction.png has pixels without a class")
    share = f"{100 * (prediction[counted] == target[counted]).mean():.2f}"
    require(share == right, f"prediction.png is right in {share} % of the pixels, the classifier says {right} %")


if __name__ == "__main__":
    check(*sys.argv[1:])
