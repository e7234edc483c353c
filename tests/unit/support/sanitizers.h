/* SPDX-License-Identifier: MIT */
/* Which sanitizer this file is compiled for: 0 or 1 each, by gcc and by clang. */
#ifndef SANITIZERS_H
#define SANITIZERS_H

#if defined(__SANITIZE_ADDRESS__)
#define UNDER_ASAN 1
#elif defined(__has_feature)
#define UNDER_ASAN __has_feature(address_sanitizer)
#else
#define UNDER_ASAN 0
#endif

#if defined(__SANITIZE_THREAD__)
#define UNDER_TSAN 1
#elif defined(__has_feature)
#define UNDER_TSAN __has_feature(thread_sanitizer)
#else
#define UNDER_TSAN 0
#endif

/* Their runtimes map memory, start threads and take locks of their own. */
#define UNDER_SANITIZER (UNDER_ASAN || UNDER_TSAN)

#endif
