/* pipeline.c - see pipeline.h. */
#include "train/pipeline.h"
#include "train/keys.h"

#include <stdio.h>
#include <string.h>

void ww_pipeline_fill(const struct ww_pipeline *p, struct ww_recipe *r)
{
	unsigned stage = ww_stage_of(r->stage);
	if (!r->model && !r->config && p->policy[0])
		r->model = p->policy;
	if (stage == WW_STAGE_VALUE && !r->data && p->episodes[0])
		r->data = p->episodes;
	if (stage & WW_KEYS_POLICY && !r->critic && !strcmp(r->advantage, "critic") && p->critic[0])
		r->critic = p->critic;
}

static void set(char *to, const char *output, const char *name)
{
	snprintf(to, PATH_MAX, "%.4000s%s%s", output, *name ? "/" : "", name);
}

void ww_pipeline_note(struct ww_pipeline *p, const struct ww_recipe *r)
{
	unsigned stage = ww_stage_of(r->stage);
	if (stage == WW_STAGE_VALUE)
		set(p->critic, r->output, "model");
	else
		set(p->policy, r->output, "model");
	if (stage == WW_STAGE_RFT && !r->tasks)
		set(p->episodes, r->data, "");
	else if (stage & WW_KEYS_SAMPLE)
		set(p->episodes, r->output, "episodes");
}
