/* SPDX-License-Identifier: MIT */
/*
 * Prints the layout of structures; built with pindown's declarations and with rdma-core's, it must
 * print the same.
 */
#include <stddef.h>
#include <stdio.h>

#ifdef REAL
#include <infiniband/verbs.h>
#define OP(name, index)	   offsetof(struct ibv_context, ops.name)
#define EX(name, index)	   offsetof(struct verbs_context, name)
#define WHOLE(member)	   offsetof(struct verbs_context, member)
#define IN_CONTEXT(member) offsetof(struct ibv_context, member)
#define DEVICE(member)	   offsetof(struct ibv_device, member)
#define SIZE_OF_WHOLE	   sizeof(struct verbs_context)
#else
#include "recorder_parts.h"
#define OP(name, index) \
	offsetof(struct recorder_context, ops[index]) - offsetof(struct recorder_context, device)
#define EX(name, index) offsetof(struct recorder_context, ex[index])
#define WHOLE(member)	offsetof(struct recorder_context, member)
#define IN_CONTEXT(member) \
	offsetof(struct recorder_context, member) - offsetof(struct recorder_context, device)
#define DEVICE(member) offsetof(struct ibv_device, member)
#define SIZE_OF_WHOLE  sizeof(struct recorder_context)
#endif

#define NUMBER(x)      printf("%s %lld\n", #x, (long long)(x))
#define PLACE(name, x) printf("%s %zu\n", name, (size_t)(x))

int main(void)
{
	NUMBER(sizeof(struct ibv_pd));
	NUMBER(offsetof(struct ibv_pd, context));
	NUMBER(offsetof(struct ibv_pd, handle));
	NUMBER(sizeof(struct ibv_mr));
	NUMBER(offsetof(struct ibv_mr, context));
	NUMBER(offsetof(struct ibv_mr, pd));
	NUMBER(offsetof(struct ibv_mr, addr));
	NUMBER(offsetof(struct ibv_mr, length));
	NUMBER(offsetof(struct ibv_mr, handle));
	NUMBER(offsetof(struct ibv_mr, lkey));
	NUMBER(offsetof(struct ibv_mr, rkey));
	NUMBER(offsetof(struct ibv_context, device));
	NUMBER(IBV_ACCESS_LOCAL_WRITE);
	NUMBER(IBV_ACCESS_REMOTE_WRITE);
	NUMBER(IBV_ACCESS_REMOTE_READ);
	NUMBER(IBV_ACCESS_REMOTE_ATOMIC);
	NUMBER(IBV_ACCESS_MW_BIND);
	NUMBER(IBV_ACCESS_ZERO_BASED);
	NUMBER(IBV_ACCESS_ON_DEMAND);
	NUMBER(IBV_ACCESS_HUGETLB);
	NUMBER(IBV_ACCESS_RELAXED_ORDERING);
	NUMBER(IBV_ACCESS_OPTIONAL_RANGE);
	NUMBER(IBV_REREG_MR_CHANGE_TRANSLATION);
	NUMBER(IBV_REREG_MR_CHANGE_PD);
	NUMBER(IBV_REREG_MR_CHANGE_ACCESS);
	NUMBER(IBV_REREG_MR_ERR_INPUT);
	NUMBER(IBV_REREG_MR_ERR_CMD);
	PLACE("alloc_mw", OP(alloc_mw, RECORDER_OP_ALLOC_MW));
	PLACE("bind_mw", OP(bind_mw, RECORDER_OP_BIND_MW));
	PLACE("dealloc_mw", OP(dealloc_mw, RECORDER_OP_DEALLOC_MW));
	PLACE("cmd_fd", IN_CONTEXT(cmd_fd));
	PLACE("abi_compat", IN_CONTEXT(abi_compat));
	PLACE("advise_mr", EX(advise_mr, RECORDER_EX_ADVISE_MR));
	PLACE("alloc_null_mr", EX(alloc_null_mr, RECORDER_EX_ALLOC_NULL_MR));
	PLACE("sz", WHOLE(sz));
	PLACE("whole context", SIZE_OF_WHOLE);
	PLACE("device's name", DEVICE(name));
	return 0;
}
