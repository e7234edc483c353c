/* SPDX-License-Identifier: MIT */
/*
 * Functions that were in a library of their own, libpthread.so.0, before glibc 2.34: see pthread.h.
 * The names have the versions that they had there, which later releases keep. So the library can be
 * loaded by old and new releases, whichever it was built with; and as the references are weak, in a
 * process without libpthread, too.
 */
#if defined(__x86_64__)
#define FIRST	GLIBC_2.2.5
#define CANCEL	GLIBC_2.3.3
#define SETNAME GLIBC_2.12
#else
#define FIRST	GLIBC_2.17
#define CANCEL	GLIBC_2.17
#define SETNAME GLIBC_2.17
#endif

#include <features.h>

/*
 * Where they are in libpthread still, the linker need not find them, and then gives them no
 * version, which is as good. The runtime of a sanitizer has to see these calls.
 */
#if !__GLIBC_PREREQ(2, 34) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define VERSIONED(name, version)
#define REFERENCE(name) name
#else
#define VERSIONED(name, version) .symver old_##name, name@version
#define REFERENCE(name)		 old_##name
#endif

#define FUNCTION(name, version)  \
	.weak REFERENCE(name);   \
	VERSIONED(name, version); \
	.quad REFERENCE(name)

	/* In the order of struct pdn_pthread. */
	.section .data.rel.ro, "aw", %progbits
	.globl	pdn_pthread
	.hidden	pdn_pthread
	.type	pdn_pthread, %object
	.p2align 3
pdn_pthread:
	FUNCTION(pthread_once, FIRST)
	FUNCTION(pthread_create, FIRST)
	FUNCTION(pthread_setname_np, SETNAME)
	FUNCTION(pthread_key_create, FIRST)
	FUNCTION(pthread_setspecific, FIRST)
	FUNCTION(__pthread_register_cancel, CANCEL)
	FUNCTION(__pthread_unregister_cancel, CANCEL)
	FUNCTION(__pthread_unwind_next, CANCEL)
	.size	pdn_pthread, . - pdn_pthread

	.section .note.GNU-stack, "", %progbits
