/* Unit tests of the compile workers: real compilations for both targets, and what sources try.
 *
 * all: five times as many broken objects
 *
 * budget: 8 CPU-seconds, all 12 */
#include "stderr.h"
#include "unit.h"

#include "base/fs.h"
#include "base/time.h"
#include "image_maker.h"
#include "judge/compile/binary_check.h"
#include "judge/compile/compile.h"
#include "judge/compile/cubin_scan.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static struct ww_compiler *cpu, *cuda;
static int broken = 4000; /* objects */

struct compiled {
	enum ww_compile_result result;
	struct ww_compiled out;
};

/* Compile for a plan that launches the given kernels (ends with NULL) and defines TILE as 32. */
static struct compiled compile(
	struct ww_compiler *c, enum ww_target target, const char *source, const char *const *kernels)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_facts f = maker_facts(target);
	struct ww_plan *p = maker_plan(&f);
	struct compiled r;
	ww_define(p, "TILE", 32);
	for (; kernels && *kernels; kernels++)
		ww_launch(p, *kernels, 1, 1, 1, 1, 1, 1);
	struct ww_image *m = maker_image(p);
	assert_non_null(m);
	ww_compiled_init(&r.out);
	if (ww_compiler_compile(c, source, strlen(source), m, &r.out, &r.result, &err) != WW_OK)
		fail_msg("infrastructure error: %s", err.msg);
	assert_non_null(r.out.log);
	assert_true((r.out.binary != NULL) == (r.result == WW_COMPILE_OK && r.out.n_kernels > 0));
	free(m);
	return r;
}

static const char *const k[] = { "k", NULL };
#define BLOCK "struct ww_block;\n"
static const char good_c[] = "#include <math.h>\n#include <immintrin.h>\n#include <stdint.h>\nstruct ww_block;\nstatic "
							 "const float table[4] = { 1, 2, 3, 4 };\n"
							 "static const float *const names[2] = { table, table + 2 };\n"
							 "void k(const struct ww_block *b, void *const *arg) { float *y = *(float **)arg[0]; for "
							 "(int i = 0; i < TILE; i++)"
							 " y[i] = expf(y[i]) + table[i & 3] + names[i & 1][0]; (void)b; }\n";

static void expect_cpu(const char *source, enum ww_compile_result want, const char *text)
{
	struct compiled r = compile(cpu, WW_TARGET_CPU, source, k);
	if (r.result != want || (text && !strstr(r.out.log, text)))
		fail_msg("%s\ngave: %s: %s", source, ww_compile_result_text(r.result), r.out.log);
	ww_compiled_release(&r.out);
}

static void cpu_good(void **state)
{
	(void)state;
	struct compiled one = compile(cpu, WW_TARGET_CPU, good_c, k), two = compile(cpu, WW_TARGET_CPU, good_c, k);
	if (one.result != WW_COMPILE_OK)
		fail_msg("%s", one.out.log);
	assert_string_equal(ww_compiled_symbol(&one.out, "k"), "k");
	assert_memory_equal(one.out.binary, "\177ELF", 4);
	assert_int_equal(one.out.binary_bytes, two.out.binary_bytes);
	assert_memory_equal(one.out.binary, two.out.binary, one.out.binary_bytes);
	print_message("cpu: %s\ncpu: %zu bytes in %.0f ms, level %s\n", ww_compiler_identity(cpu), one.out.binary_bytes,
		two.out.seconds * 1e3, ww_sandbox_level_name(ww_compiler_level(cpu)));
	ww_compiled_release(&one.out);
	ww_compiled_release(&two.out);
	struct compiled none = compile(cpu, WW_TARGET_CPU, "nonsense", NULL); /* no launches: the source is not needed */
	assert_int_equal(none.result, WW_COMPILE_OK);
	assert_null(none.out.binary);
	ww_compiled_release(&none.out);
}

static void cpu_errors(void **state)
{
	(void)state;
	expect_cpu("void k(void) { return 1 }\n", WW_COMPILE_FAILED, "kernels.c:1:");
	expect_cpu("\n\nint k = nope;\n", WW_COMPILE_FAILED, "kernels.c:3:");
	expect_cpu("void other(void) { }\n", WW_COMPILE_FAILED, "launches \"k\"");
	expect_cpu("const int k = 1;\n", WW_COMPILE_FAILED, "launches \"k\"");
	expect_cpu("void missing(void); void k(void) { missing(); }\n", WW_COMPILE_FAILED, "missing");
	expect_cpu("#error \x1b[31mred\n", WW_COMPILE_FAILED, "?[31mred");
}

/* Load a binary as the runner does and call its k. */
static int call_k(const struct ww_compiled *c)
{
	char path[] = "/tmp/ww-test-compiler-XXXXXX";
	int (*f)(void) = NULL, fd = mkstemp(path);
	assert_true(fd >= 0 && write(fd, c->binary, c->binary_bytes) == (ssize_t)c->binary_bytes);
	close(fd);
	void *h = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	unlink(path);
	if (!h)
		fail_msg("%s", dlerror());
	*(void **)&f = dlsym(h, "k");
	assert_non_null(f);
	assert_null(dlsym(h, "helper"));
	int answer = f();
	dlclose(h);
	return answer;
}

