/* image_validate.c - whether a plan image may be run.  Every untrusted plan passes this check before a process of ours
 * uses it.
 *
 * The bytes come from a process that ran an untrusted program.  They are read in the order header, sections, buffers,
 * strings, macros, nodes, and nothing is followed that has not been checked.  The layout must be exactly the one in
 * image.h: sections in order without gaps, every argument and every tensor map used by exactly one node, in order. So
 * there is one image for one plan, and no byte of it is unchecked.
 *
 * What is checked is what the runner relies on and what CUDA would otherwise report later and less clearly: handles,
 * ranges, roles (inputs and parameters are never written), device limits.  What only the driver knows (registers,
 * whether a cooperative grid fits) is checked by the runner when it has the compiled kernel.  All arithmetic on
 * numbers of the image is 128 bits wide.
 *
 * Library nodes and tensor maps are in image_library.c.
 */
#include "judge/image_internal.h"

#include "base/dtype.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <string.h>

enum { MAX_NAME = 1023, MAX_MACRO = 127 };

static const char *const kind_names[] = { "?", "launch", "memset", "copy", "gemm", "conv", "pytorch" };

int ww_check_no(struct ww_check *c, const char *fmt, ...)
{
	va_list ap;
	if (c->node >= 0) {
		const struct ww_image_node *n = &ww_image_nodes(c->m)[c->node];
		ww_str_addf(c->why, "node %d (%s): ", c->node, n->kind < WW_ARRAY_LEN(kind_names) ? kind_names[n->kind] : "?");
	}
	va_start(ap, fmt);
	ww_str_vaddf(c->why, fmt, ap);
	va_end(ap);
	return 0;
}

/* ---- Header, sections, buffers, macros --------------------------------------------------------------------------- */

static int check_section(struct ww_check *c, const char *what, uint32_t at, uint64_t count, size_t size, size_t *end)
{
	size_t want = (*end + 7) & ~(size_t)7;
	WW_NEED(c, at == want, "image: the %s are not where they must be", what);
	WW_NEED(c, at <= c->bytes && count * size <= c->bytes - at, "image: the %s reach beyond its end", what);
	*end = at + count * size;
	return 1;
}

static int check_sections(struct ww_check *c)
{
	const struct ww_image *m = c->m;
	size_t end = sizeof(*m);
	WW_NEED(c, c->bytes >= sizeof(*m) && c->bytes <= WW_IMAGE_MAX_BYTES, "image: %zu bytes", c->bytes);
	WW_NEED(c, m->magic == WW_IMAGE_MAGIC && m->abi == WW_PLAN_ABI, "image: not a plan of version %d", WW_PLAN_ABI);
	WW_NEED(c, m->total_bytes == c->bytes, "image: its size is not what its header says");
	WW_NEED(c, m->target == (uint32_t)c->facts->device.target, "image: built for another target");
	WW_NEED(c, m->n_nodes <= WW_MAX_NODES, "the plan has more than %d nodes", WW_MAX_NODES);
	WW_NEED(c, m->n_macros <= WW_MAX_MACROS, "the plan has more than %d macros", WW_MAX_MACROS);
	return check_section(c, "buffers", m->buffers_at, m->n_buffers, sizeof(struct ww_image_buffer), &end) &&
		check_section(c, "nodes", m->nodes_at, m->n_nodes, sizeof(struct ww_image_node), &end) &&
		check_section(c, "arguments", m->args_at, m->n_args, sizeof(struct ww_image_arg), &end) &&
		check_section(c, "tensor maps", m->tmaps_at, m->n_tmaps, sizeof(struct ww_image_tmap), &end) &&
		check_section(c, "macros", m->macros_at, m->n_macros, sizeof(struct ww_image_macro), &end) &&
		check_section(c, "strings", m->strings_at, m->strings_bytes, 1, &end) &&
		(end == c->bytes || ww_check_no(c, "image: bytes behind its end"));
}

static int check_strings(struct ww_check *c)
{
	const struct ww_image *m = c->m;
	WW_NEED(c, m->strings_bytes > 0 && *ww_image_string(m, 0) == 0 && *ww_image_string(m, m->strings_bytes - 1) == 0,
		"image: its strings are not terminated");
	return 1;
}

