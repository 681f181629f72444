/* Unit tests of src/base: strings, arenas, errors, random numbers, hashes, files, options, JSON. */
#include "unit.h"

#include "base/arena.h"
#include "base/fdpass.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/opt.h"
#include "base/rng.h"
#include "base/str.h"
#include "base/time.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#ifdef WW_SANITIZE
#include <sanitizer/asan_interface.h>
#endif
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

static void str_keeps_its_maximum(void **state)
{
	(void)state;
	struct ww_arena arena;
	ww_arena_init(&arena, 1 << 20);
	for (int in_arena = 0; in_arena < 2; in_arena++) {
		struct ww_str s = WW_STR_IN(in_arena ? &arena : NULL, 10);
		ww_str_adds(&s, "hello");
		ww_str_addf(&s, " %s", "world");
		assert_int_equal(s.len, 10);
		assert_string_equal(s.p, "hello worl");
		assert_true(s.cut);
		ww_str_reset(&s);
		assert_string_equal(s.p, "");
		assert_false(s.cut);
		ww_str_release(&s);
	}
	ww_arena_release(&arena);
}

#ifdef WW_SANITIZE
/* AddressSanitizer reports what goes over the end of one allocation into the next, and what was taken back. */
static void arena_shows_overruns(void **state)
{
	(void)state;
	struct ww_arena arena;
	ww_arena_init(&arena, 1 << 20);
	char *a = ww_arena_alloc(&arena, 24);
	struct ww_arena_mark mark = ww_arena_mark(&arena);
	char *b = ww_arena_alloc(&arena, 16);
	assert_false(__asan_address_is_poisoned(a + 23));
	assert_true(__asan_address_is_poisoned(a + 24));
	assert_false(__asan_address_is_poisoned(b));
	assert_true(__asan_address_is_poisoned(b + 16));
	ww_arena_rewind(&arena, mark);
	assert_true(__asan_address_is_poisoned(b));
	ww_arena_release(&arena);
}
#endif

/* What was there before the mark stays; what is allocated next takes the place of what is gone, and is zero. */
static void arena_goes_back_to_a_mark(void **state)
{
	(void)state;
	struct ww_arena arena;
	ww_arena_init(&arena, 1 << 20);
	struct ww_arena_mark empty = ww_arena_mark(&arena);
	char *kept = ww_arena_strdup(&arena, "kept");
	size_t used = arena.used_bytes;
	for (int i = 0; i < 1000; i++) { /* of more than one block, and of more bytes in all than the arena may have */
		struct ww_arena_mark mark = ww_arena_mark(&arena);
		for (int k = 0; k < 3; k++)
			memset(ww_arena_alloc(&arena, 10000), 0xff, 10000);
		ww_arena_rewind(&arena, mark);
		assert_int_equal(arena.used_bytes, used);
	}
	assert_string_equal(kept, "kept");
	char *next = ww_arena_alloc(&arena, 64);
	for (int i = 0; i < 64; i++)
		assert_int_equal(next[i], 0);
	ww_arena_rewind(&arena, empty);
	assert_null(arena.head);
	ww_arena_release(&arena);
}

/* No release: the arena's end is the string's. */
static void str_grows_in_an_arena(void **state)
{
	(void)state;
	struct ww_arena arena;
	ww_arena_init(&arena, 1 << 16);
	struct ww_str s = WW_STR_IN(&arena, 1 << 20);
	for (int i = 0; i < 1000; i++)
		ww_str_addf(&s, "%d ", i % 10);
	assert_int_equal(s.len, 2000);
	char *copy = ww_str_take(&s);
	assert_int_equal(strlen(copy), 2000);
	free(copy);
	while (!s.cut) /* the arena ends before the string's maximum */
		ww_str_addf(&s, "%s", "0123456789");
	assert_true(s.len < 1 << 16);
	ww_arena_release(&arena);
}

