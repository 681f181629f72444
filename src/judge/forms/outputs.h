/* outputs.h - cpu: a call's outputs, copied by the judge out of the stopped process that made them.
 *
 * Problem.  What a call has to write must be the same work for a candidate and for the baselines.  While the harness
 * copied outputs into memory that the judge had shared with the candidate's process, a solution that wrote there itself
 * saved that copy, and PyTorch's own code was faster than itself.  So a call ends when forward() has returned, for both
 * sides: the answer says where the outputs lie, and the judge reads them (process_vm_readv) when the clock has stopped
 * and every thread stands.  No memory of the answer is mapped in the candidate's process.
 *
 *     places = for each output: its address | a stride for each dimension, in elements       all int64
 *
 * An output must have the strides of the task's own, or a view would save what the task copies (repeat(), contiguous())
 * and leave it to whoever uses the output: the harness copies another layout, within the call, and the judge takes no
 * other.  Where elements of the task's own output share memory (expand(), a window) any layout will do.
 *
 * An output must be memory of its own where the task's is, or the solution saves a copy: of its input, of another
 * output.  The harness copies those, too.  Pages of a file or of shared memory, as those of the inputs are, can be
 * seen at several addresses, and a page that nobody has written is zeros that cost nothing.  So each page of such an
 * output must have been written by that process, and be nobody else's.
 *
 * What a call has returned is poisoned before the next one.  Memory that nobody has returned may hold what a solution
 * wrote there beforehand, as zeros that are the same in each call.  PyTorch's own programs return what one of the last
 * two calls has returned (26 of 26 tried); where a call does not, the time of writing its outputs once more is added.
 *
 * What is said is not believed: addresses and strides only select bytes of the candidate's own process, and what is not
 * there is its failure.  Nothing can be computed while the judge reads: no thread runs, and the filter refuses
 * userfaultfd and io_uring, by which a page could be made on demand.  Rejected: a pipe or a copy by the harness after
 * the clock, since work in that process after the answer would be free. */
#pragma once

#include "base/err.h"
#include <ww/plan.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Copy n tensors out of process `pid`, which stands, into to[i], each laid out as out[i] has it (dense, any order of
 * its dimensions).  1, or 0 and the reason in `why` (why_bytes) where a place cannot be read. */
int ww_outputs_take(pid_t pid, const int64_t *places, int n_places, const struct ww_tensor *out, int n, void *const *to,
	char *why, size_t why_bytes);
/* Bytes from the first to the last element of a tensor of t's shape with these strides, in elements; -1 where one is
 * negative or the tensor spans more than any memory. */
int64_t ww_outputs_span(const struct ww_tensor *t, const int64_t *strides);
/* 1 where each output i with apart[i] overlaps with no other one and, with `pages`, has only pages of its own.  Else 0
 * and the reason.  `places` are those that ww_outputs_take() has taken; an address of 0 is not looked at. */
int ww_outputs_apart(pid_t pid, const int64_t *places, const struct ww_tensor *out, int n, const int *apart, int pages,
	char *why, size_t why_bytes);
/* `bytes` bytes at `address` the judge has written ahead of the call.  1 where no output i with apart[i] lies there,
 * and all of it is there still: pages that were moved away (mremap) may be an output elsewhere.  Else 0 and the reason.
 */
int ww_outputs_not_given(pid_t pid, const int64_t *places, const struct ww_tensor *out, int n, const int *apart,
	int64_t address, size_t bytes, char *why, size_t why_bytes);
/* Whether elements of a tensor of t's shape may lie in one place, as expand() leaves them: 0 only where none do. */
int ww_outputs_share(const struct ww_tensor *t, const int64_t *strides);
/* Fill each output with apart[i] whose elements lie together, where it can be written.  Its memory is the caller's
 * after a call, so a solution that expects to find there what it wrote is wrong. */
void ww_outputs_poison(
	pid_t pid, const int64_t *places, const struct ww_tensor *out, int n, const int *apart, unsigned char byte);
/* Bytes of outputs with apart[i] that lie where none of the n_before earlier calls has returned an output: memory that
 * nobody has poisoned since the solution wrote there, when nobody's clock ran. */
int64_t ww_outputs_unpoisoned(const int64_t *places, const struct ww_tensor *out, int n, const int *apart,
	const int64_t *const before[], int n_before);
/* Whether this system lets the judge read memory of a process that it has started, and whose its pages are: one byte at
 * `address`, which that process has written. */
int ww_outputs_readable(pid_t pid, int64_t address);
