/* SPDX-License-Identifier: MIT */
/*
 * Faults on demand. SIM_FAIL and SIM_DELAY are lists of rules, separated by commas:
 *
 *	SIM_FAIL=cuMemFree_v2:3,cuMemGetHandleForAddressRange:1-2=CUDA_ERROR_OUT_OF_MEMORY
 *	SIM_DELAY=cuMemFree_v2:500:after,cuMemAlloc_v2:20
 *
 * A call that is made to fail has no effect. A delay comes before the call has any effect, after it
 * with the API lock still held, or after it without.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core.h"
#include "errors.h"
#include "sim.h"

void sim_sleep_us(unsigned us)
{
	struct timespec rest = {us / 1000000, us % 1000000 * 1000};

	while (nanosleep(&rest, &rest) && errno == EINTR)
		;
}

struct sim_rule *sim_rule_for(struct sim_site *site, uint64_t call, int kind)
{
	struct sim_rule *rule = __atomic_load_n(&site->rules, __ATOMIC_ACQUIRE);

	for (; rule; rule = rule->next)
		if ((int)rule->kind == kind && call >= rule->first && call <= rule->last)
			return rule;
	return NULL;
}

/* Counts the calls since the rule was made. */
static void count_from_now(const struct sim_site *site, struct sim_rule *rule)
{
	uint64_t calls = __atomic_load_n(&site->calls, __ATOMIC_RELAXED);

	rule->first += calls;
	if (rule->last != UINT64_MAX)
		rule->last += calls;
}

/* Rules are never freed, since another thread may be reading one. Retired rules are kept here. */
static struct sim_rule *all_rules;

static bool add_rule(struct sim_site *site, const struct sim_rule *wanted)
{
	struct sim_rule *rule = malloc(sizeof(*rule));

	if (!rule)
		return false;
	*rule = *wanted;
	sim_lock();
	count_from_now(site, rule);
	rule->made_before = all_rules;
	all_rules = rule;
	rule->next = site->rules;
	__atomic_store_n(&site->rules, rule, __ATOMIC_RELEASE);
	sim_unlock();
	return true;
}

static bool read_count(const char **at, uint64_t *count)
{
	char *end;

	errno = 0;
	*count = strtoull(*at, &end, 10);
	if (errno || end == *at || **at == '-')
		return false;
	*at = end;
	return true;
}

/* ":3", ":3-5", ":3-" (and all later ones), ":*" */
static bool read_calls(const char **at, struct sim_rule *rule)
{
	if (*(*at)++ != ':')
		return false;
	if (**at == '*') {
		++*at;
		rule->first = 1;
		rule->last = UINT64_MAX;
		return true;
	}
	if (!read_count(at, &rule->first) || !rule->first)
		return false;
	rule->last = rule->first;
	if (**at != '-')
		return true;
	++*at;
	if (**at < '0' || **at > '9') {
		rule->last = UINT64_MAX;
		return true;
	}
	return read_count(at, &rule->last) && rule->last >= rule->first;
}

static bool read_fail(const char **at, struct sim_rule *rule)
{
	size_t length;

	rule->kind = SIM_RULE_FAIL;
	rule->error = CUDA_ERROR_UNKNOWN;
	if (!read_calls(at, rule))
		return false;
	if (**at != '=')
		return true;
	++*at;
	length = strcspn(*at, ",");
	if (!sim_error_by_name(*at, length, &rule->error))
		return false;
	*at += length;
	return true;
}

static bool read_delay(const char **at, struct sim_rule *rule)
{
	static const char *const when[] = {"before", "held", "after"};
	uint64_t us;
	size_t i;

	rule->kind = SIM_RULE_DELAY;
	rule->first = 1;
	rule->last = UINT64_MAX;
	rule->when = SIM_DELAY_BEFORE;
	if (*(*at)++ != ':' || !read_count(at, &us) || us > 60000000)
		return false;
	rule->delay_us = us;
	if (**at != ':')
		return true;
	++*at;
	for (i = 0; i < 3; i++) {
		size_t length = strlen(when[i]);

		if (strncmp(*at, when[i], length))
			continue;
		rule->when = i;
		*at += length;
		return true;
	}
	return false;
}

static bool read_rules(const char *variable, const char *text, const char *accepted,
		       bool (*read)(const char **, struct sim_rule *))
{
	const char *at = text;

	while (*at) {
		size_t length = strcspn(at, ":,=");
		struct sim_site *site = sim_find_site(at, length);
		struct sim_rule rule = {0};
		const char *end = at + length;

		if (!site) {
			sim_complain("simulated libcuda: %s=%s: \"%.*s\" is not an exported call; "
				     "the rest is ignored; accepted: %s",
				     variable, text, (int)length, at, accepted);
			return false;
		}
		if (!*end || !read(&end, &rule) || (*end && *end != ',') ||
		    !add_rule(site, &rule)) {
			sim_complain(
				"simulated libcuda: %s=%s: \"%s\" is not understood; accepted: "
				"%s",
				variable, text, at, accepted);
			return false;
		}
		at = *end ? end + 1 : end;
	}
	return true;
}

static bool read_fails(const char *text)
{
	return read_rules("SIM_FAIL", text, "NAME:N[-M][=ERROR] or NAME:*[=ERROR], ...", read_fail);
}

static bool read_delays(const char *text)
{
	return read_rules("SIM_DELAY", text, "NAME:MICROSECONDS[:before|held|after], ...",
			  read_delay);
}

void sim_faults_from_environment(void)
{
	const char *fail = getenv("SIM_FAIL");
	const char *delay = getenv("SIM_DELAY");

	if (fail)
		read_fails(fail);
	if (delay)
		read_delays(delay);
}

SIM_API int sim_fail(const char *rules)
{
	return read_fails(rules) ? 0 : -1;
}

SIM_API int sim_delay(const char *rules)
{
	return read_delays(rules) ? 0 : -1;
}

extern struct sim_site *const __start_sim_sites[];
extern struct sim_site *const __stop_sim_sites[];

SIM_API void sim_no_faults(void)
{
	struct sim_site *const *site;

	for (site = __start_sim_sites; site < __stop_sim_sites; site++)
		__atomic_store_n(&(*site)->rules, NULL, __ATOMIC_RELEASE);
}
