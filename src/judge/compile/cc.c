/* cc.c - kernels.c to an ELF shared object with the system's C compiler, inside a compile worker.
 *
 * cc is several programs, so a job forks and executes here.  What they see is the system's compiler, libraries and
 * public headers, the cookbook, and a directory of their own on a tmpfs; the job reads the object back and hands its
 * bytes over, so nothing of the directory outlives it.
 *
 * Flags: no start files, hence no constructors, no .bss and no .data of our own making: what binary_check.c then finds
 * writable is the solution's.  Everything that a distribution switches on by default and that would import a helper
 * (stack protector, fortified memory functions) is switched off.  Dates are fixed, so the same source gives the same
 * bytes.
 *
 * Names.  A solution's own functions are bound to themselves (-Bsymbolic), whatever they are called: without that, the
 * loader gives a helper `select` or `malloc` the C library's code.  Only launched kernels are exported (a version
 * script), so no other name of a solution is seen from outside.
 *
 * Files.  What cc sees holds the system's libraries, a BLAS among them, and the assembler puts any file's bytes where
 * it is told to (.incbin), and so do newer compilers (#embed): a kernel could be the BLAS's own code.  No option
 * forbids that, but both list what they have read; where that is more than the solution's text and headers (NAME.h),
 * the solution is refused.  (Rejected: looking for the words in the text, which macros of the assembler can spell; a
 * list without the system's headers, since a line of the text can say that it is one.)  The linker compiles nothing
 * (-fno-lto): the sections of an object for link-time optimisation, too, can be written in assembler, and assemblers
 * that the linker has run leave lists of their own in the place of that one.
 *
 * Numbers and distances in code may have the bytes of a system call, which binary_check.c refuses at any offset; in 300
 * KiB of code there are some as often as not.  So compiling, nearly all of the time, ends with assembler's text, which
 * is assembled and linked with other distances where that helps; where it does not, the text is compiled with options
 * that change numbers, too. */
#include "judge/compile/compile_wire.h"

#include "base/fs.h"
#include "judge/compile/binary_check.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

const char *const ww_cc_flags[] = { "-std=c17", "-O3", "-march=native", "-fno-math-errno", "-fno-trapping-math",
	"-ffp-contract=fast", "-fPIC", "-shared", "-fno-lto", "-nostartfiles", "-fno-stack-protector", "-U_FORTIFY_SOURCE",
	"-fcf-protection=none", "-fno-asynchronous-unwind-tables", "-Wno-builtin-macro-redefined", "-D__DATE__=\"\"",
	"-D__TIME__=\"\"", "-D__TIMESTAMP__=\"\"", "-Wl,-z,now", "-Wl,-z,relro", "-Wl,-z,noexecstack", "-Wl,-Bsymbolic",
	"-Wl,-z,defs", "-Wl,--as-needed", "-Wl,--hash-style=sysv", "-Wl,--build-id=none", NULL };

/* Where the code looks like a system call: other distances first, which cost neither a compilation nor speed, to data,
 * then to code (an instruction that does nothing between two that look like one in a row, too); then other code. */
enum { LAYOUTS = 4, VARIANTS = 4, OPTIONS = 4, ASSEMBLY_MAX_BYTES = 256 << 20 };
static const char *const layouts[LAYOUTS][OPTIONS] = { { NULL }, { "-Wl,-z,max-page-size=65536", NULL },
	{ "-Wa,-malign-branch-boundary=32", "-Wa,-malign-branch=jcc+fused+jmp", "-Wa,-malign-branch-prefix-size=5", NULL },
	{ "-Wa,-malign-branch-boundary=64", "-Wa,-malign-branch=jcc+fused+jmp+call", "-Wa,-malign-branch-prefix-size=0",
		NULL } };
static const char *const variants[VARIANTS][OPTIONS] = { { NULL }, { "-falign-functions=64", "-falign-loops=64", NULL },
	{ "-O2", "-falign-loops=64", NULL }, { "-O2", "-fno-ivopts", "-mtune=generic", NULL } };

static struct {
	char cc[PATH_MAX], cookbook[PATH_MAX], home[PATH_MAX];
	int is_clang; /* it assembles by itself, unless it is told not to */
} g;

