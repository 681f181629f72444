/* gemm.c - matrix products by cuBLASLt, with algorithms chosen so that a row's bits do not depend on its batch.
 *
 * cuBLASLt is column-major: a row-major (m, n) array is a column-major (n, m) one, so c = a.b is computed as c' =
 * b'.a'.
 *
 * Exact mode.  A product has a canonical algorithm.  For the forward pass (NT) it is the library's first proposal
 * without split sums for CANON x CANON elements, so the bits of an element depend on k and the types alone: neither on
 * the rows of its batch nor on the columns beside it, and layers whose weights lie side by side can be one product.
 * (Columns that are no multiple of CANON_STEP take the proposal for their own number.)  For products of the backward
 * pass, whose rows no other call computes, it is the first one for the shape's range, split or not. Proposals depend on
 * shape, GPU and library version only.  Tokens come in ranges, a power of two and what lies under it: they are the rows
 * m, and in the gradient of a weight (TN) the sum k; batches of real text have another number of them in every step.
 * For each range the library's other proposals are compared with the canonical one on random numbers, with the most
 * tokens of the range and with the fewest; the fastest of those with equal bits is taken. So measuring can change speed
 * and never a result, and a wrong measurement costs time only.  Fast mode takes the fastest of all.
 *
 * Between two uses of a weight the rest of the model passes through L2, so a weight is read from memory.  Each timed
 * run therefore begins with a flushed L2.
 *
 * A product of the backward pass is measured when it comes for the third time, one of the forward pass at once, and
 * none while a graph is being captured.  Choices are kept in $XDG_CACHE_HOME/warpwright/gemm-*.bin for GPU, library
 * version and mode, since measuring takes some milliseconds a shape.  The file is written when the device is closed; a
 * file that is not whole is not read.
 *
 *   offset  bytes
 *        0      8  magic "wwgemm03"
 *        8      8  number of records, n
 *       16    8 n  records of struct record, as in memory (x86-64 only, like the program)
 *      ...      8  hash of all bytes before it
 *
 * Shapes that the library does not take aligned (rows that are no multiple of 16 bytes) go to gemm_own.cu, for every m,
 * and so do products with one vector (a critic's values): what the library proposed for 2,048 rows it refused for
 * 1,958.
 */
#include "dev/cuda/cuda.h"

#include "host/cudalibs.h"
#include "base/fs.h"

#include <cublasLt.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LT_MAP(X)                                                                                                     \
	X(cublasLtCreate) X(cublasLtDestroy) X(cublasLtGetVersion) X(cublasLtMatmul) X(cublasLtMatmulDescCreate)      \
	X(cublasLtMatmulDescDestroy) X(cublasLtMatmulDescSetAttribute) X(cublasLtMatrixLayoutCreate)                  \
	X(cublasLtMatrixLayoutDestroy) X(cublasLtMatmulPreferenceCreate) X(cublasLtMatmulPreferenceDestroy)           \
	X(cublasLtMatmulPreferenceSetAttribute) X(cublasLtMatmulAlgoGetHeuristic)

enum { CANON = 4096, CANON_STEP = 8, PROPOSALS = 48, TABLE = 4096, RUNS = 5, THIRD = 3, FLUSH_BYTES = 128 << 20 };
static const char magic[8] = "wwgemm03";

struct key {
	int32_t form, ab, c, accumulate;
	int64_t m, n, k;
}; /* tokens: the upper end of their range */
struct record {
	struct key key;
	cublasLtMatmulAlgo_t algo;
};
struct entry {
	struct record r;
	int used, measured, own; /* own: computed by gemm_own.cu */
};

struct ww_cu_gemms {
#define X(name) __typeof__(&name) name;
	LT_MAP(X)
#undef X
	struct ww_cuda *d;
	cublasLtHandle_t lt;
	struct entry *table; /* open addressing; used 0: empty */
	int count, dirty;
	char path[PATH_MAX];
};

/* A product as the library sees it. */
struct call {
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t a, b, c;
	float beta;
};

