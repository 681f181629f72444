/* http_parse.c - see http_parse.h.
 *
 * Strict where leniency has been an attack: one way to end a line, one length of a body (two that differ, or a length beside
 * chunks, are refused, as two readers could see different requests), no folded headers, no spaces around names, no control
 * characters.  Nothing here keeps state but the chunk reader, so all of it can be fed by a fuzzer (fuzz/fuzz_serve.c).
 */
#include "serve/http_parse.h"

#include <arpa/inet.h>
#include <sha1.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* ---- Heads --------------------------------------------------------------------------------------------------------- */

const char *ww_http_header(const struct ww_http_request *r, const char *name)
{
	for (size_t i = 0; i < r->n_headers; i++)
		if (!strcasecmp(r->headers[i].name, name))
			return r->headers[i].value;
	return NULL;
}

size_t ww_http_head_bytes(const char *p, size_t n)
{
	const char *end = memmem(p, n, "\r\n\r\n", 4);
	return end ? (size_t)(end - p) + 4 : 0;
}

static int is_token(const char *s)
{
	static const char others[] = "!#$%&'*+-.^_`|~";
	if (!*s)
		return 0;
	for (; *s; s++)
		if (!(*s >= '0' && *s <= '9') && !((*s | 32) >= 'a' && (*s | 32) <= 'z') && !strchr(others, *s))
			return 0;
	return 1;
}

static int is_text(const char *s)
{
	for (; *s; s++)
		if (((unsigned char)*s < 32 && *s != '\t') || *s == 127)
			return 0;
	return 1;
}

/* Does a list ("keep-alive, Upgrade") name the word? */
static int lists(const char *list, const char *word)
{
	size_t n = strlen(word);
	while (list && *list) {
		list += strspn(list, " \t,");
		size_t k = strcspn(list, ",");
		size_t trimmed = k;
		while (trimmed && strchr(" \t", list[trimmed - 1]))
			trimmed--;
		if (trimmed == n && !strncasecmp(list, word, n))
			return 1;
		list += k;
	}
	return 0;
}

static int refuse(struct ww_http_head *h, int status, const char *why)
{
	h->why = why;
	return status;
}

/* "METHOD TARGET HTTP/1.x"; the line is cut into its parts. */
static int request_line(struct ww_http_head *h, char *line)
{
	char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
	if (!version)
		return refuse(h, 400, "the first line is no request line");
	*target++ = 0;
	*version++ = 0;
	if (!is_token(line) || strlen(line) > 16 || !is_text(target))
		return refuse(h, 400, "the first line is no request line");
	if (strcmp(version, "HTTP/1.1") && strcmp(version, "HTTP/1.0"))
		return refuse(h, strncmp(version, "HTTP/", 5) ? 400 : 505, "this server speaks HTTP/1.1");
	h->minor = version[7] - '0';
	if (!strncmp(target, "http://", 7)) {		/* as proxies are asked */
		char *slash = strchr(target + 7, '/');
		target = slash ? slash : (char *)(uintptr_t)"/";
	}
	if (*target != '/' || strlen(target) > 2048)
		return refuse(h, 400, "the target is no path, or longer than 2048 bytes");
	char *query = strchr(target, '?');
	if (query)
		*query++ = 0;
	h->r.method = line;
	h->r.path = target;
	h->r.query = query ? query : "";
	return 0;
}

static int header_line(struct ww_http_head *h, char *line)
{
	char *colon = strchr(line, ':');
	if (!colon)
		return refuse(h, 400, "a header has no colon");
	*colon = 0;
	char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
	while (end > value && strchr(" \t", end[-1]))
		*--end = 0;
	if (!is_token(line) || !is_text(value))
		return refuse(h, 400, "a header is malformed");
	if (h->r.n_headers == WW_HTTP_MAX_HEADERS)
		return refuse(h, 431, "there are more than 100 headers");
	h->headers[h->r.n_headers++] = (struct ww_http_header){ line, value };
	return 0;
}

static int count(const struct ww_http_head *h, const char *name)
{
	int n = 0;
	for (size_t i = 0; i < h->r.n_headers; i++)
		n += !strcasecmp(h->headers[i].name, name);
	return n;
}

