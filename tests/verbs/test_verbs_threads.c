/* SPDX-License-Identifier: MIT */
/*
 * Several threads: one frees the memory that others register, one ends its protection domain while
 * others use theirs, all want the same registration at once. Nothing depends on time: the tests
 * check conditions that hold in any order.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/support/asleep.h"
#include "verbs_test.h"

#define THREADS 4

static void start(pthread_t *thread, void *(*work)(void *), void *arg)
{
	ck_assert_int_eq(pthread_create(thread, NULL, work, arg), 0);
}

/* ---- the same new registration ---- */

static CUdeviceptr p;
static pthread_barrier_t line;
static int tids[THREADS];

static void *register_at_once(void *arg)
{
	struct ibv_mr *mr;

	*(int *)arg = gettid();
	OK(cuCtxSetCurrent(cuda));
	pthread_barrier_wait(&line);
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	pthread_barrier_wait(&line);
	must_deregister(mr);
	return NULL;
}

/* Waits until the other threads have arrived. */
static void linger(void *arg)
{
	(void)arg;
	for (int i = 0; i < THREADS; i++)
		if (tids[i] != gettid())
			wait_until_asleep(tids[i], "S");
}

START_TEST(threads_that_want_the_same_get_the_same)
{
	pthread_t threads[THREADS];

	begin();
	pthread_barrier_init(&line, NULL, THREADS);
	recorder_meanwhile(RECORDER_REG_DMABUF_MR, linger, NULL);
	for (unsigned round = 1; round <= 20; round++) {
		p = gpu_alloc(MIB(2));
		for (int i = 0; i < THREADS; i++)
			start(&threads[i], register_at_once, &tids[i]);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		ck_assert_uint_eq(dmabuf_calls(), round);
		gpu_free(p);
		ck_assert_uint_eq(recorder_open_mrs(), 0);
	}
}
END_TEST

/* ---- memory that comes and goes ---- */

#define BUFFERS 4
#define TURNS	300

/*
 * In odd turns the memory is being freed and allocated again. In even turns all its bytes are the
 * turn's number. A thread that registers and reads within one even turn must have read that number.
 */
static struct buffer {
	CUdeviceptr at;
	uint32_t turn;
} buffers[BUFFERS];
static bool done;
static uint32_t checked;
static sem_t look, looked;

static uint32_t turn_of(const struct buffer *buffer)
{
	return __atomic_load_n(&buffer->turn, __ATOMIC_ACQUIRE);
}

/* Looks while no memory is freed; the other looks, which nobody checks, run meanwhile. */
static void let_the_others_look(void)
{
	for (int i = 0; i < THREADS; i++)
		sem_post(&look);
	for (int i = 0; i < THREADS; i++)
		sem_wait(&looked);
}

static void *free_and_allocate(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(cuda));
	for (uint32_t i = 0; i < TURNS; i++) {
		struct buffer *buffer = &buffers[i % BUFFERS];
		uint32_t turn = turn_of(buffer) + 1;

		__atomic_store_n(&buffer->turn, turn, __ATOMIC_SEQ_CST);
		gpu_free(buffer->at);
		__atomic_store_n(&buffer->at, gpu_alloc(MIB(2)), __ATOMIC_RELAXED);
		gpu_fill(buffer->at, (char)(turn + 1), 4096);
		__atomic_store_n(&buffer->turn, turn + 1, __ATOMIC_SEQ_CST);
		let_the_others_look();
	}
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	return NULL;
}

static void look_at(struct buffer *buffer, struct ibv_mr *here, char *bytes)
{
	uint32_t turn = turn_of(buffer);
	CUdeviceptr at = __atomic_load_n(&buffer->at, __ATOMIC_RELAXED);
	struct ibv_mr *mr = ibv_reg_mr(pd, (void *)at, 4096, ALL_ACCESS);
	enum recorder_status status = RECORDER_LOCAL_ERROR;

	if (mr)
		status = recorder_copy(mr->lkey, at, here->rkey, (uintptr_t)bytes, 4096);
	if (turn % 2 == 0 && turn_of(buffer) == turn) {
		ck_assert_msg(mr != NULL, "live memory was refused: errno %d", errno);
		ck_assert_int_eq(status, RECORDER_OK);
		ck_assert(bytes[0] == (char)turn && !memcmp(bytes, bytes + 1, 4095));
		__atomic_fetch_add(&checked, 1, __ATOMIC_RELAXED);
	}
	if (mr)
		must_deregister(mr);
}

