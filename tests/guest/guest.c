// SPDX-License-Identifier: MIT
/* Runs tests: each in a child, with the GPU driver's counts compared before and after. */
#include <fcntl.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <time.h>

#include "tests/unit/support/asleep.h"
#include "guest.h"

#define SKIPPED 77

static struct test *first, **last = &first;
static const char *running = "start";

void test_add(struct test *test)
{
	*last = test;
	last = &test->next;
}

void test_failed(const char *file, int line, const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	dprintf(1, "FAIL %s: %s:%d: %s\n", running, file, line, text);
	_exit(1);
}

void test_skipped(const char *format, ...)
{
	char text[400];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	dprintf(1, "skip %s: %s\n", running, text);
	_exit(SKIPPED);
}

/* The counts that must be the same before and after a test. */
static const enum sim_gpu_counter balanced[] = {
	SIM_GPU_PINS,	      SIM_GPU_PERSISTENT,    SIM_GPU_TABLES,
	SIM_GPU_DMA_MAPPINGS, SIM_GPU_BAR_PAGES,     SIM_GPU_MEMORY_PAGES,
	SIM_GPU_MISUSES,      SIM_GPU_GATES_EXPIRED, SIM_GPU_EXPORTS,
};

static void count_all(int fd, struct sim_gpu_counters *counters)
{
	if (ioctl(fd, SIM_GPU_COUNT, counters))
		fail("SIM_GPU_COUNT: %s", strerror(errno));
}

/* The first counter that is not as before, or SIM_GPU_COUNTERS. */
static unsigned counter_that_differs(int fd, const struct sim_gpu_counters *before,
				     struct sim_gpu_counters *after)
{
	count_all(fd, after);
	for (unsigned i = 0; i < sizeof(balanced) / sizeof(*balanced); i++)
		if (after->value[balanced[i]] != before->value[balanced[i]])
			return balanced[i];
	return SIM_GPU_COUNTERS;
}

/* Deferred work (for example the last dma-buf's release) gets a minute. */
static void check_counts(int fd, const struct sim_gpu_counters *before)
{
	static const char *const names[] = {SIM_GPU_COUNTER_NAMES};
	struct sim_gpu_counters after;
	unsigned wrong;

	if (!becomes_true(PATIENCE_NS,
			  (wrong = counter_that_differs(fd, before, &after)) == SIM_GPU_COUNTERS))
		fail("the driver's count of %s went from %llu to %llu", names[wrong],
		     before->value[wrong], after.value[wrong]);
}

/* Marks the test in the kernel's log, for its messages; tests/guest/run looks for this. */
static void note(const char *name)
{
	int log = open("/dev/kmsg", O_WRONLY | O_CLOEXEC), length;
	char text[100];

	if (log < 0)
		return;
	/* In a single write: dprintf would seek. */
	length = snprintf(text, sizeof(text), "guest: test %s\n", name);
	if (write(log, text, length) != length)
		fail("/dev/kmsg: %s", strerror(errno));
	close(log);
}

unsigned slowness(void)
{
	const char *text = getenv("GUEST_SLOW");

	return text ? strtoul(text, NULL, 10) : 1;
}

/* In a child, which may fail. */
static bool counts_are_as(int fd, const struct sim_gpu_counters *before)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		check_counts(fd, before);
		_exit(0);
	}
	return waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status);
}

