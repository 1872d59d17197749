"""Embedding, NLL loss and linear cross entropy as functions that JAX differentiates and compiles, on the CPU.

They work under ``jax.jit``, ``jax.grad`` and its relatives, ``jax.vmap``, ``jax.lax.scan`` and ``jax.checkpoint``. Arguments
are arrays, or what ``jax.numpy.asarray`` makes one of: values float32, bfloat16, float16 or, with ``jax_enable_x64``, float64;
indices and targets int32, int64, int16, int8 or uint8. XLA hands over dense arrays; a transposed one is copied first.

Each function has a derivative in reverse mode with respect to its table, its log-probabilities, or input, weight and bias
of its linear layer. The other arguments have none: a gradient with respect to them is zero. What JAX knows to be constant costs
nothing: there is no product for the gradient of a frozen weight.

Errors: TypeError for a dtype and ValueError for a shape or an option, when a function is traced. An index or a target out
of range is found when it runs; JAX raises ``jax.errors.JaxRuntimeError`` then (or ValueError), with the same sentence as
elsewhere, and it may do so only where the result is waited for. Ctrl-C waits for a call that runs.

Without ``jax_enable_x64`` JAX keeps the low 32 bits of an integer. Indices and targets in NumPy arrays and lists are looked at
before, and IndexError names what does not fit; what ``jax.jit`` or ``jax.numpy.asarray`` was given is past that.

``onehot.set_num_threads`` holds here too; results have the same bits for every number of threads. Under a jit with sharded
arrays XLA gathers what these functions are given; ``jax.shard_map`` with ``check_vma=False`` runs them on the shards.
"""

from onehot.jax import _register as _register  # first, since it says what is missing
from onehot.jax._embedding import embedding
from onehot.jax._linear import linear_cross_entropy
from onehot.jax._nll import nll_loss

__all__ = ["embedding", "linear_cross_entropy", "nll_loss"]