/* FNV-1a: the hash of keys, and the checksum of the file. */
static uint64_t hash_of(const void *bytes, size_t n)
{
	uint64_t h = 14695981039346656037u;
	for (size_t i = 0; i < n; i++)
		h = (h ^ ((const unsigned char *)bytes)[i]) * 1099511628211u;
	return h;
}

static int type_of(int dtype) { return dtype == WW_BF16 ? CUDA_R_16BF : CUDA_R_32F; }
static int64_t size_of(int dtype) { return dtype == WW_BF16 ? 2 : 4; }

/* Which of the sizes is the number of tokens. */
static int64_t tokens_of(const struct key *k) { return k->form == WW_GEMM_TN ? k->k : k->m; }
static struct key with_tokens(struct key k, int64_t tokens)
{
	*(k.form == WW_GEMM_TN ? &k.k : &k.m) = tokens;
	return k;
}

static void call_release(const struct ww_cu_gemms *g, struct call *x)
{
	if (x->desc)
		g->cublasLtMatmulDescDestroy(x->desc);
	if (x->a)
		g->cublasLtMatrixLayoutDestroy(x->a);
	if (x->b)
		g->cublasLtMatrixLayoutDestroy(x->b);
	if (x->c)
		g->cublasLtMatrixLayoutDestroy(x->c);
	*x = (struct call){ 0 };
}

/* `b` of the product is the library's first operand, `a` its second.  The key's own sizes count. */
static int call_init(const struct ww_cu_gemms *g, struct call *x, const struct key *k)
{
	int ta = k->form == WW_GEMM_NT ? CUBLAS_OP_T : CUBLAS_OP_N, tb = k->form == WW_GEMM_TN ? CUBLAS_OP_T : CUBLAS_OP_N;
	uint64_t n = (uint64_t)k->n, kk = (uint64_t)k->k, mm = (uint64_t)k->m;
	cublasOperation_t op_a = (cublasOperation_t)ta, op_b = (cublasOperation_t)tb;
	cudaDataType_t ab = (cudaDataType_t)type_of(k->ab), c = (cudaDataType_t)type_of(k->c);
	*x = (struct call){ .beta = k->accumulate ? 1.0f : 0.0f };
	int rc = g->cublasLtMatmulDescCreate(&x->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F) ||
		g->cublasLtMatmulDescSetAttribute(x->desc, CUBLASLT_MATMUL_DESC_TRANSA, &op_a, sizeof(op_a)) ||
		g->cublasLtMatmulDescSetAttribute(x->desc, CUBLASLT_MATMUL_DESC_TRANSB, &op_b, sizeof(op_b)) ||
		g->cublasLtMatrixLayoutCreate(
			&x->a, ab, ta == CUBLAS_OP_T ? kk : n, ta == CUBLAS_OP_T ? n : kk, (int64_t)(ta == CUBLAS_OP_T ? kk : n)) ||
		g->cublasLtMatrixLayoutCreate(&x->b, ab, tb == CUBLAS_OP_T ? mm : kk, tb == CUBLAS_OP_T ? kk : mm,
			(int64_t)(tb == CUBLAS_OP_T ? mm : kk)) ||
		g->cublasLtMatrixLayoutCreate(&x->c, c, n, mm, (int64_t)n);
	if (rc)
		call_release(g, x);
	return rc;
}

static int call_run(const struct ww_cu_gemms *g, struct ww_stream *s, const struct call *x,
	const cublasLtMatmulAlgo_t *algo, void *c, const void *a, const void *b)
{
	float one = 1.0f;
	return (int)g->cublasLtMatmul(
		g->lt, x->desc, &one, b, x->a, a, x->b, &x->beta, c, x->c, c, x->c, algo, s->gemm_work, WW_CU_GEMM_WORK, s->s);
}

