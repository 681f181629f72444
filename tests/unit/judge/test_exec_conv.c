/* Convolution nodes on the cuda target (exec_cuda_conv.c) with a cuDNN that is written here: what its graph is told,
 * which algorithm a node takes, and that nothing is left behind. */
#include "unit.h"

#if __has_include(<cuda.h>)
#include "judge/run/exec_cuda_conv.c" /* its struct ww_dnn is filled here */

enum { ATTRIBUTES = 16, LISTED = 4 };
/* A descriptor: its kind, and what was set, as bytes. */
struct desc {
	int type, final, n;
	struct {
		int name;
		int64_t count;
		unsigned char bytes[64];
	} set[ATTRIBUTES];
	int algorithm; /* of configurations, engines and plans: index into algorithms[] */
};

/* What each mode lists, best first; -1 ends a list. */
static struct {
	int notes; /* bits */
	int64_t workspace;
	int builds;
} algorithms[12];
static int lists[3][LISTED + 1];
static int alive, executed, calls_behind;
static void *ran_on[3];

static int create(int type, void **d)
{
	struct desc *x = calloc(1, sizeof(*x));
	x->type = type;
	x->algorithm = -1;
	*d = x;
	alive++;
	return 0;
}

static int destroy(void *d)
{
	free(d);
	alive--;
	return 0;
}

static size_t bytes_of(int type, int64_t n)
{
	return (size_t)n *
		(type == TYPE_DATA || type == TYPE_FLOAT || type == TYPE_CONV_MODE || type == TYPE_HEUR_MODE ? 4 : 8);
}

static int set_attribute(void *d, int name, int type, int64_t n, const void *v)
{
	struct desc *x = d;
	assert_true(x->n < ATTRIBUTES && !x->final);
	x->set[x->n].name = name;
	x->set[x->n].count = n;
	assert_true(bytes_of(type, n) <= sizeof(x->set[0].bytes));
	memcpy(x->set[x->n++].bytes, v, bytes_of(type, n));
	return 0;
}

static const void *attribute(const struct desc *x, int name)
{
	for (int i = 0; i < x->n; i++)
		if (x->set[i].name == name)
			return x->set[i].bytes;
	fail_msg("attribute %d of a descriptor of type %d was not set", name, x->type);
	return NULL;
}

static struct desc *desc_of(const struct desc *x, int name)
{
	struct desc *d;
	memcpy(&d, attribute(x, name), sizeof(d));
	return d;
}

static const int64_t *numbers(const struct desc *x, int name) { return attribute(x, name); }

static int finalize(void *d)
{
	struct desc *x = d;
	x->final = 1;
	if (x->type != DESC_PLAN)
		return 0;
	x->algorithm = desc_of(x, PLAN_CONFIG)->algorithm;
	return !algorithms[x->algorithm].builds;
}

static int get_attribute(void *d, int name, int type, int64_t want, int64_t *got, void *v)
{
	struct desc *x = d;
	int64_t n = 0;
	(void)type;
	if (name == HEUR_RESULTS) {
		const int *list = lists[*(const int *)attribute(x, HEUR_MODE)];
		for (; list[n] >= 0 && (!v || n < want); n++)
			if (v)
				((struct desc **)v)[n]->algorithm = list[n];
	} else if (name == CONFIG_ENGINE) {
		(*(struct desc **)v)->algorithm = x->algorithm;
		n = 1;
	} else if (name == ENGINE_NOTES) {
		for (int i = 0; i < NOTES; i++)
			if (algorithms[x->algorithm].notes & 1 << i)
				((int *)v)[n++] = i;
	} else {
		assert_int_equal(name, PLAN_WORKSPACE);
		*(int64_t *)v = algorithms[x->algorithm].workspace;
		n = 1;
	}
	*got = n;
	return 0;
}

static int execute(void *handle, void *plan, void *pack)
{
	(void)handle;
	executed = ((struct desc *)plan)->algorithm;
	memcpy(ran_on, attribute(pack, PACK_POINTERS), sizeof(ran_on));
	return 0;
}

static int set_stream(void *handle, CUstream stream)
{
	(void)handle, (void)stream;
	return 0;
}

