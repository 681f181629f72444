/* fuzz_bridge.c - what a reference worker may answer, against everything that reads its answers
 * (src/task/{frame,worker,ref,shapes}.c).
 *
 * The worker ran untrusted Python, so its answers are untrusted.  Whatever they are, each request ends in an
 * error with one line, or in numbers that make sense: counts within their arrays, no negative sizes, texts that end.
 *
 * An input is a list of answers, one a line.  The harness takes the worker's place (it wraps the start and the sending
 * of worker.h), puts each line into a frame and lets the real requests be made one after the other.  A line that begins
 * with '!' is sent as it is, so that frames themselves are attacked too.
 *
 *   with libFuzzer (-DWW_FUZZ=ON, clang):   fuzz_bridge CORPUS_DIR
 *   without: see driver.h
 */
#include "driver.h"

#include "base/json.h"
#include "base/rng.h"
#include "task/frame.h"
#include "task/ref.h"
#include "task/worker.h"

#include <math.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
enum ww_rc __wrap_ww_worker_start(struct ww_worker *w, const struct ww_ref_opts *o, struct ww_err *err);
enum ww_rc __wrap_ww_worker_send(
	struct ww_worker *w, const json_t *body, const int *fds, int n_fds, uint64_t deadline_ns, struct ww_err *err);

static struct {
	const uint8_t *p;
	size_t n;
	int sock;
} in;

enum ww_rc __wrap_ww_worker_start(struct ww_worker *w, const struct ww_ref_opts *o, struct ww_err *err)
{
	int sv[2], big = 1 << 20;
	(void)o;
	*w = WW_WORKER_NONE;
	w->dead = 0;
	w->max_resident_bytes = UINT64_MAX;
	w->log = calloc(1, WW_WORKER_LOG_BYTES);
	if (!w->log || socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv))
		return ww_err_errno(err, WW_ERR_SYSTEM, "no socket");
	setsockopt(sv[1], SOL_SOCKET, SO_SNDBUF, &big, sizeof(big));
	w->proc.fd = sv[0];
	in.sock = sv[1];
	return WW_OK;
}

/* Every request is answered by the next line; after the last one the worker is gone. */
enum ww_rc __wrap_ww_worker_send(
	struct ww_worker *w, const json_t *body, const int *fds, int n_fds, uint64_t deadline_ns, struct ww_err *err)
{
	unsigned char head[WW_FRAME_HEADER_BYTES];
	const uint8_t *nl = memchr(in.p, '\n', in.n);
	size_t n = nl ? (size_t)(nl - in.p) : in.n, skip = n && *in.p == '!';
	(void)w, (void)body, (void)fds, (void)n_fds, (void)deadline_ns, (void)err;
	if (!in.n || n > 100000) {
		ww_fd_close(&in.sock);
		return WW_OK;
	}
	ww_frame_pack(head, &(struct ww_frame){ (uint32_t)n, 0 });
	if ((!skip && send(in.sock, head, sizeof(head), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) ||
		(n > skip && send(in.sock, in.p + skip, n - skip, MSG_DONTWAIT | MSG_NOSIGNAL) < 0) || skip)
		ww_fd_close(&in.sock); /* a raw frame is the last: what it announces may never come */
	in.p += n + (nl != NULL);
	in.n -= n + (nl != NULL);
	return WW_OK;
}

#define SENSIBLE(condition) do { if (!(condition)) abort(); } while (0)

/* An error says why in one line; a text ends. */
static int fine(enum ww_rc rc, const struct ww_err *err)
{
	SENSIBLE(rc == WW_OK || (err->msg[0] && !strchr(err->msg, '\n')));
	return rc == WW_OK;
}

static int tensors(const struct ww_tensor *t, int n)
{
	for (int i = 0; i < n; i++) {
		SENSIBLE(t[i].rank >= 0 && t[i].rank <= WW_MAX_RANK && t[i].numel >= 0 && t[i].bytes >= 0 && t[i].name);
		for (int d = 0; d < WW_MAX_RANK; d++)
			SENSIBLE(t[i].size[d] >= 0 && t[i].stride[d] >= 0);
	}
	return n;
}

static void graph(struct ww_ref *r)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_ref_shapes s;
	json_t *g = NULL;
	if (fine(ww_ref_graph(r, &g, &err), &err) && fine(ww_ref_shapes(g, &s, &err), &err)) {
		(void)(tensors(s.inputs, s.n_inputs) + tensors(s.params, s.n_params) + tensors(s.outputs, s.n_outputs));
		ww_ref_shapes_release(&s);
	}
	json_decref(g);
}

