"""What the tests of onehot.torch have in common: data, layouts, and the linear cross entropy in float64 with its bounds."""

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
LAYOUTS = ["contiguous", "transposed", "sliced", "offset"]

# What PyTorch has, asked of itself: Debian's is 1.13.
needs_registration = pytest.mark.skipif(not hasattr(torch.library, "register_autograd"), reason="no register_autograd")
needs_linear_cross_entropy = pytest.mark.skipif(
    not hasattr(F, "linear_cross_entropy"), reason="no linear_cross_entropy"
)


def uniform(*shape, dtype=torch.float32, seed=0, scale=1.0):
    """Numbers in (-scale, scale) that vary by every axis."""
    generator = torch.Generator().manual_seed(seed)
    return ((torch.rand(shape, generator=generator, dtype=torch.float64) * 2 - 1) * scale).to(dtype)


def zipf(shape, classes, dtype=torch.int64, seed=0):
    """Classes as skewed as words of a text: class r has the probability 1 / (r + 1), up to a factor."""
    generator = torch.Generator().manual_seed(1000 + seed)
    count = torch.Size(shape).numel()
    weights = 1 / torch.arange(1, classes + 1, dtype=torch.float64)
    drawn = torch.multinomial(weights, max(count, 1), replacement=True, generator=generator)
    return drawn[:count].to(dtype).reshape(shape)


def laid_out(tensor, layout):
    """The same values, lying otherwise in memory; a leaf."""
    if layout == "transposed" and tensor.dim() > 1:
        result = tensor.transpose(0, -1).contiguous().transpose(0, -1)
    elif layout in ("sliced", "transposed"):
        wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1] + 3))
        result = wide[..., 1 : 1 + 2 * tensor.shape[-1] : 2]
        result.copy_(tensor)
    elif layout == "offset":
        result = tensor.new_zeros([size + 3 for size in tensor.shape])
        for axis, size in enumerate(tensor.shape):
            result = result.narrow(axis, 1, size)
        result.copy_(tensor)
    else:
        result = tensor.contiguous()
    assert torch.equal(result, tensor)
    return result.detach()


def half_ulp(dtype, values):
    """The error of one rounding to ``dtype``."""
    info = torch.finfo(dtype)
    return values.abs() * (info.eps / 2) + info.tiny * info.eps / 2


def assert_within(actual, expected, bound, what=""):
    expected = torch.as_tensor(expected, dtype=torch.float64)
    bound = torch.as_tensor(bound, dtype=torch.float64).expand(expected.shape)
    assert actual.shape == expected.shape, f"{what}: shape {tuple(actual.shape)}, not {tuple(expected.shape)}"
    error = (actual.detach().double() - expected).abs()
    good = (error <= bound) | (actual.detach().isnan() & expected.isnan())
    if not good.all():
        worst = int(torch.where(good, torch.zeros_like(error), error.nan_to_num(float("inf"))).argmax())
        pytest.fail(
            f"{what}: {int((~good).sum())} of {good.numel()} elements are wrong; the worst, at {worst}, is "
            f"{actual.flatten()[worst].item()}, not {expected.flatten()[worst].item()} within {bound.flatten()[worst].item()}"
        )


def same_bits(a, b):
    """Equal to the bit: NaN equals NaN, and 0 does not equal -0."""
    if a is None or b is None:
        return a is b
    kind = {8: torch.int64, 4: torch.int32, 2: torch.int16}[a.element_size()]
    return a.dtype == b.dtype and torch.equal(a.detach().contiguous().view(kind), b.detach().contiguous().view(kind))


def leaves(*tensors):
    return [None if t is None else t.detach().clone().requires_grad_() for t in tensors]


