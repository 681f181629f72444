/* plugin_tables.c - what device code declares with a value: __constant__ variables, const tables, string literals.
 *
 * They lie in device memory that is writable to whoever has their address, const or not, and a kernel may cast.  So
 * none of them is taken for constant.  Their values are fetched when the module has been loaded and nothing of it has
 * run; they are written again before every call, with the poison, so that nothing is carried from one call to the next;
 * and they are checked after a compared call, so that a solution that changes one is refused.  (An exported plan
 * restores nothing, and does not have to.)  The copies are in pageable memory of the host, which device code does not
 * reach.
 *
 * The driver lays each variable out by itself, 256 bytes apart, whatever the section of the file looks like, and copies
 * one at a time.  So each is looked up by its name; one that is not found cannot be restored, and the solution is
 * refused.  What lies between two variables is not looked at: it holds nothing that a call needs, and a call that finds
 * a count there does not learn which calls are compared.
 *
 * Rejected: mapping them read-only as inputs are (their memory is the driver's), trusting const (the binary does not
 * have it), loading the module anew before each call (the graph names its functions). */
#include "judge/run/plugin_parts.h"

#include "judge/compile/elf_read.h"

#include <stdio.h>
#include <stdlib.h>

/* The compiler's own tables for sinf(), sin() and cos(), which it may keep without a name that the driver finds. */
static const struct {
	const char *name;
	uint64_t bytes;
} library_tables[] = { { "__cudart_i2opi_f", 24 }, { "__cudart_i2opi_d", 144 }, { "__cudart_sin_cos_coeffs", 128 } };

struct search {
	struct ww_cuda *x;
	CUmodule module;
	unsigned section;
	int constant, kind; /* enum ww_run_kind; not OK ends the search */
	const char *lost;   /* a variable that the driver does not find and the compiler did not make */
	CUresult failed;
};

static int is_the_compilers(const Elf64_Sym *y, const char *name)
{
	for (size_t i = 0; i < sizeof(library_tables) / sizeof(library_tables[0]); i++)
		if (!strcmp(name, library_tables[i].name) && y->st_size == library_tables[i].bytes)
			return 1;
	return 0;
}

static int add_table(struct search *s, CUdeviceptr at, size_t bytes)
{
	struct ww_cuda *x = s->x;
	struct ww_cuda_table t = { at, bytes, malloc(bytes), s->constant };
	struct ww_cuda_table *more = t.initial ? realloc(x->tables, ((size_t)x->n_tables + 1) * sizeof(*more)) : NULL;
	if (more) {
		x->tables = more;
		s->failed = x->cuMemcpyDtoH(t.initial, at, bytes);
	}
	if (!more || s->failed != CUDA_SUCCESS) {
		free(t.initial);
		s->kind = more ? WW_RUN_BROKEN : WW_RUN_NOMEM;
		return 0;
	}
	x->tables[x->n_tables++] = t;
	return 1;
}

static int look_up(const struct ww_elf *e, const Elf64_Sym *y, const char *name, void *ctx)
{
	struct search *s = ctx;
	CUdeviceptr at = 0;
	size_t bytes = 0;
	(void)e;
	if (!ww_elf_is_name(y, name) || y->st_shndx != s->section)
		return 1;
	if (s->x->cuModuleGetGlobal(&at, &bytes, s->module, name) != CUDA_SUCCESS) {
		s->lost = is_the_compilers(y, name) ? s->lost : name;
		return 1;
	}
	return !bytes || add_table(s, at, bytes);
}

static int load_section(struct ww_cuda *x, const struct ww_elf *e, const char *name, struct ww_run_reply *r)
{
	struct search s = { .x = x, .module = ww_exec_module(x->exec), .constant = name[4] == 'c', .kind = WW_RUN_OK };
	Elf64_Shdr h;
	while (ww_elf_section(e, s.section, &h) && strcmp(ww_elf_section_name(e, &h), name))
		s.section++;
	if (!ww_elf_section(e, s.section, &h) || !h.sh_size)
		return WW_RUN_OK;
	ww_elf_each_symbol(e, look_up, &s);
	if (s.failed != CUDA_SUCCESS)
		return ww_cuda_failed(x, r, s.kind, "the tables of the device code", s.failed);
	if (s.kind == WW_RUN_OK && (s.lost || h.sh_size > WW_CUBIN_TABLES_BYTES)) {
		snprintf(r->text, sizeof(r->text), "the table %.200s of the device code (%s) is not found on this device",
			s.lost ? s.lost : "", name);
		return WW_RUN_REFUSED;
	}
	return s.kind;
}

int ww_cuda_tables_load(struct ww_cuda *x, const void *binary, size_t bytes, struct ww_run_reply *r)
{
	struct ww_elf e = { .p = NULL };
	if (!ww_exec_module(x->exec) || !ww_elf_open(&e, binary, bytes, EM_CUDA))
		return WW_RUN_OK; /* nothing was loaded from it */
	int kind = load_section(x, &e, WW_CUBIN_TABLES, r);
	return kind == WW_RUN_OK ? load_section(x, &e, WW_CUBIN_CONSTANTS, r) : kind;
}

CUresult ww_cuda_tables_restore(struct ww_cuda *x)
{
	CUresult e = CUDA_SUCCESS;
	for (int i = 0; i < x->n_tables && e == CUDA_SUCCESS; i++)
		e = x->cuMemcpyHtoDAsync(x->tables[i].at, x->tables[i].initial, x->tables[i].bytes, x->stream);
	return e;
}

static int is_changed(struct ww_cuda *x, const struct ww_cuda_table *t, CUresult *e)
{
	unsigned char *now = malloc(t->bytes);
	*e = now ? x->cuMemcpyDtoH(now, t->at, t->bytes) : CUDA_ERROR_OUT_OF_MEMORY;
	int changed = *e == CUDA_SUCCESS && memcmp(now, t->initial, t->bytes) != 0;
	free(now);
	return changed;
}

int ww_cuda_tables_check(struct ww_cuda *x, struct ww_run_reply *r)
{
	CUresult e = CUDA_SUCCESS;
	for (int i = 0; i < x->n_tables; i++) {
		if (is_changed(x, &x->tables[i], &e)) {
			snprintf(r->text, sizeof(r->text),
				"device code has changed a %s, which is read-only (ww_scratch() for state)",
				x->tables[i].constant ? "__constant__ variable" : "device variable");
			return WW_RUN_REFUSED;
		}
		if (e != CUDA_SUCCESS)
			return ww_cuda_fault(x, r, e);
	}
	return WW_RUN_OK;
}

void ww_cuda_tables_free(struct ww_cuda *x)
{
	for (int i = 0; i < x->n_tables; i++)
		free(x->tables[i].initial);
	free(x->tables);
	x->tables = NULL;
	x->n_tables = 0;
}