static int create_plain(void **d) { return create(-1, d); }
static int set_tensor(void *t, int format, int type, int rank, const int *size)
{
	(void)t, (void)format, (void)type, (void)rank, (void)size;
	return 0;
}
static int set_activation(void *a, int mode, int nan, double coefficient)
{
	(void)a, (void)mode, (void)nan, (void)coefficient;
	return 0;
}
static int add_tensor(
	void *handle, const void *alpha, void *a_desc, const void *a, const void *beta, void *c_desc, void *c)
{
	(void)handle, (void)alpha, (void)a_desc, (void)a, (void)beta, (void)c_desc, (void)c;
	calls_behind++;
	return 0;
}
static int activate(
	void *handle, void *act, const void *alpha, void *x_desc, const void *x, const void *beta, void *y_desc, void *y)
{
	(void)handle, (void)act, (void)alpha, (void)x_desc, (void)x, (void)beta, (void)y_desc, (void)y;
	calls_behind++;
	return 0;
}

static struct ww_dnn dnn = { .cudnnSetStream = set_stream,
	.cudnnBackendCreateDescriptor = create,
	.cudnnBackendDestroyDescriptor = destroy,
	.cudnnBackendSetAttribute = set_attribute,
	.cudnnBackendGetAttribute = get_attribute,
	.cudnnBackendFinalize = finalize,
	.cudnnBackendExecute = execute,
	.cudnnCreateTensorDescriptor = create_plain,
	.cudnnDestroyTensorDescriptor = destroy,
	.cudnnSetTensorNdDescriptorEx = set_tensor,
	.cudnnCreateActivationDescriptor = create_plain,
	.cudnnDestroyActivationDescriptor = destroy,
	.cudnnSetActivationDescriptor = set_activation,
	.cudnnAddTensor = add_tensor,
	.cudnnActivationForward = activate };

static const struct ww_conv conv2d = { .nd = 2,
	.dtype = WW_F32,
	.math = WW_MATH_TF32,
	.groups = 1,
	.n = 2,
	.c = 3,
	.k = 5,
	.in = { 7, 9 },
	.kernel = { 3, 3 },
	.out = { 4, 5 },
	.stride = { 2, 2 },
	.pad = { 1, 1 },
	.dilation = { 1, 1 },
	.x_buf = 0,
	.w_buf = 1,
	.y_buf = 2 };

static int set_up(void **state)
{
	(void)state;
	memset(algorithms, 0, sizeof(algorithms));
	for (int i = 0; i < 12; i++) {
		algorithms[i].notes = 1 << NOTE_TENSOR_CORE;
		algorithms[i].builds = 1;
	}
	for (int m = 0; m < 3; m++)
		for (int i = 0; i <= LISTED; i++)
			lists[m][i] = i < LISTED ? 4 * m + i : -1;
	alive = calls_behind = 0;
	executed = -1;
	return 0;
}

/* The algorithm that the convolution runs by, with 1000 bytes of workspace; -1: refused. */
static int taken(const struct ww_conv *c)
{
	char buffer[64], why[WW_EXEC_WHY];
	void *buffers[] = { buffer, buffer + 16, buffer + 32, buffer + 48 };
	struct ww_dnn_conv *s = NULL;
	size_t need = 0;
	int rc = ww_dnn_load(&dnn, &s, c, 1000, &need, why);
	executed = -1;
	if (rc == WW_EXEC_OK) {
		assert_int_equal(ww_dnn_issue(&dnn, s, c, buffers, NULL, NULL, why), WW_EXEC_OK);
		assert_int_equal(need, algorithms[executed].workspace);
		assert_ptr_equal(ran_on[0], buffers[0]);
		assert_ptr_equal(ran_on[2], buffers[2]);
	}
	ww_dnn_unload(&dnn, s);
	assert_int_equal(alive, 0);
	return executed;
}

/* PyTorch's first, then what modes A (0 to 3) and B (4 to 7) list by turns, then the fallbacks (8 to 11). */
static void choices_follow_the_heuristics(void **state)
{
	static const int want[] = { 0, 4, 1, 5, 2, 6, 3, 7, 8, 9, 10, 11, 11, 11 };
	struct ww_conv c = conv2d;
	(void)state;
	for (c.choice = 0; c.choice < 14; c.choice++)
		assert_int_equal(taken(&c), want[c.choice]);
}

static void what_cannot_be_had_is_passed_over(void **state)
{
	struct ww_conv c = conv2d;
	(void)state;
	algorithms[0].builds = 0;
	algorithms[4].workspace = 1001;
	algorithms[1].workspace = 1000;
	algorithms[5].notes |= 1 << NOTE_DOWN_CONVERT;
	assert_int_equal(taken(&c), 1);
	c.choice = 1;
	assert_int_equal(taken(&c), 2);
	c.math = WW_MATH_FP32;
	algorithms[9].notes = 0;
	assert_int_equal(taken(&c), 9);
	algorithms[9].builds = 0;
	assert_int_equal(taken(&c), -1);
	for (int i = 0; i < 12; i++)
		algorithms[i].workspace = 2000;
	assert_int_equal(taken(&conv2d), -1);
}

