/* text.c - a profile for a reader, most important first, cut to what a tool's answer may hold.
 *
 * Everything printed comes out of the JSON object, so that readers and programs see the same numbers.  The order is:
 * the sentence, the totals, the rows by time, the numbers behind the hot ones, the machine code.  Rows beyond the first
 * ones are counted, not printed; the machine code gets the space that is left. */
#include "judge/profile/profile.h"
#include "judge/profile/work.h"

#include "base/json.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MAX_ROWS = 24, MAX_DETAILED = 4, MAX_KERNEL_LINES = 12, NAME_BYTES = 56 };

static double num(const json_t *o, const char *key) { return ww_json_num(o, key, NAN); }

/* Right-justified in 13 columns, "-" where it is not known. */
static void add_rate(struct ww_str *s, double v, const char *unit)
{
	ww_auto_str text = WW_STR_INIT(64);
	if (isfinite(v))
		ww_profile_add_amount(&text, v, unit);
	ww_str_addf(s, "%13s", isfinite(v) ? text.p : "-");
}

static void add_percent(struct ww_str *s, double v)
{
	char text[16];
	snprintf(text, sizeof(text), isfinite(v) ? "%.0f%%" : "-", 100 * v);
	ww_str_addf(s, "%6s", text);
}

/* The beginning of an untrusted text, on one line. */
static void add_name(struct ww_str *s, const char *text, size_t max)
{
	size_t n = strlen(text);
	for (size_t i = 0; i < n && i < max; i++)
		ww_str_addc(s, text[i] >= ' ' && text[i] <= '~' ? text[i] : '?');
	if (n > max)
		ww_str_adds(s, "...");
}

static void add_device(const json_t *profile, struct ww_str *s)
{
	const json_t *d = json_object_get(profile, "device");
	static const char *const peaks[] = { "fp32", "tf32", "fp16", "bf16" };
	ww_str_adds(s, "device: ");
	add_name(s, ww_json_str(d, "name", "?"), 80);
	ww_str_adds(s, "; measured: a copy ");
	ww_profile_add_amount(s, num(d, "memory_bytes_per_s"), "B/s");
	for (size_t i = 0; i < WW_ARRAY_LEN(peaks); i++) {
		char key[16];
		snprintf(key, sizeof(key), "%s_flops", peaks[i]);
		if (!isfinite(num(d, key)))
			continue;
		ww_str_addf(s, ", %s ", peaks[i]);
		ww_profile_add_amount(s, num(d, key), "flop/s");
	}
	ww_str_adds(s, "\n");
}

static void add_least(const json_t *totals, double us, struct ww_str *s)
{
	double least = num(totals, "memory_us");
	ww_str_adds(s, "at least ");
	ww_profile_add_amount(s, num(totals, "bytes"), "B must move");
	if (isfinite(least))
		ww_str_addf(s, ": %.1f us at the measured bandwidth, %.0f%% of the time spent", least, 100 * least / us);
	ww_str_adds(s, "; the task has ");
	ww_profile_add_amount(s, num(totals, "flops"), "flop");
	if (isfinite(num(totals, "of_compute")))
		ww_str_addf(s, ": %.0f%% of the %s peak in that time", 100 * num(totals, "of_compute"),
			ww_json_str(totals, "peak", "?"));
	ww_str_addc(s, '\n');
}

/* ---- Of the reference -------------------------------------------------------------------------------------------- */

static void add_operator(const json_t *o, struct ww_str *s)
{
	const json_t *launches = json_object_get(o, "launches"), *out = json_array_get(json_object_get(o, "out"), 0), *size;
	size_t i;
	add_percent(s, num(o, "share"));
	ww_str_addf(s, "%12.2f", num(o, "us"));
	if (json_is_integer(launches))
		ww_str_addf(s, "%9lld", (long long)json_integer_value(launches));
	else
		ww_str_addf(s, "%9s", "-");
	add_rate(s, num(o, "bytes"), "B");
	add_rate(s, num(o, "bytes_per_s"), "B/s");
	add_rate(s, num(o, "flops_per_s"), "flop/s");
	add_percent(s, num(o, "of_roofline"));
	ww_str_addf(s, "  %-8s  ", ww_json_str(o, "bound", "?"));
	add_name(s, ww_json_str(o, "name", "?"), NAME_BYTES);
	ww_str_addf(s, " = %s -> %s[", ww_json_str(o, "op", "?"), ww_json_str(out, "dtype", "?"));
	json_array_foreach(json_object_get(out, "sizes"), i, size)
		ww_str_addf(s, "%s%lld", i ? ", " : "", (long long)json_integer_value(size));
	ww_str_adds(s, "]\n");
}

