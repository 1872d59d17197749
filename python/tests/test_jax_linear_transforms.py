"""onehot.jax.linear_cross_entropy: when its gradients are computed, and under JAX's transformations."""

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import onehot.jax as oj  # noqa: E402
from jax.test_util import check_grads  # noqa: E402
from jax_linear_cases import (  # noqa: E402
    GRADIENTS,
    IGNORED,
    OPTIONS,
    H,
    N,
    V,
    by_numpy,
    make,
    operators,
    value_and_pullback,
)
from jax_support import same_bits, x64, zipf  # noqa: E402


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("options", OPTIONS)
def test_little_memory_gives_the_same_bits(dtype, options):
    input, weight, target, keywords = make(dtype, **options)
    together = value_and_pullback(input, weight, target, keywords)
    apart = value_and_pullback(input, weight, target, keywords | {"max_workspace": 0})
    for name, value in together.items():
        assert same_bits(apart[name], value), name


def test_max_workspace_decides_when_gradients_are_computed():
    input, weight, target, _ = make()

    def gradient(limit, argnums=(0, 1)):
        return jax.grad(functools.partial(oj.linear_cross_entropy, target=target, max_workspace=limit), argnums)

    together = {"": 1, "_statistics": 0, "_loss": 0, "_backward": 0}
    assert operators(gradient(None), input, weight)[0] == together
    assert operators(gradient(1 << 30), input, weight)[0] == together
    assert operators(gradient(0), input, weight)[0] == {"": 0, "_statistics": 1, "_loss": 1, "_backward": 1}
    # The limit is that of gradients kept and of scratch: the least that is taken for scratch is what a limit of 0 gives.
    results = [("loss", (), np.float32), ("grad_input", (N, H), np.float32), ("grad_weight", (V, H), np.float32)]
    tensors = [("input", (N, H), np.float32), ("linear_weight", (V, H), np.float32), ("target", (N,), np.int32)]
    scratch = oj._linear._forward.check(tensors + results, {"max_workspace": 0})
    kept = 4 * (N * H + V * H)
    assert operators(gradient(kept + scratch), input, weight)[0] == together
    assert operators(gradient(kept + scratch - 1), input, weight)[0]["_backward"] == 1
    # And where scratch has a choice, it is that of scratch alone.
    many = [("input", (4096, H), np.float32), ("linear_weight", (9999, H), np.float32), ("target", (4096,), np.int32)]
    many.append(("grad_weight", (9999, H), np.float32))
    check = oj._linear._forward.check
    assert check(many, {"max_workspace": 0}) < check(many, {"max_workspace": 32 << 20}) <= 32 << 20 < check(many, {})


def test_what_is_frozen_costs_nothing():
    input, weight, target, keywords = make(linear_bias=True)
    bias = keywords["linear_bias"]
    for limit in (None, 0):
        function = lambda x, w, b: oj.linear_cross_entropy(x, w, target, linear_bias=b, max_workspace=limit)  # noqa: E731, B023
        for argument, (name, others) in enumerate(
            (("grad_input", (1, 2)), ("grad_weight", (0, 2)), ("grad_bias", (0, 1)))
        ):
            _, text = operators(jax.grad(function, argument), input, weight, bias)
            assert f"'{name}'" in text
            assert all(f"'{GRADIENTS[other]}'" not in text for other in others)
        count, text = operators(function, input, weight, bias)
        assert count == {"": 1, "_statistics": 0, "_loss": 0, "_backward": 0} and "grad" not in text


def test_options_that_are_not_differentiable_have_gradient_zero():
    input, weight, target, keywords = make(weight=True, token_weight=True)
    classes, tokens = keywords["weight"], keywords["token_weight"]
    function = lambda c, t: oj.linear_cross_entropy(input, weight, target, weight=c, token_weight=t)  # noqa: E731
    for gradient in jax.grad(function, argnums=(0, 1))(classes, tokens):
        assert not np.any(gradient)