static int check_task_buffers(struct ww_check *c, const struct ww_tensor *t, int n, uint32_t role, uint32_t *at)
{
	for (int i = 0; i < n; i++, ++*at) {
		const struct ww_image_buffer *b = &ww_image_buffers(c->m)[*at];
		WW_NEED(c,
			*at < c->m->n_buffers && b->role == role && b->index == (uint32_t)i && b->bytes == (uint64_t)t[i].bytes,
			"image: buffer %u is not the task's", *at);
	}
	return 1;
}

static int check_buffers(struct ww_check *c)
{
	const struct ww_facts *f = c->facts;
	uint64_t limit = f->device.memory_bytes > 0 ? (uint64_t)f->device.memory_bytes : (uint64_t)1 << 40;
	ww_wide total = 0;
	uint32_t at = 0;
	if (!check_task_buffers(c, f->inputs, f->n_inputs, WW_BUF_INPUT, &at) ||
		!check_task_buffers(c, f->params, f->n_params, WW_BUF_PARAM, &at) ||
		!check_task_buffers(c, f->outputs, f->n_outputs, WW_BUF_OUTPUT, &at))
		return 0;
	WW_NEED(c, c->m->n_buffers - at <= WW_MAX_SCRATCH, "the plan has more than %d scratch buffers", WW_MAX_SCRATCH);
	for (uint32_t i = 0; i < at; i++)
		total += ww_image_buffers(c->m)[i].bytes;
	for (uint32_t i = at; i < c->m->n_buffers; i++) {
		const struct ww_image_buffer *b = &ww_image_buffers(c->m)[i];
		WW_NEED(c, b->role == WW_BUF_SCRATCH && b->index == i - at, "image: buffer %u is not scratch", i);
		WW_NEED(c, b->bytes > 0 && b->bytes <= limit, "scratch buffer %u: its size, %lld bytes, is not in 1..%llu",
			i - at, (long long)b->bytes, (unsigned long long)limit);
		total += b->bytes;
	}
	WW_NEED(c, total <= limit,
		"the task's tensors and %u scratch buffers need more than the device's memory, %llu bytes",
		c->m->n_buffers - at, (unsigned long long)limit);
	return 1;
}

