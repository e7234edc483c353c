/* SPDX-License-Identifier: MIT */
/* The calls that nasty_card.c passes on as they are. They take integers and pointers only. */
void *nasty_real(const char *name);

#define PASS_ON(name)                                              \
	long name(long a, long b, long c, long d, long e, long f); \
	long name(long a, long b, long c, long d, long e, long f)  \
	{                                                          \
		long (*call)(long, long, long, long, long, long);  \
                                                                   \
		*(void **)&call = nasty_real(#name);               \
		return call(a, b, c, d, e, f);                     \
	}

PASS_ON(ibv_get_device_list)
PASS_ON(ibv_get_device_name)
PASS_ON(ibv_query_device)
PASS_ON(ibv_query_gid)
PASS_ON(ibv_alloc_pd)
PASS_ON(ibv_reg_mr)
PASS_ON(ibv_dereg_mr)
PASS_ON(ibv_destroy_cq)
PASS_ON(ibv_destroy_qp)
PASS_ON(ibv_dealloc_pd)
PASS_ON(ibv_close_device)
PASS_ON(ibv_create_cq)
PASS_ON(ibv_modify_qp)
