/* sampler.c - see sampler.h.
 *
 * One event for each processor, inherited by every thread and process that the first thread ever starts, with a ring of
 * records that the kernel fills and take() empties.  The kernel also records each new mapping of code: then what an
 * address belongs to is read again.  At the end of a call the process stands, so its mappings are what they are; code
 * that ran and is not mapped any more counts as a library's, and so does that of a process which has ended.  Code that
 * moves (mremap) is recorded nowhere: so in some calls mappings are read again, and the bytes at the end must be those
 * that ran.
 *
 * A file's name says what its pages hold as long as nobody has written over them: a private page of libm's code can be
 * made writable and hold a BLAS.  The kernel tells a page of the file from a copy of the process's own (pagemap). */
#include "judge/forms/sampler.h"

#include "judge/forms/copies.h"

#include "base/err.h"
#include "base/median.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/time.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum {
	CHECKED = 4,
	LOOKS = 2,
	NEAR_BYTES = 2048,
	PAGE = 4096,
	MAX_SEARCHED = 64 << 20,
	RING_BYTES = 32 << 10,
	MAX_SAMPLES = 1 << 20
};

struct range {
	uint64_t start, end;
	enum ww_code kind;
};

/* A record of the kernel's (PERF_SAMPLE_IP, TID, TIME), and what it counts for, known at the end of the call. */
struct sample {
	uint64_t at;
	uint32_t process, thread;
	uint64_t ns;
	enum ww_code kind;
};
enum { RECORD_BYTES = offsetof(struct sample, kind) };

/* What a page of code held at a sample, while a call was under way. */
struct glimpse {
	uint64_t at; /* 0: none */
	unsigned char page[PAGE];
};

/* Another (PERF_RECORD_LOST): what found no room in the ring. */
struct lost {
	uint64_t id, n;
};

struct event {
	int fd;
	struct perf_event_mmap_page *head;
};

struct ww_sampler {
	pid_t pid;
	int is_runner, pagemap; /* pagemap: a descriptor, -1: it cannot be read */
	const struct ww_copies *copies;
	struct ww_rng rng;    /* secret */
	struct event *events; /* by processor */
	int n_events;
	struct range *ranges; /* executable mappings, by address */
	int n;
	size_t max, searched;   /* bytes, when they were read */
	struct sample *samples; /* of the call in progress */
	int n_samples;
	size_t max_samples;
	uint64_t lost;                       /* and those for which there was no room */
	uint64_t begin_ns, took_ns, look_ns; /* of the call in progress; of the last one; when to look, 0: not */
	struct glimpse somebodys, neutral;   /* the newest samples under way, of code that counts and of other */
	int is_exchanged;                    /* neutral code was written over, or is not what ran */
};

/* ---- Mappings ---------------------------------------------------------------------------------------------------- */

/* Code that is neither a library's arithmetic nor the solution's: the interpreter, allocation, waiting, single
 * functions. */
static const char *const neutral[] = { "python", "libpython", "libc.so", "libc-", "ld-linux", "ld-2", "libm.so",
	"libm-", "libmvec", "libgomp", "libiomp5", "libstdc++", "libgcc_s", "libffi", "_ctypes", "libpthread", "libdl",
	"librt" };

