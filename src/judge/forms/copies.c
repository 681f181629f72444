/* copies.c - see copies.h. */
#include "judge/forms/copies.h"

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/time.h"

#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WINDOW = 24, STEP_BITS = 8, BITS = 25, FEWEST = 4, KEY_BYTES = 64 << 10 };

struct ww_copies {
	unsigned char noted[1 << (BITS - 3)];
};

static const char *const beside_python[] = { "torch/lib/libtorch_cpu.so", "*.libs/*.so*", "numpy/*/*.so",
	"scipy/*/*.so", "scipy/*/*/*.so" };
static const char *const of_the_system[] = { "/usr/lib/*/*blas*.so*", "/usr/lib/*/*blas*/*.so*",
	"/usr/lib/*/*blas*/*.a", "/usr/lib/*/libdnnl.so*", "/usr/lib/*/libmkl*.so*", "/usr/lib/*/libfftw*.so*" };

/* ---- Places ------------------------------------------------------------------------------------------------------ */

static int is_place(const unsigned char *p)
{
	uint32_t w;
	memcpy(&w, p, 4);
	return w * 0x9e3779b1u >> (32 - STEP_BITS) == 1; /* not 0, which fillings of zeros have */
}

static uint32_t place_hash(const unsigned char *p)
{
	uint64_t h = 0, w;
	for (int i = 0; i < WINDOW; i += 8) {
		memcpy(&w, p + i, 8);
		h = (h ^ w) * 0x9e3779b97f4a7c15u;
		h ^= h >> 29;
	}
	return (uint32_t)(h * 0x9e3779b97f4a7c15u >> (64 - BITS));
}

static void note(struct ww_copies *c, const unsigned char *code, size_t n)
{
	for (size_t i = 0; i + WINDOW <= n; i++)
		if (is_place(code + i)) {
			uint32_t h = place_hash(code + i);
			c->noted[h >> 3] |= (unsigned char)(1u << (h & 7));
		}
}

int ww_copies_has(const struct ww_copies *c, const unsigned char *code, size_t n)
{
	int places = 0, noted = 0;
	for (size_t i = 0; i + WINDOW <= n; i++)
		if (is_place(code + i)) {
			uint32_t h = place_hash(code + i);
			places++;
			noted += c->noted[h >> 3] >> (h & 7) & 1;
		}
	return noted >= FEWEST && 2 * noted > places;
}

/* ---- Libraries --------------------------------------------------------------------------------------------------- */

/* What can be executed of a shared library; all of an archive. */
static void note_file(struct ww_copies *c, const unsigned char *file, size_t n)
{
	Elf64_Ehdr e;
	Elf64_Phdr p;
	if (n < sizeof(e) || memcmp(file, ELFMAG, SELFMAG) != 0) {
		note(c, file, n);
		return;
	}
	memcpy(&e, file, sizeof(e));
	for (int k = 0; k < e.e_phnum; k++) {
		size_t at = e.e_phoff + (size_t)k * sizeof(p);
		if (at > n - sizeof(p))
			return;
		memcpy(&p, file + at, sizeof(p));
		if (p.p_type == PT_LOAD && (p.p_flags & PF_X) && p.p_offset < n && p.p_filesz <= n - p.p_offset)
			note(c, file + p.p_offset, p.p_filesz);
	}
}

/* Whether an earlier name is one of the same file. */
static int is_again(const glob_t *found, size_t i)
{
	struct stat a, b;
	if (stat(found->gl_pathv[i], &a) != 0)
		return 1;
	for (size_t k = 0; k < i; k++)
		if (stat(found->gl_pathv[k], &b) == 0 && a.st_ino == b.st_ino && a.st_dev == b.st_dev)
			return 1;
	return 0;
}

static void read_file(struct ww_copies *c, const char *path)
{
	struct stat st;
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0 && fstat(fd, &st) == 0 && st.st_size > 0) {
		size_t n = (size_t)st.st_size;
		void *m = mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0);
		if (m != MAP_FAILED) {
			note_file(c, m, n);
			munmap(m, n);
		}
	}
	if (fd >= 0)
		close(fd);
}

static int find_libraries(const char *python, glob_t *found)
{
	char pattern[PATH_MAX];
	int flags = GLOB_BRACE;
	const char *end = strstr(python, "/bin/");
	for (size_t i = 0; end && i < WW_ARRAY_LEN(beside_python); i++, flags |= GLOB_APPEND) {
		snprintf(pattern, sizeof(pattern), "%.*s/lib/python3*/{site,dist}-packages/%s", (int)(end - python), python,
			beside_python[i]);
		if (glob(pattern, flags, NULL, found) == GLOB_NOSPACE)
			return 0;
	}
	for (size_t i = 0; i < WW_ARRAY_LEN(of_the_system); i++, flags |= GLOB_APPEND)
		if (glob(of_the_system[i], flags, NULL, found) == GLOB_NOSPACE)
			return 0;
	return 1;
}

/* By what they are called and when they were written. */
static void key_of(const glob_t *found, char hex[WW_HASH_HEX])
{
	ww_auto_str key = WW_STR_INIT(KEY_BYTES);
	struct stat st;
	ww_str_addf(&key, "%d %d %d", WINDOW, STEP_BITS, BITS);
	for (size_t i = 0; i < found->gl_pathc; i++)
		if (stat(found->gl_pathv[i], &st) == 0)
			ww_str_addf(&key, "|%s %lld %lld", found->gl_pathv[i], (long long)st.st_size, (long long)st.st_mtime);
	ww_hash_hex(key.p, key.len, hex);
}

enum ww_rc ww_copies_open(struct ww_copies **out, struct ww_store *store, const char *python, struct ww_err *err)
{
	ww_auto_free struct ww_copies *c = calloc(1, sizeof(*c));
	ww_auto_str cached = WW_STR_INIT(sizeof(*c));
	char key[WW_HASH_HEX];
	glob_t found = { 0 };
	uint64_t start = ww_now_ns();
	int there = 0;
	enum ww_rc rc = WW_OK;

	*out = NULL;
	if (!c || !find_libraries(python, &found))
		WW_TRY(ww_nomem(err));
	key_of(&found, key);
	WW_TRY(ww_store_get(store, "library-code", key, &cached, &there, err));
	if (there && cached.len == sizeof(*c)) {
		memcpy(c, cached.p, sizeof(*c));
	} else {
		for (size_t i = 0; i < found.gl_pathc; i++)
			if (!is_again(&found, i))
				read_file(c, found.gl_pathv[i]);
		WW_TRY(ww_store_put(store, "library-code", key, c, sizeof(*c), err));
		ww_log(WW_LOG_DEBUG, "the code of %zu libraries was read in %.2f s", found.gl_pathc, ww_seconds_since(start));
	}
	*out = c;
	c = NULL;
out:
	globfree(&found);
	return rc;
}

void ww_copies_close(struct ww_copies *c) { free(c); }
