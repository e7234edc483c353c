// SPDX-License-Identifier: MIT
/* The calls of the devices, in a form that is convenient for tests. */
#include <fcntl.h>
#include <sys/socket.h>

#include "guest.h"

/* ---- the GPU ---- */

int gpu(void)
{
	static int fd = -1;
	static pid_t owner;

	if (owner != getpid()) {
		owner = getpid();
		fd = open(SIM_GPU_DEVICE, O_RDWR | O_CLOEXEC);
		works(fd);
	}
	return fd;
}

static struct memory alloc(uint64_t va, uint64_t size, unsigned flags)
{
	struct sim_gpu_alloc call = {.va = va, .size = size, .flags = flags};

	works(ioctl(gpu(), SIM_GPU_ALLOC, &call));
	return (struct memory){call.va, call.size, call.handle, call.map_offset};
}

struct memory gpu_alloc(uint64_t size, unsigned flags)
{
	return alloc(0, size, flags | SIM_GPU_MAPPED);
}

struct memory gpu_alloc_at(uint64_t va, uint64_t size)
{
	return alloc(va, size, SIM_GPU_MAPPED);
}

void gpu_free(const struct memory *memory)
{
	works(ioctl(gpu(), SIM_GPU_FREE, &memory->handle));
}

void *gpu_view(const struct memory *memory)
{
	void *view = mmap(NULL, memory->size, PROT_READ | PROT_WRITE, MAP_SHARED, gpu(),
			  memory->map_offset);

	check(view != MAP_FAILED);
	return view;
}

void gpu_fill(const struct memory *memory, uint64_t seed)
{
	void *view = gpu_view(memory);

	fill(view, memory->size, seed);
	works(munmap(view, memory->size));
}

bool gpu_is_nvidias(void)
{
	return access("/sys/module/nvidia", F_OK) == 0;
}

uint64_t gpu_count(enum sim_gpu_counter counter)
{
	struct sim_gpu_counters counters;

	works(ioctl(gpu(), SIM_GPU_COUNT, &counters));
	return counters.value[counter];
}

void gpu_wait_for(enum sim_gpu_counter counter, uint64_t value)
{
	wait_until(gpu_count(counter) == value);
}

void gpu_set(enum sim_gpu_knob knob, unsigned value)
{
	struct sim_gpu_set call = {.knob = knob, .value = value};
	int result = ioctl(gpu(), SIM_GPU_SET, &call);

	if (result < 0 && errno == EOPNOTSUPP)
		test_skipped("not with this release of nvidia.ko, whose page tables and errors are "
			     "its own");
	works(result);
}

static void gate(enum sim_gpu_gate gate, unsigned op)
{
	struct sim_gpu_gate_op call = {.gate = gate, .op = op};
	int result = ioctl(gpu(), SIM_GPU_GATE, &call);

	if (result < 0 && errno == EOPNOTSUPP)
		test_skipped("nvidia.ko can't be stopped there");
	works(result);
}

void gate_arm(enum sim_gpu_gate which)
{
	gate(which, SIM_GPU_GATE_ARM);
}

void gate_await(enum sim_gpu_gate which)
{
	gate(which, SIM_GPU_GATE_AWAIT);
}

void gate_open(enum sim_gpu_gate which)
{
	gate(which, SIM_GPU_GATE_OPEN);
}

/* Eight bytes that encode their own position. */
static uint64_t word(uint64_t seed, size_t index)
{
	return (seed << 40) ^ (index * 0x9e3779b97f4a7c15ull);
}

void fill(void *at, size_t size, uint64_t seed)
{
	volatile uint64_t *words = at;
	size_t i;

	for (i = 0; i < size / 8; i++)
		words[i] = word(seed, i);
}

size_t differs(const void *at, size_t size, uint64_t seed)
{
	const volatile uint64_t *words = at;
	size_t i;

	for (i = 0; i < size / 8; i++) {
		if (words[i] != word(seed, i))
			return i * 8;
	}
	return size;
}

/* ---- pindown ---- */

int pdn_open(void)
{
	int fd = open(PINDOWN_DEVICE, O_RDWR | O_CLOEXEC);

	works(fd);
	return fd;
}

int pdn_pin(int fd, uint64_t address, uint64_t length, unsigned flags, struct pindown_pin *pin)
{
	*pin = (struct pindown_pin){
		.size = sizeof(*pin), .flags = flags, .address = address, .length = length};
	return ioctl(fd, PINDOWN_IOC_PIN, pin);
}

int pdn_unpin(int fd, unsigned region)
{
	struct pindown_unpin unpin = {.size = sizeof(unpin), .region = region};

	return ioctl(fd, PINDOWN_IOC_UNPIN, &unpin);
}

int pdn_export(int fd, unsigned region)
{
	struct pindown_export call = {.size = sizeof(call), .region = region};

	return ioctl(fd, PINDOWN_IOC_EXPORT, &call) ? -1 : call.fd;
}

