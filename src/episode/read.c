/* read.c - reading an episode (format: docs/formats/episode.md).
 *
 * The file is split at newlines; what follows the last newline is a line that a killed process did not finish, and is
 * left out.  A complete last line that does not parse counts as cut too: after a crash a file system may have the
 * length of an append but not all of its blocks.  Any other line that does not parse is an error that names it.
 */
#include "base/err.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/str.h"
#include "episode/line.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "episode/episode.h"

enum { EPISODE_MAX_BYTES = 1 << 30 };

static const char *const finish_names[] = { "stop", "tool_calls", "length", "refusal" };

const char *ww_episode_finish_name(enum ww_finish f) { return finish_names[f]; }

/* ---- Memory ------------------------------------------------------------------------------------------------------ */

void ww_episode_release(struct ww_episode *e)
{
	struct ww_episode_header *h = &e->header;
	free(h->task_path), free(h->target), free(h->device), free(h->policy), free(h->rule), free(h->form), free(h->loop);
	free(h->prompt);
	json_decref(h->versions), json_decref(h->command), json_decref(h->tools), json_decref(h->limits);
	for (size_t i = 0; i < e->n_messages; i++)
		ww_reply_release(&e->messages[i].reply);
	for (size_t i = 0; i < e->n_solutions; i++) {
		for (size_t k = 0; k < e->solutions[i].n_files; k++)
			free(e->solutions[i].files[k].path), free(e->solutions[i].files[k].text);
		free(e->solutions[i].files);
	}
	for (size_t i = 0; i < e->n_verdicts; i++)
		free(e->verdicts[i].call_id), json_decref(e->verdicts[i].verdict);
	for (size_t i = 0; i < e->n_lost; i++)
		free(e->lost[i].why);
	for (size_t i = 0; i < e->n_compactions; i++) {
		for (size_t k = 0; k < e->compactions[i].n_calls; k++)
			free(e->compactions[i].call_ids[k]);
		free(e->compactions[i].call_ids);
	}
	free(e->messages), free(e->solutions), free(e->verdicts), free(e->lost), free(e->compactions);
	memset(e, 0, sizeof(*e));
}

/* One more zeroed element at the end of *array; NULL out of memory.  Capacity is the next power of two. */
static void *push(void **array, size_t *n, size_t size)
{
	if (!(*n & (*n - 1))) {
		void *bigger = realloc(*array, (*n ? 2 * *n : 1) * size);
		if (!bigger)
			return NULL;
		*array = bigger;
	}
	void *at = (char *)*array + *n * size;
	memset(at, 0, size);
	++*n;
	return at;
}

static enum ww_rc get_dup(const json_t *o, const char *key, char **out, struct ww_err *err)
{
	const char *s;
	enum ww_rc rc = ww_json_get_str(o, key, "line", &s, err);
	if (rc == WW_OK && !(*out = strdup(s)))
		rc = ww_nomem(err);
	return rc;
}

static enum ww_rc get_fixed(const json_t *o, const char *key, char *out, size_t cap, struct ww_err *err)
{
	const char *s;
	WW_CHECK(ww_json_get_str(o, key, "line", &s, err));
	if (strlen(s) >= cap)
		return ww_err_set(err, WW_ERR_PROTOCOL, "\"%s\" is longer than %zu bytes", key, cap - 1);
	memcpy(out, s, strlen(s) + 1);
	return WW_OK;
}

/* ---- Lines ------------------------------------------------------------------------------------------------------- */