class Linear:
    """Linear cross entropy in float64, by PyTorch's autograd, of the tensors as they are; and how far off ours may be.

    ``loss``, ``gradients`` (input, linear_weight, linear_bias) and ``bounds`` of each, before the rounding to the dtype of the
    result, which ``check`` adds.
    """

    def __init__(self, input, linear_weight, target, linear_bias=None, *, upstream=1.0, **options):
        x, w = (t.detach().double().requires_grad_() for t in (input, linear_weight))
        b = torch.zeros(w.shape[0], dtype=torch.float64) if linear_bias is None else linear_bias.detach().double()
        b.requires_grad_()
        scale, self.reduction = options.pop("logit_scale", 1.0), options.pop("reduction", "mean")
        target = target.long().reshape(-1)
        rows = x.reshape(len(target), x.shape[-1])
        logits = scale * (rows @ w.T + b)
        logits.retain_grad()
        losses, coefficient, divisor = self._positions(logits, target, **options)
        shape = input.shape[:-1]
        upstream = torch.as_tensor(upstream, dtype=torch.float64)
        total = losses.reshape(shape) if self.reduction == "none" else losses.sum() / divisor
        total.backward(upstream)
        self.loss = total.detach()
        self.gradients = x.grad, w.grad, b.grad

        # u is the rounding of the sums. A logit is a chain of H multiply-adds; its softmax and its log are off by as much
        # relatively, and by some roundings more: those of exp, of the cap and of the factors.
        u = 2.0**-53 if input.dtype == torch.float64 else 2.0**-24
        with torch.no_grad():
            size = abs(scale) * (rows.abs() @ w.abs().T + b.abs().nan_to_num(posinf=0))
            logit = (rows.shape[-1] + 4) * u * size.amax(1)
            lse = self.lse.detach()
            one = 2 * logit + 8 * u * (1 + lse.abs() + size.amax(1))
            each = coefficient * one
            self.loss_bound = each.reshape(shape) if self.reduction == "none" else each.sum() / divisor.abs()
            g = upstream.reshape(-1) if self.reduction == "none" else (upstream / divisor).expand(len(target))
            p = (self.z - lse[:, None]).exp().detach()
            named = F.one_hot(target.clamp(0, w.shape[0] - 1), w.shape[0])
            du = logits.grad.abs()
            off = (g.abs() * coefficient * one)[:, None] * (p + named) + (16 * u + 2 * logit[:, None]) * du
            off = off + options.get("label_smoothing", 0) * u * g.abs()[:, None]
            # Products of bf16 round du once more.
            rounded = off + du * 2.0**-8 if input.dtype == torch.bfloat16 else off
            u, scale = u * abs(scale), abs(scale)
            self.bounds = (
                (scale * rounded @ w.abs() + u * (w.shape[0] + 2) * (du @ w.abs())).reshape(x.shape),
                scale * rounded.T @ rows.abs() + u * (len(target) + 2) * (du.T @ rows.abs()),
                scale * off.sum(0) + u * (len(target) + 2) * du.sum(0),
            )

    def _positions(
        self,
        logits,
        target,
        *,
        weight=None,
        ignore_index=-100,
        label_smoothing=0.0,
        token_weight=None,
        denominator=None,
        z_loss=0.0,
        softcap=0.0,
        zero_if_empty=False,
    ):
        """The loss of each position, the factor of its errors, and what mean divides by."""
        counts = (target != (-100 if ignore_index is None else ignore_index)).double()
        y = torch.where(counts > 0, target, torch.zeros_like(target))
        z = logits if softcap == 0 else softcap * torch.tanh(logits / softcap)
        weights = torch.ones(logits.shape[1], dtype=torch.float64) if weight is None else weight.detach().double()
        tokens = counts if token_weight is None else counts * token_weight.detach().double().reshape(-1)
        self.z, self.lse = z, torch.logsumexp(z, 1)
        apart = self.lse[:, None] - z
        losses = (1 - label_smoothing) * weights[y] * apart.gather(1, y[:, None])[:, 0]
        if label_smoothing:
            losses = losses + label_smoothing * (weights * apart).mean(1)
        divisor, z_divisor = (tokens * weights[y]).sum(), tokens.sum()
        if denominator is not None:
            divisor = z_divisor = torch.as_tensor(denominator, dtype=torch.float64).reshape(())
        if self.reduction != "mean" or (zero_if_empty and counts.sum() == 0):
            divisor = z_divisor = torch.ones((), dtype=torch.float64)
        if z_loss:
            losses = losses + z_loss * self.lse**2 * (divisor / z_divisor)
        coefficient = weights[y] + label_smoothing * weights.mean() + 4 * z_loss * (1 + self.lse.detach().abs())
        return tokens * losses, tokens.abs() * coefficient, divisor

    def check(self, loss, *gradients):
        """``gradients``: those of input, linear_weight, linear_bias; None for what is not looked at."""
        assert_within(loss, self.loss, self.loss_bound + half_ulp(loss.dtype, self.loss), "loss")
        names = "input", "linear_weight", "linear_bias"
        for name, actual, expected, bound in zip(names, gradients, self.gradients, self.bounds):
            if actual is not None:
                bound = bound + half_ulp(actual.dtype, expected.abs() + bound)
                assert_within(actual, expected, bound, f"gradient of {name}")
