"""How an operator becomes one of PyTorch's: torch.ops.onehot.NAME.

torch.library holds what PyTorch has to know of it: the computation, shapes without data (for torch.compile and meta tensors),
the gradient, and how it is mapped over (torch.func.vmap). Two things take another way, to the same functions:

- Plain tensors outside of any tracing, which is most calls: torch.autograd.Function at once. The dispatcher and the gradients of
  torch.library, which are written in Python, take twice as long as a small operator does.
- The transforms of torch.func but vmap: they do not go through the gradients of torch.library (2.15).

torch.library has gradients since PyTorch 2.4; before that the first of the two is all there is. Nothing is compiled against
PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import forward_ad as _forward_ad
from torch.nn import Parameter

_LIBRARY = torch.library.Library("onehot", "DEF")
_REGISTERS_AUTOGRAD = hasattr(torch.library, "register_autograd")


def _never() -> bool:
    return False


compiling: Callable[[], bool] = torch.compiler.is_compiling if _REGISTERS_AUTOGRAD else _never
# Names that PyTorch keeps to itself; where they are gone, the usual way is the safe one: every call takes the dispatcher.
_modes: Callable[[], int] = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 1 if _REGISTERS_AUTOGRAD else 0)
# Elements of a batch of gradients that autograd is asked for all at once (is_grads_batched).
_batched: Callable[[torch.Tensor], bool] = getattr(
    getattr(torch._C, "_functorch", None), "is_legacy_batchedtensor", lambda _: False
)
_transforms: Callable[[], bool] = getattr(torch._C, "_are_functorch_transforms_active", _never)

# Sizes that torch.compile may leave open; earlier versions know numbers only.
SIZE = "SymInt" if _REGISTERS_AUTOGRAD else "int"


def operator(
    schema: str,
    compute: Callable[..., Any],
    *,
    fake: Callable[..., Any],
    setup_context: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
    vmap: Callable[..., Any] | None = None,
) -> Callable[..., Any]:
    """Registers ``compute`` for tensors in the memory of the CPU, and returns what to call: positional arguments only.

    Args:
        schema: "name(Tensor a, ...) -> Tensor", in PyTorch's notation.
        fake: the results' shapes and dtypes, made of tensors without data.
        setup_context, backward: the gradient, as in torch.autograd.Function.
        vmap: (info, in_dims, *args) -> (results, out_dims); without it the operator is called for one element after the
            other.
    """
    name = schema[: schema.index("(")]
    direct = _direct(name, compute, setup_context, backward)
    if not _REGISTERS_AUTOGRAD:
        _LIBRARY.define(schema)
        _LIBRARY.impl(name, direct, "CPU")
        _LIBRARY.impl(name, fake, "Meta")
        return _choose(name, getattr(torch.ops.onehot, name).default, direct, None)
    _LIBRARY.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
    _LIBRARY.impl(name, compute, "CPU")
    qualified = f"onehot::{name}"
    torch.library.register_fake(qualified, fake, lib=_LIBRARY)
    if backward is not None:
        torch.library.register_autograd(qualified, backward, setup_context=setup_context, lib=_LIBRARY)
    overload = getattr(torch.ops.onehot, name).default
    if overload._schema.is_mutable:
        return overload  # the dispatcher counts the versions of what is written
    rule = vmap or one_by_one(overload)
    if hasattr(torch.library, "register_vmap"):
        torch.library.register_vmap(qualified, rule, lib=_LIBRARY)
    transformed = None if backward is None else _transformed(name, overload, setup_context, backward, rule)
    return _choose(name, overload, direct, transformed)


def _choose(name: str, overload: Any, direct: Any, transformed: Any) -> Callable[..., Any]:
    """What to call: see the top of this file."""

    def call(*args: Any) -> Any:
        if transformed is not None and transforms_active():
            return transformed.apply(*args)
        if plain(args):
            return direct(*args)
        if not compiling():
            _check_devices(name, args)
            args = tuple(_resolved(arg) if isinstance(arg, torch.Tensor) else arg for arg in args)
            if plain(args):
                return direct(*args)
        return overload(*args)

    return call


def plain(args: tuple[Any, ...]) -> bool:
    """Whether all tensors are PyTorch's own, on the CPU, and nobody watches the dispatcher."""
    if compiling() or _modes() != 0:
        return False
    for arg in args:
        if isinstance(arg, torch.Tensor):
            if not ((type(arg) is torch.Tensor or type(arg) is Parameter) and arg.is_cpu):
                return False
            if arg.is_neg() or arg.is_conj() or _batched(arg):
                return False
    return True