static void str_bounded_keeps_head_and_tail(void **state)
{
	(void)state;
	struct ww_str s = WW_STR_INIT(4096);
	char long_text[1000];
	memset(long_text, 'a', sizeof(long_text));
	long_text[999] = 'z';
	ww_str_add_bounded(&s, long_text, sizeof(long_text), 90);
	assert_non_null(strstr(s.p, "[... 910 bytes cut ...]"));
	assert_int_equal(s.p[s.len - 1], 'z');
	ww_str_reset(&s);
	ww_str_add_bounded(&s, "a\x1b[31m\xff\xc3\xa9\xc3", 10, 100);
	assert_string_equal(s.p, "a?[31m?\xc3\xa9?");
	ww_str_add_line(&s, "\tb\nc\xc2\x9b", 100);
	assert_string_equal(s.p, "a?[31m?\xc3\xa9? b c??");
	ww_str_release(&s);
}

/* Neither a cut nor a long line lets a stranger's text begin a line, and nothing invisible gets through. */
/* What a line of the log quotes does not reach a terminal as a control character, nor as a line of its own. */
static void log_lines_are_clean(void **state)
{
	char got[256] = "";
	int p[2], err = dup(STDERR_FILENO);
	(void)state;
	assert_int_equal(pipe(p), 0);
	dup2(p[1], STDERR_FILENO);
	ww_log(WW_LOG_ERROR, "task %s", "x\033[2J\r\b\nwarpwright: forged \302\233K \xff\xe2\x80\xae");
	dup2(err, STDERR_FILENO);
	assert_true(read(p[0], got, sizeof(got) - 1) > 0);
	close(p[0]), close(p[1]), close(err);
	for (const char *c = got; *c; c++)
		assert_true((*c >= ' ' && *c <= '~') || (*c == '\n' && !c[1]));
	assert_true(!strncmp(got, "warpwright: task x?[2J", 22) && strstr(got, "forged"));
}

static void str_quotes_untrusted_text(void **state)
{
	(void)state;
	struct ww_str s = WW_STR_INIT(1 << 16), text = WW_STR_INIT(1 << 16), again = WW_STR_INIT(1 << 16);
	ww_str_add_quoted(&s, "one\ntwo\r\nthree", 14, 100);
	assert_string_equal(s.p, "| one\n| two\n| three\n");
	ww_str_reset(&s);
	ww_str_add_quoted(&s,
		"a\xe2\x80\xae"
		"b\xe2\x81\xa6"
		"c\xe2\x80\xa8"
		"d\xef\xbb\xbf"
		"e\xc2\x85"
		"f\xf3\xa0\x80\xa1",
		24, 100);
	for (const char *p = s.p; *p; p++)
		assert_true((unsigned char)*p < 0x80);
	for (int line = 0; line < 40; line++) {
		for (int i = 0; i < line * 40; i++)
			ww_str_addc(&text, (char)('a' + i % 26));
		ww_str_addc(&text, '\n');
	}
	for (size_t max = 90; max < 20000; max += 700) {
		ww_str_reset(&s);
		ww_str_reset(&again);
		ww_str_add_quoted(&s, text.p, text.len, 30000);
		ww_str_add_bounded(&again, s.p, s.len, max); /* as a verdict's diagnostics are */
		for (const char *p = again.p; p && *p; p = strchr(p, '\n') ? strchr(p, '\n') + 1 : NULL)
			assert_true(!strncmp(p, "| ", 2) || !strncmp(p, "[... ", 5) || *p == '\n');
		assert_true(again.len <= max + 64);
	}
	ww_str_reset(&s);
	ww_str_add_quoted(&s, "", 0, 100);
	assert_int_equal(s.len, 0);
	ww_str_release(&s);
	ww_str_release(&text);
	ww_str_release(&again);
}

static void arena_refuses_beyond_maximum(void **state)
{
	(void)state;
	struct ww_arena a;
	ww_arena_init(&a, 100000);
	char *p = ww_arena_alloc(&a, 50000);
	assert_non_null(p);
	assert_int_equal((uintptr_t)p % 16, 0);
	for (int i = 0; i < 50000; i++)
		assert_int_equal(p[i], 0);
	assert_non_null(ww_arena_alloc(&a, 50000));
	assert_null(ww_arena_alloc(&a, 1));
	ww_arena_release(&a);
	assert_string_equal(ww_arena_printf(&a, "%d-%s", 7, "x"), "7-x");
	ww_arena_release(&a);
}

