/* SPDX-License-Identifier: MIT */
/*
 * The fabric: processes, the sockets between them, and the service thread of each.
 *
 * A process has a number from 1 to 4095, which is the upper half of its queue pairs' numbers. It
 * holds its number by listening at an abstract Unix socket of that name, so that nothing is left
 * behind when it is killed. It connects to the sockets of the processes that it sends requests to,
 * its own among them, and they answer on the same connection.
 *
 * Connections belong to the service thread.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "softnic.h"

enum { PROCESSES = 1 << (24 - PROCESS_SHIFT) };

struct output {
	struct output *next;
	size_t size, sent;
	uint8_t bytes[];
};

struct connection {
	struct connection *next;
	int fd;
	uint32_t process; /* that we send requests to; 0: it sends us some */
	bool ended;
	struct packet packet; /* that arrives */
	size_t arrived;	      /* bytes of it and its payload */
	uint8_t *payload;
	struct output *first, **last;
};

static struct {
	bool started; /* protected by starting */
	uint32_t number;
	int listener, wakeup, epoll;
	bool woken; /* wakeup was written since the service thread read it; atomic */
	struct connection *connections;
} self;
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

uint32_t transport_process(void)
{
	return self.number;
}

/* Exchange: with the service thread's store before it looks for work. */
void transport_wake(void)
{
	uint64_t one = 1;

	if (!__atomic_exchange_n(&self.woken, true, __ATOMIC_SEQ_CST) &&
	    write(self.wakeup, &one, sizeof(one)) < 0)
		checks_report("no wakeup: %s", strerror(errno));
}

/* ---- connections ---------------------------------------------------------------------------- */

static socklen_t name_of(uint32_t process, struct sockaddr_un *addr)
{
	int length;

	*addr = (struct sockaddr_un){.sun_family = AF_UNIX};
	/* The leading zero byte makes it abstract. */
	length = snprintf(addr->sun_path + 1, sizeof(addr->sun_path) - 1, "softnic-%u-%.40s-%u",
			  (unsigned)getuid(), softnic_options()->fabric, process);
	return offsetof(struct sockaddr_un, sun_path) + 1 + length;
}

static struct connection *add_connection(int fd, uint32_t process)
{
	struct connection *connection = calloc(1, sizeof(*connection));
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};

	if (connection)
		connection->payload = malloc(CHUNK);
	if (!connection || !connection->payload ||
	    epoll_ctl(self.epoll, EPOLL_CTL_ADD, fd, &event)) {
		free(connection ? connection->payload : NULL);
		free(connection);
		close(fd);
		return NULL;
	}
	connection->fd = fd;
	connection->process = process;
	connection->last = &connection->first;
	connection->next = self.connections;
	self.connections = connection;
	return connection;
}

/* The name is anyone's to take: only the same user's processes are let in. */
static bool is_same_user(int fd)
{
	struct ucred peer;
	socklen_t size = sizeof(peer);

	return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == getuid();
}

static struct connection *connect_to(uint32_t process)
{
	struct sockaddr_un addr;
	socklen_t length = name_of(process, &addr);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return NULL;
	if (connect(fd, (struct sockaddr *)&addr, length) || !is_same_user(fd)) {
		close(fd);
		return NULL;
	}
	return add_connection(fd, process);
}