/* What a solution defines is its own, whatever it is called: not the C library's, and not seen from outside. */
/* Unusual and honest, all in one object: each part adds to 42 what it should. */
static const char unusual_c[] =
	"#define _GNU_SOURCE\n#include <math.h>\n#include <immintrin.h>\n#include <stddef.h>\n"
	"static const float table[4][3] = { [1] = { 1, 2, 3 }, [3] = { [2] = -0.0f } };\n"
	"static const struct { const char *name; double (*f)(double); } functions[] = { { \"sin\", sin }, { \"cos\", cos } };\n"
	"__attribute__((noinline)) static int vla(int n) { float a[n], *restrict b = __builtin_alloca(sizeof(a)); int s = 0;\n"
	"for (int i = 0; i < n; i++) a[i] = (float)i, b[i] = 1; for (int i = 0; i < n; i++) s += (int)(a[i] * b[i]); return s; }\n"
	"__attribute__((noinline)) static int jump(const unsigned char *p) { static const void *const to[] = { &&stop, &&one, &&two };\n"
	"int s = 0; next: goto *to[*p++]; one: s++; goto next; two: s += 2; goto next; stop: return s; }\n"
	"__attribute__((noinline)) static int deep(int n) { volatile char large[1 << 20]; large[n] = 1; return n ? deep(n - 1) + large[n] : 0; }\n"
	"__attribute__((noinline)) static float turn(float _Complex z) { return __builtin_crealf(z * z); }\n"
	"__attribute__((noinline)) static long wide(__int128 a, __int128 b) { return (long)(a * b / (b + 1)); }\n"
	"__attribute__((noinline)) static float half(float x) { return (float)(_Float16)x; }\n"
	"__attribute__((noinline)) void *memcpy(void *to, const void *from, size_t n) { char *t = to; for (size_t i = 0; i < n; i++)\n"
	"((volatile char *)t)[i] = ((const char *)from)[i]; return to; }\n"
	"int index(int x) { return x; }\nint read(int x) { union { struct { unsigned low : 4, high : 28; } b; int i; } u = { .i = x }; return (int)u.b.high; }\n"
	"int k(void) { volatile int zero = 0; static const unsigned char program[] = { 1, 2, 1, 0 }; char to[4];\n"
	"memcpy(to, \"abc\", 4); int one(int x) { return x + 1; } int sum = one(zero), e;\n"
	"sum += vla(4 + zero) == 6; sum += jump(program) == 4; sum += deep(3 + zero) == 3; sum += turn(1 + 2 * zero + 1.0if * (float)zero) == 1;\n"
	"sum += wide(((__int128)1 << 70) + zero, 3) == (long)((((__int128)1 << 70) * 3) / 4); sum += half(2.5f + (float)zero) == 2.5f;\n"
	"sum += to[2] == 'c'; sum += index(3) == 3; sum += read(33) == 2; sum += table[3][zero + 2] == 0 && signbit(table[3][zero + 2]);\n"
	"sum += functions[zero].f(0) == 0; sum += isnan(NAN + zero) && !isfinite(INFINITY + zero) && fpclassify(1e-310 + zero) == FP_SUBNORMAL;\n"
	"sum += j0(zero) == 1; sum += jnf(1, (float)zero) == 0; sum += lgamma_r(1.0 + zero, &e) == 0; sum += frexp(8.0 + zero, &e) == 0.5;\n"
	"_mm_setcsr(_mm_getcsr() | 0x8040); sum += (float)zero + 1e-40f * (1 + (float)zero) == 0; _mm_setcsr(_mm_getcsr() & ~0x8040u);\n"
	"return sum + 42 - 18; }\n";

static void cpu_own_names(void **state)
{
	static const char *const sources[] = {
		"#define F __attribute__((noinline))\nF void *malloc(unsigned long n) { (void)n; return 0; }\nF void free(void *p) { "
		"(void)p; }\nvoid helper(void) { }\nint k(void) { void *volatile p = malloc(8); free(p); return p ? 1 : 42; }\n",
		"#define F __attribute__((noinline))\nF int select(int a) { return a + 40; }\nF int step(int a) { return a; }\n"
		"int k(void) { int (*volatile f)(int) = select; return f(step(2)); }\n",
		"__attribute__((noinline)) void *dlsym(void *h, const char *n) { (void)h; return (void *)n; }\n"
		"int k(void) { const char *s = dlsym(0, \"*\"); return *s; }\n",
		/* A distance of 0x50f, which looks like a system call until the object is built with other distances. */
		"int k(void);\n__asm__(\".section .rodata\\ntable: .long 0\\n.text\\n.globl k\\n.type k, @function\\n\"\n"
		"\"k: lea table - 0xaea(%rip), %rdx\\nmov $42, %eax\\nret\\n.size k, . - k\");\n",
		"static const int table[3] = { 7, 0x50f, 0x80cd }; int k(void) { const int *volatile t = table; return t[0] * 6; }\n",
		"#line 7 \"a/file.c\"\n#include <math.h>\nint k(void) { volatile float x = 9; int q; float r = remquof(x, 4, &q); return (int)(nexttowardf(r, 1) "
		"+ r) + 38 + q; }\n",
	};
	(void)state;
	for (size_t i = 0; i <= WW_ARRAY_LEN(sources); i++) {
		const char *source = i < WW_ARRAY_LEN(sources) ? sources[i] : unusual_c;
		struct compiled r = compile(cpu, WW_TARGET_CPU, source, k);
		if (r.result != WW_COMPILE_OK)
			fail_msg("%s\ngave: %s: %s", source, ww_compile_result_text(r.result), r.out.log);
		assert_int_equal(call_k(&r.out), 42);
		ww_compiled_release(&r.out);
	}
}

/* Every launched kernel is exported, whatever else the plan launches. */
static void cpu_several_kernels(void **state)
{
	static const char *const names[] = { "k", "select", "k2", NULL };
	(void)state;
	struct compiled r = compile(
		cpu, WW_TARGET_CPU, "int k(void) { return 42; }\nvoid select(void) { }\nvoid k2(void) { }\n", names);
	if (r.result != WW_COMPILE_OK)
		fail_msg("%s", r.out.log);
	for (const char *const *n = names; *n; n++)
		assert_string_equal(ww_compiled_symbol(&r.out, *n), *n);
	assert_int_equal(call_k(&r.out), 42);
	ww_compiled_release(&r.out);
}