static int begins(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

enum ww_code ww_sampler_kind(const char *path, int private)
{
	const char *name = strrchr(path, '/');
	if (begins(path, "[vdso]") || begins(path, "[vsyscall]"))
		return WW_CODE_OTHER;
	/* Code outside of files counts as a library's.  A process names its anonymous memory as it likes, and it has a
	 * heap, a stack and files in memory. */
	if (path[0] != '/' || begins(path, "/memfd:"))
		return WW_CODE_LIBRARY;
	if (private)
		return WW_CODE_OWN;
	for (size_t i = 0; i < WW_ARRAY_LEN(neutral); i++)
		if (begins(name + 1, neutral[i]))
			return WW_CODE_OTHER;
	return WW_CODE_LIBRARY;
}

enum ww_code ww_sampler_kind_in_runner(const char *path)
{
	if (begins(path, "/memfd:kernels"))
		return WW_CODE_OWN;
	return strstr(path, "blas") ? WW_CODE_LIBRARY : WW_CODE_OTHER;
}

static int add(struct ww_sampler *x, struct range r)
{
	if (!WW_GROW(x->ranges, &x->max, x->n + 1))
		return 0;
	x->ranges[x->n++] = r;
	return 1;
}

/* What torch.compile's generator leaves in each of its libraries, in the data beside the code.  A solution may map a
 * file thousands of times: where there is more than MAX_SEARCHED, the rest is taken for such a library. */
static int is_compiled(struct ww_sampler *x, uint64_t start, uint64_t end)
{
	static const char mark[] = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR";
	size_t n = end - start;
	if (n > MAX_SEARCHED - x->searched)
		return 1;
	x->searched += n;
	ww_auto_free char *bytes = malloc(n);
	struct iovec here = { bytes, n }, there = { (void *)(uintptr_t)start, n };
	ssize_t got = bytes ? process_vm_readv(x->pid, &here, 1, &there, 1, 0) : -1;
	return got > 0 && memmem(bytes, (size_t)got, mark, sizeof(mark) - 1) != NULL;
}

struct mapping {
	uint64_t start, end, file; /* its number on its device */
	dev_t device;
	char rights[8];
	int path; /* where the path begins in its line */
};

static int parse(const char *line, struct mapping *m)
{
	unsigned major_, minor_;
	int n = sscanf(line, "%" SCNx64 "-%" SCNx64 " %7s %*x %x:%x %" SCNu64 " %n", &m->start, &m->end, m->rights, &major_,
		&minor_, &m->file, &m->path);
	m->device = n == 6 ? makedev(major_, minor_) : 0;
	return n == 6;
}

/* A file's mappings follow one another, and its code comes before its data. */
static void forget_compiled(struct ww_sampler *x, const struct mapping *m, int first)
{
	if (first < x->n && strchr(m->rights, 'r') && is_compiled(x, m->start, m->end))
		for (int i = first; i < x->n; i++)
			x->ranges[i].kind = WW_CODE_LIBRARY;
}

/* Paths are the process's own choice, so the device says whether a file lies on its /tmp; and of any length, so a line
 * is read as a whole. */
static void read_maps(struct ww_sampler *x)
{
	char name[64], *line = NULL;
	size_t room = 0;
	struct stat own;
	struct mapping m;
	uint64_t file = 0; /* of its /tmp, the last one, and its first range of code */
	int first = 0;
	snprintf(name, sizeof(name), "/proc/%d/root/tmp", (int)x->pid);
	dev_t tmp = stat(name, &own) == 0 ? own.st_dev : 0;
	snprintf(name, sizeof(name), "/proc/%d/maps", (int)x->pid);
	FILE *f = fopen(name, "re");
	x->n = 0;
	x->searched = 0;
	while (f && getline(&line, &room, f) > 0) {
		line[strcspn(line, "\n")] = 0;
		if (!parse(line, &m))
			continue;
		int private = tmp && m.device == tmp && !x->is_runner;
		if (private && m.file != file) {
			file = m.file;
			first = x->n;
		}
		const char *path = line + m.path;
		enum ww_code kind = x->is_runner ? ww_sampler_kind_in_runner(path) : ww_sampler_kind(path, private);
		if (m.rights[2] == 'x' && !add(x, (struct range){ m.start, m.end, kind }))
			break;
		if (private)
			forget_compiled(x, &m, first);
	}
	if (f)
		fclose(f);
	free(line);
}

static const struct range *find(const struct ww_sampler *x, uint64_t at)
{
	int low = 0, high = x->n;
	while (low < high) {
		int mid = (low + high) / 2;
		if (x->ranges[mid].end <= at)
			low = mid + 1;
		else
			high = mid;
	}
	return low < x->n && x->ranges[low].start <= at ? &x->ranges[low] : NULL;
}

/* ---- The kernel's records ---------------------------------------------------------------------------------------- */

static int open_event(pid_t pid, int processor, struct event *e)
{
	struct perf_event_attr a = { .size = sizeof(a),
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_TASK_CLOCK,
		.sample_period = WW_SAMPLE_US * 1000,
		.sample_type = PERF_SAMPLE_IP | PERF_SAMPLE_TID | PERF_SAMPLE_TIME,
		.inherit = 1,
		.mmap = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
		.use_clockid = 1,
		.clockid = CLOCK_MONOTONIC };
	e->fd = (int)syscall(SYS_perf_event_open, &a, pid, processor, -1, PERF_FLAG_FD_CLOEXEC);
	if (e->fd < 0)
		return errno == ENODEV; /* it is switched off */
	void *m = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE) + RING_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, e->fd, 0);
	e->head = m == MAP_FAILED ? NULL : m;
	return e->head != NULL;
}

