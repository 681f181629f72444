/* form.c - a solution in a PyTorch form as a session's candidate.
 *
 *     build    a process without GPU and without buffers runs model_new.py once, for the extensions that it compiles;
 *              what lies in its build directory is kept in the store under the solution's own content
 *              (bridge/wwcandidate/build.py)
 *     open     a process with the GPU and the task's buffers runs it again, finds its extensions built, and makes
 *              ModelNew; what fails before it has read the solution is an error of ours
 *     calls    as every candidate's: outputs poisoned, inputs and parameters drawn, one call, compared while it stands
 *              still
 *     trace    at the end, a few calls under a dispatch mode
 *
 * Order of a timed call: poison; draw; (cuda: flush L2); `g`.  The process stands from the end of one call to the
 * beginning of the next, so it sees a draw only while the clock runs.  Its outputs are read by the judge (outputs.h) or
 * the reference worker (lent.h) when it stands.  cuda: stopping a process does not stop what it has queued on the GPU,
 * so the outputs are copied at once when the call has ended and the copy is compared; a little later the memory must
 * still hold the same bytes, else the solution went on working and is refused. */
#include "judge/forms/form.h"

#include "judge/forms/lent.h"
#include "judge/forms/outputs.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/time.h"
#include "host/machine.h"
#include "judge/facts.h"
#include "judge/solution.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
	BUILD_LIMIT_S = 300,
	BUILD_SHARE = 5,
	ATTACH_LIMIT_S = 120,
	SETUP_LIMIT_S = 60,
	FIRST_CALL_LIMIT_S = 30,
	SETTLE_US = 2000,
	MAX_FDS = 3072, /* a candidate may have 4,096 files open (bridge/wwcandidate/confine.py) */
	MAX_WORDS = WW_MAX_OUTPUTS * (1 + WW_MAX_RANK),
	BUILD_VERSION = 2,
	BUILD_MAX_BYTES = 257 << 20 /* bridge/wwcandidate/build.py, MAX_BYTES and the index */
};

struct form {
	struct ww_session *s;
	struct ww_candidate *c;
	struct ww_candidate_answer answer;
	int flush;                       /* cuda: before the next call */
	unsigned poisoned;               /* how often */
	int64_t before[2][MAX_WORDS];    /* places of the last two calls, which were poisoned */
	const int64_t *poisoned_at[2];   /* those of them that are known */
	int is_noted;                    /* diagnostics say that time was added */
	void *out[WW_MAX_OUTPUTS];       /* cpu: the task's output buffers, mapped */
	int loose[WW_MAX_OUTPUTS];       /* elements of the task's own output lie in one place: any layout will do */
	struct ww_lent lent;             /* cuda */
	struct ww_seen_calls timed, all; /* cpu */
};

static int on_cuda(const struct ww_judge_task *t) { return t->judge->opts.target == WW_TARGET_CUDA; }

static enum ww_rc candidates_of(struct ww_judge *j, struct ww_candidates **out, struct ww_err *err)
{
	struct ww_candidates_opts o = { .target = j->opts.target, .interrupted = j->opts.interrupted, .store = j->store };
	enum ww_rc rc = WW_OK;
	WW_LOCKED(&j->forms_lock);
	if (!j->candidates)
		rc = ww_candidates_open(&j->candidates, &o, err);
	*out = j->candidates;
	return rc;
}

/* ---- Requests ---------------------------------------------------------------------------------------------------- */

static const char *form_name(enum ww_form f) { return f == WW_FORM_CUDA_AGENT ? "cuda-agent" : "kernelbench"; }

/* NULL where a file is not UTF-8. */
static json_t *request(const struct ww_judge_task *t, const char *what, const struct ww_solution *s)
{
	json_t *files = json_array();
	for (int i = 0; files && i < s->n_files; i++) {
		json_t *f = json_pack("{s:s, s:s}", "path", s->files[i].path, "text", s->files[i].text);
		if (!f) {
			json_decref(files);
			return NULL;
		}
		json_array_append_new(files, f);
	}
	return json_pack("{s:s, s:s, s:o, s:i, s:i}", "request", what, "form", form_name(s->form), "files", files, "arch",
		(int)t->judge->facts.device.cc, "jobs", ww_host_cores());
}

/* Whether elements of the task's own output lie in one place, as the graph has what makes it. */
static int shares_in_task(const json_t *graph, const json_t *output)
{
	struct ww_tensor t = { .rank = 0 };
	int64_t strides[WW_MAX_RANK];
	size_t i;
	json_t *node, *one;
	json_array_foreach(json_object_get(graph, "nodes"), i, node)
		if (json_equal(json_object_get(node, "name"), json_object_get(output, "ref"))) {
			const json_t *out = json_array_get(json_object_get(node, "out"), 0);
			json_array_foreach(json_object_get(out, "strides"), i, one)
				if (t.rank < WW_MAX_RANK) {
					t.size[t.rank] = json_integer_value(json_array_get(json_object_get(out, "sizes"), i));
					strides[t.rank++] = json_integer_value(one);
				}
			return ww_outputs_share(&t, strides);
		}
	return 1; /* an input, or one of several results */
}

