/* fuzz_graph.c - graphs against ww_graph_check(), and what it accepts against the whole planner.
 *
 * Whatever a graph says: the check refuses it with one line, or every build of the planner's search, for both targets,
 * ends with a solution or with a reason.
 *
 *   with libFuzzer (-DWW_FUZZ=ON, clang):   fuzz_graph CORPUS_DIR
 *   without:   fuzz_graph --corpus DIR      write the recorded graphs (tests/data/graphs) to start from
 *              fuzz_graph --mutate N SEED   N graphs made of them; prints how many were accepted
 *              fuzz_graph FILE...           run these inputs; FUZZ_WHY=1: say why one is refused
 *              FUZZ_KEEP=FILE               with --mutate: each graph is written there before it is tried
 *
 * A mutation changes numbers, types, operators and arguments of one graph, or one size wherever it occurs.  Where the
 * check then says which sizes a result must have, most graphs are given these, so that what was changed reaches the
 * planner. */
#include "driver.h"

#include "base/json.h"
#include "base/rng.h"
#include "policy/planner/search.h"
#include "task/graph/check.h"

#include <dirent.h>
#include <unistd.h>

enum { MAX_SEEDS = 1024, MAX_TRIALS = 8, MAX_REPAIRS = 40, MAX_CHANGES = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* ---- Every build ------------------------------------------------------------------------------------------------- */

static void build(const json_t *graph, const json_t *device, const char *target, const struct knobs *knobs, int n,
	struct pl_result *r)
{
	const struct pl_options options = { .explain = 1 };
	ww_pl_build(graph, device, target, knobs, n, &options, r);
	if (!r->ok && !*r->why)
		abort(); /* a refusal without a reason */
}

/* The search with invented verdicts: each trial faster than the one before it, so that changes add up, or as fast. */
static void search(const json_t *graph, const json_t *device, const char *target, const struct pl_result *first,
	const struct pl_result *last, double faster)
{
	static struct search s;
	double us = 1000;
	pl_search_init(&s, first, last, !strcmp(target, "cuda"), NULL);
	for (int i = 0; !s.done && i < MAX_TRIALS; i++) {
		struct pl_result r;
		build(graph, device, target, s.now.knobs, SEARCH_KERNELS, &r);
		json_auto_t *v = json_pack("{s:b, s:f, s:{s:f}, s:{s:f}}", "correct", 1, "reward", 1.0, "time", "device_us", us,
			"seconds", "total", 0.0);
		pl_search_feed(&s, r.ok ? v : NULL);
		ww_pl_result_release(&r);
		us *= faster;
	}
	pl_search_release(&s);
}

static void plan(const json_t *graph, int with_search)
{
	json_auto_t *device = json_pack("{s:i, s:i, s:i, s:i, s:I}", "threads", 2, "vector_bytes", 32, "cc", 90, "sm_count",
		132, "shared_per_block_bytes", (json_int_t)232448);
	for (int t = 0; t < 2; t++) {
		const char *target = t ? "cuda" : "cpu";
		struct pl_result first, all_last = { 0 };
		build(graph, device, target, NULL, 0, &first);
		const struct pl_result *last = first.ok ? pl_build_last(graph, device, target, NULL, &first, &all_last) : NULL;
		if (first.ok && with_search) {
			search(graph, device, target, &first, last, 1);
			search(graph, device, target, &first, last, 0.9);
		}
		ww_pl_result_release(&first);
		ww_pl_result_release(&all_last);
	}
}

static json_t *parse(const uint8_t *data, size_t size)
{
	struct ww_err err = WW_ERR_INIT;
	json_t *graph = NULL;
	return ww_json_parse_bounded((const char *)data, size, "a graph", 1 << 16, 1 << 18, &graph, &err) == WW_OK ? graph
																											   : NULL;
}

static int try_one(const uint8_t *data, size_t size)
{
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *graph = parse(data, size);
	if (!graph || ww_graph_check(graph, &err) != WW_OK) {
		if (graph && err.rc != WW_ERR_TASK)
			abort();
		if (graph && getenv("FUZZ_WHY"))
			fprintf(stderr, "%s\n", err.msg);
		return 0;
	}
	plan(graph, 1);
	return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)try_one(data, size);
	return 0;
}

