"""Values and gradients of linear_cross_entropy."""

import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch_cases import FLOATS, INTEGERS, LAYOUTS, F, Linear, assert_within, laid_out, leaves, uniform, zipf  # noqa: E402

N, H, V = 29, 37, 83
REDUCTIONS = ["none", "mean", "sum"]


def tensors(dtype=torch.float32, layout="contiguous", shape=(N,), index=torch.int64):
    return (
        laid_out(uniform(*shape, H, dtype=dtype, scale=2), layout).requires_grad_(),
        laid_out(uniform(V, H, dtype=dtype, seed=1), layout).requires_grad_(),
        laid_out(zipf(shape, V, index), layout),
    )


def check(input, linear_weight, target, linear_bias=None, upstream=None, ours=(), **options):
    """``ours``: options that change no value."""
    loss = ot.linear_cross_entropy(input, linear_weight, target, linear_bias=linear_bias, **dict(ours), **options)
    dtype = options.pop("dtype", None) or input.dtype
    assert loss.dtype == dtype
    if upstream is None:
        upstream = (2 + torch.arange(loss.numel()) % 3).reshape(loss.shape).to(loss.dtype)
    reference = Linear(input, linear_weight, target, linear_bias, upstream=upstream, **options)
    loss.backward(upstream)
    bias_grad = None if linear_bias is None else linear_bias.grad
    for leaf in (input, linear_weight, linear_bias):
        assert leaf is None or (leaf.grad.dtype == leaf.dtype and leaf.grad.shape == leaf.shape)
    reference.check(loss, input.grad, linear_weight.grad, bias_grad)


def test_reference_by_hand():
    # Logits are log 1, log 2, log 5, and the target is the second: -log(2 / 8), with gradients p - onehot.
    weight = torch.tensor([1.0, 2, 5]).log()[:, None].double()
    reference = Linear(torch.ones(1, 1).double(), weight, torch.tensor([1]))
    assert_within(reference.loss, torch.tensor(4.0).log().double(), 1e-7)
    p = torch.tensor([0.125, 0.25 - 1, 0.625], dtype=torch.float64)
    assert_within(reference.gradients[1][:, 0], p, 1e-7)
    assert_within(reference.gradients[2], p, 1e-7)
    assert_within(reference.gradients[0][0], (p * weight[:, 0]).sum()[None], 1e-7)


@pytest.mark.parametrize("smoothing", [0.0, 0.3])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_reference_against_cross_entropy(reduction, weighted, smoothing):
    input, linear_weight, target = tensors(torch.float64)
    target[3] = 7
    options = {
        "reduction": reduction,
        "label_smoothing": smoothing,
        "ignore_index": 7,
        "weight": uniform(V, dtype=torch.float64, seed=2).abs() if weighted else None,
    }
    upstream = uniform(N, dtype=torch.float64, seed=9) if reduction == "none" else 1.0
    expected = F.cross_entropy(F.linear(input, linear_weight), target, **options)
    expected.backward(upstream if reduction == "none" else None)
    reference = Linear(input, linear_weight, target, upstream=upstream, **options)
    assert_within(reference.loss, expected.detach(), 1e-13 * expected.detach().abs())
    for mine, leaf in zip(reference.gradients, (input, linear_weight)):
        assert_within(mine, leaf.grad, 1e-13)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_values_and_gradients(dtype, reduction, layout):
    check(*tensors(dtype, layout), reduction=reduction)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_from_statistics(reduction, dtype):
    check(*tensors(dtype), reduction=reduction, ours={"max_workspace": 0})


@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_integers(reduction, index):
    check(*tensors(layout="sliced", index=index), reduction=reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(), (1,), (0,), (3, 5), (2, 3, 4), (2, 0, 3)])
def test_shapes(shape, reduction):
    check(*tensors(shape=shape), reduction=reduction)


@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("h, v", [(0, 5), (1, 1), (1, 2), (3, 1)])
def test_smallest(h, v, max_workspace):
    """A layer without inputs, a vocabulary of one."""
    input, linear_weight = uniform(N, h).requires_grad_(), uniform(v, h, seed=1).requires_grad_()
    check(input, linear_weight, zipf((N,), v), ours={"max_workspace": max_workspace})


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_expanded_input(reduction):
    input = uniform(1, H, scale=2).expand(N, H).requires_grad_()
    check(input, *tensors()[1:], reduction=reduction)


@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize(
    "options",
    [
        {"label_smoothing": 0.2},
        {"label_smoothing": 1.0},
        {"weight": uniform(V, seed=2).abs()},
        {"weight": uniform(V, seed=2).abs(), "label_smoothing": 0.1, "ignore_index": 0},
        {"ignore_index": None},
        {"ignore_index": 0},
        {"token_weight": uniform(N, seed=3).abs()},
        {"token_weight": uniform(N, seed=3).abs(), "weight": uniform(V, seed=2).abs(), "ignore_index": 1},
        {"denominator": 11.5},
        {"denominator": torch.tensor(11.5)},
        {"denominator": torch.tensor([[11.5]], dtype=torch.float64), "weight": uniform(V, seed=2).abs()},
        {"z_loss": 0.01},
        {"z_loss": 0.01, "weight": uniform(V, seed=2).abs(), "label_smoothing": 0.1},
        {"softcap": 3.0},
        {"logit_scale": 0.25},
        {"logit_scale": 0.25, "softcap": 2.0, "z_loss": 0.1, "label_smoothing": 0.1, "zero_if_empty": True},
    ],
    ids=lambda options: "-".join(options),
)
def test_options(options, reduction, max_workspace):
    check(
        *tensors(),
        uniform(V, seed=4).requires_grad_(),
        reduction=reduction,
        ours={"max_workspace": max_workspace},
        **options,
    )


