"""What linear_cross_entropy shares with torch.nn.functional's: an import swaps it. And the sentences of its errors."""

import pytest

torch = pytest.importorskip("torch")

import onehot.torch as ot  # noqa: E402
from torch_cases import F, assert_within, half_ulp, needs_linear_cross_entropy, same_bits, uniform, zipf  # noqa: E402

N, H, V = 13, 17, 29
BOUND = 64 * 2.0**-24  # of sums of H products and V exponentials of numbers near 1, in float32


def tensors(inner=(), dtype=torch.float32):
    return (
        uniform(N, H, dtype=dtype).requires_grad_(),
        uniform(V, *inner, H, dtype=dtype, seed=1).requires_grad_(),
        zipf((N, *inner), V),
    )


def both(ours, theirs, upstream=None):
    """The same call of both functions, in float32 and float64: loss and gradients."""
    loss, leaves = ours
    expected, doubles = theirs
    g = torch.ones_like(loss) if upstream is None else upstream
    loss.backward(g)
    expected.backward(g.double())
    assert_within(loss, expected.detach(), BOUND * (1 + expected.detach().abs()))
    for a, b in zip(leaves, doubles):
        assert_within(a.grad, b.grad, BOUND * (1 + b.grad.abs().max()))


def run(function, inner, dtype, with_bias, **options):
    input, linear_weight, target = tensors(inner, dtype)
    bias = uniform(V, *inner, dtype=dtype, seed=2).requires_grad_() if with_bias else None
    options = {k: v.to(dtype) if isinstance(v, torch.Tensor) else v for k, v in options.items()}
    if isinstance(options.get("ignore_index"), int):
        target.view(-1)[::4] = options["ignore_index"]
    loss = function(input, linear_weight, target, linear_bias=bias, **options)
    return loss, [t for t in (input, linear_weight, bias) if t is not None]


def reference(input, linear_weight, target, *, linear_bias=None, **options):
    """The definition in PyTorch's documentation."""
    classes, *inner, features = linear_weight.shape
    bias = None if linear_bias is None else linear_bias.reshape(-1)
    logits = F.linear(input, linear_weight.reshape(-1, features), bias).reshape(*input.shape[:-1], classes, *inner)
    if options.get("ignore_index", 0) is None:
        del options["ignore_index"]
    return F.cross_entropy(logits, target, **options)


OPTIONS = [
    {},
    {"reduction": "sum"},
    {"reduction": "none"},
    {"weight": uniform(V, seed=3).abs()},
    {"ignore_index": 2},
    {"ignore_index": -1},
    {"ignore_index": None},
    {"label_smoothing": 0.1},
    {"label_smoothing": 0.3, "weight": uniform(V, seed=3).abs(), "ignore_index": 0},
    {"label_smoothing": 0.3, "weight": uniform(V, seed=3).abs(), "ignore_index": 0, "reduction": "none"},
    {"label_smoothing": 0.3, "weight": uniform(V, seed=3).abs(), "ignore_index": 0, "reduction": "sum"},
]


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("inner", [(), (3,), (2, 2)])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o)) or "default")
def test_definition_of_pytorch(options, inner, with_bias):
    both(
        run(ot.linear_cross_entropy, inner, torch.float32, with_bias, **options),
        run(reference, inner, torch.float64, with_bias, **options),
    )


@needs_linear_cross_entropy
@pytest.mark.parametrize("inner", [(), (3,)])
@pytest.mark.parametrize("options", OPTIONS, ids=lambda o: "-".join(map(str, o)) or "default")
def test_function_of_pytorch(options, inner):
    both(
        run(ot.linear_cross_entropy, inner, torch.float32, True, options=None, **options),
        run(F.linear_cross_entropy, inner, torch.float64, True, options=None, **options),
    )


@needs_linear_cross_entropy
def test_same_names_and_defaults():
    import inspect

    ours, theirs = (inspect.signature(f.linear_cross_entropy).parameters for f in (ot, F))
    for name, parameter in theirs.items():
        assert ours[name].default == parameter.default and ours[name].kind == parameter.kind
    assert list(ours)[: len(theirs)] == list(theirs)


def test_same_names_and_defaults_of_the_others():
    import inspect

    for ours, theirs in ((ot.embedding, F.embedding), (ot.nll_loss, F.nll_loss)):
        mine, parameters = inspect.signature(ours).parameters, inspect.signature(theirs).parameters
        assert list(mine)[: len(parameters)] == list(parameters)
        assert all(mine[name].default == p.default for name, p in parameters.items())