@pytest.mark.parametrize("limit", [None, 0])
def test_loss_scaling_loses_nothing(limit):
    """Gradients below the smallest float16, which a scale of 65536 brings back, as exactly as float16 can say them."""
    input, weight, target, keywords = make("float16", linear_bias=True)
    keywords["linear_bias"] = keywords["linear_bias"] + 26 * (jnp.arange(V) == 5)
    target = jnp.where(target == IGNORED, IGNORED, 5)  # right already: p of the others is 1e-9 at most
    keywords |= {"dtype": jnp.float32, "max_workspace": limit}

    def scaled(weight, scale):
        return scale * oj.linear_cross_entropy(input, weight, target, **keywords)

    want = by_numpy(input, weight, target, {k: v for k, v in keywords.items() if k != "dtype"}, grad_dtype=np.float32)
    got = jax.jit(jax.grad(scaled))(weight, jnp.float32(65536))
    exact = 65536 * want["grad_weight"]
    assert not np.any(np.asarray(jax.grad(scaled)(weight, jnp.float32(1)))), "the case is too easy"
    assert np.any(np.asarray(got))
    if limit is None:
        assert same_bits(got, exact.astype(np.float16))
    else:  # the factor is in the chain of sums, whose subnormal halves are those of float16
        assert np.all(np.abs(np.asarray(got, np.float64) - exact) <= 2.0**-11 * np.abs(exact) + 2.0**-25)


def test_tied_weights():
    """A table that makes the input's rows and the logits: its gradient is the sum of both."""
    input, table, target, _ = make()
    tokens = zipf(np.random.default_rng(8), N, V)

    def model(embedding, head):
        return oj.linear_cross_entropy(oj.embedding(embedding, tokens) * input, head, target)

    got = jax.jit(jax.grad(lambda table: model(table, table)))(table)
    both = jax.grad(model, argnums=(0, 1))(table, table)
    assert all(np.any(g) for g in both) and same_bits(got, np.asarray(both[0]) + np.asarray(both[1]))


@pytest.mark.parametrize("limit", [None, 0])
def test_scan_and_checkpoint(limit):
    input, weight, target, keywords = make(shape=(3, N), linear_bias=True, max_workspace=limit)
    one = functools.partial(oj.linear_cross_entropy, **keywords)

    def scanned(input, weight):
        step = lambda total, row: (total + jax.checkpoint(one)(row[0], weight, row[1]), None)  # noqa: E731
        return jax.lax.scan(step, 0.0, (input, target))[0]

    got = jax.jit(jax.grad(scanned, (0, 1)))(input, weight)
    each = [jax.grad(one, (0, 1))(input[i], weight, target[i]) for i in range(3)]
    assert same_bits(got[0], np.stack([g[0] for g in each]))
    # Backwards through the scan, so from the last one.
    assert same_bits(got[1], (np.asarray(each[2][1]) + np.asarray(each[1][1])) + np.asarray(each[0][1]))


