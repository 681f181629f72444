/* json_guide.c - a byte automaton for JSON objects of a schema, with a stack of containers.
 *
 * Every parser reads what it accepts: beyond RFC 8259 it requires UTF-8, no escaped surrogates, at most 64
 * levels, 18 digits before a point and 18 behind it, and exponents of two digits.  At most 32 blanks stand in a row,
 * none before the object and none behind it, so that a model cannot write blanks without end.  Listed keys come in the
 * schema's order, and keys and enumerations are spelled as the schema's JSON text spells them.
 *
 * Where a value may be one of several (anyOf), each that can begin with the byte is read on its own, until it no longer
 * fits or equals another.  Every reading can be completed, so dropping one beyond the maximum loses no guarantee.
 */
#include "infer/json_guide.h"

#include <string.h>

enum { BLANKS_MAX = 32, DIGITS_MAX = 18, EXPONENT_MAX = 2, IN_ARRAY = UINT16_MAX };

#define READ const struct ww_json_schema *s, struct ww_json_reading *r

enum where {
	START,
	VALUE,
	FIRST_VALUE, /* or the end of the array */
	FIRST_KEY,   /* or the end of the object */
	KEY,
	TEXT, /* a listed key, or a value of an enumeration */
	COLON,
	AFTER, /* a value: a comma or the end of its container */
	STRING,
	ESCAPE,
	HEX,
	SURROGATE, /* after \ud: 0 to 7, else half of a pair */
	LITERAL,
	MINUS,
	ZERO,
	WHOLE,
	POINT,
	FRACTION,
	EXPONENT,
	SIGN,
	POWER,
	DONE,
	FAILED
};

