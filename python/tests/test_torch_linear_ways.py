"""The two ways of linear_cross_entropy: gradients together with the loss, or later from statistics. Which is taken, and when
their results are the same to the bit."""

import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch_cases import Linear, assert_within, half_ulp, needs_registration, same_bits, uniform, zipf  # noqa: E402

N, H, V = 41, 33, 70
HALVES = [torch.bfloat16, torch.float16]


def tensors(dtype=torch.float32, requires=(True, True), n=N, h=H, v=V):
    input, linear_weight = uniform(n, h, dtype=dtype, scale=2), uniform(v, h, dtype=dtype, seed=1)
    return input.requires_grad_(requires[0]), linear_weight.requires_grad_(requires[1]), zipf((n,), v)


def described(*tensors):
    return sorted(((tuple(t.shape), t.dtype) for t in tensors if t.numel() > 0), key=str)


def saved(*args, **options):
    """Loss, and shape and dtype of what autograd keeps for the backward."""
    kept = []

    def pack(tensor):
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        loss = ot.linear_cross_entropy(*args, **options)
    return loss, described(*kept)


def gradients(loss, *tensors, upstream=None, retain_graph=False):
    return torch.autograd.grad(loss, [t for t in tensors if t.requires_grad], upstream, retain_graph)


def way_of(x, w, y, **options):
    """Exactly what each way keeps."""
    _, kept = saved(x, w, y, **options)
    if kept == described(x.float(), w.float()):
        return "together"
    statistics = torch.zeros(N), torch.zeros(N)
    return "statistics" if kept == described(x, w, y, *statistics) else kept


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_mean_and_sum_keep_gradients_and_nothing_else(dtype):
    for options in ({}, {"reduction": "sum"}, {"label_smoothing": 0.1, "z_loss": 0.1}, {"dtype": torch.float64}):
        assert way_of(*tensors(dtype), **options) == "together"


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_others_keep_inputs_and_two_numbers_for_each_position(dtype):
    for options in ({"reduction": "none"}, {"main_grad": torch.zeros(V, H)}, {"max_workspace": 0}):
        assert way_of(*tensors(dtype), **options) == "statistics"


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_gradients_that_fit_in_max_workspace(dtype):
    enough = 4 * (N + V) * H
    assert way_of(*tensors(dtype), max_workspace=enough) == "together"
    assert way_of(*tensors(dtype), max_workspace=enough - 1) == "statistics"


@needs_registration
def test_float32_gradients_of_16_bits_that_are_large():
    """More than 64 MiB, and more than an eighth of logits and their gradient: n * v * 2 * 2 / 8 bytes. Without data."""
    v, h = (1 << 23) + 1, 2
    weight = torch.zeros(v, h, dtype=torch.bfloat16, device="meta", requires_grad=True)
    for n, classes, way in ((1, v - 1, True), (15, v, False), (17, v, True)):
        input, target = (t.to("meta") for t in (uniform(n, h, dtype=torch.bfloat16), zipf((n,), 99)))
        _, kept = saved(input, weight[:classes], target)
        assert (((classes, h), torch.float32) in kept) == way
    wide = torch.zeros(v, h, device="meta", requires_grad=True)
    assert ((v, h), torch.float32) in saved(uniform(1, h).to("meta"), wide, zipf((1,), 99).to("meta"))[1]


@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"max_workspace": 0}])
def test_nothing_is_kept_without_gradients(options):
    assert saved(*tensors(requires=(False, False)), **options)[1] == []
    with torch.no_grad():
        loss, kept = saved(*tensors(), **options)
    assert kept == [] and not loss.requires_grad


def test_only_gradients_that_are_wanted_are_kept():
    assert saved(*tensors(requires=(False, True)))[1] == [((V, H), torch.float32)]
    assert saved(*tensors(requires=(True, False)))[1] == [((N, H), torch.float32)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"reduction": "sum"},
        {"label_smoothing": 0.2, "weight": uniform(V, seed=2).abs()},
        {"z_loss": 0.1, "softcap": 2.0, "logit_scale": 0.5},
        {"ignore_index": 0},
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, *HALVES])
def test_both_ways_have_the_same_bits(dtype, options):
    x, w, y = tensors(dtype)
    bias = uniform(V, seed=3, dtype=dtype).requires_grad_()
    together = ot.linear_cross_entropy(x, w, y, linear_bias=bias, **options)
    later = ot.linear_cross_entropy(x, w, y, linear_bias=bias, max_workspace=0, **options)
    assert same_bits(together, later)
    for a, b in zip(gradients(together, x, w, bias), gradients(later, x, w, bias)):
        assert same_bits(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, *HALVES])
def test_main_grad_has_the_bits_of_the_gradient(dtype):
    x, w, y = tensors(dtype)
    main_grad = torch.zeros(V, H)
    ot.linear_cross_entropy(x, w, y, main_grad=main_grad).backward()
    assert w.grad is None
    x_grad, w_grad = gradients(ot.linear_cross_entropy(x, w, y, max_workspace=0), x, w)
    assert same_bits(x.grad, x_grad) and same_bits(main_grad.to(dtype), w_grad)


