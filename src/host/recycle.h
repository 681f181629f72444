/* recycle.h - environment variables that make glibc keep the freed memory of a process that computes on the cpu, so
 * that its time is not that of page faults.  A fresh page costs 2 us, 8 us under a hypervisor that takes freed memory
 * back; faulting 64 MiB in takes 20 times as long as one pass over it.
 *
 * Large blocks get no mapping of their own, freed memory stays with the process, and the heap grows by 256 MiB.  The
 * per-thread cache of small blocks is off.  An aligned block, as all of PyTorch's are, is cut out of a larger one; the
 * remaining ten or so bytes go to that cache and are not merged with the block when it is freed.  The block is then too
 * small for the next allocation of its size, which takes fresh memory: a call that allocates 64 MiB took 6 ms, or 130
 * ms four times in a row.  Small operators did not become slower. */
#pragma once

static const char *const ww_recycle_env[][2] = { { "MALLOC_MMAP_MAX_", "0" },
	{ "MALLOC_TRIM_THRESHOLD_", "9999999999" }, { "MALLOC_TOP_PAD_", "268435456" },
	{ "GLIBC_TUNABLES", "glibc.malloc.tcache_count=0" } };
