/* compile.c - the judge's side of compile.h: what is sent to a compile job, and how its answer is checked. */
#include "judge/compile/compile.h"

#include "base/mem.h"
#include "base/time.h"
#include "base/target.h"
#include "judge/compile/binary_check.h"
#include "judge/compile/compile_wire.h"
#include "judge/cache/answers.h"

#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* By the clock, in limits of processor time: compiling cannot wait for anything but processors and the disk. */
static const double CLOCK = 5;

struct ww_compiler {
	struct ww_zygote *z;
	struct ww_compiler_opts o;
	struct ww_answers cache;
};

static const char *const result_texts[] = {
#define X(name, text) text,
	WW_COMPILE_RESULT_MAP(X)
#undef X
};

const char *ww_compile_result_text(enum ww_compile_result r)
{
	return (size_t)r < WW_ARRAY_LEN(result_texts) ? result_texts[r] : "?";
}

enum ww_rc ww_compiler_open(struct ww_compiler **out, const struct ww_compiler_opts *opts, struct ww_err *err)
{
	char cc[16], memory[32], seconds[32];
	struct ww_compiler *c;
	*out = NULL;
	WW_CHECK(WW_NEW(c, 1, err));
	c->o = *opts;
	c->o.max_s = opts->max_s > 0 ? opts->max_s : 60;
	c->o.max_memory_bytes = opts->max_memory_bytes > 0 ? opts->max_memory_bytes : 4ll << 30;
	snprintf(cc, sizeof(cc), "%d", opts->cc);
	snprintf(memory, sizeof(memory), "%lld", (long long)c->o.max_memory_bytes);
	snprintf(seconds, sizeof(seconds), "%.0f", ceil(c->o.max_s));
	const char *args[] = { ww_target_name(opts->target), cc, memory, seconds, NULL };
	struct ww_zygote_opts zo = { .worker = "compiler",
		.args = args,
		.interrupted = opts->interrupted,
		.max_reply_bytes = sizeof(struct ww_compile_reply) + WW_COMPILE_NAMES_BYTES + WW_COMPILE_RAW_LOG_BYTES +
			WW_COMPILE_MAX_BINARY };
	enum ww_rc rc = ww_zygote_open(&c->z, &zo, err);
	if (rc == WW_OK)
		*out = c;
	else
		free(c);
	return rc;
}

void ww_compiler_close(struct ww_compiler *c)
{
	if (c)
		ww_zygote_close(c->z);
	free(c);
}

void ww_compiler_keep(struct ww_compiler *c, struct ww_store *store)
{
	ww_answers_init(&c->cache, store, "binary", ww_compiler_identity(c));
}

enum ww_sandbox_level ww_compiler_level(const struct ww_compiler *c) { return ww_zygote_level(c->z); }

int ww_compiler_pid(const struct ww_compiler *c) { return ww_zygote_pid(c->z); }

const char *ww_compiler_identity(const struct ww_compiler *c) { return ww_zygote_hello(c->z); }

/* ---- The result -------------------------------------------------------------------------------------------------- */

void ww_compiled_init(struct ww_compiled *c) { memset(c, 0, sizeof(*c)); }

void ww_compiled_release(struct ww_compiled *c)
{
	for (int i = 0; i < c->n_kernels; i++) {
		free((void *)(uintptr_t)c->kernels[i].kernel);
		free((void *)(uintptr_t)c->kernels[i].symbol);
	}
	free(c->kernels);
	free(c->binary);
	free(c->log);
	ww_compiled_init(c);
}

const char *ww_compiled_symbol(const struct ww_compiled *c, const char *kernel)
{
	for (int i = 0; i < c->n_kernels; i++)
		if (!strcmp(c->kernels[i].kernel, kernel))
			return c->kernels[i].symbol;
	return NULL;
}

/* ---- The request ------------------------------------------------------------------------------------------------- */

static void add_macros(const struct ww_image *image, struct ww_str *out)
{
	const struct ww_image_macro *x = ww_image_macros(image);
	for (uint32_t i = 0; i < image->n_macros; i++)
		ww_str_addf(out, "#define %s %lld\n", ww_image_string(image, x[i].name), (long long)x[i].value);
}

void ww_compile_prelude(const struct ww_image *image, struct ww_str *out)
{
	if (image->target == WW_TARGET_CUDA)
		ww_str_adds(out, "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n");
	add_macros(image, out);
}

static pthread_once_t flags_once = PTHREAD_ONCE_INIT;
static char flags_cuda[256], flags_cpu[1024];

static void join_flags(char *out, size_t size, const char *const *f)
{
	size_t n = 0;
	for (; *f; f++)
		if (strncmp(*f, "-D", 2))
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " " : "", *f);
}

static void make_flags(void)
{
	join_flags(flags_cuda, sizeof(flags_cuda), ww_nvrtc_flags);
	join_flags(flags_cpu, sizeof(flags_cpu), ww_cc_flags);
}