uint64_t pdn_counter(const char *name)
{
	char text[4096], *line;
	int fd = open("/sys/kernel/debug/pindown/counters", O_RDONLY | O_CLOEXEC);
	ssize_t length;

	works(fd);
	/* A line break before each line, so that only whole names are found. */
	text[0] = '\n';
	length = read(fd, text + 1, sizeof(text) - 2);
	works(length);
	close(fd);
	text[1 + length] = 0;
	for (line = text; (line = strstr(line, name)); line++) {
		if (line[-1] == '\n' && line[strlen(name)] == ' ')
			return strtoull(line + strlen(name), NULL, 10);
	}
	fail("no counter '%s'", name);
}

const volatile char *pdn_state(int fd)
{
	struct pindown_version version = {.size = sizeof(version)};
	void *state;

	works(ioctl(fd, PINDOWN_IOC_VERSION, &version));
	state = mmap(NULL, version.state_length, PROT_READ, MAP_SHARED, fd, PINDOWN_MAP_STATE);
	check(state != MAP_FAILED);
	return state;
}

bool pdn_valid(const volatile char *state, const struct pindown_pin *pin)
{
	const volatile uint32_t *word = (const volatile uint32_t *)(state + pin->state_offset);

	return __atomic_load_n(word, __ATOMIC_ACQUIRE) == pin->state_value;
}

bool pdn_stands(int fd, const struct pindown_pin *pin)
{
	size_t page = CPU_PAGE, offset = pin->state_offset / page * page;
	char *at = mmap(NULL, page, PROT_READ, MAP_SHARED, fd, PINDOWN_MAP_STATE + offset);
	bool stands;

	check(at != MAP_FAILED);
	stands = pdn_valid(at - offset, pin);
	works(munmap(at, page));
	return stands;
}

bool pdn_shown(unsigned region, struct shown *shown)
{
	FILE *list = fopen("/sys/kernel/debug/pindown/regions", "re");
	char line[256];
	bool found = false;
	unsigned number;
	int process;

	check(list);
	while (!found && fgets(line, sizeof(line), list))
		found = sscanf(line, "%d %u %lx %lu %15s %15s %u %u", &process, &number,
			       &shown->address, &shown->bytes, shown->mode, shown->state,
			       &shown->exports, &shown->importers) == 8 &&
			process == getpid() && number == region;
	fclose(list);
	return found;
}

unsigned long number_in(const char *path)
{
	char text[64];
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t length;

	works(fd);
	length = read(fd, text, sizeof(text) - 1);
	works(length);
	text[length] = 0;
	close(fd);
	return strtoul(text, NULL, 10);
}

void module_parameter(const char *name, const char *value)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/module/pindown/parameters/%s", name);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	works(fd);
	works(write(fd, value, strlen(value)));
	close(fd);
}

bool kernel_says(const char *text)
{
	int log = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	char record[8192];
	bool found = false;
	ssize_t length;

	works(log);
	/* One message at a time; EPIPE says that some have been overwritten. */
	while (!found && ((length = read(log, record, sizeof(record) - 1)) > 0 || errno == EPIPE)) {
		record[length > 0 ? length : 0] = '\0';
		found = strstr(record, text);
	}
	close(log);
	return found;
}

/* ---- the peer device ---- */

int peer_open(void)
{
	int fd = open(EDU_PEER_DEVICE, O_RDWR | O_CLOEXEC);

	works(fd);
	return fd;
}

int peer_import(int fd, int buffer, unsigned flags, struct edu_import *import)
{
	*import = (struct edu_import){.fd = buffer, .flags = flags};
	return ioctl(fd, EDU_IMPORT, import);
}

int peer_move(int fd, unsigned call, unsigned id, uint64_t offset, void *data, size_t length)
{
	struct edu_transfer transfer = {
		.id = id, .offset = offset, .length = length, .data = (uintptr_t)data};

	return ioctl(fd, call, &transfer);
}

/* ---- passing a descriptor ---- */

union control {
	char space[CMSG_SPACE(sizeof(int))];
	struct cmsghdr align;
};

void send_fd(int socket, int fd)
{
	union control control = {};
	char byte = 0;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof(control.space)};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);

	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(header), &fd, sizeof(fd));
	check_equal(sendmsg(socket, &message, 0), 1);
}

int receive_fd(int socket)
{
	union control control = {};
	char byte;
	struct iovec data = {&byte, 1};
	struct msghdr message = {.msg_iov = &data,
				 .msg_iovlen = 1,
				 .msg_control = control.space,
				 .msg_controllen = sizeof(control.space)};
	int fd;

	check_equal(recvmsg(socket, &message, MSG_CMSG_CLOEXEC), 1);
	check(CMSG_FIRSTHDR(&message));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
	return fd;
}