/* How long the body is, and how that is said. */
static int framing(struct ww_http_head *h)
{
	const char *length = ww_http_header(&h->r, "Content-Length"), *coding = ww_http_header(&h->r, "Transfer-Encoding");
	if (count(h, "Content-Length") > 1 || count(h, "Transfer-Encoding") > 1 || (length && coding))
		return refuse(h, 400, "the body's length is said twice");
	if (length) {
		size_t digits = strspn(length, "0123456789");
		if (!digits || length[digits] || digits > 15)
			return refuse(h, 400, "Content-Length is no number");
		h->length = strtoll(length, NULL, 10);
	}
	if (coding && strcasecmp(coding, "chunked"))
		return refuse(h, 501, "of transfer encodings only chunked is understood");
	h->chunked = coding != NULL;
	return 0;
}

static int connection(struct ww_http_head *h)
{
	const char *c = ww_http_header(&h->r, "Connection"), *upgrade = ww_http_header(&h->r, "Upgrade");
	if (count(h, "Host") != (h->minor || count(h, "Host")))
		return refuse(h, 400, "a request has one Host header");
	h->keep_alive = h->minor ? !lists(c, "close") : lists(c, "keep-alive");
	h->expects_continue = h->minor && lists(ww_http_header(&h->r, "Expect"), "100-continue");
	h->upgrades = h->minor && upgrade && lists(upgrade, "websocket") && lists(c, "upgrade");
	return 0;
}

int ww_http_head_parse(struct ww_http_head *h, const char *p, size_t n)
{
	int status;
	memset(h, 0, sizeof(*h));
	h->why = "out of memory";
	if (n < 4 || memchr(p, 0, n))
		return refuse(h, 400, "the head holds a NUL");
	if (!(h->text = malloc(n + 1)))
		return 503;
	memcpy(h->text, p, n - 4);
	h->text[n - 4] = 0;
	h->r.headers = h->headers;
	h->r.query = h->r.body = "";
	char *line = h->text;
	for (int first = 1; line; first = 0) {
		char *end = strstr(line, "\r\n");
		if (end)
			*end = 0;
		if ((status = first ? request_line(h, line) : header_line(h, line)))
			return status;
		line = end ? end + 2 : NULL;
	}
	return (status = framing(h)) ? status : connection(h);
}

void ww_http_head_release(struct ww_http_head *h)
{
	free(h->text);
	memset(h, 0, sizeof(*h));
}

/* ---- Chunks -------------------------------------------------------------------------------------------------------- */

enum { SIZE, EXTENSION, DATA, AFTER_DATA, TRAILER, TRAILER_LINE, END };
enum { MAX_SKIPPED = 4096 };	/* of extensions and trailers, which nobody reads, a chunk */