static void close_event(struct event *e)
{
	if (e->head)
		munmap(e->head, (size_t)sysconf(_SC_PAGESIZE) + RING_BYTES);
	if (e->fd >= 0)
		close(e->fd);
}

struct ww_sampler *ww_sampler_open(pid_t pid, const struct ww_copies *copies)
{
	struct ww_sampler *x = calloc(1, sizeof(*x));
	int n = (int)sysconf(_SC_NPROCESSORS_CONF);
	if (!x || !(x->events = calloc((size_t)n, sizeof(*x->events)))) {
		free(x);
		return NULL;
	}
	char name[64];
	snprintf(name, sizeof(name), "/proc/%d/pagemap", (int)pid);
	x->pid = pid;
	x->pagemap = open(name, O_RDONLY | O_CLOEXEC);
	x->copies = copies;
	ww_rng_init(&x->rng, ww_rng_secret(), 0);
	for (int k = 0; k < n; k++, x->n_events++)
		if (!open_event(pid, k, &x->events[k])) {
			x->n_events++;
			ww_sampler_close(x);
			return NULL;
		}
	return x;
}

struct ww_sampler *ww_sampler_open_runner(pid_t pid)
{
	struct ww_sampler *x = ww_sampler_open(pid, NULL);
	if (x)
		x->is_runner = 1;
	return x;
}

void ww_sampler_close(struct ww_sampler *x)
{
	if (!x)
		return;
	for (int k = 0; k < x->n_events; k++)
		close_event(&x->events[k]);
	if (x->pagemap >= 0)
		close(x->pagemap);
	free(x->events);
	free(x->ranges);
	free(x->samples);
	free(x);
}

/* `n` bytes of a ring from `at` on. */
static void copy_out(const struct event *e, uint64_t at, void *to, size_t n)
{
	const char *ring = (const char *)e->head + sysconf(_SC_PAGESIZE);
	size_t from = at % RING_BYTES, part = n < RING_BYTES - from ? n : RING_BYTES - from;
	memcpy(to, ring + from, part);
	memcpy((char *)to + part, ring, n - part);
}

static void take_lost(struct ww_sampler *x, const struct event *e, uint64_t at)
{
	struct lost lost;
	copy_out(e, at, &lost, sizeof(lost));
	x->lost += lost.n < MAX_SAMPLES ? lost.n : MAX_SAMPLES;
}

static void take_one(struct ww_sampler *x, const struct event *e)
{
	uint64_t head = __atomic_load_n(&e->head->data_head, __ATOMIC_ACQUIRE), at = e->head->data_tail;
	struct perf_event_header h;
	for (; at < head; at += h.size) {
		copy_out(e, at, &h, sizeof(h));
		if (h.type == PERF_RECORD_MMAP)
			x->n = 0; /* read again */
		else if (h.type == PERF_RECORD_LOST)
			take_lost(x, e, at + sizeof(h));
		else if (h.type == PERF_RECORD_SAMPLE && x->n_samples < MAX_SAMPLES &&
			WW_GROW(x->samples, &x->max_samples, x->n_samples + 1))
			copy_out(e, at + sizeof(h), &x->samples[x->n_samples++], RECORD_BYTES);
	}
	__atomic_store_n(&e->head->data_tail, at, __ATOMIC_RELEASE);
}

