"""torch.compile without a graph break, tensors without data, and what PyTorch itself checks of a custom operator."""

import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch_cases import needs_registration, same_bits, uniform, zipf  # noqa: E402

pytestmark = needs_registration
N, H, V = 23, 14, 40


def tensors(n=N, dtype=torch.float32):
    return (
        uniform(V, H, dtype=dtype).requires_grad_(),
        uniform(n, H, dtype=dtype, seed=1).requires_grad_(),
        zipf((n,), V),
    )


def embedding(table, x, y):
    return (ot.embedding(y, table, padding_idx=0, scale_grad_by_freq=True) * x).sum()


def nll_loss(table, x, y):
    return ot.nll_loss(torch.log_softmax(x @ table.T, 1), y, weight=torch.linspace(0.5, 2, V), ignore_index=2)


def together(table, x, y):
    return ot.linear_cross_entropy(x, table, y, label_smoothing=0.1) * 3


def statistics(table, x, y):
    return ot.linear_cross_entropy(x, table, y, max_workspace=0) * 3


def each(table, x, y):
    return ot.linear_cross_entropy(x, table, y, reduction="none", token_weight=torch.arange(len(y)) * 0.1).sum()


def tied(table, x, y):
    return ot.linear_cross_entropy(ot.embedding(y, table) + x, table, y.roll(1))


LOSSES = [embedding, nll_loss, together, statistics, each, tied]


def run(loss, function=None, n=N, dtype=torch.float32):
    table, x, y = tensors(n, dtype)
    value = (function or loss)(table, x, y)
    value.backward()
    return [value, table.grad, x.grad]


def fresh(function, **options):
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, **options)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_compiled_has_the_bits_of_eager(dtype, loss):
    for a, b in zip(run(loss, fresh(loss, backend="aot_eager"), dtype=dtype), run(loss, dtype=dtype)):
        assert same_bits(a, b)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_sizes_that_change(loss):
    compiled = fresh(loss, backend="aot_eager", dynamic=True)
    counted = torch._dynamo.testing.CompileCounter()
    for n in (N, 7, 51):
        for a, b in zip(run(loss, compiled, n), run(loss, n=n)):
            assert same_bits(a, b)
    again = fresh(loss, backend=counted, dynamic=True)
    for n in (N, 7, 51):
        again(*tensors(n))
    assert counted.frame_count == 1  # one graph for all


