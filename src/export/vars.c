/* vars.c - the facts of one export as text for C and for Python. */
#include "export/parts.h"
#include "base/dtype.h"
#include "base/json.h"
#include "export/embed.h"
#include "judge/pytorch.h"
#include "task/task.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

static void add_tuple(struct ww_str *s, const long long *v, int rank)
{
	ww_str_addc(s, '(');
	for (int i = 0; i < rank; i++)
		ww_str_addf(s, i ? ", %lld" : "%lld", v[i]);
	ww_str_adds(s, rank == 1 ? ",)" : ")");
}

/* A Python string literal; names come from an untrusted module. */
static void add_py_string(struct ww_str *s, const char *text)
{
	ww_str_addc(s, '"');
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\' || c < 0x20 || c > 0x7e)
			ww_str_addf(s, "\\x%02x", c);
		else
			ww_str_addc(s, (char)c);
	}
	ww_str_addc(s, '"');
}

static void py_tensors(struct ww_str *s, const struct ww_tensor *t, int n, int named)
{
	for (int i = 0; i < n; i++) {
		ww_str_adds(s, "    (");
		if (named) {
			add_py_string(s, t[i].name);
			ww_str_adds(s, ", ");
		}
		ww_str_addf(s, "torch.%s, ", ww_dtype_name(t[i].dtype));
		add_tuple(s, t[i].size, t[i].rank);
		ww_str_adds(s, ", ");
		add_tuple(s, t[i].stride, t[i].rank);
		ww_str_adds(s, "),\n");
	}
}

static void c_tensors(struct ww_str *s, const char *role, const struct ww_tensor *t, int n)
{
	for (int i = 0; i < n; i++) {
		ww_str_addf(s, " *   %s[%d]  %-8s ", role, i, ww_dtype_name(t[i].dtype));
		add_tuple(s, t[i].size, t[i].rank);
		ww_str_adds(s, " strides ");
		add_tuple(s, t[i].stride, t[i].rank);
		ww_auto_str name = WW_STR_INIT(256);
		ww_str_add_bounded(&name, t[i].name, strlen(t[i].name), 120);
		for (char *p = name.p; *p; p++)
			if (*p == '/' || *p == '*' || *p == '\n')
				*p = ' ';
		ww_str_addf(s, "  %s\n", name.p);
	}
}

static void byte_list(struct ww_str *s, const struct ww_tensor *t, int n)
{
	for (int i = 0; i < n; i++)
		ww_str_addf(s, "%lld, ", t[i].bytes);
}

/* A Python tuple of the parameters that forward() does not look at. */
static void add_unused(const struct ww_export *x, struct ww_str *s)
{
	size_t i;
	json_t *p;
	ww_str_reset(s);
	ww_str_addc(s, '(');
	json_array_foreach(json_object_get(x->graph, "params"), i, p)
		if (!ww_json_bool(p, "used", 1)) {
			add_py_string(s, ww_json_str(p, "name", ""));
			ww_str_adds(s, ", ");
		}
	ww_str_addc(s, ')');
}

