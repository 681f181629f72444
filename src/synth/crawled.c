/* crawled.c - a catalogue of `synth crawl` as an input of the grammar: operators that its own table lacks, and tasks of
 * transformers' blocks.
 *
 * An operator is taken where its row says how it composes: a floating result with the shape of its operands, or without
 * the last axis.  A block's row holds the text of its task; what is drawn here are the three sizes at its top.  One
 * that gives rows of features can become a class, behind whose output the grammar goes on.
 */
#include "synth/crawled.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "synth/grammar.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 << 20, FEATURES = 64, ONE = 0, TWO = 1, AXIS = 2, LAST = 3 };
static const double WEIGHT = 0.3, BEHIND = 0.6; /* share of the blocks that can have pieces behind them, and get some */

struct ww_synth_crawled {
	json_t *file; /* holds the texts that rows point to */
	struct ww_synth_op *ops;
	int n_ops, n_blocks;
	const json_t **blocks;
	char id[WW_HASH_HEX]; /* SHA-256 of the file */
};

/* ---- Operators */

static const struct {
	const char *sampler, *shape_rule, *args;
	int variant;
	unsigned traits;
} composes[] = {
	{ "(x)", "same", "($)", ONE, 0 },
	{ "(positive)", "same", "($)", ONE, NEED_POS },
	{ "(probability)", "same", "($)", ONE, NEED_UNIT },
	{ "(x, y)", "same", "($, @)", TWO, 0 },
	{ "(x, dim)", "same", "($, @)", AXIS, 0 },
	{ "(x, dim)", "reduced", "($, @)", LAST, 0 },
};

RULE(crawled)
{
	char args[MAX_ARGS] = "-1";
	struct ww_synth_type out = x->t;
	if (op->variant == ONE)
		return sy_rule_unary(c, op, x);
	if (!sy_is_float(x) || x->t.rank < 2 || c->dtype != WW_SYNTH_F32 || (op->traits & NEED_SMALL && x->mag > 5.2))
		return 0;
	if (op->variant == TWO) {
		const struct input *y = sy_add_input(c, "y", &x->t, IN_NORMAL);
		if (!y)
			return 0;
		snprintf(args, sizeof(args), "%s", y->name);
	} else if (op->variant == LAST) {
		out = sy_without_dim(out, out.rank - 1);
	}
	sy_apply(c, op, x, args, &out);
	return 1;
}

static const char *last_part(const char *name) { return strrchr(name, '.') ? strrchr(name, '.') + 1 : name; }

/* Whether the built-in table has an operator of this name, by itself or in its text. */
static int is_built_in(const char *name)
{
	char call[80];
	snprintf(call, sizeof(call), ".%.70s(", last_part(name));
	for (int i = 0; i < ww_synth_ops(); i++) {
		const struct ww_synth_op *op = ww_synth_op(i);
		if (!strcmp(op->name, last_part(name)) || (op->f && strstr(op->f, call)))
			return 1;
	}
	return 0;
}

/* Other categories choose their inputs by what their own rows say. */
static enum ww_synth_category category_of(const json_t *row, int variant)
{
	static const enum ww_synth_category may[] = { WW_SYNTH_ACTIVATION, WW_SYNTH_POINTWISE, WW_SYNTH_SOFTMAX,
		WW_SYNTH_SCAN, WW_SYNTH_REDUCTION };
	for (size_t i = 0; variant != TWO && i < WW_ARRAY_LEN(may); i++)
		if (!strcmp(ww_synth_category_name(may[i]), ww_json_str(row, "category", "")))
			return may[i];
	return variant == TWO ? WW_SYNTH_BINARY : WW_SYNTH_POINTWISE;
}

/* largest: of the results of inputs scaled by 2^6. */
static void set_growth(struct ww_synth_op *op, const json_t *row)
{
	double largest = ww_json_num(row, "largest", -1);
	op->growth = largest < 0 ? G_EXP : largest <= 8 ? G_BOUND : largest <= 4096 ? G_SAME : G_SQUARE;
	op->traits |= largest < 0 ? NEED_SMALL : 0;
}

static int is_usable(const json_t *row)
{
	const char *dtype = ww_json_str(json_object_get(row, "dtype_rule"), "float32", "");
	return !strcmp(dtype, "float32") && !ww_json_bool(row, "identity", 1) &&
		strcmp(ww_json_str(row, "source", ""), "torch.nn") && !is_built_in(ww_json_str(row, "operator", ""));
}

