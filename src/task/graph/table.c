/* table.c - the rows of ops.def, and a node's arguments as a row names them. */
#include "task/graph/rules.h"

#include "base/json.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static const struct graph_row rows[] = {
#define ROW(args, results, rule, variant, ops) { args, results, rule##_rule, variant, ops },
#include "task/graph/ops.def"
#undef ROW
};

/* ---- Operators by name ------------------------------------------------------------------------------------------- */

struct word {
	const char *text; /* in ops of its row */
	int len;
	const struct graph_row *row;
};

static struct {
	struct word *word;
	size_t n;
} table;

static int by_text(const void *a, const void *b)
{
	const struct word *x = a, *y = b;
	int n = x->len < y->len ? x->len : y->len, order = strncmp(x->text, y->text, (size_t)n);
	return order ? order : x->len - y->len;
}

/* Once, for the life of the process. */
static void fill_table(void)
{
	size_t most = 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++)
		most += strlen(rows[i].ops) / 2 + 1;
	table.word = calloc(most, sizeof(*table.word));
	for (size_t i = 0; table.word && i < WW_ARRAY_LEN(rows); i++)
		for (const char *s = rows[i].ops; *s; s += *s == ' ') {
			const int len = (int)strcspn(s, " ");
			table.word[table.n++] = (struct word){ s, len, &rows[i] };
			s += len;
		}
	if (table.word)
		qsort(table.word, table.n, sizeof(*table.word), by_text);
}

static const struct graph_row *find(const char *text, int len)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	const struct word key = { text, len, NULL }, *w;
	pthread_once(&once, fill_table);
	w = table.n ? bsearch(&key, table.word, table.n, sizeof(key), by_text) : NULL;
	return w ? w->row : NULL;
}

const struct graph_row *graph_row_of(const char *op, int *in_place)
{
	char name[96];
	const char *s = !strncmp(op, "aten.", 5) ? op + 5 : "", *overload = strchr(s, '.');
	const int base = (int)strcspn(s, ".");
	const struct graph_row *row;
	*in_place = base > 2 && s[base - 1] == '_' && s[base - 2] != '_'; /* __and__ is not in place */
	if (!overload || !strcmp(overload, ".default"))
		overload = "";
	for (int cut = 0; cut <= *in_place; cut++) {
		const int n = snprintf(name, sizeof(name), "%.*s%s", base - cut, s, overload);
		if (n > 0 && n < (int)sizeof(name) && (row = find(name, n)))
			return row;
	}
	return NULL;
}

/* ---- Arguments --------------------------------------------------------------------------------------------------- */

/* "self:T dim:i? * dtype:s?": the next name and kind; *by_name: from here on only by name.  NULL: the end. */
static const char *next_arg(const char *s, struct graph_arg *a, int *by_name)
{
	while (*s == ' ' || *s == '*')
		*by_name |= *s++ == '*';
	if (!*s)
		return NULL;
	a->name = s;
	a->name_len = (int)strcspn(s, ":");
	s += a->name_len + 1;
	a->kind = *s++;
	a->optional = *s == '?';
	return s + a->optional;
}

int graph_bind(struct call *c, const struct graph_row *row, const json_t *node)
{
	const json_t *args = json_object_get(node, "args"), *kwargs = json_object_get(node, "kwargs");
	size_t at = 0, named = 0;
	int by_name = 0;
	c->row = row;
	c->n_arg = 0;
	for (const char *s = row->args; c->n_arg < GRAPH_MAX_ARGS;) {
		struct graph_arg a = { .name = NULL };
		char name[64];
		if (!(s = next_arg(s, &a, &by_name)))
			break;
		snprintf(name, sizeof(name), "%.*s", a.name_len, a.name);
		a.j = json_object_get(kwargs, name);
		named += a.j != NULL;
		if (!by_name && at < json_array_size(args)) {
			if (a.j) /* twice */
				return -1;
			a.j = json_array_get(args, at++);
		}
		a.j = json_is_null(a.j) ? NULL : a.j;
		c->arg[c->n_arg++] = a;
	}
	return at == json_array_size(args) && named == json_object_size(kwargs) ? 0 : -1;
}

int ww_graph_knows(const json_t *node)
{
	struct call c = { .n_arg = 0 };
	const char *op = ww_json_str(node, "op", "");
	int in_place;
	const struct graph_row *row = graph_row_of(op, &in_place);
	return !strcmp(op, "getitem") || (row && graph_bind(&c, row, node) == 0);
}