/* The library's proposals for a shape, best first by its own estimate; their number. */
static int propose(const struct ww_cu_gemms *g, const struct key *k, cublasLtMatmulAlgo_t *out, int want)
{
	cublasLtMatmulHeuristicResult_t found[PROPOSALS];
	cublasLtMatmulPreference_t pref = NULL;
	struct call x;
	size_t work = WW_CU_GEMM_WORK;
	int split = !g->d->dev.exact ||
		k->form != WW_GEMM_NT; /* its partial sums are added in order: equal calls stay equal */
	uint32_t schemes = split ? CUBLASLT_REDUCTION_SCHEME_MASK : CUBLASLT_REDUCTION_SCHEME_NONE, align = 16;
	int n = 0, good = 0;
	if (call_init(g, &x, k))
		return 0;
	if (!g->cublasLtMatmulPreferenceCreate(&pref) &&
		!g->cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &work, sizeof(work)) &&
		!g->cublasLtMatmulPreferenceSetAttribute(
			pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof(schemes)) &&
		!g->cublasLtMatmulPreferenceSetAttribute(
			pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align, sizeof(align)) &&
		!g->cublasLtMatmulPreferenceSetAttribute(
			pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align, sizeof(align)) &&
		!g->cublasLtMatmulPreferenceSetAttribute(
			pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align, sizeof(align)) &&
		!g->cublasLtMatmulPreferenceSetAttribute(
			pref, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align, sizeof(align)))
		if (g->cublasLtMatmulAlgoGetHeuristic(g->lt, x.desc, x.a, x.b, x.c, x.c, pref, want, found, &n))
			n = 0;
	for (int i = 0; i < n; i++)
		if (found[i].state == CUBLAS_STATUS_SUCCESS)
			out[good++] = found[i].algo;
	if (pref)
		g->cublasLtMatmulPreferenceDestroy(pref);
	call_release(g, &x);
	return good;
}

/* ---- measuring */

struct trial {
	const struct ww_cu_gemms *g;
	struct ww_stream *s;
	const struct key *k;
	void *a, *b, *c, *want, *flush; /* want: what the canonical algorithm gives */
	int *differ;
	cudaEvent_t begin, end;
};

static void trial_release(struct trial *t)
{
	cudaStreamSynchronize(t->s->s);
	cudaFree(t->a);
	cudaFree(t->b);
	cudaFree(t->c);
	cudaFree(t->want);
	cudaFree(t->flush);
	cudaFree(t->differ);
	if (t->begin)
		cudaEventDestroy(t->begin);
	if (t->end)
		cudaEventDestroy(t->end);
	cudaGetLastError();
}

static int trial_init(struct trial *t, int64_t tokens)
{
	struct key most = with_tokens(*t->k, tokens), *k = &most;
	int half = k->ab == WW_BF16, half_c = k->c == WW_BF16;
	size_t a = (size_t)(k->m * k->k * size_of(k->ab)), b = (size_t)(k->n * k->k * size_of(k->ab));
	size_t c = (size_t)(k->m * k->n * size_of(k->c));
	return !cudaMalloc(&t->a, a) && !cudaMalloc(&t->b, b) && !cudaMalloc(&t->c, c) && !cudaMalloc(&t->want, c) &&
		!cudaMalloc(&t->flush, FLUSH_BYTES) && !cudaMalloc((void **)&t->differ, sizeof(int)) &&
		!cudaEventCreate(&t->begin) && !cudaEventCreate(&t->end) &&
		!ww_cu_random(t->s->s, half, t->a, k->m * k->k, 1) && !ww_cu_random(t->s->s, half, t->b, k->n * k->k, 2) &&
		!ww_cu_random(t->s->s, half_c, t->want, k->m * k->n, 3);
}

/* Run once with so many tokens; the output before it is that of `want` before its run where products accumulate. */
static int trial_run(struct trial *t, const cublasLtMatmulAlgo_t *algo, int64_t tokens, void *c)
{
	struct key k = with_tokens(*t->k, tokens);
	struct call x;
	if (k.accumulate && ww_cu_random(t->s->s, k.c == WW_BF16, c, k.m * k.n, 3))
		return 0;
	if (call_init(t->g, &x, &k))
		return 0;
	int rc = call_run(t->g, t->s, &x, algo, c, t->a, t->b);
	call_release(t->g, &x);
	return !rc;
}

/* Whether the algorithm gives the canonical bits.  Those of the first rows are in `want`; where tokens are added up
 * they depend on their number. */
