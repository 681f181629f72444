/* loop.c - what the agent's loop costs by itself: no model, no judge.
 *
 *     bench-loop [EPISODES [TURNS [DIR [shell]]]]      64 episodes of 200 turns side by side, records under DIR
 *                                                      (default: a new one in /tmp); with "shell" every third turn
 *                                                      is a command that calls verify from inside the sandbox
 *
 * A recorded episode of that many turns is made first, with kernels of 4 KB, reasoning, verdicts and tool outputs as
 * models have them; then it is played by that many replay policies against a judge that answers at once.  Printed: CPU
 * time a turn (user and system, all threads), the growth of resident memory an episode, wall time, and whether every
 * message of every episode has the same bytes as the first one's.  Of the sandboxes, with "shell": CPU time a command,
 * and the proportional memory (PSS) of all their processes at its highest, an episode; their files in memory come on
 * top.
 */
#include "agent/parallel.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/time.h"

#include <dirent.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { KERNEL_BYTES = 4096, THINKING_BYTES = 1024 };

/* ---- A judge that answers at once -------------------------------------------------------------------------------- */

static enum ww_rc judge_run(
	void *ctx, const struct ww_solution *s, enum ww_judge_depth depth, struct ww_verdict *v, struct ww_err *err)
{
	(void)ctx, (void)err;
	v->status = WW_STATUS_OK;
	v->correct = depth != WW_JUDGE_COMPILE;
	if (v->correct) {
		v->time = (struct ww_times){ 100 + (double)(s->device_bytes % 97), 100 };
		v->time_device = (struct ww_ratio){ 99, 100, 101 };
		for (int b = 0; b < 2; b++) {
			v->baseline_measured[b] = 1;
			v->baselines[b] = (struct ww_times){ 200, 200 };
			v->speedup[b] = (struct ww_ratio){ 1.9, 2, 2.1 };
		}
	}
	v->reward = ww_verdict_reward(v);
	v->diagnostics = strdup("");
	return WW_OK;
}

static enum ww_rc judge_profile(void *ctx, const struct ww_solution *s, json_t **out, struct ww_err *err)
{
	(void)ctx, (void)s, (void)err;
	*out = json_pack(
		"{s:s, s:s, s:{s:f}, s:[]}", "what", "reference", "status", "ok", "totals", "us", 12.5, "operators");
	return WW_OK;
}

/* ---- The recording ----------------------------------------------------------------------------------------------- */

static void fill(char *p, size_t n, int salt)
{
	for (size_t i = 0; i + 1 < n; i++)
		p[i] = i % 64 == 63 ? '\n' : (char)('a' + (i * 7 + (size_t)salt) % 26);
	p[n - 1] = 0;
}

static char *write_call(const char *path, int salt)
{
	char text[KERNEL_BYTES];
	fill(text, sizeof(text), salt);
	json_t *o = json_pack("{s:s, s:s}", "path", path, "text", text);
	char *s = json_dumps(o, JSON_COMPACT);
	json_decref(o);
	return s;
}

static void add_call(struct ww_message *m, const char *name, char *arguments)
{
	m->calls[m->n_calls++] = (struct ww_tool_call){ strdup("x"), strdup(name), arguments };
}

static int with_shell;
static const char command[] = "{\"command\":\"cp kernels.c k.c; verify --brief | grep reward; echo code $?\"}";

static void one_turn(struct ww_reply *r, int turn, int turns)
{
	struct ww_message *m = &r->message;
	char thinking[THINKING_BYTES];
	fill(thinking, sizeof(thinking), turn);
	m->role = WW_ROLE_ASSISTANT;
	m->text = strdup("I change one thing, verify, and keep what is faster.");
	m->reasoning = strdup(thinking);
	m->calls = calloc(3, sizeof(*m->calls));
	r->finish = WW_FINISH_TOOL_CALLS;
	if (turn == turns) {
		add_call(m, "submit", strdup("{}"));
	} else if (turn == 1) {
		add_call(m, "inspect", strdup("{}"));
		add_call(m, "write", write_call("plan.c", 0));
	} else if (turn % 3 == 0) {
		add_call(m, with_shell ? "bash" : "read", strdup(with_shell ? command : "{\"path\":\"kernels.c\"}"));
	} else {
		add_call(m, "write", write_call("kernels.c", turn));
		add_call(m, "verify", strdup("{}"));
	}
}

