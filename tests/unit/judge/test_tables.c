/* The tables of device code in the cuda plug-in (plugin_tables.c), with a driver that is host memory: which sections
 * are found, that their values come back, and that a change is noticed. budget: 1 CPU-second */
#include "unit.h"

#if __has_include(<cuda.h>)
#include "judge/compile/elf_read.h"
#include "judge/run/plugin_parts.h"

enum { TABLES = 1, CONSTANTS, SYMBOLS, STRINGS, SECTIONS };
/* A cubin with two sections of values and one symbol or two in each. */
static struct cubin {
	Elf64_Ehdr h;
	Elf64_Shdr s[SECTIONS];
	unsigned char tables[64], constants[16];
	Elf64_Sym y[4];
	char strings[128];
} cubin;

/* What the driver has made of it. */
static unsigned char device_tables[64], device_constants[16];
static struct {
	const char *name;
	unsigned char *at;
	size_t bytes;
} visible[4];

void *ww_exec_module(const struct ww_exec *e) { return (void *)(uintptr_t)e; }

int ww_cuda_failed(struct ww_cuda *x, struct ww_run_reply *r, int kind, const char *what, CUresult e)
{
	(void)x, (void)r, (void)what, (void)e;
	return kind;
}

int ww_cuda_fault(struct ww_cuda *x, struct ww_run_reply *r, CUresult e)
{
	return ww_cuda_failed(x, r, WW_RUN_FAULT, "", e);
}

