/* What a cpu plan writes lies in memory of the judge's: poison and guard bytes do not depend on the runner; nor does
 * the judge wait for one that has been taken over. */
#include "unit.h"

#include "base/fs.h"
#include "image_maker.h"
#include "judge/run/client.h"
#include "judge/run/owned.h"
#include "sandbox/sandbox.h"

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

/* A binary that got past the check of compiled kernels, and runs code when it is loaded, finds no file. */
static void no_files_when_a_binary_is_loaded(void **state)
{
	static const char source[] =
		"#include <fcntl.h>\nint opened = 1;\n__attribute__((constructor)) static void c(void) { "
		"if (open(\"/etc/passwd\", O_RDONLY) >= 0 || open(PATH, O_CREAT | O_WRONLY, 0600) >= 0) "
		"__builtin_trap(); }\nvoid k(void) { }\n";
	char dir[] = "/tmp/ww-test-owned-XXXXXX", line[1024], so[64];
	struct ww_err err = WW_ERR_INIT;
	struct ww_runner *r;
	struct ww_run_facts facts;
	struct ww_run_result res;
	struct ww_facts f = maker_facts(WW_TARGET_CPU);
	ww_auto_str binary = WW_STR_INIT(1 << 20);
	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(so, sizeof(so), "%s/k.so", dir);
	snprintf(line, sizeof(line), "cc -x c -shared -fPIC -DPATH='\"%s/escaped\"' -o %s - <<'E'\n%sE\n", dir, so, source);
	assert_int_equal(system(line), 0);
	assert_int_equal(ww_fs_read(so, 1 << 20, &binary, &err), WW_OK);
	struct ww_plan *p = maker_plan(&f);
	ww_launch(p, "k", 1, 1, 1, 1, 1, 1);
	struct ww_image *m = maker_image(p);
	assert_int_equal(ww_runner_new(&r, WW_TARGET_CPU, 0, 2, 0, &err), WW_OK);
	assert_int_equal(ww_runner_facts(r, &facts, &err), WW_OK);
	assert_int_equal(ww_runner_load(r, m, binary.p, binary.len, NULL, 0, 10, &res, &err), WW_OK);
	if (ww_sandbox_probe() < WW_SANDBOX_LANDLOCK)
		print_message("no Landlock: files stay in reach until the filter is closed\n");
	else
		assert_int_equal(res.kind, WW_RUN_OK);
	ww_runner_free(r);
	free(m);
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
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
		assert_int_equal(theirs[0], ww_run_poison(i));
		assert_int_equal(theirs[b.bytes - 1], ww_run_poison(i));
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
		cmocka_unit_test(requests_that_nobody_reads), cmocka_unit_test(no_files_when_a_binary_is_loaded),
		cmocka_unit_test(scratch_is_sealed_and_ends_with_a_page), cmocka_unit_test(poison_and_guards_are_the_judges) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