static void *register_and_read(void *arg)
{
	char *bytes = malloc(4096);
	struct ibv_mr *here = ibv_reg_mr(pd, bytes, 4096, ALL_ACCESS);

	(void)arg;
	OK(cuCtxSetCurrent(cuda));
	ck_assert_ptr_nonnull(here);
	for (unsigned i = 0; !__atomic_load_n(&done, __ATOMIC_ACQUIRE); i++) {
		bool is_asked = sem_trywait(&look) == 0;

		look_at(&buffers[i % BUFFERS], here, bytes);
		if (is_asked)
			sem_post(&looked);
	}
	ck_assert_int_eq(ibv_dereg_mr(here), 0);
	free(bytes);
	return NULL;
}

START_TEST(no_registration_is_of_memory_that_was_freed)
{
	pthread_t readers[THREADS], owner;

	begin();
	sem_init(&look, 0, 0);
	sem_init(&looked, 0, 0);
	for (int i = 0; i < BUFFERS; i++) {
		buffers[i].at = gpu_alloc(MIB(2));
		gpu_fill(buffers[i].at, 0, 4096);
	}
	for (int i = 0; i < THREADS; i++)
		start(&readers[i], register_and_read, NULL);
	start(&owner, free_and_allocate, NULL);
	pthread_join(owner, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(readers[i], NULL);
	ck_assert_uint_ge(checked, TURNS * THREADS);
	for (int i = 0; i < BUFFERS; i++)
		gpu_free(buffers[i].at);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(stats().regions, 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
}
END_TEST

/* ---- a free in the midst of a registration ---- */

static sem_t may_free, freeing;
static int freeing_tid;

static void *free_it(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(cuda));
	sem_wait(&may_free);
	freeing_tid = gettid();
	sem_post(&freeing);
	gpu_free(p);
	return NULL;
}

static void let_it_be_freed(void *arg)
{
	(void)arg;
	sem_post(&may_free);
	sem_wait(&freeing);
	wait_until_asleep(freeing_tid, "S");
}

START_TEST(a_free_in_the_midst_of_a_registration)
{
	struct ibv_mr *mr;
	pthread_t thread;

	begin();
	sem_init(&may_free, 0, 0);
	sem_init(&freeing, 0, 0);
	p = gpu_alloc(MIB(2));
	recorder_meanwhile(RECORDER_REG_DMABUF_MR, let_it_be_freed, NULL);
	start(&thread, free_it, NULL);
	mr = ibv_reg_mr(pd, (void *)p, 4096, ALL_ACCESS);
	pthread_join(thread, NULL);
	recorder_meanwhile(RECORDER_REG_DMABUF_MR, NULL, NULL);
	if (mr)
		must_deregister(mr); /* the program had it before the free came that far */
	ck_assert_uint_eq(recorder_open_mrs(), 0);
	ck_assert_uint_eq(sim_kept_bytes(0), 0);
	ck_assert_uint_eq(gpu_alloc(MIB(2)), p);
	register_once(pd, p, 4096, ALL_ACCESS);
}
END_TEST

/* ---- domains ---- */

static void *domains_come_and_go(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(cuda));
	for (int i = 0; i < TURNS; i++) {
		struct ibv_pd *own = ibv_alloc_pd(device);

		register_once(own, p, 4096, ALL_ACCESS);
		register_once(own, p + 4096, 4096, IBV_ACCESS_LOCAL_WRITE);
		ck_assert_int_eq(ibv_dealloc_pd(own), 0);
	}
	return NULL;
}

START_TEST(domains_that_come_and_go_leave_each_other_alone)
{
	pthread_t threads[THREADS];
	struct ibv_mr *mr;

	begin();
	p = gpu_alloc(MIB(2));
	mr = must_register(pd, p, 4096, ALL_ACCESS);
	for (int i = 0; i < THREADS; i++)
		start(&threads[i], domains_come_and_go, NULL);
	for (int i = 0; i < TURNS; i++)
		ck_assert_int_eq(recorder_copy(mr->lkey, p, mr->rkey, p + 4096, 8), RECORDER_OK);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(recorder_open_mrs(), 1);
	must_deregister(mr);
	gpu_free(p);
	ck_assert_uint_eq(recorder_open_mrs(), 0);
}
END_TEST

/* ---- fork ---- */

static sem_t begun;