/* An object whose own names are left to the loader, as a linker without -Bsymbolic makes it. */
static void loader_bound_names(void **state)
{
	static const char command[] =
		"echo 'int other(void) { return 1; } int k(void) { return other(); }' | cc -x c - -O2 -fPIC -fsemantic-interposition "
		"-shared -nostartfiles -Wl,-z,now -Wl,-z,relro -Wl,--hash-style=sysv -o ";
	char path[] = "/tmp/ww-test-compiler-XXXXXX", line[512], text[16384];
	struct ww_str why = WW_STR_INIT(1024);
	int fd = mkstemp(path);
	(void)state;
	snprintf(line, sizeof(line), "%s%s", command, path);
	assert_true(fd >= 0 && system(line) == 0);
	close(fd);
	assert_true((fd = open(path, O_RDONLY)) >= 0);
	ssize_t n = read(fd, text, sizeof(text));
	assert_true(n > 1000 && n < (ssize_t)sizeof(text));
	assert_false(ww_so_check(text, (size_t)n, &why));
	assert_non_null(strstr(why.p, "bind to another object: other"));
	close(fd), unlink(path), ww_str_release(&why);
}

static void cpu_refusals(void **state)
{
	(void)state;
	expect_cpu("int counter; void k(void) { counter++; }\n", WW_COMPILE_REFUSED, "counter");
	expect_cpu("static int hidden = 5; int k(void) { return hidden++; }\n", WW_COMPILE_REFUSED, "not const");
	expect_cpu("int *k(void) { static int n[3]; return n; }\n", WW_COMPILE_REFUSED, "not const");
	expect_cpu("_Thread_local int t; void k(void) { t++; }\n", WW_COMPILE_REFUSED, "thread-local");
	expect_cpu("__attribute__((constructor)) static void c(void) { __asm__ volatile (\"nop\"); } void k(void) { }\n",
		WW_COMPILE_REFUSED, NULL);
	expect_cpu("__attribute__((destructor)) static void c(void) { __asm__ volatile (\"nop\"); } void k(void) { }\n",
		WW_COMPILE_REFUSED, NULL);
	expect_cpu("void _init(void) { } void k(void) { }\n", WW_COMPILE_REFUSED, "runs at loading");
	expect_cpu("static void r(void) { } static void *pick(void) { return (void *)r; }\n"
			   "void k(void) __attribute__((ifunc(\"pick\")));\n",
		WW_COMPILE_REFUSED, NULL);
	expect_cpu("int printf(const char *, ...); void k(void) { printf(\"PASS\"); }\n", WW_COMPILE_REFUSED, "printf");
	expect_cpu("void *malloc(unsigned long); void *k(void) { return malloc(3); }\n", WW_COMPILE_REFUSED, "malloc");
	expect_cpu("#include <pthread.h>\nvoid *f(void *); void k(void) { pthread_t t; pthread_create(&t, 0, 0, 0); }\n",
		WW_COMPILE_REFUSED, "pthread_create");
	expect_cpu("#include <time.h>\nlong k(void) { return time(0); }\n", WW_COMPILE_REFUSED, "time");
	expect_cpu("extern char **environ; char **k(void) { return environ; }\n", WW_COMPILE_REFUSED, "environ");
	expect_cpu("void k(void) { __asm__ volatile(\"syscall\"); }\n", WW_COMPILE_REFUSED, "0f 05");
	expect_cpu("void k(void) { __asm__ volatile(\"int $0x80\"); }\n", WW_COMPILE_REFUSED, "cd 80");
	expect_cpu("void k(void) { __asm__ volatile(\".byte 0x0f, 0x34\"); }\n", WW_COMPILE_REFUSED, "0f 34");
	expect_cpu("void k(void) { __asm__ volatile(\"jmp 1f + 1\\n1: mov $0xc3050f, %%eax\" ::: \"rax\"); }\n",
		WW_COMPILE_REFUSED, "part of a number");
	expect_cpu("__asm__(\".section .x,\\\"awx\\\"\\n.byte 0\\n.text\"); void k(void) { }\n", WW_COMPILE_REFUSED, NULL);
	/* The system's libraries are there for the compiler; .incbin, spelled by a macro, would make their code the
	 * kernel's. */
	expect_cpu(
		"__asm__(\".macro put x\\n.\\\\x\\\\()bin \\\"/usr/include/math.h\\\", 0, 8\\n.endm\\nput inc\"); void k(void) { }\n",
		WW_COMPILE_REFUSED, "math.h");
	expect_cpu("__asm__(\".include \\\"/usr/include/./stdc-predef.h\\\"\"); void k(void) { }\n", WW_COMPILE_REFUSED,
		"stdc-predef.h");
	expect_cpu("const char *k(void) { return __DATE__; }\n", WW_COMPILE_REFUSED, "__DATE__");
	expect_cpu("#define P(a, b) a ## b\n#define Q P(__DA, TE__) P(__TI, ME__)\nconst char *k(void) { return Q; }\n",
		WW_COMPILE_OK, NULL);
}

/* What is said to be the system's is looked at, too. */
static void cpu_reads_headers_alone(void **state)
{
	/* The linker's text, of which macros leave nothing. */
	static const char *const files[] = { "/usr/lib/x86_64-linux-gnu/libc.so", "/usr/lib64/libc.so",
		"/usr/lib/libc.so" };
	char source[512];
	int n = 0;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(files); i++) {
		if (access(files[i], R_OK) != 0)
			continue;
		snprintf(source, sizeof(source),
			"#define OUTPUT_FORMAT(...)\n#define GROUP(...)\n# 1 \"kernels.c\" 3\n#include \"%s\"\nvoid k(void) { }\n",
			files[i]);
		expect_cpu(source, WW_COMPILE_REFUSED, "the compiler may read no other file");
		snprintf(source, sizeof(source),
			"#ifdef __has_embed\nconst unsigned char copy[] = {\n#embed \"%s\"\n};\n#else\n#error none\n#endif\n"
			"void k(void) { }\n",
			files[i]);
		struct compiled r = compile(cpu, WW_TARGET_CPU, source, k);
		assert_int_not_equal(r.result, WW_COMPILE_OK);
		ww_compiled_release(&r.out);
		n++;
	}
	expect_cpu("#if __has_include(<math.h>)\n#include <math.h>\n#endif\n#include \"ww/cpu.h\"\n#include <immintrin.h>\n"
			   "void k(const struct ww_block *b, void *const *arg) { (void)b, (void)arg; }\n",
		WW_COMPILE_OK, NULL);
	if (!n)
		skip();
}

