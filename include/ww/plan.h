/* plan.h - the plan ABI: what a solution's plan.c may call, version 1.
 *
 * A solution is device code (kernels.cu, or kernels.c on the cpu target) plus a plan.  The plan is written as a C
 * function,
 *
 *     #include <ww/plan.h>
 *     void plan(struct ww_plan *p) { ... }
 *
 * which is compiled by TinyCC and run once, in a sandbox that has no GPU, no network, no files and no data.  It sees
 * shapes, strides, dtypes, scalar arguments and the facts of the device, and it answers with a list of nodes: kernel
 * launches, memory sets, copies and library calls, in program order, on one stream.  The list is data; the judge checks
 * it and replays it.  Nothing of plan.c survives into a timed call.
 *
 * Rules that hold for the whole header:
 *   - It is self-contained: it includes nothing.  Besides it, plan.c can include the cookbook's plan halves,
 *     <ww/recipe/NAME.h>, which are plain functions over this header; there is no libc.
 *   - Sizes and strides of tensors are counted in elements, offsets and everything named _bytes in bytes.
 *   - A buffer is named by the small integer that ww_input(), ww_param(), ww_output() (their field `buf`) or
 *     ww_scratch() gave.  There are no pointers to data.
 *   - The first error sticks: every later call does nothing, and the judge reports that error (status plan_failed).
 *     So plan.c needs no error handling of its own; it refuses what it does not cover with ww_fail().
 *   - Every pointer that a function returns stays valid until plan() returns.
 *   - One plan.c serves every shape of its task: read the sizes from the tensors, never write them down.
 *
 * Limits, beyond which the plan is refused by name: those called WW_MAX_... below, 1 s of run time, scratch up to the
 * memory that the device has left.
 */
#ifndef WW_PLAN_H
#define WW_PLAN_H

#define WW_PLAN_ABI 1
#define WW_MAX_RANK 8       /* dimensions of a tensor */
#define WW_MAX_NODES 4096
#define WW_MAX_SCRATCH 1024 /* buffers */
#define WW_MAX_ARGS 64      /* of a launch */
#define WW_MAX_MACROS 4096

enum ww_target { WW_TARGET_CUDA = 1, WW_TARGET_CPU = 2 };

/* Element types.  The numbers are part of the ABI.  A bool is one byte, 0 or 1. */
enum ww_dtype {
	WW_F32 = 1,
	WW_F64 = 2,
	WW_F16 = 3,
	WW_BF16 = 4,
	WW_I8 = 5,
	WW_I16 = 6,
	WW_I32 = 7,
	WW_I64 = 8,
	WW_U8 = 9,
	WW_BOOL = 10
};

/* A tensor of the task.  Element (i0, i1, ...) lies at byte (i0*stride[0] + i1*stride[1] + ...) * itemsize of buffer
 * `buf`.  Inputs and parameters can only be read; outputs hold poison (bytes of NaN, of huge numbers or of zeros, in
 * turn) before every call and must be written whole. */
struct ww_tensor {
	const char *name;              /* "x", "fc.weight", "output0" */
	int buf;                       /* the buffer that holds it, from byte 0 */
	int dtype;                     /* enum ww_dtype */
	int rank;                      /* 0 for a single number */
	int itemsize;                  /* bytes of one element */
	long long size[WW_MAX_RANK];   /* elements; 1 beyond rank */
	long long stride[WW_MAX_RANK]; /* elements; 0 beyond rank */
	long long numel;               /* product of the sizes */
	long long bytes;               /* of the storage that the strides span */
	int contiguous;                /* 1: row-major without gaps */
};

/* A non-tensor leaf of forward()'s arguments, in the order of the flattened argument list. */
enum ww_scalar_kind { WW_SCALAR_NONE = 0, WW_SCALAR_INT = 1, WW_SCALAR_FLOAT = 2, WW_SCALAR_BOOL = 3 };
struct ww_scalar {
	int kind;    /* enum ww_scalar_kind */
	long long i; /* INT, BOOL */
	double f;    /* FLOAT; INT and BOOL converted */
};