static int is_digit(unsigned char c) { return c >= '0' && c <= '9'; }
static int is_hex(unsigned char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }
static int is_blank(unsigned char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

static int go(struct ww_json_reading *r, enum where to)
{
	r->where = (uint8_t)to;
	r->count = 0;
	return 1;
}

/* After a value its details are forgotten, so that readings that differ in nothing else become equal. */
static int end_value(struct ww_json_reading *r)
{
	struct ww_json_reading ended = { .depth = r->depth };
	memcpy(r, &ended, offsetof(struct ww_json_reading, stack));
	return go(r, r->depth ? AFTER : DONE);
}

/* ---- containers -------------------------------------------------------------------------------------------------- */

static int in_array(const struct ww_json_reading *r) { return r->stack[r->depth - 1].next == IN_ARRAY; }

static const struct ww_json_node *container(const struct ww_json_schema *s, const struct ww_json_reading *r)
{
	return &s->nodes[r->stack[r->depth - 1].node];
}

static int fits_below(const struct ww_json_reading *r, int levels) { return r->depth + levels <= WW_JSON_LEVELS_MAX; }

static int open_container(struct ww_json_reading *r, uint32_t node, int levels, int is_array)
{
	if (!fits_below(r, levels))
		return 0;
	r->stack[r->depth].node = (uint16_t)node;
	r->stack[r->depth].next = is_array ? IN_ARRAY : 0;
	r->depth++;
	return go(r, is_array ? FIRST_VALUE : FIRST_KEY);
}

static int close_container(READ, unsigned char c)
{
	const struct ww_json_node *n = container(s, r);
	if (c != (in_array(r) ? ']' : '}'))
		return 0;
	for (uint32_t i = r->stack[r->depth - 1].next; i < n->texts_n; i++)
		if (s->texts[n->texts + i].required)
			return 0;
	r->depth--;
	return end_value(r);
}

/* The listed keys that may be next: up to the first that is required, without those whose values go too deep. */
static int find_keys(READ)
{
	const struct ww_json_node *n = container(s, r);
	uint32_t i = n->texts + r->stack[r->depth - 1].next, end = n->texts + n->texts_n;
	r->text = end;
	for (r->text_end = i; r->text_end < end; r->text_end++) {
		const struct ww_json_text *t = &s->texts[r->text_end];
		if (r->text == end && fits_below(r, s->nodes[t->value].levels))
			r->text = r->text_end;
		if (t->required) {
			r->text_end++;
			break;
		}
	}
	return r->text < r->text_end;
}

static int begin_string(struct ww_json_reading *r, int is_key)
{
	r->is_key = (uint8_t)is_key;
	return go(r, STRING);
}

static int begin_key(READ, unsigned char c)
{
	if (c != '"')
		return 0;
	if (container(s, r)->is_free)
		return begin_string(r, 1);
	r->text_at = 1;
	r->is_key = 1;
	return find_keys(s, r) && go(r, TEXT);
}

static int after_value(READ, unsigned char c)
{
	if (c != ',')
		return close_container(s, r, c);
	if (in_array(r))
		return go(r, VALUE);
	return (container(s, r)->is_free || find_keys(s, r)) && go(r, KEY);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The node of the value that may begin here. */
static const struct ww_json_node *value_node(const struct ww_json_schema *s, const struct ww_json_reading *r)
{
	uint32_t node = s->root;
	if (r->depth) {
		const struct ww_json_node *in = container(s, r);
		uint16_t next = r->stack[r->depth - 1].next;
		node = next == IN_ARRAY ? in->items : in->is_free ? 0 : s->texts[in->texts + next - 1].value;
	}
	return &s->nodes[node];
}

/* The first text from r->text on whose next byte is at least c; all that are left begin alike, and are sorted. */
static uint32_t first_from(const struct ww_json_schema *s, const struct ww_json_reading *r, unsigned c)
{
	uint32_t low = r->text, high = r->text_end;
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		if ((unsigned char)s->texts[middle].text[r->text_at] < c)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Keys are in the schema's order, and few may be next. */
static int next_key(READ, char c)
{
	const char *so_far = s->texts[r->text].text;
	for (uint32_t i = r->text; i < r->text_end; i++) {
		const struct ww_json_text *t = &s->texts[i];
		if (strncmp(t->text, so_far, r->text_at) || t->text[r->text_at] != c ||
			!fits_below(r, s->nodes[t->value].levels))
			continue;
		r->text = i;
		return 1;
	}
	return 0;
}

/* Leave out the texts that do not go on with c, or with 0 end. */
static int next_text(READ, unsigned char c)
{
	if (r->is_key)
		return next_key(s, r, (char)c);
	uint32_t first = first_from(s, r, c), end = first_from(s, r, c + 1u);
	if (first == end)
		return 0;
	r->text = first;
	r->text_end = end;
	return 1;
}

static int take(READ, unsigned char c);

static int in_text(READ, unsigned char c)
{
	if (c && next_text(s, r, c)) {
		r->text_at++;
		if (r->is_key && !s->texts[r->text].text[r->text_at]) {
			r->stack[r->depth - 1].next = (uint16_t)(r->text - container(s, r)->texts + 1);
			return go(r, COLON);
		}
		return 1;
	}
	return !r->is_key && next_text(s, r, 0) && end_value(r) && take(s, r, c);
}

static int begin_literal(struct ww_json_reading *r, const char *rest)
{
	r->rest = rest;
	return go(r, LITERAL);
}

static int begin_value(READ, uint32_t node, unsigned char c)
{
	const struct ww_json_node *n = &s->nodes[node];
	unsigned can = n->kinds;
	if (!can) {
		r->text = n->texts;
		r->text_end = n->texts + n->texts_n;
		r->text_at = 0;
		r->is_key = 0;
		return go(r, TEXT) && in_text(s, r, c);
	}
	switch (c) {
	case '{': return can & WW_JSON_OBJECT && open_container(r, node, n->object_levels, 0);
	case '[': return can & WW_JSON_ARRAY && open_container(r, node, 1, 1);
	case '"': return can & WW_JSON_STRING && begin_string(r, 0);
	case 't': return can & WW_JSON_BOOLEAN && begin_literal(r, "rue");
	case 'f': return can & WW_JSON_BOOLEAN && begin_literal(r, "alse");
	case 'n': return can & WW_JSON_NULL && begin_literal(r, "ull");
	default:
		r->is_integer = !(can & WW_JSON_NUMBER);
		return can & (WW_JSON_NUMBER | WW_JSON_INTEGER) && (c == '-' || is_digit(c)) &&
			go(r,
				c == '-'       ? MINUS
					: c == '0' ? ZERO
							   : WHOLE);
	}
}

/* ---- strings and numbers ----------------------------------------------------------------------------------------- */

/* The first byte of a character: how many follow, and what the next one may be (Unicode, table 3-7). */
static int begin_character(struct ww_json_reading *r, unsigned char c)
{
	r->more = c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
	r->low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
	r->high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
	return c >= 0xc2 && c <= 0xf4;
}

static int in_string(struct ww_json_reading *r, unsigned char c)
{
	if (r->more) {
		int ok = c >= r->low && c <= r->high;
		r->more--;
		r->low = 0x80;
		r->high = 0xbf;
		return ok;
	}
	if (c == '"')
		return r->is_key ? go(r, COLON) : end_value(r);
	if (c == '\\')
		return go(r, ESCAPE);
	return c < 0x80 ? c >= 0x20 : begin_character(r, c);
}

static int in_escape(struct ww_json_reading *r, unsigned char c)
{
	switch (r->where) {
	case ESCAPE: return c == 'u' ? go(r, HEX) : c && strchr("\"\\/bfnrt", c) && go(r, STRING);
	case SURROGATE:
		r->where = HEX;
		r->count = 2;
		return c >= '0' && c <= '7';
	default:
		if (!is_hex(c))
			return 0;
		if (++r->count == 1 && (c | 32) == 'd')
			r->where = SURROGATE;
		return r->count < 4 || go(r, STRING);
	}
}

/* One more digit, of at most `most` in a row. */
static int digit(struct ww_json_reading *r, unsigned char c, enum where to, int most)
{
	r->where = (uint8_t)to;
	return is_digit(c) && ++r->count <= most;
}

/* After a number's whole part, fraction or exponent. */
static int after_number(READ, unsigned char c, int may_point, int may_exponent)
{
	if (c == '.' && may_point && !r->is_integer)
		return go(r, POINT);
	if ((c | 32) == 'e' && may_exponent && !r->is_integer)
		return go(r, EXPONENT);
	return end_value(r) && take(s, r, c);
}

static int in_number(READ, unsigned char c)
{
	switch (r->where) {
	case MINUS: return c == '0' ? go(r, ZERO) : digit(r, c, WHOLE, DIGITS_MAX);
	case WHOLE: return is_digit(c) ? digit(r, c, WHOLE, DIGITS_MAX - 1) : after_number(s, r, c, 1, 1);
	case ZERO: return after_number(s, r, c, 1, 1);
	case POINT: return digit(r, c, FRACTION, DIGITS_MAX);
	case FRACTION: return is_digit(c) ? digit(r, c, FRACTION, DIGITS_MAX) : after_number(s, r, c, 0, 1);
	case EXPONENT: return c == '+' || c == '-' ? go(r, SIGN) : digit(r, c, POWER, EXPONENT_MAX);
	case SIGN: return digit(r, c, POWER, EXPONENT_MAX);
	default: return is_digit(c) ? digit(r, c, POWER, EXPONENT_MAX) : after_number(s, r, c, 0, 0);
	}
}

/* ---- bytes ------------------------------------------------------------------------------------------------------- */

static int blank(struct ww_json_reading *r, unsigned char c) { return is_blank(c) && ++r->count <= BLANKS_MAX; }

/* A byte that begins no value. */
static int take(READ, unsigned char c)
{
	switch (r->where) {
	case VALUE: return blank(r, c);
	case FIRST_VALUE: return blank(r, c) || close_container(s, r, c);
	case FIRST_KEY: return blank(r, c) || begin_key(s, r, c) || close_container(s, r, c);
	case KEY: return blank(r, c) || begin_key(s, r, c);
	case TEXT: return in_text(s, r, c);
	case COLON: return blank(r, c) || (c == ':' && go(r, VALUE));
	case AFTER: return blank(r, c) || after_value(s, r, c);
	case STRING: return in_string(r, c);
	case ESCAPE:
	case HEX:
	case SURROGATE: return in_escape(r, c);
	case LITERAL:
		if (c != (unsigned char)*r->rest)
			return 0;
		return *++r->rest || end_value(r);
	case START:
	case DONE: return 0;
	default: return in_number(s, r, c);
	}
}

static int begins_value(const struct ww_json_reading *r, unsigned char c)
{
	return r->where == START ? c == '{' : (r->where == VALUE || r->where == FIRST_VALUE) && !is_blank(c) && c != ']';
}

/* Bytes of a reading that are in use. */
static size_t used(const struct ww_json_reading *r)
{
	return offsetof(struct ww_json_reading, stack) + r->depth * sizeof(r->stack[0]);
}

static void drop_failed_and_equal(struct ww_json_guide *g, int all)
{
	g->n = 0;
	for (int i = 0; i < all; i++) {
		int is_new = g->readings[i].where != FAILED;
		for (int k = 0; k < g->n; k++)
			is_new = is_new && memcmp(&g->readings[i], &g->readings[k], used(&g->readings[i]));
		if (is_new && g->n++ != i)
			g->readings[g->n - 1] = g->readings[i];
	}
}

/* The first choice is read in place, the others behind all readings. */
static int take_byte(struct ww_json_guide *g, unsigned char c)
{
	const struct ww_json_schema *s = g->schema;
	int all = g->n;
	for (int i = 0; i < g->n; i++) {
		struct ww_json_reading *r = &g->readings[i];
		int ok = 0;
		if (begins_value(r, c)) {
			const struct ww_json_node *v = value_node(s, r);
			for (uint32_t k = 1; k < v->choices_n && all < WW_JSON_CHOICES_MAX; k++) {
				g->readings[all] = *r;
				all += begin_value(s, &g->readings[all], s->choices[v->choices + k], c);
			}
			ok = v->choices_n && begin_value(s, r, s->choices[v->choices], c);
		} else {
			ok = take(s, r, c);
		}
		if (!ok)
			r->where = FAILED;
	}
	if (all == 1)
		return g->readings[0].where != FAILED;
	drop_failed_and_equal(g, all);
	return g->n;
}

void ww_json_guide_init(struct ww_json_guide *g, const struct ww_json_schema *schema)
{
	g->schema = schema;
	g->n = 1;
	g->readings[0] = (struct ww_json_reading){ .where = START };
}

int ww_json_guide_take(struct ww_json_guide *g, const char *text, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!take_byte(g, (unsigned char)text[i]))
			return 0;
	return 1;
}

int ww_json_guide_fits(const struct ww_json_guide *g, const char *text, size_t n)
{
	struct ww_json_guide copy;
	copy.schema = g->schema;
	copy.n = g->n;
	for (int i = 0; i < g->n; i++)
		memcpy(&copy.readings[i], &g->readings[i], used(&g->readings[i]));
	return ww_json_guide_take(&copy, text, n);
}

int ww_json_guide_done(const struct ww_json_guide *g) { return g->readings[0].where == DONE; }
