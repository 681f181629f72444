/* What a cpu plan writes lies in memory of the judge's: poison and guard bytes do not depend on the runner; nor does
 * the judge wait for one that has been taken over. */
#include "unit.h"

#include "judge/run/owned.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

/* What attacks of tests/cheats answer in the runner's place; of another size they would be refused for that alone. */
#include "../../cheats/lib/sys_cpu.h"
static void attacks_speak_the_protocol(void **state)
{
	struct frame f = { 0 };
	(void)state;
	assert_int_equal(sizeof(f.r), sizeof(struct ww_run_reply));
	assert_int_equal(offsetof(struct frame, r), sizeof(struct ww_run_head));
	assert_int_equal(offsetof(struct frame, r.text) - offsetof(struct frame, r), offsetof(struct ww_run_reply, text));
	assert_int_equal(OP_PREPARE, WW_RUN_PREPARE);
	assert_int_equal(OP_GO, WW_RUN_GO);
	assert_int_equal(KIND_OK, WW_RUN_OK);
	assert_int_equal(KIND_FAULT, WW_RUN_FAULT);
	assert_int_equal(KIND_BROKEN, WW_RUN_BROKEN);
}

/* A runner that answers what it has not read fills the socket; the judge does not wait for it for ever. */
static void requests_that_nobody_reads(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	enum ww_rc rc = WW_OK;
	struct ww_run_go go = { 0 };
	int sock[2], sent = 0;
	(void)state;
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	assert_int_equal(ww_run_send_limit(sock[0], 50, &err), WW_OK);
	for (; rc == WW_OK && sent < 100000; sent++)
		rc = ww_run_send(sock[0], WW_RUN_GO, &go, sizeof(go), NULL, 0, &err);
	assert_int_equal(rc, WW_ERR_TIMEOUT);
	assert_true(sent > 10);
	close(sock[0]), close(sock[1]);
}

static void scratch_is_sealed_and_ends_with_a_page(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_run_bind b = { 0 };
	int fd = -1;
	(void)state;
	assert_int_equal(ww_owned_scratch(5000, &b, &fd, &err), WW_OK);
	assert_int_equal(b.map_bytes, 8192);
	assert_int_equal(b.offset_bytes % 256, 0);
	assert_true(b.map_bytes - b.offset_bytes - b.bytes < 256);
	assert_int_equal(ftruncate(fd, 0), -1); /* else a runner could take the pages from under the judge */
	close(fd);
	assert_int_equal(ww_owned_scratch(0, &b, &fd, &err), WW_OK);
	assert_int_equal(b.map_bytes, 4096);
	close(fd);
}

static void poison_and_guards_are_the_judges(void **state)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_owned o = { 0 };
	char why[128] = "";
	(void)state;
	for (uint32_t i = 0; i < 40; i++) {
		struct ww_run_bind b = { .buf = i };
		int fd = -1;
		assert_int_equal(ww_owned_scratch(1000 + 60 * i, &b, &fd, &err), WW_OK);
		assert_int_equal(ww_owned_map(&o, &b, fd, i == 0 ? WW_BUF_OUTPUT : WW_BUF_SCRATCH, i, &err), WW_OK);
		unsigned char *theirs = mmap(NULL, b.map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		assert_ptr_not_equal(theirs, MAP_FAILED);
		close(fd);
		theirs += b.offset_bytes;
		memset(theirs, 0, b.bytes); /* "the answer", written once */
		ww_owned_poison(&o);
		assert_int_equal(theirs[0], WW_RUN_POISON_BYTE);
		assert_int_equal(theirs[b.bytes - 1], WW_RUN_POISON_BYTE);
		assert_true(ww_owned_intact(&o, why, sizeof(why)));
		theirs[b.bytes] ^= 1;
		assert_false(ww_owned_intact(&o, why, sizeof(why)));
		theirs[b.bytes] ^= 1;
		theirs[-1] ^= 1;
		assert_false(ww_owned_intact(&o, why, sizeof(why)));
		theirs[-1] ^= 1;
		assert_non_null(strstr(why, i == 0 ? "output 0" : "scratch"));
	}
	ww_owned_release(&o);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(attacks_speak_the_protocol),
		cmocka_unit_test(requests_that_nobody_reads), cmocka_unit_test(scratch_is_sealed_and_ends_with_a_page),
		cmocka_unit_test(poison_and_guards_are_the_judges) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
