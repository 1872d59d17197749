import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch_cases import F, assert_within, half_ulp, same_bits, uniform, zipf  # noqa: E402

N, H, V = 19, 12, 33

needs_pytorchs_own = pytest.mark.skipif(
    not hasattr(torch.nn, "LinearCrossEntropyLoss"), reason="no LinearCrossEntropyLoss"
)


def filled(module):
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(uniform(*parameter.shape, dtype=parameter.dtype, seed=seed))
    return module


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"padding_idx": -2},
        {"max_norm": 1.0, "norm_type": 1.0},
        {"scale_grad_by_freq": True},
        {"dtype": torch.float64},
    ],
)
def test_embedding(options):
    torch.manual_seed(0)
    ours = ot.Embedding(V, H, **options)
    torch.manual_seed(0)
    theirs = torch.nn.Embedding(V, H, **options)
    assert (
        same_bits(ours.weight, theirs.weight) and repr(ours) == repr(theirs) and list(ours.state_dict()) == ["weight"]
    )
    y, g = zipf((3, N), V), uniform(3, N, H, seed=1)
    for module in (ours, theirs):
        rows = module(y)
        rows.backward(g.to(rows.dtype))
    assert same_bits(ours(y), theirs(y))
    assert_within(ours.weight.grad, theirs.weight.grad.double(), 1e-4)


def test_embedding_has_the_state_of_pytorchs():
    ours, theirs = filled(ot.Embedding(V, H)), torch.nn.Embedding(V, H)
    theirs.load_state_dict(ours.state_dict())
    back = ot.Embedding(V, H)
    back.load_state_dict(theirs.state_dict())
    assert same_bits(back.weight, ours.weight) and isinstance(ours, torch.nn.Embedding)
    made = ot.Embedding.from_pretrained(uniform(V, H), freeze=False)
    made(zipf((N,), V)).sum().backward()
    assert isinstance(made, ot.Embedding) and made.weight.grad is not None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_main_grad_of_modules(dtype):
    """One buffer of the weight for both modules that share it; made at the first forward, or found."""
    table = filled(ot.Embedding(V, H, dtype=dtype, main_grad=True))
    head = ot.LinearCrossEntropyLoss(H, V, dtype=dtype, main_grad=True)
    head.linear.weight = table.weight
    y = zipf((N,), V)
    assert not hasattr(table.weight, "main_grad")
    head(table(y), y.roll(1)).backward()
    buffer = table.weight.main_grad
    assert buffer.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    assert table.weight.grad is None and not buffer.requires_grad
    once = buffer.clone()
    head(table(y), y.roll(1)).backward()
    assert table.weight.main_grad is buffer and table.weight.grad is None
    assert_within(buffer, 2 * once.double(), 1e-6 * once.double().abs() + 1e-7)

    plain = ot.Embedding(V, H, dtype=dtype)
    plain.weight = torch.nn.Parameter(table.weight.detach().clone())
    loss = ot.linear_cross_entropy(plain(y), plain.weight, y.roll(1))
    loss.backward()
    # Without the buffer each of both gradients is rounded, and so is their sum.
    assert_within(plain.weight.grad, once.double(), 3 * half_ulp(dtype, once.double().abs().max()) + 1e-6)
    assert list(table.state_dict()) == ["weight"] and list(head.state_dict()) == ["linear.weight"]


def test_a_buffer_that_is_there():
    head = ot.LinearCrossEntropyLoss(H, V, dtype=torch.bfloat16, main_grad=True)
    buffer = head.linear.weight.main_grad = torch.ones(V, H)
    head(uniform(N, H, dtype=torch.bfloat16), zipf((N,), V)).backward()
    assert head.linear.weight.main_grad is buffer and not torch.equal(buffer, torch.ones(V, H))