/* loose: of outputs, shares_in_task() of each; NULL: of other roles. */
static int add_rows(json_t *rows, const json_t *graph, const char *lists, const char *role, const int *loose,
	const struct ww_ref_buffers *b, int at)
{
	const json_t *list = json_object_get(graph, lists);
	size_t i;
	json_t *x;
	json_array_foreach((json_t *)(uintptr_t)list, i, x) {
		if (at >= b->n)
			return at;
		json_array_append_new(rows,
			json_pack("{s:s, s:b, s:b, s:s, s:O, s:O, s:O, s:I}", "role", role, "loose", loose && loose[i], "apart",
				b->b[at].apart, "name", ww_json_str(x, "name", ""), "dtype", json_object_get(x, "dtype"), "sizes",
				json_object_get(x, "sizes"), "strides", json_object_get(x, "strides"), "alloc_bytes",
				(json_int_t)b->b[at].alloc_bytes));
		at++;
	}
	return at;
}

static int is_mutated(const json_t *graph, const char *name)
{
	size_t i;
	json_t *x;
	json_array_foreach(json_object_get(graph, "mutated"), i, x)
		if (!strcmp(json_string_value(x) ? json_string_value(x) : "", name))
			return 1;
	return 0;
}

static json_t *param_rows(const json_t *graph)
{
	json_t *rows = json_array(), *x;
	size_t i;
	json_array_foreach(json_object_get(graph, "params"), i, x) {
		const char *name = ww_json_str(x, "name", "");
		int drawn = !strcmp(ww_json_str(x, "drawn", ""), "new");
		if (drawn || strcmp(ww_json_str(x, "role", ""), "constant"))
			json_array_append_new(
				rows, json_pack("{s:s, s:b, s:b}", "name", name, "mutated", is_mutated(graph, name), "drawn", drawn));
	}
	return rows;
}

/* cpu: by descriptors that can only be read. */
static int read_only(int fd)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	return open(path, O_RDONLY | O_CLOEXEC);
}

/* Of inputs and parameters; with `landing` of outputs too. */
static enum ww_rc collect_fds(
	const struct ww_judge_task *t, int landing, int *fds, int *own, int *n, struct ww_err *err)
{
	int wanted = landing ? t->buffers.n : t->facts.n_inputs + t->facts.n_params;
	if (wanted > MAX_FDS)
		return ww_err_set(err, WW_ERR_LIMIT, "the task has %d tensors; a solution in a PyTorch form can be given %d",
			wanted, (int)MAX_FDS);
	for (*n = 0; *n < wanted; (*n)++) {
		int fd = t->buffers.b[*n].fd;
		own[*n] = -1;
		if (!on_cuda(t) && (fd = own[*n] = read_only(fd)) < 0)
			return ww_err_errno(err, WW_ERR_SYSTEM, "cannot open a shared buffer read-only");
		fds[*n] = fd;
	}
	return WW_OK;
}

/* ---- The task's own files ---------------------------------------------------------------------------------------- */

static enum ww_rc as_memfd(const struct ww_str *bytes, int *fd, struct ww_err *err)
{
	*fd = ww_fd_memfd("build", bytes->p, bytes->len);
	return *fd < 0 ? ww_err_errno(err, WW_ERR_SYSTEM, "cannot copy a finished build into memory (memfd)") : WW_OK;
}

/* What the task imports and reads, as build.py's unpack() takes it: the process sees no other file of the user's. */
static enum ww_rc pack_local(const struct ww_task *t, json_t **names, int *fd, struct ww_err *err)
{
	struct ww_str files = WW_STR_INIT(BUILD_MAX_BYTES), head = WW_STR_INIT(1 << 20),
				  blob = WW_STR_INIT(BUILD_MAX_BYTES);
	json_t *index = json_array();
	enum ww_rc rc = WW_OK;
	*names = json_array();
	for (int i = 0; i < t->n_files; i++) {
		size_t before = files.len;
		WW_TRY(ww_fs_read(t->files[i].path, BUILD_MAX_BYTES - files.len, &files, err));
		json_array_append_new(*names, json_string(t->files[i].name));
		json_array_append_new(
			index, json_pack("[s, i, i, I]", t->files[i].name, 0600, 1, (json_int_t)(files.len - before)));
	}
	if (!t->n_files)
		goto out;
	ww_json_add(&head, index);
	uint64_t n = head.len;
	ww_str_add(&blob, &n, sizeof(n));
	ww_str_add(&blob, head.p, head.len);
	ww_str_add(&blob, files.p, files.len);
	rc = blob.cut || head.cut
		? ww_err_set(err, WW_ERR_LIMIT, "the task's own files are larger than %d MiB together", BUILD_MAX_BYTES >> 20)
		: as_memfd(&blob, fd, err);
out:
	json_decref(index);
	ww_str_release(&files);
	ww_str_release(&head);
	ww_str_release(&blob);
	return rc;
}

