/* candidate.c - one candidate's process: asked, called, timed, stopped, watched, killed (forms.h).
 *
 *     question = kind 'g' or 'q' | number (8 bytes) | after 'q' a frame
 *     answer   = kind 'd', 'e' or 'a' | the question's number | after 'd' places (outputs.h), after 'e' and 'a' a frame
 *
 * The number of a question is drawn when it is asked.  The socket is in the untrusted process, whose code can write to
 * it and answer for the harness, but cannot answer a question before it is asked.  Every answer is read with its
 * number, so an extra byte, written at any time, precedes some later answer and is found there: the solution is
 * refused.  Possible is only an early answer to the current question, by code that finds the number in its own process.
 * It gains nothing: the process is stopped then, and the outputs are compared as they are; the harness's own answer, if
 * it still comes, is the extra byte.  Rejected: reading the socket while the process is stopped, which sees only what
 * was written before the stop arrived; consecutive numbers, which can be written ahead.
 *
 * Order of a call: write the question; let the process go on; wait for its answer; send the stop; take the time; check
 * that every thread is stopped.  The question is written first, so that the process never runs while the clock does
 * not.  The check comes after the time was taken, since its cost grows with the number of threads.  What the threads
 * compute until they are stopped, beyond the cost of stopping, is known from their processor time and added (cpu).
 *
 * On cuda the judge does not sleep while it waits for a short call: waking up took 25 us in the median and sometimes
 * 200 (an H200's host), which made calls of one kernel vary by a quarter.  On the cpu target it would take a processor
 * away.
 *
 * SIGSTOP cannot be caught, also not by the first process of a pid namespace when it comes from outside.  It stops one
 * process, and a candidate could leave others behind; so once it has answered, a process besides it is a refusal. A
 * search takes time, in which a process can fork and exit before it is looked at.  So the whole process group is
 * stopped first; the filter lets no process of a called candidate leave it (bridge/wwcandidate/confine.py).  The kernel
 * signals all members at once: a fork() under way restarts after the stop.  It is searched at once and again when all
 * threads stand: a process within a system call does not stand and may end with it, while a thread waits in vfork(). */
#include "judge/forms/internal.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/time.h"
#include "host/timed_call.h"
#include "sandbox/proc.h"
#include "sandbox/zygote.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
	WATCH_MS = 20,
	SPIN_MS = 20,
	STAND_US = 20,
	STOP_NS = 1000000, /* what stopping may cost a process: a virtual processor gets the news late */
	STOP_LIMIT_S = 30,
	END_LIMIT_MS = 2000,
	MAX_PLACES = 1 << 14,
	MAX_LENT = 4096,
	TEXT_BYTES = 12 << 10
};

static void signal_it(const struct ww_candidate *c, int sig) { syscall(SYS_pidfd_send_signal, c->pidfd, sig, NULL, 0); }

static void drain_log(struct ww_candidate *c)
{
	char part[1024];
	/* Bounded: a candidate may print faster than this reads. */
	for (int i = 0; i < 64; i++) {
		ssize_t n = read(c->log_fd, part, sizeof(part));
		if (n <= 0)
			return;
		size_t keep = sizeof(c->log) - (size_t)n;
		if (c->log_len > keep) {
			memmove(c->log, c->log + c->log_len - keep, keep);
			c->log_len = keep;
		}
		memcpy(c->log + c->log_len, part, (size_t)n);
		c->log_len += (size_t)n;
	}
}

/* ---- State ------------------------------------------------------------------------------------------------------- */

static int all_stand(pid_t pid)
{
	char path[64], text[1024];
	int stand = 1;
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	for (struct dirent *e; stand && d && (e = readdir(d));) {
		snprintf(path, sizeof(path), "%.20s/stat", e->d_name);
		if (e->d_name[0] == '.' || !ww_fs_peek(dirfd(d), path, text, sizeof(text)))
			continue;
		stand = strchr("TtZX", ww_proc_state(text)) != NULL;
	}
	if (d)
		closedir(d);
	return stand;
}

/* SIGSTOP to a process is handed to one of its threads, and the others go on until that one has a processor, which on a
 * busy machine takes milliseconds: so each thread gets one. */
