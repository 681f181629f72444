/* facts.c - what is measured once a device and kept: memory bandwidth, arithmetic peaks.
 *
 * One entry of the store, kind "device", under the hash of the device's name, identity, driver and number of threads.  The
 * bandwidth is measured by a runner of its own that never holds a candidate, under the device's lease; the peaks by the
 * reference worker (large matrix products), when the first timed verdict of a task with matrix products wants them. */
#include "judge/internal.h"

#include "base/json.h"
#include "base/log.h"

#include <string.h>

enum { MAX_VALUE_BYTES = 65536 };

static void key_of(const struct ww_judge *j, char hex[WW_HASH_HEX])
{
	struct ww_str key = WW_STR_INIT(1024);
	ww_str_addf(&key, "1|%s|%s|%s|%d", j->facts.name, j->facts.uuid, j->facts.driver, j->facts.device.threads);
	ww_hash_hex(key.p, key.len, hex);
	ww_str_release(&key);
}

static enum ww_rc look_up(struct ww_judge *j, struct ww_err *err)
{
	struct ww_str text = WW_STR_INIT(MAX_VALUE_BYTES);
	struct ww_err bad = WW_ERR_INIT;
	char key[WW_HASH_HEX];
	json_t *o = NULL;
	int found;
	enum ww_rc rc;
	key_of(j, key);
	WW_TRY(ww_store_get(j->store, "device", key, &text, &found, err));
	if (found && ww_json_parse(text.p, text.len, "a device's kept figures", &o, &bad) != WW_OK)
		ww_log(WW_LOG_WARN, "%s", bad.msg);
	j->facts.device.memory_bytes_per_s = ww_json_num(o, "memory_bytes_per_s", 0);
	j->peaks.fp32_flops = ww_json_num(o, "fp32_flops", 0);
	j->peaks.tf32_flops = ww_json_num(o, "tf32_flops", 0);
	j->peaks.fp16_flops = ww_json_num(o, "fp16_flops", 0);
	j->peaks.bf16_flops = ww_json_num(o, "bf16_flops", 0);
out:
	json_decref(o);
	ww_str_release(&text);
	return rc;
}

static enum ww_rc keep(const struct ww_judge *j, struct ww_err *err)
{
	struct ww_str text = WW_STR_INIT(MAX_VALUE_BYTES);
	char key[WW_HASH_HEX];
	json_t *o = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "device", j->facts.name, "memory_bytes_per_s",
			      j->facts.device.memory_bytes_per_s, "fp32_flops", j->peaks.fp32_flops, "tf32_flops",
			      j->peaks.tf32_flops, "fp16_flops", j->peaks.fp16_flops, "bf16_flops", j->peaks.bf16_flops);
	key_of(j, key);
	ww_json_add(&text, o);
	enum ww_rc rc = ww_store_put(j->store, "device", key, text.p, text.len, err);
	ww_str_release(&text);
	json_decref(o);
	return rc;
}

static enum ww_rc measure(struct ww_judge *j, struct ww_err *err)
{
	struct ww_lease lease = WW_LEASE_INIT;
	struct ww_runner *r = NULL;
	struct ww_run_facts facts;
	enum ww_rc rc;

	ww_judge_progress(j, "device");
	WW_TRY(ww_lease_take(&lease, j->facts.uuid, j->opts.interrupted, err));
	WW_TRY(ww_runner_new(&r, j->opts.target, j->opts.device, j->opts.threads, 1, err));
	WW_TRY(ww_runner_facts(r, &facts, err));
	j->facts.device.memory_bytes_per_s = facts.device.memory_bytes_per_s;
out:
	ww_runner_free(r);
	ww_lease_drop(&lease);
	return rc;
}

enum ww_rc ww_judge_device_facts(struct ww_judge *j, struct ww_err *err)
{
	enum ww_rc rc;
	WW_TRY(look_up(j, err));
	if (j->facts.device.memory_bytes_per_s > 0)
		goto out;
	WW_TRY(measure(j, err));
	WW_TRY(keep(j, err));
out:
	return rc;
}

/* Called with the lease held. */
enum ww_rc ww_judge_device_peaks(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_judge *j = t->judge;
	struct ww_ref_peaks p;
	enum ww_rc rc = WW_OK;

	pthread_mutex_lock(&j->lock);
	int known = j->peaks.fp32_flops > 0;
	pthread_mutex_unlock(&j->lock);
	if (known)
		return WW_OK;
	WW_TRY(ww_ref_peaks(t->ref, &p, err));
	pthread_mutex_lock(&j->lock);
	j->peaks = p;
	rc = keep(j, err);
	pthread_mutex_unlock(&j->lock);
out:
	return rc;
}
