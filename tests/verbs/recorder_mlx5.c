/* SPDX-License-Identifier: MIT */
/* The recording libmlx5: its calls, which the recording libibverbs does for it. */
#include <string.h>

#include "recorder_parts.h"

#define ALL_PAGE_SIZES (UINT64_MAX & ~4095ull)

/* By this libmlx5 is known. */
EXPORT bool mlx5dv_is_supported(struct ibv_device *device)
{
	return device != NULL;
}

EXPORT struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length,
					   uint64_t iova, int fd, int access, int mlx5_access)
{
	struct recorder_call call = {.verb = RECORDER_MLX5_REG_DMABUF_MR,
				     .addr = offset,
				     .length = length,
				     .iova = iova,
				     .access = access,
				     .fd = fd,
				     .flags = (unsigned)mlx5_access};

	return recorder_reg_dmabuf(&call, pd);
}

EXPORT struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg(struct ibv_context *context, void *addr,
						     size_t size, uint32_t access)
{
	const struct mlx5dv_devx_umem_in in = {
		.addr = addr, .size = size, .access = access, .pgsz_bitmap = ALL_PAGE_SIZES};

	return recorder_umem_reg(RECORDER_UMEM_REG, context, &in);
}

EXPORT struct mlx5dv_devx_umem *mlx5dv_devx_umem_reg_ex(struct ibv_context *context,
							struct mlx5dv_devx_umem_in *in)
{
	return recorder_umem_reg(RECORDER_UMEM_REG_EX, context, in);
}

EXPORT int mlx5dv_devx_umem_dereg(struct mlx5dv_devx_umem *umem)
{
	return recorder_umem_dereg(umem);
}

/* As libmlx5, it reads the structure that the program's umem is in. */
EXPORT int mlx5dv_devx_umem_export(struct mlx5dv_devx_umem *umem, void *data)
{
	const struct pdn_mlx5_umem *whole = (const void *)umem;
	const uint32_t exported[2] = {whole->handle, umem->umem_id};

	memcpy(data, exported, sizeof(exported));
	return 0;
}
