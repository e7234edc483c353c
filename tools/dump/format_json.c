// SPDX-License-Identifier: MIT
/* Prints one JSON object a line. Addresses are strings, as JSON numbers are exact to 2^53 only. */
#include "tools/dump/format.h"

#include "tools/dump/filter.h"
#include "tools/ui/json.h"
#include "tools/ui/names.h"
#include "tools/base/out.h"
#include "tools/trace/rank.h"
#include "tools/trace/symbols.h"

static char *put_address(char *at, const char *key, uint64_t value)
{
	at = put_text(at, key);
	*at++ = '"';
	at = put_hex(at, value);
	*at++ = '"';
	return at;
}

/* The name of the call; NULL when the event is no call. */
static const char *call_of(const struct event *event)
{
	return event->record.event == PDN_EV_CALL ? trace_file_call(event->file, event->record.call)
						  : NULL;
}

static char *put_result(char *at, const struct event *event)
{
	int64_t result = event->record.result;
	const char *name = result_name(call_of(event), record_is_note(&event->record), result);

	at = put_signed(put_text(at, ",\"result\":"), result);
	if (result && name) {
		at = put_text(at, ",\"result_name\":\"");
		at = put_text(at, name);
		*at++ = '"';
	}
	return at;
}

char *json_flags(char *at, unsigned flags)
{
	if (flags & PDN_TRACE_IN_USE)
		at = put_text(at, ",\"in_use\":true");
	if (flags & PDN_TRACE_VOLATILE)
		at = put_text(at, ",\"volatile\":true");
	if (flags & PDN_TRACE_MISSED)
		at = put_text(at, ",\"missed\":true");
	if (flags & PDN_TRACE_IMPORTED)
		at = put_text(at, ",\"imported\":true");
	if (flags & PDN_TRACE_NO_SYNC)
		at = put_text(at, ",\"no_sync_memops\":true");
	if (flags & PDN_TRACE_FELL_BACK)
		at = put_text(at, ",\"fell_back\":true");
	if (flags & PDN_TRACE_REVOKED)
		at = put_text(at, ",\"revoked\":true");
	if (flags & PDN_TRACE_PCIE)
		at = put_text(at, ",\"pcie\":true");
	if (flags & PDN_TRACE_REPLACED)
		at = put_text(at, ",\"replaced\":true");
	return at;
}

char *json_outcome(char *at, const struct record *record)
{
	const char *outcome = record->event == PDN_EV_RETIRE ? event_outcome(record) : NULL;

	return outcome ? json_quoted(put_text(at, ",\"outcome\":"), outcome, strlen(outcome)) : at;
}

static char *put_region(char *at, const struct record *record)
{
	if (record->fields & PDN_HAS_REGION) {
		const char *reason = reason_name(record->reason);

		if (record->region || !record_is_note(record))
			at = put_decimal(put_text(at, ",\"region\":"), record->region);
		if (record->device >= 0)
			at = put_decimal(put_text(at, ",\"device\":"), (uint64_t)record->device);
		if (reason) {
			at = put_text(put_text(at, ",\"reason\":\""), reason);
			*at++ = '"';
		}
	}
	if (record->fields & PDN_HAS_PIN_SIZE && record->event != PDN_EV_RETIRE) {
		at = put_address(at, ",\"pin_addr\":", record->pin_addr);
		at = put_decimal(put_text(at, ",\"pin_size\":"), record->pin_size);
	}
	if (record->fields & PDN_HAS_BUFFER_ID)
		at = put_decimal(put_text(at, ",\"buffer_id\":"), record->buffer_id);
	if (record->fields & PDN_HAS_CONTEXT)
		at = put_address(at, ",\"context\":", record->context);
	return at;
}

/* The meaning of `extra` depends on the event. */
static char *put_note(char *at, const struct record *record)
{
	bool object = record->event == PDN_EV_REGISTER || record->event == PDN_EV_DEREGISTER ||
		      (record->event == PDN_EV_HOLDER && !(record->flags & PDN_TRACE_IMPORTED));

	if (object) {
		at = put_address(at, ",\"owner\":", record->extra);
		at = put_address(at, ",\"key\":", record->key);
		at = put_decimal(put_text(at, ",\"object\":"), record->number);
	} else if (record->event == PDN_EV_HELD) {
		at = put_decimal(put_text(at, ",\"count\":"), record->extra);
	} else if (record->event == PDN_EV_RETIRE) {
		at = json_outcome(at, record);
		at = put_address(at, ",\"blocks_addr\":", record_reserved(record));
		at = put_decimal(put_text(at, ",\"blocks_size\":"), record->pin_size);
	} else {
		at = put_decimal(put_text(at, ",\"fd\":"), record->extra);
		at = put_decimal(put_text(at, ",\"export\":"), record->number);
	}
	if (record->text)
		at = json_quoted(put_text(at, ",\"consumer\":"), record->text, record->text_length);
	return at;
}

