/* policy.c - the name after --policy.
 *
 * The table is the only list of policies: the error for an unknown name is printed from it.
 */
#include "base/err.h"
#include "base/str.h"
#include "policy/http/http.h"
#include "policy/model.h"

#include <string.h>
#include "policy/policy.h"

static int open_planner(const char *rest, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	return ww_planner_new(rest, out, err);
}

static int open_replay(const char *rest, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	return ww_replay_new(rest, out, err);
}

static int open_model(const char *rest, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	return ww_model_policy_new(rest, o, out, err);
}

static int open_planner_over(
	const char *rest, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	struct ww_policy *model;
	WW_CHECK((enum ww_rc)ww_model_policy_new(rest, o, &model, err));
	int rc = ww_planner_over(model, out, err);
	if (rc != WW_OK)
		model->ops->free(model);
	return rc;
}

static int open_openai(const char *rest, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	return ww_http_policy_new(&ww_wire_openai, rest, o, out, err);
}

static int open_anthropic(const char *rest, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err)
{
	return ww_http_policy_new(&ww_wire_anthropic, rest, o, out, err);
}

/* name: with '+' at its end where the argument follows at once; form: what follows the name; "[X]": may be left out */
static const struct {
	const char *name, *form, *what;
	int (*open)(const char *rest, const struct ww_policy_opts *o, struct ww_policy **out, struct ww_err *err);
} policies[] = { { "planner", "[:no-algebra]", "rules and templates, no model", open_planner },
	{ "planner+", "DIR", "the planner's search from the answer of a model run here", open_planner_over },
	{ "model", ":DIR", "a model in Hugging Face's form, run here", open_model },
	{ "openai", ":MODEL", "a model behind a chat completions server", open_openai },
	{ "anthropic", ":MODEL", "a model behind a messages server", open_anthropic },
	{ "replay", ":FILE", "the recorded messages of an episode", open_replay } };

int ww_policy_open(const struct ww_policy_opts *opts, struct ww_policy **out, struct ww_err *err)
{
	const char *spec = opts->spec;
	size_t n = strcspn(spec, ":+");
	const char *rest = spec[n] ? spec + n + 1 : NULL;
	n += spec[n] == '+';
	for (size_t i = 0; i < WW_ARRAY_LEN(policies); i++) {
		if (strlen(policies[i].name) != n || memcmp(policies[i].name, spec, n))
			continue;
		if (*policies[i].form != '[' && (!rest || !*rest))
			return ww_err_set(err, WW_ERR_USAGE, "policy %s needs an argument: --policy %s%s", policies[i].name,
				policies[i].name, policies[i].form);
		return policies[i].open(rest, opts, out, err);
	}
	ww_auto_str list = WW_STR_INIT(512);
	for (size_t i = 0; i < WW_ARRAY_LEN(policies); i++)
		ww_str_addf(&list, "%s%s%s (%s)", i ? ", " : "", policies[i].name, policies[i].form, policies[i].what);
	return ww_err_set(err, WW_ERR_USAGE, "no policy \"%s\"; there are: %s", spec, list.p);
}