static void *register_until_done(void *arg)
{
	(void)arg;
	OK(cuCtxSetCurrent(cuda));
	register_once(pd, p, 4096, ALL_ACCESS);
	sem_post(&begun);
	while (!__atomic_load_n(&done, __ATOMIC_ACQUIRE)) {
		CUdeviceptr q = gpu_alloc(MIB(2));

		register_once(pd, q, 4096, ALL_ACCESS);
		register_once(pd, p, 4096, ALL_ACCESS);
		gpu_free(q);
	}
	return NULL;
}

START_TEST(fork_while_another_thread_registers)
{
	pthread_t thread;

	begin();
	p = gpu_alloc(MIB(2));
	sem_init(&begun, 0, 0);
	start(&thread, register_until_done, NULL);
	sem_wait(&begun);
	for (int i = 0; i < 20; i++) {
		int status;
		pid_t child = fork();

		/*
		 * The child's copy of the recording library may be locked; pindown's must not be.
		 */
		if (child == 0)
			_exit(pindown_flush() == 0 ? 0 : 1);
		ck_assert_int_eq(waitpid(child, &status, 0), child);
		ck_assert_int_eq(status, 0);
	}
	__atomic_store_n(&done, true, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	ck_assert_int_eq(recorder_open_mrs(), 1);
}
END_TEST

static const TTest *const *all_tests(void)
{
	static const TTest *tests[6];

	tests[0] = threads_that_want_the_same_get_the_same;
	tests[1] = no_registration_is_of_memory_that_was_freed;
	tests[2] = a_free_in_the_midst_of_a_registration;
	tests[3] = domains_that_come_and_go_leave_each_other_alone;
	tests[4] = fork_while_another_thread_registers;
	return tests;
}

/*
 * ThreadSanitizer considers a mutex that was held over a fork as held in the child, even if the
 * child initialised it again. So each test has a process that was started with exec, and the test
 * that forks is left out.
 */
static int run_each(char **argv)
{
	int failed = 0, passed = 0;

	for (int i = 0; i < 4; i++) {
		char number[2] = {(char)('0' + i), 0};
		int status = -1;
		pid_t child = fork();

		if (child == 0) {
			setenv("VERBS_TEST_ONLY", number, 1);
			setenv("CK_FORK", "no", 1);
			execv("/proc/self/exe", argv);
			_exit(127);
		}
		waitpid(child, &status, 0);
		*(status == 0 ? &passed : &failed) += 1;
	}
	printf("skip fork_while_another_thread_registers: not for ThreadSanitizer\n");
	printf("%d passed, %d failed, 1 skipped\n", passed, failed);
	return failed != 0;
}

/*
 * By the name test_verbs_threads_traced, the same with a trace: each free of registered memory then
 * looks for the registrations of it, which other threads make and end meanwhile.
 */
static const char *trace_everything(const char *name)
{
	char folder[] = "/tmp/pindown-threads-XXXXXX", file[sizeof(folder) + 8];

	if (strstr(name, "traced") && !getenv("VERBS_TEST_TRACES")) {
		if (!mkdtemp(folder))
			exit(2);
		snprintf(file, sizeof(file), "%s/t.pdt", folder);
		setenv("PINDOWN_TRACE", file, 1);
		setenv("VERBS_TEST_TRACES", folder, 1);
	}
	return getenv("VERBS_TEST_TRACES");
}

/* Also of processes that have not ended in order. */
static void remove_traces(const char *folder)
{
	struct dirent *found;
	DIR *directory = folder ? opendir(folder) : NULL;

	while (directory && (found = readdir(directory)))
		unlinkat(dirfd(directory), found->d_name, 0);
	if (directory)
		closedir(directory);
	if (folder)
		rmdir(folder);
}

int main(int argc, char **argv)
{
	const char *only = getenv("VERBS_TEST_ONLY"), *sanitizer = getenv("SAN");
	Suite *suite = suite_create("verbs, threads");
	TCase *tc = verbs_case(suite, "threads");
	const TTest *const *test = all_tests();
	const char *folder = trace_everything(argv[0]);
	int result;

	if (sanitizer && strcmp(sanitizer, "thread") == 0 && !only) {
		result = run_each(argv);
		remove_traces(folder);
		return result;
	}
	for (int i = 0; test[i]; i++)
		if (!only || i == atoi(only))
			tcase_add_test(tc, test[i]);
	result = run_verbs_tests(argc, argv, suite);
	if (!only)
		remove_traces(folder);
	return result;
}
