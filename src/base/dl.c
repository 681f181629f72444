#include "base/dl.h"

#include <dlfcn.h>
#include <string.h>

void *ww_dl_load(const char *const *names, const struct ww_dl_symbol *symbols, size_t n, void *table)
{
	void *lib = NULL;
	for (; !lib && *names; names++)
		lib = dlopen(*names, RTLD_NOW | RTLD_LOCAL);
	for (size_t i = 0; lib && i < n; i++) {
		void *f = dlsym(lib, symbols[i].name);
		if (!f)
			return NULL;
		memcpy((char *)table + symbols[i].offset, &f, sizeof(f));
	}
	return lib;
}