static int is_identifier(const char *s, size_t max)
{
	size_t n = 0;
	for (; s[n]; n++) {
		int letter = (s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || s[n] == '_';
		int digit = s[n] >= '0' && s[n] <= '9';
		if (n >= max || !(letter || (digit && n > 0)))
			return 0;
	}
	return n > 0;
}

static int check_macros(struct ww_check *c)
{
	const struct ww_image_macro *x = ww_image_macros(c->m);
	for (uint32_t i = 0; i < c->m->n_macros; i++) {
		WW_NEED(c, x[i].name < c->m->strings_bytes && !x[i].reserved, "image: macro %u has no name", i);
		const char *name = ww_image_string(c->m, x[i].name);
		WW_NEED(c, is_identifier(name, MAX_MACRO),
			"ww_define() %u: its name is not a C identifier of 1 to %d characters", i, MAX_MACRO);
		WW_NEED(
			c, strncmp(name, "WW_", 3) && strncmp(name, "__", 2), "ww_define(\"%s\"): the prefix is reserved", name);
		for (uint32_t k = 0; k < i; k++)
			WW_NEED(c, strcmp(name, ww_image_string(c->m, x[k].name)), "ww_define(\"%s\") twice", name);
	}
	return 1;
}

/* ---- Ranges ------------------------------------------------------------------------------------------------------ */

int ww_check_range(struct ww_check *c, const char *what, int buf, long long offset, ww_wide bytes, int write)
{
	WW_NEED(c, buf >= 0 && (uint32_t)buf < c->m->n_buffers, "%s: %d is not a buffer of this plan", what, buf);
	const struct ww_image_buffer *b = &ww_image_buffers(c->m)[buf];
	WW_NEED(c, !write || b->role == WW_BUF_OUTPUT || b->role == WW_BUF_SCRATCH,
		"%s: inputs and parameters can only be read", what);
	WW_NEED(c, offset >= 0 && bytes >= 0 && (ww_wide)offset + bytes <= (ww_wide)b->bytes,
		"%s: bytes from %lld on reach beyond buffer %d, which has %llu", what, offset, buf,
		(unsigned long long)b->bytes);
	return 1;
}

int ww_ranges_meet(int buf_a, long long at_a, ww_wide bytes_a, int buf_b, long long at_b, ww_wide bytes_b)
{
	return buf_a == buf_b && (ww_wide)at_a < at_b + bytes_b && (ww_wide)at_b < at_a + bytes_a;
}

/* ---- Launches ---------------------------------------------------------------------------------------------------- */

static int check_kernel_name(struct ww_check *c, uint32_t at)
{
	WW_NEED(c, at < c->m->strings_bytes, "it has no kernel name");
	const char *s = ww_image_string(c->m, at);
	size_t n = strlen(s);
	WW_NEED(c, n >= 1 && n <= MAX_NAME, "the kernel's name has %zu characters, not 1 to %d", n, MAX_NAME);
	if (c->m->target == WW_TARGET_CPU) {
		WW_NEED(c, is_identifier(s, MAX_NAME), "the kernel's name is not a C identifier");
		return 1;
	}
	for (; *s; s++)
		WW_NEED(c, *s >= 0x20 && *s < 0x7f && !strchr("\"\\#;{}@`$", *s),
			"the kernel's name holds a character that no name has");
	return 1;
}

/* More than 8 blocks fit on whole devices alone: the runner asks for them and says where they do not fit. */
static int check_cluster(struct ww_check *c, const struct ww_image_launch *l)
{
	enum { MOST = 16 };

	if (!l->cluster[0] && !l->cluster[1] && !l->cluster[2])
		return 1;
	WW_NEED(c, c->facts->device.cc >= 90, "clusters need compute capability 9.0");
	for (int i = 0; i < 3; i++)
		WW_NEED(c, l->cluster[i] >= 1 && l->cluster[i] <= MOST && l->grid[i] % l->cluster[i] == 0,
			"cluster %d x %d x %d does not divide the grid, or is not in 1..%d", l->cluster[0], l->cluster[1],
			l->cluster[2], MOST);
	WW_NEED(c, l->cluster[0] * l->cluster[1] * l->cluster[2] <= MOST, "a cluster has more than %d blocks", MOST);
	return 1;
}

static int check_cuda_shape(struct ww_check *c, const struct ww_image_launch *l)
{
	static const long long grid_max[3] = { INT32_MAX, 65535, 65535 };
	static const int block_max[3] = { 1024, 1024, 64 };
	const struct ww_device *d = &c->facts->device;
	int threads_max = d->max_threads_per_block > 0 ? d->max_threads_per_block : 1024;
	for (int i = 0; i < 3; i++) {
		WW_NEED(c, l->grid[i] >= 1 && l->grid[i] <= grid_max[i], "grid %c = %lld is not in 1..%lld", "xyz"[i],
			(long long)l->grid[i], grid_max[i]);
		WW_NEED(c, l->block[i] >= 1 && l->block[i] <= block_max[i], "block %c = %d is not in 1..%d", "xyz"[i],
			l->block[i], block_max[i]);
	}
	long long threads = (long long)l->block[0] * l->block[1] * l->block[2];
	WW_NEED(c, threads <= threads_max, "a block of %lld threads; this device allows %d", threads, threads_max);
	return check_cluster(c, l);
}

static int check_cpu_shape(struct ww_check *c, const struct ww_image_launch *l)
{
	ww_wide blocks = 1;
	for (int i = 0; i < 3; i++) {
		WW_NEED(c, l->grid[i] >= 1 && l->grid[i] <= INT32_MAX, "grid %c = %lld is not in 1..%d", "xyz"[i],
			(long long)l->grid[i], INT32_MAX);
		WW_NEED(c, l->block[i] == 1 && l->cluster[i] == 0, "on the cpu target blocks are 1 x 1 x 1, without clusters");
		blocks *= l->grid[i];
	}
	WW_NEED(c, blocks <= (ww_wide)1 << 40, "the grid has more than 2^40 blocks");
	WW_NEED(c, !l->flags, "cooperative and dependent launches need the cuda target");
	return 1;
}

static int check_flags(struct ww_check *c, const struct ww_image_launch *l)
{
	WW_NEED(c, !(l->flags & ~(uint32_t)(WW_NODE_COOPERATIVE | WW_NODE_PDL)), "unknown flags");
	if (!(l->flags & WW_NODE_PDL))
		return 1;
	/* The first node must not start before the judge's own work ahead of it has ended. */
	WW_NEED(c, c->node > 0 && ww_image_nodes(c->m)[c->node - 1].kind == WW_NODE_LAUNCH,
		"ww_pdl() needs a launch as the node ahead");
	WW_NEED(c, c->facts->device.cc >= 90, "ww_pdl() needs compute capability 9.0");
	return 1;
}

/* The smallest offset step that any element type of the buffer's tensor can have; scratch has no type. */
static int buffer_step(const struct ww_check *c, int buf)
{
	const struct ww_facts *f = c->facts;
	const struct ww_tensor *t = buf < f->n_inputs        ? &f->inputs[buf]
		: buf < f->n_inputs + f->n_params                ? &f->params[buf - f->n_inputs]
		: buf < f->n_inputs + f->n_params + f->n_outputs ? &f->outputs[buf - f->n_inputs - f->n_params]
														 : NULL;
	int size = t ? ww_dtype_bytes(t->dtype) : 1;
	return size < 1 ? 1 : size > 4 ? 4 : size;
}

static int check_buf_arg(struct ww_check *c, uint32_t i, const struct ww_image_arg *a)
{
	WW_NEED(c, a->buf >= 0 && (uint32_t)a->buf < c->m->n_buffers, "argument %u: %d is not a buffer of this plan", i,
		a->buf);
	uint64_t bytes = ww_image_buffers(c->m)[a->buf].bytes;
	WW_NEED(c, a->i >= 0 && ((uint64_t)a->i < bytes || (!a->i && !bytes)),
		"argument %u: offset %lld is not inside buffer %d of %llu bytes", i, (long long)a->i, a->buf,
		(unsigned long long)bytes);
	WW_NEED(c, a->i % buffer_step(c, a->buf) == 0, "argument %u: offset %lld is not a multiple of the element size", i,
		(long long)a->i);
	return 1;
}

static int check_arg(struct ww_check *c, uint32_t i, const struct ww_image_arg *a)
{
	switch (a->kind) {
	case WW_ARG_BUF: return check_buf_arg(c, i, a);
	case WW_ARG_I32:
		WW_NEED(c, a->i >= INT32_MIN && a->i <= INT32_MAX, "argument %u: not a 32-bit integer", i);
		return 1;
	case WW_ARG_I64: return 1;
	case WW_ARG_F32: WW_NEED(c, !isnan(a->f32), "argument %u is NaN", i); return 1;
	case WW_ARG_F64: WW_NEED(c, !isnan(a->f64), "argument %u is NaN", i); return 1;
	case WW_ARG_TMAP:
		WW_NEED(c, a->buf >= 0 && (uint32_t)a->buf == c->next_tmap && c->next_tmap < c->m->n_tmaps,
			"argument %u: no tensor map of its own", i);
		return ww_check_tmap(c, &ww_image_tmaps(c->m)[c->next_tmap++].t);
	}
	return ww_check_no(c, "argument %u: unknown kind", i);
}

static int check_launch(struct ww_check *c, const struct ww_image_launch *l)
{
	long long shared_max = c->facts->device.shared_per_block_bytes;
	if (!check_kernel_name(c, l->kernel) || !check_flags(c, l))
		return 0;
	if (!(c->m->target == WW_TARGET_CUDA ? check_cuda_shape(c, l) : check_cpu_shape(c, l)))
		return 0;
	WW_NEED(c, l->shared_bytes >= 0 && l->shared_bytes <= shared_max,
		"%lld bytes of shared memory; this device allows %lld", (long long)l->shared_bytes, shared_max);
	WW_NEED(c, l->n_args <= WW_MAX_ARGS, "more than %d arguments", WW_MAX_ARGS);
	WW_NEED(c, l->first_arg == c->next_arg && l->n_args <= c->m->n_args - c->next_arg, "its arguments are not its own");
	for (uint32_t i = 0; i < l->n_args; i++)
		if (!check_arg(c, i, &ww_image_args(c->m)[c->next_arg + i]))
			return 0;
	c->next_arg += l->n_args;
	return 1;
}

/* ---- Memory nodes ------------------------------------------------------------------------------------------------ */

static int check_memset(struct ww_check *c, const struct ww_image_memset *s)
{
	WW_NEED(c, s->bytes > 0, "%lld bytes", (long long)s->bytes);
	WW_NEED(c, s->byte >= 0 && s->byte <= 255, "the value %d is not a byte", s->byte);
	return ww_check_range(c, "buffer", s->buf, s->offset_bytes, s->bytes, 1);
}

static int check_copy(struct ww_check *c, const struct ww_image_copy *x)
{
	WW_NEED(c, x->bytes > 0, "%lld bytes", (long long)x->bytes);
	if (!ww_check_range(c, "destination", x->dst, x->dst_offset_bytes, x->bytes, 1) ||
		!ww_check_range(c, "source", x->src, x->src_offset_bytes, x->bytes, 0))
		return 0;
	WW_NEED(c, !ww_ranges_meet(x->dst, x->dst_offset_bytes, x->bytes, x->src, x->src_offset_bytes, x->bytes),
		"source and destination overlap");
	return 1;
}

/* ---- PyTorch's operators ----------------------------------------------------------------------------------------- */

/* Names separated by one space: how many, -1 where they are no such list.  What they mean only the task's graph says
 * (pytorch.c). */
static int count_names(const char *s)
{
	int n = 0;
	for (size_t word; *s; n++) {
		word = strcspn(s, " ");
		if (!word || word > MAX_MACRO)
			return -1;
		s += word;
		if (*s == ' ' && !*++s)
			return -1;
	}
	return n;
}

static int check_pytorch(struct ww_check *c, const struct ww_image_pytorch *t)
{
	const uint32_t at[3] = { t->nodes, t->reads, t->writes };
	int n[3];
	for (int i = 0; i < 3; i++) {
		WW_NEED(c, at[i] < c->m->strings_bytes, "it has no names");
		n[i] = count_names(ww_image_string(c->m, at[i]));
		WW_NEED(c, n[i] >= 0, "its names are not separated by one space each, or one is longer than %d", MAX_MACRO);
	}
	WW_NEED(c, n[0] > 0 && n[2] > 0, "no operator, or no result");
	WW_NEED(c, (uint32_t)(n[1] + n[2]) == t->n_args && t->n_args <= WW_MAX_ARGS,
		"%u buffers for %d names, or more than %d", t->n_args, n[1] + n[2], WW_MAX_ARGS);
	WW_NEED(c, t->first_arg == c->next_arg && t->n_args <= c->m->n_args - c->next_arg, "its buffers are not its own");
	for (uint32_t i = 0; i < t->n_args; i++) {
		const struct ww_image_arg *a = &ww_image_args(c->m)[c->next_arg + i];
		WW_NEED(c, a->kind == WW_ARG_BUF && !a->i, "argument %u is no buffer from its start on", i);
		if (!check_buf_arg(c, i, a))
			return 0;
		WW_NEED(c, ww_image_buffers(c->m)[a->buf].role == WW_BUF_SCRATCH, "argument %u is not scratch", i);
	}
	c->next_arg += t->n_args;
	return 1;
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

static int check_node(struct ww_check *c, const struct ww_image_node *n)
{
	WW_NEED(c, !n->reserved, "reserved bits are set");
	switch (n->kind) {
	case WW_NODE_LAUNCH: return check_launch(c, &n->launch);
	case WW_NODE_MEMSET: return check_memset(c, &n->set);
	case WW_NODE_COPY: return check_copy(c, &n->copy);
	case WW_NODE_GEMM: return ww_check_gemm(c, &n->gemm);
	case WW_NODE_CONV: return ww_check_conv(c, &n->conv);
	case WW_NODE_PYTORCH: return check_pytorch(c, &n->pytorch);
	}
	return ww_check_no(c, "unknown kind %u", n->kind);
}

static int check_nodes(struct ww_check *c)
{
	int something_to_do = 0;
	for (int i = 0; i < c->facts->n_outputs; i++)
		something_to_do |= c->facts->outputs[i].bytes > 0;
	WW_NEED(c, c->m->n_nodes > 0 || !something_to_do, "the plan has no node");
	for (c->node = 0; (uint32_t)c->node < c->m->n_nodes; c->node++)
		if (!check_node(c, &ww_image_nodes(c->m)[c->node]))
			return 0;
	c->node = -1;
	WW_NEED(
		c, c->next_arg == c->m->n_args && c->next_tmap == c->m->n_tmaps, "image: arguments that belong to no launch");
	return 1;
}

int ww_image_validate(const struct ww_image *m, size_t bytes, const struct ww_facts *facts, struct ww_str *why)
{
	struct ww_check c = { .m = m, .bytes = bytes, .facts = facts, .why = why, .node = -1 };
	return check_sections(&c) && check_strings(&c) && check_buffers(&c) && check_macros(&c) && check_nodes(&c);
}