/* The assembler writes the sections of an object for link-time optimisation, too.  A linker that had them compiled
 * would run the assembler again, behind the one whose list of files is looked at. */
static void cpu_code_for_the_linker(void **state)
{
	static const char command[] = "echo 'void k(void) { }' | cc -O1 -fPIC -flto -S -o - -x c -";
	ww_auto_str source = WW_STR_INIT(1 << 20);
	char line[4096];
	FILE *f = popen(command, "re");
	(void)state;
	ww_str_adds(&source, "__asm__(\n");
	while (f && fgets(line, sizeof(line), f)) {
		line[strcspn(line, "\n")] = 0;
		ww_str_addc(&source, '"');
		for (const char *p = strncmp(line, "\t.file", 6) ? line : ""; *p; p++)
			ww_str_addf(&source, "%s%c", strchr("\"\\", *p) ? "\\" : "", *p);
		ww_str_adds(&source, "\\n\"\n");
	}
	ww_str_adds(&source, ");\n");
	if (!f || pclose(f) != 0 || !strstr(source.p, ".gnu.lto_"))
		skip(); /* another compiler's form */
	struct compiled r = compile(cpu, WW_TARGET_CPU, source.p, k);
	if (r.result != WW_COMPILE_REFUSED) /* what is left is a mark that is no constant */
		fail_msg("%s: %s", ww_compile_result_text(r.result), r.out.log);
	ww_compiled_release(&r.out);
}

/* ---- A dynamic section of the solution's own --------------------------------------------------------------------- */

/* The assembler writes into any section, and the linker puts its own entries of .dynamic behind those.  DYNAMIC: words
 * of such entries.  TABLES: at 0x100000 strings ("", "k"), at 0x100010 symbols (nothing, k, and a second k that is an
 * indirect function at 0x80000), at 0x100058 a DT_HASH whose bucket holds `first`, at 0x100070 a DT_GNU_HASH that holds
 * the second k. */
#define DYNAMIC(words) "__asm__(\".pushsection .dynamic,\\\"aw\\\",@progbits\\n.quad " words "\\n.popsection\");\n"
#define TABLES(section, first)                                                                                       \
	"__asm__(\".pushsection " section "\\n.balign 0x100000\\n.byte 0\\n.asciz \\\"k\\\"\\n.skip 13\\n.quad 0,0,0\\n"       \
	".long 1\\n.byte 0x12,0\\n.short 1\\n.quad 0x40000,8\\n.long 1\\n.byte 0x1a,0\\n.short 1\\n.quad 0x80000,8\\n"        \
	".long 1,2," first ",0,0,0,1,2,1,0\\n.quad -1\\n.long 2,0x2b611\\n.popsection\");\n"                               \
	"void k(void) { }\n__attribute__((used, aligned(0x40000))) static void *pick(void) { return (void *)k; }\n"
#define RODATA     ".rodata.own,\\\"a\\\",@progbits"
#define NAMED      "4,0x100058,5,0x100000,6,0x100010,10,16,11,24,30,8,"
#define EMPTY          "void k(void) { }\n"

static void cpu_dynamic_section(void **state)
{
	static const char *const sources[] = {
		TABLES(RODATA, "1") DYNAMIC(NAMED "0x6ffffef5,0x100070,0,0"),    /* a hash table with more symbols */
		TABLES(RODATA, "1") DYNAMIC(NAMED "0,0"),                        /* an end before the linker's entries */
		TABLES(RODATA, "2") DYNAMIC("4,0x100058,5,0x100000,6,0x100010"), /* a tag twice */
		EMPTY DYNAMIC("0x6ffffef5,0x200"),
		EMPTY DYNAMIC("36,0x2000,35,8,37,8"),  /* DT_RELR: writes anywhere */
		EMPTY DYNAMIC("7,0x2000,8,8,9,24"),    /* a third of a relocation more than it says */
		EMPTY DYNAMIC("7,0x2000,8,24,9,8"),    /* relocations of another size */
		EMPTY DYNAMIC("23,0x2000,2,24,20,17"), /* DT_REL by DT_PLTREL */
		EMPTY DYNAMIC("24,k"),                 /* a relocation of the section itself */
		EMPTY DYNAMIC("0x7ffffffd,1"),         /* DT_AUXILIARY: another object is searched first */
		EMPTY DYNAMIC("0x6ffffefc,1"),         /* DT_AUDIT: another object is loaded */
		EMPTY DYNAMIC("0x6ffffffb,0x40"),      /* DT_FLAGS_1 */
		EMPTY DYNAMIC("34,0x2000"),            /* DT_SYMTAB_SHNDX */
		EMPTY DYNAMIC("14,1"),                 /* DT_SONAME: taken for another object */
	};
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(sources); i++)
		expect_cpu(sources[i], WW_COMPILE_REFUSED, NULL);
}

/* The same tables in place of the linker's: its own dynamic section, patched. */
static void patch(unsigned char *so, int64_t tag, uint64_t value)
{
	Elf64_Ehdr e;
	Elf64_Phdr p;
	Elf64_Dyn d;
	memcpy(&e, so, sizeof(e));
	for (int i = 0; i < e.e_phnum; i++) {
		memcpy(&p, so + e.e_phoff + (size_t)i * sizeof(p), sizeof(p));
		for (uint64_t at = p.p_offset; p.p_type == PT_DYNAMIC && at < p.p_offset + p.p_filesz; at += sizeof(d)) {
			memcpy(&d, so + at, sizeof(d));
			d.d_un.d_val = d.d_tag == tag ? value : d.d_un.d_val;
			memcpy(so + at, &d, sizeof(d));
		}
	}
}

