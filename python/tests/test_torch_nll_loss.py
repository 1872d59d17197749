import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch_cases import FLOATS, INTEGERS, LAYOUTS, F, assert_within, half_ulp, laid_out, same_bits, uniform, zipf  # noqa: E402

N, C = 67, 31
REDUCTIONS = ["none", "mean", "sum"]


def inputs(dtype=torch.float32, layout="contiguous", shape=(N, C), index=torch.int64):
    input = laid_out(uniform(*shape, dtype=dtype, scale=4), layout).requires_grad_()
    positions = shape[:1] + shape[2:] if len(shape) > 1 else ()
    return input, laid_out(zipf(positions, shape[min(1, len(shape) - 1)], index), layout)


def check(input, target, **options):
    """Against PyTorch in float64. Sums are in float64 and rounded once; the gradient is a product of five numbers at most.

    The divisor is kept in float32, and so is what one class weight times one token weight is rounded to in the gradient.
    """
    loss = ot.nll_loss(input, target, **options)
    dtype = options.pop("dtype", None) or input.dtype
    assert loss.dtype == dtype
    wide = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    x = input.detach().double().requires_grad_()
    expected = F.nll_loss(x, target.long(), **wide)
    size = F.nll_loss(-x.detach().abs(), target.long(), **wide)
    assert_within(loss, expected.detach(), 1e-14 * size + half_ulp(dtype, expected.detach()), "loss")
    g = torch.ones_like(expected) * (1 + torch.arange(expected.numel()).reshape(expected.shape) % 3)
    expected.backward(g)
    loss.backward(g.to(dtype))
    u = 2.0**-53 if input.dtype == torch.float64 else 2.0**-24
    assert_within(input.grad, x.grad, 8 * u * x.grad.abs() + half_ulp(input.dtype, x.grad), "gradient of input")


