/* references.h - a task's pool of secret draws that are used several times, so that their references are computed once.
 *
 * An honest verdict compares some fourteen runs with references, and a reference (the task in fp64, and once by
 * default) takes ten times as long as the run.  So a task keeps a few draws of each kind that verify.c and timing.c ask
 * for; the reference worker keeps what belongs to them (bridge/wwbridge/pool.py) as long as its memory allows.
 *
 * Why that is safe.  What decides is whether a candidate can know, when it runs, what a draw's outputs should be,
 * otherwise than by computing them from its inputs.  Nothing of a candidate outlives its judgement (runners are
 * unloaded or killed), so a table of answers would have to come in with its source, written by a policy that has
 * learned them from earlier verdicts:
 *
 *   - A verdict that is not ok may say a lot about the draw at hand (expected values, which draw it was that failed):
 *     that draw is dropped at once (ww_pool_spoil).
 *   - A verdict that is ok has a few numbers that a candidate can bend within the tolerance (errors, times):
 *     generously, 64 bits about all its draws together.  A draw serves at most one judgement for each 128 floating
 *     elements of the outputs, and at most 32, on average two thirds of that: so in its whole life at most half a bit
 *     of an element can leak, of the ten and more that an element has at the tolerances of the rules.  Tasks with
 *     fewer than WW_POOL_MIN_ELEMENTS of them have no pool.
 *   - Within one judgement no draw comes twice, except where a run is repeated on purpose.
 *   - What is handed in is judged in full, and a full judgement has one draw that is not from here: the second, whose
 *     parameters are re-drawn.  So it is never a repetition of the verdicts that a policy has seen.
 *
 * Timed calls that are not compared take their draws from here too, or a candidate would know them by what a new draw
 * costs.  Other draws that nothing is compared on (warm-up, baselines) are always new ones.  Draws of a kind are picked
 * at random.  Seeds are in this process and the reference worker only.
 */
#pragma once

#include "task/ref.h"

struct ww_pool;

enum { WW_POOL_MIN_ELEMENTS = 256 };

/* How many draws of this task may be kept in pool_bytes of the reference worker's memory.  NULL (with WW_OK) where the
 * task can have no pool; every function below takes that for a pool that is always empty. */
enum ww_rc ww_pool_open(struct ww_pool **out, const struct ww_ref_shapes *shapes, enum ww_target target,
	enum ww_rule rule, uint64_t pool_bytes, struct ww_err *err) WW_MUST_CHECK;
void ww_pool_close(struct ww_pool *p);
/* Whether the worker is to keep what a draw writes, too (struct ww_ref_draw). */
int ww_pool_keeps_values(const struct ww_pool *p);
/* A judgement begins: every draw is unused again.  own: its second draw shall be one that no other judgement has. */
void ww_pool_begin(struct ww_pool *p, int own);
/* The seed of a pooled draw of this kind and lot (NONE: of any) that this judgement has not used; 0: there is none, or
 * it is to be its own, so the caller takes a new seed. */
uint64_t ww_pool_next(struct ww_pool *p, double scale, double shift, enum ww_ref_params params, enum ww_ref_lot lot);
/* A verdict has told something about this draw: remove it from the pool, where it is one of it. */
void ww_pool_spoil(struct ww_pool *p, uint64_t seed);