def test_one_position():
    x, w = uniform(H).requires_grad_(), uniform(V, H, seed=1).requires_grad_()
    doubles = [t.detach().double().requires_grad_() for t in (x, w)]
    target = torch.tensor(3)
    both((ot.linear_cross_entropy(x, w, target), (x, w)), (reference(*doubles, target), doubles))


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_several_layers_have_our_options(reduction):
    """Layers are losses of their own; mean divides by what all of them count together."""
    x, w, y = tensors((2,))
    y[1, 0] = -100
    t = uniform(N, 2, seed=5).abs()
    options = {"softcap": 2.0, "logit_scale": 0.5, "token_weight": t}
    loss = ot.linear_cross_entropy(x, w, y, reduction=reduction, **options)
    layers = [
        ot.linear_cross_entropy(x, w[:, k], y[:, k], reduction="none", **{**options, "token_weight": t[:, k]})
        for k in range(2)
    ]
    each = torch.stack(layers, 1)
    expected = {"none": each, "sum": each.sum(), "mean": each.sum() / (t * (y >= 0)).sum()}[reduction]
    assert_within(loss, expected.detach().double(), BOUND * (1 + expected.detach().abs().max()))
    given = ot.linear_cross_entropy(x, w, y, reduction=reduction, denominator=3.0, **options)
    assert_within(given, ((each.sum() / 3) if reduction == "mean" else expected).detach(), 1e-5)


def test_several_layers_where_nothing_counts():
    x, w, y = tensors((2,))
    for zero_if_empty in (False, True):
        loss = ot.linear_cross_entropy(x, w, torch.full_like(y, -100), zero_if_empty=zero_if_empty)
        assert loss == 0 if zero_if_empty else loss.isnan()
        loss.backward()
        assert not x.grad.any() and not w.grad.any()
    some = torch.full_like(y, -100)
    some[3, 1] = 5  # in the second layer alone
    expected = reference(x.double(), w.double(), some).detach()
    assert_within(ot.linear_cross_entropy(x, w, some), expected, BOUND * (1 + expected))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_several_layers_of_16_bits(dtype):
    x, w, y = tensors((3,), dtype)
    loss = ot.linear_cross_entropy(x, w, y)
    expected = reference(x.double(), w.double(), y).detach()
    assert_within(loss, expected, BOUND * (1 + expected) + half_ulp(dtype, expected))


def test_probabilities_and_options_say_what_to_use():
    x, w, y = tensors()
    with pytest.raises(ValueError, match="target: must be class indices, is probabilities; use torch.nn.functional"):
        ot.linear_cross_entropy(x, w, torch.softmax(uniform(N, V), 1))
    with pytest.raises(ValueError, match="options: must be None, .*use max_workspace"):
        ot.linear_cross_entropy(x, w, y, options="auto")


WRONG = [
    (ValueError, 'reduction: must be "none", "mean" or "sum", is "max"', {"reduction": "max"}),
    (ValueError, "linear_weight: must have at least two axes", {"linear_weight": torch.zeros(H)}),
    (ValueError, "weight", {"linear_weight": torch.zeros(V, H + 1)}),
    (TypeError, "weight", {"linear_weight": torch.zeros(V, H).half()}),
    (ValueError, "target", {"target": torch.zeros(N + 1, dtype=torch.int64)}),
    (ValueError, "target", {"target": torch.zeros(N, 1, dtype=torch.int64)}),
    (TypeError, "target", {"target": torch.zeros(N, dtype=torch.bool)}),
    (TypeError, "input", {"input": torch.zeros(N, H, dtype=torch.int32)}),
    (ValueError, rf"linear_bias: must have the shape \({V},\)", {"linear_bias": torch.zeros(V + 1)}),
    (TypeError, "bias", {"linear_bias": torch.zeros(V).half()}),
    (ValueError, "weight", {"weight": torch.zeros(V + 1)}),
    (TypeError, "weight", {"weight": torch.zeros(V).half()}),
    (ValueError, "token_weight", {"token_weight": torch.zeros(N + 1)}),
    (ValueError, "denominator", {"denominator": torch.zeros(2)}),
    (ValueError, "label_smoothing.*1.5", {"label_smoothing": 1.5}),
    (ValueError, "z_loss.*-1", {"z_loss": -1.0}),
    (ValueError, "softcap.*-1", {"softcap": -1.0}),
    (ValueError, "logit_scale", {"logit_scale": float("inf")}),
    (ValueError, "max_workspace.*-1", {"max_workspace": -1}),
    (ValueError, "skip_below", {"skip_below": -1.0}),
    (TypeError, "dtype: must be torch.float32 or a wider one of .*, is torch.float16", {"dtype": torch.float16}),
    (TypeError, "dtype: .*, is torch.int64", {"dtype": torch.int64}),
    (ValueError, "weight: must not require a gradient", {"weight": torch.ones(V, requires_grad=True)}),
    (ValueError, "token_weight: must not require a gradient", {"token_weight": torch.ones(N, requires_grad=True)}),
    (ValueError, "denominator: must not require a gradient", {"denominator": torch.ones((), requires_grad=True)}),
]