static void tensor_vars(struct ww_export *x)
{
	const struct ww_facts *f = x->facts;
	struct {
		const char *key, *role, *bytes;
		const struct ww_tensor *t;
		int n;
	} kinds[] = { { "PY_INPUTS", "inputs", "INPUT_BYTES", f->inputs, f->n_inputs },
		{ "PY_PARAMS", "params", "PARAM_BYTES", f->params, f->n_params },
		{ "PY_OUTPUTS", "outputs", "OUTPUT_BYTES", f->outputs, f->n_outputs } };
	ww_auto_str list = WW_STR_INIT(1 << 20), s = WW_STR_INIT(1 << 20);
	for (size_t i = 0; i < WW_ARRAY_LEN(kinds); i++) {
		c_tensors(&list, kinds[i].role, kinds[i].t, kinds[i].n);
		ww_str_reset(&s);
		py_tensors(&s, kinds[i].t, kinds[i].n, i == 1);
		ww_vars_set(&x->vars, kinds[i].key, s.p);
		ww_str_reset(&s);
		byte_list(&s, kinds[i].t, kinds[i].n);
		ww_vars_set(&x->vars, kinds[i].bytes, s.p);
	}
	ww_vars_set(&x->vars, "TENSORS", list.p);
	ww_vars_setf(&x->vars, "N_INPUTS", "%d", f->n_inputs);
	ww_vars_setf(&x->vars, "N_PARAMS", "%d", f->n_params);
	ww_vars_setf(&x->vars, "N_OUTPUTS", "%d", f->n_outputs);
	ww_str_reset(&s);
	ww_str_addc(&s, '[');
	for (int i = 0; i < f->n_params; i++) {
		ww_str_adds(&s, i ? ", " : "");
		add_py_string(&s, f->params[i].name);
	}
	ww_str_addc(&s, ']');
	ww_vars_set(&x->vars, "PY_PARAM_NAMES", s.p);
	add_unused(x, &s);
	ww_vars_set(&x->vars, "PY_UNUSED", s.p);
	ww_str_reset(&s);
	for (int i = 0; i < f->n_scalars; i++) {
		const struct ww_scalar *v = &f->scalars[i];
		ww_str_adds(&s, i ? ", " : "");
		if (v->kind == WW_SCALAR_NONE)
			ww_str_adds(&s, "None");
		else if (v->kind == WW_SCALAR_BOOL)
			ww_str_adds(&s, v->i ? "True" : "False");
		else if (v->kind == WW_SCALAR_INT)
			ww_str_addf(&s, "%lld", v->i);
		else if (isfinite(v->f))
			ww_str_addf(&s, "%.17g%s", v->f, floor(v->f) == v->f && fabs(v->f) < 1e15 ? ".0" : "");
		else
			ww_str_addf(&s, "float(\"%s\")", isnan(v->f) ? "nan" : v->f > 0 ? "inf" : "-inf");
	}
	ww_vars_set(&x->vars, "PY_SCALARS", s.p);
}

/* forward()'s result, from the graph's "output_tree", as a Python literal in which a number stands for an output. */
static void add_tree(struct ww_str *s, const json_t *tree)
{
	if (json_is_integer(tree)) {
		ww_str_addf(s, "%" JSON_INTEGER_FORMAT, json_integer_value(tree));
		return;
	}
	const json_t *items = json_object_get(tree, "items");
	const char *kind = ww_json_str(tree, "kind", "none");
	size_t i;
	json_t *v;
	if (!strcmp(kind, "tuple") || !strcmp(kind, "list")) {
		ww_str_addc(s, *kind == 't' ? '(' : '[');
		json_array_foreach(items, i, v) {
			add_tree(s, v);
			ww_str_adds(s, ", ");
		}
		ww_str_addc(s, *kind == 't' ? ')' : ']');
	} else if (!strcmp(kind, "dict")) {
		const json_t *keys = json_object_get(tree, "keys");
		ww_str_addc(s, '{');
		json_array_foreach(items, i, v) {
			add_py_string(
				s, json_string_value(json_array_get(keys, i)) ? json_string_value(json_array_get(keys, i)) : "");
			ww_str_adds(s, ": ");
			add_tree(s, v);
			ww_str_adds(s, ", ");
		}
		ww_str_addc(s, '}');
	} else {
		ww_str_adds(s, "None");
	}
}

/* Operators whose result depends on whether the module is in training mode. */
static int mode_matters(const json_t *graph)
{
	static const char *const ops[] = { "batch_norm", "dropout", "instance_norm", "rrelu" };
	size_t i;
	json_t *node;
	json_array_foreach(json_object_get(graph, "nodes"), i, node)
		for (size_t k = 0; k < WW_ARRAY_LEN(ops); k++)
			if (strstr(ww_json_str(node, "op", ""), ops[k]))
				return 1;
	return 0;
}

