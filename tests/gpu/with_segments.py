# SPDX-License-Identifier: MIT
"""with_segments.py train | capable | sleep: memory that is mapped piece by piece, under pindown.

train    PyTorch with expandable segments: a training loop that registers each gradient when it is
         there. Prints, for each step, how many tensors were registered, and how many registrations
         pindown made for that.
capable  Memory of cuMemCreate without and with gpuDirectRDMACapable: is it created, exported,
         registered? With PINDOWN_RDMA_CAPABLE=1 there must be no difference.
sleep    Memory is unmapped and released, and later created and mapped at the same address, as
         torch_memory_saver does it, while one registration of it is held.

capable and sleep need no PyTorch, and work on the simulated driver too. Exits 1 with a line that
begins with FAILED if something is not as it must be.
"""
import ctypes
import os
import sys

import buffers

MIB = 1 << 20
PIECE = 2 * MIB
RDMA_WITH_VMM = 110  # CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
BUFFER_ID, CAPABLE = 7, 15  # CU_POINTER_ATTRIBUTE_...
GET_CACHED = 1  # PINDOWN_GET_CACHED

problems = 0


def expect(right, text):
    global problems
    if not right:
        problems += 1
        print(f"FAILED: {text}")


# ---- the driver ----------------------------------------------------------------------------------

class Location(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("id", ctypes.c_int)]


class Properties(ctypes.Structure):
    _fields_ = [("type", ctypes.c_int), ("handle_types", ctypes.c_int), ("location", Location),
                ("win32", ctypes.c_void_p), ("compression", ctypes.c_ubyte),
                ("rdma_capable", ctypes.c_ubyte), ("usage", ctypes.c_ushort),
                ("reserved", ctypes.c_ubyte * 4)]


class Access(ctypes.Structure):
    _fields_ = [("location", Location), ("flags", ctypes.c_int)]


ON_DEVICE = Location(1, 0)  # CU_MEM_LOCATION_TYPE_DEVICE, device 0
cuda = ctypes.CDLL("libcuda.so.1")
address, size_t, u64 = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_uint64


def must(result, call):
    if result != 0:
        sys.exit(f"FAILED: {call}: {result}")


def begin():
    context = ctypes.c_void_p()
    must(cuda.cuInit(0), "cuInit")
    must(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), "cuDevicePrimaryCtxRetain")
    must(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")


def device_attribute(attribute):
    value = ctypes.c_int(-1)
    cuda.cuDeviceGetAttribute(ctypes.byref(value), attribute, 0)
    return value.value


def pointer_attribute(attribute, at):
    """None if the driver has no answer."""
    value = u64(0)
    result = cuda.cuPointerGetAttribute(ctypes.byref(value), attribute, address(at))
    return value.value if result == 0 else None


def free_bytes():
    free, total = size_t(), size_t()
    must(cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total)), "cuMemGetInfo")
    return free.value


def reserve(size):
    at = address()
    must(cuda.cuMemAddressReserve(ctypes.byref(at), size_t(size), size_t(0), address(0), u64(0)),
         "cuMemAddressReserve")
    return at.value


def create(size, rdma_capable):
    """The result, and the handle."""
    properties = Properties(type=1, location=ON_DEVICE, rdma_capable=rdma_capable)
    handle = u64()
    result = cuda.cuMemCreate(ctypes.byref(handle), size_t(size), ctypes.byref(properties), u64(0))
    expect(properties.rdma_capable == rdma_capable, "the program's own properties were changed")
    return result, handle.value


def map_at(at, size, handle):
    access = Access(ON_DEVICE, 3)  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    must(cuda.cuMemMap(address(at), size_t(size), size_t(0), u64(handle), u64(0)), "cuMemMap")
    must(cuda.cuMemSetAccess(address(at), size_t(size), ctypes.byref(access), size_t(1)),
         "cuMemSetAccess")


def unmap(at, size, handles):
    must(cuda.cuMemUnmap(address(at), size_t(size)), "cuMemUnmap")
    for handle in handles:
        must(cuda.cuMemRelease(u64(handle)), "cuMemRelease")


def export(at, size):
    """The driver's result."""
    descriptor = ctypes.c_int(-1)
    result = cuda.cuMemGetHandleForAddressRange(ctypes.byref(descriptor), address(at),
                                                size_t(size), 1, u64(0))
    if result == 0:
        os.close(descriptor.value)
    return result


# ---- pindown -------------------------------------------------------------------------------------

pindown = buffers.PINDOWN


def stats():
    now = buffers.Stats()
    pindown.pindown_stats(ctypes.byref(now), ctypes.sizeof(now), -1)
    return now


def get(at, size, flags=0):
    """The result, and the region."""
    region = ctypes.c_void_p()
    return pindown.pindown_get(at, size, flags, ctypes.byref(region)), region


def register(at, size):
    """The result; the region stays in the cache."""
    result, region = get(at, size)
    if result == 0:
        pindown.pindown_put(region)
    return result


# ---- train ---------------------------------------------------------------------------------------

STEPS, PAIRS = 30, 20


def model():
    """40 weights of 3 MiB."""
    import torch
    layers = []
    for _ in range(PAIRS):
        layers += [torch.nn.Linear(1024, 768), torch.nn.ReLU(), torch.nn.Linear(768, 1024)]
    return torch.nn.Sequential(*layers).cuda()