@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("error, sentence, options", WRONG)
def test_errors(error, sentence, options, reduction, requires_grad):
    input, linear_weight, target = tensors()
    arguments = {"input": input, "linear_weight": linear_weight, "target": target, "reduction": reduction, **options}
    if reduction == "none" and "denominator" in sentence and "gradient" not in sentence:
        return  # not read
    for name in ("input", "linear_weight"):
        if not requires_grad:
            arguments[name] = arguments[name].detach()
    with pytest.raises(error, match=sentence):
        ot.linear_cross_entropy(**arguments)


@pytest.mark.parametrize("bad", [V, -1])
@pytest.mark.parametrize("options", [{}, {"max_workspace": 0}, {"reduction": "none"}, {"main_grad": torch.zeros(V, H)}])
def test_targets_out_of_range(options, bad):
    input, linear_weight, _ = tensors()
    target = zipf((3, 5), V)
    target[1, 2] = target[2, 0] = bad
    with pytest.raises(IndexError, match=rf"target\[1, 2\] \(position 7\) = {bad} is outside \[0, {V}\)"):
        ot.linear_cross_entropy(uniform(3, 5, H), linear_weight, target, **options)
    if "main_grad" in options:
        assert not options["main_grad"].any()


def test_errors_of_several_layers():
    x, w, y = tensors((2,))
    for sentence, options in (
        (r"target: must have the shape \(N, 2\)", {"target": y[:, :1]}),
        (r"target: must have the shape \(N, 2\)", {"input": x[None]}),
        (r"token_weight: must have the shape \(13, 2\)", {"token_weight": torch.ones(N)}),
        (r"linear_bias: must have the shape \(29, 2\)", {"linear_bias": torch.ones(V)}),
        ("main_grad: needs a linear_weight of two axes", {"main_grad": torch.zeros(V, 2, H)}),
        ("z_loss: has a divisor of its own", {"z_loss": 0.1, "weight": torch.ones(V)}),
        ("weight", {"weight": torch.ones(V - 1)}),
        (r"denominator", {"denominator": torch.ones(2)}),
    ):
        with pytest.raises(ValueError, match=sentence):
            ot.linear_cross_entropy(**{"input": x, "linear_weight": w, "target": y, **options})
    y[4, 1] = V
    with pytest.raises(IndexError, match=rf"= {V} is outside"):
        ot.linear_cross_entropy(x, w, y)
    with pytest.raises(ValueError, match='reduction: must be "none", "mean" or "sum"'):
        ot.linear_cross_entropy(x, w, y, reduction="max")


@pytest.mark.parametrize(
    "main_grad, error, sentence",
    [
        (torch.zeros(V, H + 1), ValueError, rf"must have the shape \({V}, {H}\) of the weight, has \({V}, {H + 1}\)"),
        (torch.zeros(V, H, dtype=torch.float64), TypeError, "must be torch.float32, .*, is torch.float64"),
        (torch.zeros(V, H, requires_grad=True), ValueError, "must not require a gradient"),
    ],
)
def test_main_grad_that_cannot_be_added_to(main_grad, error, sentence):
    with pytest.raises(error, match="main_grad: .*" + sentence):
        ot.linear_cross_entropy(*tensors(), main_grad=main_grad)


def test_main_grad_of_weights_that_are_frozen():
    """Nothing is added for a weight that wants no gradient."""
    x, w, y = tensors()
    main_grad = torch.zeros(V, H)
    ot.linear_cross_entropy(x, w.detach(), y, main_grad=main_grad).backward()
    assert not main_grad.any() and same_bits(x.grad, torch.autograd.grad(ot.linear_cross_entropy(x, w, y), x)[0])