/* ---- Failures ---------------------------------------------------------------------------------------------------- */

static enum ww_status status_of(const struct ww_run_result *res, const struct ww_candidate_answer *a)
{
	switch (res->kind) {
	case WW_RUN_FAULT:
		return !strcmp(a->kind, "output") ? WW_STATUS_MISMATCH
			: !strcmp(a->kind, "call")    ? WW_STATUS_CRASHED
										  : WW_STATUS_COMPILE_FAILED;
	case WW_RUN_LATE: return WW_STATUS_TIMEOUT;
	case WW_RUN_REFUSED:
	case WW_RUN_NOMEM: return WW_STATUS_REFUSED;
	default: return WW_STATUS_CRASHED;
	}
}

json_int_t ww_form_number_of(const json_t *rows, const char *name)
{
	size_t i;
	json_t *row;
	json_array_foreach((json_t *)(uintptr_t)rows, i, row) {
		const char *its = json_string_value(json_array_get(row, 0));
		if (its && !strcmp(its, name))
			return json_integer_value(json_array_get(row, 1));
	}
	return 0;
}

void ww_form_describe(
	const struct ww_run_result *res, const struct ww_candidate_answer *a, const char *stage, struct ww_str *diag)
{
	if (res->kind != WW_RUN_FAULT) {
		const char *word = res->kind == WW_RUN_LATE ? "timeout"
			: res->kind == WW_RUN_REFUSED           ? "refused"
			: res->kind == WW_RUN_NOMEM             ? "out of memory"
													: "crashed";
		ww_str_addf(diag, "%s (%s): %s\n", word, stage, res->text);
		return;
	}
	ww_str_addf(diag, "%s:\n%s",
		!strcmp(a->kind, "build")        ? "an extension does not compile"
			: !strcmp(a->kind, "output") ? "the output cannot be compared"
			: !strcmp(a->kind, "call")   ? "forward() raised"
										 : "no ModelNew can be made of the solution",
		a->text.p);
}

static void fail(
	struct ww_session *s, const struct ww_run_result *res, const struct ww_candidate_answer *a, const char *stage)
{
	ww_form_describe(res, a, stage, &s->diag);
	s->v->status = status_of(res, a);
	s->v->correct = 0;
	s->failed = 1;
}

/* ---- Building ---------------------------------------------------------------------------------------------------- */

static int compiles(const struct ww_solution *s)
{
	if (s->form == WW_FORM_CUDA_AGENT)
		return s->n_files > 1;
	for (int i = 0; i < s->n_files; i++)
		if (strstr(s->files[i].text, "cpp_extension") || strstr(s->files[i].text, "load_inline"))
			return 1;
	return 0;
}

/* A compiler by its file: another one makes another build. */
static void add_program(struct ww_str *key, const char *name)
{
	char path[PATH_MAX];
	struct stat st;
	if (ww_fs_which(name, path) && stat(path, &st) == 0)
		ww_str_addf(key, "|%s %lld %lld", path, (long long)st.st_size, (long long)st.st_mtime);
}

static void build_key(const struct ww_judge_task *t, const struct ww_solution *s, char hex[WW_HASH_HEX])
{
	ww_auto_str key = WW_STR_INIT(4 * PATH_MAX);
	char id[65], python[PATH_MAX] = "", bridge[PATH_MAX] = "";
	struct ww_err ignored = WW_ERR_INIT;
	ww_solution_id(s, id);
	(void)!ww_ref_find_python(python, &ignored);
	(void)!ww_fs_resource("bridge", bridge, &ignored); /* a build knows its headers by their paths */
	ww_str_addf(&key, "%d|%s|%d|%d|%s|%s|%s", BUILD_VERSION, id, (int)t->judge->opts.target, t->judge->facts.device.cc,
		python, t->torch_version, bridge);
	add_program(&key, "c++");
	add_program(&key, "nvcc");
	ww_hash_hex(key.p, key.len, hex);
}

/* The output of the building process: copied, so that the process cannot change it any more.  A build that failed may
 * have failed by the machine's fault: it is used now and not stored. */
