"""embedding, nll_loss and linear_cross_entropy for PyTorch: with autograd, torch.compile and torch.func, on the CPU.

Each takes the arguments of its namesake in torch.nn.functional, so that an import swaps it, and more. The modules take those
of their namesakes in torch.nn, and have the same state. Works with PyTorch 1.13 and later; torch.compile, torch.func and
tensors without data (device "meta") need 2.4. Second derivatives exist for embedding and nll_loss.

Errors are ValueError, TypeError and, for an index or a target out of range, IndexError.
"""

from onehot.torch._embedding import embedding
from onehot.torch._linear import linear_cross_entropy
from onehot.torch._modules import Embedding, LinearCrossEntropyLoss, NLLLoss
from onehot.torch._nll_loss import nll_loss

__all__ = ["Embedding", "LinearCrossEntropyLoss", "NLLLoss", "embedding", "linear_cross_entropy", "nll_loss"]