static char *put_call(char *at, const struct event *event)
{
	const char *name = trace_file_call(event->file, event->record.call);

	at = put_text(at, ",\"call\":");
	if (name)
		return json_quoted(at, name, strlen(name) < 256 ? strlen(name) : 256);
	at = put_decimal(put_text(at, "\"#"), event->record.call);
	*at++ = '"';
	return at;
}

static char *put_place(char *at, const struct place *place)
{
	at = put_address(at, "{\"offset\":", place->offset);
	if (place->module)
		at = json_quoted(put_text(at, ",\"module\":"), place->module,
				 strnlen(place->module, 400));
	if (place->function)
		at = json_quoted(put_text(at, ",\"function\":"), place->function,
				 strnlen(place->function, 400));
	if (place->source) {
		at = json_quoted(put_text(at, ",\"file\":"), place->source,
				 strnlen(place->source, 400));
		at = put_decimal(put_text(at, ",\"line\":"), place->line);
	}
	if (place->inlined)
		at = put_text(at, ",\"inlined\":true");
	*at++ = '}';
	return at;
}

/* Prints the caller, or all places with --stacks; each place may take a whole out_reserve(). */
static char *put_stack(char *at, const struct event *event, uint32_t stack, const char *caller_key,
		       const char *stack_key)
{
	struct place places[MAX_PLACES];
	const struct place *caller;
	unsigned count;

	if (!format_stacks) {
		caller = symbols_caller(event->file, stack);
		return caller ? put_place(put_text(at, caller_key), caller) : at;
	}
	count = symbols_stack(event->file, stack, places);
	at = put_text(at, stack_key);
	for (unsigned i = 0; i < count; i++) {
		if (i)
			*at++ = ',';
		out_commit(at);
		at = put_place(out_reserve(), &places[i]);
	}
	*at++ = ']';
	return at;
}

static void print_event(const struct event *event)
{
	const struct record *record = &event->record;
	char *at = out_reserve();

	at = put_decimal(put_text(at, "{\"ts\":"), event->ts);
	at = put_decimal(put_text(at, ",\"pid\":"), event->file->header.pid);
	if (event->file->rank != NO_RANK)
		at = put_decimal(put_text(at, ",\"rank\":"), (uint64_t)event->file->rank);
	at = put_decimal(put_text(at, ",\"tid\":"), event->tid);
	at = put_text(put_text(at, ",\"event\":\""), pdn_event_names[record->event]);
	*at++ = '"';
	if (record->event == PDN_EV_LOST) {
		at = put_decimal(put_text(at, ",\"count\":"), record->lost);
	} else {
		if (record->event == PDN_EV_CALL)
			at = put_call(at, event);
		/* An address of 0 is not stored, but a call is printed with it. */
		if (record->fields & (PDN_HAS_ADDR | PDN_HAS_SIZE) ||
		    record->event == PDN_EV_CALL) {
			at = put_address(at, ",\"addr\":", record->addr);
			at = put_decimal(put_text(at, ",\"size\":"), record->size);
		}
		at = put_result(at, event);
		at = put_decimal(put_text(at, ",\"dur\":"), event->took);
		if (record_is_note(record))
			at = put_note(at, record);
		else if (record->fields & PDN_HAS_EXTRA)
			at = put_address(at, ",\"extra\":", event_extra(event));
		if (event_was_made_capable(event))
			at = put_text(at, ",\"rdma_capable\":true");
		at = put_region(at, record);
		at = json_flags(at, record->flags);
		if (record->text && !record_is_note(record))
			at = json_quoted(put_text(at, ",\"text\":"), record->text,
					 record->text_length);
		if (record->stack) {
			out_commit(at);
			at = put_stack(out_reserve(), event, record->stack,
				       ",\"caller\":", ",\"stack\":[");
		}
		if (record->origin) {
			out_commit(at);
			at = put_stack(out_reserve(), event, record->origin,
				       ",\"registered_by\":", ",\"registered_by_stack\":[");
		}
	}
	at = put_text(at, "}\n");
	out_commit(at);
}

static void print_nothing(const struct reader *reader)
{
	(void)reader;
}

const struct format format_json = {
	/* The output has objects only; notes go to standard error. */
	.option = "json",
	.begin = print_nothing,
	.event = print_event,
	.end = reader_complain};