static enum ww_rc take_build(
	struct ww_judge *j, const char *key, const struct ww_candidate_answer *a, int *build, struct ww_err *err)
{
	ww_auto_str bytes = WW_STR_INIT(BUILD_MAX_BYTES);
	struct stat st;
	/* build.py never writes such a file: the called process will report that its extension is not built. */
	if (fstat(a->fd, &st) < 0 || st.st_size > BUILD_MAX_BYTES || !ww_str_reserve(&bytes, (size_t)st.st_size))
		return WW_OK;
	while (bytes.len < (size_t)st.st_size) {
		ssize_t n = pread(a->fd, bytes.p + bytes.len, (size_t)st.st_size - bytes.len, (off_t)bytes.len);
		if (n <= 0)
			return WW_OK;
		bytes.len += (size_t)n;
	}
	if (ww_json_bool(a->body, "complete", 0))
		WW_CHECK(ww_store_put(j->store, "extension", key, bytes.p, bytes.len, err));
	return as_memfd(&bytes, build, err);
}

static enum ww_rc look_up(struct ww_judge *j, const char *key, int *build, int *found, struct ww_err *err)
{
	ww_auto_str bytes = WW_STR_INIT(WW_STORE_MAX_VALUE_BYTES);
	enum ww_rc rc = ww_store_get(j->store, "extension", key, &bytes, found, err);
	if (rc == WW_OK && *found)
		rc = as_memfd(&bytes, build, err);
	return rc;
}

static int has_cuda_file(const struct ww_solution *s)
{
	for (int i = 0; i < s->n_files; i++) {
		const char *dot = strrchr(s->files[i].path, '.');
		if (dot && (!strcmp(dot, ".cu") || !strcmp(dot, ".cuh")))
			return i + 1;
	}
	return 0;
}

/* A missing compiler is not the solution's fault. */
static enum ww_rc need_tools(const struct ww_judge_task *t, struct ww_err *err)
{
	char path[PATH_MAX], python[PATH_MAX];
	const char *home = getenv("CUDA_HOME") ? getenv("CUDA_HOME") : "/usr/local/cuda";
	enum ww_rc rc;
	WW_TRY(ww_ref_find_python(python, err));
	snprintf(strrchr(python, '/'), 8, "/ninja");
	if (access(python, X_OK) != 0 && !ww_fs_which("ninja", path))
		rc = ww_err_set(
			err, WW_ERR_MISSING, "the solution compiles an extension, and there is no ninja; install ninja-build");
	else if (!ww_fs_which(getenv("CXX") ? getenv("CXX") : "c++", path))
		rc = ww_err_set(
			err, WW_ERR_MISSING, "the solution compiles an extension, and there is no C++ compiler; install g++");
	else if (on_cuda(t) && !ww_fs_which("nvcc", path) &&
		((size_t)snprintf(path, sizeof(path), "%s/bin/nvcc", home) >= sizeof(path) || access(path, X_OK) != 0))
		rc = ww_err_set(
			err, WW_ERR_MISSING, "the solution compiles an extension, and there is no nvcc; install the CUDA toolkit");
out:
	return rc;
}

static enum ww_rc make_build(struct ww_judge_task *t, const struct ww_solution *s, const char *key, int *build, int *ok,
	enum ww_status *status, struct ww_str *diag, struct ww_err *err)
{
	struct ww_judge *j = t->judge;
	double limit_s = j->opts.max_compile_s > 0 ? BUILD_SHARE * j->opts.max_compile_s : BUILD_LIMIT_S;
	struct ww_candidates *z;
	struct ww_candidate *c = NULL;
	struct ww_candidate_answer a;
	struct ww_run_result res;
	json_t *q = request(t, "build", s);
	enum ww_rc rc;

	ww_candidate_answer_init(&a);
	if (!q) {
		ww_str_adds(diag, "refused: a file of the solution is not UTF-8\n");
		*status = WW_STATUS_REFUSED;
		return WW_OK;
	}
	WW_TRY(need_tools(t, err));
	WW_TRY(candidates_of(j, &z, err));
	WW_TRY(ww_candidate_new(&c, z, 0, err));
	rc = ww_candidate_ask(c, q, NULL, 0, limit_s, &a, &res, err);
	q = NULL;
	if (rc != WW_OK)
		goto out;
	*ok = res.kind == WW_RUN_OK;
	if (*ok && a.fd >= 0)
		WW_TRY(take_build(j, key, &a, build, err));
	if (!*ok) {
		*status = res.kind == WW_RUN_LATE ? WW_STATUS_COMPILE_FAILED : status_of(&res, &a);
		ww_form_describe(&res, &a, "build", diag);
	}
out:
	json_decref(q);
	ww_candidate_answer_release(&a);
	ww_candidate_free(c);
	return rc;
}