#ifndef WW_LIBFUZZER

/* ---- The recorded graphs ----------------------------------------------------------------------------------------- */

static struct {
	char *name[MAX_SEEDS];
	json_t *graph[MAX_SEEDS];
	int n;
} seeds;

static int read_seeds(void)
{
	char path[4096];
	const char *source = getenv("WW_SOURCE_DIR");
	struct dirent **names = NULL;
	snprintf(path, sizeof(path), "%s/tests/data/graphs", source ? source : ".");
	int n = scandir(path, &names, NULL, alphasort);
	for (int i = 0; i < n; i++) {
		struct ww_err err = WW_ERR_INIT;
		char file[8192];
		snprintf(file, sizeof(file), "%s/%s", path, names[i]->d_name);
		if (strstr(names[i]->d_name, ".json") && seeds.n < MAX_SEEDS) {
			if (ww_json_read_file(file, 1 << 24, &seeds.graph[seeds.n], &err) != WW_OK ||
				ww_graph_check(seeds.graph[seeds.n], &err) != WW_OK) {
				fprintf(stderr, "fuzz_graph: %s: %s\n", file, err.msg);
				return 0;
			}
			seeds.name[seeds.n++] = strdup(names[i]->d_name);
		}
		free(names[i]);
	}
	free(names);
	return seeds.n > 0;
}

static void release_seeds(void)
{
	for (int i = 0; i < seeds.n; i++) {
		free(seeds.name[i]);
		json_decref(seeds.graph[i]);
	}
}

static int write_corpus(const char *dir)
{
	struct ww_err err = WW_ERR_INIT;
	int rc = !read_seeds() || ww_fs_mkdirs(dir, &err) != WW_OK;
	for (int i = 0; i < seeds.n && !rc; i++)
		rc = ww_json_write_file(dir, seeds.name[i], 1 << 24, seeds.graph[i], &err) != WW_OK;
	if (rc)
		fprintf(stderr, "fuzz_graph: %s\n", err.msg);
	release_seeds();
	return rc;
}

/* ---- Mutations --------------------------------------------------------------------------------------------------- */

static json_t *pick(struct ww_rng *r, json_t *list)
{
	const size_t n = json_array_size(list);
	return n ? json_array_get(list, ww_rng_below(r, n)) : NULL;
}

static json_t *any_node(struct ww_rng *r, json_t *graph) { return pick(r, json_object_get(graph, "nodes")); }

static json_t *any_tensor(struct ww_rng *r, json_t *graph)
{
	static const char *const lists[] = { "inputs", "params", "outputs" };
	const uint64_t which = ww_rng_below(r, 6);
	return which < 3 ? pick(r, json_object_get(graph, lists[which]))
					 : pick(r, json_object_get(any_node(r, graph), "out"));
}

static json_int_t other_int(struct ww_rng *r, json_int_t v)
{
	static const json_int_t values[] = { 0, 1, -1, 2, 3, 4, 5, 7, 8, 16, 31, 64, 100, 255, 1024, 4097, 65536, INT32_MAX,
		INT32_MIN, (json_int_t)1 << 40, INT64_MAX, INT64_MIN };
	switch (ww_rng_below(r, 4)) {
	case 0: return (json_int_t)((uint64_t)v + ww_rng_below(r, 5) - 2);
	case 1: return (json_int_t)((uint64_t)v * 2);
	default: return values[ww_rng_below(r, ww_rng_below(r, 3) ? 12 : WW_ARRAY_LEN(values))];
	}
}

static json_t *other_value(struct ww_rng *r, json_t *graph, const json_t *v)
{
	switch (ww_rng_below(r, 8)) {
	case 0: return json_null();
	case 1: return json_true();
	case 2: return json_real((double)other_int(r, 1) / 3);
	case 3: return json_string(ww_rng_below(r, 2) ? "inf" : "same");
	case 4:
	case 5: return json_pack("{s:s}", "ref", ww_json_str(any_node(r, graph), "name", "x"));
	case 6: return json_array();
	default: return json_integer(other_int(r, json_integer_value(v)));
	}
}

