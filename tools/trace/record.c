// SPDX-License-Identifier: MIT
/* Checks and decodes one record. */
#include "tools/trace/record.h"

#include <string.h>

static unsigned fields_of(const uint64_t *words)
{
	return words[1] >> 32 & 0xffff;
}

static unsigned aside_of(const uint64_t *words)
{
	return (unsigned)(words[1] >> 48);
}

/* Length of the name, in bytes. */
static unsigned note_length(const uint64_t *words)
{
	return aside_of(words) >> 8;
}

static unsigned field_words(unsigned fields)
{
	return (unsigned)__builtin_popcount(fields);
}

static const char *check_region(const uint64_t *words)
{
	unsigned event = record_what(words[0]);

	if (event == PDN_EV_CALL || event == PDN_EV_ERROR || event == PDN_EV_REGISTER)
		return "the number of an event about a region";
	return NULL;
}

static const char *check_event(const uint64_t *words)
{
	unsigned length = record_words(words[0]), needed;

	if (length < 2)
		return "an event of at least 2 words";
	needed = 2 + field_words(fields_of(words));
	if (record_type(words[0]) == PDN_RECORD_ERROR) {
		if (aside_of(words) > PDN_ERROR_MAX_TEXT)
			return "a text of at most 200 bytes";
		needed += (aside_of(words) + 7) / 8;
	}
	if (record_type(words[0]) == PDN_RECORD_NOTE) {
		if (note_length(words) > PDN_ERROR_MAX_TEXT)
			return "a name of at most 200 bytes";
		needed += (note_length(words) + 7) / 8;
	}
	if (length < needed)
		return "an event as long as its fields";
	return record_type(words[0]) == PDN_RECORD_REGION ? check_region(words) : NULL;
}

static const char *check_stack(const uint64_t *words)
{
	unsigned frames = record_what(words[0]);

	if (!frames || frames > PDN_TRACE_MAX_FRAMES)
		return "a stack of 1 to 64 frames";
	return record_words(words[0]) < 2 + frames ? "a stack as long as its frames" : NULL;
}

static const char *check_module(const uint64_t *words)
{
	struct pdn_trace_module module;

	if (record_words(words[0]) < 1 + sizeof(module) / 8)
		return "a module of at least 5 words";
	memcpy(&module, words + 1, sizeof(module));
	if ((module.id_length + 7u) / 8 + (module.path_length + 7u) / 8 >
	    record_words(words[0]) - 1 - sizeof(module) / 8)
		return "a module as long as its build id and its path";
	return NULL;
}

const char *record_check(const uint64_t *words, uint64_t capacity)
{
	unsigned length = record_words(words[0]);

	if (!length)
		return "a record of at least one word";
	if (length > capacity)
		return "a record that ends within its chunk";
	switch (record_type(words[0])) {
	case PDN_RECORD_CALL:
	case PDN_RECORD_REGION:
	case PDN_RECORD_ERROR:
	case PDN_RECORD_NOTE:
		return check_event(words);
	case PDN_RECORD_CLOCK:
		return length < 5 ? "a clock record of 5 words" : NULL;
	case PDN_RECORD_THREAD:
	case PDN_RECORD_LOST:
		return length < 2 ? "a record of 2 words" : NULL;
	case PDN_RECORD_STACK:
		return check_stack(words);
	case PDN_RECORD_MODULE:
		return check_module(words);
	case 0:
		return "a record type, not 0";
	default:
		return NULL; /* a type of a later version: skipped */
	}
}

uint64_t record_taken(const uint64_t *words)
{
	unsigned fields;

	if (record_type(words[0]) == PDN_RECORD_LOST)
		return 0;
	fields = fields_of(words);
	if (fields & PDN_HAS_DURATION)
		return words[2 + field_words(fields & (PDN_HAS_DURATION - 1))];
	return (uint32_t)words[1];
}

static uint64_t next_field(const uint64_t **at, unsigned fields, unsigned field)
{
	return fields & field ? *(*at)++ : 0;
}

void record_decode(const uint64_t *words, struct record *record)
{
	unsigned fields = fields_of(words), type = record_type(words[0]);
	const uint64_t *at = words + 2;
	uint64_t region;

	memset(record, 0, sizeof(*record));
	record->device = -1;
	if (type == PDN_RECORD_LOST) {
		record->event = PDN_EV_LOST;
		record->lost = words[1];
		return;
	}
	record->fields = (uint16_t)fields;
	record->addr = next_field(&at, fields, PDN_HAS_ADDR);
	record->size = next_field(&at, fields, PDN_HAS_SIZE);
	record->result = (int64_t)next_field(&at, fields, PDN_HAS_RESULT);
	record->taken = next_field(&at, fields, PDN_HAS_DURATION);
	if (!(fields & PDN_HAS_DURATION))
		record->taken = (uint32_t)words[1];
	record->extra = next_field(&at, fields, PDN_HAS_EXTRA);
	region = next_field(&at, fields, PDN_HAS_REGION);
	record->pin_addr = next_field(&at, fields, PDN_HAS_PIN_ADDR);
	record->pin_size = next_field(&at, fields, PDN_HAS_PIN_SIZE);
	record->buffer_id = next_field(&at, fields, PDN_HAS_BUFFER_ID);
	record->context = next_field(&at, fields, PDN_HAS_CONTEXT);
	record->stack = (uint32_t)next_field(&at, fields, PDN_HAS_STACK);
	record->key = next_field(&at, fields, PDN_HAS_KEY);
	record->number = (uint32_t)next_field(&at, fields, PDN_HAS_NUMBER);
	record->origin = (uint32_t)next_field(&at, fields, PDN_HAS_ORIGIN);
	at = words + 2 + field_words(fields);
	if (fields & PDN_HAS_REGION) {
		record->region = (uint32_t)region;
		record->reason = (uint16_t)(region >> 32);
		record->device = (int16_t)(region >> 48);
	}
	if (type == PDN_RECORD_CALL) {
		record->event = PDN_EV_CALL;
		record->call = record_what(words[0]);
		if (!(fields & PDN_HAS_RESULT))
			record->result = aside_of(words);
	} else if (type == PDN_RECORD_REGION) {
		record->event = (enum pdn_event)record_what(words[0]);
		record->flags = (uint16_t)aside_of(words);
	} else if (type == PDN_RECORD_NOTE) {
		record->event = (enum pdn_event)record_what(words[0]);
		record->flags = aside_of(words) & 0xff;
		record->text_length = note_length(words);
		record->text = record->text_length ? (const char *)at : NULL;
	} else {
		record->event = PDN_EV_ERROR;
		record->text = (const char *)at;
		record->text_length = aside_of(words);
	}
}