static int hex(char c)
{
	return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* `left` in SIZE: the size so far, plus one once there is a digit. */
static int size_char(struct ww_http_chunks *c, char ch)
{
	int d = hex(ch);
	if (d >= 0) {
		uint64_t size = c->left ? c->left - 1 : 0;
		if (size >> 40)
			return 0;
		c->left = size * 16 + (uint64_t)d + 1;
		return 1;
	}
	if (!c->left || (ch != '\n' && ch != '\r' && ch != ';' && ch != ' ' && ch != '\t'))
		return 0;
	if (ch == '\n') {
		c->left--;
		c->state = c->left ? DATA : TRAILER;
	} else if (ch != '\r') {
		c->state = EXTENSION;
	}
	return 1;
}

enum ww_http_chunk ww_http_chunks_take(struct ww_http_chunks *c, const char *p, size_t n, size_t *used, struct ww_str *body)
{
	size_t i = 0, skipped = 0;
	int good = 1;
	while (i < n && good && c->state != END && !body->cut) {
		if (c->state == DATA) {
			size_t k = n - i < c->left ? n - i : (size_t)c->left;
			ww_str_add(body, p + i, k);
			i += k;
			if (!(c->left -= k))
				c->state = AFTER_DATA;
			continue;
		}
		char ch = p[i++];
		switch (c->state) {
		case SIZE:
			good = size_char(c, ch);
			break;
		case EXTENSION:
			good = ++skipped < MAX_SKIPPED;
			if (ch == '\n') {
				c->left--;
				c->state = c->left ? DATA : TRAILER;
			}
			break;
		case AFTER_DATA:
			good = ch == '\r' || ch == '\n';
			if (ch == '\n')
				c->state = SIZE;
			break;
		case TRAILER:
			if (ch != '\r')
				c->state = ch == '\n' ? END : TRAILER_LINE;
			break;
		case TRAILER_LINE:
			good = ++skipped < MAX_SKIPPED;
			if (ch == '\n')
				c->state = TRAILER;
			break;
		}
	}
	*used = i;
	return !good || body->cut ? WW_HTTP_CHUNK_BAD : c->state == END ? WW_HTTP_CHUNK_DONE : WW_HTTP_CHUNK_MORE;
}

/* ---- WebSocket frames ---------------------------------------------------------------------------------------------- */

int ww_ws_frame_parse(struct ww_ws_frame *f, const char *bytes, size_t n, size_t max_payload)
{
	const unsigned char *p = (const unsigned char *)bytes;
	if (n < 2)
		return 0;
	f->final = p[0] >> 7;
	f->opcode = p[0] & 15;
	uint64_t length = p[1] & 127;
	int control = f->opcode & 8, extra = length == 126 ? 2 : length == 127 ? 8 : 0;
	int known = f->opcode <= WW_WS_BINARY || (f->opcode >= WW_WS_CLOSE && f->opcode <= WW_WS_PONG);
	/* Clients mask; no extension was agreed on; control frames are short and whole. */
	if (p[0] & 0x70 || !(p[1] & 128) || !known || (control && (extra || !f->final)))
		return 1002;
	f->header_bytes = 6 + (size_t)extra;
	if (n < f->header_bytes)
		return 0;
	if (extra)
		length = 0;
	for (int i = 0; i < extra; i++)
		length = length << 8 | p[2 + i];
	if (length > max_payload)
		return 1009;
	f->payload_bytes = (size_t)length;
	memcpy(f->mask, p + 2 + extra, 4);
	return n < f->header_bytes + f->payload_bytes ? 0 : 1000;
}

void ww_ws_unmask(const struct ww_ws_frame *f, const char *payload, struct ww_str *out)
{
	size_t at = out->len;
	ww_str_add(out, payload, f->payload_bytes);
	for (size_t i = at; i < out->len; i++)
		out->p[i] = (char)((unsigned char)out->p[i] ^ f->mask[(i - at) & 3]);
}

void ww_ws_frame_add(struct ww_str *out, int opcode, const void *p, size_t n)
{
	unsigned char head[10] = { (unsigned char)(0x80 | opcode) };
	size_t k = n < 126 ? 0 : n < 65536 ? 2 : 8;
	head[1] = (unsigned char)(k == 0 ? n : k == 2 ? 126 : 127);
	for (size_t i = 0; i < k; i++)
		head[2 + i] = (unsigned char)((uint64_t)n >> 8 * (k - 1 - i));
	ww_str_add(out, head, 2 + k);
	ww_str_add(out, p, n);
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

/* ---- Who may ask --------------------------------------------------------------------------------------------------- */

/* "[::1]:8000" or "name:8000" without the port and the brackets. */
static void host_name(const char *host, char *out, size_t cap)
{
	size_t n = *host == '[' ? strcspn(++host, "]") : strcspn(host, ":");
	snprintf(out, cap, "%.*s", (int)(n < cap ? n : cap - 1), host);
}

int ww_http_is_loopback(const char *host)
{
	struct in_addr v4;
	struct in6_addr v6;
	char name[256];
	if (inet_pton(AF_INET6, host, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	host_name(host, name, sizeof(name));
	if (inet_pton(AF_INET6, name, &v6) == 1)
		return IN6_IS_ADDR_LOOPBACK(&v6);
	return !strcasecmp(name, "localhost") || (inet_pton(AF_INET, name, &v4) == 1 && ntohl(v4.s_addr) >> 24 == 127);
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

/* A page that a browser shows may ask only where it comes from this server, or from this machine. */
static int origin_fits(const char *origin, const char *host)
{
	const char *name = strstr(origin, "://");
	if (!name || (strncmp(origin, "http://", 7) && strncmp(origin, "https://", 8)))
		return 0;
	return !strcasecmp(name + 3, host) || (ww_http_is_loopback(name + 3) && ww_http_is_loopback(host));
}

int ww_http_admit(const struct ww_http_request *r, const char *host, const char *token, const char **why)
{
	const char *asked = ww_http_header(r, "Host"), *origin = ww_http_header(r, "Origin");
	if (asked && ww_http_is_loopback(host) && !ww_http_is_loopback(asked)) {
		*why = "the Host header names another machine; this server answers for this one only";
		return 403;
	}
	if (origin && !origin_fits(origin, asked ? asked : host)) {
		*why = "pages of other sites may not ask this server (Origin)";
		return 403;
	}
	if (token && !has_token(r, token)) {
		*why = "this server needs its token: Authorization: Bearer TOKEN";
		return 401;
	}
	return 0;
}
