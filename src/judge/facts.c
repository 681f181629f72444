/* facts.c - what is measured once a device and kept: memory bandwidth, arithmetic peaks.
 *
 * `device-HASH.json` in the cache directory, named after the device's name, identity, driver and number of threads.  The
 * bandwidth is measured by a runner of its own that never holds a candidate, under the device's lease; the peaks by the
 * reference worker (large matrix products), when the first timed verdict of a task with matrix products wants them. */
#include "judge/internal.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"

#include <stdio.h>
#include <string.h>

enum { MAX_FILE_BYTES = 65536 };

static enum ww_rc file_path(const struct ww_judge *j, char *path, struct ww_err *err)
{
	struct ww_str key = WW_STR_INIT(1024);
	char hex[WW_HASH_HEX], name[WW_HASH_HEX + 16];
	ww_str_addf(&key, "1|%s|%s|%s|%d", j->facts.name, j->facts.uuid, j->facts.driver, j->facts.device.threads);
	ww_hash_hex(key.p, key.len, hex);
	ww_str_release(&key);
	snprintf(name, sizeof(name), "device-%s.json", hex);
	return ww_fs_join(path, j->cache_dir, name, err);
}

static void read_file(struct ww_judge *j, const char *path)
{
	struct ww_err err = WW_ERR_INIT;
	json_t *o = NULL;
	if (!ww_fs_is_file(path) || ww_json_read_file(path, MAX_FILE_BYTES, &o, &err) != WW_OK)
		return;
	j->facts.device.memory_bytes_per_s = ww_json_num(o, "memory_bytes_per_s", 0);
	j->peaks.fp32_flops = ww_json_num(o, "fp32_flops", 0);
	j->peaks.tf32_flops = ww_json_num(o, "tf32_flops", 0);
	j->peaks.fp16_flops = ww_json_num(o, "fp16_flops", 0);
	j->peaks.bf16_flops = ww_json_num(o, "bf16_flops", 0);
	json_decref(o);
}

static void write_file(const struct ww_judge *j, const char *path)
{
	struct ww_err err = WW_ERR_INIT;
	struct ww_str text = WW_STR_INIT(MAX_FILE_BYTES);
	json_t *o = json_pack("{s:s, s:f, s:f, s:f, s:f, s:f}", "device", j->facts.name, "memory_bytes_per_s",
			      j->facts.device.memory_bytes_per_s, "fp32_flops", j->peaks.fp32_flops, "tf32_flops",
			      j->peaks.tf32_flops, "fp16_flops", j->peaks.fp16_flops, "bf16_flops", j->peaks.bf16_flops);
	ww_json_add(&text, o);
	if (ww_fs_write(path, text.p, text.len, &err) != WW_OK)
		ww_log(WW_LOG_WARN, "the device's measured figures are not kept: %s", err.msg);
	ww_str_release(&text);
	json_decref(o);
}

static enum ww_rc measure(struct ww_judge *j, struct ww_err *err)
{
	struct ww_lease lease = { -1 };
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
	char path[PATH_MAX];
	enum ww_rc rc;
	WW_TRY(file_path(j, path, err));
	read_file(j, path);
	if (j->facts.device.memory_bytes_per_s > 0)
		goto out;
	WW_TRY(measure(j, err));
	write_file(j, path);
out:
	return rc;
}

/* Called with the lease held. */
enum ww_rc ww_judge_device_peaks(struct ww_judge_task *t, struct ww_err *err)
{
	struct ww_judge *j = t->judge;
	struct ww_ref_peaks p;
	char path[PATH_MAX];
	enum ww_rc rc = WW_OK;

	pthread_mutex_lock(&j->lock);
	int known = j->peaks.fp32_flops > 0;
	pthread_mutex_unlock(&j->lock);
	if (known)
		return WW_OK;
	WW_TRY(ww_ref_peaks(t->ref, &p, err));
	WW_TRY(file_path(j, path, err));
	pthread_mutex_lock(&j->lock);
	j->peaks = p;
	write_file(j, path);
	pthread_mutex_unlock(&j->lock);
out:
	return rc;
}