def test_by_hand():
    input = torch.tensor([[1.0, 2, 4], [8, 16, 32]], requires_grad=True)
    loss = ot.nll_loss(input, torch.tensor([2, 0]), torch.tensor([3.0, 5, 1]))
    loss.backward()
    assert loss.item() == -(4 + 3 * 8) / (1 + 3) and input.grad.tolist() == [[0, 0, -0.25], [-0.75, 0, 0]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_values_and_gradients(dtype, reduction, layout):
    check(*inputs(dtype, layout), reduction=reduction)


@pytest.mark.parametrize("index", INTEGERS)
def test_integers(index):
    check(*inputs(layout="sliced", index=index))


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("shape", [(5,), (4, 5), (3, 5, 7), (2, 5, 3, 4), (0, 5), (2, 5, 0)])
def test_shapes(shape, reduction):
    check(*inputs(shape=shape), reduction=reduction)


@pytest.mark.parametrize("reduction", REDUCTIONS)
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("ignored", [-100, 0, 2, 1 << 40])
def test_weight_and_ignore_index(ignored, dtype, reduction):
    input, target = inputs(dtype, shape=(N, C, 3))
    target[::5] = ignored
    check(input, target, weight=uniform(C, seed=3).abs().to(dtype), ignore_index=ignored, reduction=reduction)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_weight_of_float32_beside_16_bits(dtype):
    input, target = inputs(dtype)
    weight = uniform(C, seed=3).abs()
    loss = ot.nll_loss(input, target, weight)
    expected = F.nll_loss(input.detach().double(), target, weight.double())
    assert_within(loss, expected, half_ulp(dtype, expected) * 1.001)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("wide", [torch.float32, torch.float64])
def test_wider_loss(wide, dtype):
    check(*inputs(dtype), dtype=wide)
    check(*inputs(dtype), dtype=wide, reduction="none")


def test_token_weight_and_denominator():
    input, target = inputs(shape=(N, C, 3))
    t = uniform(N, 3, seed=5).abs()
    target[4, 1] = -100
    weight = uniform(C, seed=3).abs()
    x = input.detach().double().requires_grad_()
    each = F.nll_loss(x, target, weight.double(), reduction="none") * t
    divisors = (weight.double()[target.clamp(min=0)] * t * (target >= 0)).sum()
    for options, expected in (
        ({}, each.sum() / divisors),
        ({"reduction": "sum"}, each.sum()),
        ({"reduction": "none"}, each),
        ({"denominator": 7.5}, each.sum() / 7.5),
        ({"denominator": torch.tensor(7.5)}, each.sum() / 7.5),
        ({"denominator": torch.tensor([7.5], dtype=torch.float64)}, each.sum() / 7.5),
        ({"denominator": 7.5, "reduction": "sum"}, each.sum()),
    ):
        input.grad = x.grad = None
        loss = ot.nll_loss(input, target, weight, token_weight=t, **options)
        assert_within(loss, expected.detach(), 2.0**-23 * expected.detach().abs())
        loss.sum().backward()
        expected.sum().backward(retain_graph=True)
        assert_within(input.grad, x.grad, 2.0**-20 * x.grad.abs(), str(options))


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_class_axis(axis):
    input, target = inputs(shape=(N, C, 3))
    moved = input.detach().movedim(1, axis).requires_grad_()
    loss = ot.nll_loss(moved, target, class_axis=axis)
    loss.backward()
    ot.nll_loss(input, target).backward()
    assert torch.equal(moved.grad.movedim(axis, 1), input.grad)


def test_nothing_counts():
    for options, expected in (({}, float("nan")), ({"zero_if_empty": True}, 0.0), ({"reduction": "sum"}, 0.0)):
        input, _ = inputs()
        loss = ot.nll_loss(input, torch.full((N,), -100), **options)
        loss.backward()
        assert same_bits(loss.detach().abs(), torch.tensor(expected).abs())
        assert same_bits(input.grad, torch.zeros(N, C))


def test_old_names_of_reduction():
    input, target = inputs()
    for options in (
        {"size_average": False},
        {"size_average": True},
        {"reduce": False},
        {"reduce": True},
        {"size_average": False, "reduce": False},
    ):
        with pytest.warns(UserWarning):
            expected = F.nll_loss(input, target, **options)
        assert_within(ot.nll_loss(input, target, **options), expected.detach(), 1e-5)


def test_autocast_gives_float32():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ot.nll_loss(*inputs(torch.bfloat16)).dtype == torch.float32
        assert ot.nll_loss(*inputs(torch.float64)).dtype == torch.float64
        assert ot.nll_loss(*inputs(torch.bfloat16), dtype=torch.bfloat16).dtype == torch.bfloat16


def test_negative_views():
    input, target = inputs()
    z = torch.complex(input.detach(), input.detach())
    assert same_bits(ot.nll_loss(z.conj().imag, target), ot.nll_loss(-input, target))


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradcheck(reduction):
    input, target = inputs(torch.float64, shape=(4, 3, 2))
    target[1, 1] = 2
    options = [
        {},
        {"weight": uniform(3, dtype=torch.float64).abs(), "ignore_index": 2},
        {"token_weight": uniform(4, 2, dtype=torch.float64)},
        {"denominator": 3.0},
    ]
    for given in options:

        def call(x, given=given):
            return ot.nll_loss(x, target, reduction=reduction, **given)

        assert torch.autograd.gradcheck(call, input)
        assert torch.autograd.gradgradcheck(call, input)
        assert torch.autograd.gradgradcheck(lambda x: call(x).pow(2), input)


def test_upstream_gradients_are_not_rounded_to_16_bits():
    input, target = inputs(torch.float16)
    loss = ot.nll_loss(input, target, reduction="sum", dtype=torch.float32)
    (loss * 3e5 * 1e-5).backward()
    assert (input.grad != 0).sum() == N and input.grad.min() == torch.tensor(-3.0, dtype=torch.float16)


def test_input_is_not_kept():
    input, target = inputs()
    loss = ot.nll_loss(input, target)
    with torch.no_grad():
        input.zero_()  # PyTorch's own would refuse the backward, had it been saved
    loss.backward()


def test_errors():
    input, target = inputs()
    target[7] = target[50] = C
    with pytest.raises(IndexError, match=rf"target\[7\] = {C} is outside \[0, {C}\)"):
        ot.nll_loss(input, target)
    input, target = inputs()
    for error, sentence, options in (
        (ValueError, 'reduction: must be "none", "mean" or "sum", is "max"', {"reduction": "max"}),
        (TypeError, "target", {"target": target.double()}),
        (ValueError, "target", {"target": target[:-1]}),
        (ValueError, "weight", {"weight": torch.ones(C + 1)}),
        (TypeError, "weight", {"weight": torch.ones(C, dtype=torch.float16)}),
        (ValueError, "token_weight", {"token_weight": torch.ones(N, 1)}),
        (ValueError, "denominator", {"denominator": torch.ones(2)}),
        (ValueError, "class_axis", {"class_axis": 2}),
        (ValueError, "weight: must not require a gradient", {"weight": torch.ones(C, requires_grad=True)}),
        (ValueError, "token_weight: must not require", {"token_weight": torch.ones(N, requires_grad=True)}),
        (ValueError, "denominator: must not require", {"denominator": torch.ones((), requires_grad=True)}),
        (TypeError, "loss", {"dtype": torch.bfloat16}),
        (TypeError, "input", {"input": input.detach().long()}),
    ):
        with pytest.raises(error, match=sentence):
            ot.nll_loss(**{"input": input, "target": target, **options})
    with torch.no_grad():
        ot.nll_loss(input, target, weight=torch.ones(C, requires_grad=True))
