/* What the judge reads out of a process that it does not trust: any layout that PyTorch can return, and nothing that is
 * not there.  The process is this one.
 * budget: 1 CPU-second */
#include "unit.h"

#include "judge/forms/lent.h"
#include "judge/forms/outputs.h"
#include "judge/forms/sampler.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

static struct ww_tensor tensor(int rank, const int *size, const int *order)
{
	struct ww_tensor t = { .rank = rank, .itemsize = 4, .numel = 1 };
	for (int k = rank - 1; k >= 0; k--) { /* dense; order[0] is the outermost dimension */
		t.size[order[k]] = size[order[k]];
		t.stride[order[k]] = t.numel;
		t.numel *= size[order[k]];
	}
	t.bytes = 4 * t.numel;
	return t;
}

static int takes(const struct ww_tensor *t, const float *from, const int64_t *strides, float *to)
{
	int64_t places[1 + WW_MAX_RANK] = { (int64_t)(uintptr_t)from };
	char why[128] = "";
	void *into = to;
	memcpy(places + 1, strides, (size_t)t->rank * sizeof(*strides));
	return ww_outputs_take(getpid(), places, 1 + t->rank, t, 1, &into, why, sizeof(why));
}

static void check(const struct ww_tensor *t, const float *from, const int64_t *strides)
{
	float *to = calloc((size_t)t->numel, 4);
	int64_t at[WW_MAX_RANK] = { 0 };
	assert_true(takes(t, from, strides, to));
	for (int64_t i = 0; i < t->numel; i++) {
		int64_t a = 0, b = 0;
		for (int k = 0; k < t->rank; k++)
			a += at[k] * strides[k], b += at[k] * t->stride[k];
		assert_true(to[b] == from[a]);
		for (int k = t->rank - 1; k >= 0 && ++at[k] == t->size[k]; k--)
			at[k] = 0;
	}
	free(to);
}

/* Of a tensor that has memory for each element, and of one that has not. */
static void shared_elements(void **state)
{
	static const struct {
		int rank, shares;
		long long size[3];
		int64_t strides[3];
	} cases[] = { { 0, 0, { 0 }, { 0 } }, { 1, 0, { 5 }, { 1 } }, { 1, 1, { 5 }, { 0 } }, { 2, 0, { 4, 1 }, { 1, 0 } },
		{ 3, 0, { 2, 3, 4 }, { 12, 4, 1 } }, { 3, 0, { 2, 3, 4 }, { 1, 2, 6 } }, { 3, 0, { 2, 3, 4 }, { 100, 20, 3 } },
		{ 3, 1, { 2, 3, 4 }, { 4, 0, 1 } }, { 3, 1, { 2, 3, 4 }, { 1000000, 0, 1 } }, { 2, 1, { 6, 3 }, { 1, 1 } },
		{ 2, 1, { 2, 4 }, { 3, 1 } }, { 2, 1, { 2, 4 }, { -4, 1 } } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		struct ww_tensor t = { .rank = cases[i].rank };
		memcpy(t.size, cases[i].size, sizeof(cases[i].size));
		assert_int_equal(ww_outputs_share(&t, cases[i].strides), cases[i].shares);
	}
}