@pytest.mark.parametrize(
    "options", [{}, {"weight": uniform(V).abs(), "ignore_index": 3, "reduction": "sum"}, {"reduction": "none"}]
)
def test_nll_loss(options):
    ours, theirs = ot.NLLLoss(**options), torch.nn.NLLLoss(**options)
    assert repr(ours) == repr(theirs) and list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    log, y = torch.log_softmax(uniform(N, V, 4), 1), zipf((N, 4), V)
    assert_within(ours(log, y), theirs(log, y).double(), 1e-5 * theirs(log, y).abs())


def test_nll_loss_of_ours():
    log, y, t = torch.log_softmax(uniform(N, V), 1).bfloat16(), zipf((N,), V), uniform(N).abs()
    module = ot.NLLLoss(zero_if_empty=True, class_axis=-1, dtype=torch.float32)
    expected = ot.nll_loss(log, y, token_weight=t, denominator=3.0, class_axis=-1, dtype=torch.float32)
    assert same_bits(module(log, y, token_weight=t, denominator=3.0), expected)
    assert module(log, torch.full_like(y, -100)) == 0


def logits_of(module, x):
    out = F.linear(x, module.linear.weight, module.linear.bias)
    return out.reshape(*x.shape[:-1], module.num_classes, *module.out_features)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("out_features", [(), (2,), (2, 3)])
@pytest.mark.parametrize(
    "options", [{}, {"weight": uniform(V).abs(), "ignore_index": 2, "label_smoothing": 0.1}, {"reduction": "none"}]
)
def test_linear_cross_entropy_loss(options, out_features, bias):
    module = filled(ot.LinearCrossEntropyLoss(H, V, out_features=out_features, bias=bias, **options)).double()
    x, y = uniform(N, H, dtype=torch.float64, seed=5), zipf((N, *out_features), V)
    options = {k: v.double() if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    loss = module(x, y)
    expected = F.cross_entropy(logits_of(module, x), y, **options)
    assert_within(loss, expected.detach(), 1e-13)
    gradients = torch.autograd.grad(expected.sum(), list(module.parameters()))
    loss.sum().backward()
    for parameter, gradient in zip(module.parameters(), gradients):
        assert_within(parameter.grad, gradient, 1e-13)


@needs_pytorchs_own
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": True, "out_features": (3,)},
        {"weight": uniform(V).abs(), "bias": True},
        {"dtype": torch.float64, "reduction": "sum", "ignore_index": 1, "label_smoothing": 0.1},
    ],
)
def test_linear_cross_entropy_loss_has_the_state_of_pytorchs(options):
    import inspect

    parameters = [
        inspect.signature(c.__init__).parameters for c in (ot.LinearCrossEntropyLoss, torch.nn.LinearCrossEntropyLoss)
    ]
    for name, parameter in parameters[1].items():
        assert parameters[0][name].default == parameter.default, name
    ours, theirs = ot.LinearCrossEntropyLoss(H, V, **options), filled(torch.nn.LinearCrossEntropyLoss(H, V, **options))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict(theirs.state_dict())
    dtype = options.get("dtype", torch.float32)
    x, y = uniform(N, H, dtype=dtype, seed=5), zipf((N, *options.get("out_features", ())), V)
    assert_within(ours(x, y), theirs(x, y).detach().double(), 1e-5 * theirs(x, y).abs())


def test_options_of_ours_reach_the_function():
    given = {
        "z_loss": 0.1,
        "softcap": 2.0,
        "logit_scale": 0.5,
        "zero_if_empty": True,
        "max_workspace": 0,
        "skip_below": 1e-9,
        "reproducible": True,
        "label_smoothing": 0.1,
        "ignore_index": 1,
        "reduction": "sum",
    }
    module = filled(ot.LinearCrossEntropyLoss(H, V, loss_dtype=torch.float64, dtype=torch.bfloat16, **given))
    x, y, t = uniform(N, H, dtype=torch.bfloat16), zipf((N,), V), uniform(N).abs()
    call = {"token_weight": t, "denominator": 3.0}
    loss = module(x, y, **call)
    weight = module.linear.weight.detach().clone().requires_grad_()
    expected = ot.linear_cross_entropy(x, weight, y, dtype=torch.float64, **given, **call)
    assert loss.dtype == torch.float64 and same_bits(loss, expected)
    loss.backward()
    expected.backward()
    assert same_bits(module.linear.weight.grad, weight.grad)
    shown = repr(module)
    assert all(f"{name}={value!r}" in shown for name, value in given.items()) and "loss_dtype=torch.float64" in shown