static void accept_one(void)
{
	int fd = accept4(self.listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

	if (fd < 0)
		return;
	if (is_same_user(fd))
		add_connection(fd, 0);
	else
		close(fd);
}

static struct connection *connection_to(uint32_t process)
{
	for (struct connection *c = self.connections; c; c = c->next)
		if (c->process == process && !c->ended)
			return c;
	return connect_to(process);
}

static void free_connection(struct connection *connection)
{
	struct output *output;

	while ((output = connection->first)) {
		connection->first = output->next;
		free(output);
	}
	close(connection->fd);
	free(connection->payload);
	free(connection);
}

/* No caller up the stack uses a connection now. */
static void remove_ended(void)
{
	struct connection **at = &self.connections;

	while (*at) {
		struct connection *connection = *at;

		if (!connection->ended) {
			at = &connection->next;
			continue;
		}
		*at = connection->next;
		if (connection->process)
			requester_lost(connection->process);
		free_connection(connection);
	}
}

/* ---- output --------------------------------------------------------------------------------- */

static void want_output(struct connection *connection, bool wanted)
{
	struct epoll_event event = {.events = EPOLLIN | (wanted ? EPOLLOUT : 0),
				    .data.ptr = connection};

	epoll_ctl(self.epoll, EPOLL_CTL_MOD, connection->fd, &event);
}

static void flush_output(struct connection *connection)
{
	struct output *output;

	while ((output = connection->first)) {
		ssize_t sent = send(connection->fd, output->bytes + output->sent,
				    output->size - output->sent, MSG_NOSIGNAL);

		if (sent < 0) {
			if (errno != EAGAIN && errno != EINTR)
				connection->ended = true;
			return;
		}
		output->sent += sent;
		if (output->sent < output->size)
			continue;
		connection->first = output->next;
		if (!connection->first)
			connection->last = &connection->first;
		free(output);
	}
}

void transport_answer(struct connection *connection, const struct packet *packet,
		      const void *payload)
{
	struct output *output = malloc(sizeof(*output) + sizeof(*packet) + packet->payload);

	if (!output) {
		connection->ended = true;
		return;
	}
	output->next = NULL;
	output->size = sizeof(*packet) + packet->payload;
	output->sent = 0;
	memcpy(output->bytes, packet, sizeof(*packet));
	if (packet->payload)
		memcpy(output->bytes + sizeof(*packet), payload, packet->payload);
	*connection->last = output;
	connection->last = &output->next;
	flush_output(connection);
	want_output(connection, connection->first);
}

bool transport_send(const struct packet *packet, const void *payload)
{
	struct connection *connection = connection_to(packet->to_qp >> PROCESS_SHIFT);

	if (!connection)
		return false;
	transport_answer(connection, packet, payload);
	return true;
}

/* ---- input ---------------------------------------------------------------------------------- */

static void read_input(struct connection *connection);

/*
 * A card has one wire: it sees what a peer has answered before it sees a request that the peer sent
 * behind that. Here the two come on different sockets.
 */
static void read_answers_of(uint32_t process)
{
	for (struct connection *c = self.connections; c; c = c->next)
		if (c->process == process && !c->ended)
			read_input(c);
}

static void take_packet(struct connection *connection)
{
	const struct packet *packet = &connection->packet;

	if (packet->kind == PACKET_REPLY) {
		requester_take_reply(packet, connection->payload);
		return;
	}
	if (!connection->process)
		read_answers_of(packet->from_qp >> PROCESS_SHIFT);
	responder_take(connection, packet, connection->payload);
}

/* The part of a packet that comes next, or 0 when it is whole. */
static size_t missing_part(struct connection *connection, uint8_t **at)
{
	const size_t header = sizeof(connection->packet);
	size_t arrived = connection->arrived;

	if (arrived < header) {
		*at = (uint8_t *)&connection->packet + arrived;
		return header - arrived;
	}
	if (connection->packet.payload > CHUNK) {
		connection->ended = true;
		return 0;
	}
	*at = connection->payload + (arrived - header);
	return header + connection->packet.payload - arrived;
}

static void read_input(struct connection *connection)
{
	uint8_t *at;
	size_t missing;

	while (!connection->ended) {
		missing = missing_part(connection, &at);
		if (!missing) {
			connection->arrived = 0;
			if (!connection->ended)
				take_packet(connection);
			continue;
		}
		ssize_t got = recv(connection->fd, at, missing, 0);

		if (got > 0) {
			connection->arrived += got;
			continue;
		}
		if (got == 0 || (errno != EAGAIN && errno != EINTR))
			connection->ended = true;
		return;
	}
}

/* ---- the service thread --------------------------------------------------------------------- */

static void handle(const struct epoll_event *event)
{
	struct connection *connection = event->data.ptr;
	uint64_t count;

	if (event->data.ptr == &self.listener) {
		accept_one();
	} else if (event->data.ptr == &self.wakeup) {
		if (read(self.wakeup, &count, sizeof(count)) < 0)
			return;
	} else {
		if (event->events & EPOLLOUT) {
			flush_output(connection);
			want_output(connection, connection->first);
		}
		read_input(connection);
	}
}

static int wait_time(uint64_t now, uint64_t next)
{
	if (next == UINT64_MAX)
		return -1;
	return next <= now ? 0 : (next - now) / 1000000 + 1;
}

static void *serve(void *unused)
{
	struct epoll_event events[16];
	uint64_t next = 0;

	(void)unused;
	for (;;) {
		int count = epoll_wait(self.epoll, events, 16, wait_time(now_ns(), next));

		for (int i = 0; i < count; i++)
			handle(&events[i]);
		/* Exchange: with transport_wake. Work that is posted from here on wakes again. */
		(void)__atomic_exchange_n(&self.woken, false, __ATOMIC_SEQ_CST);
		next = requester_progress(now_ns());
		remove_ended();
	}
	return NULL;
}

/* ---- the begin ------------------------------------------------------------------------------ */

static int listen_at(uint32_t process)
{
	struct sockaddr_un addr;
	socklen_t length = name_of(process, &addr);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0 && bind(fd, (struct sockaddr *)&addr, length) == 0 && listen(fd, 128) == 0)
		return fd;
	if (fd >= 0)
		close(fd);
	return -1;
}

