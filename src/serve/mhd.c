/* mhd.c - see mhd.h. */
#include "serve/mhd.h"

#include "base/dl.h"

#include <pthread.h>

static const char *const libraries[] = { "libmicrohttpd.so.12", NULL };
static const struct ww_dl_symbol symbols[] = {
#define SYMBOL(name) { "MHD_" #name, offsetof(struct ww_mhd, name) },
	WW_MHD_FUNCTIONS(SYMBOL)
};

static struct ww_mhd table;
static int loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void) { loaded = ww_dl_load(libraries, symbols, WW_ARRAY_LEN(symbols), &table) != NULL; }

enum ww_rc ww_mhd_load(const struct ww_mhd **out, struct ww_err *err)
{
	pthread_once(&once, load);
	*out = &table;
	return loaded ? WW_OK
				  : ww_err_set(err, WW_ERR_MISSING,
						"there is no libmicrohttpd.so.12, which the server needs; on Debian "
						"and Ubuntu: apt install libmicrohttpd12");
}
