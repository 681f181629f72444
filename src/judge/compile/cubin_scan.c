/* cubin_scan.c - see cubin_scan.h.
 *
 * A cubin is ELF; the code of each kernel is a section .text.NAME of 16-byte instructions on every architecture
 * from 7.0 on.  The low nine bits of an instruction are its operation, the three above them the form of its operands.
 * The operations of the tensor cores below were found by compiling one kernel for each matrix instruction of PTX (mma
 * and wgmma, every type) for 8.0, 8.9 and 9.0 and looking at what no other kernel had.  What cannot be read is taken to
 * have them: the caller draws a conclusion from their absence only. */
#include "judge/compile/cubin_scan.h"

#include "base/err.h"

#include <elf.h>
#include <stdint.h>
#include <string.h>

enum { INSTRUCTION_BYTES = 16 };

static int is_matrix(unsigned operation)
{
	static const uint16_t matrix[] = { 0x037, 0x03c, 0x03d, 0x03e, 0x03f, 0x07a, 0x1f0, 0x1f1, 0x1f2, 0x1f3 };
	for (size_t i = 0; i < WW_ARRAY_LEN(matrix); i++)
		if (operation == matrix[i])
			return 1;
	return 0;
}

static int section_has(const unsigned char *p, uint64_t n)
{
	for (uint64_t i = 0; i + INSTRUCTION_BYTES <= n; i += INSTRUCTION_BYTES)
		if (is_matrix((p[i] | (unsigned)p[i + 1] << 8) & 0x1ff))
			return 1;
	return 0;
}

int ww_cubin_tensor_cores(const void *bytes, size_t n, int cc)
{
	const unsigned char *p = bytes;
	Elf64_Ehdr h;
	Elf64_Shdr s;
	int code = 0;

	if (cc < 80 || cc > 90 || n < sizeof(h))
		return 1;
	memcpy(&h, p, sizeof(h));
	if (memcmp(h.e_ident, ELFMAG, SELFMAG) || h.e_shentsize != sizeof(s) || h.e_shoff > n ||
		h.e_shnum > (n - h.e_shoff) / sizeof(s))
		return 1;
	for (unsigned i = 0; i < h.e_shnum; i++) {
		memcpy(&s, p + h.e_shoff + i * sizeof(s), sizeof(s));
		if (s.sh_type != SHT_PROGBITS || !(s.sh_flags & SHF_EXECINSTR))
			continue;
		if (s.sh_offset > n || s.sh_size > n - s.sh_offset || section_has(p + s.sh_offset, s.sh_size))
			return 1;
		code = 1;
	}
	return !code;
}
