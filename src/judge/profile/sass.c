/* sass.c - disassemble the hot kernel and pick the loop that matters (sass.h).
 *
 * cuobjdump reads what was compiled from untrusted source, so it runs like the reference worker does (`__confined`): it
 * can read, and write in one private directory, which holds the cubin; its output comes through a pipe, with a limit of
 * size and of time.  Its text has one instruction a line, with its address in front and branch targets as addresses:
 *
 *             Function : name
 *         /+0040+/              @P0 BRA 0x10 ;          (+ stands for *)
 *
 * A loop is a branch to an address before it.  The hottest cannot be known without sampling; the innermost loop with
 * the most loads, stores and arithmetic is nearly always it, since compilers unroll the one that matters.  A kernel
 * without a loop is shown from its start. */
#include "judge/profile/sass.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/tmpdir.h"
#include "base/time.h"
#include "sandbox/proc.h"
#include "task/ref.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
	MAX_OUTPUT_BYTES = 32 << 20,
	MAX_SECONDS = 20,
	MAX_LINES = 72,
	MAX_INSTRUCTIONS = 200000,
	MAX_OPCODES = 48,
	SHOWN_OPCODES = 14
};

static const char MEMORY_BYTES[] = "2147483648";

/* ---- Parsing ----------------------------------------------------------------------------------------------------- */

struct instruction {
	unsigned address;
	const char *text;
	int length;
}; /* text points into the output, without " ;" */
struct loop {
	unsigned from, to;
	int weight;
};

/* The instruction of a line, if it holds one. */
static int read_line(const char *line, size_t n, struct instruction *out)
{
	const char *end = memchr(line, ';', n), *p = memchr(line, '/', n);
	char *after;
	if (!p || !end || p > end || strncmp(p, "/*", 2))
		return 0;
	out->address = (unsigned)strtoul(p + 2, &after, 16);
	if (after == p + 2 || strncmp(after, "*/", 2))
		return 0;
	out->text = after + 2 + strspn(after + 2, " \t");
	while (end > out->text && (end[-1] == ' ' || end[-1] == '\t'))
		end--;
	out->length = (int)(end - out->text);
	return out->length > 0;
}

/* The opcode behind a predicate, up to the first space. */
static const char *opcode(const struct instruction *i, int *length)
{
	const char *p = i->text, *end = i->text + i->length;
	if (*p == '@') {
		while (p < end && *p != ' ')
			p++;
		while (p < end && *p == ' ')
			p++;
	}
	const char *q = p;
	while (q < end && *q != ' ' && *q != ';')
		q++;
	*length = (int)(q - p);
	return p;
}

static int starts(const char *op, int length, const char *prefix)
{
	int n = (int)strlen(prefix);
	return length >= n && !strncmp(op, prefix, (size_t)n) && (length == n || op[n] == '.');
}

/* 1 for a load, a store or arithmetic: the instructions that a loop is for. */
static int weight(const struct instruction *i)
{
	static const char *const work[] = { "LDG", "STG", "LDS", "STS", "LDSM", "STSM", "LDGSTS", "UTMALDG", "UTMASTG",
		"RED", "ATOMG", "FFMA", "FADD", "FMUL", "DFMA", "DADD", "DMUL", "HFMA2", "HADD2", "HMUL2", "MUFU", "HMMA",
		"HGMMA", "IMMA", "QGMMA", "DMMA", "SHFL", "FMNMX", "LDL", "STL" };
	int n;
	const char *op = opcode(i, &n);
	for (size_t k = 0; k < WW_ARRAY_LEN(work); k++)
		if (starts(op, n, work[k]))
			return 1;
	return 0;
}

/* The target of a branch backwards, or -1. */
static long back_target(const struct instruction *i)
{
	int n;
	const char *op = opcode(i, &n), *hex = NULL;
	if (!starts(op, n, "BRA"))
		return -1;
	for (const char *p = op + n; p + 1 < i->text + i->length; p++)
		if (p[0] == '0' && p[1] == 'x')
			hex = p;
	unsigned long to = hex ? strtoul(hex, NULL, 16) : ULONG_MAX;
	return to < i->address ? (long)to : -1;
}

static int weigh(const struct instruction *all, int n, unsigned from, unsigned to)
{
	int sum = 0;
	for (int k = 0; k < n; k++)
		if (all[k].address >= from && all[k].address <= to)
			sum += weight(&all[k]);
	return sum;
}

/* Whether another loop lies inside. */
static int has_inner(const struct instruction *all, int n, unsigned from, unsigned to)
{
	for (int k = 0; k < n; k++) {
		long target = back_target(&all[k]);
		if (target >= 0 && (unsigned)target >= from && all[k].address <= to &&
			((unsigned)target != from || all[k].address != to))
			return 1;
	}
	return 0;
}

static int find_loop(const struct instruction *all, int n, struct loop *best)
{
	*best = (struct loop){ 0, 0, -1 };
	for (int k = 0; k < n; k++) {
		long target = back_target(&all[k]);
		if (target < 0 || has_inner(all, n, (unsigned)target, all[k].address))
			continue;
		int w = weigh(all, n, (unsigned)target, all[k].address);
		if (w > best->weight)
			*best = (struct loop){ (unsigned)target, all[k].address, w };
	}
	return best->weight >= 0;
}

