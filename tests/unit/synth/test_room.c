/* Memory of a device that candidates share: who waits, and what they teach. */
#include "unit.h"

#include "base/time.h"
#include "synth/room.h"

#include <unistd.h>

struct taker {
	struct ww_synth_place place;
	void (*take)(struct ww_synth_place *);
	pthread_t thread;
	int there;
};

static void *takes(void *arg)
{
	struct taker *t = arg;
	t->take(&t->place);
	__atomic_store_n(&t->there, 1, __ATOMIC_SEQ_CST);
	return NULL;
}

static void start(struct taker *t) { assert_int_equal(pthread_create(&t->thread, NULL, takes, t), 0); }

/* Is it there after a while?  One that waits looks every 0.2 s at the latest. */
static int is_there(struct taker *t, double seconds)
{
	uint64_t begin = ww_now_ns();
	while (ww_seconds_since(begin) < seconds && !__atomic_load_n(&t->there, __ATOMIC_SEQ_CST))
		usleep(2000);
	return __atomic_load_n(&t->there, __ATOMIC_SEQ_CST);
}

static void one_waits_until_there_is_room(void **state)
{
	struct ww_synth_room r;
	ww_room_init(&r);
	ww_room_limit(&r, 100);
	struct ww_synth_place first = { .room = &r, .bytes = 60, .idle = 10 };
	struct taker second = { .place = { .room = &r, .bytes = 50, .idle = 10 }, .take = ww_room_take };
	ww_room_take(&first);
	start(&second);
	assert_false(is_there(&second, 0.05));
	ww_room_rest(&first); /* its inputs stay: 10 */
	assert_true(is_there(&second, 5));
	struct taker back = { .place = first, .take = ww_room_back };
	start(&back);
	assert_false(is_there(&back, 0.05));
	ww_room_known(&second.place, 30);
	assert_true(is_there(&back, 5));
	pthread_join(second.thread, NULL);
	pthread_join(back.thread, NULL);
	assert_true(r.used == 90);
	ww_room_give(&back.place);
	ww_room_give(&second.place);
	assert_true(r.used == 0 && r.running == 0);
	ww_room_release(&r);
}

static void a_large_one_is_passed_for_some_time_only(void **state)
{
	struct ww_synth_room r;
	ww_room_init(&r);
	ww_room_limit(&r, 100);
	r.patience_s = 0.3;
	struct ww_synth_place first = { .room = &r, .bytes = 60, .idle = 10 };
	struct taker large = { .place = { .room = &r, .bytes = 90 }, .take = ww_room_take };
	struct taker small = { .place = { .room = &r, .bytes = 5 }, .take = ww_room_take }, late = small;
	ww_room_take(&first);
	start(&large);
	assert_false(is_there(&large, 0.05));
	start(&small);
	assert_true(is_there(&small, 5));
	assert_false(is_there(&large, 0.4));
	start(&late); /* there is room for it */
	assert_false(is_there(&late, 0.3));
	ww_room_give(&first);
	assert_true(is_there(&large, 5) && is_there(&late, 5));
	pthread_join(small.thread, NULL);
	pthread_join(large.thread, NULL);
	pthread_join(late.thread, NULL);
	assert_true(r.used == 100 && !r.to_begin.first);
	ww_room_release(&r);
}

