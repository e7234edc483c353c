#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""NCCL over the software card (tests/softnic): two processes, a GPU each if there are two.

Each process poses as a host of its own, so that NCCL registers GPU memory with the card, by
dma-bufs that it exports. The bytes of each operation are compared. Then buffers that the program
has registered (ncclCommRegister) are freed before they are deregistered, and others are allocated,
which the driver tends to put at the same addresses; NCCL believes them to be the old ones.

Prints one line for each fact, of both ranks: "0: all_reduce 4096: right". The exit status is 0 when
each operation before the early free was right, whatever happens after it; check-card judges that.
"""
import argparse
import ctypes
import os
import subprocess
import sys
import tempfile
import time

PATIENCE = 30  # seconds, for an operation that takes less than one
SUM, FLOAT, IN_PROGRESS = 0, 7, 7
RESULTS = {0: "success", 1: "CUDA error", 2: "system error", 3: "internal error",
           4: "invalid argument", 5: "invalid usage", 6: "remote error", 7: "in progress"}


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_char * 128)]


class Failed(Exception):
    """NCCL's own error for an operation."""


class Communicator:
    def __init__(self, rank, id_file, torch):
        self.rank, self.torch = rank, torch
        self.nccl = ctypes.CDLL("libnccl.so.2")  # PyTorch has loaded it
        self.handle = ctypes.c_void_p()
        unique = self.exchange_id(id_file)
        self.check(self.nccl.ncclCommInitRank(ctypes.byref(self.handle), 2, unique, rank))

    def exchange_id(self, id_file):
        unique = UniqueId()
        if self.rank == 0:
            self.check(self.nccl.ncclGetUniqueId(ctypes.byref(unique)))
            with open(id_file + ".part", "wb") as file:
                file.write(bytes(unique))
            os.rename(id_file + ".part", id_file)
        while not os.path.exists(id_file):
            time.sleep(0.05)
        with open(id_file, "rb") as file:
            return UniqueId.from_buffer_copy(file.read())

    def check(self, result):
        if result not in (0, IN_PROGRESS):
            raise Failed(RESULTS.get(result, str(result)))

    def stream(self):
        return self.torch.cuda.current_stream()

    def wait(self):
        """Until the operation has ended, or NCCL says that it can't."""
        end = time.monotonic() + PATIENCE
        error = ctypes.c_int()
        while not self.stream().query():
            self.check(self.nccl.ncclCommGetAsyncError(self.handle, ctypes.byref(error)))
            self.check(error.value)
            if time.monotonic() > end:
                raise Failed("no end")
            time.sleep(0.001)

    def all_reduce(self, tensor):
        self.check(self.nccl.ncclAllReduce(
            ctypes.c_void_p(tensor.data_ptr()), ctypes.c_void_p(tensor.data_ptr()),
            ctypes.c_size_t(tensor.numel()), FLOAT, SUM, self.handle,
            ctypes.c_void_p(self.stream().cuda_stream)))
        self.wait()

    def exchange(self, sent, received):
        peer = 1 - self.rank
        stream = ctypes.c_void_p(self.stream().cuda_stream)
        self.check(self.nccl.ncclGroupStart())
        self.check(self.nccl.ncclSend(ctypes.c_void_p(sent.data_ptr()),
                                      ctypes.c_size_t(sent.numel()), FLOAT, peer, self.handle,
                                      stream))
        self.check(self.nccl.ncclRecv(ctypes.c_void_p(received.data_ptr()),
                                      ctypes.c_size_t(received.numel()), FLOAT, peer, self.handle,
                                      stream))
        self.check(self.nccl.ncclGroupEnd())
        self.wait()

    def register(self, tensor):
        handle = ctypes.c_void_p()
        self.check(self.nccl.ncclCommRegister(
            self.handle, ctypes.c_void_p(tensor.data_ptr()), ctypes.c_size_t(tensor.nbytes),
            ctypes.byref(handle)))
        return handle

    def deregister(self, handle):
        self.check(self.nccl.ncclCommDeregister(self.handle, handle))

    def end(self):
        self.check(self.nccl.ncclCommDestroy(self.handle))


