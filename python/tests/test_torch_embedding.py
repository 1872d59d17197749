import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch_cases import FLOATS, INTEGERS, LAYOUTS, F, assert_within, half_ulp, laid_out, same_bits, uniform, zipf  # noqa: E402

V, D, SHAPE = 61, 19, (7, 23)


def reference(indices, grad, padding_idx=None, scale_grad_by_freq=False, num_weights=V):
    """The gradient of the table in float64 by PyTorch, and how far off a sum in the dtype of sums may be.

    A row named k times is a sum of k terms, in chunks: at most k + 1 roundings, and one of the division.
    """

    def table(upstream):
        weight = torch.zeros(num_weights, grad.shape[-1], dtype=torch.float64, requires_grad=True)
        F.embedding(indices.long(), weight, padding_idx, scale_grad_by_freq=scale_grad_by_freq).backward(upstream)
        return weight.grad

    u = 2.0**-53 if grad.dtype == torch.float64 else 2.0**-24
    named = torch.bincount(indices.long().flatten(), minlength=num_weights)
    return table(grad.double()), (named[:, None] + 2) * u * table(grad.double().abs())


def check(weight, indices, grad, **options):
    out = ot.embedding(indices, weight, **options)
    assert same_bits(out, weight.detach()[indices.long()])
    out.backward(grad)
    expected, bound = reference(indices, grad, **options)
    assert weight.grad.dtype == weight.dtype
    assert_within(weight.grad, expected, bound + half_ulp(weight.dtype, expected), "gradient of weight")


def test_reference_by_hand():
    grad = torch.tensor([[1.0, 2], [10, 20], [100, 200]])
    expected, _ = reference(torch.tensor([2, 0, 2]), grad, scale_grad_by_freq=True, num_weights=3)
    assert expected.tolist() == [[10, 20], [0, 0], [50.5, 101]]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("index", INTEGERS)
@pytest.mark.parametrize("dtype", FLOATS)
def test_values_and_gradients(dtype, index, layout):
    weight = laid_out(uniform(V, D, dtype=dtype), layout).requires_grad_()
    indices = laid_out(zipf(SHAPE, V, index), layout)
    check(weight, indices, laid_out(uniform(*SHAPE, D, dtype=dtype, seed=1), layout))


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    "options",
    [
        {"padding_idx": 0},
        {"padding_idx": -V},
        {"scale_grad_by_freq": True},
        {"padding_idx": 1 - V, "scale_grad_by_freq": True},
    ],
)
def test_options(options, dtype):
    weight = uniform(V, D, dtype=dtype).requires_grad_()
    check(weight, zipf(SHAPE, V), uniform(*SHAPE, D, dtype=dtype, seed=1), **options)
    if "padding_idx" in options:
        assert not weight.grad[options["padding_idx"]].any()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (2, 3, 4)])
def test_shapes(shape):
    check(uniform(V, D).requires_grad_(), zipf(shape, V), uniform(*shape, D, seed=1))


def test_expanded_gradients_are_read_where_they_lie():
    weight = uniform(V, D).requires_grad_()
    check(weight, zipf(SHAPE, V), uniform(1, 1, D, seed=1).expand(*SHAPE, D))
    weight.grad = None
    ot.embedding(zipf(SHAPE, V), weight).sum().backward()
    named = torch.bincount(zipf(SHAPE, V).flatten(), minlength=V)
    assert torch.equal(weight.grad, named.float()[:, None].expand(V, D))


def test_16_bit_gradients_are_summed_in_float32():
    # 1 + 2000 * 2^-9 in bfloat16: each term alone is lost to it.
    weight = torch.zeros(1, 1, dtype=torch.bfloat16, requires_grad=True)
    grad = torch.full((2001, 1), 2.0**-9, dtype=torch.bfloat16)
    grad[0] = 1
    ot.embedding(torch.zeros(2001, dtype=torch.int64), weight).backward(grad)
    assert weight.grad.item() == torch.tensor(1 + 2000 * 2.0**-9).bfloat16().item()


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8, torch.complex64, torch.complex128])
def test_forward_takes_any_dtype(dtype):
    weight = (uniform(V, D, scale=3) * (1 + 2j if dtype.is_complex else 1)).to(dtype)
    assert torch.equal(ot.embedding(zipf(SHAPE, V), weight), weight[zipf(SHAPE, V)])


def test_views_that_read_otherwise_than_they_lie():
    numbers = torch.complex(uniform(V, D), uniform(V, D, seed=1))
    indices = zipf(SHAPE, V)
    assert torch.equal(ot.embedding(indices, numbers.conj()), numbers.conj().resolve_conj()[indices])
    negative = numbers.conj().imag
    assert negative.is_neg() and torch.equal(ot.embedding(indices, negative), -numbers.imag[indices])
    grad = torch.complex(uniform(*SHAPE, D), uniform(*SHAPE, D, seed=1)).conj().imag
    check(uniform(V, D).requires_grad_(), indices, grad)


