/* curl.h - libcurl, loaded when it is first needed.
 *
 * Most commands never speak HTTP, and libcurl brings some twenty libraries with it, which would triple the time that
 * the program takes to start.  A distribution carries none of them: the system's own libcurl knows where its
 * certificates are.
 */
#pragma once

#include "base/err.h"

#include <curl/curl.h>

/* Without the macros around some of them, which check the arguments' types. */
#undef curl_easy_setopt
#undef curl_easy_getinfo
#define WW_CURL_FUNCTIONS(X) \
	X(global_init) X(easy_init) X(easy_reset) X(easy_cleanup) X(easy_setopt) X(easy_getinfo) X(easy_perform) \
	X(easy_strerror) X(slist_append) X(slist_free_all) X(getdate)

struct ww_curl {
#define WW_CURL_MEMBER(name) __typeof__(curl_##name) *name;
	WW_CURL_FUNCTIONS(WW_CURL_MEMBER)
#undef WW_CURL_MEMBER
};

/* WW_ERR_MISSING where there is no libcurl. */
enum ww_rc ww_curl_load(const struct ww_curl **out, struct ww_err *err) WW_MUST_CHECK;
