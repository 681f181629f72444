/* yaml.h - YAML files as JSON values, so that readers have one kind of tree and one kind of error. */
#pragma once

#include "base/err.h"

#include <jansson.h>
#include <stddef.h>

/* Mappings become objects in the file's order, sequences arrays, and every scalar a string as it is written: the caller
 * converts it to the type it expects.  null, ~ and an empty value become JSON null.  Aliases and tags are refused, as
 * are keys that occur twice. */
enum ww_rc ww_yaml_read(const char *path, size_t max_bytes, json_t **out, struct ww_err *err) WW_MUST_CHECK;