static int trial_same(
	struct trial *t, const cublasLtMatmulAlgo_t *canon, const cublasLtMatmulAlgo_t *algo, int64_t tokens)
{
	struct key k = with_tokens(*t->k, tokens);
	int differ = 0;
	size_t bytes = (size_t)(k.m * k.n * size_of(k.c));
	return (k.form != WW_GEMM_TN || trial_run(t, canon, tokens, t->want)) &&
		!cudaMemsetAsync(t->differ, 0, sizeof(int), t->s->s) && !cudaMemsetAsync(t->c, 0xff, bytes, t->s->s) &&
		trial_run(t, algo, tokens, t->c) && !ww_cu_differ(t->s->s, t->differ, t->c, t->want, bytes) &&
		!cudaMemcpyAsync(&differ, t->differ, sizeof(int), cudaMemcpyDeviceToHost, t->s->s) &&
		!cudaStreamSynchronize(t->s->s) && !differ;
}

/* The shortest of RUNS, or of fewer where they are clearly longer than `limit`; a huge time where it does not run. */
static float trial_ms(struct trial *t, const cublasLtMatmulAlgo_t *algo, float limit)
{
	struct call x;
	float best = 1e30f, ms = 0;
	if (call_init(t->g, &x, t->k))
		return best;
	for (int i = 0; i <= RUNS && (i < 2 || ms < 1.5f * limit); i++) {
		if (cudaMemsetAsync(t->flush, i, FLUSH_BYTES, t->s->s) || cudaEventRecord(t->begin, t->s->s) ||
			call_run(t->g, t->s, &x, algo, t->c, t->a, t->b) || cudaEventRecord(t->end, t->s->s) ||
			cudaEventSynchronize(t->end) || cudaEventElapsedTime(&ms, t->begin, t->end)) {
			best = 1e30f;
			break;
		}
		best = i && ms < best ? ms : best; /* the first one warms up */
	}
	call_release(t->g, &x);
	return best;
}

/* The shape whose first proposal is the canonical algorithm of k. */
static struct key canonical(const struct key *k)
{
	struct key c = *k;
	if (k->form != WW_GEMM_NT)
		return c;
	c.m = CANON;
	if (k->n % CANON_STEP == 0)
		c.n = CANON;
	return c;
}

/* Replace the entry's algorithm, which is the canonical one, by the fastest that is allowed.  Without memory it stays.
 */
static void measure(struct ww_cu_gemms *g, struct ww_stream *s, struct entry *e)
{
	const struct key *k = &e->r.key;
	cublasLtMatmulAlgo_t algos[PROPOSALS], canon = e->r.algo;
	struct trial t = { .g = g, .s = s, .k = k };
	int exact = g->d->dev.exact, n = propose(g, k, algos, PROPOSALS);
	/* 256 rows are enough to see which bits the canonical algorithm gives */
	int64_t most = tokens_of(k), fewest = most / 2 + 1, rows = k->form == WW_GEMM_NT && most < 256 ? 256 : most;
	e->measured = 1;
	g->dirty = 1;
	if (trial_init(&t, rows) && (!exact || trial_run(&t, &canon, rows, t.want))) {
		float best = trial_ms(&t, &canon, 1e30f);
		for (int i = 0; i < n; i++) {
			float ms = trial_ms(&t, &algos[i], best);
			/* 0.98: noise must not make choices that differ from run to run for nothing */
			if (ms < 0.98f * best &&
				(!exact || (trial_same(&t, &canon, &algos[i], most) && trial_same(&t, &canon, &algos[i], fewest)))) {
				best = ms;
				e->r.algo = algos[i];
			}
		}
	}
	trial_release(&t);
}

/* ---- the table and its file */

static struct entry *find(struct ww_cu_gemms *g, const struct key *k)
{
	uint64_t at = hash_of(k, sizeof(*k));
	for (;; at++) {
		struct entry *e = &g->table[at % TABLE];
		if (!e->used || !memcmp(&e->r.key, k, sizeof(*k)))
			return e;
	}
}