static void compare(struct ww_ref *r)
{
	static struct ww_ref_compare c;
	static const struct ww_ref_ties none;
	struct ww_err err = WW_ERR_INIT;
	if (fine(ww_ref_compare(r, WW_RULE_STRICT, 0, NULL, &none, &c, &err), &err)) {
		SENSIBLE(c.n_outputs >= 0 && c.n_outputs <= WW_MAX_OUTPUTS);
		for (int i = 0; i < c.n_outputs; i++)
			SENSIBLE(c.outputs[i].rank >= 0 && c.outputs[i].rank <= WW_MAX_RANK &&
				memchr(c.outputs[i].pattern, 0, sizeof(c.outputs[i].pattern)));
	}
}

static void baseline(struct ww_ref *r)
{
	struct ww_ref_baseline b;
	struct ww_err err = WW_ERR_INIT;
	double us[4];
	if (fine(ww_ref_baseline(r, WW_BASE_EAGER, &b, &err), &err))
		SENSIBLE(memchr(b.reason, 0, sizeof(b.reason)) && memchr(b.device_method, 0, sizeof(b.device_method)));
	err = (struct ww_err)WW_ERR_INIT;
	(void)fine(ww_ref_time(r, WW_BASE_EAGER, WW_REF_DEVICE, 4, 1, us, &err), &err);
}

/* How many answers were taken for answers. */
static int try_answers(const uint8_t *data, size_t size)
{
	struct ww_ref_opts o = { .target = WW_TARGET_CPU, .max_request_s = 1, .max_load_s = 1 };
	struct ww_task task = { .name = (char *)"task", .source = (char *)"", .source_bytes = 0 };
	struct ww_ref_draw draw = { .seed = 1, .scale = 1 };
	struct ww_ref_buffers buffers;
	struct ww_ref_degenerate degenerate;
	struct ww_ref_peaks peaks;
	struct ww_err err = WW_ERR_INIT;
	struct ww_ref *r = NULL;
	int through = 0;

	in.p = data, in.n = size, in.sock = -1;
	if (fine(ww_ref_open(&r, &o, &err), &err)) {
		through = fine(ww_ref_load(r, &task, 1, &err), &err);
		graph(r);
		err = (struct ww_err)WW_ERR_INIT;
		if (fine(ww_ref_buffers(r, &buffers, &err), &err))
			ww_ref_buffers_release(&buffers);
		err = (struct ww_err)WW_ERR_INIT;
		through += fine(ww_ref_draw(r, &draw, &err), &err);
		compare(r);
		baseline(r);
		err = (struct ww_err)WW_ERR_INIT;
		(void)fine(ww_ref_degenerate(r, 1, 2, &degenerate, &err), &err);
		err = (struct ww_err)WW_ERR_INIT;
		(void)fine(ww_ref_peaks(r, &peaks, &err), &err);
		in.n = 0;
		ww_ref_close(r);
	}
	ww_fd_close(&in.sock);
	return through;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	(void)try_answers(data, size);
	return 0;
}

static const char seed_text[] =
	"{\"ok\": true, \"device\": {\"name\": \"cpu\", \"threads\": 2, \"memory_bytes\": 1099511627776}, \"versions\": {\"torch\": \"2\", \"python\": \"3\"}}\n"
	"{\"ok\": true, \"name\": \"task\", \"id\": \"00\"}\n"
	"{\"ok\": true, \"version\": 1, \"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [1024, 768], \"strides\": [768, 1]}, "
	"{\"name\": \"i\", \"dtype\": \"int64\", \"sizes\": [], \"strides\": []}], \"params\": [{\"name\": \"w\", \"dtype\": \"bfloat16\", "
	"\"sizes\": [3, 0, 9], \"strides\": [9, 9, 1]}], \"outputs\": [{\"name\": \"output0\", \"dtype\": \"bool\", \"sizes\": [7], "
	"\"strides\": [2]}], \"scalars\": [{\"kind\": \"float\", \"value\": \"-inf\"}, {\"kind\": \"int\", \"value\": 12}]}\n"
	"{\"ok\": true, \"buffers\": []}\n"
	"{\"ok\": true}\n"
	"{\"ok\": true, \"dtype\": \"float64\", \"finite\": true, \"outputs\": [{\"finite\": true, \"rms\": 1.5, \"e_rel\": 1e-7, \"e_max\": 1e-6}]}\n"
	"{\"ok\": true, \"pass\": false, \"outputs\": [{\"pass\": false, \"err_rel\": 0.5, \"err_abs\": \"nan\", \"e_rel\": 1e-7, \"e_max\": 1e-6, "
	"\"rms\": 1.0, \"limit_rel\": 1e-5, \"limit_abs\": 1e-5, \"numel\": 100, \"violations\": 3, \"nonfinite\": 1, \"pattern\": \"tail\", \"looks\": \"nan\", "
	"\"first\": {\"index\": [1, 2], \"expected\": 1.0, \"found\": \"inf\"}, \"worst\": {\"index\": [3, 4], \"expected\": 1.0, \"found\": 2.0}}]}\n"
	"{\"ok\": true, \"available\": true, \"device_method\": \"clock\", \"seconds\": 0.1}\n"
	"{\"ok\": true, \"us\": [1.0, 2.0, 3.0, 4.0]}\n"
	"{\"ok\": true, \"strict\": {\"degenerate\": false, \"independent\": false, \"constant\": false, \"zero\": false}, \"paper\": {\"degenerate\": true, "
	"\"independent\": true, \"constant\": false, \"zero\": false}}\n"
	"{\"ok\": true, \"fp32_flops\": 1e12, \"memory_bytes_per_s\": 1e11}\n";

