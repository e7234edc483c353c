/* SPDX-License-Identifier: MIT */
/* The one place where pindown enters the kernel. Tests put a function of their own before it. */
#include "cache/base/process/system.h"

#if defined(__x86_64__)
long pdn_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long fourth __asm__("r10") = d;
	register long fifth __asm__("r8") = e;
	register long sixth __asm__("r9") = f;

	__asm__ volatile("syscall"
			 : "+a"(number)
			 : "D"(a), "S"(b), "d"(c), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "rcx", "r11", "memory");
	return number;
}
#elif defined(__aarch64__)
long pdn_system_call(long number, long a, long b, long c, long d, long e, long f)
{
	register long which __asm__("x8") = number;
	register long first __asm__("x0") = a;
	register long second __asm__("x1") = b;
	register long third __asm__("x2") = c;
	register long fourth __asm__("x3") = d;
	register long fifth __asm__("x4") = e;
	register long sixth __asm__("x5") = f;

	__asm__ volatile("svc 0"
			 : "+r"(first)
			 : "r"(which), "r"(second), "r"(third), "r"(fourth), "r"(fifth), "r"(sixth)
			 : "memory");
	return first;
}
#else
#error "how does this processor make a system call?"
#endif