@pytest.mark.parametrize("requires", [(True, False), (False, True)])
@pytest.mark.parametrize("max_workspace", [None, 0])
def test_bits_do_not_depend_on_what_else_is_asked_for(max_workspace, requires):
    x, w, y = tensors()
    every = dict(zip((x, w), gradients(ot.linear_cross_entropy(x, w, y, max_workspace=max_workspace), x, w)))
    a, b, _ = tensors(requires=requires)
    (one,) = gradients(ot.linear_cross_entropy(a, b, y, max_workspace=max_workspace), a, b)
    assert same_bits(one, every[x if requires[0] else w])


@pytest.mark.parametrize("retain_graph", [False, True])
@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("dtype", HALVES)
def test_loss_scaling_loses_nothing(dtype, max_workspace, retain_graph):
    """Gradients far below the 16-bit range, times 65536: those of float32, scaled and rounded once."""
    x, w, y = tensors(dtype)
    options = {"denominator": 1e9, "reproducible": True}
    loss = ot.linear_cross_entropy(x, w, y, dtype=torch.float32, max_workspace=max_workspace, **options)
    scaled = gradients(loss * 65536, x, w, retain_graph=retain_graph)
    wide_x, wide_w = x.detach().float().requires_grad_(), w.detach().float().requires_grad_()
    exact = gradients(ot.linear_cross_entropy(wide_x, wide_w, y, **options), wide_x, wide_w)
    for a, b in zip(scaled, exact):
        assert a.dtype == dtype and same_bits(a, (b * 65536).to(dtype))
    assert dtype != torch.float16 or not exact[1].to(dtype).any()  # unscaled they would be gone


@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("denominator, upstream", [(1e-6, 3e-9), (1e9, 3e8)])
def test_factors_outside_of_16_bits(denominator, upstream, max_workspace):
    """Neither the gradient of float16 nor that of the loss can be written in float16, but their product can."""
    x, w, y = tensors(torch.float16)
    options = {"denominator": denominator, "dtype": torch.float32}
    loss = ot.linear_cross_entropy(x, w, y, max_workspace=max_workspace, **options)
    loss.backward(torch.tensor(upstream))
    reference = Linear(x, w, y, denominator=denominator, upstream=torch.tensor(upstream).item())
    for leaf, expected, bound in zip((x, w), reference.gradients, reference.bounds):
        bound = bound + 3 * 2.0**-24 * expected.abs()  # the denominator and two products in float32
        assert_within(leaf.grad, expected, bound + half_ulp(torch.float16, expected.abs() + bound))


def test_16_bit_losses_scale_in_float32():
    """A factor that float16 has, but gradients that it does not."""
    x, w, y = tensors(torch.float16)
    loss = ot.linear_cross_entropy(x, w, y, denominator=float(1 << 20))
    scaled = gradients(loss, x, w, upstream=torch.tensor(32768.0).half())
    exact = gradients(ot.linear_cross_entropy(x, w, y, denominator=32.0), x, w)
    assert all(same_bits(a, b) for a, b in zip(scaled, exact))


@pytest.mark.parametrize("options", [{}, {"reduction": "none"}, {"max_workspace": 0}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_second_derivatives_are_refused(dtype, options):
    x, w, y = tensors(dtype)
    first = torch.autograd.grad(ot.linear_cross_entropy(x, w, y, **options).sum(), (x, w), create_graph=True)
    for gradient in first:
        with pytest.raises(
            NotImplementedError, match="linear_cross_entropy: its gradient cannot be differentiated once more"
        ):
            torch.autograd.grad(gradient.float().pow(2).sum(), (x, w), retain_graph=True, allow_unused=True)
        with pytest.raises(NotImplementedError):
            gradient.float().pow(2).sum().backward(retain_graph=True)
    with pytest.raises(NotImplementedError):
        torch.autograd.functional.hessian(lambda table: ot.linear_cross_entropy(x, table, y, **options).sum(), w)


def test_create_graph_without_a_second_derivative():
    x, w, y = tensors()
    plain = gradients(ot.linear_cross_entropy(x, w, y), x, w)
    graph = torch.autograd.grad(ot.linear_cross_entropy(x, w, y), (x, w), create_graph=True)
    assert all(same_bits(a, b) for a, b in zip(plain, graph))


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_gradients_can_be_asked_for_one_by_one(reduction):
    x, w, y = tensors()
    loss = ot.linear_cross_entropy(x, w, y, reduction=reduction).sum()
    both = gradients(ot.linear_cross_entropy(x, w, y, reduction=reduction).sum(), x, w)
    assert same_bits(torch.autograd.grad(loss, x, retain_graph=True)[0], both[0])
    assert same_bits(torch.autograd.grad(loss, w)[0], both[1])


def test_kept_gradients_do_not_change_with_their_inputs():
    """Together: input and linear_weight may be written between forward and backward, which is not seen."""
    x, w, y = tensors()
    expected = gradients(ot.linear_cross_entropy(x, w, y), x, w)
    loss = ot.linear_cross_entropy(x, w, y)
    with torch.no_grad():
        w.zero_()
    assert all(same_bits(a, b) for a, b in zip(gradients(loss, x, w), expected))


def test_statistics_notice_inputs_that_changed():
    x, w, y = tensors()
    loss = ot.linear_cross_entropy(x, w, y, max_workspace=0)
    with torch.no_grad():
        w.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