static void err_is_one_line_and_maps_full_disks(void **state)
{
	(void)state;
	struct ww_err err = WW_ERR_INIT;
	assert_int_equal(ww_err_set(&err, WW_ERR_USAGE, "a\nb"), WW_ERR_USAGE);
	assert_string_equal(err.msg, "a b");
	ww_err_wrap(&err, "in %s", "file");
	assert_string_equal(err.msg, "in file: a b");
	assert_int_equal(ww_rc_exit(err.rc), 2);
	errno = ENOSPC;
	assert_int_equal(ww_err_errno(&err, WW_ERR_IO, "write"), WW_ERR_FULL);
}

/* Known answers of Philox4x32-10 from the Random123 distribution's test vectors. */
static void philox_known_answers(void **state)
{
	(void)state;
	uint32_t out[4];
	ww_philox((uint32_t[4]){ 0, 0, 0, 0 }, (uint32_t[2]){ 0, 0 }, out);
	assert_int_equal(out[0], 0x6627e8d5);
	assert_int_equal(out[1], 0xe169c58d);
	assert_int_equal(out[2], 0xbc57ac4c);
	assert_int_equal(out[3], 0x9b00dbd8);
	ww_philox((uint32_t[4]){ ~0u, ~0u, ~0u, ~0u }, (uint32_t[2]){ ~0u, ~0u }, out);
	assert_int_equal(out[0], 0x408f276d);
	assert_int_equal(out[1], 0x41c83b0e);
}

static void rng_below_is_in_range_and_even(void **state)
{
	(void)state;
	struct ww_rng r;
	ww_rng_init(&r, 1, 2);
	int seen[7] = { 0 };
	for (int i = 0; i < 7000; i++)
		seen[ww_rng_below(&r, 7)]++;
	for (int i = 0; i < 7; i++)
		assert_in_range(seen[i], 850, 1150);
	uint64_t a = ww_rng_secret(), b = ww_rng_secret();
	assert_true(a != b && a >> 63 == 0);
}

static void hash_known_answer(void **state)
{
	(void)state;
	char hex[WW_HASH_HEX], other[WW_HASH_HEX];
	ww_hash_hex("abc", 3, hex);
	assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
	struct ww_hash_part ab_c[] = { { "ab", 2 }, { "c", 1 } }, a_bc[] = { { "a", 1 }, { "bc", 2 } };
	ww_hash_parts_hex(ab_c, 2, hex);
	ww_hash_parts_hex(a_bc, 2, other);
	assert_string_not_equal(hex, other);
}

static void files_are_whole_or_absent(void **state)
{
	(void)state;
	char dir[] = "/tmp/ww-base-XXXXXX", path[PATH_MAX];
	assert_non_null(mkdtemp(dir));
	struct ww_err err = WW_ERR_INIT;
	snprintf(path, sizeof(path), "%s/a/b", dir);
	assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
	strcat(path, "/f");
	assert_int_equal(ww_fs_write(path, "one", 3, &err), WW_OK);
	assert_int_equal(ww_fs_write(path, "two!", 4, &err), WW_OK);
	struct ww_str s = WW_STR_INIT(100);
	assert_int_equal(ww_fs_read(path, 100, &s, &err), WW_OK);
	assert_string_equal(s.p, "two!");
	assert_int_equal(ww_fs_read(path, 3, &s, &err), WW_ERR_LIMIT);
	assert_int_equal(ww_fs_read(dir, 100, &s, &err), WW_ERR_USAGE);
	assert_int_equal(ww_fs_read("/nonexistent", 100, &s, &err), WW_ERR_USAGE);
	assert_non_null(strstr(err.msg, "No such file"));
	/* a full device: /dev/full cannot be renamed over, so the directory is what fails here */
	assert_int_not_equal(ww_fs_write("/proc/warpwright", "x", 1, &err), WW_OK);
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
	assert_false(ww_fs_is_dir(dir));
	ww_str_release(&s);
}

static enum ww_rc note_path(void *ctx, const char *path, struct ww_err *err)
{
	ww_str_addf(ctx, "%s ", strrchr(path, '/') + 1);
	return strstr(path, "last") ? ww_err_set(err, WW_ERR_IO, "enough") : WW_OK;
}

