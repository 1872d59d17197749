"""The habits of autograd that training depends on, for all three operators."""

import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from torch_cases import F, Linear, assert_within, half_ulp, same_bits, uniform, zipf  # noqa: E402

N, H, V = 31, 18, 50


def embedding(table, _, y):
    return ot.embedding(y, table).square().mean()


def nll_loss(table, x, y):
    return ot.nll_loss(torch.log_softmax(x @ table.T, 1), y)


def together(table, x, y):
    return ot.linear_cross_entropy(x, table, y)


def statistics(table, x, y):
    return ot.linear_cross_entropy(x, table, y, max_workspace=0)


def each(table, x, y):
    return ot.linear_cross_entropy(x, table, y, reduction="none").mean()


LOSSES = [embedding, nll_loss, together, statistics, each]
losses = pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)


def tensors(dtype=torch.float32):
    return (
        uniform(V, H, dtype=dtype).requires_grad_(),
        uniform(N, H, dtype=dtype, seed=1).requires_grad_(),
        zipf((N,), V),
    )


def gradient(loss, dtype=torch.float32):
    table, x, y = tensors(dtype)
    loss(table, x, y).backward()
    return table.grad


@losses
def test_retain_graph(loss):
    table, x, y = tensors()
    value = loss(table, x, y) * 3
    results = []
    for retain in (True, True, False):
        results.append(torch.autograd.grad(value, table, retain_graph=retain)[0])
        assert not results[-1].requires_grad
        assert same_bits(results[0], results[-1]) and len({r.data_ptr() for r in results}) == len(results)
    with pytest.raises(RuntimeError, match="second time"):
        value.backward()


@losses
def test_a_graph_that_uses_a_loss_twice(loss):
    table, x, y = tensors(torch.float64)
    value = loss(table, x, y)
    (2 * value + value**2).backward()
    expected = gradient(loss, torch.float64) * (2 + 2 * value.detach())
    assert_within(table.grad, expected, 1e-15)


@losses
def test_gradient_accumulation(loss):
    table, x, y = tensors(torch.float64)
    for part in range(3):
        (loss(table, x, y) / 3).backward()
    assert_within(table.grad, gradient(loss, torch.float64), 1e-15)
    table.grad = None
    with torch.no_grad():
        assert not loss(table, x, y).requires_grad


@losses
def test_inference_mode(loss):
    table, x, y = tensors()
    expected = loss(table, x, y).detach()
    with torch.inference_mode():
        value = loss(table, x, y)
        assert value.is_inference() and same_bits(value, expected)
        other = loss(uniform(V, H), uniform(N, H, seed=1), zipf((N,), V))  # tensors made in it
        assert same_bits(other, expected)


@losses
def test_leaves_that_are_frozen(loss):
    table, x, y = tensors()
    loss(table.requires_grad_(False), x, y)
    x.requires_grad_(False)
    assert not loss(table, x, y).requires_grad
    table.requires_grad_()
    loss(table, x, y).backward()
    assert x.grad is None and same_bits(table.grad, gradient(loss))


@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("wanted", range(1, 8))
def test_every_subset_of_frozen_leaves(wanted, max_workspace):
    table, x, y = tensors()
    bias = uniform(V, seed=4)
    args = [x.detach().clone(), table.detach().clone(), bias.clone()]
    for i, leaf in enumerate(args):
        leaf.requires_grad_(bool(wanted >> i & 1))
    ot.linear_cross_entropy(*args[:2], y, linear_bias=args[2], max_workspace=max_workspace).backward()
    reference = Linear(*args[:2], y, args[2])
    reference.check(torch.tensor(reference.loss.item()), *(leaf.grad for leaf in args))
    assert [leaf.grad is not None for leaf in args] == [bool(wanted >> i & 1) for i in range(3)]


@losses
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(loss, reentrant):
    table, x, y = tensors()
    checkpoint(loss, table, x, y, use_reentrant=reentrant).backward()
    assert same_bits(table.grad, gradient(loss))


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_adds_to_main_grad_once(reentrant):
    """The forward runs twice, the backward does not."""

    def loss(table, x, y, main_grad):
        rows = ot.embedding(y, table, main_grad=main_grad) + x
        return ot.linear_cross_entropy(rows, table, y.roll(1), main_grad=main_grad)

    table, x, y = tensors()
    plain, checkpointed = torch.zeros(V, H), torch.zeros(V, H)
    loss(table, x, y, plain).backward()
    checkpoint(loss, table, x, y, checkpointed, use_reentrant=reentrant).backward()
    assert plain.any() and same_bits(plain, checkpointed)


@losses
def test_hooks(loss):
    table, x, y = tensors()
    seen = []
    table.register_hook(lambda grad: seen.append(grad.clone()) or grad * 2)
    loss(table, x, y).backward()
    assert len(seen) == 1 and same_bits(seen[0], gradient(loss)) and same_bits(table.grad, 2 * seen[0])


@losses
def test_saved_tensors_on_disk_or_elsewhere(loss):
    table, x, y = tensors()
    with torch.autograd.graph.save_on_cpu():
        value = loss(table, x, y) * 3
    value.backward(retain_graph=True)
    first, table.grad = table.grad, None
    value.backward()
    assert same_bits(table.grad, first)


@losses
def test_what_a_hook_holds_is_not_written(loss):
    held = []
    table, x, y = tensors()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t) or t, lambda t: t):
        value = loss(table, x, y) * 3
    before = [t.detach().clone() for t in held]
    value.backward()
    assert all(torch.equal(a, b) for a, b in zip(held, before))


@losses
def test_subclasses_of_tensors(loss):
    class Named(torch.Tensor):
        pass

    table, x, y = tensors()
    other = table.detach().clone().as_subclass(Named).requires_grad_()
    loss(other, x, y).backward()
    assert same_bits(other.grad.as_subclass(torch.Tensor), gradient(loss))


