"""torch.func: grad, vmap and their compositions, against loops over plain calls."""

import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch_cases import F, assert_within, needs_registration, same_bits, uniform, zipf  # noqa: E402

pytestmark = needs_registration
B, N, H, V = 3, 11, 6, 17


def data(dtype=torch.float32):
    return uniform(B, V, H, dtype=dtype), uniform(B, N, H, dtype=dtype, seed=1), zipf((B, N), V)


def embedding(table, x, y):
    return (ot.embedding(y, table, padding_idx=2) * x).sum()


def nll_loss(table, x, y):
    return ot.nll_loss(torch.log_softmax(x @ table.T, 1), y, ignore_index=0)


def nll_none(table, x, y):
    return ot.nll_loss(torch.log_softmax(x @ table.T, 1), y, reduction="none").sum()


def linear(table, x, y):
    return ot.linear_cross_entropy(x, table, y, label_smoothing=0.1)


def linear_none(table, x, y):
    return ot.linear_cross_entropy(x, table, y, reduction="none").sum()


def tied(table, x, y):
    return ot.linear_cross_entropy(ot.embedding(y, table) + x, table, y.roll(1, 0))


LOSSES = [embedding, nll_loss, nll_none, linear, linear_none, tied]
losses = pytest.mark.parametrize("loss", LOSSES, ids=lambda f: f.__name__)


def plain_gradients(loss, table, x, y):
    table, x = table.detach().clone().requires_grad_(), x.detach().clone().requires_grad_()
    loss(table, x, y).backward()
    return table.grad, x.grad


def all_same(a, b):
    return all(same_bits(p, q) for p, q in zip(a, b))


@losses
def test_grad(loss):
    table, x, y = (t[0] for t in data())
    assert all_same(torch.func.grad(loss, argnums=(0, 1))(table, x, y), plain_gradients(loss, table, x, y))
    gradients, value = torch.func.grad_and_value(loss)(table, x, y)
    assert same_bits(gradients, plain_gradients(loss, table, x, y)[0]) and same_bits(value, loss(table, x, y))


@losses
def test_vjp_with_another_factor(loss):
    table, x, y = (t[0] for t in data(torch.float64))
    value, vjp = torch.func.vjp(lambda a, b: loss(a, b, y), table, x)
    for a, b in zip(vjp(torch.full_like(value, 3.0)), plain_gradients(loss, table, x, y)):
        assert_within(a, 3 * b, 1e-14)


@losses
@pytest.mark.parametrize("in_dims", [(0, 0, 0), (None, 0, 0), (0, None, 0), (0, 0, None), (None, None, 0), (1, 2, 1)])
def test_vmap(loss, in_dims):
    args = data()
    given = [t.movedim(0, dim) if dim else t if dim == 0 else t[0] for t, dim in zip(args, in_dims)]

    def at(b):
        return [t if dim is None else t.select(dim, b) for t, dim in zip(given, in_dims)]

    values = torch.func.vmap(loss, in_dims)(*given)
    assert_within(values, torch.stack([loss(*at(b)) for b in range(B)]).double(), 1e-6 * values.abs())
    gradients = torch.func.vmap(torch.func.grad(loss, argnums=(0, 1)), in_dims)(*given)
    for k, gradient in enumerate(gradients):
        expected = torch.stack([plain_gradients(loss, *at(b))[k] for b in range(B)])
        assert_within(gradient, expected.double(), 1e-6 * (1 + expected.abs()))


@losses
def test_gradient_through_vmap(loss):
    table, x, y = data()
    table = table[0].requires_grad_()
    torch.func.vmap(loss, (None, 0, 0))(table, x, y).sum().backward()
    expected = sum(plain_gradients(loss, table, x[b], y[b])[0] for b in range(B))
    assert_within(table.grad, expected.double(), 1e-5)


def test_vmap_of_results_with_axes():
    table, x, y = data()
    rows = torch.func.vmap(lambda t, i: ot.embedding(i, t))(table, y)
    assert same_bits(rows, torch.stack([table[b][y[b]] for b in range(B)]))
    shared = torch.func.vmap(lambda i: ot.embedding(i, table[0]), in_dims=1)(y)
    assert same_bits(shared, table[0][y.T])
    each = torch.func.vmap(lambda t, a, i: ot.linear_cross_entropy(a, t, i, reduction="none"))(table, x, y)
    assert same_bits(
        each, torch.stack([ot.linear_cross_entropy(x[b], table[b], y[b], reduction="none") for b in range(B)])
    )
    log = torch.log_softmax(uniform(B, N, V, 5), 2)
    target = zipf((B, N, 5), V)
    for axis in (1, -2):
        losses = torch.func.vmap(lambda a, i: ot.nll_loss(a, i, reduction="none", class_axis=axis))(log, target)
        assert same_bits(losses, torch.stack([ot.nll_loss(log[b], target[b], reduction="none") for b in range(B)]))
    one = torch.func.vmap(lambda a, i: ot.nll_loss(a, i, reduction="none"))(log[:, 0, :, 0], target[:, 0, 0])
    assert same_bits(one, -log[:, 0, :, 0].gather(1, target[:, 0, :1])[:, 0])