struct tally {
	char name[24];
	int count;
};

static int by_count(const void *a, const void *b)
{
	const struct tally *x = a, *y = b;
	return x->count != y->count ? y->count - x->count : strcmp(x->name, y->name);
}

/* Memory operations keep the width of their access; others only their name. */
static void tally_name(const char *op, int n, char out[24])
{
	int head = (int)strcspn(op, ".");
	if (head > n)
		head = n;
	const char *wide = "";
	if (starts(op, n, "LDG") || starts(op, n, "STG") || starts(op, n, "LDS") || starts(op, n, "STS") ||
		starts(op, n, "LDGSTS"))
		for (int k = head; k + 2 < n; k++)
			wide = !strncmp(op + k, ".128", 4) ? ".128" : !strncmp(op + k, ".64", 3) ? ".64" : wide;
	snprintf(out, 24, "%.*s%s", head < 16 ? head : 16, op, wide);
}

static json_t *mix(const struct instruction *all, int n, const struct loop *l)
{
	struct tally t[MAX_OPCODES];
	json_t *o = json_object();
	int used = 0;
	for (int k = 0; k < n; k++) {
		char name[24];
		int length, i = 0;
		const char *op = opcode(&all[k], &length);
		if (all[k].address < l->from || all[k].address > l->to)
			continue;
		tally_name(op, length, name);
		while (i < used && strcmp(t[i].name, name))
			i++;
		if (i == used && used < MAX_OPCODES) {
			memcpy(t[used].name, name, sizeof(name));
			t[used++].count = 0;
		}
		if (i < used)
			t[i].count++;
	}
	qsort(t, (size_t)used, sizeof(t[0]), by_count);
	for (int i = 0; i < used && i < SHOWN_OPCODES; i++)
		json_object_set_new(o, t[i].name, json_integer(t[i].count));
	return o;
}

/* The loop's instructions; of a long one the beginning. */
static json_t *listing(const struct instruction *all, int n, const struct loop *l, int *lines)
{
	ww_auto_str s = WW_STR_INIT(64 << 10);
	int shown = 0;
	*lines = 0;
	for (int k = 0; k < n; k++) {
		if (all[k].address < l->from || all[k].address > l->to)
			continue;
		if (++*lines > MAX_LINES)
			continue;
		shown++;
		ww_str_addf(&s, "%04x  ", all[k].address);
		ww_str_add_bounded(&s, all[k].text, (size_t)all[k].length, 120);
		ww_str_addc(&s, '\n');
	}
	if (*lines > shown)
		ww_str_addf(&s, "... %d more\n", *lines - shown);
	return json_string(s.p);
}

/* Text of one function: from its headline to the next. */
static const char *find_function(const char *text, const char *symbol, const char **end)
{
	static const char head[] = "Function : ";
	size_t n = strlen(symbol);
	for (const char *p = strstr(text, head); p; p = strstr(p + 1, head)) {
		const char *name = p + sizeof(head) - 1;
		if (strncmp(name, symbol, n) || (name[n] != '\n' && name[n] != '\r' && name[n]))
			continue;
		*end = strstr(name, head);
		if (!*end)
			*end = name + strlen(name);
		return name;
	}
	return NULL;
}

/* A kernel ends at its last real instruction: what follows is a trap and padding. */
static int without_padding(const struct instruction *all, int n)
{
	int length;
	while (n > 0) {
		const char *op = opcode(&all[n - 1], &length);
		if (!starts(op, length, "NOP") && !starts(op, length, "BRA"))
			break;
		if (starts(op, length, "BRA") && back_target(&all[n - 1]) >= 0)
			break; /* a loop's end, no trap */
		n--;
	}
	return n;
}

json_t *ww_sass_parse(const char *text, const char *symbol)
{
	const char *end, *p = find_function(text, symbol, &end);
	ww_auto_free struct instruction *all = NULL;
	struct loop loop;
	size_t cap = 0;
	int n = 0, lines;

	for (; p && p < end && n < MAX_INSTRUCTIONS;) {
		size_t length = strcspn(p, "\n");
		struct instruction i;
		if (read_line(p, length, &i)) {
			if (!WW_GROW(all, &cap, n + 1))
				return NULL;
			all[n++] = i;
		}
		p += length + (p[length] == '\n');
	}
	n = without_padding(all, n);
	if (!n)
		return NULL;
	int has_loop = find_loop(all, n, &loop);
	if (!has_loop)
		loop = (struct loop){ all[0].address, all[n - 1].address, 0 };
	json_t *o = json_pack(
		"{s:b, s:s, s:i, s:b}", "available", 1, "kernel", symbol, "instructions", n, "is_loop", has_loop);
	json_object_set_new(o, "loop", listing(all, n, &loop, &lines));
	json_object_set_new(o, "lines", json_integer(lines));
	json_object_set_new(o, "mix", mix(all, n, &loop));
	return o;
}

