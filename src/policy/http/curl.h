/* curl.h - libcurl, loaded when it is first needed.
 *
 * Most commands never speak HTTP, and libcurl brings some twenty libraries with it, which would triple the time that
 * the program takes to start.  A distribution carries none of them: the system's own libcurl knows where its
 * certificates are.
 */
#ifndef WW_POLICY_HTTP_CURL_H
#define WW_POLICY_HTTP_CURL_H

#include "base/err.h"

#include <curl/curl.h>
#include <time.h>

struct ww_curl {
	CURL *(*easy_init)(void);
	void (*easy_reset)(CURL *h);
	void (*easy_cleanup)(CURL *h);
	CURLcode (*easy_setopt)(CURL *h, CURLoption o, ...);
	CURLcode (*easy_getinfo)(CURL *h, CURLINFO i, ...);
	CURLcode (*easy_perform)(CURL *h);
	const char *(*easy_strerror)(CURLcode c);
	struct curl_slist *(*slist_append)(struct curl_slist *l, const char *text);
	void (*slist_free_all)(struct curl_slist *l);
	time_t (*getdate)(const char *text, const time_t *unused);
};

/* WW_ERR_MISSING where there is no libcurl. */
enum ww_rc ww_curl_load(const struct ww_curl **out, struct ww_err *err) WW_MUST_CHECK;

#endif
