/* http_guard.c - access checks of the server, and the handshake of a WebSocket.
 *
 * Any web page can make a browser send requests to this machine.  A server on a loopback address therefore wants a Host
 * that means this machine (a page's own name can be made to resolve to 127.0.0.1), and a request that a page of another
 * site made (Origin) is refused, with or without a token.
 */
#include "serve/http_guard.h"

#include "base/str.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sha1.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

const char *ww_http_header(const struct ww_http_request *r, const char *name)
{
	for (size_t i = 0; i < r->n_headers; i++)
		if (!strcasecmp(r->headers[i].name, name))
			return r->headers[i].value;
	return NULL;
}

int ww_http_lists(const char *list, const char *word)
{
	size_t n = strlen(word), k;
	for (const char *p; list && (p = ww_list_next(&list, &k));)
		if (k == n && !strncasecmp(p, word, n))
			return 1;
	return 0;
}

static void base64(const unsigned char *p, size_t n, char *out)
{
	static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
	for (size_t i = 0; i < n; i += 3) {
		uint32_t v = (uint32_t)p[i] << 16 | (i + 1 < n ? (uint32_t)p[i + 1] << 8 : 0) | (i + 2 < n ? p[i + 2] : 0);
		*out++ = digits[v >> 18];
		*out++ = digits[v >> 12 & 63];
		*out++ = i + 1 < n ? digits[v >> 6 & 63] : '=';
		*out++ = i + 2 < n ? digits[v & 63] : '=';
	}
	*out = 0;
}

int ww_ws_accept(const char *key, char out[29])
{
	unsigned char digest[SHA1_DIGEST_LENGTH];
	SHA1_CTX c;
	if (!key || strlen(key) != 24 || strcmp(key + 22, "=="))
		return 0;
	SHA1Init(&c);
	SHA1Update(&c, (const uint8_t *)key, 24);
	SHA1Update(&c, (const uint8_t *)"258EAFA5-E914-47DA-95CA-C5AB0DC85B11", 36);
	SHA1Final(digest, &c);
	base64(digest, sizeof(digest), out);
	return 1;
}

/* ---- Access ------------------------------------------------------------------------------------------------------ */

struct authority {
	char host[256];
	int port; /* -1: none is given */
};

/* A port at the end of a text, or nothing at all. */
static int read_port(const char *p, int *port)
{
	*port = -1;
	if (!*p)
		return 1;
	size_t n = strspn(p + 1, "0123456789");
	if (*p != ':' || n > 5 || p[1 + n])
		return 0;
	if (n)
		*port = atoi(p + 1);
	return *port <= 65535;
}

/* "name", "name:80", "[::1]", "[::1]:80" and nothing else; 0 where it is not of this form. */
static int read_authority(const char *text, struct authority *a)
{
	struct in6_addr v6;
	int brackets = *text == '[';
	const char *name = text + brackets;
	size_t n = strcspn(name, brackets ? "]" : ":/?#@[]\\ \t");
	if (!n || n >= sizeof(a->host) || (brackets && name[n] != ']'))
		return 0;
	memcpy(a->host, name, n);
	a->host[n] = 0;
	return (!brackets || inet_pton(AF_INET6, a->host, &v6) == 1) && read_port(name + n + brackets, &a->port);
}

static int is_loopback_name(const char *name)
{
	struct in_addr v4;
	struct in6_addr v6;
	if (inet_pton(AF_INET6, name, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return !strcasecmp(name, "localhost") || (inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
}

int ww_http_is_loopback(const char *host)
{
	struct authority a;
	return is_loopback_name(host) || (read_authority(host, &a) && is_loopback_name(a.host));
}

/* Takes as long for a token that is nearly right as for any other of its length. */
static int same_token(const char *given, const char *token)
{
	size_t n = strlen(token), k = strlen(given);
	unsigned char differ = n != k;
	for (size_t i = 0; i < k; i++)
		differ |= (unsigned char)(given[i] ^ token[i < n ? i : 0]);
	return !differ;
}

static int has_token(const struct ww_http_request *r, const char *token)
{
	const char *a = ww_http_header(r, "Authorization");
	return a && !strncasecmp(a, "Bearer ", 7) && same_token(a + 7 + strspn(a + 7, " "), token);
}

/* "http://" or "https://" and an authority: the whole of an Origin that names a site. */
static int read_origin(const char *origin, struct authority *a)
{
	int tls = !strncasecmp(origin, "https://", 8);
	if ((!tls && strncasecmp(origin, "http://", 7)) || !read_authority(origin + 7 + tls, a))
		return 0;
	if (a->port < 0)
		a->port = tls ? 443 : 80;
	return 1;
}

/* A browser's page may send requests only if it comes from this server, or if both are this machine. */
static int origin_fits(const char *origin, const char *host)
{
	struct authority page, asked;
	if (!read_origin(origin, &page) || !read_authority(host, &asked))
		return 0;
	if (is_loopback_name(page.host) && is_loopback_name(asked.host))
		return 1;
	int port = asked.port >= 0 ? asked.port : !strncasecmp(origin, "https:", 6) ? 443 : 80;
	return !strcasecmp(page.host, asked.host) && page.port == port;
}

int ww_http_admit(const struct ww_http_request *r, const char *host, const char *token, const char **why)
{
	struct authority a;
	const char *asked = ww_http_header(r, "Host"), *origin = ww_http_header(r, "Origin");
	if (asked && *asked && !read_authority(asked, &a)) {
		*why = "the Host header is not NAME or NAME:PORT";
		return 400;
	}
	if (asked && ww_http_is_loopback(host) && !ww_http_is_loopback(asked)) {
		*why = "the Host header names another machine; this server answers for this one only";
		return 403;
	}
	if (origin && (!asked || !origin_fits(origin, asked))) {
		*why = "pages of other sites may not ask this server (Origin)";
		return 403;
	}
	if (token && !has_token(r, token)) {
		*why = "this server needs its token: Authorization: Bearer TOKEN";
		return 401;
	}
	return 0;
}