void ww_sampler_take(struct ww_sampler *x)
{
	for (int k = 0; x && k < x->n_events; k++)
		if (x->events[k].head)
			take_one(x, &x->events[k]);
}

void ww_sampler_begin(struct ww_sampler *x)
{
	ww_sampler_take(x);
	if (!x)
		return;
	x->n_samples = 0;
	x->somebodys.at = x->neutral.at = 0;
	x->is_exchanged = 0;
	x->lost = 0;
	x->begin_ns = ww_now_ns();
	x->look_ns = 0;
	if (x->copies && x->took_ns && ww_rng_below(&x->rng, LOOKS) == 0)
		x->look_ns = x->begin_ns + ww_rng_below(&x->rng, x->took_ns);
}

uint64_t ww_sampler_look_ns(const struct ww_sampler *x) { return x ? x->look_ns : 0; }

/* ---- Classification ---------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
	const struct sample *x = a, *y = b;
	return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Whether the page was written by the process: it is not the file's any more. */
static int is_written(const struct ww_sampler *x, uint64_t at)
{
	const uint64_t present = 1ull << 63, swapped = 1ull << 62, of_file = 1ull << 61;
	uint64_t entry = 0;
	if (x->pagemap < 0 || pread(x->pagemap, &entry, sizeof(entry), (off_t)(at / PAGE * sizeof(entry))) != sizeof(entry))
		return 0;
	return (entry & (present | swapped)) && !(entry & of_file);
}

static enum ww_code whose(const struct ww_sampler *x, const struct sample *s)
{
	const struct range *r = find(x, s->at);
	return r && s->process == (uint32_t)x->pid ? r->kind : WW_CODE_LIBRARY;
}

/* At the end of a call. */
static enum ww_code counts_for(const struct ww_sampler *x, const struct sample *s)
{
	enum ww_code kind = whose(x, s);
	if (kind == WW_CODE_OTHER && !x->is_runner && (x->is_exchanged || is_written(x, s->at)))
		return WW_CODE_LIBRARY;
	return kind;
}

/* Whether another thread was in a library's code about then. */
static int beside_library(const struct ww_sampler *x, int i)
{
	const struct sample *s = &x->samples[i];
	const uint64_t near = WW_SAMPLE_US * 1000 / 2;
	for (int way = -1; way <= 1; way += 2)
		for (int k = i + way; k >= 0 && k < x->n_samples; k += way) {
			const struct sample *o = &x->samples[k];
			if ((o->ns > s->ns ? o->ns - s->ns : s->ns - o->ns) > near)
				break;
			if (o->thread != s->thread && o->kind == WW_CODE_LIBRARY)
				return 1;
		}
	return 0;
}

/* The code around a sample in own code: a library's? */
static int is_copied(const struct ww_sampler *x, const struct sample *s)
{
	const struct range *r = find(x, s->at);
	unsigned char code[2 * NEAR_BYTES];
	uint64_t from = s->at - r->start > NEAR_BYTES ? s->at - NEAR_BYTES : r->start,
			 to = r->end - s->at > NEAR_BYTES ? s->at + NEAR_BYTES : r->end;
	struct iovec here = { code, to - from }, there = { (void *)(uintptr_t)from, to - from };
	ssize_t n = process_vm_readv(x->pid, &here, 1, &there, 1, 0);
	return n <= 0 || ww_copies_has(x->copies, code, (size_t)n); /* code that is not there any more is a library's */
}