static void expect_patched(const char *source, const char *text)
{
	struct compiled r = compile(cpu, WW_TARGET_CPU, source, k);
	struct ww_str why = WW_STR_INIT(1024);
	if (r.result != WW_COMPILE_OK)
		fail_msg("%s", r.out.log);
	unsigned char *so = r.out.binary;
	patch(so, DT_HASH, 0x100058), patch(so, DT_STRTAB, 0x100000), patch(so, DT_SYMTAB, 0x100010);
	patch(so, DT_STRSZ, 16);
	int accepted = ww_so_check(so, r.out.binary_bytes, &why);
	if (text ? accepted || !strstr(why.p, text) : !accepted)
		fail_msg("%s\naccepted: %d, %s", source, accepted, why.p);
	ww_str_release(&why);
	ww_compiled_release(&r.out);
}

static void cpu_tables(void **state)
{
	(void)state;
	expect_patched(TABLES(RODATA, "1"), NULL);
	expect_patched(TABLES(RODATA, "2"), "no symbol table"); /* the bucket leads behind the last symbol */
	expect_patched(TABLES(".data.rel.ro.own,\\\"aw\\\",@progbits", "1"), "no symbol table"); /* can be relocated */
}

static const char *const secrets[] = { "/etc/passwd", "/etc/hostname", "/proc/self/environ", "/proc/self/cmdline" };

static void cpu_reads_nothing(void **state)
{
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(secrets); i++) {
		char source[512];
		snprintf(source, sizeof(source), "#include \"%s\"\nvoid k(void) { }\n", secrets[i]);
		struct compiled r = compile(cpu, WW_TARGET_CPU, source, k);
		assert_int_equal(r.result, WW_COMPILE_FAILED);
		if (strstr(r.out.log, "root:") || strstr(r.out.log, "PATH="))
			fail_msg("%s", r.out.log);
		ww_compiled_release(&r.out);
		snprintf(source, sizeof(source),
			"__asm__(\".section .rodata\\n.incbin \\\"%s\\\"\\n.text\"); void k(void) { }\n", secrets[i]);
		r = compile(cpu, WW_TARGET_CPU, source, k);
		if (r.result == WW_COMPILE_OK)
			fail_msg("%s was read into the object", secrets[i]);
		ww_compiled_release(&r.out);
	}
}

static const char endless[] =
	"#define A(x) x x x x x x x x\n#define B(x) A(A(A(x)))\nint n = 0 B(B(B(+1)));\nvoid k(void) { }\n";

static void cpu_bombs(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler_opts o = { .target = WW_TARGET_CPU, .max_s = 1, .max_memory_bytes = 1ll << 30 };
	struct ww_compiler *c;
	static const char *const bombs[] = { "#include \"kernels.c\"\n", endless,
		"void k(void) { }\nconst char big[1ll << 33] = { 1 };\n",
		"__asm__(\".rept 1000000000\\n.quad 1\\n.endr\"); void k(void) { }\n",
		"__asm__(\"1: .if 1\\n.macro m\\nm\\n.endm\\nm\\n.endif\"); void k(void) { }\n" };
	assert_int_equal(ww_compiler_open(&c, &o, &err), WW_OK);
	for (size_t i = 0; i < WW_ARRAY_LEN(bombs); i++) {
		struct compiled r = compile(c, WW_TARGET_CPU, bombs[i], k);
		if (r.result == WW_COMPILE_OK || r.out.seconds > 15) /* five times 1 s by the clock, and slack */
			fail_msg("%s: %s after %.1f s", bombs[i], ww_compile_result_text(r.result), r.out.seconds);
		assert_true(strlen(r.out.log) < WW_COMPILE_LOG_BYTES + 4096);
		ww_compiled_release(&r.out);
	}
	struct compiled r = compile(c, WW_TARGET_CPU, good_c, k);
	assert_int_equal(r.result, WW_COMPILE_OK);
	ww_compiled_release(&r.out);
	ww_compiler_close(c);
}

static void cpu_survives_a_killed_zygote(void **state)
{
	(void)state;
	kill(ww_compiler_pid(cpu), SIGKILL);
	expect_cpu(good_c, WW_COMPILE_OK, NULL);
}

/* The last byte of one instruction and the first of the next are int 0x80 together. */
static void two_instructions_like_a_system_call(void **state)
{
	(void)state;
	expect_cpu(
		"void k(void) { __asm__ volatile(\"mov\\t%r9, %r13\\n\\tcmpb\\t$0, 208(%rsp)\"); }\n", WW_COMPILE_OK, NULL);
	expect_cpu("void k(void) { __asm__ volatile(\"int $0x80\"); }\n", WW_COMPILE_REFUSED, "system calls");
}

/* The first job of the zygote `arg` gets no processor for 1.5 s. */
static void *starve(void *arg)
{
	char path[64], kids[64] = "";
	int zygote = *(const int *)arg, job = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", zygote, zygote);
	for (int i = 0; i < 5000 && sscanf(kids, "%d", &job) != 1; i++) {
		usleep(1000);
		(void)ww_fs_peek(AT_FDCWD, path, kids, sizeof(kids));
	}
	if (job && kill(job, SIGSTOP) == 0) {
		usleep(1500000);
		kill(job, SIGCONT);
	}
	return NULL;
}

static void cpu_on_a_busy_machine(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler_opts o = { .target = WW_TARGET_CPU, .max_s = 1 };
	struct ww_compiler *c;
	pthread_t t;
	assert_int_equal(ww_compiler_open(&c, &o, &err), WW_OK);
	int zygote = ww_compiler_pid(c);
	assert_int_equal(pthread_create(&t, NULL, starve, &zygote), 0);
	struct compiled r = compile(c, WW_TARGET_CPU, good_c, k);
	pthread_join(t, NULL);
	if (r.result != WW_COMPILE_OK || r.out.seconds < 1)
		fail_msg("%s after %.1f s: %s", ww_compile_result_text(r.result), r.out.seconds, r.out.log);
	ww_compiled_release(&r.out);
	r = compile(c, WW_TARGET_CPU, endless, k);
	if (r.result != WW_COMPILE_TIMEOUT || !strstr(r.out.log, "--max-compile-seconds"))
		fail_msg("%s after %.1f s: %s", ww_compile_result_text(r.result), r.out.seconds, r.out.log);
	ww_compiled_release(&r.out);
	ww_compiler_close(c);
}

