/* image_data.h - a plan as data: made by the builder from plan.c, checked by validation, replayed by runners and
 * exports.
 *
 * An image is one block of memory without pointers, so that it can be sent through a pipe, hashed, mutated by a fuzzer
 * and mapped by a runner.  Layout (little-endian, every section 8-byte aligned, in this order, offsets from the start):
 *
 *     struct ww_image            header with the counts and the byte offset of each section
 *     struct ww_image_buffer[]   all buffers: inputs, parameters, outputs, then scratch, indexed by handle
 *     struct ww_image_node[]     nodes in program order
 *     struct ww_image_arg[]      arguments of launches and PyTorch nodes; a node names a range of them
 *     struct ww_image_tmap[]     tensor maps; an argument names one
 *     struct ww_image_macro[]    ww_define()s
 *     char[]                     strings, each NUL-terminated; offset 0 is ""
 *
 * An image is untrusted until ww_image_validate() (image.h) has accepted it: the builder is a sandboxed process
 * that ran untrusted code and can send any bytes.
 *
 * This header needs <ww/plan.h> and <stdint.h> only: exported libraries carry a copy of it.
 */
#ifndef WW_JUDGE_IMAGE_DATA_H
#define WW_JUDGE_IMAGE_DATA_H

#include <stdint.h>
#include <ww/plan.h>

#define WW_IMAGE_MAGIC 0x31504c57u	/* "WLP1" */
enum { WW_IMAGE_MAX_BYTES = 16 << 20 };

enum ww_buffer_role { WW_BUF_INPUT = 1, WW_BUF_PARAM = 2, WW_BUF_OUTPUT = 3, WW_BUF_SCRATCH = 4 };
struct ww_image_buffer {
	uint32_t role;  /* enum ww_buffer_role */
	uint32_t index; /* within the role */
	uint64_t bytes;
};

enum ww_node_kind {
	WW_NODE_LAUNCH = 1,
	WW_NODE_MEMSET = 2,
	WW_NODE_COPY = 3,
	WW_NODE_GEMM = 4,
	WW_NODE_CONV = 5,
	WW_NODE_PYTORCH = 6
};
enum ww_node_flags { WW_NODE_COOPERATIVE = 1, WW_NODE_PDL = 2 };
struct ww_image_launch {
	uint32_t kernel; /* string offset */
	uint32_t flags;  /* enum ww_node_flags */
	int64_t grid[3];
	int32_t block[3], cluster[3]; /* cluster 0,0,0: none */
	int64_t shared_bytes;
	uint32_t first_arg, n_args;
};
struct ww_image_memset {
	int32_t buf, byte;
	int64_t offset_bytes, bytes;
};
struct ww_image_copy {
	int32_t dst, src;
	int64_t dst_offset_bytes, src_offset_bytes, bytes;
};
struct ww_image_pytorch {
	uint32_t nodes, reads, writes; /* string offsets */
	uint32_t first_arg, n_args;    /* buffers: one for each name of reads, then of writes */
};
struct ww_image_node {
	uint32_t kind; /* enum ww_node_kind */
	uint32_t reserved;
	union {
		struct ww_image_launch launch;
		struct ww_image_memset set;
		struct ww_image_copy copy;
		struct ww_gemm gemm; /* as <ww/plan.h> has it */
		struct ww_conv conv;
		struct ww_image_pytorch pytorch;
	};
};

enum ww_arg_kind { WW_ARG_BUF = 1, WW_ARG_I32 = 2, WW_ARG_I64 = 3, WW_ARG_F32 = 4, WW_ARG_F64 = 5, WW_ARG_TMAP = 6 };
struct ww_image_arg {
	uint32_t kind; /* enum ww_arg_kind */
	int32_t buf;   /* BUF: handle.  TMAP: index of the tensor map */
	union {
		int64_t i;
		double f64;
		float f32;
	}; /* BUF: offset in bytes.  I32 and I64: the value */
};
struct ww_image_tmap {
	struct ww_tmap t;
};
struct ww_image_macro {
	uint32_t name;
	uint32_t reserved;
	int64_t value;
};

struct ww_image {
	uint32_t magic, abi; /* WW_IMAGE_MAGIC, WW_PLAN_ABI */
	uint32_t target;     /* enum ww_target */
	uint32_t total_bytes;
	uint32_t n_buffers, n_nodes, n_args, n_tmaps, n_macros, strings_bytes;
	uint32_t buffers_at, nodes_at, args_at, tmaps_at, macros_at, strings_at;
};

/* Sections of a validated image. */
static inline const struct ww_image_buffer *ww_image_buffers(const struct ww_image *m)
{
	return (const void *)((const char *)m + m->buffers_at);
}
static inline const struct ww_image_node *ww_image_nodes(const struct ww_image *m)
{
	return (const void *)((const char *)m + m->nodes_at);
}
static inline const struct ww_image_arg *ww_image_args(const struct ww_image *m)
{
	return (const void *)((const char *)m + m->args_at);
}
static inline const struct ww_image_tmap *ww_image_tmaps(const struct ww_image *m)
{
	return (const void *)((const char *)m + m->tmaps_at);
}
static inline const struct ww_image_macro *ww_image_macros(const struct ww_image *m)
{
	return (const void *)((const char *)m + m->macros_at);
}
static inline int ww_has_bias(int epilogue) { return epilogue == WW_EPI_BIAS || epilogue == WW_EPI_BIAS_RELU; }

static inline const char *ww_image_string(const struct ww_image *m, uint32_t at)
{
	return (const char *)m + m->strings_at + at;
}

#endif