static void change_list(struct ww_rng *r, json_t *graph, json_t *list)
{
	const size_t n = json_array_size(list), i = ww_rng_below(r, n + 1);
	json_t *v = json_array_get(list, i);
	if (json_is_array(v) && ww_rng_below(r, 4)) {
		change_list(r, graph, v);
		return;
	}
	if (json_is_integer(v) && ww_rng_below(r, 8)) {
		json_integer_set(v, other_int(r, json_integer_value(v)));
		return;
	}
	switch (ww_rng_below(r, 4)) {
	case 0: json_array_remove(list, i); break;
	case 1: json_array_insert_new(list, i, v ? json_deep_copy(v) : other_value(r, graph, NULL)); break;
	default:
		if (v)
			json_array_set_new(list, i, other_value(r, graph, v));
		else
			json_array_append_new(list, other_value(r, graph, NULL));
	}
}

static void change_argument(struct ww_rng *r, json_t *graph)
{
	json_t *node = any_node(r, graph), *kwargs = json_object_get(node, "kwargs"), *v;
	const char *key;
	if (!ww_rng_below(r, 4)) {
		json_object_foreach(kwargs, key, v)
			if (!ww_rng_below(r, 2)) {
				json_object_set_new(kwargs, key, other_value(r, graph, v));
				return;
			}
	}
	if (node)
		change_list(r, graph, json_object_get(node, "args"));
}

static void change_type(struct ww_rng *r, json_t *tensor)
{
	static const char *const types[] = { "float32", "float64", "float16", "bfloat16", "int8", "int16", "int32", "int64",
		"uint8", "bool", "complex64" };
	if (tensor)
		json_object_set_new(tensor, "dtype", json_string(types[ww_rng_below(r, WW_ARRAY_LEN(types))]));
}

static void set_contiguous(json_t *tensor)
{
	json_t *sizes = json_object_get(tensor, "sizes"), *strides = json_array();
	json_int_t step = 1;
	for (size_t d = json_array_size(sizes); d-- > 0;) {
		json_int_t size = json_integer_value(json_array_get(sizes, d));
		json_array_insert_new(strides, 0, json_integer(step));
		step = size > 0 && step < (json_int_t)1 << 50 ? step * (size < 1 << 12 ? size : 1 << 12) : step;
	}
	json_object_set_new(tensor, "strides", strides);
}

static void replace_everywhere(json_t *j, json_int_t from, json_int_t to)
{
	const char *key;
	json_t *v;
	size_t i;
	json_array_foreach(j, i, v)
		replace_everywhere(v, from, to);
	json_object_foreach(j, key, v)
		if (strcmp(key, "strides") != 0)
			replace_everywhere(v, from, to);
	if (json_is_integer(j) && json_integer_value(j) == from)
		json_integer_set(j, to);
	if (json_object_get(j, "sizes"))
		set_contiguous(j);
}

/* One size, wherever that number is: a graph of other sizes, mostly a possible one. */
static void change_size(struct ww_rng *r, json_t *graph)
{
	const json_t *size = pick(r, json_object_get(any_tensor(r, graph), "sizes"));
	if (size) {
		static const json_int_t to[] = { 0, 0, 1, 2, 3, 5, 8, 12, 17, 33, 96, 1000, 4100, 70000 };
		replace_everywhere(graph, json_integer_value(size), to[ww_rng_below(r, WW_ARRAY_LEN(to))]);
	}
}

/* One type, wherever it is. */
static void change_types(struct ww_rng *r, json_t *j, const char *from, const char *to)
{
	const char *key;
	json_t *v;
	size_t i;
	json_array_foreach(j, i, v)
		change_types(r, v, from, to);
	json_object_foreach(j, key, v)
		change_types(r, v, from, to);
	if (json_is_string(j) && !strcmp(json_string_value(j), from))
		json_string_set(j, to);
}

static void change_operator(struct ww_rng *r, json_t *graph)
{
	json_t *node = any_node(r, graph), *like = any_node(r, seeds.graph[ww_rng_below(r, (uint64_t)seeds.n)]);
	if (node && like)
		json_object_set(node, "op", json_object_get(like, "op"));
}