static struct entry *add(struct ww_cu_gemms *g, const struct key *k)
{
	if (g->count >= TABLE / 2) { /* hundreds of thousands of tokens of every length: begin anew */
		memset(g->table, 0, TABLE * sizeof(*g->table));
		g->count = 0;
	}
	struct entry *e = find(g, k);
	if (!e->used) {
		*e = (struct entry){ .r.key = *k, .used = 1 };
		g->count++;
	}
	return e;
}

static void cache_read(struct ww_cu_gemms *g)
{
	struct ww_err none = WW_ERR_INIT;
	struct ww_str s = WW_STR_INIT((size_t)TABLE * sizeof(struct record) + 64);
	uint64_t n = 0, hash = 0;
	if (!ww_fs_is_file(g->path) || ww_fs_read(g->path, s.max, &s, &none) != WW_OK || s.len < 24)
		goto out;
	memcpy(&n, s.p + 8, 8);
	memcpy(&hash, s.p + s.len - 8, 8);
	if (memcmp(s.p, magic, 8) || n > TABLE / 4 || s.len != 24 + n * sizeof(struct record) ||
		hash != hash_of(s.p, s.len - 8))
		goto out;
	for (uint64_t i = 0; i < n; i++) {
		struct record r;
		memcpy(&r, s.p + 16 + i * sizeof(r), sizeof(r));
		struct entry *e = add(g, &r.key);
		e->r = r;
		e->measured = 1;
	}
out:
	ww_str_release(&s);
}

static void cache_write(struct ww_cu_gemms *g)
{
	struct ww_err none = WW_ERR_INIT;
	struct ww_str s = WW_STR_INIT((size_t)TABLE * sizeof(struct record) + 64);
	uint64_t n = 0, hash;
	ww_str_add(&s, magic, 8);
	ww_str_add(&s, &n, 8);
	for (int i = 0; i < TABLE && n < TABLE / 4; i++)
		if (g->table[i].used && g->table[i].measured && !g->table[i].own) {
			ww_str_add(&s, &g->table[i].r, sizeof(struct record));
			n++;
		}
	memcpy(s.p + 8, &n, 8);
	hash = hash_of(s.p, s.len);
	ww_str_add(&s, &hash, 8);
	if (!s.cut)
		(void)!ww_fs_write(g->path, s.p, s.len, &none); /* without it the next start measures again */
	ww_str_release(&s);
}

/* The entry of a product, made where it is new. */
static struct entry *entry_for(struct ww_cu_gemms *g, struct ww_stream *s, const struct key *k)
{
	struct entry *e = find(g, k);
	int forward = k->form == WW_GEMM_NT;
	if (!e->used) {
		cublasLtMatmulAlgo_t first;
		e = add(g, k);
		struct key shape = g->d->dev.exact ? canonical(k) : *k;
		e->own = !propose(g, &shape, &first, 1);
		if (!e->own)
			e->r.algo = first;
	} else if (e->used < THIRD) {
		e->used++;
	}
	if (!e->own && !e->measured && (forward || (g->d->dev.exact && e->used == THIRD)) && !ww_cu_capturing(s))
		measure(g, s, e);
	return e;
}