static void graph_vars(struct ww_export *x)
{
	const json_t *graph = x->graph;
	ww_auto_str s = WW_STR_INIT(65536);
	const json_t *tree = json_object_get(graph, "output_tree");
	if (tree)
		add_tree(&s, tree);
	else
		ww_str_adds(&s, "0");
	ww_vars_set(&x->vars, "PY_OUTPUT_TREE", s.p);
	ww_vars_set(&x->vars, "PY_TRAINING",
		!mode_matters(graph)                                              ? "None"
			: ww_json_bool(json_object_get(graph, "task"), "training", 1) ? "True"
																		  : "False");
	ww_str_reset(&s);
	const json_t *mutated = json_object_get(graph, "mutated");
	if (json_array_size(mutated)) {
		size_t i;
		json_t *name;
		ww_str_adds(&s, "\nThe original updates these buffers in its forward pass; the plan does not:");
		json_array_foreach(mutated, i, name) {
			ww_auto_str clean = WW_STR_INIT(512);
			const char *text = json_is_string(name) ? json_string_value(name) : ww_json_str(name, "name", "?");
			ww_str_add_bounded(&clean, text, strlen(text), 200);
			for (char *p = clean.p; *p; p++)
				if (*p == '"' || *p == '\\' || *p == '\n')
					*p = ' ';
			ww_str_addf(&s, " %s", clean.p);
		}
		ww_str_adds(&s, "\n");
	}
	ww_vars_set(&x->vars, "MUTATED", s.p);
}

/* ---- Operators that PyTorch runs --------------------------------------------------------------------------------- */

/* Where scratch buffer `buf` begins, as lib_common.c.in lays scratch out. */
static json_int_t scratch_offset(const struct ww_image *m, int buf)
{
	json_int_t at = 0;
	for (int i = 0; i < buf; i++)
		if (ww_image_buffers(m)[i].role == WW_BUF_SCRATCH)
			at += (json_int_t)((ww_image_buffers(m)[i].bytes + 255) & ~(uint64_t)255);
	return at;
}

/* [dtype, sizes, offset, strides of the graph where they are not row-major] of an operator's result. */
static json_t *place_of(const struct ww_export *x, const char *name, int buf)
{
	const json_t *row = ww_json_named(json_object_get(x->graph, "nodes"), name);
	const json_t *form = json_array_get(json_object_get(row, "out"), 0);
	json_int_t step = 1;
	int row_major = 1;
	const json_t *sizes = json_object_get(form, "sizes"), *strides = json_object_get(form, "strides");
	for (size_t i = json_array_size(sizes); i-- > 0;) {
		row_major &= json_integer_value(json_array_get(strides, i)) == step;
		step *= json_integer_value(json_array_get(sizes, i));
	}
	return json_pack("[O, O, I, o]", json_object_get(form, "dtype"), sizes, scratch_offset(x->image, buf),
		row_major ? json_null() : json_incref((json_t *)(uintptr_t)strides));
}

static json_t *part_of(const struct ww_export *x, uint32_t node)
{
	const struct ww_image_arg *arg = ww_image_args(x->image) + ww_image_nodes(x->image)[node].pytorch.first_arg;
	json_t *part = ww_pytorch_part(x->graph, x->image, node), *reads = json_array(), *out = json_array(), *name;
	size_t i;
	json_array_foreach(json_object_get(part, "reads"), i, name)
		json_array_append_new(reads, json_pack("[O, o]", name, place_of(x, json_string_value(name), (arg++)->buf)));
	json_array_foreach(json_object_get(part, "writes"), i, name)
		json_array_append_new(out, place_of(x, json_string_value(name), (arg++)->buf));
	json_object_set_new(part, "node", json_integer((json_int_t)node));
	json_object_set_new(part, "reads", reads);
	json_object_set_new(part, "out", out);
	return part;
}