/* ---- Running the disassembler ------------------------------------------------------------------------------------ */

static int tool_in(char *out, const char *root, const char *tail)
{
	return root && (size_t)snprintf(out, PATH_MAX, "%s/%s", root, tail) < PATH_MAX && access(out, X_OK) == 0;
}

/* The Triton package of an environment (PyTorch depends on it) brings its own. */
static int tool_in_environment(char *out)
{
	struct ww_err none = WW_ERR_INIT;
	char python[PATH_MAX], root[PATH_MAX];
	if (ww_ref_find_python(python, &none) != WW_OK)
		return 0;
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(python, '/');
		if (!slash)
			return 0;
		*slash = 0;
	}
	for (int minor = 9; minor < 20; minor++) {
		if ((size_t)snprintf(root, sizeof(root), "%s/lib/python3.%d/site-packages", python, minor) < sizeof(root) &&
			tool_in(out, root, "triton/backends/nvidia/bin/cuobjdump"))
			return 1;
	}
	return 0;
}

static int find_tool(char *out)
{
	return tool_in(out, getenv("CUDA_HOME"), "bin/cuobjdump") || tool_in(out, getenv("CUDA_PATH"), "bin/cuobjdump") ||
		tool_in(out, "/usr/local/cuda", "bin/cuobjdump") || ww_fs_which("cuobjdump", out) || tool_in_environment(out);
}

/* What the process writes to its stderr, until it ends or a limit is reached. */
static enum ww_rc read_all(struct ww_proc *p, struct ww_str *out, struct ww_err *err)
{
	uint64_t deadline = ww_deadline_ns(MAX_SECONDS);
	char part[65536];
	for (;;) {
		uint64_t now = ww_now_ns();
		struct pollfd f = { .fd = p->err_fd, .events = POLLIN };
		if (now >= deadline)
			return ww_err_set(err, WW_ERR_TIMEOUT, "the disassembler did not end within %d s", MAX_SECONDS);
		int ready = poll(&f, 1, (int)((deadline - now) / 1000000 + 1));
		if (ready < 0 && errno != EINTR)
			return ww_err_errno(err, WW_ERR_SYSTEM, "poll");
		if (ready <= 0)
			continue;
		ssize_t n = read(p->err_fd, part, sizeof(part));
		if (n <= 0)
			return WW_OK;
		ww_str_add(out, part, (size_t)n);
		if (out->cut)
			return ww_err_set(err, WW_ERR_LIMIT, "the disassembly is larger than %d MiB", MAX_OUTPUT_BYTES >> 20);
	}
}

/* cuobjdump on a file of dir, with a private directory for what it writes. */
static enum ww_rc disassemble(
	const char *tool, const char *dir, const char *cubin, struct ww_str *out, struct ww_err *err)
{
	char private[PATH_MAX], roots[2 * PATH_MAX];
	const char *args[] = { private, "", roots, "tool", MEMORY_BYTES, tool, "-sass", cubin, NULL };
	struct ww_proc_opts o = { .worker = "confined", .args = args, .namespaces = 1, .err_mode = WW_STDERR_PIPE };
	struct ww_proc p = WW_PROC_INIT;
	enum ww_rc rc;
	WW_TRY(ww_fs_join(private, dir, "private", err));
	WW_TRY(ww_fs_mkdirs(private, err));
	snprintf(roots, sizeof(roots), "%.*s:%s", (int)(strrchr(tool, '/') - tool), tool, cubin); /* it runs nvdisasm */
	WW_TRY(ww_proc_spawn(&p, &o, err));
	rc = read_all(&p, out, err);
out:
	ww_proc_kill(&p);
	return rc;
}

static json_t *not_available(const char *reason) { return json_pack("{s:b, s:s}", "available", 0, "reason", reason); }

json_t *ww_sass(const void *cubin, size_t bytes, const char *symbol)
{
	char tool[PATH_MAX], path[PATH_MAX];
	struct ww_tmpdir dir = WW_TMPDIR_INIT;
	struct ww_err err = WW_ERR_INIT;
	struct ww_str text = WW_STR_INIT(MAX_OUTPUT_BYTES);
	json_t *o = NULL;
	enum ww_rc rc;

	if (!find_tool(tool))
		return not_available(
			"no cuobjdump here; it comes with the CUDA toolkit and with Triton, which PyTorch installs");
	WW_TRY(ww_tmpdir_new(&dir, "sass", &err));
	WW_TRY(ww_fs_join(path, dir.path, "kernels.cubin", &err));
	WW_TRY(ww_fs_write(path, cubin, bytes, &err));
	WW_TRY(disassemble(tool, dir.path, path, &text, &err));
	o = ww_sass_parse(text.p, symbol);
	if (o)
		json_object_set_new(o, "tool", json_string(tool));
	else
		rc = ww_err_set(&err, WW_ERR_WORKER, "cuobjdump's output holds no such kernel");
out:
	if (rc != WW_OK)
		o = not_available(err.msg);
	ww_tmpdir_remove(&dir);
	ww_str_release(&text);
	return o;
}
