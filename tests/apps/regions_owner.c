/* SPDX-License-Identifier: MIT */
/*
 * Cases whose memory ends with its owner: a context, a module, an import, another process's handle.
 */
#define _GNU_SOURCE
#include "regions.h"

#include <dlfcn.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1024u * 1024u)

extern char **environ;

/* ---- contexts ------------------------------------------------------------------------------- */

static bool allocate(void)
{
	s.size = 4 * MIB;
	return OK(cuMemAlloc_v2(&s.at, s.size));
}

static bool in_own_context(void)
{
	return OK(cuCtxCreate_v2(&s.context, 0, s.device)) && allocate();
}

static bool beside_own_context(void)
{
	return OK(cuCtxCreate_v2(&s.context, 0, s.device)) && OK(cuCtxSetCurrent(s.primary)) &&
	       allocate();
}

/* Pools belong to the device: no context ends their memory. */
static bool async_in_own_context(void)
{
	s.size = 4 * MIB;
	return OK(cuCtxCreate_v2(&s.context, 0, s.device)) &&
	       OK(cuMemAllocAsync(&s.at, s.size, NULL)) && OK(cuStreamSynchronize(NULL));
}

static bool destroy_context(void)
{
	return OK(cuCtxDestroy_v2(s.context)) && OK(cuCtxSetCurrent(s.primary));
}

static bool attach_and_detach(void)
{
	CUcontext same;

	return OK(cuCtxAttach(&same, 0)) && OK(cuCtxDetach(s.context));
}

static bool detach_last(void)
{
	return OK(cuCtxDetach(s.context)) && OK(cuCtxSetCurrent(s.primary));
}

static void clean_context(void)
{
	cuCtxDestroy_v2(s.context);
	cuCtxSetCurrent(s.primary);
}

static void clean_memory(void)
{
	cuMemFree_v2(s.at);
}

static void clean_async(void)
{
	cuMemFreeAsync(s.at, NULL);
	cuStreamSynchronize(NULL);
}

static bool retain_and_release(void)
{
	CUcontext same;

	return OK(cuDevicePrimaryCtxRetain(&same, s.device)) &&
	       OK(cuDevicePrimaryCtxRelease_v2(s.device));
}

/* The last release ends the context; the following cases retain it again. */
static bool release_to_zero(void)
{
	return OK(cuDevicePrimaryCtxRelease_v2(s.device));
}

static bool reset(void)
{
	return OK(cuDevicePrimaryCtxReset_v2(s.device));
}

static bool reset_v1(void)
{
	return OK(cuDevicePrimaryCtxReset(s.device));
}

static void clean_released(void)
{
	cuDevicePrimaryCtxRetain(&s.primary, s.device);
	cuCtxSetCurrent(s.primary);
}

/* Two devices: an end on one does not affect the other. */
static bool beside_other_device(void)
{
	CUcontext context;
	CUdevice other;

	return OK(cuDeviceGet(&other, 1)) && OK(cuDevicePrimaryCtxRetain(&context, other)) &&
	       allocate();
}

static bool release_other_device(void)
{
	return OK(cuDevicePrimaryCtxRelease_v2(1));
}

static bool reset_other_device(void)
{
	return OK(cuDevicePrimaryCtxReset_v2(1));
}

static bool on_other_device(void)
{
	CUcontext context;
	CUdevice other;

	return OK(cuDeviceGet(&other, 1)) && OK(cuDevicePrimaryCtxRetain(&context, other)) &&
	       OK(cuCtxSetCurrent(context)) && allocate() && OK(cuCtxSetCurrent(s.primary));
}

static void clean_reset_other(void)
{
	cuDevicePrimaryCtxRelease_v2(1);
	cuMemFree_v2(s.at);
}

static void clean_reset(void)
{
	cuDevicePrimaryCtxRelease_v2(s.device);
	clean_released();
}

static bool in_green_context(void)
{
	CUdevResource processors;
	CUdevResourceDesc desc;

	memset(&processors, 0, sizeof(processors));
	return OK(cuDeviceGetDevResource(s.device, &processors, CU_DEV_RESOURCE_TYPE_SM)) &&
	       OK(cuDevResourceGenerateDesc(&desc, &processors, 1)) &&
	       OK(cuGreenCtxCreate(&s.green, desc, s.device, CU_GREEN_CTX_DEFAULT_STREAM)) &&
	       OK(cuCtxFromGreenCtx(&s.context, s.green)) && OK(cuCtxSetCurrent(s.context)) &&
	       allocate();
}

static bool free_in_green_context(void)
{
	return OK(cuMemFree_v2(s.at));
}