static CUresult get_global(CUdeviceptr *at, size_t *bytes, CUmodule m, const char *name)
{
	(void)m;
	for (size_t i = 0; i < WW_ARRAY_LEN(visible); i++)
		if (visible[i].name && !strcmp(visible[i].name, name)) {
			*at = (CUdeviceptr)(uintptr_t)visible[i].at;
			*bytes = visible[i].bytes;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_NOT_FOUND;
}

/* A driver copies within one variable only. */
static int is_one(CUdeviceptr at, size_t n)
{
	for (size_t i = 0; i < WW_ARRAY_LEN(visible); i++)
		if (at >= (CUdeviceptr)(uintptr_t)visible[i].at &&
			at + n <= (CUdeviceptr)(uintptr_t)visible[i].at + visible[i].bytes)
			return 1;
	return 0;
}

static CUresult to_host(void *to, CUdeviceptr from, size_t n)
{
	if (!is_one(from, n))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(to, (void *)(uintptr_t)from, n);
	return CUDA_SUCCESS;
}

static CUresult to_device(CUdeviceptr to, const void *from, size_t n, CUstream s)
{
	(void)s;
	if (!is_one(to, n))
		return CUDA_ERROR_INVALID_VALUE;
	memcpy((void *)(uintptr_t)to, from, n);
	return CUDA_SUCCESS;
}

static unsigned name_at(const char *name)
{
	for (size_t i = 0; i < sizeof(cubin.strings); i++)
		if (!strcmp(cubin.strings + i, name))
			return (unsigned)i;
	return 0;
}

static void set_section(int i, const char *name, void *at, size_t bytes, unsigned type)
{
	cubin.s[i] = (Elf64_Shdr){ .sh_name = name_at(name),
		.sh_type = type,
		.sh_offset = (size_t)((char *)at - (char *)&cubin),
		.sh_size = bytes,
		.sh_link = STRINGS };
}

static void set_symbol(int i, const char *name, unsigned section, uint64_t at, uint64_t bytes)
{
	cubin.y[i] = (Elf64_Sym){ .st_name = name_at(name),
		.st_info = ELF64_ST_INFO(STB_LOCAL, STT_OBJECT),
		.st_shndx = (uint16_t)section,
		.st_value = at,
		.st_size = bytes };
}

static int set_up(void **state)
{
	static const char strings[] =
		"\0.nv.global.init\0.nv.constant3\0.symtab\0.strtab\0first\0second\0fixed\0__cudart_i2opi_f";
	(void)state;
	memset(&cubin, 0, sizeof(cubin));
	memset(visible, 0, sizeof(visible));
	memcpy(cubin.strings, strings, sizeof(strings));
	cubin.h = (Elf64_Ehdr){ .e_ident = { 0x7f, 'E', 'L', 'F', ELFCLASS64, ELFDATA2LSB },
		.e_machine = EM_CUDA,
		.e_shoff = offsetof(struct cubin, s),
		.e_shentsize = sizeof(Elf64_Shdr),
		.e_shnum = SECTIONS,
		.e_shstrndx = STRINGS };
	set_section(TABLES, ".nv.global.init", cubin.tables, sizeof(cubin.tables), SHT_PROGBITS);
	set_section(CONSTANTS, ".nv.constant3", cubin.constants, sizeof(cubin.constants), SHT_PROGBITS);
	set_section(SYMBOLS, ".symtab", cubin.y, sizeof(cubin.y), SHT_SYMTAB);
	set_section(STRINGS, ".strtab", cubin.strings, sizeof(cubin.strings), SHT_STRTAB);
	set_symbol(0, "first", TABLES, 0, 32);
	set_symbol(1, "second", TABLES, 32, 32);
	set_symbol(2, "fixed", CONSTANTS, 0, 16);
	memset(device_tables, 7, sizeof(device_tables)); /* as relocated: not the file's bytes */
	memset(device_constants, 9, sizeof(device_constants));
	visible[0].name = "first", visible[0].at = device_tables + 32, visible[0].bytes = 32;
	visible[1].name = "second", visible[1].at = device_tables, visible[1].bytes = 32; /* in the driver's order */
	visible[2].name = "fixed", visible[2].at = device_constants, visible[2].bytes = 16;
	return 0;
}

static struct ww_cuda plug_in(void)
{
	struct ww_cuda x;
	memset(&x, 0, sizeof(x));
	x.exec = (struct ww_exec *)&cubin;
	x.cuModuleGetGlobal = get_global;
	x.cuMemcpyDtoH = to_host;
	x.cuMemcpyHtoDAsync = to_device;
	return x;
}

static void values_come_back(void **state)
{
	struct ww_cuda x = plug_in();
	struct ww_run_reply r = { 0 };
	(void)state;
	assert_int_equal(ww_cuda_tables_load(&x, &cubin, sizeof(cubin), &r), WW_RUN_OK);
	assert_int_equal(ww_cuda_tables_check(&x, &r), WW_RUN_OK);
	unsigned char *const at[] = { device_tables, device_tables + 63, device_constants + 15 };
	for (size_t i = 0; i < WW_ARRAY_LEN(at); i++) {
		++*at[i];
		assert_int_equal(ww_cuda_tables_check(&x, &r), WW_RUN_REFUSED);
		assert_non_null(strstr(r.text, i == 2 ? "__constant__" : "device variable"));
		assert_int_equal(ww_cuda_tables_restore(&x), CUDA_SUCCESS);
		assert_int_equal(ww_cuda_tables_check(&x, &r), WW_RUN_OK);
	}
	ww_cuda_tables_free(&x);
	assert_int_equal(ww_cuda_tables_restore(&x), CUDA_SUCCESS);
}

/* What the driver does not find is not trusted, but for the compiler's own tables. */
static void not_found(void **state)
{
	struct ww_cuda x = plug_in();
	struct ww_run_reply r = { 0 };
	(void)state;
	visible[1].name = NULL;
	assert_int_equal(ww_cuda_tables_load(&x, &cubin, sizeof(cubin), &r), WW_RUN_REFUSED);
	assert_non_null(strstr(r.text, "second of the device code (.nv.global.init)"));
	ww_cuda_tables_free(&x);
	set_symbol(1, "__cudart_i2opi_f", TABLES, 0, 24);
	assert_int_equal(ww_cuda_tables_load(&x, &cubin, sizeof(cubin), &r), WW_RUN_OK);
	assert_int_equal(x.n_tables, 2);
	ww_cuda_tables_free(&x);
	set_symbol(1, "__cudart_i2opi_f", TABLES, 0, 64);
	assert_int_equal(ww_cuda_tables_load(&x, &cubin, sizeof(cubin), &r), WW_RUN_REFUSED);
	ww_cuda_tables_free(&x);
	cubin.s[TABLES].sh_size = cubin.s[CONSTANTS].sh_size = 0;
	assert_int_equal(ww_cuda_tables_load(&x, &cubin, sizeof(cubin), &r), WW_RUN_OK);
	assert_int_equal(x.n_tables, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup(values_come_back, set_up),
		cmocka_unit_test_setup(not_found, set_up) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	puts("# skip: no <cuda.h> here");
	return 77;
}
#endif