static void any_layout(void **state)
{
	enum { TOTAL = 1 << 20 };
	static const int plain[] = { 0, 1, 2, 3 }, last[] = { 0, 2, 3, 1 };
	static const struct {
		int rank, size[4];
		const int *order;
		int64_t strides[4];
	} cases[] = { { 0, { 0 }, plain, { 0 } }, { 1, { 1000 }, plain, { 1 } }, { 1, { 1000 }, plain, { 0 } },
		{ 1, { 1000 }, plain, { 999 } }, { 2, { 30, 40 }, plain, { 40, 1 } }, { 2, { 30, 40 }, plain, { 1, 30 } },
		{ 2, { 30, 40 }, plain, { 0, 1 } }, { 2, { 30, 40 }, plain, { 20000, 1 } },
		{ 2, { 700, 3 }, plain, { 1000, 300 } }, { 4, { 2, 3, 5, 7 }, last, { 105, 1, 21, 3 } },
		{ 4, { 2, 3, 5, 7 }, last, { 105, 35, 7, 1 } }, { 4, { 2, 1, 5, 7 }, last, { 35, (int64_t)1 << 62, 7, 1 } },
		{ 2, { 0, 7 }, plain, { 7, 1 } }, { 2, { 3, 300000 }, plain, { 300001, 1 } } };
	(void)state;
	float *from = malloc(TOTAL * sizeof(*from));
	for (int i = 0; i < TOTAL; i++)
		from[i] = (float)i;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		struct ww_tensor t = tensor(cases[i].rank, cases[i].size, cases[i].order);
		check(&t, from, cases[i].strides);
	}
	free(from);
}

static void nothing_that_is_not_there(void **state)
{
	static const int size[] = { 64, 64 }, order[] = { 0, 1 };
	struct ww_tensor t = tensor(2, size, order);
	float to[64 * 64];
	(void)state;
	/* One page, with nothing for as far as the strides below reach. */
	char *m = mmap(NULL, 8 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_true(munmap(m, 4 << 20) == 0 && munmap(m + (4 << 20) + 4096, (4 << 20) - 4096) == 0);
	m += 4 << 20;
	const float *from = (const float *)(const void *)m;
	assert_false(takes(&t, from, (int64_t[]){ 64, 1 }, to));               /* ends beyond the mapping */
	assert_false(takes(&t, from, (int64_t[]){ 4096, 1 }, to));             /* row by row */
	assert_false(takes(&t, from, (int64_t[]){ -64, 1 }, to));              /* backwards */
	assert_false(takes(&t, from, (int64_t[]){ INT64_MAX, 1 }, to));        /* more than any memory */
	assert_false(takes(&t, from, (int64_t[]){ (int64_t)1 << 61, 1 }, to)); /* whose bytes overflow */
	assert_false(takes(&t, (const float *)(intptr_t)-4096, (int64_t[]){ 64, 1 }, to));
	assert_false(takes(&t, NULL, (int64_t[]){ 64, 1 }, to));
	assert_int_equal(mprotect(m, 4096, PROT_NONE), 0); /* a page that the process itself could not read */
	assert_false(takes(&t, from, (int64_t[]){ 0, 0 }, to));
	assert_false(ww_outputs_readable(getpid(), (int64_t)(uintptr_t)m));
	assert_true(ww_outputs_readable(getpid(), (int64_t)(uintptr_t)to));
	char why[128] = "";
	void *into = to;
	int64_t too_few[] = { (int64_t)(uintptr_t)to, 64 };
	assert_false(ww_outputs_take(getpid(), too_few, 2, &t, 1, &into, why, sizeof(why)));
	assert_non_null(strstr(why, "output 0"));
	munmap(m, 4096);
}

/* Elements far apart, in memory that nobody has written: the judge does not take as much of its own. */
static void far_apart(void **state)
{
	enum { ELEMENTS = 1 << 18, STEP = 160 };
	static const int size[] = { ELEMENTS }, order[] = { 0 };
	static float to[ELEMENTS];
	const size_t bytes = (size_t)ELEMENTS * STEP * 4;
	struct ww_tensor t = tensor(1, size, order);
	struct rusage before, after;
	(void)state;
	void *m = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(m != MAP_FAILED);
	getrusage(RUSAGE_SELF, &before);
	assert_true(takes(&t, m, (int64_t[]){ STEP }, to));
	getrusage(RUSAGE_SELF, &after);
	assert_true(after.ru_maxrss - before.ru_maxrss < 64 << 10);
	munmap(m, bytes);
}

/* ---- Pieces of device memory that are lent */

struct lent_case {
	int n_places, n_fds, n_use; /* n_use -1: refused */
	int64_t places[8];
};

static void pieces(void **state)
{
	static const int size[] = { 1024 }, order[] = { 0 }; /* 4096 bytes */
	static const struct lent_case cases[] = {
		{ 2, 0, 0, { 0, 1 } },                               /* in the judge's own buffer */
		{ 2, 0, -1, { 4096, 1 } },                           /* in a piece that nobody has lent */
		{ 4, 1, 1, { 5000, 1, 4096, 8192 } },                /* lent with this call */
		{ 2, 0, 1, { 4096, 1 } },                            /* or with an earlier one */
		{ 2, 0, -1, { 12000, 1 } },                          /* ends behind it */
		{ 4, 1, 2, { 12000, 1, 12288, 8192 } },              /* goes on in another */
		{ 4, 1, -1, { 5000, 1, 8192, 4096 } },               /* which covers half of the first: that is gone */
		{ 3, 1, -1, { 5000, 1, 4096 } },                     /* half a piece */
		{ 4, 1, -1, { 5000, 1, 4096, -1 } },                 /* no size */
		{ 4, 1, -1, { 5000, 1, INT64_MAX - 5, 4096 } },      /* beyond all memory */
		{ 4, 1, -1, { 5000, (int64_t)1 << 60, 4096, 8192 } } /* strides beyond it */
	};
	struct ww_tensor t = tensor(1, size, order);
	struct ww_lent l = { NULL, 0, 0 };
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(cases); i++) {
		const struct lent_case *c = &cases[i];
		int fd = c->n_fds ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
		int use[4];
		struct ww_lent_where w = { .use = use, .max_use = 4 };
		assert_int_equal(
			ww_lent_places(&l, &(struct ww_lent_said){ &t, 1, c->places, c->n_places, &fd, c->n_fds }, &w, &err),
			WW_OK);
		if ((w.lent == NULL) != (c->n_use < 0) || (w.lent && w.n_use != c->n_use))
			fail_msg("case %zu: %s, %d pieces", i, w.lent ? "taken" : "refused", w.n_use);
		json_decref(w.lent);
		if (fd >= 0)
			close(fd);
	}
	ww_lent_release(&l);
}