static void clean_green(void)
{
	cuCtxSetCurrent(s.primary);
	cuGreenCtxDestroy(s.green);
}

/* ---- modules and libraries ------------------------------------------------------------------ */

static const char ptx[] = ".version 6.3\n"
			  ".target sm_75\n"
			  ".address_size 64\n"
			  ".visible .global .align 8 .b8 table[65536];\n"
			  ".visible .entry kernel() { ret; }\n";

static bool load_module(void)
{
	return OK(cuModuleLoadData(&s.module, ptx)) &&
	       OK(cuModuleGetGlobal_v2(&s.at, &s.size, s.module, "table"));
}

/* The program does not ask for the length, and registers a range within it. */
static bool load_module_without_size(void)
{
	s.size = 1000;
	return OK(cuModuleLoadData(&s.module, ptx)) &&
	       OK(cuModuleGetGlobal_v2(&s.at, NULL, s.module, "table"));
}

static bool unload_module(void)
{
	return OK(cuModuleUnload(s.module));
}

static bool load_library(void)
{
	return OK(cuLibraryLoadData(&s.library, ptx, NULL, NULL, 0, NULL, NULL, 0)) &&
	       OK(cuLibraryGetGlobal(&s.at, &s.size, s.library, "table"));
}

/* A module of a library that is reached only through the function of a kernel. */
static bool load_library_of_a_function(void)
{
	CUfunction function;
	CUkernel kernel;

	return OK(cuLibraryLoadData(&s.library, ptx, NULL, NULL, 0, NULL, NULL, 0)) &&
	       OK(cuLibraryGetKernel(&kernel, s.library, "kernel")) &&
	       OK(cuKernelGetFunction(&function, kernel)) &&
	       OK(cuFuncGetModule(&s.module, function)) &&
	       OK(cuModuleGetGlobal_v2(&s.at, &s.size, s.module, "table"));
}

/* The same for a module that cuLibraryGetModule returned. */
static bool load_library_and_its_module(void)
{
	return OK(cuLibraryLoadData(&s.library, ptx, NULL, NULL, 0, NULL, NULL, 0)) &&
	       OK(cuLibraryGetModule(&s.module, s.library)) &&
	       OK(cuModuleGetGlobal_v2(&s.at, &s.size, s.module, "table"));
}

static bool unload_library(void)
{
	return OK(cuLibraryUnload(s.library));
}

/* ---- external memory ------------------------------------------------------------------------ */

static bool import_external(void)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = s.device},
	};
	CUDA_EXTERNAL_MEMORY_BUFFER_DESC whole = {.size = 2 * MIB};
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {
		.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD,
		.size = 2 * MIB,
	};

	s.size = 2 * MIB;
	if (!OK(cuMemCreate(&s.handle, s.size, &prop, 0)) ||
	    !OK(cuMemExportToShareableHandle(&s.fd, s.handle,
					     CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0)))
		return false;
	desc.handle.fd = s.fd;
	return OK(cuImportExternalMemory(&s.external, &desc)) &&
	       OK(cuExternalMemoryGetMappedBuffer(&s.at, s.external, &whole));
}

static bool free_mapped_buffer(void)
{
	return OK(cuMemFree_v2(s.at));
}

static bool destroy_external(void)
{
	return OK(cuDestroyExternalMemory(s.external));
}

static void clean_external(void)
{
	cuDestroyExternalMemory(s.external);
	cuMemRelease(s.handle);
}

static void clean_handle(void)
{
	cuMemRelease(s.handle);
}

/* ---- graphics: only the simulated driver has resources to map -------------------------------- */

static void *of_simulated(const char *name)
{
	return dlsym(RTLD_DEFAULT, "sim_open_exports") != NULL ? dlsym(RTLD_DEFAULT, name) : NULL;
}

static bool register_resource(void)
{
	CUresult (*begin)(CUgraphicsResource *, unsigned, unsigned);

	*(void **)&begin = of_simulated("cuGraphicsGLRegisterBuffer");
	return begin != NULL && OK(begin(&s.resource, 1, 0));
}

static bool map_resource(void)
{
	return register_resource() && OK(cuGraphicsMapResources(1, &s.resource, NULL)) &&
	       OK(cuGraphicsResourceGetMappedPointer_v2(&s.at, &s.size, s.resource));
}

static bool unmap_resource(void)
{
	return OK(cuGraphicsUnmapResources(1, &s.resource, NULL));
}

static bool unregister_resource(void)
{
	return OK(cuGraphicsUnregisterResource(s.resource));
}

static void clean_resource(void)
{
	cuGraphicsUnregisterResource(s.resource);
}

