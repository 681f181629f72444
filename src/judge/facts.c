/* facts.c - memory bandwidth and arithmetic peaks, measured once for each device and cached.
 *
 * One entry of the store, kind "device", under the hash of the device's name, identity, driver and number of threads.
 * The bandwidth is measured by a runner of its own that never holds a candidate, under the device's lease; the peaks by
 * the reference worker (large matrix products, and a copy), when the first timed verdict of a task with matrix products
 * wants them.
 *
 * A peak is the most that was ever seen.  What is measured on a busy machine, or while a GPU's clock is held down, is
 * too low, and by it an honest solution would look impossibly fast.  So the cached values only grow: each writer first
 * reads what other judges have written.  Before a solution is flagged `suspect` the bandwidth is measured again, under
 * the lease of that solution's own timing, so that the machine's state is the same for both.  A maximum that can no
 * longer be reached leads to missed flags, never to wrong ones.  No flag depends on the arithmetic peaks (algebra.c).
 */
#include "judge/facts.h"

#include "base/json.h"
#include "base/lock.h"
#include "base/log.h"
#include "base/time.h"
#include "host/lease.h"

#include <math.h>
#include <string.h>

enum { MAX_VALUE_BYTES = 65536 };
static const double AGAIN_S = 20; /* a value measured less than so many seconds ago is not measured again */

static void key_of(const struct ww_judge *j, char hex[WW_HASH_HEX])
{
	ww_auto_str key = WW_STR_INIT(1024);
	ww_str_addf(&key, "1|%s|%s|%s|%d", j->facts.name, j->facts.uuid, j->facts.driver, j->facts.device.threads);
	ww_hash_hex(key.p, key.len, hex);
}

static void raise_to(struct ww_ref_peaks *p, const struct ww_ref_peaks *seen)
{
	p->fp32_flops = fmax(p->fp32_flops, seen->fp32_flops);
	p->tf32_flops = fmax(p->tf32_flops, seen->tf32_flops);
	p->fp16_flops = fmax(p->fp16_flops, seen->fp16_flops);
	p->bf16_flops = fmax(p->bf16_flops, seen->bf16_flops);
	p->memory_bytes_per_s = fmax(p->memory_bytes_per_s, seen->memory_bytes_per_s);
}

/* The cached values of this device; zeros where there are none. */
static enum ww_rc look_up(const struct ww_judge *j, struct ww_ref_peaks *out, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_VALUE_BYTES);
	struct ww_err bad = WW_ERR_INIT;
	char key[WW_HASH_HEX];
	json_auto_t *o = NULL;
	int found;
	key_of(j, key);
	WW_CHECK(ww_store_get(j->store, "device", key, &text, &found, err));
	if (found && ww_json_parse(text.p, text.len, "a device's cached figures", &o, &bad) != WW_OK)
		ww_log(WW_LOG_WARN, "%s", bad.msg);
	*out = (struct ww_ref_peaks){ ww_json_num(o, "fp32_flops", 0), ww_json_num(o, "tf32_flops", 0),
		ww_json_num(o, "fp16_flops", 0), ww_json_num(o, "bf16_flops", 0), ww_json_num(o, "memory_bytes_per_s", 0) };
	return WW_OK;
}

static enum ww_rc keep(const struct ww_judge *j, const struct ww_ref_peaks *p, struct ww_err *err)
{
	ww_auto_str text = WW_STR_INIT(MAX_VALUE_BYTES);
	char key[WW_HASH_HEX];
	json_auto_t *o = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "device", j->facts.name, "memory_bytes_per_s",
		p->memory_bytes_per_s, "fp32_flops", p->fp32_flops, "tf32_flops", p->tf32_flops, "fp16_flops", p->fp16_flops,
		"bf16_flops", p->bf16_flops);
	key_of(j, key);
	ww_json_add(&text, o);
	return ww_store_put(j->store, "device", key, text.p, text.len, err);
}

enum ww_rc ww_judge_peaks_seen(struct ww_judge *j, const struct ww_ref_peaks *seen, struct ww_err *err)
{
	struct ww_ref_peaks most;
	enum ww_rc rc;
	pthread_mutex_lock(&j->lock);
	WW_TRY(look_up(j, &most, err));
	raise_to(&most, seen);
	raise_to(&j->peaks, &most);
	rc = keep(j, &j->peaks, err);
out:
	pthread_mutex_unlock(&j->lock);
	return rc;
}

void ww_judge_peaks(struct ww_judge *j, struct ww_ref_peaks *out)
{
	WW_LOCKED(&j->lock);
	*out = j->peaks;
}

static enum ww_rc measure_bandwidth(struct ww_judge *j, struct ww_err *err)
{
	struct ww_turn turn = { 0 };
	struct ww_runner *r = NULL;
	struct ww_run_facts facts;
	enum ww_rc rc;

	ww_judge_progress(j, "measuring the device");
	WW_TRY(ww_turn_take(&turn, j, WW_TURN_ALONE, err));
	WW_TRY(ww_runner_new(&r, j->opts.target, j->opts.device, j->opts.threads, 1, err));
	WW_TRY(ww_runner_facts(r, &facts, err));
	rc = ww_judge_peaks_seen(j, &(struct ww_ref_peaks){ .memory_bytes_per_s = facts.device.memory_bytes_per_s }, err);
out:
	ww_runner_free(r);
	ww_turn_drop(&turn);
	return rc;
}

enum ww_rc ww_judge_device_facts(struct ww_judge *j, struct ww_err *err)
{
	WW_CHECK(look_up(j, &j->peaks, err));
	if (j->peaks.memory_bytes_per_s <= 0)
		WW_CHECK(measure_bandwidth(j, err));
	j->facts.device.memory_bytes_per_s = j->peaks.memory_bytes_per_s;
	return WW_OK;
}

enum ww_rc ww_judge_device_again(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_judge *j = t->judge;
	struct ww_ref_peaks p;

	pthread_mutex_lock(&j->lock);
	int fresh = j->peaks_ns && ww_seconds_since(j->peaks_ns) < AGAIN_S;
	pthread_mutex_unlock(&j->lock);
	if (fresh)
		return WW_OK;
	WW_CHECK(ww_judge_turn(t, WW_TURN_ALONE, err));
	WW_CHECK(ww_ref_peaks(t->ref, &p, err));
	WW_CHECK(ww_judge_peaks_seen(j, &p, err));
	pthread_mutex_lock(&j->lock);
	j->peaks_ns = ww_now_ns();
	pthread_mutex_unlock(&j->lock);
	return WW_OK;
}

enum ww_rc ww_judge_device_peaks(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_ref_peaks p;
	ww_judge_peaks(t->judge, &p);
	return p.fp32_flops > 0 ? WW_OK : ww_judge_device_again(t, err);
}
