/* outputs.c - see outputs.h. */
#include "judge/forms/outputs.h"

#include "base/fs.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BATCH = 512, PART = 16 << 10, SPARSE = 16 };
/* A run costs its page and a list entry, a byte its copy: whether runs are read or all that they lie in, for which the
 * judge takes at most SPARSE times the memory of the output. */
static const double RUN_S = 0.3e-6, BYTE_S = 0.4e-9;
static const int64_t MAX_ADDRESS = (int64_t)1 << 57, LARGE_RUN = 1 << 20;
static const __int128 MAX_SPAN = (__int128)1 << 40;

/* One tensor as nested loops over its dimensions, those of the largest steps in the destination first.  There it is
 * dense, so the loops write one byte behind the other. */
struct walk {
	int rank;
	int64_t size[WW_MAX_RANK], step[WW_MAX_RANK]; /* steps in the source, bytes */
	int64_t run;                                  /* bytes that lie together in source and destination */
	int64_t runs, span;                           /* how many such; bytes from the first to the last */
};

static int read_at(pid_t pid, int64_t address, void *to, int64_t bytes)
{
	for (int64_t done = 0; done < bytes;) {
		struct iovec mine = { (char *)to + done, (size_t)(bytes - done) };
		struct iovec theirs = { (void *)(uintptr_t)(address + done), (size_t)(bytes - done) };
		ssize_t k = process_vm_readv(pid, &mine, 1, &theirs, 1, 0);
		if (k <= 0)
			return 0;
		done += k;
	}
	return 1;
}

/* ---- Loops ------------------------------------------------------------------------------------------------------- */

static void add_dimension(struct walk *w, int64_t size, int64_t step)
{
	int k = w->rank - 1;
	if (k >= 0 && w->step[k] == size * step) { /* the outer one goes on where the inner one ends */
		w->size[k] *= size;
		w->step[k] = step;
		return;
	}
	w->size[w->rank] = size;
	w->step[w->rank++] = step;
}

int64_t ww_outputs_span(const struct ww_tensor *t, const int64_t *strides)
{
	__int128 span = t->itemsize;
	for (int i = 0; i < t->rank; i++) {
		span += (__int128)(t->size[i] - 1) * strides[i] * t->itemsize;
		if (t->size[i] > 1 && (strides[i] < 0 || span > MAX_SPAN))
			return -1;
	}
	return (int64_t)span;
}

/* Each dimension, by its step, must lead beyond all that the smaller ones reach. */
int ww_outputs_share(const struct ww_tensor *t, const int64_t *strides)
{
	__int128 reach = 1;
	int used[WW_MAX_RANK] = { 0 };
	for (int n = 0; n < t->rank; n++) {
		int k = -1;
		for (int i = 0; i < t->rank; i++)
			if (!used[i] && (k < 0 || strides[i] < strides[k]))
				k = i;
		used[k] = 1;
		if (t->size[k] < 2)
			continue;
		if (strides[k] < reach)
			return 1;
		reach += (__int128)(t->size[k] - 1) * strides[k];
	}
	return 0;
}

static void make_walk(struct walk *w, const struct ww_tensor *t, const int64_t *strides)
{
	int order[WW_MAX_RANK];
	memset(w, 0, sizeof(*w));
	for (int i = 0; i < t->rank; i++) {
		int k = i;
		for (; k > 0 && t->stride[order[k - 1]] < t->stride[i]; k--)
			order[k] = order[k - 1];
		order[k] = i;
	}
	for (int i = 0; i < t->rank; i++)
		if (t->size[order[i]] > 1)
			add_dimension(w, t->size[order[i]], strides[order[i]] * t->itemsize);
	w->run = t->itemsize;
	if (w->rank && w->step[w->rank - 1] == t->itemsize)
		w->run *= w->size[--w->rank];
	w->runs = t->numel * t->itemsize / w->run;
}

/* Where the next run begins. */
static int64_t advance(const struct walk *w, int64_t *at, int64_t offset)
{
	for (int k = w->rank - 1; k >= 0; k--) {
		offset += w->step[k];
		if (++at[k] < w->size[k])
			return offset;
		offset -= at[k] * w->step[k];
		at[k] = 0;
	}
	return offset;
}

/* ---- Two ways to read -------------------------------------------------------------------------------------------- */

/* All that the runs lie in, once. */
static int read_span(pid_t pid, int64_t address, const struct walk *w, char *to)
{
	int64_t at[WW_MAX_RANK] = { 0 }, offset = 0;
	char *all = malloc((size_t)w->span);
	int good = all && read_at(pid, address, all, w->span);
	for (int64_t i = 0; good && i < w->runs; i++) {
		memcpy(to + i * w->run, all + offset, (size_t)w->run);
		offset = advance(w, at, offset);
	}
	free(all);
	return good;
}