static enum ww_rc read_header(const json_t *o, struct ww_episode *e, struct ww_err *err)
{
	struct ww_episode_header *h = &e->header;
	int64_t version, seed;
	json_t *task, *versions;
	WW_CHECK(ww_json_get_int(o, "version", "header", &version, err));
	if (version != WW_EPISODE_VERSION)
		return ww_err_set(err, WW_ERR_PROTOCOL, "episode format version %lld; this program reads version %d",
			(long long)version, WW_EPISODE_VERSION);
	WW_CHECK(ww_json_get_object(o, "task", "header", &task, err));
	WW_CHECK(get_dup(task, "path", &h->task_path, err));
	WW_CHECK(get_fixed(task, "id", h->task_id, sizeof(h->task_id), err));
	if (json_object_get(task, "signature"))
		WW_CHECK(get_fixed(task, "signature", h->task_signature, sizeof(h->task_signature), err));
	WW_CHECK(get_dup(o, "target", &h->target, err));
	WW_CHECK(get_dup(o, "device", &h->device, err));
	WW_CHECK(get_dup(o, "policy", &h->policy, err));
	h->form = strdup(ww_json_str(o, "form", "plan"));
	h->loop = strdup(ww_json_str(o, "loop", "agent"));
	h->prompt = strdup(ww_json_str(o, "prompt", "full"));
	if (!h->form || !h->loop || !h->prompt)
		return ww_nomem(err);
	WW_CHECK(ww_json_get_int(o, "seed", "header", &seed, err));
	WW_CHECK(get_dup(o, "rule", &h->rule, err));
	WW_CHECK(ww_json_get_object(o, "versions", "header", &versions, err));
	WW_CHECK(get_fixed(o, "started", h->started, sizeof(h->started), err));
	h->seed = (uint64_t)seed;
	h->versions = json_incref(versions);
	if (json_is_array(json_object_get(o, "command")))
		h->command = json_incref(json_object_get(o, "command"));
	if (json_is_array(json_object_get(o, "tools")))
		h->tools = json_incref(json_object_get(o, "tools"));
	if (json_is_object(json_object_get(o, "limits")))
		h->limits = json_incref(json_object_get(o, "limits"));
	return WW_OK;
}

static enum ww_rc read_calls(const json_t *o, struct ww_message *m, struct ww_err *err)
{
	json_t *calls, *c;
	size_t i;
	WW_CHECK(ww_json_get_array(o, "calls", "message", &calls, err));
	if (!json_array_size(calls))
		return WW_OK;
	m->calls = calloc(json_array_size(calls), sizeof(*m->calls));
	if (!m->calls)
		return ww_nomem(err);
	json_array_foreach(calls, i, c) {
		struct ww_tool_call *k = &m->calls[m->n_calls++];
		WW_CHECK(get_dup(c, "id", &k->id, err));
		WW_CHECK(get_dup(c, "name", &k->name, err));
		WW_CHECK(get_dup(c, "arguments", &k->arguments, err));
	}
	return WW_OK;
}

static enum ww_rc read_floats(const json_t *tokens, const char *key, size_t n, float **out, struct ww_err *err)
{
	const json_t *a = json_object_get(tokens, key);
	if (!a)
		return WW_OK;
	if (!json_is_array(a) || json_array_size(a) != n)
		return ww_err_set(err, WW_ERR_PROTOCOL, "\"%s\" does not have one number for each token", key);
	if (!(*out = malloc(n * sizeof(float))))
		return ww_nomem(err);
	for (size_t i = 0; i < n; i++)
		(*out)[i] = (float)ww_json_to_real(json_array_get(a, i), NAN);
	return WW_OK;
}

static enum ww_rc read_ids(const json_t *list, int32_t **out, struct ww_err *err)
{
	size_t n = json_array_size(list);
	if (!(*out = malloc((n + 1) * sizeof(**out))))
		return ww_nomem(err);
	for (size_t i = 0; i < n; i++) {
		const json_t *id = json_array_get(list, i);
		json_int_t v = json_is_integer(id) ? json_integer_value(id) : -1;
		if (v < 0 || v > INT32_MAX)
			return ww_err_set(err, WW_ERR_PROTOCOL, "token %zu is no whole number from 0 to %d", i, INT32_MAX);
		(*out)[i] = (int32_t)v;
	}
	return WW_OK;
}