/* The device that the plan is built for.  Fields that do not apply to the target are 0. */
struct ww_device {
	int target;                             /* enum ww_target */
	int threads;                            /* cpu: worker threads.  cuda: 0 */
	int vector_bytes;                       /* cpu: widest usable SIMD register, 16, 32 or 64 */
	int cc;                                 /* cuda: compute capability, 90 for 9.0 */
	int sm_count;                           /* cuda: multiprocessors */
	int warp_size;                          /* cuda: 32 */
	int max_threads_per_block;              /* cuda */
	int max_threads_per_sm;                 /* cuda */
	int regs_per_sm;                        /* cuda: 32-bit registers */
	long long shared_per_block_bytes;       /* cuda: largest dynamic shared memory of a block (opt-in limit).
	                                         * cpu: largest scratch of a block */
	long long shared_per_sm_bytes;          /* cuda */
	long long l1_bytes, l2_bytes, l3_bytes; /* caches; cuda has l2 only */
	long long memory_bytes;                 /* device memory in all */
	double memory_bytes_per_s; /* measured bandwidth of a large copy, bytes read plus bytes written; 0 unknown */
};

struct ww_plan; /* opaque */

/* ---- What the task is -------------------------------------------------------------------------------------------- */

/* Numbers of input tensors, output tensors and non-tensor arguments: the indices below are smaller. */
int ww_input_count(struct ww_plan *p);
int ww_output_count(struct ww_plan *p);
int ww_scalar_count(struct ww_plan *p);

/* Tensor leaves of forward()'s arguments, 0-based; an index out of range is an error. */
const struct ww_tensor *ww_input(struct ww_plan *p, int index);
/* A parameter, buffer or lifted constant of the module by its dotted name; an unknown name is an error. */
const struct ww_tensor *ww_param(struct ww_plan *p, const char *name);
/* Tensor leaves of forward()'s result. */
const struct ww_tensor *ww_output(struct ww_plan *p, int index);
const struct ww_scalar *ww_scalar(struct ww_plan *p, int index);
const struct ww_device *ww_device(struct ww_plan *p);

/* Refuse this build with a reason, for instance a shape that the kernels do not cover. */
void ww_fail(struct ww_plan *p, const char *why);

/* ---- What the device code is compiled with ----------------------------------------------------------------------- */

/* Define the macro `name` as the decimal integer `value` before kernels.* is compiled (a name is a C identifier that
 * does not start with "WW_" or "__").  Defining it again is an error unless the value is the same. */
void ww_define(struct ww_plan *p, const char *name, long long value);

/* printf into memory that lives as long as the plan, for kernel names such as ww_fmt(p, "gemm<%d, %d>", bm, bn).  At
 * most 1023 bytes. */
const char *ww_fmt(struct ww_plan *p, const char *format, ...);

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

/* A scratch buffer of `bytes` bytes (aligned to at least 256), poisoned like outputs before every call.  Every scratch
 * buffer is memory of its own with unmapped pages around it; an access beyond it is a fault.  Returns its handle. */
int ww_scratch(struct ww_plan *p, long long bytes);

/* ---- Nodes ------------------------------------------------------------------------------------------------------- */

/* A kernel launch.  `kernel` is the name of an extern "C" __global__ function, or on the cuda target a C++ name
 * expression such as "norm<float, 4>"; gx, gy, gz the grid in blocks; bx, by, bz the block in threads.  Follow it with
 * ww_arg_*() once for each parameter of the kernel, in order, and, where needed, with ww_shared(), ww_cluster(),
 * ww_cooperative(), ww_pdl(): all of these apply to the last launch.
 *
 * On the cpu target the kernel is a C function
 *     void name(const struct ww_block *b, void *const *arg);
 * (see <ww/cpu.h>) that is called once for each block of the grid, by as many threads as ww_device() says, in no
 * promised order; bx, by, bz must be 1; *(T *)arg[i] is the i-th argument. */
