"""Faults that readers of onehot.torch have reported, each with the right value."""

import pytest

torch = pytest.importorskip("torch")
import onehot.torch as ours  # noqa: E402

linear_cross_entropy = ours.linear_cross_entropy


@pytest.fixture
def case():
    x = torch.arange(12.0).reshape(3, 4).sin().requires_grad_()
    w = torch.arange(20.0).reshape(5, 4).cos().requires_grad_()
    return x, w, torch.tensor([0, 4, 2])


def losses(case):
    x, w, y = case
    log_probability = torch.log_softmax((x @ w.T).detach(), 1).requires_grad_()
    for reduction in ("none", "mean"):
        for max_workspace in (None, 0):
            yield linear_cross_entropy(x, w, y, reduction=reduction, max_workspace=max_workspace), w
        yield ours.nll_loss(log_probability, y, reduction=reduction), log_probability
    yield ours.embedding(y, w), w


@pytest.mark.skipif(not hasattr(torch, "func"), reason="needs torch.func")
def test_gradients_of_a_batch_at_once(case):
    for loss, leaf in losses(case):
        grads = torch.arange(3.0 * loss.numel()).reshape(3, *loss.shape).cos()
        each = [torch.autograd.grad(loss, leaf, grad, retain_graph=True)[0] for grad in grads]
        (batch,) = torch.autograd.grad(loss, leaf, grads, is_grads_batched=True)
        # A gradient is scaled before its products or after: at most 5 terms of magnitude 2, rounded twice.
        torch.testing.assert_close(batch, torch.stack(each), rtol=0, atol=5 * 2 * 2 * 2.0**-24)


def test_forward_mode_under_no_grad_is_refused(case):
    forward_ad = torch.autograd.forward_ad
    x, w, y = case
    with torch.no_grad(), forward_ad.dual_level():
        dual = forward_ad.make_dual(x.detach(), torch.ones(3, 4))
        with pytest.raises((NotImplementedError, RuntimeError)):
            linear_cross_entropy(dual, w, y)


def test_what_is_no_tensor(case):
    x, w, y = case
    for call, name in (
        (lambda: linear_cross_entropy(x, w, [0, 4, 2]), "target"),
        (lambda: linear_cross_entropy(x.detach().numpy(), w, y), "input"),
        (lambda: ours.embedding([1, 2], w), "input"),
        (lambda: ours.nll_loss(x, [1, 2, 3]), "target"),
    ):
        with pytest.raises(TypeError, match=f"^{name}: must be a tensor, is "):
            call()


@pytest.mark.parametrize("dtype", (torch.float32, torch.bool))
def test_indices_are_integers(case, dtype):
    with pytest.raises(TypeError, match="^input: its dtype must be one of torch.int64, "):
        ours.embedding(torch.tensor([1, 0]).to(dtype), case[1])


def test_max_workspace_as_it_was_given(case):
    with pytest.raises(TypeError, match=r"^max_workspace: must be an integer, is 1000000\.0$"):
        linear_cross_entropy(*case, max_workspace=1e6)


def test_the_first_bad_target_of_all_layers(case):
    target = torch.tensor([[0, 0], [0, 7], [9, 1]])
    with pytest.raises(IndexError, match=r"^target\[1, 1\] \(position 3\) = 7 is outside \[0, 5\)$"):
        linear_cross_entropy(case[0], torch.ones(5, 2, 4), target)


def test_no_layers(case):
    target, weight = torch.zeros(3, 0, dtype=torch.long), torch.ones(5, 0, 4)
    assert linear_cross_entropy(case[0], weight, target, reduction="none").shape == (3, 0)
    assert linear_cross_entropy(case[0], weight, target, reduction="sum") == 0
    assert linear_cross_entropy(case[0], weight, target).isnan()


@pytest.mark.skipif(not hasattr(torch, "func"), reason="needs torch.func")
def test_vmap_over_nothing(case):
    x, w, y = (t.detach() for t in case)
    mapped = torch.func.vmap(linear_cross_entropy, in_dims=(0, None, 0))
    assert mapped(x.new_zeros(0, 3, 4), w, y.new_zeros(0, 3)).shape == (0,)


def test_attributes_of_the_module_count(case):
    x, w, y = case
    loss = ours.LinearCrossEntropyLoss(4, 5, reduction="sum", ignore_index=2)
    assert (loss.reduction, loss.ignore_index, loss.label_smoothing) == ("sum", 2, 0.0)
    loss.reduction = "mean"
    assert loss(x, y) == linear_cross_entropy(x, loss.linear.weight, y, ignore_index=2)


def test_a_module_made_double_keeps_its_main_grad(case):
    x, w, y = case
    loss = ours.LinearCrossEntropyLoss(4, 5, main_grad=True)
    loss(x, y).backward()
    first = loss.linear.weight.main_grad.clone()
    loss = loss.double()
    loss(x.double(), y).backward()
    assert loss.linear.weight.main_grad.dtype == torch.float64
    torch.testing.assert_close(loss.linear.weight.main_grad, 2 * first.double(), rtol=1e-5, atol=1e-7)


def test_layers_and_main_grad_are_refused_at_once():
    with pytest.raises(ValueError, match=r"^main_grad: needs out_features of \(\)"):
        ours.LinearCrossEntropyLoss(4, 5, out_features=(2,), main_grad=True)
