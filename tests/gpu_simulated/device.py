"""A CUDA device that is not there: its tensors say `cuda:0` and compute on the processor.

    with Simulated() as gpu:
        module.to("cuda")(x.to("cuda"))
    gpu.waits      # [(what, "forecaster/attention/topk.py:292"), ...]
    gpu.launches   # kernels, about: one for each operation that is no view
    gpu.bytes      # that they read and write, if nothing is fused
    gpu.rough      # lines that convolve in TF32 outside of a training step
    gpu.doubles    # lines that compute in float64, which many cards do 64 times as slowly

Every branch for a GPU runs with real values. An operation on two devices raises, except for what
torch allows: numbers, and indices on the host. What makes the host wait for the device is recorded
with its line. Nothing is said of the numbers of CUDA's kernels, of streams, of the allocator and of
compiled code.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.utils._python_dispatch import TorchDispatchMode, _pop_mode, _push_mode
from torch.utils._pytree import tree_flatten, tree_map

PRODUCT = Path(__file__).resolve().parents[2] / "forecaster"
CUDA, CPU = torch.device("cuda", 0), torch.device("cpu")
NO_LAUNCH = {
    "empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias",
    "view", "_unsafe_view", "expand", "_reshape_alias", "as_strided", "permute", "transpose", "t",
    "select", "slice", "split", "split_with_sizes", "unbind", "unsqueeze", "squeeze", "unfold",
    "diagonal", "lift_fresh", "set_", "resize_", "is_same_size", "_local_scalar_dense",
}  # fmt: skip
"""Operations that start no kernel: views, and memory without values."""
WAITS = {
    "_local_scalar_dense", "nonzero", "masked_select", "bincount", "_unique2", "unique_dim",
    "unique_consecutive", "equal", "_linalg_check_errors",
}  # fmt: skip
"""Operations whose result, or whose size, the host must know."""
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
LOWERED = {
    "linear", "matmul", "__matmul__", "__rmatmul__", "mm", "bmm", "addmm", "baddbmm", "mv",
    "conv1d", "einsum",
}  # fmt: skip
RAISED = {
    "exp", "log", "log1p", "pow", "softplus", "layer_norm", "logsumexp", "softmax", "cumsum",
    "prod", "sum", "mse_loss", "l1_loss",
}  # fmt: skip
"""What autocast computes in half precision, and what in float32."""
FEW = 16
"""So many numbers in float64 cost nothing."""
_ACTIVE: "list[Simulated]" = []


class Tensor(torch.Tensor):
    """Shares the storage of `inner`; for C++ it is on the CPU, with the dispatch keys of CUDA."""

    def __new__(cls, inner: torch.Tensor) -> "Tensor":
        self = torch.Tensor._make_subclass(cls, inner, False, device_for_backend_keys=CUDA)
        self.inner = inner
        return self

    def __init__(self, *_: Any) -> None: ...

    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name, kwargs = getattr(function, "__name__", ""), kwargs or {}
        if name in ("to", "cpu", "cuda"):
            return _moved(name, *args, **kwargs)
        if name in ("numpy", "__array__"):
            raise TypeError(
                "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first"
            )
        if name == "tolist":
            return _moved("cpu", args[0]).tolist()
        if name == "new_tensor":
            return torch.tensor(args[1], dtype=kwargs.get("dtype") or args[0].dtype).to(CUDA)
        if name == "__deepcopy__":
            copy = Tensor(args[0].inner.detach().clone()).requires_grad_(args[0].requires_grad)
            return torch.nn.Parameter(copy) if isinstance(args[0], torch.nn.Parameter) else copy
        if name == "__format__":
            return format(args[0].item(), *args[1:])
        if name == "backward":
            return _backward(*args, **kwargs)
        if name == "dropout" and not kwargs["inplace"]:  # on CUDA it is one kernel
            return torch.native_dropout(args[0], kwargs["p"], kwargs["training"])[0]
        if torch.is_autocast_enabled("cuda") and name in LOWERED | RAISED:
            low = torch.get_autocast_dtype("cuda")
            old, new = (torch.float32, low) if name in LOWERED else (low, torch.float32)
            cast = lambda x: x.to(new) if isinstance(x, Tensor) and x.dtype == old else x  # noqa: E731
            args, kwargs = tree_map(cast, (args, kwargs))
        with torch._C.DisableTorchFunctionSubclass():
            return function(*args, **kwargs)

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return _ACTIVE[-1].run(function, args, kwargs or {})


class Simulated(TorchDispatchMode):
    """A block in which "cuda" is simulated; `waits` and `launches` are counted from its start."""

    def __enter__(self) -> "Simulated":
        self.waits: list[tuple[str, str]] = []
        self.doubles: list[str] = []
        self.rough: list[str] = []
        self.launches = self.bytes = 0
        self.strict = "default"
        self.graph: Graph | None = None  # that is being captured
        self.seed(1)
        self.stack = ExitStack()
        for patch in _patches(self):
            self.stack.enter_context(patch)
        _ACTIVE.append(self)
        return super().__enter__()  # type: ignore[no-any-return]

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        _ACTIVE.pop()
        self.stack.close()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        return self.run(function, args, kwargs or {})

    def clear(self) -> None:
        """Count from here on."""
        self.waits.clear()
        self.doubles.clear()
        self.rough.clear()
        self.launches = self.bytes = 0

    def seed(self, number: int) -> None:
        self.state = torch.Generator().manual_seed(number).get_state()

    def restore(self, state: torch.Tensor, *_: Any) -> None:
        self.state = state.clone()

    def wait(self, what: str) -> None:
        if self.strict == "error" or self.graph is not None:
            raise RuntimeError(f"called a synchronizing CUDA operation: {what} at {_line()}")
        self.waits.append((what, _line()))

    def run(self, function: Any, args: Any, kwargs: Any) -> Any:
        name = function._schema.name.partition("::")[2]
        device = kwargs.get("device")
        there = device is not None and torch.device(device).type == "cuda"
        tensors = [x for x in tree_flatten((args, kwargs))[0] if isinstance(x, torch.Tensor)]
        ours = [x for x in tensors if isinstance(x, Tensor)]
        if not ours and not there:
            made = function(
                *args, **kwargs
            )  # a formula of autograd makes its zeros on "our" device
            return Tensor(made) if device is not None and _in_formula() else made
        if _composite(function) and name != "_to_copy":  # as in inference mode
            _push_mode(self)
            try:
                return function.decompose(*args, **kwargs)
            finally:
                _pop_mode()
        if name == "copy_" and ours[0] is not args[0]:
            self.wait("copy to the host")
            return args[0].copy_(args[1].inner)
        copies = name in ("_to_copy", "copy_")
        alike = _is_number if copies else lambda x: x.ndim == 0
        host = [x for x in tensors if not isinstance(x, Tensor) and not alike(x)]
        if copies:
            blocks = not (kwargs.get("non_blocking") or (name == "copy_" and args[2:3] == (True,)))
            if host and (blocks or not all(getattr(x, "pinned", False) for x in host)):
                self.wait("copy from the host")
        elif host and name in INDEXING:
            self.wait("index on the host")
        elif host:
            raise RuntimeError(
                "Expected all tensors to be on the same device, but found at least two devices, "
                f"cuda:0 and cpu: {name} at {_line()}"
            )
        places = args[1] if name in INDEXING else ()
        masked = any(x is not None and x.dtype == torch.bool for x in places)
        if name in WAITS or (masked and not (name.startswith("index_put") and args[2].ndim == 0)):
            self.wait(name)
        inside, named = tree_map(lambda x: x.inner if isinstance(x, Tensor) else x, (args, kwargs))
        if device is not None:
            named["device"] = CPU
        generator = named.get("generator")
        if generator is not None and generator.device.type == "cpu":
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        if self.graph is not None and host:
            raise RuntimeError(f"a graph reads memory of the host: {name} at {_line()}")
        if self.graph is not None:
            self.graph.spare(function, inside, named)
        made = self.compute(function, inside, named)
        if name not in NO_LAUNCH:
            if self.graph is not None:
                self.graph.calls.append((function, inside, named, made))
            touched = [x for x in tree_flatten((inside, made))[0] if isinstance(x, torch.Tensor)]
            self.launches += 1
            self.bytes += sum(x.numel() * x.element_size() for x in touched)
            exact = torch.backends.cudnn.conv.fp32_precision == "ieee"
            if name == "convolution" and not (exact or torch.is_grad_enabled()):
                self.rough.append(_line())
            if any(x.dtype == torch.float64 and x.numel() > FEW for x in touched):
                self.doubles.append(_line())
        if name == "_to_copy" and made is inside[0]:
            made = made.clone()
        made = tree_map(lambda x: Tensor(x) if isinstance(x, torch.Tensor) else x, made)
        return _written(function, args, kwargs, made)

    def compute(self, function: Any, inside: Any, named: Any) -> Any:
        """The result on the processor, with the random state of the device."""
        if torch.Tag.nondeterministic_seeded not in function.tags:
            return function(*inside, **named)
        before = torch.get_rng_state()
        torch.set_rng_state(self.state)
        made = function(*inside, **named)
        self.state = torch.get_rng_state()
        torch.set_rng_state(before)
        return made


class Graph:
    """A CUDA graph: what was launched during its capture, on the same memory each time."""

    def __init__(self, gpu: Simulated) -> None:
        self.gpu = gpu

    @contextmanager
    def capture(self) -> Iterator[None]:
        self.calls: list[tuple[Any, ...]] = []
        self.spared: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        self.gpu.graph, state = self, self.gpu.state
        try:
            yield
        finally:  # a capture computes nothing
            self.gpu.graph, self.gpu.state = None, state
            for tensor, before in self.spared.values():
                tensor.copy_(before)

    def spare(self, function: Any, inside: Any, named: Any) -> None:
        """Remember what an operation is about to overwrite."""
        for place, argument in enumerate(function._schema.arguments):
            if argument.alias_info is None or not argument.alias_info.is_write:
                continue
            given = inside[place] if place < len(inside) else named.get(argument.name)
            for x in tree_flatten(given)[0]:
                if isinstance(x, torch.Tensor) and x.data_ptr() not in self.spared:
                    self.spared[x.data_ptr()] = x, x.clone()

    def replay(self) -> None:
        self.gpu.launches += 1
        for function, inside, named, made in self.calls:
            again = self.gpu.compute(function, inside, named)
            for old, new in zip(tree_flatten(made)[0], tree_flatten(again)[0], strict=True):
                if isinstance(old, torch.Tensor) and old is not new:
                    old.copy_(new)


def _written(function: Any, args: Any, kwargs: Any, made: Any) -> Any:
    """The result, with the arguments themselves where the operation writes into them."""
    into = {}
    for place, argument in enumerate(function._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            given = args[place] if place < len(args) else kwargs.get(argument.name)
            into[tuple(argument.alias_info.before_set)] = given
    aliases = [result.alias_info for result in function._schema.returns]
    same = [into.get(tuple(alias.before_set)) if alias else None for alias in aliases]
    if len(same) == 1:
        return made if same[0] is None else same[0]
    if all(x is None for x in same):
        return made
    return tuple(m if x is None else x for x, m in zip(same, made, strict=True))


def _is_number(x: torch.Tensor) -> bool:
    """Whether it holds one number, however often: such a one goes along with a launch."""
    return x.untyped_storage().nbytes() <= x.element_size()


def _composite(function: Any) -> bool:
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return bool(has(function.name(), "CompositeImplicitAutograd"))


def _frames(start: int = 2) -> Any:
    frame = sys._getframe(start)
    while frame is not None:
        yield frame
        frame = frame.f_back


def _line() -> str:
    """The innermost line of the product, "?" if it has none."""
    for frame in _frames():
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(PRODUCT):
            return f"{path.relative_to(PRODUCT.parent).as_posix()}:{frame.f_lineno}"
    return "?"


def _in_formula() -> bool:
    """Whether C++ code of autograd asks, not Python code in a backward pass."""
    inner = (__file__, "_compile.py", "eval_frame.py")
    names = (f.f_code.co_name for f in _frames() if not f.f_code.co_filename.endswith(inner))
    return torch._C._current_graph_task_id() != -1 and next(names) == "_engine_run_backward"


class _ToHost(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> torch.Tensor:
        _ACTIVE[-1].wait("copy to the host")
        return x.inner.detach().clone()  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return Tensor(grad)


def _moved(name: str, x: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    device, dtype = kwargs.get("device"), kwargs.get("dtype")
    for target in args:
        if isinstance(target, torch.Tensor):
            device, dtype = target.device, target.dtype
        device = target if isinstance(target, str | torch.device) else device
        dtype = target if isinstance(target, torch.dtype) else dtype
    device = torch.device(name if name != "to" else device or x.device)
    if sys._getframe(2).f_code.co_filename.endswith(("clip_grad.py", "adam.py")):
        device = x.device  # C++ groups the gradients by a device that it sees as the processor's
    with torch._C.DisableTorchFunctionSubclass():
        if isinstance(x, Tensor) and device.type == "cpu":
            x = _ToHost.apply(x)
        elif not isinstance(x, Tensor) and device.type == "cuda":
            return x.to(CUDA, dtype, non_blocking=kwargs.get("non_blocking", False))
        return x if dtype in (None, x.dtype) else x.to(dtype)


def _backward(
    tensor: torch.Tensor, gradient: Any = None, retain_graph: Any = None, *_: Any, **__: Any
) -> None:
    with torch._C.DisableTorchFunctionSubclass():
        made = torch.autograd._make_grads((tensor,), (gradient,), is_grads_batched=False)
    torch.autograd.graph._engine_run_backward(
        (tensor,), made, bool(retain_graph), False, (), allow_unreachable=True, accumulate_grad=True
    )


def _pinned(x: torch.Tensor) -> torch.Tensor:
    copy = x.clone()
    copy.pinned = True  # type: ignore[attr-defined]
    return copy


@contextmanager
def _lifting() -> Iterator[None]:
    """Inside the block, `torch.tensor` makes its tensor on the processor first, as for CUDA."""
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(False)


def _patches(gpu: Simulated) -> Any:
    """What torch asks of CUDA before any operation, and a guard of the device for C++."""
    lib = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guards = (ctypes.c_void_p * 2).in_dll(lib, "_ZN3c104impl26device_guard_impl_registryE")
    if not guards[1]:  # torch replaces a guard that counts no device by one that does nothing
        zero = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p)(lambda this: 0)
        table = (ctypes.c_void_p * 64)(*[ctypes.cast(zero, ctypes.c_void_p)] * 64)
        nothing = (ctypes.c_void_p * 1)(ctypes.addressof(table))
        guards[1] = ctypes.addressof(nothing)
        torch._C._ensureCUDADeviceGuardSet()
    answers = {
        "is_available": True, "is_initialized": True, "_lazy_init": None, "synchronize": None,
        "device_count": 1, "current_device": 0, "set_device": None, "get_device_name": "simulated",
        "get_device_capability": (9, 0), "is_bf16_supported": True, "empty_cache": None,
        "get_device_properties": SimpleNamespace(total_memory=2**37, name="simulated"),
        "memory_allocated": 0, "memory_reserved": 0, "max_memory_allocated": 0,
        "reset_peak_memory_stats": None, "mem_get_info": (2**37, 2**37),
        "set_rng_state_all": None, "get_rng_state_all": [],
    }  # fmt: skip
    for name, answer in answers.items():
        yield mock.patch(f"torch.cuda.{name}", lambda *_, answer=answer, **__: answer)
    for name in ("manual_seed", "manual_seed_all"):
        yield mock.patch(f"torch.cuda.{name}", gpu.seed)
    yield mock.patch("torch.Tensor.pin_memory", _pinned)
    yield mock.patch("torch.cuda.CUDAGraph", partial(Graph, gpu))
    yield mock.patch("torch.cuda.graph", lambda graph: graph.capture())
    yield mock.patch("torch.cuda.Stream", mock.Mock)
    yield mock.patch("torch.cuda.current_stream", mock.Mock)
    yield mock.patch("torch.cuda.stream", nullcontext)
    yield mock.patch("torch.cuda.set_sync_debug_mode", lambda mode: setattr(gpu, "strict", mode))
    yield mock.patch("torch.cuda.get_sync_debug_mode", side_effect=lambda: gpu.strict)
    yield mock.patch("torch.cuda.get_rng_state", side_effect=lambda *_: gpu.state.clone())
    yield mock.patch("torch.cuda.set_rng_state", side_effect=gpu.restore)
    for name in ("as_tensor", "tensor"):

        def made(make: Any, data: Any, *args: Any, device: Any = None, **kwargs: Any) -> Any:
            there = device is not None and torch.device(device).type == "cuda"
            there = there and not isinstance(data, torch.Tensor)
            named = {} if there or device is None else {"device": device}
            tensor = make(data, *args, **named, **kwargs)
            return tensor.to(CUDA) if there else tensor

        yield mock.patch(f"torch.{name}", partial(made, getattr(torch, name)))
    yield mock.patch("torch.__future__._overwrite_module_params_on_conversion", True)
    kinds = torch.utils._foreach_utils._foreach_supported_types
    yield mock.patch("torch.utils._foreach_utils._foreach_supported_types", [*kinds, Tensor])
    yield _lifting()