const char *ww_compile_flags(enum ww_target target)
{
	pthread_once(&flags_once, make_flags);
	return target == WW_TARGET_CUDA ? flags_cuda : flags_cpu;
}

/* The distinct kernel names of an image, in order; each with its NUL in names. */
static int collect_kernels(const struct ww_image *image, struct ww_str *names)
{
	int n = 0;
	for (uint32_t i = 0; i < image->n_nodes; i++) {
		const struct ww_image_node *node = &ww_image_nodes(image)[i];
		if (node->kind != WW_NODE_LAUNCH)
			continue;
		const char *name = ww_image_string(image, node->launch.kernel), *p = names->p;
		int seen = 0;
		for (int k = 0; k < n && !seen; k++, p += strlen(p) + 1)
			seen = !strcmp(p, name);
		if (!seen) {
			ww_str_add(names, name, strlen(name) + 1);
			n++;
		}
	}
	return n;
}

/* ---- The answer -------------------------------------------------------------------------------------------------- */

struct answer {
	enum ww_compile_result result;
	const char *symbols, *log, *binary;
	size_t symbols_bytes, log_bytes, binary_bytes;
};

static int split(const struct ww_str *reply, struct answer *a)
{
	struct ww_compile_reply h;
	if (reply->len < sizeof(h))
		return 0;
	memcpy(&h, reply->p, sizeof(h));
	uint64_t sum = sizeof(h) + (uint64_t)h.symbols_bytes + h.log_bytes + h.binary_bytes;
	if (h.result > WW_COMPILE_CRASHED || sum > reply->len)
		return 0;
	a->result = (enum ww_compile_result)h.result;
	a->symbols = reply->p + sizeof(h), a->symbols_bytes = h.symbols_bytes;
	a->log = a->symbols + h.symbols_bytes, a->log_bytes = h.log_bytes;
	a->binary = a->log + h.log_bytes, a->binary_bytes = h.binary_bytes;
	return 1;
}

/* Pair kernel names with the job's symbols; 0 where there are not as many. */
static int pair_kernels(const struct ww_str *names, int n, const struct answer *a, struct ww_compiled *out)
{
	const char *name = names->p, *symbol = a->symbols, *end = a->symbols + a->symbols_bytes;
	out->kernels = calloc((size_t)n + 1, sizeof(*out->kernels));
	for (int i = 0; out->kernels && i < n; i++) {
		const char *nul = memchr(symbol, 0, (size_t)(end - symbol));
		if (!nul)
			return 0;
		out->kernels[i] = (struct ww_compiled_kernel){ strdup(name), strdup(symbol) };
		out->n_kernels = i + 1;
		if (!out->kernels[i].kernel || !out->kernels[i].symbol)
			return 0;
		name += strlen(name) + 1;
		symbol = nul + 1;
	}
	return out->kernels != NULL;
}

static enum ww_compile_result check_binary(const struct ww_compiler *c, struct ww_compiled *out, struct ww_str *log)
{
	ww_auto_str why = WW_STR_INIT(1024);
	int cuda = c->o.target == WW_TARGET_CUDA;
	enum ww_compile_result result = WW_COMPILE_OK;
	if (!(cuda ? ww_cubin_check(out->binary, out->binary_bytes, &why)
			   : ww_so_check(out->binary, out->binary_bytes, &why))) {
		ww_str_addf(log, "%s: refused: %s\n", cuda ? "kernels.cu" : "kernels.c", why.p);
		result = WW_COMPILE_REFUSED;
	}
	for (int i = 0; result == WW_COMPILE_OK && i < out->n_kernels; i++) {
		const char *symbol = out->kernels[i].symbol;
		if (cuda ? ww_cubin_has(out->binary, out->binary_bytes, symbol)
				 : ww_so_has(out->binary, out->binary_bytes, symbol))
			continue;
		ww_str_addf(log, "%s: error: the plan launches \"%s\", which is not defined as a kernel\n",
			cuda ? "kernels.cu" : "kernels.c", out->kernels[i].kernel);
		result = WW_COMPILE_FAILED;
	}
	return result;
}

static enum ww_compile_result take(const struct ww_compiler *c, const struct answer *a, const struct ww_str *names,
	int n, struct ww_compiled *out, struct ww_str *log)
{
	ww_str_add_bounded(log, a->log, a->log_bytes, WW_COMPILE_LOG_BYTES);
	if (a->result != WW_COMPILE_OK)
		return a->result;
	out->binary = malloc(a->binary_bytes + 1);
	if (!out->binary || !pair_kernels(names, n, a, out)) {
		ww_str_adds(log, "the compiler's answer is broken\n");
		return WW_COMPILE_CRASHED;
	}
	memcpy(out->binary, a->binary, a->binary_bytes);
	out->binary_bytes = a->binary_bytes;
	return check_binary(c, out, log);
}