/* The first line that `cc --version` prints; before isolation, of the system's own compiler. */
static int version(char *line, size_t size)
{
	char cmd[PATH_MAX + 32];
	snprintf(cmd, sizeof(cmd), "'%s' --version 2>/dev/null", g.cc);
	FILE *f = popen(cmd, "re");
	int ok = f && fgets(line, (int)size, f);
	if (ok)
		line[strcspn(line, "\n")] = 0;
	return f && pclose(f) == 0 && ok;
}

static enum ww_rc load(int cc, const char *dir, struct ww_str *hello, struct ww_err *err)
{
	static const char *const names[] = { "cc", "gcc", "clang" };
	const char *set = getenv("CC");
	char line[256] = "", real[PATH_MAX];
	int found = set && *set && ww_fs_which(set, g.cc);
	(void)cc, (void)dir;
	for (size_t i = 0; i < WW_ARRAY_LEN(names) && !(set && *set) && !found; i++)
		found = ww_fs_which(names[i], g.cc);
	if (!found || strchr(g.cc, '\'') || !version(line, sizeof(line)))
		return ww_err_set(err, WW_ERR_MISSING, "no C compiler%s%s; install one: apt-get install gcc",
			set ? " at CC=" : "", set ? set : "");
	if (realpath(g.cc, real)) {
		*strrchr(real, '/') = 0;
		snprintf(g.home, sizeof(g.home), "%s", real);
	}
	g.is_clang = strstr(line, "clang") != NULL;
	ww_str_adds(hello, line);
	for (const char *const *f = ww_cc_flags; *f; f++)
		ww_str_addf(hello, " %s", *f);
	return ww_fs_resource("skills/cuda/include", g.cookbook, err);
}

static int binds(struct ww_sandbox_bind *out, int max)
{
	static const char *const system_paths[] = { "/lib", "/lib64", "/lib32", "/bin", "/usr/bin", "/usr/lib",
		"/usr/lib64", "/usr/lib32", "/usr/libexec", "/usr/include", "/etc/alternatives", "/etc/ld.so.cache" };
	int n = 0;
	WW_BUG((size_t)max < WW_ARRAY_LEN(system_paths) + 3);
	for (size_t i = 0; i < WW_ARRAY_LEN(system_paths); i++)
		out[n++] = (struct ww_sandbox_bind){ system_paths[i], WW_BIND_READ };
	out[n++] = (struct ww_sandbox_bind){ "/dev/null", WW_BIND_WRITE | WW_BIND_DEVICE };
	out[n++] = (struct ww_sandbox_bind){ g.cookbook, WW_BIND_READ };
	if (g.home[0] && strncmp(g.home, "/usr/", 5))
		out[n++] = (struct ww_sandbox_bind){ g.home, WW_BIND_READ };
	return n;
}

/* ---- One job ----------------------------------------------------------------------------------------------------- */

/* One step of cc: kernels.c to kernels.s (compiles), or that to kernels.so.  What it says goes into the file `said`. */
static void exec_cc(int compiles, const char *said, const char *const *more)
{
	char path[] = "PATH=/usr/local/bin:/usr/bin:/bin", locale[] = "LC_ALL=C", tmp[] = "TMPDIR=.",
		 epoch[] = "SOURCE_DATE_EPOCH=0";
	char *env[] = { path, locale, tmp, epoch, NULL }, inc[PATH_MAX + 3];
	const char *argv[WW_ARRAY_LEN(ww_cc_flags) + 15 + OPTIONS];
	int n = 0, log = open(said, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	snprintf(inc, sizeof(inc), "-I%s", g.cookbook);
	argv[n++] = g.cc;
	for (const char *const *f = ww_cc_flags; *f; f++)
		argv[n++] = *f;
	for (; *more; more++)
		argv[n++] = *more;
	if (g.is_clang)
		argv[n++] = "-fno-integrated-as", argv[n++] = "-Wno-unused-command-line-argument";
	if (compiles)
		argv[n++] = inc, argv[n++] = "-MD", argv[n++] = "-MF", argv[n++] = "included", argv[n++] = "-S",
		argv[n++] = "-o", argv[n++] = "kernels.s", argv[n++] = "kernels.c";
	else
		argv[n++] = "-Wa,--MD,assembled", argv[n++] = "-Wl,--version-script=exports", argv[n++] = "-o",
		argv[n++] = "kernels.so", argv[n++] = "kernels.s", argv[n++] = "-lm";
	argv[n] = NULL;
	if (log < 0 || dup2(log, 1) < 0 || dup2(log, 2) < 0)
		_exit(126);
	execve(g.cc, (char **)(uintptr_t)argv, env);
	_exit(127);
}

static int write_file(const char *path, const char *bytes, size_t n)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	int ok = fd >= 0 && ww_fd_write_all(fd, bytes, n) == 0;
	ww_fd_close(&fd);
	return ok;
}

