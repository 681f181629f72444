/* desk.h - one judge with the tasks that were asked about last, kept open for the next question.
 *
 * Bringing a task up costs seconds (a Python process with PyTorch), a second question about it milliseconds.  The desk serves
 * one question at a time: device time is exclusive anyway, and a question that is cancelled can end the judge's work without
 * hitting another one's.  After a cancelled question or a fault the judge is closed, and the next question starts a new one.
 */
#ifndef WW_SERVE_DESK_H
#define WW_SERVE_DESK_H

#include "judge/judge.h"
#include "serve/mcp.h"
#include "task/task.h"

struct ww_desk_opts {
	struct ww_judge_opts judge;	/* interrupted and progress are the desk's own */
	const char *device_name;
	int open_tasks;			/* kept open; at least 1 */
};
struct ww_desk;

struct ww_desk *ww_desk_new(const struct ww_desk_opts *o);	/* starts nothing; NULL: out of memory */
void ww_desk_free(struct ww_desk *d);
const struct ww_desk_opts *ww_desk_opts_of(const struct ww_desk *d);
/* Wait for the desk, then open the task or find it open.  Whatever comes back, ww_desk_give() follows an OK only. */
enum ww_rc ww_desk_take(struct ww_desk *d, struct ww_mcp_call *call, const struct ww_task *task, struct ww_judge_task **out,
			struct ww_err *err) WW_MUST_CHECK;
/* rc: how the question went. */
void ww_desk_give(struct ww_desk *d, struct ww_mcp_call *call, enum ww_rc rc);

#endif
