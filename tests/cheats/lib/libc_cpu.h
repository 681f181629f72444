/* Functions of the C library that are not to be imported, found by its own table of symbols.  The loader has put
 * addresses in place of offsets there. */
#include <elf.h>
void *memcpy(void *, const void *, unsigned long);
static inline void *libc_function(const char *wanted)
{
	const char *base = (const char *)((unsigned long)(void *)memcpy & ~4095ul), *names = 0;
	while (base[0] != 0x7f || base[1] != 'E' || base[2] != 'L' || base[3] != 'F')
		base -= 4096;
	const Elf64_Ehdr *e = (const void *)base;
	const Elf64_Phdr *p = (const void *)(base + e->e_phoff);
	const Elf64_Sym *symbols = 0;
	for (int i = 0; i < e->e_phnum; i++)
		for (const Elf64_Dyn *d = (const void *)(base + p[i].p_vaddr); p[i].p_type == PT_DYNAMIC && d->d_tag; d++) {
			symbols = d->d_tag == DT_SYMTAB ? (const void *)d->d_un.d_ptr : symbols;
			names = d->d_tag == DT_STRTAB ? (const void *)d->d_un.d_ptr : names;
		}
	for (const Elf64_Sym *y = symbols; (const char *)y < names; y++) {
		const char *a = names + y->st_name, *w = wanted;
		while (*w && *a == *w)
			a++, w++;
		if (*a == *w && y->st_value)
			return (void *)(base + y->st_value);
	}
	return 0;
}
