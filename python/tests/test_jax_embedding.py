"""onehot.jax.embedding against its definition, and under JAX's transformations."""

import functools

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import onehot.jax as oj  # noqa: E402
import onehot.numpy as on  # noqa: E402
from jax.test_util import check_grads  # noqa: E402
from jax_support import UNIT, same_bits, x64, zipf  # noqa: E402

V, D = 37, 5


@pytest.fixture(params=["float32", "bfloat16", "float16"])
def case(request):
    rng = np.random.default_rng(7)
    weight = jnp.asarray(rng.normal(size=(V, D)) + np.arange(V)[:, None], request.param)
    indices = zipf(rng, (3, 11), V)
    grad = jnp.asarray(rng.normal(size=(3, 11, D)), request.param)
    return weight, indices, grad


def definition(grad, indices, rows, padding_idx=None, scale_grad_by_freq=False):
    """The gradient in float64, and the sum of magnitudes of its terms."""
    grad = np.asarray(grad, np.float64).reshape(-1, grad.shape[-1])
    onehot = np.asarray(indices).reshape(-1, 1) == np.arange(rows)
    scale = 1 / np.maximum(onehot.sum(0), 1) if scale_grad_by_freq else np.ones(rows)
    if padding_idx is not None:
        scale[padding_idx] = 0
    return scale[:, None] * (onehot.T @ grad), scale[:, None] * (onehot.T @ np.abs(grad))


def loss(weight, indices, grad, **options):
    """A function whose gradient with respect to weight is that of the table, for the upstream gradient grad."""
    return jnp.sum(oj.embedding(weight, indices, **options).astype(jnp.float32) * grad.astype(jnp.float32))


def test_definition_is_the_one_worked_by_hand():
    value, magnitude = definition(np.array([[1.0, 2], [10, 20], [100, -200]]), np.array([2, 0, 2]), 3)
    assert value.tolist() == [[10, 20], [0, 0], [101, -198]]
    assert magnitude.tolist() == [[10, 20], [0, 0], [101, 202]]
    value, _ = definition(np.array([[1.0], [3], [5]]), np.array([1, 1, 0]), 2, 0, True)
    assert value.tolist() == [[0], [2]]


def test_rows(case):
    weight, indices, _ = case
    for function in (oj.embedding, jax.jit(oj.embedding)):
        assert same_bits(function(weight, indices), np.asarray(weight)[indices])


@pytest.mark.parametrize("options", [{}, {"padding_idx": 3}, {"padding_idx": -1}, {"scale_grad_by_freq": True}])
def test_gradient(case, options):
    weight, indices, grad = case
    got = jax.grad(loss)(weight, indices, grad, **options)
    assert same_bits(got, on.embedding_backward(np.asarray(grad), indices, V, **options))
    expected, magnitude = definition(grad, indices, V, **options)
    # Up to 33 terms in float32 and a division, then one rounding to the dtype.
    bound = 34 * 2.0**-24 * magnitude + UNIT[weight.dtype.name] * np.abs(expected) + 2.0**-25
    assert got.dtype == weight.dtype and np.all(np.abs(np.asarray(got, np.float64) - expected) <= bound)
    assert same_bits(jax.jit(jax.grad(functools.partial(loss, **options)))(weight, indices, grad), got)


@pytest.mark.parametrize("dtype", ["int32", "int16", "int8", "uint8", "float32"])
def test_index_dtypes(dtype):
    weight, indices = jnp.arange(V * D, dtype=jnp.float32).reshape(V, D), zipf(np.random.default_rng(3), 13, V)
    typed = jnp.asarray(indices, dtype)
    assert same_bits(oj.embedding(weight, typed), np.asarray(weight)[indices])
    got = jax.grad(lambda w: jnp.sum(oj.embedding(w, typed) * w[typed.astype(int)]))(weight)
    assert np.all(np.isfinite(got))


def test_any_dtype_forward_and_no_gradient_of_integers():
    weight = jnp.arange(V * D).reshape(V, D)
    assert same_bits(oj.embedding(weight, np.array([3, 1])), np.asarray(weight)[[3, 1]])


def test_no_positions_and_no_columns():
    assert oj.embedding(jnp.ones((V, D)), jnp.zeros((0, 4), int)).shape == (0, 4, D)
    assert same_bits(jax.grad(loss)(jnp.ones((V, D)), jnp.zeros(0, int), jnp.ones((0, D))), np.zeros((V, D), "f"))
    assert jax.grad(loss)(jnp.ones((V, 0)), jnp.zeros(2, int), jnp.ones((2, 0))).shape == (V, 0)


def test_a_batch_of_indices_is_one_call_and_has_one_gradient(case):
    weight, indices, grad = case

    def batched(weight, indices, grad):
        return jnp.sum(jax.vmap(loss, in_axes=(None, 1, 1))(weight, indices, grad))

    want = jax.grad(lambda w: loss(w, indices.swapaxes(0, 1), grad.swapaxes(0, 1)))(weight)
    assert same_bits(jax.jit(jax.grad(batched))(weight, indices, grad), want)
    text = str(jax.make_jaxpr(jax.grad(batched))(weight, indices, grad))
    assert text.count("onehot_embedding[") == 1 and text.count("onehot_embedding_backward[") == 1
    assert f"[11,{V},{D}]" not in text, "a table for each example"
    # And so has one of batches in batches, with options whose gradient is no transpose.
    pad = functools.partial(loss, padding_idx=0, scale_grad_by_freq=True)
    nested = jax.vmap(jax.vmap(pad, in_axes=(None, 0, 0)), in_axes=(None, 0, 0))
    got = jax.grad(lambda w: jnp.sum(nested(w, indices, grad)))(weight)
    assert same_bits(got, on.embedding_backward(np.asarray(grad), indices, V, padding_idx=0, scale_grad_by_freq=True))


