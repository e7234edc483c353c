/* SPDX-License-Identifier: MIT */
/*
 * The answers of `pindown report`: what is counted of a program, in one table. Text, JSON, --diff,
 * the report of a job, pages and --check have their words and figures from it.
 */
#ifndef ANSWERS_H
#define ANSWERS_H

#include <stdbool.h>
#include <stdint.h>

#include "tools/trace/record.h"

struct tally;

enum answer {
	ANSWER_STALE,
	ANSWER_ORDERED,
	ANSWER_HELD,
	ANSWER_REVOKED,
	ANSWER_CURED,
	ANSWER_ESCAPED,
	ANSWER_DROPPED,
	ANSWER_STILL_HELD,
	ANSWER_EXPORTS,
	ANSWER_EXPORTS_ORDERED,
	ANSWER_MISSED,
	ANSWER_LEAKED,
	ANSWER_LEFT,
	ANSWER_UNFREED,
	ANSWER_FAILED_CALLS,
	ANSWER_FAILED_PINS,
	ANSWER_ERRORS,
	ANSWER_LOST,
	ANSWERS
};

enum gravity { FACT, NOTE, WRONG };

/* The bit of an event in a mask of events. */
#define EVENT_BIT(name) (1ull << PDN_EV_##name)

extern const struct answer_words {
	const char *what;
	const char *key, *bytes_key; /* in JSON; bytes_key NULL: bytes are not counted */
	const char *fault[2];	     /* how --check calls one and several; NULL: no fault */
	const char *meaning;	     /* or NULL */
	uint64_t events;	     /* those from which it is counted */
	enum gravity gravity;	     /* of a count that is not 0 */
	bool if_any;		     /* is left out where the count is 0 */
	bool is_size;		     /* two of them are compared by their bytes */
} answer_words[ANSWERS];

struct amount {
	uint64_t count, bytes;
};

struct answers {
	struct amount all[ANSWERS];
	struct amount (*of_file)[ANSWERS];
};

void answers_begin(struct answers *answers, unsigned files);
void answers_free(struct answers *answers);
/* Numbers below 0 take away what was counted, never more than there is. */
void answers_add(struct answers *answers, uint32_t file, enum answer answer, int64_t count,
		 int64_t bytes);

/* The bytes, or the count. */
uint64_t answer_figure(const struct amount *amounts, enum answer answer);
/* Names in tables and in sentences begin with a small letter; good until the next call. */
const char *small_name(const char *what);
/* "stale registrations", by small_name(). */
const char *answer_name(enum answer answer);
/* Whether --check finds something. */
bool answers_are_bad(const struct amount *amounts);
/* Whether the answer is shown. */
bool answer_is_shown(const struct amount *amounts, enum answer answer);

/*
 * What is said behind a count that is not 0: ": freed while in use", ", 2 MiB" or "". Good until
 * the next call.
 */
const char *answer_more(const struct tally *tally, enum answer answer);

/*
 * Why a count of 0 is not simply "none": the events were not recorded, or some of them are missing.
 * NULL: it is. `events`: bits 1 << enum pdn_event.
 */
const char *report_none(const struct tally *tally, uint64_t events);

#endif