#ifndef WW_LIBFUZZER

static int write_corpus(const char *dir)
{
	char path[4096];
	struct ww_err err = WW_ERR_INIT;
	snprintf(path, sizeof(path), "%s/answers", dir);
	if (ww_fs_mkdirs(dir, &err) == WW_OK && ww_fs_write(path, seed_text, sizeof(seed_text) - 1, &err) == WW_OK)
		return 0;
	fprintf(stderr, "fuzz_bridge: %s\n", err.msg);
	return 1;
}

/* A byte, a character of JSON, a line dropped or doubled, or a frame of its own instead of a line. */
static size_t mutate(struct ww_rng *r, uint8_t *p, size_t n, size_t room)
{
	static const char json[] = "0123456789-.eE[]{}\",:nul";
	size_t at = (size_t)ww_rng_below(r, n);
	uint8_t *nl = memchr(p + at, '\n', n - at);
	switch (ww_rng_below(r, 8)) {
	case 0: p[at] = (uint8_t)ww_rng_u64(r); return n;
	case 1: /* the rest of a line goes */
		if (!nl)
			return n;
		memmove(p + at, nl, n - (size_t)(nl - p));
		return n - (size_t)(nl - (p + at));
	case 2: { /* a piece comes twice */
		size_t len = (size_t)ww_rng_below(r, 64) + 1;
		if (at + len > n || n + len > room)
			return n;
		memmove(p + at + len, p + at, n - at);
		return n + len;
	}
	case 3:
		if (nl && nl + 20 < p + n) {
			nl[1] = '!';
			ww_frame_pack(
				nl + 2, &(struct ww_frame){ (uint32_t)ww_rng_below(r, 1 << 26), (uint32_t)ww_rng_below(r, 8192) });
		}
		return n;
	default: p[at] = p[at] == '\n' ? '\n' : (uint8_t)json[ww_rng_below(r, sizeof(json) - 1)]; return n;
	}
}

static int run_mutations(uint64_t count, uint64_t seed)
{
	struct ww_rng r;
	uint64_t through = 0;
	static uint8_t p[sizeof(seed_text) + 4096];
	ww_rng_init(&r, seed, 0);
	if (try_answers((const uint8_t *)seed_text, sizeof(seed_text) - 1) != 2) {
		fprintf(stderr, "fuzz_bridge: the seed is not what a worker answers\n");
		return 1;
	}
	for (uint64_t k = 0; k < count; k++) {
		size_t n = sizeof(seed_text) - 1;
		memcpy(p, seed_text, n);
		for (uint64_t m = 1 + ww_rng_below(&r, 6); m && n; m--)
			n = mutate(&r, p, n, sizeof(p));
		through += try_answers(p, n) == 2;
	}
	printf(
		"%llu mutations, %llu whole conversations, no crash\n", (unsigned long long)count, (unsigned long long)through);
	return !(through > count / 100 && through < count / 10 * 9); /* else the mutations test nothing */
}

int main(int argc, char **argv)
{
	static const struct fuzz_target target = { "fuzz_bridge", write_corpus, run_mutations, try_answers };
	return fuzz_main(&target, argc, argv);
}

#endif
