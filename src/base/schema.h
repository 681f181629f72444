/* schema.h - do the arguments of a call fit their JSON schema?
 *
 * One check for whatever programs and models hand us: tools of a policy, tools over MCP, bodies of OpenEnv.  Of JSON
 * Schema it knows type (one or a list), properties, required, enum, minimum, maximum, minItems, maxItems, minLength,
 * maxLength (both in bytes) and items.
 * Members that a schema with properties does not name are refused.
 */
#pragma once

#include "base/str.h"

#include <jansson.h>

/* 1: they fit; NULL counts as {}.  0: `why` gets one line that names the argument ("edits[2].old"), what was given and
 * what is allowed; it quotes what was given, so it is not clean text. */
int ww_schema_fits(const json_t *schema, const json_t *args, struct ww_str *why);