static enum ww_compile_result used_up(const struct ww_compiler *c, struct ww_str *log)
{
	ww_str_addf(log, "the compiler used more than %g s of processor time; --max-compile-seconds raises the limit\n",
		ceil(c->o.max_s));
	return WW_COMPILE_TIMEOUT;
}

static enum ww_compile_result judge_reply(const struct ww_compiler *c, const struct ww_str *reply,
	const struct ww_job_end *end, const struct ww_str *names, int n, struct ww_compiled *out, struct ww_str *log)
{
	struct answer a;
	if (end->how == WW_JOB_TIMEOUT) {
		ww_str_addf(log,
			"the compiler had not ended after %g s, %g times its limit of processor time, on a busy machine; "
			"--max-compile-seconds raises both\n",
			CLOCK * c->o.max_s, CLOCK);
		return WW_COMPILE_TIMEOUT;
	}
	if (end->how == WW_JOB_SIGNALED && end->code == SIGXCPU)
		return used_up(c, log);
	if (end->how == WW_JOB_SIGNALED) {
		ww_str_addf(log, "the compiler crashed: signal %d (%s)\n", end->code, strsignal(end->code));
		return WW_COMPILE_CRASHED;
	}
	if (end->code != 0 || !split(reply, &a)) {
		ww_str_addf(log, "the compiler ended without a result (code %d)\n", end->code);
		return WW_COMPILE_CRASHED;
	}
	return a.result == WW_COMPILE_TIMEOUT ? used_up(c, log) : take(c, &a, names, n, out, log);
}

/* Sources that would not compile to the same code tomorrow, or that the wire cannot carry. */
static const char *unfit(const char *source, size_t n)
{
	static const char *const dates[] = { "__DATE__", "__TIME__", "__TIMESTAMP__" };
	if (memchr(source, 0, n))
		return "it contains a NUL byte";
	for (size_t i = 0; i < WW_ARRAY_LEN(dates); i++)
		if (memmem(source, n, dates[i], strlen(dates[i])))
			return "__DATE__, __TIME__ and __TIMESTAMP__ are not allowed";
	return NULL;
}

/* Compile it, or take the cached binary; a cached binary that is not valid is ignored.
 */
static enum ww_rc run(struct ww_compiler *c, const struct ww_zygote_part *parts, int n_parts,
	const struct ww_str *names, int n, struct ww_compiled *out, struct ww_str *log, enum ww_compile_result *result,
	struct ww_err *err)
{
	static const struct ww_answers nothing = { .store = NULL };
	ww_auto_str reply = WW_STR_INIT((size_t)WW_COMPILE_MAX_BINARY + (16 << 20));
	struct ww_job_end end = { 0 };
	int hit = 0;
	for (int attempt = 0; attempt < 2; attempt++) {
		WW_CHECK(ww_answers_run(
			attempt ? &nothing : &c->cache, c->z, parts, n_parts, CLOCK * c->o.max_s, &reply, &end, &hit, err));
		*result = judge_reply(c, &reply, &end, names, n, out, log);
		if (!hit || *result == WW_COMPILE_OK)
			break;
		ww_compiled_release(out);
		ww_str_reset(&reply);
		ww_str_reset(log);
	}
	if (*result == WW_COMPILE_OK && !hit)
		WW_CHECK(ww_answers_put(&c->cache, parts, n_parts, &reply, err));
	return WW_OK;
}

enum ww_rc ww_compiler_compile(struct ww_compiler *c, const char *source, size_t bytes, const struct ww_image *image,
	struct ww_compiled *out, enum ww_compile_result *result, struct ww_err *err)
{
	uint64_t start = ww_now_ns();
	ww_auto_str names = WW_STR_INIT(WW_COMPILE_NAMES_BYTES), macros = WW_STR_INIT(1 << 20);
	ww_auto_str log = WW_STR_INIT(WW_COMPILE_LOG_BYTES + 2048);
	const char *bad = unfit(source, bytes);
	ww_compiled_release(out);
	*result = WW_COMPILE_OK;
	add_macros(image, &macros);
	int n = collect_kernels(image, &names);
	if (bad) {
		ww_str_addf(&log, "kernels.%s: refused: %s\n", c->o.target == WW_TARGET_CUDA ? "cu" : "c", bad);
		*result = WW_COMPILE_REFUSED;
	} else if (n) {
		struct ww_compile_request h = { (uint32_t)n, (uint32_t)macros.len, (uint32_t)names.len, (uint32_t)bytes };
		struct ww_zygote_part parts[] = { { &h, sizeof(h) }, { macros.p, macros.len }, { names.p, names.len },
			{ source, bytes } };
		WW_CHECK(run(c, parts, (int)WW_ARRAY_LEN(parts), &names, n, out, &log, result, err));
	}
	if (*result != WW_COMPILE_OK) {
		free(out->binary);
		out->binary = NULL;
		out->binary_bytes = 0;
	}
	out->log = ww_str_take(&log);
	out->seconds = ww_seconds_since(start);
	return out->log ? WW_OK : ww_nomem(err);
}
