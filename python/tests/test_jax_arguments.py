"""Arguments of onehot.jax: numbers that JAX would change, and the names in its sentences."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import onehot.jax as oj  # noqa: E402
from jax_support import same_bits, x64  # noqa: E402

V, H = 5, 3


@pytest.fixture
def layer():
    rng = np.random.default_rng(3)
    return jnp.asarray(rng.normal(size=(4, H)), jnp.float32), jnp.asarray(rng.normal(size=(V, H)), jnp.float32)


def losses(layer):
    """Functions of targets, and of an ignore_index."""
    input, weight = layer
    logp = jax.nn.log_softmax(input @ weight.T)
    return [
        lambda target, **options: oj.linear_cross_entropy(input, weight, target, **options),
        lambda target, **options: oj.nll_loss(logp, target, **options),
        lambda target, **options: oj.nll_loss(logp.T, target, class_axis=0, **options),
        lambda target, **options: oj.nll_loss(logp.T, target, class_axis=-2, **options),
    ]


@pytest.mark.parametrize("kind", ["array", "list", "jit"])
@pytest.mark.parametrize(
    "target, sentence",
    [
        ([0, 1, 2, 2**33], r"^target\[3\] = 8589934592 is outside \[0, 5\)(\n|$)"),
        ([0, 1, -(2**32), 2**33], r"^target\[2\] = -4294967296 is outside \[0, 5\)(\n|$)"),
        ([0, -100, 5, 2**33], r"^target\[2\] = 5 is outside \[0, 5\)(\n|$)"),  # the first is named, as by the library
        ([0, 1, 2**31, 3], r"^target\[2\] = 2147483648 is outside \[0, 5\)(\n|$)"),
    ],
)
def test_a_target_past_32_bits_is_refused(layer, kind, target, sentence):
    for function in losses(layer):
        with pytest.raises(IndexError, match=sentence):
            if kind == "jit":
                jax.jit(lambda: function(np.array(target)))()
            else:
                function(np.array(target) if kind == "array" else target)


def test_the_classes_of_one_example(layer):
    """Whatever class_axis says."""
    logp = jax.nn.log_softmax(layer[1][:, 0])
    assert same_bits(oj.nll_loss(logp, 3), -logp[3])
    with pytest.raises(IndexError, match=r"^target\[0\] = 8589934592 is outside \[0, 5\)$"):
        oj.nll_loss(logp, 2**33)


def test_a_list_past_64_bits_is_refused(layer):
    for number in (2**63, 2**70):
        for function in losses(layer):
            with pytest.raises(IndexError, match=rf"target\[1\] = {number} is outside"):
                function([0, number, 1, 2])


@pytest.mark.parametrize(
    "indices, sentence",
    [
        (np.array([2**32 + 1]), r"^indices\[0\] = 4294967297 is outside \[0, 5\)$"),
        (2**32 + 1, r"^indices\[0\] = 4294967297 is outside \[0, 5\)$"),
        (np.int64(2**32 + 1), r"^indices\[0\] = 4294967297 is outside \[0, 5\)$"),
        ([[0, 1, 2], [3, 4, 2**32]], r"^indices\[1, 2\] \(position 5\) = 4294967296 is outside \[0, 5\)$"),
    ],
)
def test_an_index_past_32_bits_is_refused(layer, indices, sentence):
    with pytest.raises(IndexError, match=sentence):
        oj.embedding(layer[1], indices)


def test_the_sentence_is_that_of_a_call_that_runs(layer):
    """For an array that fits, the library says it; for one that does not, this module."""
    for shape in ((), (4,), (2, 2)):
        indices = np.zeros(shape, np.int64)
        indices[(-1,) * len(shape)] = 7
        with pytest.raises(Exception) as ran:
            jax.block_until_ready(oj.embedding(layer[1], indices))
        indices[(-1,) * len(shape)] = 2**33 + 7
        with pytest.raises(IndexError) as refused:
            oj.embedding(layer[1], indices)
        assert str(refused.value).replace(str(2**33 + 7), "7") in str(ran.value)


def test_numbers_that_fit_are_as_before(layer):
    target = np.array([4, 0, -100, 2])
    for function in losses(layer):
        want = function(jnp.asarray(target, jnp.int32))
        for given in (target, target.tolist(), tuple(target), [jnp.int32(4), 0, -100, np.int8(2)]):
            assert same_bits(function(given), want)
        assert same_bits(jax.jit(lambda last: function([4, 0, -100, last]))(2), want)


def test_an_ignored_number_may_have_more_bits(layer):
    for function in losses(layer):
        want = function(np.array([4, 0, -100, 2]))
        for ignored in (2**33, 2**32 + 1, -(2**40)):  # the low bits of the second are class 1
            target = np.array([4, 0, ignored, 2])
            for given in (target, target.tolist()):
                assert same_bits(function(given, ignore_index=ignored), want)
            with pytest.raises(IndexError, match=rf"target\[0\] = {2**34} is outside"):
                function(np.array([2**34, 0, ignored, 2]), ignore_index=ignored)
            # The number that stands in for it ignores no other.
            for other in (-(2**31), -(2**31) + 1, -1, -100):
                with pytest.raises(IndexError, match=rf"target\[1\] = {other} is outside"):
                    function(np.array([4, other, ignored, 2]), ignore_index=ignored)
        target = np.array([4, 0, 2, 3])
        assert same_bits(function(target, ignore_index=2**33), function(target))
        assert same_bits(function(target, ignore_index=2**32 + 4), function(target))


def test_with_x64_the_library_says_it(layer):
    with x64():
        for function in losses(layer):
            with pytest.raises(Exception, match=r"target\[3\] = 8589934592 is outside \[0, 5\)"):
                jax.block_until_ready(function(np.array([0, 1, 2, 2**33])))


def test_a_wrong_shape_comes_first(layer):
    with pytest.raises(ValueError, match="weight: rank must be 2, is 0"):
        oj.embedding(jnp.float32(1), np.array([2**33]))
    with pytest.raises(ValueError, match="class_axis"):
        oj.nll_loss(layer[0], np.array([0, 1, 2, 2**33]), class_axis=7)
    with pytest.raises(ValueError, match="class_axis"):
        oj.nll_loss(layer[0], [0, 1, 2, 2**70], class_axis=7)
    with pytest.raises(TypeError, match="target: dtype"):
        oj.linear_cross_entropy(*layer, [True, False, True, True])


def test_sentences_name_the_arguments_of_this_function(layer):
    input, weight = layer
    target = np.arange(4)
    for arguments, options, error, sentence in [
        ((input, weight.astype("bfloat16"), target), {}, TypeError, "linear_weight: dtype must be"),
        ((input, weight[0], target), {}, ValueError, "linear_weight: rank must be 2, is 1"),
        ((input, weight, target), {"linear_bias": jnp.ones(V, jnp.bfloat16)}, TypeError, "linear_bias: dtype must be"),
        ((input, weight, target), {"linear_bias": jnp.ones(V + 1)}, ValueError, "linear_bias: "),
        ((input, weight, target), {"weight": jnp.ones(V, jnp.bfloat16)}, TypeError, "weight: dtype must be"),
        ((input, weight, target), {"weight": jnp.ones(V + 1)}, ValueError, "weight: "),
    ]:
        for function in (oj.linear_cross_entropy, jax.jit(oj.linear_cross_entropy, static_argnames="reduction")):
            with pytest.raises(error, match="^" + sentence):
                function(*arguments, **options)
            with pytest.raises(error, match="^" + sentence):
                jax.grad(function)(*arguments, **options)


def test_sentences_of_a_call_that_runs(layer):
    """Of a program that was not made here: what it is given is not checked when traced."""
    input, weight = layer
    call = jax.ffi.ffi_call("onehot_linear_cross_entropy", [jax.ShapeDtypeStruct((), jnp.float32)])
    names = {"operands": "input,linear_weight,target,", "results": "loss,"}
    with pytest.raises(Exception, match="INVALID_ARGUMENT: linear_weight: dtype must be"):
        jax.block_until_ready(call(input, weight.astype("bfloat16"), jnp.zeros(4, jnp.int32), **names))


def test_an_empty_batch(layer):
    input, weight = layer
    inputs, targets = jnp.zeros((0, 4, H)), jnp.zeros((0, 4), jnp.int32)
    logp = jnp.zeros((0, 4, V))
    for reduction, shape in (("none", (0, 4)), ("mean", (0,)), ("sum", (0,))):
        for zero_if_empty in (False, True):
            options = {"reduction": reduction, "zero_if_empty": zero_if_empty}
            loss = lambda x, y, w=weight: oj.linear_cross_entropy(x, w, y, **options)  # noqa: E731
            for function in (jax.vmap(loss), jax.jit(jax.vmap(loss))):
                assert function(inputs, targets).shape == shape
            assert jax.vmap(loss, (0, None))(inputs, targets.sum(0)).shape == shape
            assert jax.vmap(lambda x, y: oj.nll_loss(x, y, **options))(logp, targets).shape == shape
            total = lambda w: jax.vmap(loss, (0, 0, None))(inputs, targets, w).sum()  # noqa: E731
            assert same_bits(jax.grad(total)(weight), jnp.zeros_like(weight))
            if reduction != "none":
                assert jax.vmap(jax.grad(loss))(inputs, targets).shape == inputs.shape
    weights = jnp.zeros((0, V, H))  # example by example
    assert jax.vmap(lambda w: oj.linear_cross_entropy(input, w, jnp.zeros(4, jnp.int32)))(weights).shape == (0,)
    assert jax.vmap(oj.embedding)(weights, targets).shape == (0, 4, H)
    assert jax.vmap(oj.embedding, (None, 0))(weight, targets).shape == (0, 4, H)


def test_a_batch_of_examples_without_positions_or_columns():
    for shape, want in (((2, 0, H), [0, 0]), ((2, 4, 0), [np.float32(np.log(V))] * 2)):
        loss = jax.vmap(lambda x, y: oj.linear_cross_entropy(x, jnp.ones((V, x.shape[-1])), y, zero_if_empty=True))
        got = loss(jnp.zeros(shape), jnp.zeros(shape[:2], jnp.int32))
        assert np.allclose(got, want, rtol=4 * 2.0**-24, atol=0)  # a logarithm, a sum and a division, each rounded once


def test_a_float64_loss_needs_x64(layer):
    target = np.arange(4)
    for function in losses(layer):
        with pytest.raises(TypeError, match="^dtype: must be at most float32 without jax_enable_x64, is float64$"):
            function(target, dtype=jnp.float64)
        with x64():
            assert function(target, dtype=jnp.float64).dtype == jnp.float64


def test_a_denominator_may_be_an_integer(layer):
    target = np.arange(4)
    for function in losses(layer):
        want = function(target, denominator=3.0)
        for given in (
            3,
            np.int64(3),
            np.int8(3),
            np.array(3),
            jnp.int32(3),
            jnp.sum(jnp.array([True, False, True, True])),
        ):
            assert same_bits(function(target, denominator=given), want)
            assert same_bits(jax.jit(lambda d: function(target, denominator=d))(given), want)
        for number in (2**40, np.int64(2**40)):
            assert same_bits(function(target, denominator=number), function(target, denominator=2.0**40))


def test_no_ignore_index_means_the_default(layer):
    function = losses(layer)[0]
    target = np.array([4, 0, -100, 2])
    assert same_bits(function(target, ignore_index=None), function(target))