static volatile int interrupted;

static void on_alarm(int sig)
{
	(void)sig;
	interrupted = 1;
}

/* What a compiler prints about itself ("LLVM ERROR: out of memory") is no message of ours. */
static void no_compiler_writes_to_the_terminal(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler_opts o = { .target = WW_TARGET_CPU };
	struct ww_compiler *c;
	char path[64];
	struct stat at = { 0 };
	struct unit_stderr said = unit_stderr_begin(); /* or it is null(4) already, as under a test's driver */
	enum ww_rc rc = ww_compiler_open(&c, &o, &err);
	unit_stderr_end(&said, "");
	assert_int_equal(rc, WW_OK);
	snprintf(path, sizeof(path), "/proc/%d/fd/2", ww_compiler_pid(c));
	assert_int_equal(stat(path, &at), 0);
	ww_compiler_close(c);
	assert_true(S_ISCHR(at.st_mode) && at.st_rdev == makedev(1, 3)); /* null(4) */
}

/* An interruption ends the waiting for a long compilation at once; the compiler stays good. */
static void cpu_interrupted(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler_opts o = { .target = WW_TARGET_CPU, .max_s = 30, .interrupted = &interrupted };
	struct ww_compiler *kept = cpu;
	struct ww_facts f = maker_facts(WW_TARGET_CPU);
	struct ww_plan *p = maker_plan(&f);
	enum ww_compile_result result;
	struct ww_compiled out;
	ww_launch(p, "k", 1, 1, 1, 1, 1, 1);
	struct ww_image *m = maker_image(p);
	assert_non_null(m);
	assert_int_equal(ww_compiler_open(&cpu, &o, &err), WW_OK);
	ww_compiled_init(&out);
	signal(SIGALRM, on_alarm);
	ualarm(200000, 0);
	uint64_t start = ww_now_ns();
	assert_int_equal(ww_compiler_compile(cpu, endless, strlen(endless), m, &out, &result, &err), WW_ERR_INTERRUPTED);
	assert_true(ww_seconds_since(start) < 5);
	signal(SIGALRM, SIG_DFL);
	interrupted = 0;
	ww_compiled_release(&out);
	free(m);
	expect_cpu(good_c, WW_COMPILE_OK, NULL);
	ww_compiler_close(cpu);
	cpu = kept;
}

static void missing_compiler(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler *c;
	struct ww_compiler_opts o = { .target = WW_TARGET_CPU };
	setenv("CC", "/nonexistent/cc", 1);
	assert_int_equal(ww_compiler_open(&c, &o, &err), WW_ERR_MISSING);
	assert_non_null(strstr(err.msg, "apt-get install gcc"));
	unsetenv("CC");
}

/* Cut, flipped and shifted objects must be refused or accepted, never crash the check. */
static void broken_objects(void **state)
{
	(void)state;
	struct compiled r = compile(cpu, WW_TARGET_CPU, good_c, k);
	struct ww_str why = WW_STR_INIT(1024);
	assert_int_equal(r.result, WW_COMPILE_OK);
	unsigned char *copy = malloc(r.out.binary_bytes);
	unsigned seed = 1;
	int refused = 0;
	for (size_t n = 0; n < r.out.binary_bytes; n += 7)
		(void)ww_so_check(r.out.binary, n, &why), ww_str_reset(&why);
	for (int i = 0; i < broken; i++) {
		memcpy(copy, r.out.binary, r.out.binary_bytes);
		for (int f = 0; f < 3; f++) {
			seed = seed * 1664525u + 1013904223u;
			copy[(seed >> 8) % (i % 2 ? 1024 : r.out.binary_bytes)] = (unsigned char)(seed >> 24);
		}
		refused += !ww_so_check(copy, r.out.binary_bytes, &why);
		(void)ww_so_has(copy, r.out.binary_bytes, "k");
		(void)ww_cubin_check(copy, r.out.binary_bytes, &why);
		ww_str_reset(&why);
	}
	assert_true(refused > broken / 20);
	ww_str_release(&why);
	free(copy);
	ww_compiled_release(&r.out);
}

/* ---- cuda: NVRTC needs no GPU ------------------------------------------------------------------------------------ */

static const char *const two[] = { "norm<float, TILE>", "plain", NULL };
static const char good_cu[] =
	"__constant__ float table[4] = { 1, 2, 3, 4 };\n"
	"template <typename T, int N> __global__ void norm(const T *x, T *y, int n) {\n"
	"  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = x[i] * (T)N + (T)table[i & 3]; }\n"
	"extern \"C\" __global__ void plain(const __half *x, __nv_bfloat16 *y) {\n"
	"  __shared__ float s[32]; s[threadIdx.x] = __half2float(x[threadIdx.x]); __syncthreads();\n"
	"  y[threadIdx.x] = __float2bfloat16(s[31 - threadIdx.x]); }\n";

static void need_cuda(void)
{
	if (!cuda)
		skip();
}

static void expect_cuda(const char *source, enum ww_compile_result want, const char *text)
{
	struct compiled r = compile(cuda, WW_TARGET_CUDA, source, k);
	if (r.result != want || (text && !strstr(r.out.log, text)))
		fail_msg("%s\ngave: %s: %s", source, ww_compile_result_text(r.result), r.out.log);
	ww_compiled_release(&r.out);
}

