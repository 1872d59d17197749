"""Linear cross entropy as each side computes it: tensors, plans, PyTorch's functions, bare products, and the definition
in f64."""

import ctypes
from typing import NamedTuple

import numpy as np

import common
import losses
from common import Buffer, DType, clock

# The gradient of the loss: a scale as f16 needs to keep 1 / N of a probability above its smallest value.
GRAD = 16384.0

# What is measured, and how many products of 2 N H V flops it takes at least. Logits computed once more for the
# gradients are counted in `backward`, which has nothing else to start from, and not in `both`.
PRODUCTS = {"forward": 1, "backward": 3, "given": 2, "both": 3, "both in f32": 3}

MOST_TORCH_S = 60  # a step of PyTorch that would take longer is extrapolated from fewer classes
LONG_ENOUGH_S = 2  # for that


class Shape(NamedTuple):
    """input [N, H], weight [V, H]"""

    N: int
    H: int
    V: int

    @property
    def flops(self):
        """Of one product."""
        return 2 * self.N * self.H * self.V

    def __str__(self):
        return f"{self.N} x {self.H} x {self.V}"


def passes(dtype):
    """With `both in f32`, loss and gradients may keep the gradient of the weight in f32 until it is complete; where it
    is f32 already, nothing changes."""
    return [name for name in PRODUCTS if name != "both in f32" or dtype.size == 2]


def workspace(name, shape):
    """max_workspace of a pass; negative: the library's default. It is that of f32 input, and the gradient of the weight."""
    if name != "both in f32":
        return -1
    return max(64 * common.MIB, shape.N * shape.V) + 4 * shape.V * shape.H


class Problem(ctypes.Structure):
    """onehot_bench_linear_loss."""

    _fields_ = ([("dtype", ctypes.c_char_p)] + [(n, ctypes.c_int64) for n in ("N", "H", "V", "max_workspace")]
                + [(n, ctypes.c_void_p) for n in ("input", "weight", "target", "upstream", "lse", "probability", "loss",
                                                  "lse_out", "grad_input", "grad_weight")])

    @property
    def _as_parameter_(self):
        return ctypes.byref(self)


class Tensors:
    """Inputs, and outputs of ours. All pages exist."""

    def __init__(self, native, shape, dtype, target, with_probability=False):
        self.native, self.shape, self.dtype, self.target = native, shape, dtype, target
        N, H, V = shape
        self.dims = {"input": (N, H), "weight": (V, H)}
        self.buffers = {}
        for name, dims in self.dims.items():
            # Logits as those of a model that has learned little: about standard normal. The lengths are prime, so that
            # no two rows are alike.
            length, seed, scale = (1000003, 7, 1) if name == "input" else (1000033, 8, H**-0.5)
            block = np.random.default_rng(seed).standard_normal(length, dtype=np.float32) * np.float32(scale)
            self.buffers[name] = self.new(name, dtype)
            self.buffers[name].tile(dtype.cast(block), self.buffers[name].size)
            self.buffers["grad_" + name] = self.new(name, dtype)
        if with_probability:
            self.buffers["probability"] = Buffer(native, 4 * N * V)
        self.lse, self.loss = np.zeros(N, np.float32), np.zeros(1, np.float32)
        self.upstream = np.array([GRAD], np.float32)

    def new(self, like, dtype):
        return Buffer(self.native, int(np.prod(self.dims[like])) * dtype.size)

    def free(self):
        for buffer in self.buffers.values():
            buffer.free()

    def array(self, name):
        return self.buffers[name].array(self.dtype.storage, self.dims[name.removeprefix("grad_")])

    @property
    def gradient_bytes(self):
        return sum(int(np.prod(dims)) for dims in self.dims.values()) * self.dtype.size

    def prepare(self, name):
        """The plan of a pass."""
        address = {name: buffer.address for name, buffer in self.buffers.items()}
        fields = {k: address[k] for k in ("input", "weight")} | {"target": self.target.ctypes.data}
        if name != "forward":
            fields |= {k: address[k] for k in ("grad_input", "grad_weight")} | {"upstream": self.upstream.ctypes.data}
        if name == "backward":
            fields["lse"] = self.lse.ctypes.data
        elif name == "given":
            fields["probability"] = address["probability"]
        else:
            fields["loss"] = self.loss.ctypes.data
        if name == "forward":
            fields["lse_out"] = self.lse.ctypes.data
        operator = "linear_cross_entropy" + "_backward" * (name in ("backward", "given"))
        return self.native.prepare(operator, Problem(dtype=self.dtype.name.encode(), **self.shape._asdict(),
                                                     max_workspace=workspace(name, self.shape), **fields))


