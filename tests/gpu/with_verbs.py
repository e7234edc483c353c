# SPDX-License-Identifier: MIT
"""Registers PyTorch's tensors with ibv_reg_mr, through ctypes, on the recording libibverbs; without
PyTorch, or with the argument "driver", memory from cuMemAlloc. The result is one line: "refused"
without pindown, and with it the number of registrations of each kind. Exits 1 when they are wrong.
"""
import ctypes
import importlib.util
import sys

TIMES, MIB = 100, 1 << 20
ACCESS = 7  # local write, remote write, remote read
REG_DMABUF_MR, DEREG_MR = 7, 9  # enum recorder_verb

verbs = ctypes.CDLL("libibverbs.so.1")
for name, result, arguments in (
        ("ibv_get_device_list", ctypes.POINTER(ctypes.c_void_p), [ctypes.c_void_p]),
        ("ibv_open_device", ctypes.c_void_p, [ctypes.c_void_p]),
        ("ibv_alloc_pd", ctypes.c_void_p, [ctypes.c_void_p]),
        ("ibv_dealloc_pd", ctypes.c_int, [ctypes.c_void_p]),
        ("ibv_reg_mr", ctypes.c_void_p,
         [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]),
        ("ibv_dereg_mr", ctypes.c_int, [ctypes.c_void_p]),
        ("recorder_calls", ctypes.c_uint, [ctypes.c_int]),
        ("recorder_open_mrs", ctypes.c_uint, [])):
    getattr(verbs, name).restype = result
    getattr(verbs, name).argtypes = arguments


class Tensors:
    def __init__(self):
        import torch
        self.torch = torch
        torch.cuda.init()

    def make(self, mib):
        return self.torch.ones(mib * MIB // 4, device="cuda")

    def place(self, tensor):
        return tensor.data_ptr(), tensor.nbytes

    def end(self, tensors):
        tensors.clear()
        self.torch.cuda.empty_cache()


class Allocations:
    def __init__(self):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        context = ctypes.c_void_p()
        self.cuda.cuInit(0)
        self.cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
        self.cuda.cuCtxSetCurrent(context)

    def make(self, mib):
        address = ctypes.c_uint64()
        if self.cuda.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib * MIB)) != 0:
            sys.exit("cuMemAlloc failed")
        return address.value, mib * MIB

    def place(self, allocation):
        return allocation

    def end(self, allocations):
        for address, _ in allocations:
            self.cuda.cuMemFree_v2(ctypes.c_uint64(address))
        allocations.clear()


def register(domain, place):
    mr = verbs.ibv_reg_mr(domain, place[0], place[1], ACCESS)
    if not mr:
        return False
    if verbs.ibv_dereg_mr(mr) != 0:
        sys.exit("ibv_dereg_mr failed")
    return True


def main():
    torch = sys.argv[1:] != ["driver"] and importlib.util.find_spec("torch")
    memory = Tensors() if torch else Allocations()
    domain = verbs.ibv_alloc_pd(verbs.ibv_open_device(verbs.ibv_get_device_list(None)[0]))
    right = True
    for turn in (1, 2):
        kept = [memory.make(mib) for mib in (2, 20, 30, 64)]
        refused = sum(not register(domain, memory.place(one)) for one in kept for _ in range(TIMES))
        if refused:
            print(f"refused: {refused} of {TIMES * len(kept)}")
            return
        right &= verbs.recorder_calls(REG_DMABUF_MR) <= turn * len(kept)
        right &= verbs.recorder_open_mrs() > 0
        memory.end(kept)
        right &= verbs.recorder_open_mrs() == 0
    right &= verbs.ibv_dealloc_pd(domain) == 0
    print(f"{type(memory).__name__}: {2 * TIMES * 4} times registered, "
          f"{verbs.recorder_calls(REG_DMABUF_MR)} registrations, "
          f"{verbs.recorder_calls(DEREG_MR)} ended with their memory: "
          f"{'right' if right else 'WRONG'}")
    sys.exit(not right)


main()
