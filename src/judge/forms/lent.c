/* lent.c - see lent.h. */
#include "judge/forms/lent.h"

#include "base/fs.h"
#include "base/mem.h"
#include "judge/forms/outputs.h"

#include <stdint.h>
#include <stdlib.h>

enum { MAX_PIECES = 4096 }; /* each holds a descriptor of this process, of which other jobs have need, too */
static const int64_t MAX_BYTES = (int64_t)1 << 42;

static void drop(struct ww_lent *l, int i)
{
	ww_fd_close(&l->pieces[i].fd);
	l->pieces[i] = l->pieces[--l->n];
}

/* A piece takes the room of those that it overlaps: their memory is there no more. */
static enum ww_rc add(struct ww_lent *l, struct ww_piece piece, struct ww_err *err)
{
	for (int i = l->n - 1; i >= 0; i--)
		if (l->pieces[i].address < piece.address + piece.bytes &&
			piece.address < l->pieces[i].address + l->pieces[i].bytes)
			drop(l, i);
	if (!WW_GROW(l->pieces, &l->cap, l->n + 1))
		return ww_nomem(err);
	l->pieces[l->n++] = piece;
	return WW_OK;
}

static const struct ww_piece *find(const struct ww_lent *l, int64_t address)
{
	for (int i = 0; i < l->n; i++)
		if (address >= l->pieces[i].address && address - l->pieces[i].address < l->pieces[i].bytes)
			return &l->pieces[i];
	return NULL;
}

/* {"offset", "strides", "pieces"}; null for the judge's own buffer; NULL where it is not all lent. */
static json_t *locate(
	const struct ww_lent *l, const struct ww_tensor *t, const int64_t *place, struct ww_lent_where *where)
{
	int64_t span = ww_outputs_span(t, place + 1), at = place[0];
	const struct ww_piece *p = find(l, at);
	if (at == 0 || t->numel == 0)
		return json_null();
	if (span < 0 || !p)
		return NULL;
	json_t *strides = json_array(), *pieces = json_array();
	json_t *o = json_pack(
		"{s:I, s:o, s:o}", "offset", (json_int_t)(at - p->address), "strides", strides, "pieces", pieces);
	for (int i = 0; i < t->rank; i++)
		json_array_append_new(strides, json_integer(place[1 + i]));
	for (int64_t end = at + span; o && at < end; at = p->address + p->bytes) {
		p = find(l, at);
		if (!p || where->n_use == where->max_use) {
			json_decref(o);
			return NULL;
		}
		json_array_append_new(pieces, json_integer(p->bytes));
		where->use[where->n_use++] = p->fd;
	}
	return o;
}

/* The pieces that come with a call.  *right 0: one makes no sense. */
static enum ww_rc add_pieces(
	struct ww_lent *l, const int64_t *words, const struct ww_lent_said *said, int *right, struct ww_err *err)
{
	*right = 0;
	for (int i = 0; i < said->n_fds; i++) {
		struct ww_piece p = { words[2 * i], words[2 * i + 1], said->fds[i] };
		if (l->n == MAX_PIECES || p.address <= 0 || p.bytes <= 0 || p.bytes > MAX_BYTES ||
			p.address > INT64_MAX - MAX_BYTES)
			return WW_OK;
		WW_CHECK(add(l, p, err));
		said->fds[i] = -1;
	}
	*right = 1;
	return WW_OK;
}

enum ww_rc ww_lent_places(
	struct ww_lent *l, const struct ww_lent_said *said, struct ww_lent_where *where, struct ww_err *err)
{
	const struct ww_tensor *out = said->outputs;
	int words = 0, right;
	where->lent = NULL;
	where->n_use = 0;
	for (int i = 0; i < said->n_outputs; i++)
		words += 1 + out[i].rank;
	if (said->n_places != words + 2 * said->n_fds)
		return WW_OK;
	WW_CHECK(add_pieces(l, said->places + words, said, &right, err));
	if (!right)
		return WW_OK;
	json_t *list = json_array();
	for (int i = 0, at = 0; list && i < said->n_outputs; at += 1 + out[i++].rank)
		if (json_array_append_new(list, locate(l, &out[i], said->places + at, where)) < 0) {
			json_decref(list);
			return WW_OK;
		}
	where->lent = list;
	return list ? WW_OK : ww_nomem(err);
}

void ww_lent_release(struct ww_lent *l)
{
	while (l->n)
		drop(l, l->n - 1);
	free(l->pieces);
	*l = (struct ww_lent){ NULL, 0, 0 };
}
