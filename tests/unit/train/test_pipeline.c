/* What a stage of a pipeline takes from those before it. */
#include "unit.h"

#include "train/pipeline.h"

static struct ww_recipe stage_of(const char *stage, const char *output)
{
	return (struct ww_recipe){ .stage = stage, .output = output, .advantage = "critic" };
}

static void each_stage_goes_on_from_the_one_before(void **state)
{
	struct ww_pipeline p = { .policy = "" };
	struct ww_recipe r = stage_of("pretrain", "o/pretrain");
	(void)state;
	r.config = "c.json";
	ww_pipeline_fill(&p, &r);
	assert_null(r.model);
	ww_pipeline_note(&p, &r);
	r = stage_of("sft", "o/sft");
	ww_pipeline_fill(&p, &r);
	assert_string_equal(r.model, "o/pretrain/model");
	ww_pipeline_note(&p, &r);
	r = stage_of("ppo", "o/ppo");
	ww_pipeline_fill(&p, &r);
	assert_string_equal(r.model, "o/sft/model");
	assert_null(r.critic);
	ww_pipeline_note(&p, &r);
	r = stage_of("rft", "o/rft");
	r.tasks = "t.py";
	ww_pipeline_fill(&p, &r);
	assert_string_equal(r.model, "o/ppo/model");
	assert_null(r.data);
	ww_pipeline_note(&p, &r);
	r = stage_of("value", "o/value");
	ww_pipeline_fill(&p, &r);
	assert_string_equal(r.model, "o/rft/model");
	assert_string_equal(r.data, "o/rft/episodes");
	ww_pipeline_note(&p, &r);
	r = stage_of("agentic", "o/agentic");
	ww_pipeline_fill(&p, &r);
	assert_string_equal(r.model, "o/rft/model"); /* not the critic's */
	assert_string_equal(r.critic, "o/value/model");
}

static void what_a_section_says_stands(void **state)
{
	struct ww_pipeline p = { .policy = "before", .critic = "judge", .episodes = "there" };
	struct ww_recipe r = stage_of("agentic", "o/agentic");
	(void)state;
	r.model = "mine";
	r.advantage = "rloo"; /* has no critic */
	ww_pipeline_fill(&p, &r);
	assert_string_equal(r.model, "mine");
	assert_null(r.critic);
	r = stage_of("value", "o/value");
	r.data = "others";
	ww_pipeline_fill(&p, &r);
	assert_string_equal(r.data, "others");
	r = stage_of("rft", "o/rft");
	r.data = "a,b"; /* recorded before: they are the critic's too */
	ww_pipeline_note(&p, &r);
	assert_string_equal(p.episodes, "a,b");
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(each_stage_goes_on_from_the_one_before),
		cmocka_unit_test(what_a_section_says_stands) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
