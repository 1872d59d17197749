"""Gradients at the class-index end of a model: exact, bit-reproducible, at the speed of memory.

Embedding backward, NLL loss backward and linear cross entropy, each a product with a one-hot matrix that is never built:

    onehot.numpy   every operator, on NumPy arrays, with ``out=``
    onehot.torch   embedding, nll_loss and linear_cross_entropy with autograd, and modules of them
    onehot.jax     the same three, as functions that JAX differentiates and compiles

They are imported by name (``import onehot.torch``); nothing here imports PyTorch or JAX. Errors are ValueError, TypeError
and, for an index or a target out of range, IndexError; their sentence names argument, rule and value, and no output has been
written then. Calls release the GIL, and Ctrl-C stops those that last.

The environment variables ONEHOT_LOG, ONEHOT_FORCE and ONEHOT_MAX_ISA are those of the library: what ran and why, and which
implementation and instruction set may.
"""

import atexit as _atexit

from onehot._onehot import finish as _finish
from onehot._onehot import get_num_threads as _get_num_threads
from onehot._onehot import instruction_sets, operators
from onehot._onehot import set_num_threads as _set_num_threads
from onehot._onehot import version as _version

__all__ = ["get_num_threads", "instruction_sets", "operators", "set_num_threads"]

__version__ = _version()

_atexit.register(_finish)  # what still runs in other threads ends first


def set_num_threads(threads: int) -> None:
    """Lets each call use at most ``threads`` threads; 0, the default, leaves it to OpenMP.

    OpenMP's number is that of ``OMP_NUM_THREADS``, else the CPUs that this process may use; where PyTorch is loaded its
    ``torch.set_num_threads`` counts, since both use one OpenMP. This function changes neither: it holds for onehot alone.
    Results have the same bits for every number of threads. In a process forked from one that has run OpenMP (a worker of
    a DataLoader, multiprocessing) calls use one thread, whatever was set.
    """
    _set_num_threads(threads)


def get_num_threads() -> int:
    """Threads that a call may use; small problems use one."""
    return _get_num_threads()