static int write_source(const struct ww_compile_job *j)
{
	static const char line[] = "#line 1 \"kernels.c\"\n";
	return write_file("kernels.c", j->macros, j->macros_bytes) && write_file("kernels.c", line, sizeof(line) - 1) &&
		write_file("kernels.c", j->source, j->source_bytes);
}

static int is_identifier(const char *s)
{
	return *s && !s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")];
}

/* The linker's version script: launched kernels are global, every other name is local. */
static int write_exports(const struct ww_compile_job *j)
{
	ww_auto_str s = WW_STR_INIT(2 * WW_COMPILE_NAMES_BYTES);
	const char *begin = "global: "; /* the linker takes one list of them */
	ww_str_adds(&s, "{\n");
	for (const char *name = j->names; name < j->names + j->names_bytes; name += strlen(name) + 1)
		if (is_identifier(name)) {
			ww_str_addf(&s, "%s\"%s\";\n", begin, name);
			begin = "";
		}
	ww_str_adds(&s, "local: *;\n};\n");
	return !s.cut && write_file("exports", s.p, s.len);
}

/* As much of a file as `out` may hold. */
static int read_into(const char *path, struct ww_str *out)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
	ssize_t n = 0;
	while (fd >= 0 && !out->cut && ww_str_reserve(out, 65536) && (n = read(fd, out->p + out->len, 65536)) > 0)
		out->len += (size_t)n;
	if (out->len < out->cap)
		out->p[out->len] = 0;
	ww_fd_close(&fd);
	return n == 0 && !out->cut;
}

/* The next word of a rule for make, which it ends; NULL: there is none.  A space in a name stands behind a backslash.
 */
static char *next_word(char **list)
{
	char *word = *list + strspn(*list, " \\\n"), *end = word;
	while (*end && *end != '\n' && (*end != ' ' || end[-1] == '\\'))
		end++;
	*list = end + (*end != 0);
	*end = 0;
	return *word ? word : NULL;
}

/* A file of the job's own: kernels.c, and "./ccXXXXXX.s" that cc has made of it. */
static int is_own(const char *file) { return !strchr(strncmp(file, "./", 2) ? file : file + 2, '/'); }

static int is_header(const char *file)
{
	size_t n = strlen(file);
	return n > 2 && !strcmp(file + n - 2, ".h");
}

/* What the compiler or the assembler has read, by the rule for make that it wrote. */
static int reads_other_files(struct ww_compile_job *j, const char *rule, const char *who, int headers)
{
	ww_auto_str list = WW_STR_INIT(1 << 20);
	int complete = read_into(rule, &list);
	char *at = list.p;
	for (char *word; (word = next_word(&at));)
		if (!is_own(word) && !(headers && is_header(word))) {
			ww_str_addf(&j->log, "kernels.c: refused: the %s may read no other file: %s\n", who, word);
			return 1;
		}
	if (!complete)
		ww_str_addf(&j->log, "kernels.c: refused: the %s has read too many files\n", who);
	return !complete;
}

/* The kernel ends a process by another clock (ticks) than it bills it by, some per cent apart: so what gcc's driver
 * says of a signal counts as well as NEARLY all of the limit used. */
static const double NEARLY = 0.9;
static const char ENDED[] = "CPU time limit exceeded";

