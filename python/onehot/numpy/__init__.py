"""Every operator of onehot on NumPy arrays.

Arguments are arrays, or what ``numpy.asarray`` makes one of; lists of weights beside an input have its precision. Any
strides; values are float32, float64, float16 or, with the package ml_dtypes, bfloat16; indices and targets are integers of
any signed size or uint8. Arrays are handed over where they lie, without a copy.

``out`` is an array to write into, with any strides; it may not overlap the inputs, and its dtype counts. Where there are
several outputs, it is a dict from their names. Without it, outputs are new arrays, and a result without axes is a scalar.

Errors come before anything is written: TypeError for a dtype, IndexError for an index or a target out of range, ValueError
for the rest.
"""

from onehot.numpy._embedding import embedding, embedding_backward
from onehot.numpy._linear import (
    linear_cross_entropy,
    linear_cross_entropy_backward,
    linear_cross_entropy_loss,
    linear_cross_entropy_statistics,
)
from onehot.numpy._losses import cross_entropy, cross_entropy_backward, nll_loss, nll_loss_backward

__all__ = [
    "cross_entropy",
    "cross_entropy_backward",
    "embedding",
    "embedding_backward",
    "linear_cross_entropy",
    "linear_cross_entropy_backward",
    "linear_cross_entropy_loss",
    "linear_cross_entropy_statistics",
    "nll_loss",
    "nll_loss_backward",
]