def test_inductor():
    def step(table, x, y):
        rows = torch.tanh(ot.embedding(y, table) + x)
        return ot.linear_cross_entropy(rows, table, y.roll(1)) + ot.nll_loss(torch.log_softmax(rows, 1), y % H)

    table, x, y = tensors()
    compiled = run(step, fresh(step))
    for a, b in zip(compiled, run(step)):
        assert torch.allclose(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backend", ["aot_eager"])
def test_main_grad(backend):
    def step(table, x, y, main_grad):
        rows = ot.embedding(y, table, main_grad=main_grad)
        return ot.linear_cross_entropy(rows + x, table, y.roll(1), main_grad=main_grad)

    buffers = []
    for function in (step, fresh(step, backend=backend)):
        table, x, y = tensors(dtype=torch.bfloat16)
        buffers.append(torch.zeros(V, H))
        for _ in range(2):
            function(table, x, y, buffers[-1]).backward()
        assert table.grad is None
    assert buffers[0].any() and same_bits(*buffers)


def test_compiled_without_gradients():
    for loss in LOSSES:
        table, x, y = tensors()
        with torch.no_grad():
            assert same_bits(fresh(loss, backend="aot_eager")(table, x, y), loss(table, x, y))


def test_compiled_modules():
    model = torch.nn.Sequential(ot.Embedding(V, H, padding_idx=1), torch.nn.Tanh())
    head = ot.LinearCrossEntropyLoss(H, V, bias=True)
    y = zipf((N,), V)

    def step(y):
        return head(model(y), y.roll(1))

    fresh(step, backend="aot_eager")(y).backward()
    compiled = [p.grad.clone() for p in (*model.parameters(), *head.parameters())]
    model.zero_grad()
    head.zero_grad()
    step(y).backward()
    for a, p in zip(compiled, (*model.parameters(), *head.parameters())):
        assert same_bits(a, p.grad)


def test_compiled_modules_with_main_grad():
    """The buffer has to be there; a compiled forward does not make it."""
    table, head = ot.Embedding(V, H, main_grad=True), ot.LinearCrossEntropyLoss(H, V, main_grad=True)
    head.linear.weight = table.weight
    y = zipf((N,), V)

    def step(y):
        return head(table(y), y.roll(1))

    with pytest.raises(
        Exception, match="main_grad: a compiled forward cannot make the buffer; call the module once before"
    ):
        fresh(step, backend="aot_eager")(y)
    buffers = []
    for function in (step, fresh(step, backend="aot_eager")):
        table.weight.main_grad = torch.zeros(V, H)
        function(y).backward()
        buffers.append(table.weight.main_grad)
        assert table.weight.grad is None
    assert buffers[0].any() and same_bits(*buffers)


def under_autocast(table, x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return ot.linear_cross_entropy(x, table, y)


def several_layers(table, x, y):
    weight = torch.stack([table, 2 * table], 1)
    return ot.linear_cross_entropy(x, weight, torch.stack([y, y.roll(1)], 1), denominator=3.5)


def little_workspace(table, x, y):
    return ot.linear_cross_entropy(x, table, y, max_workspace=5000)  # enough for some of the sizes


def renormed(table, x, y):
    return (ot.embedding(y, table, max_norm=0.5) * x).sum()


@pytest.mark.parametrize("loss", [under_autocast, several_layers, little_workspace, renormed], ids=lambda f: f.__name__)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_more_that_compiles(dtype, loss):
    compiled = fresh(loss, backend="aot_eager", dynamic=True)
    for n in (N, 7, 51):
        for a, b in zip(run(loss, compiled, n, dtype), run(loss, n=n, dtype=dtype)):
            assert same_bits(a, b)


def test_compiled_errors():
    table, x, y = tensors()
    y[3] = V
    compiled = fresh(together, backend="aot_eager")
    with pytest.raises(IndexError, match=rf"target\[3\] = {V} is outside"):
        compiled(table, x, y)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_tensors_without_data(loss):
    table, x, y = (t.detach().to("meta") for t in tensors(dtype=torch.bfloat16))
    expected = run(loss, dtype=torch.bfloat16)
    table.requires_grad_()
    x.requires_grad_()
    with torch.device("meta"):
        value = loss(table, x, y)
    value.backward()
    for a, b in zip((value, table.grad, x.grad), expected):
        assert a.is_meta and a.shape == b.shape and a.dtype == b.dtype


def test_tensors_without_data_beside_others():
    table, x, y = tensors()
    for call in (
        lambda: ot.embedding(y, table.to("meta")),
        lambda: ot.nll_loss(x.to("meta"), y),
        lambda: ot.linear_cross_entropy(x, table.to("meta"), y),
    ):
        with pytest.raises(ValueError, match="tensors must be on one device, are on cpu and meta"):
            call()
    y = y.to("meta")
    assert ot.linear_cross_entropy(x.to("meta"), table.to("meta"), y, denominator=3.0).is_meta  # numbers are not asked


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_fake_tensors(loss):
    from torch._subclasses.fake_tensor import FakeTensorMode

    expected = run(loss)
    with FakeTensorMode(allow_non_fake_inputs=True):
        table, x, y = (
            torch.empty(V, H, requires_grad=True),
            torch.empty(N, H, requires_grad=True),
            torch.empty(N).long(),
        )
        value = loss(table, x, y)
        value.backward()
    for a, b in zip((value, table.grad, x.grad), expected):
        assert a.shape == b.shape and a.dtype == b.dtype


@pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)
def test_traced_graphs_name_the_operators(loss):
    from torch.fx.experimental.proxy_tensor import make_fx

    table, x, y = tensors()

    def gradients(table, x, y):
        return torch.autograd.grad(loss(table, x, y), (table, x))

    graph = make_fx(gradients)(table, x, y)
    assert any("onehot" in str(node.target) for node in graph.graph.nodes)
    for a, b in zip(graph(table, x, y), gradients(table, x, y)):
        assert same_bits(a, b)


def test_export():
    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = torch.nn.Parameter(uniform(V, H))

        def forward(self, y):
            return ot.linear_cross_entropy(ot.embedding(y, self.table), self.table, y)

    y = zipf((N,), V)
    head = Head()
    program = torch.export.export(head, (y,), dynamic_shapes=({0: torch.export.Dim("n", min=2)},))
    for n in (N, 7):
        assert same_bits(program.module()(y[:n]), head(y[:n]))


def operators():
    table, x, y = tensors()
    d, t = table.detach(), torch.tensor
    options = [
        d[:, 0].contiguous().requires_grad_(),
        None,
        None,
        None,
        "mean",
        -100,
        0.1,
        0.0,
        0.0,
        1.0,
        False,
        None,
        0.0,
        False,
        None,
    ]
    numbers = torch.zeros(N), torch.ones(N)
    grad, main_grad = t(1.0, requires_grad=True), torch.zeros(V, H)
    rows = uniform(N, H, seed=2).requires_grad_()
    return {
        "embedding": (table, y, None, False, None),
        "embedding_backward": (rows, y, V, 1, True),
        "embedding_backward_": (main_grad, rows.detach(), y, None, False),
        "nll_loss": (x, y % H, None, None, None, "mean", -100, False, 1, None),
        "nll_loss_backward": (grad, y % H, None, None, t(3.0), [N, H], torch.float32, "mean", -100, 1),
        "linear_cross_entropy": (x, table, y, *options, None, False, True, True, True, None),
        "linear_cross_entropy_backward": (
            t(1.0),
            x.detach(),
            d,
            y,
            *[getattr(o, "detach", lambda o=o: o)() for o in options],
            *numbers,
            True,
            True,
            True,
        ),
        "linear_cross_entropy_backward_": (
            main_grad,
            t(1.0),
            x.detach(),
            d,
            y,
            *[getattr(o, "detach", lambda o=o: o)() for o in options],
            *numbers,
            True,
            True,
        ),
        "scale_gradient": (d, t(2.0), torch.bfloat16),
    }


def test_every_operator_is_checked():
    registered = {name for name in torch._C._dispatch_get_all_op_names() if name.startswith("onehot::")}
    assert registered == {f"onehot::{name}" for name in operators()}


@pytest.mark.parametrize("name", operators())
def test_opcheck(name):
    torch.library.opcheck(getattr(torch.ops.onehot, name).default, operators()[name])


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_opcheck_without_gradients(reduction):
    args = [a.detach() if isinstance(a, torch.Tensor) else a for a in operators()["linear_cross_entropy"]]
    args[7], args[-5:-1] = reduction, [False] * 4
    torch.library.opcheck(torch.ops.onehot.linear_cross_entropy.default, tuple(args))


def test_opcheck_together():
    """All but gradients of the gradients that it keeps: those are refused."""
    args = [a.detach() if isinstance(a, torch.Tensor) else a for a in operators()["linear_cross_entropy"]]
    args[-5] = True
    torch.library.opcheck(torch.ops.onehot.linear_cross_entropy.default, tuple(args))