/* From a start that differs: the number of a process that just ended isn't used again soon. */
static int take_number(void)
{
	uint32_t first = (uint32_t)getpid() * 7 + now_ns() / 1000000;

	for (uint32_t i = 0; i < PROCESSES - 1; i++) {
		self.number = 1 + (first + i) % (PROCESSES - 1);
		self.listener = listen_at(self.number);
		if (self.listener >= 0)
			return 0;
	}
	return EAGAIN;
}

static int watch(int *fd)
{
	struct epoll_event event = {.events = EPOLLIN, .data.ptr = fd};

	return epoll_ctl(self.epoll, EPOLL_CTL_ADD, *fd, &event) ? errno : 0;
}

/* Signals are for the program's threads. */
static int start_thread(void)
{
	sigset_t all, before;
	pthread_t thread;
	int error;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	error = pthread_create(&thread, NULL, serve, NULL);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	if (!error) {
		pthread_setname_np(thread, "softnic");
		pthread_detach(thread);
	}
	return error;
}

/* The child has no service thread, and leaves its parent's number and connections to it. */
static void in_child(void)
{
	pthread_mutex_init(&softnic_lock, NULL);
	pthread_mutex_init(&starting, NULL);
	pthread_cond_init(&softnic_idle, NULL);
	if (!self.started)
		return;
	for (struct connection *c = self.connections; c; c = c->next)
		close(c->fd);
	close(self.listener);
	close(self.wakeup);
	close(self.epoll);
	self.started = false;
	self.connections = NULL;
	queue_pair_forget_all();
}

static int start(void)
{
	static bool watches_forks;
	int error = take_number();

	if (error)
		return error;
	if (!watches_forks)
		pthread_atfork(NULL, NULL, in_child);
	watches_forks = true;
	self.woken = false;
	self.wakeup = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	self.epoll = epoll_create1(EPOLL_CLOEXEC);
	if (self.wakeup < 0 || self.epoll < 0)
		return errno;
	error = watch(&self.listener);
	if (!error)
		error = watch(&self.wakeup);
	return error ? error : start_thread();
}

int transport_begin(void)
{
	int error = 0;

	pthread_mutex_lock(&starting);
	if (!self.started)
		error = start();
	self.started = !error;
	pthread_mutex_unlock(&starting);
	return error;
}