static enum ww_rc read_tokens(const json_t *tokens, struct ww_reply *r, struct ww_err *err)
{
	json_t *ids;
	WW_CHECK(ww_json_get_array(tokens, "ids", "tokens", &ids, err));
	size_t n = json_array_size(ids);
	if (!n)
		return WW_OK;
	WW_CHECK(read_ids(ids, &r->token_ids, err));
	r->n_tokens = n;
	if (json_object_get(tokens, "context")) {
		json_t *context;
		WW_CHECK(ww_json_get_array(tokens, "context", "tokens", &context, err));
		WW_CHECK(ww_json_get_int(tokens, "context_at", "tokens", &r->context_at, err));
		WW_CHECK(read_ids(context, &r->context_ids, err));
		r->n_context = json_array_size(context);
	}
	WW_CHECK(read_floats(tokens, "logprobs", n, &r->logprobs, err));
	return read_floats(tokens, "sampling_logprobs", n, &r->sampling_logprobs, err);
}

/* A JSON value as text; where there is none, *out stays NULL. */
static enum ww_rc get_value(const json_t *o, const char *key, char **out, struct ww_err *err)
{
	const json_t *v = json_object_get(o, key);
	struct ww_str text = WW_STR_INIT(EPISODE_MAX_BYTES);
	if (!v)
		return WW_OK;
	ww_json_add(&text, v);
	*out = ww_str_take(&text);
	return *out ? WW_OK : ww_nomem(err);
}

static enum ww_rc read_assistant(const json_t *o, struct ww_reply *r, struct ww_err *err)
{
	const char *finish;
	if (json_object_get(o, "reasoning"))
		WW_CHECK(get_dup(o, "reasoning", &r->message.reasoning, err));
	WW_CHECK(get_value(o, "native", &r->message.native, err));
	WW_CHECK(read_calls(o, &r->message, err));
	WW_CHECK(ww_json_get_str(o, "finish", "message", &finish, err));
	int at = ww_word_at(finish, finish_names, WW_ARRAY_LEN(finish_names));
	if (at < 0)
		return ww_err_set(err, WW_ERR_PROTOCOL, "unknown finish \"%s\"", finish);
	r->finish = (enum ww_finish)at;
	const json_t *usage = json_object_get(o, "usage"), *tokens = json_object_get(o, "tokens");
	r->prompt_tokens = ww_json_int(usage, "prompt_tokens", 0);
	r->completion_tokens = ww_json_int(usage, "completion_tokens", 0);
	r->usd = ww_json_num(o, "usd", 0);
	if (tokens)
		WW_CHECK(read_tokens(tokens, r, err));
	return WW_OK;
}

static enum ww_rc read_tool(const json_t *o, struct ww_message *m, struct ww_err *err)
{
	WW_CHECK(get_dup(o, "call_id", &m->call_id, err));
	WW_CHECK(get_dup(o, "tool", &m->tool, err));
	WW_CHECK(ww_json_get_bool(o, "is_error", "message", &m->is_error, err));
	return get_value(o, "data", &m->data, err);
}

static enum ww_rc read_message(const json_t *o, struct ww_episode *e, struct ww_err *err)
{
	struct ww_episode_message *em = push((void **)&e->messages, &e->n_messages, sizeof(*em));
	const char *role;
	if (!em)
		return ww_nomem(err);
	struct ww_message *m = &em->reply.message;
	em->turn = (int)ww_json_int(o, "turn", 0);
	em->t = ww_json_num(o, "t", 0);
	WW_CHECK(get_dup(o, "text", &m->text, err));
	WW_CHECK(ww_json_get_str(o, "role", "message", &role, err));
	int i = ww_role_of(role);
	if (i < 0)
		return ww_err_set(err, WW_ERR_PROTOCOL, "unknown role \"%s\"", role);
	m->role = (enum ww_role)i;
	if (m->role == WW_ROLE_ASSISTANT)
		WW_CHECK(read_assistant(o, &em->reply, err));
	if (m->role == WW_ROLE_TOOL)
		WW_CHECK(read_tool(o, m, err));
	return WW_OK;
}

