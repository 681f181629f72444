/* text.c - what a candidate says: classes, names, inputs, the file in KernelBench form.
 *
 * A class's constructor takes the sizes that its modules are made of by name, as people write them, and
 * get_init_inputs() lists their values.  Within a class a name means one thing.
 */
#include "synth/grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void add_line(struct ww_comp *c, struct ww_str *s, const char *fmt, va_list ap)
{
	ww_str_adds(s, "        ");
	ww_str_vaddf(s, fmt, ap);
	ww_str_adds(s, "\n");
	c->failed |= s->cut;
}

void sy_init_line(struct ww_comp *c, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	add_line(c, &c->at->init, fmt, ap);
	va_end(ap);
}

void sy_line(struct ww_comp *c, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	add_line(c, &c->at->forward, fmt, ap);
	va_end(ap);
}

static int has_attribute(const struct cls *k, const char *name)
{
	for (int i = 0; i < k->n_attr; i++)
		if (!strcmp(k->attr[i], name))
			return 1;
	return 0;
}

const char *sy_attribute(struct ww_comp *c, const char *base)
{
	struct cls *k = c->at;
	char name[28];
	snprintf(name, sizeof(name), "%s", base);
	for (unsigned i = 2; has_attribute(k, name); i++)
		snprintf(name, sizeof(name), "%.20s%u", base, i % 1000);
	if (k->n_attr == (int)WW_ARRAY_LEN(k->attr)) {
		c->failed = 1;
		return "x";
	}
	snprintf(k->attr[k->n_attr], sizeof(k->attr[0]), "%s", name);
	return k->attr[k->n_attr++];
}

/* Variables and attributes share one list of names, so that no name means two things. */
void sy_variable(struct ww_comp *c, char out[16], const char *base)
{
	snprintf(out, 16, "%.15s", sy_attribute(c, base));
}

static struct hyper *find_hyper(struct cls *k, const char *name)
{
	for (int i = 0; i < k->n_h; i++)
		if (!strcmp(k->h[i].name, name))
			return &k->h[i];
	return NULL;
}

const char *sy_hyper(struct ww_comp *c, const char *name, int64_t value)
{
	struct cls *k = c->at;
	char unique[28];
	snprintf(unique, sizeof(unique), "%s", name);
	for (unsigned i = 2;; i++) {
		struct hyper *h = find_hyper(k, unique);
		if (h && h->value == value)
			return h->name;
		if (!h && !has_attribute(k, unique))
			break;
		snprintf(unique, sizeof(unique), "%.20s%u", name, i % 1000);
	}
	if (k->n_h == MAX_HYPERS) {
		c->failed = 1;
		return "x";
	}
	struct hyper *h = &k->h[k->n_h++];
	snprintf(h->name, sizeof(h->name), "%s", unique);
	h->value = value;
	return h->name;
}

/* A width has the name of the first width of its value. */
static const char *width(struct ww_comp *c, const char *const *names, int n, int64_t value)
{
	for (int i = 0; i < n; i++) {
		struct hyper *h = find_hyper(c->at, names[i]);
		if (h && h->value == value)
			return h->name;
		if (!h)
			return sy_hyper(c, names[i], value);
	}
	return sy_hyper(c, names[n - 1], value);
}

const char *sy_feature(struct ww_comp *c, int64_t value)
{
	static const char *const names[] = { "in_features", "hidden_features", "out_features", "proj_features" };
	return width(c, names, 4, value);
}

const char *sy_channel(struct ww_comp *c, int64_t value)
{
	static const char *const names[] = { "in_channels", "out_channels", "mid_channels", "last_channels" };
	return width(c, names, 4, value);
}

struct cls *sy_class_begin(struct ww_comp *c, const char *name, const char *args)
{
	struct cls *k = c->n_cls < MAX_CLASSES ? calloc(1, sizeof(*k)) : NULL;
	if (!k) {
		c->failed = 1;
		return c->at;
	}
	ww_str_init(&k->init, 1 << 16);
	ww_str_init(&k->forward, 1 << 16);
	snprintf(k->name, sizeof(k->name), "%s", name);
	snprintf(k->args, sizeof(k->args), "%s", args);
	c->cls[c->n_cls++] = k;
	return c->at = k;
}

const char *sy_parameter(struct ww_comp *c, const char *base, const char *init)
{
	const char *name = sy_attribute(c, base);
	sy_init_line(c, "self.%s = nn.Parameter(%s)", name, init);
	return name;
}

/* ---- Inputs */

