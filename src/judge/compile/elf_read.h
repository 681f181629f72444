/* elf_read.h - sections and symbols of hostile ELF files: every offset is checked.
 *
 * For the judge (binary_check.c) and for the cuda plug-in (plugin_tables.c), which links to nothing of ours. */
#pragma once

#include <elf.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifndef EM_CUDA
#define EM_CUDA 190
#endif

/* Where a cubin has what device code declares with a value: in device memory, and as __constant__. */
#define WW_CUBIN_TABLES    ".nv.global.init"
#define WW_CUBIN_CONSTANTS ".nv.constant3"
enum { WW_CUBIN_TABLES_BYTES = 1 << 20 };

struct ww_str;
struct ww_elf {
	const unsigned char *p;
	size_t n;
	const Elf64_Ehdr *h;
	Elf64_Ehdr head;
	struct ww_str *why; /* binary_check.c: what was found */
};

/* [at, at + size) of the file, or NULL. */
static inline const void *ww_elf_span(const struct ww_elf *e, uint64_t at, uint64_t size)
{
	return at <= e->n && size <= e->n - at ? e->p + at : NULL;
}

/* Element i of a table of `size`-byte records at `at`, copied out because nothing promises alignment. */
static inline int ww_elf_record(const struct ww_elf *e, uint64_t at, uint64_t i, size_t size, void *out)
{
	if (i > e->n / size || at > e->n)
		return 0;
	const void *p = ww_elf_span(e, at + i * size, size);
	if (p)
		memcpy(out, p, size);
	return p != NULL;
}

/* The NUL-terminated text at offset `at` of a string table, "" where there is none. */
static inline const char *ww_elf_text(const struct ww_elf *e, uint64_t table, uint64_t size, uint64_t at)
{
	const char *s = at < size ? ww_elf_span(e, table, size) : NULL;
	return s && memchr(s + at, 0, (size_t)(size - at)) ? s + at : "";
}

static inline int ww_elf_open(struct ww_elf *e, const void *bytes, size_t n, unsigned machine)
{
	e->p = bytes, e->n = n, e->h = &e->head;
	if (n < sizeof(e->head))
		return 0;
	memcpy(&e->head, bytes, sizeof(e->head));
	return !memcmp(e->head.e_ident, ELFMAG, SELFMAG) && e->head.e_ident[EI_CLASS] == ELFCLASS64 &&
		e->head.e_ident[EI_DATA] == ELFDATA2LSB && e->head.e_machine == machine;
}

static inline int ww_elf_section(const struct ww_elf *e, unsigned i, Elf64_Shdr *s)
{
	return e->h->e_shentsize == sizeof(*s) && i < e->h->e_shnum && ww_elf_record(e, e->h->e_shoff, i, sizeof(*s), s);
}

static inline const char *ww_elf_section_name(const struct ww_elf *e, const Elf64_Shdr *s)
{
	Elf64_Shdr names;
	return ww_elf_section(e, e->h->e_shstrndx, &names) ? ww_elf_text(e, names.sh_offset, names.sh_size, s->sh_name)
													   : "";
}

/* Call f for every symbol of every symbol table; stops where it returns 0. */
static inline int ww_elf_each_symbol(const struct ww_elf *e,
	int (*f)(const struct ww_elf *e, const Elf64_Sym *y, const char *name, void *ctx), void *ctx)
{
	Elf64_Shdr s, names;
	Elf64_Sym y;
	for (unsigned i = 0; ww_elf_section(e, i, &s); i++) {
		if (s.sh_type != SHT_SYMTAB || !ww_elf_section(e, s.sh_link, &names))
			continue;
		for (uint64_t k = 0; k < s.sh_size / sizeof(y) && ww_elf_record(e, s.sh_offset, k, sizeof(y), &y); k++)
			if (!f(e, &y, ww_elf_text(e, names.sh_offset, names.sh_size, y.st_name), ctx))
				return 0;
	}
	return 1;
}

static inline int ww_elf_is_name(const Elf64_Sym *y, const char *name)
{
	int type = ELF64_ST_TYPE(y->st_info);
	return name[0] && type != STT_SECTION && type != STT_FILE;
}
