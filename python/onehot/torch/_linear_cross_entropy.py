from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from onehot import _onehot
from onehot.torch._library import hooks_take_what_is_saved, operator, plain, size_of

# What the forward and the backward are told alike.
_OPTIONS = (
    "Tensor? linear_bias, Tensor? weight, Tensor? token_weight, Tensor? denominator, str reduction, int ignore_index,"
    " float label_smoothing, float z_loss, float softcap, float logit_scale, bool zero_if_empty, int? max_workspace,"
    " float skip_below, bool reproducible, ScalarType? compute_dtype"
)


class Options(NamedTuple):
    linear_bias: Tensor | None
    weight: Tensor | None
    token_weight: Tensor | None
    denominator: Tensor | None
    reduction: str
    ignore_index: int
    label_smoothing: float
    z_loss: float
    softcap: float
    logit_scale: float
    zero_if_empty: bool
    max_workspace: int | None
    skip_below: float
    reproducible: bool
    compute_dtype: torch.dtype | None

    def of_loss(self) -> dict[str, Any]:
        return {
            "weight": self.weight,
            "token_weight": self.token_weight,
            "denominator": self.denominator,
            "reduction": self.reduction,
            "ignore_index": self.ignore_index,
            "label_smoothing": self.label_smoothing,
            "z_loss": self.z_loss,
            "zero_if_empty": self.zero_if_empty,
        }

    def of_logits(self) -> dict[str, Any]:
        bias = self.linear_bias
        if bias is not None and self.compute_dtype is not None and bias.dtype != torch.float32:
            bias = bias.to(self.compute_dtype)  # the operator takes it in float32 too
        return {
            "linear_bias": bias,
            "softcap": self.softcap,
            "logit_scale": self.logit_scale,
            "max_workspace": self.max_workspace,
            "reproducible": self.reproducible,
        }


_SIZE = len(Options._fields)
_NAMES = ("grad_input", "grad_weight", "grad_bias")


def _cast(tensor: Tensor, options: Options) -> Tensor:
    """The tensor as the products take it. Gradients are not cast back: they are written in the dtype of the leaf."""
    return tensor if options.compute_dtype is None else tensor.to(options.compute_dtype)