/* ---- Whose code */

static double cpu_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void whose_code(void **state)
{
	static const struct {
		const char *path;
		int private;
		enum ww_code kind;
	} rows[] = { { "/tmp/build/ext/ext.so", 1, WW_CODE_OWN }, { "/tmp/x.so", 1, WW_CODE_OWN },
		{ "", 0, WW_CODE_LIBRARY }, { "/tmp/libc.so.6", 1, WW_CODE_OWN }, { "/memfd:x (deleted)", 0, WW_CODE_LIBRARY },
		{ "/tmp/build/ext/ext.so", 0, WW_CODE_LIBRARY }, { "/opt/lib/libtorch_cpu.so", 0, WW_CODE_LIBRARY },
		{ "/opt/numpy.libs/libscipy_openblas64_-1.so", 0, WW_CODE_LIBRARY }, { "/usr/lib/libm.so.6", 0, WW_CODE_OTHER },
		{ "/usr/bin/python3.11", 0, WW_CODE_OTHER }, { "[vdso]", 0, WW_CODE_OTHER }, { "[heap]", 0, WW_CODE_LIBRARY },
		{ "[stack]", 0, WW_CODE_LIBRARY }, { "[anon:libc.so.6]", 0, WW_CODE_LIBRARY },
		{ "/memfd:x/libc.so.6 (deleted)", 0, WW_CODE_LIBRARY } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++)
		assert_int_equal(ww_sampler_kind(rows[i].path, rows[i].private), rows[i].kind);
	struct ww_sampler *x = ww_sampler_open(getpid(), NULL);
	struct ww_seen seen;
	ww_sampler_begin(x);
	for (double end = cpu_s() + 0.02; cpu_s() < end;)
		for (volatile int k = 0; k < 10000; k++)
			;
	ww_sampler_end(x, &seen);
	if (x) { /* else this system does not allow it */
		assert_int_equal(seen.calls, 1);
		/* whose this program is depends on where /tmp lies */
		assert_in_range(seen.n[WW_CODE_OWN] + seen.n[WW_CODE_LIBRARY] + seen.n[WW_CODE_OTHER], 20, 90);
	}
	ww_sampler_close(x);
}

