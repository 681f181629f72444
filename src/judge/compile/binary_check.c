/* binary_check.c - see binary_check.h.
 *
 * Cubins are ELF with NVIDIA's sections.  A `__device__` variable without a value lies in .nv.global: state that
 * survives from one call to the next, which no solution may have.  One with a value lies in .nv.global.init, whether it
 * is const or not: a table, a string literal, the compiler's own tables for sinf().  They and __constant__ ones may
 * stay, since the runner puts their values back before each call and refuses what has changed them (plugin_tables.c).
 * What device code calls without defining it (malloc, free, vprintf, cudaLaunchDevice...) is an undefined symbol.
 *
 * A shared object is judged by what the dynamic loader reads: program headers and the dynamic section, not section
 * headers, which may say anything.  Every writable page must be inside PT_GNU_RELRO (read-only after loading, as the
 * object is linked -z now), no thread-local storage, no relocation but the plain ones inside the object's own writable
 * pages, no indirect functions, and imports from a list.  A relocation names an import or nothing: what the object
 * defines itself is bound when it is linked, since the loader would bind it to the first object that has the name (a
 * kernel that defines `malloc` would get libc's).
 *
 * The dynamic section itself may be the solution's: an assembler writes into any section, and the linker puts its own
 * entries behind those.  So only tags are taken that our linker writes for a plain object, each once, and nothing may
 * follow their end.  The tables that they name must lie where nothing is written while the object is loaded, and no
 * relocation may change the dynamic section: what is looked at here is what the loader uses.  It finds symbols by
 * DT_HASH, which our own linker flags ask for; every index in that table must be below the count of symbols, so there
 * is no symbol that is not looked at.
 *
 * System-call instructions are looked for at every offset of what is mapped as code, not at those where instructions
 * begin: a kernel may jump into the middle of one.  So a number in an instruction can look like one; the compile worker
 * then builds again with other options (cc.c).  In 170 objects of honest solutions (760 KB of code) there was none.
 */
#include "judge/compile/binary_check.h"

#include "judge/compile/elf_read.h"

static int starts(const char *s, const char *prefix) { return !strncmp(s, prefix, strlen(prefix)); }

static int refuse(const struct ww_elf *e, const char *what, const char *name)
{
	ww_str_adds(e->why, what);
	ww_str_add_bounded(e->why, name, strlen(name), 200);
	return 0;
}

/* ---- Cubins ------------------------------------------------------------------------------------------------------ */

static const struct {
	const char *name, *what;
} device_calls[] = { { "vprintf", "printf" }, { "malloc", "malloc" }, { "free", "free" }, { "__assertfail", "assert" },
	{ "cudaLaunchDevice", "a launch from the device" }, { "cudaGetParameterBuffer", "a launch from the device" } };

static int cubin_call(const struct ww_elf *e, const Elf64_Sym *y, const char *name, void *ctx)
{
	(void)ctx;
	if (!ww_elf_is_name(y, name) || y->st_shndx != SHN_UNDEF || starts(name, ".nv.reservedSmem"))
		return 1;
	for (size_t i = 0; i < WW_ARRAY_LEN(device_calls); i++)
		if (starts(name, device_calls[i].name))
			return refuse(e, "device code may not use ", device_calls[i].what);
	return refuse(e, "device code calls what it does not define: ", name);
}

static const char no_globals[] =
	"device variables are not allowed (ww_scratch() for state; a table needs a value that is not zero): ";

static int cubin_variable(const struct ww_elf *e, const Elf64_Sym *y, const char *name, void *ctx)
{
	Elf64_Shdr s;
	(void)ctx;
	if (!ww_elf_is_name(y, name) || !ww_elf_section(e, y->st_shndx, &s) ||
		strcmp(ww_elf_section_name(e, &s), ".nv.global"))
		return 1;
	return refuse(e, no_globals, name);
}