@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("beside", ["float32", "same"])
def test_tensors_beside_16_bits(beside, dtype, reduction, max_workspace):
    other = torch.float32 if beside == "float32" else dtype
    check(
        *tensors(dtype),
        uniform(V, seed=4, dtype=other).requires_grad_(),
        reduction=reduction,
        weight=uniform(V, seed=2, dtype=other).abs(),
        token_weight=uniform(N, seed=3, dtype=other).abs(),
        ours={"max_workspace": max_workspace},
    )


@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_wider_loss(wide, dtype, max_workspace):
    for reduction in REDUCTIONS:
        check(*tensors(dtype), dtype=wide, reduction=reduction, ours={"max_workspace": max_workspace})


@pytest.mark.parametrize("max_workspace", [None, 0])
def test_bias_of_minus_infinity_takes_a_class_out(max_workspace):
    input, linear_weight, target = tensors()
    out = int(set(range(V)).difference(target.tolist()).pop())
    bias = torch.zeros(V)
    bias[out] = float("-inf")
    check(input, linear_weight, target, bias.requires_grad_(), ours={"max_workspace": max_workspace})
    assert not linear_weight.grad[out].any() and bias.grad[out] == 0


@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("zero_if_empty", [False, True])
def test_nothing_counts(zero_if_empty, reduction, max_workspace):
    input, linear_weight, target = tensors()
    loss = ot.linear_cross_entropy(
        input,
        linear_weight,
        torch.full_like(target, -100),
        reduction=reduction,
        zero_if_empty=zero_if_empty,
        max_workspace=max_workspace,
    )
    loss.sum().backward()
    assert (loss.isnan() if reduction == "mean" and not zero_if_empty else loss == 0).all()
    assert not input.grad.any() and not linear_weight.grad.any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_skip_below(dtype):
    """What is left out is as small as the header says."""
    input, linear_weight, target = tensors(dtype)
    below = 1e-3
    loss = ot.linear_cross_entropy(input, linear_weight, target, skip_below=below)
    loss.backward()
    reference = Linear(input, linear_weight, target)
    x, w = input.detach().double().abs(), linear_weight.detach().double().abs()
    reference.bounds = (
        reference.bounds[0] + 1.01 * below * w.sum(0).expand(N, H),
        reference.bounds[1] + 1.01 * below * x.sum(0).expand(V, H),
        reference.bounds[2],
    )
    reference.check(loss, input.grad, linear_weight.grad)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("max_workspace", [None, 0])
def test_reproducible(max_workspace, reduction):
    """Products in float32: bounds without the rounding of bf16 products."""
    input, linear_weight, target = tensors(torch.bfloat16)
    loss = ot.linear_cross_entropy(
        input,
        linear_weight,
        target,
        reduction=reduction,
        reproducible=True,
        max_workspace=max_workspace,
        dtype=torch.float32,
    )
    upstream = torch.ones_like(loss)
    loss.backward(upstream)
    reference = Linear(input.float(), linear_weight.float(), target, reduction=reduction, upstream=upstream)
    reference.check(loss, input.grad, linear_weight.grad)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("max_workspace", [None, 0])
def test_gradcheck(max_workspace, reduction):
    input, linear_weight, bias = (
        uniform(*shape, dtype=torch.float64, seed=i).requires_grad_()
        for i, shape in enumerate([(2, 3, 4), (5, 4), (5,)])
    )
    target = torch.tensor([[4, 0, 1], [0, 2, 0]])
    w, t = uniform(5, dtype=torch.float64, seed=5).abs(), uniform(2, 3, dtype=torch.float64, seed=6)
    for options in (
        {},
        {"label_smoothing": 0.1, "weight": w, "ignore_index": 2},
        {"token_weight": t, "denominator": 3.0},
        {"z_loss": 0.1, "softcap": 2.0, "logit_scale": 0.7, "weight": w},
    ):

        def call(x, table, b, options=options):
            return ot.linear_cross_entropy(
                x, table, target, linear_bias=b, reduction=reduction, max_workspace=max_workspace, **options
            )

        assert torch.autograd.gradcheck(call, (input, linear_weight, bias))
        assert torch.autograd.gradcheck(lambda *args: call(*args) ** 2, (input, linear_weight, bias))


def test_gradients_of_any_scale():
    """An upstream gradient of each position, negative ones and 0 among them."""
    for reduction in ("none", "mean"):
        upstream = uniform(N, seed=8, scale=100) if reduction == "none" else torch.tensor(-3.5)
        check(*tensors(), upstream=upstream, reduction=reduction)


def test_numbers_that_are_none():
    """A NaN in a position is that of its loss and of its row of the gradient."""
    input, linear_weight, target = tensors()
    (x,) = leaves(input)
    with torch.no_grad():
        x[5, 3] = float("nan")
    loss = ot.linear_cross_entropy(x, linear_weight, target, reduction="none")
    loss.sum().backward()
    nan = torch.zeros(N, dtype=torch.bool)
    nan[5] = True
    assert torch.equal(loss.isnan(), nan) and torch.equal(x.grad.isnan().any(1), nan)
    assert linear_weight.grad.isnan().all()


def test_negative_views():
    input, linear_weight, target = tensors()
    z = torch.complex(input.detach(), input.detach())
    expected = ot.linear_cross_entropy(-input.detach(), linear_weight, target)
    assert torch.equal(ot.linear_cross_entropy(z.conj().imag, linear_weight, target), expected)