static void one_alone_waits_for_all_and_all_for_it(void **state)
{
	struct ww_synth_room r;
	ww_room_init(&r);
	ww_room_limit(&r, 100);
	r.patience_s = 0;
	struct ww_synth_place first = { .room = &r, .bytes = 20, .idle = 5 };
	struct taker alone = { .place = { .room = &r, .bytes = -1, .idle = 5 }, .take = ww_room_take };
	struct taker late = { .place = { .room = &r, .bytes = 20, .idle = 5 }, .take = ww_room_take };
	ww_room_take(&first);
	start(&alone);
	assert_false(is_there(&alone, 0.05));
	start(&late); /* there is room, but somebody waits to be alone */
	assert_false(is_there(&late, 0.05));
	ww_room_give(&first);
	assert_true(is_there(&alone, 5));
	assert_false(is_there(&late, 0.05));
	ww_room_known(&alone.place, 70);
	assert_true(is_there(&late, 5));
	assert_true(r.used == 90);
	pthread_join(alone.thread, NULL);
	pthread_join(late.thread, NULL);
	ww_room_rest(&alone.place);
	assert_true(r.used == 25);
	ww_room_back(&alone.place);
	ww_room_give(&alone.place);
	ww_room_give(&late.place);
	assert_true(r.used == 0 && !r.alone && !r.waiting && !r.running);
	ww_room_release(&r);
}

static void one_that_waits_to_be_alone_is_passed_for_some_time(void **state)
{
	struct ww_synth_room r;
	ww_room_init(&r);
	ww_room_limit(&r, 100);
	r.patience_s = 0.3;
	struct ww_synth_place first = { .room = &r, .bytes = 20, .idle = 5 };
	struct taker alone = { .place = { .room = &r, .bytes = -1, .idle = 5 }, .take = ww_room_take };
	struct taker small = { .place = { .room = &r, .bytes = 20 }, .take = ww_room_take }, late = small;
	ww_room_take(&first);
	start(&alone);
	assert_false(is_there(&alone, 0.05));
	start(&small);
	assert_true(is_there(&small, 5));
	assert_false(is_there(&alone, 0.4));
	start(&late);
	assert_false(is_there(&late, 0.3));
	ww_room_give(&first);
	ww_room_give(&small.place);
	assert_true(is_there(&alone, 5));
	assert_false(is_there(&late, 0.05));
	ww_room_give(&alone.place);
	assert_true(is_there(&late, 5));
	pthread_join(alone.thread, NULL);
	pthread_join(small.thread, NULL);
	pthread_join(late.thread, NULL);
	ww_room_give(&late.place);
	assert_true(r.used == 0 && !r.alone && !r.running && !r.to_begin.first);
	ww_room_release(&r);
}

static void what_holds_little_compiles_beside_one_that_stays(void **state)
{
	struct ww_synth_room r;
	ww_room_init(&r);
	ww_room_limit(&r, 100);
	struct ww_synth_place compiles = { .room = &r, .bytes = 60, .idle = 1.5 };
	struct taker stays = { .place = { .room = &r, .bytes = -1, .idle = 5, .stays = 1 }, .take = ww_room_take };
	struct taker back = { .take = ww_room_back };
	ww_room_take(&compiles);
	ww_room_rest(&compiles);
	start(&stays);
	assert_true(is_there(&stays, 5));
	back.place = compiles;
	start(&back);
	assert_false(is_there(&back, 0.3));
	ww_room_give(&stays.place);
	assert_true(is_there(&back, 5));
	ww_room_give(&back.place);
	assert_true(r.used == 0 && !r.alone && !r.running);
	pthread_join(stays.thread, NULL);
	pthread_join(back.thread, NULL);
	ww_room_release(&r);
}

static void one_is_tried_again_with_more_or_once_in_a_new_worker(void **state)
{
	struct ww_synth_room r;
	ww_room_init(&r);
	ww_room_limit(&r, 100);
	struct ww_synth_try t = { .bytes = 30 };
	assert_false(ww_room_again(&r, &t, 0, 0));
	assert_true(ww_room_again(&r, &t, 1, 0) && t.bytes == 60 && !t.stays);
	assert_true(ww_room_again(&r, &t, 0, 1) && t.bytes == 60 && !t.stays); /* not alone: everybody would wait for it */
	assert_true(ww_room_again(&r, &t, 1, 0) && t.bytes < 0 && !t.stays);
	assert_true(ww_room_again(&r, &t, 1, 0) && t.bytes < 0 && t.stays);
	assert_false(ww_room_again(&r, &t, 1, 0));
	assert_false(ww_room_again(&r, &t, 0, 1));
	struct ww_synth_try cpu = { 0 };
	assert_false(ww_room_again(NULL, &cpu, 1, 0));
	assert_true(ww_room_again(NULL, &cpu, 0, 1));
	assert_false(ww_room_again(NULL, &cpu, 0, 1));
	ww_room_release(&r);
}