static void stop_each_thread(pid_t pid)
{
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	DIR *d = opendir(path);
	for (struct dirent *e; d && (e = readdir(d));)
		if (e->d_name[0] != '.')
			syscall(SYS_tgkill, pid, atoi(e->d_name), SIGSTOP);
	if (d)
		closedir(d);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

static void set_end(struct ww_run_result *res, enum ww_run_kind kind, const char *fmt, ...) WW_PRINTF(3, 4);
static void set_end(struct ww_run_result *res, enum ww_run_kind kind, const char *fmt, ...)
{
	va_list ap;
	res->kind = kind;
	va_start(ap, fmt);
	vsnprintf(res->text, sizeof(res->text), fmt, ap);
	va_end(ap);
}

/* Its last printed line, cleaned. */
static void last_line(struct ww_candidate *c, struct ww_str *out)
{
	drain_log(c);
	while (c->log_len && strchr(" \t\r\n", c->log[c->log_len - 1]))
		c->log_len--;
	size_t at = c->log_len;
	while (at && c->log[at - 1] != '\n')
		at--;
	ww_str_add_bounded(out, c->log + at, c->log_len - at, 300);
}

static void kill_it(struct ww_candidate *c)
{
	struct pollfd pf = { c->pidfd, POLLIN, 0 };
	if (c->gone || c->pidfd < 0)
		return;
	signal_it(c, SIGKILL);
	poll(&pf, 1, END_LIMIT_MS);
	c->gone = 1;
}

/* It ended without being asked to: report how. */
static void set_died(struct ww_candidate *c, struct ww_run_result *res)
{
	ww_auto_str s = WW_STR_INIT(sizeof(res->text) - 1);
	struct ww_job_end end = { 0, 0 };
	struct ww_err ignored = WW_ERR_INIT;
	kill_it(c);
	ww_str_adds(&s, "the process that held the solution ");
	if (ww_fd_read(c->status_fd, &end, sizeof(end), ww_now_ns() + END_LIMIT_MS * 1000000ull, &ignored) != WW_OK)
		ww_str_adds(&s, "closed its connection");
	else if (end.how == WW_JOB_SIGNALED && end.code != SIGKILL)
		ww_str_addf(&s, "was ended by signal %d (%s)", end.code, strsignal(end.code));
	else if (end.how == WW_JOB_SIGNALED)
		ww_str_adds(&s, "closed its connection or was killed");
	else
		ww_str_addf(&s, "exited with code %d", end.code);
	ww_auto_str line = WW_STR_INIT(512);
	last_line(c, &line);
	if (line.len)
		ww_str_addf(&s, "; the last line it printed: | %s", line.p);
	set_end(res, WW_RUN_DIED, "%s", s.p);
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------- */

struct waiting {
	struct ww_candidate *c;
	uint64_t deadline_ns, look_ns, spin_ns; /* until spin_ns without sleeping */
	double limit_s;
	struct ww_run_result *res; /* set where the candidate is why waiting ended; then the error is WW_ERR_LIMIT */
};

static enum ww_rc look(struct waiting *w, struct ww_err *err)
{
	struct ww_candidate *c = w->c;
	uint64_t now = ww_now_ns();
	if (c->interrupted && *c->interrupted)
		return ww_err_set(err, WW_ERR_INTERRUPTED, "interrupted");
	if (now >= w->deadline_ns) {
		set_end(w->res, WW_RUN_LATE, "no end after %.1f s", w->limit_s);
		kill_it(c);
		return WW_ERR_LIMIT;
	}
	if (ww_sampler_look_ns(c->sampler) && now >= ww_sampler_look_ns(c->sampler))
		ww_sampler_look(c->sampler);
	if (now < w->look_ns)
		return WW_OK;
	w->look_ns = now + WATCH_MS * 1000000ull;
	struct ww_proc_tree t = ww_proc_tree(c->pid, c->gpu ? WW_PROC_SHARED : WW_PROC_RESIDENT);
	if (t.tasks > c->max_tasks)
		set_end(w->res, WW_RUN_REFUSED, "the solution started more than %d processes and threads", c->max_tasks);
	else if (t.bytes > c->max_resident_bytes)
		set_end(w->res, WW_RUN_NOMEM, "the solution used more than %llu MiB of memory",
			(unsigned long long)(c->max_resident_bytes >> 20));
	else
		return WW_OK;
	kill_it(c);
	return WW_ERR_LIMIT;
}

/* Until somebody has to look. */
static struct timespec pause_of(const struct waiting *w)
{
	uint64_t now = ww_now_ns(), sample_ns = ww_sampler_look_ns(w->c->sampler), ns = WATCH_MS * 1000000ull;
	if (now < w->spin_ns)
		ns = 0;
	else if (sample_ns && sample_ns < now + ns)
		ns = sample_ns > now ? sample_ns - now : 0;
	return (struct timespec){ 0, (long)ns };
}

static enum ww_rc wait_candidate(void *ctx, short events, struct ww_err *err)
{
	struct waiting *w = ctx;
	struct ww_candidate *c = w->c;
	for (;;) {
		WW_CHECK(look(w, err));
		struct pollfd p[2] = { { c->sock, events, 0 }, { c->log_fd, POLLIN, 0 } };
		struct timespec until = pause_of(w);
		int n = ppoll(p, 2, &until, NULL);
		ww_sampler_take(c->sampler);
		if (n > 0 && (p[1].revents & POLLIN))
			drain_log(c);
		else if (n > 0 && p[1].revents)
			ww_fd_close(&c->log_fd); /* nobody can print any more */
		if (n > 0 && p[0].revents)
			return WW_OK;
	}
}

/* What an error of the socket means here: mostly the candidate's end. */
static enum ww_rc settle(struct ww_candidate *c, enum ww_rc rc, struct ww_run_result *res, struct ww_err *err)
{
	if (rc == WW_OK || rc == WW_ERR_NOMEM || rc == WW_ERR_INTERRUPTED)
		return rc;
	if (res->kind == WW_RUN_OK && rc == WW_ERR_PROTOCOL) {
		set_end(res, WW_RUN_DIED, "the process that held the solution broke its protocol");
		kill_it(c);
	} else if (res->kind == WW_RUN_OK) {
		set_died(c, res);
	}
	*err = (struct ww_err)WW_ERR_INIT;
	return WW_OK;
}

static void go_on(struct ww_candidate *c)
{
	if (c->stopped)
		signal_it(c, SIGCONT);
	c->stopped = 0;
}

static void look_for_others(struct ww_candidate *c, struct ww_run_result *res)
{
	if (c->gone || ww_proc_tree(c->pid, WW_PROC_NO_MEMORY).processes <= 1)
		return;
	set_end(res, WW_RUN_REFUSED, "the solution left a process running beside its own");
	kill_it(c);
}

/* Returns when the signal was sent; *more_ns: what the process has computed since, beyond the cost of stopping.  A
 * thread within a system call, which copies memory for milliseconds, is not stopped before that ends. */
static uint64_t stop(struct ww_candidate *c, uint64_t *more_ns, struct ww_run_result *res)
{
	*more_ns = 0;
	if (c->gone || c->stopped)
		return ww_now_ns();
	signal_it(c, SIGSTOP);
	kill(-c->pid, SIGSTOP); /* its number is its own: it does not end while it stands, and leads its group */
	uint64_t sent_ns = ww_now_ns(), used = ww_process_used_ns(c->pid),
			 deadline = sent_ns + STOP_LIMIT_S * 1000000000ull;
	stop_each_thread(c->pid);
	look_for_others(c, res);
	while (!c->gone && !all_stand(c->pid)) {
		if (ww_now_ns() < deadline) {
			usleep(STAND_US); /* the time has been taken; on a busy machine they need our processor */
			continue;
		}
		set_end(res, WW_RUN_LATE, "threads went on after the end of the call");
		kill_it(c);
		return sent_ns;
	}
	if (c->gone)
		return sent_ns;
	c->stopped = 1;
	*more_ns = ww_grown(used + STOP_NS, ww_process_used_ns(c->pid));
	return sent_ns;
}

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

void ww_candidate_answer_init(struct ww_candidate_answer *a)
{
	memset(a, 0, sizeof(*a));
	a->fd = -1;
	ww_str_init(&a->text, 2 * TEXT_BYTES);
}

void ww_candidate_answer_release(struct ww_candidate_answer *a)
{
	json_decref(a->body);
	ww_fd_close(&a->fd);
	for (int i = 0; i < a->n_lent; i++)
		ww_fd_close(&a->lent[i]);
	free(a->lent);
	free(a->places);
	ww_str_release(&a->text);
	ww_candidate_answer_init(a);
}

/* Each line of the candidate's output gets a prefix, so that none can pass for the judge's. */
static void quote(struct ww_str *out, const char *text)
{
	ww_auto_str clean = WW_STR_INIT(TEXT_BYTES + 256);
	ww_str_add_bounded(&clean, text, strlen(text), TEXT_BYTES);
	for (char *at = clean.p, *line; (line = strsep(&at, "\n"));)
		if (*line || at)
			ww_str_addf(out, "| %s\n", line);
}

static void take_error(struct ww_candidate_answer *a, struct ww_run_result *res)
{
	const json_t *e = json_object_get(a->body, "error");
	snprintf(a->kind, sizeof(a->kind), "%.15s", ww_json_str(e, "kind", "solution"));
	quote(&a->text, ww_json_str(e, "message", ""));
	json_decref(a->body);
	a->body = NULL;
	set_end(res, WW_RUN_FAULT, "it answered an error");
}

static struct ww_run_result fresh_result(void)
{
	struct ww_run_result r = { .kind = WW_RUN_OK, .device_us = NAN, .stamp_us = NAN, .call_us = NAN };
	return r;
}

static struct waiting waiting_for(struct ww_candidate *c, double limit_s, struct ww_run_result *res)
{
	uint64_t now = ww_now_ns(); /* short calls end before the first look and are not disturbed by it */
	return (struct waiting){ c, now + (uint64_t)(limit_s * 1e9), now + WATCH_MS * 1000000ull, 0, limit_s, res };
}

struct mark {
	char kind;
	uint64_t number;
} __attribute__((packed));

static enum ww_rc put_question(const struct ww_frames *w, char kind, struct mark *q, struct ww_err *err)
{
	*q = (struct mark){ kind, ww_rng_secret() };
	return ww_frames_put(w, q, sizeof(*q), err);
}

/* The kind of the answer to q: one of `kinds`. */
static enum ww_rc get_answer(const struct ww_frames *w, const struct mark *q, const char *kinds, char *kind,
	struct ww_run_result *res, struct ww_err *err)
{
	struct waiting *waiting = w->ctx;
	struct mark a;
	WW_CHECK(ww_frames_get(w, &a, sizeof(a), err));
	*kind = a.kind;
	if (a.number != q->number) {
		set_end(res, WW_RUN_REFUSED, "the solution answered for the harness, before it was asked or more than once");
		kill_it(waiting->c);
		return WW_ERR_LIMIT;
	}
	return a.kind && strchr(kinds, a.kind) ? WW_OK : WW_ERR_PROTOCOL;
}

static enum ww_rc get_body(
	const struct ww_frames *w, struct ww_candidate_answer *a, struct ww_run_result *res, struct ww_err *err)
{
	int n_fds;
	enum ww_rc rc = ww_frames_receive(w, &a->body, &a->fd, 1, &n_fds, err);
	if (rc == WW_OK && !json_is_true(json_object_get(a->body, "ok")))
		take_error(a, res);
	return rc;
}

/* Behind `d`: two counts, so many numbers, so many descriptors; of these none on the cpu, since each would be one of
 * all jobs' until the next call. */
static enum ww_rc get_places(const struct ww_frames *w, struct ww_candidate_answer *a, struct ww_err *err)
{
	const struct waiting *waiting = w->ctx;
	uint32_t n[2], max_lent = waiting->c->gpu ? MAX_LENT : 0;
	enum ww_rc rc = ww_frames_get(w, n, sizeof(n), err);
	if (rc != WW_OK)
		return rc;
	if (n[0] > MAX_PLACES || n[1] > max_lent)
		return ww_err_set(
			err, WW_ERR_PROTOCOL, "the solution's process answered with addresses outside of its outputs");
	a->places = calloc(n[0] + 1, sizeof(*a->places));
	a->lent = calloc(n[1] + 1, sizeof(*a->lent));
	if (!a->places || !a->lent)
		return ww_nomem(err);
	a->n_places = (int)n[0];
	rc = ww_frames_get(w, a->places, n[0] * sizeof(*a->places), err);
	return rc == WW_OK ? ww_frames_get_fds(w, a->lent, (int)n[1], &a->n_lent, err) : rc;
}

/* 1 where the process has ended. */
static int begin(struct ww_candidate *c, struct ww_candidate_answer *a, struct ww_run_result *res)
{
	*res = fresh_result();
	ww_candidate_answer_release(a);
	if (c->gone)
		set_end(res, WW_RUN_DIED, "the process that held the solution has ended");
	return c->gone;
}

enum ww_rc ww_candidate_ask(struct ww_candidate *c, json_t *request, const int *fds, int n_fds, double limit_s,
	struct ww_candidate_answer *a, struct ww_run_result *res, struct ww_err *err)
{
	struct waiting w = waiting_for(c, limit_s, res);
	struct ww_frames wire = { c->sock, wait_candidate, &w, 1 };
	struct mark q;
	uint64_t more_ns;
	char kind;
	enum ww_rc rc;

	if (begin(c, a, res)) {
		json_decref(request);
		return WW_OK;
	}
	ww_candidate_restore(c);
	ww_sampler_begin(c->sampler);
	go_on(c);
	rc = put_question(&wire, 'q', &q, err);
	if (rc == WW_OK)
		rc = ww_frames_send(&wire, request, fds, n_fds, err);
	json_decref(request);
	if (rc == WW_OK)
		rc = get_answer(&wire, &q, "a", &kind, res, err);
	if (rc == WW_OK)
		rc = get_body(&wire, a, res, err);
	rc = settle(c, rc, res, err);
	if (rc != WW_OK)
		return rc;
	(void)stop(c, &more_ns, res);
	look_for_others(c, res);
	ww_sampler_end(c->sampler, &c->seen);
	return WW_OK;
}

enum ww_rc ww_candidate_call(struct ww_candidate *c, double limit_s, struct ww_candidate_answer *a,
	struct ww_run_result *res, struct ww_err *err)
{
	struct waiting w = waiting_for(c, limit_s, res);
	struct ww_frames wire = { c->sock, wait_candidate, &w, 1 };
	struct mark q;
	uint64_t more_ns = 0;
	char kind = 0;
	enum ww_rc rc;

	if (begin(c, a, res))
		return WW_OK;
	ww_candidate_restore(c);
	ww_sampler_begin(c->sampler);
	struct ww_timed_call *called = ww_timed_call_begin(c->gpu ? 0 : c->pid);
	uint64_t start_ns = ww_now_ns();
	if (c->gpu)
		w.spin_ns = start_ns + SPIN_MS * 1000000ull;
	rc = put_question(&wire, 'g', &q, err);
	go_on(c);
	if (rc == WW_OK)
		rc = get_answer(&wire, &q, "de", &kind, res, err);
	if (rc == WW_OK)
		rc = kind == 'e' ? get_body(&wire, a, res, err) : get_places(&wire, a, err);
	uint64_t end_ns = rc == WW_OK ? stop(c, &more_ns, res) : 0;
	double waited_us = ww_timed_call_end(called);
	if (rc == WW_OK && kind == 'd') {
		res->elapsed_ns = end_ns - start_ns + (c->gpu ? 0 : more_ns);
		res->waited_us = waited_us;
		if (res->kind == WW_RUN_OK && (double)res->elapsed_ns > limit_s * 1e9) {
			set_end(res, WW_RUN_LATE, "no end after %.1f s, with what it computed behind its answer", limit_s);
			kill_it(c);
		}
	}
	rc = settle(c, rc, res, err);
	if (rc == WW_OK)
		look_for_others(c, res);
	ww_sampler_end(c->sampler, &c->seen);
	return rc;
}

/* ---- The rest ---------------------------------------------------------------------------------------------------- */

void ww_candidate_free(struct ww_candidate *c)
{
	if (!c)
		return;
	kill_it(c);
	ww_fd_close(&c->sock);
	ww_fd_close(&c->log_fd);
	ww_fd_close(&c->status_fd);
	ww_fd_close(&c->pidfd);
	ww_sampler_close(c->sampler);
	ww_candidate_forget_state(c);
	free(c);
}

const struct ww_seen *ww_candidate_seen(const struct ww_candidate *c) { return &c->seen; }

int ww_candidate_has_own_code(struct ww_candidate *c) { return ww_sampler_has_own(c->sampler); }

pid_t ww_candidate_pid(const struct ww_candidate *c) { return c->pid; }

static uint64_t most_memory(void)
{
	return (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE) / 5 * 4;
}

void ww_candidate_limit_memory(struct ww_candidate *c, uint64_t max_resident_bytes)
{
	c->max_resident_bytes = max_resident_bytes < most_memory() ? max_resident_bytes : most_memory();
}

uint64_t ww_candidate_memory(const struct ww_candidate *c) { return c->max_resident_bytes; }