/* By the sections, since symbols may be missing. */
static int cubin_sections(const struct ww_elf *e)
{
	Elf64_Shdr s;
	uint64_t tables = 0;
	for (unsigned i = 0; i < e->h->e_shnum; i++) {
		if (!ww_elf_section(e, i, &s))
			return refuse(e, "a cubin with broken section headers", "");
		const char *name = ww_elf_section_name(e, &s);
		if (!starts(name, ".nv.global") || !s.sh_size)
			continue;
		if (strcmp(name, WW_CUBIN_TABLES) || s.sh_size > WW_CUBIN_TABLES_BYTES)
			return refuse(
				e, strcmp(name, WW_CUBIN_TABLES) ? no_globals : "tables of more than 1 MiB in device code: ", name);
		if (tables++)
			return refuse(e, "two sections of tables in device code", "");
	}
	return 1;
}

/* Calls are checked first: the text of a printf is a table too, and the message should name the printf. */
int ww_cubin_check(const void *bytes, size_t n, struct ww_str *why)
{
	struct ww_elf e = { .why = why };
	if (!ww_elf_open(&e, bytes, n, EM_CUDA))
		return refuse(&e, "not a cubin", "");
	return ww_elf_each_symbol(&e, cubin_call, NULL) && ww_elf_each_symbol(&e, cubin_variable, NULL) &&
		cubin_sections(&e);
}

static int is_not_wanted(const struct ww_elf *e, const Elf64_Sym *y, const char *name, void *ctx)
{
	(void)e;
	return !(ELF64_ST_TYPE(y->st_info) == STT_FUNC && y->st_shndx != SHN_UNDEF && !strcmp(name, ctx));
}

int ww_cubin_has(const void *bytes, size_t n, const char *symbol)
{
	ww_auto_str none = WW_STR_INIT(1);
	struct ww_elf e = { .why = &none };
	return ww_elf_open(&e, bytes, n, EM_CUDA) && !ww_elf_each_symbol(&e, is_not_wanted, (void *)(uintptr_t)symbol);
}

/* ---- Shared objects ---------------------------------------------------------------------------------------------- */

/* libm, with what <math.h> has beyond C17, and the four functions that compilers call on their own. */
static const char *const imports[] = { "memcpy", "memmove", "memset", "memcmp", "acos", "acosh", "asin", "asinh",
	"atan", "atan2", "atanh", "cbrt", "ceil", "copysign", "cos", "cosh", "erf", "erfc", "exp", "exp10", "exp2", "expm1",
	"fabs", "fdim", "floor", "fma", "fmax", "fmin", "fmod", "frexp", "hypot", "ilogb", "j0", "j1", "jn", "ldexp",
	"lgamma", "lgamma_r", "lgammaf_r", "llogb", "llrint", "llround", "log", "log10", "log1p", "log2", "logb", "lrint",
	"lround", "modf", "nan", "nearbyint", "nextafter", "nextdown", "nextup", "nexttoward", "pow", "remainder", "remquo",
	"rint", "round", "roundeven", "scalbln", "scalbn", "sin", "sincos", "sinh", "sqrt", "tan", "tanh", "tgamma",
	"trunc", "y0", "y1", "yn" };

static int is_allowed_import(const char *name)
{
	size_t n = strlen(name);
	for (size_t i = 0; i < WW_ARRAY_LEN(imports); i++) {
		size_t k = strlen(imports[i]);
		int suffix = n == k + 1 && (name[k] == 'f' || name[k] == 'l') && i >= 4;
		if (!strncmp(name, imports[i], k) && (n == k || suffix))
			return 1;
	}
	return 0;
}

enum { PAGE = 4096, MAX_PHDRS = 32, MAX_LOADS = 16 };
struct so {
	struct ww_elf e;
	Elf64_Phdr load[MAX_LOADS], relro;
	int n_loads;
	uint64_t dynamic, dynamic_size, dynamic_vaddr;
	uint64_t tag[DT_FLAGS + 1]; /* values of the small tags that were seen */
	int seen[DT_FLAGS + 1], seen_large;
};