/* "torch.special.ndtr($)", "F.logsigmoid($)" */
static char *call_of(const json_t *row, const char *args)
{
	const char *name = ww_json_str(row, "operator", "");
	int functional = !strcmp(ww_json_str(row, "source", ""), "torch.nn.functional");
	ww_auto_str s = WW_STR_INIT(400);
	ww_str_addf(&s, "%s%s%s", functional ? "F." : "", functional ? last_part(name) : name, args);
	return s.cut ? NULL : strdup(s.p);
}

/* Skips a row that does not say how it composes, and one that the built-in table has. */
static enum ww_rc add_op(struct ww_synth_crawled *k, const json_t *row, struct ww_err *err)
{
	const char *sampler = json_string_value(json_array_get(json_object_get(row, "samplers"), 0));
	for (size_t i = 0; sampler && is_usable(row) && i < WW_ARRAY_LEN(composes); i++) {
		if (strcmp(sampler, composes[i].sampler) || strcmp(ww_json_str(row, "shape_rule", ""), composes[i].shape_rule))
			continue;
		struct ww_synth_op *op = &k->ops[k->n_ops];
		*op = (struct ww_synth_op){ last_part(ww_json_str(row, "operator", "")), sy_rule_crawled, "crawled",
			category_of(row, composes[i].variant), call_of(row, composes[i].args), NULL, composes[i].variant,
			composes[i].traits, G_SAME, WEIGHT, 1 };
		if (!op->f)
			return ww_nomem(err);
		set_growth(op, row);
		k->n_ops++;
	}
	return WW_OK;
}

int sy_ops(const struct ww_comp *c) { return ww_synth_ops() + (c->r->crawled ? c->r->crawled->n_ops : 0); }

const struct ww_synth_op *sy_op(const struct ww_comp *c, int i)
{
	return i < ww_synth_ops() ? ww_synth_op(i) : &c->r->crawled->ops[i - ww_synth_ops()];
}

/* ---- Blocks */

static void replace(struct ww_str *out, const char *text, const char *const *names, const int64_t *values, int n)
{
	for (const char *p = text; *p;) {
		int i = 0;
		while (i < n && strncmp(p, names[i], strlen(names[i])))
			i++;
		if (i < n) {
			ww_str_addf(out, "%lld", (long long)values[i]);
			p += strlen(names[i]);
		} else {
			ww_str_addc(out, *p++);
		}
	}
}

/* Whether its output was rows of features at the first sizes that it was tried with (TRIED in crawl.py). */
static int keeps_rows(const json_t *row)
{
	json_auto_t *rows = json_pack("[i, i, i]", 2, 8, FEATURES);
	return json_equal(json_object_get(row, "output"), rows);
}

/* What stands between two texts, moving *at behind the second; 0: they are not there. */
static int between(const char **at, const char *after, const char *before, const char **text, size_t *n)
{
	const char *begin = strstr(*at, after), *end = begin ? strstr(begin + strlen(after), before) : NULL;
	if (!end)
		return 0;
	*text = begin + strlen(after);
	*n = (size_t)(end - *text);
	*at = end;
	return 1;
}

/* A task's text as a class "Block", which Model calls with what the task's forward() is called with. */
static int block_class(struct ww_comp *c, const char *task)
{
	struct cls *model = c->cls[0];
	const char *head, *init, *args, *body, *inputs;
	size_t n_head, n_init, n_args, n_body, n_inputs;
	if (!between(&task, "import torch\nimport torch.nn as nn\n", "class Model(", &head, &n_head) ||
		!between(&task, "class Model(", "def forward(self, ", &init, &n_init) ||
		!between(&task, "def forward(self, ", "):\n", &args, &n_args) ||
		!between(&task, "):\n", "def get_inputs():\n", &body, &n_body) ||
		!between(&task, "    return [", "]\n\n", &inputs, &n_inputs) || n_args >= sizeof(model->args) / 2)
		return 0;
	ww_str_addf(&c->block, "%.*sclass Block(%.*sdef forward(self, %.*s):\n%.*s", (int)n_head, head, (int)n_init, init,
		(int)n_args, args, (int)n_body, body);
	ww_str_add(&c->block_inputs, inputs, n_inputs);
	snprintf(model->args, sizeof(model->args), "%.*s", (int)n_args, args);
	return !c->block.cut && !c->block_inputs.cut;
}