static enum ww_rc record(const char *path, const struct ww_episode_header *h, int turns, struct ww_err *err)
{
	struct ww_episode_writer *w;
	enum ww_rc rc = (enum ww_rc)ww_episode_create(path, h, &w, err);
	for (int i = 1; i <= turns && rc == WW_OK; i++) {
		struct ww_reply r = { .usd = 0 };
		one_turn(&r, i, turns);
		rc = (enum ww_rc)ww_episode_add_message(w, i, &r, err);
		ww_reply_release(&r);
	}
	if (rc == WW_OK)
		ww_episode_close(w);
	return rc;
}

/* ---- Measuring --------------------------------------------------------------------------------------------------- */

static double cpu_s(int who)
{
	struct rusage u;
	getrusage(who, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static double resident_mib(const char *which)
{
	char line[256];
	double kib = 0;
	FILE *f = fopen("/proc/self/status", "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, which, strlen(which)))
			kib = atof(line + strlen(which) + 1);
	if (f)
		fclose(f);
	return kib / 1024;
}

/* Proportional memory of everything below us, in MiB. */
static int parent_of(int pid)
{
	char path[64], text[512];
	int ppid = 0;
	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	FILE *f = fopen(path, "r");
	if (f && fgets(text, sizeof(text), f) && strrchr(text, ')'))
		sscanf(strrchr(text, ')') + 1, " %*c %d", &ppid);
	if (f)
		fclose(f);
	return ppid;
}

static double pss_mib(int pid)
{
	char path[64], line[256];
	double kib = 0;
	snprintf(path, sizeof(path), "/proc/%d/smaps_rollup", pid);
	FILE *f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		if (!strncmp(line, "Pss:", 4))
			kib = atof(line + 4);
	if (f)
		fclose(f);
	return kib / 1024;
}

static double below_us_mib(void)
{
	double sum = 0;
	DIR *d = opendir("/proc");
	for (struct dirent *e; d && (e = readdir(d));) {
		int pid = atoi(e->d_name), at = pid;
		for (int up = 0; at > 1 && at != (int)getpid() && up < 8; up++)
			at = parent_of(at);
		if (pid > 0 && pid != (int)getpid() && at == (int)getpid())
			sum += pss_mib(pid);
	}
	if (d)
		closedir(d);
	return sum;
}

static volatile int watching;
static double most_mib;

static void *watch(void *unused)
{
	(void)unused;
	for (; watching; usleep(200000))
		most_mib = fmax(most_mib, below_us_mib());
	return NULL;
}

/* The messages of an episode as bytes, without what the clock says. */
static enum ww_rc messages(const char *dir, int i, struct ww_str *out, struct ww_err *err)
{
	char at[4096], path[4096];
	struct ww_episode e;
	enum ww_rc rc;
	ww_str_reset(out);
	WW_TRY(ww_agent_parallel_dir(dir, i, at, err));
	WW_TRY(ww_fs_join(path, at, "episode.jsonl", err));
	WW_TRY((enum ww_rc)ww_episode_read(path, &e, err));
	for (size_t k = 0; k < e.n_messages; k++) {
		const struct ww_message *m = &e.messages[k].reply.message;
		ww_str_addf(out, "%d %s %s %s\n", m->role, m->text, m->data ? m->data : "", m->reasoning ? m->reasoning : "");
		for (size_t c = 0; c < m->n_calls; c++)
			ww_str_addf(out, "%s %s %s\n", m->calls[c].id, m->calls[c].name, m->calls[c].arguments);
	}
	ww_episode_release(&e);
out:
	return rc;
}

static enum ww_rc compare(const char *dir, int n, int *different, struct ww_err *err)
{
	struct ww_str first = WW_STR_INIT(256 << 20), other = WW_STR_INIT(256 << 20);
	enum ww_rc rc = messages(dir, 0, &first, err);
	*different = 0;
	for (int i = 1; i < n && rc == WW_OK; i++) {
		rc = messages(dir, i, &other, err);
		*different += strcmp(first.p, other.p) != 0;
	}
	ww_str_release(&first);
	ww_str_release(&other);
	return rc;
}

static enum ww_rc play(
	const char *dir, const char *recording, const struct ww_episode_header *h, int n, int turns, struct ww_err *err)
{
	struct ww_policy *policies[WW_AGENT_PARALLEL_MAX] = { NULL };
	static struct ww_agent_result results[WW_AGENT_PARALLEL_MAX];
	struct ww_budget_limits none = { 0 };
	struct ww_device device = { .target = WW_TARGET_CPU };
	json_t *graph = json_pack("{s:[]}", "nodes");
	struct ww_agent_opts o = { .judge = { NULL, judge_run, judge_profile, 0, graph, &device, "bench" },
		.dir = dir,
		.task_source = "class Model: pass",
		.target = WW_TARGET_CPU,
		.max_turns = turns,
		.max_seconds = 1e6,
		.context_tokens = 131072,
		.budget = ww_budget_new(&none),
		.header = h };
	int different = 0, ended = 0;
	enum ww_rc rc = WW_OK;
	double mib = resident_mib("VmRSS:"), cpu = cpu_s(RUSAGE_SELF);
	for (int i = 0; i < n && rc == WW_OK; i++)
		rc = (enum ww_rc)ww_replay_new(recording, &policies[i], err);
	double replay_mib = resident_mib("VmRSS:"), replay_cpu = cpu_s(RUSAGE_SELF);
	pthread_t watcher;
	watching = with_shell && pthread_create(&watcher, NULL, watch, NULL) == 0;
	int watched = watching;
	uint64_t start = ww_now_ns();
	if (rc == WW_OK)
		rc = ww_agent_parallel(&o, policies, n, results, err);
	watching = 0;
	if (watched)
		pthread_join(watcher, NULL);
	double wall = ww_seconds_since(start), used = cpu_s(RUSAGE_SELF) - replay_cpu, peak = resident_mib("VmHWM:");
	for (int i = 0; i < n; i++)
		ended += results[i].ended && results[i].turns == turns;
	if (rc == WW_OK)
		rc = compare(dir, n, &different, err);
	printf("episodes %d, turns each %d: ended %d, with other bytes than the first %d\n", n, turns, ended, different);
	printf("cpu %.3f ms a turn (%.2f s in all; reading the recordings %.2f s beside it), wall %.2f s\n",
		used * 1e3 / n / turns, used, replay_cpu - cpu, wall);
	printf("memory %.2f MiB an episode at the peak, %.2f MiB of it the replayed recording\n", (peak - mib) / n,
		(replay_mib - mib) / n);
	if (with_shell)
		printf("sandboxes: cpu %.1f ms a command with one verify, %.2f MiB (PSS) an episode at the peak\n",
			cpu_s(RUSAGE_CHILDREN) * 1e3 / n / (turns / 3), most_mib / n);
	for (int i = 0; i < n; i++) {
		ww_agent_result_release(&results[i]);
		if (policies[i])
			policies[i]->ops->free(policies[i]);
	}
	ww_budget_free(o.budget);
	json_decref(graph);
	return rc;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 64, turns = argc > 2 ? atoi(argv[2]) : 200;
	char dir[4096] = "/tmp/ww-bench-loop-XXXXXX", recording[4200];
	struct ww_err err = WW_ERR_INIT, ignored = WW_ERR_INIT;
	enum ww_rc rc = WW_OK;
	if (n < 1 || n > WW_AGENT_PARALLEL_MAX || turns < 2 || turns > 100000) {
		fprintf(stderr, "usage: bench-loop [EPISODES [TURNS [DIR [shell]]]]\n");
		return 2;
	}
	with_shell = argc > 4 && !strcmp(argv[4], "shell");
	if (argc > 3)
		snprintf(dir, sizeof(dir), "%s/ww-bench-loop-XXXXXX", argv[3]);
	if (!mkdtemp(dir)) {
		perror(dir);
		return 3;
	}
	snprintf(recording, sizeof(recording), "%s/recording.jsonl", dir);
	struct ww_episode_header h = { .task_path = (char *)"t.py",
		.task_id = "t",
		.target = (char *)"cpu",
		.device = (char *)"bench",
		.policy = (char *)"replay",
		.rule = (char *)"strict",
		.started = "now",
		.versions = json_object() };
	WW_TRY(record(recording, &h, turns, &err));
	rc = play(dir, recording, &h, n, turns, &err);
out:
	json_decref(h.versions);
	if (rc != WW_OK)
		fprintf(stderr, "bench-loop: %s\n", err.msg);
	if (ww_fs_remove_tree(dir, &ignored) != WW_OK)
		fprintf(stderr, "bench-loop: %s\n", ignored.msg);
	return rc == WW_OK ? 0 : 3;
}