/* File offset of a virtual address, for `size` bytes; ~0 where no segment has them that stays as it is. */
static uint64_t offset_of(const struct so *s, uint64_t at, uint64_t size)
{
	for (int i = 0; i < s->n_loads; i++) {
		const Elf64_Phdr *p = &s->load[i];
		if (!(p->p_flags & PF_W) && at >= p->p_vaddr && at - p->p_vaddr <= p->p_filesz &&
			size <= p->p_filesz - (at - p->p_vaddr))
			return p->p_offset + (at - p->p_vaddr);
	}
	return ~0ull;
}

static int so_segment(struct so *s, const Elf64_Phdr *p)
{
	const struct ww_elf *e = &s->e;
	switch (p->p_type) {
	case PT_LOAD:
		if ((p->p_flags & (PF_W | PF_X)) == (PF_W | PF_X))
			return refuse(e, "memory that is writable and executable", "");
		if (s->n_loads == MAX_LOADS || p->p_filesz > p->p_memsz || !ww_elf_span(e, p->p_offset, p->p_filesz) ||
			p->p_vaddr > 1ull << 40 || p->p_memsz > 1ull << 40)
			return refuse(e, "a broken segment", "");
		s->load[s->n_loads++] = *p;
		return 1;
	case PT_DYNAMIC:
		s->dynamic = p->p_offset;
		s->dynamic_size = p->p_filesz;
		s->dynamic_vaddr = p->p_vaddr;
		return 1;
	case PT_GNU_RELRO: s->relro = *p; return 1;
	case PT_TLS: return refuse(e, "thread-local variables are not allowed", "");
	case PT_GNU_STACK: return p->p_flags & PF_X ? refuse(e, "an executable stack is not allowed", "") : 1;
	case PT_NOTE:
	case PT_GNU_EH_FRAME:
	case PT_NULL:
	case PT_PHDR:
	case PT_GNU_PROPERTY: return 1;
	}
	return refuse(e, "an unknown kind of segment", "");
}

static int so_segments(struct so *s)
{
	Elf64_Phdr p;
	const Elf64_Ehdr *h = s->e.h;
	if (h->e_type != ET_DYN || h->e_phentsize != sizeof(p) || h->e_phnum > MAX_PHDRS)
		return refuse(&s->e, "not a shared object", "");
	for (unsigned i = 0; i < h->e_phnum; i++) {
		if (!ww_elf_record(&s->e, h->e_phoff, i, sizeof(p), &p))
			return refuse(&s->e, "broken program headers", "");
		if (!so_segment(s, &p))
			return 0;
	}
	return s->dynamic_size ? 1 : refuse(&s->e, "no dynamic section", "");
}

/* Names of variables in writable memory, as the symbol table has them; for the message only. */
static int name_variable(const struct ww_elf *e, const Elf64_Sym *y, const char *name, void *ctx)
{
	const Elf64_Phdr *w = ctx;
	if (ELF64_ST_TYPE(y->st_info) == STT_OBJECT && y->st_value >= w->p_vaddr && y->st_value - w->p_vaddr < w->p_memsz &&
		name[0] != '_') {
		ww_str_addc(e->why, ' ');
		ww_str_add_bounded(e->why, name, strlen(name), 100);
		return e->why->len < 400;
	}
	return 1;
}

static int so_read_only(struct so *s)
{
	/* The loader protects whole pages: its start rounded down, its end rounded down. */
	uint64_t from = s->relro.p_vaddr & ~(uint64_t)(PAGE - 1),
			 to = (s->relro.p_vaddr + s->relro.p_memsz) & ~(uint64_t)(PAGE - 1);
	for (int i = 0; i < s->n_loads; i++) {
		Elf64_Phdr *p = &s->load[i];
		if (!(p->p_flags & PF_W) || (p->p_vaddr >= from && p->p_vaddr + p->p_memsz <= to))
			continue;
		ww_str_adds(s->e.why, "variables that are not const are not allowed (use ww_scratch() for state):");
		(void)ww_elf_each_symbol(&s->e, name_variable, p);
		return 0;
	}
	return 1;
}

