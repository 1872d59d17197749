"""onehot.jax.nll_loss against its definition, and under JAX's transformations."""

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import onehot.jax as oj  # noqa: E402
import onehot.numpy as on  # noqa: E402
from jax.test_util import check_grads  # noqa: E402
from jax_support import UNIT, same_bits, x64, zipf  # noqa: E402

C, IGNORED = 7, -100
N, H, W = 3, 4, 5
OPTIONS = [
    {},
    {"class_weight": True},
    {"class_weight": True, "token_weight": True},
    {"token_weight": True, "denominator": 3.5},
]


def make(
    dtype="float32",
    target_dtype="int32",
    axis=1,
    ignore_index=IGNORED,
    class_weight=False,
    token_weight=False,
    **options,
):
    """Input and target, and the keywords of a call."""
    rng = np.random.default_rng(11)
    target = zipf(rng, (N, H, W), C)
    target[rng.random(target.shape) < 0.2] = ignore_index
    shape = list(target.shape)
    shape.insert(axis, C)
    input = jnp.asarray(
        -rng.random(shape) - 0.3 * np.arange(C).reshape([C if a == axis else 1 for a in range(4)]), dtype
    )
    keywords = dict(options, ignore_index=ignore_index, class_axis=axis)
    if class_weight:
        keywords["weight"] = jnp.asarray(0.5 + rng.random(C), dtype)
    if token_weight:
        keywords["token_weight"] = jnp.asarray(0.5 + rng.random(target.shape), jnp.float32)
    return input, jnp.asarray(target, target_dtype), keywords


def definition(input, target, weight=None, token_weight=None, denominator=None, ignore_index=IGNORED, class_axis=1):
    """Terms -t w x and factors t w of each position, and what mean divides by; 0 where ignored. In float64."""
    input = np.moveaxis(np.asarray(input, np.float64), class_axis, -1)
    target = np.asarray(target, np.int64)
    counts = target != ignore_index
    named = np.where(counts, target, 0)
    factor = counts * (1.0 if weight is None else np.asarray(weight, np.float64)[named])
    factor = factor * (1.0 if token_weight is None else np.asarray(token_weight, np.float64))
    value = np.take_along_axis(input, named[..., None], -1)[..., 0]
    return -factor * value, factor, factor.sum() if denominator is None else denominator


def test_definition_is_the_one_worked_by_hand():
    input, target = np.array([[-1.0, -2, -3], [-4, -5, -6], [-7, -8, -9]]), np.array([2, IGNORED, 0])
    terms, factor, total = definition(input, target, np.array([2.0, 9, 0.5]), np.array([4.0, 9, 1]))
    assert terms.tolist() == [6, 0, 14] and factor.tolist() == [2, 0, 2] and total == 4


def spread(values, target, axis):
    """Values of positions at the classes of their targets, 0 elsewhere."""
    onehot = np.moveaxis(np.asarray(target)[..., None] == np.arange(C), -1, axis)
    return onehot * np.expand_dims(values, axis)


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_loss_and_gradient(dtype, reduction, options):
    axis = 1 if dtype == "float32" else 3
    input, target, keywords = make(dtype, axis=axis, reduction=reduction, **options)
    upstream = (
        jnp.asarray(np.random.default_rng(1).normal(size=(N, H, W)), dtype)
        if reduction == "none"
        else jnp.ones((), dtype)
    )
    # Options are constants of the compiled function: for NumPy they are arrays.
    function = jax.jit(functools.partial(oj.nll_loss, target=target, **keywords))
    loss, pullback = jax.vjp(function, input)
    (gradient,) = pullback(upstream)
    arrays = {k: np.asarray(v) if hasattr(v, "dtype") else v for k, v in keywords.items()}
    assert same_bits(loss, on.nll_loss(np.asarray(input), np.asarray(target), **arrays))

    reference = {k: v for k, v in keywords.items() if k != "reduction"}
    terms, factor, total = definition(input, target, **reference)
    unit = UNIT[dtype]
    expected = {"none": terms, "sum": terms.sum(), "mean": terms.sum() / total}[reduction]
    assert loss.dtype == dtype and np.all(
        np.abs(np.asarray(loss, np.float64) - expected) <= 1.01 * unit * np.abs(expected)
    )
    value = -factor * np.asarray(upstream, np.float64) / (total if reduction == "mean" else 1)
    # Operands rounded to float32, two products and a quotient in it, one rounding to the dtype.
    bound = (unit + 6 * 2.0**-24) * np.abs(value) + 2.0**-25 * (dtype == "float16")
    got = np.asarray(gradient, np.float64)
    assert gradient.dtype == dtype
    assert np.all(np.abs(got - spread(value, target, axis)) <= spread(bound, target, axis))