/* The next test counts anew, so what this one leaves behind must be gone, however it has ended. */
static bool run_one(struct test *test, int fd)
{
	struct sim_gpu_counters before;
	pid_t child;
	int status;
	bool same;

	running = test->name;
	note(test->name);
	if (ioctl(fd, SIM_GPU_RESET))
		fail("SIM_GPU_RESET: %s", strerror(errno));
	count_all(fd, &before);
	child = fork();
	if (child == 0) {
		alarm((test->seconds ? test->seconds : 30) * slowness());
		test->run();
		/* Before the end of the process: a test must release its pins without that. */
		_exit(0);
	}
	if (waitpid(child, &status, 0) != child)
		fail("waitpid: %s", strerror(errno));
	if (WIFSIGNALED(status))
		dprintf(1, "FAIL %s: killed by signal %d (%s)\n", test->name, WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	ioctl(fd, SIM_GPU_RESET);
	same = counts_are_as(fd, &before);
	if (!same || !WIFEXITED(status))
		return false;
	if (WEXITSTATUS(status) == SKIPPED)
		return true;
	if (WEXITSTATUS(status))
		return false;
	dprintf(1, "ok %s\n", test->name);
	return true;
}

/* Without arguments all tests, else those named. */
int main(int argc, char **argv)
{
	int fd = open(SIM_GPU_DEVICE, O_RDWR | O_CLOEXEC), i;
	struct test *test;
	bool good = true, wanted;

	if (fd < 0)
		fail("%s: %s", SIM_GPU_DEVICE, strerror(errno));
	for (test = first; test; test = test->next) {
		wanted = argc < 2;
		for (i = 1; i < argc; i++)
			wanted |= !strcmp(argv[i], test->name);
		if (wanted)
			good &= run_one(test, fd);
	}
	return good ? 0 : 1;
}

/* ---- processes and threads ---- */

static __thread __attribute__((tls_model("initial-exec"))) struct {
	volatile sig_atomic_t armed, caught;
	sigjmp_buf resume;
} touching;

static void on_fault(int number)
{
	if (!touching.armed) {
		signal(number, SIG_DFL); /* not ours: it happens again, and ends the test */
		return;
	}
	touching.armed = 0;
	touching.caught = number;
	siglongjmp(touching.resume, 1);
}

/*
 * At the start of the program, while it has one thread. A fork copies the handlers first and the
 * memory later: if another thread set them in between, the child's memory would say that they are
 * set, and they would not be.
 */
static void __attribute__((constructor)) catch_faults(void)
{
	struct sigaction act = {.sa_handler = on_fault, .sa_flags = SA_NODEFER};

	sigaction(SIGBUS, &act, NULL);
	sigaction(SIGSEGV, &act, NULL);
}

int touch(volatile void *at, bool write)
{
	volatile char *byte = at;

	touching.caught = 0;
	if (!sigsetjmp(touching.resume, 0)) { /* SA_NODEFER: no mask to restore */
		touching.armed = 1;
		if (write)
			*byte = 1;
		else
			(void)*byte;
	}
	touching.armed = 0;
	return touching.caught;
}

pid_t in_child(void (*run)(void *), void *arg)
{
	pid_t child = fork();

	works(child);
	if (child == 0) {
		/* A failing test leaves no process behind. */
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		run(arg);
		_exit(0);
	}
	return child;
}

void child_ends(pid_t child)
{
	int status;

	check(waitpid(child, &status, 0) == child);
	if (WIFSIGNALED(status))
		fail("a child was killed by signal %d", WTERMSIG(status));
	if (WEXITSTATUS(status))
		_exit(1); /* it has printed the reason */
}

struct start {
	void *(*run)(void *);
	void *arg;
	sem_t *begun;
};
static int newest;

static void *thread_main(void *arg)
{
	struct start start = *(struct start *)arg;

	newest = gettid();
	sem_post(start.begun);
	return start.run(start.arg);
}

pthread_t in_thread(void *(*run)(void *), void *arg)
{
	struct start start = {run, arg, &(sem_t){}};
	pthread_t thread;

	sem_init(start.begun, 0, 0);
	check_equal(pthread_create(&thread, NULL, thread_main, &start), 0);
	while (sem_wait(start.begun) && errno == EINTR)
		;
	return thread;
}

void newest_thread_waits(void)
{
	wait_until_asleep(newest, "SD");
}

void thread_ends(pthread_t thread)
{
	check_equal(pthread_join(thread, NULL), 0);
}