/* In the order of names, without hidden ones and links, until one fails. */
static void files_are_found_in_order(void **state)
{
	(void)state;
	static const char *const made[] = { "b/two", "b/one", "a", "c", "last", "zero", ".hidden", ".git/f" };
	char dir[] = "/tmp/ww-walk-XXXXXX", path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	ww_auto_str seen = WW_STR_INIT(200);
	assert_non_null(mkdtemp(dir));
	for (size_t i = 0; i < WW_ARRAY_LEN(made); i++) {
		assert_int_equal(ww_fs_join(path, dir, made[i], &err), WW_OK);
		*strrchr(path, '/') = 0;
		assert_int_equal(ww_fs_mkdirs(path, &err), WW_OK);
		path[strlen(path)] = '/';
		assert_int_equal(ww_fs_write(path, "", 0, &err), WW_OK);
	}
	assert_int_equal(ww_fs_join(path, dir, "b/three", &err), WW_OK);
	assert_int_equal(symlink("one", path), 0);
	assert_int_equal(ww_fs_walk(dir, note_path, &seen, &err), WW_ERR_IO);
	assert_string_equal(seen.p, "a one two c last ");
	assert_int_equal(ww_fs_walk("/nonexistent", note_path, &seen, &err), WW_ERR_IO);
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
}

static void too_long_json_leaves_no_file(void **state)
{
	(void)state;
	char dir[] = "/tmp/ww-json-XXXXXX", path[PATH_MAX];
	struct ww_err err = WW_ERR_INIT;
	json_auto_t *v = json_pack("{s:s}", "key", "value"), *back = NULL;
	assert_non_null(mkdtemp(dir));
	assert_int_equal(ww_fs_join(path, dir, "v.json", &err), WW_OK);
	assert_int_equal(ww_json_write_file(dir, "v.json", 8, v, &err), WW_ERR_LIMIT);
	assert_int_equal(ww_json_write_file(dir, "v.json", 100, NULL, &err), WW_ERR_NOMEM);
	assert_int_equal(access(path, F_OK), -1);
	assert_int_equal(ww_json_write_file(NULL, path, 100, v, &err), WW_OK);
	assert_int_equal(ww_json_read_file(path, 100, &back, &err), WW_OK);
	assert_true(json_equal(v, back));
	assert_int_equal(ww_fs_remove_tree(dir, &err), WW_OK);
}

/* Descriptors that nobody asked for do not stay open: a peer could fill our table with them. */
static void unwanted_descriptors_are_closed(void **state)
{
	(void)state;
	int sock[2], sent[3] = { 0, 1, 2 }, fds[2] = { -1, -1 }, n = 0, next = dup(0);
	char byte;
	struct iovec iov = { &byte, 1 };
	close(next);
	assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, sock), 0);
	byte = 'F';
	assert_int_equal(ww_fdpass_send(sock[0], &iov, 1, sent, 3, 0), 1);
	assert_int_equal(ww_fdpass_receive(sock[1], &byte, 1, fds, 1, &n, 0), 1);
	assert_int_equal(n, 1);
	assert_int_equal(byte, 'F');
	assert_int_equal(fcntl(fds[0], F_GETFD), FD_CLOEXEC);
	assert_int_equal(fds[1], -1);
	close(fds[0]);
	close(sock[0]);
	close(sock[1]);
	fds[0] = dup(0); /* the lowest free one, as before */
	assert_int_equal(fds[0], next);
	close(fds[0]);
}

/* A limit in seconds that would not fit is a long one, not one that has passed. */
static void deadlines_do_not_wrap(void **state)
{
	(void)state;
	static const double most[] = { 1e9, 1e10, 1.8e10, 1e11, 1e300, INFINITY };
	uint64_t now = ww_now_ns();
	assert_in_range(ww_deadline_ns(2), now + 2000000000, now + 60000000000);
	for (size_t i = 0; i < WW_ARRAY_LEN(most); i++)
		assert_true(ww_deadline_ns(most[i]) - now >= 1000000000000000000 && ww_deadline_ns(most[i]) < INT64_MAX);
	assert_true(ww_deadline_ns(0) - now < 60000000000 && ww_deadline_ns(-1e12) - now < 60000000000);
	assert_true(ww_deadline_ns(NAN) - now < 60000000000);
}

