/* builder_worker.c - `warpwright __builder`: the zygote whose jobs compile and run one plan.c each.
 *
 * The job filters its system calls before TinyCC sees a byte of the source, since bugs of the compiler are as useful to
 * an attacker as those of the program.  From there it cannot open, create, connect or fork; it can fill its memory
 * (limited), its reply (fixed size) and its second.  It cannot tell one build from the next: the time-stamp counter is
 * switched off where the CPU allows it, the kernel's clock pages (vDSO) are not mapped, arguments and environment are
 * erased.
 *
 * TinyCC is used as a library: no process, no file, about a millisecond for a plan.  Its search for headers and
 * libraries is switched off: -nostdlib -nostdinc, symbols from ww_plan_symbols[] only.
 */
#include "judge/build/build.h"

#include "judge/build/build_wire.h"
#include "sandbox/zygote.h"

#include <libtcc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>

enum { MAX_CLOCK_MAPS = 8 };

struct worker {
	struct ww_headers *headers;
	struct {
		void *at;
		size_t bytes;
	} clock[MAX_CLOCK_MAPS]; /* what the kernel maps for telling the time */
	int n_clock;
	unsigned long words[4]; /* arguments from and to, environment from and to */
};

struct job {
	struct ww_job_reply *reply;
	struct ww_str log; /* TinyCC's messages */
	int errors;
};

static const struct ww_sandbox_limits job_limits = { .address_space_bytes = WW_BUILD_MEMORY_BYTES, .cpu_s = 2 };

static void find_clock_maps(struct worker *w)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[512];
	unsigned long from, to;
	while (f && fgets(line, sizeof(line), f))
		if ((strstr(line, "[vdso]") || strstr(line, "[vvar")) && w->n_clock < MAX_CLOCK_MAPS &&
			sscanf(line, "%lx-%lx", &from, &to) == 2) {
			w->clock[w->n_clock].at = (void *)from;
			w->clock[w->n_clock++].bytes = to - from;
		}
	if (f)
		fclose(f);
}

/* Arguments and environment, where the kernel put them: on the stack, where a plan can read them. */
static void find_words(struct worker *w)
{
	enum { BEFORE_ARG_START = 45 }; /* fields between the name and arg_start, proc_pid_stat(5) */
	char line[2048] = "";
	FILE *f = fopen("/proc/self/stat", "re");
	size_t n = f ? fread(line, 1, sizeof(line) - 1, f) : 0;
	char *p = n ? strrchr(line, ')') : NULL;
	if (f)
		fclose(f);
	for (int i = 0; p && i <= BEFORE_ARG_START; i++)
		p = strchr(p + 1, ' ');
	if (!p || sscanf(p, " %lu %lu %lu %lu", &w->words[0], &w->words[1], &w->words[2], &w->words[3]) != 4)
		memset(w->words, 0, sizeof(w->words));
}

static void erase_words(const struct worker *w)
{
	for (int i = 0; i < 4; i += 2)
		memset((void *)w->words[i], 0, w->words[i + 1] - w->words[i]);
}

static enum ww_rc warm(void *ctx, struct ww_str *hello, enum ww_sandbox_level *level, struct ww_err *err)
{
	struct worker *w = ctx;
	struct ww_sandbox_opts so = { .profile = WW_PROFILE_BUILDER };
	WW_CHECK(ww_headers_load(&w->headers, err));
	find_clock_maps(w);
	find_words(w);
	WW_CHECK(ww_sandbox_filter_prepare(WW_PROFILE_BUILDER, err));
	WW_CHECK(ww_sandbox_isolate(&so, level, err));
	erase_words(w);
	ww_str_adds(hello, "tinycc");
	return WW_OK;
}

/* ---- The reply --------------------------------------------------------------------------------------------------- */

static void answer(struct job *j, enum ww_build_result result, const char *text, size_t n, const struct ww_image *image)
{
	struct ww_build_reply r = {
		.result = result, .text_bytes = (uint32_t)n, .image_bytes = image ? image->total_bytes : 0
	};
	j->reply->len = 0;
	ww_job_reply_add(j->reply, &r, sizeof(r));
	ww_job_reply_add(j->reply, text, n);
	if (image)
		ww_job_reply_add(j->reply, image, image->total_bytes);
	ww_job_reply_commit(j->reply);
}

static void on_plan_error(void *ctx, const char *text) { answer(ctx, WW_BUILD_FAILED, text, strlen(text), NULL); }

static void on_tcc_message(void *ctx, const char *text)
{
	struct job *j = ctx;
	ww_str_adds(&j->log, text);
	ww_str_addc(&j->log, '\n');
	j->errors += !strstr(text, "warning:");
}

/* ---- The facts --------------------------------------------------------------------------------------------------- */

struct request {
	struct ww_build_request head;
	struct ww_facts facts;
	const char *source;
};

