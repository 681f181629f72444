/* json_read.c - JSON text to jansson's values, for text that is right.
 *
 * jansson reads a byte at a time through a function pointer, about a hundred instructions each: a third of a millisecond for a
 * solution of 10 KB, in the one thread that serves all clients.  This reader takes a string's bytes in runs.
 *
 * It only ever says yes.  What it does not take (an error, a number beyond int64, a depth that jansson would refuse, no memory)
 * it leaves, and jansson reads the same text from its start: so jansson alone decides what is refused, and its messages are the
 * ones that users see.  What it does take, it must read as jansson does with JSON_REJECT_DUPLICATES | JSON_DECODE_ANY; a
 * test compares the two on texts that are damaged at random.
 *
 * Rejected: yyjson or simdjson.  Their values are not jansson's, which everything here is written for.
 */
#include "base/json_read.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { DEPTH = 256, INTEGER_DIGITS = 18, NUMBER_BYTES = 64, KEY_BYTES = 64 };

struct reader {
	const char *p, *end;
	struct ww_str text;		/* a string with escapes, decoded */
};

static json_t *read_value(struct reader *r, int depth);

static void skip_blanks(struct reader *r)
{
	while (r->p < r->end && (*r->p == ' ' || *r->p == '\n' || *r->p == '\r' || *r->p == '\t'))
		r->p++;
}

/* Skips blanks; is this the next byte?  Then it is taken. */
static int take(struct reader *r, char c)
{
	skip_blanks(r);
	if (r->p == r->end || *r->p != c)
		return 0;
	r->p++;
	return 1;
}

/* ---- Strings ------------------------------------------------------------------------------------------------------- */

static int hex4(struct reader *r, unsigned *out)
{
	*out = 0;
	if (r->end - r->p < 4)
		return 0;
	for (int i = 0; i < 4; i++) {
		char c = *r->p++;
		int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
		if (digit < 0)
			return 0;
		*out = *out << 4 | (unsigned)digit;
	}
	return 1;
}

/* After "\u". */
static int unicode(struct reader *r)
{
	unsigned c, low;
	char utf8[4];
	if (!hex4(r, &c) || !c || (c >= 0xdc00 && c < 0xe000))
		return 0;
	if (c >= 0xd800 && c < 0xdc00) {
		if (r->end - r->p < 2 || *r->p++ != '\\' || *r->p++ != 'u' || !hex4(r, &low) || low < 0xdc00 || low > 0xdfff)
			return 0;
		c = 0x10000 + ((c - 0xd800) << 10 | (low - 0xdc00));
	}
	size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
	for (size_t i = n - 1; i; i--, c >>= 6)
		utf8[i] = (char)(0x80 | (c & 0x3f));
	utf8[0] = (char)(n == 1 ? c : (0xf00u >> n & 0xff) | c);
	ww_str_add(&r->text, utf8, n);
	return 1;
}

static int escape(struct reader *r)
{
	static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
	if (r->p == r->end)
		return 0;
	char c = *r->p++;
	if (c == 'u')
		return unicode(r);
	const char *at = memchr(from, c, sizeof(from) - 1);
	if (at)
		ww_str_addc(&r->text, to[at - from]);
	return at != NULL;
}

/* After the opening quote: the string's bytes, in the text itself or decoded.  They are UTF-8 if jansson finds so. */
static const char *string_bytes(struct reader *r, size_t *n)
{
	const char *from = r->p;
	ww_str_reset(&r->text);
	for (;;) {
		while (r->p < r->end && *r->p != '"' && *r->p != '\\' && (unsigned char)*r->p >= 32)
			r->p++;
		if (r->p == r->end || (unsigned char)*r->p < 32)
			return NULL;
		if (*r->p == '"' && !r->text.len && !r->text.cut) {	/* no escapes */
			*n = (size_t)(r->p++ - from);
			return from;
		}
		ww_str_add(&r->text, from, (size_t)(r->p - from));
		if (*r->p++ == '"') {
			*n = r->text.len;
			return r->text.cut ? NULL : r->text.p;
		}
		if (!escape(r))
			return NULL;
		from = r->p;
	}
}

static json_t *read_string(struct reader *r)
{
	size_t n;
	const char *bytes = string_bytes(r, &n);
	return bytes ? json_stringn(bytes, n) : NULL;
}