static enum ww_rc read_solution(const json_t *o, struct ww_episode *e, struct ww_err *err)
{
	struct ww_episode_solution *s = push((void **)&e->solutions, &e->n_solutions, sizeof(*s));
	json_t *files, *text;
	const char *path;
	if (!s)
		return ww_nomem(err);
	s->turn = (int)ww_json_int(o, "turn", 0);
	WW_CHECK(get_fixed(o, "id", s->id, sizeof(s->id), err));
	WW_CHECK(ww_json_get_object(o, "files", "solution", &files, err));
	s->files = calloc(json_object_size(files) + 1, sizeof(*s->files));
	if (!s->files)
		return ww_nomem(err);
	json_object_foreach(files, path, text) {
		struct ww_episode_file *f = &s->files[s->n_files++];
		f->path = strdup(path);
		WW_CHECK(get_dup(files, path, &f->text, err));
		if (!f->path)
			return ww_nomem(err);
	}
	return WW_OK;
}

static enum ww_rc read_verdict(const json_t *o, struct ww_episode *e, struct ww_err *err)
{
	struct ww_episode_verdict *v = push((void **)&e->verdicts, &e->n_verdicts, sizeof(*v));
	json_t *verdict;
	if (!v)
		return ww_nomem(err);
	v->turn = (int)ww_json_int(o, "turn", 0);
	v->t = ww_json_num(o, "t", 0);
	WW_CHECK(get_dup(o, "call_id", &v->call_id, err));
	WW_CHECK(get_fixed(o, "solution", v->solution, sizeof(v->solution), err));
	WW_CHECK(get_fixed(o, "depth", v->depth, sizeof(v->depth), err));
	WW_CHECK(ww_json_get_object(o, "verdict", "verdict", &verdict, err));
	v->verdict = json_incref(verdict);
	return WW_OK;
}

static enum ww_rc read_lost(const json_t *o, struct ww_episode *e, struct ww_err *err)
{
	struct ww_episode_lost *l = push((void **)&e->lost, &e->n_lost, sizeof(*l));
	if (!l)
		return ww_nomem(err);
	l->turn = (int)ww_json_int(o, "turn", 0);
	l->t = ww_json_num(o, "t", 0);
	l->usd = ww_json_num(o, "usd", 0);
	l->prompt_tokens = ww_json_int(o, "prompt_tokens", 0);
	l->completion_tokens = ww_json_int(o, "completion_tokens", 0);
	return get_dup(o, "why", &l->why, err);
}

static enum ww_rc read_compaction(const json_t *o, struct ww_episode *e, struct ww_err *err)
{
	struct ww_episode_compaction *c = push((void **)&e->compactions, &e->n_compactions, sizeof(*c));
	json_t *ids, *id;
	size_t i;
	if (!c)
		return ww_nomem(err);
	c->turn = (int)ww_json_int(o, "turn", 0);
	c->bytes = ww_json_int(o, "bytes", 0);
	WW_CHECK(ww_json_get_array(o, "call_ids", "compaction", &ids, err));
	if (!(c->call_ids = calloc(json_array_size(ids) + 1, sizeof(char *))))
		return ww_nomem(err);
	json_array_foreach(ids, i, id) {
		if (!json_is_string(id))
			return ww_err_set(err, WW_ERR_PROTOCOL, "a call id is not a string");
		if (!(c->call_ids[c->n_calls++] = strdup(json_string_value(id))))
			return ww_nomem(err);
	}
	return WW_OK;
}