/* Refused by name.  Those of the second table are what our linker writes for a plain object. */
static const struct {
	int64_t tag;
	const char *what;
} bad_tags[] = { { DT_INIT, "a function that runs at loading" }, { DT_FINI, "a function that runs at unloading" },
	{ DT_INIT_ARRAY, "a constructor" }, { DT_FINI_ARRAY, "a destructor" }, { DT_PREINIT_ARRAY, "a constructor" },
	{ DT_TEXTREL, "relocations in code" }, { DT_RPATH, "a library search path" },
	{ DT_RUNPATH, "a library search path" }, { DT_REL, "relocations of an unusual kind" },
	{ DT_RELR, "relocations of an unusual kind" } };
static const int64_t small_tags[] = { DT_NEEDED, DT_PLTRELSZ, DT_PLTGOT, DT_HASH, DT_STRTAB, DT_SYMTAB, DT_RELA,
	DT_RELASZ, DT_RELAENT, DT_STRSZ, DT_SYMENT, DT_SYMBOLIC, DT_PLTREL, DT_JMPREL, DT_BIND_NOW, DT_FLAGS };
static const int64_t large_tags[] = { DT_FLAGS_1, DT_VERNEED, DT_VERNEEDNUM, DT_VERSYM, DT_RELACOUNT };

/* Sizes of records and kinds that the loader takes for granted. */
static int is_plain_value(const Elf64_Dyn *d)
{
	switch (d->d_tag) {
	case DT_SYMENT: return d->d_un.d_val == sizeof(Elf64_Sym);
	case DT_RELAENT: return d->d_un.d_val == sizeof(Elf64_Rela);
	case DT_PLTREL: return d->d_un.d_val == DT_RELA;
	case DT_RELASZ:
	case DT_PLTRELSZ: return d->d_un.d_val % sizeof(Elf64_Rela) == 0;
	case DT_FLAGS: return !(d->d_un.d_val & ~(uint64_t)(DF_SYMBOLIC | DF_BIND_NOW));
	case DT_FLAGS_1: return d->d_un.d_val == DF_1_NOW;
	}
	return 1;
}

static int so_tag(struct so *s, const Elf64_Dyn *d)
{
	int known = 0;
	for (size_t i = 0; i < WW_ARRAY_LEN(bad_tags); i++)
		if (d->d_tag == bad_tags[i].tag)
			return refuse(&s->e, "not allowed: ", bad_tags[i].what);
	if (d->d_tag == DT_FLAGS && (d->d_un.d_val & (DF_TEXTREL | DF_STATIC_TLS)))
		return refuse(&s->e, "relocations in code, or thread-local variables", "");
	for (size_t i = 0; i < WW_ARRAY_LEN(small_tags); i++)
		if (d->d_tag == small_tags[i]) {
			known = d->d_tag == DT_NEEDED || !s->seen[d->d_tag]++;
			s->tag[d->d_tag] = d->d_un.d_val;
		}
	for (int i = 0; i < (int)WW_ARRAY_LEN(large_tags); i++)
		if (d->d_tag == large_tags[i]) {
			known = !(s->seen_large & 1 << i);
			s->seen_large |= 1 << i;
		}
	return (known && is_plain_value(d)) || refuse(&s->e, "a dynamic section that the linker does not write", "");
}

static const char *so_text(const struct so *s, uint64_t at)
{
	uint64_t table = offset_of(s, s->tag[DT_STRTAB], s->tag[DT_STRSZ]);
	return table == ~0ull ? "" : ww_elf_text(&s->e, table, s->tag[DT_STRSZ], at);
}