static void one_alone_begins_beside_compilers_unless_it_stays(void **state)
{
	struct ww_synth_room r;
	ww_room_init(&r);
	ww_room_limit(&r, 100);
	struct ww_synth_place compiles = { .room = &r, .bytes = 60, .idle = 20 };
	struct taker alone = { .place = { .room = &r, .bytes = -1, .idle = 5 }, .take = ww_room_take };
	struct taker stays = { .place = { .room = &r, .bytes = -1, .idle = 5, .stays = 1 }, .take = ww_room_take };
	struct taker back = { .take = ww_room_back };
	ww_room_take(&compiles);
	ww_room_rest(&compiles);
	start(&alone);
	assert_true(is_there(&alone, 5));
	back.place = compiles;
	start(&back);
	assert_false(is_there(&back, 0.05));
	ww_room_give(&alone.place);
	assert_true(is_there(&back, 5));
	ww_room_rest(&back.place);
	start(&stays);
	assert_false(is_there(&stays, 0.3));
	ww_room_back(&back.place);
	ww_room_give(&back.place);
	assert_true(is_there(&stays, 5));
	ww_room_known(&stays.place, 10);
	ww_room_rest(&stays.place);
	assert_true(r.alone && r.running == 1);
	ww_room_back(&stays.place);
	ww_room_give(&stays.place);
	assert_true(r.used == 0 && !r.alone && !r.waiting && !r.running && !r.to_begin.first);
	pthread_join(alone.thread, NULL);
	pthread_join(back.thread, NULL);
	pthread_join(stays.thread, NULL);
	ww_room_release(&r);
}

static void the_largest_has_what_there_is(void **state)
{
	struct ww_synth_room r;
	ww_room_init(&r);
	ww_room_limit(&r, 100);
	assert_true(ww_room_expected(&r, 50) == 100);
	ww_room_release(&r);
}

static void candidates_show_what_the_next_will_need(void **state)
{
	struct ww_synth_room r;
	ww_room_init(&r);
	ww_room_limit(&r, 1e6);
	assert_true(ww_room_expected(&r, 10) == 30);
	for (int k = 0; k < 100; k++)
		ww_room_learn(&r, 10, k == 50 ? 90 : 5 + k % 10);                          /* 0.5 to 1.4, one of 9 */
	assert_true(ww_room_expected(&r, 10) > 12 && ww_room_expected(&r, 10) < 12.2); /* more than 60% of them took */
	for (int k = 0; k < WW_ROOM_SEEN; k++)                                         /* the last ones count */
		ww_room_learn(&r, 10, 20);
	assert_true(ww_room_expected(&r, 10) > 21.9 && ww_room_expected(&r, 10) < 22.1);
	ww_room_learn(&r, 0, 20);
	ww_room_learn(&r, 10, 0);
	assert_true(ww_room_expected(&r, 10) > 21.9 && ww_room_expected(&r, 10) < 22.1);
	ww_room_release(&r);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_waits_until_there_is_room),
		cmocka_unit_test(one_alone_waits_for_all_and_all_for_it),
		cmocka_unit_test(a_large_one_is_passed_for_some_time_only),
		cmocka_unit_test(one_that_waits_to_be_alone_is_passed_for_some_time),
		cmocka_unit_test(what_holds_little_compiles_beside_one_that_stays),
		cmocka_unit_test(one_is_tried_again_with_more_or_once_in_a_new_worker),
		cmocka_unit_test(one_alone_begins_beside_compilers_unless_it_stays),
		cmocka_unit_test(the_largest_has_what_there_is),
		cmocka_unit_test(candidates_show_what_the_next_will_need),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