struct input *sy_add_input(struct ww_comp *c, const char *base, const struct ww_synth_type *t, enum input_kind kind)
{
	if (c->at != c->cls[0] || c->n_in == MAX_INPUTS)
		return NULL;
	struct input *in = &c->in[c->n_in++];
	*in = (struct input){ .t = *t, .kind = kind };
	snprintf(in->name, sizeof(in->name), "%.15s", sy_attribute(c, base));
	c->memory_bytes += (double)ww_synth_bytes(t);
	size_t n = strlen(c->at->args);
	snprintf(c->at->args + n, sizeof(c->at->args) - n, "%s%s", n ? ", " : "", in->name);
	return in;
}

struct val sy_input_value(struct ww_comp *c, const struct input *in)
{
	struct val v = { .t = in->t, .mag = in->kind == IN_NORMAL ? 8.3 : in->kind == IN_SIGN ? 6 : 6.6, .facts = RAW };
	if (in->kind == IN_UNIFORM || in->kind == IN_POSITIVE)
		v.facts |= NONNEG;
	if (in->layout != LAYOUT_DENSE)
		v.facts |= STRIDED;
	snprintf(v.name, sizeof(v.name), "%s", in->name);
	return v;
}

void sy_shape_text(char *out, size_t n, const int64_t *d, int rank)
{
	size_t at = 0;
	out[0] = 0;
	for (int i = 0; i < rank && at < n; i++)
		at += (size_t)snprintf(out + at, n - at, "%s%lld", i ? ", " : "", (long long)d[i]);
}

static void add_dtype(struct ww_str *s, enum ww_synth_dtype d)
{
	if (d == WW_SYNTH_F16 || d == WW_SYNTH_BF16)
		ww_str_addf(s, ", dtype=torch.%s", ww_synth_dtype_name(d));
}

static void add_draw(struct ww_str *s, const struct input *in, const int64_t *d)
{
	char shape[120];
	sy_shape_text(shape, sizeof(shape), d, in->t.rank);
	const char *comma = in->t.rank == 1 ? "," : "";
	switch (in->kind) {
	case IN_NORMAL: ww_str_addf(s, "torch.randn(%s", shape); break;
	case IN_UNIFORM:
	case IN_POSITIVE: ww_str_addf(s, "torch.rand(%s", shape); break;
	case IN_INDEX: ww_str_addf(s, "torch.randint(0, %lld, (%s%s))", (long long)in->high, shape, comma); return;
	case IN_MASK: ww_str_addf(s, "torch.randint(0, 2, (%s%s)).float()", shape, comma); break;
	case IN_SIGN: ww_str_addf(s, "(torch.randint(0, 2, (%s%s)) * 2 - 1).float()", shape, comma); break;
	case IN_BOOL: ww_str_addf(s, "torch.rand(%s) > 0.3", shape); return;
	}
	if (in->kind == IN_MASK || in->kind == IN_SIGN) {
		if (in->t.dtype != WW_SYNTH_F32)
			ww_str_addf(s, ".to(torch.%s)", ww_synth_dtype_name(in->t.dtype));
		return;
	}
	add_dtype(s, in->t.dtype);
	ww_str_adds(s, in->kind == IN_POSITIVE ? ") + 0.5" : ")");
}

/* An input that is a view gets its shape in the last step. */
static void add_input_text(struct ww_str *s, const struct input *in)
{
	int64_t d[WW_SYNTH_MAX_RANK];
	int r = in->t.rank;
	memcpy(d, in->t.d, sizeof(d));
	ww_str_addf(s, "    %s = ", in->name);
	if (in->layout == LAYOUT_TRANSPOSED) {
		d[r - 1] = in->t.d[r - 2];
		d[r - 2] = in->t.d[r - 1];
	} else if (in->layout == LAYOUT_SLICED) {
		d[r - 1] *= 2;
	}
	add_draw(s, in, d);
	ww_str_adds(s,
		in->layout == LAYOUT_TRANSPOSED          ? ".transpose(-1, -2)"
			: in->layout == LAYOUT_SLICED        ? "[..., ::2]"
			: in->layout == LAYOUT_CHANNELS_LAST ? ".to(memory_format=torch.channels_last)"
												 : "");
	ww_str_adds(s, "\n");
}

/* ---- Aliases: "gate = x" and then "gate = f(gate)" is written "gate = f(x)" */

static int is_word(char ch)
{
	return ch == '_' || (ch >= '0' && ch <= '9') || (ch >= 'A' && ch <= 'Z') || (ch >= 'a' && ch <= 'z');
}

/* Where `word` stands in [p, end) as a variable; NULL: nowhere. */
static const char *find_word(const char *p, const char *end, const char *word)
{
	size_t n = strlen(word);
	const char *begin = p;
	for (; p + n <= end; p++)
		if (!memcmp(p, word, n) && (p + n == end || !is_word(p[n])) &&
			(p == begin || (!is_word(p[-1]) && p[-1] != '.')))
			return p;
	return NULL;
}