def test_vmap_in_vmap():
    table, x, y = data()
    both = torch.func.vmap(torch.func.vmap(linear, (None, 0, 0)), (0, None, None))(table, x, y)
    expected = torch.stack([torch.stack([linear(table[a], x[b], y[b]) for b in range(B)]) for a in range(B)])
    assert_within(both, expected.double(), 1e-6 * expected)


def test_gradients_of_each_sample():
    """What vmap of grad is mostly for."""
    table, x, y = data(torch.float64)
    table = table[0]
    samples = torch.func.vmap(torch.func.grad(lambda t, a, i: linear(t, a[None], i[None])), (None, 0, 0))(
        table, x[0], y[0]
    )
    assert_within(samples.mean(0), plain_gradients(linear, table, x[0], y[0])[0], 1e-14)


@losses
def test_jacrev(loss):
    table, x, y = (t[0] for t in data(torch.float64))

    def two(t):
        return torch.stack([loss(t, x, y), loss(2 * t, x, y)])

    jacobian = torch.func.jacrev(two)(table)
    assert_within(jacobian[0], plain_gradients(loss, table, x, y)[0], 1e-14)
    assert_within(jacobian[1], 2 * plain_gradients(loss, 2 * table, x, y)[0], 1e-14)


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_jacobian_of_positions(reduction):
    """Upstream gradients that vmap batches: one backward each."""
    table, x, y = (t[0] for t in data(torch.float64))
    if reduction == "none":
        jacobian = torch.func.jacrev(lambda t: ot.linear_cross_entropy(x, t, y, reduction="none"))(table)
    else:
        jacobian = torch.func.jacrev(lambda t: torch.stack([linear(t, x[k : k + 1], y[k : k + 1]) for k in range(N)]))(
            table
        )
    options = {} if reduction == "none" else {"label_smoothing": 0.1}
    for k in range(N):
        t = table.clone().requires_grad_()
        F.cross_entropy(x[k : k + 1] @ t.T, y[k : k + 1], **options).backward()
        assert_within(jacobian[k], t.grad, 1e-14)


def test_second_derivatives():
    table, x, y = (t[0] for t in data(torch.float64))

    def squares(t):
        return ot.embedding(y, t).pow(3).sum() + ot.nll_loss((x @ t.T).pow(2), y)

    def expected(t):
        return F.embedding(y, t).pow(3).sum() + F.nll_loss((x @ t.T).pow(2), y)

    assert_within(
        torch.func.jacrev(torch.func.grad(squares))(table), torch.func.jacrev(torch.func.grad(expected))(table), 1e-13
    )


@pytest.mark.parametrize("loss", [linear, linear_none, tied], ids=lambda f: f.__name__)
def test_second_derivatives_are_refused(loss):
    table, x, y = (t[0] for t in data(torch.float64))
    sentence = "linear_cross_entropy: its gradient cannot be differentiated once more"
    with pytest.raises(NotImplementedError, match=sentence):
        torch.func.jacrev(torch.func.grad(loss))(table, x, y)
    with pytest.raises(NotImplementedError, match=sentence):
        torch.func.grad(lambda t: torch.func.grad(loss)(t, x, y).sum())(table)
    with pytest.raises((NotImplementedError, RuntimeError)):  # forward mode, which PyTorch has its own sentence for
        torch.func.hessian(loss)(table, x, y)


def test_functional_call():
    """Modules without state of their own, as in torch.func's tutorials."""
    head = ot.LinearCrossEntropyLoss(H, V, bias=True)
    _, x, y = data()
    parameters = {k: v.detach() for k, v in head.named_parameters()}

    def call(p, a, i):
        return torch.func.functional_call(head, p, (a, i))

    gradients = torch.func.vmap(torch.func.grad(call), (None, 0, 0))(parameters, x, y)
    for b in range(B):
        head.zero_grad()
        head(x[b], y[b]).backward()
        for name, parameter in head.named_parameters():
            assert_within(gradients[name][b], parameter.grad.double(), 1e-6)


def test_main_grad_is_refused_or_added_to():
    table, x, y = (t[0] for t in data())
    main_grad = torch.zeros(V, H)
    gradient = torch.func.grad(lambda t: ot.linear_cross_entropy(x, t, y, main_grad=main_grad))(table)
    assert not gradient.any() and same_bits(main_grad, plain_gradients(linear_plain, table, x, y)[0])


def linear_plain(table, x, y):
    return ot.linear_cross_entropy(x, table, y)