struct values {
	int flag;
	int64_t n;
	double x;
	const char *s, *c;
};
static const struct ww_opt opts[] = { { "flag", 'f', WW_OPT_FLAG, offsetof(struct values, flag), NULL, NULL, 0, 0,
										  "a flag" },
	{ "count", 'n', WW_OPT_INT, offsetof(struct values, n), "N", "5", 1, 10, "a number" },
	{ "ratio", 0, WW_OPT_NUM, offsetof(struct values, x), "X", NULL, 0, 0, "a ratio" },
	{ "out", 'o', WW_OPT_STR, offsetof(struct values, s), "DIR", NULL, 0, 0, "a place" },
	{ "target", 0, WW_OPT_CHOICE, offsetof(struct values, c), "cuda|cpu", "cpu", 0, 0, "a choice" }, WW_OPT_END };
static const struct ww_cmd cmd = { "test", "FILE", "tests", NULL, opts, sizeof(struct values), 1, 2, NULL };

static enum ww_rc parse(struct values *v, int *rest, struct ww_err *err, const char *line)
{
	static char copy[256];
	static char *argv[16];
	int argc = 0;
	snprintf(copy, sizeof(copy), "%s", line);
	for (char *p = strtok(copy, " "); p; p = strtok(NULL, " "))
		argv[argc++] = p;
	return ww_opt_parse(&cmd, argc, argv, v, rest, err);
}

static void options_parse_and_complain(void **state)
{
	(void)state;
	struct values v;
	struct ww_err err = WW_ERR_INIT;
	int rest;
	assert_int_equal(parse(&v, &rest, &err, "a.py -f --count=7 --ratio 0.5 -odir --target cuda b"), WW_OK);
	assert_true(v.flag && v.n == 7 && v.x == 0.5 && !strcmp(v.s, "dir") && !strcmp(v.c, "cuda") && rest == 2);
	assert_int_equal(parse(&v, &rest, &err, "a"), WW_OK);
	assert_true(v.n == 5 && !strcmp(v.c, "cpu") && !v.s);
	assert_int_equal(parse(&v, &rest, &err, "-- -x"), WW_OK);
	static const char *const wrong[] = { "a --count 11", "a --count x", "a --nope", "a --target gpu", "a --count", "",
		"a b c", "a --flag=1", "a --ratio nan", "a --target cuda|cpu" };
	for (size_t i = 0; i < WW_ARRAY_LEN(wrong); i++)
		assert_int_equal(parse(&v, &rest, &err, wrong[i]), WW_ERR_USAGE);
	struct ww_str help = WW_STR_INIT(4096);
	ww_opt_help(&cmd, &help);
	assert_non_null(strstr(help.p, "--count N"));
	assert_non_null(strstr(help.p, "(default 5)"));
	ww_str_release(&help);
}

static void json_reals_survive(void **state)
{
	(void)state;
	double values[] = { 0.1, -INFINITY, INFINITY, 1e300 };
	struct ww_err err = WW_ERR_INIT;
	for (size_t i = 0; i < WW_ARRAY_LEN(values); i++) {
		json_t *o = json_pack("{s:o}", "v", ww_json_real(values[i])), *back = NULL;
		struct ww_str s = WW_STR_INIT(256);
		ww_json_add(&s, o);
		assert_int_equal(ww_json_parse(s.p, s.len, "test", &back, &err), WW_OK);
		double got;
		assert_int_equal(ww_json_get_num(back, "v", "test", &got, &err), WW_OK);
		assert_true(got == values[i]);
		assert_int_equal(ww_json_get_num(back, "w", "test", &got, &err), WW_ERR_PROTOCOL);
		json_decref(o);
		json_decref(back);
		ww_str_release(&s);
	}
	json_t *v = NULL;
	assert_int_equal(ww_json_parse("{\"a\":1,\"a\":2}", 13, "test", &v, &err), WW_ERR_PROTOCOL);
}

/* Small texts that would be large trees; what is inside strings does not count. */
static void json_messages_are_bounded(void **state)
{
	static const struct {
		const char *begin, *each, *end;
		int n, fits;
	} rows[] = { { "[0", ",{}", "]", 16383, 1 }, { "[0", ",{}", "]", 16384, 0 }, { "[0", ",[]", "]", 16384, 0 },
		{ "[0", ",1", "]", 262143, 1 }, { "[0", ",1", "]", 262144, 0 }, { "[\"", ",{}[]:\\\"", "\"]", 100000, 1 },
		{ "[0, \"\\\\\"", ",{}", "]", 16384, 0 } };
	(void)state;
	for (size_t i = 0; i < WW_ARRAY_LEN(rows); i++) {
		struct ww_err err = WW_ERR_INIT;
		ww_auto_str s = WW_STR_INIT(4 << 20);
		json_auto_t *v = NULL;
		ww_str_adds(&s, rows[i].begin);
		for (int k = 0; k < rows[i].n; k++)
			ww_str_adds(&s, rows[i].each);
		ww_str_adds(&s, rows[i].end);
		enum ww_rc rc = ww_json_parse_message(s.p, s.len, "message", &v, &err);
		if (rc != (rows[i].fits ? WW_OK : WW_ERR_LIMIT))
			fail_msg("row %zu: %s", i, err.msg);
	}
}

