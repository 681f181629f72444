/* progress.c - see progress.h.
 *
 * A thread looks twice a second: on a terminal it draws the line anew, so that the clock moves while a long step is
 * under way, elsewhere it names a step that has taken 2 s, and after 5 s without a line the step under way.  The line
 * is cut to the terminal's width (asked each time: windows are resized), since a wrapped line cannot be drawn over; the
 * step comes first on it.
 */
#include "cmd/progress.h"

#include "cmd/cmd.h"
#include "agent/parallel.h"
#include "base/lock.h"
#include "base/time.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { LONG_STEP_S = 2, QUIET_S = 5, STAGE_BYTES = 128 };

struct ww_progress {
	FILE *to;
	int live, has_thread, quit, hidden;
	uint64_t start_ns, stage_ns; /* stage_ns 0: the step has been named */
	uint64_t quiet_ns;           /* since when nothing was printed though steps were under way */
	int turn;
	struct ww_str what, stage, best;
	char tool[WW_AGENT_PARALLEL_MAX + 1][16]; /* that is being answered, by episode */
	struct ww_budget *budget;
	int has_best;
	struct ww_verdict best_verdict; /* of all episodes; without its text */
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
};

/* "812.4 us, 1.52x eager [1.50, 1.54], 1.31x compile [1.30, 1.33]" */
static void add_times(const struct ww_verdict *v, struct ww_str *out)
{
	if (isnan(v->time.device_us)) {
		ww_str_adds(out, "correct, not timed");
		return;
	}
	ww_str_addf(out, "%.1f us", v->time.device_us);
	ww_verdict_add_speedups(v, out);
}

/* Bytes of the first `columns` characters of UTF-8 text. */
static size_t cut_to(const char *text, int columns)
{
	size_t i = 0;
	for (; text[i]; i++)
		if (((unsigned char)text[i] & 0xc0) != 0x80 && columns-- <= 0)
			break;
	return i;
}

static void add_budget(const struct ww_progress *p, struct ww_str *line, const char *before)
{
	ww_auto_str used = WW_STR_INIT(256);
	if (p->budget)
		ww_budget_text(p->budget, &used);
	if (used.len)
		ww_str_addf(line, "%s%s", before, used.p);
}

static void draw(struct ww_progress *p)
{
	struct winsize w = { .ws_col = 80 };
	ww_auto_str line = WW_STR_INIT(1024);
	if (p->hidden)
		return;
	ioctl(fileno(p->to), TIOCGWINSZ, &w);
	ww_str_addf(&line, "%5.1f s", ww_seconds_since(p->start_ns));
	if (p->turn)
		ww_str_addf(&line, "  turn %d", p->turn);
	if (p->stage.len)
		ww_str_addf(&line, "  %s", p->stage.p);
	if (p->best.len)
		ww_str_addf(&line, "  best %s", p->best.p);
	add_budget(p, &line, "  ");
	if (p->what.len)
		ww_str_addf(&line, "  (%s)", p->what.p);
	fprintf(p->to, "\r%.*s\033[K", (int)cut_to(line.p, (w.ws_col ? w.ws_col : 80) - 1), line.p);
	fflush(p->to);
}

static void name_long_step(struct ww_progress *p)
{
	if (!p->stage.len || !p->stage_ns ||
		(ww_seconds_since(p->stage_ns) < LONG_STEP_S && ww_seconds_since(p->quiet_ns) < QUIET_S))
		return;
	p->stage_ns = 0;
	p->quiet_ns = ww_now_ns();
	fprintf(stderr, "%7.1f s  %s\n", ww_seconds_since(p->start_ns), p->stage.p);
}

static void *tick(void *arg)
{
	struct ww_progress *p = arg;
	WW_LOCKED(&p->lock);
	while (!p->quit) {
		if (p->live)
			draw(p);
		else
			name_long_step(p);
		(void)ww_cond_wait(&p->wake, &p->lock, 0.5);
	}
	return NULL;
}

struct ww_progress *ww_progress_new(FILE *to)
{
	struct ww_progress *p = calloc(1, sizeof(*p));
	if (!p)
		return NULL;
	p->to = to;
	p->hidden = 1;
	p->start_ns = ww_now_ns();
	ww_str_init(&p->what, 512);
	ww_str_init(&p->stage, STAGE_BYTES);
	ww_str_init(&p->best, 512);
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->wake, NULL);
	const char *term = getenv("TERM");
	p->live = isatty(fileno(to)) && term && strcmp(term, "dumb");
	p->has_thread = !pthread_create(&p->thread, NULL, tick, p);
	p->live &= p->has_thread;
	return p;
}

int ww_progress_is_live(const struct ww_progress *p) { return p && p->live; }

void ww_progress_free(struct ww_progress *p)
{
	if (!p)
		return;
	if (p->has_thread) {
		pthread_mutex_lock(&p->lock);
		p->quit = 1;
		pthread_cond_signal(&p->wake);
		pthread_mutex_unlock(&p->lock);
		pthread_join(p->thread, NULL);
	}
	ww_progress_clear(p);
	pthread_cond_destroy(&p->wake);
	pthread_mutex_destroy(&p->lock);
	ww_str_release(&p->what);
	ww_str_release(&p->stage);
	ww_str_release(&p->best);
	free(p);
}