static void add_kernels(const json_t *rows, struct ww_str *s)
{
	int left = MAX_KERNEL_LINES;
	const json_t *o, *k;
	size_t i, j;
	json_array_foreach(rows, i, o) {
		json_array_foreach(json_object_get(o, "kernels"), j, k) {
			if (left-- <= 0)
				return;
			if (left == MAX_KERNEL_LINES - 1)
				ww_str_adds(s, "kernels of the longest operators:\n");
			ww_str_addf(s, "%12.2f us  ", num(k, "us"));
			add_name(s, ww_json_str(o, "name", "?"), NAME_BYTES);
			ww_str_adds(s, ": ");
			add_name(s, ww_json_str(k, "name", "?"), 120);
			ww_str_addc(s, '\n');
		}
	}
}

static void reference_text(const json_t *profile, struct ww_str *s)
{
	const json_t *totals = json_object_get(profile, "totals"), *rows = json_object_get(profile, "operators"), *o;
	const json_t *launches = json_object_get(totals, "launches");
	double us = num(totals, "us");
	size_t i;

	ww_str_adds(s, "where the time of the reference goes (eager mode): ");
	ww_str_addf(s, "%.1f us in %zu operators", us, json_array_size(rows));
	if (json_is_integer(launches))
		ww_str_addf(s, " and %lld launches", (long long)json_integer_value(launches));
	ww_str_addf(s, "; a call takes %.1f us, of which %.0f%% lie between the operators\n", num(totals, "call_us"),
		100 * num(totals, "overhead_share"));
	add_least(totals, us, s);
	ww_str_adds(s, "operator by operator they move ");
	ww_profile_add_amount(s, num(totals, "node_bytes"), "B");
	ww_str_addf(s, "; %lld more operators are views and cost nothing\n\n", (long long)ww_json_int(totals, "views", 0));
	ww_str_addf(s, "%6s%12s%9s%13s%13s%13s%6s  %-8s  %s\n", "share", "us", "launches", "bytes", "bytes/s", "flop/s",
		"roof", "bound", "operator");
	json_array_foreach(rows, i, o)
		if (i < MAX_ROWS)
			add_operator(o, s);
	if (json_array_size(rows) > MAX_ROWS)
		ww_str_addf(s, "... and %zu shorter ones\n", json_array_size(rows) - MAX_ROWS);
	ww_str_addc(s, '\n');
	add_kernels(rows, s);
	add_device(profile, s);
	const char *method = ww_json_str(profile, "method", "?");
	ww_str_addf(s, "times: %s; bytes and flop are those of the graph\n",
		!strcmp(method, "kernels") ? "of the kernels that were launched for an operator (torch.profiler)"
			: !strcmp(method, "events")
			? "CUDA events around each operator, gaps included (torch.profiler saw no kernels)"
			: "a clock around each operator");
}

/* ---- Of a solution ----------------------------------------------------------------------------------------------- */

static void add_what(const json_t *o, struct ww_str *s)
{
	const json_t *grid = json_object_get(o, "grid"), *block = json_object_get(o, "block");
	if (!json_is_string(json_object_get(o, "kernel"))) {
		ww_str_adds(s, ww_json_str(o, "kind", "?"));
		return;
	}
	add_name(s, ww_json_str(o, "kernel", "?"), NAME_BYTES);
	for (size_t i = 0; i < json_array_size(grid); i++)
		ww_str_addf(s, "%s%lld", i ? "x" : "  grid ", (long long)json_integer_value(json_array_get(grid, i)));
	for (size_t i = 0; i < json_array_size(block); i++)
		ww_str_addf(s, "%s%lld", i ? "x" : " block ", (long long)json_integer_value(json_array_get(block, i)));
}