class Rank:
    def __init__(self, rank, id_file):
        import torch
        self.rank, self.torch, self.wrong = rank, torch, 0
        torch.cuda.set_device(rank % torch.cuda.device_count())
        torch.zeros(1, device="cuda")
        version = torch.cuda.nccl.version()
        self.fact(f"NCCL {'.'.join(map(str, version))}, {torch.cuda.device_count()} GPU(s)")
        self.comm = Communicator(rank, id_file, torch)

    def fact(self, text):
        print(f"{self.rank}: {text}", flush=True)

    def filled(self, count, seed):
        """Different bytes everywhere, and exact in 32 bits."""
        return (self.torch.arange(count, device="cuda", dtype=self.torch.float32) % 1021) + seed

    def same(self, tensor, expected):
        return bool((tensor == expected).all().item())

    def judge(self, what, right):
        self.wrong += not right
        self.fact(f"{what}: {'right' if right else 'WRONG'}")

    def before(self):
        for count in (1, 1024, 65536, 1 << 20, 3 << 20):
            tensor = self.filled(count, self.rank)
            self.comm.all_reduce(tensor)
            self.judge(f"all_reduce {tensor.nbytes}",
                       self.same(tensor, 2 * self.filled(count, 0) + 1))
            sent, received = self.filled(count, 10 + self.rank), self.filled(count, 20)
            self.comm.exchange(sent, received)
            self.judge(f"send/recv {sent.nbytes}",
                       self.same(received, self.filled(count, 11 - self.rank)))

    def registered(self, count, seed):
        """A registered buffer each to send and to receive; its bytes after an exchange."""
        buffers = [self.torch.empty(count, device="cuda") for _ in range(2)]
        for buffer, first in zip(buffers, (seed + self.rank, 99)):
            buffer.copy_(self.filled(count, first))
        self.torch.cuda.synchronize()
        handles = [self.comm.register(buffer) for buffer in buffers]
        return buffers, handles

    def free_memory(self):
        self.torch.cuda.synchronize()
        return self.torch.cuda.mem_get_info()[0]

    def early_free(self, count):
        expected = self.filled(count, 31 - self.rank)
        buffers, handles = self.registered(count, 30)
        self.comm.exchange(*buffers)
        self.judge("registered send/recv", self.same(buffers[1], expected))
        addresses = [buffer.data_ptr() for buffer in buffers]
        size = sum(buffer.nbytes for buffer in buffers)
        left = self.free_memory()
        del buffers  # freed; NCCL was not told
        back = self.free_memory() - left
        self.fact(f"came back: {'yes' if back >= size else 'no'}")
        try:
            buffers, more = self.registered(count, 40)
            self.fact("same address: " + ("yes" if sorted(addresses) == sorted(
                buffer.data_ptr() for buffer in buffers) else "no"))
            self.comm.exchange(*buffers)
            expected = self.filled(count, 41 - self.rank)
            self.fact("second: " + ("arrived" if self.same(buffers[1], expected) else
                                    "WRONG BYTES"))
            for handle in handles + more:
                self.comm.deregister(handle)
        except Failed as failed:
            self.fact(f"second: {failed}")
            self.leave()

    def run(self, early):
        self.before()
        if early:
            self.early_free(1 << 20)
        self.comm.end()
        return 1 if self.wrong else 0

    def leave(self):
        """NCCL's kernel waits for the other rank for ever, and a free would wait for the kernel."""
        ctypes.CDLL("libibverbs.so.1").softnic_report_counts()
        os._exit(1 if self.wrong else 0)


def start(rank, id_file, early):
    env = dict(os.environ, NCCL_HOSTID=f"card-test-host-{rank}", NCCL_P2P_DISABLE="1",
               NCCL_SHM_DISABLE="1", NCCL_NVLS_ENABLE="0", NCCL_NET="IB", NCCL_NET_GDR_LEVEL="SYS",
               NCCL_NET_GDR_READ="1", NCCL_SOCKET_IFNAME="lo", NCCL_IB_HCA="softnic_test",
               PYTORCH_NO_CUDA_MEMORY_CACHING="1")
    # NCCL 2.28 looks for networking that the GPU drives, and crashes if no device is a ConnectX.
    env["NCCL_GIN_TYPE"] = "0"
    # The card's registrations of a rank have a log of their own.
    if os.environ.get("SOFTNIC_LOG"):
        env["SOFTNIC_LOG"] = f"{os.environ['SOFTNIC_LOG']}.{rank}"
    if os.environ.get("CARD_PRELOAD"):
        env["LD_PRELOAD"] = os.environ["CARD_PRELOAD"]
    arguments = [sys.executable, __file__, "--rank", str(rank), "--id-file", id_file]
    return subprocess.Popen(arguments + (["--early"] if early else []), env=env)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--early", action="store_true", help="free registered buffers early")
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--id-file", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.rank is not None:
        return Rank(arguments.rank, arguments.id_file).run(arguments.early)
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start(rank, os.path.join(folder, "id"), arguments.early) for rank in range(2)]
        return max(abs(rank.wait()) for rank in ranks)


if __name__ == "__main__":
    sys.exit(main())