static void cuda_good(void **state)
{
	(void)state;
	need_cuda();
	double best = 1e9;
	for (int i = 0; i < 2; i++) {
		struct compiled r = compile(cuda, WW_TARGET_CUDA, good_cu, two);
		if (r.result != WW_COMPILE_OK)
			fail_msg("%s", r.out.log);
		assert_int_equal(r.out.n_kernels, 2);
		assert_string_equal(ww_compiled_symbol(&r.out, "plain"), "plain");
		assert_non_null(strstr(ww_compiled_symbol(&r.out, "norm<float, TILE>"), "normIfLi32E"));
		assert_string_equal(r.out.log, "");
		best = r.out.seconds < best ? r.out.seconds : best;
		ww_compiled_release(&r.out);
	}
	print_message("cuda: %s: the faster of 2: %.1f ms, level %s\n", ww_compiler_identity(cuda), best * 1e3,
		ww_sandbox_level_name(ww_compiler_level(cuda)));
}

static void cuda_errors(void **state)
{
	(void)state;
	need_cuda();
	expect_cuda("\nextern \"C\" __global__ void k() { nope; }\n", WW_COMPILE_FAILED, "kernels.cu(2): error");
	expect_cuda("extern \"C\" __global__ void other() { }\n", WW_COMPILE_FAILED, "k");
	expect_cuda("#include <string>\n", WW_COMPILE_FAILED, "string");
	for (size_t i = 0; i < WW_ARRAY_LEN(secrets); i++) {
		char source[256];
		snprintf(source, sizeof(source), "#include \"%s\"\nextern \"C\" __global__ void k() { }\n", secrets[i]);
		struct compiled r = compile(cuda, WW_TARGET_CUDA, source, k);
		assert_int_equal(r.result, WW_COMPILE_FAILED);
		if (strstr(r.out.log, "root:") || strstr(r.out.log, "PATH="))
			fail_msg("%s", r.out.log);
		ww_compiled_release(&r.out);
	}
}

static void cuda_refusals(void **state)
{
	(void)state;
	need_cuda();
#define K "extern \"C\" __global__ void k(float *y, int n) "
	expect_cuda("__device__ int counter;\n" K "{ y[0] = counter++; }\n", WW_COMPILE_REFUSED, "counter");
	expect_cuda(K "{ static int calls; y[0] = calls++; }\n", WW_COMPILE_REFUSED, "calls");
	expect_cuda(
		"extern \"C\" int printf(const char *, ...);\n" K "{ printf(\"PASS\"); }\n", WW_COMPILE_REFUSED, "printf");
	expect_cuda(K "{ float *p = (float *)malloc(n); p[0] = n; y[0] = p[n]; }\n", WW_COMPILE_REFUSED, "malloc");
	expect_cuda("extern __device__ int away(int);\n" K "{ y[0] = away(n); }\n", WW_COMPILE_FAILED, "away");
	/* What the mathematical functions bring along is no state of a solution's, nor is something larger of that name. */
	expect_cuda(K "{ y[0] = sinf(y[1]) + (float)cos((double)y[2]) + powf(y[3], y[4]); }\n", WW_COMPILE_OK, NULL);
	expect_cuda("__device__ double __cudart_sin_cos_coeffs[1000];\n" K "{ y[0] = __cudart_sin_cos_coeffs[n]++; }\n",
		WW_COMPILE_REFUSED, "__cudart_sin_cos_coeffs");
	/* Tables: the runner keeps them as they are (tests/cheats/40-state). */
	static const char *const tables[] = { "__device__ const float t[4] = { 4, 3, 2, 1 };\n" K "{ y[0] = t[n & 3]; }\n",
		"static const float t[4] = { 4, 3, 2, 1 };\nconstexpr int rows = 3;\n" K "{ y[0] = t[1] + t[3] + rows; }\n",
		K "{ static const float t[4] = { 4, 3, 2, 1 }; y[0] = t[n & 3]; }\n",
		K "{ const float t[4] = { 4, 3, 2, 1 }; y[0] = t[n & 3]; }\n",
		K "{ const char *t = \"text\"; y[0] = t[n & 3]; }\n",
		"__constant__ int t[16384] = { 1 };\n" K "{ y[0] = t[n]; }\n",
		"struct S { static constexpr int t[2] = { 3, 4 }; };\n" K "{ y[0] = S::t[n]; }\n" };
	for (size_t i = 0; i < WW_ARRAY_LEN(tables); i++)
		expect_cuda(tables[i], WW_COMPILE_OK, NULL);
	expect_cuda("__device__ const char t[1 << 21] = { 1 };\n" K "{ y[0] = t[n]; }\n", WW_COMPILE_REFUSED, "1 MiB");
	expect_cuda("__device__ const int t[4] = { 1 }, state[4] = { 0 };\n" K "{ y[0] = t[n & 3] + state[n & 3]; }\n",
		WW_COMPILE_REFUSED, "state");
}

/* Which binaries have tensor-core instructions: every kind of mma and wgmma, none without, and yes where it cannot be
 * known. */
