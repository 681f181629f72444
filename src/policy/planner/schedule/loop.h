/* loop.h - shared by loop.c, point.c, lines.c and across.c, which decide how a kernel goes through its index space. */
#pragma once

#include "policy/planner/schedule/schedule.h"

enum { PL_SECTOR = 8 }; /* floats that memory is read by: 32 bytes */

/* Does memory run along v: is one step of it one element? */
int pl_runs_along(struct pl *pl, const struct ix *off, const struct ix_atom *v);
/* How far apart `off` is at places n and 0 of v, all other variables being 0. */
int64_t pl_goes_on(struct pl *pl, const struct ix *off, const struct ix_atom *v, int n);
/* How many places the kernel visits through an offset: one for each value of the axes in it, or each element of the
 * index space where data says which; 0 where no column changes it. */
double pl_visits(const struct kern *k, const struct ix *off);
/* Does memory run along the last axis of a row kernel's rows?  On cuda another axis, or a part of the last one, may
 * become the last for it. */
int pl_memory_along_rows(struct pl *pl, struct kern *k);
int pl_memory_along_part(struct pl *pl, struct kern *k);

/* across.c: put the axis that operands lie across along last.  Returns the rows of a warp's tile, 0: none lies across;
 * *itemsize: bytes of an element that does. */
int pl_place_across(struct pl *pl, struct kern *k, int *itemsize);
/* cuda: put the axis outside of which data says a place last, where the operand is beyond the cache. */
void pl_gather_inside(struct pl *pl, struct kern *k);
/* cuda: put rows last that share the memory between lanes that are some elements apart. */
void pl_share_vectors(struct pl *pl, struct kern *k);

/* point.c: the loop of a pointwise kernel. */
void pl_loop_point(struct pl *pl, struct kern *k);
/* cpu: where the first output that is not whole vectors stores column `lane`, around the caches; NULL: none does. */
const char *pl_streamed(struct pl *pl, struct kern *k);
/* Elements of 16 bytes at most; and with at most 32 bytes of an operand. */
int pl_widest_element(const struct kern *k);
int pl_widest_loads(const struct kern *k);

/* loop.c: the passes of k as statements, by vectors if k->loop says so.  0: they have no vector form. */
int pl_write_loop(struct pl *pl, struct kern *k, const char *start, const char *cond, const char *row_cond);
/* A knob, or where it is 0 the value. */
int pl_or_else(int knob, int value);

/* direction.c, cuda: sets loop.backwards of every kernel. */
void pl_choose_directions(struct pl *pl);
/* once.c, cuda, after that: which vectors of row kernels are read by ww::load_once() (vload.once). */
void pl_mark_read_once(struct pl *pl);