@pytest.mark.parametrize("norm_type", [2.0, 1.0, float("inf")])
def test_max_norm(norm_type):
    indices = zipf(SHAPE, V)
    ours, theirs = uniform(V, D), uniform(V, D)
    out = ot.embedding(indices, ours, max_norm=0.7, norm_type=norm_type)
    assert same_bits(out, F.embedding(indices, theirs, max_norm=0.7, norm_type=norm_type))
    assert same_bits(ours, theirs) and not torch.equal(ours, uniform(V, D))
    check(ours.requires_grad_(), indices, uniform(*SHAPE, D, seed=1))


@pytest.mark.parametrize("index", INTEGERS)
def test_max_norm_takes_the_integers_that_the_rest_takes(index):
    weight = uniform(V, D).requires_grad_()
    out = ot.embedding(zipf(SHAPE, V, index).T, weight, max_norm=0.5)
    assert 0.4 < out.norm(dim=-1).max() <= 0.5 * (1 + 1e-6)


@pytest.mark.parametrize("buffer", ["float32", "same"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_main_grad(dtype, buffer):
    weight = uniform(V, D, dtype=dtype).requires_grad_()
    main_grad = torch.zeros(V, D, dtype=dtype if buffer == "same" or dtype == torch.float64 else torch.float32)
    indices = zipf((2, *SHAPE), V)
    grad = uniform(2, *SHAPE, D, dtype=dtype, seed=1)
    for batch in range(2):
        ot.embedding(indices[batch], weight, padding_idx=3, main_grad=main_grad).backward(grad[batch])
    assert weight.grad is None
    expected, bound = reference(indices, grad, padding_idx=3)
    bound = bound + half_ulp(main_grad.dtype, reference(indices, grad.abs(), padding_idx=3)[0]) * 3
    assert_within(main_grad, expected, bound, "main_grad")


def test_main_grad_keeps_rows_that_nobody_names():
    weight, main_grad = uniform(4, 2).requires_grad_(), torch.full((4, 2), -0.0)
    main_grad[2] = float("nan")
    ot.embedding(torch.tensor([1]), weight, main_grad=main_grad).sum().backward()
    assert main_grad[1].tolist() == [1, 1] and main_grad[2].isnan().all() and torch.signbit(main_grad[[0, 3]]).all()


def test_gradcheck():
    weight = uniform(5, 3, dtype=torch.float64).requires_grad_()
    indices = torch.tensor([[0, 2, 2], [4, 0, 4]])
    assert torch.autograd.gradcheck(lambda table: ot.embedding(indices, table), weight)
    assert torch.autograd.gradgradcheck(lambda table: ot.embedding(indices, table), weight)


@pytest.mark.parametrize(
    "options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}, {"padding_idx": -1, "scale_grad_by_freq": True}]
)
def test_second_derivatives(options):
    """With an option the gradient is not that of the forward, but linear in that of the rows all the same."""
    indices = torch.tensor([[0, 2, 2], [4, 0, 4]])
    weight = uniform(5, 3, dtype=torch.float64).requires_grad_()

    def gradient(grad):
        return torch.autograd.grad(ot.embedding(indices, weight, **options), weight, grad, create_graph=True)[0]

    grad = uniform(2, 3, 3, dtype=torch.float64, seed=1).requires_grad_()
    assert torch.autograd.gradcheck(gradient, grad)
    assert torch.autograd.gradgradcheck(gradient, grad)


def test_errors():
    weight, main_grad = uniform(V, D).requires_grad_(), torch.zeros(V, D)
    before = weight.detach().clone()
    for bad in (V, -1):
        indices = zipf(SHAPE, V)
        indices[1, 5] = indices[3, 3] = bad
        for options in ({"main_grad": main_grad}, {"max_norm": 0.1}):
            with pytest.raises(IndexError, match=rf"indices\[1, 5\] \(position 28\) = {bad} is outside \[0, {V}\)"):
                ot.embedding(indices, weight, **options)
    assert same_bits(weight, before)
    with pytest.raises(TypeError, match="^input: its dtype "):
        ot.embedding(torch.zeros(3, dtype=torch.complex64), weight)
    with pytest.raises(ValueError, match="sparse: must be False"):
        ot.embedding(torch.tensor([1]), weight, sparse=True)
    for bad in (V, -V - 1):
        with pytest.raises(ValueError, match=rf"padding_idx: must be in \[-{V}, {V}\), .* is {bad}"):
            ot.embedding(torch.tensor([1]), weight, padding_idx=bad)
    with pytest.raises(ValueError, match="weight: "):
        ot.embedding(torch.tensor([1]), uniform(V))
    assert not main_grad.any()


@pytest.mark.parametrize(
    "main_grad, error, sentence",
    [
        (torch.zeros(V, D + 1), ValueError, rf"must have the shape \({V}, {D}\) of the weight, has \({V}, {D + 1}\)"),
        (torch.zeros(V + 1, D), ValueError, rf"must have the shape \({V}, {D}\) of the weight, has \({V + 1}, {D}\)"),
        (torch.zeros(V, D, dtype=torch.float16), TypeError, "must be torch.float32, .*, is torch.float16"),
        (torch.zeros(V, D, requires_grad=True), ValueError, "must not require a gradient"),
    ],
)
def test_main_grad_that_cannot_be_added_to(main_grad, error, sentence):
    with pytest.raises(error, match="main_grad: .*" + sentence):
        ot.embedding(zipf(SHAPE, V), uniform(V, D).requires_grad_(), main_grad=main_grad)