static void cuda_tensor_cores(void **state)
{
	static const struct {
		const char *source;
		int has;
	} rows[] = { { K "{ for (int i = 0; i < n; i++) y[i] = fmaf(y[i], 3, y[i + 1]); }\n", 0 },
		{ K "{ __half2 *h = (__half2 *)y; h[n] = __hfma2(h[0], h[1], h[2]); }\n", 0 },
		{ K "{ unsigned *a = (unsigned *)y; asm volatile(\"mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
			"{%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};\" : \"+f\"(y[0]), \"+f\"(y[1]), \"+f\"(y[2]), \"+f\"(y[3]) : \"r\"(a[n])); }\n",
			1 },
		{ K "{ unsigned *a = (unsigned *)y; asm volatile(\"mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, "
			"{%4, %4, %4, %4}, {%4, %4}, {%0, %1, %2, %3};\" : \"+f\"(y[0]), \"+f\"(y[1]), \"+f\"(y[2]), \"+f\"(y[3]) : \"r\"(a[n])); }\n",
			1 },
		{ K "{ asm volatile(\"wgmma.fence.sync.aligned; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0, %1, %2, %3}, %4, %4, "
			"1, 1, 1, 0, 0; wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;\" : \"+f\"(y[0]), \"+f\"(y[1]), "
			"\"+f\"(y[2]), \"+f\"(y[3]) : \"l\"((unsigned long long)n)); }\n",
			1 } };
	(void)state;
	need_cuda();
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct compiled r = compile(cuda, WW_TARGET_CUDA, rows[i].source, k);
		assert_int_equal(r.result, WW_COMPILE_OK);
		assert_int_equal(ww_cubin_tensor_cores(r.out.binary, r.out.binary_bytes, 90), rows[i].has);
		assert_true(
			ww_cubin_tensor_cores(r.out.binary, r.out.binary_bytes, 100)); /* an encoding that nobody has looked at */
		for (size_t n = 0; n < r.out.binary_bytes;
			n += 97) /* cut anywhere: no crash, and never a false "none" of half a file */
			(void)ww_cubin_tensor_cores(r.out.binary, n, 90);
		assert_true(ww_cubin_tensor_cores(r.out.binary, 40, 90));
		ww_compiled_release(&r.out);
	}
}

static void cuda_bombs(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler_opts o = { .target = WW_TARGET_CUDA, .cc = 90, .max_s = 2 };
	struct ww_compiler *kept = cuda;
	need_cuda();
	assert_int_equal(ww_compiler_open(&cuda, &o, &err), WW_OK);
	struct compiled r = compile(cuda, WW_TARGET_CUDA,
		"template <int N> struct F { enum { v = F<N - 1>::v + F<N - 2>::v * 0 + N }; };\n"
		"template <int A, int B> struct G { enum { v = G<A - 1, B * 2>::v + G<A - 1, B * 2 + 1>::v }; };\n"
		"template <int B> struct G<0, B> { enum { v = B }; };\n"
		"extern \"C\" __global__ void k(float *y) { y[0] = G<24, 1>::v; }\n",
		k);
	if (r.result == WW_COMPILE_OK || r.out.seconds > 6)
		fail_msg("%s after %.1f s", ww_compile_result_text(r.result), r.out.seconds);
	ww_compiled_release(&r.out);
	r = compile(cuda, WW_TARGET_CUDA, "#include \"kernels.cu\"\n", k);
	assert_true(r.result != WW_COMPILE_OK);
	ww_compiled_release(&r.out);
	expect_cuda(K "{ y[n] = 1; }\n", WW_COMPILE_OK, NULL);
	ww_compiler_close(cuda);
	cuda = kept;
}

static void lower_levels(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler_opts o = { .target = WW_TARGET_CPU };
	struct ww_compiler *kept = cpu;
	setenv("WARPWRIGHT_SANDBOX", "landlock", 1);
	assert_int_equal(ww_compiler_open(&cpu, &o, &err), WW_OK);
	if (ww_compiler_level(cpu) == WW_SANDBOX_LANDLOCK) { /* a kernel without Landlock falls to seccomp */
		expect_cpu(good_c, WW_COMPILE_OK, NULL);
		cpu_reads_nothing(state);
		print_message("cpu target at landlock: works\n");
	}
	ww_compiler_close(cpu);
	cpu = kept;
	struct ww_compiler *kept_cuda = cuda;
	o = (struct ww_compiler_opts){ .target = WW_TARGET_CUDA, .cc = 90 };
	if (cuda) {
		assert_int_equal(ww_compiler_open(&cuda, &o, &err), WW_OK);
		cuda_good(state);
		if (ww_compiler_level(cuda) == WW_SANDBOX_LANDLOCK)
			cuda_errors(state);
		ww_compiler_close(cuda);
		cuda = kept_cuda;
	}
	unsetenv("WARPWRIGHT_SANDBOX");
}

static int open_compilers(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	struct ww_compiler_opts o = { .target = WW_TARGET_CPU };
	if (ww_compiler_open(&cpu, &o, &err) != WW_OK) {
		print_error("%s\n", err.msg);
		return -1;
	}
	o = (struct ww_compiler_opts){ .target = WW_TARGET_CUDA, .cc = 90 };
	enum ww_rc rc = ww_compiler_open(&cuda, &o, &err);
	if (rc != WW_OK)
		print_message("no NVRTC here, its tests are skipped: %s\n", err.msg);
	return rc == WW_OK || rc == WW_ERR_MISSING ? 0 : -1;
}

static int close_compilers(void **state)
{
	(void)state;
	ww_compiler_close(cpu);
	ww_compiler_close(cuda);
	return 0;
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(cpu_good), cmocka_unit_test(cpu_errors),
		cmocka_unit_test(cpu_own_names), cmocka_unit_test(cpu_several_kernels), cmocka_unit_test(loader_bound_names),
		cmocka_unit_test(cpu_refusals), cmocka_unit_test(cpu_reads_headers_alone),
		cmocka_unit_test(cpu_code_for_the_linker), cmocka_unit_test(cpu_dynamic_section), cmocka_unit_test(cpu_tables),
		cmocka_unit_test(cpu_reads_nothing), cmocka_unit_test(cpu_bombs),
		cmocka_unit_test(two_instructions_like_a_system_call), cmocka_unit_test(cpu_on_a_busy_machine),
		cmocka_unit_test(cpu_survives_a_killed_zygote), cmocka_unit_test(cpu_interrupted),
		cmocka_unit_test(no_compiler_writes_to_the_terminal), cmocka_unit_test(missing_compiler),
		cmocka_unit_test(lower_levels), cmocka_unit_test(broken_objects), cmocka_unit_test(cuda_good),
		cmocka_unit_test(cuda_errors), cmocka_unit_test(cuda_refusals), cmocka_unit_test(cuda_tensor_cores),
		cmocka_unit_test(cuda_bombs) };
	if (unit_all(argc, argv))
		broken *= 5;
	return cmocka_run_group_tests_name("judge/compiler", tests, open_compilers, close_compilers);
}