@losses
def test_an_optimizer_step_between(loss):
    """Leaves that change after the backward do not disturb what comes next."""
    table, x, y = tensors()
    optimizer = torch.optim.SGD([table], lr=0.1)
    values = []
    for _ in range(3):
        optimizer.zero_grad()
        value = loss(table, x, y)
        value.backward()
        optimizer.step()
        values.append(value.item())
    assert values[0] > values[1] > values[2]


@pytest.mark.parametrize("max_workspace", [None, 0])
def test_tied_weights(max_workspace):
    table, _, y = tensors(torch.float64)
    ot.linear_cross_entropy(ot.embedding(y, table), table, y.roll(1), max_workspace=max_workspace).backward()
    other = table.detach().clone().requires_grad_()
    F.cross_entropy(F.embedding(y, other) @ other.T, y.roll(1)).backward()
    assert_within(table.grad, other.grad, 1e-15)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_main_grad_of_tied_weights(dtype):
    """One float32 buffer for both uses and for two micro-batches."""
    table, other = (uniform(V, H, dtype=dtype).requires_grad_() for _ in range(2))
    main_grad = torch.zeros(V, H)
    wide = torch.zeros(V, H, dtype=torch.float64)
    bound = torch.zeros(V, H, dtype=torch.float64)
    for batch in range(2):
        y = zipf((N,), V, seed=batch)
        rows = ot.embedding(y, table, main_grad=main_grad)
        ot.linear_cross_entropy(rows, table, y.roll(1), main_grad=main_grad, reproducible=True).backward()
        # The same by hand: the head's gradient, and that of its input at the rows of the table.
        reference = Linear(rows.float(), other.float(), y.roll(1))
        grad_rows, off = reference.gradients[0], reference.bounds[0] + half_ulp(dtype, reference.gradients[0])
        wide += reference.gradients[1] + torch.zeros_like(wide).index_add_(0, y, grad_rows)
        bound += reference.bounds[1] + torch.zeros_like(wide).index_add_(0, y, off + N * 2.0**-24 * grad_rows.abs())
        bound += 4 * 2.0**-24 * (wide.abs() + reference.gradients[1].abs())
    assert table.grad is None
    assert_within(main_grad, wide, bound, "main_grad")


def test_main_grad_buffer_changes_between_forward_and_backward():
    """Autograd does not count its versions: adding to it is what it is for."""
    table, x, y = tensors()
    main_grad = torch.zeros(V, H)
    first = ot.linear_cross_entropy(x, table, y, main_grad=main_grad)
    second = ot.linear_cross_entropy(x, table, y, main_grad=main_grad)
    second.backward()
    first.backward()
    assert_within(main_grad, 2 * gradient(statistics).double(), 1e-6)
    frozen = table.detach()
    ot.linear_cross_entropy(x, frozen, y, main_grad=torch.full((V, H), float("nan"))).backward()


@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("cast", [torch.bfloat16, torch.float16])
def test_autocast(cast, max_workspace):
    if cast == torch.float16 and not cpu_autocast_has_float16():
        pytest.skip("no float16 in autocast on the CPU")
    table, x, y = tensors()
    with torch.autocast("cpu", dtype=cast):
        loss = ot.linear_cross_entropy(x, table, y, max_workspace=max_workspace, reproducible=True)
    loss.backward()
    assert loss.dtype == table.grad.dtype == x.grad.dtype == torch.float32
    # The products are those of rounded tensors, their gradients are not rounded again: bounds of float32.
    reference = Linear(x.to(cast).float(), table.to(cast).float(), y)
    reference.check(loss, x.grad, table.grad)


def cpu_autocast_has_float16():
    try:
        with torch.autocast("cpu", dtype=torch.float16):
            return (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float16
    except RuntimeError:
        return False


def test_autocast_leaves_float64_alone():
    table, x, y = tensors(torch.float64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = together(table, x, y)
    loss.backward()
    assert loss.dtype == torch.float64 and same_bits(table.grad, gradient(together, torch.float64))


@pytest.mark.parametrize("max_workspace", [None, 0])
@pytest.mark.parametrize("leaf", [torch.bfloat16, torch.float16])
def test_autocast_of_mixed_leaves(leaf, max_workspace):
    """A hidden state of the dtype of autocast, a bias and a head of others; main_grad in float32."""
    table, x, y = tensors()
    x = x.detach().bfloat16().requires_grad_()
    bias = uniform(V, seed=4).requires_grad_()
    with torch.no_grad():
        table = table.to(leaf)
    table.requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = ot.linear_cross_entropy(x, table, y, linear_bias=bias, max_workspace=max_workspace)
    loss.backward()
    reference = Linear(x, table.bfloat16(), y, bias)
    reference.check(loss, x.grad, table.grad, bias.grad)
    assert (x.grad.dtype, table.grad.dtype, bias.grad.dtype) == (torch.bfloat16, leaf, torch.float32)
    main_grad = torch.zeros(V, H)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ot.linear_cross_entropy(x, table, y, linear_bias=bias, main_grad=main_grad).backward()
    reference.check(loss, None, main_grad)


def test_gradient_scaler_in_float16():
    """Autocast's float32 loss, times 65536, unscaled by an optimizer: nothing is lost."""
    table, x, y = tensors(torch.float16)
    loss = ot.linear_cross_entropy(x, table, y, denominator=1e7, dtype=torch.float32)
    (loss * 65536).backward()
    reference = Linear(x, table, y, denominator=1e7, upstream=65536.0)
    reference.check(torch.tensor(reference.loss.item()), x.grad, table.grad)