class TorchStep:
    """One of PyTorch's functions and its gradients by autograd, for the first `classes` rows of the weight. All results
    are allocated in each step; dirty(address, bytes) is called for those of the last one before they are given back."""

    FUNCTIONS = ["PyTorch", "saving"]

    def __init__(self, torch, name, tensors, dirty, classes=None):
        self.torch, self.dirty_block = torch, dirty
        x, w = (tensors.dtype.tensor(torch, tensors.array(n)) for n in ("input", "weight"))
        y = torch.from_numpy(tensors.target if classes is None else tensors.target % classes)
        self.tensors = [x.requires_grad_(), (w if classes is None else w[:classes]).requires_grad_()]
        functional = torch.nn.functional
        if name == "PyTorch":
            self.function = lambda: functional.cross_entropy(functional.linear(*self.tensors), y)
        else:
            options = torch.nn.LinearCrossEntropyOptions()
            self.function = lambda: functional.linear_cross_entropy(*self.tensors, y, options=options)
        self.upstream = torch.tensor(GRAD, dtype=x.dtype)
        self.loss, self.gradients = None, ()

    @staticmethod
    def available(torch):
        has_saving = torch and hasattr(torch.nn, "LinearCrossEntropyOptions")
        return TorchStep.FUNCTIONS if has_saving else ["PyTorch"] if torch else []

    def dirty(self):
        for gradient in self.gradients:
            self.dirty_block(gradient.data_ptr(), gradient.numel() * gradient.element_size())
        self.gradients = ()

    def forward(self):
        with self.torch.enable_grad():
            ns, self.loss = clock(self.function)
        return ns

    def backward(self):
        ns, self.gradients = clock(lambda: self.torch.autograd.grad(self.loss, self.tensors, self.upstream))
        return ns


def extrapolated_ns(torch, name, tensors):
    """What a step would take, by its time with fewer classes; 0 if it is worth running."""
    classes = min(tensors.shape.V, max(64, int(1e9 / (3 * 2 * tensors.shape.N * tensors.shape.H))))
    while classes < tensors.shape.V:
        step = TorchStep(torch, name, tensors, None, classes)
        ns = min(step.forward() + step.backward() for _ in range(2))
        if (predicted := ns * tensors.shape.V / classes) < MOST_TORCH_S * 1e9:
            break
        if ns > LONG_ENOUGH_S * 1e9:
            return predicted
        classes *= 4
    return 0


class BareProducts:
    """The three matrix products of the same shapes: logits, and the gradients of input and weight. Each by the fastest
    that PyTorch brings: its default (MKL or oneDNN) or oneDNN, which may be asked for a product or its transpose; for
    bf16 tensors in bf16 or in f32. f16 runs in f32, as ours does."""

    NAMES = ["logits", "grad_input", "grad_weight"]

    def __init__(self, torch, tensors):
        self.torch, self.buffers = torch, []
        dtypes = ["f32", "bf16"] if tensors.dtype.name == "bf16" else ["f32"]
        found = [self.ways(tensors, DType(dtype)) for dtype in dtypes]
        self.chosen = {name: min((ways[name] for ways in found), key=lambda way: way[0])[1:] for name in self.NAMES}
        self.kinds = ", ".join(dict.fromkeys(f"{dtype} {kind}" for dtype, kind, _ in self.chosen.values()))

    def ways(self, tensors, dtype):
        """{name of a product: (nanoseconds, dtype, kind, function)}, the fastest; tried with some of the classes."""
        x, w, z, dx, dw = self.new(tensors, dtype)
        few = min(tensors.shape.V, 4096)
        part = self.operands(x, w[:few], z[:, :few].contiguous(), dx, dw[:few])
        found = {}
        for name, operands in self.operands(x, w, z, dx, dw).items():
            times = {kind: clock(way)[0] for kind, way in self.kinds_of(*part[name]).items()}
            for kind, way in self.kinds_of(*part[name]).items():
                if times[kind] < 2 * min(times.values()):  # the first run may be slow, but not that slow
                    times[kind] = min(clock(way)[0] for _ in range(3))
            kind = min(times, key=times.get)
            found[name] = (times[kind], dtype.name, kind, self.kinds_of(*operands)[kind])
        return found

    @staticmethod
    def operands(x, w, z, dx, dw):
        """{name: (a, b, a b)}"""
        return {"logits": (x, w.t(), z), "grad_input": (z, w, dx), "grad_weight": (z.t(), x, dw)}

    def new(self, tensors, dtype):
        """Inputs in that dtype, logits of some kind, and room for the gradients."""
        torch, shape = self.torch, tensors.shape

        def view(buffer, dims):
            if buffer not in tensors.buffers.values():
                self.buffers.append(buffer)
            return dtype.tensor(torch, buffer.array(dtype.storage, dims))

        found = []
        for name, dims in tensors.dims.items():
            if dtype.name == tensors.dtype.name:
                found.append(view(tensors.buffers[name], dims))
                continue
            found.append(view(tensors.new(name, dtype), dims))
            found[-1].copy_(tensors.dtype.tensor(torch, tensors.array(name)))
        logits = Buffer(tensors.native, shape.N * shape.V * dtype.size)
        losses.pattern(logits, dtype)
        found.append(view(logits, (shape.N, shape.V)))
        return found + [view(tensors.new(name, dtype), dims) for name, dims in tensors.dims.items()]

    def free(self):
        self.chosen = {}
        for buffer in self.buffers:
            buffer.free()

    def kinds_of(self, a, b, out):
        """Name and function of the ways to compute a b."""
        ways = {"mm": lambda: self.torch.mm(a, b, out=out)}
        if self.torch.backends.mkldnn.is_available() and hasattr(self.torch.ops.mkldnn, "_linear_pointwise"):
            linear = self.torch.ops.mkldnn._linear_pointwise  # a and b^T, as of a layer
            ways["oneDNN"] = lambda: linear(a, b.t(), None, "none", [], "")
            ways["oneDNN transposed"] = lambda: linear(b.t(), a, None, "none", [], "")
        return ways

    def run(self, name):
        return clock(self.chosen[name][2])[0]  # what oneDNN's way allocated is free again