/* One or two pieces of a network, or a few operators. */
static int behind(struct ww_comp *c, struct val *x)
{
	char args[sizeof(c->at->args)], *save = NULL;
	snprintf(args, sizeof(args), "%s", c->at->args);
	sy_init_line(c, "self.%s = Block()", sy_attribute(c, "block"));
	sy_line(c, "x = self.block(%s)", args);
	sy_attribute(c, "x");
	for (const char *a = strtok_r(args, ", ", &save); a; a = strtok_r(NULL, ", ", &save))
		if (strcmp(a, "x"))
			sy_attribute(c, a); /* so that no other input takes its name */
	snprintf(x->name, sizeof(x->name), "x");
	x->mag = 10;
	if (sy_chance(c, 0.4))
		return sy_follow(c, x, (int)sy_between(c, 1, 3), c->r->categories);
	return sy_rows_piece(c, x) && (sy_chance(c, 0.6) || sy_rows_piece(c, x));
}

int sy_compose_block(struct ww_comp *c, struct val *x, struct ww_str *source)
{
	static const char *const names[] = { "{batch}", "{sequence}", "{width}" };
	static const int64_t widths[] = { 1, 2, 4, 6, 8, 12, 16, 32 };
	const struct ww_synth_crawled *k = c->r->crawled;
	double even[WW_SYNTH_MAX_BLOCKS], per_token;
	for (int i = 0; i < k->n_blocks; i++)
		even[i] = 1;
	const json_t *row = k->blocks[sy_choose(c, even, k->n_blocks)];
	int64_t width = PICK(c, widths), sequence = sy_draw_dim(c, 8, 1024), h = FEATURES * width;
	int64_t batch = (int64_t)(exp2(c->size) / (double)(sequence * h));
	if (batch < 1 || batch > 4096 || 4.0 * (double)(batch * sequence * h) > c->r->max_input_bytes / 2)
		return 0;
	replace(source, ww_json_str(row, "task", ""), names, (int64_t[]){ batch, sequence, width }, 3);
	c->dtype = WW_SYNTH_F32;
	x->t = (struct ww_synth_type){ WW_SYNTH_F32, 3, { batch, sequence, h } };
	per_token = 2 * ww_json_num(row, "parameters", 0) * (double)(width * width);
	for (int i = 0; i < 8; i++) /* launches of a small block */
		sy_work(c, 2.0 * (double)ww_synth_bytes(&x->t), per_token * (double)(batch * sequence) / 8);
	c->memory_bytes += 12.0 * (double)ww_synth_bytes(&x->t);
	sy_count_op(c, last_part(ww_json_str(row, "operator", "")));
	if (source->cut || !keeps_rows(row) || !sy_chance(c, BEHIND) || !block_class(c, source->p))
		return !source->cut;
	ww_str_reset(source);
	return behind(c, x);
}

/* ---- The file */

static enum ww_rc add_rows(struct ww_synth_crawled *k, const char *path, struct ww_err *err)
{
	const json_t *rows = json_object_get(k->file, "operators"), *row;
	size_t i, n = json_array_size(rows);
	if (ww_json_int(k->file, "version", 0) != 1 || !n)
		return ww_err_set(err, WW_ERR_USAGE, "%s is no catalogue; warpwright synth crawl FILE writes one", path);
	WW_CHECK(WW_NEW(k->ops, n, err));
	WW_CHECK(WW_NEW(k->blocks, n, err));
	json_array_foreach(rows, i, row) {
		if (!ww_json_str(row, "task", NULL))
			WW_CHECK(add_op(k, row, err));
		else if (k->n_blocks < WW_SYNTH_MAX_BLOCKS)
			k->blocks[k->n_blocks++] = row;
	}
	return WW_OK;
}

enum ww_rc ww_synth_crawled_open(struct ww_synth_crawled **out, const char *path, struct ww_err *err)
{
	enum ww_rc rc = WW_OK;
	ww_auto_str text = WW_STR_INIT(MAX_BYTES);
	struct ww_synth_crawled *k;
	*out = NULL;
	WW_CHECK(WW_NEW(k, 1, err));
	WW_TRY(ww_fs_read(path, MAX_BYTES, &text, err));
	WW_TRY(ww_json_parse(text.p, text.len, path, &k->file, err));
	ww_hash_hex(text.p, text.len, k->id);
	WW_TRY(add_rows(k, path, err));
	*out = k;
out:
	if (rc != WW_OK)
		ww_synth_crawled_close(k);
	return rc;
}

void ww_synth_crawled_close(struct ww_synth_crawled *k)
{
	if (!k)
		return;
	for (int i = 0; i < k->n_ops; i++)
		free((char *)(uintptr_t)k->ops[i].f);
	free(k->ops);
	free(k->blocks);
	json_decref(k->file);
	free(k);
}

const char *ww_synth_crawled_id(const struct ww_synth_crawled *k) { return k->id; }
int ww_synth_crawled_blocks(const struct ww_synth_crawled *k) { return k->n_blocks; }