/* A file of the solution's own that holds code, and shows its data a thousand times: 16 GiB to look at. */
static void one_file_in_many_places(void **state)
{
	enum { TIMES = 1000, BYTES = 16 << 20 };
	char path[] = "/tmp/ww-test-outputs-XXXXXX";
	int fd = mkstemp(path);
	struct ww_seen seen;
	(void)state;
	assert_int_equal(ftruncate(fd, BYTES), 0);
	char *room = mmap(NULL, (size_t)(TIMES + 1) * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	assert_true(room != MAP_FAILED);
	for (size_t i = 0; i <= TIMES; i++)
		assert_true(mmap(room + i * BYTES, BYTES, i ? PROT_READ : PROT_READ | PROT_EXEC, MAP_SHARED | MAP_FIXED, fd,
						0) != MAP_FAILED);
	struct ww_sampler *x = ww_sampler_open(getpid(), NULL);
	double start = cpu_s();
	ww_sampler_begin(x);
	ww_sampler_end(x, &seen);
	assert_true(cpu_s() - start < 1);
	ww_sampler_close(x);
	munmap(room, (size_t)(TIMES + 1) * BYTES);
	close(fd), unlink(path);
}

/* Own code that is busy in some calls for long is not the solution's work in the others. */
static void a_long_call_counts_as_the_middle_one(void **state)
{
	static struct ww_seen_calls c;
	struct ww_seen sum;
	(void)state;
	ww_seen_total(&c, &sum);
	assert_int_equal(sum.calls + sum.n[WW_CODE_OWN] + sum.n[WW_CODE_LIBRARY], 0);
	for (int i = 0; i < 2048; i++) {
		struct ww_seen one = { .calls = 1, .n = { [WW_CODE_OWN] = i % 8 ? 0 : 396, [WW_CODE_LIBRARY] = 4 } };
		ww_seen_note(&c, &one);
	}
	ww_seen_total(&c, &sum);
	assert_int_equal(sum.calls, 1024);
	assert_int_equal(sum.n[WW_CODE_OWN], 507); /* 128 calls of 4 samples, 99% of them own */
	assert_int_equal(sum.n[WW_CODE_LIBRARY], 896 * 4 + 5);
}

static int is_library(int calls, const int own[2], const int library[2])
{
	static struct ww_seen_calls c;
	struct ww_seen sum;
	c.n = 0;
	for (int i = 0; i < calls; i++) {
		struct ww_seen one = { .calls = 1, .n = { [WW_CODE_OWN] = own[i % 2], [WW_CODE_LIBRARY] = library[i % 2] } };
		ww_seen_note(&c, &one);
	}
	ww_seen_total(&c, &sum);
	return ww_seen_is_library(&sum, 50);
}

/* Calls that are much alike say sooner whose work they are than the number of their samples would. */
static void calls_that_are_alike_say_more(void **state)
{
	static const int one[] = { 1, 1 }, two[] = { 2, 2 }, more[] = { 1, 2 }, none[] = { 0, 0 }, three[] = { 3, 0 },
					 five[] = { 0, 5 };
	(void)state;
	assert_true(is_library(48, one, more)); /* 48 and 72: less than two standard deviations of chance */
	assert_false(is_library(48, more, one));
	assert_false(is_library(48, one, one));
	assert_false(is_library(48, two, more));
	assert_true(is_library(10, none, one));
	assert_true(is_library(10, one, two));
	assert_false(is_library(3, one, two));     /* too few to say how much they differ */
	assert_true(is_library(200, three, five)); /* calls that differ more than chance has it, as ever */
}

/* What `layout` says of two outputs of a page each, of which the first must be memory of its own. */
static int apart(const char *first, const char *second, int pages)
{
	static const int page[] = { 1024 }, plain[] = { 0 }, own[] = { 1, 0 };
	struct ww_tensor t[2] = { tensor(1, page, plain), tensor(1, page, plain) };
	int64_t places[] = { (int64_t)(uintptr_t)first, 1, (int64_t)(uintptr_t)second, 1 };
	char why[128] = "";
	int good = ww_outputs_apart(getpid(), places, t, 2, own, pages, why, sizeof(why));
	assert_int_equal(good, !*why);
	return good;
}

static char *map_page(int flags, int fd)
{
	void *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, flags, fd, 0);
	assert_true(m != MAP_FAILED);
	return m;
}