/* The request comes from the judge, our own; a request that does not add up is a bug of ours. */
static int parse(const unsigned char *p, size_t n, struct request *out)
{
	struct ww_build_request *h = &out->head;
	if (n < sizeof(*h))
		return 0;
	memcpy(h, p, sizeof(*h));
	size_t tensors = (size_t)h->n_inputs + h->n_params + h->n_outputs;
	size_t tensors_at = sizeof(*h), scalars_at = tensors_at + tensors * sizeof(struct ww_tensor);
	size_t names_at = scalars_at + h->n_scalars * sizeof(struct ww_scalar);
	struct ww_tensor *t = malloc(tensors * sizeof(*t) + 1);
	struct ww_scalar *s = malloc(h->n_scalars * sizeof(*s) + 1);
	if (!t || !s || names_at + h->names_bytes + h->source_bytes != n)
		return 0;
	memcpy(t, p + tensors_at, tensors * sizeof(*t));
	memcpy(s, p + scalars_at, h->n_scalars * sizeof(*s));
	for (size_t i = 0; i < tensors; i++)
		t[i].name = (const char *)p + names_at + (uintptr_t)t[i].name;
	out->facts = (struct ww_facts){ .inputs = t,
		.params = t + h->n_inputs,
		.outputs = t + h->n_inputs + h->n_params,
		.n_inputs = (int)h->n_inputs,
		.n_params = (int)h->n_params,
		.n_outputs = (int)h->n_outputs,
		.scalars = s,
		.n_scalars = (int)h->n_scalars,
		.device = h->device };
	out->source = (const char *)p + names_at + h->names_bytes;
	return 1;
}

/* ---- Compiling and running --------------------------------------------------------------------------------------- */

/* plan() compiled, or NULL with the messages in j->log. */
static void (*compile(struct job *j, const char *text))(struct ww_plan *)
{
	TCCState *s = tcc_new();
	if (!s)
		return NULL;
	tcc_set_error_func(s, j, on_tcc_message);
	tcc_set_options(s, "-nostdlib -nostdinc -Wall");
	tcc_set_output_type(s, TCC_OUTPUT_MEMORY);
	for (const struct ww_plan_symbol *y = ww_plan_symbols; y->name; y++)
		tcc_add_symbol(s, y->name, y->address);
	if (tcc_compile_string(s, text) < 0 || tcc_relocate(s, TCC_RELOCATE_AUTO) < 0)
		return NULL;
	void *f = tcc_get_symbol(s, "plan");
	if (!f) {
		on_tcc_message(j, "plan.c: error: it does not define `void plan(struct ww_plan *p)`");
		return NULL;
	}
	void (*plan)(struct ww_plan *);
	memcpy(&plan, &f, sizeof(plan));
	return plan;
}

static void build(struct worker *w, struct job *j, const struct request *r)
{
	struct ww_str text = WW_STR_INIT(16 << 20);
	const char *limit = NULL;
	ww_headers_expand(w->headers, r->source, r->head.source_bytes, &text);
	void (*plan)(struct ww_plan *) = text.cut ? NULL : compile(j, text.p);
	if (!plan) {
		answer(j, WW_BUILD_SYNTAX, j->log.p, j->log.len, NULL);
		return;
	}
	struct ww_plan *p = ww_plan_new(&r->facts, on_plan_error, j);
	if (!p)
		abort();
	plan(p);
	const char *error = ww_plan_error(p);
	struct ww_image *image = error ? NULL : ww_plan_image(p, &limit);
	if (image)
		answer(j, WW_BUILD_OK, j->log.p, j->log.len, image);
	else if (limit)
		answer(j, WW_BUILD_LIMIT, limit, strlen(limit), NULL);
	else if (error)
		answer(j, ww_plan_hit_limit(p) ? WW_BUILD_LIMIT : WW_BUILD_FAILED, error, strlen(error), NULL);
}

static enum ww_rc enter(void *ctx, struct ww_err *err)
{
	struct worker *w = ctx;
#ifndef WW_SANITIZE /* AddressSanitizer's allocator reads the clock */
	(void)prctl(PR_SET_TSC, PR_TSC_SIGSEGV, 0, 0, 0);
	for (int i = 0; i < w->n_clock; i++)
		if (munmap(w->clock[i].at, w->clock[i].bytes) < 0)
			return ww_err_errno(err, WW_ERR_SYSTEM, "cannot unmap the vDSO, through which a plan could read a clock");
#endif
	(void)w;
	enum ww_rc rc = ww_sandbox_limit(&job_limits, err);
	return rc == WW_OK ? ww_sandbox_filter(WW_PROFILE_BUILDER, err) : rc;
}

static int job(void *ctx, const unsigned char *request, size_t n, struct ww_job_reply *reply)
{
	struct request r;
	struct job j = { .reply = reply, .log = WW_STR_INIT(WW_BUILD_TEXT_BYTES) };
	if (!parse(request, n, &r))
		abort();
	build(ctx, &j, &r);
	return 0;
}

int ww_builder_main(int argc, char **argv)
{
	static struct worker w;
	(void)argc, (void)argv;
	struct ww_zygote_worker z = { .warm = warm, .enter = enter, .job = job, .ctx = &w };
	return ww_zygote_serve(&z);
}