def test_the_gradient_has_the_bits_of_numpy():
    input, target, keywords = make(class_weight=True, token_weight=True)
    gradient = jax.grad(functools.partial(oj.nll_loss, target=target, **keywords))(input)
    arrays = {k: np.asarray(v) if hasattr(v, "dtype") else v for k, v in keywords.items()}
    total = on.nll_loss(np.asarray(input), np.asarray(target), outputs="total_weight", **arrays)
    want = on.nll_loss_backward(np.float32(1), np.asarray(input), np.asarray(target), total_weight=total, **arrays)
    assert same_bits(gradient, want)


@pytest.mark.parametrize("target_dtype", ["int32", "int16", "int8", "uint8"])
def test_target_dtypes(target_dtype):
    input, target, keywords = make(target_dtype=target_dtype, ignore_index=5)
    wide = jnp.asarray(target, jnp.int32)
    for function in (oj.nll_loss, jax.grad(oj.nll_loss)):
        assert same_bits(function(input, target, **keywords), function(input, wide, **keywords))


def test_a_wider_loss():
    input, target, keywords = make("float16")
    loss = oj.nll_loss(input, target, dtype=jnp.float32, **keywords)
    assert loss.dtype == jnp.float32
    wide = np.asarray(input).astype(np.float32)
    assert same_bits(loss, np.asarray(on.nll_loss(wide, np.asarray(target), **keywords)))
    # A scale of 65536 is no float16; the gradient of a loss in float32 takes it, where D keeps it small.
    gradient = jax.grad(lambda x: 65536 * oj.nll_loss(x, target, dtype=jnp.float32, **keywords))(input)
    assert np.all(np.isfinite(np.asarray(gradient))) and np.abs(np.asarray(gradient)).max() > 1000


def test_nothing_counts():
    input, target = jnp.zeros((2, C)), jnp.full(2, IGNORED)
    assert np.isnan(oj.nll_loss(input, target))
    loss, gradient = jax.value_and_grad(functools.partial(oj.nll_loss, target=target, zero_if_empty=True))(input)
    assert loss == 0 and same_bits(gradient, np.zeros((2, C), "f"))
    assert oj.nll_loss(jnp.zeros((0, C)), jnp.zeros(0, int), reduction="sum") == 0

    # The gradient is 0 for any upstream one, so its own is 0 as well.
    upstream = jax.grad(lambda g: jnp.sum(jax.vjp(oj.nll_loss, input, target)[1](g)[0]))(jnp.float32(1))
    assert upstream == 0


def test_a_loss_in_float64_of_float32():
    input, target, keywords = make()
    for reduction in ("none", "mean"):
        function = functools.partial(oj.nll_loss, target=target, reduction=reduction, **keywords)
        want = jax.grad(lambda x: jnp.sum(function(x)))(input)  # noqa: B023
        with x64():
            assert function(input, dtype=jnp.float64).dtype == jnp.float64
            assert same_bits(jax.grad(lambda x: jnp.sum(function(x, dtype=jnp.float64)))(input), want)  # noqa: B023


def test_a_denominator_may_be_an_integer():
    input, target, keywords = make()
    assert same_bits(
        oj.nll_loss(input, target, denominator=3, **keywords), oj.nll_loss(input, target, denominator=3.0, **keywords)
    )


def test_one_position_without_axes():
    gradient = jax.grad(oj.nll_loss)(-jnp.arange(3.0), jnp.asarray(1))
    assert gradient.tolist() == [0, -1, 0]


@pytest.mark.parametrize("axis", [1, -1])
def test_batches_with_reduction_none_are_one_call(axis):
    input, target, keywords = make(axis=axis % 4, class_weight=True, token_weight=True, reduction="none")
    weights = keywords.pop("token_weight")
    keywords["class_axis"] = axis if axis < 0 else axis - 1  # of an example, whose first axis is gone

    def one(input, target, token_weight):
        return oj.nll_loss(input, target, token_weight=token_weight, **keywords)

    batched = jax.vmap(one)
    want = oj.nll_loss(input, target, token_weight=weights, **{**keywords, "class_axis": axis})
    assert same_bits(batched(input, target, weights), want)
    text = str(jax.make_jaxpr(jax.grad(lambda x: jnp.sum(batched(x, target, weights))))(input))
    assert text.count("onehot_nll_loss[") == 1 and text.count("onehot_nll_loss_backward[") == 1 and "scan" not in text
    got = jax.grad(lambda x: jnp.sum(batched(x, target, weights)))(input)
    full = {**keywords, "class_axis": axis, "token_weight": weights}
    assert same_bits(got, jax.grad(lambda x: jnp.sum(oj.nll_loss(x, target, **full)))(input))
    # Examples that are one position each, and one target for all.
    rows, shared = input.reshape(-1, C) if axis < 0 else jnp.moveaxis(input, 1, -1).reshape(-1, C), jnp.asarray(2)
    got = jax.vmap(functools.partial(oj.nll_loss, reduction="none"), in_axes=(0, None))(rows, shared)
    assert same_bits(got, -np.asarray(rows)[:, 2])