/* Processor time of the compilers that have ended. */
static double used_s(void)
{
	struct rusage u;
	return getrusage(RUSAGE_CHILDREN, &u) < 0
		? 0
		: (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static enum ww_compile_result step(struct ww_compile_job *j, int compiles, const char *said, const char *const *more)
{
	int status = 0;
	pid_t pid = fork();
	if (pid == 0)
		exec_cc(compiles, said, more);
	if (pid < 0)
		return WW_COMPILE_CRASHED;
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			return WW_COMPILE_CRASHED;
	(void)read_into(said, &j->log);
	if ((!WIFEXITED(status) || WEXITSTATUS(status)) && (used_s() >= NEARLY * j->max_cpu_s || strstr(j->log.p, ENDED)))
		return WW_COMPILE_TIMEOUT;
	if (!WIFEXITED(status) || WEXITSTATUS(status) == 126 || WEXITSTATUS(status) == 127)
		return WW_COMPILE_CRASHED;
	if (WEXITSTATUS(status) != 0)
		return strstr(j->log.p, "internal compiler error") || strstr(j->log.p, "out of memory") ? WW_COMPILE_CRASHED
																								: WW_COMPILE_FAILED;
	return WW_COMPILE_OK;
}

static enum ww_compile_result compile(struct ww_compile_job *j, const char *const *variant)
{
	ww_str_reset(&j->log);
	enum ww_compile_result r = step(j, 1, "compiled", variant);
	return r == WW_COMPILE_OK && reads_other_files(j, "included", "compiler", 1) ? WW_COMPILE_REFUSED : r;
}

static enum ww_compile_result assemble(struct ww_compile_job *j, const char *const *layout)
{
	ww_str_reset(&j->log);
	ww_str_reset(&j->binary);
	(void)read_into("compiled", &j->log);
	enum ww_compile_result r = step(j, 0, "linked", layout);
	if (r != WW_COMPILE_OK)
		return r;
	if (reads_other_files(j, "assembled", "assembler", 0))
		return WW_COMPILE_REFUSED;
	return read_into("kernels.so", &j->binary) ? WW_COMPILE_OK : WW_COMPILE_LIMIT;
}

/* An instruction whose first byte is the second of a system call's: 80, 05 or 34. */
static int may_end_a_system_call(const char *line)
{
	static const char *const bytes[] = { "addb", "orb", "adcb", "sbbb", "andb", "subb", "xorb", "cmpb" };
	if (!strncmp(line, "\taddl\t$", 7))
		return 1;
	for (size_t i = 0; i < WW_ARRAY_LEN(bytes); i++) {
		size_t n = strlen(bytes[i]);
		if (line[0] == '\t' && !strncmp(line + 1, bytes[i], n) && !strncmp(line + 1 + n, "\t$", 2))
			return 1;
	}
	return 0;
}

/* Ahead of each such instruction of kernels.s one that does nothing. */
static int spread(void)
{
	ww_auto_str text = WW_STR_INIT(ASSEMBLY_MAX_BYTES), wide = WW_STR_INIT(ASSEMBLY_MAX_BYTES);
	char *at, *line;
	if (!read_into("kernels.s", &text))
		return 0;
	for (at = text.p; (line = strsep(&at, "\n"));)
		ww_str_addf(&wide, "%s%s%s", may_end_a_system_call(line) ? "\tnop\n" : "", line, at ? "\n" : "");
	return !wide.cut && unlink("kernels.s") == 0 && write_file("kernels.s", wide.p, wide.len);
}

static int is_clean_layout(struct ww_compile_job *j, const char *const *layout)
{
	return assemble(j, layout) == WW_COMPILE_OK && !ww_so_has_system_call(j->binary.p, j->binary.len);
}

/* Whether one of the layouts is free of what looks like a system call.  *r: of the plain one.  An assembler that does
 * not know an option has no such layout. */
static int has_clean_layout(struct ww_compile_job *j, enum ww_compile_result *r)
{
	*r = assemble(j, layouts[0]);
	int clean = *r != WW_COMPILE_OK || !ww_so_has_system_call(j->binary.p, j->binary.len);
	for (int i = 1; i < LAYOUTS && !clean; i++)
		clean = is_clean_layout(j, layouts[i]);
	if (!clean && spread())
		for (int i = 0; i < LAYOUTS && !clean; i++)
			clean = is_clean_layout(j, layouts[i]);
	if (!clean)
		*r = assemble(j, layouts[0]);
	return clean;
}

static enum ww_compile_result run(struct ww_compile_job *j)
{
	enum ww_compile_result r = WW_COMPILE_CRASHED;
	if (!write_source(j) || !write_exports(j))
		return r;
	for (int i = 0; i < VARIANTS; i++) {
		r = compile(j, variants[i]);
		if (r != WW_COMPILE_OK || has_clean_layout(j, &r))
			break;
	}
	ww_str_add(&j->symbols, j->names, j->names_bytes);
	return r;
}

const struct ww_compile_backend ww_compile_cc = { load, binds, run };