def test_checkpoint_computes_the_loss_alone_at_first():
    input, weight, target, _ = make()
    one = jax.checkpoint(functools.partial(oj.linear_cross_entropy, target=target))
    count, _ = operators(jax.grad(lambda x: one(x, weight) ** 2), input)
    assert count[""] == 2


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_a_batch(reduction, options):
    """Against examples one by one. Unless it has to go one by one, it is one call with one gradient of the weight."""
    input, weight, target, keywords = make(shape=(4, N), reduction=reduction, **options)
    tokens = {"token_weight": keywords.pop("token_weight")} if "token_weight" in keywords else {}
    upstream = jnp.asarray(np.random.default_rng(0).normal(size=(4, N) if reduction == "none" else 4), jnp.float32)

    def one(weight, input, target, tokens):
        return oj.linear_cross_entropy(input, weight, target, **tokens, **keywords)

    def batched(weight, input):
        return jnp.sum(upstream * jax.vmap(one, in_axes=(None, 1, 1, 1))(weight, input.swapaxes(0, 1), *swapped))

    swapped = [target.swapaxes(0, 1), {k: v.swapaxes(0, 1) for k, v in tokens.items()}]
    got = jax.jit(jax.value_and_grad(batched, (0, 1)))(weight, input)
    cases = [(weight, input[i], target[i], {k: v[i] for k, v in tokens.items()}) for i in range(4)]
    losses = [np.asarray(upstream[i] * one(*cases[i]), np.float64) for i in range(4)]
    assert np.isclose(got[0], np.sum(losses), rtol=0, atol=1e-5 * np.sum(np.abs(losses)))
    each = [jax.grad(lambda w, x, *rest: jnp.sum(upstream[i] * one(w, x, *rest)), (0, 1))(*cases[i]) for i in range(4)]  # noqa: B023
    # Both sides are within the bounds of the definition, which are below 1e-4 of the magnitude of the largest terms.
    for a, b in (
        (got[1][0], sum(np.asarray(g[0], np.float64) for g in each)),
        (got[1][1], np.stack([g[1] for g in each])),
    ):
        assert np.allclose(a, b, rtol=0, atol=1e-4 * np.abs(b).max())

    count, text = operators(jax.grad(batched), weight, input)
    if reduction == "mean" and "weight" in options and "z_loss" in options:
        assert "scan" in text  # two denominators
    else:
        assert count["_backward"] == 1 and "scan" not in text and f"[4,{V},{H}]" not in text


def test_a_batch_ignores_and_shares():
    """What is not batched is shared; targets that cannot hold ignore_index all count."""
    input, weight, target, keywords = make(shape=(4, N), token_weight=True)
    one = functools.partial(oj.linear_cross_entropy, ignore_index=300)
    target = jnp.where(target == IGNORED, 3, target)
    for typed in (target[0], target[0].astype(jnp.uint8)):
        got = jax.vmap(lambda x, t: one(x, weight, typed, token_weight=t), in_axes=(0, None))(
            input, keywords["token_weight"][0]
        )  # noqa: B023
        want = [one(input[i], weight, typed, token_weight=keywords["token_weight"][0]) for i in range(4)]
        assert np.allclose(got, want, rtol=1e-6, atol=0)
    got = jax.vmap(lambda d: one(input[0], weight, target[0], denominator=d))(jnp.asarray([2.0, 5.0]))
    assert np.allclose(got, [one(input[0], weight, target[0], denominator=d) for d in (2.0, 5.0)], rtol=1e-6, atol=0)


@pytest.mark.parametrize("options", [{}, {"weight": True}])
def test_a_batch_does_not_look_at_weights_of_ignored_positions(options):
    input, weight, target, keywords = make(shape=(4, N), token_weight=True, **options)
    tokens = keywords.pop("token_weight")
    one = functools.partial(oj.linear_cross_entropy, **keywords)
    batched = jax.vmap(lambda x, y, t: one(x, weight, y, token_weight=t))
    got = batched(input, target, jnp.where(target == IGNORED, jnp.nan, tokens))
    assert np.all(np.isfinite(got)) and same_bits(got, batched(input, target, tokens))


def test_the_loss_of_a_batch_is_rounded_once():
    input, weight, target, _ = make("bfloat16", shape=(16, N))
    got = jax.vmap(oj.linear_cross_entropy, in_axes=(0, None, 0))(input, weight, target)
    assert same_bits(got, np.stack([oj.linear_cross_entropy(input[i], weight, target[i]) for i in range(16)]))