@pytest.mark.parametrize("case", ["bfloat16"], indirect=True)
def test_batches_of_tables_and_of_gradients_go_one_by_one(case):
    weight, indices, grad = case
    weights = jnp.stack([weight, -weight, 2 * weight], 1)
    got = jax.vmap(oj.embedding, in_axes=(1, 0))(weights, indices)
    assert same_bits(got, np.stack([np.asarray(weights)[indices[i], i] for i in range(3)]))
    got = jax.vmap(jax.grad(loss), in_axes=(None, 0, 0))(weight, indices, grad)
    each = [on.embedding_backward(np.asarray(grad)[i], indices[i], V) for i in range(3)]
    assert same_bits(got, np.stack(each))
    got = jax.grad(lambda w: jnp.sum(jax.vmap(loss, in_axes=(1, 0, 0))(w, indices, grad)))(weights)
    assert same_bits(got, np.stack(each, 1))


def test_scan_and_checkpoint(case):
    weight, indices, grad = case

    def scanned(weight):
        step = lambda total, row: (total + jax.checkpoint(loss)(weight, *row), None)  # noqa: E731
        return jax.lax.scan(step, jnp.float32(0), (indices, grad))[0]

    got = np.asarray(jax.jit(jax.grad(scanned))(weight), np.float64)
    expected, magnitude = definition(grad, indices, V)
    # Each of three steps rounds its part, and adding them up does.
    assert np.all(np.abs(got - expected) <= 6 * UNIT[weight.dtype.name] * magnitude + 2.0**-25)


def test_frozen_table_costs_nothing(case):
    weight, indices, grad = case
    text = str(jax.make_jaxpr(jax.grad(lambda g: loss(weight, indices, g)))(grad))
    assert "embedding_backward" not in text


def test_derivatives_in_float64():
    rng = np.random.default_rng(5)
    indices = zipf(rng, (2, 9), V)
    with x64():
        weight = jnp.asarray(rng.normal(size=(V, D)))
        function = lambda w: jnp.sum(oj.embedding(w, indices) ** 3)  # noqa: E731
        check_grads(function, (weight,), order=2, modes=("fwd", "rev"))
        # The wide index type is there, too.
        assert oj.embedding(weight, jnp.asarray(indices, jnp.int64)).dtype == jnp.float64


def test_what_has_no_derivative_says_so():
    weight, indices = jnp.ones((V, D)), jnp.array([1, 2])
    for options in ({"padding_idx": 1}, {"scale_grad_by_freq": True}):
        function = functools.partial(oj.embedding, indices=indices, **options)
        with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
            jax.jvp(function, (weight,), (weight,))
        square = lambda w: jnp.sum(jax.grad(lambda v: jnp.sum(function(v) ** 2))(w) ** 2)  # noqa: E731, B023
        with pytest.raises(NotImplementedError, match="can be differentiated only without"):
            jax.grad(square)(weight)


@pytest.mark.parametrize(
    "error, sentence, arguments, options",
    [
        (ValueError, "weight: rank must be 2", (np.ones(3, "f"), np.array([1])), {}),
        (TypeError, "indices: its dtype must be .*, is uint32", (np.ones((3, 2), "f"), np.array([1], "uint32")), {}),
        (ValueError, r"padding_idx: must be in \[-3, 3\)", (np.ones((3, 2), "f"), np.array([1])), {"padding_idx": 3}),
        (
            TypeError,
            "padding_idx: must be an integer, is 1.5",
            (np.ones((3, 2), "f"), np.array([1])),
            {"padding_idx": 1.5},
        ),
        (ValueError, "must have at most 8 axes, has", (np.ones((3, 2), "f"), np.zeros((1,) * 9, "i")), {}),
    ],
)
def test_errors_when_traced(error, sentence, arguments, options):
    for function in (oj.embedding, jax.jit(functools.partial(oj.embedding, **options))):
        with pytest.raises(error, match=sentence):
            function(*arguments, **(options if function is oj.embedding else {}))
    with pytest.raises(error, match=sentence):
        jax.eval_shape(functools.partial(oj.embedding, **options), *arguments)


def test_an_index_out_of_range_is_named_when_it_runs():
    weight, indices = jnp.ones((V, D)), jnp.array([[0, 1], [V, 2]])
    for function in (oj.embedding, jax.jit(oj.embedding), lambda w, i: jax.grad(loss)(w, i, jnp.ones((2, 2, D)))):
        with pytest.raises(
            Exception, match=rf"OUT_OF_RANGE: indices\[1, 0\] \(position 2\) = {V} is outside \[0, {V}\)"
        ) as raised:
            jax.block_until_ready(function(weight, indices))
        assert isinstance(raised.value, (RuntimeError, ValueError, IndexError))