static int read_runs(pid_t pid, int64_t address, const struct walk *w, char *to)
{
	struct iovec theirs[BATCH];
	int64_t at[WW_MAX_RANK] = { 0 }, offset = 0;
	for (int64_t i = 0; w->run >= LARGE_RUN && i < w->runs; i++) {
		if (!read_at(pid, address + offset, to + i * w->run, w->run))
			return 0;
		offset = advance(w, at, offset);
	}
	for (int64_t i = 0; w->run < LARGE_RUN && i < w->runs;) {
		int n = 0;
		for (; n < BATCH && i + n < w->runs; n++) {
			theirs[n] = (struct iovec){ (void *)(uintptr_t)(address + offset), (size_t)w->run };
			offset = advance(w, at, offset);
		}
		struct iovec mine = { to + i * w->run, (size_t)(n * w->run) };
		if (process_vm_readv(pid, &mine, 1, theirs, (unsigned long)n, 0) != (ssize_t)(n * w->run))
			return 0;
		i += n;
	}
	return 1;
}

static int take(pid_t pid, const struct ww_tensor *t, const int64_t *layout, void *to)
{
	struct walk w;
	int64_t span = ww_outputs_span(t, layout + 1);
	if (t->numel == 0)
		return 1;
	if (layout[0] < 0 || layout[0] > MAX_ADDRESS || span < 0) /* such strides would overflow below */
		return 0;
	make_walk(&w, t, layout + 1);
	w.span = span;
	if (w.runs == 1)
		return read_at(pid, layout[0], to, w.run);
	if ((double)w.span * BYTE_S < (double)w.runs * RUN_S && w.span <= SPARSE * t->numel * t->itemsize)
		return read_span(pid, layout[0], &w, to);
	return read_runs(pid, layout[0], &w, to);
}

int ww_outputs_take(pid_t pid, const int64_t *places, int n_places, const struct ww_tensor *out, int n, void *const *to,
	char *why, size_t why_bytes)
{
	int at = 0;
	for (int i = 0; i < n; i++) {
		if (n_places - at < 1 + out[i].rank || !take(pid, &out[i], places + at, to[i])) {
			snprintf(why, why_bytes, "output %d is not in the memory of the solution's process", i);
			return 0;
		}
		at += 1 + out[i].rank;
	}
	return 1;
}

/* ---- Memory of their own ----------------------------------------------------------------------------------------- */

struct reach {
	uint64_t start, end;
};

static struct reach reach_of(const struct ww_tensor *t, const int64_t *layout)
{
	int64_t span = t->numel ? ww_outputs_span(t, layout + 1) : 0;
	return (struct reach){ (uint64_t)layout[0], layout[0] ? (uint64_t)(layout[0] + span) : 0 };
}

static int overlap(const struct reach *a, const struct reach *b) { return a->start < b->end && b->start < a->end; }

/* Of an entry of /proc/PID/pagemap (the kernel's Documentation/admin-guide/mm/pagemap.rst): the page was written, by
 * this process, and nobody else has it. */
static int is_own_page(uint64_t entry)
{
	const uint64_t present = 1ull << 63, swapped = 1ull << 62, of_file = 1ull << 61, only_here = 1ull << 56;
	return (entry & swapped) || (entry & (present | of_file | only_here)) == (present | only_here);
}

static int is_there(uint64_t entry)
{
	const uint64_t present = 1ull << 63, swapped = 1ull << 62;
	return (entry & (present | swapped)) != 0;
}

static int all_pages(int pagemap, const struct reach *r, int (*is)(uint64_t entry))
{
	uint64_t entries[BATCH], page = (uint64_t)sysconf(_SC_PAGESIZE), end = (r->end + page - 1) / page;
	for (uint64_t at = r->start / page; at < end;) {
		size_t want = end - at < BATCH ? (size_t)(end - at) : BATCH;
		ssize_t n = pread(pagemap, entries, want * sizeof(*entries), (off_t)(at * sizeof(*entries)));
		if (n < (ssize_t)sizeof(*entries))
			return 0;
		for (size_t i = 0; i < (size_t)n / sizeof(*entries); i++, at++)
			if (!is(entries[i]))
				return 0;
	}
	return 1;
}

static int pages_are_own(int pagemap, const struct reach *r) { return all_pages(pagemap, r, is_own_page); }