enum ww_rc ww_form_build(struct ww_judge_task *t, const struct ww_solution *s, int *build, int *ok,
	enum ww_status *status, struct ww_str *diag, struct ww_err *err)
{
	char key[WW_HASH_HEX];
	int found = 0, cuda_file = has_cuda_file(s);

	*build = -1;
	*ok = 0;
	if (!on_cuda(t) && cuda_file) {
		ww_str_addf(diag, "refused: %s is CUDA, which the cpu target cannot run; use --target cuda\n",
			s->files[cuda_file - 1].path);
		*status = WW_STATUS_REFUSED;
		return WW_OK;
	}
	if (!compiles(s)) {
		*ok = 1;
		return WW_OK;
	}
	build_key(t, s, key);
	WW_CHECK(look_up(t->judge, key, build, &found, err));
	*ok = found;
	return found ? WW_OK : make_build(t, s, key, build, ok, status, diag, err);
}

/* ---- Calling ----------------------------------------------------------------------------------------------------- */

static const struct ww_ref_buffer *output_of(const struct ww_judge_task *t, int i)
{
	return &t->buffers.b[t->facts.n_inputs + t->facts.n_params + i];
}

static void apart_in_task(const struct ww_judge_task *t, int apart[WW_MAX_OUTPUTS])
{
	for (int i = 0; i < t->facts.n_outputs; i++)
		apart[i] = output_of(t, i)->apart;
}

/* Where the outputs of the last call lie, which are poisoned before the next; NULL: nobody has said. */
static const int64_t *note_poisoned(struct form *f)
{
	const struct ww_judge_task *t = f->s->t;
	int words = 0;
	for (int i = 0; i < t->facts.n_outputs; i++)
		words += 1 + t->shapes.outputs[i].rank;
	if (f->answer.n_places < words)
		return NULL;
	unsigned k = f->poisoned++ % WW_ARRAY_LEN(f->before);
	memcpy(f->before[k], f->answer.places, (size_t)words * sizeof(f->before[k][0]));
	f->poisoned_at[k] = f->before[k];
	return f->before[k];
}

/* cpu: what the last call returned.  On cuda the reference worker does it (bridge/wwbridge/returned.py). */
static void poison_last(struct form *f)
{
	const struct ww_judge_task *t = f->s->t;
	unsigned char byte = ww_run_poison(f->poisoned);
	int apart[WW_MAX_OUTPUTS];
	const int64_t *at = note_poisoned(f);
	apart_in_task(t, apart);
	if (at && !on_cuda(t))
		ww_outputs_poison(ww_candidate_pid(f->c), at, t->shapes.outputs, t->facts.n_outputs, apart, byte);
}

/* Of a timed call: outputs in memory that was not poisoned may have been prepared.  The least time that writing them
 * can take is added.  cuda: what the harness has copied into the judge's own buffer has no place, and counts as
 * poisoned. */
static void add_writing(struct form *f, struct ww_run_result *res)
{
	const struct ww_judge_task *t = f->s->t;
	struct ww_ref_peaks p;
	int apart[WW_MAX_OUTPUTS];
	apart_in_task(t, apart);
	int64_t bytes = ww_outputs_unpoisoned(f->answer.places, t->shapes.outputs, t->facts.n_outputs, apart,
		f->poisoned_at, (int)WW_ARRAY_LEN(f->poisoned_at));
	ww_judge_peaks(t->judge, &p);
	if (!bytes || !(p.memory_bytes_per_s > 0))
		return;
	res->elapsed_ns += (uint64_t)(1e9 * (double)bytes / p.memory_bytes_per_s);
	if (!f->is_noted++)
		ww_str_addf(&f->s->diag,
			"note: timed calls return memory that none of the two calls before has returned, and may have prepared it; "
			"%.0f us are added for writing it\n",
			1e6 * (double)bytes / p.memory_bytes_per_s);
}

/* Of a timed call, cuda: what kept the device busy since the last one, while the process stood, is work of the
 * solution's. */
static void add_work_ahead(struct form *f, struct ww_run_result *res)
{
	res->elapsed_ns += (uint64_t)(f->s->t->ahead_us * 1e3);
	f->s->t->ahead_us = 0;
}

static enum ww_rc form_prepare(void *self, unsigned flags, struct ww_run_result *res, struct ww_err *err)
{
	struct form *f = self;
	int shares;
	memset(res, 0, sizeof(*res));
	f->flush = on_cuda(f->s->t) && (flags & WW_RUN_FLUSH);
	if (flags & WW_RUN_POISON)
		poison_last(f);
	WW_CHECK(ww_ref_wipe(f->s->t->ref, (flags & WW_RUN_POISON) != 0, 0, &shares, err));
	if (shares && f->answer.n_places) { /* what an earlier candidate returned is not this one's */
		res->kind = WW_RUN_REFUSED;
		snprintf(res->text, sizeof(res->text),
			"an output lies in the memory of an input or a parameter; return memory of PyTorch's");
	}
	return WW_OK;
}