/* ---- Numbers ------------------------------------------------------------------------------------------------------- */

static size_t digits(const char **p, const char *end)
{
	const char *from = *p;
	while (*p < end && **p >= '0' && **p <= '9')
		(*p)++;
	return (size_t)(*p - from);
}

static json_t *read_real(const char *from, const char *end)
{
	char text[NUMBER_BYTES];
	size_t n = (size_t)(end - from);
	if (n >= sizeof(text))
		return NULL;
	memcpy(text, from, n);
	text[n] = 0;
	errno = 0;
	double v = strtod(text, NULL);
	return errno == ERANGE ? NULL : json_real(v);
}

static json_t *read_number(struct reader *r)
{
	const char *from = r->p, *p = from + (*from == '-'), *first = p;
	size_t n = digits(&p, r->end);
	if (!n || (n > 1 && *first == '0'))
		return NULL;
	int real = p < r->end && (*p == '.' || *p == 'e' || *p == 'E');
	if (p < r->end && *p == '.' && (p++, !digits(&p, r->end)))
		return NULL;
	if (real && p < r->end && (*p == 'e' || *p == 'E')) {
		p++;
		p += p < r->end && (*p == '+' || *p == '-');
		if (!digits(&p, r->end))
			return NULL;
	}
	r->p = p;
	if (real)
		return read_real(from, p);
	int64_t v = 0;
	if (n > INTEGER_DIGITS)
		return NULL;
	for (; first < p; first++)
		v = v * 10 + (*first - '0');
	return json_integer(*from == '-' ? -v : v);
}

/* ---- Containers ---------------------------------------------------------------------------------------------------- */

static int read_member(struct reader *r, json_t *o, int depth)
{
	size_t n;
	const char *key = take(r, '"') ? string_bytes(r, &n) : NULL;
	if (!key || json_object_getn(o, key, n))
		return 0;
	char kept[KEY_BYTES], *copy = NULL;
	if (key == r->text.p) {		/* the value's strings use that room too */
		copy = n < sizeof(kept) ? kept : malloc(n);
		if (!copy)
			return 0;
		memcpy(copy, key, n);
		key = copy;
	}
	json_t *v = take(r, ':') ? read_value(r, depth) : NULL;
	int good = v && !json_object_setn_new(o, key, n, v);
	if (copy != kept)
		free(copy);
	return good;
}

static json_t *read_object(struct reader *r, int depth)
{
	json_t *o = json_object();
	if (take(r, '}'))
		return o;
	do
		if (!o || !read_member(r, o, depth)) {
			json_decref(o);
			return NULL;
		}
	while (take(r, ','));
	if (take(r, '}'))
		return o;
	json_decref(o);
	return NULL;
}

static json_t *read_array(struct reader *r, int depth)
{
	json_t *a = json_array();
	if (take(r, ']'))
		return a;
	do
		if (!a || json_array_append_new(a, read_value(r, depth))) {
			json_decref(a);
			return NULL;
		}
	while (take(r, ','));
	if (take(r, ']'))
		return a;
	json_decref(a);
	return NULL;
}

static json_t *read_word(struct reader *r, const char *word, json_t *v)
{
	size_t n = strlen(word);
	if ((size_t)(r->end - r->p) < n || memcmp(r->p, word, n))
		return NULL;
	r->p += n;
	return v;
}

static json_t *read_value(struct reader *r, int depth)
{
	skip_blanks(r);
	if (r->p == r->end || depth == DEPTH)
		return NULL;
	switch (*r->p) {
	case '{': r->p++; return read_object(r, depth + 1);
	case '[': r->p++; return read_array(r, depth + 1);
	case '"': r->p++; return read_string(r);
	case 't': return read_word(r, "true", json_true());
	case 'f': return read_word(r, "false", json_false());
	case 'n': return read_word(r, "null", json_null());
	default: return read_number(r);
	}
}

json_t *ww_json_read(const char *text, size_t n)
{
	struct reader r = { .p = text, .end = text + n, .text = WW_STR_INIT(n) };
	json_t *v = read_value(&r, 0);
	skip_blanks(&r);
	if (v && r.p != r.end) {
		json_decref(v);
		v = NULL;
	}
	ww_str_release(&r.text);
	return v;
}