enum ww_rc ww_cu_gemms_new(struct ww_cuda *d, struct ww_cu_gemms **out, struct ww_err *err)
{
	struct ww_cu_gemms *g = calloc(1, sizeof(*g));
	struct cudaDeviceProp prop;
	char dir[PATH_MAX], name[sizeof(prop.name)];
	void *lib = NULL;
	enum ww_rc rc = WW_OK;
	if (!g || !(g->table = calloc(TABLE, sizeof(*g->table)))) {
		rc = ww_err_set(err, WW_ERR_NOMEM, "out of memory");
		goto out;
	}
	g->d = d;
	WW_TRY(ww_cudalib_open(ww_cudalib_cublaslt, &lib, err));
#define X(fn)                                                                                  \
	if (!(*(void **)&g->fn = dlsym(lib, #fn))) {                                           \
		rc = ww_err_set(err, WW_ERR_MISSING, "libcublasLt has no function %s", #fn);    \
		goto out;                                                                      \
	}
	LT_MAP(X)
#undef X
	if (g->cublasLtCreate(&g->lt) || cudaGetDeviceProperties(&prop, 0)) {
		rc = ww_err_set(err, WW_ERR_DEVICE, "cuBLASLt does not start on this GPU");
		goto out;
	}
	snprintf(d->dev.bits.libraries, sizeof(d->dev.bits.libraries), "cuBLASLt %zu", g->cublasLtGetVersion());
	memcpy(name, prop.name, sizeof(name));
	for (char *p = name; *p; p++)
		*p = (*p >= '0' && *p <= '9') || (*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z') ? *p : '-';
	WW_TRY(ww_fs_cache_dir(dir, err));
	if ((size_t)snprintf(g->path, sizeof(g->path), "%s/gemm-%s-%zu-%s.bin", dir, name, g->cublasLtGetVersion(),
			d->dev.exact ? "exact" : "fast") >= sizeof(g->path)) {
		rc = ww_err_set(err, WW_ERR_LIMIT, "the path of the cache %s is too long", dir);
		goto out;
	}
	cache_read(g);
	*out = g;
out:
	if (rc != WW_OK)
		ww_cu_gemms_free(g);
	return rc;
}

void ww_cu_gemms_free(struct ww_cu_gemms *g)
{
	if (!g)
		return;
	if (g->dirty)
		cache_write(g);
	if (g->lt)
		g->cublasLtDestroy(g->lt);
	free(g->table);
	free(g);
}

/* ---- the operation */

static void own(struct ww_stream *s, const struct key *k, void *c, const void *a, const void *b)
{
	int a_first = k->form == WW_GEMM_TN, b_last = k->form == WW_GEMM_NT;
	ww_cu_note(s,
		ww_cu_gemm(s->s, k->ab == WW_BF16, k->c == WW_BF16, c, a, a_first ? 1 : k->k, a_first ? k->m : 1, b,
			b_last ? 1 : k->n, b_last ? k->k : 1, k->m, k->n, k->k, k->accumulate),
		"matrix product");
}

/* Rows of both operands, and all addresses, are multiples of 16 bytes, and it is a product of matrices. */
static int aligned(const struct key *k, const void *c, const void *a, const void *b)
{
	int64_t item = size_of(k->ab), row_a = k->form == WW_GEMM_TN ? k->m : k->k,
			row_b = k->form == WW_GEMM_NT ? k->k : k->n;
	return k->n > 1 && row_a * item % 16 == 0 && row_b * item % 16 == 0 &&
		(((uintptr_t)a | (uintptr_t)b | (uintptr_t)c) & 15) == 0;
}

static int64_t range_of(int64_t m)
{
	int64_t r = 1;
	while (r < m)
		r *= 2;
	return r;
}

void ww_cu_product(struct ww_stream *s, enum ww_gemm_form form, struct ww_arr c, struct ww_arr a, struct ww_arr b,
	int64_t m, int64_t n, int64_t k, int accumulate)
{
	struct ww_cu_gemms *g = s->d->gemms;
	struct key key = { form, a.dtype, c.dtype, accumulate != 0, m, n, k },
			   range = with_tokens(key, range_of(tokens_of(&key)));
	struct call x;
	if (s->err.rc != WW_OK || !m || !n)
		return;
	WW_BUG(k <= 0 || m > INT_MAX || n > INT_MAX || k > INT_MAX || a.dtype != b.dtype);
	struct entry *e = aligned(&key, c.p, a.p, b.p) ? entry_for(g, s, &range) : NULL;
	if (!e || e->own) {
		own(s, &key, c.p, a.p, b.p);
		return;
	}
	int rc = call_init(g, &x, &key);
	if (!rc)
		rc = call_run(g, s, &x, &e->r.algo, c.p, a.p, b.p);
	call_release(g, &x);
	if (rc)
		ww_err_set(&s->err, WW_ERR_DEVICE, "matrix product of %lld x %lld x %lld: cuBLASLt status %d", (long long)m,
			(long long)n, (long long)k, rc);
}
