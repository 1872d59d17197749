"""onehot.jax.linear_cross_entropy against its definition, and the bits of onehot.numpy."""

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import onehot.jax as oj  # noqa: E402
from jax_linear_cases import (  # noqa: E402
    IGNORED,
    OPTIONS,
    H,
    N,
    V,
    by_numpy,
    check_against_definition,
    definition,
    make,
    value_and_pullback,
)
from jax_support import same_bits, x64  # noqa: E402


def test_definition_is_the_one_worked_by_hand():
    # Two classes with logits 0 and ln 3: p = 1/4 and 3/4.
    x, w = np.zeros((1, H)), np.zeros((2, H))
    x[0, 0], w[1, 0] = 1, np.log(3)
    loss, gradients, magnitudes, _ = definition(x, w, np.array([0]), 2.0)
    assert np.isclose(loss, np.log(4)) and np.isclose(gradients["grad_input"][0, 0], 2 * 0.75 * np.log(3))
    assert np.allclose(gradients["grad_weight"][:, 0], [-1.5, 1.5]) and np.allclose(gradients["grad_bias"], [-1.5, 1.5])
    assert np.allclose(magnitudes["grad_bias"], [2 * 1.25, 1.5])
    # Smoothing of 1/2 takes half of the -1 away and gives half of a half to each class.
    _, gradients, _, _ = definition(x, w, np.array([0]), label_smoothing=0.5)
    assert np.allclose(gradients["grad_bias"], [0.25 - 0.75, 0.75 - 0.25])


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_loss_and_gradients(dtype, reduction, options):
    input, weight, target, keywords = make(dtype, reduction=reduction, **options)
    got = value_and_pullback(input, weight, target, keywords)
    check_against_definition(got, dtype, *definition(input, weight, target, **keywords))
    want = by_numpy(input, weight, target, keywords)
    for name, value in want.items():
        assert same_bits(got[name], value), name


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_the_upstream_gradient(dtype, reduction):
    input, weight, target, keywords = make(dtype, reduction=reduction, linear_bias=True)
    rng = np.random.default_rng(0)
    upstream = jnp.asarray(rng.normal(size=N) if reduction == "none" else -2.625, dtype)
    got = value_and_pullback(input, weight, target, keywords, upstream)
    upstream = np.asarray(upstream, np.float64)
    check_against_definition(got, dtype, *definition(input, weight, target, upstream, **keywords))


@pytest.mark.parametrize("reduction", ["none", "mean"])
def test_a_wider_loss(reduction):
    input, weight, target, keywords = make("bfloat16", reduction=reduction)
    loss = oj.linear_cross_entropy(input, weight, target, dtype=jnp.float32, **keywords)
    assert same_bits(loss, by_numpy(input, weight, target, keywords, dtype=np.float32)["loss"])


@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("dtype", ["bfloat16", "float64"])
def test_options_in_float32(dtype, limit):
    """Beside values of another dtype; gradients have the dtype of what they belong to."""
    with x64():
        input, weight, target, keywords = make(dtype, linear_bias=True, weight=True, token_weight=True)
        narrow = {name: value.astype(jnp.float32) for name, value in keywords.items()}
        got = value_and_pullback(input, weight, target, narrow | {"max_workspace": limit})
        assert got["grad_bias"].dtype == jnp.float32 and got["grad_weight"].dtype == dtype
        exact = {name: value.astype(jnp.float64) for name, value in narrow.items()}
        loss, gradients, magnitudes, size = definition(input, weight, target, **exact)
        check_against_definition(
            got | {"grad_bias": got["grad_bias"].astype(dtype)}, dtype, loss, gradients, magnitudes, size
        )


@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("limit", [None, 0])
def test_a_loss_in_float64_of_float32(limit, reduction):
    input, weight, target, keywords = make(reduction=reduction, max_workspace=limit)
    want = value_and_pullback(input, weight, target, keywords)
    with x64():
        got = value_and_pullback(input, weight, target, keywords | {"dtype": jnp.float64})
        assert got["loss"].dtype == jnp.float64 and same_bits(got["loss"].astype(jnp.float32), want["loss"])
        assert all(same_bits(got[name], want[name]) for name in ("grad_input", "grad_weight"))


@pytest.mark.parametrize("target_dtype", ["int32", "int16", "int8", "uint8"])
def test_target_dtypes(target_dtype):
    input, weight, target, _ = make()
    target = jnp.where(target == IGNORED, 3, target)
    function = jax.value_and_grad(functools.partial(oj.linear_cross_entropy, ignore_index=3))
    got, want = function(input, weight, target.astype(target_dtype)), function(input, weight, target)
    assert same_bits(got[0], want[0]) and same_bits(got[1], want[1])