@pytest.mark.parametrize("limit", [None, 0])
def test_batches_of_gradients_and_of_weights_go_one_by_one(limit):
    input, weight, target, keywords = make(shape=(3, N), max_workspace=limit)
    one = jax.value_and_grad(functools.partial(oj.linear_cross_entropy, **keywords), (0, 1))
    each = [one(input[i], weight, target[i]) for i in range(3)]
    losses, gradients = jax.jit(jax.vmap(one, in_axes=(0, None, 0)))(input, weight, target)
    assert same_bits(losses, np.stack([e[0] for e in each]))
    assert all(same_bits(gradients[k], np.stack([e[1][k] for e in each])) for k in (0, 1))
    weights = jnp.stack([weight * (1 + i) for i in range(3)])
    total = lambda w: jnp.sum(jax.vmap(functools.partial(oj.linear_cross_entropy, **keywords))(input, w, target))  # noqa: E731
    got = jax.jit(jax.grad(total))(weights)
    assert same_bits(got, np.stack([one(input[i], weights[i], target[i])[1][1] for i in range(3)]))


def test_several_gradients_of_one_loss():
    """A pullback can be used again, and with a batch of upstream gradients."""
    input, weight, target, keywords = make(reduction="none")
    loss, pullback = jax.vjp(functools.partial(oj.linear_cross_entropy, target=target, **keywords), input, weight)
    rows = jax.vmap(pullback)(jnp.eye(N))[0]
    assert rows.shape == (N, N, H)
    assert all(same_bits(rows[i], pullback(jnp.eye(N)[i])[0]) for i in range(N))
    assert not np.any(np.asarray(rows)[~np.eye(N, dtype=bool)])


@pytest.mark.parametrize("limit", [None, 0])
@pytest.mark.parametrize("reduction", ["none", "mean"])
@pytest.mark.parametrize("options", [OPTIONS[1], OPTIONS[3]])
def test_derivatives_in_float64(reduction, options, limit):
    with x64():
        input, weight, target, keywords = make(
            "float64", shape=(5,), reduction=reduction, max_workspace=limit, **options
        )
        if "token_weight" in keywords:
            keywords["token_weight"] = keywords["token_weight"].astype(jnp.float64)
        bias = keywords.pop("linear_bias")
        upstream = jnp.asarray(np.random.default_rng(4).normal(size=5 if reduction == "none" else ()))
        loss = functools.partial(oj.linear_cross_entropy, target=target.astype(jnp.int64), **keywords)
        function = lambda x, w, b: jnp.sum(upstream * loss(x, w, linear_bias=b) ** 2)  # noqa: E731
        modes = ("fwd", "rev") if reduction == "mean" and limit is None else ("rev",)
        check_grads(function, (input, weight, bias), order=1, modes=modes)
        # In float64, which is ref, both ways have the values, if not the bits.
        assert function(input, weight, bias).dtype == jnp.float64


def test_what_has_no_derivative_says_so():
    input, weight, target, _ = make()
    for options in ({"reduction": "none"}, {"max_workspace": 0}):
        function = functools.partial(oj.linear_cross_entropy, linear_weight=weight, target=target, **options)
        with pytest.raises(NotImplementedError, match="forward-mode derivative only with"):
            jax.jvp(function, (input,), (input,))
    for options in ({}, {"max_workspace": 0}):
        function = functools.partial(oj.linear_cross_entropy, linear_weight=weight, target=target, **options)
        with pytest.raises(NotImplementedError, match="its gradient cannot be differentiated"):
            jax.grad(lambda x: jnp.sum(jax.grad(function)(x) ** 2))(input)  # noqa: B023


def test_donated_arguments():
    """Gradients may take the memory of what they belong to, but not before it has been read."""
    input, weight, target, _ = make(shape=(70,))
    function = jax.value_and_grad(functools.partial(oj.linear_cross_entropy, target=target), (0, 1))
    want = jax.device_get(jax.jit(function)(input, weight))
    loss, gradients = jax.jit(function, donate_argnums=(0, 1))(input, weight)
    assert input.is_deleted() and weight.is_deleted()
    assert same_bits(loss, want[0]) and all(same_bits(a, b) for a, b in zip(gradients, want[1]))