void ww_progress_clear(struct ww_progress *p)
{
	if (!p)
		return;
	WW_LOCKED(&p->lock);
	ww_str_reset(&p->stage);
	p->hidden = 1;
	if (p->live) {
		fputs("\r\033[K", p->to);
		fflush(p->to);
	}
}

/* Called with the lock held.  Where nobody reads any more the command ends in good order, as by Ctrl-C. */
static void print_line(struct ww_progress *p, const char *text)
{
	p->quiet_ns = ww_now_ns();
	fprintf(p->to, "%s%s%s\n", p->live ? "\r" : "", text, p->live ? "\033[K" : "");
	if (fflush(p->to) && p->to == stdout && ww_cmd_reader_gone())
		ww_cmd_interrupted = 1;
}

void ww_progress_say(struct ww_progress *p, const char *fmt, ...)
{
	ww_auto_str line = WW_STR_INIT(4096);
	va_list ap;
	if (!p)
		return;
	va_start(ap, fmt);
	ww_str_vaddf(&line, fmt, ap);
	va_end(ap);
	WW_LOCKED(&p->lock);
	print_line(p, line.p);
}

static void set(struct ww_str *s, const char *text)
{
	ww_str_reset(s);
	s->cut = 0;
	ww_str_add_line(s, text ? text : "", 256);
}

/* A wait is reported again every two seconds: the same words are the same step. */
static void set_stage(struct ww_progress *p, const char *stage)
{
	char before[STAGE_BYTES + 1] = "";
	snprintf(before, sizeof(before), "%s", p->stage.len ? p->stage.p : "");
	set(&p->stage, stage);
	if (!p->stage.len || strcmp(before, p->stage.p))
		p->stage_ns = ww_now_ns();
	if (p->hidden)
		p->quiet_ns = ww_now_ns();
	p->hidden = 0;
}

/* When, which episode of several, which turn. */
static void add_stamp(const struct ww_progress *p, const struct ww_agent_event *e, struct ww_str *line)
{
	ww_str_addf(line, "%7.1f s  ", ww_seconds_since(p->start_ns));
	if (e->episode)
		ww_str_addf(line, "#%-2d ", e->episode);
	ww_str_addf(line, "turn %-3d ", e->turn);
}

static int is_best_of_all(struct ww_progress *p, const struct ww_agent_event *e)
{
	if (!e->is_best || (p->has_best && e->episode && !ww_agent_better(e->verdict, &p->best_verdict)))
		return 0;
	p->has_best = 1;
	p->best_verdict = *e->verdict;
	p->best_verdict.diagnostics = NULL; /* the event's */
	return 1;
}

static void on_verdict(struct ww_progress *p, const struct ww_agent_event *e)
{
	ww_auto_str line = WW_STR_INIT(1024);
	int is_best = is_best_of_all(p, e);
	if (is_best) {
		ww_str_reset(&p->best);
		add_times(e->verdict, &p->best);
	}
	add_stamp(p, e, &line);
	ww_str_addf(&line, "%s: %s", p->tool[e->episode], ww_status_name(e->verdict->status));
	if (e->verdict->correct) {
		ww_str_adds(&line, ", ");
		add_times(e->verdict, &line);
	}
	if (is_best)
		ww_str_adds(&line, "  (best so far)");
	if (!p->live)
		print_line(p, line.p);
}

/* What was said, or at least what it cost. */
static void on_said(struct ww_progress *p, const struct ww_agent_event *e)
{
	ww_auto_str line = WW_STR_INIT(1024), used = WW_STR_INIT(256);
	add_budget(p, &used, "");
	if (*e->text)
		set(&p->what, e->text);
	add_stamp(p, e, &line);
	ww_str_addf(&line, "%s%s%s%s", e->text, used.len ? "  (" : "", used.p, used.len ? ")" : "");
	if (!p->live && (*e->text || used.len))
		print_line(p, line.p);
}

void ww_progress_watch(struct ww_progress *p, struct ww_budget *b)
{
	WW_LOCKED(&p->lock);
	p->budget = b;
}

void ww_progress_event(void *ctx, const struct ww_agent_event *e)
{
	struct ww_progress *p = ctx;
	WW_LOCKED(&p->lock);
	p->turn = e->turn;
	p->hidden = 0;
	switch (e->kind) {
	case WW_AGENT_THINKING: set_stage(p, "thinking"); break;
	case WW_AGENT_SAID:
		set_stage(p, NULL);
		on_said(p, e);
		break;
	case WW_AGENT_TOOL:
		set_stage(p, e->tool);
		snprintf(p->tool[e->episode], sizeof(p->tool[0]), "%s", p->stage.p);
		break;
	case WW_AGENT_VERDICT: on_verdict(p, e); break;
	case WW_AGENT_FINAL:
		snprintf(p->tool[e->episode], sizeof(p->tool[0]), "final");
		set(&p->what, "judging the result once more from scratch");
		if (e->text)
			ww_str_addf(
				&p->what, " in %.*f s: the last measurement was disturbed (%s)", e->pause_s < 10, e->pause_s, e->text);
		if (!p->live)
			fprintf(p->to, "%7.1f s  %s\n", ww_seconds_since(p->start_ns), p->what.p), fflush(p->to);
		break;
	}
	if (p->live)
		draw(p);
}

void ww_progress_stage(void *ctx, const char *stage)
{
	struct ww_progress *p = ctx;
	if (!p)
		return;
	WW_LOCKED(&p->lock);
	set_stage(p, stage);
	if (p->live)
		draw(p);
}