/* First pass: tags; second, when the strings are known: the libraries it needs. */
static int so_dynamic(struct so *s)
{
	Elf64_Dyn d;
	for (int pass = 0; pass < 2; pass++)
		for (uint64_t i = 0, end = 0; i < s->dynamic_size / sizeof(d); i++) {
			if (!ww_elf_record(&s->e, s->dynamic, i, sizeof(d), &d))
				return refuse(&s->e, "a broken dynamic section", "");
			if (end && (d.d_tag || d.d_un.d_val))
				return refuse(&s->e, "a dynamic section that the linker does not write", "");
			if ((end |= d.d_tag == DT_NULL))
				continue;
			if (pass == 0 && !so_tag(s, &d))
				return 0;
			const char *lib = pass == 1 && d.d_tag == DT_NEEDED ? so_text(s, d.d_un.d_val) : NULL;
			if (lib && strcmp(lib, "libm.so.6") && strcmp(lib, "libc.so.6"))
				return refuse(&s->e, "it needs the library ", lib);
		}
	return 1;
}

static int so_symbol(const struct so *s, uint64_t i, Elf64_Sym *y)
{
	uint64_t at = i < s->e.n ? offset_of(s, s->tag[DT_SYMTAB], (i + 1) * sizeof(*y)) : ~0ull;
	return at != ~0ull && ww_elf_record(&s->e, at, i, sizeof(*y), y);
}

/* DT_HASH: buckets, symbols, then as many words as both together, each the index of a symbol.  0: it is broken. */
static uint64_t so_symbol_count(const struct so *s)
{
	uint32_t head[2], index;
	uint64_t at = offset_of(s, s->tag[DT_HASH], sizeof(head));
	if (!s->tag[DT_HASH] || at == ~0ull || !ww_elf_record(&s->e, at, 0, sizeof(head), head) || !head[0])
		return 0;
	uint64_t words = (uint64_t)head[0] + head[1] + WW_ARRAY_LEN(head);
	if (offset_of(s, s->tag[DT_HASH], words * sizeof(index)) == ~0ull)
		return 0;
	for (uint64_t i = WW_ARRAY_LEN(head); i < words; i++)
		if (!ww_elf_record(&s->e, at, i, sizeof(index), &index) || index >= head[1])
			return 0;
	return head[1];
}

static int so_symbols(struct so *s)
{
	Elf64_Sym y;
	uint64_t n = so_symbol_count(s);
	if (!n)
		return refuse(&s->e, "no symbol table", "");
	for (uint64_t i = 1; i < n; i++) {
		if (!so_symbol(s, i, &y))
			return refuse(&s->e, "a broken symbol table", "");
		const char *name = so_text(s, y.st_name);
		int type = ELF64_ST_TYPE(y.st_info);
		if (type > STT_FILE || ELF64_ST_BIND(y.st_info) > STB_WEAK)
			return refuse(&s->e, "an indirect function or thread-local variable: ", name);
		if (y.st_shndx == SHN_UNDEF && !is_allowed_import(name))
			return refuse(&s->e, "it calls what kernels may not call: ", name);
	}
	return 1;
}

static int is_writable(const struct so *s, uint64_t at)
{
	for (int i = 0; i < s->n_loads; i++)
		if ((s->load[i].p_flags & PF_W) && at >= s->load[i].p_vaddr && s->load[i].p_memsz >= 8 &&
			at - s->load[i].p_vaddr <= s->load[i].p_memsz - 8)
			return 1;
	return 0;
}

/* Of the eight bytes at `at` some are the dynamic section's. */
static int is_dynamic(const struct so *s, uint64_t at)
{
	return at + 8 > s->dynamic_vaddr && at < s->dynamic_vaddr + s->dynamic_size;
}

