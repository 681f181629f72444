/* curriculum.h - which tasks a step takes, by how much the policy's episodes about each differ.
 *
 * An episode's milestone is 0 (wrong) to 1 (faster than torch.compile); older episodes count half as much at each
 * visit. A task is drawn with the weight v + 0.02, v the variance of its milestones, 1/4 for one that was never seen:
 * where all episodes earn the same, advantages against each other are zero and nothing is learnt.  A step's tasks
 * differ, as long as there are enough of them.
 *
 * What is drawn depends on the seed, the step and the episodes noted before; the state is part of a checkpoint, so a
 * run that goes on draws as one that was not stopped.
 */
#pragma once

#include "base/err.h"

#include <jansson.h>
#include <stdint.h>

struct ww_curriculum;
/* Of n tasks, whose names are borrowed. */
enum ww_rc ww_curriculum_new(
	char *const *tasks, int64_t n, uint64_t seed, struct ww_curriculum **out, struct ww_err *err) WW_MUST_CHECK;
void ww_curriculum_free(struct ww_curriculum *c); /* NULL is fine */

/* The tasks (numbers, below n) of the steps first..last, `each` of them a step, one step behind the other. */
void ww_curriculum_draw(struct ww_curriculum *c, int64_t first, int64_t last, int64_t each, int64_t *out);
/* The episodes of a step: begun before its first is noted, committed once it was learnt from.  Until then nothing that
 * is drawn or saved knows them: a step that was interrupted is noted again. */
void ww_curriculum_begin(struct ww_curriculum *c);
void ww_curriculum_commit(struct ww_curriculum *c);
/* A visit begins: older episodes of this task count half from here on. */
void ww_curriculum_visit(struct ww_curriculum *c, const char *task);
/* An episode of the task ended with reward -1, 1, 2 or 3.  A task that is none of the n is passed over. */
void ww_curriculum_note(struct ww_curriculum *c, const char *task, double reward);
/* The mean milestone, 1/2 for one that was never seen. */
double ww_curriculum_success(const struct ww_curriculum *c, int64_t task);

/* The state: [[sum, sum of squares, count], ...] by task; NULL: out of memory. */
json_t *ww_curriculum_save(const struct ww_curriculum *c);
/* A state of another number of tasks, or of a version that kept less, is left. */
void ww_curriculum_load(struct ww_curriculum *c, const json_t *state);