@pytest.mark.parametrize("options", [{}, {"reduction": "sum"}])
def test_other_batches_go_one_by_one(options):
    input, target, keywords = make(token_weight=True, **options)
    weights = keywords.pop("token_weight")
    # One example keeps an axis of positions, so that the class axis is the same with and without the batch.
    one = jax.value_and_grad(lambda x, y, t: oj.nll_loss(x[None], y[None], token_weight=t[None], **keywords))
    losses, gradients = jax.jit(jax.vmap(one))(input, target, weights)
    for i in range(N):
        loss, gradient = one(input[i], target[i], weights[i])
        assert same_bits(losses[i], loss) and same_bits(gradients[i], gradient)


def test_scan_and_checkpoint():
    input, target, keywords = make()

    def scanned(input):
        step = lambda total, row: (total + jax.checkpoint(functools.partial(oj.nll_loss, **keywords))(*row), None)  # noqa: E731
        return jax.lax.scan(step, 0.0, (input[:, None], target[:, None]))[0]

    got = jax.jit(jax.grad(scanned))(input)
    each = [jax.grad(oj.nll_loss)(input[i : i + 1], target[i : i + 1], **keywords) for i in range(N)]
    assert same_bits(got, np.concatenate(each))


def test_what_is_not_differentiable_has_gradient_zero():
    input, target, keywords = make(class_weight=True, token_weight=True)
    weight, token_weight = keywords.pop("weight"), keywords.pop("token_weight")
    function = lambda w, t: oj.nll_loss(input, target, w, token_weight=t, **keywords)  # noqa: E731
    for gradient in jax.grad(function, argnums=(0, 1))(weight, token_weight):
        assert not np.any(gradient)
    assert "backward" not in str(jax.make_jaxpr(jax.grad(function))(weight, token_weight))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_derivatives_in_float64(reduction):
    rng = np.random.default_rng(2)
    with x64():
        input, target, keywords = make("float64", "int64", reduction=reduction, class_weight=True, token_weight=True)
        upstream = jnp.asarray(rng.normal(size=target.shape if reduction == "none" else ()))
        function = lambda x: jnp.sum(oj.nll_loss(x**3, target, **keywords) ** 2 * upstream)  # noqa: E731
        check_grads(function, (input,), order=2, modes=("fwd", "rev"))


@pytest.mark.parametrize(
    "error, sentence, arguments, options",
    [
        (
            ValueError,
            'reduction: must be "none", "mean" or "sum", is \'median\'',
            (np.ones((2, 3), "f"), np.zeros(2, "i")),
            {"reduction": "median"},
        ),
        (ValueError, "class_axis", (np.ones((2, 3), "f"), np.zeros(2, "i")), {"class_axis": 2}),
        (ValueError, "class_axis", (np.ones((2, 3), "f"), np.zeros(2, "i")), {"class_axis": 2**32 + 1}),
        (
            ValueError,
            "ignore_index: must fit 64 bits",
            (np.ones((2, 3), "f"), np.zeros(2, "i")),
            {"ignore_index": 2**63},
        ),
        (ValueError, "target", (np.ones((2, 3), "f"), np.zeros(3, "i")), {}),
        (ValueError, "weight", (np.ones((2, 3), "f"), np.zeros(2, "i"), np.ones(2, "f")), {}),
        (TypeError, "target: its dtype must be .*, is uint32", (np.ones((2, 3), "f"), np.zeros(2, "uint32")), {}),
        (TypeError, "target", (np.ones((2, 3), "f"), np.zeros(2, "f")), {}),
        (
            TypeError,
            "ignore_index: must be an integer, is 0.5",
            (np.ones((2, 3), "f"), np.zeros(2, "i")),
            {"ignore_index": 0.5},
        ),
        (TypeError, "loss", (np.ones((2, 3), "f"), np.zeros(2, "i")), {"dtype": jnp.float16}),
    ],
)
def test_errors_when_traced(error, sentence, arguments, options):
    with pytest.raises(error, match=sentence):
        oj.nll_loss(*arguments, **options)
    with pytest.raises(error, match=sentence):
        jax.eval_shape(functools.partial(oj.nll_loss, **options), *arguments)


def test_a_target_out_of_range_is_named_when_it_runs():
    for function in (oj.nll_loss, jax.jit(oj.nll_loss), jax.jit(jax.grad(oj.nll_loss))):
        with pytest.raises(Exception, match=r"target\[1\] .*= 3 is .*\[0, 3\)"):
            jax.block_until_ready(function(jnp.ones((2, 3)), jnp.asarray([0, 3])))