def _check_devices(name: str, args: tuple[Any, ...]) -> None:
    """Numbers may be elsewhere, as always in PyTorch. Tensors without data beside others would get no result, and no error."""
    devices = {str(arg.device) for arg in args if isinstance(arg, torch.Tensor) and arg.dim() > 0}
    if len(devices) > 1:
        raise ValueError(f"{name}: tensors must be on one device, are on {' and '.join(sorted(devices))}")


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    """Conjugates and negatives as they read, not as they lie in memory: PyTorch leaves them unfinished."""
    return tensor.resolve_conj().resolve_neg() if tensor.is_conj() or tensor.is_neg() else tensor


def _direct(name: str, compute: Any, remember: Any, formula: Any) -> Callable[..., Any]:
    if formula is None:
        return compute

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *args: Any) -> Any:
            output = compute(*args)
            remember(ctx, args, output)
            return output

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return formula(ctx, *grads)

    Function.__name__ = Function.__qualname__ = name
    apply = Function.apply
    # Forward-mode derivatives go on under no_grad; Function has none, and says so.
    return lambda *args: apply(*args) if torch.is_grad_enabled() or _forward_ad._current_level >= 0 else compute(*args)


def transforms_active() -> bool:
    """Whether a transform of torch.func is at work. torch.compile sees through those it knows."""
    return not compiling() and _transforms()


def _transformed(name: str, overload: Any, remember: Any, formula: Any, rule: Any) -> Any:
    class Function(torch.autograd.Function):
        @staticmethod
        def forward(*args: Any) -> Any:
            return overload(*args)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            remember(ctx, inputs, output)

        @staticmethod
        def backward(ctx: Any, *grads: Any) -> Any:
            return formula(ctx, *grads)

        @staticmethod
        def vmap(info: Any, in_dims: Any, *args: Any) -> Any:
            return rule(info, in_dims, *args)

    Function.__name__ = Function.__qualname__ = name
    return Function


def one_by_one(call: Callable[..., Any]) -> Callable[..., Any]:
    """A vmap rule: one call for each element, results stacked."""

    def rule(info: Any, in_dims: Any, *args: Any) -> Any:
        def element(i: int) -> Any:
            return call(*(a.select(dim, i) if isinstance(dim, int) else a for a, dim in zip(args, in_dims)))

        if info.batch_size == 0:
            # Shapes and dtypes are those of an element of zeros.
            args = tuple(
                a.new_zeros((*a.shape[:dim], 1, *a.shape[dim + 1 :])) if isinstance(dim, int) else a
                for a, dim in zip(args, in_dims)
            )
        results = [element(i) for i in range(max(1, info.batch_size))]

        def stacked(parts: Any) -> torch.Tensor:
            return torch.stack(parts)[: info.batch_size]

        if isinstance(results[0], torch.Tensor):
            return stacked(results), 0
        return tuple(map(stacked, zip(*results))), (0,) * len(results[0])

    return rule


def refuse_gradients(**tensors: torch.Tensor | None) -> None:
    """ValueError for tensors that a gradient is wanted of, and that have none here: silence would be a wrong result."""
    for name, tensor in tensors.items():
        if tensor is not None and tensor.requires_grad and torch.is_grad_enabled():
            raise ValueError(f"{name}: must not require a gradient, since none is computed for it; detach it")


def require_tensors(**tensors: Any) -> None:
    """TypeError for what is no tensor, where PyTorch would miss an attribute of it."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name}: must be a tensor, is {type(tensor).__name__}")


def check_main_grad(main_grad: torch.Tensor, weight: torch.Tensor) -> None:
    """ValueError and TypeError now, not in the backward."""
    if main_grad.shape != weight.shape:
        raise ValueError(
            f"main_grad: must have the shape {tuple(weight.shape)} of the weight, has {tuple(main_grad.shape)}"
        )
    if main_grad.dtype != weight.dtype and (main_grad.dtype != torch.float32 or weight.dtype == torch.float64):
        wide = "" if weight.dtype in (torch.float32, torch.float64) else "torch.float32 or "
        raise TypeError(f"main_grad: its dtype must be {wide}{weight.dtype}, that of the weight, is {main_grad.dtype}")
    if main_grad.requires_grad:
        raise ValueError("main_grad: must not require a gradient, since it is added to in place; detach it")


def hooks_take_what_is_saved() -> bool:
    """Whether tensors that are saved now go through torch.autograd.graph.saved_tensors_hooks; so say versions that do not tell."""
    top = getattr(torch._C._autograd, "_top_saved_tensors_default_hooks", None) if _REGISTERS_AUTOGRAD else None
    return top is None or top(True) is not None


def autocast_dtype() -> torch.dtype | None:
    """What torch.autocast asks for on the CPU, None outside of it."""
    if _REGISTERS_AUTOGRAD:
        return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None
    return torch.get_autocast_cpu_dtype() if torch.is_autocast_cpu_enabled() else None


def size_of(dtype: torch.dtype) -> int:
    """Bytes of an element. (dtype.itemsize came with PyTorch 2.1.)"""
    return torch.finfo(dtype).bits // 8
