#include "base/schema.h"

#include "base/json.h"

#include <string.h>

enum { NAME_BYTES = 256, GIVEN_BYTES = 100 };

/* ---- Messages ---------------------------------------------------------------------------------------------------- */

static void add_range(
	struct ww_str *out, const json_t *rule, const char *minimum, const char *maximum, const char *unit)
{
	const json_t *least = json_object_get(rule, minimum), *most = json_object_get(rule, maximum);
	if (least && most)
		ww_str_addf(out, " %s %.15g to %.15g%s", *unit ? "of" : "from", json_number_value(least),
			json_number_value(most), unit);
	else if (least || most)
		ww_str_addf(out, " of at %s %.15g%s", least ? "least" : "most", json_number_value(least ? least : most), unit);
}

/* one of "a", "b"; integer from 1 to 600; array of at most 64 elements; string or null. */
static void add_allowed(struct ww_str *out, const json_t *rule)
{
	const json_t *type = json_object_get(rule, "type"), *choices = json_object_get(rule, "enum"), *x;
	size_t i;
	if (choices)
		ww_str_adds(out, "one of ");
	json_array_foreach(choices, i, x) {
		ww_str_adds(out, i ? ", " : "");
		ww_json_add(out, x);
	}
	if (choices)
		return;
	if (json_is_string(type))
		ww_str_adds(out, json_string_value(type));
	json_array_foreach(type, i, x)
		ww_str_addf(out, "%s%s", i ? " or " : "", json_string_value(x));
	add_range(out, rule, "minimum", "maximum", "");
	add_range(out, rule, "minItems", "maxItems", " elements");
	add_range(out, rule, "minLength", "maxLength", " bytes");
}

static void say_wrong(const char *name, const json_t *rule, const json_t *v, struct ww_str *why)
{
	ww_auto_str given = WW_STR_INIT(16 << 20);
	if (json_is_array(v))
		ww_str_addf(&given, "an array of %zu elements", json_array_size(v));
	else
		ww_json_add(&given, v);
	ww_str_addf(why, "argument \"%s\" is %.*s%s, but must be ", name, GIVEN_BYTES, given.p,
		given.len > GIVEN_BYTES ? "..." : "");
	add_allowed(why, rule);
}

static void say_missing(const char *name, const json_t *rule, struct ww_str *why)
{
	ww_str_addf(why, "argument \"%s\" is missing; it must be ", name);
	add_allowed(why, rule);
}

static void say_unknown(const char *name, const json_t *properties, struct ww_str *why)
{
	const char *key, *separator = "; the arguments are ";
	json_t *rule;
	ww_str_addf(why, "there is no argument \"%s\"", name);
	json_object_foreach((json_t *)(uintptr_t)properties, key, rule) {
		ww_str_addf(why, "%s\"%s\"", separator, key);
		separator = ", ";
	}
}

/* ---- Checks ------------------------------------------------------------------------------------------------------ */

static int is_type(const json_t *type, const json_t *v)
{
	const char *word = json_string_value(type);
	return !word                   ? 0
		: !strcmp(word, "string")  ? json_is_string(v)
		: !strcmp(word, "boolean") ? json_is_boolean(v)
		: !strcmp(word, "integer") ? json_is_integer(v)
		: !strcmp(word, "number")  ? json_is_number(v)
		: !strcmp(word, "array")   ? json_is_array(v)
		: !strcmp(word, "object")  ? json_is_object(v)
		: !strcmp(word, "null")    ? json_is_null(v)
								   : 0;
}

static int type_fits(const json_t *rule, const json_t *v)
{
	const json_t *type = json_object_get(rule, "type"), *one;
	size_t i;
	json_array_foreach(type, i, one)
		if (is_type(one, v))
			return 1;
	return !type || is_type(type, v);
}

static int in_range(double x, const json_t *rule, const char *minimum, const char *maximum)
{
	const json_t *least = json_object_get(rule, minimum), *most = json_object_get(rule, maximum);
	return (!least || x >= json_number_value(least)) && (!most || x <= json_number_value(most));
}

static int size_fits(const json_t *rule, const json_t *v)
{
	return json_is_number(v) ? in_range(json_number_value(v), rule, "minimum", "maximum")
		: json_is_array(v)   ? in_range((double)json_array_size(v), rule, "minItems", "maxItems")
		: json_is_string(v)  ? in_range((double)json_string_length(v), rule, "minLength", "maxLength")
							 : 1;
}

static int is_choice(const json_t *choices, const json_t *v)
{
	const json_t *one;
	size_t i;
	json_array_foreach(choices, i, one)
		if (json_equal(one, v))
			return 1;
	return !choices;
}

static int members_fit(const char *prefix, const json_t *schema, const json_t *o, struct ww_str *why);

static int value_fits(const char *name, const json_t *rule, const json_t *v, struct ww_str *why)
{
	const json_t *items = json_object_get(rule, "items"), *one;
	char inner[NAME_BYTES];
	size_t i;
	if (!type_fits(rule, v) || !is_choice(json_object_get(rule, "enum"), v) || !size_fits(rule, v)) {
		say_wrong(name, rule, v, why);
		return 0;
	}
	json_array_foreach(items ? v : NULL, i, one) {
		snprintf(inner, sizeof(inner), "%s[%zu]", name, i);
		if (!value_fits(inner, items, one, why))
			return 0;
	}
	snprintf(inner, sizeof(inner), "%s.", name);
	return !json_is_object(v) || !json_object_get(rule, "properties") || members_fit(inner, rule, v, why);
}

static int members_fit(const char *prefix, const json_t *schema, const json_t *o, struct ww_str *why)
{
	const json_t *properties = json_object_get(schema, "properties"), *v;
	const char *key;
	char name[NAME_BYTES];
	size_t i;
	json_array_foreach(json_object_get(schema, "required"), i, v) {
		key = json_string_value(v);
		snprintf(name, sizeof(name), "%s%s", prefix, key);
		if (!json_object_get(o, key)) {
			say_missing(name, json_object_get(properties, key), why);
			return 0;
		}
	}
	json_object_foreach((json_t *)(uintptr_t)o, key, v) {
		const json_t *rule = json_object_get(properties, key);
		snprintf(name, sizeof(name), "%s%.100s", prefix, key);
		if (!rule)
			say_unknown(name, properties, why);
		if (!rule || !value_fits(name, rule, v, why))
			return 0;
	}
	return 1;
}

int ww_schema_fits(const json_t *schema, const json_t *args, struct ww_str *why)
{
	if (!args || json_is_object(args))
		return members_fit("", schema, args, why);
	ww_str_adds(why, "the arguments must be a JSON object");
	return 0;
}