static enum ww_rc take_lent(struct form *f, int *taken, struct ww_err *err)
{
	const struct ww_judge_task *t = f->s->t;
	struct ww_candidate_answer *a = &f->answer;
	const struct ww_lent_said said = { t->shapes.outputs, t->facts.n_outputs, a->places, a->n_places, a->lent,
		a->n_lent };
	int use[MAX_FDS];
	struct ww_lent_where w = { .use = use, .max_use = MAX_FDS };
	*taken = 0;
	WW_CHECK(ww_lent_places(&f->lent, &said, &w, err));
	ww_log(WW_LOG_DEBUG, "outputs of a call: %s", w.n_use ? "lent" : "in the judge's own buffers");
	return w.lent ? ww_ref_keep(t->ref, w.lent, w.use, w.n_use, taken, err) : WW_OK;
}

/* The harness brings every output into the task's own layout; one that is not there was answered in its place. */
static int is_laid_out(const struct form *f, struct ww_run_result *res)
{
	const struct ww_judge_task *t = f->s->t;
	const struct ww_candidate_answer *a = &f->answer;
	for (int i = 0, at = 0; i < t->facts.n_outputs; at += 1 + t->shapes.outputs[i++].rank) {
		const struct ww_tensor *o = &t->shapes.outputs[i];
		for (int k = 0; !f->loose[i] && o->numel && at + 1 + o->rank <= a->n_places && k < o->rank; k++)
			if (o->size[k] > 1 && a->places[at + 1 + k] != o->stride[k]) {
				snprintf(res->text, sizeof(res->text), "output %d is not laid out as the task's own", i);
				return 0;
			}
	}
	return 1;
}

/* The process is stopped, so its outputs do not change. */
static enum ww_rc take_outputs(struct form *f, struct ww_run_result *res, struct ww_err *err)
{
	const struct ww_judge_task *t = f->s->t;
	int taken = 0;
	enum ww_rc rc = WW_OK;
	if (!is_laid_out(f, res)) {
		res->kind = WW_RUN_REFUSED;
		return WW_OK;
	}
	snprintf(res->text, sizeof(res->text), "the outputs are not where the solution's process says");
	if (on_cuda(t))
		rc = take_lent(f, &taken, err);
	else
		taken = ww_outputs_take(ww_candidate_pid(f->c), f->answer.places, f->answer.n_places, t->shapes.outputs,
			t->facts.n_outputs, f->out, res->text, sizeof(res->text));
	if (!taken)
		res->kind = WW_RUN_REFUSED;
	return rc;
}

static enum ww_rc form_go(void *self, double limit_s, struct ww_run_result *res, struct ww_err *err)
{
	struct form *f = self;
	const int timed = (f->flush || f->s->flush) && !f->s->warm;
	double ignored;
	memset(res, 0, sizeof(*res));
	if (timed && on_cuda(f->s->t))
		WW_CHECK(ww_form_probe(f->s->t, &ignored, err));
	if (f->flush)
		WW_CHECK(ww_ref_wipe(f->s->t->ref, 0, 1, NULL, err));
	f->flush = 0;
	WW_CHECK(ww_candidate_call(f->c, limit_s, &f->answer, res, err));
	ww_seen_note(&f->all, ww_candidate_seen(f->c));
	if (timed)
		ww_seen_note(&f->timed, ww_candidate_seen(f->c));
	if (res->kind == WW_RUN_OK)
		WW_CHECK(take_outputs(f, res, err));
	if (res->kind == WW_RUN_OK && timed) {
		add_writing(f, res);
		add_work_ahead(f, res);
	}
	if (res->kind != WW_RUN_OK)
		fail(f->s, res, &f->answer, "run");
	res->kind = WW_RUN_OK; /* it is in the verdict */
	return WW_OK;
}

static int are_apart(const struct form *f, struct ww_run_result *res)
{
	const struct ww_judge_task *t = f->s->t;
	int apart[WW_MAX_OUTPUTS];
	apart_in_task(t, apart);
	return ww_outputs_apart(ww_candidate_pid(f->c), f->answer.places, t->shapes.outputs, t->facts.n_outputs, apart,
			   !on_cuda(t), res->text, sizeof(res->text)) &&
		ww_form_keeps_state(
			f->c, f->answer.places, t->shapes.outputs, t->facts.n_outputs, apart, res->text, sizeof(res->text));
}