static void add_node(const json_t *o, int cuda, struct ww_str *s)
{
	add_percent(s, num(o, "share"));
	ww_str_addf(s, "%12.2f%12.2f", num(o, "us"), num(o, cuda ? "alone_us" : "busy_threads"));
	add_rate(s, num(o, "bytes"), "B");
	add_rate(s, num(o, "bytes_per_s"), "B/s");
	add_rate(s, num(o, "flops_per_s"), "flop/s");
	add_percent(s, num(o, "of_roofline"));
	ww_str_addf(s, "  %-9s  #%lld ", ww_json_str(o, "limit", "?"), (long long)ww_json_int(o, "node", 0));
	add_what(o, s);
	ww_str_addc(s, '\n');
}

static void add_resources(const json_t *o, struct ww_str *s)
{
	if (!json_is_integer(json_object_get(o, "registers")))
		return;
	ww_str_addf(s,
		"    %lld registers, %lld bytes of local memory (stack and spills) a thread, "
		"%lld + %lld bytes of shared memory "
		"(dynamic + static), %lld blocks a multiprocessor",
		(long long)ww_json_int(o, "registers", 0), (long long)ww_json_int(o, "local_bytes", 0),
		(long long)ww_json_int(o, "shared_bytes", 0), (long long)ww_json_int(o, "static_shared_bytes", 0),
		(long long)ww_json_int(o, "blocks_per_sm", 0));
	if (isfinite(num(o, "occupancy")))
		ww_str_addf(s, " = %.0f%% of its threads, limited by %s; %.2f waves", 100 * num(o, "occupancy"),
			ww_json_str(o, "occupancy_limited_by", "?"), num(o, "waves"));
	ww_str_addc(s, '\n');
}

static void add_counters(const json_t *o, struct ww_str *s)
{
	const json_t *c = json_object_get(o, "counters"), *v;
	const char *key;
	int n = 0;
	json_object_foreach((json_t *)(uintptr_t)c, key, v) {
		ww_str_adds(s, n % 4 ? "  " : n ? "\n      " : "    counters:\n      ");
		ww_str_addf(s, "%s ", key);
		ww_profile_add_amount(s, json_number_value(v), "");
		n++;
	}
	if (n)
		ww_str_addc(s, '\n');
}

/* The longest nodes, indices into rows. */
static int order(const json_t *rows, size_t *top, int max)
{
	int n = 0;
	for (size_t i = 0; i < json_array_size(rows); i++) {
		double us = num(json_array_get(rows, i), "us");
		int at = n < max ? n++ : max;
		while (at > 0 && num(json_array_get(rows, top[at - 1]), "us") < us) {
			if (at < max)
				top[at] = top[at - 1];
			at--;
		}
		if (at < max)
			top[at] = i;
	}
	return n;
}

static void add_sass(const json_t *profile, struct ww_str *s)
{
	const json_t *o = json_object_get(profile, "sass"), *v;
	const char *key;
	int n = 0;
	if (!o)
		return;
	if (!ww_json_bool(o, "available", 0)) {
		ww_str_addf(s, "\nno machine code: %s\n", ww_json_str(o, "reason", "?"));
		return;
	}
	ww_str_addf(s, "\nmachine code of #%lld: %lld instructions; ", (long long)ww_json_int(o, "node", 0),
		(long long)ww_json_int(o, "instructions", 0));
	ww_str_addf(s,
		ww_json_bool(o, "is_loop", 0) ? "the innermost loop with the most work has %lld:" : "no loop, all %lld:",
		(long long)ww_json_int(o, "lines", 0));
	json_object_foreach(json_object_get(o, "mix"), key, v)
		ww_str_addf(s, "%s %s %lld", n++ ? "," : "", key, (long long)json_integer_value(v));
	ww_str_adds(s, "\n");
	ww_str_adds(s, ww_json_str(o, "loop", ""));
}