static void add_parts(struct ww_export *x)
{
	const struct ww_embedded *operators = ww_embedded_find("bridge/wwbridge/operators.py");
	json_auto_t *parts = json_array();
	ww_auto_str s = WW_STR_INIT(1 << 20);
	for (uint32_t i = 0; i < x->image->n_nodes; i++)
		if (ww_image_nodes(x->image)[i].kind == WW_NODE_PYTORCH)
			json_array_append_new(parts, part_of(x, i));
	ww_auto_free char *text = json_dumps(parts, JSON_COMPACT | JSON_ENSURE_ASCII);
	add_py_string(&s, text ? text : "[]");
	ww_vars_set(&x->vars, "PY_PARTS", s.p);
	ww_str_reset(&s);
	ww_str_addc(&s, '[');
	for (int i = 0; i < x->facts->n_inputs; i++) {
		add_py_string(&s, x->facts->inputs[i].name);
		ww_str_adds(&s, ", ");
	}
	ww_str_addc(&s, ']');
	ww_vars_set(&x->vars, "PY_INPUT_NAMES", s.p);
	ww_str_reset(&s);
	WW_BUG(!operators);
	ww_str_add(&s, operators->bytes, operators->n);
	ww_vars_set(&x->vars, "OPERATORS", s.p);
	ww_vars_setf(&x->vars, "N_NODES", "%u", x->image->n_nodes);
	ww_str_reset(&s);
	ww_render_embedded(&x->vars, "src/export/templates/parts.py.in", &s);
	ww_str_adds(&s, "\n\n");
	ww_vars_set(&x->vars, "PARTS", s.p);
}

static const char run_part[] =
	"int %s_run_part(struct %s *m, const void *const *inputs, const void *const *params, "
	"void *const *outputs, void *scratch, unsigned from,\n\t       unsigned to, void *stream, char why[])";

/* A plan without such operators is exported as if there were none. */
static void parts_vars(struct ww_export *x)
{
	struct ww_vars *v = &x->vars;
	char head[1024];
	int partial = ww_pytorch_count(x->image) > 0;
	snprintf(head, sizeof(head), run_part, x->name, x->name);
	ww_vars_set(v, "PARTS", "");
	ww_vars_set(v, "ONE_STREAM", partial ? "False" : "True");
	if (partial)
		add_parts(x);
	ww_vars_set(v, "PY_RUN",
		partial ? "_run_parts(handle, arguments, inputs, params, scratch, stream, why)"
				: "run(handle, *arguments, stream, why)");
	ww_vars_set(v, "PY_RUN_PART",
		partial ? ",\n                    (\"run_part\", ctypes.c_int, [ctypes.c_void_p] * 5 + [ctypes.c_uint] * 2 + "
				  "[ctypes.c_void_p, ctypes.c_char_p])"
				: "");
	ww_vars_setf(v, "RUN_PART_H",
		partial ? "/* Nodes from..to-1 of the plan: between them PyTorch runs operators. */\n%s;\n" : "", head);
	ww_vars_setf(v, "RUN_PART",
		partial ? "\n%s\n{\n\twhy[0] = 0;\n\tbind(m, inputs, params, outputs, scratch);\n"
				  "\treturn ww_exec_issue_part(m->exec, m->buffers, from, to, stream, why);\n}\n"
				: "",
		head);
}

static void add_c_string(struct ww_str *s, const char *text)
{
	ww_str_addc(s, '"');
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;
		if (c == '"' || c == '\\' || c == '?' || c < 0x20 || c > 0x7e)
			ww_str_addf(s, "\\%03o", c);
		else
			ww_str_addc(s, (char)c);
	}
	ww_str_addc(s, '"');
}