/* 0 where it is not mapped. */
static int read_page(const struct ww_sampler *x, uint64_t at, unsigned char page[PAGE])
{
	struct iovec here = { page, PAGE }, there = { (void *)(uintptr_t)(at - at % PAGE), PAGE };
	return process_vm_readv(x->pid, &here, 1, &there, 1, 0) == PAGE;
}

static void glimpse(const struct ww_sampler *x, const struct sample *newest, struct glimpse *g)
{
	if (newest && read_page(x, newest->at, g->page))
		g->at = newest->at;
}

/* Mappings are not read again, which would take longer than a short call. */
void ww_sampler_look(struct ww_sampler *x)
{
	const struct sample *newest[2] = { NULL, NULL };
	x->look_ns = 0;
	ww_sampler_take(x);
	if (!x->n)
		read_maps(x);
	for (int i = 0; i < x->n_samples; i++) {
		const struct sample *s = &x->samples[i], **to = &newest[whose(x, s) == WW_CODE_OTHER];
		if (s->process == (uint32_t)x->pid && (!*to || s->ns > (*to)->ns))
			*to = s;
	}
	glimpse(x, newest[0], &x->somebodys);
	glimpse(x, newest[1], &x->neutral);
	x->is_exchanged = newest[1] && is_written(x, newest[1]->at);
}

/* Of a call that was looked at: is what ran there still? */
static int is_there(const struct ww_sampler *x, const struct glimpse *g)
{
	unsigned char now[PAGE];
	return read_page(x, g->at, now) && memcmp(now, g->page, PAGE) == 0;
}

/* Code that counted as the solution's own: and was it, no copy? */
static void compare_seen(struct ww_sampler *x, struct ww_seen *seen)
{
	const struct range *r = find(x, x->somebodys.at);
	if (!x->somebodys.at || !r || r->kind != WW_CODE_OWN)
		return;
	seen->looked = 1;
	seen->found = !is_there(x, &x->somebodys) || ww_copies_has(x->copies, x->somebodys.page, PAGE);
}

/* At random, or a solution could begin with other code than it goes on with. */
static void check_some(struct ww_sampler *x, struct ww_seen *seen)
{
	for (int k = 0; k < CHECKED && x->copies && x->n_samples; k++) {
		const struct sample *s = &x->samples[ww_rng_below(&x->rng, (uint64_t)x->n_samples)];
		if (s->kind == WW_CODE_OWN) {
			seen->checked++;
			seen->copied += is_copied(x, s);
		}
	}
}

void ww_sampler_end(struct ww_sampler *x, struct ww_seen *seen)
{
	memset(seen, 0, sizeof(*seen));
	if (!x)
		return;
	ww_sampler_take(x);
	if (!x->n || x->somebodys.at || x->neutral.at)
		read_maps(x);
	x->is_exchanged |= x->neutral.at && !is_there(x, &x->neutral);
	if (x->n_samples)
		qsort(x->samples, (size_t)x->n_samples, sizeof(*x->samples), by_time);
	for (int i = 0; i < x->n_samples; i++)
		x->samples[i].kind = counts_for(x, &x->samples[i]);
	for (int i = 0; i < x->n_samples; i++) {
		enum ww_code kind = x->samples[i].kind;
		if (kind == WW_CODE_OWN && beside_library(x, i))
			kind = WW_CODE_OTHER;
		seen->n[kind]++;
	}
	/* Only hundreds of new mappings of code overflow the ring, which a solution does on purpose: they count as a
	 * library's. */
	seen->n[WW_CODE_LIBRARY] += (int)(x->lost < MAX_SAMPLES ? x->lost : MAX_SAMPLES);
	check_some(x, seen);
	compare_seen(x, seen);
	seen->calls = 1;
	x->took_ns = ww_now_ns() - x->begin_ns;
}

void ww_seen_add(struct ww_seen *sum, const struct ww_seen *x)
{
	sum->calls += x->calls;
	sum->checked += x->checked;
	sum->copied += x->copied;
	sum->looked += x->looked;
	sum->found += x->found;
	for (int k = 0; k < WW_CODE_KINDS; k++)
		sum->n[k] += x->n[k];
}