static void change(struct ww_rng *r, json_t *graph)
{
	static const char *const floats[] = { "float32", "float64", "float16", "bfloat16" };
	json_t *t;
	switch (ww_rng_below(r, 12)) {
	case 0: change_type(r, any_tensor(r, graph)); break;
	case 1: change_types(r, graph, "float32", floats[ww_rng_below(r, 4)]); break;
	case 2: change_operator(r, graph); break;
	case 3:
		if ((t = any_tensor(r, graph)))
			change_list(r, graph, json_object_get(t, ww_rng_below(r, 4) ? "sizes" : "strides"));
		break;
	case 4:
	case 5:
	case 6: change_size(r, graph); break;
	default: change_argument(r, graph);
	}
}

/* Where the check says "its result has sizes [2, 3], where [2, 4] belong": give the node's results those sizes. */
static int repair(json_t *graph, const char *msg)
{
	const char *at = strstr(msg, "its result has sizes ["), *want = at ? strstr(at, ", where [") : NULL;
	const char *end = want ? strstr(want, "] belong") : NULL;
	char name[128] = "";
	size_t i;
	json_t *node = NULL, *out, *t;
	if (!end || sscanf(msg, "node %127s", name) != 1)
		return 0;
	json_array_foreach(json_object_get(graph, "nodes"), i, node)
		if (!strcmp(ww_json_str(node, "name", ""), name))
			break;
	out = json_object_get(node, "out");
	json_array_foreach(out, i, t) {
		json_t *sizes = json_array();
		for (const char *s = want + 9; s < end; s += strcspn(s, ",]") + 1)
			json_array_append_new(sizes, json_integer(strtoll(s, NULL, 10)));
		json_object_set_new(t, "sizes", sizes);
		set_contiguous(t);
	}
	json_array_foreach(json_object_get(graph, "outputs"), i, t)
		if (out && !strcmp(ww_json_str(t, "ref", ""), name)) {
			json_t *first = json_array_get(out, 0);
			json_object_set(t, "sizes", json_object_get(first, "sizes"));
			json_object_set(t, "strides", json_object_get(first, "strides"));
		}
	return 1;
}

static json_t *mutant(struct ww_rng *r)
{
	json_t *graph = json_deep_copy(seeds.graph[ww_rng_below(r, (uint64_t)seeds.n)]);
	for (uint64_t k = 1 + ww_rng_below(r, MAX_CHANGES); k; k--)
		change(r, graph);
	for (int k = 0; k < MAX_REPAIRS && ww_rng_below(r, 16); k++) {
		struct ww_err err = WW_ERR_INIT;
		if (ww_graph_check(graph, &err) == WW_OK || !repair(graph, err.msg))
			break;
	}
	return graph;
}

static int run_mutations(uint64_t count, uint64_t seed)
{
	const char *keep = getenv("FUZZ_KEEP");
	uint64_t accepted = 0;
	if (!read_seeds())
		return 1;
	for (uint64_t i = 0; i < count; i++) {
		struct ww_rng r;
		struct ww_err err = WW_ERR_INIT;
		ww_rng_init(&r, seed, i);
		json_auto_t *graph = mutant(&r);
		if (keep)
			json_dump_file(graph, keep, JSON_COMPACT);
		if (ww_graph_check(graph, &err) == WW_OK) {
			plan(graph, !ww_rng_below(&r, 8));
			accepted++;
		} else if (err.rc != WW_ERR_TASK) {
			fprintf(stderr, "fuzz_graph: %s\n", err.msg);
			return 1;
		}
	}
	printf(
		"fuzz_graph: %llu graphs, %llu accepted, no crash\n", (unsigned long long)count, (unsigned long long)accepted);
	release_seeds();
	return accepted == 0 || accepted == count;
}

int main(int argc, char **argv)
{
	static const struct fuzz_target target = { "fuzz_graph", write_corpus, run_mutations, try_one };
	return fuzz_main(&target, argc, argv);
}

#endif