static bool register_buffer(void)
{
	CUresult (*begin)(unsigned);

	*(void **)&begin = of_simulated("cuGLRegisterBufferObject");
	return begin != NULL && OK(begin(1));
}

static bool map_buffer(void)
{
	return register_buffer() && OK(cuGLMapBufferObject_v2(&s.at, &s.size, 1));
}

static bool map_buffer_async(void)
{
	return register_buffer() && OK(cuGLMapBufferObjectAsync_v2_ptsz(&s.at, &s.size, 1, NULL));
}

static bool unmap_buffer(void)
{
	return OK(cuGLUnmapBufferObject(1));
}

static bool unmap_buffer_async(void)
{
	return OK(cuGLUnmapBufferObjectAsync(1, NULL));
}

static bool unregister_buffer(void)
{
	return OK(cuGLUnregisterBufferObject(1));
}

static void clean_buffer(void)
{
	cuGLUnregisterBufferObject(1);
}

/* Two buffers with one number: the registered one belongs to the older context. */
static bool map_two_buffers(void)
{
	size_t size;

	return map_buffer() && OK(cuGLCtxCreate_v2(&s.context, 0, s.device)) && register_buffer() &&
	       OK(cuGLMapBufferObject_v2_ptds(&s.other, &size, 1)) &&
	       OK(cuCtxSetCurrent(s.primary));
}

static bool unmap_other_buffer(void)
{
	return OK(cuCtxSetCurrent(s.context)) && unmap_buffer() && OK(cuCtxSetCurrent(s.primary));
}

static void clean_two_buffers(void)
{
	clean_buffer();
	cuCtxSetCurrent(s.context);
	clean_buffer();
	clean_context();
}

static bool in_gl_context(void)
{
	return of_simulated("cuInit") != NULL && OK(cuGLCtxCreate(&s.context, 0, s.device)) &&
	       allocate();
}

static int no_function(VdpDevice device, uint32_t id, void **function)
{
	(void)device, (void)id, (void)function;
	return 1;
}

static bool in_vdpau_context(void)
{
	return of_simulated("cuInit") != NULL &&
	       OK(cuVDPAUCtxCreate_v2(&s.context, 0, s.device, 1, no_function)) && allocate();
}

/* The registered plane of a frame; its second plane is a mapping of its own. */
static bool choose_plane(unsigned plane)
{
	CUeglFrame frame;

	if (!OK(cuGraphicsResourceGetMappedEglFrame(&frame, s.resource, 0, 0)))
		return false;
	s.at = (CUdeviceptr)(uintptr_t)frame.frame.pPitch[plane];
	s.other = (CUdeviceptr)(uintptr_t)frame.frame.pPitch[!plane];
	s.size = (size_t)frame.pitch * frame.height / (plane + 1);
	return true;
}

static bool register_image(void)
{
	CUresult (*begin)(CUgraphicsResource *, void *, unsigned);

	*(void **)&begin = of_simulated("cuGraphicsEGLRegisterImage");
	return begin != NULL && OK(begin(&s.resource, &s, 0)) && choose_plane(0);
}

static bool acquire_frame(void)
{
	CUresult (*begin)(CUeglStreamConnection *, void *);

	*(void **)&begin = of_simulated("cuEGLStreamConsumerConnect");
	return begin != NULL && OK(begin(&s.connection, &s)) &&
	       OK(cuEGLStreamConsumerAcquireFrame(&s.connection, &s.resource, NULL, 0));
}

static bool acquire_first_plane(void)
{
	return acquire_frame() && choose_plane(0);
}

static bool acquire_second_plane(void)
{
	return acquire_frame() && choose_plane(1);
}

static bool acquire_two_frames(void)
{
	CUgraphicsResource first;
	bool done = acquire_frame();

	first = s.resource;
	done = done && OK(cuEGLStreamConsumerAcquireFrame(&s.connection, &s.resource, NULL, 0)) &&
	       choose_plane(1);
	s.resource = first;
	return done;
}

static bool release_frame(void)
{
	return OK(cuEGLStreamConsumerReleaseFrame(&s.connection, s.resource, NULL));
}

static bool disconnect(void)
{
	return OK(cuEGLStreamConsumerDisconnect(&s.connection));
}

static void clean_connection(void)
{
	cuEGLStreamConsumerDisconnect(&s.connection);
}