void ww_launch(struct ww_plan *p, const char *kernel, long long gx, long long gy, long long gz, int bx, int by, int bz);
/* Dynamic shared memory of the last launch (cpu: scratch of each thread, 64-byte aligned, content undefined). */
void ww_shared(struct ww_plan *p, long long bytes);
/* Thread-block cluster of the last launch, at most 16 blocks; must divide the grid.  cuda only. */
void ww_cluster(struct ww_plan *p, int x, int y, int z);
/* All blocks of the last launch are resident at once (the judge checks that they fit), so that a grid barrier can be
 * built on scratch memory.  cuda only. */
void ww_cooperative(struct ww_plan *p);
/* Programmatic dependent launch: the last launch may start before the node ahead of it has ended; its device code must
 * wait with griddepcontrol.wait before it touches what that node writes.  cuda only. */
void ww_pdl(struct ww_plan *p);
/* ww_pdl() for all launches of the plan, earlier and later ones, that may have it: those behind another launch where
 * neither is cooperative, on a device of compute capability 9.0.  Each kernel of the plan must then wait first, since
 * one that ends before those ahead of it leaves the next without a promise about them.  Nothing on the cpu target. */
void ww_pdl_all(struct ww_plan *p);

/* Arguments of the last launch.  A buffer argument arrives as a pointer to buffer start plus offset_bytes, which must
 * lie inside the buffer and be a multiple of 4 or of the element size that the kernel expects. */
void ww_arg_buf(struct ww_plan *p, int buf, long long offset_bytes);
void ww_arg_i32(struct ww_plan *p, int v);
void ww_arg_i64(struct ww_plan *p, long long v);
void ww_arg_f32(struct ww_plan *p, float v);
void ww_arg_f64(struct ww_plan *p, double v);

/* A tensor map (TMA descriptor) as a launch argument: the kernel takes `const __grid_constant__ ww_tensor_map`. Encoded
 * with cuTensorMapEncodeTiled by the runner; checked to lie inside its buffer.  Dimension 0 is the fastest.  cuda only.
 */
enum ww_swizzle { WW_SWIZZLE_NONE = 0, WW_SWIZZLE_32B = 1, WW_SWIZZLE_64B = 2, WW_SWIZZLE_128B = 3 };
enum ww_fill { WW_FILL_ZERO = 0, WW_FILL_NAN = 1 };
struct ww_tmap {
	int buf;
	long long offset_bytes;    /* multiple of 16 */
	int dtype;                 /* enum ww_dtype */
	int rank;                  /* 1 to 5 */
	long long size[5];         /* elements */
	long long stride_bytes[5]; /* of dimension i, [0] unused; multiples of 16 */
	int box[5];                /* elements, each 1 to 256 */
	int elem_stride[5];        /* 1 where nothing is skipped; 0 counts as 1 */
	int swizzle;               /* enum ww_swizzle */
	int fill;                  /* enum ww_fill: what elements outside the tensor read as */
};
void ww_arg_tmap(struct ww_plan *p, const struct ww_tmap *t);

/* Set `bytes` bytes to `byte` (0..255), or copy; ranges must lie inside their buffers, and copies must not overlap. */
void ww_memset(struct ww_plan *p, int buf, long long offset_bytes, long long bytes, int byte);
void ww_copy(
	struct ww_plan *p, int dst, long long dst_offset_bytes, int src, long long src_offset_bytes, long long bytes);

/* Operators of the task's graph that run as PyTorch runs them, by the judge's own copy of the graph, between the nodes
 * before and behind.  `nodes`, `reads`, `writes` are names of the graph (`inspect`), separated by one space: the
 * operators in the graph's order; the values that they read, beside each other's and the task's inputs and parameters,
 * which need no mention; and the operators among them whose results are stored.  read_buf and write_buf hold these
 * values, whole and row-major from byte 0 on, one buffer for each name; what is written is scratch.  No operator stands
 * in two such nodes.  One that works in place leaves its operand as it is: its result is the new value. */
