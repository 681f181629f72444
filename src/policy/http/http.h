/* http.h - policies that are models behind an HTTP server. */
#pragma once

#include "policy/http/wire.h"

/* A policy that speaks `wire` with opts->spec's model, `model` being what stands after the colon. */
int ww_http_policy_new(const struct ww_wire *wire, const char *model, const struct ww_policy_opts *opts,
	struct ww_policy **out, struct ww_err *err);
