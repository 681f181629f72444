/* curriculum.c - see curriculum.h. */
#include "rl/curriculum.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define LEAST_WEIGHT 0.02

struct seen {
	double sum, squares, count; /* of milestones, their squares, episodes; older episodes weigh less */
};
struct ww_curriculum {
	char *const *tasks;
	int64_t n;
	uint64_t seed;
	struct seen *seen, *next; /* next: with the episodes of a step that is not committed */
	struct key {
		double key;
		int64_t task;
	} *keys; /* of one draw */
};

enum ww_rc ww_curriculum_new(
	char *const *tasks, int64_t n, uint64_t seed, struct ww_curriculum **out, struct ww_err *err)
{
	struct ww_curriculum *c;
	enum ww_rc rc;
	WW_CHECK(WW_NEW(c, 1, err));
	*c = (struct ww_curriculum){ .tasks = tasks, .n = n, .seed = seed };
	WW_TRY(WW_NEW(c->seen, n, err));
	WW_TRY(WW_NEW(c->next, n, err));
	WW_TRY(WW_NEW(c->keys, n, err));
	*out = c;
out:
	if (rc != WW_OK)
		ww_curriculum_free(c);
	return rc;
}

void ww_curriculum_free(struct ww_curriculum *c)
{
	if (!c)
		return;
	free(c->seen);
	free(c->next);
	free(c->keys);
	free(c);
}

double ww_curriculum_success(const struct ww_curriculum *c, int64_t task)
{
	const struct seen *s = &c->seen[task];
	return (s->sum + 0.5) / (s->count + 1);
}

/* Variance of the milestones: 1/4 where none was seen. */
static double spread(const struct seen *s)
{
	double mean = (s->sum + 0.5) / (s->count + 1);
	return (s->squares + 0.5) / (s->count + 1) - mean * mean;
}

static int by_key(const void *a, const void *b)
{
	const struct key *x = a, *y = b;
	if (x->key != y->key)
		return x->key > y->key ? -1 : 1;
	return x->task < y->task ? -1 : x->task > y->task;
}

/* The largest log(u) / weight come first: a draw without replacement by weight (Efraimidis and Spirakis, 2006). */
static void shuffle(struct ww_curriculum *c, struct ww_rng *rng)
{
	for (int64_t i = 0; i < c->n; i++) {
		double u = (double)(ww_rng_below(rng, 1ull << 53) + 1) * 0x1p-53;
		c->keys[i] = (struct key){ log(u) / (spread(&c->seen[i]) + LEAST_WEIGHT), i };
	}
	qsort(c->keys, (size_t)c->n, sizeof(*c->keys), by_key);
}

void ww_curriculum_draw(struct ww_curriculum *c, int64_t first, int64_t last, int64_t each, int64_t *out)
{
	for (int64_t step = first; step <= last; step++) {
		struct ww_rng rng;
		ww_rng_init(&rng, c->seed, (uint64_t)step);
		for (int64_t g = 0; g < each; g++) {
			if (g % c->n == 0)
				shuffle(c, &rng);
			*out++ = c->keys[g % c->n].task;
		}
	}
}

void ww_curriculum_begin(struct ww_curriculum *c) { memcpy(c->next, c->seen, (size_t)c->n * sizeof(*c->seen)); }
void ww_curriculum_commit(struct ww_curriculum *c) { memcpy(c->seen, c->next, (size_t)c->n * sizeof(*c->seen)); }

static struct seen *find(struct ww_curriculum *c, const char *task)
{
	for (int64_t i = 0; i < c->n; i++)
		if (!strcmp(c->tasks[i], task))
			return &c->next[i];
	return NULL;
}

void ww_curriculum_visit(struct ww_curriculum *c, const char *task)
{
	struct seen *s = find(c, task);
	if (s)
		*s = (struct seen){ s->sum / 2, s->squares / 2, s->count / 2 };
}

void ww_curriculum_note(struct ww_curriculum *c, const char *task, double reward)
{
	struct seen *s = find(c, task);
	double milestone = (reward + 1) / 4;
	if (s)
		*s = (struct seen){ s->sum + milestone, s->squares + milestone * milestone, s->count + 1 };
}

json_t *ww_curriculum_save(const struct ww_curriculum *c)
{
	json_t *list = json_array();
	for (int64_t i = 0; list && i < c->n; i++)
		json_array_append_new(list, json_pack("[f, f, f]", c->seen[i].sum, c->seen[i].squares, c->seen[i].count));
	return list;
}

void ww_curriculum_load(struct ww_curriculum *c, const json_t *state)
{
	const json_t *v;
	size_t i;
	if ((int64_t)json_array_size(state) != c->n || json_array_size(json_array_get(state, 0)) != 3)
		return;
	json_array_foreach(state, i, v)
		c->seen[i] = (struct seen){ json_number_value(json_array_get(v, 0)), json_number_value(json_array_get(v, 1)),
			json_number_value(json_array_get(v, 2)) };
}