struct ww_pytorch {
	const char *nodes, *reads, *writes;
	const int *read_buf, *write_buf;
};
void ww_pytorch(struct ww_plan *p, const struct ww_pytorch *t);

/* Precision of a library node.  FP16 and BF16 need operands of that type and accumulate in fp32. */
enum ww_math { WW_MATH_FP32 = 0, WW_MATH_TF32 = 1, WW_MATH_FP16 = 2, WW_MATH_BF16 = 3 };
enum ww_epilogue { WW_EPI_NONE = 0, WW_EPI_BIAS = 1, WW_EPI_RELU = 2, WW_EPI_BIAS_RELU = 3 };

/* A row-major matrix, or a batch of them: element (i, j) of matrix b lies at offset_bytes + (b*batch_stride + i*ld + j)
 * * itemsize.  With trans = 1 the stored matrix is the transpose of the operand. */
struct ww_mat {
	int buf;
	long long offset_bytes;
	int dtype;
	int trans;
	long long ld;           /* elements between rows as stored */
	long long batch_stride; /* elements; 0 shares one matrix */
};
/* D = epilogue(alpha * A B + beta * C), A (m, k), B (k, n), C and D (m, n), `batch` times; bias has n elements of D's
 * dtype and is added to every row.  cublasLtMatmul on cuda, cblas_?gemm on cpu (fp32 and fp64 only).  C may be D (same
 * buffer and offset) or, with beta = 0, left zero. */
struct ww_gemm {
	long long m, n, k, batch;
	struct ww_mat a, b, c, d;
	double alpha, beta;
	int math;     /* enum ww_math */
	int epilogue; /* enum ww_epilogue */
	int bias_buf; /* with an epilogue that has a bias */
	long long bias_offset_bytes;
	/* 0 to 64 GiB; what the library's algorithm needs of it is given by the judge, part of the plan */
	long long workspace_bytes;
};
void ww_gemm(struct ww_plan *p, const struct ww_gemm *g);

/* y = epilogue(conv(x, w)), forward convolution (cross-correlation, as torch.nn.ConvNd), or with transposed = 1 what
 * torch.nn.ConvTransposeNd computes (weights then (c, k/groups, kernel...), else (k, c/groups, kernel...)).  cuDNN on
 * cuda; on cpu a direct convolution of our own (fp32), documented in skills/cuda/references/plan.md. */
enum ww_layout { WW_LAYOUT_NCHW = 0, WW_LAYOUT_NHWC = 1 };
struct ww_conv {
	int nd; /* spatial dimensions, 1 to 3 */
	int transposed;
	int dtype;  /* of x, w, y and bias */
	int math;   /* enum ww_math */
	int layout; /* enum ww_layout, of x, w and y */
	int groups;
	long long n, c, k; /* batch, input channels, output channels */
	long long in[3], kernel[3], out[3];
	int stride[3], pad[3], dilation[3];
	int x_buf, w_buf, y_buf, bias_buf;
	long long x_offset_bytes, w_offset_bytes, y_offset_bytes, bias_offset_bytes;
	int epilogue;              /* enum ww_epilogue; bias has k elements */
	long long workspace_bytes; /* 0 to 64 GiB, as for ww_gemm() */
	/* cuda: which algorithm, 0 to 15, counted in cuDNN's own order among those that fit the workspace (0: what PyTorch
	 * takes); the last of them where there are not so many.  cpu: must be 0. */
	int choice;
};
void ww_conv(struct ww_plan *p, const struct ww_conv *c);

/* ---- Small arithmetic that every plan needs ---------------------------------------------------------------------- */

static inline long long ww_cdiv(long long a, long long b) { return (a + b - 1) / b; }
static inline long long ww_min(long long a, long long b) { return a < b ? a : b; }
static inline long long ww_max(long long a, long long b) { return a > b ? a : b; }
/* Smallest power of two that is at least v (v >= 1). */
static inline long long ww_pow2(long long v)
{
	long long r = 1;
	while (r < v)
		r += r;
	return r;
}

#endif