static void kernel_vars(struct ww_export *x)
{
	ww_auto_str s = WW_STR_INIT(1 << 20);
	for (int i = 0; i < x->compiled.n_kernels; i++) {
		ww_str_adds(&s, "\t{ ");
		add_c_string(&s, x->compiled.kernels[i].kernel);
		ww_str_adds(&s, ", ");
		add_c_string(&s, x->compiled.kernels[i].symbol);
		ww_str_adds(&s, " },\n");
	}
	ww_vars_set(&x->vars, "KERNELS", s.p);
	/* "--a -b" as C string literals for NVRTC */
	ww_str_reset(&s);
	const char *flags = ww_compile_flags(WW_TARGET_CUDA);
	while (*flags) {
		size_t n = strcspn(flags, " ");
		if (n)
			ww_str_addf(&s, "%s\"%.*s\"", s.len ? ", " : "", (int)n, flags);
		flags += n + (flags[n] == ' ');
	}
	ww_vars_set(&x->vars, "NVRTC_FLAGS", s.p);
}

/* One line that may stand in a Python docstring, a C comment and a Python string literal. */
static void make_quotable(struct ww_str *s)
{
	for (char *p = s->p; *p; p++)
		if (*p == '"' || *p == '\\' || *p == '\n' || (*p == '*' && p[1] == '/'))
			*p = ' ';
}

void ww_export_verdict_text(const struct ww_verdict *v, struct ww_str *out)
{
	ww_auto_str flags = WW_STR_INIT(4096);
	ww_str_addf(out, "Judged on %.100s by rule %s: %s, relative error %.2g", v->device_name, ww_rule_name(v->rule),
		v->correct ? "correct" : "NOT correct", v->err_rel);
	ww_verdict_add_speedups(v, out);
	ww_str_adds(out, " (device time, 95% intervals).");
	ww_verdict_add_flags(v, "\nFlag ", &flags);
	for (char *line = flags.p, *end; *line == '\n'; line = end + 1) {
		end = strchr(line + 1, '\n');
		ww_str_addf(out, " %.*s.", (int)(end - line - 1), line + 1);
	}
	make_quotable(out);
}

static void verdict_vars(struct ww_export *x)
{
	const struct ww_verdict *v = x->o->verdict;
	ww_auto_str device = WW_STR_INIT(256), text = WW_STR_INIT(8192);
	ww_str_add_bounded(
		&device, v && v->correct ? v->device_name : "", v && v->correct ? strlen(v->device_name) : 0, 100);
	make_quotable(&device);
	ww_vars_set(&x->vars, "VERIFIED_ON", device.p);
	/* The runner's name of a cpu carries the number of threads behind a comma; /proc/cpuinfo does not. */
	ww_vars_setf(&x->vars, "CPU", "%.*s", (int)strcspn(device.p, ","), device.p);
	ww_vars_set(&x->vars, "GPU", device.p);
	if (v)
		ww_export_verdict_text(v, &text);
	else
		ww_str_adds(&text, "Not judged: run `warpwright judge` before you trust it.");
	ww_vars_set(&x->vars, "VERIFIED", text.p);
}

