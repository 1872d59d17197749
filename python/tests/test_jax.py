"""onehot.jax as a whole: what it says where it cannot be, devices, threads."""

import concurrent.futures
import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
import onehot  # noqa: E402
import onehot.jax as oj  # noqa: E402
from jax_support import same_bits, zipf  # noqa: E402


def run(program, **environment):
    """What a process of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)} | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "before, sentence",
    [
        ("sys.modules['jax'] = None", "onehot.jax: needs JAX 0.5 or newer"),
        ("del onehot._onehot.xla_handlers", "onehot.jax: onehot was built where jaxlib was not installed"),
        (
            "onehot._onehot.xla_interface = lambda: (0, 99)",
            "onehot.jax: onehot was built with headers of a jaxlib with interface 0.99, the one here has 0.",
        ),
    ],
)
def test_an_import_that_fails_says_why(before, sentence):
    said = run(f"""
        import sys
        import onehot._onehot
        {before}
        try:
            import onehot.jax
        except ImportError as error:
            print(error)
    """)
    assert said.startswith(sentence)


def test_importing_it_starts_no_device():
    assert "fresh" in run("""
        import onehot.jax, jax
        jax.config.update("jax_num_cpu_devices", 2)  # refused once there are devices
        print("fresh")
    """)


def test_other_platforms_are_refused_when_compiled():
    for function in (
        lambda w: oj.embedding(w, jnp.zeros(2, int)),
        jax.grad(lambda w: oj.linear_cross_entropy(w, w, jnp.zeros(3, int))),
    ):
        with pytest.raises(NotImplementedError, match="onehot_.*cuda"):
            jax.jit(function).trace(jnp.ones((3, 2))).lower(lowering_platforms=("cuda",))


def test_several_devices():
    """Shards under shard_map, and arrays that are gathered under jit. Gradients that check_vma would get wrong are refused."""
    said = run(
        """
        import inspect
        import jax, numpy as np
        import jax.numpy as jnp
        import onehot.jax as oj
        from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
        shard_map = getattr(jax, "shard_map", None)
        if shard_map is None:
            from jax.experimental.shard_map import shard_map
        check = "check_vma" if "check_vma" in inspect.signature(shard_map).parameters else "check_rep"

        mesh = Mesh(np.array(jax.devices()), ("batch",))
        rng = np.random.default_rng(0)
        weight = jnp.asarray(rng.normal(size=(7, 3)), jnp.float32)
        input = jnp.asarray(rng.normal(size=(6, 3)), jnp.float32)
        target = jnp.asarray(rng.integers(0, 7, 6))

        def loss(weight, input, target):
            rows = oj.embedding(weight, target) + input
            return oj.linear_cross_entropy(rows, weight, target)

        def sharded(**options):
            mean = lambda *arguments: jax.lax.pmean(loss(*arguments), "batch")
            return shard_map(mean, mesh=mesh, in_specs=(P(), P("batch"), P("batch")), out_specs=P(), **options)

        want = jax.grad(loss)(weight, input, target)
        for jit in (jax.jit, lambda f: f):
            got = jit(jax.grad(sharded(**{check: False})))(weight, input, target)
            assert np.allclose(got, want, rtol=0, atol=1e-6), (got, want)
        for function in (sharded(), jax.grad(sharded())):
            try:
                jax.jit(function)(weight, input, target)
            except NotImplementedError as error:
                print("refused", error)
        split = NamedSharding(mesh, P("batch"))
        got = jax.jit(jax.grad(loss))(weight, jax.device_put(input, split), jax.device_put(target, split))
        assert np.array_equal(got, want)
        print(len(jax.devices()))
        """,
        XLA_FLAGS="--xla_force_host_platform_device_count=2",
    )
    assert said.count("refused") == 2 and said.endswith("2\n")


def step(dtype):
    """Of a model whose table makes the input's rows and the logits, large enough for several threads."""
    rng = np.random.default_rng(9)
    table = jnp.asarray(rng.normal(size=(3001, 64)) / 8, dtype)
    tokens = jnp.asarray(zipf(rng, 257, 3001))

    @jax.jit
    def function(table):
        return jax.value_and_grad(lambda t: oj.linear_cross_entropy(oj.embedding(t, tokens[:-1]), t, tokens[1:]))(table)

    return function, table


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_every_number_of_threads_and_every_run_has_the_same_bits(dtype):
    function, table = step(dtype)
    try:
        results = []
        for threads in (1, 2, 3, 1, 0):
            onehot.set_num_threads(threads)
            results.append(jax.device_get(function(table)))
    finally:
        onehot.set_num_threads(0)
    for loss, gradient in results[1:]:
        assert same_bits(loss, results[0][0]) and same_bits(gradient, results[0][1])


def test_without_jit():
    function, table = step("float32")
    want = jax.device_get(function(table))
    with jax.disable_jit():
        loss, gradient = function(table)
        with pytest.raises(ValueError, match="weight: rank must be 2, is 1"):
            oj.embedding(table[0], 1)
    assert same_bits(loss, want[0]) and same_bits(gradient, want[1])


def test_calls_at_once():
    function, table = step("float32")
    want = jax.device_get(function(table))
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        for loss, gradient in pool.map(lambda _: jax.device_get(function(table)), range(12)):
            assert same_bits(loss, want[0]) and same_bits(gradient, want[1])
