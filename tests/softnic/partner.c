/* SPDX-License-Identifier: MIT */
/* The other end: here, or in a child process that takes commands from a socket. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/softnic/ends.h"

struct partner {
	bool other_process;
	pid_t pid;
	int socket;
	struct end end; /* in this process */
};

static struct partner here, there = {.other_process = true};
struct partner *const in_process = &here, *const in_other_process = &there;

enum what { BEGIN, CONNECT, POST_RECEIVE, WAIT, FILL, HOLDS, WORD, REPLACE, STALE, FINISH };

struct command {
	enum what what;
	struct setup setup;
	struct address other;
	uint64_t wr_id, offset;
	uint32_t length;
	uint8_t seed;
};

struct answer {
	struct address address;
	struct ibv_wc wc;
	uint64_t value;
};

static struct answer act(struct end *end, const struct command *command)
{
	struct answer answer;

	memset(&answer, 0, sizeof(answer));
	switch (command->what) {
	case BEGIN:
		answer.address = end_begin(end, &command->setup);
		break;
	case CONNECT:
		end_connect(end, &command->setup, &command->other);
		break;
	case POST_RECEIVE:
		end_post_receive(end, command->wr_id, command->offset, command->length);
		break;
	case WAIT:
		answer.wc = end_wait(end);
		break;
	case FILL:
		end_fill(end, command->seed, command->offset, command->length);
		break;
	case HOLDS:
		answer.value = end_holds(end, command->seed, command->offset, command->length);
		break;
	case WORD:
		answer.value = end_word(end, command->offset);
		break;
	case REPLACE:
		end_replace(end);
		break;
	case STALE:
		answer.value = softnic_stale_transfers();
		break;
	case FINISH:
		end_finish(end);
		break;
	}
	return answer;
}

/* ---- the child ------------------------------------------------------------------------------ */

/* Check ends the process at a failure; the parent sees the closed socket. */
static void serve(int socket)
{
	struct command command;
	struct answer answer;
	struct end end;

	while (recv(socket, &command, sizeof(command), 0) == sizeof(command)) {
		answer = act(&end, &command);
		send(socket, &answer, sizeof(answer), MSG_NOSIGNAL);
		if (command.what == FINISH)
			break;
	}
	exit(0);
}

static void start(struct partner *partner)
{
	int sockets[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, sockets), 0);
	partner->pid = fork();
	ck_assert_int_ge(partner->pid, 0);
	if (!partner->pid) {
		close(sockets[0]);
		serve(sockets[1]);
	}
	close(sockets[1]);
	partner->socket = sockets[0];
}

static struct answer ask(struct partner *partner, const struct command *command)
{
	struct answer answer;

	if (!partner->other_process)
		return act(&partner->end, command);
	ck_assert_int_eq(send(partner->socket, command, sizeof(*command), MSG_NOSIGNAL),
			 sizeof(*command));
	ck_assert_int_eq(recv(partner->socket, &answer, sizeof(answer), 0), sizeof(answer));
	return answer;
}

/* ---- what tests ask of it ------------------------------------------------------------------- */

/* The child is forked before this process opens a device or CUDA: neither survives a fork. */
struct address partner_begin(struct partner *partner, const struct setup *setup)
{
	struct command command = {.what = BEGIN, .setup = *setup};

	if (partner->other_process)
		start(partner);
	return ask(partner, &command).address;
}

void partner_connect(struct partner *partner, const struct setup *setup,
		     const struct address *other)
{
	struct command command = {.what = CONNECT, .setup = *setup, .other = *other};

	ask(partner, &command);
}

void partner_post_receive(struct partner *partner, uint64_t wr_id, uint64_t offset, uint32_t length)
{
	struct command command = {
		.what = POST_RECEIVE, .wr_id = wr_id, .offset = offset, .length = length};

	ask(partner, &command);
}

struct ibv_wc partner_wait(struct partner *partner)
{
	struct command command = {.what = WAIT};

	return ask(partner, &command).wc;
}

void partner_fill(struct partner *partner, uint8_t seed, uint64_t offset, uint32_t length)
{
	struct command command = {.what = FILL, .seed = seed, .offset = offset, .length = length};

	ask(partner, &command);
}

bool partner_holds(struct partner *partner, uint8_t seed, uint64_t offset, uint32_t length)
{
	struct command command = {.what = HOLDS, .seed = seed, .offset = offset, .length = length};

	return ask(partner, &command).value;
}

uint64_t partner_word(struct partner *partner, uint64_t offset)
{
	struct command command = {.what = WORD, .offset = offset};

	return ask(partner, &command).value;
}

void partner_replace(struct partner *partner)
{
	struct command command = {.what = REPLACE};

	ask(partner, &command);
}

unsigned long partner_stale(struct partner *partner)
{
	struct command command = {.what = STALE};

	return ask(partner, &command).value;
}

void partner_finish(struct partner *partner)
{
	struct command command = {.what = FINISH};
	int status = 0;

	ask(partner, &command);
	if (!partner->other_process)
		return;
	ck_assert_int_eq(waitpid(partner->pid, &status, 0), partner->pid);
	ck_assert_int_eq(status, 0);
	close(partner->socket);
}

void partner_kill(struct partner *partner)
{
	ck_assert(partner->other_process);
	kill(partner->pid, SIGKILL);
	waitpid(partner->pid, NULL, 0);
	close(partner->socket);
}