def test_shapes():
    input, weight, target, keywords = make(shape=(2, 3, 5), linear_bias=True)
    got = value_and_pullback(input, weight, target, keywords)
    flat = value_and_pullback(input.reshape(-1, H), weight, target.reshape(-1), keywords)
    for name, value in flat.items():
        assert same_bits(np.asarray(got[name]).reshape(value.shape), value)
    # One position without axes, and none at all.
    one = jax.grad(oj.linear_cross_entropy)(input[0, 0, 0], weight, jnp.asarray(1))
    assert same_bits(one, jax.grad(oj.linear_cross_entropy)(input[0, 0, :1], weight, jnp.asarray([1]))[0])
    none = functools.partial(oj.linear_cross_entropy, target=jnp.zeros(0, int), reduction="sum")
    loss, gradients = jax.value_and_grad(none, (0, 1))(jnp.zeros((0, H)), weight)
    assert loss == 0 and gradients[0].shape == (0, H) and not np.any(gradients[1])


def test_nothing_counts():
    input, weight, _, _ = make()
    target = jnp.full(N, IGNORED)
    assert np.isnan(oj.linear_cross_entropy(input, weight, target))
    function = functools.partial(oj.linear_cross_entropy, target=target, zero_if_empty=True)
    for limit in (None, 0):
        loss, gradients = jax.value_and_grad(functools.partial(function, max_workspace=limit), (0, 1))(input, weight)
        assert loss == 0 and not any(np.any(g) for g in gradients)
    some = jnp.stack([target, jnp.arange(N)])
    batched = lambda x: jax.vmap(functools.partial(oj.linear_cross_entropy, x, weight, zero_if_empty=True))(some)  # noqa: E731
    losses, pullback = jax.vjp(batched, input)
    alone, gradient = jax.value_and_grad(oj.linear_cross_entropy)(input, weight, some[1])
    assert losses[0] == 0 and np.isclose(losses[1], alone, rtol=1e-6, atol=0)
    assert np.allclose(pullback(jnp.ones(2))[0], gradient, rtol=0, atol=1e-6)


X, Y, W2 = np.ones((2, 3), "f"), np.zeros(2, "i"), np.ones((4, 3), "f")


@pytest.mark.parametrize(
    "error, sentence, arguments, options",
    [
        (ValueError, 'reduction: must be "none", "mean" or "sum", is 1', (X, W2, Y), {"reduction": 1}),
        (ValueError, "weight", (X, W2[:, :2], Y), {}),
        (ValueError, "target", (X, W2, Y[:1]), {}),
        (ValueError, "bias", (X, W2, Y), {"linear_bias": np.ones(3, "f")}),
        (TypeError, "weight", (X, W2.astype("float16"), Y), {}),
        (TypeError, "target", (X, W2, X[:, 0]), {}),
        (ValueError, "label_smoothing", (X, W2, Y), {"label_smoothing": 1.5}),
        (TypeError, "label_smoothing: must be a number, is 'much'", (X, W2, Y), {"label_smoothing": "much"}),
        (ValueError, "max_workspace", (X, W2, Y), {"max_workspace": -1}),
        (TypeError, "loss", (X, W2, Y), {"dtype": jnp.bfloat16}),
    ],
)
def test_errors_when_traced(error, sentence, arguments, options):
    function = functools.partial(oj.linear_cross_entropy, **options)
    with pytest.raises(error, match=sentence):
        function(*arguments)
    with pytest.raises(error, match=sentence):
        jax.eval_shape(jax.grad(function), *arguments)


def test_an_option_that_is_traced_has_the_sentence_of_jax():
    with pytest.raises(jax.errors.ConcretizationTypeError):
        jax.jit(lambda s: oj.linear_cross_entropy(X, W2, Y, label_smoothing=s))(0.1)


@pytest.mark.parametrize("limit", [None, 0])
def test_a_target_out_of_range_is_named_when_it_runs(limit):
    loss = functools.partial(oj.linear_cross_entropy, max_workspace=limit)
    for function in (loss, jax.jit(jax.grad(loss))):
        with pytest.raises(Exception, match=r"target\[1\] .*= 4 is .*\[0, 4\)"):
            jax.block_until_ready(function(X, W2, np.array([0, 4])))


@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("options", [{"skip_below": 1e-3}, {"reproducible": True}])
def test_options_of_the_products(options, limit):
    """Skipping, and products of bf16 as every CPU has them: the bits of onehot.numpy, which differ from those without."""
    dtype = "float32" if "skip_below" in options else "bfloat16"
    input, weight, target, keywords = make(dtype, reduction="sum", linear_bias=True)
    # The second block of 64 classes is out of the question: its gradients are below 1e-3 for all tokens.
    keywords["linear_bias"] -= 12 * (jnp.arange(V) >= 64)
    target = jnp.minimum(target, 63)
    got = value_and_pullback(input, weight, target, keywords | options | {"max_workspace": limit})
    want, without = (by_numpy(input, weight, target, keywords, **more) for more in (options, {}))
    for name, value in want.items():
        assert same_bits(got[name], value), name
    if "skip_below" in options:
        assert not np.any(want["grad_weight"][64:]) and np.all(np.any(without["grad_weight"][64:], 1))