/* Opens connections until one has this handle, and closes the others. */
static bool connect_as(CUeglStreamConnection wanted)
{
	CUeglStreamConnection made[32];
	CUresult (*begin)(CUeglStreamConnection *, void *);
	unsigned count = 0;

	*(void **)&begin = of_simulated("cuEGLStreamConsumerConnect");
	while (count < 32 && OK(begin(&made[count], &s)) && made[count] != wanted)
		count++;
	s.connection = count < 32 ? made[count] : NULL;
	while (count-- > 0)
		cuEGLStreamConsumerDisconnect(&made[count]);
	return s.connection == wanted;
}

/* Both the memory and the connection are new ones with numbers that old ones had. */
static bool allocate_where_a_frame_was(void)
{
	CUeglStreamConnection connection;
	CUdeviceptr frame;

	if (!acquire_first_plane())
		return false;
	frame = s.at;
	connection = s.connection;
	/* Frees enough blocks that calloc() does not take from there: it takes the next one. */
	connect_as(NULL);
	s.connection = connection;
	return disconnect() && OK(cuMemAlloc_v2(&s.at, s.size)) && s.at == frame &&
	       connect_as(connection);
}

/* ---- another process's memory --------------------------------------------------------------- */

/* Starts this program as `export`: it prints a handle and waits for the end of its input. */
static bool start_exporter(CUipcMemHandle *handle)
{
	static char *const arguments[] = {"regions", "export", NULL};
	posix_spawn_file_actions_t actions;
	int to[2], from[2];
	pid_t child = -1;
	bool done;

	if (pipe2(to, 0) != 0 || pipe2(from, 0) != 0)
		return false;
	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_adddup2(&actions, to[0], 0);
	posix_spawn_file_actions_adddup2(&actions, from[1], 1);
	posix_spawn_file_actions_addclose(&actions, to[1]);
	posix_spawn_file_actions_addclose(&actions, from[0]);
	done = posix_spawn(&child, "/proc/self/exe", &actions, NULL, arguments, environ) == 0;
	posix_spawn_file_actions_destroy(&actions);
	close(to[0]);
	close(from[1]);
	s.child = child;
	s.child_stdin = to[1];
	done = done && read(from[0], handle, sizeof(*handle)) == sizeof(*handle);
	close(from[0]);
	return done;
}