static int not_given(char *at, char *given)
{
	const int own = 1, size[] = { 1024 }, order[] = { 0 };
	struct ww_tensor t = tensor(1, size, order);
	int64_t places[] = { (int64_t)(uintptr_t)at, 1 };
	char why[256] = "";
	int good = ww_outputs_not_given(
		getpid(), places, &t, 1, &own, (int64_t)(uintptr_t)given, 2 * 4096, why, sizeof(why));
	assert_int_equal(good, !*why);
	return good;
}

/* State that the judge has written is no output, where it was or where its pages were moved to. */
static void what_was_given_is_no_output(void **state)
{
	enum { PAGE = 4096 };
	(void)state;
	char *m = mmap(NULL, 6 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *given = m + PAGE;
	assert_true(m != MAP_FAILED);
	memset(m, 1, 6 * PAGE);
	assert_true(not_given(m, given));
	assert_false(not_given(m + 4, given));
	assert_false(not_given(given + PAGE, given));
	assert_true(not_given(given + 2 * PAGE, given));
	assert_ptr_equal(mremap(given, PAGE, PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, m + 4 * PAGE), m + 4 * PAGE);
	assert_false(not_given(m + 4 * PAGE, given));
	assert_ptr_equal(mmap(given, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), given);
	assert_false(not_given(m + 4 * PAGE, given));
	*given = 1;
	assert_true(not_given(m + 4 * PAGE, given));
	munmap(m, 6 * PAGE);
}

static void memory_of_their_own(void **state)
{
	enum { PAGE = 4096 };
	int fd = memfd_create("pages", MFD_CLOEXEC);
	(void)state;
	assert_int_equal(ftruncate(fd, PAGE), 0);
	char *plain = mmap(NULL, 3 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *of_file = map_page(MAP_SHARED, fd), *seen_of_file = map_page(MAP_PRIVATE, fd);
	char *shared = map_page(MAP_SHARED | MAP_ANONYMOUS, -1), *heap = malloc(2 * PAGE);
	assert_false(apart(plain, plain + PAGE, 1)); /* nobody has written it */
	assert_int_equal(*(volatile char *)plain, 0);
	assert_false(apart(plain, plain + PAGE, 1)); /* all such pages are one */
	memset(plain, 1, 3 * PAGE);
	memset(heap, 1, 2 * PAGE);
	*of_file = *shared = 1;
	assert_true(apart(plain, plain + PAGE, 1));
	assert_true(apart(heap, heap + PAGE, 1));
	assert_false(apart(plain, plain, 1));
	assert_false(apart(plain, plain + PAGE - 4, 0));
	assert_false(apart(of_file, plain, 1));
	assert_int_equal(*(volatile char *)seen_of_file, 1);
	assert_false(apart(seen_of_file, plain, 1));
	assert_false(apart(shared, plain, 1));
	*(volatile char *)seen_of_file = 2; /* now a copy */
	assert_true(apart(seen_of_file, plain, 1));
	assert_true(apart(of_file, plain, 0));
	assert_true(apart(plain, of_file, 1)); /* nothing is asked of the second */
	assert_int_equal(mprotect(plain + PAGE, PAGE, PROT_READ), 0);
	assert_true(apart(plain + PAGE / 2, plain + 2 * PAGE, 1)); /* two mappings, one beside the other */
	assert_int_equal(munmap(plain + PAGE, PAGE), 0);
	assert_false(apart(plain + PAGE / 2, plain + 2 * PAGE, 1));
	munmap(plain, 3 * PAGE);
	munmap(of_file, PAGE);
	munmap(seen_of_file, PAGE);
	munmap(shared, PAGE);
	free(heap);
	close(fd);
}

/* What has been returned is the caller's: filled, but for what is not the solution's own and what does not lie
 * together.
 */
static void returned_outputs_are_poisoned(void **state)
{
	static const int size[] = { 100, 200 }, plain[] = { 0, 1 }, own[] = { 1, 0, 1 };
	struct ww_tensor t[] = { tensor(2, size, plain), tensor(2, size, plain), tensor(2, size, plain) };
	static unsigned char dense[80008], other[80000], gaps[160000];
	int64_t places[] = { (int64_t)(uintptr_t)(dense + 4), 200, 1, (int64_t)(uintptr_t)other, 200, 1,
		(int64_t)(uintptr_t)gaps, 400, 2 };
	(void)state;
	ww_outputs_poison(getpid(), places, t, 3, own, 0xfe);
	for (int i = 0; i < 80008; i++)
		assert_int_equal(dense[i], i < 4 || i >= 80004 ? 0 : 0xfe);
	for (int i = 0; i < 80000; i++)
		assert_int_equal(other[i] | gaps[i] | gaps[80000 + i], 0);
	places[0] = 4096; /* nothing is there */
	ww_outputs_poison(getpid(), places, t, 3, own, 0xfe);
}

/* Bytes of outputs that lie where no earlier call has returned any, but for those that are not the solution's own. */
static void outputs_in_memory_of_no_earlier_call(void **state)
{
	static const int size[] = { 100 }, plain[] = { 0 }, own[] = { 1, 0 };
	struct ww_tensor t[] = { tensor(1, size, plain), tensor(1, size, plain) };
	const int64_t first[] = { 4096, 1, 8192, 1 }, second[] = { 12288, 1, 16384, 1 }, none[] = { 0, 1, 0, 1 };
	const int64_t *const before[] = { first, second }, *const one[] = { NULL, second };
	(void)state;
	assert_int_equal(ww_outputs_unpoisoned(first, t, 2, own, before, 2), 0);
	assert_int_equal(ww_outputs_unpoisoned(first, t, 2, own, one, 2), 400);
	assert_int_equal(
		ww_outputs_unpoisoned((int64_t[]){ 16384, 1, 0, 1 }, t, 2, own, before, 2), 0); /* as another one */
	assert_int_equal(ww_outputs_unpoisoned((int64_t[]){ 4100, 1, 0, 1 }, t, 2, own, before, 2), 400);
	assert_int_equal(ww_outputs_unpoisoned((int64_t[]){ 20480, 1, 0, 1 }, t, 2, own, before, 2), 400);
	assert_int_equal(ww_outputs_unpoisoned((int64_t[]){ 4096, 1, 20480, 1 }, t, 2, own, before, 2), 0);
	assert_int_equal(ww_outputs_unpoisoned(none, t, 2, own, before, 2), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(far_apart),
		cmocka_unit_test(outputs_in_memory_of_no_earlier_call), cmocka_unit_test(shared_elements),
		cmocka_unit_test(any_layout), cmocka_unit_test(memory_of_their_own),
		cmocka_unit_test(what_was_given_is_no_output), cmocka_unit_test(returned_outputs_are_poisoned),
		cmocka_unit_test(nothing_that_is_not_there), cmocka_unit_test(pieces), cmocka_unit_test(whose_code),
		cmocka_unit_test(one_file_in_many_places), cmocka_unit_test(a_long_call_counts_as_the_middle_one),
		cmocka_unit_test(calls_that_are_alike_say_more) };
	return cmocka_run_group_tests_name("judge/outputs", tests, NULL, NULL);
}
