/* Ten thousand mutated messages: whatever a worker sends, the answer is an error or a graph whose tensors make sense.
 * Run under the sanitizers by make check-san.  The mutations come from a fixed stream, so a failure repeats. */
#include "unit.h"

#include "base/json.h"
#include "base/rng.h"
#include "base/time.h"
#include "task/frame.h"
#include "task/worker.h"

#include <sys/socket.h>
#include <unistd.h>

enum { ROUNDS = 10000 };

static const char graph_text[] =
	"{\"ok\": true, \"version\": 1, \"inputs\": [{\"name\": \"x\", \"dtype\": \"float32\", \"sizes\": [1024, 768], \"strides\": [768, 1]}, "
	"{\"name\": \"i\", \"dtype\": \"int64\", \"sizes\": [], \"strides\": []}], \"params\": [{\"name\": \"w\", \"dtype\": \"bfloat16\", "
	"\"sizes\": [3, 0, 9], \"strides\": [9, 9, 1]}], \"outputs\": [{\"name\": \"output0\", \"dtype\": \"bool\", \"sizes\": [7], "
	"\"strides\": [2]}], \"scalars\": [{\"kind\": \"float\", \"value\": \"-inf\"}, {\"kind\": \"int\", \"value\": 12}]}";

static size_t mutate(struct ww_rng *r, unsigned char *bytes, size_t n)
{
	uint64_t kind = ww_rng_below(r, 8);
	if (kind == 0)
		return (size_t)ww_rng_below(r, n); /* cut */
	/* Mostly the body: a wrong magic is refused before anything interesting happens. */
	size_t from = kind == 1 ? 0 : WW_FRAME_HEADER_BYTES;
	for (uint64_t i = 1 + ww_rng_below(r, 6); i; i--) {
		size_t at = from + (size_t)ww_rng_below(r, n - from);
		static const char digits[] = "0123456789-.eE[]{}\",";
		bytes[at] = ww_rng_below(r, 3) ? (unsigned char)digits[ww_rng_below(r, sizeof(digits) - 1)]
									   : (unsigned char)ww_rng_u64(r);
	}
	return n;
}

static void sensible(const struct ww_tensor *t, int n)
{
	for (int i = 0; i < n; i++) {
		assert_true(t[i].rank >= 0 && t[i].rank <= WW_MAX_RANK);
		assert_true(t[i].numel >= 0 && t[i].bytes >= 0 && t[i].bytes <= 1ll << 48);
		assert_true((t[i].bytes == 0) == (t[i].numel == 0));
		for (int d = 0; d < WW_MAX_RANK; d++)
			assert_true(t[i].size[d] >= 0 && t[i].stride[d] >= 0);
	}
}

static void mutated_messages(void **state)
{
	(void)state;
	struct ww_rng r;
	int read_through = 0, refused = 0;
	ww_rng_init(&r, 20261121, 1);
	for (int round = 0; round < ROUNDS; round++) {
		unsigned char bytes[WW_FRAME_HEADER_BYTES + sizeof(graph_text)];
		struct ww_worker w = WW_WORKER_NONE;
		w.log = calloc(1, WW_WORKER_LOG_BYTES), w.max_resident_bytes = UINT64_MAX, w.dead = 0;
		struct ww_err err = WW_ERR_INIT;
		int sv[2], *fds, n_fds;
		json_t *body;
		ww_frame_pack(bytes, &(struct ww_frame){ sizeof(graph_text) - 1, 0 });
		memcpy(bytes + WW_FRAME_HEADER_BYTES, graph_text, sizeof(graph_text) - 1);
		size_t n = mutate(&r, bytes, sizeof(bytes) - 1);
		assert_non_null(w.log);
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv), 0);
		assert_int_equal(send(sv[1], bytes, n, 0), (ssize_t)n);
		close(sv[1]);
		w.proc.fd = sv[0];
		enum ww_rc rc = ww_worker_receive(&w, &body, &fds, &n_fds, ww_now_ns() + 10000000000ull, &err);
		if (rc == WW_OK) {
			struct ww_ref_shapes s;
			rc = ww_ref_shapes(body, &s, &err);
			if (rc == WW_OK) {
				sensible(s.inputs, s.n_inputs);
				sensible(s.params, s.n_params);
				sensible(s.outputs, s.n_outputs);
				ww_ref_shapes_release(&s);
				read_through++;
			}
			json_decref(body);
			free(fds);
		}
		if (rc != WW_OK) {
			assert_true(rc == WW_ERR_PROTOCOL || rc == WW_ERR_WORKER);
			assert_true(err.msg[0] && !strchr(err.msg, '\n'));
			refused++;
		}
		ww_worker_stop(&w);
	}
	/* Both kinds must occur, or the mutations test nothing. */
	assert_true(read_through > ROUNDS / 100 && refused > ROUNDS / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(mutated_messages) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