static bool open_exported(void)
{
	CUipcMemHandle handle;

	s.size = 4 * MIB;
	return start_exporter(&handle) &&
	       OK(cuIpcOpenMemHandle_v2(&s.at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
}

/* Opened twice: after the first close it is still open. */
static bool open_exported_twice(void)
{
	CUipcMemHandle handle;
	CUdeviceptr again;

	s.size = 4 * MIB;
	return start_exporter(&handle) &&
	       OK(cuIpcOpenMemHandle_v2(&s.at, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) &&
	       OK(cuIpcOpenMemHandle_v2(&again, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS)) &&
	       again == s.at;
}

static bool close_exported(void)
{
	return OK(cuIpcCloseMemHandle(s.at));
}

static void end_exporter(void)
{
	close(s.child_stdin);
	waitpid((pid_t)s.child, NULL, 0);
}

static void clean_exported(void)
{
	cuIpcCloseMemHandle(s.at);
	end_exporter();
}

/* ---- checkpoint ----------------------------------------------------------------------------- */

static bool checkpoint(void)
{
	return OK(cuCheckpointProcessLock(getpid(), NULL)) &&
	       OK(cuCheckpointProcessCheckpoint(getpid(), NULL));
}

static void clean_checkpoint(void)
{
	cuCheckpointProcessRestore(getpid(), NULL);
	cuCheckpointProcessUnlock(getpid(), NULL);
	cuMemFree_v2(s.at);
}

/* clang-format off */
const struct regions_case regions_owner_cases[] = {
	CASE("cuCtxDestroy of its context", in_own_context, destroy_context, GONE),
	CASE("cuCtxDestroy of another context", beside_own_context, destroy_context, KEPT,
	 .clean = clean_memory),
	CASE("stream-ordered, cuCtxDestroy of the context it was made in", async_in_own_context,
	 destroy_context, KEPT, .clean = clean_async),
	CASE("cuCtxDetach, not the last", in_own_context, attach_and_detach, KEPT,
	 .clean = clean_context),
	CASE("cuCtxDetach, the last", in_own_context, detach_last, GONE),
	CASE("cuDevicePrimaryCtxRelease, not to zero", allocate, retain_and_release, KEPT,
	 .clean = clean_memory),
	CASE("cuDevicePrimaryCtxRelease to zero", allocate, release_to_zero, GONE,
	 .clean = clean_released, .alone = true),
	CASE("cuDevicePrimaryCtxReset_v2", allocate, reset, GONE, .clean = clean_reset,
	 .alone = true),
	CASE("cuDevicePrimaryCtxReset", allocate, reset_v1, GONE, .clean = clean_reset,
	 .alone = true),
	CASE("cuDevicePrimaryCtxRelease to zero of another device", beside_other_device,
	 release_other_device, KEPT, .clean = clean_memory),
	CASE("cuDevicePrimaryCtxReset of another device", beside_other_device, reset_other_device,
	 KEPT, .clean = clean_reset_other),
	CASE("on another device, its cuDevicePrimaryCtxRelease to zero", on_other_device,
	 release_other_device, GONE),
	CASE("cuMemFree in a green context", in_green_context, free_in_green_context, GONE,
	 .clean = clean_green),
	CASE("module's global, cuModuleUnload",
	 load_module, unload_module, GONE, .unexportable = true),
	CASE("module's global of unknown size, cuModuleUnload",
	 load_module_without_size, unload_module, GONE, .unexportable = true),
	CASE("library's global, cuLibraryUnload",
	 load_library, unload_library, GONE, .unexportable = true),
	CASE("library's module's global, cuLibraryUnload",
	 load_library_and_its_module, unload_library, GONE, .unexportable = true),
	CASE("global of a library's kernel's module, cuLibraryUnload",
	 load_library_of_a_function, unload_library, GONE, .unexportable = true,
	 .is_volatile = true),
	CASE("external memory, cuMemFree of the buffer", import_external, free_mapped_buffer, GONE,
	 .clean = clean_external, .unexportable = true),
	CASE("external memory, cuDestroyExternalMemory", import_external, destroy_external, GONE,
	 .clean = clean_handle, .unexportable = true, .lingers = true),
	CASE("graphics resource, cuGraphicsUnmapResources", map_resource, unmap_resource, GONE,
	 .clean = clean_resource),
	CASE("graphics resource, cuGraphicsUnregisterResource", map_resource, unregister_resource,
	 GONE),
	CASE("OpenGL's buffer, cuGLUnmapBufferObject", map_buffer, unmap_buffer, GONE,
	 .clean = clean_buffer),
	CASE("OpenGL's buffer, cuGLUnmapBufferObjectAsync", map_buffer_async, unmap_buffer_async,
	 GONE, .clean = clean_buffer),
	CASE("OpenGL's buffer, cuGLUnregisterBufferObject", map_buffer, unregister_buffer, GONE),
	CASE("cuCtxDestroy of cuGLCtxCreate's", in_gl_context, destroy_context, GONE),
	CASE("cuCtxDetach of cuGLCtxCreate's, not the last", in_gl_context, attach_and_detach, KEPT,
	 .clean = clean_context),
	CASE("cuCtxDetach of cuVDPAUCtxCreate's, not the last", in_vdpau_context, attach_and_detach,
	 KEPT, .clean = clean_context),
	CASE("EGL's image, cuGraphicsUnregisterResource", register_image, unregister_resource,
	 GONE),
	CASE("EGL's frame, cuEGLStreamConsumerReleaseFrame", acquire_first_plane, release_frame,
	 GONE, .clean = clean_connection),
	CASE("second plane of EGL's frame, cuEGLStreamConsumerReleaseFrame", acquire_second_plane,
	 release_frame, GONE, .clean = clean_connection),
	CASE("EGL's frame, cuEGLStreamConsumerReleaseFrame of another", acquire_two_frames,
	 release_frame, KEPT, .clean = clean_connection),
	CASE("EGL's frame, cuEGLStreamConsumerDisconnect", acquire_two_frames, disconnect, GONE),
	CASE("linear where EGL's frame was, cuEGLStreamConsumerDisconnect of another",
	     allocate_where_a_frame_was, disconnect, KEPT, .clean = clean_memory),
	/* Behind those of unknown size: what begins where these were is volatile still. */
	CASE("one of OpenGL's buffers of one number, cuGLUnmapBufferObject", map_two_buffers,
	 unmap_buffer, GONE, .clean = clean_two_buffers, .is_volatile = true),
	CASE("one of OpenGL's buffers of one number, cuGLUnmapBufferObject of the other",
	 map_two_buffers,
	 unmap_other_buffer, KEPT, .clean = clean_two_buffers, .is_volatile = true),
	CASE("another process's, cuIpcCloseMemHandle", open_exported, close_exported, GONE,
	 .clean = end_exporter, .unexportable = true),
	CASE("another process's, opened twice, closed once", open_exported_twice, close_exported,
	 KEPT, .clean = clean_exported, .unexportable = true),
	CASE("cuCheckpointProcessCheckpoint", allocate, checkpoint, GONE, .clean = clean_checkpoint,
	 .alone = true, .lingers = true),
	{.name = NULL},
};
/* clang-format on */
