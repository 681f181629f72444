/* plugin_tables.c - what device code declares with a value: __constant__ variables, const tables, string literals.
 *
 * They lie in device memory that is writable to whoever has their address, const or not, and a kernel may cast.  So
 * none of it is taken for constant.  Their values are fetched when the module has been loaded and nothing of it has
 * run; they are written again before every call, with the poison, so that nothing is carried from one call to the next;
 * and behind a compared call they are looked at, so that a solution that changes one is refused.  (An exported plan
 * restores nothing, and does not have to.)  The copies are in pageable memory of the host, which device code does not
 * reach.
 *
 * A section is one piece of device memory.  Where it lies is told by any of its symbols, which the driver finds by
 * name; every symbol that it finds must agree.
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
	CUdeviceptr base;
	int found, foreign, split; /* symbols; those not found that are not the compiler's; two that disagree */
};

static int is_the_compilers(const Elf64_Sym *y, const char *name)
{
	for (size_t i = 0; i < sizeof(library_tables) / sizeof(library_tables[0]); i++)
		if (!strcmp(name, library_tables[i].name) && y->st_size == library_tables[i].bytes)
			return 1;
	return 0;
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
		s->foreign += !is_the_compilers(y, name);
		return 1;
	}
	s->split |= s->found && at - y->st_value != s->base;
	s->base = at - y->st_value;
	s->found++;
	return 1;
}

static int load_section(
	struct ww_cuda *x, const struct ww_elf *e, const char *name, struct ww_cuda_table *t, struct ww_run_reply *r)
{
	struct search s = { .x = x, .module = ww_exec_module(x->exec) };
	Elf64_Shdr h;
	int kind = WW_RUN_OK;
	while (ww_elf_section(e, s.section, &h) && strcmp(ww_elf_section_name(e, &h), name))
		s.section++;
	if (!ww_elf_section(e, s.section, &h) || !h.sh_size)
		return WW_RUN_OK;
	ww_elf_each_symbol(e, look_up, &s);
	if (s.split || (!s.found && s.foreign) || h.sh_size > WW_CUBIN_TABLES_BYTES) {
		snprintf(r->text, sizeof(r->text), "the tables of the device code (%s) are not found on this device", name);
		return WW_RUN_REFUSED;
	}
	if (!s.found)
		return WW_RUN_OK;
	t->initial = malloc(h.sh_size);
	if (!t->initial)
		return WW_RUN_NOMEM;
	WW_CUDA_TRY(x->cuMemcpyDtoH(t->initial, s.base, h.sh_size), "the tables of the device code");
	t->at = s.base;
	t->bytes = h.sh_size;
out:
	return kind;
}

int ww_cuda_tables_load(struct ww_cuda *x, const void *binary, size_t bytes, struct ww_run_reply *r)
{
	struct ww_elf e = { .p = NULL };
	if (!ww_exec_module(x->exec) || !ww_elf_open(&e, binary, bytes, EM_CUDA))
		return WW_RUN_OK; /* nothing was loaded from it */
	int kind = load_section(x, &e, WW_CUBIN_TABLES, &x->tables[0], r);
	return kind == WW_RUN_OK ? load_section(x, &e, WW_CUBIN_CONSTANTS, &x->tables[1], r) : kind;
}

CUresult ww_cuda_tables_restore(struct ww_cuda *x)
{
	CUresult e = CUDA_SUCCESS;
	for (int i = 0; i < 2 && e == CUDA_SUCCESS; i++)
		if (x->tables[i].at)
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
	for (int i = 0; i < 2; i++) {
		if (!x->tables[i].at)
			continue;
		if (is_changed(x, &x->tables[i], &e)) {
			snprintf(r->text, sizeof(r->text),
				"device code has changed a %s, which is read-only (ww_scratch() for state)",
				i ? "__constant__ variable" : "device variable");
			return WW_RUN_REFUSED;
		}
		if (e != CUDA_SUCCESS)
			return ww_cuda_fault(x, r, e);
	}
	return WW_RUN_OK;
}

void ww_cuda_tables_free(struct ww_cuda *x)
{
	for (int i = 0; i < 2; i++) {
		free(x->tables[i].initial);
		x->tables[i] = (struct ww_cuda_table){ 0 };
	}
}
