/* knobs.h - what the search may change about a kernel. */
#pragma once

#include <stddef.h>

/* Whether a template or the library computes an anchor.  FP32: the library without TF32, as PyTorch itself for some
 * shapes; HALVES: of a convolution in fp32, whose operands are packed as scaled halves. */
enum pl_library { LIBRARY_AUTO, LIBRARY_NO, LIBRARY_YES, LIBRARY_FP32, LIBRARY_HALVES };
/* A library computes the GEMM or convolution in this build; only a library can; our template would be tiled; its tiles
 * would store what does not stay in L2; the library does it in halves, or could; ours is conv_few. */
enum pl_library_facts {
	BY_LIBRARY = 1,
	LIBRARY_ONLY = 2,
	OURS_TILED = 4,
	OURS_BEYOND_L2 = 8,
	IN_HALVES = 16,
	FITS_HALVES = 32,
	OURS_FEW = 64
};

/* Knobs of one kernel, by what it is; 0 is "let the schedule choose". */
struct knobs {
	int plain;   /* no vectors, general templates, no library */
	int last;    /* cuda, of all kernels together: convolutions channels-last, by the library */
	int overlap; /* cuda, of all kernels together: a launch begins before the one ahead has ended (ww_pdl_all()) */
	int library, choice; /* cuda, anchors that a library can compute: enum pl_library; its algorithm's number */
	union {
		struct {
			int tile, unroll;
		} cpu_point;
		struct {
			int tile, unroll;
			int loops; /* not the cookbook's skeleton */
		} cpu_rows;
		struct {
			int threads, unroll;
		} point;
		struct {
			int threads, vec;
			int reread; /* each pass reads the row from memory; else it stays in registers */
		} rows;
		struct {
			int nb, kc, mt;
			int form; /* 1: packed tiles, 2: gemm_thin where B is stored (n, k) */
		} cpu_gemm;
		struct {
			int form; /* 1: gemm_mma, 2: gemm3 or gemm16 */
			int bn, stages, cluster, promote, pairs;
		} gemm;
		struct {
			int tile_rows;
		} cpu_conv;
		struct {
			int bn, tw;
			int end;     /* conv_tc: how its results reach memory, enum ww_conv_end */
			int filters; /* conv_tc: of a tile, 64 or 128 */
		} conv;
		struct {
			int bq, bk;
		} cpu_attn;
		struct {
			int form; /* 1: attention_mma, 2: attention, or of 16 bits attention16 */
			int warps, keys, groups;
		} attn;
		struct {
			int tile; /* rows of a block, or columns where the scan runs along a middle dimension */
		} cpu_scan;
		struct {
			int threads, chunks;
		} scan;
		struct {
			int each; /* words that a thread holds */
		} sort;
	};
};

/* A knob for the search: its field, its name and the values to try, in the order of how often they win. */
struct knob_row {
	size_t field;
	const char *name; /* NULL ends a table */
	int value[5];     /* 0 ends the list */
};
#define KNOB(f) offsetof(struct knobs, f)
/* knobs.c: of kernels that are no anchors, by target: cpu, cuda. */
extern const struct knob_row *const pl_row_knobs[2], *const pl_point_knobs[2];