static enum ww_rc read_end(const json_t *o, struct ww_episode *e, struct ww_err *err)
{
	WW_CHECK(get_fixed(o, "reason", e->end.reason, sizeof(e->end.reason), err));
	WW_CHECK(get_fixed(o, "best", e->end.best, sizeof(e->end.best), err));
	WW_CHECK(ww_json_get_num(o, "reward_final", "end", &e->end.reward_final, err));
	WW_CHECK(ww_json_get_num(o, "reward_best", "end", &e->end.reward_best, err));
	WW_CHECK(ww_json_get_num(o, "seconds", "end", &e->end.seconds, err));
	e->ended = 1;
	return WW_OK;
}

static const struct {
	const char *type;
	enum ww_rc (*read)(const json_t *, struct ww_episode *, struct ww_err *);
} kinds[] = { { "message", read_message }, { "solution", read_solution }, { "verdict", read_verdict },
	{ "lost", read_lost }, { "compaction", read_compaction }, { "end", read_end } };

/* Any file may be named as an episode; what an episode's own line may lack is told by its readers. */
static int is_header(const char *line, size_t n)
{
	struct ww_err ignored;
	json_auto_t *o = NULL;
	return ww_json_parse(line, n, "line", &o, &ignored) == WW_OK && !strcmp(ww_json_str(o, "type", ""), "header");
}

static enum ww_rc read_line(const char *line, size_t n, int number, struct ww_episode *e, struct ww_err *err)
{
	json_auto_t *o = NULL;
	const char *type;
	if (number == 1 && !is_header(line, n))
		return ww_err_set(err, WW_ERR_USAGE, "it is no header, so this is no episode");
	WW_CHECK(ww_json_parse(line, n, "line", &o, err));
	WW_CHECK(ww_json_get_str(o, "type", "line", &type, err));
	if (number > 1 && !strcmp(type, "header"))
		return ww_err_set(err, WW_ERR_PROTOCOL, "a second header");
	if (number == 1)
		WW_CHECK(read_header(o, e, err));
	for (size_t i = 0; i < WW_ARRAY_LEN(kinds); i++)
		if (!strcmp(type, kinds[i].type))
			WW_CHECK(kinds[i].read(o, e, err));
	e->seconds = ww_json_num(o, "t", e->seconds);
	return WW_OK;
}

/* ---- The whole file ---------------------------------------------------------------------------------------------- */

static int parses(const char *line, size_t n)
{
	struct ww_err ignored;
	json_auto_t *o = NULL;
	return ww_json_parse(line, n, "line", &o, &ignored) == WW_OK;
}

int ww_episode_read(const char *path, struct ww_episode *out, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(EPISODE_MAX_BYTES);
	memset(out, 0, sizeof(*out));
	enum ww_rc rc = ww_fs_read(path, EPISODE_MAX_BYTES, &text, err);
	int number = 0;
	for (const char *p = text.p, *end = text.p + text.len; rc == WW_OK && p < end;) {
		const char *nl = memchr(p, '\n', (size_t)(end - p));
		if (!nl || (nl + 1 == end && !parses(p, (size_t)(nl - p))))
			break;
		rc = read_line(p, (size_t)(nl - p), ++number, out, err);
		if (rc != WW_OK)
			ww_err_wrap(err, "%s: line %d", path, number);
		p = nl + 1;
		out->whole_bytes = p - text.p;
	}
	if (rc == WW_OK && !number)
		rc = ww_err_set(err, WW_ERR_USAGE, "%s is not an episode: it has no complete line", path);
	if (rc != WW_OK)
		ww_episode_release(out);
	return rc;
}

const struct ww_episode_solution *ww_episode_find_solution(const struct ww_episode *e, const char *id)
{
	for (size_t i = 0; i < e->n_solutions; i++)
		if (!strcmp(e->solutions[i].id, id))
			return &e->solutions[i];
	return NULL;
}

const char *ww_episode_file_text(const struct ww_episode_solution *s, const char *path)
{
	for (size_t i = 0; i < s->n_files; i++)
		if (!strcmp(s->files[i].path, path))
			return s->files[i].text;
	return NULL;
}