class Definition:
    """In f64: loss, lse, and some rows of the gradients; fills tensors.probability where it is there."""

    CLASSES = 2048  # at a time

    def __init__(self, tensors):
        self.tensors = tensors
        N, _, V = tensors.shape
        self.x, y = self.wide("input"), tensors.target
        rows = np.arange(N)
        largest, total, at_target = np.full(N, -np.inf), np.zeros(N), np.zeros(N)
        keep = tensors.buffers.get("probability")
        p = keep.array(np.float32, (N, V)) if keep else None
        for first in range(0, V, self.CLASSES):
            z = self.x @ self.wide("weight", slice(first, first + self.CLASSES)).T
            new = np.maximum(largest, z.max(axis=1))
            total = total * np.exp(largest - new) + np.exp(z - new[:, None]).sum(axis=1)
            largest = new
            inside = rows[(y >= first) & (y < first + z.shape[1])]
            at_target[inside] = z[inside, y[inside] - first]
            if p is not None:
                p[:, first:first + z.shape[1]] = z
        self.lse = largest + np.log(total)
        self.size = np.abs(self.lse).max() + np.abs(largest).max()
        self.loss = (self.lse - at_target).mean()
        if p is not None:
            for row, lse in zip(p, self.lse):
                np.exp(row - np.float32(lse), out=row)

    def wide(self, name, rows=slice(None)):
        return self.tensors.dtype.widen(self.tensors.array(name)[rows]).astype(np.float64)

    def some_rows(self):
        """{"grad_input" or "grad_weight": (rows, exact values, sums of the absolute values of their terms)}. The terms
        of a row of probabilities and a target count apart: the smaller of p and 1 does not cancel."""
        N, _, V = self.tensors.shape
        y, few, scale = self.tensors.target, np.arange(min(N, 4)), GRAD / self.tensors.shape.N
        exact, terms = (np.zeros((len(few), self.x.shape[1])) for _ in range(2))
        for first in range(0, V, self.CLASSES):
            w = self.wide("weight", slice(first, first + self.CLASSES))
            p = np.exp(self.x[few] @ w.T - self.lse[few, None])
            hot = y[few, None] == first + np.arange(len(w))
            exact, terms = exact + scale * ((p - hot) @ w), terms + scale * ((p + hot) @ np.abs(w))
        classes = np.unique(np.concatenate([y[:4], [0, V // 2, V - 1]]))
        p = np.exp(self.x @ self.wide("weight", classes).T - self.lse[:, None])
        hot = y[:, None] == classes
        return {"grad_input": (few, exact, terms),
                "grad_weight": (classes, scale * ((p - hot).T @ self.x), scale * ((p + hot).T @ np.abs(self.x)))}