def _statistics_dtype(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float64 else torch.float32


# Gradients that a forward keeps are not rounded to 16 bits before they are scaled.
kept_dtype = _statistics_dtype


def _results(input: Tensor, weight: Tensor, target: Tensor, options: Options, rest: Any) -> tuple[Tensor, ...]:
    dtype, together, wanted = rest[0], rest[1], rest[2:5]
    dtype = dtype or options.compute_dtype or input.dtype
    loss = input.new_empty(target.shape if options.reduction == "none" else (), dtype=dtype)
    shapes = (input.shape, weight.shape, weight.shape[:1])
    kept = [
        input.new_empty(s if together and w else (0,), dtype=kept_dtype(input.dtype)) for s, w in zip(shapes, wanted)
    ]
    statistics = target.shape if any(wanted) and not together else (0,)
    kind = _statistics_dtype(input.dtype)
    return loss, *kept, input.new_empty(statistics, dtype=kind), input.new_empty(statistics, dtype=kind)


def _compute(input: Tensor, weight: Tensor, target: Tensor, *args: Any) -> tuple[Tensor, ...]:
    options, rest = Options(*args[:_SIZE]), args[_SIZE:]
    together, wanted = rest[1], rest[2:5]
    results = loss, grad_input, grad_weight, grad_bias, max, sum_exp = _results(input, weight, target, options, rest)
    input, weight = _cast(input, options), _cast(weight, options)
    if not any(wanted) or together:
        gradients: dict[str, Tensor | None] = {}
        if together:
            one = loss.new_ones((), dtype=torch.float32)
            gradients["grad_loss"] = one.expand(target.shape) if options.reduction == "none" else one
            for name, gradient, want in zip(_NAMES, (grad_input, grad_weight, grad_bias), wanted):
                gradients[name] = gradient if want else None
        _onehot.linear_cross_entropy(
            input,
            weight,
            target,
            loss=loss,
            skip_below=options.skip_below,
            **options.of_loss(),
            **options.of_logits(),
            **gradients,
        )
        return results
    # As two numbers for each position, not as one: then later gradients have the bits of gradients at once.
    target_logit = torch.empty_like(max)
    smoothing = torch.empty_like(max) if options.label_smoothing > 0 else None
    _onehot.linear_cross_entropy_statistics(
        input,
        weight,
        target,
        max=max,
        sum_exp=sum_exp,
        target_logit=target_logit,
        smoothing=smoothing,
        weight=options.weight,
        ignore_index=options.ignore_index,
        **options.of_logits(),
    )
    _onehot.linear_cross_entropy_loss(
        max,
        sum_exp,
        target_logit=target_logit,
        smoothing=smoothing,
        target=target,
        num_classes=weight.shape[0],
        loss=loss,
        **options._replace(weight=_wide(options.weight), token_weight=_wide(options.token_weight)).of_loss(),
    )
    return results


def _wide(weights: Tensor | None) -> Tensor | None:
    """Weights of 16 bits in float32, since the loss from statistics does not know of the dtype of the logits."""
    return weights if weights is None or size_of(weights.dtype) > 2 else weights.float()


def _fake(input: Tensor, weight: Tensor, target: Tensor, *args: Any) -> tuple[Tensor, ...]:
    return _results(input, weight, target, Options(*args[:_SIZE]), args[_SIZE:])


def _setup_context(ctx: Any, inputs: Any, output: Any) -> None:
    input, weight, target, *args = inputs
    options, (_, together, *_, main_grad) = Options(*args[:_SIZE]), args[_SIZE:]
    loss, *kept = output
    # A kept gradient depends on the inputs: that is how a second derivative gets to _backward, which refuses it.
    ctx.mark_non_differentiable(*kept[3 if together else 0 :])
    ctx.set_materialize_grads(False)
    ctx.together, ctx.count = together, len(inputs)
    ctx.dtypes = [t.dtype if t is not None else None for t in (input, weight, options.linear_bias)]
    if together:
        ctx.hooked = hooks_take_what_is_saved()
        ctx.save_for_backward(*kept[:3])
        return
    # Not saved with the others: it changes between forward and backward where weights are tied, and may.
    ctx.main_grad = main_grad
    ctx.options = options[4:]
    ctx.save_for_backward(input, weight, target, *options[:4], *kept[3:])


def _backward(ctx: Any, grad: Tensor | None, *grads_of_kept: Any) -> Any:
    if any(second is not None for second in grads_of_kept):
        _refuse_second(ctx)
    if grad is None:
        return (None,) * ctx.count
    wanted = ctx.needs_input_grad[0], ctx.needs_input_grad[1], ctx.needs_input_grad[3]
    if ctx.together:
        gradients: Any = [
            scale(kept, grad, dtype, ctx.hooked) if want else None
            for kept, dtype, want in zip(ctx.saved_tensors, ctx.dtypes, wanted)
        ]
    else:
        input, weight, target, *tensors, max, sum_exp = ctx.saved_tensors
        options = (*tensors, *ctx.options)
        if ctx.main_grad is None or not wanted[1]:
            results = _backward_op(grad, input, weight, target, *options, max, sum_exp, *wanted)
        else:
            results = _add_op(ctx.main_grad, grad, input, weight, target, *options, max, sum_exp, wanted[0], wanted[2])
            results = (results[0], None, results[1])
            wanted = (wanted[0], False, wanted[2])
        gradients = [result if want else None for result, want in zip(results, wanted)]
    return gradients[0], gradients[1], None, gradients[2], *(None,) * (ctx.count - 4)


def scale(kept: Tensor, factor: Tensor, dtype: torch.dtype, hooked: bool) -> Tensor:
    """The kept gradient times that of the loss, rounded once to ``dtype``.

    In place where nobody will ask for the kept one again, nor a hook hold it: the gradient of a large vocabulary is not twice
    in memory.
    """
    if hooked or not plain((kept, factor)) or not _nobody_asks_again():
        return _scale_op(kept, factor, dtype)
    kept = kept.detach()
    if factor.item() != 1:
        kept.mul_(factor)
    return kept if kept.dtype == dtype else kept.to(dtype)


def _nobody_asks_again() -> bool:
    keeps_graph = getattr(torch._C._autograd, "_get_current_graph_task_keep_graph", None)
    return not torch.is_grad_enabled() and keeps_graph is not None and not keeps_graph()


# Elements at a time of what has to be converted: their float32 stays in the cache.
_CHUNK = 1 << 16


def _scale(kept: Tensor, factor: Tensor, dtype: torch.dtype) -> Tensor:
    if kept.dtype == dtype:
        return kept * factor.to(dtype)
    out = kept.new_empty(kept.shape, dtype=dtype)
    factor = factor.to(kept.dtype)
    for source, rounded in zip(kept.view(-1).split(_CHUNK), out.view(-1).split(_CHUNK)):
        rounded.copy_(source * factor)
    return out


def _fake_backward(
    grad: Tensor, input: Tensor, weight: Tensor, target: Tensor, *args: Any
) -> tuple[Tensor, Tensor, Tensor]:
    options, wanted = Options(*args[:_SIZE]), args[-3:]
    bias = weight if options.linear_bias is None else options.linear_bias
    shapes = ((input.shape, input.dtype), (weight.shape, weight.dtype), (weight.shape[:1], bias.dtype))
    grad_input, grad_weight, grad_bias = (
        input.new_empty(shape if want else (0,), dtype=dtype) for (shape, dtype), want in zip(shapes, wanted)
    )
    return grad_input, grad_weight, grad_bias


def _compute_backward(grad: Tensor, input: Tensor, weight: Tensor, target: Tensor, *args: Any) -> tuple[Tensor, ...]:
    results = _fake_backward(grad, input, weight, target, *args)
    outputs = {
        name: _writable(result, input, Options(*args[:_SIZE]))
        for name, result, want in zip(_NAMES, results, args[-3:])
        if want
    }
    _run_backward(grad, input, weight, target, args, outputs)
    return tuple(outputs[name].to(r.dtype) if name in outputs else r for name, r in zip(_NAMES, results))


def _writable(result: Tensor, input: Tensor, options: Options) -> Tensor:
    """The gradients of 16-bit products are of their dtype or float32; a leaf of another 16-bit dtype is rounded to later."""
    dtype = options.compute_dtype or input.dtype
    return result if result.dtype in (dtype, kept_dtype(dtype)) else result.new_empty(result.shape, dtype=torch.float32)


def _run_backward(
    grad: Tensor, input: Tensor, weight: Tensor, target: Tensor, args: Any, outputs: dict[str, Any], **more: Any
) -> None:
    options, (max, sum_exp) = Options(*args[:_SIZE]), args[_SIZE : _SIZE + 2]
    _onehot.linear_cross_entropy_backward(
        _cast(input, options),
        _cast(weight, options),
        target,
        grad_loss=grad,
        max=max,
        sum_exp=sum_exp,
        skip_below=options.skip_below,
        **options.of_loss(),
        **options.of_logits(),
        **outputs,
        **more,
    )


def _fake_add(
    out: Tensor, grad: Tensor, input: Tensor, weight: Tensor, target: Tensor, *args: Any
) -> tuple[Tensor, Tensor]:
    want_input, want_bias = args[-2:]
    grad_input, _, grad_bias = _fake_backward(grad, input, weight, target, *args[:-2], want_input, False, want_bias)
    return grad_input, grad_bias


def _add(out: Tensor, grad: Tensor, input: Tensor, weight: Tensor, target: Tensor, *args: Any) -> tuple[Tensor, Tensor]:
    options = Options(*args[:_SIZE])
    results = _fake_add(out, grad, input, weight, target, *args)
    outputs = {
        name: _writable(result, input, options).zero_()
        for name, result, want in zip(("grad_input", "grad_bias"), results, args[-2:])
        if want
    }
    _run_backward(grad, input, weight, target, args, outputs | {"grad_weight": out}, accumulate=True)
    grad_input, grad_bias = (
        outputs[name].to(r.dtype) if name in outputs else r for name, r in zip(("grad_input", "grad_bias"), results)
    )
    return grad_input, grad_bias


def _refuse_second(ctx: Any, *grads: Any) -> Any:
    raise NotImplementedError(
        "linear_cross_entropy: its gradient cannot be differentiated once more; use torch.nn.functional.linear_cross_entropy"
    )


def _remember_nothing(ctx: Any, inputs: Any, output: Any) -> None:
    pass


_scale_op = operator(
    "scale_gradient(Tensor kept, Tensor factor, ScalarType dtype) -> Tensor",
    _scale,
    fake=lambda kept, factor, dtype: kept.new_empty(kept.shape, dtype=dtype),
    setup_context=_remember_nothing,
    backward=_refuse_second,
)
op = operator(
    f"linear_cross_entropy(Tensor input, Tensor linear_weight, Tensor target, {_OPTIONS}, ScalarType? dtype,"
    " bool together, bool grad_input, bool grad_weight, bool grad_bias, Tensor? main_grad)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _compute,
    fake=_fake,
    setup_context=_setup_context,
    backward=_backward,
)
_backward_op = operator(
    f"linear_cross_entropy_backward(Tensor grad, Tensor input, Tensor linear_weight, Tensor target, {_OPTIONS},"
    " Tensor max, Tensor sum_exp, bool grad_input, bool grad_weight, bool grad_bias) -> (Tensor, Tensor, Tensor)",
    _compute_backward,
    fake=_fake_backward,
    setup_context=_remember_nothing,
    backward=_refuse_second,
)
_add_op = operator(
    "linear_cross_entropy_backward_(Tensor(a!) out, Tensor grad, Tensor input, Tensor linear_weight, Tensor target,"
    f" {_OPTIONS}, Tensor max, Tensor sum_exp, bool grad_input, bool grad_bias) -> (Tensor, Tensor)",
    _add,
    fake=_fake_add,
)