static enum ww_rc form_guards(void *self, struct ww_run_result *res, struct ww_err *err)
{
	struct form *f = self;
	int same = 1;
	memset(res, 0, sizeof(*res));
	if (!are_apart(f, res))
		res->kind = WW_RUN_REFUSED;
	if (!on_cuda(f->s->t) || res->kind != WW_RUN_OK)
		return WW_OK;
	usleep(SETTLE_US);
	enum ww_rc rc = ww_ref_same(f->s->t->ref, &same, err);
	if (rc == WW_OK && !same) {
		res->kind = WW_RUN_REFUSED;
		snprintf(
			res->text, sizeof(res->text), "the outputs changed after the end of the call: work was left on the device");
	}
	return rc;
}

static enum ww_rc map_outputs(struct form *f, struct ww_err *err)
{
	for (int i = 0; !on_cuda(f->s->t) && i < f->s->t->facts.n_outputs; i++) {
		const struct ww_ref_buffer *b = output_of(f->s->t, i);
		void *m = mmap(NULL, b->alloc_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0);
		if (m == MAP_FAILED)
			return ww_err_errno(err, WW_ERR_SYSTEM, "cannot map output %d", i);
		f->out[i] = m;
	}
	return WW_OK;
}

static pid_t form_pid(const void *self)
{
	const struct form *f = self;
	return ww_candidate_pid(f->c);
}

static void form_close(void *self)
{
	struct form *f = self;
	ww_candidate_free(f->c);
	ww_candidate_answer_release(&f->answer);
	ww_lent_release(&f->lent);
	for (int i = 0; i < f->s->t->facts.n_outputs; i++)
		if (f->out[i])
			munmap(f->out[i], output_of(f->s->t, i)->alloc_bytes);
	free(f);
}

static const struct ww_candidate_ops form_ops = { form_prepare, form_go, form_guards, form_pid, form_close, 1 };

/* ---- Opening ----------------------------------------------------------------------------------------------------- */

/* The most that the reference worker ever held, twice, and 2 GiB: a solution of the task needs no more. */
static uint64_t memory_for(const struct ww_judge_task *t)
{
	char path[64], line[256];
	unsigned long long peak_kib = 0;
	snprintf(path, sizeof(path), "/proc/%d/status", (int)ww_ref_pid(t->ref));
	FILE *f = fopen(path, "re");
	while (f && fgets(line, sizeof(line), f) && sscanf(line, "VmHWM: %llu", &peak_kib) != 1)
		;
	if (f)
		fclose(f);
	return 2 * 1024 * (uint64_t)peak_kib + (2ull << 30);
}

void ww_form_loose(const struct ww_judge_task *t, int loose[WW_MAX_OUTPUTS])
{
	for (int i = 0; i < t->facts.n_outputs; i++)
		loose[i] = shares_in_task(t->graph, json_array_get(json_object_get(t->graph, "outputs"), (size_t)i));
}

static json_t *attach_request(
	struct ww_judge_task *t, const int loose[WW_MAX_OUTPUTS], uint64_t memory_bytes, struct ww_err *err)
{
	json_t *q = NULL, *rows = json_array();
	int at = 0;
	if (ww_ref_origin(t->ref, &q, err) == WW_OK) {
		at = add_rows(rows, t->graph, "inputs", "input", NULL, &t->buffers, 0);
		at = add_rows(rows, t->graph, "params", "param", NULL, &t->buffers, at);
		at = add_rows(rows, t->graph, "outputs", "output", loose, &t->buffers, at);
	}
	if (!q || at != t->buffers.n) {
		if (q)
			(void)!ww_err_set(err, WW_ERR_PROTOCOL, "the task's graph and its buffers do not agree");
		json_decref(rows);
		json_decref(q);
		return NULL;
	}
	json_object_set_new(q, "request", json_string("attach"));
	json_object_set_new(q, "task", json_stringn(t->task.source, t->task.source_bytes));
	json_object_set_new(q, "device", json_integer(t->judge->opts.device));
	json_object_set_new(q, "threads", json_integer(t->judge->opts.threads));
	json_object_set_new(q, "memory_bytes", json_integer((json_int_t)memory_bytes));
	json_object_set_new(q, "buffers", rows);
	json_object_set_new(q, "params", param_rows(t->graph));
	return q;
}

enum ww_rc ww_form_attach(struct ww_judge_task *t, const int loose[WW_MAX_OUTPUTS], int landing,
	struct ww_candidate **out, struct ww_candidate_answer *a, struct ww_err *err)
{
	int fds[MAX_FDS + 1], own[MAX_FDS], n = 0, n_sent, local = -1;
	struct ww_candidates *z;
	struct ww_candidate *c = NULL;
	struct ww_run_result res;
	json_t *q, *names = NULL;
	enum ww_rc rc;