static int open_pagemap(pid_t pid)
{
	char name[64];
	snprintf(name, sizeof(name), "/proc/%d/pagemap", (int)pid);
	return open(name, O_RDONLY | O_CLOEXEC);
}

int ww_outputs_apart(pid_t pid, const int64_t *places, const struct ww_tensor *out, int n, const int *apart, int pages,
	char *why, size_t why_bytes)
{
	ww_auto_free struct reach *r = calloc((size_t)n + 1, sizeof(*r));
	int good = r != NULL, pagemap = pages ? open_pagemap(pid) : -1;
	for (int i = 0; r && i < n; places += 1 + out[i++].rank)
		r[i] = reach_of(&out[i], places);
	for (int i = 0; good && i < n; i++) {
		for (int k = 0; good && apart[i] && k < n; k++)
			if (k != i && overlap(&r[i], &r[k])) {
				snprintf(
					why, why_bytes, "outputs %d and %d lie in the same memory, of which the task's are copies", i, k);
				good = 0;
			}
		if (good && apart[i] && pages && r[i].start < r[i].end && !pages_are_own(pagemap, &r[i])) {
			snprintf(why, why_bytes,
				"output %d has pages that nobody has written, or that are a file's or shared; return memory of PyTorch's",
				i);
			good = 0;
		}
	}
	ww_fd_close(&pagemap);
	return good;
}

int ww_outputs_not_given(pid_t pid, const int64_t *places, const struct ww_tensor *out, int n, const int *apart,
	int64_t address, size_t bytes, char *why, size_t why_bytes)
{
	const struct reach given = { (uint64_t)address, (uint64_t)address + bytes };
	int pagemap = open_pagemap(pid), good = 1;
	for (int i = 0; good && i < n; places += 1 + out[i++].rank) {
		struct reach r = reach_of(&out[i], places);
		good = !apart[i] || (!overlap(&r, &given) && all_pages(pagemap, &given, is_there));
		if (!good)
			snprintf(why, why_bytes,
				"output %d lies in the memory of the module's state, which is restored before each call, or that memory is "
				"not there any more; the task's output is a copy",
				i);
	}
	ww_fd_close(&pagemap);
	return good;
}

static void fill(pid_t pid, const struct reach *r, unsigned char byte)
{
	unsigned char part[PART];
	struct iovec mine[BATCH];
	memset(part, byte, sizeof(part));
	for (uint64_t at = r->start; at < r->end;) {
		size_t left = r->end - at < (uint64_t)BATCH * PART ? (size_t)(r->end - at) : (size_t)BATCH * PART, n = 0;
		struct iovec theirs = { (void *)(uintptr_t)at, left };
		for (; left; left -= mine[n++].iov_len)
			mine[n] = (struct iovec){ part, left < PART ? left : PART };
		ssize_t written = process_vm_writev(pid, mine, n, &theirs, 1, 0);
		if (written <= 0)
			return;
		at += (uint64_t)written;
	}
}

void ww_outputs_poison(
	pid_t pid, const int64_t *places, const struct ww_tensor *out, int n, const int *apart, unsigned char byte)
{
	for (int i = 0; i < n; places += 1 + out[i++].rank) {
		struct reach r = reach_of(&out[i], places);
		if (apart[i] && r.start && (int64_t)(r.end - r.start) == out[i].numel * out[i].itemsize)
			fill(pid, &r, byte);
	}
}

static int lies_in(const struct reach *r, const int64_t *places, const struct ww_tensor *out, int n)
{
	for (int i = 0; places && i < n; places += 1 + out[i++].rank) {
		struct reach old = reach_of(&out[i], places);
		if (old.start <= r->start && r->end <= old.end)
			return 1;
	}
	return 0;
}

int64_t ww_outputs_unpoisoned(const int64_t *places, const struct ww_tensor *out, int n, const int *apart,
	const int64_t *const before[], int n_before)
{
	int64_t bytes = 0;
	for (int i = 0; i < n; places += 1 + out[i++].rank) {
		struct reach r = reach_of(&out[i], places);
		int known = !apart[i];
		for (int k = 0; !known && k < n_before; k++)
			known = lies_in(&r, before[k], out, n);
		bytes += known ? 0 : (int64_t)(r.end - r.start);
	}
	return bytes;
}

int ww_outputs_readable(pid_t pid, int64_t address)
{
	const struct reach r = { (uint64_t)address, (uint64_t)address + 1 };
	char byte;
	int pagemap = open_pagemap(pid), good = read_at(pid, address, &byte, 1) && pages_are_own(pagemap, &r);
	ww_fd_close(&pagemap);
	return good;
}