static void bias_and_relu_follow(void **state)
{
	struct ww_conv c = conv2d;
	(void)state;
	c.epilogue = WW_EPI_BIAS_RELU;
	c.bias_buf = 3;
	assert_int_equal(taken(&c), 0);
	assert_int_equal(calls_behind, 2);
}

static void assert_numbers(const int64_t *got, int n, const int64_t *want)
{
	for (int i = 0; i < n; i++)
		assert_int_equal(got[i], want[i]);
}

/* What the graph says of a convolution. */
static void the_graph_is_the_convolution(void **state)
{
	struct ww_conv c = conv2d;
	struct ww_dnn_conv *s;
	char why[WW_EXEC_WHY];
	size_t need;
	(void)state;
	c.x_offset_bytes = 8;
	assert_int_equal(ww_dnn_load(&dnn, &s, &c, 1000, &need, why), WW_EXEC_OK);
	assert_int_equal(((struct desc *)s->op)->type, DESC_FORWARD);
	assert_ptr_equal(desc_of(s->op, FORWARD_ALPHA + 4), s->x);
	assert_ptr_equal(desc_of(s->op, FORWARD_ALPHA + 5), s->y);
	assert_numbers(numbers(s->x, TENSOR_SIZES), 4, (int64_t[]){ 2, 3, 7, 9 });
	assert_numbers(numbers(s->x, TENSOR_STRIDES), 4, (int64_t[]){ 189, 63, 9, 1 });
	assert_int_equal(*numbers(s->x, TENSOR_ALIGNMENT), 8);
	assert_int_equal(*numbers(s->y, TENSOR_ALIGNMENT), 16);
	assert_numbers(numbers(s->w, TENSOR_SIZES), 4, (int64_t[]){ 5, 3, 3, 3 });
	assert_numbers(numbers(s->conv, CONV_STRIDES), 2, (int64_t[]){ 2, 2 });
	ww_dnn_unload(&dnn, s);

	c.layout = WW_LAYOUT_NHWC;
	assert_int_equal(ww_dnn_load(&dnn, &s, &c, 1000, &need, why), WW_EXEC_OK);
	assert_numbers(numbers(s->x, TENSOR_STRIDES), 4, (int64_t[]){ 189, 1, 27, 3 });
	assert_numbers(numbers(s->w, TENSOR_STRIDES), 4, (int64_t[]){ 27, 1, 9, 3 });
	ww_dnn_unload(&dnn, s);
	assert_int_equal(alive, 0);
}

/* One dimension is two; a transposed convolution is the gradient, y its input. */
static void lines_and_gradients(void **state)
{
	const struct ww_conv c = { .nd = 1,
		.transposed = 1,
		.dtype = WW_F32,
		.math = WW_MATH_TF32,
		.groups = 2,
		.n = 2,
		.c = 4,
		.k = 6,
		.in = { 5 },
		.kernel = { 3 },
		.out = { 11 },
		.stride = { 2 },
		.pad = { 0 },
		.dilation = { 1 } };
	struct ww_dnn_conv *s;
	char why[WW_EXEC_WHY];
	size_t need;
	(void)state;
	assert_int_equal(ww_dnn_load(&dnn, &s, &c, 1000, &need, why), WW_EXEC_OK);
	assert_int_equal(((struct desc *)s->op)->type, DESC_BWD_DATA);
	assert_ptr_equal(desc_of(s->op, BWD_DATA_ALPHA + 4), s->y);
	assert_ptr_equal(desc_of(s->op, BWD_DATA_ALPHA + 5), s->x);
	assert_numbers(numbers(s->y, TENSOR_SIZES), 4, (int64_t[]){ 2, 6, 1, 11 });
	assert_numbers(numbers(s->w, TENSOR_SIZES), 4, (int64_t[]){ 4, 3, 1, 3 });
	assert_numbers(numbers(s->conv, CONV_STRIDES), 2, (int64_t[]){ 1, 2 });
	assert_numbers(numbers(s->conv, CONV_PRE_PADDINGS), 2, (int64_t[]){ 0, 0 });
	ww_dnn_unload(&dnn, s);
	assert_int_equal(alive, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test_setup(choices_follow_the_heuristics, set_up),
		cmocka_unit_test_setup(what_cannot_be_had_is_passed_over, set_up),
		cmocka_unit_test_setup(bias_and_relu_follow, set_up),
		cmocka_unit_test_setup(the_graph_is_the_convolution, set_up),
		cmocka_unit_test_setup(lines_and_gradients, set_up) };
	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	puts("# skip: no <cuda.h> here");
	return 77;
}
#endif
