# SPDX-License-Identifier: MIT
"""pindown for Spack: spack repo add packaging/spack; spack dev-build pindown@0.2"""

from spack.package import *


class Pindown(MakefilePackage):
    """Registration cache for GPU memory that is driven by the driver calls that free it.

    It lets unmodified CUDA programs use GPUDirect RDMA. The kernel module is not built: its source
    for DKMS is in the prefix, in src/.
    """

    homepage = "https://example.org/pindown"

    license("MIT")

    # There is no archive to download yet: dev-build, or a mirror with the file of `make dist`.
    manual_download = True

    version("0.2")

    variant("symbols", default=True, description="Names in call stacks, by elfutils")
    variant("verbs", default=True, description="pindown doctor --try registers with libibverbs")

    depends_on("c", type="build")
    depends_on("gmake", type="build")
    depends_on("elfutils", when="+symbols")
    depends_on("elf@1", when="~symbols")
    depends_on("rdma-core", when="+verbs")

    requires("platform=linux", msg="pindown is a preload for glibc on Linux")
    conflicts("target=x86", msg="there are no 32-bit programs of CUDA any more")

    def _options(self):
        # ALL: neither the tests nor the simulated driver is built. What a variant leaves out is not
        # used either where the machine has it.
        without = {"~symbols": "with_dw=", "~verbs": "with_verbs="}
        return [option for spec, option in without.items() if self.spec.satisfies(spec)] + [
            "ALL=build/libpindown.so build/pindown",
            "PREFIX={0}".format(self.prefix),
            "LIBDIR={0}".format(self.prefix.lib),
            "CC={0}".format(spack_cc),
        ]

    def build(self, spec, prefix):
        make("all", *self._options())

    def install(self, spec, prefix):
        make("install", *self._options())

    @run_after("install")
    @on_package_attributes(run_tests=True)
    def check_install(self):
        Executable(self.prefix.bin.pindown)("--version")