	*out = NULL;
	WW_TRY(candidates_of(t->judge, &z, err));
	WW_TRY(ww_candidate_new(&c, z, WW_CANDIDATE_CALLED | (on_cuda(t) ? WW_CANDIDATE_GPU : 0), err));
	WW_TRY(collect_fds(t, landing, fds, own, &n, err));
	ww_candidate_limit_memory(c, memory_for(t));
	q = attach_request(t, loose, ww_candidate_memory(c), err);
	if (!q) {
		rc = err->rc;
		goto out;
	}
	rc = pack_local(&t->task, &names, &local, err);
	json_object_set_new(q, "local", names);
	if (rc != WW_OK) {
		json_decref(q);
		goto out;
	}
	n_sent = n;
	if (local >= 0)
		fds[n_sent++] = local;
	WW_TRY(ww_candidate_ask(c, q, fds, n_sent, ATTACH_LIMIT_S, a, &res, err));
	if (res.kind != WW_RUN_OK)
		WW_TRY(ww_err_set(
			err, WW_ERR_DEVICE, "the process for the solution cannot be set up: %s %.500s", res.text, a->text.p));
	if (!on_cuda(t) && !ww_outputs_readable(ww_candidate_pid(c), ww_json_int(a->body, "address", 0)))
		WW_TRY(ww_err_errno(err, WW_ERR_MISSING,
			"this system does not let the judge read the memory of a solution's process (process_vm_readv, /proc/PID/pagemap)"));
	*out = c;
	c = NULL;
out:
	ww_candidate_free(c);
	ww_fd_close(&local);
	for (int i = 0; i < n; i++)
		ww_fd_close(&own[i]);
	return rc;
}

static void note_unmatched(struct ww_session *s, const json_t *body)
{
	size_t i;
	json_t *x;
	json_array_foreach(json_object_get(body, "unmatched"), i, x) {
		struct ww_str clean = WW_STR_INIT(256);
		const char *name = json_string_value(x) ? json_string_value(x) : "";
		ww_str_add_bounded(&clean, name, strlen(name), 120);
		ww_str_addf(&s->diag, "note: no counterpart in the task for the parameter or buffer | %s\n", clean.p);
		ww_str_release(&clean);
	}
}

/* While a solution gets ready it holds the device. */
static double setup_limit_s(const struct ww_judge *j)
{
	return j->opts.max_compile_s > 0 ? j->opts.max_compile_s : SETUP_LIMIT_S;
}

enum ww_rc ww_form_open(struct ww_session *s, const struct ww_solution *solution, int build, struct ww_err *err)
{
	struct form *f = calloc(1, sizeof(*f));
	struct ww_run_result res = { 0 };
	uint64_t start = ww_now_ns();
	json_t *q;
	enum ww_rc rc;

	if (!f)
		return ww_nomem(err);
	f->s = s;
	s->ops = &form_ops;
	s->candidate = f; /* released with the session */
	ww_candidate_answer_init(&f->answer);
	q = request(s->t, "setup", solution);
	if (!q) {
		ww_session_fail(s, WW_STATUS_REFUSED, "refused: a file of the solution is not UTF-8");
		return WW_OK;
	}
	/* The buffers hold what the module was created with: parameters under other names are found by their values. */
	ww_form_loose(s->t, f->loose);
	WW_TRY(map_outputs(f, err));
	WW_TRY(ww_session_draw(s->t, 1, 0, WW_REF_PARAMS_INIT, err));
	WW_TRY(ww_form_attach(s->t, f->loose, on_cuda(s->t), &f->c, &f->answer, err));
	rc = ww_candidate_ask(f->c, q, &build, build >= 0, setup_limit_s(s->t->judge), &f->answer, &res, err);
	q = NULL;
	if (rc == WW_OK && res.kind == WW_RUN_OK) {
		note_unmatched(s, f->answer.body);
		WW_TRY(ww_form_restores(s->t, f->c, f->answer.body, err));
		/* What is compiled and loaded at the first call (Triton, torch.compile, cuBLAS) has its own, long limit. */
		rc = ww_candidate_call(f->c, FIRST_CALL_LIMIT_S, &f->answer, &res, err);
		if (rc == WW_OK && res.kind == WW_RUN_OK) /* what is lent comes once: no call's answer may be lost */
			rc = take_outputs(f, &res, err);
	}
	if (rc == WW_OK && res.kind != WW_RUN_OK)
		fail(s, &res, &f->answer, "setup");
out:
	json_decref(q);
	s->t->spent.load += ww_seconds_since(start);
	return rc;
}

struct ww_candidate *ww_form_candidate(const struct ww_session *s, struct ww_candidate_answer **a)
{
	struct form *f = s->candidate;
	*a = &f->answer;
	return f->c;
}

void ww_form_seen(const struct ww_session *s, int timed, struct ww_seen *sum)
{
	const struct form *f = s->candidate;
	ww_seen_total(timed ? &f->timed : &f->all, sum);
}