static int so_relocations(struct so *s, uint64_t table, uint64_t size)
{
	Elf64_Rela r;
	Elf64_Sym y = { .st_shndx = SHN_UNDEF };
	uint64_t at = offset_of(s, table, size), n = so_symbol_count(s);
	if (!size)
		return 1;
	if (at == ~0ull)
		return refuse(&s->e, "broken relocations", "");
	for (uint64_t i = 0; i < size / sizeof(r); i++) {
		if (!ww_elf_record(&s->e, at, i, sizeof(r), &r) || !is_writable(s, r.r_offset) || is_dynamic(s, r.r_offset) ||
			ELF64_R_SYM(r.r_info) >= n)
			return refuse(&s->e, "a relocation outside of the object's data", "");
		if (ELF64_R_SYM(r.r_info) && (!so_symbol(s, ELF64_R_SYM(r.r_info), &y) || y.st_shndx != SHN_UNDEF))
			return refuse(&s->e, "a name that the loader may bind to another object: ", so_text(s, y.st_name));
		switch (ELF64_R_TYPE(r.r_info)) {
		case R_X86_64_RELATIVE:
		case R_X86_64_GLOB_DAT:
		case R_X86_64_JUMP_SLOT:
		case R_X86_64_64: continue;
		}
		return refuse(&s->e, "a relocation that runs code or makes writable memory", "");
	}
	return 1;
}

/* ---- System calls ------------------------------------------------------------------------------------------------ */

static int is_system_call(const unsigned char *p)
{
	static const unsigned char calls[][2] = { { 0x0f, 0x05 }, { 0x0f, 0x34 },
		{ 0xcd, 0x80 } }; /* syscall, sysenter, int 0x80 */
	for (size_t i = 0; i < WW_ARRAY_LEN(calls); i++)
		if (!memcmp(p, calls[i], 2))
			return 1;
	return 0;
}

/* File offset of the first one in the pages that are mapped as code; ~0 where there is none. */
static uint64_t find_system_call(const struct so *s)
{
	for (int i = 0; i < s->n_loads; i++) {
		const Elf64_Phdr *p = &s->load[i];
		uint64_t at = p->p_offset & ~(uint64_t)(PAGE - 1),
				 end = (p->p_offset + p->p_filesz + PAGE - 1) & ~(uint64_t)(PAGE - 1);
		for (end = end < s->e.n ? end : s->e.n; (p->p_flags & PF_X) && at + 2 <= end; at++)
			if (is_system_call(s->e.p + at))
				return at;
	}
	return ~0ull;
}

static int so_no_system_call(struct so *s)
{
	uint64_t at = find_system_call(s);
	if (at == ~0ull)
		return 1;
	ww_str_addf(s->e.why, "system calls are not allowed: the bytes %02x %02x at 0x%llx", s->e.p[at], s->e.p[at + 1],
		(unsigned long long)at);
	return refuse(&s->e,
		" (part of a number, as of 1295 = 0x50f? read it from a static const array through a volatile pointer)", "");
}

int ww_so_has_system_call(const void *bytes, size_t n)
{
	ww_auto_str none = WW_STR_INIT(1);
	struct so s = { .e = { .why = &none } };
	return ww_elf_open(&s.e, bytes, n, EM_X86_64) && so_segments(&s) && find_system_call(&s) != ~0ull;
}

int ww_so_check(const void *bytes, size_t n, struct ww_str *why)
{
	struct so s = { .e = { .why = why } };
	if (!ww_elf_open(&s.e, bytes, n, EM_X86_64))
		return refuse(&s.e, "not an ELF object for x86-64", "");
	return so_segments(&s) && so_read_only(&s) && so_dynamic(&s) && so_symbols(&s) &&
		so_relocations(&s, s.tag[DT_RELA], s.tag[DT_RELASZ]) &&
		so_relocations(&s, s.tag[DT_JMPREL], s.tag[DT_PLTRELSZ]) && so_no_system_call(&s);
}

int ww_so_has(const void *bytes, size_t n, const char *symbol)
{
	ww_auto_str none = WW_STR_INIT(1);
	struct so s = { .e = { .why = &none } };
	Elf64_Sym y;
	int has = 0;
	if (ww_elf_open(&s.e, bytes, n, EM_X86_64) && so_segments(&s) && so_dynamic(&s))
		for (uint64_t i = 1, n_symbols = so_symbol_count(&s); !has && i < n_symbols && so_symbol(&s, i, &y); i++)
			has = ELF64_ST_TYPE(y.st_info) == STT_FUNC && y.st_shndx != SHN_UNDEF &&
				!strcmp(so_text(&s, y.st_name), symbol);
	return has;
}