/* "        a = b\n" into its two names. */
static int is_alias(const char *p, const char *end, char a[32], char b[32])
{
	char rest = 0;
	return end - p < 60 && p[8] != ' ' && sscanf(p, " %31[a-z0-9_] = %31[a-z0-9_]%c", a, b, &rest) == 3 && rest == '\n';
}

/* The line where the alias can go: the next one that names it, if that assigns it, and its source holds until then. */
static const char *alias_end(const char *p, const char *a, const char *b)
{
	char starts[40];
	int n = snprintf(starts, sizeof(starts), "        %s = ", a);
	for (const char *next; *p; p = next) {
		next = strchr(p, '\n') + 1;
		if (!strncmp(p, starts, (size_t)n) && find_word(p + n, next, a))
			return p + n;
		if (find_word(p, next, a) ||
			(find_word(p, next, b) == p + 8 && !is_word(p[8 + strlen(b)]) && strncmp(p + 8 + strlen(b), ".", 1)))
			return NULL;
	}
	return NULL;
}

static void drop_aliases(struct ww_str *s)
{
	char a[32], b[32];
	for (size_t at = 0; at < s->len;) {
		const char *p = s->p + at, *next = strchr(p, '\n') + 1,
				   *use = is_alias(p, next, a, b) ? alias_end(next, a, b) : NULL;
		if (!use) {
			at = (size_t)(next - s->p);
			continue;
		}
		ww_auto_str out = WW_STR_INIT(s->max);
		const char *end = strchr(use, '\n'), *from = use, *word;
		ww_str_add(&out, s->p, at);
		ww_str_add(&out, next, (size_t)(use - next));
		while ((word = find_word(from, end, a)) != NULL) {
			ww_str_add(&out, from, (size_t)(word - from));
			ww_str_adds(&out, b);
			from = word + strlen(a);
		}
		ww_str_adds(&out, from);
		ww_str_reset(s);
		ww_str_add(s, out.p, out.len);
	}
}

/* ---- The file */

/* Whether a class holds tensors, so that its dtype is to be said. */
static int has_state(const struct cls *k)
{
	static const char *const words[] = { "Parameter(", "Linear(", "Conv", "Norm", "Embedding", "PReLU(",
		"register_buffer", "Block", "Attention(", "Bilinear(", "hidden_size" };
	for (size_t i = 0; i < WW_ARRAY_LEN(words); i++)
		if (k->init.len && strstr(k->init.p, words[i]))
			return 1;
	return 0;
}

static void add_class(struct ww_comp *c, const struct cls *k, struct ww_str *s)
{
	ww_str_addf(s, "class %s(nn.Module):\n    def __init__(self", k->name);
	for (int i = 0; i < k->n_h; i++)
		ww_str_addf(s, ", %s", k->h[i].name);
	ww_str_adds(s, "):\n        super().__init__()\n");
	ww_str_add(s, k->init.p, k->init.len);
	if (k == c->cls[0] && (c->dtype == WW_SYNTH_F16 || c->dtype == WW_SYNTH_BF16) && has_state(k))
		ww_str_addf(s, "        self.to(torch.%s)\n", ww_synth_dtype_name(c->dtype));
	ww_str_addf(s, "\n    def forward(self, %s):\n", k->args);
	ww_str_add(s, k->forward.p, k->forward.len);
	ww_str_adds(s, "\n\n");
}

void sy_write_task(struct ww_comp *c, const struct val *out, struct ww_str *s)
{
	ww_str_adds(s, c->uses_math ? "import math\n\n" : "");
	ww_str_adds(s, "import torch\nimport torch.nn as nn\n");
	ww_str_adds(s, c->uses_f ? "import torch.nn.functional as F\n" : "");
	ww_str_adds(s, c->block.len ? c->block.p : "\n\n");
	c->at = c->cls[0];
	sy_line(c, "return %s", out->name);
	for (int i = c->n_cls - 1; i >= 0; i--) {
		drop_aliases(&c->cls[i]->forward);
		add_class(c, c->cls[i], s);
	}
	ww_str_adds(s, "def get_inputs():\n");
	for (int i = 0; i < c->n_in; i++)
		add_input_text(s, &c->in[i]);
	ww_str_addf(s, "    return [%s", c->block_inputs.len ? c->block_inputs.p : "");
	for (int i = 0; i < c->n_in; i++)
		ww_str_addf(s, "%s%s", i || c->block_inputs.len ? ", " : "", c->in[i].name);
	ww_str_adds(s, "]\n\n\ndef get_init_inputs():\n    return [");
	for (int i = 0; i < c->cls[0]->n_h; i++)
		ww_str_addf(s, "%s%lld", i ? ", " : "", (long long)c->cls[0]->h[i].value);
	ww_str_adds(s, "]\n");
	c->failed |= s->cut;
}