static void target_vars(struct ww_export *x)
{
	struct ww_vars *v = &x->vars;
	int cuda = x->cuda;
	ww_vars_set(v, "TARGET", cuda ? "cuda" : "cpu");
	ww_vars_set(v, "EXT", cuda ? "cu" : "c");
	ww_vars_set(v, "LIB_SOURCES",
		cuda ? "runtime/judge/run/exec_cuda.c runtime/judge/run/exec_cuda_library.c runtime/judge/run/exec_cuda_conv.c "
			   "recompile.c"
			 : "runtime/judge/run/exec_cpu.c");
	ww_vars_set(v, "EXTRA_TARGETS", "");
	ww_vars_set(v, "KERNEL_RULE", "");
	ww_vars_set(v, "CUDA_INCLUDE", cuda ? " -I$(CUDA_HOME)/include" : "");
	ww_vars_set(v, "MAKE_EXAMPLE", cuda ? "" : ", \"example\"");
	ww_vars_setf(v, "CC", "%d", x->facts->device.cc);
	ww_vars_set(v, "CPU_FLAGS", ww_compile_flags(WW_TARGET_CPU));
	ww_vars_setf(v, "TRAVELS", cuda ? "" : " and %s_kernels.so", x->name);
	ww_vars_set(v, "WEIGHTS_NOTE", cuda ? " (copy them to the device)" : "");
	ww_vars_set(v, "DEVICE_NOTE", cuda ? " in device memory" : "");
	ww_vars_set(v, "SCRATCH_NOTE", cuda ? " device memory" : "");
	ww_vars_set(
		v, "NEW_NOTE", cuda ? " for the device whose context is current" : "; threads as many as this process may use");
	ww_vars_set(v, "RUN_NOTE",
		cuda ? "\n * stream: a CUstream or cudaStream_t; the call returns without waiting, and can be "
			   "captured into a graph."
			 : "\n * stream is ignored; the call returns when the outputs are there.");
	ww_vars_set(v, "FREE",
		cuda ? "\tif (m->names)\n\t\tfor (int i = 0; i < N_KERNELS; i++)\n"
			   "\t\t\tfree((void *)m->names[i].symbol);\n\tfree(m->names);\n\tfree(m->recompiled);\n"
			 : "");
	if (!cuda) {
		ww_vars_setf(v, "EXTRA_TARGETS", " %s_kernels.so", x->name);
		ww_auto_str s = WW_STR_INIT(65536);
		ww_render_embedded(v, "src/export/templates/kernel_rule_cpu.in", &s);
		ww_vars_set(v, "KERNEL_RULE", s.p);
	}
}

/* The folder of the files that the task imports and reads: beside model.py. */
static void local_vars(struct ww_export *x)
{
	int torch = x->o->format == WW_EXPORT_TORCH;
	ww_vars_setf(&x->vars, "LOCAL_DIR", torch ? "warpwright_%s" : "", x->name);
	ww_vars_set(&x->vars, "LOCAL_PATH",
		x->o->task->n_files && torch
			? "\nsys.path.append(os.path.dirname(os.path.abspath(__file__)))  # the task's own modules lie here\n"
			: "");
}

void ww_export_vars(struct ww_export *x)
{
	struct ww_vars *v = &x->vars;
	ww_vars_set(v, "NAME", x->name);
	local_vars(x);
	ww_vars_set(v, "CLASS", "ModelNew");
	ww_vars_setf(v, "GUARD", "WW_%s_H", x->name);
	ww_vars_set(v, "VERSION", WW_VERSION);
	ww_vars_set(v, "TASK", x->o->task->name);
	ww_vars_set(v, "TASK_ID", x->o->task->id);
	ww_vars_setf(v, "EXPORT_ID", "%.16s", x->id);
	ww_vars_setf(v, "SUMMARY", "a PyTorch module's forward pass as kernels of its own.");
	ww_vars_set(v, "FORM", ww_export_format_name(x->o->format));
	tensor_vars(x);
	graph_vars(x);
	kernel_vars(x);
	verdict_vars(x);
	target_vars(x);
	parts_vars(x);
	/* Last, since they are made of the others. */
	ww_auto_str s = WW_STR_INIT(1 << 20);
	ww_render_embedded(v, "src/export/templates/lib_common.c.in", &s);
	ww_vars_set(v, "COMMON", s.p);
	ww_str_reset(&s);
	ww_render_embedded(v, "src/export/templates/core.py.in", &s);
	ww_vars_set(v, "CORE", s.p);
	ww_str_reset(&s);
	static const char *const bodies[] = { "src/export/templates/check_c.py.in",
		"src/export/templates/check_torch.py.in", "src/export/templates/check_kernelbench.py.in" };
	ww_render_embedded(v, bodies[x->o->format], &s);
	ww_vars_set(v, "CHECK_BODY", s.p);
}
