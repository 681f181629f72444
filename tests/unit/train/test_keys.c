/* Which stages read which keys of a recipe: one table, of which the help is a part. */
#include "unit.h"

#include "train/keys.h"

/* "ppo, value: discount of a token" names the stages that read the key; without such words all do. */
static unsigned named_in(const char *help)
{
	const char *end = strstr(help, ": ");
	unsigned set = 0;
	for (const char *p = help; end && p < end; p += strspn(p, ", ")) {
		char word[32];
		size_t n = strcspn(p, ",: ");
		snprintf(word, sizeof(word), "%.*s", (int)n, p);
		if (!ww_stage_of(word))
			return WW_KEYS_ALL; /* a colon of the sentence's own */
		set |= ww_stage_of(word);
		p += n;
	}
	return set ? set : WW_KEYS_ALL;
}

static void the_help_names_the_stages(void **state)
{
	(void)state;
	int n = 0;
	for (const struct ww_opt *o = ww_recipe_keys; o->name; o++) {
		if (!strcmp(o->name, "json"))
			continue;
		if (named_in(o->help) != ww_key_stages(o->name))
			fail_msg("%s: %s", o->name, o->help);
		n++;
	}
	assert_true(n > 50);
}

static void a_key_without_effect_is_refused(void **state)
{
	static const struct {
		const char *key, *stage, *only;
	} bad[] = { { "schedule", "ppo", "pretrain, sft" }, { "spike", "value", "pretrain, sft" },
		{ "learn", "pretrain", "only in sft" }, { "lambda", "value", "ppo" }, { "lr", "value", "ppo" },
		{ "gamma", "sft", "ppo" }, { "steps", "value", "ppo" } };
	struct ww_err err = WW_ERR_INIT;
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(bad); i++) {
		assert_int_equal(ww_key_check(bad[i].key, bad[i].stage, &err), WW_ERR_USAGE);
		assert_non_null(strstr(err.msg, bad[i].key));
		assert_non_null(strstr(err.msg, bad[i].only));
	}
	assert_int_equal(ww_key_check("schedule", "sft", &err), WW_OK);
	assert_int_equal(ww_key_check("gamma", "value", &err), WW_OK);
	assert_int_equal(ww_key_check("other", "value", &err), WW_OK); /* reported as unknown by who reads it */
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(the_help_names_the_stages),
		cmocka_unit_test(a_key_without_effect_is_refused) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