static void add_nodes(const json_t *rows, int cuda, struct ww_str *s)
{
	size_t top[MAX_ROWS];
	int n = order(rows, top, MAX_ROWS);
	ww_str_addf(s, "\n%6s%12s%12s%13s%13s%13s%6s  %-9s  %s\n", "share", "us", cuda ? "alone us" : "threads", "bytes",
		"bytes/s", "flop/s", "roof", "limit", "node");
	for (int i = 0; i < n; i++)
		add_node(json_array_get(rows, top[i]), cuda, s);
	if (json_array_size(rows) > MAX_ROWS)
		ww_str_addf(s, "... and %zu shorter ones\n", json_array_size(rows) - MAX_ROWS);
	ww_str_addc(s, '\n');
	for (int i = 0; i < n && i < MAX_DETAILED; i++) {
		const json_t *o = json_array_get(rows, top[i]);
		ww_str_addf(s, "#%lld ", (long long)ww_json_int(o, "node", 0));
		ww_str_adds(s, ww_json_str(o, "sentence", "?"));
		ww_str_addc(s, '\n');
		add_resources(o, s);
		add_counters(o, s);
	}
}

static void solution_text(const json_t *profile, struct ww_str *s)
{
	const json_t *totals = json_object_get(profile, "totals"), *counters = json_object_get(profile, "counters");
	double us = num(totals, "us");
	int cuda = json_is_object(counters);

	ww_str_addf(s, "the plan takes %.2f us: %lld nodes, %lld of them launches, %.2f us one by one", us,
		(long long)ww_json_int(totals, "nodes", 0), (long long)ww_json_int(totals, "launches", 0),
		num(totals, "nodes_us"));
	if (cuda)
		ww_str_addf(s, " (%.2f us of each are the clock)", num(totals, "clock_us"));
	ww_str_adds(s, "\n");
	if (json_is_string(json_object_get(totals, "sentence")))
		ww_str_addf(s, "what limits its longest node, #%lld: %s\n", (long long)ww_json_int(totals, "longest", 0),
			ww_json_str(totals, "sentence", ""));
	add_least(totals, us, s);
	ww_str_adds(s, "its nodes move ");
	ww_profile_add_amount(s, num(totals, "node_bytes"), "B, each buffer that a node names counted once and whole\n");
	add_nodes(json_object_get(profile, "nodes"), cuda, s);
	if (cuda && !ww_json_bool(counters, "available", 0))
		ww_str_addf(s, "no hardware counters: %s\n", ww_json_str(counters, "reason", "?"));
	else if (ww_json_int(counters, "disturbed", 0))
		ww_str_addf(s, "no hardware counters of %lld nodes: other processes had the device while they were read\n",
			(long long)ww_json_int(counters, "disturbed", 0));
	add_device(profile, s);
	ww_str_addf(s, "times: %s\n", ww_json_str(profile, "method", "?"));
	if (!cuda)
		ww_str_adds(s,
			"(on the cpu target the candidate's own process holds the clock of a profile; "
			"a verdict's times are the judge's)\n");
	ww_str_adds(s, "a profile does not check the result; a verdict does\n");
	add_sass(profile, s);
}

void ww_profile_text(const json_t *profile, struct ww_str *out)
{
	ww_auto_str s = WW_STR_INIT(1 << 20);
	if (!ww_profile_ok(profile))
		ww_str_addf(&s, "status: %s\n%s", ww_json_str(profile, "status", "?"), ww_json_str(profile, "diagnostics", ""));
	else if (!strcmp(ww_json_str(profile, "what", ""), "reference"))
		reference_text(profile, &s);
	else
		solution_text(profile, &s);
	/* Cut at the end, which matters least. */
	size_t room = WW_PROFILE_TEXT_BYTES - 64;
	if (s.len > room) {
		while (room > 0 && s.p[room - 1] != '\n')
			room--;
		ww_str_add(out, s.p, room);
		ww_str_addf(out, "... cut; --json has everything\n");
	} else {
		ww_str_add(out, s.p, s.len);
	}
}