def test_what_is_shown():
    assert repr(ot.LinearCrossEntropyLoss(H, V)) == (
        f"LinearCrossEntropyLoss(\n  num_classes={V}\n"
        f"  (linear): Linear(in_features={H}, out_features={V}, bias=False)\n)"
    )
    for given in ({"max_workspace": 0}, {"ignore_index": 0}, {"out_features": (2,)}, {"main_grad": True}):
        ((name, value),) = given.items()
        assert f"  num_classes={V}, {name}={value!r}\n" in repr(ot.LinearCrossEntropyLoss(H, V, **given))


def test_class_weights_of_another_number():
    with pytest.raises(ValueError, match=rf"weight: must have the shape \({V},\), has \({V - 1},\)"):
        ot.LinearCrossEntropyLoss(H, V, weight=torch.ones(V - 1))


def modules():
    return [
        (ot.Embedding(V, H, padding_idx=1), lambda m: m(zipf((N,), V)).square().sum()),
        (ot.NLLLoss(weight=uniform(V).abs()), lambda m: m(uniform(N, V), zipf((N,), V))),
        (
            ot.LinearCrossEntropyLoss(H, V, bias=True, weight=uniform(V).abs(), softcap=2.0),
            lambda m: m(uniform(N, H), zipf((N,), V)),
        ),
    ]


@pytest.mark.parametrize("number", range(3))
def test_copies(number):
    module, call = modules()[number]
    expected = call(module)
    if expected.requires_grad:
        expected.backward()
    saved = io.BytesIO()
    torch.save(module.state_dict(), saved)
    loaded = modules()[number][0]
    saved.seek(0)
    loaded.load_state_dict(torch.load(saved))
    for copied in (copy.deepcopy(module), pickle.loads(pickle.dumps(module)), loaded):
        value = call(copied)
        assert same_bits(value, expected) and repr(copied) == repr(module)
        copied.zero_grad()
        if value.requires_grad:
            value.backward()
        for a, b in zip(copied.parameters(), module.parameters()):
            assert same_bits(a.grad, b.grad) and a.data_ptr() != b.data_ptr()


def test_a_copy_has_a_buffer_of_its_own():
    y = zipf((N,), V)
    named = torch.bincount(y, minlength=V).float()[:, None].expand(V, H)
    table = ot.Embedding(V, H, main_grad=True)
    table(y).sum().backward()
    copied = copy.deepcopy(table)
    copied(y).sum().backward()
    assert same_bits(table.weight.main_grad, named)
    assert copied.weight.main_grad is not table.weight.main_grad


def test_training_of_a_small_model():
    """Loss curves of ours and of PyTorch's own layers are the same."""

    def curve(table, head):
        optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.5)
        values = []
        for step in range(6):
            y = zipf((N,), V, seed=step % 2)
            loss = head(torch.tanh(table(y)), y.roll(1))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            values.append(loss.item())
        return torch.tensor(values)

    class Plain(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(H, V)

        def forward(self, x, y):
            return F.cross_entropy(self.linear(x), y)

    ours = curve(filled(ot.Embedding(V, H)), filled(ot.LinearCrossEntropyLoss(H, V, bias=True)))
    theirs = curve(filled(torch.nn.Embedding(V, H)), filled(Plain()))
    assert torch.allclose(ours, theirs, rtol=1e-5) and ours[-1] < ours[0]
