"""Tells XLA of the functions in onehot._onehot, or says why that cannot be."""

import pathlib
import re

try:
    import jax.ffi
except ImportError as error:
    raise ImportError(
        f"onehot.jax: needs JAX 0.5 or newer (pip install jax), and importing it said: {error}"
    ) from error

from onehot import _onehot


def _interface_of_jaxlib() -> tuple[int, ...] | None:
    header = pathlib.Path(jax.ffi.include_dir()) / "xla/ffi/api/c_api.h"
    if not header.exists():
        return None
    found = dict(re.findall(r"#define XLA_FFI_API_(MAJOR|MINOR) (\d+)", header.read_text()))
    return int(found["MAJOR"]), int(found["MINOR"])


def _register() -> None:
    if not hasattr(_onehot, "xla_handlers"):
        raise ImportError("onehot.jax: onehot was built where jaxlib was not installed; build it again where it is")
    # XLA takes handlers of its own interface and of older ones. It would refuse others when it starts, and then have no CPU.
    here, built = _interface_of_jaxlib(), _onehot.xla_interface()
    if here is not None and here < built:
        raise ImportError(
            "onehot.jax: onehot was built with headers of a jaxlib with interface {}.{}, the one here has {}.{}; install "
            "a newer JAX, or build onehot again with this one".format(*built, *here)
        )
    for name, handler in _onehot.xla_handlers().items():
        jax.ffi.register_ffi_target(f"onehot_{name}", handler, platform="cpu")


_register()
