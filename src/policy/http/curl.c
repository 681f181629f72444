/* curl.c - see curl.h. */
#include "policy/http/curl.h"

#include "base/dl.h"

#include <pthread.h>

static const char *const libraries[] = { "libcurl.so.4", "libcurl-gnutls.so.4", NULL };
static const struct ww_dl_symbol symbols[] = {
#define SYMBOL(name) { "curl_" #name, offsetof(struct ww_curl, name) },
	WW_CURL_FUNCTIONS(SYMBOL)
};

static struct ww_curl table;
static int loaded;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void load(void)
{
	loaded = ww_dl_load(libraries, symbols, WW_ARRAY_LEN(symbols), &table) != NULL &&
		table.global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
}

enum ww_rc ww_curl_load(const struct ww_curl **out, struct ww_err *err)
{
	pthread_once(&once, load);
	*out = &table;
	return loaded ? WW_OK
				  : ww_err_set(err, WW_ERR_MISSING,
						"there is no libcurl.so.4, which HTTP policies need; on Debian and Ubuntu: apt "
						"install curl");
}