/* What ww_json_add() writes is what jansson would. */
static void json_bytes_are_jansson_s(void **state)
{
	(void)state;
	static const char *const texts[] = { "{}", "[]", "null", "true", "\"\"", "0", "-0", "-0.0", "1.5", "1e300",
		"-2.5e-300", "0.1", "100.0", "-3.0", "999999999999999.0", "1e15", "1e17", "123456789012345678.0",
		"9223372036854775807", "-9223372036854775808",
		"{\"\":[{},[],[[]],{\"a\":null}],\"b\":[1,-2,3.25,false,true,\"x\"],\"quote\\\"\\n\":1}",
		"\"\\u0001\\b\\t\\n\\u000b\\f\\r\\u001f \\\" \\\\ / \\u007f \xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80\"" };
	for (size_t i = 0; i < WW_ARRAY_LEN(texts); i++) {
		struct ww_str s = WW_STR_INIT(4096);
		struct ww_err err = WW_ERR_INIT;
		json_t *v = NULL;
		assert_int_equal(ww_json_parse(texts[i], strlen(texts[i]), "test", &v, &err), WW_OK);
		char *want = json_dumps(v, JSON_COMPACT | JSON_ENCODE_ANY | JSON_REAL_PRECISION(17));
		ww_json_add(&s, v);
		assert_string_equal(s.p, want);
		free(want);
		json_decref(v);
		ww_str_release(&s);
	}
	struct ww_str s = WW_STR_INIT(64);
	json_t *zero = json_stringn("a\0b", 3);
	ww_json_add(&s, zero);
	assert_string_equal(s.p, "\"a\\u0000b\"");
	json_decref(zero);
	ww_str_release(&s);
}

static void lists_come_apart_at_commas(void **state)
{
	const char *list = " a.py, b c.py ,,\nlong-name.py,", *none = " , ";
	char part[8];
	size_t n;
	(void)state;
	assert_int_equal(ww_list_part(&list, part, sizeof(part)), 1);
	assert_string_equal(part, "a.py");
	assert_int_equal(ww_list_part(&list, part, sizeof(part)), 1);
	assert_string_equal(part, "b c.py");
	assert_int_equal(ww_list_part(&list, part, sizeof(part)), -1);
	assert_int_equal(ww_list_part(&list, part, sizeof(part)), 0);
	assert_null(ww_list_next(&none, &n));
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(str_keeps_its_maximum),
		cmocka_unit_test(str_grows_in_an_arena), cmocka_unit_test(arena_goes_back_to_a_mark),
#ifdef WW_SANITIZE
		cmocka_unit_test(arena_shows_overruns),
#endif
		cmocka_unit_test(str_bounded_keeps_head_and_tail), cmocka_unit_test(str_quotes_untrusted_text),
		cmocka_unit_test(log_lines_are_clean), cmocka_unit_test(arena_refuses_beyond_maximum),
		cmocka_unit_test(err_is_one_line_and_maps_full_disks), cmocka_unit_test(philox_known_answers),
		cmocka_unit_test(rng_below_is_in_range_and_even), cmocka_unit_test(hash_known_answer),
		cmocka_unit_test(files_are_whole_or_absent), cmocka_unit_test(files_are_found_in_order),
		cmocka_unit_test(too_long_json_leaves_no_file), cmocka_unit_test(unwanted_descriptors_are_closed),
		cmocka_unit_test(deadlines_do_not_wrap), cmocka_unit_test(options_parse_and_complain),
		cmocka_unit_test(json_reals_survive), cmocka_unit_test(json_messages_are_bounded),
		cmocka_unit_test(json_bytes_are_jansson_s), cmocka_unit_test(lists_come_apart_at_commas) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
