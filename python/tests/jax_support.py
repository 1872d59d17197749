"""What the tests of onehot.jax share."""

import contextlib

import jax
import numpy as np

# Half a unit in the last place of 1.
UNIT = {"float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8, "float64": 2.0**-53}


def zipf(rng, size, classes):
    """Skewed as words are: rank r with a probability of about 1 / r, over shuffled names."""
    rank = np.minimum(rng.zipf(1.3, size) - 1, classes - 1)
    return rng.permutation(classes)[rank].astype(np.int32)


def same_bits(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


@contextlib.contextmanager
def x64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    try:
        yield
    finally:
        jax.config.update("jax_enable_x64", before)