void ww_seen_note(struct ww_seen_calls *c, const struct ww_seen *x)
{
	c->last[c->n++ % (int)WW_ARRAY_LEN(c->last)] = *x;
}

static int samples_of(const struct ww_seen *x)
{
	int sum = 0;
	for (int k = 0; k < WW_CODE_KINDS; k++)
		sum += x->n[k];
	return sum;
}

/* At least one: where most calls are too short for a sample, those that have one say whose code it is. */
static double middle_of(const struct ww_seen_calls *c, size_t n)
{
	double samples[WW_ARRAY_LEN(c->last)];
	for (size_t i = 0; i < n; i++)
		samples[i] = samples_of(&c->last[i]);
	return n ? fmax(1, ww_median(samples, n)) : 1;
}

/* The standard deviation of the sum of what each call has of libraries' samples beyond own ones, by the calls' own
 * scatter; of few calls more, as Student's distribution has it. */
static double scatter_of(const double *more, int n)
{
	double mean = 0, squares = 0;
	if (n <= 3)
		return INFINITY;
	for (int i = 0; i < n; i++)
		mean += more[i] / n;
	for (int i = 0; i < n; i++)
		squares += (more[i] - mean) * (more[i] - mean);
	return sqrt(squares * n / (n - 3));
}

void ww_seen_total(const struct ww_seen_calls *c, struct ww_seen *sum)
{
	int n = c->n < (int)WW_ARRAY_LEN(c->last) ? c->n : (int)WW_ARRAY_LEN(c->last);
	double middle = middle_of(c, (size_t)n), samples[WW_CODE_KINDS] = { 0 };
	double shares[WW_ARRAY_LEN(c->last)], more[WW_ARRAY_LEN(c->last)];
	memset(sum, 0, sizeof(*sum));
	for (int i = 0; i < n; i++) {
		const struct ww_seen *one = &c->last[i];
		double all = samples_of(one);
		shares[i] = all > middle ? middle / all : 1;
		sum->calls += one->calls;
		sum->checked += one->checked;
		sum->copied += one->copied;
		sum->looked += one->looked;
		sum->found += one->found;
		for (int k = 0; k < WW_CODE_KINDS; k++)
			samples[k] += shares[i] * one->n[k];
	}
	for (int k = 0; k < WW_CODE_KINDS; k++)
		sum->n[k] = (int)lround(samples[k]);
	const double own = 1 - 2 * ww_seen_copied(sum);
	for (int i = 0; i < n; i++)
		more[i] = shares[i] * (c->last[i].n[WW_CODE_LIBRARY] - own * c->last[i].n[WW_CODE_OWN]);
	sum->scatter = scatter_of(more, n);
}

double ww_seen_copied(const struct ww_seen *x)
{
	double after = x->checked ? (double)x->copied / x->checked : 0;
	return fmax(after, x->looked ? (double)x->found / x->looked : 0);
}

int ww_seen_own(const struct ww_seen *x) { return x->n[WW_CODE_OWN] - (int)(x->n[WW_CODE_OWN] * ww_seen_copied(x)); }

int ww_seen_library(const struct ww_seen *x) { return x->n[WW_CODE_LIBRARY] + x->n[WW_CODE_OWN] - ww_seen_own(x); }

int ww_seen_is_library(const struct ww_seen *x, double excused_us)
{
	int own = ww_seen_own(x), library = ww_seen_library(x);
	double each_us = x->calls ? (double)WW_SAMPLE_US / x->calls : 0;
	return (library - own - 2 * fmin(sqrt(library + own), x->scatter)) * each_us > excused_us;
}

int ww_sampler_has_own(struct ww_sampler *x)
{
	if (x)
		read_maps(x);
	for (int i = 0; x && i < x->n; i++)
		if (x->ranges[i].kind == WW_CODE_OWN)
			return 1;
	return 0;
}
