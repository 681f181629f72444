/* variants.c - prints every solution that the planner's search would write for a graph, without judging any.
 *
 *     accuracy-variants TARGET [TRIALS] < GRAPHS.jsonl
 *
 * Each line of the input holds "graph" and may hold "device" and "file", as the answer of `warpwright inspect --json`
 * and the lines of bench/coverage/shapes.py do.  Out, one JSON object a line: {"file", "what", "kernels", "plan"}, or
 * {"file", "why"} for a graph that the planner refuses.
 *
 * The search runs three times with invented verdicts: all variations are equally fast, so that each is one change away
 * from the default; each is faster than the one before, so that changes add up; each is wrong.  TRIALS ends each of the
 * three searches early.  Equal solutions of a graph are printed once, and what two searches try is built once. */
#include "base/hash.h"
#include "base/json.h"
#include "policy/planner/search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VARIANTS = 256 };

struct tried {
	struct knobs knobs[SEARCH_KERNELS];
	int ok;
};

struct walk {
	const json_t *line;
	const char *target;
	int trials;
	char seen[MAX_VARIANTS][WW_HASH_HEX];
	int n;
	struct tried tried[3 * SEARCH_MAX_TRIALS];
	int n_tried;
};

static void build(const struct walk *w, const struct knobs *knobs, int n_knobs, struct pl_result *r)
{
	ww_pl_build(
		json_object_get(w->line, "graph"), json_object_get(w->line, "device"), w->target, knobs, n_knobs, NULL, r);
}

static int is_new(struct walk *w, const struct pl_result *r)
{
	struct ww_hash_part parts[] = { { r->device_text, strlen(r->device_text) },
		{ r->plan_text, strlen(r->plan_text) } };
	char hex[WW_HASH_HEX];
	ww_hash_parts_hex(parts, WW_ARRAY_LEN(parts), hex);
	for (int i = 0; i < w->n; i++)
		if (!strcmp(w->seen[i], hex))
			return 0;
	if (w->n == MAX_VARIANTS)
		return 0;
	memcpy(w->seen[w->n++], hex, sizeof(hex));
	return 1;
}

/* Takes o. */
static void print(const struct walk *w, json_t *o)
{
	json_object_set_new(o, "file", json_string(ww_json_str(w->line, "file", "")));
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

/* Build and print the current trial, if no search has had it yet; whether it could be built. */
static int try_now(struct walk *w, const struct trial *now)
{
	struct tried *t = w->tried;
	struct pl_result r;
	while (t < w->tried + w->n_tried && memcmp(t->knobs, now->knobs, sizeof(t->knobs)) != 0)
		t++;
	if (t < w->tried + w->n_tried)
		return t->ok;
	build(w, now->knobs, SEARCH_KERNELS, &r);
	if (r.ok && is_new(w, &r))
		print(w, json_pack("{s:s, s:s, s:s}", "what", now->text, "kernels", r.device_text, "plan", r.plan_text));
	memcpy(t->knobs, now->knobs, sizeof(t->knobs));
	t->ok = r.ok;
	w->n_tried++;
	ww_pl_result_release(&r);
	return t->ok;
}

static void walk(
	struct walk *w, const struct pl_result *first, const struct pl_result *last, int correct, double faster)
{
	static struct search s;
	double us = 1000;
	pl_search_init(&s, first, last, !strcmp(w->target, "cuda"), NULL);
	for (int i = 0; !s.done && (!w->trials || i < w->trials); i++) {
		int built = try_now(w, &s.now);
		json_t *v = json_pack("{s:b, s:f, s:{s:f}, s:{s:f}}", "correct", correct, "reward", 1.0, "time", "device_us",
			us, "seconds", "total", 0.0);
		pl_search_feed(&s, built ? v : NULL);
		json_decref(v);
		us *= faster;
	}
}

static void every_variant(struct walk *w)
{
	struct pl_result first, all_last = { 0 };
	w->n = w->n_tried = 0;
	build(w, NULL, 0, &first);
	if (first.ok) {
		const struct pl_result *last = pl_build_last(
			json_object_get(w->line, "graph"), json_object_get(w->line, "device"), w->target, NULL, &first, &all_last);
		walk(w, &first, last, 1, 1);
		walk(w, &first, last, 1, 0.9);
		walk(w, &first, last, 0, 1);
	} else {
		print(w, json_pack("{s:s}", "why", first.why));
	}
	ww_pl_result_release(&first);
	ww_pl_result_release(&all_last);
}

int main(int argc, char **argv)
{
	static struct walk w;
	json_error_t e;
	json_t *line;

	w.target = argc > 1 ? argv[1] : "cuda";
	w.trials = argc > 2 ? atoi(argv[2]) : 0;
	while ((line = json_loadf(stdin, JSON_DISABLE_EOF_CHECK, &e))) {
		w.line = line;
		every_variant(&w);
		json_decref(line);
	}
	return 0;
}