def train():
    import random
    import torch
    torch.manual_seed(1)
    lengths, net, sent = random.Random(1), model(), []

    def send(parameter):
        gradient = parameter.grad
        result = register(gradient.data_ptr(), gradient.nbytes)
        expect(result == 0, f"a tensor could not be registered: {result}")
        sent.append(gradient.nbytes)

    for parameter in net.parameters():
        parameter.register_post_accumulate_grad_hook(send)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    print("step  tensors registered   MiB  registrations made   pinned MiB  reserved MiB")
    first = before = stats()
    late = [0, 0]
    for step in range(1, STEPS + 1):
        data = torch.randn(16 * lengths.randint(1, 64), 1024, device="cuda")
        optimizer.zero_grad(set_to_none=True)
        net(data).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        now, reserved = stats(), torch.cuda.memory_reserved()
        pins = now.pins - before.pins
        print(f"{step:4}  {len(sent):18}  {sum(sent) >> 20:4}  {pins:18}  "
              f"{now.bytes >> 20:11}  {reserved >> 20:12}")
        expect(now.bytes - now.kept_bytes <= reserved, "more is pinned than PyTorch has")
        if step > STEPS // 2:
            late = [late[0] + len(sent), late[1] + pins]
        before = now
        sent.clear()
    sample = next(net.parameters()).data_ptr()
    capable, wanted = pointer_attribute(CAPABLE, sample), device_attribute(RDMA_WITH_VMM)
    last = stats()
    print(f"{last.pins - first.pins} registrations made in {STEPS} steps, {late[1]} of them in the "
          f"second half, in which {late[0]} tensors were registered")
    print(f"PyTorch's memory is GPUDirect RDMA capable: {capable} (device: {wanted})")
    expect(late[1] <= late[0] / 20, "the registrations do not converge")
    expect(last.missed_invalidations == 0, f"{last.missed_invalidations} frees were missed")
    if os.environ.get("PINDOWN_RDMA_CAPABLE") == "1" and wanted == 1:
        expect(capable == 1, "PINDOWN_RDMA_CAPABLE did not reach PyTorch's memory")


# ---- capable -------------------------------------------------------------------------------------

def properties_of(flag):
    """What happens to memory that is created with or without the flag."""
    created, handle = create(PIECE, flag)
    if created != 0:
        return {"created": created}
    at = reserve(PIECE)
    map_at(at, PIECE, handle)
    found = {"created": 0, "capable": pointer_attribute(CAPABLE, at), "exported": export(at, PIECE),
             "registered": register(at, PIECE)}
    unmap(at, PIECE, [handle])
    must(cuda.cuMemAddressFree(address(at), size_t(PIECE)), "cuMemAddressFree")
    return found


def capable():
    begin()
    device = device_attribute(RDMA_WITH_VMM)
    option = os.environ.get("PINDOWN_RDMA_CAPABLE") == "1"
    plain, flagged = properties_of(0), properties_of(1)
    print(f"PINDOWN_RDMA_CAPABLE={int(option)}, the device can: {device}")
    print("results: 0 is success")
    print(f"without the flag: {plain}")
    print(f"with the flag:    {flagged}")
    expect(plain["created"] == 0, "memory without the flag can't be created")
    if option and device == 1 and flagged["created"] == 0:
        expect(plain == flagged, "the option makes no memory as the flag does")
    elif plain.get("exported") != 0 and flagged.get("exported") == 0:
        print("here PINDOWN_RDMA_CAPABLE=1 matters: such memory can't be exported without it")


# ---- sleep ---------------------------------------------------------------------------------------

ROUNDS, PIECES = 200, 4


def wake(at):
    handles = []
    for piece in range(PIECES):
        created, handle = create(PIECE, 0)
        must(created, "cuMemCreate")
        map_at(at + piece * PIECE, PIECE, handle)
        handles.append(handle)
    return handles


def region_of_now(at, size):
    """A region that is held; it must be of the memory that is there."""
    result, region = get(at, size)
    if result != 0:
        sys.exit(f"FAILED: pindown_get: {result}")
    base = pindown.pindown_region_base(region)
    expect(pindown.pindown_region_buffer_id(region) == pointer_attribute(BUFFER_ID, base),
           "a get has found the memory of an earlier round")
    return region


def sleep():
    begin()
    for name, result in (("pindown_region_buffer_id", ctypes.c_uint64),
                         ("pindown_region_base", ctypes.c_uint64),
                         ("pindown_region_is_live", ctypes.c_int)):
        getattr(pindown, name).restype = result
        getattr(pindown, name).argtypes = [ctypes.c_void_p]
    at = reserve(PIECES * PIECE)
    before = None
    for _ in range(ROUNDS):
        handles = wake(at)
        across = region_of_now(at + MIB, PIECE)
        pindown.pindown_put(region_of_now(at + 3 * PIECE, 4096))
        unmap(at, PIECES * PIECE, handles)
        expect(not pindown.pindown_region_is_live(across), "a region is live in its sleep")
        expect(get(at + MIB, 4096, GET_CACHED)[0] != 0, "a region is found in its sleep")
        pindown.pindown_put(across)
        expect(stats().bytes == 0, f"{stats().bytes} bytes are pinned while the memory sleeps")
        before = before or free_bytes()
    must(cuda.cuMemAddressFree(address(at), size_t(PIECES * PIECE)), "cuMemAddressFree")
    missing = before - free_bytes()
    expect(missing <= 32 * MIB, f"{missing} bytes of the device's memory did not come back")
    last = stats()
    expect(last.missed_invalidations == 0, f"{last.missed_invalidations} frees were missed")
    print(f"{ROUNDS} rounds of sleep and wake: {last.pins} registrations, "
          f"{last.invalidations} ended with their memory, {max(missing, 0)} bytes missing")


def main():
    parts = {"train": train, "capable": capable, "sleep": sleep}
    if len(sys.argv) != 2 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    if pindown is None or not stats().intercepting:
        sys.exit("FAILED: libpindown.so is not preloaded")
    parts[sys.argv[1]]()
    sys.exit(problems != 0)


main()
