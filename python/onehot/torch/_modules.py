from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from onehot.torch._embedding import embedding
from onehot.torch._library import compiling
from onehot.torch._linear import linear_cross_entropy
from onehot.torch._nll_loss import nll_loss


def _main_grad(weight: Tensor) -> Tensor:
    """The buffer weight.main_grad, made of float32 zeros where there is none."""
    buffer = getattr(weight, "main_grad", None)
    if buffer is None:
        if compiling():
            raise RuntimeError(
                "main_grad: a compiled forward cannot make the buffer; call the module once before, or set it"
            )
        dtype = torch.float64 if weight.dtype == torch.float64 else torch.float32
        buffer = weight.main_grad = torch.zeros_like(weight, dtype=dtype, requires_grad=False)  # type: ignore[attr-defined]
    elif weight.dtype == torch.float64 and buffer.dtype != torch.float64:  # the module was made double since
        buffer = weight.main_grad = buffer.double()  # type: ignore[attr-defined]
    return buffer


class Embedding(nn.Embedding):
    """torch.nn.Embedding with the gradient of :func:`onehot.torch.embedding`; same arguments, parameters and state.

    Args:
        main_grad: adds gradients to ``weight.main_grad``, a float32 buffer made at the first forward unless it is there,
            and leaves ``weight.grad`` alone. torch.compile needs it to be there.
    """

    def __init__(
        self, num_embeddings: int, embedding_dim: int, *args: Any, main_grad: bool = False, **kwargs: Any
    ) -> None:
        super().__init__(num_embeddings, embedding_dim, *args, **kwargs)
        self.main_grad = main_grad

    def forward(self, input: Tensor) -> Tensor:
        return embedding(
            input,
            self.weight,
            self.padding_idx,
            self.max_norm,
            self.norm_type,
            self.scale_grad_by_freq,
            self.sparse,
            main_grad=_main_grad(self.weight) if self.main_grad else None,
        )


class NLLLoss(nn.NLLLoss):
    """torch.nn.NLLLoss by :func:`onehot.torch.nll_loss`; same arguments, and zero_if_empty, class_axis and dtype of ours."""

    def __init__(
        self,
        *args: Any,
        zero_if_empty: bool = False,
        class_axis: int = 1,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.zero_if_empty, self.class_axis, self.dtype = zero_if_empty, class_axis, dtype

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        *,
        token_weight: Tensor | None = None,
        denominator: Tensor | float | None = None,
    ) -> Tensor:
        return nll_loss(
            input,
            target,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            token_weight=token_weight,
            denominator=denominator,
            zero_if_empty=self.zero_if_empty,
            class_axis=self.class_axis,
            dtype=self.dtype,
        )


class LinearCrossEntropyLoss(nn.Module):
    """A linear layer and its cross entropy, by :func:`onehot.torch.linear_cross_entropy`.

    torch.nn.LinearCrossEntropyLoss (PyTorch 2.13 and later) has the same arguments and state: ``linear.weight``,
    ``linear.bias``, ``weight``. A tied weight is ``loss.linear.weight = embedding.weight``.

    Args:
        in_features: H.
        num_classes: V.
        out_features: (d1, ...) for targets (N, d1, ...), a layer for each; the weight is (V * d1 * ..., H).
        bias: whether the layer has one.
        main_grad: adds gradients of the weight to ``linear.weight.main_grad``, a float32 buffer made at the first forward
            unless it is there, and leaves ``linear.weight.grad`` alone. torch.compile needs it to be there.

    The other arguments are those of the function.
    """

    weight: Tensor | None

    def __init__(
        self,
        in_features: int,
        num_classes: int,
        *,
        out_features: tuple[int, ...] = (),
        bias: bool = False,
        device: Any = None,
        dtype: torch.dtype | None = None,
        weight: Tensor | None = None,
        reduction: str = "mean",
        ignore_index: int | None = None,
        label_smoothing: float = 0.0,
        options: None = None,
        z_loss: float = 0.0,
        softcap: float = 0.0,
        logit_scale: float = 1.0,
        zero_if_empty: bool = False,
        max_workspace: int | None = None,
        skip_below: float = 0.0,
        reproducible: bool = False,
        loss_dtype: torch.dtype | None = None,
        main_grad: bool = False,
    ) -> None:
        super().__init__()
        if weight is not None and tuple(weight.shape) != (num_classes,):
            raise ValueError(f"weight: must have the shape ({num_classes},), has {tuple(weight.shape)}")
        self.num_classes, self.out_features, self.main_grad = num_classes, tuple(out_features), main_grad
        self.linear = nn.Linear(in_features, math.prod(self.out_features, start=num_classes), bias, device, dtype)
        self.register_buffer("weight", weight)
        if self.out_features and main_grad:
            raise ValueError(f"main_grad: needs out_features of (), has {self.out_features}")
        keywords = {
            "reduction": reduction,
            "ignore_index": ignore_index,
            "label_smoothing": label_smoothing,
            "options": options,
            "z_loss": z_loss,
            "softcap": softcap,
            "logit_scale": logit_scale,
            "zero_if_empty": zero_if_empty,
            "max_workspace": max_workspace,
            "skip_below": skip_below,
            "reproducible": reproducible,
            "loss_dtype": loss_dtype,
        }
        self._names = tuple(keywords)
        for name, value in keywords.items():
            setattr(self, name, value)  # as PyTorch's module has them, to be changed later too

    def _keywords(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._names}

    def forward(
        self,
        input: Tensor,
        target: Tensor,
        *,
        token_weight: Tensor | None = None,
        denominator: Tensor | float | None = None,
    ) -> Tensor:
        weight: Tensor = self.linear.weight
        bias: Tensor | None = self.linear.bias
        if self.out_features:
            weight = weight.reshape(self.num_classes, *self.out_features, weight.shape[-1])
            bias = None if bias is None else bias.reshape(self.num_classes, *self.out_features)
        keywords = self._keywords()
        return linear_cross_entropy(
            input,
            weight,
            target,
            linear_bias=bias,
            weight=self.weight,
            token_weight=token_weight,
            denominator=denominator,
            main_grad=_main_grad(self.linear.weight) if self.main_grad else None,
            dtype=keywords.pop("loss_dtype"),
            **keywords,
        )

    def extra_repr(self) -> str:
        given = {"out_features": self.out_features, "main_grad": self.main_grad, **self._keywords()}
        defaults = LinearCrossEntropyLoss.__init__.__kwdefaults__ or {}
        differ = [f"{name}={value!r}" for name, value in given.items() if value != defaults[name]]
        return ", ".join([f"num_classes={self.num_classes}", *differ])
